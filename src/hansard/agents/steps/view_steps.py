"""`session.view`: the view of the session's own role, as a recorded step.

The step's outcome holds the number of visible events, their digest, and the event that records the
serving; the events themselves are stored in the log only once. On replay they are derived again,
and a difference is an error. Costs a read of the run and, live, a commit over two streams.

Written once for both clients as flows (see `hansard.agents.flow`).
"""

from __future__ import annotations

import functools
import time
from datetime import datetime
from typing import Any

from hansard.agents.access import views
from hansard.agents.access.views import DerivedView, OnRecord, View
from hansard.agents.errors import ViewDiffers
from hansard.agents.flow import Flow, Io
from hansard.agents.steps.atomic import Draft, JointSteps, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import operation
from hansard.bus.commits import record
from hansard.domain.access import ViewServed
from hansard.domain.errors import Corrupt
from hansard.domain.ids import KeyStream

SPEC = operation("view", "at", kind="view")


class ViewFlows(JointSteps):
    """Views of a session."""

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self._stream: KeyStream = views.stream_of(engine.stream.run, engine.stream.role)
        self._known: dict[str, OnRecord] = {}

    def view(self, at: object, key: bytes | None) -> Flow[View]:
        """Return the view of this session's role of the run at a point."""
        engine = self.engine
        point = at.isoformat() if isinstance(at, datetime) else at
        call = engine.begin(SPEC, (point,), {})
        call.needs = ()
        made: list[DerivedView] = []
        recorded = yield from self.ask(call, functools.partial(self._serve, key=key, made=made))
        if made:
            return made[0].view
        return (yield from self._again(call, recorded, key))

    def _serve(self, call: Call, key: bytes | None, made: list[DerivedView]) -> Flow[Any]:
        engine = self.engine
        began_s = time.perf_counter()
        run, role, at = engine.stream.run, engine.stream.role, call.arguments["at"]
        derive = functools.partial(views.derive, engine.boards.states, role, run, at, key)
        derived: DerivedView = yield Io(derive)
        event = derived.event(engine.stream.agent)
        engine.ledger.shown(derived.label)

        def make(_: Scope) -> _Write:
            return _Write(engine, call, self._stream, event, began_s)

        result = yield from self._jointly(call, [], make)
        made.append(derived)
        return result

    def _again(self, call: Call, plain: Any, key: bytes | None) -> Flow[View]:
        engine = self.engine
        one = self._known.get(plain["served"])
        if one is None:
            run, role = engine.stream.run, engine.stream.role
            on_record = functools.partial(views.on_record, engine.boards.states, run, role)
            self._known = {each.id: each for each in (yield Io(on_record))}
            one = self._known.get(plain["served"])
        if one is None:
            raise Corrupt(f"stream {self._stream}", f"it has no event {plain['served']}")
        made: DerivedView = yield Io(
            functools.partial(views.derive_again, engine.boards.states, one, key)
        )
        now = (len(made.view.events), made.view.digest)
        recorded = (plain["events"], plain["digest"])
        if now != recorded:
            step = call.step.number if call.step is not None else call.number
            raise ViewDiffers(step, recorded, now)
        return made.view


class _Write(JointWrite):
    """Records the serving of a view. After a lost race for the stream of views, the event follows
    the winner's: nothing depends on its position.
    """

    def __init__(
        self, engine: StepEngine, call: Call, stream: KeyStream, event: ViewServed, began_s: float
    ) -> None:
        super().__init__(engine, call)
        self._began = began_s
        self._stream = stream
        self._event = event
        self._recorded = record(event, self._clock.new_id())

    def _streams(self) -> list[KeyStream]:
        return [self._stream]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        event = self._event
        fields = {"events": event.events, "digest": event.digest, "served": self._recorded.id}
        after = await views.next_version(self._boards.states, self._stream) - 1
        return await self._completed(fields), [Draft(self._stream, after, [self._recorded])]
