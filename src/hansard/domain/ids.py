"""Names and identifiers: streams, events, and the characters that a name may hold.

A stream is the event sequence of one aggregate. Its identity is one of four shapes;
`hansard.bus.subjects` alone maps a shape to a NATS subject.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from typing import assert_never
from urllib.parse import urlsplit

import msgspec

from hansard.domain.errors import BadName

_AMBIGUOUS = re.compile(r"[\\\s\x00-\x20\x7f]")


def host_in(url: str, hosts: Iterable[str]) -> bool:
    """Return whether a URL's host is one of `hosts`; `.example.org` matches every host under it.

    A URL with a backslash, a space or a control character matches none: clients disagree on its
    host.
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
"""Characters at the end of a UUID that `marked` derives from a name."""

_WORKSPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def _part(name: str) -> str:
    """Return a name as one part of a stream's name, with `%` and `/` escaped."""
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
"""The kind of the memory streams, which roles judge by the files that their events name."""


class WorkspaceStream(msgspec.Struct, frozen=True, tag="lasting"):
    """A stream that outlives runs: a conversation, a role, a prompt.

    Attributes:
        kind: The kind of the stream: `role`, `experiment` ...
        id: The name within the kind.
    """

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{_part(self.kind)}/{_part(self.id)}"


StreamId = RunStream | AgentStream | KeyStream | WorkspaceStream
"""`str(stream)` is its name inside its run, the key of version vectors."""


def run_of(stream: StreamId) -> str | None:
    """Return the run a stream belongs to; None for a stream that outlives runs."""
    match stream:
        case RunStream() | AgentStream() | KeyStream():
            return stream.run
        case WorkspaceStream():
            return None
        case _:
            assert_never(stream)


def in_run(stream: StreamId, run: str) -> StreamId:
    """Return the stream of the same name in another run, where a fork continues."""
    match stream:
        case RunStream() | AgentStream() | KeyStream():
            return msgspec.structs.replace(stream, run=run)
        case WorkspaceStream():
            return stream
        case _:
            assert_never(stream)


def workspace_name(value: object) -> str:
    """Return the workspace name, checked. Raises BadName."""
    if not isinstance(value, str) or not _WORKSPACE.fullmatch(value):
        raise BadName(
            "workspace", value, "use 1 to 40 of a-z, 0-9 and '-', starting with a letter or digit"
        )
    return value


def name(kind: str, value: object) -> str:
    """Return a run, role, agent, key, tool or kind name, checked. Raises BadName.

    Any text of 1 to 1,000 characters without control characters or lone surrogates is valid:
    `hansard.bus.subjects` escapes the characters that a subject cannot carry.
    """
    if not isinstance(value, str) or not value:
        raise BadName(kind, value, "give a non-empty text")
    if len(value) > NAME_LENGTH_MAX:
        raise BadName(kind, value[:40] + "...", f"use at most {NAME_LENGTH_MAX} characters")
    if _UNPRINTABLE.search(value):
        raise BadName(kind, value, "leave out control characters and lone surrogates")
    return value


def uuid7(unix_ms: int, entropy: bytes) -> str:
    """Build a UUID version 7 (RFC 9562, section 5.7) from a Unix time in ms and 10 random bytes."""
    time, rand = f"{unix_ms & 0xFFFFFFFFFFFF:012x}", entropy[:10].hex()
    variant = "89ab"[int(rand[4], 16) & 3]
    return f"{time[:8]}-{time[8:]}-7{rand[:3]}-{variant}{rand[5:8]}-{rand[8:]}"


def marked(uuid: str, name: str) -> str:
    """Return a UUID version 7 with its last 32 random bits replaced by a digest of a name.

    A reader that knows the names can tell without a read which of them, or which few, the UUID may
    belong to (`is_marked`). 42 random bits are left.
    """
    return uuid[:-MARK_CHARACTERS] + _mark(name)


ID_CHARACTERS = 36
"""Characters of a whole id, a UUID."""


def is_marked(uuid: str, name: str) -> bool:
    """Return whether a UUID was marked with a name. One other name in 2**32 matches, too."""
    return uuid.endswith(_mark(name))


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:MARK_CHARACTERS]


def uuid8(*parts: str) -> str:
    """Derive a UUID version 8 (RFC 9562, section 5.8) from texts: equal texts give an equal id."""
    raws = [part.encode() for part in parts]
    text = hashlib.sha256(b"".join([len(raw).to_bytes(8, "big") + raw for raw in raws])).hexdigest()
    variant = "89ab"[int(text[16], 16) & 0b11]
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


# Public keys of logins, in the form of NATS (nkeys).

_USER_KEY = re.compile(r"U[A-Z2-7]{55}")
_USER = 20 << 3


def is_public_key(text: str) -> bool:
    """Return whether a text is a user's public key: base32 of a prefix byte, 32 bytes of Ed25519
    and a CRC-16, low byte first.
    """
    if not _USER_KEY.fullmatch(text):
        return False
    raw = base64.b32decode(text)
    return raw[0] == _USER and binascii.crc_hqx(raw[:-2], 0) == raw[-2] | raw[-1] << 8
