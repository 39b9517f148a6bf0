"""Names and identifiers: streams, events, and what may be called what.

A stream is the event sequence of one aggregate. Its identity is one of four shapes; how a shape
becomes a NATS subject is the business of `hansard.bus.subjects` alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import assert_never
from urllib.parse import urlsplit

import msgspec

from hansard.domain.errors import BadName

# Whether a URL leads to one of some hosts.

_AMBIGUOUS = re.compile(r"[\\\s\x00-\x20\x7f]")


def host_in(url: str, hosts: Iterable[str]) -> bool:
    """Whether a URL's host is one of some; `.example.org` stands for every host under it.

    One with a backslash, a space or a control character is none: clients disagree on its host.
    """
    if _AMBIGUOUS.search(url):
        return False
    try:
        host = (urlsplit(url).hostname or "").lower().rstrip(".")
    except ValueError:
        return False
    targets = [each.lower() for each in hosts]
    return any(
        host == want or (want.startswith(".") and host.endswith(want)) for want in targets if host
    )


NAME_LENGTH_MAX = 1_000
"""Longest run, role, agent, key or kind name, in characters: it must fit a commit's body twice."""

MARK_CHARACTERS = 8
"""Of a UUID, from its end: what `marked` derives from a name."""

_WORKSPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def _part(name: str) -> str:
    """A name as one part of a stream's name: no slash of its own may move its border."""
    return name.replace("%", "%25").replace("/", "%2F")


class RunStream(msgspec.Struct, frozen=True, tag="life"):
    """The stream of a run itself: started, joined, resumed, forked, ended.

    Attributes:
        run: The run's id.
    """

    run: str

    def __str__(self) -> str:
        return "life"


class AgentStream(msgspec.Struct, frozen=True, tag="agent"):
    """The stream of one agent in one run; its role is fixed for that run.

    Attributes:
        run: The run's id.
        role: The agent's role.
        agent: The agent.
    """

    run: str
    role: str
    agent: str

    def __str__(self) -> str:
        return f"agent/{_part(self.role)}/{_part(self.agent)}"


class KeyStream(msgspec.Struct, frozen=True, tag="board"):
    """The stream of one key of a run's shared state; no role, since two roles write one key.

    Attributes:
        run: The run's id.
        key: The key.
    """

    run: str
    key: str

    def __str__(self) -> str:
        return f"board/{self.key}"


MEMORY = "memory"
"""The kind of the streams of memory, which roles judge by the files that are named there."""


class WorkspaceStream(msgspec.Struct, frozen=True, tag="lasting"):
    """A stream that outlives runs: a conversation, a role, a prompt.

    Attributes:
        kind: What it is a stream of: `role`, `experiment` ...
        id: Which one.
    """

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{_part(self.kind)}/{_part(self.id)}"


StreamId = RunStream | AgentStream | KeyStream | WorkspaceStream
"""`str(stream)` is its name inside its run: what version vectors use as key."""


def run_of(stream: StreamId) -> str | None:
    """The run a stream belongs to; None for a stream that outlives runs."""
    match stream:
        case RunStream() | AgentStream() | KeyStream():
            return stream.run
        case WorkspaceStream():
            return None
        case _:
            assert_never(stream)


def in_run(stream: StreamId, run: str) -> StreamId:
    """The stream of the same name in another run: where a fork goes on."""
    match stream:
        case RunStream() | AgentStream() | KeyStream():
            return msgspec.structs.replace(stream, run=run)
        case WorkspaceStream():
            return stream
        case _:
            assert_never(stream)


def workspace_name(value: object) -> str:
    """The workspace name, checked. Raises BadName."""
    if not isinstance(value, str) or not _WORKSPACE.fullmatch(value):
        raise BadName(
            "workspace",
            value,
            "use 1 to 40 of a-z, 0-9 and '-', starting with a letter or digit",
        )
    return value


def name(kind: str, value: object) -> str:
    """A run, role, agent, key, tool or kind name, checked. Raises BadName.

    Any text of 1 to 1,000 characters without control characters or lone surrogates: what a
    subject cannot carry is escaped by `hansard.bus.subjects`.
    """
    if not isinstance(value, str) or not value:
        raise BadName(kind, value, "give a non-empty text")
    if len(value) > NAME_LENGTH_MAX:
        raise BadName(kind, value[:40] + "...", f"use at most {NAME_LENGTH_MAX} characters")
    if _UNPRINTABLE.search(value):
        raise BadName(kind, value, "leave out control characters and lone surrogates")
    return value


def uuid7(unix_ms: int, entropy: bytes) -> str:
    """A UUID version 7 (RFC 9562, section 5.7) from a Unix time in ms and 10 random bytes."""
    time, rand = f"{unix_ms & 0xFFFFFFFFFFFF:012x}", entropy[:10].hex()
    variant = "89ab"[int(rand[4], 16) & 3]
    return f"{time[:8]}-{time[8:]}-7{rand[:3]}-{variant}{rand[5:8]}-{rand[8:]}"


def marked(uuid: str, name: str) -> str:
    """A UUID version 7 whose last 32 random bits are a digest of a name: whoever has the names
    knows without a look which one, or few, it may be of (`is_marked`). 42 random bits are left.
    """
    return uuid[:-MARK_CHARACTERS] + _mark(name)


def is_marked(uuid: str, name: str) -> bool:
    """Return whether a UUID was marked with a name; one of four billion others seems to be."""
    return uuid.endswith(_mark(name))


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:MARK_CHARACTERS]


def uuid8(*parts: str) -> str:
    """A UUID version 8 (RFC 9562, section 5.8) derived from texts: equal texts, equal id."""
    raws = [part.encode() for part in parts]
    text = hashlib.sha256(b"".join([len(raw).to_bytes(8, "big") + raw for raw in raws])).hexdigest()
    variant = "89ab"[int(text[16], 16) & 0b11]
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"
