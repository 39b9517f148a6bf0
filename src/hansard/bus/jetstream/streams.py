"""The JetStream streams of a workspace: what they are, made once, never changed behind a back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, BusError, Contradiction
from hansard.bus.jetstream.calls import api
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.loggers import logger

# How durable an outside server or cluster is, as far as it lets us see.
#
# On a stream with several replicas an acknowledgement means that a quorum of its servers has the
# commit in its Raft log; a server that syncs always does so there, and not in the stream's own file
# (nats-server 2.15.1, traced: one fsync of the Raft log a commit on each of three servers, none of
# the stream's blocks). So `strict` means that it is on the disks of a quorum.

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
        return await _ask_servers(broker)
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
            fields: dict[str, Any] = msgspec.json.decode(data)
            server, held = fields.get("server") or {}, fields.get("data") or {}
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


async def _ask_servers(broker: Broker) -> str:
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


PAYLOAD_BYTES_MIN = 640 * 1024
"""What the server must take in one message: a blob's chunk of 512 KiB with its headers."""

STREAM_NOT_FOUND = 10059
NAME_IN_USE = 10058
"""Another process made it at the same time."""

TOO_FEW_SERVERS = frozenset({10005, 10074})
"""There are not as many servers as replicas are asked for, or they are no cluster."""

_log = logger(__name__)

_COMMON: dict[str, Any] = {
    "storage": "file",
    "retention": "limits",
    "compression": "none",  # a read of few messages becomes 15 times slower with it
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msg_size": -1,
    "max_msgs_per_subject": 1,
    "allow_direct": True,
    "mirror_direct": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "sealed": False,
}


def log_config(workspace: str) -> dict[str, Any]:
    """The log: one message a subject, the second refused by the server itself, nothing deleted."""
    everything = f"{subjects.workspace_prefix(workspace)}.>"
    return _COMMON | {
        "name": subjects.log_stream(workspace),
        "subjects": [everything],
        "discard": "new",
        "discard_new_per_subject": True,
        "deny_delete": True,
        "deny_purge": True,
        "allow_atomic": True,
        "republish": {"src": everything, "dest": subjects.live(everything)},
    }


def blob_config(workspace: str) -> dict[str, Any]:
    """Large payloads, by the hash of their bytes. A purge erases one; nothing is overwritten."""
    return _COMMON | {
        "name": subjects.blob_stream(workspace),
        "subjects": [f"hansard_blob.{workspace}.>"],
        "discard": "new",
        "discard_new_per_subject": True,
        "deny_delete": False,
        "deny_purge": False,
    }


def snapshot_config(workspace: str) -> dict[str, Any]:
    """Snapshots: derived, thrown away at will."""
    return _COMMON | {
        "name": subjects.snapshot_stream(workspace),
        "subjects": [f"hansard_snap.{workspace}.>"],
        "discard": "old",
        "discard_new_per_subject": False,
        "deny_delete": False,
        "deny_purge": False,
    }


async def present(broker: Broker, workspace: str, replicas: int | None = None) -> bool:
    """Whether all streams of a workspace exist; those with fewer replicas than asked for are told.

    Raises Contradiction for one that is not ours.
    """
    if broker.max_payload < PAYLOAD_BYTES_MIN:
        raise Contradiction(
            f"the server at {broker.url}",
            {"max_payload": (broker.max_payload, f"at least {PAYLOAD_BYTES_MIN}")},
        )
    configs = _configs(workspace)
    found = await asyncio.gather(*(config_of(broker, item["name"]) for item in configs))
    for item, existing in zip(configs, found, strict=True):
        if existing is None:
            return False
        compare(item, existing)
        has = existing.get("num_replicas", 1)
        if replicas is not None and has < replicas:
            _log.warning(fewer(item["name"], has, replicas))
    return True


def fewer(name: str, has: int, request: int) -> str:
    """What is told of a stream with fewer replicas than were asked for."""
    return (
        f"stream {name!r} has {has} of the {request} replicas asked for: raise it with "
        f"'nats stream update {name} --replicas={request}' as who may administer"
    )


async def ensure(broker: Broker, workspace: str, replicas: int | None = None) -> None:
    """Create what is missing of a workspace's streams, with so many replicas (None: as the server
    has it). Needs rights to administer.

    Raises Contradiction naming each setting that differs, BrokerError, NotWritable.
    """
    for item in _configs(workspace):
        if await config_of(broker, item["name"]) is None:
            await create(broker, item, replicas)
    if not await present(broker, workspace):
        raise BrokerError("creating the workspace's streams", 0, "one of them is missing again")


async def create(broker: Broker, config: dict[str, Any], replicas: int | None) -> None:
    """Create a stream, unless another process did meanwhile. Raises BrokerError."""
    question = config if replicas is None else config | {"num_replicas": replicas}
    try:
        await api(broker, f"STREAM.CREATE.{config['name']}", question)
    except BrokerError as error:
        if error.code in TOO_FEW_SERVERS and replicas is not None:
            doing = f"making stream {config['name']!r} with {replicas} replicas"
            remedy = "start as many servers, in one cluster, or ask for fewer replicas"
            raise BrokerError(doing, error.code, f"{error.description}: {remedy}") from error
        if error.code != NAME_IN_USE:
            raise _hindered(broker) or error from error


def _hindered(broker: Broker) -> BusError | None:
    """What hinders the embedded server, where that is what an error of its API comes of: it says
    only that a store could not be made.
    """
    host = broker.options.host
    return None if host is None else host.obstacle() or host.look()


def _configs(workspace: str) -> list[dict[str, Any]]:
    return [log_config(workspace), blob_config(workspace), snapshot_config(workspace)]


async def config_of(broker: Broker, name: str) -> dict[str, Any] | None:
    """The settings of a stream; None if there is none. Raises BrokerError."""
    try:
        info = await api(broker, f"STREAM.INFO.{name}")
    except BrokerError as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise
    config: dict[str, Any] = info["config"]
    return config


def compare(config: dict[str, Any], existing: dict[str, Any]) -> None:
    """Raise Contradiction unless every setting we ask for is as asked.

    Replicas, placement, description and metadata are the operator's business. The server leaves
    out what is off or empty.
    """
    differences: dict[str, tuple[object, object]] = {}
    for key, want in config.items():
        has = existing.get(key, _absent(want))
        if has != want:
            differences[key] = (has, want)
    if "mirror" in existing or "sources" in existing:
        copied = existing.get("mirror") or existing.get("sources")
        differences["mirror or sources"] = (copied, None)
    if differences:
        raise Contradiction(f"stream {config['name']!r}", differences)


def _absent(want: object) -> object:
    match want:
        case bool():
            return False
        case int():
            return 0
        case str():
            return "none"
        case _:
            return None
