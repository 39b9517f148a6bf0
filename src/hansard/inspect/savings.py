"""Answers from the record: what was reused, and what resumes and forks saved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from math import fsum
from typing import Any, ClassVar

import msgspec

from hansard.agents.steps.ledger import Ledger
from hansard.domain.choices import Brief, chosen, counted
from hansard.domain.errors import BadValue
from hansard.domain.steps import Step
from hansard.inspect.answer import Answer, Listed, Rows
from hansard.projections.reader import Reader

MONTH_LETTERS = len("2026-01")


class By(StrEnum):
    """What savings are added up for."""

    RUN = "run"
    WORKFLOW = "workflow"
    MONTH = "month"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered from the record. None of a figure: it is not known of any call.

    Attributes:
        calls: Calls answered, those in the bodies of answered ones included.
        effects: Those of them whose tool has an effect outside the record. Writes to the board,
            the team, memory and aggregates are calls and no effects.
        input_tokens: Of the calls of which they are recorded.
        output_tokens: The same.
        calls_with_tokens: Of so many calls.
        cost: In US dollars, as recorded; in a workspace's tables also by the prices stated.
        calls_with_cost: Of so many calls.
        seconds: What the calls took, added up, where they ran side by side, too.
        calls_with_seconds: Of so many calls.
    """

    calls: int | None = None
    effects: int | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    calls_with_tokens: int = 0
    cost: float | None = None
    calls_with_cost: int = 0
    seconds: float | None = None
    calls_with_seconds: int = 0

    def line(self) -> str:
        """It in words."""
        if self.calls is None:
            return "not known how many calls were answered from the record"
        if not self.calls:
            return "0 calls answered from the record"
        tokens = _sum([self.input_tokens, self.output_tokens])
        effects = counted(self.effects or 0, "effect")
        parts = [
            f"{counted(self.calls, 'call')} answered from the record, {effects} not repeated",
            self._figure("tokens", tokens, f"{tokens or 0:,.0f} tokens", self.calls_with_tokens),
            self._figure("money", self.cost, f"${self.cost or 0:,.4f}", self.calls_with_cost),
            self._figure(
                "time", self.seconds, f"{self.seconds or 0:,.2f} s", self.calls_with_seconds
            ),
        ]
        return "; ".join(parts)

    def _figure(self, what: str, amount: float | None, text: str, of: int) -> str:
        if amount is None:
            return f"{what} unknown"
        return text if of == self.calls else f"{text} (of {of:,} of them; of the others unknown)"


class Savings(Saved, frozen=True, kw_only=True):
    """What sessions were answered from the record, of a run, a workflow or a month.

    Attributes:
        of: The run, the workflow or the month (2026-01, in UTC, when the sessions began).
        sessions: How many went on with an agent.
        sessions_unknown: Those of them that have not told: killed, at work, or of an earlier
            version. What they were answered is in no figure.
    """

    of: str
    sessions: int
    sessions_unknown: int


class SavingsAnswer(Brief, Answer, kw_only=True):
    """What replays saved, as of a position. It is gone through, counted and indexed by its rows.

    Attributes:
        position: Up to where the tables had been made: of the workspace's log, or for a restricted
            agent the number of the newest event that its role is shown.
        rows: One for each run, workflow or month, the earliest first.
    """

    position: int
    rows: list[Savings]

    def __iter__(self) -> Iterator[Savings]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Savings:
        return self.rows[index]

    def lines(self) -> Iterator[object]:
        """Each row, then up to where all of it was read."""
        yield from self.rows
        yield {"kind": "savings", "position": self.position}


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return fsum(known) if known else None


def saved(ledger: Ledger) -> Saved:
    """What a session was answered until now, by its own knowledge."""
    with ledger.lock:
        steps: Mapping[int, Step] = ledger.state.steps
        numbers = ledger.answered
        found = [steps[number] for number in sorted(numbers)]
    tokens = [step for step in found if {"input_tokens", "output_tokens"} & step.usage.keys()]
    timed = [step for step in found if step.duration_ms]
    took = _sum(step.duration_ms for step in timed if step.parent not in numbers)
    return Saved(
        calls=len(found),
        effects=sum(step.is_external for step in found),
        input_tokens=_sum(step.usage.get("input_tokens") for step in found),
        output_tokens=_sum(step.usage.get("output_tokens") for step in found),
        calls_with_tokens=len(tokens),
        cost=_sum(step.usage.get("cost") for step in found),
        calls_with_cost=sum("cost" in step.usage for step in found),
        seconds=None if took is None else took / 1e3,
        calls_with_seconds=len(timed),
    )


def added(every: Iterable[Saved]) -> Saved:
    """Several as one; of what is not known of one, the others."""
    items = [each for each in every if each.calls is not None]
    if not items:
        return Saved()
    sums: dict[str, Any] = {
        name: _sum(getattr(each, name) for each in items) for name in Saved.__struct_fields__
    }
    whole = ("calls", "effects", "calls_with_tokens", "calls_with_cost", "calls_with_seconds")
    return Saved(**sums | {name: int(sums[name]) for name in whole})


SAVINGS = """
SELECT
    CASE $4 WHEN 'run' THEN run WHEN 'workflow' THEN workflow
        ELSE strftime(began_at, '%Y-%m') END AS of,
    count(*) AS sessions, count(*) - count(calls) AS sessions_unknown,
    sum(calls)::BIGINT AS calls, sum(effects)::BIGINT AS effects,
    fsum(input_tokens) AS input_tokens, fsum(output_tokens) AS output_tokens,
    coalesce(sum(calls_with_tokens), 0)::BIGINT AS calls_with_tokens,
    fsum(cost) AS cost, coalesce(sum(calls_with_cost), 0)::BIGINT AS calls_with_cost,
    fsum(seconds) AS seconds, coalesce(sum(calls_with_seconds), 0)::BIGINT AS calls_with_seconds
FROM savings
WHERE ($1 IS NULL OR run = $1) AND ($2 IS NULL OR workflow = $2)
    AND ($3 IS NULL OR strftime(began_at, '%Y-%m') = $3)
GROUP BY ALL
ORDER BY min(began_at)
"""
"""Parameters: the run, the workflow, the month; None for any; and what to add up for."""


class SavingsQuery(msgspec.Struct, frozen=True):
    """Of which sessions, and what to add them up for. Raises BadValue."""

    run: str | None = None
    workflow: str | None = None
    month: str | None = None
    by: By | str = By.RUN

    @property
    def parameters(self) -> tuple[str | None, ...]:
        """Those of `SAVINGS`. Raises BadValue, BadOption."""
        month = self.month
        if month is not None and not (
            len(month) == MONTH_LETTERS
            and month[:4].isdigit()
            and month[4:5] == "-"
            and month[5:].isdigit()
        ):
            raise BadValue("month", f"{month!r:.80}", "give a year and a month: 2026-01")
        return self.run, self.workflow, month, chosen(By, self.by, "by").value


def savings_of(rows: Iterable[Mapping[str, Any]]) -> list[Savings]:
    """The rows of `SAVINGS`."""
    return [msgspec.convert(dict(row), Savings) for row in rows]


async def savings(
    ask: Callable[[str, tuple[object, ...]], Awaitable[Rows]], request: SavingsQuery
) -> SavingsAnswer:
    """What sessions were answered, the earliest first. Raises BadValue, and as `ask` does."""
    answer = await ask(SAVINGS, request.parameters)
    return SavingsAnswer(position=answer.position, rows=savings_of(answer.dicts()))


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
            "seconds_saved": _reuse_total(each.seconds_saved for each in self.reused),
            "cost_saved": _reuse_total(each.cost_saved for each in self.reused),
            "position": self.position,
        }

    def line(self, question: str = "") -> str:
        """What they saved, in words. Unknown figures are in no sum. `question` names filters."""
        if not self.reused:
            return f"no call{question} was given an answer of an earlier run"
        text = f"{counted(len(self.reused), 'call')} answered by earlier runs"
        seconds = [each.seconds_saved for each in self.reused if each.seconds_saved is not None]
        costs = [each.cost_saved for each in self.reused if each.cost_saved is not None]
        for words, known in ((f"{fsum(seconds):,.2f} s", seconds), (f"${fsum(costs):,.4f}", costs)):
            if known:
                part = len(known) < len(self.reused)
                of = f" (of {len(known):,} of them; of the others unknown)" if part else ""
                text += f"; {words}{of}"
        return text


def _reuse_total(found: Iterator[float | None]) -> float | None:
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
