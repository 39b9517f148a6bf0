"""`session.wait_for`: until a key is there, a task is over, or the log has come to a position.

The log is followed while this waits; it is put on record when it is over, so that a resumed session
does not wait again for what has happened.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from hansard.agents.flow import Flow, Watch
from hansard.agents.policy.permits import reads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.tools import operation
from hansard.agents.team import store as follow
from hansard.agents.team.claimed import Claimed
from hansard.agents.team.store import TeamStore
from hansard.agents.team.tasks import TeamFlows
from hansard.bus import waiting
from hansard.bus.log import Stored
from hansard.domain.board import key_name
from hansard.domain.errors import BadValue
from hansard.domain.ids import KeyStream
from hansard.domain.label import Label
from hansard.domain.team.task_rules import waits

SPEC = operation("team.wait_for", "key", "task", "position", "timeout", kind="team")


class WaitFlows(TeamFlows):
    """A session's tasks, those that it claims for a block, and what it waits for."""

    def claimed(self) -> Claimed:
        """A block that is to claim a task."""
        return Claimed(self)

    def wait_for(
        self, key: str | None, task: str | None, position: int | None, timeout: float | None
    ) -> Flow[bool]:
        """Wait; whether it came."""
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
            watch = Watched(self.engine, self.store, key, task, position)
            look = functools.partial(watch.until, left)
            found: str = yield Watch(functools.partial(self.engine.ledger.watch, look))
            return found

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, wait))

        said = yield from self.ask(call, run)
        return bool(said == waiting.READY)


def _check(key: object, task: object, position: object) -> None:
    given = [each for each in (key, task, position) if each is not None]
    if len(given) != 1:
        fact = f"{len(given)} of key, task and position are given"
        raise BadValue("wait_for", fact, "give one of them")
    if key is not None:
        key_name(key)
    if task is not None and type(task) is not str:
        raise BadValue("wait_for(task)", f"{task!r:.80}", "give a task's id")
    if position is not None and (type(position) is not int or position < 0):
        raise BadValue("wait_for(position)", f"{position!r:.80}", "give a position of the log")


class Watched:
    """One thing that is waited for. On the bus's loop."""

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
        """Follow the log until it is so, or can never be so."""
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
            self._engine.ledger.shown(state.label)  # that it is there is news of it
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
        """Whether the agent's role is cleared for what is waited for: else it never comes."""
        return label is None or label.flows_to(await self._engine.clearances.mine())
