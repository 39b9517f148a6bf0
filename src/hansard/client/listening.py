"""Where something of ours is asked over HTTP: an address, and what listens there until its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Generator, Sequence

import msgspec
import uvicorn
from starlette.types import ASGIApp

from hansard.domain.errors import BadValue

LOOPBACK = "127.0.0.1"

CLOSING_S = 3
"""How long answers that are under way are waited for at the end; streams are then cut."""


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
        """A socket that listens there. Raises BadValue."""
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            fact = f"{self.host}:{self.port} cannot be listened on ({error.strerror or error})"
            raise BadValue("--http", fact, "take another port, or 0 for a free one") from error


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
