"""What can go wrong with the index of words, told apart by who must act.

    CallerError
    └── BadQuery            what is searched for cannot be searched for: ask otherwise
    ProjectionError
    ├── Unusable
    │   └── IndexUnusable   the file cannot be opened or is no index: make it again
    ├── OtherLog
    │   └── IndexOfOtherLog the file was made of another log: make it again
    └── IndexRead           somebody reads the file for long: it was not replaced

Nothing of the record is lost by any of them: the index is made of the log.
"""

from __future__ import annotations

from pathlib import Path

from hansard.domain.errors import CallerError
from hansard.projections.errors import OtherLog, ProjectionError, Unusable, unusable

REMEDY = "make it again with 'hansard search --rebuild'"


class BadQuery(CallerError):
    """What is searched for cannot be searched for; nothing was read."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}: {remedy}")
        self.fact = fact
        self.remedy = remedy


class IndexUnusable(Unusable):
    """The file cannot be opened, is no index, or is one of another version."""

    def __init__(self, path: Path, why: str) -> None:
        ProjectionError.__init__(self, f"{str(path)!r} cannot be used ({why}): {REMEDY}")
        self.path = path
        self.why = why


def unusable_index(path: Path, error: Exception) -> ProjectionError:
    """As `hansard.projections.errors.unusable`, of an index."""
    found = unusable(path, error)
    return IndexUnusable(path, found.why) if isinstance(found, Unusable) else found


class IndexOfOtherLog(OtherLog):
    """The message up to which the file was indexed is not what the log holds there."""

    def __init__(self, path: Path, position: int) -> None:
        ProjectionError.__init__(
            self,
            f"{str(path)!r} was made of another log: position {position} does not hold the message "
            f"that was indexed from there; {REMEDY}",
        )
        self.path = path
        self.position = position


class IndexRead(ProjectionError):
    """Somebody searches in the file for longer than a rebuild waits; the old one stands."""

    def __init__(self, path: Path, waited_s: float) -> None:
        super().__init__(
            f"{str(path)!r} was read without a pause for {waited_s:g} s and was not replaced: "
            "end the searches in it, then rebuild again"
        )
        self.path = path
        self.waited_s = waited_s
