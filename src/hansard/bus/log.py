"""The port: what an event log is, whatever stores it.

An `EventLog` keeps the commits of one workspace in one order. It promises: a commit is stored
whole or not at all; a version of a stream is written once; what was acknowledged is read by every
later read; every reader sees one order.

A read up to a position holds all that stands up to there, however the position was learned; a read
of what is newest holds all that was acknowledged to anybody before it began. So it is on any number
of replicas: where one lags, the read waits for a while (some 15 s), then raises ReplicaBehind,
which says the position wanted, how far the answers went, and how the servers stand. The second
promise rests on the word of the log's leader, which counts while it heard of a quorum within 3 s: a
server that was stopped and goes on is not believed, nor is one that answers while nobody leads.

It does not promise that an append whose answer was lost did not happen (see `AppendUnknown`), nor
how long an acknowledgement survives a power cut (see `durability`).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar, cast

import msgspec

from hansard.domain.errors import Corrupt
from hansard.domain.events import Commit
from hansard.domain.ids import StreamId

# The port: large payloads outside the log, addressed by the hash of their bytes.
#
# A blob is stored before the event that names it and is readable only through an event one may see.
# It may be erased, which an event may not: then `get` raises NotFound.

BLOB_BYTES_MIN = 64 * 1024
"""Payloads over this go to a blob; smaller ones stay in their event."""


FETCHED_BYTES_MAX = 16 * 1024 * 1024
"""Of blobs that are fetched with one request, unless one alone is larger."""

T = TypeVar("T")


class Blobs(Protocol):
    """The blobs of one workspace."""

    async def put(self, data: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex when all of it is acknowledged.

        Storing the same bytes again changes nothing, and completes what a killed writer began.
        Cancelling it may leave a part, which is harmless. Raises BrokerError, Unreachable.
        """
        ...

    async def get(self, sha256: str, size: int) -> bytes:
        """The bytes behind a hash. Raises NotFound, Corrupt, Unreachable."""
        ...

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """The bytes behind several hashes, by hash, in as few requests as there may be; all of them
        are in memory at once. Raises as `get`.
        """
        ...


def verified(sha256: str, size: int, data: bytes) -> bytes:
    """The data, if it is what its hash and size say. Raises Corrupt."""
    if len(data) != size:
        raise Corrupt(f"blob {sha256}", f"it has {len(data):,} bytes, not {size:,}")
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise Corrupt(f"blob {sha256}", f"its bytes hash to {actual}")
    return data


# The port: snapshots, derived and outside the log, kept and thrown away at will.


class Snapshots(Protocol):
    """Where a workspace's snapshots are kept, by subject."""

    async def put(self, subject: str, data: bytes) -> bool:
        """Send a snapshot; False if it was not sent. Nobody waits for it to be stored."""
        ...

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Those of the snapshots that exist, by subject."""
        ...


COMMIT_BYTES_MAX = 256 * 1024
"""Largest body of a commit, in bytes. Far below the megabyte that brokers take, headers included;
larger payloads belong into blobs."""


class Origin(msgspec.Struct, frozen=True):
    """Where a copied commit stood in the log it came from: that log's workspace, its position
    there, and that log's time of it (ISO 8601 in UTC, to the ns).
    """

    log: str
    position: int
    at: str


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A commit as it stands in the log.

    `position` orders the workspace (the JetStream sequence). `stamp` is the log's own time of the
    commit, in ns since 1970 (UTC): the only time that decides anything; it is 0 in what an append
    returns where the acknowledgement does not carry it (JetStream's does not): read the commit to
    learn it. `body` is the exact stored bytes that `commit` was decoded from. `origin` says where
    a copied commit came from; it is kept beside the record, not in it.
    """

    position: int
    stamp: int
    stream: StreamId
    commit: Commit
    body: bytes
    origin: Origin | None = None

    @property
    def time(self) -> datetime:
        """The log's time of the commit, in UTC, cut to microseconds."""
        return utc(self.stamp)


def utc(stamp: int) -> datetime:
    """A time of the log's, in ns since 1970, cut to microseconds."""
    seconds, ns = divmod(stamp, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ns // 1_000)


class AtPosition(msgspec.Struct, frozen=True):
    """Up to and with this position."""

    position: int


class AtTime(msgspec.Struct, frozen=True):
    """Up to and with this log time, in ns since 1970 (UTC)."""

    stamp: int


UpTo = AtPosition | AtTime | None
"""Where a read ends; None is the newest. A transaction that is cut by it is left out whole."""


class VersionFree(msgspec.Struct, frozen=True):
    """Expect nothing but that the commit's version is not written yet. Always checked."""


class NothingUnder(msgspec.Struct, frozen=True):
    """Expect besides that the agent has no stream in this run under any role."""

    run: str
    agent: str


class StreamAt(msgspec.Struct, frozen=True):
    """Expect besides that another stream's newest commit has this position (0: it has none)."""

    stream: StreamId
    position: int


class NotYet(msgspec.Struct, frozen=True):
    """Expect besides that another stream does not have this version yet: that nobody has gone on
    from the one before it. Costs the broker less than `StreamAt`: there is nothing to read.
    """

    stream: StreamId
    version: int


class LivesAt(msgspec.Struct, frozen=True):
    """Expect besides that the newest commit of all runs' lives has this position (0: there is no
    run): that no run was begun, and none went on, since they were read.
    """

    position: int


Expected = VersionFree | NothingUnder | StreamAt | NotYet | LivesAt


class Kind(msgspec.Struct, frozen=True):
    """All streams of a kind that outlives runs: every role, every price."""

    name: str


class Copied(msgspec.Struct, frozen=True):
    """The exact bytes of a commit of another log, and where it stood there."""

    body: bytes
    origin: Origin


class Append(msgspec.Struct, frozen=True):
    """One commit to append to one stream. Its version says what it follows.

    `copied` is given for a commit that was brought from another log: `commit` must be what its
    bytes say, and those bytes are stored.
    """

    stream: StreamId
    commit: Commit
    expected: Expected = VersionFree()
    copied: Copied | None = None


class EventLog(Protocol):
    """The commits of one workspace. See the module for what it promises."""

    @property
    def workspace(self) -> str:
        """The workspace's name."""
        ...

    @property
    def durability(self) -> str:
        """`strict` (an ack means on disk; with several replicas, on the disks of a quorum),
        `relaxed` (at most about 14 ms unsynced), `memory`, or `unknown`.
        """
        ...

    async def append(self, append: Append) -> Stored:
        """Append one commit; returns it as stored.

        Safe to cancel only in the sense that the outcome is then unknown. Raises Conflict,
        AppendUnknown, Unreachable (nothing was sent), TooLarge, BrokerError.
        """
        ...

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append commits to different streams, all or none, at consecutive positions (2 to 1,000).

        Fills in `tx` of each. Raises as `append`; a Conflict names the first stream that lost.
        """
        ...

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """Append several transactions at once, one after the other: all of them or none (1,000
        commits in all). Each is as `append_all` has it; one may go on with a stream of one before.

        For who has many to write, as a store may take them faster. Raises as `append_all`.
        """
        ...

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """Append many commits in order, at bulk speed; returns how many were new.

        For imports: a commit that stands there already with the same id is passed over, so that
        a killed import goes on. Not atomic as a whole, but a transaction (commits of one `tx`, one
        after the other) goes whole or not at all. Raises Conflict at the first commit whose version
        another commit has; all before it are stored.
        """
        ...

    async def read(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        to: int | None = None,
        up_to: UpTo = None,
        inside: bool = False,
    ) -> list[Stored]:
        """One stream's commits with versions in (after, to], in order.

        `after` must be the last version of a commit, `to` may be inside one (that commit is then
        returned whole). An unknown stream gives []. Raises Corrupt where a version is missing.
        With `inside`, `after` may be inside a commit, too, which is then left out: whoever says so
        compares the first version with what it follows.
        """
        ...

    async def read_streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """Several streams as one consistent read, by position."""
        ...

    async def read_run(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """All streams of a run as one consistent read, by position. Forks: only its own commits."""
        ...

    async def read_boards(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """The streams of a run's shared state and budgets as one consistent read, by position."""
        ...

    async def read_kind(self, kind: str, up_to: UpTo = None) -> list[Stored]:
        """All streams of a kind that outlives runs as one consistent read, by position."""
        ...

    async def end(self, up_to: UpTo) -> int:
        """The position where a read up to a point ends; that of the newest commit for None."""
        ...

    async def last(self, stream: StreamId) -> Stored | None:
        """The newest commit of a stream."""
        ...

    async def at(self, position: int) -> Stored:
        """The commit at a position. Raises NotFound."""
        ...

    async def runs(self, key: str | None = None) -> list[str]:
        """The ids of all runs, in no order; with `key` of those whose board has ever had it."""
        ...

    async def head(self) -> int:
        """The newest position; 0 for an empty log."""
        ...

    def follow(
        self, after: int = 0, *, until: int | None = None, of: StreamId | Kind | None = None
    ) -> AsyncIterator[Stored]:
        """Every commit after a position, in order, without gap or repeat, across reconnects; with
        `of`, those of one stream alone, or of all streams of a kind that outlives runs.

        Ends after `until` where given, else goes on for ever; with `of`, at the latest with such a
        commit at or beyond it. What is not written yet is waited for. Close it with `aclose()`.
        Raises Corrupt if `after` is beyond the head: what was read there is no longer in the log;
        and where what is up to `until` is gone from it.
        """
        ...


class AppendsHere(Protocol):
    """What some logs can do besides: append in the thread that asks, which waits, and without the
    loop.
    """

    def append_here(self, append: Append) -> Stored | None:
        """Append one commit; None if that cannot be done now: then it is not stored by this.

        Raises AppendUnknown at once where no answer came, and StoreGone, TooLarge and ReadOnly. An
        interrupted one may be stored.
        """
        ...

    async def append_again(self, append: Append, tried_s: float) -> Stored:
        """As `EventLog.append`, of a commit that may be stored since `tried_s` by the monotonic
        clock, or is yet to be: the time that was waited already counts.
        """
        ...


def appends_here(log: EventLog) -> AppendsHere | None:
    """The log, if it can do that; one that stands before another cannot because that can."""
    return cast("AppendsHere", log) if hasattr(type(log), "append_here") else None


class ReadsBack(Protocol):
    """What some logs can do besides: say how readers are given what was just written."""

    async def as_read(self, commits: list[Stored]) -> list[Stored]:
        """Commits of one stream, in order, as a read gives them."""
        ...


def as_read(log: EventLog) -> ReadsBack | None:
    """The log, if it can do that."""
    return cast("ReadsBack", log) if hasattr(type(log), "as_read") else None


def in_parts(
    needed: Iterable[tuple[T, Sequence[tuple[str, int]]]],
) -> Iterator[tuple[list[T], list[tuple[str, int]]]]:
    """Things that need blobs, so many at once as FETCHED_BYTES_MAX allows, with those blobs."""
    things: list[T] = []
    named: dict[tuple[str, int], None] = {}
    size = 0
    for thing, blobs in needed:
        more = sum(each for _, each in blobs)
        if things and size + more > FETCHED_BYTES_MAX:
            yield things, list(named)
            things, named, size = [], {}, 0
        things.append(thing)
        named |= dict.fromkeys(blobs)
        size += more
    if things:
        yield things, list(named)
