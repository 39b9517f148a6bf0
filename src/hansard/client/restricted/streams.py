"""Tools that give their result item by item: the service asks for each, and records it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

from hansard.agents.flow import Body, Drive, Flow, drive_async
from hansard.agents.steps.conversions import converted
from hansard.agents.steps.recorder import passed
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import ToolSpec
from hansard.client.protocol import wire
from hansard.client.protocol.wire import Came, Next, Run, Value
from hansard.client.restricted.calls import Begun, Calling, begin, converse
from hansard.client.restricted.engine import RemoteCore


class Giving(Calling):
    """Runs a streaming tool's own iterator. `waits`: in a loop, of the async client."""

    waits = False

    def __init__(self, engine: RemoteCore, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        super().__init__(engine, spec, arguments)
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


def _asked(begun: Begun, engine: RemoteCore, number: int, *, busy: bool) -> Flow[Value]:
    """The next item."""
    if not number:
        return (
            yield from converse(engine, "stream", begun.data, begun.scope, begun.doing, busy=busy)
        )
    return (yield from converse(engine, "next", Next(number), begun.scope, begun.doing))


def _item(found: Value, begun: Begun) -> Any:
    if found.own:
        return begun.doing.value
    return converted(wire.load(found.value), begun.doing.tool.returns)


def iterate(
    engine: RemoteCore,
    spec: ToolSpec,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    drive: Drive,
) -> Iterator[Any]:
    """A streamed call for the sync client."""
    begun = begin(engine, spec, args, kwargs, Giving)
    busy = engine.ledger.enter_call(begun.scope)
    number = 0
    try:
        while True:
            found = drive(_asked(begun, engine, number, busy=busy))
            if found.end:
                return
            number = number or found.context
            try:
                yield _item(found, begun)
            except GeneratorExit:
                drive(converse(engine, "shut", Next(number), begun.scope, begun.doing))
                raise
    finally:
        engine.ledger.leave_call(begun.scope)


async def iterate_async(
    engine: RemoteCore, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> AsyncGenerator[Any, None]:
    """A streamed call for the async client."""
    begun = begin(engine, spec, args, kwargs, GivingAsync)
    busy = engine.ledger.enter_call(begun.scope)
    number = 0
    try:
        while True:
            found = await drive_async(_asked(begun, engine, number, busy=busy))
            if found.end:
                return
            number = number or found.context
            try:
                yield _item(found, begun)
            except GeneratorExit:
                await drive_async(converse(engine, "shut", Next(number), begun.scope, begun.doing))
                raise
    finally:
        engine.ledger.leave_call(begun.scope)
