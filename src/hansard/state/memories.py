"""Memory as it stands in the log: spaces at any point, and those of the process as last read.

A space that is followed (`follow`) is kept at what the log tells as it comes by: reading it asks
nobody. Of any other one what is new is read first. Everything but `known` runs on the bus's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

import msgspec
from cachetools import LRUCache

from hansard.bus.codec import revive
from hansard.bus.commits import drive_fetch
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import Blobs, EventLog, Kind, Stored
from hansard.domain.board import By
from hansard.domain.errors import HansardError
from hansard.domain.events import Commit, Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import KIND, FileChange, MemoryChanged, stream_of
from hansard.domain.memory.space import MemoryState
from hansard.domain.payload import references
from hansard.state.aggregates import commits_until, point_in

SPACES_MAX = 256
"""Most spaces that are kept in memory; others are read from the log again."""

PASSED_EVERY = 50
"""Of a version of the past the state is kept after so many versions, so that the next read goes on
from the nearest."""

PASSED_MAX = 256
"""Most such states that are kept, of all spaces."""

OTHERS_EVERY = 50
"""After so many commits others on the loop go on."""

FOLLOW_PAUSE_S = 1.0
"""Between two tries to follow the log, where it is out of reach."""

FETCHED_BYTES_MAX = 16 * 1024 * 1024
"""Of the large edits of a change that are fetched with one question, unless one alone is larger."""

READS_MAX = 10
"""Of a space, for as long as it changes meanwhile; then what was read is not kept."""


class MemoryEventAt(msgspec.Struct, frozen=True):
    """An event of a space where it stands: its commit, its version, and its edits in full."""

    stored: Stored
    version: int
    id: str
    event: Event

    @property
    def author(self) -> str:
        """Who made the change; of an imported one the author that its source claims."""
        return author_of(self.stored.commit, self.id)

    @property
    def at(self) -> str:
        """When it was made; of an imported change when its source claims. ISO 8601."""
        return _claimed_at(self.stored.commit, self.id) or self.stored.time.isoformat()


def _claimed_at(commit: Commit, event_id: str) -> str | None:
    return next((each.occurred_at for each in commit.events if each.id == event_id), None)


def author_of(commit: Commit, event_id: str) -> str:
    """The author of an event; of one that was imported the author that its source claims."""
    actor = commit.actor
    is_imported = bool(actor.on_behalf_of) and _claimed_at(commit, event_id) is not None
    return actor.on_behalf_of[0] if is_imported else actor.agent


class _Read(msgspec.Struct, eq=False):
    """A space that is being read; `missed` is set where nobody took in a commit of it meanwhile."""

    space: str
    missed: bool = False


class Memories:
    """Reads spaces, and keeps what was read."""

    def __init__(self, log: EventLog, blobs: Blobs) -> None:
        self.log = log
        self._blobs = blobs
        self._known: OrderedDict[str, MemoryState] = OrderedDict()
        self._passed: LRUCache[tuple[str, int], MemoryState] = LRUCache(PASSED_MAX)
        self._following: list[asyncio.Task[None]] = []
        self._reads: list[_Read] = []

    def through(self, log: EventLog) -> Self:
        """The same, written through another log of the same record; what was read they share."""
        made = copy.copy(self)
        made.log = log
        return made

    def known(self, space: str) -> MemoryState | None:
        """A followed space as it stands by what the log has told, to be read in any thread; None
        where it is not followed, or was not read yet. Never changes.
        """
        return self._known.get(space) if self.is_following else None

    @property
    def is_following(self) -> bool:
        """Whether the log is followed."""
        return bool(self._following) and not self._following[0].done()

    async def state(self, space: str) -> MemoryState:
        """A space as it stands; not to be changed. Costs a read of what is new."""
        known = self._known.get(space)
        state = known if known is not None else spaces.initial()
        read = _Read(space)
        self._reads.append(read)
        try:
            for _ in range(READS_MAX):
                read.missed = False
                state = await self._after(space, state)
                if not read.missed:
                    self.keep(space, state)
                    break
        finally:
            self._reads.remove(read)
        return state

    async def _after(self, space: str, state: MemoryState) -> MemoryState:
        commits = await self.log.read(stream_of(space), after=state.version)
        return await self.folded(state, commits)

    async def at(self, space: str, at: object) -> MemoryState:
        """A space as it stood at a point: a version ('@3'), a position, a time, or the id of a
        commit or event of it; now for None. Raises BadName, NotFound.
        """
        if at is None:
            return await self.state(space)
        to, up_to, wanted = point_in(at)
        known = self._known.get(space)
        begin = spaces.initial()
        if to is not None and known is not None and known.version == to:
            return known
        if to is not None:
            begin = self._before(space, to) or begin
            if begin.version == to:
                return begin
        commits = await self.log.read(stream_of(space), after=begin.version, to=to, up_to=up_to)
        if wanted:
            commits = commits_until(commits, wanted, f"memory {space}")
        state = await self._walked(space, begin, commits)
        if to is not None and state.version < to:
            raise NotFound(f"version @{to} of memory {space}", "see 'hansard memory log'")
        return state

    def _before(self, space: str, version: int) -> MemoryState | None:
        """The nearest kept state of a space that is not beyond a version."""
        kept = [each for name, each in self._passed if name == space and each <= version]
        return self._passed[space, max(kept)] if kept else None

    async def _walked(
        self, space: str, state: MemoryState, commits: Sequence[Stored]
    ) -> MemoryState:
        """A state after more commits; those that it passes are kept now and then."""
        for begin in range(0, len(commits), PASSED_EVERY):
            part = commits[begin : begin + PASSED_EVERY]
            state = await self.folded(state, part)
            if len(part) == PASSED_EVERY:
                self._passed[space, state.version] = state
        return state

    async def history(self, space: str, *, after: int = 0) -> list[MemoryEventAt]:
        """The events of a space after a version, large edits in full."""
        commits = await self.log.read(stream_of(space), after=after)
        return [each for stored in commits for each in await self._events(stored)]

    async def spaces(self) -> list[str]:
        """The names of all spaces that were ever written, sorted."""
        commits = await self.log.read_kind(KIND)
        return sorted(
            {each.stream.id for each in commits if isinstance(each.stream, WorkspaceStream)}
        )

    def keep(self, space: str, state: MemoryState) -> None:
        """Take over a state that is known to stand in the log, unless a later one is known."""
        before = self._known.get(space)
        if before is None or before.version <= state.version:
            self._known[space] = state
            self._known.move_to_end(space)
            while len(self._known) > SPACES_MAX:
                self._forget(next(iter(self._known)))

    def _forget(self, space: str) -> None:
        """Keep nothing of a space. Nobody takes in what comes by of it until it is kept again, so
        whoever is reading it now reads on before that.
        """
        self._known.pop(space, None)
        for read in self._reads:
            read.missed = read.missed or read.space == space

    async def folded(self, state: MemoryState, commits: Sequence[Stored]) -> MemoryState:
        """A state after more commits; the given one is left as it is."""
        if not commits:
            return state
        state = state.copy()
        for index, stored in enumerate(commits):
            if index % OTHERS_EVERY == OTHERS_EVERY - 1:
                await asyncio.sleep(0)
            for each in await self._events(stored):
                spaces.evolve(state, each.event, by_of(stored, each.id))
        return state

    async def _events(self, stored: Stored) -> list[MemoryEventAt]:
        return [
            MemoryEventAt(
                stored,
                stored.commit.version + index,
                recorded.id,
                await self._in_full(revive(recorded)),
            )
            for index, recorded in enumerate(stored.commit.events)
        ]

    async def _in_full(self, event: Event) -> Event:
        """An event with its large edits fetched."""
        if not isinstance(event, MemoryChanged):
            return event
        if all(references.BLOB not in bytes(file.edit) for file in event.files):
            return event
        files: list[FileChange] = []
        for part in _parts(event.files):
            named = {blob for _, blobs in part for blob in blobs}
            held = await self._blobs.get_all(sorted(named))
            files += [await self._file_in_full(file, held) for file, _ in part]
        return msgspec.structs.replace(event, files=tuple(files))

    async def _file_in_full(self, file: FileChange, held: Mapping[str, bytes]) -> FileChange:
        async def get(sha256: str, size: int) -> bytes:
            return held[sha256] if sha256 in held else await self._blobs.get(sha256, size)

        edit = await drive_fetch(references.unpack(file.edit), get)
        return msgspec.structs.replace(file, edit=msgspec.Raw(msgspec.json.encode(edit)))

    # ------------------------------------------------------------ following

    async def follow(self, names: Sequence[str] = ()) -> None:
        """Follow the log from here on, and have some spaces read. Returns when they are."""
        if not self.is_following:
            head = await self.log.head()
            if not self.is_following:  # nobody else began meanwhile
                for name in [*self._known, *(read.space for read in self._reads)]:
                    self._forget(name)  # it may have changed before the head
                self._following[:] = [asyncio.create_task(self._follow(head))]
        for name in names:
            await self.state(name)

    async def close(self) -> None:
        """Follow no more."""
        for task in self._following:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._following.clear()

    async def _follow(self, after: int) -> None:
        while True:
            try:
                async for stored in self.log.follow(after, of=Kind(KIND)):
                    await self._take(stored)
                    after = stored.position
            except BusError:
                await asyncio.sleep(FOLLOW_PAUSE_S)

    async def _take(self, stored: Stored) -> None:
        """Fold a commit that came by into what is known of its space, if anything is."""
        if not isinstance(stored.stream, WorkspaceStream):
            return
        name = stored.stream.id
        known = self._known.get(name)
        if known is None:
            self._forget(name)
            return
        if known.version >= stored.commit.last_version:
            return
        if known.version + 1 == stored.commit.version:
            self.keep(name, await self.folded(known, [stored]))
            return
        try:
            await self.state(name)
        except HansardError:  # read again by whoever asks, who is told
            self._forget(name)


_Named = list[tuple[FileChange, list[tuple[str, int]]]]
"""Files of a change, each with the blobs that its edit names."""


def _parts(files: Iterable[FileChange]) -> Iterator[_Named]:
    """Files of a change, so many at once as FETCHED_BYTES_MAX allows."""
    part: _Named = []
    size = 0
    for file in files:
        blobs = list(references.blobs_named(bytes(file.edit)))
        more = sum(each for _, each in blobs)
        if part and size + more > FETCHED_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append((file, blobs))
        size += more
    if part:
        yield part


def by_of(stored: Stored, event_id: str) -> By:
    """What the commit around an event says."""
    author = author_of(stored.commit, event_id)
    return By(author, stored.stamp, event_id, stored.commit.label)
