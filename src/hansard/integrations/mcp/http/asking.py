"""A server over HTTP asked one thing by us: a handshake, the request, and good-bye."""

from __future__ import annotations

import asyncio
import importlib.metadata
from typing import Any

from hansard.agents.errors import NotDone
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import CALL, INITIALIZE, LIST_TOOLS
from hansard.integrations.mcp.frames import Answer, Request
from hansard.integrations.mcp.http.server import HttpServer
from hansard.integrations.mcp.http.upstream import INITIALIZED, HttpUpstream
from hansard.integrations.mcp.upstream import ServerGone, Unheard, pages

PROTOCOL = "2025-11-25"
"""What is spoken with it; one that speaks another says so."""

ASK_S = 120.0
"""Seconds that a server may take for an answer."""


class McpError(Exception):
    """A server answered with an error: nothing more is known of what it did."""


async def tools_of(url: str) -> list[dict[str, Any]]:
    """The tools that a server has, as it lists them. Raises NotDone, ServerGone, McpError."""
    found: list[dict[str, Any]] = []
    listing = Request(b"", "tools", LIST_TOOLS)
    async with asyncio.timeout(ASK_S):
        upstream = await _greeted(url)
        try:
            async for page in pages(listing, lambda page: upstream.ask(page.id, page.raw)):
                found += _result(page).get("tools", [])
        finally:
            await upstream.close()
    return found


async def called(url: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool's call. Raises NotDone where it surely was not made; ServerGone."""
    try:
        async with asyncio.timeout(ASK_S):
            upstream = await _greeted(url)
    except (ServerGone, McpError, TimeoutError) as error:
        raise NotDone(f"{url} cannot be asked: {error}") from error
    try:
        async with asyncio.timeout(ASK_S):
            return await _asked(upstream, CALL, {"name": tool, "arguments": arguments})
    finally:
        await upstream.close()


async def _greeted(url: str) -> HttpUpstream:
    upstream = HttpUpstream(HttpServer(url, {}), Unheard())
    try:
        version = importlib.metadata.version("hansard")
        who = {"name": "hansard", "version": version}
        params = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": who}
        await _asked(upstream, INITIALIZE, params)
        await upstream.send(frames.notification(INITIALIZED, {}))
    except BaseException:
        await upstream.close()
        raise
    return upstream


async def _asked(upstream: HttpUpstream, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return _result(await upstream.ask(method, frames.request(method, method, params)))


def _result(answer: Answer) -> dict[str, Any]:
    if answer.error is not None:
        raise McpError(str(answer.error.get("message", answer.error))[:400])
    return answer.result if isinstance(answer.result, dict) else {}
