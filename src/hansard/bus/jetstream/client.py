"""The only module that imports nats: one connection to the broker, with fast replies.

nats-py's own `request` costs a task and a `wait_for` per call, and its header parser more than
half of a bulk read. Here one subscription on a private inbox hands every answer, inline and with
its headers unparsed, to whoever waits for it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, cast
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
from hansard.bus.errors import BrokerError, BusError, Closed, StoreGone, TooLarge, Unreachable
from hansard.bus.jetstream.options import REQUEST_TIMEOUT_S, BrokerOptions, Host
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
from hansard.bus.portal import AfterFork, demand_loop, disown, own_task

PENDING_BYTES_MAX = 8 * 1024 * 1024
"""What may wait to be written to the socket: one batch of 1,000 messages fits."""

RECONNECT_WAIT_S = 0.1
PING_INTERVAL_S = 5
PINGS_UNANSWERED_MAX = 2
"""A peer that vanished without a word is noticed after 15 s, half of what an append waits; with
nats-py's own 120 s it would take minutes."""

FLUSH_TIMEOUT_S = 5.0
"""Longest wait for room in the socket's buffer. nats-py waits for ever if it is not given."""

HEAL_POLL_S = 0.2
"""Pause between two looks, without a connection, whether somebody keeps the server running."""

CANCELS_MAX = 100
CANCEL_WAIT_S = 0.05

ENDED_AT_ONCE = "it ended the connection once it let us in"

UNAUTHORIZED = 401
REFUSALS_MAX = 5
"""So many connects, `RECONNECT_WAIT_S` apart, are refused before a login is told to be: while it
reloads, nats-server 2.15 refuses connects of logins that do not change, too."""

_DENIED = re.compile(r'permissions violation for publish to "([^"]+)"')

_MESSAGE = re.compile(rb"(?:MSG|(HMSG)) +(\S+) +(\d+) +(?:(\S+) +)?(?(1)(\d+) +)(\d+)\r\n")
"""The line before a message: its subject, subscription, where to answer, and the sizes of its
headers (of HMSG alone) and of all of it."""

_log = logger(__name__)


class _Parser(Parser):
    """nats-py's parser, less its way for messages that a `_Sink` takes: those are handed on from
    the buffer as soon as they are whole. Everything else is nats-py's.

    Others on the loop go on after a full buffer (32 KiB) that ends a slice of half a millisecond:
    nats-py reads on without a pause for as long as there is something to read.
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
        """Hand on the messages for sinks that the buffer begins with; whether nothing is left but
        the begin of another one.
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


class _Own:
    """An attribute for a task of nats-py, which is disowned as soon as it is made."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = f"own{name}"

    def __get__(self, client: _Client, _: type) -> asyncio.Task[None] | None:
        found: asyncio.Task[None] | None = client.__dict__.get(self._name)
        return found

    def __set__(self, client: _Client, task: asyncio.Task[None] | None) -> None:
        disown(task)
        client.__dict__[self._name] = task


class _Client(Client):
    """nats-py's client, less its header parser and its rendering of headers.

    Measured: 1,000 commits of 1 KB read in 13.8 ms instead of 22.0; 64 messages handed to the
    socket in 0.2 ms instead of 0.9. The hooks are private to nats-py. Where they no longer exist,
    headers arrive parsed and `_Sink` renders them again, and messages go through `publish`.
    """

    takes_commands = all(
        hasattr(Client, name) for name in ("_send_command", "_flush_pending", "_process_headers")
    )

    _reading_task = _Own()
    _ping_interval_task = _Own()
    _flusher_task = _Own()
    _reconnection_task = _Own()

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
        """An exception of a signal handler, which runs in whatever the event loop does, ends one of
        nats-py's loops: the connection is made anew.
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
        """For whoever still waits for it: nats-py stops reading where that was cancelled."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _connect_to_server(self, s: Any) -> None:
        """Close first what stands open: nats-py forgets it where a reconnect's handshake failed."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types
        await super()._connect_to_server(s)

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 -- nats-py's own signature
        """Also where the socket was lost a moment ago: nats-py fails there at what was still to be
        sent, and tells nobody that it is closed.
        """
        try:
            await super()._close(status, do_cbs)
        except OSError:
            self._pending, self._pending_data_size = [], 0
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)

    async def drop(self) -> None:
        """Let go of the socket without a word, which would end what was taken, too; nothing of this
        client goes on, wherever its connecting was cut off.
        """
        await self._still()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types

    @property
    def _tasks(self) -> list[asyncio.Task[Any]]:
        found = (self._reading_task, self._ping_interval_task, self._flusher_task)
        return [task for task in found if task is not None]

    async def _still(self) -> None:
        for task in self._tasks:
            await _end(task)

    def leave(self) -> None:
        """Cancel the tasks of this client, and leave its socket as it is."""
        for task in self._tasks:
            task.cancel()

    async def taken(self) -> socket.socket | None:
        """The socket, which nats-py gives up; None where it cannot be had: it is not plain TCP, or
        something of what came is in nats-py's hands. The client is over in both cases.
        """
        transport = self._transport
        if type(transport) is not TcpTransport:
            return None
        await self._still()
        stream: Any = getattr(transport._io_writer, "transport", None)  # noqa: SLF001 -- nats-py's own, as all of this class
        unread = getattr(transport._io_reader, "_buffer", None)  # noqa: SLF001 -- nats-py's own, as all of this class
        if stream.get_extra_info("ssl_object") is not None or unread != b"":
            return None
        if self._ps.buf or self._pending:
            return None
        return cast("socket.socket", stream.get_extra_info("socket").dup())

    async def write(self, commands: list[bytes], *, alone: bool) -> None:
        """Hand rendered commands to the socket: what `publish` ends in. One that is `alone` goes at
        once; others wait a turn of the loop for each other, and share a write.
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
    """What nats-py takes for a future: it is called inline for every message, with no queue."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Callable[[str, str, bytes, bytes], None]) -> None:
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
        """A message with its headers as they came."""
        try:
            self._handle(subject, reply, headers, data)
        except Exception:  # noqa: BLE001 -- anything let through ends nats-py's read loop for good
            _log.exception("a receiver failed", subject=subject)


async def _end(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task of nats-py until it ends. Once is not always enough: `asyncio.wait_for` of
    Python 3.11 drops a cancellation that comes in the same turn of the loop as its result, and a
    reconnect loop would then go on for ever, and connect again.
    """
    for _ in range(CANCELS_MAX):
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_WAIT_S)
    _log.error("a task of the client did not end", task=repr(task))


async def _close(nc: Client) -> None:
    """Close a client for good, whatever state it is in."""
    try:
        await nc.close()
    except asyncio.CancelledError:
        # A task of nats-py that waited for the socket's end was cancelled, and took along what all
        # wait for.
        transport = getattr(nc, "_transport", None)
        if transport is not None:
            transport.close()
        if _is_cancelled():
            raise
    await _end(getattr(nc, "_reconnection_task", None))
    await nc.close()  # does nothing, unless that task got through once more


async def _ignored(*_: object) -> None:
    """Nothing is done about what nats-py tells."""


def _unheard(*_: object) -> None:
    """Nothing arrives before the socket is taken."""


def _is_cancelled() -> bool:
    """Whether somebody cancels this very task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Broker:
    """One connection. Reconnects for ever; while it is down, nothing is sent or buffered."""

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
            await broker.close()  # else it would be revived, for ever, for nobody
            raise
        broker._opened = True
        broker._guard = broker._until_the_loop_ends()
        await anext(broker._guard)
        return broker

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """Close the connection where nobody has: a loop that shuts down ends its generators."""
        try:
            yield
        finally:
            self._guard = None
            await self.close()

    @property
    def url(self) -> str:
        """Where the broker is, for messages to people."""
        return ", ".join(self.options.urls)

    @property
    def connected(self) -> bool:
        """Whether a request would be sent now."""
        return self._nc.is_connected

    @property
    def server_version(self) -> str:
        """The broker's version, as it told when we connected."""
        return str(self._nc.connected_server_version)

    @property
    def max_payload(self) -> int:
        """The largest message the server takes, in bytes, headers included."""
        return self._nc.max_payload

    def on_reconnect(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have something called after each reconnect; returns how to stop that."""
        self._reconnects.append(call)
        return lambda: self._reconnects.remove(call)

    async def ready(self, timeout_s: float) -> None:
        """Wait until connected. Raises OtherLoop, Unreachable, and Closed at once, also where it is
        closed meanwhile.
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
        """Why nobody answers."""
        host = self.options.host
        obstacle = host.obstacle() if host is not None and not self._closing else None
        return obstacle or Unreachable(self.url, self._last_error)

    async def close(self) -> None:
        """Close the connection. What still waits for an answer gets NoAnswer. Raises OtherLoop."""
        if os.getpid() != self._pid:
            self._nc.leave()  # the socket is that of the process that forked this one
            return
        if not self._closing:
            demand_loop(self._loop)
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.aclose()
            return
        self._closing = True
        self._up.set()  # whoever waits for it is told now
        for task in (self._revival, self._healing):
            if task is not None:
                task.cancel()
        self._fail("the connection was closed")
        await _close(self._nc)

    # ------------------------------------------------------------ sending

    def expect(self, receiver: Receiver) -> str:
        """An inbox subject whose messages go to the receiver until `forget`."""
        self._count += 1
        token = f"{self._count:x}"
        self._receivers[token] = receiver
        return self._inbox + token

    def forget(self, inbox: str) -> None:
        """Drop what else arrives on an inbox."""
        self._receivers.pop(inbox[len(self._inbox) :], None)

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: bytes = b""
    ) -> None:
        """Hand a message to the socket, in order. Raises NotSent while disconnected, TooLarge."""
        await self.send_all([(subject, payload, reply, headers)])

    async def send_all(self, messages: list[tuple[str, bytes, str, bytes]]) -> None:
        """Hand messages (subject, body, reply, headers) to the socket, in order and together.
        Raises OtherLoop, AfterFork, NotSent, TooLarge.
        """
        demand_loop(self._loop)
        if os.getpid() != self._pid:
            raise AfterFork(self._pid)
        nc = self._nc
        if not nc.is_connected:
            raise NotSent(f"not connected to {self.url}")
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
        """The headers and body of the answer. Raises NoAnswer, NoResponders, BrokerError (denied).

        No task is made. Cancelling it leaves the outcome open.
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

    async def listen(self, inbox: str, receiver: Receiver, queue: str = "") -> Callable[[], Any]:
        """Subscribe to a subject of its own; returns the coroutine function that ends it. Of
        several members of a `queue`, one is given each message.

        For pushed messages: they carry their stream's subject, so the shared inbox cannot tell
        them apart.
        """
        nc = self._nc  # another stands there once this one was given up
        subscription = await self._subscribe(inbox, receiver.receive, queue)

        async def stop() -> None:
            if not nc.is_closed and not subscription._closed:  # noqa: SLF001 -- no public word
                await subscription.unsubscribe()

        return stop

    async def plain_socket(self) -> tuple[socket.socket, str] | None:
        """A connection of its own, made as this one was, as a socket whose calls wait for at most
        `request_timeout_s`; and the prefix of inbox subjects that it is subscribed to. None where
        none can be had: over TLS, or by another nats-py than was expected. Raises Unreachable.
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
                taken = await client.taken()
        except (NatsError, OSError, ImportError, ValueError, AttributeError) as error:
            raise Unreachable(self.url, str(error) or repr(error)) from error
        finally:
            await client.drop()
        if taken is None:
            return None
        taken.settimeout(timeout_s)  # and not by SO_RCVTIMEO, which each signal begins again
        return taken, inbox

    # ------------------------------------------------------------ connecting

    async def _subscribe(
        self, subject: str, handle: Callable[[str, str, bytes, bytes], None], queue: str = ""
    ) -> Subscription:
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
                holds = await self._stands(self._refused, until_s - loop.time())
        finally:
            self._refused = None
        self._last_error = "no answer"  # what hindered the tries before says nothing of what comes
        self._up.set()

    async def _stands(self, refused: asyncio.Future[BusError], timeout_s: float) -> bool:
        """Whether a new client still stands once it is let in: before nats-server 2.15 reloads
        logins it ends some that it has just let in. Raises what no further try would mend.
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
            if not nc.is_closed:  # without a word
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
        denied = _DENIED.search(text)
        if denied is not None:
            for receiver in list(self._receivers.values()):
                if isinstance(receiver, Reply) and receiver.subject.lower() == denied.group(1):
                    receiver.lost(BrokerError(f"sending to {receiver.subject!r}", 403, text))
        # Ten attempts a second tell the same; who closes it needs to know no more; and what
        # hinders a connect is raised, unless the next attempt succeeds.
        if self._last_error != before and not self._closing:
            quiet = isinstance(error, OSError) or self._refused is not None
            log = _log.debug if quiet else _log.warning
            log("broker connection", error=self._last_error, url=self.url)

    def _refusal(self, error: Exception) -> BusError | None:
        """What a connect is to raise, since no further attempt ends otherwise."""
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
            return  # it was given up for another
        if not self._closing:
            self._up.clear()
        self._fail("the connection broke")
        self._have_healed()

    def _have_healed(self) -> None:
        """Have the embedded server looked after for as long as there is no connection."""
        host = self.options.host
        done = self._healing is None or self._healing.done()
        if host is not None and done and not self._closing:
            self._healing = own_task(self._heal(host))

    async def _heal(self, host: Host) -> None:
        """While there is no connection: have the embedded server kept running, and follow it where
        it had to take another port.
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
                        await self._nc.close()  # another is opened: see `_on_closed`

    async def _on_reconnected(self, nc: Client) -> None:
        if nc is not self._nc or self._refused is not None:
            return  # it was given up for another, or is not yet what is to stand
        self._up.set()
        self.hindered = False
        for call in list(self._reconnects):
            call()

    async def _on_closed(self, nc: Client) -> None:
        """nats-py gives up for good on some errors (too large, an expired login): open another."""
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
