"""Parts of adapters to asyncio frameworks: the current session, steps of either client, effects."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from hansard.agents.flow import done
from hansard.agents.steps import scope
from hansard.client.session import SyncMixin
from hansard.domain.errors import BadValue
from hansard.domain.steps import Effects
from hansard.ext.steps import AnySession, NamedTool, call_async

T = TypeVar("T")

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
    weakref.WeakKeyDictionary()
)
"""By loop: held until a step of a sync session has begun, so that steps begin in a fixed order."""


def session_here() -> AnySession | None:
    """Return the session whose step a call made here is; None outside, and in a tool's body.

    In the body of a composite tool it is the session of that tool.
    """
    scopes = scope.around()
    if scopes:
        session: AnySession = scopes[0].session.client
        return session if scopes[0].nests else None
    kept = scope.kept()
    return kept[0] if len(kept) == 1 else None


def effects_by_name(
    pure: Iterable[str], idempotent: Iterable[str], composite: Iterable[str]
) -> dict[str, Effects]:
    """Return the effects of tools by name. Raises BadValue for a tool that is listed twice."""
    effects: dict[str, Effects] = {}
    policies = {Effects.PURE: pure, Effects.IDEMPOTENT: idempotent, Effects.COMPOSITE: composite}
    for policy, names in policies.items():
        for name in [names] if isinstance(names, str) else names:
            if effects.setdefault(name, policy) is not policy:
                fact = f"it is {effects[name].value} and {policy.value}"
                raise BadValue(f"tool {name!r:.80}", fact, "list it once")
    return effects


async def execute(
    session: AnySession, tool: NamedTool, arguments: Mapping[str, Any]
) -> tuple[Any, bool]:
    """Execute a step in a coroutine; return its result, and whether the body ran.

    A session of the sync client waits in a thread of its own, so that a framework's sync methods,
    which run a loop in the calling thread, can be used with it; the body runs in this loop.
    """
    ran: list[bool] = []
    body = tool.function
    if isinstance(session, SyncMixin):
        return await _in_thread(session, tool, arguments, ran), bool(ran)

    async def run(**key: Any) -> Any:
        ran.append(True)
        return await body(**key)

    return await call_async(session, replace(tool, function=run), arguments), bool(ran)


async def _in_thread(
    session: SyncMixin, tool: NamedTool, arguments: Mapping[str, Any], ran: list[bool]
) -> Any:
    loop = asyncio.get_running_loop()
    started = asyncio.Event()
    body: Callable[..., Awaitable[Any]] = tool.function

    async def run_here(key: dict[str, Any]) -> Any:
        started.set()
        return await body(**key)

    def run(**key: Any) -> Any:
        ran.append(True)
        return asyncio.run_coroutine_threadsafe(run_here(key), loop).result()

    async with _turns.setdefault(loop, asyncio.Lock()):
        threaded = replace(tool, function=run)
        calling = asyncio.ensure_future(
            asyncio.to_thread(session.call, threaded, (), dict(arguments))
        )
        starting = asyncio.ensure_future(started.wait())
        await asyncio.wait({calling, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
    return await calling


async def state(session: Any, fact: str, *arguments: Any, **fields: Any) -> None:
    """State a fact in a session of either client, by the name of its method."""
    method = getattr(session, fact)
    if isinstance(session, SyncMixin):
        await asyncio.to_thread(method, *arguments, **fields)
    else:
        await method(*arguments, **fields)


async def io(
    session: AnySession, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any
) -> T:
    """Await a coroutine of the log where a session's log is, in the body of a step."""
    waiting = session._io(work, *arguments)  # noqa: SLF001 -- as the session's own operations do
    if isinstance(session, SyncMixin):
        return await asyncio.to_thread(done, waiting)
    return await waiting


def report_usage(session: AnySession, **figures: float | None) -> None:
    """Report the usage of a model call, in its body; figures that are None or 0 are left out."""
    session.usage(**{name: number for name, number in figures.items() if number})
