"""Recorded payloads as plain values, with or without their blobs fetched."""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain import values
from hansard.domain.errors import BadValue
from hansard.domain.payload import references
from hansard.domain.payload.references import Fetch


def recorded(raw: msgspec.Raw) -> Any:
    """Return the plain values of a recorded payload as stored, including references.

    A value nested too deep for this process is replaced by its size.
    """
    try:
        return msgspec.json.decode(bytes(raw))
    except RecursionError:
        return {"$blob": {"size": len(bytes(raw))}}


def jsonable(value: Any) -> Any:
    """Return a revived value in JSON's types; other values stay tagged."""
    try:
        return values.plain(value)
    except BadValue:
        return str(value)


class Fetcher:
    """Runs a payload's fetch: gets each requested blob once."""

    def __init__(self, workspace: Workspace) -> None:
        self._blobs = workspace.blobs
        self._kept: dict[str, bytes] = {}

    async def __call__(self, fetch: Fetch) -> Any:
        """Return the plain values. Raises NotFound, Corrupt."""
        try:
            sha256, size = next(fetch)
            while True:
                if sha256 not in self._kept:
                    self._kept[sha256] = await self._blobs.get(sha256, size)
                sha256, size = fetch.send(self._kept[sha256])
        except StopIteration as stop:
            return stop.value


class Payloads:
    """Reader of payloads with their blobs; an erased blob stays a reference, and is listed in
    `erased`.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.erased: list[str] = []

    async def value(self, raw: msgspec.Raw) -> Any:
        """Return the plain values. Raises Corrupt."""
        if b'"$blob"' not in bytes(raw):
            return recorded(raw)
        return await self.get(references.unpack(raw), raw)

    async def get(self, fetch: Fetch, raw: msgspec.Raw) -> Any:
        """Return a fetch's result, or the recorded payload if it was erased. Raises Corrupt."""
        try:
            return await Fetcher(self._workspace)(fetch)
        except NotFound as error:
            self.erased.append(str(error))
            return recorded(raw)
