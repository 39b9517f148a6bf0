"""`hansard experiment`: plans that are registered, and the runs that have an arm of one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from hansard.agents.experiments import plans as experiments
from hansard.cli import output
from hansard.cli.commands._answers import answering
from hansard.cli.opening import Options, reading
from hansard.cli.output import Column, Part
from hansard.client.connect import open_workspace
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue
from hansard.domain.experiment import ExperimentRegistered
from hansard.inspect.experiments import (
    Experiment,
    Listed,
    Plan,
    assigned,
    experiment,
    list_experiments,
)

FILE_BYTES_MAX = 1024 * 1024
"""Of a plan's file: far more than the largest plan takes."""


def from_file(path: Path) -> tuple[str, ExperimentRegistered]:
    """An experiment's name and plan from a TOML file. Raises BadValue, BadName."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadValue("file", str(error), "give a TOML file") from error
    if len(raw) > FILE_BYTES_MAX:
        raise BadValue("file", f"{path} has more than {FILE_BYTES_MAX:,} bytes", "give a plan")
    try:
        fields = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"{path}", f"it is no TOML: {error}", "see docs/experiments.md") from error
    if "name" not in fields:
        raise BadValue(f"{path}", "it has no name", 'begin it with name = "..."')
    name = fields.pop("name")
    return name, experiments.plan(**fields)


async def register(options: Options, path: Path, by: str, *, json: bool) -> int:
    """Register the plan of a file. Raises Refused, BadValue, BadName."""
    name, plan = from_file(path)
    workspace = await open_workspace(options.settings())
    try:
        is_new = await experiments.register(workspace, name, plan, by=by)
    finally:
        await workspace.close()
    said = "is registered" if is_new else "is registered already, with this plan"
    told = {"experiment": name, "registered": is_new}
    output.show(told, f"experiment {name} {said}", json=json)
    return 0


async def stop(options: Options, name: str, because: str, by: str, *, json: bool) -> int:
    """Assign no run any more. Raises Refused, NotFound."""
    async with reading(options) as workspace:
        is_new = await experiments.stop(workspace, name, because=because, by=by)
    said = "is stopped: no run is assigned any more" if is_new else "is stopped already"
    told = {"experiment": name, "stopped": is_new}
    output.show(told, f"experiment {name} {said}", json=json)
    return 0


async def assign(options: Options, name: str, unit: str, *, json: bool) -> int:
    """Print the arm of a unit; nothing is recorded. Raises NotFound, BadName."""
    async with reading(options) as workspace:
        found, is_stopped = await assigned(workspace, name, unit)
    output.show(found, found.arm, json=json)
    if is_stopped:
        output.hint("the experiment is stopped: no run is assigned any more")
    return 0


LIST = (
    Column("experiment", whole=True),
    Column("arms"),
    Column("metric"),
    Column("runs", right=True),
    Column("standing", lambda each: each.standing + ("; stopped" if each.stopped else "")),
    Column("question"),
)
ARMS = (
    Column("arm", whole=True),
    Column("share", lambda arm: f"{arm.share:.0%}" if arm.share is not None else "", right=True),
    Column("prompt"),
    Column("model"),
    Column(
        "parameters",
        lambda arm: output.arguments_preview(arm.parameters) if arm.parameters else "",
    ),
    *(Column(name, right=True) for name in ("runs", "tasks", "completed", "failed", "open")),
)
METRICS = (
    Column("metric", whole=True),
    Column("better"),
    Column("smallest", lambda m: "" if m.smallest is None else f"{m.smallest:g}", right=True),
    Column("runs judged", lambda each: each.judged_runs, right=True),
)


async def list_(options: Options, *, json: bool) -> int:
    """Print every experiment, registered or met in runs."""
    async with answering(options) as reader:
        found = list_experiments(reader)
    output.show(found, _listed, json=json)
    return 0


def _listed(found: list[Listed]) -> list[Part]:
    return [output.listing(LIST, found) if found else "no experiment yet"]


async def show(options: Options, name: str, *, json: bool) -> int:
    """Print an experiment: its plan, how it stands, its runs by arm. Raises NotFound."""
    async with answering(options) as reader:
        found = experiment(reader, name)
    output.show(found, _people, json=json)
    return 0


def _people(found: Experiment) -> Iterator[Part]:
    plan = found.plan
    rows: list[tuple[str, object]] = [
        ("experiment", plan.experiment),
        ("question", plan.question),
        ("standing", plan.standing),
    ]
    if plan.registered and plan.registered_at is not None:
        rows += [
            ("registered", f"{output.moment(plan.registered_at)} by {plan.registered_by}"),
            ("stopped", _stopped(plan)),
            ("unit", plan.unit),
            ("cluster", plan.cluster),
            ("alpha", f"{plan.alpha:g}"),
            ("stop rule", plan.stop),
            ("planned", _planned(plan)),
            ("missing", f"counts as {plan.missing}"),
        ]
    yield output.pairs([*rows, ("runs", plan.runs), ("as of", f"position {plan.position}")])
    yield ""
    yield output.listing(ARMS, found.arms)
    yield ""
    yield output.listing(METRICS, found.metrics)


def _stopped(plan: Plan) -> str:
    if plan.stopped_at is None:
        return ""
    why = f" ({plan.stopped_because})" if plan.stopped_because else ""
    return output.moment(plan.stopped_at) + why


def _planned(plan: Plan) -> str:
    tasks = counted(plan.planned, "task") if plan.planned is not None else ""
    trials = f"{counted(plan.trials, 'trial')} of each task and arm" if plan.trials else ""
    return ", ".join(part for part in (tasks, trials) if part)
