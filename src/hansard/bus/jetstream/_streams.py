"""The JetStream streams of a workspace: what they are, made once, never changed behind a back."""

from __future__ import annotations

from typing import Any

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, Contradiction
from hansard.bus.jetstream._calls import api
from hansard.bus.jetstream._client import Broker

PAYLOAD_BYTES_MIN = 640 * 1024
"""What the server must take in one message: a blob's chunk of 512 KiB with its headers."""

STREAM_NOT_FOUND = 10059
NAME_IN_USE = 10058
"""Another process made it at the same time."""

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


async def present(broker: Broker, workspace: str) -> bool:
    """Whether all streams of a workspace exist. Raises Contradiction for one that is not ours."""
    if broker.max_payload < PAYLOAD_BYTES_MIN:
        raise Contradiction(
            f"the server at {broker.url}",
            {"max_payload": (broker.max_payload, f"at least {PAYLOAD_BYTES_MIN}")},
        )
    for wanted in _configs(workspace):
        existing = await config_of(broker, wanted["name"])
        if existing is None:
            return False
        compare(wanted, existing)
    return True


async def ensure(broker: Broker, workspace: str) -> None:
    """Create what is missing of a workspace's streams. Needs rights to administer.

    Raises Contradiction naming each setting that differs, BrokerError.
    """
    for wanted in _configs(workspace):
        if await config_of(broker, wanted["name"]) is None:
            try:
                await api(broker, f"STREAM.CREATE.{wanted['name']}", wanted)
            except BrokerError as error:
                if error.code != NAME_IN_USE:
                    raise
    if not await present(broker, workspace):
        raise BrokerError("creating the workspace's streams", 0, "one of them is missing again")


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


def compare(wanted: dict[str, Any], existing: dict[str, Any]) -> None:
    """Raise Contradiction unless every setting we ask for is as asked.

    Replicas, placement, description and metadata are the operator's business. The server leaves
    out what is off or empty.
    """
    differences: dict[str, tuple[object, object]] = {}
    for key, want in wanted.items():
        has = existing.get(key, _absent(want))
        if has != want:
            differences[key] = (has, want)
    if "mirror" in existing or "sources" in existing:
        copied = existing.get("mirror") or existing.get("sources")
        differences["mirror or sources"] = (copied, None)
    if differences:
        raise Contradiction(f"stream {wanted['name']!r}", differences)


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
