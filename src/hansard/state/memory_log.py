"""An `EventLog` in the memory of this process: for records in memory, and the reference against
which the contract suite checks JetStream.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice

from hansard.bus import subjects
from hansard.bus.commits import (
    check_each,
    check_versions,
    enveloped,
    first_version,
    stored_from,
    transactions,
    until,
    wholes,
)
from hansard.bus.errors import Conflict, NotFound
from hansard.bus.log import (
    Append,
    AtPosition,
    AtTime,
    Kind,
    LivesAt,
    NothingUnder,
    NotYet,
    RunStreams,
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
    run_of,
    workspace_name,
)

POLL_S = 0.01
"""Poll interval of `follow` while nothing is new, in seconds."""


class MemoryLog:
    """Commits of one workspace, encoded and decoded as in any other log.

    May be used in several threads. No method except `follow` suspends.
    """

    durability = "memory"

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace_name(workspace)
        """Name of the workspace."""
        self._lock = threading.Lock()
        self._commits: list[Stored] = []
        self._streams: dict[StreamId, list[Stored]] = {}

    def after(self, position: int) -> list[Stored]:
        """Return all commits after a position, in order, without waiting."""
        return self._commits[position:]

    def copy(self, up_to: int | None = None) -> MemoryLog:
        """Return a separate log with the same commits, byte for byte; with `up_to` those up to that
        position, and of a transaction all or none.
        """
        other = MemoryLog(self.workspace)
        other._keep(self._commits if up_to is None else until(self._commits, up_to))
        return other

    async def append(self, append: Append) -> Stored:
        """Append one commit. Raises Conflict, TooLarge."""
        return self._insert([append])[0]

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append to several streams, all or none. Raises Conflict, TooLarge, BadValue."""
        return self._insert(transactions([appends]))

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """Append several transactions, all or none. Raises Conflict, TooLarge, BadValue."""
        stored = iter(self._insert(transactions(groups)))
        return [list(islice(stored, len(group))) for group in groups]

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """Append many commits in order. Raises Conflict, TooLarge."""
        before = len(self._commits)
        for whole in wholes(appends):
            self._insert(whole)
        return len(self._commits) - before

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
            for stored in self._streams.get(stream, [])
            if after < stored.commit.version and (to is None or stored.commit.version <= to)
        ]
        check_versions(stream, commits, first_version(commits, after, inside=inside))
        return until(commits, await self.end(up_to))

    async def read_streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """Return several streams, by position. Raises Corrupt."""
        return await self._chosen(set(streams).__contains__, up_to)

    async def read_run(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Return all streams of a run, by position. Raises Corrupt."""
        return await self._chosen(lambda stream: getattr(stream, "run", None) == run, up_to)

    async def read_boards(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Return the streams of a run's shared state and budgets, by position. Raises Corrupt."""
        return await self._chosen(
            lambda stream: isinstance(stream, KeyStream) and stream.run == run, up_to
        )

    async def read_kind(self, kind: str, up_to: UpTo = None) -> list[Stored]:
        """Return all streams of a kind that outlives runs, by position. Raises Corrupt."""
        return await self._chosen(lambda stream: _is_of(stream, Kind(kind)), up_to)

    async def _chosen(self, is_chosen: Callable[[StreamId], bool], up_to: UpTo) -> list[Stored]:
        commits = [stored for stored in self._commits if is_chosen(stored.stream)]
        check_each(commits)
        return until(commits, await self.end(up_to))

    async def end(self, up_to: UpTo) -> int:
        """Return the position at which a read up to a point ends."""
        match up_to:
            case None:
                return await self.head()
            case AtPosition(position):
                return position
            case AtTime(stamp):
                return sum(stored.stamp <= stamp for stored in self._commits)

    async def last(self, stream: StreamId | RunStreams) -> Stored | None:
        """Return the newest commit of a stream, or of a run."""
        return self._newest(lambda each: each == stream or _is_of(each, stream))

    async def at(self, position: int) -> Stored:
        """Return the commit at a position. Raises NotFound."""
        if 0 < position <= len(self._commits):
            return self._commits[position - 1]
        raise NotFound(f"position {position}", f"the log ends at {await self.head()}")

    async def runs(self, key: str | None = None) -> list[str]:
        """Return the ids of all runs, or of those whose board has ever had a key."""
        streams = list(self._streams)
        if key is None:
            return [stream.run for stream in streams if isinstance(stream, RunStream)]
        return [each.run for each in streams if isinstance(each, KeyStream) and each.key == key]

    async def newest_runs(self, most: int) -> list[str]:
        """Return the runs whose lives were continued last, newest first."""
        lives = (each.stream for each in reversed(self._commits))
        runs = dict.fromkeys(each.run for each in lives if isinstance(each, RunStream))
        return [*runs][:most]

    async def head(self) -> int:
        """Return the newest position; 0 for an empty log."""
        return len(self._commits)

    async def follow(
        self,
        after: int = 0,
        *,
        until: int | None = None,
        of: StreamId | Kind | RunStreams | None = None,
    ) -> AsyncIterator[Stored]:
        """Yield every commit after a position. Raises Corrupt for one beyond the head."""
        head = await self.head()
        if after > head and (until is None or until > after):
            raise Corrupt("the log", f"it ends at {head}, but {after} was read before")
        while until is None or after < until:
            new = self._commits[after:until]
            for stored in new:
                after = stored.position
                if of is None or stored.stream == of or _is_of(stored.stream, of):
                    yield stored
            await asyncio.sleep(0 if new else POLL_S)

    def _insert(self, appends: Sequence[Append]) -> list[Stored]:
        """Store all or none; commits already stored with the same ids count as success."""
        entries = [enveloped(append) for append in appends]
        with self._lock:
            existing = self._existing([append for append, _ in entries])
            if existing is not None:
                return existing
            last = self._commits[-1].stamp if self._commits else 0
            stamp = max(time.time_ns(), last + 1)
            commits = [
                stored_from(
                    len(self._commits) + 1 + index,
                    stamp + index,
                    subjects.subject(self.workspace, append.stream, append.commit.version),
                    body,
                    append.copied.origin if append.copied is not None else None,
                )
                for index, (append, body) in enumerate(entries)
            ]
            self._keep(commits)
            return commits

    def _keep(self, commits: Iterable[Stored]) -> None:
        for stored in commits:
            self._streams.setdefault(stored.stream, []).append(stored)
            self._commits.append(stored)

    def _existing(self, appends: Sequence[Append]) -> list[Stored] | None:
        """Return the same commits if already stored; None if all of them may be stored. Raises
        Conflict.
        """
        stored = [self._version(each.stream, each.commit.version) for each in appends]
        own = [
            each
            for each, append in zip(stored, appends, strict=True)
            if each is not None and each.commit.id == append.commit.id
        ]
        if len(own) == len(appends):
            return own
        for winner, append in zip(stored, appends, strict=True):
            held, other = (False, winner) if winner is not None else self._holds(append)
            if not held:
                raise Conflict(append.stream, append.commit.version, other)
        return None

    def _holds(self, append: Append) -> tuple[bool, Stored | None]:
        """Return whether an append's condition holds, and the commit that decides it."""
        match append.expected:
            case VersionFree():
                return True, None
            case NothingUnder(run, agent):
                newest = self._newest(
                    lambda each: (
                        isinstance(each, AgentStream) and (each.run, each.agent) == (run, agent)
                    )
                )
                return newest is None, newest
            case StreamAt(stream, position):
                newest = self._newest(lambda each: each == stream)
                return (newest.position if newest else 0) == position, newest
            case LivesAt(position):
                newest = self._newest(lambda each: isinstance(each, RunStream))
                return (newest.position if newest else 0) == position, newest
            case NotYet(stream, version):
                for stored in self._streams.get(stream, ()):
                    if stored.commit.version <= version <= stored.commit.last_version:
                        return False, stored
                return True, None

    def _newest(self, of: Callable[[StreamId], bool]) -> Stored | None:
        """Return the newest commit of some streams."""
        ends = (commits[-1] for stream, commits in list(self._streams.items()) if of(stream))
        return max(ends, key=lambda stored: stored.position, default=None)

    def _version(self, stream: StreamId, version: int) -> Stored | None:
        commits = self._streams.get(stream, ())
        return next((stored for stored in commits if stored.commit.version == version), None)


def _is_of(stream: StreamId, of: object) -> bool:
    if isinstance(of, RunStreams):
        return run_of(stream) == of.run
    return isinstance(of, Kind) and isinstance(stream, WorkspaceStream) and stream.kind == of.name
