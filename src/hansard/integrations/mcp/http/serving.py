"""What of serving a proxy takes HTTP: a server at a URL, and clients that come in at a port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from hansard.client.listening import LOCAL, Address, listen
from hansard.domain.errors import BadValue
from hansard.integrations.mcp.http.clients import PATH, endpoint
from hansard.integrations.mcp.http.local import LocalServers, Start
from hansard.integrations.mcp.http.proxy import HttpProxy
from hansard.integrations.mcp.http.server import HttpServer
from hansard.integrations.mcp.http.upstream import HttpUpstream
from hansard.integrations.mcp.recording import Recording


def asked_at(url: str, headers: Mapping[str, str]) -> HttpUpstream:
    """A server at a URL, for a client of pipes. Raises BadValue."""
    return HttpUpstream(HttpServer(url, headers))


def carried_to(start: Start, name: str) -> HttpServer:
    """Processes of a server, for clients over HTTP. Its name stands in what they are told."""
    server = HttpServer("http://localhost/mcp", {}, LocalServers(start), of_many=True)
    server.shown = repr(name)
    return server


def address(text: str, hosts: Sequence[str], client_token: str | None) -> Address:
    """Where clients come in. Raises BadValue."""
    found = Address.of(text, hosts)
    if found.host not in LOCAL and client_token is None:
        fact = f"at {found.host} other machines can ask, too"
        raise BadValue("--http", fact, "give --token-file, whose token clients must send")
    return found


async def serve(
    where: Address,
    client_token: str | None,
    server: HttpServer | None,
    recording: Callable[[], AbstractAsyncContextManager[Recording]],
    listens: Callable[[str], None],
) -> None:
    """Serve clients over HTTP until this is cancelled, which is how the run ends, too: nothing went
    wrong. `server` is None where nothing is asked. Raises BadValue.
    """
    try:
        async with recording() as found:
            proxy = HttpProxy(found, server)
            app = endpoint(proxy, [where.host, *where.hosts], client_token)
            with contextlib.suppress(asyncio.CancelledError):
                await listen(app, where, PATH, listens, proxy.close)
    finally:
        if server is not None:
            await server.close()
