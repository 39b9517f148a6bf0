"""Direct Get (ADR-31): reading stored messages by name, position or time, many in one request.

Long because its requests and the positions that they must reach are one concept.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from hansard.bus import subjects
from hansard.bus.errors import (
    BrokerError,
    BusError,
    NotWritable,
    ReplicaBehind,
    StoreGone,
    Unreachable,
)
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.wire import (
    HEADER_LINE,
    Ack,
    NoAnswer,
    NoResponders,
    TooMany,
    acknowledged,
    header,
    status,
    stored,
)
from hansard.bus.log import rfc3339
from hansard.bus.loggers import logger
from hansard.bus.sources import Message
from hansard.domain.errors import Corrupt

# JetStream requests over a connection: publish, publish all or none, administer.

# A client's knowledge of each stream, to decide whether an answer is complete.
#
# Any replica of a stream answers a Direct Get, also one that lags behind acknowledged messages,
# and no request can exclude that: nats-server ignores `min_last_seq`. But the end of an answer to
# `multi_last` states the position of the replica that sent it, which is compared with the position
# that the read must reach. Since an empty answer has no such end, each request includes one message
# that always exists, the marker.

REPLICAS_KNOWN_S = 1.5
"""Time for which a cluster's stream is assumed to still have one replica, in seconds. A new replica
answers no Direct Get in its first 2 s (nats-server's `startDirectAccessMonitoring`).
"""

LEASE_S = 3.0
"""Longest time since a leader that is trusted at once heard from each replica, in seconds. None of
them tries to lead within 4 s of that (nats-server's `minElectionTimeout`).
"""

QUORUM_POLL_S = 0.05
"""Pause before a leader that does not hear from each replica is queried again, in seconds. Replicas
answer it at least once a second.
"""

LAG_MAX = 1_000
"""Messages that a replica may be behind its leader when a roll begins; it catches up in less than
a second.
"""

MARKER_BYTES_MAX = 1024
"""A marker larger than this, in bytes, is replaced by the next smaller message, since every answer
includes it.
"""

CLAIMED_MAX = 1_024
"""At least this many acknowledged positions of each stream are remembered, and at most twice as
many: more than are ever in flight.
"""

_NS = 1_000_000_000


class Known(msgspec.Struct):
    """The state of one stream as known to this client.

    `position` is the newest that was acknowledged to this client, read by it, or reported by the
    stream's leader. `marker` is the subject of a message that exists as long as the stream.
    `alone`: its server is no cluster, so its answers are complete. `may_go`: it is a generation of
    a log, which is deleted once it is archived: a missing responder is reported at once. `sealed`:
    it takes no message any more. `domain`: the JetStream domain of its server, empty without one.
    `requested_s` is when `replicas` and `alone` were requested, by the monotonic clock. `note` and
    `reach` may be called from any
    thread, the rest from the loop's.
    """

    position: int = 0
    marker: str = ""
    marker_bytes: int = 0
    replicas: int = 1
    alone: bool = False
    requested_s: float = float("-inf")
    lock: Any = msgspec.field(default_factory=threading.Lock)
    may_go: bool = False
    sealed: bool = False
    domain: str | None = None
    claimed: set[int] = msgspec.field(default_factory=set)
    claimed_before: set[int] = msgspec.field(default_factory=set)

    @property
    def is_fresh(self) -> bool:
        """True if the number of replicas need not be requested again."""
        return self.alone or time.monotonic() - self.requested_s < REPLICAS_KNOWN_S

    def note(self, *messages: Message) -> None:
        """Note messages that were read."""
        for message in messages:
            self.reach(message.position, message.subject, len(message.body))

    def claim(self, position: int) -> None:
        """Claim a position for the publish that it acknowledges, and note that the stream reached
        it. Raises NoAnswer if another publish of this client claimed it: the acknowledgement is a
        repetition.
        """
        with self.lock:
            if position in self.claimed or position in self.claimed_before:
                raise NoAnswer(f"position {position} was acknowledged to another publish")
            if len(self.claimed) == CLAIMED_MAX:
                self.claimed_before, self.claimed = self.claimed, set()
            self.claimed.add(position)
            self.position = max(self.position, position)

    def reach(self, position: int, subject: str = "", size: int = 0) -> None:
        """Note that the stream reached a position, with a message of so many bytes. It never goes
        back, since a thread that sends its own commits could otherwise undo a newer note of the
        loop.
        """
        with self.lock:
            self.position = max(self.position, position)
            if subject and (not self.marker or size < self.marker_bytes > MARKER_BYTES_MAX):
                self.marker, self.marker_bytes = subject, size

    def learn(self, info: dict[str, Any]) -> None:
        """Take in an answer to STREAM.INFO: the number of replicas and the cluster."""
        self.replicas = replicas_of(info)
        self.sealed = bool(info["config"].get("sealed"))
        self.domain = str(info.get("domain", ""))
        self.alone = not _cluster(info).get("name")
        self.requested_s = time.monotonic()


class Streams:
    """The known state of one client's streams, over all its connections."""

    def __init__(self) -> None:
        self._by_name: dict[str, Known] = {}

    def of(self, stream: str) -> Known:
        """Return the known state of a stream."""
        known = self._by_name.get(stream)
        return known if known is not None else self._by_name.setdefault(stream, Known())

    def forget(self) -> None:
        """Request the numbers of replicas again: a new connection may lead to another kind of
        server.
        """
        for known in [*self._by_name.values()]:
            known.alone, known.requested_s = False, float("-inf")


def replicas_of(info: dict[str, Any]) -> int:
    """Return a stream's number of replicas, from an answer to STREAM.INFO."""
    return max(1, int(info["config"].get("num_replicas", 1)))


def leader_of(info: dict[str, Any]) -> str:
    """Return the server that leads a stream; empty if none does, or if it is no cluster."""
    cluster = _cluster(info)
    return str(cluster.get("leader") or "") if cluster.get("name") else ""


def late_of(info: dict[str, Any]) -> list[str]:
    """Return a stream's servers that its leader does not hear from, or that lag behind it."""
    return [
        str(peer.get("name"))
        for peer in _peers(info)
        if peer.get("offline") or not peer.get("current")
    ]


def silent_of(info: dict[str, Any], since_s: float) -> list[str]:
    """Return a stream's servers that its leader has not heard from for `since_s` seconds, or that
    are far behind it; it hears from each every second.
    """
    return [
        str(peer.get("name"))
        for peer in _peers(info)
        if peer.get("offline")
        or int(peer.get("active", 0)) > since_s * _NS
        or int(peer.get("lag", 0)) > LAG_MAX
    ]


def is_authoritative(info: dict[str, Any], since_s: float = 0.0) -> bool:
    """Return whether an answer to STREAM.INFO is from the stream's leader: it heard from each
    replica recently, or from a quorum in the last `since_s` seconds, when the read began.

    A replica that it does not reach may lead the stream, by the vote of one that it does reach.
    While there is no leader, any replica answers, with its own state.
    """
    replicas = replicas_of(info)
    if replicas <= 1 or not _cluster(info).get("name"):
        return True
    if not leader_of(info):
        return False
    if info["config"].get("sealed"):
        since_s = LEASE_S  # a successor has the same messages
    heard_s = [int(peer.get("active", 0)) / _NS for peer in _peers(info)]
    recent = sum(0 < each <= LEASE_S for each in heard_s)
    since = sum(0 < each < since_s for each in heard_s)
    return recent + 1 >= max(replicas, len(heard_s) + 1) or since + 1 > replicas // 2


def described(info: dict[str, Any]) -> str:
    """Describe a stream's replicas for people: leader, lags, and when each was last heard from."""
    leader = leader_of(info)
    items = [f"{leader} leads" if leader else "no leader"]
    for peer in _peers(info):
        state = "offline" if peer.get("offline") else "current" if peer.get("current") else "late"
        lag = f", {peer['lag']:,} behind" if peer.get("lag") else ""
        items.append(f"{peer.get('name')} is {state}{lag}")
    return "; ".join(items)


def _cluster(info: dict[str, Any]) -> dict[str, Any]:
    cluster: dict[str, Any] = info.get("cluster") or {}
    return cluster


def _peers(info: dict[str, Any]) -> list[dict[str, Any]]:
    peers: list[dict[str, Any]] = _cluster(info).get("replicas") or []
    return peers


# Retries of one write: after unexplained failures, and while a disk refuses writes.

RESEND_PAUSE_S = 0.02

OBSTACLE_POLL_S = 0.1
"""Pause between two checks whether the embedded server is still obstructed, in seconds."""

_log = logger(__name__)


class RetryBudget:
    """Bounds the retries of one write: `append_timeout_s` in all, plus `disk_wait_s` while the
    embedded server's disk is known to refuse writes.
    """

    def __init__(self, broker: Broker, began: float | None = None) -> None:
        """`began` is the time of the first attempt (time.monotonic), by default now."""
        self._broker = broker
        self._began = time.monotonic() if began is None else began
        self._hindered_s = 0.0

    @property
    def waited_s(self) -> float:
        """Time since the first attempt, in seconds."""
        return time.monotonic() - self._began

    async def again(self, error: Exception) -> None:
        """Return when it is time to try again. Raises Unreachable, NotWritable, StoreGone once the
        time is up.
        """
        options = self._broker.options
        await self._hindered()
        left = options.append_timeout_s - (self.waited_s - self._hindered_s)
        if left <= 0:
            raise Unreachable(self._broker.url, str(error))
        await asyncio.sleep(min(RESEND_PAUSE_S, left))
        await self._broker.ready(left)

    async def _hindered(self) -> None:
        """Wait while the embedded server is obstructed; only briefly if just its disk is, since it
        may still accept small writes. Raises NotWritable, StoreGone.
        """
        host = self._broker.options.host
        if host is None:
            return
        since = time.monotonic()
        obstacle = host.obstacle() or host.look()
        try:
            while obstacle is not None:
                left = self._broker.options.disk_wait_s - self._hindered_s
                left -= time.monotonic() - since
                if isinstance(obstacle, StoreGone) or left <= 0:
                    raise obstacle
                self._log_wait(obstacle, left)
                await asyncio.sleep(OBSTACLE_POLL_S)
                obstacle = host.obstacle()
        finally:
            self._hindered_s += time.monotonic() - since

    def _log_wait(self, obstacle: NotWritable, left_s: float) -> None:
        """Log once for all waiting writes, until the next connection."""
        if not self._broker.hindered:
            self._broker.hindered = True
            text = f"{obstacle}; waiting for at most {left_s:.0f} s"
            _log.warning(text)  # no fields: without a log setup they are not shown


BATCH_MESSAGES_MAX = 1_000
"""The server's limit for an atomic batch (its error 10199)."""

JETSTREAM_OFF = 503
"""No responders: JetStream is off for this account, or not started yet."""

STREAM_NOT_FOUND = 10059
LEADERLESS = frozenset({10008, 10118})
"""Errors of a cluster without a leader, or of a stream whose servers are all offline; retried
within the timeout.
"""

RELOAD_S = 1.0
"""Longest time without an answer while a server reloads its configuration, in seconds (on each
restricted login added or revoked; milliseconds on an idle machine), and in which a connection may
be lost right after connecting (a server that restarts).
"""

RELOAD_POLL_S = 0.02

Outgoing = tuple[str, bytes, bytes]
"""Subject, body, headers."""


async def publish(
    broker: Broker, subject: str, payload: bytes, headers: bytes, known: Known, waits: int = 1
) -> Ack:
    """Publish to the stream that `known` describes, and wait for `waits` times the broker's request
    timeout. Raises Rejected (nothing stored), NoAnswer (unknown), NoResponders.
    """
    above = known.position
    wait_s = waits * broker.options.request_timeout_s
    _, answer = await broker.request(subject, payload, headers, wait_s)
    ack = acknowledged(answer, above, known.domain)
    known.claim(ack.seq)
    return ack


async def publish_all(broker: Broker, messages: list[Outgoing], known: Known) -> int:
    """Publish 1 to 1,000 messages, all or none; return the sequence of the first.

    The others follow without a gap. Each call is a batch of its own with a random id, because a
    client that knows the id could end the batch. About 4 ms whatever the size. Raises as `publish`.
    """
    batch = uuid4().hex
    place = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: " % batch.encode()
    rest = len(HEADER_LINE)
    before = [
        (subject, payload, "", b"%b%d\r\n%b" % (place, number, headers[rest:]))
        for number, (subject, payload, headers) in enumerate(messages[:-1], 1)
    ]
    if before:
        await broker.send_all(before)
    subject, payload, headers = messages[-1]
    end = b"%b%d\r\nNats-Batch-Commit: 1\r\n%b" % (place, len(messages), headers[rest:])
    ack = await publish(broker, subject, payload, end, known, waits=2)
    if ack.count != len(messages) or ack.batch != batch:
        raise NoAnswer(f"{ack.count} of {len(messages)} messages of a batch were acknowledged")
    return ack.seq - ack.count + 1


async def api(broker: Broker, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Call the JetStream API. The call must be repeatable: it reads, or creates what may exist.

    It is repeated after a lost connection, and while a cluster has no leader, within the timeout.
    Raises BrokerError (the API's error), NoAnswer, Unreachable.
    """
    payload = msgspec.json.encode(body) if body is not None else b""
    wait_s = broker.options.request_timeout_s
    until_s = time.monotonic() + RELOAD_S
    leader_until_s = time.monotonic() + wait_s
    while True:
        await broker.ready(wait_s)
        try:
            _, data = await broker.request(f"$JS.API.{subject}", payload, None, wait_s)
        except NoAnswer as error:
            if time.monotonic() < until_s:
                await asyncio.sleep(RELOAD_POLL_S)
            elif isinstance(error, NoResponders):
                raise BrokerError(f"$JS.API.{subject}", JETSTREAM_OFF, str(error)) from error
            else:
                raise
            continue
        answer: dict[str, Any] = msgspec.json.decode(data)
        refused = answer.get("error")
        if refused is None:
            return answer
        code = refused.get("err_code") or refused.get("code", 0)
        if code not in LEADERLESS or time.monotonic() >= leader_until_s:
            raise BrokerError(f"$JS.API.{subject}", code, refused.get("description", ""))
        await asyncio.sleep(RELOAD_POLL_S)


STREAM_PAGES_MAX = 1_000
"""Bound of the loop over the server's pages of 1,024 stream names."""


async def stream_names(broker: Broker) -> list[str]:
    """Return the names of all streams that this login sees. Raises as `api`."""
    names: list[str] = []
    for _ in range(STREAM_PAGES_MAX):
        page = await api(broker, "STREAM.NAMES", {"offset": len(names)})
        names += page.get("streams") or []
        if not page.get("streams") or len(names) >= page.get("total", 0):
            break
    return names


PAGE_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes that the server sends for one request: it pushes without flow control, and cuts a
connection with 64 MB waiting.
"""

PAGES_AT_ONCE_MAX = 4
"""Most requests in flight on one connection: together at most half of those 64 MB."""

NAMES_MAX = 1_000
"""Most names in one request; the server stops at 1,024 results, and a megabyte of request."""

READ_WAIT_S = 15.0
"""Longest time that a read is retried while a broker restarts, elects a leader (4 to 9 s), or its
replicas lag, in seconds.
"""

REPLICA_TRY_S = 1.0
"""Longest wait for a replica's first message before another replica is tried, in seconds; later a
quarter of the time waited so far, in case they are slow and not hung.
"""

BEHIND_PAUSE_S = 0.01
"""Pause before a read that was not answered, or not far enough, is repeated, in seconds."""

SUBJECT_PAGES_MAX = 1_000
"""Bound of the loop over STREAM.INFO's pages of 100,000 subjects."""

LOST = (
    "it ends at {last}, but {known} was read before: the broker lost acknowledged messages, or "
    "this is another log"
)

STATUS_END, STATUS_NONE, STATUS_TOO_MANY, STATUS_NO_RESPONDERS = 204, 404, 413, 503

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class _Page:
    """Collects one answer: messages until the end mark. `listed`: the server resolves the message
    list before it sends the first, so none of them may be missing.
    """

    __slots__ = ("done", "listed", "messages", "subject")

    def __init__(self, subject: str, done: asyncio.Future[bytes], *, listed: bool) -> None:
        self.subject = subject
        self.done = done
        self.listed = listed
        self.messages: list[Message] = []

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receiver
        if headers[8:9] == b" ":
            self._end(headers)
            return
        try:
            self.messages.append(stored(headers, data))
        except (Corrupt, ValueError) as error:
            self._fail(Corrupt(f"an answer to {self.subject!r}", str(error)))

    def lost(self, error: BusError) -> None:
        self._fail(error)

    def not_begun(self, error: BusError) -> None:
        """Fail if no message has arrived yet."""
        if not self.messages:
            self._fail(error)

    def _end(self, headers: bytes) -> None:
        code, text = status(headers)
        if code == STATUS_NONE and self.listed and "not found" in text.lower():
            fact = "the server lists a message that it cannot load: see 'hansard check'"
            self._fail(Corrupt(f"an answer to {self.subject!r}", fact))
        elif code in (STATUS_END, STATUS_NONE):
            if not self.done.done():
                self.done.set_result(headers)
        elif code == STATUS_NO_RESPONDERS:
            self._fail(NoResponders(self.subject))
        elif code == STATUS_TOO_MANY:
            self._fail(TooMany(f"more than 1,024 subjects in one {self.subject!r}"))
        else:
            self._fail(BrokerError(self.subject, code, text))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Direct:
    """Reads over a connection of their own: on the writer's, their answers would delay its acks.

    Every answer reaches the position `target`: it includes all matching messages up to it,
    whichever replica sent it. Without a target it reaches all that was acknowledged before: to this
    client, and on a stream with several replicas to any client, as its leader reports. A replica
    that lags is tried again until it has caught up, or another answers. Raises ReplicaBehind if
    none does in time.
    """

    def __init__(
        self,
        broker: Broker,
        known: Streams | None = None,
        *,
        gate: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`known` is shared by all connections of a client; `gate` is awaited before each read."""
        self.broker = broker
        self._gate = gate
        self.known = Streams() if known is None else known
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE_MAX)
        broker.on_reconnect(self.known.forget)

    # ------------------------------------------------------------ position to reach

    async def required(self, stream: str) -> int:
        """Return the position that a read of the newest state must reach. Queries the server only
        if the stream has, or may have, several replicas.
        """
        known = self.known.of(stream)
        if known.replicas > 1 or not known.is_fresh:
            await self.info(stream)
        return known.position

    async def info(self, stream: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return STREAM.INFO from the stream's leader, which has all acknowledged messages.

        Raises ReplicaBehind, Corrupt (there is one replica, and it lost acknowledged messages),
        BrokerError, Unreachable.
        """
        known = self.known.of(stream)
        began = time.monotonic()
        while True:
            floor, since_s = known.position, time.monotonic() - began
            info = await self.again(lambda: api(self.broker, f"STREAM.INFO.{stream}", body), stream)
            known.learn(info)
            last = int(info["state"]["last_seq"])
            if is_authoritative(info, since_s) and last >= floor:
                known.reach(last)
                return info
            if known.replicas <= 1:
                raise Corrupt(f"stream {stream!r}", LOST.format(last=last, known=floor))
            await self._pause(stream, floor, last, began, info)
            await asyncio.sleep(QUORUM_POLL_S)

    async def info_of(self, stream: str) -> dict[str, Any] | None:
        """Return STREAM.INFO as `info` does; None if there is no such stream."""
        try:
            return await self.info(stream)
        except BrokerError as error:
            if error.code == STREAM_NOT_FOUND:
                return None
            raise

    async def names(self, stream: str, pattern: str) -> tuple[list[str], int]:
        """Return all subjects that match, and the position up to which they are complete."""
        matching: list[str] = []
        head: int | None = None
        for _ in range(SUBJECT_PAGES_MAX):
            info = await self.info(stream, {"subjects_filter": pattern, "offset": len(matching)})
            if head is None:
                head = int(info["state"]["last_seq"])
            page = info["state"].get("subjects") or {}
            matching += page
            if not page or len(matching) >= info.get("total", 0):
                break
        return matching, head or 0

    # ------------------------------------------------------------ messages

    async def many(
        self, stream: str, filters: Sequence[str], target: int | None = None, *, start: int = 0
    ) -> list[Message]:
        """Return the newest message of each subject that matches, from position `start` on, by
        position, as one consistent read. Raises TooMany (over 1,023 subjects), Corrupt,
        ReplicaBehind, BrokerError, Unreachable.
        """
        known = self.known.of(stream)
        if known.alone:
            return (await self._whole(stream, filters, "", start))[0]
        if target is None:
            target = await self.required(stream)
        began = time.monotonic()
        while True:
            marker = known.marker if target and not known.alone else ""
            messages, reached = await self._whole(stream, filters, marker, start)
            if reached < target and not known.alone:
                target = await self._required_after(stream, target, reached, began)
            if reached >= target or known.alone:
                known.note(*messages[-1:])
                return messages

    async def named(
        self, stream: str, names: Sequence[str], target: int | None = None
    ) -> list[Message]:
        """Return the messages on these subjects, by position within each thousand names."""
        if target is None and names:
            target = await self.required(stream)
        messages: list[Message] = []
        for start in range(0, len(names), NAMES_MAX):
            messages += await self.many(stream, names[start : start + NAMES_MAX], target)
        return messages

    async def following(
        self, stream: str, first: int, count: int, target: int | None = None
    ) -> list[Message]:
        """Return at most so many messages from a position on, fewer if they are large."""
        if target is None:
            target = await self.required(stream)
        known = self.known.of(stream)
        began = time.monotonic()
        while True:
            messages, end = await self._page(stream, {"seq": first, "batch": count})
            reached = messages[-1].position if messages else first - 1
            cut = len(messages) >= count or int(header(end, b"Nats-Num-Pending") or 0) > 0
            if not cut and reached < target and not known.alone:
                target = await self._required_after(stream, target, reached, began)
            if cut or reached >= target or known.alone:
                known.note(*messages[-1:])
                return messages

    async def matching(
        self, stream: str, pattern: str, first: int, count: int
    ) -> tuple[list[Message], bool]:
        """Return at most so many messages that match, from a position on, as one replica has them,
        and whether these are all of them: fewer are sent if they are large.
        """
        request = {"seq": first, "batch": count, "next_by_subj": pattern}
        messages, end = await self._page(stream, request)
        return messages, not int(header(end, b"Nats-Num-Pending") or 0)

    async def last(self, stream: str, subject: str, target: int | None = None) -> Message | None:
        """Return the newest message on a subject, wildcards allowed. About 0.2 ms; twice that with
        several replicas, since one message alone does not show how far its replica is.
        """
        known = self.known.of(stream)
        if known.alone:
            return await self._single(stream, f"$JS.API.DIRECT.GET.{stream}.{subject}", b"")
        if target is None:
            target = await self.required(stream)
        elif not known.is_fresh:
            await self.info(stream)
        message = await self._single(stream, f"$JS.API.DIRECT.GET.{stream}.{subject}", b"")
        if message is not None:
            known.note(message)
        if known.replicas <= 1 or (message is not None and message.position >= target):
            return message
        if message is not None and subjects.is_name(subject):
            return message  # a subject without wildcards is written once
        after = message.position if message is not None else 0
        try:
            later = await self.many(stream, [subject], target, start=after + 1)
        except TooMany:
            names, _ = await self.names(stream, subject)
            later = await self.named(stream, [max(names, key=_number)], target)
        return max(later, key=_position) if later else message

    async def at(self, stream: str, position: int) -> Message | None:
        """Return the message at a position."""
        began = time.monotonic()
        subject, body = f"$JS.API.DIRECT.GET.{stream}", _encode({"seq": position})
        message = await self._single(stream, subject, body)
        known = self.known.of(stream)
        while message is None and not known.alone:
            info = await self.info(stream)
            if position > int(info["state"]["last_seq"]) or self.known.of(stream).alone:
                break
            messages, _ = await self._page(stream, {"seq": position, "batch": 1})
            if messages:  # the first one from that position on
                return messages[0] if messages[0].position == position else None
            await self._pause(stream, position, 0, began, info)
        if message is not None:
            known.note(message)
        return message

    async def since(self, stream: str, stamp: int, head: int) -> Message | None:
        """Return the first message after a time (ns since 1970, UTC), up to position `head`."""
        subject, body = f"$JS.API.DIRECT.GET.{stream}", _encode({"start_time": rfc3339(stamp + 1)})
        began = time.monotonic()
        while True:
            message = await self._single(stream, subject, body)
            if message is not None or self.known.of(stream).alone or not head:
                return message
            newest = await self.at(stream, head)
            if newest is None or newest.stamp <= stamp:
                return None
            await self._pause(stream, head, 0, began, await self.info(stream))

    async def _whole(
        self, stream: str, filters: Sequence[str], marker: str, start: int
    ) -> tuple[list[Message], int]:
        """Return all pages of one answer, and the position that it reaches; 0 if unknown."""
        began = time.monotonic()
        if marker and any(subjects.matches(each, marker) for each in filters):
            marker = ""
        question: dict[str, Any] = {"multi_last": [*filters, marker] if marker else list(filters)}
        if start:
            question["seq"] = start
        messages, end = await self._page(stream, question)
        reached = int(header(end, b"Nats-UpTo-Sequence") or 0)
        pending = int(header(end, b"Nats-Num-Pending") or 0)
        while pending:
            question |= {"seq": int(header(end, b"Nats-Last-Sequence")) + 1, "up_to_seq": reached}
            page, page_end = await self._page(stream, question)
            left = int(header(page_end, b"Nats-Num-Pending") or 0)
            if len(page) + left != pending:  # from another replica, which lags
                if self.known.of(stream).alone:
                    fact = f"{pending} more promised, {len(page)} sent, {left} left"
                    raise BrokerError(f"reading {stream!r}", 0, fact)
                await self._pause(stream, reached, 0, began, await self.info(stream))
                continue
            messages, end, pending = messages + page, page_end, left
        if marker:
            messages = [message for message in messages if message.subject != marker]
        return messages, reached

    async def _required_after(self, stream: str, target: int, reached: int, began: float) -> int:
        """Return the position that an insufficient answer must reach, at most the stream's last. If
        the answer does not reach that either, pause before the retry.
        """
        info = await self.info(stream)
        state = info["state"]
        target = min(target, int(state["last_seq"])) if state["messages"] else 0
        if reached < target and not self.known.of(stream).alone:
            if not reached:
                await self._find_marker(stream, int(state["first_seq"]))
            await self._pause(stream, target, reached, began, info)
        return target

    async def _find_marker(self, stream: str, position: int) -> None:
        """Use the stream's first message as its marker, as read from its leader."""
        try:
            answer = await api(self.broker, f"STREAM.MSG.GET.{stream}", {"seq": position})
        except (BrokerError, NoAnswer, Unreachable):
            return  # retried when it is needed again
        known = self.known.of(stream)
        known.marker = str(answer["message"]["subject"])
        known.marker_bytes = len(answer["message"].get("data", ""))

    async def _pause(
        self, stream: str, target: int, reached: int, began: float, info: dict[str, Any]
    ) -> None:
        """Pause before a retry. Raises ReplicaBehind once the retries have taken too long."""
        waited_s = time.monotonic() - began
        if waited_s >= READ_WAIT_S:
            leaders = described(info)
            raise ReplicaBehind(self.broker.url, stream, target, reached, waited_s, leaders)
        await asyncio.sleep(BEHIND_PAUSE_S)

    async def _single(self, stream: str, subject: str, body: bytes) -> Message | None:
        began = time.monotonic()

        async def once() -> tuple[bytes, bytes]:
            return await self.broker.request(subject, body, timeout_s=self._try_s(stream, began))

        headers, data = await self.again(once, stream)
        code, text = status(headers)
        if code == STATUS_NONE:
            return None
        if code:
            raise BrokerError(subject, code, text)
        return stored(headers, data)

    async def _page(self, stream: str, request: dict[str, Any]) -> tuple[list[Message], bytes]:
        subject = f"$JS.API.DIRECT.GET.{stream}"
        body = _encode({**request, "max_bytes": PAGE_BYTES_MAX})
        whole_s = self.broker.options.request_timeout_s

        async def once() -> tuple[list[Message], bytes]:
            loop = asyncio.get_running_loop()
            page = _Page(subject, loop.create_future(), listed="multi_last" in request)
            inbox = self.broker.expect(page)
            late = NoAnswer(f"no end of the answer to {subject!r} in time")
            timers = [loop.call_later(whole_s, page.lost, late)]
            if (try_s := self._try_s(stream, began)) < whole_s:
                timers.append(loop.call_later(try_s, page.not_begun, late))
            try:
                await self.broker.send(subject, body, inbox)
                end = await page.done
            finally:
                for timer in timers:
                    timer.cancel()
                self.broker.forget(inbox)
            return page.messages, end

        async with self._turns:
            began = time.monotonic()
            return await self.again(once, stream)

    def _try_s(self, stream: str, began: float) -> float:
        """Return how long to wait for the first message of an answer requested since `began`, in
        seconds: of several replicas one may hang while another answers.
        """
        try_s = self.broker.options.request_timeout_s
        if self.known.of(stream).replicas > 1:
            try_s = min(try_s, max(REPLICA_TRY_S, (time.monotonic() - began) / 4))
        return try_s

    async def again(self, ask: Callable[[], Awaitable[T]], stream: str) -> T:
        """Repeat a request while the broker gives no answer: a read may be repeated. Raises
        NoResponders at once if the stream may have been deleted.
        """
        until = time.monotonic() + READ_WAIT_S
        while True:
            try:
                await self.broker.ready(max(0.0, until - time.monotonic()))
                if self._gate is not None:
                    await self._gate()
                return await ask()
            except BrokerError as error:
                if error.code not in LEADERLESS or time.monotonic() >= until:
                    raise
            except NoAnswer as error:
                if isinstance(error, NoResponders) and self.known.of(stream).may_go:
                    raise
                if time.monotonic() >= until:
                    raise Unreachable(self.broker.url, str(error)) from error
            await asyncio.sleep(BEHIND_PAUSE_S)


def _number(subject: str) -> int:
    """Return the number at the end of a subject; -1 if it is no number."""
    token = subject.rpartition(".")[2]
    return int(token) if token.isascii() and token.isdigit() else -1


def _position(message: Message) -> int:
    return message.position
