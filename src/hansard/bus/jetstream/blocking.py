"""A connection on which the publishing thread waits itself, without the loop.

A publish over the loop costs two thread switches and a turn of the loop each way; here it is a
`send` and a `recv` of a socket. Over the loop a step of the sync client takes 1.37 to 1.52 times as
long (a pure step, strict server, 1 KB, p50, in turns). nats-py makes the connection on the loop,
with the same options as every other one (user, credentials, nkey, choice of server), and the socket
is then taken from it. With TLS that is impossible: the cipher's state is held by asyncio. One
thread at a time; any error ends the connection, and the publisher gets an unknown outcome: the loop
has all that is needed to resolve it and to connect again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
import time

from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.wire import NoAnswer, NoResponders, command, status
from hansard.bus.loggers import logger
from hansard.bus.portal import own_task

READ_BYTES = 64 * 1024
ANSWER_BYTES_MAX = 1024 * 1024
"""Largest accepted answer, in bytes; an answer to a publish has some hundred."""

POLL_S = 10.0
"""Interval of checks for incoming data while nothing is published, in seconds: the server sends a
PING, by default every 2 minutes, and ends a connection that misses two.
"""

UNUSED_S_MAX = 60.0
"""A connection unused for this long, in seconds, is closed; the next publish opens another."""

RETRY_S = 5.0
"""Pause after a failed connect, in seconds."""

CLOSE_S = 1.0
"""Longest wait for the thread that publishes while the connection is closed, in seconds."""

_PONG = b"PONG\r\n"

_log = logger(__name__)


class Blocking:
    """One plain connection to a broker, opened on first use. `publish` may be called from any
    thread, the rest from the loop's.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._inbox = ""
        self._reply = b""  # reply subject of the current publish
        self._publishes = 0
        self._rest = b""
        self._used_s = 0.0
        self._retry_s = 0.0
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pending = False
        self._closed = False

    # ------------------------------------------------------------ in any thread

    def publish(self, subject: str, payload: bytes, headers: bytes) -> bytes | None:
        """Publish, and return the answer's body; None if there is no connection, or another thread
        uses it: then nothing was sent. Raises NoAnswer, NoResponders.
        """
        if self._closed or os.getpid() != self._pid:
            return None
        if len(payload) + len(headers) > self._broker.max_payload:
            return None  # the loop raises TooLarge; the server would end the connection
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._socket is None:
                self._request_connection()
                return None
            self._publishes += 1
            reply = f"{self._inbox}{self._publishes:x}"
            self._reply = reply.encode()
            return self._exchange(self._socket, command(subject, reply, headers, payload))
        except OSError as error:
            self._drop()
            raise NoAnswer(f"a publish to {subject!r}: {error!r}") from error
        except BaseException:  # also after an interrupt: a late answer may still arrive
            self._drop()
            raise
        finally:
            self._lock.release()

    def _request_connection(self) -> None:
        if not self._pending and time.monotonic() >= self._retry_s and not self._loop.is_closed():
            self._pending = True
            self._loop.call_soon_threadsafe(self._open)

    def _exchange(self, sock: socket.socket, message: bytes) -> bytes:
        sock.sendall(message)
        self._used_s = time.monotonic()
        while True:
            answer = self._take(sock, sock.recv(READ_BYTES))
            if answer is not None:
                return answer
            if time.monotonic() - self._used_s > self._broker.options.request_timeout_s:
                nothing = "no answer arrived in time"
                raise TimeoutError(nothing)

    def _take(self, sock: socket.socket, data: bytes) -> bytes | None:
        """Process received data; return the body of the answer to the current publish, if included.
        An answer on another subject is late or repeated, and belongs to an earlier publish.
        """
        if not data:
            message = "the server closed the connection"
            raise ConnectionResetError(message)
        data, answer = self._rest + data, None
        while (end := data.find(b"\r\n")) >= 0:
            line, after = data[:end], end + 2
            if line.startswith((b"MSG ", b"HMSG ")):
                words = line.split(b" ")
                size = int(words[-1])
                if size > ANSWER_BYTES_MAX:
                    raise ConnectionError(f"an answer of {size} bytes")
                if len(data) < after + size + 2:
                    break
                body, after = data[after : after + size], after + size + 2
                if words[1] == self._reply and answer is None:
                    answer = body
                    if words[0] == b"HMSG":
                        split = int(words[-2])
                        if status(body[:split])[0] == 503:  # noqa: PLR2004 -- no responders
                            raise NoResponders(words[1].decode())
                        answer = body[split:]
            elif line == b"PING":
                sock.sendall(_PONG)
            elif line.startswith(b"-ERR"):
                raise ConnectionError(line.decode("utf-8", "replace"))
            data = data[after:]  # PONG, INFO, +OK: ignored
        self._rest = data
        return answer

    def _drop(self) -> None:
        """Close the connection; the next publish opens another."""
        if self._socket is not None:
            self._socket.close()  # before it is forgotten: an interrupt leaves no open socket
        self._socket, self._rest = None, b""

    # ------------------------------------------------------------ on the loop

    def _open(self) -> None:
        if not self._closed:
            self._opening = own_task(self._connect())

    async def _connect(self) -> None:
        opened: tuple[socket.socket, str] | None = None
        self._retry_s = time.monotonic() + RETRY_S
        try:
            await self._broker.ready(RETRY_S)
            opened = await self._broker.plain_socket()
            self._closed = self._closed or opened is None  # no later attempt can succeed
        except BusError as error:
            _log.debug("no connection of a thread's own", error=str(error))
        finally:
            self._pending = False
        if opened is None:
            return
        # The loop never waits for the lock: an interrupted thread may not have released it.
        if self._closed or not self._lock.acquire(blocking=False):
            opened[0].close()
            return
        self._socket, self._inbox = opened
        self._used_s = time.monotonic()
        self._lock.release()
        self._again()

    def _poll(self) -> None:
        """Answer the server's PINGs while nothing is published, and close an unused connection."""
        if not self._lock.acquire(blocking=False):
            self._again()
            return
        try:
            sock = self._socket
            if sock is None:
                return
            if time.monotonic() - self._used_s > UNUSED_S_MAX:
                self._drop()
                return
            if _has_data(sock):
                self._take(sock, sock.recv(READ_BYTES))
        except (OSError, BusError, ValueError):  # ValueError: an interrupt left it closed
            self._drop()
        finally:
            self._lock.release()
        self._again()

    def _again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed and self._socket is not None:
            self._timer = self._loop.call_later(POLL_S, self._poll)

    async def close(self) -> None:
        """Close the connection. A thread that publishes gets NoAnswer."""
        self._closed = True
        if os.getpid() != self._pid:
            return
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        self._again()
        held = self._lock.acquire(blocking=False)
        if not held and (sock := self._socket) is not None:
            with contextlib.suppress(OSError):  # wakes the thread that waits on it
                sock.shutdown(socket.SHUT_RDWR)
            end_s = time.monotonic() + CLOSE_S
            while not held and time.monotonic() < end_s:
                await asyncio.sleep(CLOSE_S / 100)
                held = self._lock.acquire(blocking=False)
        self._drop()  # also if an interrupted thread never released the lock
        if held:
            self._lock.release()


def _has_data(sock: socket.socket) -> bool:
    """Return whether data arrived, or the connection ended."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
