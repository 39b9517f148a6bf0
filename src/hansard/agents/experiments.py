"""Experiments: plans registered before the data, the arm of each run, scores, prices of models.

A run's assignment is in the same commit as its start, on the condition that the experiment is
unchanged since it was read: so it is recorded before anything is done under the arm, and no run
gets an arm of an experiment that was stopped or registered meanwhile.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import msgspec

from hansard.agents.artifacts.prompts import demand_usable
from hansard.agents.flow import is_coroutine_function
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Permit
from hansard.agents.workspace import Workspace, assigned_runs
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.bus.log import Append, AtPosition, LivesAt, Stored, StreamAt, UpTo
from hansard.domain import experiment as experiments
from hansard.domain import ids, values
from hansard.domain import prompt as prompts
from hansard.domain.agent import AgentRefused
from hansard.domain.choices import Brief
from hansard.domain.errors import BadValue, CallerError, RecordError, Refused
from hansard.domain.experiment import (
    CONVERSATION,
    EXPERIMENTS,
    KIND,
    PRICES,
    TASK,
    Better,
    ExperimentRegistered,
    ExperimentState,
    ExperimentStopped,
    Metric,
    Missing,
    PriceStated,
    StopRule,
)
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import RunStream, WorkspaceStream
from hansard.domain.redaction import check_names
from hansard.domain.roles.view import Facts, facts, may_be_placed, sees_arm, sees_plan
from hansard.domain.run import RunAssigned, RunScored, RunState
from hansard.domain.values import SAFE_INT, recordable
from hansard.state.replay import RunView
from hansard.state.repository import folded, transact


class NotPlaced(Refused):
    """A run cannot have the requested place in an experiment.

    State: nothing was written.
    Remedy: register the experiment, or name an existing arm.
    """


HASH, CALLER = "hash", "caller"
"""Methods of choosing an arm."""


class Arm(msgspec.Struct, frozen=True):
    """The arm of a run. If the experiment was not registered when the run started, only its name is
    known.

    Attributes:
        name: Its name.
        prompt: The plan's prompt; empty if it has none.
        model: The plan's model; empty if it has none.
        parameters: The plan's parameters, by name.
    """

    name: str
    prompt: str = ""
    model: str = ""
    parameters: dict[str, Any] = {}


# ---------------------------------------------------------------- plans

_CHOICES = {"stop": StopRule, "missing": Missing, "better": Better}


class PlanOptions(TypedDict, total=False):
    """Fields of a plan: see `ExperimentRegistered`. Arms and metrics are required."""

    arms: Sequence[Any]
    metrics: Sequence[Any]
    question: str
    unit: str
    cluster: str
    alpha: float
    stop: StopRule | str
    planned: int | None
    trials: int | None
    missing: Missing | str
    exploratory: bool
    salt: str


def plan(**fields: Unpack[PlanOptions]) -> ExperimentRegistered:
    """Build a plan: `plan(arms=["plain", "bold"], metrics=["reward"], planned=60)`.

    An arm is a name or `{"name", "weight", "prompt", "model", "parameters"}`, a metric a name or
    `{"name", "better", "smallest"}`; without `better`, the direction is taken from the catalogue or
    from the caller of the comparison. The other fields are those of `ExperimentRegistered`. Raises
    BadValue, which names the field, and BadName.
    """
    data = _checked_fields(fields, ExperimentRegistered, "the plan")
    data["arms"] = [_arm(arm) for arm in _parts(data, "arms")]
    data["metrics"] = [
        {"better": Better.NOT_STATED, **_checked_fields(_named(metric), Metric, "a metric")}
        for metric in _parts(data, "metrics")
    ]
    try:
        made = msgspec.convert(data, ExperimentRegistered)
    except msgspec.ValidationError as error:
        remedy = "; ".join(f"{name} is {' or '.join(kind)}" for name, kind in _CHOICES.items())
        raise BadValue("the plan", str(error), remedy) from error
    experiments.check(made)
    return made


def _parts(fields: dict[str, Any], kind: str) -> Sequence[Any]:
    parts = fields.get(kind)
    if isinstance(parts, list | tuple):
        return parts
    fact = "none are given" if parts is None else f"{parts!r:.80}"
    raise BadValue(kind, fact, "give a list of names or tables")


def _named(part: Any) -> Any:
    return {"name": part} if isinstance(part, str) else part


def _checked_fields(fields: Any, cls: type[msgspec.Struct], what: str) -> dict[str, Any]:
    """Return the given fields if the type has all of them. Raises BadValue."""
    known = ", ".join(cls.__struct_fields__)
    if not isinstance(fields, Mapping):
        raise BadValue(what, f"{fields!r:.80}", f"give its name, or some of: {known}")
    for name in fields:
        if name not in cls.__struct_fields__:
            raise BadValue(what, f"it has no field {name!r:.80}", f"its fields are: {known}")
    return dict(fields)


def _arm(arm: Any) -> dict[str, Any]:
    fields = _checked_fields(_named(arm), experiments.PlannedArm, "an arm")
    parameters = fields.pop("parameters", None)
    return {**fields, "parameters": _raw(parameters)} if parameters else fields


def _raw(parameters: Any) -> msgspec.Raw:
    return msgspec.Raw(canonical(values.plain(parameters, "parameters")))


def _recorded(workspace: Workspace, plan: ExperimentRegistered) -> ExperimentRegistered:
    """Return a plan as it is recorded: without secrets, long texts truncated."""
    clean = workspace.clean(plan)
    arms = tuple(
        msgspec.structs.replace(arm, prompt=recordable(arm.prompt), model=recordable(arm.model))
        for arm in clean.arms
    )
    return msgspec.structs.replace(
        clean, arms=arms, question=recordable(clean.question), because=recordable(clean.because)
    )


def parameters_of(arm: experiments.PlannedArm) -> dict[str, Any]:
    """Return an arm's parameters as plain Python values."""
    plain = msgspec.json.decode(bytes(arm.parameters))
    parameters: dict[str, Any] = values.revive(plain) or {}
    return parameters


# ---------------------------------------------------------------- the experiment


async def read(
    workspace: Workspace, name: str, up_to: UpTo = None
) -> tuple[ExperimentState, list[Stored]]:
    """Read an experiment at a point, and its commits. Raises BadName, UnknownEvent."""
    stored = await workspace.log.read(EXPERIMENTS.stream(name), up_to=up_to)
    return folded(EXPERIMENTS, stored), stored


async def state(workspace: Workspace, name: str) -> ExperimentState:
    """Return the current state of a registered experiment. Raises NotFound, BadName."""
    current, _ = await read(workspace, name)
    if current.plan is None:
        raise NotFound(f"experiment {name!r}", "see 'hansard experiment list'")
    return current


async def register(
    workspace: Workspace, name: str, made: ExperimentRegistered, *, by: str = OS_USER
) -> bool:
    """Register an experiment; return False if it is already registered with the same plan.

    Raises Refused with the difference if it has another plan; BadName, BadValue.
    """
    experiments.check(made)
    fields = _recorded(workspace, made)
    current, _ = await read(workspace, name)
    if current.plan is None:
        await _demand_prompts(workspace, fields)
    return await workspace.repository.decide(EXPERIMENTS, name, fields, by)


async def replace(
    workspace: Workspace,
    name: str,
    made: ExperimentRegistered,
    *,
    reason: str = "",
    by: str = OS_USER,
) -> bool:
    """Replace the plan of an experiment that has no run yet; return False if it is the same.

    Reads the life of every run, and appends on the condition that no run started or continued
    since; otherwise it reads again, up to 50 times. Raises Refused if a run of the experiment
    started, or if it is stopped or not registered; Conflict, BadName, BadValue.
    """
    ids.name("by", by)
    stream = EXPERIMENTS.stream(name)
    plan = _recorded(workspace, msgspec.structs.replace(made, because=reason))
    await _demand_prompts(workspace, plan)

    async def read_all() -> tuple[list[Stored], list[str], int]:
        runs, lives = await assigned_runs(workspace.log, name)
        return await workspace.log.read(stream), runs, lives

    def next_append(read_state: tuple[list[Stored], list[str], int]) -> Append | None:
        stored, runs, lives = read_state
        value = experiments.replace(folded(EXPERIMENTS, stored), plan, runs)
        if not value:
            return None
        commit = workspace.commit(stored[-1].commit.last_version + 1, by, value)
        return Append(stream, commit, LivesAt(lives))

    try:
        return await transact(read_all, next_append, workspace.log.append) is not None
    except Refused as error:
        message = f"experiment {name!r}: {error}"
        raise Refused(message) from error


async def stop(workspace: Workspace, name: str, *, reason: str = "", by: str = OS_USER) -> bool:
    """Stop assigning runs; return False if it is already stopped. Raises Refused, BadName."""
    command = ExperimentStopped(because=workspace.text(reason))
    return await workspace.repository.decide(EXPERIMENTS, name, command, by)


async def _demand_prompts(workspace: Workspace, made: ExperimentRegistered) -> None:
    """Raise NotFound or Refused for an arm that names a prompt, such as `rag@3`, that cannot be
    used; any other text is a description.
    """
    named = (arm.prompt for arm in made.arms if prompts.looks_up(arm.prompt))
    await demand_usable(workspace, named)


# ---------------------------------------------------------------- placement of runs


class PlacementRequest(msgspec.Struct, frozen=True):
    """A run's place in an experiment as the caller requests it."""

    experiment: str | None = None
    arm: str | None = None
    task: str | None = None
    trial: int | None = None
    unit: str | None = None

    def check(self) -> None:
        """Raise BadName or BadValue for a field that cannot be recorded."""
        for kind in ("experiment", "arm", TASK, "unit"):
            if getattr(self, kind) is not None:
                ids.name(kind, getattr(self, kind))
        if self.trial is not None and not (
            type(self.trial) is int and -SAFE_INT <= self.trial <= SAFE_INT
        ):
            raise BadValue("trial", f"{self.trial!r:.80}", "give an integer")

    def agree(self, run: str, life: RunState) -> None:
        """Raise NotPlaced if an existing run has another place."""
        current = life.assigned or RunAssigned()
        for kind in self.__struct_fields__:
            target, has = getattr(self, kind), getattr(current, kind)
            if target is not None and target != has:
                known = repr(has) if has not in ("", None) else "none"
                message = (
                    f"run {run} has {known} as its {kind}, not {target!r}: a run's place in an "
                    "experiment is fixed at its start; leave it out, or start another run"
                )
                raise NotPlaced(message)


class Placement(msgspec.Struct, frozen=True):
    """A new run's place: the event, the condition of its append, and the arm."""

    event: RunAssigned
    condition: StreamAt | None = None
    arm: Arm | None = None


async def place(
    workspace: Workspace, run: str, request: PlacementRequest, conversation: str | None
) -> Placement | None:
    """Return a new run's place, or None if none is requested. Raises NotPlaced, BadValue."""
    if request == PlacementRequest():
        return None
    event = RunAssigned(
        experiment=request.experiment or "",
        arm=request.arm or "",
        task=request.task or "",
        trial=request.trial,
        unit=request.unit or "",
        chosen=CALLER if request.arm else "",
    )
    if request.experiment is None:
        for kind in ("arm", "unit"):
            if getattr(request, kind) is not None:
                fact = f"it is {getattr(request, kind)!r:.80}, without an experiment"
                raise BadValue(kind, fact, "give experiment= as well")
        return Placement(event)
    experiment, stored = await read(workspace, request.experiment)
    if experiment.stopped is not None:
        why = f" ({experiment.stopped.because})" if experiment.stopped.because else ""
        message = f"experiment {request.experiment!r} is stopped{why}: it assigns no more runs"
        raise NotPlaced(message)
    if experiment.plan is None and request.arm is None:
        message = (
            f"experiment {request.experiment!r} is not registered, so it assigns no arm to a run: "
            "register it (record.experiments.register, 'hansard experiment register'), or choose "
            "the arm yourself with arm="
        )
        raise NotPlaced(message)
    if experiment.plan is not None and request.arm is None:
        has = {TASK: request.task or "", CONVERSATION: conversation or ""}
        unit = experiments.unit_of(experiment.plan, run, has, request.unit)
        arm = experiments.arm_of(request.experiment, experiment.plan, unit)
        event = msgspec.structs.replace(event, arm=arm.name, unit=unit, chosen=HASH)
    elif experiment.plan is not None:
        names = [arm.name for arm in experiment.plan.arms]
        if request.arm not in names:
            message = (
                f"experiment {request.experiment!r} has no arm {request.arm!r}: it has {names}"
            )
            raise NotPlaced(message)
    stream = WorkspaceStream(KIND, request.experiment)
    condition = StreamAt(stream, stored[-1].position if stored else 0)
    return Placement(event, condition, _arm_named(event.arm, experiment.plan))


async def arm_of_run(workspace: Workspace, life: RunState, commits: Iterable[Stored]) -> Arm | None:
    """Return the arm of an existing run, by the plan at the time of its assignment."""
    assignment = life.assigned
    if assignment is None or not assignment.arm:
        return None
    if not assignment.experiment:
        return Arm(assignment.arm)
    assigned = [
        stored.position
        for stored in commits
        if any(recorded.type == RunAssigned.tag for recorded in stored.commit.events)
    ]
    experiment, _ = await read(workspace, assignment.experiment, AtPosition(assigned[-1]))
    return _arm_named(assignment.arm, experiment.plan)


def _arm_named(name: str, made: ExperimentRegistered | None) -> Arm:
    for arm in made.arms if made is not None else ():
        if arm.name == name:
            return Arm(name, arm.prompt, arm.model, parameters_of(arm))
    return Arm(name)


# Visibility of a run's place in an experiment for a restricted agent, by its role.

PLACE = "place"
"""Operation name of refusals: to place a run, or to confirm its place."""


class Placing(msgspec.Struct, frozen=True):
    """An agent's role, with its rules at the time it opens a run."""

    permit: Permit
    agent: str

    def demand(self, request: PlacementRequest, run: Facts, *, begins: bool) -> None:
        """Raise RoleRefused if the request states a place that the role may not set or know.
        begins: the run does not exist yet.
        """
        named = [kind for kind in request.__struct_fields__ if getattr(request, kind) is not None]
        if not named:
            return
        begins = begins and request.experiment is not None
        permission = may_be_placed(self.permit.rules, run, begins=begins)
        if not permission.allowed:
            because = self.permit.because(permission)
            rule = self.permit.rule
            raise permits.refused(
                AgentRefused(what=PLACE, name=named[0], rule=rule, because=because)
            )

    def arm(self, arm: Arm | None, run: Facts) -> Arm | None:
        """Return a run's arm as visible to the role: all of it, its name, or None."""
        if arm is None or not sees_arm(self.permit.rules, run):
            return None
        return arm if sees_plan(self.permit.rules) else Arm(arm.name)

    def new(self, run: str, labels: Mapping[str, str]) -> Facts:
        """Return the facts by which the place of a run that the agent starts is authorised."""
        roster = {self.agent: self.permit.role}
        return facts(RunAssigned.tag, RunStream(run), self.agent, roster, labels)


async def placing(workspace: Workspace, role: str, agent: str) -> Placing:
    """Read a role's current rules. Raises UnknownEvent if a newer version wrote them."""
    return Placing(await permits.read(workspace, role, restricted=True), agent)


def begun(run: str, life: RunState, first: Stored) -> Facts:
    """Return the facts by which the place of an existing run is authorised: those of its first
    commit, which holds the place if there is one.
    """
    actor, label = first.commit.actor.agent, first.commit.label
    return facts(RunAssigned.tag, RunStream(run), actor, life.roster, life.labels, (), label)


# Prices of models, with the date they apply from.


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Start date, currency and source of a price."""

    since: datetime
    currency: str = "USD"
    source: str = ""


async def record_price(
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
        return [each for event in events for each in experiments.decide_price(prices_now, event)]

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
    workspace: Workspace, run: str, metrics: Mapping[str, Any], *, by: str, reason: str = ""
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
