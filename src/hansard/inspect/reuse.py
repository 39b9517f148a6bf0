"""Answers that later runs may be given, and those that they were given: read from the tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import fsum
from typing import ClassVar

import msgspec

from hansard.domain.choices import counted
from hansard.inspect.answer import Answer, Listed
from hansard.projections.reader import Reader


class OfferedAnswer(msgspec.Struct, tag_field="kind", tag="answer", kw_only=True):
    """An answer that later runs may be given: the newest of its key.

    Attributes:
        key: What equal calls share.
        tool: What was called.
        workflow: The workflow whose runs may be given it; None for any.
        run: The run that it is of.
        agent: Its agent.
        step: Its step.
        offered_at: When, UTC.
        times: How often the call ran.
        stale_since: Since when it is stale; None where it is not.
        stale_because: Why.
    """

    key: str
    tool: str
    workflow: str | None
    run: str
    agent: str
    step: int
    offered_at: datetime
    times: int
    stale_since: datetime | None
    stale_because: str | None


class OfferedAnswers(Listed):
    """The answers that there are, as of a position."""

    _listed: ClassVar[str] = "answers"
    answers: list[OfferedAnswer]


class ReusedAnswer(msgspec.Struct, tag_field="kind", tag="reused", kw_only=True):
    """A call that was given an answer of an earlier run.

    Attributes:
        run: The run.
        agent: Its agent.
        step: Its step.
        tool: What was called.
        key: What it was found by.
        from_run: The run that answered.
        from_agent: Its agent.
        from_step: Its step.
        source_on_record: Whether that step is in this record.
        age_s: How old it was; None where that is not known.
        seconds_saved: What that step took; None where it is not known.
        cost_saved: What it cost, as recorded; None where it is not known.
        reused_at: When, UTC.
    """

    run: str
    agent: str
    step: int
    tool: str
    key: str
    from_run: str
    from_agent: str
    from_step: int
    source_on_record: bool
    age_s: float | None
    seconds_saved: float | None
    cost_saved: float | None
    reused_at: datetime


class ReusedAnswers(Answer):
    """The calls that were given one, as of a position."""

    position: int
    reused: list[ReusedAnswer]

    def lines(self) -> Iterator[object]:
        """Each call, then the sums of what is known."""
        yield from self.reused
        yield {
            "kind": "reused answers",
            "calls": len(self.reused),
            "seconds_saved": _sum(each.seconds_saved for each in self.reused),
            "cost_saved": _sum(each.cost_saved for each in self.reused),
            "position": self.position,
        }

    def line(self, asked: str = "") -> str:
        """What they saved, in words: what is not known is in no sum. `asked` names the filters."""
        if not self.reused:
            return f"no call{asked} was given an answer of an earlier run"
        said = f"{counted(len(self.reused), 'call')} answered by earlier runs"
        seconds = [each.seconds_saved for each in self.reused if each.seconds_saved is not None]
        costs = [each.cost_saved for each in self.reused if each.cost_saved is not None]
        for words, known in ((f"{fsum(seconds):,.2f} s", seconds), (f"${fsum(costs):,.4f}", costs)):
            if known:
                part = len(known) < len(self.reused)
                of = f" (of {len(known):,} of them; of the others unknown)" if part else ""
                said += f"; {words}{of}"
        return said


def _sum(found: Iterator[float | None]) -> float | None:
    known = [each for each in found if each is not None]
    return fsum(known) if known else None


_OFFERED = """
    SELECT key, tool, workflow, run, agent, step, offered_at, times, stale_since, stale_because
    FROM answers
    WHERE ($1 IS NULL OR tool = $1) AND ($2 IS NULL OR run = $2)
    ORDER BY position DESC
"""
_REUSED = """
    SELECT run, agent, step, tool, key, from_run, from_agent, from_step, source_on_record,
        age_s, seconds_saved, cost_saved, reused_at
    FROM reused_answers
    WHERE ($1 IS NULL OR tool = $1) AND ($2 IS NULL OR run = $2)
    ORDER BY position DESC, step
"""


def offered(reader: Reader, tool: str | None = None, run: str | None = None) -> OfferedAnswers:
    """The answers that later runs may be given, the newest first: all, or of a tool, a run."""
    rows = reader.rows(_OFFERED, [tool, run])
    return OfferedAnswers(
        position=reader.position, answers=msgspec.convert(rows, list[OfferedAnswer])
    )


def reused(reader: Reader, tool: str | None = None, run: str | None = None) -> ReusedAnswers:
    """The calls that were given one, the newest first: all, or those of a tool, a run."""
    rows = reader.rows(_REUSED, [tool, run])
    return ReusedAnswers(position=reader.position, reused=msgspec.convert(rows, list[ReusedAnswer]))
