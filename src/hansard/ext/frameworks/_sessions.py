"""The session of a framework's call, and steps of either client inside an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from hansard.agents.steps import scope
from hansard.client.session import SyncMixin
from hansard.ext.steps import AnySession, NamedTool, call_async


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


async def execute(
    session: AnySession, tool: NamedTool, arguments: Mapping[str, Any]
) -> tuple[Any, bool]:
    """Execute a step in a coroutine; return its result, and whether the body ran.

    A session of the sync client waits in a thread of its own, so that a framework's sync methods,
    which run a loop in the calling thread, can be used with it; the body runs in this loop.
    """
    ran: list[bool] = []
    body = tool.function
    if not isinstance(session, SyncMixin):

        async def run(**key: Any) -> Any:
            ran.append(True)
            return await body(**key)

        return await call_async(session, replace(tool, function=run), arguments), bool(ran)
    return await _in_thread(session, tool, arguments, ran), bool(ran)


async def _in_thread(
    session: SyncMixin, tool: NamedTool, arguments: Mapping[str, Any], ran: list[bool]
) -> Any:
    loop = asyncio.get_running_loop()
    body: Callable[..., Awaitable[Any]] = tool.function

    async def run_here(key: dict[str, Any]) -> Any:
        return await body(**key)

    def run(**key: Any) -> Any:
        ran.append(True)
        return asyncio.run_coroutine_threadsafe(run_here(key), loop).result()

    return await asyncio.to_thread(session.call, replace(tool, function=run), (), dict(arguments))
