"""The references inside recorded payloads, as far as a recheck must follow them.

`hansard.agents.payloads` writes and reads payloads; here nothing is put together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class Blob(msgspec.Struct):
    """What stands for a large value."""

    sha256: str
    size: int


class Appended(msgspec.Struct):
    """What stands for a list that extends an earlier step's; a large rest is a blob itself."""

    to: int
    count: int
    items: list[Any] | dict[str, Any]

    @property
    def length(self) -> int | None:
        """Of the whole list; None where the rest is a blob."""
        return self.count + len(self.items) if isinstance(self.items, list) else None


class _Id(msgspec.Struct):
    id: str


class _Ids(msgspec.Struct):
    """Just enough of a commit to know its events' ids."""

    events: list[_Id] = []


_arguments = msgspec.json.Decoder(dict[str, Any])
_ids = msgspec.json.Decoder(_Ids)


def arguments_in(raw: msgspec.Raw) -> dict[str, Any]:
    """A step's recorded arguments by name. Raises DecodeError."""
    return _arguments.decode(raw)


def appended(told: object) -> Appended:
    """The reference under a `$append`. Raises ValidationError."""
    return msgspec.convert(told, Appended)


def blobs_in(raw: msgspec.Raw) -> Iterator[Blob]:
    """Every blob that recorded data names. Raises DecodeError, RecursionError."""
    return _blobs(msgspec.json.decode(raw))


def _blobs(value: Any) -> Iterator[Blob]:
    if isinstance(value, dict):
        if value.keys() == {"$blob"}:
            yield msgspec.convert(value["$blob"], Blob)
            return
        for item in value.values():
            yield from _blobs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _blobs(item)


def event_ids(body: bytes) -> Iterator[str]:
    """The ids of a body's events; none where it is not a commit."""
    try:
        yield from (event.id for event in _ids.decode(body).events)
    except msgspec.DecodeError:
        return
