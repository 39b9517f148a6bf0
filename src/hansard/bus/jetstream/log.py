"""The log on JetStream: one message per commit, one subject per version.

Long because its reads, its comparison with the mark and its followers are one concept.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from hansard.bus import subjects
from hansard.bus.archive import archive_at
from hansard.bus.clock import Slices
from hansard.bus.commits import check_each, check_versions, first_version, position_of, until
from hansard.bus.errors import BrokerError, BusError, Contradiction, NotFound
from hansard.bus.jetstream import streams as jetstream_streams
from hansard.bus.jetstream._append import FINISH_AFTER_S, Appender
from hansard.bus.jetstream.blobs import CHUNK_BYTES, JetStreamBlobs, JetStreamSnapshots
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.bus.jetstream.direct import (
    BEHIND_PAUSE_S,
    STREAM_NOT_FOUND,
    Direct,
    api,
    late_of,
    leader_of,
    replicas_of,
    stream_names,
)
from hansard.bus.jetstream.generations import Generations, Messages, Survey, survey
from hansard.bus.jetstream.wire import TooMany
from hansard.bus.log import Append, AtPosition, AtTime, Kind, RawMessage, RunStreams, Stored, UpTo
from hansard.bus.loggers import logger
from hansard.bus.marks import ACCEPTED, OUTSIDE_REMEDY, Extent, Newest, Witness, edited, loss
from hansard.bus.reads import ReadValidator, is_stream
from hansard.bus.sources import Message
from hansard.domain.errors import Corrupt, HansardError
from hansard.domain.ids import KeyStream, RunStream, StreamId, workspace_name

if TYPE_CHECKING:
    from hansard.bus.jetstream.regions import Lag

RECENT_POSITIONS, RECENT_POSITIONS_MAX = 500, 32_000
"""Longest first part of the log, and longest stretch, read for the newest runs, in positions."""

POSITIONS_A_RUN = 8
"""Positions of the first part for each requested run, if that is shorter."""

# Reading commits: one stream, several, a run; the newest state or one at a point.
#
# A subject is written once and never changes. So a read may take any number of requests and still
# be consistent: it fixes a position first, reads the names found after that, and drops later
# commits. `direct` ensures that each answer reaches that position, from whichever replica.

TAIL_VERSIONS_MAX = 4_000
"""Up to this many versions are requested by generated names, one per version; more are listed
first.
"""

HEAD_VERSIONS_MAX = 200
"""A read from the beginning up to one of these versions also uses generated names; a longer one
takes the whole stream in one answer if that fits.
"""

WILDCARDS_MAX = 200
"""Most streams in one request; more are read in groups, up to one position."""


class Reader:
    """The reading half of a `JetStreamLog`."""

    def __init__(self, workspace: str, messages: Messages, *, screened: bool = False) -> None:
        """`screened`: return stand-ins for commits that do not fit (`hansard.bus.reads`), and leave
        out subjects of no stream; otherwise a commit that cannot be decoded is Corrupt, and others
        are returned as stored.
        """
        self._workspace = workspace
        self._messages = messages
        self._screened = screened
        self._validator = ReadValidator(workspace, self._lives) if screened else None

    async def as_read(self, commits: list[Stored]) -> list[Stored]:
        """See `ReadsBack.as_read`."""
        return commits if self._validator is None else await self._validator.sift(commits)

    async def _lives(self, runs: Sequence[str]) -> list[Stored]:
        """Read the lives of runs, checked against their subjects only."""
        return await self.streams([RunStream(run) for run in runs])

    async def read(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        to: int | None = None,
        up_to: UpTo = None,
        inside: bool = False,
    ) -> list[Stored]:
        """See `EventLog.read`. 1 request up to 1,023 commits or with `to`, else 2 or more; of the
        newest state, 1 more with several replicas.
        """
        if to is not None and to <= after:
            return []
        cut = await self.cut(up_to)
        commits = await self._commits(stream, after, to, await self._required(cut))
        check_versions(stream, commits, first_version(commits, after, inside=inside))
        return await self.as_read(commits if cut is None else until(commits, cut))

    async def read_streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_streams`."""
        return await self.as_read(await self.streams(streams, up_to))

    async def streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """Read several streams as `read_streams`, checked against their subjects only."""
        distinct = list(dict.fromkeys(streams))
        cut = await self.cut(up_to)
        if not distinct:
            return []
        at_once = WILDCARDS_MAX
        if len(distinct) <= WILDCARDS_MAX:
            try:
                commits = await self._wholes(distinct, cut)
            except TooMany:
                at_once = max(1, len(distinct) // 2)
            else:
                check_each(commits)
                return commits if cut is None else until(commits, cut)
        if cut is None:
            cut = await self.head()
        commits = []
        for start in range(0, len(distinct), at_once):
            commits += await self._together(distinct[start : start + at_once], cut)
        commits.sort(key=position_of)
        check_each(commits)
        return until(commits, cut)

    async def _together(self, streams: Sequence[StreamId], cut: int) -> list[Stored]:
        """Return the commits of up to 200 streams in one request, halved if they do not fit."""
        if len(streams) == 1:
            return await self._commits(streams[0], 0, None, cut)
        try:
            return await self._wholes(streams, cut)
        except TooMany:
            half = len(streams) // 2
            before = await self._together(streams[:half], cut)
            return before + await self._together(streams[half:], cut)

    async def _wholes(self, streams: Sequence[StreamId], target: int | None) -> list[Stored]:
        """Return all commits of some streams by position, in one request. Raises TooMany."""
        patterns = [f"{subjects.prefix(self._workspace, stream)}.*" for stream in streams]
        return self._decoded(await self._messages.many(patterns, target))

    async def read_run(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_run`: the names first (2,000 in 5 to 8 ms), then 1,000 at a time."""
        return await self._matching(f"{subjects.run_prefix(self._workspace, run)}.>", up_to)

    async def read_boards(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_boards`."""
        return await self._matching(subjects.boards(self._workspace, run), up_to)

    async def read_kind(self, kind: str, up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_kind`."""
        return await self._matching(subjects.all_of_kind(self._workspace, kind), up_to)

    async def _matching(self, pattern: str, up_to: UpTo) -> list[Stored]:
        cut = await self.cut(up_to)
        names, head = await self.names(pattern)
        messages = await self._messages.named(names, head)
        commits: list[Stored] = []
        async with Slices() as slices:
            for message in messages:
                commits += self._decoded([message])
                if slices.over:
                    await slices.pause()
        commits.sort(key=position_of)
        check_each(commits)
        return await self.as_read(until(commits, head if cut is None else cut))

    async def last(self, stream: StreamId | RunStreams) -> Stored | None:
        """See `EventLog.last`."""
        message = await self._newest(_pattern(self._workspace, stream), None)
        return (await self.as_read([self._decode(message)]))[0] if message is not None else None

    async def at(self, position: int) -> Stored:
        """Return the commit at a position. Raises NotFound."""
        message = await self._messages.at(position) if position > 0 else None
        if message is None:
            raise NotFound(f"position {position}", f"the log ends at {await self.head()}")
        return (await self.as_read([self._decode(message)]))[0]

    async def runs(self, key: str | None = None) -> list[str]:
        """See `EventLog.runs`: 1 request for each 100,000 commits of the streams read."""
        kind = RunStream if key is None else KeyStream
        pattern = subjects.all_lives(self._workspace)
        if key is not None:
            pattern = subjects.all_of_key(self._workspace, key)
        names, head = await self.names(pattern)
        runs: dict[str, None] = {}
        digested: list[str] = []
        for name in names:
            token = name.split(".", 4)[3]
            if token.startswith("=="):
                digested.append(name)
            else:
                stream, _ = subjects.parse(name)  # Corrupt after a foreign write
                if isinstance(stream, kind):
                    runs[stream.run] = None
        for message in await self._messages.named(digested, head):
            digested_stream = self._decode(message).stream
            if isinstance(digested_stream, kind):
                runs[digested_stream.run] = None
        return list(runs)

    async def newest_runs(self, most: int) -> list[str]:
        """See `EventLog.newest_runs`: reads at most 32,000 positions, each part twice as long as
        the one after it, or half as long if it is too large for one answer.
        """
        pattern, runs = subjects.all_lives(self._workspace), dict[str, None]()
        end, span = await self.head(), min(RECENT_POSITIONS, POSITIONS_A_RUN * most)
        oldest = max(1, end - RECENT_POSITIONS_MAX + 1)
        while end >= oldest and len(runs) < most:
            first = max(oldest, end - span + 1)
            messages = await self._messages.matching(pattern, first, end)
            if messages is None and first < end:
                span = (end - first + 1) // 2
                continue
            for message in reversed(messages or []):
                stream = self._decode(message).stream if len(runs) < most else None
                if isinstance(stream, RunStream):
                    runs[stream.run] = None
            end, span = first - 1, 2 * span
        return [*runs]

    async def head(self) -> int:
        """See `EventLog.head`."""
        return await self._messages.head()

    async def end(self, up_to: UpTo) -> int:
        """Return the position where a read up to a point ends."""
        cut = await self.cut(up_to)
        return await self.head() if cut is None else cut

    async def cut(self, up_to: UpTo) -> int | None:
        """Return the position where a read ends; None for the newest.

        A time becomes the last position stamped at or before it, so that the guarantees for
        positions (a transaction is whole or absent) also hold for times.
        """
        match up_to:
            case None:
                return None
            case AtPosition(position):
                return position
            case AtTime(stamp):
                head = await self.head()  # first: if none is later, all up to it are earlier
                later = await self._messages.since(stamp, head)
                return later.position - 1 if later is not None else head
            case _:
                assert_never(up_to)

    async def names(self, pattern: str) -> tuple[list[str], int]:
        """Return all subjects that match, and a position up to which they are complete."""
        matches, head = await self._messages.names(pattern)
        return await self._of_streams(matches) if self._screened else matches, head

    @staticmethod
    async def _of_streams(names: list[str]) -> list[str]:
        """Return the names that a stream's commit may have."""
        matches: list[str] = []
        async with Slices() as slices:
            for name in names:
                if is_stream(name):
                    matches.append(name)
                if slices.over:
                    await slices.pause()
        return matches

    async def _required(self, cut: int | None) -> int:
        """Return the position that a read must reach."""
        return await self._messages.required() if cut is None else cut

    def _decode(self, message: Message) -> Stored:
        return message.screened() if self._screened else message.commit()

    def _decoded(self, messages: Iterable[Message]) -> list[Stored]:
        if not self._screened:
            return [message.commit() for message in messages]
        return [message.screened() for message in messages if is_stream(message.subject)]

    async def _newest(self, pattern: str, target: int | None) -> Message | None:
        """Return the newest message of a stream or a run."""
        newest = await self._messages.last(pattern, target)
        if newest is None or not self._screened or is_stream(newest.subject):
            return newest
        names, head = await self.names(pattern)
        messages = await self._messages.named(names, head)
        return max(messages, key=lambda message: message.position, default=None)

    async def _commits(
        self, stream: StreamId, after: int, to: int | None, target: int
    ) -> list[Stored]:
        """Return a stream's commits with first versions in (after, to], by version, unchecked."""
        prefix = subjects.prefix(self._workspace, stream)
        if after == 0 and (to is None or to > HEAD_VERSIONS_MAX):
            try:
                messages = await self._messages.many([f"{prefix}.*"], target)
            except TooMany:
                pass
            else:
                return _by_version(self._decoded(messages), to)
        end = to
        if end is None or end - after > TAIL_VERSIONS_MAX:
            newest = await self._newest(f"{prefix}.*", target)
            if newest is None:
                return []
            end = subjects.parse(newest.subject)[1]
            end = end if to is None else min(to, end)
        if end - after <= TAIL_VERSIONS_MAX:
            names = [f"{prefix}.{version}" for version in range(after + 1, end + 1)]
        else:
            listed = [(int(n.rpartition(".")[2]), n) for n in (await self.names(f"{prefix}.*"))[0]]
            names = [name for version, name in sorted(listed) if after < version <= end]
        raw_commits = await self._messages.named(names, target)
        return _by_version(self._decoded(raw_commits), to)


def _pattern(workspace: str, of: StreamId | RunStreams) -> str:
    """Return the filter for every commit of a stream or a run."""
    if isinstance(of, RunStreams):
        return f"{subjects.run_prefix(workspace, of.run)}.>"
    return f"{subjects.prefix(workspace, of)}.*"


def _by_version(commits: list[Stored], to: int | None) -> list[Stored]:
    if to is not None:
        commits = [stored for stored in commits if stored.commit.version <= to]
    commits.sort(key=position_of)
    return commits


# A workspace's streams as stored, undecoded: for their figures and for the recheck.
#
# Nothing here creates or changes a stream, and messages that cannot be decoded are passed on.

# The comparison of a workspace's log with its mark.
#
# It runs before anything is created or written: when a workspace is opened, after each reconnect,
# at each jump in the positions that a follower reads, and every few seconds in `hansard up`. It
# costs two parallel STREAM.INFO requests and the read of one message.

MADE_S_MAX = 2.0
MADE_POLL_S = 0.02
"""From the first file of a stream until the server offers it, in seconds: milliseconds on an idle
machine.
"""

GAPS_SHOWN_MAX = 5
"""Most gaps in the positions that an error names; `hansard check` lists all."""


async def refuse_loss(direct: Direct, workspace: str) -> Survey:
    """Return the generations of a workspace's log; none if there is no log yet.

    Raises Corrupt if the server does not offer a stream whose messages are on the disk, if the log
    lost positions at its head, in the middle or at its end, or if it is not the one that its mark
    was kept for. Such a log must not be replaced, or written to.
    """
    witness = direct.broker.options.witness
    kept = witness.kept(workspace) if witness is not None else None
    blob, info = subjects.blob_stream(workspace), functools.partial(_info, direct)
    at: Survey
    at, blob_info = await asyncio.gather(survey(direct, workspace, info), info(blob))
    if witness is not None:
        hidden, until_s = _hidden(witness, workspace, at), time.monotonic() + MADE_S_MAX
        while hidden is not None and time.monotonic() < until_s:  # it may be opened just now
            await asyncio.sleep(MADE_POLL_S)
            at = await survey(direct, workspace, info)
            hidden = _hidden(witness, workspace, at)
        folder = witness.files(blob) if blob_info is None else None
        hidden = hidden or ((blob, folder) if folder is not None else None)
        if hidden is not None:
            raise witness.hidden(workspace, *hidden)
    extent = at.whole.extent
    blobs = Extent.of(blob_info).last if blob_info is not None else 0
    newest: Newest | None = None
    if kept is not None and kept.mark.checkable and kept.mark.chained <= extent.last:
        kept, log = at.whole.checked(kept), at.whole.holding(kept.mark.chained)
        newest = await _message(direct, log, kept.mark.chained) if log is not None else None
    if loss(kept, extent, blobs, newest) is None:
        return at
    gaps = await _gaps(direct, at) if extent.missing else ""
    stream = at.streams[-1].stream if at.streams else subjects.log_stream(workspace)
    metadata = at.streams[-1].metadata if at.streams else {}
    command = edited(stream, metadata, ACCEPTED, extent.missing)
    remedy = (
        witness.remedy(workspace) if witness is not None else OUTSIDE_REMEDY.format(command=command)
    )
    fact = loss(kept, extent, blobs, newest, gaps)
    raise Corrupt(f"workspace {workspace!r}", f"{fact}. {remedy}")


def _hidden(witness: Witness, workspace: str, at: Survey) -> tuple[str, Path] | None:
    """Return a generation whose messages are on the disk though the server does not offer it, and
    the archive does not have it.
    """
    if len(at.streams) == 1 and not at.archived and not at.streams[0].is_sealed:
        return None  # the only generation of a log that was never rolled
    known = {each.stream for each in at.streams}
    known |= {subjects.generation_stream(workspace, each.generation) for each in at.archived}
    names = witness.logs(workspace)
    return next(((name, names[name]) for name in sorted(names) if name not in known), None)


async def _info(direct: Direct, name: str) -> dict[str, Any] | None:
    """Return a stream's STREAM.INFO; None if there is none.

    The files of a stream being created by another process exist before the server offers it.
    """
    witness = direct.broker.options.witness
    until_s = time.monotonic() + MADE_S_MAX
    while True:
        try:
            return await direct.info(name)
        except BrokerError as error:
            if error.code != STREAM_NOT_FOUND:
                raise
        if witness is None or witness.files(name) is None or time.monotonic() >= until_s:
            return None
        await asyncio.sleep(MADE_POLL_S)


async def _message(direct: Direct, name: str, position: int) -> Newest | None:
    """Return the subject and body at a position; None if the server has none, or cannot read it."""
    try:
        message = await direct.at(name, position)
    except BrokerError:
        return None
    return None if message is None else (message.subject, message.body)


async def _gaps(direct: Direct, at: Survey) -> str:
    """Describe the first missing positions of a log, for people."""
    missing: list[int] = []
    end = at.archived[-1].last if at.archived else 0
    for each in at.streams:
        state = (await direct.info(each.stream, {"deleted_details": True}))["state"]
        missing += range(end + 1, min(state["first_seq"], state["last_seq"] + 1))
        missing += state.get("deleted") or []
        end = max(end, state["last_seq"])
    runs = _runs(missing)
    shown = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in runs[:GAPS_SHOWN_MAX]]
    return ", ".join(shown) + (" and more" if len(runs) > GAPS_SHOWN_MAX else "")


def _runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Format positions in order as ranges of consecutive ones."""
    ranges: list[tuple[int, int]] = []
    for position in positions:
        if ranges and position == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], position)
        else:
            ranges.append((position, position))
    return ranges


_LOG = re.compile(r"hansard_log-(?P<workspace>[^_]+)(?:_\d+)?")
_BLOB = re.compile(r"hansard_blob\.[^.]+\.(?P<sha256>[0-9a-f]{64})\.(?P<chunk>\d+)")

_SHA256 = re.compile(rb"[0-9a-f]{64}")
"""All that a commit may name a blob with, whatever its events are."""


class Figures(msgspec.Struct, frozen=True):
    """One JetStream stream: its messages and bytes, first and last sequence, replicas; its leader
    and the lagging servers, in a cluster. Of its messages, `archived` are no longer on the broker.
    """

    name: str
    messages: int
    bytes: int
    first: int
    last: int
    deleted: int
    replicas: int = 1
    leader: str = ""
    late: list[str] = []
    archived: int = 0

    def replica_warning(self, request: int) -> str | None:
        """Return a warning if it has fewer replicas than requested."""
        return (
            jetstream_streams.fewer(self.name, self.replicas, request)
            if self.replicas < request
            else None
        )


class Chunk(msgspec.Struct, frozen=True):
    """Messages in order, and the newest position of the log as the server last reported it."""

    messages: list[RawMessage]
    head: int


async def _pushed(
    messages: Messages,
    pattern: str,
    after: int,
    until: int | None,
    refuse: Callable[[], Awaitable[object]] | None,
) -> AsyncGenerator[tuple[list[Message], int]]:
    """Yield the messages that arrive together, up to the end of the read, with the newest position
    that the server reported; `refuse` is called at a jump in the positions, and raises if that is a
    loss.
    """
    async with contextlib.aclosing(messages.pushed(after, until, pattern)) as chunks:
        async for chunk, head in chunks:
            last = chunk[-1].position
            if refuse is not None and last != after + len(chunk):
                await refuse()
            after = last
            inside = [each for each in chunk if until is None or each.position <= until]
            if inside:
                yield inside, head
            if until is not None and last >= until:
                return


class RawWorkspace:
    """One workspace over a connection of its own. Created by `open`; close it with `close()`."""

    home = ""
    """The region that is the workspace's home, if this one has a copy."""

    def __init__(self, workspace: str, broker: Broker, *, damaged: bool = False) -> None:
        self.workspace = workspace
        self._broker = broker
        self._damaged = damaged
        self._direct = Direct(broker)
        self._messages = Messages(self._direct, Generations(workspace, self._direct))
        self._blobs = JetStreamBlobs(workspace, broker, self._direct)

    @classmethod
    async def open(
        cls, options: BrokerOptions, workspace: str, *, damaged: bool = False
    ) -> RawWorkspace:
        """Connect. Raises Unreachable, BrokerError, BadName, and Corrupt if the broker lost data of
        the workspace, unless it may be `damaged`.
        """
        workspace_name(workspace)
        raw = cls(workspace, await Broker.open(options), damaged=damaged)
        if not damaged:
            try:
                raw.home = (await refuse_loss(raw._direct, workspace)).home
            except BaseException:
                await raw.close()
                raise
        return raw

    @property
    def server_version(self) -> str:
        """The broker's version, as reported on connect."""
        return self._broker.server_version

    async def figures(self) -> list[Figures]:
        """Return the log, over all its generations, and the blob and snapshot streams that
        exist.
        """
        streams: list[Figures] = []
        at = (await survey(self._direct, self.workspace)).complete(self._broker)
        if at.streams:
            whole = _figures(subjects.log_stream(self.workspace), at.streams[-1].info)
            extent, infos = at.whole.extent, [each.info["state"] for each in at.streams]
            streams.append(
                msgspec.structs.replace(
                    whole,
                    messages=extent.messages,
                    bytes=sum(state["bytes"] for state in infos),
                    first=extent.first,
                    deleted=sum(state.get("num_deleted", 0) for state in infos),
                    archived=extent.messages - sum(state["messages"] for state in infos),
                )
            )
        for name in (
            subjects.blob_stream(self.workspace),
            subjects.snapshot_stream(self.workspace),
        ):
            info = await self._direct.info_of(name)
            if info is not None:
                streams.append(_figures(name, info))
        return streams

    async def workspaces(self) -> list[str]:
        """Return the names of all workspaces on the broker that this login sees."""
        names = await stream_names(self._broker)
        return sorted({m["workspace"] for name in names if (m := _LOG.fullmatch(name)) is not None})

    async def extent(self) -> Extent:
        """Return the log's first and newest position and its number of messages; all 0 if it does
        not exist.
        """
        return (await survey(self._direct, self.workspace)).complete(self._broker).whole.extent

    async def chunks(
        self, after: int = 0, *, until: int | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Yield as `follow` does, but all messages that arrived together, up to 256.

        Raises Corrupt at a jump in the positions that is a loss, unless the log may be damaged.
        """
        if until is not None and until <= after:
            return
        pattern = f"{subjects.workspace_prefix(self.workspace)}.>"
        refuse = None if self._damaged else self.refuse_loss
        pushed = _pushed(self._messages, pattern, after, until, refuse)
        async with contextlib.aclosing(pushed) as chunks:
            async for chunk, head in chunks:
                yield Chunk([*chunk], head)

    async def follow(
        self, after: int = 0, *, until: int | None = None
    ) -> AsyncGenerator[RawMessage, None]:
        """Follow every message of the log after a position, as `EventLog.follow`, but never
        decoded; ends before `until` if the log goes beyond it and no message up to it is left.
        """
        async with contextlib.aclosing(self.chunks(after, until=until)) as chunks:
            async for chunk in chunks:
                for message in chunk.messages:
                    yield message

    async def page(self, after: int, count: int) -> list[RawMessage]:
        """Return the next messages of the log after a position, at most so many and 8 MB,
        undecoded; unreadable ones are left out. Nothing is sent in advance.
        """
        return [*await self._messages.following(after + 1, count)]

    async def past(self, stream: StreamId) -> list[Stored]:
        """Return a stream's own commits, by version; unreadable ones are stand-ins. Raises Corrupt
        if one is missing.
        """
        reader = Reader(self.workspace, self._messages, screened=True)
        return await reader.streams([stream])

    async def blob_chunks(self) -> dict[str, set[int]]:
        """Return the existing chunks of each blob, by the hash of the whole."""
        chunks: dict[str, set[int]] = {}
        name = subjects.blob_stream(self.workspace)
        if await self._direct.info_of(name) is not None:
            for subject in (await self._direct.names(name, ">"))[0]:
                parts = _BLOB.fullmatch(subject)
                if parts is not None:
                    chunks.setdefault(parts["sha256"], set()).add(int(parts["chunk"]))
        return chunks

    async def drop_named(self, blobs: dict[str, set[int]], after: int = 0) -> int:
        """Remove those of some blobs, by hash, that a commit after a position names, in any
        generation; return the newest position. Raises Corrupt also if commits are gone.
        """
        end = (await self.extent()).last
        async for chunk in self.chunks(after, until=end):
            for message in chunk.messages:
                for sha256 in _SHA256.findall(message.body):
                    blobs.pop(sha256.decode(), None)
            after = chunk.messages[-1].position
        if after < end:
            raise Corrupt(
                f"workspace {self.workspace!r}", f"positions {after + 1} to {end} are gone"
            )
        return end

    async def blob_bytes(self, sha256: str, chunks: set[int]) -> int:
        """Return the bytes of some chunks of a blob; only the last one is not full."""
        name = subjects.blob_subject(self.workspace, sha256, max(chunks))
        last = await self._direct.last(subjects.blob_stream(self.workspace), name, 0)
        return (len(chunks) - 1) * CHUNK_BYTES + len(last.body if last is not None else b"")

    async def delete_blob(self, sha256: str) -> None:
        """Delete a blob. Raises BrokerError."""
        everything = {"filter": subjects.blob_subject(self.workspace, sha256, "*")}
        await api(self._broker, f"STREAM.PURGE.{subjects.blob_stream(self.workspace)}", everything)

    async def blobs(self, named: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Fetch some blobs by hash with one request, and verify each. Raises NotFound, Corrupt."""
        return await self._blobs.get_all(named)

    async def refuse_loss(self) -> None:
        """Raise Corrupt if the broker lost data that was on its disk, and GenerationMissing if it
        omits the newest generation.
        """
        (await refuse_loss(self._direct, self.workspace)).complete(self._broker)

    async def lag(self) -> Lag | None:
        """Return how far a region's copy is; None if it is no copy."""
        from hansard.bus.jetstream import regions  # noqa: PLC0415 -- needed for copies alone

        return await regions.lag(self._broker, self.workspace)

    async def contradictions(self) -> list[str]:
        """List differences between the streams' settings and those that Hansard requires."""
        items: list[str] = []
        at = (await survey(self._direct, self.workspace)).complete(self._broker)
        for item in jetstream_streams.configs(self.workspace, at) if not at.home else ():
            existing = await jetstream_streams.config_of(self._broker, item["name"])
            if existing is None:
                items.append(f"stream {item['name']!r} does not exist")
                continue
            try:
                jetstream_streams.compare(item, existing)
            except Contradiction as error:
                items.append(str(error))
        return items

    async def lost_from_archive(self, read: Callable[[int, int], None]) -> list[tuple[int, str]]:
        """Return what the archive's store lacks, all of it read without caches: the first position
        of each generation concerned, and the fact. `read` is called with the number of segments
        read and of all at one address. Raises ArchiveUnavailable.
        """
        archived = (await survey(self._direct, self.workspace)).complete(self._broker).archived
        lost: list[tuple[int, str]] = []
        for place, group in itertools.groupby(archived, key=lambda each: each.place):
            generations = {each.generation: each for each in group}
            archive = archive_at(self.workspace, place)
            missing = await archive.missing([*generations.values()], read)
            lost += [
                (generations[number].first, f"the archive at {archive.place}: {fact}")
                for number, fact in missing.items()
            ]
        return lost

    async def close(self) -> None:
        """Close the connection."""
        await self._broker.close()


def _figures(name: str, info: dict[str, Any]) -> Figures:
    state = info["state"]
    return Figures(
        name,
        state["messages"],
        state["bytes"],
        state["first_seq"],
        state["last_seq"],
        state.get("num_deleted", 0),
        replicas_of(info),
        leader_of(info),
        late_of(info),
    )


_log = logger(__name__)


class JetStreamLog(Reader, Appender):
    """An `EventLog` over two connections: one for writes, one for reads and following; or the same
    for both.

    `blobs` and `snapshots` are the workspace's. Created by `open_log`; close it with `close()`.
    """

    def __init__(
        self,
        workspace: str,
        durability: str,
        writes: Broker,
        reads: Broker,
        *,
        screened: bool = False,
        made: bool = False,
        at: Survey | None = None,
        admin: BrokerOptions | None = None,
    ) -> None:
        """`screened` as in `Reader`; `at` are the generations of the log as looked up before;
        `admin` may open the next one if a roll was interrupted.
        """
        self.workspace = workspace
        """The workspace's name."""
        self.durability = durability
        """The durability passed by the opener: `strict`, `relaxed` or `unknown`."""
        self.made = made
        """True if the opener created the workspace's streams."""
        self._reads = reads
        direct = Direct(reads, gate=self._sound)
        self._ungated = Direct(reads, direct.known)
        self._unchecked: asyncio.Task[Survey] | None = None
        """The comparison with the mark since the last reconnect, until it succeeded."""
        reads.on_reconnect(self._check_again)
        generations = Generations(workspace, self._ungated)
        if at is not None:
            generations.prime(at)
        messages = Messages(direct, generations)
        Reader.__init__(self, workspace, messages, screened=screened)
        Appender.__init__(self, workspace, writes, messages, group=durability == "strict")
        generations.on_notice = self._release
        self._admin = admin
        if writes.options.host is not None:
            writes.options.host.hold(subjects.blob_stream(workspace))
            if generations.view.open is not None:
                self._held = generations.view.open.stream
                writes.options.host.hold(self._held)
        self.blobs = JetStreamBlobs(workspace, writes, direct)
        era = at.era if at is not None else ""
        self.snapshots = JetStreamSnapshots(workspace, writes, direct, era)

    async def _finish_roll(self) -> None:
        """Open the next generation as `admin`."""
        if self._admin is None:
            return
        try:
            broker = await Broker.open(named(self._admin, "roll"))
            try:
                await jetstream_streams.ensure(broker, self._workspace)
            finally:
                await broker.close()
        except HansardError as error:
            _log.warning("roll not finished", workspace=self._workspace, why=str(error))

    def append_here(self, append: Append) -> Stored | None:
        """See `AppendsHere.append_here`."""
        return super().append_here(append) if self._unchecked is None else None

    async def follow(
        self,
        after: int = 0,
        *,
        until: int | None = None,
        of: StreamId | Kind | RunStreams | None = None,
    ) -> AsyncIterator[Stored]:
        """Follow every commit after a position. Raises Corrupt for a message that cannot be
        decoded, and for a jump in the positions that is a loss.
        """
        if until is not None and until <= after:
            return
        if of is None:
            pattern = f"{subjects.workspace_prefix(self._workspace)}.>"
        elif isinstance(of, Kind):
            pattern = subjects.all_of_kind(self._workspace, of.name)
        else:
            pattern = _pattern(self._workspace, of)
        refuse = functools.partial(refuse_loss, self._ungated, self._workspace)
        following = _pushed(self._messages, pattern, after, until, refuse if of is None else None)
        position = after
        async with contextlib.aclosing(following) as chunks:
            async for chunk, _ in chunks:
                position = chunk[-1].position
                for message in chunk:
                    for stored in await self.as_read(self._decoded([message])):
                        yield stored
        if of is None and until is not None and position < until:
            fact = f"positions {position + 1} to {until} are gone"
            raise Corrupt(f"stream {subjects.log_stream(self._workspace)!r}", fact)

    def _check_again(self) -> None:
        """Compare the log with its mark again: another server may answer now, or the same one after
        a restart on damaged files.
        """
        checking = refuse_loss(self._ungated, self._workspace)
        self._unchecked = asyncio.get_running_loop().create_task(checking)
        self._unchecked.add_done_callback(self._checked)

    def _checked(self, checking: asyncio.Task[Survey]) -> None:
        if checking.cancelled() or checking is not self._unchecked:
            return
        error = checking.exception()
        if error is None:
            self._unchecked = None
        elif isinstance(error, Corrupt):
            _log.error("log damaged", workspace=self._workspace, fact=str(error))

    async def _sound(self) -> None:
        """Wait until the log has been compared with its mark since the last reconnect. Raises
        Corrupt, each time, once the log is known to be damaged; BusError if the broker is
        unreachable again.
        """
        checking = self._unchecked
        if checking is None:
            return
        try:
            await asyncio.shield(checking)
        except BusError:
            if checking is self._unchecked:
                self._check_again()
            raise

    async def close(self) -> None:
        """Close the connections; commits in flight then have an unknown outcome."""
        for task in (self._unchecked, self._finishing):
            if task is not None:
                task.cancel()
        await self._committer.close()
        await self._blocking.close()
        await self._writes.close()
        await self._reads.close()


async def open_log(
    runtime: BrokerOptions,
    workspace: str,
    durability: str,
    *,
    admin: BrokerOptions | None = None,
    screened: bool = False,
    replicas: int | None = None,
    reading: Callable[[RawWorkspace], Awaitable[None]] | None = None,
) -> JetStreamLog:
    """Open a workspace's log, creating missing streams, which is logged.

    `admin` may create streams; its connection is opened only if one is missing. `durability` is the
    server's as known to the opener: `strict`, `relaxed` or `unknown`; `screened` as in
    JetStreamLog. `replicas` is the number for new streams (None: the server's default); a warning
    is logged for existing streams with fewer, since raising it is the operator's decision.
    `reading` is passed by read-only openers: it is awaited before anything is created, raises if
    nothing may be, and one connection is then used for all.

    Raises Unreachable, BrokerError (refused, no rights, no JetStream, fewer servers than replicas),
    Contradiction, BadName, StoreGone, and Corrupt if data that was on disk is gone.
    """
    workspace_name(workspace)
    writes = await Broker.open(named(runtime, "writes") if reading is None else runtime)
    try:
        at = await refuse_loss(Direct(writes), workspace)
        if not at.home:
            wait_s = FINISH_AFTER_S if admin is not None else runtime.append_timeout_s
            at = await _after_roll(Direct(writes), workspace, at, wait_s)
        if at.home and reading is None:
            await writes.close()
            there = _at_home(runtime, workspace, at)
            return await open_log(there, workspace, "unknown", screened=screened)
        is_there = at.home or await jetstream_streams.present(writes, workspace, replicas, at)
        if reading is not None and (at.home or not is_there):
            raw = RawWorkspace(workspace, writes)
            raw.home = at.home
            await reading(raw)
        if not is_there:
            administrator = await Broker.open(named(admin or runtime, "setup"))
            try:
                at = await jetstream_streams.ensure(administrator, workspace, replicas)
            except BusError:
                at.complete(writes)
                raise
            finally:
                await administrator.close()
            _log.info("a workspace was made", workspace=workspace, broker=writes.url)
        reads = writes
        if reading is None:
            reads = await Broker.open(named(runtime, "reads"))
    except BaseException:
        await writes.close()
        raise
    try:
        return JetStreamLog(
            workspace,
            durability,
            writes,
            reads,
            screened=screened,
            made=not is_there,
            at=at,
            admin=admin,
        )
    except BusError:
        await writes.close()
        await reads.close()
        raise


def _at_home(runtime: BrokerOptions, workspace: str, at: Survey) -> BrokerOptions:
    """Return the options of a workspace's home. Raises BrokerError if a region that another one
    names as the home is none.
    """
    if runtime.domain:
        promoting = runtime.domain if at.streams[-1].is_copy else at.home
        fact = (
            f"region {runtime.domain!r} names region {at.home!r} as its home; if a promotion of "
            f"{promoting!r} was interrupted, run 'hansard region promote' there again; else run "
            f"'hansard region follow {at.home}' in {runtime.domain!r} first"
        )
        raise BrokerError(f"opening {workspace!r}", 0, fact)
    return runtime.in_region(at.home)


async def _after_roll(direct: Direct, workspace: str, at: Survey, wait_s: float) -> Survey:
    """Return the generations once the newest one is open, or so many seconds later."""
    until_s = time.monotonic() + wait_s
    while at.streams and at.streams[-1].is_closed and time.monotonic() < until_s:
        await asyncio.sleep(BEHIND_PAUSE_S)
        at = await survey(direct, workspace)
    return at


def named(options: BrokerOptions, purpose: str) -> BrokerOptions:
    """Return the same broker options with a connection name for a purpose."""
    return msgspec.structs.replace(options, name=f"{options.name} {purpose}")
