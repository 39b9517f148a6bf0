"""The JetStream streams of a workspace: their settings, created once, never changed silently."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, BusError, Contradiction
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.bus.jetstream.direct import (
    REPLICAS_KNOWN_S,
    STREAM_NOT_FOUND,
    Direct,
    api,
    late_of,
    publish,
    replicas_of,
    silent_of,
)
from hansard.bus.jetstream.generations import FIRST_SEQ, HOME, PROMOTED, Generation, Survey, survey
from hansard.bus.jetstream.wire import EXPECTED_LAST, FIRST, NoAnswer, Rejected, acknowledged, block
from hansard.bus.loggers import logger
from hansard.bus.marks import ACCEPTED

# Durability of an outside server or cluster, as far as its settings are visible.
#
# On a stream with several replicas an acknowledgement means that a quorum of its servers has the
# commit in its Raft log; a server that always syncs does so there, not in the stream's own file
# (nats-server 2.15.1, traced: one fsync of the Raft log per commit on each of three servers, none
# of the stream's blocks). So `strict` means: on the disks of a quorum.

RELAXED_INTERVAL_NS_MAX = 1_000_000_000
"""A longer sync interval, in seconds, counts as `unknown`, not `relaxed`: too much could be lost.
"""

ASK_S = 2.0
"""Longest time that a cluster's servers may take to report how they sync, in seconds."""

_WEAKEST_FIRST = ("unknown", "relaxed", "strict")


async def outside_durability(system: BrokerOptions | None) -> str:
    """Return `strict` or `relaxed` if the system account reports it, else `unknown`; never a guess.
    A cluster counts as its weakest server that answers; those must be a quorum.
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
    """Collects each server's answer, and wakes the waiter when all of a cluster have answered."""

    def __init__(self) -> None:
        self.promises: dict[str, str] = {}
        self.quorum = 1
        self.all_answered = asyncio.Event()

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receiver
        with contextlib.suppress(msgspec.DecodeError):
            fields: dict[str, Any] = msgspec.json.decode(data)
            server, held = fields.get("server") or {}, fields.get("data") or {}
            if not server.get("jetstream", True) or not held.get("config"):
                return  # a server without JetStream has no storage
            cluster = held.get("meta_cluster") or {}
            size = int(cluster.get("cluster_size", 1))
            self.quorum = max(self.quorum, size // 2 + 1)
            self.promises[str(server.get("id", ""))] = _promise(held["config"])
            if len(self.promises) >= size:
                self.all_answered.set()

    def lost(self, error: BusError) -> None:  # noqa: ARG002 -- a Receiver
        self.all_answered.set()


async def _ask_servers(broker: Broker) -> str:
    servers = _Servers()
    inbox = broker.expect(servers)
    try:
        await broker.send("$SYS.REQ.SERVER.PING.JSZ", b'{"config":true}', inbox)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(servers.all_answered.wait(), ASK_S)
    finally:
        broker.forget(inbox)
    if len(servers.promises) < servers.quorum:
        return "unknown"
    return min(servers.promises.values(), key=_WEAKEST_FIRST.index)


def _promise(config: dict[str, Any]) -> str:
    """Return the durability that one server's settings give."""
    if config.get("sync_always") is True:
        return "strict"
    interval = int(config.get("sync_interval", 0))
    return "relaxed" if 0 < interval <= RELAXED_INTERVAL_NS_MAX else "unknown"


PAYLOAD_BYTES_MIN = 640 * 1024
"""Smallest message limit that the server must allow, in bytes: a blob's chunk of 512 KiB with its
headers.
"""

QUIET_S = 0.05
"""Time without a new message after which a closed generation is sealed, in seconds."""

QUIET_TRIES_MAX = 100
"""Most looks at a closed generation; a server never has so many messages left to store."""

OPEN_TRIES_MAX = 10
"""Most attempts to open a generation, each with a step of a roll that was interrupted."""

NAME_IN_USE = 10058
"""Error code: another process created the stream at the same time."""

TOO_FEW_SERVERS = frozenset({10005, 10074})
"""Error codes: fewer servers than the requested replicas, or no cluster."""

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
    """Return the log's settings: one message per subject, the second refused by the server itself,
    nothing deleted.
    """
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


def _number_of(config: dict[str, Any]) -> int:
    """Return the number of the generation with these settings."""
    return int(config["name"].partition("_log-")[2].partition("_")[2] or 0)


def generation_config(workspace: str, number: int, first: int) -> dict[str, Any]:
    """Return the settings of a generation of the log whose first position is `first`."""
    if not number:
        return log_config(workspace)
    everything = f"{subjects.workspace_prefix(workspace)}.>"
    published = subjects.generation_prefix(number) + everything
    return log_config(workspace) | {
        "name": subjects.generation_stream(workspace, number),
        "subjects": [published],
        "subject_transform": {"src": published, "dest": everything},
        "first_seq": first,
    }


def guard_config(workspace: str) -> dict[str, Any]:
    """Return the settings of the stream that keeps the subjects of an archived generation 0, and
    takes no message: no program of an earlier version can make an empty log there.
    """
    return log_config(workspace) | {"name": subjects.guard_stream(workspace), "max_msg_size": 1}


def aside_config(workspace: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a sealed generation 0 that leaves its subjects to the guard; what it
    stores keeps its names.
    """
    everything = f"{subjects.workspace_prefix(workspace)}.>"
    published = f"w.0.{everything}"
    transform = {"src": published, "dest": everything}
    return config | {"subjects": [published], "subject_transform": transform}


def tiers_config(workspace: str) -> dict[str, Any]:
    """Return the settings of the list of opened and archived generations: nothing in it is
    overwritten.
    """
    return log_config(workspace) | {
        "name": subjects.tiers_stream(workspace),
        "subjects": [subjects.tiers_subject(workspace, "*")],
        "allow_atomic": False,
        "republish": None,
    }


def blob_config(workspace: str) -> dict[str, Any]:
    """Return the settings for large payloads, by the hash of their bytes. A purge erases one;
    nothing is overwritten.
    """
    return _COMMON | {
        "name": subjects.blob_stream(workspace),
        "subjects": [f"hansard_blob.{workspace}.>"],
        "discard": "new",
        "discard_new_per_subject": True,
        "deny_delete": False,
        "deny_purge": False,
    }


def snapshot_config(workspace: str) -> dict[str, Any]:
    """Return the settings for snapshots, which are derived and may be deleted at any time."""
    return _COMMON | {
        "name": subjects.snapshot_stream(workspace),
        "subjects": [f"hansard_snap.{workspace}.>"],
        "discard": "old",
        "discard_new_per_subject": False,
        "deny_delete": False,
        "deny_purge": False,
    }


def copied_config(config: dict[str, Any], home: str) -> dict[str, Any]:
    """Return the settings of another region's copy of a generation, with the same positions.

    It listens on no subject: what is published here goes to the home.
    """
    dropped = ("subjects", "subject_transform", "republish", "allow_atomic", "first_seq")
    return {key: value for key, value in config.items() if key not in dropped} | {
        "mirror": _there(config, home),
        "metadata": {HOME: home, FIRST_SEQ: str(config.get("first_seq", 1))},
    }


def copied_configs(workspace: str, home: str, region: str) -> list[dict[str, Any]]:
    """Return the settings of a region's copy of the blobs, which may hold some already: their
    order does not matter, and one that arrives again replaces its equal. And of its snapshots: it
    has none, since the home's may be ahead of it, but a lease on a subject of its own.
    """
    blobs, snapshots = blob_config(workspace), snapshot_config(workspace)
    blobs |= {"discard": "old", "discard_new_per_subject": False}
    blobs |= {"subjects": None, "sources": [_there(blobs, home)]}
    return [blobs, snapshots | {"subjects": [f"{snapshots['name']}.{region}"]}]


def _there(config: dict[str, Any], home: str) -> dict[str, Any]:
    return {"name": config["name"], "external": {"api": f"$JS.{home}.API", "deliver": ""}}


def configs(workspace: str, at: Survey) -> list[dict[str, Any]]:
    """Return the settings of the streams that a workspace needs: of its log, the open generation,
    or the next one if none is open.
    """
    number, first = 0, 1
    if at.archived:
        number, first = at.archived[-1].generation + 1, at.archived[-1].last + 1
    if at.streams:
        newest = at.streams[-1]
        number, first = newest.number, newest.first
        if newest.is_closed and not newest.is_new:
            # A promotion skips the number of an empty generation of the former home.
            promoted = int(newest.metadata.get(PROMOTED, "0").rpartition(" ")[2])
            number, first = max(number + 1, promoted), newest.last + 1
    log = generation_config(workspace, number, first)
    return [log, blob_config(workspace), snapshot_config(workspace)]


async def present(
    broker: Broker, workspace: str, replicas: int | None = None, at: Survey | None = None
) -> bool:
    """Return whether all streams of a workspace exist; warn of those with fewer replicas than
    requested. `at` are the generations of its log, if known.

    Raises Contradiction for one that is not ours.
    """
    if broker.max_payload < PAYLOAD_BYTES_MIN:
        raise Contradiction(
            f"the server at {broker.url}",
            {"max_payload": (broker.max_payload, f"at least {PAYLOAD_BYTES_MIN}")},
        )
    at = at or await survey(Direct(broker), workspace)
    if at.missing or (at.streams and at.streams[-1].is_closed):
        return False
    items, known = configs(workspace, at), {each.stream: each.info["config"] for each in at.streams}
    # The log as it was looked up: it may be rolled now.
    names = [item["name"] for item in items if item["name"] not in known]
    settings = await asyncio.gather(*(config_of(broker, name) for name in names))
    known |= dict(zip(names, settings, strict=True))
    for item in items:
        existing = known[item["name"]]
        if existing is None:
            return False
        compare(item, existing)
    for name, config in known.items():  # sealed generations among them
        has = config.get("num_replicas", 1) if config is not None else 1
        if replicas is not None and has < replicas:
            _log.warning(fewer(name, has, replicas))
    return True


def fewer(name: str, has: int, request: int) -> str:
    """Return the warning for a stream with fewer replicas than requested."""
    return (
        f"stream {name!r} has {has} of the {request} replicas requested: raise it with "
        f"'nats stream update {name} --replicas={request}' as who may administer"
    )


async def ensure(broker: Broker, workspace: str, replicas: int | None = None) -> Survey:
    """Create the missing streams of a workspace with so many replicas (None: the server's default),
    and return the generations of its log. Needs rights to administer. Raises Contradiction naming
    each setting that differs, BrokerError, NotWritable.
    """
    for _ in range(OPEN_TRIES_MAX):  # it may be rolled meanwhile
        at = await open_next(broker, workspace, replicas)
        for item in configs(workspace, at):
            if await config_of(broker, item["name"]) is None:
                await create(broker, item, replicas)
        at = await survey(Direct(broker), workspace)
        if await present(broker, workspace, at=at):
            return at
    raise BrokerError("creating the workspace's streams", 0, "one of them is missing again")


async def seal(
    broker: Broker, workspace: str, generation: Generation, metadata: dict[str, str] | None = None
) -> bool:
    """Seal a generation for ever, with more metadata; return False if a replica is away or the
    leader does not store in time, and it is open again. Raises BrokerError, NoAnswer, Unreachable.

    It leaves its subjects first, and has to be quiet then: a batch that a killed server had half
    written is completed at its start, but not in a sealed stream. In a cluster the leader stores
    what it has proposed also after the seal, so that its end is known only then. And a replica that
    does not hear of the change could later lead the stream and accept commits again.
    """
    update = f"STREAM.UPDATE.{generation.stream}"
    closed = _closed(workspace, generation.number)
    marks = generation.metadata | (metadata or {})
    config = generation.info["config"] | {"subjects": [closed], "metadata": marks}
    if metadata or not generation.is_closed:
        # The transform stays: messages on their way are stored under their names.
        try:
            await _list_opened(broker, workspace, generation.info["config"], was_open=True)
            await api(broker, update, config)
        except BrokerError:
            existing = await config_of(broker, generation.stream)
            if existing is not None and not existing.get("sealed"):
                raise
            return True  # another process sealed it, and perhaps deleted it
    info, closed_s, last, is_quiet = generation.info, time.monotonic(), -1, False
    proposed, is_clustered = await _proposed(broker, generation, closed), _is_clustered(generation)
    for _ in range(QUIET_TRIES_MAX):
        before, info = last, await Direct(broker).info(generation.stream)
        if info["config"].get("sealed"):
            return True  # another process sealed it, and its metadata are kept
        last = int(info["state"]["last_seq"])
        late = late_of(info) + silent_of(info, time.monotonic() - closed_s)
        # Another process may have opened it again.
        is_quiet = info["config"].get("subjects") == [closed] and last >= proposed and not late
        is_quiet = is_quiet and (last == before or not is_clustered)
        if is_quiet:
            break
        await asyncio.sleep(QUIET_S)
    if not is_quiet:
        opened = generation_config(workspace, generation.number, generation.first)["subjects"]
        await api(broker, update, generation.info["config"] | {"subjects": opened})
        return False
    await api(broker, update, info["config"] | {"sealed": True})
    return True


async def seal_copy(
    broker: Broker, workspace: str, generation: Generation, metadata: dict[str, str]
) -> None:
    """Seal another region's copy of a generation, which follows its home no longer."""
    config = {key: value for key, value in generation.info["config"].items() if key != "mirror"}
    config["subjects"] = [_closed(workspace, generation.number)]
    config |= {"sealed": True, "metadata": generation.metadata | {HOME: ""} | metadata}
    await api(broker, f"STREAM.UPDATE.{generation.stream}", config)


def _closed(workspace: str, number: int) -> str:
    """Return the subject of a generation that accepts no commits."""
    return f"{subjects.closed_prefix(number)}.{subjects.workspace_prefix(workspace)}.>"


def _is_clustered(generation: Generation) -> bool:
    return bool(generation.info.get("cluster", {}).get("name"))


async def _proposed(broker: Broker, generation: Generation, pattern: str) -> int:
    """Return the last position that a stream's leader has given to a message, also if it is not
    stored yet; 0 if there is no leader, since the next one leads only once it has stored all.

    A message with an impossible condition is refused with that position, after all before it.
    """
    subject, impossible = pattern.replace(">", "end"), block({EXPECTED_LAST: str(2**53)})
    try:
        wait_s = broker.options.request_timeout_s
        acknowledged((await broker.request(subject, b"", impossible, wait_s))[1])
    except Rejected as error:
        number = error.description.rpartition(" ")[2]
        return int(number) if number.isdecimal() else 0
    except NoAnswer:
        if not _is_clustered(generation):
            raise  # a batch may still be half stored
    return 0


async def open_next(broker: Broker, workspace: str, replicas: int | None = None) -> Survey:
    """Open the generation after a sealed one, unless another process does; return the generations.

    It is created closed, listed as opened, and then opened. A server that is killed while it writes
    a stream's settings omits the stream at its next start: so a reader of the list knows that a
    generation is missing. Here it is created again, with its messages, and rolled.

    The notice goes out first, over the same connection: no reader may take the sealed generation
    for the newest once the next accepts commits. In a cluster it takes another way than the answers
    to reads, so that those that need not ask the leader are waited for.

    The request to create it is sent over the connection that the generations were looked up on just
    before. A server closes that of a process that was suspended, before it deletes a generation
    (see `roll.KEEP_S`). So a process that continues later does not create one that is long
    archived. A step without an answer is repeated after another look: one that was done late is
    seen there, and a late request to create what exists with other settings is refused.
    Raises BrokerError, NoAnswer, Unreachable.
    """
    unanswered: NoAnswer | None = None
    for _ in range(OPEN_TRIES_MAX):
        reconnects: list[None] = []
        forget = broker.on_reconnect(lambda: reconnects.append(None))  # noqa: B023 -- removed in this turn
        try:
            at = await survey(Direct(broker), workspace)
            newest = at.missing or (at.streams[-1] if at.streams else None)
            if newest is None or not (at.missing or newest.is_closed):
                return at
            if at.is_emptied:
                at.complete(broker)
            demand_home(workspace, at)
            try:
                await _next_step(broker, workspace, at, newest, replicas, reconnects)
            except NoAnswer as error:
                unanswered = error
        finally:
            forget()
    if unanswered is not None:
        raise unanswered
    raise BrokerError("opening the next generation", 0, "the connection broke each time")


async def _next_step(
    broker: Broker,
    workspace: str,
    at: Survey,
    newest: Generation,
    replicas: int | None,
    reconnects: list[None],
) -> None:
    """Take the next step to an open generation; none if it has to be looked up again first."""
    config = generation_config(workspace, newest.number, newest.first) | newest.info["config"]
    if at.missing is None and newest.is_new:
        await _open(broker, workspace, config)
        return
    if at.missing is None:
        if not newest.is_sealed:  # a roll was interrupted
            await seal(broker, workspace, newest)
            return
        await _proposed(broker, newest, config["subjects"][0])
        info = await Direct(broker).info(newest.stream)
        if info["state"]["last_seq"] != newest.last:
            return
        await broker.send(subjects.rolled(workspace), b"")
        if _is_clustered(newest) and replicas_of(newest.info) == 1:
            await asyncio.sleep(2 * REPLICAS_KNOWN_S)
        promoted = newest.metadata.get(PROMOTED, "")
        accepted = str(at.whole.extent.accepted or "")  # counts over all generations
        marks = {ACCEPTED: accepted, PROMOTED: promoted}
        config = configs(workspace, at)[0] | {
            "num_replicas": replicas or replicas_of(newest.info),
            "metadata": {key: value for key, value in marks.items() if value},
        }
    if reconnects:
        return
    subject = f"$JS.API.STREAM.CREATE.{config['name']}"
    body = msgspec.json.encode(config | {"subjects": [_closed(workspace, _number_of(config))]})
    _, data = await broker.request(subject, body, b"", broker.options.request_timeout_s)
    created = msgspec.json.decode(data)
    error = created.get("error")
    if error is not None and error.get("err_code") != NAME_IN_USE:
        code = error.get("err_code") or error.get("code", 0)
        raise BrokerError(subject, code, error.get("description", ""))
    is_emptied = at.missing is not None and at.missing.was_open
    if error is None and not created["state"]["messages"] and not is_emptied:
        await _open(broker, workspace, config)


async def _open(broker: Broker, workspace: str, config: dict[str, Any]) -> None:
    """List a generation that accepts no commits as opened, and let it accept commits. Once its
    server has written all settings, it is listed again: if its stream is empty later, the commits
    in it are lost.
    """
    await _list_opened(broker, workspace, config)
    number = _number_of(config)
    config = config | {"subjects": generation_config(workspace, number, 0)["subjects"]}
    try:
        await api(broker, f"STREAM.UPDATE.{config['name']}", config)
    except BrokerError:
        existing = await config_of(broker, config["name"])
        if existing is not None and not existing.get("sealed"):
            raise
        return  # it was rolled since, and perhaps deleted
    await _list_opened(broker, workspace, config, was_open=True)


async def _list_opened(
    broker: Broker, workspace: str, config: dict[str, Any], *, was_open: bool = False
) -> None:
    """List a generation with its settings: from then on it is known to be missing if it is. One
    that `was_open` is listed again when the number of accepted losses in its settings changed.
    """
    created = await ensure_tiers(broker, workspace, config.get("num_replicas", 1))
    accepted = (config.get("metadata") or {}).get(ACCEPTED, "")
    number = _number_of(config)
    step = f"{number}-{accepted if accepted.isdecimal() else 0}" if was_open else number
    subject = subjects.opened_subject(workspace, created, step)
    await list_once(broker, workspace, subject, msgspec.json.encode(config))


async def ensure_tiers(broker: Broker, workspace: str, replicas: int) -> str:
    """Create the list of generations if it is missing; return the time of its creation. It has
    at least as many replicas as the log.
    """
    stream, direct = subjects.tiers_stream(workspace), Direct(broker)
    info = await direct.info_of(stream)
    if info is None:
        await create(broker, tiers_config(workspace), replicas)
        info = await direct.info(stream)
        # Writes both files, also if a killed server left one of them.
        await api(broker, f"STREAM.UPDATE.{stream}", info["config"])
    elif replicas_of(info) < replicas:
        raised = info["config"] | {"num_replicas": replicas}
        await api(broker, f"STREAM.UPDATE.{stream}", raised)
        await direct.info(stream)  # once it has a leader again
    return str(info["created"])


async def list_once(broker: Broker, workspace: str, subject: str, body: bytes) -> bytes:
    """Add a message to the list of generations, unless its subject has one; return that one."""
    direct, stream = Direct(broker), subjects.tiers_stream(workspace)
    try:
        await publish(broker, subject, body, FIRST, direct.known.of(stream))
    except Rejected as error:
        existing = await direct.last(stream, subject)
        if existing is None:
            raise BrokerError(f"listing {subject!r}", error.code, error.description) from error
        return existing.body
    return body


def demand_home(workspace: str, at: Survey) -> None:
    """Raise BrokerError if another region is the workspace's home, which alone may roll it."""
    if at.home:
        fact = f"its home is region {at.home!r}: roll it there"
        raise BrokerError(f"rolling {workspace!r}", 0, fact)


async def create(broker: Broker, config: dict[str, Any], replicas: int | None) -> None:
    """Create a stream, unless another process just did. Raises BrokerError.

    One that the server had omitted has its messages again; its files are then written by an update.
    """
    question = config if replicas is None else config | {"num_replicas": replicas}
    try:
        created = await api(broker, f"STREAM.CREATE.{config['name']}", question)
        if created["state"]["messages"]:
            await api(broker, f"STREAM.UPDATE.{config['name']}", question)
    except BrokerError as error:
        if error.code in TOO_FEW_SERVERS and replicas is not None:
            action = f"making stream {config['name']!r} with {replicas} replicas"
            remedy = "start as many servers, in one cluster, or ask for fewer replicas"
            raise BrokerError(action, error.code, f"{error.description}: {remedy}") from error
        if error.code != NAME_IN_USE:
            raise _hindered(broker) or error from error


def _hindered(broker: Broker) -> BusError | None:
    """Return the embedded server's obstacle, if that explains an error of its API, which says only
    that a store could not be created.
    """
    host = broker.options.host
    return None if host is None else host.obstacle() or host.look()


async def config_of(broker: Broker, name: str) -> dict[str, Any] | None:
    """Return a stream's settings; None if there is none. Raises BrokerError."""
    try:
        info = await api(broker, f"STREAM.INFO.{name}")
    except BrokerError as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise
    config: dict[str, Any] = info["config"]
    return config


_OMITTED: dict[type, object] = {bool: False, int: 0, str: "none"}
"""Values of settings that the server omits, by their type."""


def compare(config: dict[str, Any], existing: dict[str, Any]) -> None:
    """Raise Contradiction unless every setting that we require is as required.

    Replicas, placement, description and metadata are the operator's choice. The server omits
    settings that are off or empty.
    """
    differences: dict[str, tuple[object, object]] = {}
    for key, target in config.items():
        has = existing.get(key, _OMITTED.get(type(target)))
        if has != target:
            differences[key] = (has, target)
    if "mirror" in existing or "sources" in existing:
        copied = existing.get("mirror") or existing.get("sources")
        differences["mirror or sources"] = (copied, None)
    if differences:
        raise Contradiction(f"stream {config['name']!r}", differences)
