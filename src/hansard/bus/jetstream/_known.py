"""What a client knows of each stream, to tell whether an answer holds all that it must.

Any replica of a stream answers a Direct Get, also one that lags behind what was acknowledged, and
no request can ask for better: nats-server ignores `min_last_seq`. But the end of an answer to
`multi_last` says up to which position the replica that gave it had come. So an answer is judged by
that, against the position that it must reach; and since an empty answer says nothing, one message
that is always there is asked for besides, the marker.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec

from hansard.bus.jetstream.wire import NoAnswer

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
    told = [f"{leader} leads" if leader else "nobody leads"]
    for peer in _peers(info):
        state = "offline" if peer.get("offline") else "current" if peer.get("current") else "late"
        lag = f", {peer['lag']:,} behind" if peer.get("lag") else ""
        told.append(f"{peer.get('name')} is {state}{lag}")
    return "; ".join(told)


def _cluster(info: dict[str, Any]) -> dict[str, Any]:
    cluster: dict[str, Any] = info.get("cluster") or {}
    return cluster


def _peers(info: dict[str, Any]) -> list[dict[str, Any]]:
    peers: list[dict[str, Any]] = _cluster(info).get("replicas") or []
    return peers
