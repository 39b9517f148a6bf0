"""The agents of a run and what they are to do, at a point or as it changes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from datetime import datetime

import msgspec

from hansard.agents.team.tasks import told_tasks
from hansard.agents.workspace import Workspace
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.domain.agent import AgentState
from hansard.domain.ids import run_of
from hansard.domain.run import RunStatus
from hansard.domain.steps import Step
from hansard.domain.team.task import TaskStatus
from hansard.domain.team.task_rules import waits
from hansard.inspect.answer import Answer
from hansard.state.replay import RunView


class Member(msgspec.Struct, tag_field="kind", tag="agent", kw_only=True):
    """An agent of a run: `tasks` are those it holds, `last` what it did last, `position` where."""

    agent: str
    role: str
    status: str
    tasks: list[str]
    last: str
    position: int | None
    as_of: int


class Task(msgspec.Struct, tag_field="kind", tag="task", kw_only=True):
    """A task of a run: who has it in which claim, and what it waits for."""

    id: str
    title: str
    status: str
    role: str
    agent: str
    holder: str
    number: int
    by: str
    waits_for: list[str]
    blocked_by: list[str]
    lease_left_s: float | None
    because: str
    error: str
    as_of: int


class Team(Answer):
    """A run's agents and tasks at a position; `is_over` where none of it can change any more."""

    run: str
    position: int
    members: dict[str, Member]
    tasks: dict[str, Task]
    is_over: bool

    def lines(self) -> Iterable[Member | Task]:
        """Each agent, then each task."""
        return (*self.members.values(), *self.tasks.values())


class Change(Answer):
    """What a commit changed of a team, and when."""

    time: datetime
    position: int
    changed: list[Member | Task]

    def lines(self) -> Iterable[Member | Task]:
        """Each agent and task that is new, or another than before."""
        return self.changed


async def team(workspace: Workspace, run: str, up_to: UpTo) -> Team:
    """A run's team at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view = await workspace.states.run(run, up_to)
    now = up_to.stamp if isinstance(up_to, AtTime) else 0
    if not now and view.position:
        now = (await workspace.log.at(view.position)).stamp
    tasks = {}
    for told in told_tasks(view.team, now):
        kept = {name: told[name] for name in told if name not in ("what", "given", "result")}
        tasks[told["id"]] = Task(**kept, as_of=view.position)
    unmet = waits(view.team).values()
    return Team(
        run=run,
        position=view.position,
        members={agent: await _member(workspace, view, agent) for agent in view.life.roster},
        tasks=tasks,
        is_over=view.life.status is not RunStatus.OPEN and all(each.failed for each in unmet),
    )


async def _member(workspace: Workspace, view: RunView, agent: str) -> Member:
    state = view.agents.get(agent)
    tasks = view.team.tasks.values()
    made = Member(
        agent=agent,
        role=view.life.roster[agent],
        status="joined",
        tasks=[t.id for t in tasks if t.status is TaskStatus.CLAIMED and t.holder == agent],
        last="",
        position=None,
        as_of=view.position,
    )
    if state is not None:
        made.position = await workspace.states.position_of(view.stream_of(agent), state.version)
        made.status, made.last = state.left or "open", _last(state)
    return made


def _last(state: AgentState) -> str:
    """What an agent did last, besides what it did about tasks and mail."""
    steps = [step for step in state.steps.values() if step.kind != "team"]
    last: Step | None = max(steps, key=lambda it: it.outcome_version or it.version, default=None)
    return f"{last.tool} {last.status.value}" if last is not None else ""


async def follow_team(workspace: Workspace, shown: Team) -> AsyncGenerator[Change]:
    """Each change after what was shown, at the commit that made it, until the run has ended and
    each task is over or blocked: somebody may have ended it with work to do.

    Commits of other runs are looked at, too: a lease runs out by the log's time, which is theirs.
    """
    if shown.is_over:
        return
    async with contextlib.aclosing(workspace.log.follow(shown.position)) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
        async for stored in commits:
            if not _concerns(stored, shown):
                continue
            before, shown = shown, await team(workspace, shown.run, AtPosition(stored.position))
            changed: list[Member | Task] = [
                *(m for n, m in shown.members.items() if _news(m) != _news(before.members.get(n))),
                *(t for n, t in shown.tasks.items() if _news(t) != _news(before.tasks.get(n))),
            ]
            yield Change(time=stored.time, position=shown.position, changed=changed)
            if shown.is_over:
                return


def _concerns(stored: Stored, shown: Team) -> bool:
    leased = any(task.lease_left_s for task in shown.tasks.values())
    return run_of(stored.stream) == shown.run or leased


def _news(row: Member | Task | None) -> Member | Task | None:
    """What is news where it changes: not the position alone, nor how much of a lease is left."""
    if isinstance(row, Member):
        return msgspec.structs.replace(row, position=None, as_of=0)
    return row and msgspec.structs.replace(row, lease_left_s=None, as_of=0)
