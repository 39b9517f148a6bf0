"""What is asked of JetStream over a connection: publish, publish all or none, administer."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from uuid import uuid4

import msgspec

from hansard.bus.errors import BrokerError, NotWritable, StoreGone, Unreachable
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.wire import HEADER_LINE, Ack, NoAnswer, NoResponders, acknowledged
from hansard.bus.loggers import logger

# What a client knows of each stream, to tell whether an answer holds all that it must.
#
# Any replica of a stream answers a Direct Get, also one that lags behind what was acknowledged,
# and no request can ask for better: nats-server ignores `min_last_seq`. But the end of an answer
# to `multi_last` says up to which position the replica that gave it had come. So an answer is
# judged by that, against the position that it must reach; and since an empty answer says nothing,
# one message that is always there is asked for besides, the marker.

REPLICAS_KNOWN_S = 1.5
"""How long it is taken for granted that a stream of a cluster still has one replica. A new replica
answers no Direct Get in its first 2 s (nats-server's `startDirectAccessMonitoring`)."""

LEASE_S = 3.0
"""How long ago a leader may have heard of a quorum to be believed. Nobody else is elected within
4 s of that (nats-server's `minElectionTimeout`). So a leader that was stopped, and goes on without
knowing of its successor, is not believed."""

MARKER_BYTES_MAX = 1024
"""A marker larger than this is given up for the next smaller message: it is sent every time."""

CLAIMED_MAX = 1_024
"""At least so many acknowledged positions of each stream are remembered, and at most twice as many:
more than are ever in flight."""

_NS = 1_000_000_000


class Known(msgspec.Struct):
    """What is known of one stream.

    `position` is the newest that was acknowledged to this client, read by it, or told to it by the
    stream's leader. `marker` is the subject of a message that is there as long as the stream.
    `alone`: its server is no cluster, so what it answers is all there is. `asked_s` is when
    `replicas` and `alone` were asked for, by the monotonic clock. `note` and `reach` are for any
    thread, the rest for the loop's.
    """

    position: int = 0
    marker: str = ""
    marker_bytes: int = 0
    replicas: int = 1
    alone: bool = False
    asked_s: float = float("-inf")
    lock: Any = msgspec.field(default_factory=threading.Lock)
    claimed: set[int] = msgspec.field(default_factory=set)
    claimed_before: set[int] = msgspec.field(default_factory=set)

    @property
    def is_fresh(self) -> bool:
        """Whether the number of replicas need not be asked for again."""
        return self.alone or time.monotonic() - self.asked_s < REPLICAS_KNOWN_S

    def note(self, position: int, subject: str, size: int) -> None:
        """Take in that a message of so many bytes stands at a position."""
        self.reach(position)
        with self.lock:
            if not self.marker or size < self.marker_bytes > MARKER_BYTES_MAX:
                self.marker, self.marker_bytes = subject, size

    def claim(self, position: int) -> None:
        """Take a position for the publish that it acknowledges: the stream has come to it. Raises
        NoAnswer if another publish of this client had it: the acknowledgement is a repetition.
        """
        with self.lock:
            if position in self.claimed or position in self.claimed_before:
                raise NoAnswer(f"position {position} was acknowledged to another publish")
            if len(self.claimed) == CLAIMED_MAX:
                self.claimed_before, self.claimed = self.claimed, set()
            self.claimed.add(position)
            self.position = max(self.position, position)

    def reach(self, position: int) -> None:
        """Take in that the stream has come to a position. It never goes back: a thread that sends
        its own commits would undo what the loop took in meanwhile.
        """
        with self.lock:
            self.position = max(self.position, position)

    def learn(self, info: dict[str, Any]) -> None:
        """Take in an answer to STREAM.INFO: how many replicas there are, in what cluster."""
        self.replicas = replicas_of(info)
        self.alone = not _cluster(info).get("name")
        self.asked_s = time.monotonic()


class Streams:
    """What is known of the streams of one client, over all its connections."""

    def __init__(self) -> None:
        self._by_name: dict[str, Known] = {}

    def of(self, stream: str) -> Known:
        """What is known of a stream."""
        known = self._by_name.get(stream)
        return known if known is not None else self._by_name.setdefault(stream, Known())

    def forget(self) -> None:
        """Have it asked for again how many replicas there are: there is another connection, perhaps
        to another kind of server.
        """
        for known in [*self._by_name.values()]:
            known.alone, known.asked_s = False, float("-inf")


def replicas_of(info: dict[str, Any]) -> int:
    """How many replicas a stream has, from an answer to STREAM.INFO."""
    return max(1, int(info["config"].get("num_replicas", 1)))


def leader_of(info: dict[str, Any]) -> str:
    """The server that leads a stream; empty where none does, or where it stands alone."""
    cluster = _cluster(info)
    return str(cluster.get("leader") or "") if cluster.get("name") else ""


def late_of(info: dict[str, Any]) -> list[str]:
    """The servers of a stream that its leader does not hear of, or that lag behind it."""
    return [
        str(peer.get("name"))
        for peer in _peers(info)
        if peer.get("offline") or not peer.get("current")
    ]


def is_authoritative(info: dict[str, Any]) -> bool:
    """Whether who answered STREAM.INFO leads the stream, and lately heard of a quorum.

    While nobody leads, any replica answers it, with its own state.
    """
    replicas = replicas_of(info)
    if replicas <= 1 or not _cluster(info).get("name"):
        return True
    if not leader_of(info):
        return False
    heard = sum(0 < int(peer.get("active", 0)) <= LEASE_S * _NS for peer in _peers(info))
    return heard + 1 > replicas // 2


def described(info: dict[str, Any]) -> str:
    """The replicas of a stream for people: who leads, who lags, who was heard of when."""
    leader = leader_of(info)
    items = [f"{leader} leads" if leader else "nobody leads"]
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


# How long one write is tried again: what nobody can explain, and a disk that takes nothing.

RESEND_PAUSE_S = 0.02

OBSTACLE_POLL_S = 0.1
"""Pause between two looks whether the embedded server is still hindered."""

_log = logger(__name__)


class Patience:
    """For one write: `append_timeout_s` in all, and `disk_wait_s` beside it while it is known that
    the disk of the embedded server takes nothing.
    """

    def __init__(self, broker: Broker, began: float | None = None) -> None:
        """`began` is when it was first tried (time.monotonic), if not now."""
        self._broker = broker
        self._began = time.monotonic() if began is None else began
        self._hindered_s = 0.0

    @property
    def waited_s(self) -> float:
        """How long it has been tried."""
        return time.monotonic() - self._began

    async def again(self, error: Exception) -> None:
        """Return when it is time to try again. Raises Unreachable, NotWritable, StoreGone when it
        is no longer.
        """
        options = self._broker.options
        await self._hindered()
        left = options.append_timeout_s - (self.waited_s - self._hindered_s)
        if left <= 0:
            raise Unreachable(self._broker.url, str(error))
        await asyncio.sleep(min(RESEND_PAUSE_S, left))
        await self._broker.ready(left)

    async def _hindered(self) -> None:
        """Wait while the embedded server is said to be hindered; a little where only its disk
        tells, since it may still take what is small. Raises NotWritable, StoreGone.
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
                self._tell(obstacle, left)
                await asyncio.sleep(OBSTACLE_POLL_S)
                obstacle = host.obstacle()
        finally:
            self._hindered_s += time.monotonic() - since

    def _tell(self, obstacle: NotWritable, left_s: float) -> None:
        """Once for all who wait, until there is a connection again."""
        if not self._broker.hindered:
            self._broker.hindered = True
            text = f"{obstacle}; waiting for at most {left_s:.0f} s"
            _log.warning(text)  # without fields: a program that sets up no log shows this alone


BATCH_MESSAGES_MAX = 1_000
"""The server's limit for an atomic batch (its error 10199)."""

JETSTREAM_OFF = 503
"""No responders: JetStream is off for this account, or not on yet."""

LEADERLESS = frozenset({10008, 10118})
"""Errors of a cluster that has no leader for the moment, or of a stream all of whose servers are
away: it may be back while an answer is waited for."""

RELOAD_S = 1.0
"""For so long nobody may answer while a server takes in another configuration (it does so whenever
a restricted login is added or revoked, within milliseconds on an idle machine), and a connection be
lost as soon as it was made (a server that is started again)."""

RELOAD_POLL_S = 0.02

Outgoing = tuple[str, bytes, bytes]
"""Subject, body, headers."""


async def publish(
    broker: Broker,
    subject: str,
    payload: bytes,
    headers: bytes,
    known: Known,
    waits: int = 1,
) -> Ack:
    """Publish to the stream that `known` describes, and wait for `waits` times the broker's request
    timeout. Raises Rejected (nothing stored), NoAnswer (unknown), NoResponders.
    """
    above = known.position
    wait_s = waits * broker.options.request_timeout_s
    _, answer = await broker.request(subject, payload, headers, wait_s)
    ack = acknowledged(answer, above)
    known.claim(ack.seq)
    return ack


async def publish_all(broker: Broker, messages: list[Outgoing], known: Known) -> int:
    """Publish 1 to 1,000 messages, all or none; returns the sequence of the first.

    The others follow without a gap. Each call is a batch of its own: the id is random, because
    whoever knows it could end the batch. About 4 ms whatever the size. Raises as `publish`.
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
    """A JetStream API call, one that may be made twice: it reads, or makes what may be there. Where
    the connection is lost meanwhile it is made again; a cluster without a leader is asked again for
    as long as an answer is waited for. Raises BrokerError (the API's error), NoAnswer, Unreachable.
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
