"""One connection to the broker, with fast replies; the only module that imports nats.

nats-py's own `request` costs a task and a `wait_for` per call, and its header parser more than half
of a bulk read. Here one subscription on a private inbox passes every answer, inline and with its
headers unparsed, to its receiver. Long because all use of nats-py, its private parts included, is
in this one module.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import uuid4

import msgspec
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import Error as NatsError
from nats.errors import UnexpectedEOF
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from hansard.bus.clock import SLICE_S
from hansard.bus.errors import (
    BrokerError,
    BusError,
    Closed,
    Contradiction,
    NotWritable,
    StoreGone,
    TooLarge,
    Unreachable,
)
from hansard.bus.jetstream.wire import (
    NoAnswer,
    NoResponders,
    NotSent,
    Receiver,
    Reply,
    command,
    parsed,
    rendered,
    status,
)
from hansard.bus.loggers import logger
from hansard.bus.marks import Witness
from hansard.bus.portal import AfterFork, demand_loop, disown, own_task

# Options of a connection to a broker.

REQUEST_TIMEOUT_S = 5.0
"""Longest wait for the answer to one request, in seconds: a busy disk may take a second, and an
answer may be lost.
"""

APPEND_TIMEOUT_S = 30.0
"""Longest time that an append is retried before its outcome counts as unknown, in seconds: a
broker's restart fits.
"""

CONNECT_TIMEOUT_S = 10.0
"""Longest time of the first connect, in seconds."""


DISK_WAIT_S = 600.0
"""Longest time that a write waits while the embedded server's disk is known to refuse writes, in
seconds: long enough for an operator to free some space.
"""


class Host(Protocol):
    """The supervisor of an embedded server that does not answer: `hansard.broker.lease.Host`."""

    def hold(self, stream: str) -> None:
        """Sync a stream's metadata to disk, and let `check` watch the stream's files. Raises as
        that.
        """

    def release(self, stream: str) -> None:
        """Stop watching a stream's files, which may be deleted now."""

    def check(self, stream: str) -> None:
        """Raise StoreGone or NotWritable if the files are gone or the disk refuses writes."""

    def obstacle(self) -> NotWritable | StoreGone | None:
        """Return the current obstacle, if any."""
        ...

    def look(self) -> NotWritable | None:
        """Check the disk itself, if no obstacle was reported."""
        ...

    async def heal(self) -> str:
        """Return its URL, restarting it if no process keeps it running."""
        ...


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a broker, and the login. Times in seconds.

    Set `user` and `password`, or a credentials file, or an nkey seed (a file, or as text in
    `nkey`), or nothing. The TLS files are PEM paths; `tls_ca` alone verifies the server against
    that authority. `host` is set for the embedded server; `witness` is the evidence of the logs in
    its data directory; `copy_of` is the data directory of which its own is a private copy: nothing
    is recorded then. `domain` is the JetStream domain of another region, reached over the server's
    leaf connection.
    """

    urls: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str | None = None
    password: str | None = None
    credentials: Path | None = None
    nkey_seed: Path | None = None
    nkey: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_hostname: str | None = None
    name: str = "hansard"
    inbox_prefix: str = "_INBOX"
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    request_timeout_s: float = REQUEST_TIMEOUT_S
    append_timeout_s: float = APPEND_TIMEOUT_S
    disk_wait_s: float = DISK_WAIT_S
    host: Host | None = None
    witness: Witness | None = None
    copy_of: str | None = None
    domain: str = ""

    def in_region(self, domain: str) -> BrokerOptions:
        """Return the options of another region's broker, reached over this one. Raises
        Contradiction for options that are of one already.
        """
        if self.domain:
            raise Contradiction("the workspace's home", {"region": (domain, self.domain)})
        return msgspec.structs.replace(self, domain=domain)

    def __repr__(self) -> str:
        return f"BrokerOptions(urls={self.urls!r}, user={self.user!r}, name={self.name!r})"


PENDING_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes waiting to be written to the socket: one batch of 1,000 messages fits."""

RECONNECT_WAIT_S = 0.1
PING_INTERVAL_S = 5
PINGS_UNANSWERED_MAX = 2
"""Interval of PINGs, in seconds: a vanished peer is noticed after 15 s, half of an append's
timeout; with nats-py's default of 120 s it would take minutes.
"""

FLUSH_TIMEOUT_S = 5.0
"""Longest wait for room in the socket's buffer, in seconds. nats-py's default is to wait forever.
"""

HEAL_POLL_S = 0.2
"""Pause between two checks of the embedded server while there is no connection, in seconds."""

CANCELS_MAX = 100
CANCEL_WAIT_S = 0.05

ENDED_AT_ONCE = "it ended the connection once it let us in"

UNAUTHORIZED = 401
REFUSALS_MAX = 5
"""Refused connects, `RECONNECT_WAIT_S` apart, before a login counts as refused: during a reload,
nats-server 2.15 also refuses logins that do not change.
"""

_DENIED = re.compile(r'permissions violation for publish to "([^"]+)"')
_UNHEARD = re.compile(r'permissions violation for subscription to "([^"]+)"', re.IGNORECASE)

_MESSAGE = re.compile(rb"(?:MSG|(HMSG)) +(\S+) +(\d+) +(?:(\S+) +)?(?(1)(\d+) +)(\d+)\r\n")
"""The line before a message: its subject, subscription, reply subject, and the sizes of its headers
(of HMSG only) and in total.
"""

Receive = Callable[[str, str, bytes, bytes], None]
"""Takes a message inline: its subject, reply subject, raw headers and body."""

_log = logger(__name__)


class _Parser(Parser):
    """nats-py's parser, with a fast path for messages to a `_Sink`: they are passed on from the
    buffer once complete.

    Yields to other tasks after a full buffer (32 KiB) that ends a slice of half a millisecond;
    nats-py itself reads without a pause while there is data.
    """

    _until_s = 0.0

    async def parse(self, data: bytes = b"") -> None:
        self.buf.extend(data)
        if self.state != AWAITING_CONTROL_LINE or not self._whole_messages():
            await super().parse()
        if len(data) >= DEFAULT_BUFFER_SIZE and time.perf_counter() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = time.perf_counter() + SLICE_S

    def _whole_messages(self) -> bool:
        """Pass on the messages for sinks at the start of the buffer; return whether only the start
        of another one is left.
        """
        at, rest = 0, False
        with memoryview(self.buf) as view:
            while (line := _MESSAGE.match(view, at)) is not None:
                with_headers, subject, number, reply, headed, size = line.groups()
                sink = getattr(self.nc._subs.get(int(number)), "_future", None)  # noqa: SLF001 -- nats-py's own
                if type(sink) is not _Sink:
                    break
                body = line.end() + (int(headed) if with_headers else 0)
                end = line.end() + int(size)
                if len(view) < end + 2:
                    rest = True
                    break
                headers, data = bytes(view[line.end() : body]), bytes(view[body:end])
                sink.take(subject.decode(), (reply or b"").decode(), headers, data)
                at = end + 2
        del self.buf[:at]
        return rest or not self.buf


class _OwnTask:
    """An attribute that hides a task of nats-py from the loop's shutdown."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = f"own{name}"

    def __get__(self, client: _Client, _: type) -> asyncio.Task[None] | None:
        task: asyncio.Task[None] | None = client.__dict__.get(self._name)
        return task

    def __set__(self, client: _Client, task: asyncio.Task[None] | None) -> None:
        disown(task)
        client.__dict__[self._name] = task


class _Client(Client):
    """nats-py's client, without its header parser and its rendering of headers.

    Measured: 1,000 commits of 1 KB read in 13.8 ms instead of 22.0; 64 messages passed to the
    socket in 0.2 ms instead of 0.9. The hooks are private to nats-py. If they no longer exist,
    headers arrive parsed and `_Sink` renders them again, and messages go through `publish`.
    """

    takes_commands = all(
        hasattr(Client, name) for name in ("_send_command", "_flush_pending", "_process_headers")
    )

    _reading_task = _OwnTask()
    _ping_interval_task = _OwnTask()
    _flusher_task = _OwnTask()
    _reconnection_task = _OwnTask()

    def __init__(self) -> None:
        super().__init__()
        self._ps = _Parser(self)

    async def _read_loop(self) -> None:
        await self._until_interrupted(super()._read_loop())

    async def _ping_interval(self) -> None:
        await self._until_interrupted(super()._ping_interval())

    async def _flusher(self) -> None:
        await self._until_interrupted(super()._flusher())

    async def _until_interrupted(self, loop: Coroutine[Any, Any, None]) -> None:
        """Run one of nats-py's loops, and reconnect if a signal handler's exception, which may be
        raised in any code on the loop, ends it.
        """
        try:
            await loop
        except (SystemExit, KeyboardInterrupt):
            await self._process_op_err(ConnectionError("a signal handler interrupted it"))
            raise

    async def _attempt_reconnect(self) -> None:
        try:
            await super()._attempt_reconnect()
        except (SystemExit, KeyboardInterrupt):
            again = self._attempt_reconnect()
            self._reconnection_task = asyncio.get_running_loop().create_task(again)
            raise

    async def _process_headers(self, headers: bytes | None) -> Any:
        return headers or None

    async def _process_pong(self) -> None:
        """Keep reading if the waiter for this PONG was cancelled, which would stop nats-py's
        reader.
        """
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _connect_to_server(self, s: Any) -> None:
        """Close an open transport first: nats-py leaks it if a reconnect's handshake failed."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types
        await super()._connect_to_server(s)

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 -- nats-py's own signature
        """Close, also if the socket was just lost: nats-py then fails on pending data and never
        reports that it is closed.
        """
        try:
            await super()._close(status, do_cbs)
        except OSError:
            self._pending, self._pending_data_size = [], 0
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)

    async def drop(self) -> None:
        """Close the socket silently, since a QUIT would end the taken socket, too; stop all tasks
        of this client, at whatever stage its connect was.
        """
        await self._end_tasks()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types

    @property
    def _tasks(self) -> list[asyncio.Task[Any]]:
        tasks = (self._reading_task, self._ping_interval_task, self._flusher_task)
        return [task for task in tasks if task is not None]

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            await _end(task)

    def leave(self) -> None:
        """Cancel this client's tasks, and leave its socket as it is."""
        for task in self._tasks:
            task.cancel()

    async def take_socket(self) -> socket.socket | None:
        """Take the socket from nats-py; None if that is impossible: it is not plain TCP, or
        received data is in nats-py's buffers. The client is unusable afterwards in both cases.
        """
        transport = self._transport
        if type(transport) is not TcpTransport:
            return None
        await self._end_tasks()
        stream: Any = getattr(transport._io_writer, "transport", None)  # noqa: SLF001 -- nats-py's own, as all of this class
        unread = getattr(transport._io_reader, "_buffer", None)  # noqa: SLF001 -- nats-py's own, as all of this class
        if stream.get_extra_info("ssl_object") is not None or unread != b"":
            return None
        if self._ps.buf or self._pending:
            return None
        return cast("socket.socket", stream.get_extra_info("socket").dup())

    async def write(self, commands: list[bytes], *, alone: bool) -> None:
        """Write rendered commands to the socket, as the last step of `publish`. A command that is
        `alone` is written at once; others are collected for a turn of the loop and share a write.
        """
        await self._send_command(commands[0] if len(commands) == 1 else b"".join(commands))
        if self._flush_queue is None or not self._flush_queue.empty():
            return
        if alone and type(self._transport) is TcpTransport:
            pending, self._pending = self._pending, []
            self._pending_data_size = 0
            self._transport.writelines(pending)  # type: ignore[no-untyped-call]  # nats-py has no types
        else:
            await self._flush_pending()


class _Sink:
    """Replaces a future in nats-py: called inline for every message, without a queue."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Receive) -> None:
        self._handle = handle

    def cancelled(self) -> bool:
        return False

    def set_result(self, msg: Msg) -> None:
        headers: Any = msg.headers
        if headers is None:
            headers = b""
        elif type(headers) is not bytes:
            headers = rendered(headers)
        self.take(msg.subject, msg.reply, headers, msg.data)

    def take(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Pass on a message with its raw headers."""
        try:
            self._handle(subject, reply, headers, data)
        except Exception:  # noqa: BLE001 -- anything let through ends nats-py's read loop for good
            _log.exception("a receiver failed", subject=subject)


async def _end(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task of nats-py until it ends. One cancel is not always enough: `asyncio.wait_for`
    of Python 3.11 drops a cancellation in the same turn of the loop as its result, and a reconnect
    loop would then run forever.
    """
    for _ in range(CANCELS_MAX):
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_WAIT_S)
    _log.error("a task of the client did not end", task=repr(task))


async def _close(nc: Client) -> None:
    """Close a client permanently, whatever state it is in."""
    try:
        await nc.close()
    except asyncio.CancelledError:
        # A task of nats-py that waited for the socket's end was cancelled, and cancelled the shared
        # future with it.
        transport = getattr(nc, "_transport", None)
        if transport is not None:
            transport.close()
        if _is_cancelled():
            raise
    await _end(getattr(nc, "_reconnection_task", None))
    await nc.close()  # a no-op unless that task connected again


async def _ignored(*_: object) -> None:
    """Ignore an event of nats-py."""


def _unheard(*_: object) -> None:
    """Ignore a message: none arrives before the socket is taken."""


def _is_cancelled() -> bool:
    """Return whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Broker:
    """One connection. Reconnects forever; while disconnected, nothing is sent or buffered."""

    def __init__(self, options: BrokerOptions) -> None:
        self.options = options
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._nc: _Client = _Client()
        self._inbox = f"{options.inbox_prefix}.{uuid4().hex}."
        self._receivers: dict[str, Receiver] = {}
        self._count = 0
        self._reconnects: list[Callable[[], None]] = []
        self._up = asyncio.Event()
        self.hindered = False
        self._opened = False
        self._closing = False
        self._refused: asyncio.Future[BusError] | None = None
        self._refusals = 0
        self.unheard: set[str] = set()
        """Subjects that the login may not listen to, as far as it tried."""
        self._last_error = "no answer"
        self._revival: asyncio.Task[None] | None = None
        self._healing: asyncio.Task[None] | None = None
        self._guard: AsyncGenerator[None] | None = None

    @classmethod
    async def open(cls, options: BrokerOptions) -> Broker:
        """Connect. Raises Unreachable after `connect_timeout_s`, BrokerError if refused."""
        broker = cls(options)
        try:
            broker._have_healed()
            await broker._connect()
        except Unreachable:
            await broker.close()
            if broker.options.urls == options.urls:
                raise
            return await cls.open(broker.options)  # the embedded server took another port
        except BaseException:
            await broker.close()  # else it would reconnect forever, unused
            raise
        broker._opened = True
        broker._guard = broker._until_the_loop_ends()
        await anext(broker._guard)
        return broker

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """Close the connection if it is open: a loop's shutdown ends its generators."""
        try:
            yield
        finally:
            self._guard = None
            await self.close()

    @property
    def url(self) -> str:
        """The broker's address, for messages to people."""
        return ", ".join(self.options.urls)

    @property
    def connected(self) -> bool:
        """True if a request would be sent now."""
        return self._nc.is_connected

    @property
    def server_version(self) -> str:
        """The broker's version, as reported on connect."""
        return str(self._nc.connected_server_version)

    @property
    def max_payload(self) -> int:
        """The largest message the server accepts, in bytes, headers included."""
        return self._nc.max_payload

    def on_reconnect(self, call: Callable[[], None]) -> Callable[[], None]:
        """Register a call after each reconnect; return the function that removes it."""
        self._reconnects.append(call)
        return lambda: self._reconnects.remove(call)

    async def ready(self, timeout_s: float) -> None:
        """Wait until connected. Raises OtherLoop, Unreachable, and Closed at once, also if it is
        closed while waiting.
        """
        demand_loop(self._loop)
        if not self._closing and self._nc.is_connected and self._up.is_set():
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        except TimeoutError as error:
            raise self._unreachable() from error
        if self._closing:
            raise Closed(self.url)

    def _unreachable(self) -> BusError:
        """Return the error that explains the missing connection."""
        host = self.options.host
        obstacle = host.obstacle() if host is not None and not self._closing else None
        return obstacle or Unreachable(self.url, self._last_error)

    async def close(self) -> None:
        """Close the connection. Pending requests get NoAnswer. Raises OtherLoop."""
        if os.getpid() != self._pid:
            self._nc.leave()  # the socket belongs to the process that forked this one
            return
        if not self._closing:
            demand_loop(self._loop)
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.aclose()
            return
        self._closing = True
        self._up.set()  # fails the waiters now
        for task in (self._revival, self._healing):
            if task is not None:
                task.cancel()
        self._fail("the connection was closed")
        await _close(self._nc)

    # ------------------------------------------------------------ sending

    def expect(self, receiver: Receiver) -> str:
        """Register a receiver; return an inbox subject whose messages it gets until `forget`."""
        self._count += 1
        token = f"{self._count:x}"
        self._receivers[token] = receiver
        return self._inbox + token

    def forget(self, inbox: str) -> None:
        """Drop further messages on an inbox."""
        self._receivers.pop(inbox[len(self._inbox) :], None)

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: bytes = b""
    ) -> None:
        """Write a message to the socket, in order. Raises NotSent while disconnected, TooLarge."""
        await self.send_all([(subject, payload, reply, headers)])

    async def send_all(self, messages: list[tuple[str, bytes, str, bytes]]) -> None:
        """Write messages (subject, body, reply, headers) to the socket, in order and together.
        Raises OtherLoop, AfterFork, NotSent, TooLarge.
        """
        demand_loop(self._loop)
        if os.getpid() != self._pid:
            raise AfterFork(self._pid)
        nc, domain = self._nc, self.options.domain
        if not nc.is_connected:
            raise NotSent(f"not connected to {self.url}")
        if domain:
            there = f"$JS.{domain}.API."
            messages = [(s.replace("$JS.API.", there, 1), p, r, h) for s, p, r, h in messages]
        for subject, payload, _, headers in messages:
            if len(headers) + len(payload) > nc.max_payload:
                size = len(headers) + len(payload)
                raise TooLarge(f"a message on {subject!r}", size, nc.max_payload)
        try:
            if nc.takes_commands:
                lines = [command(s, r, h, p) for s, p, r, h in messages]
                await nc.write(lines, alone=len(self._receivers) <= 1)
                return
            for subject, payload, reply, headers in messages:
                await nc.publish(subject, payload, reply, parsed(headers) if headers else None)
        except NatsError as error:
            raise NotSent(f"not sent to {messages[0][0]!r}: {error!r}") from error

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: bytes | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> tuple[bytes, bytes]:
        """Return the headers and body of the answer. Raises NoAnswer, NoResponders, BrokerError
        (denied).

        No task is created. Cancelling it leaves the outcome unknown.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[bytes, bytes]] = loop.create_future()
        waiting = Reply(subject, future)
        inbox = self.expect(waiting)
        timer = loop.call_later(timeout_s, waiting.expire)
        try:
            await self.send(subject, payload, inbox, headers or b"")
            answer = await future
        finally:
            timer.cancel()
            self.forget(inbox)
        if not answer[1] and answer[0] and status(answer[0])[0] == 503:  # noqa: PLR2004 -- no responders
            raise NoResponders(subject)
        return answer

    async def listen(self, inbox: str, handle: Receive, queue: str = "") -> Callable[[], Any]:
        """Subscribe to a subject; return the coroutine function that ends the subscription.

        Of several members of a `queue`, one gets each message. For pushed messages: they carry
        their stream's subject, so the shared inbox cannot tell them apart.
        """
        nc = self._nc  # `_nc` is another client once this one was replaced
        subscription = await self._subscribe(inbox, handle, queue)

        async def stop() -> None:
            if not nc.is_closed and not subscription._closed:  # noqa: SLF001 -- no public word
                await subscription.unsubscribe()

        return stop

    async def plain_socket(self) -> tuple[socket.socket, str] | None:
        """Open another connection with the same options as a plain socket, whose calls wait at most
        `request_timeout_s`; return it and the prefix of the inbox subjects that it is subscribed
        to. None if impossible: with TLS, or with an unexpected nats-py. Raises Unreachable.
        """
        client = _Client()
        if not client.takes_commands:
            return None
        arguments = self._arguments(client)
        for name in ("error_cb", "disconnected_cb", "reconnected_cb", "closed_cb"):
            arguments[name] = _ignored
        timeout_s = self.options.request_timeout_s
        inbox = f"{self.options.inbox_prefix}.{uuid4().hex}."
        try:
            async with asyncio.timeout(self.options.connect_timeout_s):
                await client.connect(**{**arguments, "allow_reconnect": False})
                await client.subscribe(inbox + "*", future=cast("Any", _Sink(_unheard)))
                await client.flush()
                plain = await client.take_socket()
        except (NatsError, OSError, ImportError, ValueError, AttributeError) as error:
            raise Unreachable(self.url, str(error) or repr(error)) from error
        finally:
            await client.drop()
        if plain is None:
            return None
        plain.settimeout(timeout_s)  # not SO_RCVTIMEO, which each signal restarts
        return plain, inbox

    # ------------------------------------------------------------ connecting

    async def _subscribe(self, subject: str, handle: Receive, queue: str = "") -> Subscription:
        return await self._nc.subscribe(subject, queue, future=cast("Any", _Sink(handle)))

    def _dispatch(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        receiver = self._receivers.get(subject[len(self._inbox) :])
        if receiver is not None:
            receiver.receive(subject, reply, headers, data)

    def _fail(self, why: str) -> None:
        for receiver in list(self._receivers.values()):
            receiver.lost(NoAnswer(why))

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.options.connect_timeout_s
        self._refused, self._refusals = loop.create_future(), 0
        try:
            holds = False
            while not holds:
                holds = await self._connect_once(self._refused, until_s - loop.time())
        finally:
            self._refused = None
        self._last_error = "no answer"  # an earlier attempt's error does not explain a later one
        self._up.set()

    async def _connect_once(self, refused: asyncio.Future[BusError], timeout_s: float) -> bool:
        """Return whether a new client is still connected once it is accepted: before nats-server
        2.15 reloads logins it ends some that it has just accepted. Raises errors that a retry
        cannot fix.
        """
        nc = self._nc = _Client()
        connecting = own_task(nc.connect(**self._arguments(nc)))
        try:
            either: set[asyncio.Future[Any]] = {connecting, refused}
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            in_time = connecting.done()
            if not in_time:
                await _end(connecting)
                await _close(nc)
        if in_time and not refused.done():
            try:
                connecting.result()
            except (NatsError, OSError, ImportError, ValueError) as error:
                if not (isinstance(error, UnexpectedEOF) and self._last_error == ENDED_AT_ONCE):
                    raise Unreachable(self.url, str(error) or repr(error)) from error
                await _close(nc)
                await asyncio.sleep(RECONNECT_WAIT_S)
                return False
            try:
                await self._subscribe(self._inbox + "*", self._dispatch)
            except NatsError as error:
                await self._on_error(nc.last_error or error)
        if refused.done():
            raise refused.result()
        if not in_time:
            unknown = self._refusals and "authorization" in self._last_error.lower()
            raise self._login_refused() if unknown else self._unreachable()
        if not nc.is_connected:
            if not nc.is_closed:  # ended by the server without an error
                self._last_error = ENDED_AT_ONCE
            await _close(nc)
            await asyncio.sleep(RECONNECT_WAIT_S)
        return nc.is_connected

    def _arguments(self, nc: Client) -> dict[str, Any]:
        options = self.options
        arguments: dict[str, Any] = {
            "servers": list(options.urls),
            "name": options.name,
            "user": options.user,
            "password": options.password,
            "user_credentials": str(options.credentials) if options.credentials else None,
            "nkeys_seed": str(options.nkey_seed) if options.nkey_seed else None,
            "nkeys_seed_str": options.nkey,
            "inbox_prefix": options.inbox_prefix,
            "connect_timeout": max(1, int(options.connect_timeout_s)),
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_WAIT_S,
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": PINGS_UNANSWERED_MAX,
            "pending_size": PENDING_BYTES_MAX,
            "flush_timeout": FLUSH_TIMEOUT_S,
            "error_cb": self._on_error,
            "disconnected_cb": functools.partial(self._on_disconnected, nc),
            "reconnected_cb": functools.partial(self._on_reconnected, nc),
            "closed_cb": functools.partial(self._on_closed, nc),
        }
        if options.tls_ca or options.tls_cert:
            context = ssl.create_default_context(cafile=options.tls_ca)
            if options.tls_cert:
                context.load_cert_chain(options.tls_cert, options.tls_key)
            arguments["tls"] = context
            arguments["tls_hostname"] = options.tls_hostname
        return arguments

    async def _on_error(self, error: Exception) -> None:
        before, self._last_error = self._last_error, str(error) or repr(error)
        text = self._last_error.lower()
        if self._refused is not None and not self._refused.done():
            refusal = self._refusal(error)
            if refusal is not None:
                self._refused.set_result(refusal)
        unheard = _UNHEARD.search(self._last_error)
        if unheard is not None:
            self.unheard.add(unheard[1])
        denied = _DENIED.search(text)
        if denied is not None:
            for receiver in list(self._receivers.values()):
                if isinstance(receiver, Reply) and receiver.subject.lower() == denied.group(1):
                    receiver.lost(BrokerError(f"sending to {receiver.subject!r}", 403, text))
        # Logged only on change, since there are ten attempts a second; not while closing; at debug
        # level during a connect, which raises the error unless the next attempt succeeds.
        if self._last_error != before and not self._closing:
            quiet = isinstance(error, OSError) or self._refused is not None
            log = _log.debug if quiet else _log.warning
            log("broker connection", error=self._last_error, url=self.url)

    def _refusal(self, error: Exception) -> BusError | None:
        """Return the error that ends a connect, for a failure that a retry cannot fix."""
        text = str(error) or repr(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unreachable(self.url, text)
        self._refusals += "authorization" in text.lower()
        return self._login_refused() if self._refusals >= REFUSALS_MAX else None

    def _login_refused(self) -> BrokerError:
        who = self.options.user or self.options.name
        return BrokerError(f"connecting to {self.url} as {who!r}", UNAUTHORIZED, self._last_error)

    async def _on_disconnected(self, nc: Client) -> None:
        if nc is not self._nc:
            return  # it was replaced by another
        if not self._closing:
            self._up.clear()
        self._fail("the connection broke")
        self._have_healed()

    def _have_healed(self) -> None:
        """Start supervising the embedded server for as long as there is no connection."""
        host = self.options.host
        done = self._healing is None or self._healing.done()
        if host is not None and done and not self._closing:
            self._healing = own_task(self._heal(host))

    async def _heal(self, host: Host) -> None:
        """Keep the embedded server running while there is no connection, and follow it to another
        port.
        """
        while True:
            await asyncio.sleep(HEAL_POLL_S)
            if self._closing or self._up.is_set():
                return
            try:
                url = await host.heal()
            except BusError as error:
                self._last_error = str(error)
                if isinstance(error, StoreGone):
                    return
            else:
                if (url,) != self.options.urls and not self._up.is_set():
                    self.options = msgspec.structs.replace(self.options, urls=(url,))
                    if self._opened:
                        await self._nc.close()  # `_on_closed` opens another

    async def _on_reconnected(self, nc: Client) -> None:
        if nc is not self._nc or self._refused is not None:
            return  # it was replaced by another, or is not in use yet
        self._up.set()
        self.hindered = False
        for call in list(self._reconnects):
            call()

    async def _on_closed(self, nc: Client) -> None:
        """Open another client: nats-py gives up permanently on some errors (too large, an expired
        login).
        """
        if self._closing or nc is not self._nc or self._refused is not None:
            return
        if self._revival is not None and not self._revival.done():
            return
        self._up.clear()
        self._revival = own_task(self._revive())

    async def _revive(self) -> None:
        while not self._closing:
            try:
                await self._connect()
            except BusError as error:
                _log.warning("broker connection lost", error=str(error))
                await asyncio.sleep(1.0)
            else:
                await self._on_reconnected(self._nc)
                return


# Requests and answers between programs, apart from the log; used by the service and its clients.
#
# Nothing is stored and nothing is sent twice: if no answer arrives, the request's outcome is
# unknown.

KNOWN_S_MAX = 5.0
"""Longest time until the broker has registered a subscription, in seconds."""

Handle = Callable[[str, str, bytes], None]
"""Handles a request: its subject, its reply subject (empty for none), its body. Called inline in
the client's read loop, so it must not block.
"""


class Requests:
    """A connection for requests."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @classmethod
    async def open(cls, options: BrokerOptions) -> Requests:
        """Connect. Raises Unreachable, BrokerError (refused)."""
        return cls(await Broker.open(options))

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        """Send a request, and return the answer's body. Raises TooLarge, NotSent, NoResponders
        (nobody received it), NoAnswer, BrokerError (denied). Cancelling it leaves the outcome
        unknown.
        """
        return (await self._broker.request(subject, payload, None, timeout_s))[1]

    async def serve(self, subject: str, handle: Handle, queue: str = "") -> Callable[[], Any]:
        """Handle requests to a subject; return the coroutine function that ends it.

        Of several programs that serve a subject with the same `queue`, one gets each request. On
        return the broker has registered the subscription, so that later requests find a responder;
        if the connection breaks meanwhile, it is registered on reconnect.
        """

        def receive(subject: str, reply: str, _headers: bytes, data: bytes) -> None:
            handle(subject, reply, data)

        stop = await self._broker.listen(subject, receive, queue)
        nobody = f"{self._broker.options.inbox_prefix}.{uuid4().hex}"
        with contextlib.suppress(NoAnswer):  # once rejected, earlier messages were processed
            await self._broker.request(nobody, timeout_s=KNOWN_S_MAX)
        return stop

    async def answer(self, reply: str, payload: bytes) -> None:
        """Send an answer. Raises TooLarge, NotSent."""
        await self._broker.send(reply, payload)

    async def close(self) -> None:
        """Close the connection. Pending requests get NoAnswer."""
        await self._broker.close()
