"""What can go wrong at the SQL door, told apart by who must act.

    SqlError
    ├── NotAllowed          the caller: the text is not one statement that reads
    ├── QueryFailed         the caller: DuckDB cannot answer it; its words, without paths
    ├── TooCostly           the caller: it took more time or memory than it may, and was stopped
    ├── SqlBusy             the world: too many questions at once
    └── SqlClosed           nothing is published, or the door was closed meanwhile

None of them changes anything, and the door answers on.
"""

from __future__ import annotations

from hansard.projections.errors import ProjectionError


class SqlError(ProjectionError):
    """Base of the SQL door's errors."""


class NotAllowed(SqlError):
    """The text is not one statement that reads."""


class QueryFailed(SqlError):
    """DuckDB cannot answer it."""


class TooCostly(SqlError):
    """It was stopped for what it cost; `limit` is `time`, `cpu` or `memory`."""

    def __init__(self, limit: str, allowed: str, had_s: float | None = None) -> None:
        """had_s: how long it had a core, where it was stopped for its time and others had them."""
        wanted = "wanted more; ask for less at once (fewer rows, a narrower join)"
        if had_s is not None:
            wanted = f"had a core for {had_s:.1f} s of that, the machine is busy; ask again later"
        super().__init__(
            f"the question was stopped: it may take {allowed} and {wanted}, or give it more"
        )
        self.limit = limit


class SqlBusy(SqlError):
    """Too many questions at once; this one was not begun."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: ask again later")


class SqlClosed(SqlError):
    """There is nothing to ask."""
