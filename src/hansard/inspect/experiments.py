"""Prompts and experiments from the tables: versions, results, evidence, prices of models."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

import msgspec

from hansard.agents import experiments
from hansard.agents.artifacts import prompts as store
from hansard.agents.artifacts import versions as artifacts
from hansard.agents.artifacts.prompts import Prompt
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain import experiment as rules
from hansard.domain import ids
from hansard.domain import prompt as prompts
from hansard.domain.errors import BadValue, Refused
from hansard.domain.prompt import PromptState
from hansard.inspect.answer import Answer
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

_SQL = statements(__file__)


# Prompts from the tables: versions, results, and the evidence for a version.

T = TypeVar("T", bound=msgspec.Struct)

ALPHA = 0.05
"""Default alpha of intervals: 1 - confidence."""


class ListedPrompt(msgspec.Struct, tag_field="kind", tag="prompt", kw_only=True):
    """Prompt in short; as of a position."""

    prompt: str
    versions: int
    newest: int
    retired: int
    aliases: dict[str, int]
    began_at: datetime
    changed_at: datetime
    position: int


class PromptVersion(msgspec.Struct, tag_field="kind", tag="version", kw_only=True):
    """Version of a prompt, with the results of its runs.

    Attributes:
        name: The prompt's name.
        version: Its number.
        prompt: Its text, with variables.
        timestamp: The time of adding, by its writer's clock.
        parent_version: The version it was made from, for a merge the first; None for none.
        parents: All parents: two for a merge.
        feedback_applied: The feedback on its parents that it answers.
        metrics: The means of its runs and ratings, as in `PromptReport`.
        model: The model that it is meant for; empty for any.
        parameters: Further parameters of the model, by name.
        runs: The number of runs that used it.
        claimed: The metrics that its source claims, by name.
        because: The reason for it.
        by: The author.
        digest: The digest of its text, model and parameters.
        aliases: The aliases that name it now.
        is_retired: Whether it was retired.
        retired: The reason of its retirement, which may be empty; None if it may be used.
    """

    name: str
    version: int
    prompt: str
    timestamp: datetime
    parent_version: int | None
    parents: list[int]
    feedback_applied: list[str]
    metrics: dict[str, float]
    model: str
    parameters: dict[str, Any]
    runs: int
    claimed: dict[str, float]
    because: str
    by: str
    digest: str
    aliases: list[str]
    is_retired: bool
    retired: str | None


class PromptMove(msgspec.Struct, tag_field="kind", tag="move", kw_only=True):
    """Move of an alias.

    Attributes:
        prompt: The prompt's name.
        alias: The alias.
        version: The version that it names from now on; None if it was removed.
        before: The version that it named before; None for none.
        because: The reason.
        experiment: The experiment with the verdict that moved it; empty if none did.
        at: The time by the writer's clock.
        by: The author.
    """

    prompt: str
    alias: str
    version: int | None
    before: int | None
    because: str
    experiment: str
    at: datetime
    by: str


class PromptLog(Answer):
    """Versions of a prompt, and the history of its aliases.

    Attributes:
        prompt: The prompt's name.
        versions: All versions, the oldest first.
        moves: The moves of its aliases, the oldest first.
        position: The position of the log.
    """

    _lines: ClassVar[tuple[str, ...]] = ("versions", "moves")

    prompt: str
    versions: list[PromptVersion]
    moves: list[PromptMove]
    position: int


class PromptMeasure(msgspec.Struct, tag_field="kind", tag="measure", kw_only=True):
    """A measure of a version: a mean, and its interval.

    Attributes:
        prompt: The prompt's name.
        version: Which version.
        runs: How many runs used it.
        metric: `completion_rate`, `avg_tokens`, `user_satisfaction`, or what runs are judged by
            (`success_rate` for `success`); None where nothing is known of the version.
        n: Of how many runs, or ratings, `value` is the mean.
        value: The mean.
        low: The lower end of the interval: Wilson's of a share, else Student's t; None of one run.
        high: The upper end.
    """

    prompt: str
    version: int
    runs: int
    metric: str | None
    n: int | None
    value: float | None
    low: float | None
    high: float | None


class PromptReport(Answer):
    """Results of versions of prompts.

    Attributes:
        rows: One measure per row, by prompt, version and metric.
        alpha: The confidence of the intervals is 1 - `alpha`.
        position: The position of the log.
    """

    _lines: ClassVar[tuple[str, ...]] = ("rows",)

    rows: list[PromptMeasure]
    alpha: float
    position: int


class PromptDiff(Answer):
    """Difference of two versions: lines of a unified diff, and fields other than the text."""

    before: str
    after: str
    diff: list[str]
    fields: dict[str, list[Any]]


class PromptEvidence(msgspec.Struct, kw_only=True, frozen=True):
    """Verdict of an experiment on a version compared with another one.

    Attributes:
        experiment: The experiment's name.
        arm: The arm of the version.
        baseline: The arm of the other version.
        metric: The metric: the first one of the plan.
        verdict: `better`, `worse`, `cannot tell` or why there is none, as in a comparison.
        difference: The mean over tasks of arm less baseline; None if there is none.
        low: The lower end of its interval.
        high: The upper end.
        tasks: The number of tasks that both were tried on.
    """

    experiment: str
    arm: str
    baseline: str
    metric: str
    verdict: str
    difference: float | None
    low: float | None
    high: float | None
    tasks: int


class ShownPrompt(Answer):
    """Version, and the state of its prompt."""

    prompt: Prompt
    is_retired: bool
    variables: tuple[str, ...]
    aliases: dict[str, int]
    newest: int
    feedback: list[dict[str, Any]]


def list_prompts(reader: Reader) -> list[ListedPrompt]:
    """List all prompts by name."""
    rows = reader.rows(_SQL["list"])
    for row in rows:
        row["aliases"] = {each["alias"]: each["version"] for each in row["aliases"] or ()}
    return _structs(ListedPrompt, rows, position=reader.position)


def log(reader: Reader, name: str) -> PromptLog:
    """Return a prompt's versions with the means of their runs, and the history of its aliases.

    Raises NotFound, BadName.
    """
    prompts.check_name(name)
    rows = reader.rows(_SQL["log"], [name])
    if not rows:
        raise artifacts.missing(prompts.PROMPTS, name)
    means: dict[int, dict[str, float]] = {}
    runs: dict[int, int] = {}
    for row in reader.rows(_SQL["means"], [name]):
        runs[row["version"]] = row["runs"]
        if row["metric"] is not None and row["value"] is not None:
            means.setdefault(row["version"], {})[row["metric"]] = row["value"]
    return PromptLog(
        prompt=name,
        versions=[
            _version(row, means.get(row["version"], {}), runs.get(row["version"], 0))
            for row in rows
        ],
        moves=_structs(PromptMove, reader.rows(_SQL["moves"], [name])),
        position=reader.position,
    )


def _version(row: dict[str, Any], metrics: dict[str, float], runs: int) -> PromptVersion:
    row["parameters"] = msgspec.json.decode(row["parameters"] or b"{}")
    row["claimed"] = _by_name(row["claimed"])
    [version] = _structs(PromptVersion, [row], metrics=metrics, runs=runs)
    return version


def _by_name(plain: Any) -> dict[str, float]:
    """Return a map of the tables, given as a dict or as lists of keys and values."""
    if not plain:
        return {}
    if "key" in plain and isinstance(plain["key"], list):
        return dict(zip(plain["key"], plain["value"], strict=True))
    return dict(plain)


def report(reader: Reader, name: str | None = None, alpha: float = ALPHA) -> PromptReport:
    """Report the results of a prompt's versions, or of all. Raises NotFound, BadName, BadValue."""
    if not 0 < alpha < 1:
        raise BadValue("alpha", f"{alpha}", "give a number between 0 and 1, such as 0.05")
    if name is not None:
        prompts.check_name(name)
    rows = reader.rows(_SQL["report"], [name, alpha])
    if name is not None and not rows:
        raise artifacts.missing(prompts.PROMPTS, name)
    measures = _structs(PromptMeasure, rows)
    return PromptReport(rows=measures, alpha=alpha, position=reader.position)


async def show(workspace: Workspace, reference: str) -> ShownPrompt:
    """Return a version and the state of its prompt. Raises NotFound, Refused, BadName."""
    prompt = await store.get(workspace, reference)
    state = (await artifacts.read(workspace, prompts.PROMPTS, prompt.name)).state
    parts = [each for each in state.feedback if each.version == prompt.version]
    return ShownPrompt(
        prompt=prompt,
        is_retired=prompt.retired is not None,
        variables=prompt.variables,
        aliases=dict(sorted(state.aliases.items())),
        newest=state.newest,
        feedback=[{"text": each.text, "rating": each.rating, "run": each.run} for each in parts],
    )


async def diff(workspace: Workspace, before: str, after: str | None) -> PromptDiff:
    """Compare two versions; without the second, a version and its parent.

    Raises NotFound, Refused, BadName.
    """
    new = await store.get(workspace, after if after is not None else before)
    if after is not None:
        old = await store.get(workspace, before)
    elif new.parents:
        old = await store.get(workspace, f"{new.name}@{new.parents[0]}")
    else:
        message = f"prompt {new.reference} has no parent: name two versions"
        raise Refused(message)
    lines = difflib.unified_diff(
        old.text.splitlines(), new.text.splitlines(), old.reference, new.reference, lineterm=""
    )
    fields = {
        name: [getattr(old, name), getattr(new, name)]
        for name in ("model", "parameters")
        if getattr(old, name) != getattr(new, name)
    }
    return PromptDiff(before=old.reference, after=new.reference, diff=list(lines), fields=fields)


def evidence(
    reader: Reader, name: str, version: int, current: int, experiment: str | None
) -> PromptEvidence:
    """Return the verdict of the newest experiment with both versions as arms, or of the named one.

    Runs of both arms must be judged. Raises Refused if there is no such experiment.
    """
    new, old = f"{name}@{version}", f"{name}@{current}"
    pairs = reader.rows(_SQL["evidence"], [new, old, experiment])
    if not pairs:
        which = f"experiment {experiment!r}" if experiment else "no experiment"
        negation = "does not have" if experiment else "has"
        message = (
            f"{which} {negation} both {new} and {old} as the prompts of arms: register one that "
            "does and have runs of it judged, or say reason= (--reason) why it is moved"
        )
        raise Refused(message)
    for pair in pairs:
        rows = reader.rows(_SQL["verdict"], [pair["experiment"], pair["baseline"], pair["arm"]])
        if rows:
            return PromptEvidence(**pair, **rows[0])
    pair = pairs[0]
    message = (
        f"experiment {pair['experiment']!r} has no judged runs of arms {pair['arm']!r} and "
        f"{pair['baseline']!r} yet: score them, or give reason= (--reason)"
    )
    raise Refused(message)


def demand_better(shown: PromptEvidence) -> None:
    """Raise Refused unless the verdict is better."""
    if shown.verdict == "better":
        return
    interval = (
        f" ({shown.difference:+.4g}, {shown.low:+.4g} to {shown.high:+.4g})"
        if shown.difference is not None and shown.low is not None and shown.high is not None
        else ""
    )
    message = (
        f"experiment {shown.experiment!r} says of arm {shown.arm!r} beside {shown.baseline!r} by "
        f"{shown.metric}: {shown.verdict}{interval}, and an alias is moved on 'better': have more "
        "runs judged, or say reason= (--reason) why it is moved all the same"
    )
    raise Refused(message)


def alias_version(state: PromptState, alias: str, name: str) -> int:
    """Return the version that an alias names. Raises Refused if it names none yet."""
    if alias not in state.aliases:
        message = (
            f"alias {alias!r} of prompt {name!r} names no version yet, so there is nothing to be "
            "better than: say reason= (--reason) why it is to name this one"
        )
        raise Refused(message)
    return state.aliases[alias]


REMEDY = "see 'hansard experiment list'"


class Listed(msgspec.Struct, tag_field="kind", tag="experiment", kw_only=True):
    """Experiment in short, registered or named by runs; as of a position."""

    experiment: str
    standing: str
    registered: bool
    stopped: bool
    runs: int
    arms: list[str] | None
    metric: str
    question: str | None
    registered_at: datetime | None
    position: int


class Plan(msgspec.Struct, tag_field="kind", tag="experiment", kw_only=True):
    """Plan of an experiment, and its state at a position."""

    experiment: str
    question: str | None
    standing: str
    registered: bool
    unit: str
    cluster: str
    alpha: float
    stop: str
    planned: int | None
    trials: int | None
    missing: str
    exploratory: bool | None
    salt: str | None
    runs: int
    registered_at: datetime | None
    registered_by: str | None
    registered_position: int | None
    first_position: int | None
    stopped_at: datetime | None
    stopped_because: str | None
    replaced: int | None
    because: str | None
    position: int


class Arm(msgspec.Struct, tag_field="kind", tag="arm", kw_only=True):
    """Arm, and its runs so far."""

    experiment: str
    arm: str
    number: int
    share: float | None
    prompt: str | None
    model: str | None
    parameters: Any
    runs: int
    tasks: int
    completed: int
    failed: int
    open: int


class Metric(msgspec.Struct, tag_field="kind", tag="metric", kw_only=True):
    """Metric of an experiment; `number` is None if only its runs name it."""

    experiment: str
    metric: str
    number: int | None
    better: str | None
    smallest: float | None
    judged_runs: int


class Experiment(Answer):
    """Experiment, its arms and its metrics."""

    _lines: ClassVar[tuple[str, ...]] = ("plan", "arms", "metrics")

    plan: Plan
    arms: list[Arm]
    metrics: list[Metric]


class Assignment(msgspec.Struct, kw_only=True):
    """Arm of a unit, which is a task or another unit of the plan."""

    experiment: str
    unit: str
    unit_is: str
    arm: str


class Price(msgspec.Struct, tag_field="kind", tag="price", kw_only=True):
    """Price of one million of a usage of a model, from `since` on."""

    model: str
    usage: str
    amount: float
    currency: str
    since: datetime
    source: str | None
    stated_by: str
    position: int


def list_experiments(reader: Reader) -> list[Listed]:
    """List every experiment, registered or named by runs."""
    return _structs(Listed, reader.rows(_SQL["experiments"]), position=reader.position)


def experiment(reader: Reader, name: str) -> Experiment:
    """Return an experiment: plan, state, runs by arm. Raises NotFound."""
    plans = reader.rows(_SQL["plan"], [name])
    if not plans:
        raise NotFound(f"experiment {name!r}", REMEDY)
    arms = reader.rows(_SQL["arms"], [name])
    for arm in arms:
        text = arm["parameters"]
        arm["parameters"] = msgspec.json.decode(text) if text is not None else None
    [plan] = _structs(Plan, plans, position=reader.position)
    metrics = _structs(Metric, reader.rows(_SQL["metrics"], [name]), experiment=name)
    return Experiment(plan=plan, arms=_structs(Arm, arms, experiment=name), metrics=metrics)


async def assigned(workspace: Workspace, name: str, unit: str) -> tuple[Assignment, bool]:
    """Return a unit's arm, and whether the experiment is stopped and assigns no more.

    Nothing is recorded. Raises NotFound, BadName.
    """
    current = await experiments.state(workspace, name)
    plan: Any = current.plan
    arm = rules.arm_of(name, plan, ids.name("unit", unit))
    report = Assignment(experiment=name, unit=unit, unit_is=plan.unit, arm=arm.name)
    return report, current.stopped is not None


def list_prices(reader: Reader, model: str | None) -> list[Price]:
    """List current prices by model, usage and day."""
    return _structs(Price, reader.rows(_SQL["prices"], [model]), position=reader.position)


def _structs(kind: type[T], rows: Iterable[dict[str, Any]], **more: Any) -> list[T]:
    """Build a struct of each row of the tables, whose times are UTC."""
    structs = []
    for row in rows:
        fields = {name: row[name] for name in row.keys() & {*kind.__struct_fields__}}
        for name, value in fields.items():
            if isinstance(value, datetime):
                fields[name] = value.replace(tzinfo=UTC)
        structs.append(kind(**fields, **more))
    return structs
