"""The session of a restricted agent, over the service, of both clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any, ClassVar

from hansard.agents.flow import Drive, Flow
from hansard.agents.steps.scope import around, back, enter
from hansard.client.restricted import operations
from hansard.client.restricted.calls import PreparedCall, RemoteEngine
from hansard.client.restricted.engine import RemoteScope, TrustedOnly
from hansard.client.restricted.operations import (
    BoardFlows,
    MemoryFlows,
    TeamFlows,
    ViewFlows,
    answered,
    ask,
    prepared,
)
from hansard.client.session import (
    AsyncCommonSession,
    AsyncSession,
    CommonSession,
    Session,
    SessionFlows,
    _Session,
)
from hansard.operations.protocol import shapes


class Loop:
    """The progress of a loop, kept by the service."""

    def __init__(self, engine: RemoteEngine, name: str, every: int) -> None:
        self._engine = engine
        self._arguments = name, every
        self._scope = engine.scope("resumable")
        self._around = around()
        self._number = 0

    def _ask(self, name: str, *args: Any) -> Flow[Any]:
        return (yield from ask(self._engine, f"loop.{name}", self._number, *args))

    def begin(self) -> Flow[list[Any]]:
        """Find the items done before; return their results, in order."""
        request = prepared(self._engine, "loop.begin", 0, self._arguments)
        found = yield from answered(self._engine, request)
        self._number = found.context
        results: list[Any] = shapes.decode_result(found.value, request.operation.result)
        return results

    def skips(self, item: object) -> Flow[bool]:
        """Return whether an item was done before; if not, enter its scope."""
        path = yield from self._ask("skips", item)
        if path is None:
            return True
        parent = self._scope
        enter(parent.child(path) if isinstance(parent, RemoteScope) else parent)
        return False

    def done(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Mark an item as done, and keep the results."""
        yield from self._ask("done", results)
        back(self._around)

    def leave(self) -> Flow[None]:
        """Leave the loop, completed or not."""
        back(self._around)
        if self._engine.link.lost is None:
            yield from self._ask("leave")

    def end(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Mark all items as done, and keep the remaining results."""
        yield from self._ask("end", results)


class Restricted(TrustedOnly, _Session):
    """The operations of a restricted agent's session, over the service."""

    _called = "session"
    _remedy: ClassVar = {
        "state": "read session.view(), or session.context()",
        "snapshot": "read session.view(), or session.context()",
        "saved": "use record.savings(run=session.run), if the role may query",
        "save": "have a trusted program save it from the agent's decision or hand-over",
        "window": "read session.context(), or session.view()",
        "compact": "have a trusted program compact the conversation",
        "get": "have a trusted program get it, and put the needed data on the board",
        "label": "read the labels of shown data in session.view()",
    }

    def _made(self, now: Drive | None) -> SessionFlows:
        engine: RemoteEngine = self.engine
        team = TeamFlows(engine, "team")
        return SessionFlows(
            facts=operations.Flows(engine, "facts"),
            views=ViewFlows(engine, "session"),
            board=BoardFlows(engine, now),
            memory=MemoryFlows(engine),
            team=team,
            mail=team,
        )

    def _progress(self, name: str, every: int) -> Loop:
        return Loop(self.engine, name, every)


class AsyncRestrictedSession(Restricted, AsyncCommonSession):
    """A restricted agent's session, for the async client."""

    _trusted = AsyncSession

    async def _items(self, call: PreparedCall) -> AsyncGenerator[Any, None]:
        engine: RemoteEngine = self.engine
        busy = engine.ledger.enter_call(call.scope)
        number = 0
        try:
            while True:
                found = await self._drive(engine.item(call, number, busy=busy))
                if found.end:
                    return
                number = number or found.context
                try:
                    yield call.value(found)
                except GeneratorExit:
                    await self._drive(engine.shut(call, number))
                    raise
        finally:
            engine.ledger.leave_call(call.scope)


class RestrictedSession(Restricted, CommonSession):
    """A restricted agent's session, for the sync client."""

    _trusted = Session

    def _items(self, call: PreparedCall) -> Generator[Any, None, None]:
        engine: RemoteEngine = self.engine
        busy = engine.ledger.enter_call(call.scope)
        number = 0
        try:
            while True:
                found = self._drive(engine.item(call, number, busy=busy))
                if found.end:
                    return
                number = number or found.context
                try:
                    yield call.value(found)
                except GeneratorExit:
                    self._drive(engine.shut(call, number))
                    raise
        finally:
            engine.ledger.leave_call(call.scope)
