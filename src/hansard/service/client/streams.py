"""Tools that give their result item by item: the service asks for each, and records it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

from hansard.agents.board_twins import Drive
from hansard.agents.conversions import converted
from hansard.agents.effects import ToolSpec
from hansard.agents.flow import Body, Flow, drive_async
from hansard.agents.outcomes import passed
from hansard.agents.scope import Scope
from hansard.service import wire
from hansard.service.client.calls import Begun, Calling, begin, converse
from hansard.service.client.core import RemoteCore
from hansard.service.wire import Came, Next, Run, Value


class Giving(Calling):
    """Runs a streaming tool's own iterator. `waits`: in a loop, of the async client."""

    waits = False

    def __init__(self, core: RemoteCore, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        super().__init__(core, spec, arguments)
        self._inner: Any = None
        self._usage: dict[str, float] = {}

    def work(self, asked: Run, scope: Scope) -> Flow[Came]:
        """The next item, or the iterator's end."""
        scope.usage = self._usage  # of the whole call
        match asked.what:
            case "item":
                if self._inner is None:
                    args, kwargs = passed(self.tool, self.given(asked))
                    self._inner = self.tool.function(*args, **kwargs)
                taken, _ = yield Body(self._take(), (), {}, scope)
                return self.gave(taken[0]) if taken else Came(end=True)
            case "shut":
                if self._inner is not None:
                    yield Body(self._close(), (), {}, scope)
                return Came()
            case _:
                return (yield from super().work(asked, scope))

    def _take(self) -> Any:
        def following() -> list[Any]:
            for item in self._inner:
                return [item]
            return []

        async def awaited() -> list[Any]:
            if not inspect.isasyncgen(self._inner):
                return following()
            async for item in self._inner:
                return [item]
            return []

        return awaited if self.waits else following

    def _close(self) -> Any:
        async def awaited() -> None:
            if inspect.isasyncgen(self._inner):
                await self._inner.aclose()
            else:
                self._inner.close()

        return awaited if self.waits else self._inner.close


class GivingAsync(Giving):
    """The same for the async client."""

    waits = True


def _asked(begun: Begun, core: RemoteCore, number: int, *, busy: bool) -> Flow[Value]:
    """The next item."""
    if not number:
        return (
            yield from converse(core, "stream", begun.data, begun.scope, begun.doing, busy=busy)
        )
    return (yield from converse(core, "next", Next(number), begun.scope, begun.doing))


def _item(found: Value, begun: Begun) -> Any:
    if found.own:
        return begun.doing.value
    return converted(wire.load(found.value), begun.doing.tool.returns)


def iterate(
    core: RemoteCore, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any], drive: Drive
) -> Iterator[Any]:
    """A streamed call for the sync client."""
    begun = begin(core, spec, args, kwargs, Giving)
    busy = core.ledger.enter_call(begun.scope)
    number = 0
    try:
        while True:
            found = drive(_asked(begun, core, number, busy=busy))
            if found.end:
                return
            number = number or found.context
            try:
                yield _item(found, begun)
            except GeneratorExit:
                drive(converse(core, "shut", Next(number), begun.scope, begun.doing))
                raise
    finally:
        core.ledger.leave_call(begun.scope)


async def iterate_async(
    core: RemoteCore, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> AsyncGenerator[Any, None]:
    """A streamed call for the async client."""
    begun = begin(core, spec, args, kwargs, GivingAsync)
    busy = core.ledger.enter_call(begun.scope)
    number = 0
    try:
        while True:
            found = await drive_async(_asked(begun, core, number, busy=busy))
            if found.end:
                return
            number = number or found.context
            try:
                yield _item(found, begun)
            except GeneratorExit:
                await drive_async(converse(core, "shut", Next(number), begun.scope, begun.doing))
                raise
    finally:
        core.ledger.leave_call(begun.scope)
