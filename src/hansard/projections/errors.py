"""What can go wrong between the log and its tables, told apart by who must act.

    ProjectionError
    ├── Held                another projector has the file: wait for it, or stop it
    ├── Newer               the file was written by a newer version of Hansard
    ├── Unusable            the file cannot be opened or is no projection: rebuild it
    ├── OtherLog            the file was made of another log: rebuild it
    └── Behind              a position was not projected in time

Nothing of the record is lost by any of them: the log is the truth, the tables are made of it.
"""

from __future__ import annotations

from pathlib import Path

from hansard.domain.errors import HansardError


class ProjectionError(HansardError):
    """Base of the projections' errors."""


class Held(ProjectionError):
    """Another projector writes this file; this one wrote nothing."""

    def __init__(self, path: Path, pid: int | None) -> None:
        by = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{by} projects into {str(path)!r} already, and only one may: "
            "use what it projects, or stop it first"
        )
        self.path = path
        self.pid = pid


class Newer(ProjectionError):
    """The file has migrations behind it that this version does not know; nothing was changed."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{str(path)!r} has schema {found}, this version knows up to {known}: "
            "upgrade hansard, or make the file anew with 'hansard rebuild'"
        )
        self.path = path
        self.found = found
        self.known = known


class Unusable(ProjectionError):
    """The file cannot be opened, or is not a projection."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{str(path)!r} cannot be used ({why}): make it anew with 'hansard rebuild'"
        )
        self.path = path
        self.why = why


class OtherLog(ProjectionError):
    """The message up to which the file was projected is not what the log holds there."""

    def __init__(self, path: Path, position: int) -> None:
        super().__init__(
            f"{str(path)!r} was made of another log: position {position} does not hold the message "
            "that was projected from there; make it anew with 'hansard rebuild'"
        )
        self.path = path
        self.position = position


class Behind(ProjectionError):
    """A position was not projected within the time that the caller gave."""

    def __init__(self, wanted: int, position: int, waited_s: float) -> None:
        super().__init__(
            f"position {wanted} was not projected within {waited_s:g} s, the tables stand at "
            f"{position}: wait longer, or see 'hansard status'"
        )
        self.wanted = wanted
        self.position = position
