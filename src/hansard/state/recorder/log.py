"""An `EventLog` over any application recorder of the eventsourcing library.

With the library's in-memory recorder it is the reference against which the contract suite checks
JetStream. One commit is one stored event: the originator is the stream, the originator's version
the commit's first version, the state the content of a JetStream message, the notification id the
position.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from uuid import UUID

import msgspec
from eventsourcing.persistence import ApplicationRecorder, IntegrityError, StoredEvent
from eventsourcing.popo import POPOApplicationRecorder

from hansard.bus import subjects
from hansard.bus.commits import (
    check_each,
    check_versions,
    enveloped,
    first_version,
    stored_from,
    transaction,
    transactions,
    until,
    wholes,
)
from hansard.bus.errors import BrokerError, Conflict, NotFound
from hansard.bus.log import (
    Append,
    AtPosition,
    AtTime,
    Kind,
    LivesAt,
    NothingUnder,
    NotYet,
    Origin,
    Stored,
    StreamAt,
    UpTo,
    VersionFree,
)
from hansard.domain.errors import Corrupt
from hansard.domain.ids import (
    AgentStream,
    KeyStream,
    RunStream,
    StreamId,
    WorkspaceStream,
    uuid8,
    workspace_name,
)

TOPIC = "commit"
PAGE_EVENTS = 1_000
POLL_S = 0.01
"""Poll interval of `follow` while nothing is new, in seconds."""


class Row(msgspec.Struct, array_like=True):
    """State of a stored event."""

    subject: str
    stamp: int
    body: bytes
    origin: Origin | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Row).decode


class RecorderLog:
    """Commits of one workspace in a recorder that has no other writer.

    Keeps an index of all of it in memory. No method except `follow` suspends.
    """

    def __init__(
        self,
        workspace: str,
        recorder: ApplicationRecorder | None = None,
        *,
        durability: str = "memory",
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._workspace = workspace_name(workspace)
        self._durability = durability
        self._recorder = recorder if recorder is not None else POPOApplicationRecorder()
        self._now_ns = now_ns
        self._lock = threading.RLock()
        self._commits: list[Stored] = []
        self._streams: dict[StreamId, list[Stored]] = {}

    @property
    def workspace(self) -> str:
        """Name of the workspace."""
        return self._workspace

    @property
    def durability(self) -> str:
        """As passed to the constructor; `memory` for the in-memory recorder."""
        return self._durability

    @property
    def recorder(self) -> ApplicationRecorder:
        """Recorder that stores the commits."""
        return self._recorder

    def after(self, position: int) -> list[Stored]:
        """Return all commits after a position, in order, without waiting."""
        self._all()
        return [stored for stored in self._commits if stored.position > position]

    def copy(self, up_to: int | None = None) -> RecorderLog:
        """Return a separate log in memory with the same commits, byte for byte; with `up_to` those
        up to that position, and of a transaction all or none.
        """
        self._all()
        kept = self._commits if up_to is None else until(self._commits, up_to)
        last = kept[-1].position if kept else 0
        made = RecorderLog(self._workspace, now_ns=self._now_ns)
        events = self._recorder.select_notifications(0, max(1, last), stop=last) if last else []
        made._recorder.insert_events(list(events))
        return made

    async def append(self, append: Append) -> Stored:
        """Append one commit. Raises Conflict, TooLarge."""
        return self._insert([enveloped(append)])[0]

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append to several streams, all or none. Raises Conflict, TooLarge, BadValue."""
        if len(appends) < 2:  # noqa: PLR2004 -- a transaction of one is a commit
            return [await self.append(each) for each in appends]
        return self._insert([enveloped(each) for each in transaction(appends)])

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """Append several transactions, all or none. Raises Conflict, TooLarge, BadValue."""
        stored = iter(self._insert([enveloped(each) for each in transactions(groups)]))
        return [list(islice(stored, len(group))) for group in groups]

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """Append many commits in order. Raises Conflict, TooLarge."""
        new = 0
        for whole in wholes(appends):
            before = len(self._commits)
            self._insert([enveloped(append) for append in whole])
            new += len(self._commits) - before
        return new

    async def read(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        to: int | None = None,
        up_to: UpTo = None,
        inside: bool = False,
    ) -> list[Stored]:
        """Return one stream's commits. Raises Corrupt."""
        commits = [
            stored
            for stored in self._all().get(stream, [])
            if after < stored.commit.version and (to is None or stored.commit.version <= to)
        ]
        commits.sort(key=lambda stored: stored.commit.version)
        check_versions(stream, commits, first_version(commits, after, inside=inside))
        return self._cut(commits, up_to)

    async def read_streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """Return several streams, by position. Raises Corrupt."""
        return self._chosen(set(streams).__contains__, up_to)

    async def read_run(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Return all streams of a run, by position. Raises Corrupt."""
        return self._chosen(lambda stream: getattr(stream, "run", None) == run, up_to)

    async def read_boards(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Return the streams of a run's shared state and budgets, by position. Raises Corrupt."""
        return self._chosen(
            lambda stream: isinstance(stream, KeyStream) and stream.run == run, up_to
        )

    async def read_kind(self, kind: str, up_to: UpTo = None) -> list[Stored]:
        """Return all streams of a kind that outlives runs, by position. Raises Corrupt."""
        return self._chosen(lambda stream: _is_of(stream, Kind(kind)), up_to)

    async def end(self, up_to: UpTo) -> int:
        """Return the position at which a read up to a point ends."""
        match up_to:
            case None:
                return await self.head()
            case AtPosition(position):
                return position
            case AtTime(stamp):
                self._all()
                earlier = [stored.position for stored in self._commits if stored.stamp <= stamp]
                return earlier[-1] if earlier else 0

    async def last(self, stream: StreamId) -> Stored | None:
        """Return the newest commit of a stream."""
        commits = self._all().get(stream)
        return commits[-1] if commits else None

    async def at(self, position: int) -> Stored:
        """Return the commit at a position. Raises NotFound."""
        self._all()
        for stored in self._commits:
            if stored.position == position:
                return stored
        raise NotFound(f"position {position}", f"the log ends at {await self.head()}")

    async def runs(self, key: str | None = None) -> list[str]:
        """Return the ids of all runs, or of those whose board has ever had a key."""
        if key is None:
            return [stream.run for stream in self._all() if isinstance(stream, RunStream)]
        boards = [stream for stream in self._all() if isinstance(stream, KeyStream)]
        return [board.run for board in boards if board.key == key]

    async def head(self) -> int:
        """Return the newest position; 0 for an empty log."""
        self._all()
        return self._commits[-1].position if self._commits else 0

    async def follow(
        self, after: int = 0, *, until: int | None = None, of: StreamId | Kind | None = None
    ) -> AsyncIterator[Stored]:
        """Yield every commit after a position. Raises Corrupt for one beyond the head."""
        taken, head = 0, await self.head()
        if after > head and (until is None or until > after):
            raise Corrupt("the log", f"it ends at {head}, but {after} was read before")
        while until is None or after < until:
            self._all()
            new, taken = self._commits[taken:], len(self._commits)
            for stored in new:
                if until is not None and stored.position > until:
                    return
                if stored.position > after:
                    after = stored.position
                    if of is None or stored.stream == of or _is_of(stored.stream, of):
                        yield stored
            await asyncio.sleep(0 if new else POLL_S)

    def _insert(self, appends: list[tuple[Append, bytes]]) -> list[Stored]:
        """Store all or none; commits already stored with the same ids count as success."""
        with self._lock:
            standing = self._standing(appends)
            if standing is not None:
                return standing
            stamp = max(self._now_ns(), self._commits[-1].stamp + 1 if self._commits else 0)
            events = [
                StoredEvent(
                    originator_id=self._originator(append.stream),
                    originator_version=append.commit.version,
                    topic=TOPIC,
                    state=_encode(Row(self._subject(append), stamp + i, body, _origin(append))),
                )
                for i, (append, body) in enumerate(appends)
            ]
            try:
                self._recorder.insert_events(events)
            except IntegrityError as error:  # another process won the race
                standing = self._standing(appends)
                if standing is None:
                    raise BrokerError("appending to the recorder", 0, str(error)) from error
                return standing
            self._all()
            return self._commits[-len(appends) :]

    def _standing(self, appends: list[tuple[Append, bytes]]) -> list[Stored] | None:
        """Return the same commits if already stored; None if all of them may be stored. Raises
        Conflict.
        """
        streams = self._all()
        found = [_version(streams.get(a.stream, []), a.commit.version) for a, _ in appends]
        own = [
            stored
            for stored, (append, _) in zip(found, appends, strict=True)
            if stored is not None and stored.commit.id == append.commit.id
        ]
        if len(own) == len(appends):
            return own
        for stored, (append, _) in zip(found, appends, strict=True):
            if stored is not None:
                raise Conflict(append.stream, append.commit.version, stored)
            held, winner = self._holds(append)
            if not held:
                raise Conflict(append.stream, append.commit.version, winner)
        return None

    def _holds(self, append: Append) -> tuple[bool, Stored | None]:
        match append.expected:
            case VersionFree():
                return True, None
            case NothingUnder(run, agent):
                for stored in reversed(self._commits):
                    stream = stored.stream
                    if isinstance(stream, AgentStream) and (stream.run, stream.agent) == (
                        run,
                        agent,
                    ):
                        return False, stored
                return True, None
            case StreamAt(stream, position):
                commits = self._streams.get(stream)
                newest = commits[-1] if commits else None
                return (newest.position if newest else 0) == position, newest
            case LivesAt(position):
                lives = (
                    each for each in reversed(self._commits) if isinstance(each.stream, RunStream)
                )
                newest = next(lives, None)
                return (newest.position if newest else 0) == position, newest
            case NotYet(stream, version):
                for stored in self._streams.get(stream, ()):
                    if stored.commit.version <= version <= stored.commit.last_version:
                        return False, stored
                return True, None

    def _all(self) -> dict[StreamId, list[Stored]]:
        """Index the recorder's new events."""
        with self._lock:
            while True:
                head = self._commits[-1].position if self._commits else 0
                page = self._recorder.select_notifications(
                    head, PAGE_EVENTS, inclusive_of_start=False
                )
                for event in page:
                    row = _decode(event.state)
                    stored = stored_from(
                        int(event.id), row.stamp, row.subject, row.body, row.origin
                    )
                    self._commits.append(stored)
                    self._streams.setdefault(stored.stream, []).append(stored)
                if len(page) < PAGE_EVENTS:
                    return self._streams

    def _chosen(self, is_wanted: Callable[[StreamId], bool], up_to: UpTo) -> list[Stored]:
        self._all()
        commits = [stored for stored in self._commits if is_wanted(stored.stream)]
        check_each(commits)
        return self._cut(commits, up_to)

    def _cut(self, commits: list[Stored], up_to: UpTo) -> list[Stored]:
        match up_to:
            case None:
                return commits
            case AtPosition(position):
                return until(commits, position)
            case AtTime(stamp):
                earlier = [stored.position for stored in self._commits if stored.stamp <= stamp]
                return until(commits, earlier[-1] if earlier else 0)

    def _subject(self, append: Append) -> str:
        return subjects.subject(self._workspace, append.stream, append.commit.version)

    def _originator(self, stream: StreamId) -> UUID:
        return UUID(uuid8(subjects.prefix(self._workspace, stream)))


def _is_of(stream: StreamId, of: object) -> bool:
    return isinstance(of, Kind) and isinstance(stream, WorkspaceStream) and stream.kind == of.name


def _origin(append: Append) -> Origin | None:
    return append.copied.origin if append.copied is not None else None


def _version(commits: list[Stored], version: int) -> Stored | None:
    return next((stored for stored in commits if stored.commit.version == version), None)
