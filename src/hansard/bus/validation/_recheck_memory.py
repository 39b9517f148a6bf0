"""Does each change of memory follow on what stood? See `hansard.bus.validation.check`."""

from __future__ import annotations

from typing import Protocol

import msgspec

from hansard.bus.codec import revive
from hansard.bus.errors import NotFound
from hansard.bus.fetching import drive_fetch
from hansard.domain.board import By
from hansard.domain.errors import Corrupt, Refused, UnknownEvent
from hansard.domain.events import Commit, Event
from hansard.domain.ids import StreamId, WorkspaceStream
from hansard.domain.memory import space
from hansard.domain.memory.events import KIND, MemoryChanged
from hansard.domain.payload import references


class _Blobs(Protocol):
    async def blob(self, sha256: str, size: int) -> bytes:
        """A blob, verified."""
        ...


class Memory:
    """Folds each space of memory as its readers do."""

    def __init__(self, blobs: _Blobs) -> None:
        self._blobs = blobs
        self._states: dict[str, space.MemoryState | None] = {}
        """None for a space of which something cannot be read: that is another finding."""

    async def unfit(self, stream: StreamId, commit: Commit) -> list[tuple[int, str]]:
        """The versions of a commit whose change does not follow on what stood, and why."""
        if not isinstance(stream, WorkspaceStream) or stream.kind != KIND:
            return []
        state = self._states.setdefault(stream.id, space.initial())
        if state is None:
            return []
        state.version, known = commit.version - 1, len(state.unfit)
        try:
            for recorded in commit.events:
                by = By(commit.actor.agent, 0, recorded.id, commit.label)
                space.evolve(state, await self._in_full(revive(recorded)), by)
        except (NotFound, Corrupt, UnknownEvent, Refused, msgspec.DecodeError):
            self._states[stream.id] = None
            return []
        return state.unfit[known:]

    async def _in_full(self, event: Event) -> Event:
        if not isinstance(event, MemoryChanged):
            return event
        files = [
            msgspec.structs.replace(each, edit=msgspec.Raw(await self._resolved(each.edit)))
            for each in event.files
        ]
        return msgspec.structs.replace(event, files=tuple(files))

    async def _resolved(self, edit: msgspec.Raw) -> bytes:
        raw = bytes(edit)
        if references.BLOB not in raw:
            return raw
        found = await drive_fetch(references.unpack(edit), self._blobs.blob)
        return msgspec.json.encode(found)
