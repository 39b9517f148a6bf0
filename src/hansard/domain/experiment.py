"""An experiment: arms that are compared by the outcomes of their runs, planned before the data.

Its stream outlives runs. A plan may be replaced, as a whole, while there are no data. From the
first run on it is fixed: another plan needs another experiment, so that a report always names the
plan under which its data were gathered.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from hansard.domain import ids, values
from hansard.domain.choices import Brief, counted, shortened
from hansard.domain.decider import By, Decider, State
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import canonical
from hansard.domain.steps import NULL

# Stated prices of a model's use, each valid from a day on. One stream a model.
#
# A price never changes a recorded cost: a recorded cost is checked against it, and use without a
# recorded cost is estimated from it.

PRICE_KIND = "price"
"""The kind of its stream; its id is the model."""

CURRENCY_LETTERS = 3
"""Letters of a currency, as in ISO 4217: USD, EUR ..."""


@event("price.stated.v1")
class PriceStated(Event, frozen=True, kw_only=True):
    """From `since` on, one million of `usage` (input_tokens, output_tokens ...) costs `amount`.

    `since` is RFC 3339 with a zone; `source` is where the price was read.
    """

    usage: str
    amount: float
    since: datetime
    currency: str = "USD"
    source: str = ""


class PriceState(State):
    """A model's prices at a version: the newest statement for each usage and day."""

    noun: ClassVar[str] = "a price"

    stated: dict[tuple[str, datetime], PriceStated] = msgspec.field(default_factory=dict)

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        if not isinstance(event, PriceStated):
            super()._evolve(event, by)
        else:
            self.stated[event.usage, event.since] = event


def decide_price(state: PriceState, event: PriceStated) -> Sequence[PriceStated]:
    """Return the events of stating a price; none where it is already stated.

    Raises BadName, BadValue.
    """
    ids.name("usage", event.usage)
    if not (math.isfinite(event.amount) and event.amount >= 0):
        remedy = "give the price of a million, 0 or more"
        raise BadValue(f"price of {event.usage}", f"{event.amount}", remedy)
    if event.since.utcoffset() is None:
        fact = f"{event.since.isoformat()} has no zone"
        raise BadValue("since", fact, "give one, such as 2024-10-01T00:00:00Z")
    currency = event.currency
    if not (len(currency) == CURRENCY_LETTERS and currency.isascii() and currency.isupper()):
        raise BadValue("currency", f"{currency!r:.80}", "give its three capital letters: USD")
    values.demand_text(event.source, "source")
    return () if state.stated.get((event.usage, event.since)) == event else (event,)


def check_model(name: object) -> str:
    """Return a model's name, checked. Raises BadName."""
    return ids.name("model", name)


PRICES = Decider(kind=PRICE_KIND, initial=PriceState, decide=decide_price, check_name=check_model)


KIND = "experiment"
"""The kind of its stream."""

ARMS_MAX = 100
METRICS_MAX = 100

WEIGHT_MAX = 1e9
"""Largest weight of an arm: the sum of the weights stays finite."""

TASK, RUN, CONVERSATION = "task", "run", "conversation"
"""Units that every run has; any other name is the caller's."""


class Better(StrEnum):
    """The better direction of a metric, as far as the plan states it."""

    HIGHER = "higher"
    LOWER = "lower"
    NOT_STATED = "not stated"


class StopRule(StrEnum):
    """The time of analysis: once at the planned size, or at any time."""

    FIXED = "fixed"
    SEQUENTIAL = "sequential"


class Missing(StrEnum):
    """The value of a trial without a score: the worst one, none, or the worst for an arm compared
    with its baseline.
    """

    FAILURE = "failure"
    EXCLUDED = "excluded"
    WORST_CASE = "worst-case"


class PlannedArm(msgspec.Struct, frozen=True, omit_defaults=True):
    """One arm of the comparison: a version of a prompt, a model, parameters. `weight` is its share
    of units, relative to the other arms.

    Attributes:
        name: The name under which its runs are recorded.
        prompt: The version of a prompt.
        model: The model.
        parameters: Its other parameters, as a JSON object.
    """

    name: str
    weight: float = 1.0
    prompt: str = ""
    model: str = ""
    parameters: msgspec.Raw = NULL


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metric of the comparison; the first one decides. `smallest` is the smallest difference that
    matters, in the metric's own unit.

    Attributes:
        name: The name of the scores of runs.
        better: The better direction; `not stated` leaves it to the catalogue and to the caller.
    """

    name: str
    better: Better = Better.HIGHER
    smallest: float | None = None


@event("experiment.registered.v1")
class ExperimentRegistered(Event, frozen=True, kw_only=True):
    """The plan of the comparison and its analysis. The first arm is the baseline.

    `arms` are compared by `metrics`; the first metric decides. `question` is the research question
    in a sentence. `alpha` is the rate of false positives, `stop` the time of analysis, `missing`
    the value of a task without a score, and `salt` is an input of the assignment of units to arms.
    `unit` is the unit of assignment: task, run, conversation, or a name of the caller's. `cluster`
    names the label of runs by which tasks are clustered; empty where they are not. `planned` is the
    number of tasks, `trials` the number of trials of each under each arm. `exploratory` is true if
    the data were seen before the plan. `because` is the reason for replacing the previous plan;
    empty in a first one.
    """

    arms: tuple[PlannedArm, ...]
    metrics: tuple[Metric, ...]
    question: str = ""
    unit: str = "task"
    cluster: str = ""
    alpha: float = 0.05
    stop: StopRule = StopRule.FIXED
    planned: int | None = None
    trials: int | None = None
    missing: Missing = Missing.FAILURE
    exploratory: bool = False
    salt: str = ""
    because: str = ""


@event("experiment.stopped.v1")
class ExperimentStopped(Event, frozen=True, kw_only=True):
    """No unit is assigned from here on.

    Attributes:
        because: The reason.
    """

    because: str = ""


ExperimentEvent = ExperimentRegistered | ExperimentStopped


class ExperimentState(Brief, State):
    """An experiment at a `version`; `plan` is the newest one, None before it is registered;
    `replaced` counts the earlier ones; `stopped` is None while it is open.
    """

    noun: ClassVar[str] = "an experiment"

    plan: ExperimentRegistered | None = None
    replaced: int = 0
    stopped: ExperimentStopped | None = None

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        match event:
            case ExperimentRegistered():
                self.replaced += self.plan is not None
                self.plan = event
            case ExperimentStopped():
                self.stopped = event
            case _:
                super()._evolve(event, by)


def decide(state: ExperimentState, event: ExperimentEvent) -> Sequence[ExperimentEvent]:
    """Return the events of a registration or a stop; none where it changes nothing.

    Raises Refused, BadValue, BadName.
    """
    if isinstance(event, ExperimentRegistered):
        check(event)
        if state.plan is None:
            return (event,)
        differing = differences(state.plan, event)
        if differing:
            message = (
                f"it is registered with another plan ({'; '.join(differing)}): replace it (replace="
                "True, or --replace), which can be done before its first run, or register this one "
                "under another name"
            )
            raise Refused(message)
        return ()
    if state.plan is None:
        message = "it is not registered: see 'hansard experiment list'"
        raise Refused(message)
    return () if state.stopped is not None else (event,)


EXPERIMENTS = Decider(kind=KIND, initial=ExperimentState, decide=decide)


def replace(
    state: ExperimentState, plan: ExperimentRegistered, runs: Sequence[str]
) -> Sequence[ExperimentEvent]:
    """Return the events of replacing a plan; none where it is the same.

    `runs` are the runs that have an arm of it. Raises Refused, BadValue, BadName.
    """
    check(plan)
    if state.plan is None:
        message = "it is not registered, so there is no plan to replace: register it"
        raise Refused(message)
    if not differences(state.plan, plan):
        return ()
    if state.stopped is not None:
        message = "it is stopped, so no run can begin under another plan: use another name"
        raise Refused(message)
    if runs:
        message = (
            f"{counted(len(runs), 'run')} of it already began ({shortened(runs)}), and a plan "
            "cannot be replaced once there are data: register this one under another name"
        )
        raise Refused(message)
    return (plan,)


def differences(stated: ExperimentRegistered, request: ExperimentRegistered) -> list[str]:
    """Return the differences between a plan and the registered one, one text a field."""
    before, after = (
        _plan_fields(stated),
        _plan_fields(request),
    )  # an arm or metric in one plan only shows in the lists of names
    return [
        f"{name} {word}, not {after[name]}"
        for name, word in before.items()
        if after.get(name, word) != word
    ]


def _plan_fields(plan: ExperimentRegistered) -> dict[str, str]:
    """Return a plan's fields as texts, with separate fields for each arm and metric."""
    fields: dict[str, Any] = {}
    for kind, parts in (("arm", plan.arms), ("metric", plan.metrics)):
        fields[f"{kind}s"] = [part.name for part in parts]
        for part in parts:
            for field in part.__struct_fields__[1:]:
                fields[f"{field} of {kind} {part.name!r}"] = getattr(part, field)
    for field in plan.__struct_fields__:
        if field not in ("arms", "metrics", "because"):
            fields[field] = getattr(plan, field)
    return {name: _word(value) for name, value in fields.items()}


def _word(value: Any) -> str:
    if isinstance(value, msgspec.Raw):
        return canonical(msgspec.json.decode(bytes(value))).decode()
    return canonical(value).decode()


def arm_of(name: str, plan: ExperimentRegistered, unit: str) -> PlannedArm:
    """Return the arm of a unit in an experiment: always the same one, in proportion to the weights.

    The first 8 bytes of SHA-256 over salt, experiment and unit (each behind its length), as a
    fraction of 2^64, fall into one arm's part of the weights.
    """
    raws = [part.encode() for part in (plan.salt, name, unit)]
    hashed = hashlib.sha256(b"".join(len(raw).to_bytes(8, "big") + raw for raw in raws)).digest()
    point = int.from_bytes(hashed[:8], "big") / 2**64 * math.fsum(arm.weight for arm in plan.arms)
    for arm in plan.arms:
        point -= arm.weight
        if point < 0:
            return arm
    return [arm for arm in plan.arms if arm.weight > 0][-1]


def unit_of(plan: ExperimentRegistered, run: str, has: dict[str, str], stated: str | None) -> str:
    """Return the unit for which a run's arm is chosen.

    `has` is its task and its conversation, as far as it has them, `given` the caller's name of the
    unit. Raises BadValue.
    """
    unit = {**has, RUN: run}.get(plan.unit) if plan.unit in (TASK, RUN, CONVERSATION) else stated
    if not unit:
        option = plan.unit if plan.unit in (TASK, CONVERSATION) else "unit"
        fact = f"none is stated, and an arm is chosen for each {plan.unit}"
        raise BadValue(option, fact, f"give {option}=, or choose the arm with arm=")
    if stated is not None and stated != unit:
        fact = f"it is {stated!r:.80}, but an arm is chosen for each {plan.unit}, here {unit!r:.80}"
        raise BadValue("unit", fact, "leave out unit=")
    return unit


def check(plan: ExperimentRegistered) -> None:
    """Check a plan. Raises BadValue or BadName."""
    for kind, names, most in (
        ("arm", [arm.name for arm in plan.arms], ARMS_MAX),
        ("metric", [metric.name for metric in plan.metrics], METRICS_MAX),
    ):
        if not 0 < len(names) <= most:
            raise BadValue(f"{kind}s", f"{len(names)}", f"give 1 to {most}")
        for name in names:
            ids.name(kind, name)
            if names.count(name) > 1:
                raise BadValue(f"{kind}s", f"{name!r} twice", "give each name once")
    for arm in plan.arms:
        _check_arm(arm)
    if not any(arm.weight for arm in plan.arms):
        raise BadValue("weights", "all 0", "give at least one arm a weight above 0")
    for metric in plan.metrics:
        if metric.smallest is not None and not (
            math.isfinite(metric.smallest) and metric.smallest > 0
        ):
            remedy = "give a number above 0, or none"
            raise BadValue(f"smallest of metric {metric.name!r}", f"{metric.smallest}", remedy)
    ids.name("unit", plan.unit)
    if plan.cluster:
        ids.name("cluster", plan.cluster)
    for kind in ("question", "salt", "because"):
        values.demand_text(getattr(plan, kind), kind)
    if not 0 < plan.alpha < 1:
        raise BadValue("alpha", f"{plan.alpha}", "give a number between 0 and 1, such as 0.05")
    for kind, count in (("planned", plan.planned), ("trials", plan.trials)):
        if count is not None and count < 1:
            raise BadValue(kind, f"{count}", "give 1 or more, or none")


def _check_arm(arm: PlannedArm) -> None:
    if not 0 <= arm.weight <= WEIGHT_MAX:
        remedy = f"give 0 to {WEIGHT_MAX:,.0f}"
        raise BadValue(f"weight of arm {arm.name!r}", f"{arm.weight}", remedy)
    for kind in ("prompt", "model"):
        values.demand_text(getattr(arm, kind), f"{kind} of arm {arm.name!r}")
    parameters = msgspec.json.decode(bytes(arm.parameters))
    if not isinstance(parameters, dict | None):
        where = f"parameters of arm {arm.name!r}"
        raise BadValue(where, f"{parameters!r:.80}", "give them by name")
