"""What a commit may say where it stands: events of types that the stream may hold, and data that is
what their type says.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.domain.approval import KEY as APPROVALS
from hansard.domain.board import VIEWS
from hansard.domain.events import REGISTRY, UPCASTERS, Commit
from hansard.domain.ids import StreamId, WorkspaceStream
from hansard.domain.quarantined import TAG
from hansard.domain.streams import may_hold
from hansard.domain.team.mail import KEY as MAIL
from hansard.domain.team.task import KEY as TASKS

_FAMILIES = {
    "budget ": ("budget.",),
    TASKS: ("task.", "label."),
    MAIL: ("mail.", "label."),
    APPROVALS: ("approval.",),
    VIEWS: ("view.",),
}
"""The families of events that reserved keys hold, by what the keys begin with."""

_RESERVED = tuple(_FAMILIES)
_SHARED = ("board.", "label.")

_decoders: dict[tuple[object, str], msgspec.json.Decoder[Any]] = {}
"""By kind of stream and tag, of what may stand there."""


def families(key: str) -> tuple[str, ...]:
    """What the tags of the events begin with that a key of shared state holds."""
    if not key.startswith(_RESERVED):
        return _SHARED
    return next(found for begin, found in _FAMILIES.items() if key.startswith(begin))


def foreign(stream: StreamId, commit: Commit) -> str:
    """Which event is of a type that the stream may not hold, in words; nothing where none is."""
    for recorded in commit.events:
        if recorded.type == TAG:
            return f"{TAG} is never stored"
        kind = REGISTRY.get(recorded.type)
        if kind is not None and recorded.type not in UPCASTERS and not may_hold(stream, kind):
            return f"a {recorded.type} does not belong into stream {stream}"
    return ""


def broken(stream: StreamId, commit: Commit) -> str:
    """Why the events of a commit cannot be what they say; nothing where they can. Decodes each."""
    where = stream.kind if type(stream) is WorkspaceStream else type(stream)
    for recorded in commit.events:
        tag = recorded.type
        decoder = _decoders.get((where, tag))
        if decoder is None:
            why = foreign(stream, commit)
            if why:
                return why
            kind = REGISTRY.get(tag)
            if kind is None or tag in UPCASTERS:
                continue
            decoder = _decoders[where, tag] = msgspec.json.Decoder(kind)
        if recorded.enc is None:
            try:
                decoder.decode(recorded.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                return f"its data is not a {tag} ({error})"
    return ""
