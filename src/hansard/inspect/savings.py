"""Answers from the record: reused answers, and the savings of resumes and forks."""

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
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

_SQL = statements(__file__)


MONTH_LETTERS = len("2026-01")


class By(StrEnum):
    """Grouping of savings."""

    RUN = "run"
    WORKFLOW = "workflow"
    MONTH = "month"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Savings: calls answered from the record.

    A figure is None if it is unknown for every call.

    Attributes:
        calls: Calls answered, including those in the bodies of answered calls, and a fork's calls
            that took an outcome of its parent.
        effects: Answered calls of a tool with an effect outside the record. Writes to the board,
            the team, memory and aggregates are calls but not effects.
        input_tokens: Input tokens of the calls for which they are recorded.
        output_tokens: Output tokens of the same calls.
        calls_with_tokens: Number of these calls.
        cost: In US dollars, as recorded; in a workspace's tables also by the stated prices.
        calls_with_cost: Number of calls with a cost.
        seconds: Sum of the durations of the calls, including parallel ones.
        calls_with_seconds: Number of calls with a duration.
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
        """Return the savings in words."""
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
        return f"{what} unknown" if amount is None else _of_some(text, of, self.calls or 0)


def _of_some(text: str, known: int, calls: int) -> str:
    """Say of a sum how many of the calls it includes, unless it is all of them."""
    return text if known == calls else f"{text} (of {known:,} of them; of the others unknown)"


class Savings(Saved, frozen=True, kw_only=True):
    """Savings of the sessions of a run, a workflow or a month.

    Attributes:
        of: The run, the workflow or the month (2026-01, in UTC, of the sessions' start).
        sessions: The number of sessions that resumed an agent.
        sessions_unknown: The number of them without a report: killed, at work, or of an earlier
            version. No figure includes them.
    """

    of: str
    sessions: int
    sessions_unknown: int


class SavingsAnswer(Brief, Answer, kw_only=True):
    """Savings of replays as of a position; a sequence of its rows.

    Attributes:
        position: The position of the tables in the workspace's log; for a restricted agent the
            number of the newest event that its role is shown.
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
        """Yield each row, then the position."""
        yield from self.rows
        yield {"kind": "savings", "position": self.position}


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return fsum(known) if known else None


def saved(ledger: Ledger) -> Saved:
    """Return a session's savings so far, from its own ledger."""
    with ledger.lock:
        steps: Mapping[int, Step] = ledger.state.steps
        numbers = ledger.answered & steps.keys()  # of calls on record
        sources = {number: ledger.adopted.get(number, steps[number]) for number in sorted(numbers)}
        whole = [each for number, each in sources.items() if steps[number].parent not in numbers]
    answered = list(sources.values())
    tokens = [step for step in answered if {"input_tokens", "output_tokens"} & step.usage.keys()]
    timed = [step for step in answered if step.duration_ms]
    took = _sum(step.duration_ms for step in whole if step.duration_ms)
    return Saved(
        calls=len(answered),
        effects=sum(step.is_external for step in answered),
        input_tokens=_sum(step.usage.get("input_tokens") for step in answered),
        output_tokens=_sum(step.usage.get("output_tokens") for step in answered),
        calls_with_tokens=len(tokens),
        cost=_sum(step.usage.get("cost") for step in answered),
        calls_with_cost=sum("cost" in step.usage for step in answered),
        seconds=None if took is None else took / 1e3,
        calls_with_seconds=len(timed),
    )


def added(every: Iterable[Saved]) -> Saved:
    """Add savings; an unknown figure counts only where another one is known."""
    items = [each for each in every if each.calls is not None]
    if not items:
        return Saved()
    sums: dict[str, Any] = {
        name: _sum(getattr(each, name) for each in items) for name in Saved.__struct_fields__
    }
    whole = ("calls", "effects", "calls_with_tokens", "calls_with_cost", "calls_with_seconds")
    return Saved(**sums | {name: int(sums[name]) for name in whole})


class SavingsQuery(msgspec.Struct, frozen=True):
    """Filter and grouping of savings. Raises BadValue."""

    run: str | None = None
    workflow: str | None = None
    month: str | None = None
    by: By | str = By.RUN

    @property
    def parameters(self) -> tuple[str | None, ...]:
        """Parameters of the statement `savings`. Raises BadValue, BadOption."""
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
    """Convert the rows of the statement `savings`."""
    return [msgspec.convert(dict(row), Savings) for row in rows]


async def savings(
    ask: Callable[[str, tuple[object, ...]], Awaitable[Rows]], request: SavingsQuery
) -> SavingsAnswer:
    """Return sessions' savings, the earliest first. Raises BadValue, and the errors of `ask`."""
    answer = await ask(_SQL["savings"], request.parameters)
    return SavingsAnswer(position=answer.position, rows=savings_of(answer.dicts()))


class OfferedAnswer(msgspec.Struct, tag_field="kind", tag="answer", kw_only=True):
    """Answer that later runs may reuse: the newest of its key.

    Attributes:
        key: The key shared by equal calls.
        tool: The tool that was called.
        workflow: The workflow whose runs may reuse it; None for any.
        run: The run with the answer.
        agent: Its agent.
        step: Its step.
        offered_at: The time of the offer, UTC.
        times: The number of times the call ran.
        stale_since: The time from which it is stale; None if it is not.
        stale_because: The reason.
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
    """Reusable answers, as of a position."""

    _listed: ClassVar[str] = "answers"
    answers: list[OfferedAnswer]


class ReusedAnswer(msgspec.Struct, tag_field="kind", tag="reused", kw_only=True):
    """Call that was answered from an earlier run.

    Attributes:
        run: The run.
        agent: Its agent.
        step: Its step.
        tool: The tool that was called.
        key: The key of the call.
        from_run: The run that answered.
        from_agent: Its agent.
        from_step: Its step.
        source_on_record: Whether that step is in this record.
        age_s: The age of the answer in seconds; None if unknown.
        seconds_saved: The duration of that step; None if unknown.
        cost_saved: Its recorded cost; None if unknown.
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
    """Calls answered from earlier runs, as of a position."""

    position: int
    reused: list[ReusedAnswer]

    def lines(self) -> Iterator[object]:
        """Yield each call, then the sums of the known figures."""
        yield from self.reused
        yield {
            "kind": "reused answers",
            "calls": len(self.reused),
            "seconds_saved": _sum(each.seconds_saved for each in self.reused),
            "cost_saved": _sum(each.cost_saved for each in self.reused),
            "position": self.position,
        }

    def line(self, question: str = "") -> str:
        """Return the savings in words; sums exclude unknown figures. `question` names filters."""
        if not self.reused:
            return f"no call{question} was given an answer of an earlier run"
        text = f"{counted(len(self.reused), 'call')} answered by earlier runs"
        seconds = [each.seconds_saved for each in self.reused if each.seconds_saved is not None]
        costs = [each.cost_saved for each in self.reused if each.cost_saved is not None]
        for words, known in ((f"{fsum(seconds):,.2f} s", seconds), (f"${fsum(costs):,.4f}", costs)):
            if known:
                text += f"; {_of_some(words, len(known), len(self.reused))}"
        return text


def offered(reader: Reader, tool: str | None = None, run: str | None = None) -> OfferedAnswers:
    """Return the reusable answers, newest first: all, or of a tool, a run."""
    rows = reader.rows(_SQL["offered"], [tool, run])
    return OfferedAnswers(
        position=reader.position, answers=msgspec.convert(rows, list[OfferedAnswer])
    )


def reused(reader: Reader, tool: str | None = None, run: str | None = None) -> ReusedAnswers:
    """Return the calls answered from earlier runs, newest first: all, or of a tool, a run."""
    rows = reader.rows(_SQL["reused"], [tool, run])
    return ReusedAnswers(position=reader.position, reused=msgspec.convert(rows, list[ReusedAnswer]))
