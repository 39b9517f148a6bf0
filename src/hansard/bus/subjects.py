"""Every subject, stream and durable name, built in one place.

A name becomes one subject token by a reversible encoding: `[A-Za-z0-9_-]` is kept, every other byte
of its UTF-8 is written `=XX`. A token over 128 characters becomes `==` and the SHA-256 of the name;
the commit's body then holds the name itself.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import assert_never

from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream

TOKEN_LENGTH_MAX = 128
"""Longest subject token, in characters."""

_ESCAPED = re.compile(rb"[^A-Za-z0-9_-]")
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")
_HEX = re.compile(r"=([0-9A-F]{2})")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+|==[0-9a-f]{64}")
_RESTRICTED_INBOX = re.compile(r"_INBOX_[0-9a-f]{32}")
_RESERVED_KIND = "run"


@lru_cache(maxsize=4_096)
def token(name: str) -> str:
    """Encode a name as one subject token."""
    if _PLAIN.fullmatch(name):
        return name
    raw = name.encode()
    escaped = _ESCAPED.sub(lambda match: b"=%02X" % match.group()[0], raw).decode()
    if len(escaped) <= TOKEN_LENGTH_MAX:
        return escaped
    return "==" + hashlib.sha256(raw).hexdigest()


def untoken(text: str) -> str:
    """Decode a token to its name; a digest token stays as it is. Raises ValueError."""
    if "=" not in text:
        return text
    if not _TOKEN.fullmatch(text):
        message = f"{text!r} is not a subject token"
        raise ValueError(message)
    if text.startswith("=="):
        return text
    raw = _HEX.sub(lambda match: chr(int(match.group(1), 16)), text)
    return raw.encode("latin-1").decode()


@lru_cache(maxsize=8_192)
def is_digested(stream: StreamId) -> bool:
    """Return whether the subject carries a digest instead of one of the stream's names."""
    match stream:
        case RunStream(run):
            names: tuple[str, ...] = (run,)
        case AgentStream(run, role, agent):
            names = (run, role, agent)
        case KeyStream(run, key):
            names = (run, key)
        case WorkspaceStream(kind, id_):
            names = (kind, id_)
        case _:
            assert_never(stream)
    return any(len(name) > TOKEN_LENGTH_MAX // 3 and token(name)[:2] == "==" for name in names)


def workspace_prefix(workspace: str) -> str:
    """`hansard.<workspace>`."""
    return f"hansard.{workspace}"


def run_prefix(workspace: str, run: str) -> str:
    """Return the prefix of every subject of a run."""
    return f"hansard.{workspace}.run.{token(run)}"


@lru_cache(maxsize=8_192)
def prefix(workspace: str, stream: StreamId) -> str:
    """Return the prefix of every subject of a stream: all but the version."""
    match stream:
        case RunStream(run):
            return f"{run_prefix(workspace, run)}.life"
        case AgentStream(run, role, agent):
            return f"{run_prefix(workspace, run)}.agent.{token(role)}.{token(agent)}"
        case KeyStream(run, key):
            return f"{run_prefix(workspace, run)}.board.{token(key)}"
        case WorkspaceStream(kind, id_):
            if kind == _RESERVED_KIND:
                message = "'run' is not the kind of a lasting stream"
                raise ValueError(message)
            return f"hansard.{workspace}.{token(kind)}.{token(id_)}"
        case _:
            assert_never(stream)


def subject(workspace: str, stream: StreamId, version: int) -> str:
    """Return the subject of the commit whose first version is `version`."""
    return f"{prefix(workspace, stream)}.{version}"


def boards(workspace: str, run: str) -> str:
    """Return the filter for every commit of a run's shared state."""
    return f"{run_prefix(workspace, run)}.board.>"


def all_lives(workspace: str) -> str:
    """Return the filter for every commit of every run's life."""
    return f"hansard.{workspace}.run.*.life.*"


def all_of_key(workspace: str, key: str) -> str:
    """Return the filter for every commit of one key of every run's shared state."""
    return f"hansard.{workspace}.run.*.board.{token(key)}.*"


def all_of_kind(workspace: str, kind: str) -> str:
    """Return the filter for every commit of the streams of a kind that outlives runs."""
    return f"hansard.{workspace}.{token(kind)}.>"


def any_role(workspace: str, run: str, agent: str) -> str:
    """Return the filter for an agent's streams in a run under every role."""
    return f"{run_prefix(workspace, run)}.agent.*.{token(agent)}.>"


@lru_cache(maxsize=8_192)
def _stream_of(text: str) -> StreamId:
    match text.split("."):
        case ["hansard", _, "run", run, "life"]:
            return RunStream(untoken(run))
        case ["hansard", _, "run", run, "agent", role, agent]:
            return AgentStream(untoken(run), untoken(role), untoken(agent))
        case ["hansard", _, "run", run, "board", key]:
            return KeyStream(untoken(run), untoken(key))
        case ["hansard", _, kind, id_] if kind != _RESERVED_KIND:
            return WorkspaceStream(untoken(kind), untoken(id_))
        case _:
            message = f"{text!r} is not the subject of a stream"
            raise ValueError(message)


def parse(text: str) -> tuple[StreamId, int]:
    """Parse the stream and first version that a subject names. Raises Corrupt."""
    head, _, version = text.rpartition(".")
    try:
        number = int(version)
        stream = _stream_of(head)
    except ValueError as error:
        raise Corrupt(f"subject {text!r}", str(error)) from error
    if number < 1 or version != str(number):
        raise Corrupt(f"subject {text!r}", f"{version!r} is not a version")
    return stream, number


def is_name(pattern: str) -> bool:
    """Return whether a filter matches one subject only."""
    return "*" not in pattern and ">" not in pattern


def matches(pattern: str, text: str) -> bool:
    """Return whether a subject matches a filter: `*` is one token, a final `>` one or more."""
    if pattern == text or is_name(pattern):
        return pattern == text
    target, tokens = pattern.split("."), text.split(".")
    if target[-1] == ">" and len(tokens) >= len(target):
        target, tokens = target[:-1], tokens[: len(target) - 1]
    return len(target) == len(tokens) and all(
        token in ("*", has) for token, has in zip(target, tokens, strict=True)
    )


def live(text: str) -> str:
    """Return the subject on which the stream republishes what it accepted under `text`."""
    return f"live.{text}"


def log_stream(workspace: str) -> str:
    """Return the name of the JetStream stream with a workspace's commits."""
    return f"hansard_log-{workspace}"


def generation_stream(workspace: str, number: int) -> str:
    """Return the name of the JetStream stream of a generation of the log. No workspace's name has
    an underscore, so that it is not the log of another workspace.
    """
    return f"{log_stream(workspace)}_{number}" if number else log_stream(workspace)


def generation_prefix(number: int) -> str:
    """Return the prefix under which a generation is written: its stream stores `w.3.x` as `x`."""
    return f"w.{number}." if number else ""


def closed_prefix(number: int) -> str:
    """Return the prefix on which a generation listens before it is sealed: nobody writes there."""
    return f"w.{number}-closed"


def rolled(workspace: str) -> str:
    """Return the subject of the notice that the open generation was sealed; it is not stored."""
    return f"hansard_rolled.{workspace}"


def tiers_stream(workspace: str) -> str:
    """Return the name of the JetStream stream with one message for each generation that was opened,
    and one for each that was archived.
    """
    return f"hansard_tiers-{workspace}"


def guard_stream(workspace: str) -> str:
    """Return the name of the JetStream stream that keeps the subjects of an archived generation 0
    from being used again.
    """
    return f"hansard_guard-{workspace}"


def tiers_subject(workspace: str, generation: int | str) -> str:
    """Return the subject of an archived generation; "*" for all."""
    return f"hansard_tiers.{workspace}.{generation}"


def opened_subject(workspace: str, created: str, generation: int | str) -> str:
    """Return the subject of a generation that was opened. `created` is the time at which the stream
    of these messages was: that of another region, which receives them too, ignores them.
    """
    return tiers_subject(workspace, f"{re.sub(r'[^0-9]', '', created)}-{generation}")


def blob_stream(workspace: str) -> str:
    """Return the name of the JetStream stream with a workspace's large payloads."""
    return f"hansard_blob-{workspace}"


def blob_subject(workspace: str, sha256: str, chunk: int | str) -> str:
    """Return the subject of one chunk of a blob, from 0; "*" for all of them."""
    return f"hansard_blob.{workspace}.{sha256}.{chunk}"


def snapshot_stream(workspace: str) -> str:
    """Return the name of the JetStream stream with a workspace's snapshots; it may be deleted at
    any time.
    """
    return f"hansard_snap-{workspace}"


def snapshot_prefix(workspace: str, stream: StreamId, layout: str) -> str:
    """Return the prefix of a stream's snapshot subjects; `layout` names the state's shape."""
    return f"hansard_snap.{workspace}.{layout}.{prefix(workspace, stream).split('.', 2)[2]}"


def lease_subject(workspace: str) -> str:
    """Return the subject, in the snapshots' stream, of the right to project a workspace."""
    return f"hansard_snap.{workspace}.lease"


def requests(workspace: str, role: str, principal: str) -> str:
    """Return the prefix of the subjects of a restricted principal's requests to the service."""
    return f"{all_requests(workspace)}.{token(role)}.{token(principal)}"


def all_requests(workspace: str) -> str:
    """Return the prefix of the subjects of every request to a workspace's service."""
    return f"svc.{workspace}"


def restricted_inbox(token_id: str) -> str:
    """Return the inbox of a token's holder, by its public id: no other login may read there, and it
    lies outside `_INBOX.>`, where trusted logins receive.
    """
    return f"_INBOX_{token_id}"


def is_inbox(text: str) -> bool:
    """Return whether a subject is the inbox of a restricted login."""
    return _RESTRICTED_INBOX.fullmatch(text) is not None
