"""The log on JetStream: one message per commit, one subject per version."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

import msgspec

from hansard.bus import subjects
from hansard.bus.acknowledged import acknowledged
from hansard.bus.errors import BusError, NotFound
from hansard.bus.jetstream import streams as jetstream_streams
from hansard.bus.jetstream._append import Appender, Committer
from hansard.bus.jetstream._read import Reader
from hansard.bus.jetstream.blobs import JetStreamBlobs, JetStreamSnapshots
from hansard.bus.jetstream.blocking import Blocking
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.push import Push
from hansard.bus.jetstream.raw import RawWorkspace, refuse_loss
from hansard.bus.jetstream.wire import Message
from hansard.bus.log import Append, Kind, Stored, UpTo
from hansard.bus.loggers import logger
from hansard.bus.marks import Extent
from hansard.bus.validation.reads import ReadValidator, is_stream
from hansard.domain.errors import Corrupt
from hansard.domain.ids import RunStream, StreamId, workspace_name

_log = logger(__name__)


class JetStreamLog:
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
    ) -> None:
        """`screened`: commits that do not fit are replaced on read
        (`hansard.bus.validation.reads`); otherwise a commit that cannot be decoded is Corrupt, and
        others are returned as stored.
        """
        self.made = made
        """True if the opener created the workspace's streams."""
        self._workspace = workspace
        self._durability = durability
        self._writes = writes
        self._reads = reads
        direct = Direct(reads, gate=self._sound)
        self._ungated = Direct(reads, direct.known)
        self._unchecked: asyncio.Task[Extent] | None = None
        """The comparison with the mark since the last reconnect, until it succeeded."""
        reads.on_reconnect(self._check_again)
        self._committer = Committer(
            writes, direct.known.of(subjects.log_stream(workspace)), group=durability == "strict"
        )
        decode = Message.screened if screened else Message.commit
        if writes.options.host is not None:
            for name in (subjects.log_stream(workspace), subjects.blob_stream(workspace)):
                writes.options.host.hold(name)
        self._blocking = Blocking(writes)
        self._appender = Appender(
            workspace, writes, direct, self._committer, decode, self._blocking
        )
        self._reader = Reader(workspace, direct, screened=screened)
        self._screen = ReadValidator(workspace, self._lives) if screened else None
        self.blobs = JetStreamBlobs(workspace, writes, direct)
        self.snapshots = JetStreamSnapshots(workspace, writes, direct)

    @property
    def workspace(self) -> str:
        """The workspace's name."""
        return self._workspace

    @property
    def durability(self) -> str:
        """The durability passed by the opener: `strict`, `relaxed` or `unknown`."""
        return self._durability

    async def append(self, append: Append) -> Stored:
        """Append one commit. The returned `stamp` is 0: an acknowledgement does not carry it."""
        await self._sound()
        stored = await self._appender.append(append)
        acknowledged(self.workspace, stored)
        return stored

    def append_here(self, append: Append) -> Stored | None:
        """See `AppendsHere.append_here`."""
        if self._unchecked is not None:
            return None
        stored = self._appender.append_here(append)
        if stored is not None:
            acknowledged(self.workspace, stored)
        return stored

    async def append_again(self, append: Append, tried_s: float) -> Stored:
        """See `AppendsHere.append_again`."""
        await self._sound()
        stored = await self._appender.append(append, tried_s=tried_s)
        acknowledged(self.workspace, stored)
        return stored

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append to several streams, all or none. About 4 ms, whatever the number."""
        await self._sound()
        stored = await self._appender.append_all(appends)
        for each in stored:
            acknowledged(self.workspace, each)
        return stored

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """See `EventLog.append_groups`."""
        await self._sound()
        stored = await self._appender.append_groups(groups)
        for each in itertools.chain.from_iterable(stored):
            acknowledged(self.workspace, each)
        return stored

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """Append many commits in batches of up to 1,000, one after the other."""
        await self._sound()
        return await self._appender.append_bulk(appends)

    async def read(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        to: int | None = None,
        up_to: UpTo = None,
        inside: bool = False,
    ) -> list[Stored]:
        """Read one stream's commits. Raises Corrupt, Unreachable."""
        return await self.as_read(
            await self._reader.read(stream, after=after, to=to, up_to=up_to, inside=inside)
        )

    async def read_streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """Read several streams as one consistent read, by position."""
        return await self.as_read(await self._reader.read_streams(streams, up_to))

    async def read_run(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Read all streams of a run as one consistent read, by position."""
        return await self.as_read(await self._reader.read_run(run, up_to))

    async def read_boards(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Read the streams of a run's shared state and budgets, by position."""
        return await self.as_read(await self._reader.read_boards(run, up_to))

    async def read_kind(self, kind: str, up_to: UpTo = None) -> list[Stored]:
        """Read all streams of a kind that outlives runs, by position."""
        return await self.as_read(await self._reader.read_kind(kind, up_to))

    async def end(self, up_to: UpTo) -> int:
        """Return the position where a read up to a point ends."""
        cut = await self._reader.cut(up_to)
        return await self._reader.head() if cut is None else cut

    async def last(self, stream: StreamId) -> Stored | None:
        """Return the newest commit of a stream."""
        last = await self._reader.last(stream)
        return last if last is None else (await self.as_read([last]))[0]

    async def at(self, position: int) -> Stored:
        """Return the commit at a position. Raises NotFound."""
        stored = await self._reader.at(position)
        if stored is None:
            head = await self.head()
            raise NotFound(f"position {position}", f"the log ends at {head}")
        return (await self.as_read([stored]))[0]

    async def runs(self, key: str | None = None) -> list[str]:
        """Return the ids of all runs, or of those whose board has had a key."""
        return await self._reader.runs(key)

    async def head(self) -> int:
        """Return the newest position; 0 for an empty log."""
        return await self._reader.head()

    async def follow(
        self, after: int = 0, *, until: int | None = None, of: StreamId | Kind | None = None
    ) -> AsyncIterator[Stored]:
        """Follow every commit after a position. Raises Corrupt for a message that cannot be
        decoded, and for a jump in the positions that is a loss.
        """
        if until is not None and until <= after:
            return
        if of is None:
            target = f"{subjects.workspace_prefix(self._workspace)}.>"
        elif isinstance(of, Kind):
            target = subjects.all_of_kind(self._workspace, of.name)
        else:
            target = f"{subjects.prefix(self._workspace, of)}.*"
        name = subjects.log_stream(self._workspace)
        push = Push(self._reads, name, target, after, until=until)
        chunks, at = push.chunks(), after
        try:
            async for chunk in chunks:
                if of is None and chunk[-1].position != at + len(chunk):
                    await refuse_loss(self._ungated, self._workspace)
                at = chunk[-1].position
                self._reader.seen(chunk[-1])  # later reads must not return an older state
                for message in chunk:
                    if until is not None and message.position > until:
                        return
                    if self._screen is None:
                        yield message.commit()
                    elif is_stream(message.subject):
                        [stored] = await self._screen.sift([message.screened()])
                        yield stored
                    if message.position == until:
                        return
        finally:
            await chunks.aclose()
        if of is None:
            raise Corrupt(f"stream {name!r}", f"positions {push.position + 1} to {until} are gone")

    async def as_read(self, commits: list[Stored]) -> list[Stored]:
        """See `ReadsBack.as_read`."""
        return commits if self._screen is None else await self._screen.sift(commits)

    async def _lives(self, runs: Sequence[str]) -> list[Stored]:
        """Read the lives of runs, checked against their subjects only."""
        return await self._reader.read_streams([RunStream(run) for run in runs])

    def _check_again(self) -> None:
        """Compare the log with its mark again: another server may answer now, or the same one after
        a restart on damaged files.
        """
        checking = refuse_loss(self._ungated, self._workspace)
        self._unchecked = asyncio.get_running_loop().create_task(checking)
        self._unchecked.add_done_callback(self._checked)

    def _checked(self, checking: asyncio.Task[Extent]) -> None:
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
        if self._unchecked is not None:
            self._unchecked.cancel()
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
        await refuse_loss(Direct(writes), workspace)
        made = False
        if not await jetstream_streams.present(writes, workspace, replicas):
            if reading is not None:
                await reading(RawWorkspace(workspace, writes))
            administrator = await Broker.open(named(admin or runtime, "setup"))
            try:
                await jetstream_streams.ensure(administrator, workspace, replicas)
            finally:
                await administrator.close()
            made = True
            _log.info("a workspace was made", workspace=workspace, broker=writes.url)
        reads = writes
        if reading is None:
            reads = await Broker.open(named(runtime, "reads"))
    except BaseException:
        await writes.close()
        raise
    try:
        return JetStreamLog(workspace, durability, writes, reads, screened=screened, made=made)
    except BusError:
        await writes.close()
        await reads.close()
        raise


def named(options: BrokerOptions, purpose: str) -> BrokerOptions:
    """Return the same broker options with a connection name for a purpose."""
    return msgspec.structs.replace(options, name=f"{options.name} {purpose}")
