"""`hansard runs`: which runs there are."""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents import run_index
from hansard.agents.run_index import RunFilter, RunLife
from hansard.agents.workspace import Workspace
from hansard.bus.log import Stored
from hansard.bus.states import fold_agent
from hansard.commands import _show
from hansard.commands._open import Options, reading
from hansard.domain.agent import AgentState
from hansard.domain.counted import counted
from hansard.domain.errors import HansardError
from hansard.domain.ids import AgentStream

LIMIT = 20
"""Runs shown unless more are asked for."""

COLUMNS = (
    _show.Column("run", whole=True),
    _show.Column("workflow"),
    _show.Column("status", whole=True),
    _show.Column("agents"),
    _show.Column("at work"),
    _show.Column("steps", right=True),
    _show.Column("open", right=True),
    _show.Column("started", whole=True),
    _show.Column("last", whole=True),
)


class Activity(msgspec.Struct):
    """What a run's agents did, from all of its commits."""

    steps: int | None = None
    open: int | None = None
    last: str | None = None
    position: int | None = None
    problem: str | None = None


async def runs(options: Options, wanted: RunFilter, limit: int, *, json: bool) -> int:
    """Print the runs, the newest first; reads the whole of each run it shows."""
    async with reading(options) as workspace:
        lives = await run_index.read(workspace.log)
        found = [life for life in lives if wanted.takes(life)]
        shown = found[:limit] if limit > 0 else found
        lines = [(life, await activity(workspace, life.run)) for life in shown]
    if json:
        for life, activity_ in lines:
            _show.emit(_line(life, activity_))
    elif found:
        _show.write(_show.table(COLUMNS, [_row(*line) for line in lines]))
    if not found:
        asked = f" of {len(lives)} is: {wanted}" if lives and str(wanted) else "s in this workspace"
        _show.hint(f"no run{asked}")
        for unknown in wanted.unknown(lives):
            _show.hint(unknown)
    if json:
        return 0
    for life, activity_ in lines:
        problem = life.problem or activity_.problem
        if problem:
            _show.hint(f"run {life.run} could not be read whole: {problem}")
    if len(shown) < len(found):
        _show.hint(f"{len(shown)} of {counted(len(found), 'run')}; --limit 0 shows all")
    return 0


async def activity(workspace: Workspace, run: str) -> Activity:
    """What a run's agents did."""
    try:
        commits = await workspace.states.history(run)
        states = agents_of(commits)
    except HansardError as error:
        return Activity(problem=str(error))
    steps = [step for state in states.values() for step in state.steps.values()]
    last = commits[-1]
    return Activity(
        len(steps),
        sum(step.is_open for step in steps),
        last.time.isoformat(),
        last.position,
    )


def agents_of(commits: list[Stored]) -> dict[str, AgentState]:
    """The agents' states after a run's commits, by name."""
    by_agent: dict[str, list[Stored]] = {}
    for stored in commits:
        if isinstance(stored.stream, AgentStream):
            by_agent.setdefault(stored.stream.agent, []).append(stored)
    return {agent: fold_agent(mine) for agent, mine in by_agent.items()}


def _line(life: RunLife, activity_: Activity) -> dict[str, Any]:
    state = life.state
    return {
        "run": life.run,
        "workflow": state.workflow,
        "status": state.status.value,
        "agents": state.roster,
        "at_work": state.missing,
        "steps": activity_.steps,
        "open_steps": activity_.open,
        "started": life.started.isoformat() if life.started is not None else None,
        "last": activity_.last,
        "position": activity_.position,
        "program": state.program,
        "conversation": state.conversation_id,
        "forked_from": state.forked.parent if state.forked is not None else None,
        "labels": state.labels,
        "error": state.error,
        "problem": life.problem or activity_.problem,
    }


def _row(life: RunLife, activity_: Activity) -> list[Any]:
    state = life.state
    return [
        life.run,
        state.workflow,
        _show.status_cell("unreadable" if life.problem else state.status.value),
        ", ".join(state.roster),
        _show.cut(", ".join(state.missing)),
        "?" if activity_.steps is None else str(activity_.steps),
        str(activity_.open or ""),
        _show.moment(life.started) if life.started is not None else "",
        (activity_.last or "")[:19].replace("T", " "),
    ]
