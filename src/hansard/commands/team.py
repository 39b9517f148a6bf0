"""`hansard team`: the agents of a run and what they are to do, at a point or as it changes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime
from typing import Any

from hansard.agents.team import told_tasks
from hansard.agents.workspace import Workspace
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.bus.states import RunView
from hansard.commands import _show
from hansard.commands._open import Options, find_run, reading
from hansard.commands._until import until, until_told
from hansard.domain.agent import AgentState
from hansard.domain.counted import counted
from hansard.domain.ids import run_of
from hansard.domain.run import RunStatus
from hansard.domain.steps import Step
from hansard.domain.task import TaskStatus
from hansard.domain.task_waits import waits

Row = dict[str, Any]

MOVING = ("lease_left_s",)
"""What of a row changes with the time alone: no news of its own."""

AGENTS = (
    _show.Column("agent", whole=True),
    _show.Column("role"),
    _show.Column("status", whole=True),
    _show.Column("task"),
    _show.Column("last action"),
    _show.Column("position", right=True),
)
TASKS = (
    _show.Column("task", whole=True),
    _show.Column("title"),
    _show.Column("status", whole=True),
    _show.Column("for"),
    _show.Column("who"),
    _show.Column("claim", right=True),
    _show.Column("lease left", right=True),
    _show.Column("waits for"),
)

_STYLES = {
    "done": "green",
    "failed": "red",
    "blocked": "red",
    "expired": "bold yellow",
    "claimed": "yellow",
}


async def team(options: Options, run: str, at: str | None, *, follow: bool, json: bool) -> int:
    """Print a run's agents and tasks; with `follow` then each change, until the run has ended with
    all its tasks over, or a SIGINT or SIGTERM comes.

    Raises NotFound, Ambiguous, UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        up_to = await workspace.points.up_to(run, at)
        view = await workspace.states.run(run, up_to)
        rows = await _rows(workspace, view, up_to)
        _print(run, rows, view.position, json=json)
        if follow:
            with until_told() as stop:
                await _follow(workspace, view, rows, stop, json=json)
    return 0


# ------------------------------------------------------------ reading


async def _rows(workspace: Workspace, view: RunView, up_to: UpTo) -> dict[str, Row]:
    """A row an agent and a row a task, by what they are known by."""
    now = up_to.stamp if isinstance(up_to, AtTime) else 0
    if not now and view.position:
        now = (await workspace.log.at(view.position)).stamp
    rows: dict[str, Row] = {}
    for agent, role in view.life.roster.items():
        state = view.agents.get(agent)
        position: int | None = None
        if state is not None:
            stream = view.stream_of(agent)
            position = await workspace.states.position_of(stream, state.version)
        held = [
            task.id
            for task in view.team.tasks.values()
            if task.status is TaskStatus.CLAIMED and task.holder == agent
        ]
        rows[f"agent {agent}"] = _agent(agent, role, state, held, position)
    for told in told_tasks(view.team, now):
        kept = {name: told[name] for name in told if name not in ("what", "given", "result")}
        rows[f"task {told['id']}"] = {"kind": "task", **kept}
    return rows


def _agent(
    agent: str, role: str, state: AgentState | None, held: list[str], position: int | None
) -> Row:
    status, last = "joined", ""
    if state is not None:
        status = state.left or "open"
        steps = [step for step in state.steps.values() if step.kind != "team"]
        last = _action(max(steps, key=_newest)) if steps else ""
    return {
        "kind": "agent",
        "agent": agent,
        "role": role,
        "status": status,
        "tasks": held,
        "last": last,
        "position": position,
    }


def _newest(step: Step) -> int:
    return step.outcome_version or step.version


def _action(step: Step) -> str:
    return f"{step.tool} {step.status.value}"


# ------------------------------------------------------------ following


async def _follow(
    workspace: Workspace, view: RunView, rows: dict[str, Row], stop: asyncio.Event, *, json: bool
) -> None:
    """Print each row that is new or another than before, until told to stop or it is over."""
    await until(stop, _changes(workspace, view, rows, json=json))


async def _changes(
    workspace: Workspace, view: RunView, rows: dict[str, Row], *, json: bool
) -> None:
    """Each change, at the commit that made it. Commits of other runs are looked at, too: a lease
    runs out by the log's time, which is theirs.
    """
    if _is_over(view):
        return
    async with contextlib.aclosing(workspace.log.follow(view.position)) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
        async for stored in commits:
            if not _concerns(stored, view.run, rows):
                continue
            view = await workspace.states.run(view.run, AtPosition(stored.position))
            found = await _rows(workspace, view, None)
            _tell(stored.time, rows, found, view.position, json=json)
            rows = found
            if _is_over(view):
                return


def _is_over(view: RunView) -> bool:
    """Whether the run has ended, and each task is over or blocked: somebody may have ended it with
    work to do.
    """
    unmet = waits(view.team).values()
    return view.life.status is not RunStatus.OPEN and all(each.failed for each in unmet)


def _concerns(stored: Stored, run: str, rows: dict[str, Row]) -> bool:
    return run_of(stored.stream) == run or any(row.get("lease_left_s") for row in rows.values())


def _tell(
    time: datetime, before: dict[str, Row], rows: dict[str, Row], position: int, *, json: bool
) -> None:
    """Print what is news."""
    for name, row in rows.items():
        if name in before and _lasting(before[name]) == _lasting(row):
            continue
        if json:
            _show.emit({**row, "as_of": position})
        else:
            _show.write(f"{time.astimezone(UTC):%H:%M:%S}  {position:>8}  {_sentence(row)}")
    sys.stdout.flush()


def _lasting(row: Row) -> Row:
    """What of a row is news where it changes; an agent's position alone is none."""
    dropped = (*MOVING, *(("position",) if row["kind"] == "agent" else ()))
    return {name: value for name, value in row.items() if name not in dropped}


def _sentence(row: Row) -> str:
    if row["kind"] == "agent":
        parts = [f"agent {row['agent']} ({row['role']}) {row['status']}"]
        parts += [f"at {', '.join(row['tasks'])}"] if row["tasks"] else []
        parts += [f"last: {row['last']}"] if row["last"] else []
    else:
        parts = [f"task {row['id']} {row['status']}", _show.cut(row["title"])]
        parts += [f"by {row['holder']} (claim {row['number']})"] if row["holder"] else []
        parts += [f"for {_whose(row)}"] if _whose(row) else []
        parts += [f"waits for {_waits(row)}"] if _waits(row) else []
        parts += [_show.cut(row["error"])] if row["error"] else []
    return "  ".join(_show.plain_text(part) for part in parts)


# ------------------------------------------------------------ printing


def _print(run: str, rows: dict[str, Row], position: int, *, json: bool) -> None:
    if json:
        for row in rows.values():
            _show.emit({**row, "as_of": position})
        sys.stdout.flush()
        return
    agents = [_agent_row(row) for row in rows.values() if row["kind"] == "agent"]
    tasks = [_task_row(row) for row in rows.values() if row["kind"] == "task"]
    _show.write(_show.table(AGENTS, agents))
    if tasks:
        _show.write("", _show.table(TASKS, tasks))
    sys.stdout.flush()
    counts = f"{counted(len(agents), 'agent')} and {counted(len(tasks), 'task')}"
    _show.hint(f"{counts} of run {run} as of position {position}")


def _agent_row(row: Row) -> list[Any]:
    position = row["position"]
    return [
        row["agent"],
        row["role"],
        _show.status_cell(row["status"]),
        ", ".join(row["tasks"]),
        _show.cut(row["last"]),
        f"{position:,}" if position is not None else "",
    ]


def _task_row(row: Row) -> list[Any]:
    left = row["lease_left_s"]
    return [
        row["id"],
        _show.cut(row["title"]),
        _show.cell(row["status"], _STYLES.get(row["status"], "")),
        _whose(row),
        row["holder"],
        str(row["number"] or ""),
        f"{left:,.0f} s" if left is not None else "",
        _waits(row),
    ]


def _whose(row: Row) -> str:
    return str(row["agent"]) or (f"role {row['role']}" if row["role"] else "")


def _waits(row: Row) -> str:
    failed = [f"{name} (never)" for name in row["blocked_by"]]
    rest = [name for name in row["waits_for"] if name not in row["blocked_by"]]
    return ", ".join([*failed, *rest])
