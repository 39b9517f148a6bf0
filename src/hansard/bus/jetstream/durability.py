"""How durable an outside server or cluster is, as far as it lets us see.

On a stream with several replicas an acknowledgement means that a quorum of its servers has the
commit in its Raft log; a server that syncs always does so there, and not in the stream's own file
(nats-server 2.15.1, traced: one fsync of the Raft log a commit on each of three servers, none of
the stream's blocks). So `strict` means that it is on the disks of a quorum.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.wire import NoAnswer

RELAXED_INTERVAL_NS_MAX = 1_000_000_000
"""A sync interval over one second is not `relaxed` but `unknown`: too much could be lost."""

ASK_S = 2.0
"""How long the servers of a cluster may take to say how they sync."""

_WEAKEST_FIRST = ("unknown", "relaxed", "strict")


async def outside_durability(system: BrokerOptions | None) -> str:
    """`strict` or `relaxed` where the system account tells, else `unknown`. Never a guess: of a
    cluster it is what the weakest server does of those that answer, who must be a quorum.
    """
    if system is None:
        return "unknown"
    try:
        broker = await Broker.open(system)
    except BusError:
        return "unknown"
    try:
        return await _asked(broker)
    except (BusError, NoAnswer, msgspec.DecodeError):
        return "unknown"
    finally:
        await broker.close()


class _Servers:
    """Takes each server's answer, and wakes who waits when all of a cluster have come."""

    def __init__(self) -> None:
        self.promises: dict[str, str] = {}
        self.quorum = 1
        self.all_came = asyncio.Event()

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receiver
        with contextlib.suppress(msgspec.DecodeError):
            told: dict[str, Any] = msgspec.json.decode(data)
            server, held = told.get("server") or {}, told.get("data") or {}
            if not server.get("jetstream", True) or not held.get("config"):
                return  # a server without JetStream stores nothing
            cluster = held.get("meta_cluster") or {}
            size = int(cluster.get("cluster_size", 1))
            self.quorum = max(self.quorum, size // 2 + 1)
            self.promises[str(server.get("id", ""))] = _promise(held["config"])
            if len(self.promises) >= size:
                self.all_came.set()

    def lost(self, error: BusError) -> None:  # noqa: ARG002 -- a Receiver
        self.all_came.set()


async def _asked(broker: Broker) -> str:
    servers = _Servers()
    inbox = broker.expect(servers)
    try:
        await broker.send("$SYS.REQ.SERVER.PING.JSZ", b'{"config":true}', inbox)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(servers.all_came.wait(), ASK_S)
    finally:
        broker.forget(inbox)
    if len(servers.promises) < servers.quorum:
        return "unknown"
    return min(servers.promises.values(), key=_WEAKEST_FIRST.index)


def _promise(config: dict[str, Any]) -> str:
    """What one server's settings promise."""
    if config.get("sync_always") is True:
        return "strict"
    interval = int(config.get("sync_interval", 0))
    return "relaxed" if 0 < interval <= RELAXED_INTERVAL_NS_MAX else "unknown"
