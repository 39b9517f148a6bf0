"""HTTP listeners: an address, a server that runs on it until cancelled, and posts to slices."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import socket
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import msgspec
import uvicorn
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from hansard.client.record import AsyncRecord
from hansard.domain.errors import BadValue

LOOPBACK = "127.0.0.1"

LOCAL = (LOOPBACK, "localhost", "::1")
"""Names of this machine."""

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://(?P<host>.+)")

HEAD_S, BODY_S = 10.0, 60.0
"""Seconds within which the head of a request, and then its body, must have arrived."""

TAKE_S = 60.0
"""Seconds within which a client must take some of what is sent, if more than 64 KiB wait for it."""

HEADLESS_MAX, HEADLESS_LOCAL_MAX = 100, 1_000
"""Connections whose first request's head has not arrived; for one more the oldest is closed. On a
loopback address only programs of this machine connect, and some do so by the hundred at once.
"""

CONNECTIONS_MAX = 2_000
"""Most connections, up to half of the process's file limit; more are answered 503."""

CLOSE = {"Connection": "close"}
"""Header of a refusal: a client that has not authenticated holds no connection."""

INVALID_REQUEST = -32600
"""Code of JSON-RPC 2.0."""

CLOSING_S = 3
"""Seconds that responses under way may take at shutdown; streams are then cut."""


def foreign(headers: Mapping[str, str], hosts: Collection[str]) -> tuple[HTTPStatus, str] | None:
    """Return the status and reason for refusing a request by its `Host` or `Origin`, else None.

    A page whose name was made to lead here (DNS rebinding) is recognised by its `Host`, any other
    page by its `Origin`: both must be one of `hosts`, with a port or without, and nothing else.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if _host_name(host) not in hosts:
        return HTTPStatus.MISDIRECTED_REQUEST, f"Host {host!r:.80} {_ADD}"
    sent = _ORIGIN.fullmatch(origin or "")
    if origin is not None and (sent is None or _host_name(sent["host"]) not in hosts):
        return HTTPStatus.FORBIDDEN, f"Origin {origin!r:.80} {_ADD}"
    return None


def refuse(status: HTTPStatus, message: str) -> JSONResponse:
    """Return a refusal as an error of JSON-RPC, which closes its connection."""
    challenge = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    error = {"code": INVALID_REQUEST, "message": message}
    answer = {"jsonrpc": "2.0", "id": None, "error": error}
    return JSONResponse(answer, status, CLOSE | challenge)


def bearer(headers: Mapping[str, str]) -> bytes:
    """Return the bearer token of a request; empty without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode(errors="surrogateescape") if scheme.lower() == "bearer" else b""


def _host_name(host: str) -> str:
    match = _HOST.fullmatch(host)
    return "" if match is None else (match["v6"] or match["name"]).lower()


_ADD = "is not a name of this server: --allow-host adds one"


class Address(msgspec.Struct, frozen=True):
    """An address to listen on; `hosts` are host names accepted beside the machine's own."""

    host: str
    port: int
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, hosts: Sequence[str] = ()) -> Address:
        """Parse `PORT` or `HOST:PORT`. Raises BadValue."""
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise BadValue("--http", f"{text!r:.80}", "give [HOST:]PORT, such as 8931, or 0")
        return cls(host.strip("[]") or LOOPBACK, int(port), tuple(hosts))

    def bound(self) -> socket.socket:
        """Return a socket that listens there. Raises BadValue.

        Accepted connections inherit TCP_NODELAY. asyncio sets it only on sockets whose protocol is
        given, which `create_server` leaves 0; without it each answer waits 40 ms for an ACK.
        """
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listening = socket.create_server((self.host, self.port), family=family)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            fact = f"{self.host}:{self.port} cannot be listened on ({error.strerror or error})"
            raise BadValue("--http", fact, "take another port, or 0 for a free one") from error
        return listening


class Call(msgspec.Struct, frozen=True):
    """A post to a slice with its body, and the open record of its workspace.

    Attributes:
        path: The path, without the workspace.
        headers: The headers by lower-case name.
        query: The parameters of the query.
        body: The body, as it was sent (`content-encoding` is the handler's).
        record: The record, open until the listener ends.
        later: Does something after a delay in seconds, unless it is requested again before under
            the same name: `later(name, delay_s, work)`.
    """

    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    record: AsyncRecord
    later: Callable[[str, float, Callable[[], Awaitable[object]]], None]


Handler = Callable[[Call], Awaitable[Response]]
"""Answers a post to a slice; an error of Hansard is answered as a problem (RFC 9457)."""


class _Server(uvicorn.Server):
    """A server that leaves signal handling to its caller, and bounds the handshake of TLS."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn itself gives a client 60 s for the handshake, in which it has no head."""
        config, loop = self.config, asyncio.get_running_loop()
        protocol: Callable[..., asyncio.Protocol] = config.http_protocol_class
        make = partial(protocol, config=config, server_state=self.server_state, app_state={})
        self.servers = [
            await loop.create_server(
                make,
                sock=each,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=None if config.ssl is None else HEAD_S,
            )
            for each in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Protocol(H11Protocol):
    """HTTP/1.1 with a deadline for the head and the body of each request.

    uvicorn's own timeout is about connections between two requests. `headless` are the connections
    of the listener whose first head has not arrived, oldest first, and `most` their bound.
    """

    def __init__(self, headless: dict[_Protocol, None], most: int, **options: Any) -> None:
        super().__init__(**options)
        self._headless = headless
        self._headless_max = most
        self._phase: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Start the deadline of the first head."""
        super().connection_made(transport)
        self._headless[self] = None
        if len(self._headless) > self._headless_max:
            next(iter(self._headless)).drop()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Start or stop the deadline of what is being received."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        super().connection_lost(exc)
        self._headless.pop(self, None)
        for deadline in (self._deadline, self._taking):
            if deadline is not None:
                deadline.cancel()

    def pause_writing(self) -> None:
        """Start the deadline of a client that takes nothing: closing would wait for it forever."""
        super().pause_writing()
        self._taking = self.loop.call_later(TAKE_S, self.drop)

    def resume_writing(self) -> None:
        """Stop that deadline."""
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()

    def drop(self) -> None:
        """Close the connection at once."""
        self._headless.pop(self, None)
        self.transport.abort()

    def _watch(self) -> None:
        state = self.conn.their_state
        if state is not h11.IDLE:
            self._headless.pop(self, None)
        phase = state if state in (h11.IDLE, h11.SEND_BODY) else None
        if phase is self._phase:
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
        if phase is not None:
            wait_s = HEAD_S if phase is h11.IDLE else BODY_S
            self._deadline = self.loop.call_later(wait_s, self.drop)


async def listen(
    app: ASGIApp,
    address: Address,
    path: str,
    announce: Callable[[str], None],
    ending: Callable[[], Awaitable[None]] | None = None,
    **options: Any,
) -> None:
    """Serve an application until cancelled.

    `announce` is called with the URL of `path` once the server listens, `ending` before open
    requests are waited for; `options` are further ones of uvicorn. Raises BadValue.
    """
    most = HEADLESS_LOCAL_MAX if address.host in LOCAL else HEADLESS_MAX
    with contextlib.closing(address.bound()) as listening:
        config = uvicorn.Config(
            app,
            http=partial(_Protocol, {}, most),  # type: ignore[arg-type] # called as the class is
            limit_concurrency=min(CONNECTIONS_MAX, _files_max() // 2),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSING_S,
            **options,
        )
        server = _Server(config)
        announce(_url(listening, path, "https" if "ssl_certfile" in options else "http"))
        running = asyncio.create_task(server.serve([listening]))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if ending is not None:
                await ending()
            server.should_exit = True
            await running
            raise


def _files_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else soft


def _url(listening: socket.socket, path: str, scheme: str) -> str:
    host, port = listening.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"
