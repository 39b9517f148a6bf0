"""Errors between the log and its tables, grouped by who must act.

    ProjectionError
    ├── Held                another projector has the file: wait for it, or stop it
    ├── Newer               the file was written by a newer version of Hansard
    ├── Unusable            the file cannot be opened or is no projection: rebuild it
    │   └── Older           another schema made the file, and it is opened for reading only
    ├── NoRoom              the disk refuses writes: free some space, then the projector continues
    ├── OtherLog            the file was made from another log: rebuild it
    │   └── Ahead           the file knows more than the log: the log lost commits, or is another;
    │                       a Corrupt, too
    └── Behind              a position was not projected in time

None of them loses data of the record: the tables are derived from the log.
"""

from __future__ import annotations

from pathlib import Path

from hansard.bus import errors
from hansard.domain.errors import CallerError, Corrupt, HansardError

REBUILD = "make it again with 'hansard rebuild'"
"""Remedy for tables that cannot be used."""


class ProjectionError(HansardError):
    """Base of the projections' errors."""


class Held(ProjectionError):
    """Another process writes this table file.

    State: nothing was written.
    Remedy: wait until the process has ended, or read through it.
    """

    def __init__(self, path: Path, pid: int | None) -> None:
        by = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{by} already projects into {str(path)!r}, and only one may: "
            "use its tables, or stop it first"
        )
        self.path = path
        self.pid = pid


class Newer(ProjectionError):
    """A newer version of Hansard made the table file.

    State: nothing was changed.
    Remedy: install that version, or run `hansard rebuild`.
    """

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{str(path)!r} has schema {found}, this version knows up to {known}: "
            "upgrade hansard, or rebuild the file with 'hansard rebuild'"
        )
        self.path = path
        self.found = found
        self.known = known


class Unusable(ProjectionError):
    """The table file or index cannot be opened, or is none of this version.

    State: nothing was changed.
    Remedy: move the file away, then run `hansard rebuild`, or `hansard search --rebuild`.
    """

    def __init__(self, path: Path, why: str, remedy: str = REBUILD) -> None:
        super().__init__(f"{str(path)!r} cannot be used ({why}): {remedy}")
        self.path = path


class NoRoom(ProjectionError):
    """The disk of the tables accepts no writes: it is full, read-only or broken.

    State: nothing was written.
    Remedy: free space, then run the command again.
    """

    def __init__(self, path: Path, cause: OSError | str) -> None:
        super().__init__(f"the tables cannot be written: {errors.explained(path, cause)} [{cause}]")
        self.path = path


def unwritten(path: Path, error: Exception) -> ProjectionError:
    """Return the projection error for an error raised while writing a file."""
    text = error if isinstance(error, OSError) else str(error)
    if errors.code_of(text):
        return NoRoom(path, text)
    return ProjectionError(f"{str(path)!r} cannot be written: {error}")


def unusable(path: Path, error: Exception, remedy: str = REBUILD) -> ProjectionError:
    """Return the projection error for an error raised while opening a file. An error of the disk
    does not mean that the file is bad, and a rebuild would not help.
    """
    text = error if isinstance(error, OSError) else str(error)
    return NoRoom(path, text) if errors.code_of(text) else Unusable(path, str(error), remedy)


class Older(Unusable):
    """Another schema made the table file, which is opened for reading only.

    State: nothing was changed.
    Remedy: open it once with write access, or run `hansard rebuild`.
    """


class OtherLog(ProjectionError):
    """The table file or index was made from another log: the message at its position differs.

    State: nothing was changed.
    Remedy: restore the matching log, or make the file again as the message says.
    """

    def __init__(self, path: Path, position: int, remedy: str = REBUILD) -> None:
        super().__init__(
            f"{str(path)!r} was made of another log: position {position} does not hold the message "
            f"that was projected from there; {remedy}"
        )
        self.path = path
        self.position = position


class Ahead(OtherLog, Corrupt):
    """The table file was made from messages that the log does not hold.

    State: nothing was changed.
    Remedy: restore the log from a backup; or move `projections/` away, then run `hansard rebuild`.

    `last` is the newest position of the log, `gone` the number of earlier messages that are
    missing.
    """

    def __init__(
        self, path: Path, position: int, last: int, gone: int = 0, remedy: str = REBUILD
    ) -> None:
        lost = "that is gone from the log"
        if last < position:
            lost = f"the log ends at {last}"
        elif gone:
            lost = f"{gone:,} of the messages counted up to there are gone from the log"
        Corrupt.__init__(
            self,
            str(path),
            f"it is at position {position}, and {lost}: commits that were acknowledged are lost, "
            "or it is another log. Restore the broker's files from a backup that has them (see "
            f"docs/backup.md), and only then, or to go on without them, {remedy}",
        )
        self.path = path
        self.position = position
        self.last = last


class Behind(ProjectionError):
    """The tables did not reach a position within the given time.

    State: nothing was changed; the tables continue to follow the log.
    Remedy: wait longer, or run `hansard up` or `hansard rebuild`.
    """

    def __init__(self, target: int, position: int, waited_s: float) -> None:
        super().__init__(
            f"position {target} was not projected within {waited_s:g} s, the tables are at "
            f"{position}: wait longer, or see 'hansard status'"
        )
        self.target = target
        self.position = position


class PartialTables(ProjectionError):
    """The log could not be read to its end.

    State: the tables hold only a part of it.
    Remedy: run the command again; if it fails again, run `hansard check`.
    """

    def __init__(self, position: int, target: int, reason: Exception) -> None:
        super().__init__(
            f"the tables hold {position:,} of {target:,} positions, since the log could not be "
            f"read further: {reason}; start the broker and query again, which continues from there"
        )
        self.position = position
        self.target = target


class BadQuery(CallerError):
    """The search question is invalid; nothing was read."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}: {remedy}")
        self.fact = fact
        self.remedy = remedy


# Errors of the SQL door, grouped by who must act.
#
# SqlError
# ├── NotAllowed          the caller: the text is not one read-only statement
# ├── QueryFailed         the caller: DuckDB cannot answer it; its error text, without paths
# ├── TooCostly           the caller: it exceeded its time or memory, and was stopped
# ├── SqlBusy             the world: too many questions at once
# └── SqlClosed           nothing is published, or the door was closed
#
# None of them changes anything, and the door remains open.


class SqlError(ProjectionError):
    """Base of the SQL errors."""


class NotAllowed(SqlError):
    """The text is not one statement that reads.

    State: nothing was run.
    Remedy: send one statement that reads, in UTF-8, and as short as the message says.
    """


class QueryFailed(SqlError):
    """DuckDB rejected the statement.

    State: nothing was changed.
    Remedy: correct the SQL as the message says.
    """


class TooCostly(SqlError):
    """A question was stopped for its cost.

    State: nothing was changed.
    Remedy: ask for less; `limit` is `time`, `cpu` or `memory`.
    """

    def __init__(self, limit: str, allowed: str, had_s: float | None = None) -> None:
        """`had_s`: its CPU time, if it was stopped for its time under load."""
        target = "needs more; query less at once (fewer rows, a narrower join)"
        if had_s is not None:
            target = f"had a core for {had_s:.1f} s of that, the machine is busy; try again later"
        super().__init__(
            f"the query was stopped: it may take {allowed} and {target}, or raise its limit"
        )
        self.limit = limit


class SqlBusy(SqlError):
    """Too many questions run at once.

    State: the question was not begun.
    Remedy: ask again later.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: try again later")


class SqlClosed(SqlError):
    """The SQL worker or its record was closed.

    State: nothing was run.
    Remedy: connect again.
    """
