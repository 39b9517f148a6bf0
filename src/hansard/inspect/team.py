"""Boards and teams of runs at a point."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from hansard.agents.team.tasks import task_records
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive, until
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.domain.agent import AgentState
from hansard.domain.board import (
    RESERVED,
    AmountAdded,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyChecked,
    KeyRemoved,
    ValueMerged,
    ValuePut,
)
from hansard.domain.events import Event
from hansard.domain.ids import KeyStream, run_of
from hansard.domain.payload import references
from hansard.domain.run import RunStatus
from hansard.domain.steps import Step
from hansard.domain.team.task import TaskStatus
from hansard.domain.team.task_rules import waits
from hansard.inspect import state
from hansard.inspect.answer import Answer
from hansard.inspect.payloads import Payloads
from hansard.state.replay import RunView


class Member(msgspec.Struct, tag_field="kind", tag="agent", kw_only=True):
    """Agent of a run: `tasks` it holds, its `last` action, and the action's `position`."""

    agent: str
    role: str
    status: str
    tasks: list[str]
    last: str
    position: int | None
    as_of: int


class Task(msgspec.Struct, tag_field="kind", tag="task", kw_only=True):
    """Task of a run: its holder, its claim, and what it waits for."""

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
    """Agents and tasks of a run at a position; `is_over` if nothing can change any more."""

    run: str
    position: int
    members: dict[str, Member]
    tasks: dict[str, Task]
    is_over: bool

    def lines(self) -> Iterable[Member | Task]:
        """Yield each agent, then each task."""
        return (*self.members.values(), *self.tasks.values())


class Change(Answer):
    """Change of a team by a commit, and its time."""

    time: datetime
    position: int
    changed: list[Member | Task]

    def lines(self) -> Iterable[Member | Task]:
        """Yield each new or changed agent and task."""
        return self.changed


async def team(workspace: Workspace, run: str, up_to: UpTo) -> Team:
    """Return a run's team at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view = await workspace.states.run(run, up_to)
    now = up_to.stamp if isinstance(up_to, AtTime) else 0
    if not now and view.position:
        now = (await workspace.log.at(view.position)).stamp
    tasks = {}
    for item in task_records(view.team, now):
        kept = {name: item[name] for name in item if name not in ("what", "given", "result")}
        tasks[item["id"]] = Task(**kept, as_of=view.position)
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
    """Return an agent's last action other than one on tasks and mail."""
    steps = [step for step in state.steps.values() if step.kind != "team"]
    last: Step | None = max(steps, key=lambda it: it.outcome_version or it.version, default=None)
    return f"{last.tool} {last.status.value}" if last is not None else ""


async def follow_team(workspace: Workspace, shown: Team) -> AsyncGenerator[Change]:
    """Yield each change after the given state, at the commit that made it.

    Ends when the run has ended and each task is over or blocked: a run may be ended with open
    tasks. Commits of other runs are read as well: a lease runs out by the log's time, which they
    advance.
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
    """Return the fields whose change is news: not the position alone, nor the remaining lease."""
    if isinstance(row, Member):
        return msgspec.structs.replace(row, position=None, as_of=0)
    return row and msgspec.structs.replace(row, lease_left_s=None, as_of=0)


class Key(msgspec.Struct, kw_only=True):
    """Key with its value: as recorded, and in full if one key is requested."""

    run: str
    key: str
    kind: str | None
    version: int
    author: str
    role: str
    labels: dict[str, str]
    expires: str | None
    event: str
    value: Any
    position: int


class NoKey(msgspec.Struct, kw_only=True):
    """Key without a value: removed or expired."""

    run: str
    key: str
    kind: None = None
    version: int = 0
    value: None = None
    position: int


class Write(msgspec.Struct, kw_only=True):
    """Write to a key: its operation and operand.

    `value` is as recorded, `expected` the version that it required.
    """

    run: str
    key: str
    version: int
    operation: str
    value: Any = UNSET
    expected: int | UnsetType | None = UNSET
    author: str
    role: str
    event: str
    position: int
    time: str


class Keys(Answer, kw_only=True):
    """Keys of a run that exist at a position."""

    run: str
    position: int
    keys: list[Key]

    def lines(self) -> Iterable[Key]:
        """Yield each key."""
        return self.keys


class KeyHistory(Answer, kw_only=True):
    """Value of a key, and all of its writes, oldest first."""

    now: Key | NoKey
    writes: list[Write]

    def lines(self) -> Iterable[Key | NoKey | Write]:
        """Yield the key, then each write."""
        return (self.now, *self.writes)


async def keys(workspace: Workspace, run: str, up_to: UpTo) -> Keys:
    """Return the keys that exist at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view = await workspace.states.run(run, up_to)
    found = [
        Key(run=run, key=name, **state.key(each), position=view.position)
        for name, each in sorted(view.boards.items())
    ]
    return Keys(run=run, position=view.position, keys=found)


async def key_history(
    workspace: Workspace, run: str, key: str, up_to: UpTo, fetch: Payloads
) -> KeyHistory:
    """Return a key at a point with its writes.

    Raises NotFound (it was never written up to that point), UnknownEvent, Corrupt.
    """
    view = await workspace.states.run(run, up_to)
    writes = await _writes(workspace, KeyStream(run, key), view.position)
    if not writes:
        where = f"key {key!r} of run {run} at position {view.position}"
        raise NotFound(where, f"see 'hansard board {run}'")
    found = view.boards.get(key)
    now: Key | NoKey = NoKey(run=run, key=key, position=view.position)
    if found is not None:
        now = Key(run=run, key=key, **state.key(found), position=view.position)
        raw = msgspec.Raw(msgspec.json.encode(found.plain))
        now.value = await fetch.get(references.resolve(found.plain), raw)
    return KeyHistory(now=now, writes=writes)


async def _writes(workspace: Workspace, stream: KeyStream, position: int) -> list[Write]:
    """Return the writes to a key up to a position, oldest first; none for a budget."""
    if stream.key.startswith(RESERVED):
        return []
    commits = await workspace.states.commits(stream, up_to=AtPosition(position))
    found: list[Write] = []
    for stored in until(commits, position):
        for index, recorded in enumerate(stored.commit.events):
            event = revive(recorded)
            made = Write(
                run=stream.run,
                key=stream.key,
                version=stored.commit.version + index,
                **_operation(event),
                author=stored.commit.actor.agent,
                role=getattr(event, "role", ""),
                event=recorded.id,
                position=stored.position,
                time=stored.time.isoformat(),
            )
            found.append(made)
    return found


def _operation(event: Event) -> dict[str, Any]:
    """Return the operation of a write, and its operand as recorded."""
    match event:
        case ValuePut():
            return {"operation": "put", "value": event.value, "expected": event.expected}
        case ItemAppended():
            return {"operation": "append", "value": event.item}
        case AmountAdded():
            return {"operation": "add", "value": event.amount}
        case ItemIncluded():
            return {"operation": "include", "value": event.item}
        case ItemDiscarded():
            return {"operation": "discard", "value": event.item}
        case ValueMerged():
            return {"operation": event.merge, "value": event.value}
        case KeyRemoved():
            return {"operation": "remove", "expected": event.expected}
        case KeyChecked():
            return {"operation": "check", "expected": event.expected}
        case _:
            return {"operation": event.tag}
