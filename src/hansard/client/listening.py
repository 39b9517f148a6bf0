"""Where something of ours is asked over HTTP: an address, and what listens there until its end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from http import HTTPStatus

import msgspec
import uvicorn
from starlette.types import ASGIApp

from hansard.domain.errors import BadValue

LOOPBACK = "127.0.0.1"

LOCAL = (LOOPBACK, "localhost", "::1")
"""Names of this machine."""

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://(?P<host>.+)")

CLOSING_S = 3
"""How long answers that are under way are waited for at the end; streams are then cut."""


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


def _host_name(host: str) -> str:
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["v6"] or found["name"]).lower()


_ADD = "is not a name of this server: --allow-host adds one"


class Address(msgspec.Struct, frozen=True):
    """Where to listen; `hosts` are names that requests may ask for beside the machine's own."""

    host: str
    port: int
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, hosts: Sequence[str] = ()) -> Address:
        """From `PORT` or `HOST:PORT`. Raises BadValue."""
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


class _Server(uvicorn.Server):
    """One that leaves signals to who runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def listen(
    app: ASGIApp,
    address: Address,
    path: str,
    told: Callable[[str], None],
    ending: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve an application until this is cancelled; `told` is called with the URL of a path of it
    once it listens, `ending` before what is open is waited for. Raises BadValue.
    """
    with contextlib.closing(address.bound()) as listening:
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=CLOSING_S,
        )
        server = _Server(config)
        told(_url(listening, path))
        running = asyncio.create_task(server.serve([listening]))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if ending is not None:
                await ending()
            server.should_exit = True
            await running
            raise


def _url(listening: socket.socket, path: str) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
