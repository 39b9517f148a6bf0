"""What an import came to."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hansard.agents.importers.report import Tally
from hansard.inspect.answer import Answer


class Unanswered(msgspec.Struct, tag_field="kind", tag="unanswered"):
    """A tool call whose result the source does not have."""

    run: str
    call_id: str


class Absent(msgspec.Struct, tag_field="kind", tag="absent"):
    """A large payload that the source could not read either."""

    blob: str


class Summary(msgspec.Struct, tag_field="kind", tag="summary", kw_only=True):
    """An import in figures, as `Tally` has them; `stopped` at the first bad record."""

    runs: int
    messages: int
    calls: int
    commits: int
    events: int
    new: int
    bad: int
    blobs: int
    duplicates: int
    unasked: int
    claims: int
    assumed: dict[str, int]
    left_out: dict[str, int]
    unanswered: int
    stopped: bool


class Imported(Answer):
    """What an import came to, and whether it stopped at the first bad record."""

    tally: Tally
    stopped: bool

    def lines(self) -> Iterator[Unanswered | Absent | Summary]:
        """What is missing, then the figures."""
        tally = msgspec.structs.asdict(self.tally)
        unanswered, absent = tally.pop("unanswered"), tally.pop("absent")
        yield from (Unanswered(run, call) for run, call in unanswered)
        yield from map(Absent, absent)
        yield Summary(**tally, unanswered=len(unanswered), stopped=self.stopped)
