"""What can go wrong between the log and its tables, told apart by who must act.

    ProjectionError
    ├── Held                another projector has the file: wait for it, or stop it
    ├── Newer               the file was written by a newer version of Hansard
    ├── Unusable            the file cannot be opened or is no projection: rebuild it
    │   └── Older           another schema made the file, and it is opened for reading only
    ├── NoRoom              the disk takes nothing: make room, what projects goes on by itself
    ├── OtherLog            the file was made of another log: rebuild it
    │   └── Ahead           the file knows more than the log: the log lost commits, or is another;
    │                       a Corrupt, too
    └── Behind              a position was not projected in time

Nothing of the record is lost by any of them: the log is the truth, the tables are made of it.
"""

from __future__ import annotations

from pathlib import Path

from hansard.bus import disk
from hansard.domain.errors import Corrupt, HansardError


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
    """A newer version of Hansard made the file; nothing was changed."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{str(path)!r} has schema {found}, this version knows up to {known}: "
            "upgrade hansard, or rebuild the file with 'hansard rebuild'"
        )
        self.path = path
        self.found = found
        self.known = known


class Unusable(ProjectionError):
    """The file cannot be opened, or is not a projection."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{str(path)!r} cannot be used ({why}): make it again with 'hansard rebuild'"
        )
        self.path = path
        self.why = why


class NoRoom(ProjectionError):
    """The disk takes nothing (it is full, read-only, broken): nothing was written."""

    def __init__(self, path: Path, said: OSError | str) -> None:
        super().__init__(f"the tables cannot be written: {disk.explained(path, said)} [{said}]")
        self.path = path


def unwritten(path: Path, error: Exception) -> ProjectionError:
    """What an error is that came of writing a file."""
    said = error if isinstance(error, OSError) else str(error)
    if disk.code_of(said):
        return NoRoom(path, said)
    return ProjectionError(f"{str(path)!r} cannot be written: {error}")


def unusable(path: Path, error: Exception) -> ProjectionError:
    """What an error is that came of opening a file: a disk that takes nothing says nothing about
    the file, and making it again would not help.
    """
    said = error if isinstance(error, OSError) else str(error)
    return NoRoom(path, said) if disk.code_of(said) else Unusable(path, str(error))


class Older(Unusable):
    """Another schema made the file, which is opened for reading only; who writes it rebuilds it."""


class OtherLog(ProjectionError):
    """The message up to which the file was projected is not what the log holds there."""

    def __init__(self, path: Path, position: int) -> None:
        super().__init__(
            f"{str(path)!r} was made of another log: position {position} does not hold the message "
            "that was projected from there; make it again with 'hansard rebuild'"
        )
        self.path = path
        self.position = position


class Ahead(OtherLog, Corrupt):
    """The file was made of messages that the log does not hold, or not any more.

    `last` is the newest position of the log, `gone` how many messages before that are missing.
    """

    def __init__(self, path: Path, position: int, last: int, gone: int = 0) -> None:
        lost = "that is gone from the log"
        if last < position:
            lost = f"the log ends at {last}"
        elif gone:
            lost = f"{gone:,} of the messages that were counted up to there are gone from the log"
        Corrupt.__init__(
            self,
            str(path),
            f"the tables are at position {position}, and {lost}: commits that were acknowledged "
            "are lost, or it is another log. Restore the broker's files from a backup that has "
            "them (see docs/backup.md), and only then, or to go on without them, 'hansard rebuild'",
        )
        self.path = path
        self.position = position
        self.last = last


class Behind(ProjectionError):
    """A position was not projected within the time that the caller gave."""

    def __init__(self, wanted: int, position: int, waited_s: float) -> None:
        super().__init__(
            f"position {wanted} was not projected within {waited_s:g} s, the tables stand at "
            f"{position}: wait longer, or see 'hansard status'"
        )
        self.wanted = wanted
        self.position = position


class PartialTables(ProjectionError):
    """The log could not be read to its end, so the tables hold only a part of it."""

    def __init__(self, position: int, wanted: int, reason: Exception) -> None:
        super().__init__(
            f"the tables hold {position:,} of {wanted:,} positions, since the log could not be "
            f"read further: {reason}; start the broker and ask again, which goes on from there"
        )
        self.position = position
        self.wanted = wanted
