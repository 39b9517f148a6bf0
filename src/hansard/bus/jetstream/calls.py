"""JetStream requests over a connection: publish, publish all or none, administer."""

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
"""Longest time since a trusted leader heard from a quorum, in seconds. No other is
elected within 4 s of that (nats-server's `minElectionTimeout`), so a leader that was paused and
does not know of its successor is not trusted.
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
    `alone`: its server is no cluster, so its answers are complete. `requested_s` is when `replicas`
    and `alone` were requested, by the monotonic clock. `note` and `reach` may be called from any
    thread, the rest from the loop's.
    """

    position: int = 0
    marker: str = ""
    marker_bytes: int = 0
    replicas: int = 1
    alone: bool = False
    requested_s: float = float("-inf")
    lock: Any = msgspec.field(default_factory=threading.Lock)
    claimed: set[int] = msgspec.field(default_factory=set)
    claimed_before: set[int] = msgspec.field(default_factory=set)

    @property
    def is_fresh(self) -> bool:
        """True if the number of replicas need not be requested again."""
        return self.alone or time.monotonic() - self.requested_s < REPLICAS_KNOWN_S

    def note(self, position: int, subject: str, size: int) -> None:
        """Note a message of so many bytes at a position."""
        self.reach(position)
        with self.lock:
            if not self.marker or size < self.marker_bytes > MARKER_BYTES_MAX:
                self.marker, self.marker_bytes = subject, size

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

    def reach(self, position: int) -> None:
        """Note that the stream reached a position. It never goes back, since a thread that sends
        its own commits could otherwise undo a newer note of the loop.
        """
        with self.lock:
            self.position = max(self.position, position)

    def learn(self, info: dict[str, Any]) -> None:
        """Take in an answer to STREAM.INFO: the number of replicas and the cluster."""
        self.replicas = replicas_of(info)
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


def is_authoritative(info: dict[str, Any]) -> bool:
    """Return whether an answer to STREAM.INFO is from the stream's leader, which recently heard
    from a quorum.

    While there is no leader, any replica answers, with its own state.
    """
    replicas = replicas_of(info)
    if replicas <= 1 or not _cluster(info).get("name"):
        return True
    if not leader_of(info):
        return False
    heard = sum(0 < int(peer.get("active", 0)) <= LEASE_S * _NS for peer in _peers(info))
    return heard + 1 > replicas // 2


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
