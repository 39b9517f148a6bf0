"""The session at the client: the twins of `hansard.client.session`, over the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar

from hansard.agents.callables import is_async_generator_function
from hansard.agents.errors import ToolError
from hansard.agents.flow import Flow, drive, drive_async
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.scope import around, back, enter
from hansard.agents.steps.tools import Declare, ToolSpec
from hansard.bus.portal import Portal
from hansard.client.protocol.errors import NotOffered
from hansard.client.restricted import calls, streams
from hansard.client.restricted.engine import RemoteCore, RemoteScope
from hansard.client.restricted.operations import (
    AsyncRemoteBoard,
    AsyncRemoteTeam,
    Flows,
    RemoteBoard,
    RemoteTeam,
    ViewFlows,
    answered,
    ask,
    prepared,
)
from hansard.client.session import AsyncSession, Ending, handed, handed_items
from hansard.client.session_sync import Session
from hansard.domain.agent import AgentState
from hansard.domain.label import Label

T = TypeVar("T")


class _Remote:
    """What both twins have in place of a core of their own."""

    engine: Any
    run: str
    _ending: Ending | None

    def _begin(self, engine: RemoteCore, ending: Ending) -> None:
        self.engine = engine
        self._ending = ending
        self.run = engine.stream.run
        self.arm = engine.arm
        self.tool = Declare(self)
        self.facts: Any = Flows(engine, "facts")
        self._views: Any = ViewFlows(engine, "session")
        engine.ledger.client = self

    def _brief(self) -> dict[str, Any]:
        stream, ended = self.engine.stream, self.engine.ledger.ended
        return {
            "run": self.run,
            "agent": stream.agent,
            "role": stream.role,
            "mode": self.mode.value,
            "status": "ended" if ended else "open",
        }

    @property
    def mode(self) -> Mode:
        """How this session treats what is on record."""
        found: Mode = self.engine.settings.mode
        return found

    @property
    def state(self) -> AgentState:
        """Raises NotOffered."""
        raise NotOffered("session.state", "read session.view(), or session.context()")

    @property
    def label(self) -> Label:
        """Raises NotOffered."""
        raise NotOffered("session.label", "the labels of what it was shown stand in session.view()")


class _Loop:
    """How far a loop has come, as the service knows it."""

    def __init__(self, engine: RemoteCore) -> None:
        self._engine = engine
        self._scope = engine.scope("resumable")
        self._around = around()
        self._number = 0

    def _ask(self, name: str, *args: Any) -> Flow[Any]:
        return (yield from ask(self._engine, f"loop.{name}", self._number, *args))

    def begin(self, name: str, every: int) -> Flow[None]:
        """Find what was done before."""
        asked = prepared(self._engine, "loop.begin", 0, (name, every))
        found = yield from answered(self._engine, asked)
        self._number = found.context

    def skips(self, item: object) -> Flow[bool]:
        """Whether an item was done before; if not, what follows stands in its own scope."""
        path = yield from self._ask("skips", item)
        if path is None:
            return True
        parent = self._scope
        enter(parent.child(path) if isinstance(parent, RemoteScope) else parent)
        return False

    def done(self) -> Flow[None]:
        """An item is done."""
        yield from self._ask("done")
        back(self._around)

    def leave(self) -> Flow[None]:
        """The loop is over, in whatever way."""
        back(self._around)
        if self._engine.link.lost is None:
            yield from self._ask("leave")

    def end(self) -> Flow[None]:
        """All items are done."""
        yield from self._ask("end")


class RemoteSession(_Remote, Session):
    """The sync twin."""

    def __init__(self, engine: RemoteCore, portal: Portal, ending: Ending) -> None:
        self._begin(engine, ending)
        self._portal = portal
        self.board = RemoteBoard(engine, self._drive)
        self.team = RemoteTeam(engine, self._drive)
        self.wait_for = self.team.wait_for

    def _drive(self, flow: Flow[T]) -> T:
        return drive(flow, self._portal)

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a declared tool: its body runs here, all else at the service."""
        self._portal.refuse()
        if is_async_generator_function(spec.function):
            message = f"{spec.name} is an async generator: use the async client, or a generator"
            raise ToolError(message)
        if spec.is_stream:
            return streams.iterate(self.engine, spec, args, kwargs, self._drive)
        return self._drive(calls.call(self.engine, spec, args, kwargs))

    def resumable(self, items: Iterable[T], *, every: int = 1, name: str = "items") -> Iterator[T]:
        """The items not yet done; see `Session.resumable`."""
        loop = _Loop(self.engine)
        self._drive(loop.begin(name, every))
        try:
            for item in items:
                if not self._drive(loop.skips(item)):
                    yield item
                    self._drive(loop.done())
            self._drive(loop.end())
        finally:
            self._drive(loop.leave())


class AsyncRemoteSession(_Remote, AsyncSession):
    """The async twin."""

    def __init__(self, engine: RemoteCore, ending: Ending) -> None:
        self._begin(engine, ending)
        self._loop = asyncio.get_running_loop()
        self._drive = drive_async
        self.board = AsyncRemoteBoard(engine)
        self.team = AsyncRemoteTeam(engine)
        self.wait_for = self.team.wait_for

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a declared tool: see `AsyncSession.call`."""
        if spec.is_stream:
            items = streams.iterate_async(self.engine, spec, args, kwargs)
            return handed_items(items, self._loop, spec.name)
        work = drive_async(calls.call(self.engine, spec, args, kwargs))
        return handed(work, self._loop, spec.name)

    async def resumable(
        self, items: Iterable[T], *, every: int = 1, name: str = "items"
    ) -> AsyncIterator[T]:
        """The items not yet done; see `Session.resumable`."""
        loop = _Loop(self.engine)
        await self._drive(loop.begin(name, every))
        try:
            for item in items:
                if not await self._drive(loop.skips(item)):
                    yield item
                    await self._drive(loop.done())
            await self._drive(loop.end())
        finally:
            await self._drive(loop.leave())
