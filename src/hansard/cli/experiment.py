"""Command `hansard experiment`: registered plans, and the runs of their arms."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from hansard.agents.experiments import plans as experiments
from hansard.bus.clock import OS_USER
from hansard.bus.file_lock import read_text
from hansard.cli import output
from hansard.cli.common import By, Commands, Reason, argument, flag
from hansard.cli.opening import answering, beginning, reading
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.experiment import Better, ExperimentRegistered
from hansard.inspect.experiments import (
    Experiment,
    Listed,
    Plan,
    assigned,
    experiment,
    list_experiments,
)

app = Commands()

Name = Annotated[str, argument("NAME", "The experiment's name.")]

FILE_BYTES_MAX = 1024 * 1024
"""Largest plan file, in bytes; no real plan comes near it."""


def from_file(path: Path) -> tuple[str, ExperimentRegistered]:
    """Read an experiment's name and plan from a TOML file. Raises BadValue, BadName."""
    text = read_text(path, FILE_BYTES_MAX, "give a plan as TOML, see docs/experiments.md")
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadValue(
            f"{path}", f"it is not valid TOML: {error}", "see docs/experiments.md"
        ) from error
    if "name" not in fields:
        raise BadValue(f"{path}", "it has no name", 'begin it with name = "..."')
    name = fields.pop("name")
    return name, experiments.plan(**fields)


@app.command("register")
async def register(
    file: Annotated[Path, argument("FILE.toml", "Name and plan.")],
    replace: Annotated[
        bool, flag("--replace", "Replace a plan of that name that has no run yet.")
    ] = False,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Register an experiment: arms, metrics, and how it is judged.

    Registering an equal plan again changes nothing. A plan can be replaced until its first run;
    both plans stay on record.
    """
    name, plan = from_file(file)
    if reason and not replace:
        raise BadValue("--reason", f"{reason!r:.80}, but nothing is replaced", "give --replace")
    async with beginning() as workspace:
        if replace:
            is_new = await experiments.replace(workspace, name, plan, reason=reason, by=by)
        else:
            is_new = await experiments.register(workspace, name, plan, by=by)
    done = "is registered, in the place of the plan before it" if replace else "is registered"
    text = done if is_new else "is registered already, with this plan"
    fields = {"experiment": name, "registered": is_new, "replaced": is_new and replace}
    output.show(fields, f"experiment {name} {text}")
    for metric in plan.metrics:
        if metric.better is Better.NOT_STATED:
            output.hint(
                f"which direction of {metric.name} is better is not stated: unless the catalogue "
                "knows it, a comparison gives no verdict by it until who asks says so"
            )


@app.command()
async def stop(name: Name, reason: Reason = "", by: By = OS_USER) -> None:
    """Stop assigning runs to an experiment."""
    async with reading() as workspace:
        is_new = await experiments.stop(workspace, name, reason=reason, by=by)
    text = "is stopped: no run is assigned any more" if is_new else "is stopped already"
    output.show({"experiment": name, "stopped": is_new}, f"experiment {name} {text}")


@app.command()
async def assign(
    name: Name, unit: Annotated[str, argument("UNIT", "A task, a run, a conversation ...")]
) -> None:
    """Print the arm that a unit's hash assigns; record nothing."""
    async with reading() as workspace:
        found, is_stopped = await assigned(workspace, name, unit)
    output.show(found, found.arm)
    if is_stopped:
        output.hint("the experiment is stopped: no run is assigned any more")


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
        "parameters", lambda arm: output.arguments_preview(arm.parameters) if arm.parameters else ""
    ),
    *(Column(name, right=True) for name in ("runs", "tasks", "completed", "failed", "open")),
)
METRICS = (
    Column("metric", whole=True),
    Column("better", lambda each: each.better or ("not stated" if each.number else "")),
    Column("smallest", lambda m: "" if m.smallest is None else f"{m.smallest:g}", right=True),
    Column("runs judged", lambda each: each.judged_runs, right=True),
)


@app.command("list")
async def list_() -> None:
    """List experiments, registered or named by runs."""
    async with answering() as reader:
        found = list_experiments(reader)
    output.show(found, _render_list)


def _render_list(found: list[Listed]) -> list[Part]:
    return [output.listing(LIST, found) if found else "no experiment yet"]


@app.command()
async def show(name: Name) -> None:
    """Show a plan, whether it predates the data, and runs by arm."""
    async with answering() as reader:
        found = experiment(reader, name)
    output.show(found, _render)


def _render(found: Experiment) -> Iterator[Part]:
    plan = found.plan
    rows: list[tuple[str, object]] = [
        ("experiment", plan.experiment),
        ("question", plan.question),
        ("standing", plan.standing),
    ]
    if plan.registered and plan.registered_at is not None:
        rows += [
            ("registered", f"{output.moment(plan.registered_at)} by {plan.registered_by}"),
            ("replaced", _replaced_text(plan)),
            ("stopped", _stop_text(plan)),
            ("unit", plan.unit),
            ("cluster", plan.cluster),
            ("alpha", f"{plan.alpha:g}"),
            ("stop rule", plan.stop),
            ("planned", _plan_text(plan)),
            ("missing", f"counts as {plan.missing}"),
        ]
    yield output.pairs([*rows, ("runs", plan.runs), ("as of", f"position {plan.position}")])
    yield ""
    yield output.listing(ARMS, found.arms)
    yield ""
    yield output.listing(METRICS, found.metrics)


def _stop_text(plan: Plan) -> str:
    if plan.stopped_at is None:
        return ""
    why = f" ({plan.stopped_because})" if plan.stopped_because else ""
    return output.moment(plan.stopped_at) + why


def _replaced_text(plan: Plan) -> str:
    if not plan.replaced:
        return ""
    why = f" ({plan.because})" if plan.because else ""
    return f"{counted(plan.replaced, 'plan')} before it{why}"


def _plan_text(plan: Plan) -> str:
    tasks = counted(plan.planned, "task") if plan.planned is not None else ""
    trials = f"{counted(plan.trials, 'trial')} of each task and arm" if plan.trials else ""
    return ", ".join(part for part in (tasks, trials) if part)
