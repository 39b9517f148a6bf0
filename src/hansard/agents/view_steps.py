"""`session.view`: what the session's own role may see, as a recorded step.

The step's outcome says how many events were shown, their digest, and which event says that they
were; the events themselves stand in the log once. On replay they are derived again, and a
difference is an error. Costs a read of the run and, live, a commit over two streams.

Written once for both clients as flows (see `hansard.agents.flow`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import time
from datetime import datetime
from typing import Any

from hansard.agents import payloads, views
from hansard.agents.core import Core
from hansard.agents.effects import ToolSpec
from hansard.agents.errors import ViewDiffers
from hansard.agents.failures import failure, failure_digest
from hansard.agents.flow import Flow, Io, Wait
from hansard.agents.ledger import Joined
from hansard.agents.outcomes import Call
from hansard.agents.views import Derived, OnRecord, View
from hansard.agents.workspace import RACES_MAX
from hansard.bus.clock import Clock
from hansard.bus.codec import record
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, Stored
from hansard.bus.writer import Send
from hansard.domain import values
from hansard.domain.errors import Corrupt
from hansard.domain.events import Commit
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import Board
from hansard.domain.steps import Effects, Status, Step, StepCompleted, StepFailed

BACKOFF_S_MAX = 0.05
"""Longest wait after a lost race: a few atomic batches of the others."""


def _view(at: Any) -> None: ...


SPEC = ToolSpec(
    function=_view,
    name="view",
    effects=Effects.PURE,
    kind="view",
    signature=inspect.signature(_view),
)


class ViewFlows:
    """A session's views."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._stream: Board = views.stream_of(core.stream.run, core.stream.role)
        self._known: dict[str, OnRecord] = {}

    def view(self, at: object, key: bytes | None) -> Flow[View]:
        """What this session's role may see of the run at a point."""
        core = self._core
        point = at.isoformat() if isinstance(at, datetime) else at
        call = core.begin(SPEC, (point,), {})
        answered, told = core.answer(call)
        made: list[Derived] = []
        if not answered:
            serve = functools.partial(self._serve, key=key, made=made)
            told = yield from core.execute(call, self._plan, serve)
        if made:
            return made[0].view
        return (yield from self._again(call, told, key))

    def _plan(self, call: Call) -> Flow[Step | None]:
        """What is to be done about a call. An intent without an outcome served nothing."""
        core, step = self._core, call.step
        if step is None:
            core.demand_writes(call)
            return None
        stands = step.status is Status.COMPLETED or core.raises_again(step)
        if stands or core.settings.mode.reads_only:
            return (yield from core.plan(call))
        call.take_up(step)
        return None

    def _serve(self, call: Call, key: bytes | None, made: list[Derived]) -> Flow[Any]:
        core = self._core
        held = yield from core.gate(call)
        scope = core.body_scope(call)
        name = core.budget_call(call)
        try:
            began = time.perf_counter()
            if call.told:
                yield from core.outcomes.again(call)
            run, role, at = core.stream.run, core.stream.role, call.arguments["at"]
            derive = functools.partial(views.derive, core.boards.states, role, run, at, key)
            found: Derived = yield Io(derive)
            work = _Write(core, self._stream, found, call, began)
            commands: list[Any] = []
            if not call.told:
                blobs, commands = yield from core.outcomes.opening(call)
                yield from core.outcomes.put(blobs)
                call.told = True
            done = core.ledger.tell_jointly(commands, call.number, work)
            core.outcomes.learn(call)
            yield Wait(done)
        finally:
            yield from core.spend(held, name, scope)
        if work.error is not None:
            raise work.error
        made.append(found)
        return work.result

    def _again(self, call: Call, told: Any, key: bytes | None) -> Flow[View]:
        core = self._core
        one = self._known.get(told["served"])
        if one is None:
            run, role = core.stream.run, core.stream.role
            on_record = functools.partial(views.on_record, core.boards.states, run, role)
            self._known = {each.id: each for each in (yield Io(on_record))}
            one = self._known.get(told["served"])
        if one is None:
            raise Corrupt(f"stream {self._stream}", f"it has no event {told['served']}")
        made: Derived = yield Io(functools.partial(views.again, core.boards.states, one, key))
        now = (len(made.view.events), made.view.digest)
        recorded = (told["events"], told["digest"])
        if now != recorded:
            step = call.step.number if call.step is not None else call.number
            raise ViewDiffers(step, recorded, now)
        return made.view


class _Write:
    """The step's outcome and the event that says what was served, in one commit of both."""

    def __init__(
        self, core: Core, stream: Board, made: Derived, call: Call, began_s: float
    ) -> None:
        self.error: Exception | None = None
        self._states = core.boards.states
        self._stream = stream
        self._scrub = core.settings.scrub
        self._call = call
        self._began_s = began_s
        clock = Clock()
        self._recorded = record(made.event(core.stream.agent), clock.new_id())
        self._clock = clock
        self.result: dict[str, Any] = {
            "events": len(made.view.events),
            "digest": made.view.digest,
            "served": self._recorded.id,
        }

    async def __call__(self, joined: Joined, send: Send) -> Stored:
        """The joint decision; see `Ledger.tell_jointly`. Whoever loses the race for the stream of
        views goes after the winner: nothing depends on what that says.
        """
        outcome = self._completed()
        lost: Exception = TimeoutError()
        for race in range(RACES_MAX):
            commit = await self._commit(joined)
            try:
                stored = await send(joined.events(outcome), [Append(self._stream, commit)])
            except Conflict as conflict:
                if conflict.stream != self._stream:
                    raise
                lost = conflict
            else:
                joined.outcome(outcome)
                return stored[0]
            wait_s = min(BACKOFF_S_MAX, 0.002 * 2 ** min(race, 5))
            await asyncio.sleep(random.uniform(0, wait_s))  # noqa: S311 -- not a secret
        self.error = lost
        told = failure(lost, self._scrub)
        failed = StepFailed(
            step=self._call.number, error=told, digest=failure_digest(told), safe=True
        )
        [alone] = await send(joined.events(failed))
        joined.outcome(failed)
        return alone

    def _completed(self) -> StepCompleted:
        plain = values.plain(self.result, "result")
        return StepCompleted(
            step=self._call.number,
            result=payloads.pack(plain, "result").raw,
            digest=digest(canonical(plain)),
            duration_ms=round((time.perf_counter() - self._began_s) * 1_000, 3),
        )

    async def _commit(self, joined: Joined) -> Commit:
        identity = joined.identity
        return Commit(
            id=self._clock.new_id(),
            version=await views.next_version(self._states, self._stream),
            at=self._clock.now(),
            actor=identity.actor,
            correlation=identity.correlation,
            traceparent=identity.traceparent,
            events=(self._recorded,),
        )
