"""What an import tells while it goes and when it is done."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import msgspec

from hansard.domain.errors import CallerError


class Bad(msgspec.Struct, frozen=True, tag_field="kind", tag="bad"):
    """A record that was not imported. `line` counts from 1; in a file that is one JSON document it
    counts that document's records.
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class BadRecord(CallerError):
    """A record that cannot be imported; nothing of it was written. `tally` is what its file came to
    before it, as far as the importer says so.
    """

    def __init__(self, bad: Bad) -> None:
        super().__init__(str(bad))
        self.bad = bad
        self.tally = Tally(bad=1)


class Tally(msgspec.Struct):
    """What an import came to.

    `runs`, `messages`, `calls`, `commits` and `events` are what was read and is on record now,
    `new` the commits of it that were not there before. `duplicates` are records that were read
    before in the same import; `unanswered` the ids of tool calls whose result the source does not
    have, as run and call id; `unasked` counts results that no call of the source asked for,
    `claims` the figures that submissions claim.
    `assumed` counts what the source does not say and was taken for granted, by kind
    (`hansard.agents.importers.assumed`), `left_out` what was not taken over. `absent` are the large
    payloads, by hash, that the source could not read either.
    """

    runs: int = 0
    messages: int = 0
    calls: int = 0
    commits: int = 0
    events: int = 0
    new: int = 0
    bad: int = 0
    blobs: int = 0
    duplicates: int = 0
    unasked: int = 0
    claims: int = 0
    assumed: dict[str, int] = {}
    left_out: dict[str, int] = {}
    unanswered: list[tuple[str, str]] = []
    absent: list[str] = []

    def add(self, other: Tally) -> None:
        """Count another part of the same import in."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                setattr(self, name, dict(Counter(mine) + Counter(theirs)))
            else:
                setattr(self, name, mine + theirs)


class Watcher(Protocol):
    """Who is told how an import goes. Neither method raises, unless an import is to stop."""

    def read(self, count: int) -> None:
        """So many more bytes of the input were read."""

    def bad(self, bad: Bad) -> None:
        """A record was skipped; raises BadRecord where the import is strict."""
