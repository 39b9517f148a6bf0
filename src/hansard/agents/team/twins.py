"""`session.team` of both clients."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from hansard.agents.board import OfAgent
from hansard.agents.errors import NeedsSettling
from hansard.agents.flow import AsyncDrive, Flow, Io, Watch, sync, sync_block
from hansard.agents.policy.permits import reads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.recorder import UNTOUCHED, Call
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import operation
from hansard.agents.team import tasks as follow
from hansard.agents.team.tasks import (
    LEASE_S,
    Mail,
    MailFlows,
    Task,
    TaskEntry,
    TeamFlows,
    TeamStore,
)
from hansard.bus import log as waiting
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit
from hansard.bus.errors import BusError, Closed
from hansard.bus.log import Append, Stored
from hansard.domain.board import key_name
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.events import Actor
from hansard.domain.ids import KeyStream
from hansard.domain.label import Label
from hansard.domain.team import ClaimLost, TaskExtended, TaskStatus, waits
from hansard.state.boards import Boards
from hansard.state.repository import retry

# ------------------------------ a claimed task, kept alive while a block runs

BEATS_A_LEASE = 3
"""Heartbeats per lease, so that one lost and one slow heartbeat do not cost the claim."""


class Heartbeat:
    """Extends one claim until it is stopped, or another agent has the claim. Runs on the bus's
    loop.
    """

    def __init__(
        self, boards: Boards, store: TeamStore, actor: Actor, task: str, number: int, lease_ms: int
    ) -> None:
        self._boards = boards
        self._store = store
        self._actor = actor
        self._clock = Clock()
        self._event = TaskExtended(task=task, number=number, lease_ms=lease_ms)
        self._work: asyncio.Task[None] | None = None
        self.is_over: Callable[[], bool] = lambda: False
        """Return whether the session has ended: then it can no longer end the task."""
        self.label: Callable[[], Label | None] = lambda: None
        """Return the agent's current label."""

    async def start(self, *, at_once: bool) -> None:
        """Begin; `at_once` if the claim was made by an earlier session."""
        self._work = asyncio.get_running_loop().create_task(self._beat(at_once=at_once))

    async def stop(self) -> None:
        """Stop the heartbeat and wait for its end."""
        if self._work is not None:
            self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work

    async def _beat(self, *, at_once: bool) -> None:
        pause_s = self._event.lease_ms / 1_000 / BEATS_A_LEASE
        if not at_once:
            await asyncio.sleep(pause_s)
        while not self.is_over():
            try:
                if not await retry(self._extend):  # other agents write to the tasks, too
                    return
                wait_s = pause_s
            except Closed:
                return
            except BusError:  # retry before the lease expires
                wait_s = pause_s / BEATS_A_LEASE
            except HansardError:
                return  # the record cannot be read: the end of the claim raises the reason
            await asyncio.sleep(wait_s)

    async def _extend(self) -> bool:
        """Extend the claim; return False if it is no longer valid."""
        async with self._boards.turn([self._store.tasks]):
            state = await self._store.team()
            task = state.tasks.get(self._event.task)
            if task is None or task.status is not TaskStatus.CLAIMED:
                return False
            if task.number != self._event.number:
                return False
            version, label = state.version + 1, self.label()
            commit = new_commit(self._clock, version, self._actor, [self._event], label=label)
            await self._store.states.log.append(Append(self._store.tasks, commit))
        return True


INTERRUPTED = "interrupted"


class ClaimBlock:
    """Flows of one `claimed()` block."""

    def __init__(self, flows: TeamFlows) -> None:
        self._flows = flows
        self._task: Task | None = None
        self._beat: Heartbeat | None = None
        self._scope: Scope | None = None

    def begin(self, role: str | None, lease: float, timeout: float | None) -> Flow[Task | None]:
        """Claim a task and start the heartbeat."""
        flows = self._flows
        task, known = yield from flows.claim(role, lease, timeout)
        self._task = task
        self._scope = flows.engine.scope("team.claimed")
        if task is not None and not flows.engine.settings.mode.reads_only:
            lease_ms = round(lease * 1_000)
            self._beat = Heartbeat(
                flows.engine.boards,
                flows.store,
                flows.engine.ledger.actor,
                task.id,
                task.number,
                lease_ms,
            )
            self._beat.is_over = lambda: flows.engine.ledger.ended
            self._beat.label = lambda: flows.engine.ledger.label.stored
            yield Io(functools.partial(self._beat.start, at_once=known))
        return task

    def end(self, error: BaseException | None) -> Flow[Any]:
        """Stop the heartbeat, and record how the task ended, unless that is recorded or left to the
        resumed session.
        """
        if self._beat is not None:
            yield Io(self._beat.stop)
        task = self._task
        if task is None or (task.id, task.number) in self._flows.ended:
            return
        if error is None:
            yield from self._flows.complete(task, task.result)
            return
        if _stops(error) or self._is_in_doubt(task):
            return
        try:
            if isinstance(error, Exception):
                yield from self._flows.fail(task, error)
            else:
                yield from self._flows.release(task, INTERRUPTED)
        except Exception as failed:  # noqa: BLE001 -- the block's own error takes precedence
            error.add_note(f"how task {task.id!r} ended could not be recorded: {failed}")

    def _is_in_doubt(self, task: Task) -> bool:
        """Return whether a call of the block is in doubt: a person must settle its effect on the
        task first.
        """
        since = self._flows.claimed_by.get((task.id, task.number), 0)
        return self._scope is not None and self._flows.engine.ledger.in_doubt(self._scope, since)


def _stops(error: BaseException) -> bool:
    """Return whether an error only stops the run, and does not fail the task."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_stops, error.exceptions))
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, NeedsSettling):
            return True
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return isinstance(error, (*UNTOUCHED, ClaimLost))


# ---------------------------------------------------------------- `session.wait_for`
#
# It follows the log, and is recorded at its end: a resumed session does not wait again.

SPEC = operation("team.wait_for", "key", "task", "position", "timeout", kind="team")


class WaitFlows(TeamFlows):
    """A session's tasks, claims for a block, and waits."""

    def claimed(self) -> ClaimBlock:
        """Return a block that will claim a task."""
        return ClaimBlock(self)

    def wait_for(
        self, key: str | None, task: str | None, position: int | None, timeout: float | None
    ) -> Flow[bool]:
        """Wait; return whether the awaited state was reached."""
        _check(key, task, position)
        timeout_s = follow.seconds("timeout_s", timeout)
        call = self.engine.begin(SPEC, (key, task, position, timeout_s), {})
        call.needs = () if key is None else (reads(key),)
        for name in ("key", "task"):
            if call.plain[name] != call.arguments[name]:
                raise BadValue(name, "it holds a secret", "leave the secret out of it")
        until = None if timeout_s is None else time.monotonic() + timeout_s

        def wait() -> Flow[str]:
            left = None if until is None else max(0.0, until - time.monotonic())
            watch = Condition(self.engine, self.store, key, task, position)
            look = functools.partial(watch.until, left)
            outcome: str = yield Watch(functools.partial(self.engine.ledger.watch, look))
            return outcome

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, wait))

        answer = yield from self.ask(call, run)
        return bool(answer == waiting.READY)


def _check(key: object, task: object, position: object) -> None:
    conditions = [each for each in (key, task, position) if each is not None]
    if len(conditions) != 1:
        fact = f"{len(conditions)} of key, task and position are given"
        raise BadValue("wait_for", fact, "give one of them")
    if key is not None:
        key_name(key)
    if task is not None and type(task) is not str:
        raise BadValue("wait_for(task)", f"{task!r:.80}", "give a task's id")
    if position is not None and (type(position) is not int or position < 0):
        raise BadValue("wait_for(position)", f"{position!r:.80}", "give a position of the log")


class Condition:
    """One awaited condition. Runs on the bus's loop."""

    def __init__(
        self,
        engine: StepEngine,
        store: TeamStore,
        key: str | None,
        task: str | None,
        position: int | None,
    ) -> None:
        self._engine = engine
        self._boards = engine.boards
        self._store = store
        self._key = key
        self._task = task
        self._position = position

    async def until(self, timeout_s: float | None) -> str:
        """Follow the log until the condition holds, or can never hold."""
        log = self._store.states.log
        return await waiting.until(log, self._look, self._concerns, timeout_s, of=self._of())

    def _of(self) -> KeyStream | None:
        if self._position is not None:
            return None
        return self._store.tasks if self._key is None else self._stream(self._key)

    def _concerns(self, stored: Stored) -> bool:
        return self._position is None or stored.position >= self._position

    def _stream(self, key: str) -> KeyStream:
        return KeyStream(self._store.tasks.run, key)

    async def _look(self) -> str | None:
        if self._position is not None:
            head = await self._store.states.log.head()
            return waiting.READY if head >= self._position else None
        if self._key is not None:
            state = await self._boards.state(self._stream(self._key))
            now = await self._store.log_time() if state.expires is not None else 0
            if not await self._may_know(state.label):
                return None
            if state.absent(now):
                return None
            self._engine.ledger.shown(state.label)  # its presence reveals part of it
            return waiting.READY
        return await self._look_at_task(self._task or "")

    async def _look_at_task(self, name: str) -> str | None:
        state = await self._store.team()
        task = state.tasks.get(name)
        sight = await self._store.sight(self._engine)
        if task is None or (sight is not None and not sight.sees(task)):
            return None
        if not await self._may_know(task.label):
            return None
        if not task.is_over and not waits(state)[name].failed:
            return None
        self._engine.ledger.shown(task.label)
        return waiting.READY if task.is_over else waiting.OVER

    async def _may_know(self, label: Label | None) -> bool:
        """Return whether the agent's role is cleared for the awaited content; if not, the wait
        times out.
        """
        return label is None or label.flows_to(await self._engine.clearances.own())


class _Team(OfAgent[WaitFlows]):
    def __init__(self, flows: WaitFlows, mail: MailFlows, drive: AsyncDrive) -> None:
        super().__init__(flows, drive)
        self._mail = mail


class AsyncTeam(_Team):
    """Tasks and messages of the run, for the async client."""

    async def add(
        self,
        title: str,
        *,
        what: Any = None,
        role: str | None = None,
        agent: str | None = None,
        waits_for: Iterable[str] = (),
        waits_for_roles: Iterable[str] = (),
        task: str | None = None,
    ) -> str:
        """Add a task; return its id.

        Args:
            title: Title.
            what: Input for the claimant: `task.what`.
            role: Role that it is for; default: any.
            agent: Agent that it is for; default: any agent of the role.
            waits_for: Ids of tasks that must be done first.
            waits_for_roles: Roles that must have a task, and all of whose tasks must be done first.
            task: Id; default: the next of t1, t2 ...; adding the same task again changes nothing.

        Raises:
            Refused: It would wait for itself; the cycle is named.
            BadName, BadValue: A name is invalid, or `what` cannot be recorded.
        """
        return await self._drive(
            self._flows.add(title, what, role, agent, waits_for, waits_for_roles, task)
        )

    async def claim(
        self, role: str | None = None, *, lease_s: float = LEASE_S, timeout_s: float | None = 0
    ) -> Task | None:
        """Claim the first task for this agent, its role, or any agent; return None if there is
        none.

        Args:
            role: Another role to work for.
            lease_s: Seconds of the log's time after which another agent may claim it. A lease is
                always bounded: neither None nor 0 is allowed.
            timeout_s: Seconds to wait for a task, including one not added yet: 0 checks once; None
                waits as long as a remaining task could become this agent's.
        """
        task, _ = await self._drive(self._flows.claim(role, lease_s, timeout_s))
        return task

    async def extend(self, task: Task, *, lease_s: float = LEASE_S) -> None:
        """Restart a task's lease. Raises ClaimLost if another agent has claimed it since."""
        await self._drive(self._flows.extend(task, lease_s))

    async def complete(self, task: Task, result: Any = None) -> None:
        """Mark a claimed task as done. Raises ClaimLost, and nothing is written."""
        await self._drive(self._flows.complete(task, result))

    async def fail(self, task: Task, error: BaseException | str) -> None:
        """Mark a claimed task as failed: tasks that wait for it are blocked. Raises ClaimLost."""
        await self._drive(self._flows.fail(task, error))

    async def release(self, task: Task, reason: str = "") -> None:
        """Release a task so that another agent can claim it. Raises ClaimLost."""
        await self._drive(self._flows.release(task, reason))

    async def hand_off(
        self,
        task: Task,
        *,
        role: str | None = None,
        agent: str | None = None,
        with_: Any = None,
        reason: str = "",
    ) -> None:
        """Hand a task over to a role or an agent; `with_` is input for the next claimant:
        `task.given`. Raises ClaimLost, Refused (it would wait for itself), BadValue.
        """
        await self._drive(self._flows.hand_off(task, role, agent, with_, reason))

    async def reopen(self, task: str, reason: str = "") -> bool:
        """Reopen a failed task, named by its id; return False if it has not ended. Another agent
        may then claim it, and tasks that wait for it are no longer blocked. Raises Refused.
        """
        return await self._drive(self._flows.reopen(task, reason))

    async def tasks(self) -> list[TaskEntry]:
        """Return all tasks of the run, in the order they were added."""
        return await self._drive(self._flows.tasks())

    @contextlib.asynccontextmanager
    async def claimed(
        self, role: str | None = None, *, lease_s: float = LEASE_S, timeout_s: float | None = 0
    ) -> AsyncGenerator[Task | None, None]:
        """Claim a task for a block of code, as `claim`; the claim is extended while the block runs.

        At its end the task is completed with `task.result`, failed with the error that the block
        raised, or released if the block was interrupted. If the block ended the task itself, that
        is kept. An error that stops the run rather than the task leaves the claim to the resumed
        session, as does any error while a call of the block is in doubt.
        """
        claimed = self._flows.claimed()
        task = await self._drive(claimed.begin(role, lease_s, timeout_s))
        try:
            yield task
        except BaseException as error:
            await self._drive(claimed.end(error))
            raise
        else:
            await self._drive(claimed.end(None))

    async def wait_for(
        self,
        *,
        key: str | None = None,
        task: str | None = None,
        position: int | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Wait for one condition; return False if the timeout expires, or the task is blocked.

        Args:
            key: Key of the board, until it is present.
            task: Id of a task, until it is done or failed.
            position: Position of the log, until it is reached.
            timeout_s: Seconds: 0 checks once, None for no limit.
        """
        return await self._drive(self._flows.wait_for(key, task, position, timeout_s))

    async def send(self, content: Any, *, role: str | None = None, agent: str | None = None) -> int:
        """Send a message to an agent, or to all agents of a role; return its number in the run."""
        return await self._drive(self._mail.send(content, role, agent))

    async def inbox(self) -> list[Mail]:
        """Return the messages for this agent that it has not received yet, oldest first."""
        return await self._drive(self._mail.inbox())


class Team(_Team):
    """Tasks and messages of the run, for the sync client: the methods of `AsyncTeam`."""

    add = sync(AsyncTeam.add)
    claim = sync(AsyncTeam.claim)
    extend = sync(AsyncTeam.extend)
    complete = sync(AsyncTeam.complete)
    fail = sync(AsyncTeam.fail)
    release = sync(AsyncTeam.release)
    hand_off = sync(AsyncTeam.hand_off)
    reopen = sync(AsyncTeam.reopen)
    tasks = sync(AsyncTeam.tasks)
    claimed = sync_block(AsyncTeam.claimed)
    wait_for = sync(AsyncTeam.wait_for)
    send = sync(AsyncTeam.send)
    inbox = sync(AsyncTeam.inbox)
