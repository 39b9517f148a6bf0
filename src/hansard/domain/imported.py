"""The result of an import of recorded runs: counts of records read, skipped and assumed.

One stream a set of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hansard.domain.decider import By, Decider, State
from hansard.domain.events import Event, event

KIND = "import"
"""The kind of its stream; its id is a digest of the format and of the files' names."""

FILES_MAX, REASONS_MAX, REASON_LENGTH_MAX = 100, 20, 500
"""Most files that are named, most reasons of skipped records, and their length in characters; all
files and records are counted."""


@event("import.ended.v1")
class ImportEnded(Event, frozen=True, kw_only=True):
    """Files of recorded runs were imported.

    `format` is theirs, `files` the first 100 of their names, without folders, `more_files` the
    number of further ones; `experiment` and `arm` are those assigned to runs that name none. `runs`
    were read; `duplicates` occurred twice, `skipped` were bad records, of which `reasons` has the
    first 20. `earlier` is no longer written. `assumed` counts, by kind, the values that the source
    does not give and the import assumed. `stopped` is true if it ended at a bad record. `claims`
    are the figures by metric that a submission among the files claims of the arm, by domain; ""
    where it names none. `left_out` counts, by kind, records of the source that were not imported.
    """

    format: str
    files: tuple[str, ...]
    runs: int
    more_files: int = 0
    experiment: str = ""
    arm: str = ""
    duplicates: int = 0
    earlier: int = 0
    skipped: int = 0
    reasons: tuple[str, ...] = ()
    assumed: dict[str, int] = {}
    stopped: bool = False
    claims: dict[str, dict[str, int | float]] = {}
    left_out: dict[str, int] = {}


class ImportState(State):
    """An import at a version, with its last result."""

    noun: ClassVar[str] = "an import"

    ended: ImportEnded | None = None

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        if not isinstance(event, ImportEnded):
            super()._evolve(event, by)
        else:
            self.ended = event


def decide(state: ImportState, event: ImportEnded) -> Sequence[ImportEnded]:
    """Return the events of the end of an import; none where the result is the same as before."""
    return () if state.ended == event else (event,)


IMPORTS = Decider(kind=KIND, initial=ImportState, decide=decide)
