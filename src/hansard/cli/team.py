"""`hansard team`: the agents of a run and what they are to do, at a point or as it changes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from datetime import UTC
from typing import Annotated

import typer

from hansard.agents.workspace import Workspace
from hansard.cli import output
from hansard.cli.common import At, Json, Run, noun, work
from hansard.cli.opening import reading_run
from hansard.cli.output import Column, Hint, Part
from hansard.cli.processes import until, until_told
from hansard.domain.choices import counted
from hansard.inspect import team as reads
from hansard.inspect.answer import plain_text
from hansard.inspect.team import Change, Member, Task, Team, follow_team

app = noun()

_STYLES = {
    "done": "green",
    "failed": "red",
    "blocked": "red",
    "expired": "bold yellow",
    "claimed": "yellow",
}

AGENTS = (
    Column("agent", whole=True),
    Column("role"),
    Column("status", whole=True, styles=output.STYLES),
    Column("task", lambda agent: agent.tasks),
    Column("last action", lambda agent: agent.last, short=True),
    Column("position", right=True),
)


def _left(task: Task) -> str:
    return f"{task.lease_left_s:,.0f} s" if task.lease_left_s is not None else ""


def _whose(task: Task) -> str:
    return task.agent or (f"role {task.role}" if task.role else "")


def _waits(task: Task) -> str:
    failed = [f"{name} (never)" for name in task.blocked_by]
    rest = [name for name in task.waits_for if name not in task.blocked_by]
    return ", ".join([*failed, *rest])


TASKS = (
    Column("task", lambda task: task.id, whole=True),
    Column("title", short=True),
    Column("status", whole=True, styles=_STYLES),
    Column("for", _whose),
    Column("who", lambda task: task.holder),
    Column("claim", lambda task: str(task.number or ""), right=True),
    Column("lease left", _left, right=True),
    Column("waits for", _waits),
)


@app.command()
@work
async def team(
    which: Run,
    at: At = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then show each change, until all is done.")
    ] = False,
    json: Json = False,
) -> None:
    """Show a run's agents and tasks.

    Who does what, which tasks wait, and whose lease runs out.
    """
    async with reading_run(which) as (workspace, run):
        found = await reads.team(workspace, run, await workspace.points.up_to(run, at))
        output.show(found, _people, json=json)
        sys.stdout.flush()
        if follow:
            with until_told() as stop:
                await until(stop, _follow(workspace, found, json=json))


async def _follow(workspace: Workspace, found: Team, *, json: bool) -> None:
    async with contextlib.aclosing(follow_team(workspace, found)) as changes:
        async for change in changes:
            output.show(change, _changed, json=json)
            sys.stdout.flush()


def _people(found: Team) -> Iterator[Part]:
    yield output.listing(AGENTS, found.members.values())
    if found.tasks:
        yield ""
        yield output.listing(TASKS, found.tasks.values())
    sys.stdout.flush()
    counts = f"{counted(len(found.members), 'agent')} and {counted(len(found.tasks), 'task')}"
    yield Hint(f"{counts} of run {found.run} as of position {found.position}")


def _changed(change: Change) -> Iterator[Part]:
    for row in change.changed:
        at = f"{change.time.astimezone(UTC):%H:%M:%S}  {change.position:>8}"
        yield f"{at}  {_sentence(row)}"


def _sentence(row: Member | Task) -> str:
    if isinstance(row, Member):
        parts = [f"agent {row.agent} ({row.role}) {row.status}"]
        parts += [f"at {', '.join(row.tasks)}"] if row.tasks else []
        parts += [f"last: {row.last}"] if row.last else []
    else:
        parts = [f"task {row.id} {row.status}", output.cut(row.title)]
        parts += [f"by {row.holder} (claim {row.number})"] if row.holder else []
        parts += [f"for {_whose(row)}"] if _whose(row) else []
        parts += [f"waits for {_waits(row)}"] if _waits(row) else []
        parts += [output.cut(row.error)] if row.error else []
    return "  ".join(plain_text(part) for part in parts)
