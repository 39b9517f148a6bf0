"""Experiments of a record: plans, scores, prices, the comparison of their arms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

from hansard.agents import experiments
from hansard.agents.experiments import Evaluated, Evaluation
from hansard.agents.policy.permits import trusts
from hansard.bus.clock import OS_USER
from hansard.bus.portal import Portal
from hansard.domain.choices import by_name
from hansard.domain.errors import BadValue
from hansard.domain.experiment import ExperimentRegistered, ExperimentState
from hansard.domain.redaction import check_names
from hansard.domain.roles.authorize import Trust
from hansard.inspect.comparison_parts import compare
from hansard.operations.declare import Async, C_co, Noun, Takes, composite, operation, trusted
from hansard.operations.reports import CompareOptions, ComparisonReport, question_of, shown
from hansard.projections.report import Question
from hansard.projections.snapshots import Reader
from hansard.state.replay import RunView


def _names_of(plan: ExperimentRegistered) -> dict[str, object]:
    """Return the parts of a plan that are used as names elsewhere."""
    return {
        "arms": [arm.name for arm in plan.arms],
        "metrics": [metric.name for metric in plan.metrics],
        "unit": plan.unit,
        "cluster": plan.cluster,
    }


class Experiments(Noun[C_co], noun="experiments"):
    """Experiments, by name."""

    @trusted
    async def register(
        self,
        name: str,
        plan: ExperimentRegistered,
        *,
        replace: bool = False,
        reason: str = "",
        by: str = OS_USER,
    ) -> bool:
        """Register an experiment; return False if it is already registered with the same plan.

        With `replace` this plan replaces the registered one, which is allowed until a run of it
        begins; `reason` then explains it. Reads the state of every run.

        Raises:
            Refused: The experiment has another plan; the message shows the difference. With
                `replace`: a run of it began, it is stopped, or it is not registered.
            BadName, BadValue: A name is malformed, or the plan contradicts itself.
        """
        check_names("record.experiments.register", _names_of(plan), self._workspace.redaction)
        if replace:
            return await experiments.replace(self._workspace, name, plan, reason=reason, by=by)
        if reason:
            fact = f"{reason!r:.80} without replace=True"
            raise BadValue("reason", fact, "give replace=True, or omit reason=")
        return await experiments.register(self._workspace, name, plan, by=by)

    @trusted
    async def stop(self, name: str, *, reason: str = "", by: str = OS_USER) -> bool:
        """Stop assigning runs to an experiment; return False if it is already stopped."""
        return await experiments.stop(self._workspace, name, reason=reason, by=by)

    @trusted
    async def get(self, name: str) -> ExperimentState:
        """Return the present state of an experiment. Raises NotFound."""
        return await experiments.state(self._workspace, name)

    @trusted
    async def score(
        self, run: str, metrics: Mapping[str, float], *, by: str, reason: str = ""
    ) -> bool:
        """Record metrics of a run; return False if the same judge's last ones are equal.

        Args:
            run: The run.
            metrics: Finite numbers by name.
            by: The judge on record.
            reason: The reason on record.

        Raises:
            NotFound: There is no such run.
            BadName, BadValue: A name is malformed, or a metric is not a finite number.
        """
        named = by_name("metrics", metrics)
        return await experiments.score(self._workspace, run, named, by=by, reason=reason)

    @trusted
    async def price(
        self,
        model: str,
        amounts: Mapping[str, float],
        *,
        since: datetime,
        currency: str = "USD",
        source: str = "",
        by: str = OS_USER,
    ) -> bool:
        """Record the price of a model; return False if all of it is already on record.

        Args:
            model: The model.
            amounts: The price of a million of each usage, such as `{"input_tokens": 2.5}`.
            since: The time from which the price applies.
            currency: The currency.
            source: The source of the price.
            by: The author on record.

        Raises:
            BadName, BadValue: A name is malformed, an amount is not a finite number, or none is
                given.
        """
        named = by_name("amounts", amounts)
        source = self._workspace.text(source)
        terms = experiments.Terms(since=since, currency=currency, source=source)
        return await experiments.record_price(self._workspace, model, named, terms, by=by)

    @trusted
    async def evaluate(
        self,
        runs: Iterable[str],
        evaluator: Callable[[RunView], Any],
        *,
        by: str,
        again: bool = False,
    ) -> Evaluated:
        """Judge runs by a function, one after another.

        Args:
            runs: The runs' ids.
            evaluator: A function of a run's `RunView` that returns metrics as a dict; with the
                async client also a coroutine function. If it raises, that run is left unjudged, and
                the others are judged.
            by: The judge on record.
            again: True to judge also the runs that `by` has judged; by default they are skipped.

        Raises:
            NotFound: There is no such run.
            BadValue: `evaluator` is a coroutine function: use the async client.
        """
        work = Evaluation(self._workspace, by, again=again)
        return await experiments.evaluate_async(work, runs, evaluator)

    @evaluate.sync
    def _evaluate_sync(
        self,
        runs: Iterable[str],
        evaluator: Callable[[RunView], Any],
        *,
        by: str,
        again: bool = False,
    ) -> Evaluated:
        work = Evaluation(self._workspace, by, again=again)
        portal: Portal = self._portal
        return experiments.evaluate(work, runs, evaluator, portal.run)

    @composite
    async def compare(
        self: Experiments[Async], experiment: str, **options: Unpack[CompareOptions]
    ) -> ComparisonReport:
        """Compare the arms of an experiment: the report that `hansard compare` prints.

        A notebook and `rich.print` show it as tables.

        Args:
            experiment: The experiment's name.
            **options: See `CompareOptions`.

        Raises:
            CallerError: There is no such experiment, metric, arm or label; the message lists those
                there are.
            BadOption, BadValue: An option is unknown, or its value is invalid.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._compare(question_of(experiment, options))

    @operation(needs=lambda _: (trusts(Trust.QUERY, "compare"),), takes=Takes.LONG)
    async def _compare(self, question: Question) -> ComparisonReport:
        """Compare the arms of an experiment."""

        def reads(reader: Reader) -> ComparisonReport:
            return shown(compare(reader, question), ComparisonReport)

        return await self._context.read(reads, "compare", question)
