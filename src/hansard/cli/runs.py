"""Command `hansard runs`: list runs."""

from __future__ import annotations

from typing import Annotated, Literal

from hansard.agents.workspace import RunFilter
from hansard.bus.times import Time
from hansard.cli import output
from hansard.cli.common import Commands, flag, option
from hansard.cli.opening import gone, reading
from hansard.cli.output import Column, Hint, Part
from hansard.domain.choices import counted
from hansard.inspect.run import Run, Runs, list_runs

app = Commands()


@app.command()
async def runs(
    status: Annotated[
        Literal["open", "completed", "failed", "cancelled", "unknown"] | None,
        option("Only runs of this status; unknown: no valid life event."),
    ] = None,
    workflow: Annotated[str | None, option("Only runs of this workflow.", "NAME")] = None,
    agent: Annotated[str | None, option("Only runs that this agent has joined.", "NAME")] = None,
    role: Annotated[str | None, option("Only runs joined in this role.", "NAME")] = None,
    experiment: Annotated[str | None, option("Only trials of this experiment.", "NAME")] = None,
    since: Annotated[
        str | None, option("Only runs begun then or later by their source; with zone.", "TIME")
    ] = None,
    until: Annotated[
        str | None, option("Only runs begun then or before by their source; with zone.", "TIME")
    ] = None,
    probes: Annotated[bool, flag("--probes", "Also forks of probes.")] = False,
    limit: Annotated[int, option("Most runs to show; 0 shows all.", min=0)] = 20,
) -> None:
    """List runs, the most recently recorded first.

    Filters combine with AND.

    A call is in doubt if it is unknown whether its effect happened: its process was killed, it is
    in progress, or it ended in an error that leaves the effect open and that the agent did not
    handle.

    An imported run begins at the time that its source claims, shown with (occurred_at); any other
    run by the log's time. If the source gives no time, none is shown, and --since and --until leave
    the run out.
    """
    filters = {
        "status": status,
        "workflow": workflow,
        "agent": agent,
        "role": role,
        "experiment": experiment,
        "since": since,
        "until": until,
    }
    query = RunFilter.of(filters, "--{}")
    async with reading() as workspace:
        made = await list_runs(workspace, query, limit, probes=probes)
        for run in made.runs:
            run.gone = await gone(workspace, run)
    output.show(made, _render)
    _tell_left_out(made)
    if not made.found and not made.probed:
        _explain_absence(made, str(query))


def _tell_left_out(made: Runs) -> None:
    """Print what the filters leave out."""
    if made.probed:
        output.hint(f"{counted(made.probed, 'fork')} of probes left out: --probes shows them")
    if made.undated:
        undated = counted(made.undated, "run")
        output.hint(f"{undated} left out by --since or --until: the source gives no time")
    if made.unread:
        unread = counted(made.unread, "run")
        output.hint(f"{unread} could not be read and may match: 'hansard runs' lists them")


def _at_work(run: Run) -> str:
    return ", ".join(f"{name} (gone)" if name in run.gone else name for name in run.at_work)


def _explain_absence(made: Runs, filters: str) -> None:
    """Print that no run was found, and the filters that no run can meet."""
    matching = f" of {made.all} is: {filters}" if made.all and filters else "s in this workspace"
    output.hint(f"no run{matching}")
    for unknown in made.unknown:
        output.hint(unknown)


def _time(time: Time | None) -> str:
    """Format a time, with its clock if that is not the log's; "not given" if it is unknown."""
    if time is None:
        return ""
    return output.shown_time(time) or "not given"


def _render(made: Runs) -> list[Part]:
    def status(run: Run) -> str:
        return "unreadable" if run.run in made.lost else run.status

    columns = (
        Column("run", whole=True),
        Column("workflow", lambda run: run.workflow + (" (probe)" if run.probe else "")),
        Column("status", status, whole=True, styles=output.STYLES),
        Column("agents"),
        Column("at work", _at_work, short=True),
        Column("steps", lambda run: "?" if run.steps is None else str(run.steps), right=True),
        Column("open", lambda run: str(run.open_steps or ""), right=True),
        Column("in doubt", lambda run: str(run.in_doubt_steps or ""), right=True),
        Column("failed", lambda run: str(run.failed_steps or ""), right=True),
        Column("began", lambda run: _time(run.began), whole=True),
        Column("last", lambda run: _time(run.last), whole=True),
    )
    parts: list[Part] = [output.listing(columns, made.runs)] if made.runs else []
    parts += [
        Hint(f"run {run.run} could not be read whole: {run.problem}")
        for run in made.runs
        if run.problem
    ]
    if any(run.gone for run in made.runs):
        words = "(gone): no process is at work; 'hansard run show RUN' says since when"
        parts.append(Hint(words))
    if len(made.runs) < made.found:
        text = f"{len(made.runs)} of {counted(made.found, 'run')}; --limit 0 shows all"
        parts.append(Hint(text))
    return parts
