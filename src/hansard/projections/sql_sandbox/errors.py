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

    def __init__(self, limit: str, allowed: str) -> None:
        super().__init__(
            f"the question was stopped: it may take {allowed} and wanted more; "
            "ask for less at once (fewer rows, a narrower join), or give it more"
        )
        self.limit = limit


class SqlBusy(SqlError):
    """Too many questions at once; this one was not begun."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: ask again later")


class SqlClosed(SqlError):
    """There is nothing to ask."""
