"""Reading a stream from a position on, by an ordered push consumer of our own.

The server pushes, numbers what it pushes, and waits if the reader is slow. Any disorder (a gap in
those numbers, a missing heartbeat, a reconnect) drops the consumer and creates a new one after the
last received message, so the reader sees no gap and no repeat. With several replicas any of them
may push, in their common order; one that lags only delays.

Without an end it reads forever, through any outage, which it logs. With one it ends once the server
holds nothing more up to there; if the server holds a message and does not deliver it, or does not
answer, it raises in bounded time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable
from typing import Any
from uuid import uuid4

from hansard.bus.errors import BrokerError, BusError, ReplicaBehind, Unreachable
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import (
    JETSTREAM_OFF,
    LEASE_S,
    LOST,
    READ_WAIT_S,
    api,
    described,
    is_authoritative,
    replicas_of,
)
from hansard.bus.jetstream.wire import NoAnswer, header, origin
from hansard.bus.log import Origin
from hansard.bus.loggers import logger
from hansard.bus.sources import Message
from hansard.domain.errors import Corrupt

CHUNK_MESSAGES_MAX = 256
"""Most messages passed on at once: about 2 ms of work, then other tasks run."""

HEARTBEAT_S = 1.0
HEARTBEATS_MISSED_MAX = 3
INACTIVE_S = 5.0
"""Time that the server keeps a consumer whose reader is gone, in seconds."""

RETRY_S = 0.25

IDLE_S = 0.25
"""Time without a message before a reader with an end checks for more, in seconds."""

RETRY_SEALED_S = 0.02
"""The same at the end of a sealed stream, which is final."""

END_CONFIRMATIONS = 4
"""Number of times in a row that the end must be confirmed with several replicas: a former leader
that does not know its successor may answer, but not for a second.
"""

DELIVERY_S_MAX = 20.0
"""Longest time that the server may take to deliver a message that it reports, in seconds: the
slowest disk reads a block of 8 MB in a second. Within it the consumer is recreated several times.
"""

NO_ANSWER_S_MAX = 60.0
"""Longest time without an answer for a reader with an end, in seconds: a broker's restart fits."""

LOG_AFTER_S = 10.0
"""After this many seconds a reader without an end logs that it waits for the broker."""
TRANSIENT = frozenset({JETSTREAM_OFF, 10005, 10008, 10023, 10039, 10076, 10118})
"""Errors of a server that starts, or of a cluster with servers offline: temporarily unavailable, no
place for a consumer, no resources, JetStream not (yet) on, the stream offline.
"""

NO_MESSAGE = 10037
"""There is no message at or after a sequence, or none that can be read."""

_NS = 1_000_000_000
_log = logger(__name__)


class Push:
    """One reader. `chunks()` may be iterated once; close it with `aclose()`.

    `position` is that of the newest received message, `pending` how many the server had after it.
    At most about 32 MB wait in memory (the server's largest flow control window): its flow control
    request is answered only when the reader has taken everything before it.
    """

    def __init__(
        self,
        broker: Broker,
        stream: str,
        subject: str,
        after: int,
        *,
        until: int | None = None,
        inbox_prefix: str = "",
    ) -> None:
        """`until` is the position where it may end."""
        self._broker = broker
        self._stream = stream
        self._filter = subject
        self.position = after
        self.pending = 0
        self._prefix = inbox_prefix or broker.options.inbox_prefix
        self._buffer: list[Message] = []
        self._flow_requests: list[str] = []  # flow control requests received with `_buffer`
        self._wake: asyncio.Future[None] | None = None
        self._broken: str | None = "new"
        self._error: Exception | None = None
        self._count = 0
        self._seen_s = 0.0
        self._generation = 0
        self._until = until
        self._end: int | None = None
        self._answered_s = 0.0
        self._is_logged = False
        self._undelivered: int | None = None
        self._undelivered_since_s = 0.0
        self._confirmations = 0
        self._short_s = 0.0

    def end_at(self, position: int) -> None:
        """End at the last position of the stream, which was sealed."""
        self._end = position
        self._until = position if self._until is None else min(self._until, position)
        self._notify()

    async def chunks(self) -> AsyncGenerator[list[Message], None]:
        """Yield lists of up to 256 messages, in order. Raises BrokerError, Corrupt; with an end
        also Unreachable.
        """
        loop = asyncio.get_running_loop()
        self._answered_s = loop.time()
        stop: Callable[[], Any] | None = None
        forget = self._broker.on_reconnect(lambda: self._break("the connection was made again"))
        watch = loop.create_task(self._watch())
        answer: list[str] = []
        try:
            while True:
                if not self._buffer:
                    answer += self._flow_requests
                    self._flow_requests = []
                for reply in answer:
                    await self._go_on(reply)
                answer = []
                if not self._buffer:
                    if self._error is not None:
                        raise self._error
                    if self._end is not None and self.position >= self._end:
                        return
                    if self._broken is not None:
                        if stop is not None:
                            await stop()
                        stop = await self._begin()
                        continue
                    self._wake = loop.create_future()
                    if self._until is None:
                        await self._wake
                    elif await self._is_exhausted(self._wake, self._until):
                        return
                    continue
                messages, self._buffer = self._buffer, []
                answer, self._flow_requests = self._flow_requests, []
                for start in range(0, len(messages), CHUNK_MESSAGES_MAX):
                    yield messages[start : start + CHUNK_MESSAGES_MAX]
                    await asyncio.sleep(0)
        finally:
            forget()
            watch.cancel()
            self._generation += 1
            if stop is not None:
                await stop()

    async def _begin(self) -> Callable[[], Any]:
        """Create a consumer after the last position, retrying until the broker is back."""
        while True:
            self._generation += 1
            inbox = f"{self._prefix}.{uuid4().hex}"
            receive = functools.partial(self._receive, self._generation)
            try:
                await self._broker.ready(HEARTBEAT_S)
                stop = await self._broker.listen(inbox, receive)
            except (NoAnswer, Unreachable) as error:
                self._tolerate(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._broken, self._count = None, 0
            self._seen_s = asyncio.get_running_loop().time()
            try:
                await self._create(inbox)
            except BusError as error:
                await stop()
                if not passes(error):
                    raise
                _log.debug("consumer not made", stream=self._stream, why=str(error))
                self._tolerate(error)
                await asyncio.sleep(RETRY_S)
                continue
            except BaseException:  # cancelled, or Corrupt: only this frame knows the subscription
                await stop()
                raise
            self._note_answer()
            return stop

    def _note_answer(self) -> None:
        self._answered_s = asyncio.get_running_loop().time()
        self._is_logged = False

    def _tolerate(self, error: BusError) -> None:
        """Tolerate a broker that does not answer for a while; without an end forever, with a log
        line. Raises Unreachable.
        """
        silent_s = asyncio.get_running_loop().time() - self._answered_s
        if self._until is not None and silent_s >= NO_ANSWER_S_MAX:
            why = f"no message for {silent_s:.0f} s, after position {self.position}: {error}"
            raise Unreachable(self._broker.url, why) from error
        if self._until is None and silent_s >= LOG_AFTER_S and not self._is_logged:
            self._is_logged = True
            _log.warning("waiting for the broker", stream=self._stream, why=str(error))

    async def _is_exhausted(self, wake: asyncio.Future[None], until: int) -> bool:
        """Wait briefly; return whether the server holds no more messages up to the end.

        A message not written yet may still arrive, so the caller that waits for one sets the bound.
        Raises Corrupt if the server does not deliver a message that it has (ReplicaBehind with
        several replicas), Unreachable.
        """
        await asyncio.wait({wake}, timeout=IDLE_S if self._end is None else RETRY_SEALED_S)
        if wake.done():
            return False
        try:
            info = await api(self._broker, f"STREAM.INFO.{self._stream}")
            if not is_authoritative(info, LEASE_S):
                raise NoAnswer(f"{self._stream!r} has no leader: {described(info)}")
            if info["state"]["last_seq"] < until:
                self._note_answer()
                return False
            undelivered = await self._next()
        except BusError as error:
            if not passes(error):
                raise
            self._tolerate(error)
            return False
        self._note_answer()
        if wake.done():
            return False
        several = replicas_of(info) > 1
        if undelivered is None or undelivered > until:
            self._confirmations += 1
            return self._confirmations >= (END_CONFIRMATIONS if several else 1)
        self._confirmations = 0
        now_s = asyncio.get_running_loop().time()
        if undelivered != self._undelivered:
            self._undelivered, self._undelivered_since_s = undelivered, now_s
        elif now_s - self._undelivered_since_s >= DELIVERY_S_MAX:
            if several:
                leaders, waited_s = described(info), now_s - self._undelivered_since_s
                raise ReplicaBehind(
                    self._broker.url, self._stream, undelivered, self.position, waited_s, leaders
                )
            fact = (
                f"position {undelivered} is there, but the server has not delivered it in "
                f"{DELIVERY_S_MAX:.0f} s: its log says why"
            )
            raise Corrupt(f"stream {self._stream!r}", fact)
        return False

    async def _next(self) -> int | None:
        """Return the next position that the stream holds for this reader; None if there is none."""
        question = {"seq": self.position + 1, "next_by_subj": self._filter}
        try:
            answer = await api(self._broker, f"STREAM.MSG.GET.{self._stream}", question)
        except BrokerError as error:
            if error.code == NO_MESSAGE:
                return None
            raise
        return int(answer["message"]["seq"])

    async def _create(self, inbox: str) -> None:
        if self.position > 0:
            info = await api(self._broker, f"STREAM.INFO.{self._stream}")
            last = info["state"]["last_seq"]
            if last < self.position:
                self._judge(info, last)
        name = uuid4().hex
        config = {
            "name": name,
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position + 1,
            "ack_policy": "none",
            "filter_subject": self._filter,
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * _NS),
            "inactive_threshold": int(INACTIVE_S * _NS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = {"stream_name": self._stream, "config": config, "action": "create"}
        await api(self._broker, f"CONSUMER.CREATE.{self._stream}.{name}.{self._filter}", body)

    def _judge(self, info: dict[str, Any], last: int) -> None:
        """Handle a stream that ends before what was read; with several replicas a lagging one may
        have answered, which is retried for a while. Raises NoAnswer, Corrupt.
        """
        now_s = asyncio.get_running_loop().time()
        self._short_s = self._short_s or now_s
        lags = replicas_of(info) > 1 and now_s - self._short_s < READ_WAIT_S
        if lags or not is_authoritative(info, LEASE_S):
            raise NoAnswer(f"the replica that answered for {self._stream!r} ends at {last}")
        raise Corrupt(f"stream {self._stream!r}", LOST.format(last=last, known=self.position))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if loop.time() - self._seen_s > HEARTBEATS_MISSED_MAX * HEARTBEAT_S:
                self._break("heartbeats are missing")

    async def _go_on(self, reply: str) -> None:
        try:
            await self._broker.send(reply, b"")
        except NoAnswer:
            self._break("the connection broke")

    def _receive(
        self, generation: int, subject: str, reply: str, headers: bytes, data: bytes
    ) -> None:
        """Receive a message inline; one of an older consumer is dropped."""
        if generation != self._generation:
            return
        try:
            self._take(reply, headers, subject, data)
        except (ValueError, IndexError) as error:
            self._error = Corrupt(f"a delivery on {subject!r}", f"{reply!r}: {error}")
            self._notify()

    def _take(self, reply: str, headers: bytes, subject: str, data: bytes) -> None:
        self._seen_s = asyncio.get_running_loop().time()
        if headers[8:9] == b" " and not data:
            self._control(reply, headers)
            return
        if self._broken is not None:
            return
        # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>,
        # or with a domain and an account hash before the stream and a token at the end.
        parts = reply.split(".")
        first = 4 if len(parts) == 9 else 6  # noqa: PLR2004 -- the two forms above
        self._count += 1
        if int(parts[first + 2]) != self._count:
            self._break("a message is missing")
            return
        position = int(parts[first + 1])
        if position <= self.position:  # from a replica that lags: received before
            return
        self.position = position
        self.pending = int(parts[first + 4])
        source: Origin | None = None
        fault: Corrupt | None = None
        try:
            source = origin(headers)
        except Corrupt as error:  # raised when it is decoded: a reader of raw messages continues
            fault = error
        stamp = int(parts[first + 3])
        self._buffer.append(Message(position, stamp, subject, data, source, fault))
        self._notify()

    def _control(self, reply: str, headers: bytes) -> None:
        if reply:  # flow control: answered when the reader has come this far
            self._flow_requests.append(reply)
        else:
            last = int(header(headers, b"Nats-Last-Consumer") or 0)
            if last > self._count and self._broken is None:
                self._break("messages are missing")
            stalled = header(headers, b"Nats-Consumer-Stalled").decode()
            if stalled and stalled not in self._flow_requests:
                self._flow_requests.append(stalled)
        if self._flow_requests and not self._buffer:
            self._notify()

    def _break(self, why: str) -> None:
        if self._broken is None:
            self._broken = why
            self._generation += 1
            _log.debug("consumer is made again", stream=self._stream, why=why)
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def passes(error: BusError) -> bool:
    """Return whether an error is of a broker that is offline or starting."""
    if isinstance(error, BrokerError):
        return error.code in TRANSIENT
    return isinstance(error, (NoAnswer, Unreachable))
