"""Memory in the log: spaces at any point, and the last-read spaces of the process.

A space that is followed (`follow`) is updated as commits arrive: reading it needs no request. For
any other space, new commits are read first. Texts are fetched and checked on use (`load`, `using`).
Everything but `known` runs on the bus's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar

import msgspec
from cachetools import LRUCache

from hansard.bus.commits import revive
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import Blobs, EventLog, Kind, Stored, in_parts
from hansard.domain.board import By
from hansard.domain.errors import Corrupt, HansardError
from hansard.domain.events import Commit, Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import KIND, MemoryChanged, stream_of
from hansard.domain.memory.lines import Unfetched, in_full
from hansard.domain.memory.space import MemoryFile, MemoryState
from hansard.domain.payload import references
from hansard.state.aggregates import commits_until, point_in

SPACES_MAX = 256
"""Most spaces kept in memory; others are read from the log again."""

PASSED_EVERY = 50
"""Versions between two cached past states of a space, so that the next read continues from the
nearest one.
"""

PASSED_MAX = 256
"""Most cached past states, over all spaces."""

OTHERS_EVERY = 50
"""Commits after which other tasks of the loop get to run."""

FOLLOW_PAUSE_S = 1.0
"""Pause between two attempts to follow an unreachable log, in seconds."""

DEPTH_MAX = 1_000
"""Most pending changes of a file's text; then they are applied."""

T = TypeVar("T")

READS_MAX = 10
"""Most reads of a space that changes meanwhile; after that the result is not cached."""


class MemoryEventAt(msgspec.Struct, frozen=True):
    """An event of a space, with its commit and its version."""

    stored: Stored
    version: int
    id: str
    event: Event

    @property
    def author(self) -> str:
        """Author of the change; of an imported one the author that its source claims."""
        return author_of(self.stored.commit, self.id)

    @property
    def at(self) -> str:
        """Time of the change; of an imported one the time that its source claims. ISO 8601."""
        return _claimed_at(self.stored.commit, self.id) or self.stored.time.isoformat()


def _claimed_at(commit: Commit, event_id: str) -> str | None:
    return next((each.occurred_at for each in commit.events if each.id == event_id), None)


def author_of(commit: Commit, event_id: str) -> str:
    """Return the author of an event; of an imported one the author that its source claims."""
    actor = commit.actor
    is_imported = bool(actor.on_behalf_of) and _claimed_at(commit, event_id) is not None
    return actor.on_behalf_of[0] if is_imported else actor.agent


class _Read(msgspec.Struct, eq=False):
    """A space that is being read; `missed`: set if a commit arrived meanwhile that was not
    folded.
    """

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
        """Return the same memories, written through another log of the same record; cached states
        are shared.
        """
        made = copy.copy(self)
        made.log = log
        return made

    def known(self, space: str) -> MemoryState | None:
        """Return a followed space as received from the log, in any thread; None if it is not
        followed, or was not read yet. The state is immutable.
        """
        return self._known.get(space) if self.is_following else None

    @property
    def is_following(self) -> bool:
        """True if the log is followed."""
        return bool(self._following) and not self._following[0].done()

    async def whole(self, space: str, at: object = None) -> MemoryState:
        """Return a space with the texts of all of its files. Raises as `at` and `load`."""
        state = await self.at(space, at)
        await self.load(state.files.values())
        return state

    async def load(self, files: Iterable[MemoryFile | None]) -> None:
        """Fetch the texts of some files, in as few requests as possible, and check them. Raises
        NotFound for an erased text, Corrupt.
        """
        bodies = [file.body for file in files if file is not None and file.body.known is None]
        for texts, blobs in in_parts((body, list(body.blobs())) for body in bodies):
            held = await self._blobs.get_all(blobs) if blobs else {}
            for index, text in enumerate(texts, 1):
                text.text(held)
                if index % OTHERS_EVERY == 0:
                    await asyncio.sleep(0)

    async def using(self, work: Callable[[], T], first: Iterable[MemoryFile | None] = ()) -> T:
        """Return the result of `work`, which must only read: it runs again each time that a missing
        text has been fetched. `first`: files known to be needed. Raises as `load`.
        """
        await self.load(first)
        while True:
            try:
                return work()
            except Unfetched as error:
                error.text.text(await self._blobs.get_all(sorted(set(error.text.blobs()))))

    async def state(self, space: str) -> MemoryState:
        """Return the current space; must not be modified. Costs a read of the new commits; callers
        load the texts.
        """
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
        """Return a space at a point: a version ('@3'), a position, a time, or the id of a commit or
        event of it; None for now. Raises BadName, NotFound.
        """
        if at is None:
            return await self.state(space)
        to, up_to, version_wanted = point_in(at)
        known = self._known.get(space)
        begin = spaces.initial()
        if to is not None and known is not None and known.version == to:
            return known
        if to is not None:
            begin = self._before(space, to) or begin
            if begin.version == to:
                return begin
        commits = await self.log.read(stream_of(space), after=begin.version, to=to, up_to=up_to)
        if version_wanted:
            commits = commits_until(commits, version_wanted, f"memory {space}")
        state = await self._walked(space, begin, commits)
        if to is not None and state.version < to:
            raise NotFound(f"version @{to} of memory {space}", "see 'hansard memory log'")
        return state

    def _before(self, space: str, version: int) -> MemoryState | None:
        """Return the nearest cached state of a space that is not beyond a version."""
        kept = [each for name, each in self._passed if name == space and each <= version]
        return self._passed[space, max(kept)] if kept else None

    async def _walked(
        self, space: str, state: MemoryState, commits: Sequence[Stored]
    ) -> MemoryState:
        """Fold commits into a state, caching some of the states in between."""
        for begin in range(0, len(commits), PASSED_EVERY):
            part = commits[begin : begin + PASSED_EVERY]
            state = await self.folded(state, part)
            if len(part) == PASSED_EVERY:
                self._passed[space, state.version] = state
        return state

    async def history(self, space: str, *, after: int = 0) -> list[MemoryEventAt]:
        """Return the events of a space after a version."""
        commits = await self.log.read(stream_of(space), after=after)
        return [each for stored in commits for each in _events(stored)]

    async def spaces(self) -> list[str]:
        """Return the names of all spaces that were ever written, sorted."""
        commits = await self.log.read_kind(KIND)
        return sorted(
            {each.stream.id for each in commits if isinstance(each.stream, WorkspaceStream)}
        )

    def keep(self, space: str, state: MemoryState) -> None:
        """Cache a state known to be in the log, unless a later one is cached."""
        before = self._known.get(space)
        if before is None or before.version <= state.version:
            self._known[space] = state
            self._known.move_to_end(space)
            while len(self._known) > SPACES_MAX:
                self._forget(next(iter(self._known)))

    def _forget(self, space: str) -> None:
        """Drop a space from the cache. Commits that arrive until it is cached again are not folded,
        so concurrent reads of it must continue until then.
        """
        self._known.pop(space, None)
        for read in self._reads:
            read.missed = read.missed or read.space == space

    async def folded(self, state: MemoryState, commits: Sequence[Stored]) -> MemoryState:
        """Return a state after more commits; the given one is not modified."""
        if not commits:
            return state
        state = state.copy()
        for index, stored in enumerate(commits):
            if index % OTHERS_EVERY == OTHERS_EVERY - 1:
                await asyncio.sleep(0)
            for each in _events(stored):
                event = await self._with_links(state, each.event)
                spaces.evolve(state, event, by_of(stored, each.id))
                await self._shorten(state, event)
        return state

    async def _with_links(self, state: MemoryState, event: Event) -> Event:
        """Return an event that can be folded: the targets of its links are fetched."""
        if not isinstance(event, MemoryChanged) or not any(each.link for each in event.files):
            return event
        links = [each for each in event.files if each.link]
        await self.load(state.files.get(each.was or each.path) for each in links)
        named = {blob for each in links for blob in references.blobs_named(bytes(each.edit))}
        if not named:
            return event
        held = await self._blobs.get_all(sorted(named))
        files = tuple(in_full(each, held) if each.link else each for each in event.files)
        return msgspec.structs.replace(event, files=files)

    async def _shorten(self, state: MemoryState, event: Event) -> None:
        """Derive the texts that more than DEPTH_MAX changes lead to, unless they cannot be."""
        for each in event.files if isinstance(event, MemoryChanged) else ():
            file = state.files.get(each.path)
            if file is not None and file.body.depth > DEPTH_MAX:
                with contextlib.suppress(Corrupt, NotFound):
                    await self.load([file])

    # ------------------------------------------------------------ following

    async def follow(self, names: Sequence[str] = ()) -> None:
        """Follow the log from now on, and read some spaces. Returns once they are read."""
        if not self.is_following:
            head = await self.log.head()
            if not self.is_following:  # unless a concurrent call began it
                for name in [*self._known, *(read.space for read in self._reads)]:
                    self._forget(name)  # may have changed before the head
                self._following[:] = [asyncio.create_task(self._follow(head))]
        for name in names:
            await self.whole(name)

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
        """Fold a commit that arrived into the cached space, if any."""
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
            state = await self.folded(known, [stored])
            with contextlib.suppress(HansardError):  # raised again when the text is used
                await self.load(_changed(state, stored))
            self.keep(name, state)
            return
        try:
            await self.state(name)
        except HansardError:  # the next reader reads again and gets the error
            self._forget(name)


def _events(stored: Stored) -> list[MemoryEventAt]:
    return [
        MemoryEventAt(stored, stored.commit.version + index, recorded.id, revive(recorded))
        for index, recorded in enumerate(stored.commit.events)
    ]


def _changed(state: MemoryState, stored: Stored) -> list[MemoryFile | None]:
    """Return the files of a state that a commit changed."""
    return [
        state.files.get(file.path)
        for each in _events(stored)
        if isinstance(each.event, MemoryChanged)
        for file in each.event.files
    ]


def by_of(stored: Stored, event_id: str) -> By:
    """Return author, time and label of an event from its commit."""
    author = author_of(stored.commit, event_id)
    return By(author, stored.stamp, event_id, stored.commit.label)
