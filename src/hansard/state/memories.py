"""Memory in the log: spaces at any point, and the last-read spaces of the process.

A space that is followed (`follow`) is updated as commits arrive: reading it needs no request. For
any other space, new commits are read first. Texts are fetched and checked on use (`load`, `using`).
Everything but `known` runs on the bus's loop.

Of a large space a snapshot is kept outside the log: its files without their texts, each with the
versions that led to it. A process that needs the space decodes the files that it uses, and folds
what follows. Where no snapshot fits (there is none, it is damaged, of another version, or of
another history than the log's), the whole stream is folded.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar

import msgspec
from cachetools import LRUCache

from hansard._version import SERVER_VERSION
from hansard.bus import subjects
from hansard.bus.commits import revive
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import Blobs, EventLog, Kind, Snapshots, Stored, in_parts
from hansard.domain import payload
from hansard.domain.decider import By, evolve
from hansard.domain.errors import Corrupt, HansardError
from hansard.domain.events import Commit, Event
from hansard.domain.fingerprint import digest
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label
from hansard.domain.memory import space as spaces
from hansard.domain.memory.files import KIND, FileChange, MemoryChanged, stream_of
from hansard.domain.memory.lines import FileText, Unfetched, in_full
from hansard.domain.memory.space import Files, MemoryFile, MemoryState
from hansard.state.aggregates import commits_until, point_in
from hansard.state.replay import check_reached

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


GAP_MAX = 4
"""So many versions that are not needed are read between two that are: a commit may be large."""

SPANS_MAX = 64
"""Most requests for the versions that snapshots name; for more the whole stream is read."""

SNAPSHOT_EVERY = 512
"""Versions or changed files since the newest snapshot from which an ending process makes another
one.
"""

PART_BYTES = 512 * 1024
"""Most bytes of a snapshot in one message."""

PARTS_MAX = 32
"""Most messages of a snapshot; a space that needs more has none."""

_OF_COMMIT = ("author", "role", "event", "label", "changed")
_OF_FILE = ("digest", "created", "size", "link", "binary", "executable")
"""Fields of a file in a snapshot: those shared by the files of one commit, and its own."""

_Written = tuple[str, str, str, Label | None, int]

_Snapshot = tuple[MemoryState, list[_Written], dict[str, msgspec.Raw]]
"""The state without files; the rows of `_OF_COMMIT`; and of each file the number of its row, its
versions, newest first, and `_OF_FILE`.
"""

_snapshots: msgspec.json.Decoder[_Snapshot] = msgspec.json.Decoder(
    _Snapshot, dec_hook=lambda _kind, _value: Files()
)


def _layout() -> str:
    names = [*MemoryState.__struct_fields__, *MemoryFile.__struct_fields__, *_OF_COMMIT, *_OF_FILE]
    return "space-" + digest(SERVER_VERSION.encode(), *(name.encode() for name in names))[:12]


LAYOUT = _layout()
"""Name of the layout of snapshots: those of another version are ignored and made again."""


def _from_snapshot(space: str, data: bytes) -> MemoryState:
    """Decode a space, except its files, which are decoded on use. Raises DecodeError."""
    state, written, stored = _snapshots.decode(data)

    @functools.cache
    def file_at(path: str) -> MemoryFile:
        number, versions, *own = msgspec.json.decode(stored[path])
        body = FileText(unread=(space, path))
        for version in reversed(versions):
            body.trail = (version, body.trail)
        if path in state.links:
            body.known, body.unread = state.links[path], None
        fields = dict(zip((*_OF_COMMIT, *_OF_FILE), (*written[number], *own), strict=True))
        return MemoryFile(path=path, body=body, version=versions[0], **fields)

    state.files = Files(stored, file_at)
    return state


async def _to_snapshot(state: MemoryState) -> bytes:
    """Encode a state for `_from_snapshot`."""
    written: dict[object, int] = {}
    entries: dict[str, object] = {}
    for index, (path, file) in enumerate(state.files.items(), 1):
        if index % (10 * OTHERS_EVERY) == 0:
            await asyncio.sleep(0)
        of_commit = tuple(getattr(file, name) for name in _OF_COMMIT)
        number = written.setdefault(of_commit, len(written))
        own = (getattr(file, name) for name in _OF_FILE)
        entries[path] = (number, list(file.body.versions), *own)
    plain = {name: getattr(state, name) for name in state.__struct_fields__}
    plain |= {"files": None, "known_names": None}
    return msgspec.json.encode((plain, list(written), entries))


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
    """Reads spaces and caches their states."""

    def __init__(self, log: EventLog, blobs: Blobs, snapshots: Snapshots | None = None) -> None:
        self.log = log
        self._blobs = blobs
        self._snapshots = snapshots
        self._saved: dict[str, tuple[int, int]] = {}
        """Version of the newest snapshot of each space, and the number of files changed in memory
        before it.
        """
        self._known: OrderedDict[str, MemoryState] = OrderedDict()
        self._passed: LRUCache[tuple[str, int], MemoryState] = LRUCache(PASSED_MAX)
        self._following: list[asyncio.Task[None]] = []
        self._reads: list[_Read] = []

    def through(self, log: EventLog) -> Self:
        """Return the same memories, written through another log of the same record; cached states
        are shared.
        """
        memories = copy.copy(self)
        memories.log = log
        return memories

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
        await self._read_changes(bodies)
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
                await self._read_changes([error.text])
                error.text.text(await self._blobs.get_all(sorted(set(error.text.blobs()))))

    async def state(self, space: str) -> MemoryState:
        """Return the current space; must not be modified. Costs a read of the new commits; callers
        load the texts.
        """
        read = _Read(space)
        self._reads.append(read)
        try:
            state = self._known.get(space) or await self._first(space)
            for _ in range(READS_MAX):
                read.missed = False
                state = await self._after(space, state)
                if not read.missed:
                    self.keep(space, state)
                    break
        finally:
            self._reads.remove(read)
        return state

    async def _first(self, space: str) -> MemoryState:
        """Return the snapshot of a space if the log has its last commit, else the initial state."""
        state = await self._snapshot(space)
        if state is not None:
            begin, commit = state.end
            ends = await self.log.read(stream_of(space), after=begin - 1, to=begin, inside=True)
            if [each.commit.id for each in ends] == [commit]:
                self._saved[space] = state.version, 0
                return state
        return spaces.MemoryState()

    async def _after(self, space: str, state: MemoryState) -> MemoryState:
        commits = await self.log.read(stream_of(space), after=state.version)
        return await self.folded(state, commits)

    async def at(self, space: str, at: object) -> MemoryState:
        """Return a space at a point: a version ('@3'), a position, a time, or the id of a commit or
        event of it; None for now. Raises BadName, NotFound.
        """
        if at is None:
            return await self.state(space)
        to, up_to, point_id = point_in(at)
        await check_reached(self.log, up_to)
        known = self._known.get(space)
        begin = spaces.MemoryState()
        if to is not None and known is not None and known.version == to:
            return known
        if to is not None:
            begin = self._before(space, to) or begin
            if begin.version == to:
                return begin
        commits = await self.log.read(stream_of(space), after=begin.version, to=to, up_to=up_to)
        if point_id:
            commits = commits_until(commits, point_id, f"memory {space}")
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
                evolve(state, event, by_of(stored, each.id))
                await self._shorten(state, event)
            state.end = stored.commit.version, stored.commit.id
        return state

    async def _with_links(self, state: MemoryState, event: Event) -> Event:
        """Return an event that can be folded: the targets of its links are fetched."""
        if not isinstance(event, MemoryChanged) or not any(each.link for each in event.files):
            return event
        links = [each for each in event.files if each.link]
        await self.load(state.files.get(each.was or each.path) for each in links)
        named = {blob for each in links for blob in payload.blobs_named(bytes(each.edit))}
        if not named:
            return event
        held = await self._blobs.get_all(sorted(named))
        files = tuple(in_full(each, held) if each.link else each for each in event.files)
        return msgspec.structs.replace(event, files=files)

    async def _shorten(self, state: MemoryState, event: Event) -> None:
        """Derive the texts with more than DEPTH_MAX pending changes, if possible."""
        for each in event.files if isinstance(event, MemoryChanged) else ():
            file = state.files.get(each.path)
            if file is not None and file.body.depth > DEPTH_MAX:
                with contextlib.suppress(Corrupt, NotFound):
                    await self.load([file])

    # ------------------------------------------------------------ snapshots

    async def _read_changes(self, bodies: Iterable[FileText]) -> None:
        """Read the changes of some texts that snapshots name. Raises Corrupt."""
        texts = [(text.unread, text) for body in bodies if (text := body.to_read) and text.unread]
        for space in {name for (name, _), _ in texts}:
            of_space = [(path, text) for (name, path), text in texts if name == space]
            versions = {version for _, text in of_space for version in text.versions}
            changes: dict[tuple[int, str], FileChange] = {}
            for spans in (_spans(versions), [(0, max(versions))]):
                if versions <= {version for version, _ in changes}:
                    break  # else one is inside of a commit
                read = functools.partial(self.log.read, stream_of(space), inside=True)
                parts = await asyncio.gather(*(read(after=after, to=to) for after, to in spans))
                events = [each for part in parts for stored in part for each in _events(stored)]
                changes = {
                    (each.version, file.path): file
                    for each in events
                    for file in (each.event.files if isinstance(each.event, MemoryChanged) else ())
                }
            for path, text in of_space:
                if text.unread is not None:
                    text.read(path, changes)

    def _keys(self, space: str) -> list[str]:
        """Return the subjects of a snapshot: that of its head, which has the digest of all parts,
        then theirs.
        """
        prefix = subjects.snapshot_prefix(self.log.workspace, stream_of(space), LAYOUT)
        return [f"{prefix}.{part}" for part in range(PARTS_MAX + 1)]

    async def _snapshot(self, space: str) -> MemoryState | None:
        """Return a space from its snapshot; None if there is no complete one."""
        if self._snapshots is None:
            return None
        head, *keys = self._keys(space)
        held = await self._snapshots.get_many([head, *keys])
        try:
            count, sha256 = msgspec.json.decode(held[head], type=tuple[int, str])
            data = b"".join(held[key] for key in keys[:count])
            is_whole = hashlib.sha256(data).hexdigest() == sha256
            return _from_snapshot(space, data) if is_whole else None
        except (KeyError, msgspec.DecodeError):
            return None

    async def _save(self, space: str) -> None:
        """Send a snapshot of a cached space if the newest one is too old, without waiting until it
        is stored. The head is sent last, so that a killed call leaves no snapshot.
        """
        state = self._known.get(space)
        version, changed = self._saved.get(space, (0, 0))
        if self._snapshots is None or state is None:
            return
        if max(state.version - version, len(state.files.changed) - changed) < SNAPSHOT_EVERY:
            return
        self._saved[space] = state.version, len(state.files.changed)
        data = await _to_snapshot(state)
        parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        head, *keys = self._keys(space)
        parts = [*parts, msgspec.json.encode((len(parts), hashlib.sha256(data).hexdigest()))]
        if len(parts) <= len(keys):
            with contextlib.suppress(BusError):
                for key, part in zip([*keys[: len(parts) - 1], head], parts, strict=True):
                    await self._snapshots.put(key, part)

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
        """Stop following, and send the snapshots that are due."""
        for space in list(self._known):
            await self._save(space)
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


def _spans(versions: Iterable[int]) -> list[tuple[int, int]]:
    """Return what to read for some versions: after which one, and up to which one."""
    spans: list[tuple[int, int]] = []
    for version in sorted(versions):
        near = spans and version - spans[-1][1] <= GAP_MAX
        spans.append((spans.pop()[0] if near else version - 1, version))
    return spans if len(spans) <= SPANS_MAX else [(0, spans[-1][1])]


def by_of(stored: Stored, event_id: str) -> By:
    """Return author, time and label of an event from its commit."""
    author = author_of(stored.commit, event_id)
    return By(author, stored.stamp, event_id, stored.commit.label)
