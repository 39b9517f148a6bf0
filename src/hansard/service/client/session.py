"""The session at the client: the twins of `hansard.agents.session`, over the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar

from hansard.agents.callables import is_async_generator_function
from hansard.agents.effects import Declare, ToolSpec
from hansard.agents.errors import ToolError
from hansard.agents.flow import Flow, drive, drive_async
from hansard.agents.ledger import Mode
from hansard.agents.scope import around, back, enter
from hansard.agents.session import AsyncSession, Ending, Session, handed, handed_items
from hansard.bus.portal import Portal
from hansard.domain.agent import AgentState
from hansard.domain.label import Label
from hansard.service.client import calls, streams
from hansard.service.client.core import RemoteCore, RemoteScope
from hansard.service.client.operations import (
    AsyncRemoteBoard,
    AsyncRemoteTeam,
    Flows,
    RemoteBoard,
    RemoteTeam,
    asked_for,
    here,
    prepared,
)
from hansard.service.errors import NotOffered

T = TypeVar("T")


class _Remote:
    """What both twins have in place of a core of their own."""

    core: Any
    run: str
    _ending: Ending | None

    def _begin(self, core: RemoteCore, ending: Ending) -> None:
        self.core = core
        self._ending = ending
        self.run = core.stream.run
        self.arm = core.arm
        self.tool = Declare(self)
        self.facts: Any = Flows(core, "facts")
        self._views: Any = Flows(core, "views")
        core.ledger.client = self

    def _brief(self) -> dict[str, Any]:
        stream, ended = self.core.stream, self.core.ledger.ended
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
        found: Mode = self.core.settings.mode
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

    def __init__(self, core: RemoteCore) -> None:
        self._core = core
        self._scope = core.scope("resumable")
        self._around = around()
        self._number = 0

    def _ask(self, name: str, *args: Any) -> Flow[Any]:
        asked, doing = prepared(self._core, f"loop.{name}", self._number, args, {})
        return (yield from asked_for(self._core, asked, doing))

    def begin(self, name: str, every: int) -> Flow[None]:
        """Find what was done before."""
        asked, doing = prepared(self._core, "loop.begin", 0, (name, every), {})
        found = yield from calls.converse(self._core, "do", asked, here(self._core), doing)
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
        if self._core.link.lost is None:
            yield from self._ask("leave")

    def end(self) -> Flow[None]:
        """All items are done."""
        yield from self._ask("end")


class RemoteSession(_Remote, Session):
    """The sync twin."""

    def __init__(self, core: RemoteCore, portal: Portal, ending: Ending) -> None:
        self._begin(core, ending)
        self._portal = portal
        self.board = RemoteBoard(core, self._drive)
        self.team = RemoteTeam(core, self._drive)
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
            return streams.iterate(self.core, spec, args, kwargs, self._drive)
        return self._drive(calls.call(self.core, spec, args, kwargs))

    def resumable(self, items: Iterable[T], *, every: int = 1, name: str = "items") -> Iterator[T]:
        """The items not yet done; see `Session.resumable`."""
        loop = _Loop(self.core)
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

    def __init__(self, core: RemoteCore, ending: Ending) -> None:
        self._begin(core, ending)
        self._loop = asyncio.get_running_loop()
        self.board = AsyncRemoteBoard(core)
        self.team = AsyncRemoteTeam(core)
        self.wait_for = self.team.wait_for

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a declared tool: see `AsyncSession.call`."""
        if spec.is_stream:
            items = streams.iterate_async(self.core, spec, args, kwargs)
            return handed_items(items, self._loop, spec.name)
        work = drive_async(calls.call(self.core, spec, args, kwargs))
        return handed(work, self._loop, spec.name)

    async def resumable(
        self, items: Iterable[T], *, every: int = 1, name: str = "items"
    ) -> AsyncIterator[T]:
        """The items not yet done; see `Session.resumable`."""
        loop = _Loop(self.core)
        await drive_async(loop.begin(name, every))
        try:
            for item in items:
                if not await drive_async(loop.skips(item)):
                    yield item
                    await drive_async(loop.done())
            await drive_async(loop.end())
        finally:
            await drive_async(loop.leave())


Twin = Callable[..., Session | AsyncSession]
