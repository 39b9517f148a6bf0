"""`session.view`: what the session's own role may see, as a recorded step.

The step's outcome says how many events were shown, their digest, and which event says that they
were; the events themselves stand in the log once. On replay they are derived again, and a
difference is an error. Costs a read of the run and, live, a commit over two streams.

Written once for both clients as flows (see `hansard.agents.flow`).
"""

from __future__ import annotations

import functools
import inspect
import time
from datetime import datetime
from typing import Any

from hansard.agents import views
from hansard.agents.core import Core
from hansard.agents.effects import ToolSpec
from hansard.agents.errors import ViewDiffers
from hansard.agents.flow import Flow, Io
from hansard.agents.joint import Draft, JointSteps, JointWrite, Outcome, never
from hansard.agents.outcomes import Call
from hansard.agents.scope import Scope
from hansard.agents.views import Derived, OnRecord, View
from hansard.bus.codec import record
from hansard.domain.errors import Corrupt
from hansard.domain.ids import Board
from hansard.domain.steps import Effects
from hansard.domain.view import ViewServed


def _view(at: Any) -> None: ...


SPEC = ToolSpec(
    function=_view,
    name="view",
    effects=Effects.PURE,
    kind="view",
    signature=inspect.signature(_view),
)


class ViewFlows(JointSteps):
    """A session's views."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._stream: Board = views.stream_of(core.stream.run, core.stream.role)
        self._known: dict[str, OnRecord] = {}

    def view(self, at: object, key: bytes | None) -> Flow[View]:
        """What this session's role may see of the run at a point."""
        core = self.core
        point = at.isoformat() if isinstance(at, datetime) else at
        call = core.begin(SPEC, (point,), {})
        call.needs = ()
        made: list[Derived] = []
        told = yield from self.ask(call, functools.partial(self._serve, key=key, made=made))
        if made:
            return made[0].view
        return (yield from self._again(call, told, key))

    def _serve(self, call: Call, key: bytes | None, made: list[Derived]) -> Flow[Any]:
        core = self.core
        began_s = time.perf_counter()
        run, role, at = core.stream.run, core.stream.role, call.arguments["at"]
        derive = functools.partial(views.derive, core.boards.states, role, run, at, key)
        found: Derived = yield Io(derive)
        event = found.event(core.stream.agent)
        core.ledger.shown(found.label)

        def make(_: Scope) -> _Write:
            return _Write(core, call, self._stream, event, began_s)

        result = yield from self._jointly(call, [], make, never)
        made.append(found)
        return result

    def _again(self, call: Call, told: Any, key: bytes | None) -> Flow[View]:
        core = self.core
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


class _Write(JointWrite):
    """The event that says what was served. Whoever loses the race for the stream of views goes
    after the winner: nothing depends on what that says.
    """

    def __init__(
        self, core: Core, call: Call, stream: Board, event: ViewServed, began_s: float
    ) -> None:
        super().__init__(core, call)
        self._began = began_s
        self._stream = stream
        self._event = event
        self._recorded = record(event, self._clock.new_id())

    def _streams(self) -> list[Board]:
        return [self._stream]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        event = self._event
        told = {"events": event.events, "digest": event.digest, "served": self._recorded.id}
        after = await views.next_version(self._boards.states, self._stream) - 1
        return await self._completed(told), [Draft(self._stream, after, [self._recorded])]
