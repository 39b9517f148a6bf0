"""Scores of runs, given by an evaluator, a person or code, and dated prices of models."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from hansard.agents.flow import is_coroutine_function
from hansard.agents.workspace import Workspace
from hansard.bus.log import Append, Stored
from hansard.domain import experiment as prices
from hansard.domain import ids
from hansard.domain.choices import Brief
from hansard.domain.errors import BadValue, CallerError, RecordError
from hansard.domain.experiment import PRICES, PriceStated
from hansard.domain.ids import RunStream
from hansard.domain.redaction import check_names
from hansard.domain.run import RunScored, RunState
from hansard.state.replay import RunView
from hansard.state.repository import folded, transact

# Prices of models, with the date they apply from.


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Start date, currency and source of a price."""

    since: datetime
    currency: str = "USD"
    source: str = ""


async def state(
    workspace: Workspace, model: str, amounts: Mapping[str, float], terms: Terms, *, by: str
) -> bool:
    """Record the price of a million of each usage of a model; return False if all are recorded
    already.

    One commit. Raises BadName, BadValue, and Conflict after 50 lost races.
    """
    stream = PRICES.stream(model)
    events = [_stated(usage, amount, terms) for usage, amount in amounts.items()]
    if not events:
        raise BadValue("prices", "none is given", "give some, such as input_tokens=2.5")

    def next_append(stored: list[Stored]) -> list[PriceStated]:
        prices_now = folded(PRICES, stored)
        return [each for event in events for each in prices.decide_price(prices_now, event)]

    return await workspace.repository.record(stream, by, next_append)


def _stated(usage: str, amount: float, terms: Terms) -> PriceStated:
    if type(amount) not in (int, float):
        remedy = "give what a million of it costs, as a number"
        raise BadValue(f"price of {usage!r:.80}", f"{amount!r:.80}", remedy)
    try:
        number = float(amount)
    except OverflowError:
        number = float("inf")
    since: object = terms.since
    if not isinstance(since, datetime) or since.utcoffset() is None:
        remedy = "give a datetime with a zone, such as datetime(2024, 10, 1, tzinfo=UTC)"
        raise BadValue("since", f"{since!r:.80}", remedy)
    return PriceStated(
        usage=usage,
        amount=number,
        since=since.astimezone(UTC),
        currency=terms.currency,
        source=terms.source,
    )


METRICS_MAX = 1_000
"""Largest number of metrics in one score; they share one event."""

BECAUSE = "because"
"""Key of the reason, a text, that an evaluator may return besides metrics."""


class Evaluated(Brief, msgspec.Struct):
    """Result of an evaluation.

    Attributes:
        scored: Runs that were scored now.
        skipped: Runs that were scored before.
        failed: The error of each run for which nothing was recorded.
    """

    scored: list[str] = []
    skipped: list[str] = []
    failed: dict[str, Exception] = {}


async def score(
    workspace: Workspace,
    run: str,
    metrics: Mapping[str, Any],
    *,
    by: str,
    reason: str = "",
) -> bool:
    """Record a run's score; return False if this judge's latest score is the same.

    Raises BadName, BadValue for a value that is not a finite number, NotFound, and Conflict after
    50 lost races.
    """
    ids.name("by", by)
    check_names("score", {"by": by, "metrics": metrics}, workspace.redaction)
    if not isinstance(reason, str):
        raise BadValue("reason", f"{reason!r:.80}", "give a text")
    event = RunScored(metrics=_finite(metrics), by=by, because=workspace.text(reason))

    def next_append(life: RunState) -> Append | None:
        if [each for each in life.judged if each.by == by][-1:] == [event]:
            return None
        return Append(RunStream(run), workspace.commit(life.version + 1, by, [event]))

    read = functools.partial(workspace.states.life, run)
    return await transact(read, next_append, workspace.log.append) is not None


def _finite(metrics: Any) -> dict[str, float]:
    if not isinstance(metrics, Mapping) or not 0 < len(metrics) <= METRICS_MAX:
        raise BadValue("metrics", f"{metrics!r:.80}", f"give 1 to {METRICS_MAX:,} by name")
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        amount = _number(value)
        if not math.isfinite(amount):
            remedy = "give a finite number, True or False"
            raise BadValue(f"metric {ids.name('metric', name)!r:.80}", f"{value!r:.80}", remedy)
        numbers[ids.name("metric", name)] = amount
    return numbers


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


# ---------------------------------------------------------------- evaluators


class Evaluation:
    """State of one evaluator's pass over runs; the client calls the evaluator."""

    def __init__(self, workspace: Workspace, by: str, *, again: bool = False) -> None:
        self.result = Evaluated()
        self._workspace = workspace
        self._by = ids.name("by", by)
        self._again = again

    async def view(self, run: str) -> RunView | None:
        """Return a run to be scored, or None if it was scored before or cannot be read. Raises
        NotFound.
        """
        try:
            view = await self._workspace.states.run(run)
        except RecordError as error:
            self.result.failed[run] = error
            return None
        if not self._again and any(each.by == self._by for each in view.life.judged):
            self.result.skipped.append(run)
            return None
        return view

    async def record(self, run: str, plain: Any) -> None:
        """Record the evaluator's result; a result that cannot be recorded counts as a failure."""
        try:
            metrics, because = _as_mapping(plain)
            await score(self._workspace, run, metrics, by=self._by, reason=because)
        except CallerError as error:
            self.result.failed[run] = error
        else:
            self.result.scored.append(run)


def _as_mapping(plain: Any) -> tuple[dict[str, Any], Any]:
    if not isinstance(plain, Mapping):
        remedy = "return a dict of numbers by metric"
        raise BadValue("what the evaluator returned", f"{plain!r:.80}", remedy)
    return {key: plain[key] for key in plain if key != BECAUSE}, plain.get(BECAUSE, "")


def evaluate(
    work: Evaluation,
    runs: Iterable[str],
    evaluator: Callable[[RunView], Any],
    wait: Callable[[Coroutine[Any, Any, Any]], Any],
) -> Evaluated:
    """Score runs one after another, with the evaluator in the calling thread. Raises NotFound."""
    if is_coroutine_function(evaluator):
        remedy = "give a plain one, or use the async client"
        raise BadValue("evaluator", "it is a coroutine function", remedy)
    for run in dict.fromkeys(runs):
        view = wait(work.view(run))
        if view is None:
            continue
        try:
            scores = evaluator(view)
        except Exception as error:  # noqa: BLE001 -- one failure does not stop the others
            work.result.failed[run] = error
        else:
            wait(work.record(run, scores))
    return work.result


async def evaluate_async(
    work: Evaluation, runs: Iterable[str], evaluator: Callable[[RunView], Any]
) -> Evaluated:
    """Score runs; the evaluator may be a coroutine function. Raises NotFound."""
    for run in dict.fromkeys(runs):
        view = await work.view(run)
        if view is None:
            continue
        try:
            scores = evaluator(view)
            scores = await scores if inspect.isawaitable(scores) else scores
        except Exception as error:  # noqa: BLE001 -- one failure does not stop the others
            work.result.failed[run] = error
        else:
            await work.record(run, scores)
    return work.result
