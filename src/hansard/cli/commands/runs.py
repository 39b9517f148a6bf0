"""`hansard runs`: which runs there are."""

from __future__ import annotations

from hansard.agents.run_index import RunFilter
from hansard.cli import output
from hansard.cli.opening import Options, reading
from hansard.cli.output import Column, Hint, Part
from hansard.domain.counted import counted
from hansard.inspect.runs import Run, Runs, list_runs

LIMIT = 20
"""Runs shown unless more are asked for."""


async def runs(options: Options, wanted: RunFilter, limit: int, *, json: bool) -> int:
    """Print the runs, the newest first; reads the whole of each run it shows."""
    async with reading(options) as workspace:
        made = await list_runs(workspace, wanted, limit)
    output.show(made, _people, json=json)
    if not made.found:
        asked = (
            f" of {made.all} is: {wanted}" if made.all and str(wanted) else "s in this workspace"
        )
        output.hint(f"no run{asked}")
        for unknown in made.unknown:
            output.hint(unknown)
    return 0


def _people(made: Runs) -> list[Part]:
    def status(run: Run) -> object:
        return output.status_cell("unreadable" if run.run in made.lost else run.status)

    columns = (
        Column("run", whole=True),
        Column("workflow"),
        Column("status", status, whole=True),
        Column("agents"),
        Column("at work", short=True),
        Column("steps", lambda run: "?" if run.steps is None else str(run.steps), right=True),
        Column("open", lambda run: str(run.open_steps or ""), right=True),
        Column("started", lambda run: output.time(run.started), whole=True),
        Column("last", lambda run: (run.last or "")[:19].replace("T", " "), whole=True),
    )
    parts: list[Part] = [output.listing(columns, made.runs)] if made.runs else []
    parts += [
        Hint(f"run {run.run} could not be read whole: {run.problem}")
        for run in made.runs
        if run.problem
    ]
    if len(made.runs) < made.found:
        said = f"{len(made.runs)} of {counted(made.found, 'run')}; --limit 0 shows all"
        parts.append(Hint(said))
    return parts
