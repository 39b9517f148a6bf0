"""The port of an event log, whatever stores it.

An `EventLog` keeps the commits of one workspace in one order. It promises: a commit is stored whole
or not at all; a version of a stream is written once; every later read includes what was
acknowledged; every reader sees one order.

A read up to a position includes all commits up to it, however the position was learned; a read of
the newest state includes all that was acknowledged to any client before it began. This holds for
any number of replicas: if one lags, the read waits (about 15 s), then raises ReplicaBehind with the
target position, the position reached, and the servers' states. The second promise relies on the
log's leader, which is trusted while it heard from a quorum within 3 s: a server that was paused and
continues is not trusted, nor is one that answers while there is no leader.

It does not promise that an append whose answer was lost did not happen (see `AppendUnknown`), nor
that an acknowledged commit survives a power cut (see `durability`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, cast

import msgspec

from hansard.domain.errors import Corrupt
from hansard.domain.events import Commit
from hansard.domain.ids import StreamId

# The port: large payloads outside the log, addressed by the hash of their bytes.
#
# A blob is stored before the event that names it, and is readable only through an event that the
# reader may see. Unlike an event it may be erased: then `get` raises NotFound.

BLOB_BYTES_MIN = 64 * 1024
"""Payloads over this size, in bytes, go to a blob; smaller ones stay in their event."""


FETCHED_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of blobs fetched with one request, unless a single blob is larger."""

T = TypeVar("T")


class Blobs(Protocol):
    """The blobs of one workspace."""

    async def put(self, data: bytes) -> str:
        """Store bytes; return their SHA-256 in hex once all of them are acknowledged.

        Storing the same bytes again changes nothing, and completes a killed writer's upload.
        Cancelling may leave a part, which is harmless. Raises BrokerError, Unreachable.
        """
        ...

    async def get(self, sha256: str, size: int) -> bytes:
        """Return the bytes with a hash. Raises NotFound, Corrupt, Unreachable."""
        ...

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Return the bytes with several hashes, by hash, in as few requests as possible; all are in
        memory at once. Raises as `get`.
        """
        ...


def verified(sha256: str, size: int, data: bytes) -> bytes:
    """Return the data if it matches its hash and size. Raises Corrupt."""
    if len(data) != size:
        raise Corrupt(f"blob {sha256}", f"it has {len(data):,} bytes, not {size:,}")
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise Corrupt(f"blob {sha256}", f"its bytes hash to {actual}")
    return data


# The port: snapshots, derived from the log and stored outside it; may be deleted at any time.


class Snapshots(Protocol):
    """The snapshots of a workspace, by subject."""

    async def put(self, subject: str, data: bytes) -> bool:
        """Send a snapshot without waiting for it to be stored; return False if it was not sent."""
        ...

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the snapshots that exist, by subject."""
        ...


COMMIT_BYTES_MAX = 256 * 1024
"""Largest body of a commit, in bytes: far below the megabyte that brokers take with headers. Larger
payloads go to blobs.
"""


class Origin(msgspec.Struct, frozen=True):
    """Origin of a copied commit: the other log's workspace, the position there, and that log's time
    (ISO 8601 in UTC, to the ns).
    """

    log: str
    position: int
    at: str


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A commit as stored in the log.

    `position` orders the workspace (the JetStream sequence). `stamp` is the log's own time of the
    commit, in ns since 1970 (UTC), and the only time that decides anything. It is 0 in the result
    of an append if the acknowledgement does not carry it (JetStream's does not); read the commit to
    get it. `body` is the exact stored bytes that `commit` was decoded from. `origin` locates the
    source of a copied commit; it is stored beside the commit, not in it.
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


class RawMessage(msgspec.Struct, frozen=True, gc=False):
    """One message of the log as stored.

    `stamp` is the log's time in ns since 1970; `origin` locates the source of a copied commit,
    `fault` is the reason if that cannot be read.
    """

    position: int
    stamp: int
    subject: str
    body: bytes
    origin: Origin | None = None
    fault: Corrupt | None = None


def utc(stamp: int) -> datetime:
    """Return a time of the log's, given in ns since 1970, truncated to microseconds."""
    seconds, ns = divmod(stamp, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ns // 1_000)


def rfc3339(stamp: int) -> str:
    """Format a time of the log's, given in ns since 1970, in UTC to the ns."""
    return f"{utc(stamp):%Y-%m-%dT%H:%M:%S}.{stamp % 1_000_000_000:09d}Z"


class AtPosition(msgspec.Struct, frozen=True):
    """Up to and including this position."""

    position: int


class AtTime(msgspec.Struct, frozen=True):
    """Up to and including this log time, in ns since 1970 (UTC)."""

    stamp: int


UpTo = AtPosition | AtTime | None
"""End of a read; None for the newest. A transaction cut by it is left out as a whole."""


class VersionFree(msgspec.Struct, frozen=True):
    """Expect only that the commit's version is not written yet, which is always checked."""


class NothingUnder(msgspec.Struct, frozen=True):
    """Expect also that the agent has no stream in this run under any role."""

    run: str
    agent: str


class StreamAt(msgspec.Struct, frozen=True):
    """Expect also that another stream's newest commit has this position (0: it has none)."""

    stream: StreamId
    position: int


class NotYet(msgspec.Struct, frozen=True):
    """Expect also that another stream does not have this version yet, so that it was not continued.
    Cheaper for the broker than `StreamAt`: there is nothing to read.
    """

    stream: StreamId
    version: int


class LivesAt(msgspec.Struct, frozen=True):
    """Expect also that the newest commit of all runs' lives has this position (0: there is no run),
    so that no run was begun or continued since they were read.
    """

    position: int


Expected = VersionFree | NothingUnder | StreamAt | NotYet | LivesAt


class Kind(msgspec.Struct, frozen=True):
    """All streams of a kind that outlives runs, such as roles or prices."""

    name: str


class RunStreams(msgspec.Struct, frozen=True):
    """All streams of a run; of a fork without those of its parents."""

    run: str


class Copied(msgspec.Struct, frozen=True):
    """The exact bytes of a commit of another log, and its place there."""

    body: bytes
    origin: Origin


class Append(msgspec.Struct, frozen=True):
    """One commit to append to one stream, at its version.

    `copied` is set for a commit of another log: `commit` must be decoded from its bytes, and those
    bytes are stored.
    """

    stream: StreamId
    commit: Commit
    expected: Expected = VersionFree()
    copied: Copied | None = None


class EventLog(Protocol):
    """The commits of one workspace. The module's docstring lists its promises."""

    @property
    def workspace(self) -> str:
        """The workspace's name."""
        ...

    @property
    def durability(self) -> str:
        """`strict` (acknowledged means on disk; with several replicas, on the disks of a quorum),
        `relaxed` (at most about 14 ms unsynced), `memory`, or `unknown`.
        """
        ...

    async def append(self, append: Append) -> Stored:
        """Append one commit; return it as stored.

        If cancelled, the outcome is unknown. Raises Conflict, AppendUnknown, Unreachable (nothing
        was sent), TooLarge, BrokerError.
        """
        ...

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append commits to different streams, all or none, at consecutive positions (2 to 1,000).

        Fills in `tx` of each. Raises as `append`; a Conflict names the first stream that lost.
        """
        ...

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """Append several transactions at once, in order: all of them or none (1,000 commits in
        all).

        Each is as in `append_all`; one may continue a stream of an earlier one. Stores may be
        faster with groups than with single transactions. Raises as `append_all`.
        """
        ...

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """Append many commits in order, at bulk speed; return how many were new.

        For imports: a commit that is already stored with the same id is skipped, so that a killed
        import can be continued. Not atomic as a whole, but a transaction (consecutive commits of
        one `tx`) is stored whole or not at all. Raises Conflict at the first commit whose version
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
        """Read one stream's commits with versions in (after, to], in order.

        `after` must be the last version of a commit; `to` may be inside one (that commit is then
        returned whole). An unknown stream gives []. Raises Corrupt if a version is missing. With
        `inside`, `after` may be inside a commit, too, which is then left out; the caller compares
        the first version with the one that it follows.
        """
        ...

    async def read_streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """Read several streams as one consistent read, by position."""
        ...

    async def read_run(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Read all streams of a run as one consistent read, by position. Of a fork: only its own
        commits.
        """
        ...

    async def read_boards(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Read a run's shared state and budgets as one consistent read, by position."""
        ...

    async def read_kind(self, kind: str, up_to: UpTo = None) -> list[Stored]:
        """Read all streams of a kind that outlives runs as one consistent read, by position."""
        ...

    async def end(self, up_to: UpTo) -> int:
        """Return the position where a read up to a point ends; the newest commit's for None."""
        ...

    async def last(self, stream: StreamId | RunStreams) -> Stored | None:
        """Return the newest commit of a stream, or of a run."""
        ...

    async def at(self, position: int) -> Stored:
        """Return the commit at a position. Raises NotFound."""
        ...

    async def runs(self, key: str | None = None) -> list[str]:
        """Return the ids of all runs, unordered; with `key` only those whose board ever had it."""
        ...

    async def newest_runs(self, most: int) -> list[str]:
        """Return the runs whose lives were continued last, newest first: at most so many, and those
        of the newest positions alone, so that the cost does not grow with the log.
        """
        ...

    async def head(self) -> int:
        """Return the newest position; 0 for an empty log."""
        ...

    def follow(
        self,
        after: int = 0,
        *,
        until: int | None = None,
        of: StreamId | Kind | RunStreams | None = None,
    ) -> AsyncIterator[Stored]:
        """Follow every commit after a position, in order, without gap or repeat, across reconnects.

        With `of`, only the commits of one stream, of a run, or of all streams of a kind that
        outlives runs.
        Ends after `until` if given (with `of`, at the latest with such a commit at or beyond it),
        else never; waits for commits not written yet. Close it with `aclose()`. Raises Corrupt if
        `after` is beyond the head (commits read before are gone from the log), or if commits up to
        `until` are gone.
        """
        ...


class AppendsHere(Protocol):
    """Optional ability of a log: append in the calling thread, which blocks, without the loop."""

    def append_here(self, append: Append) -> Stored | None:
        """Append one commit; return None if that is not possible now, and nothing was stored.

        Raises AppendUnknown at once if no answer arrived, and StoreGone, TooLarge and ReadOnly. An
        interrupted append may be stored.
        """
        ...

    async def append_again(self, append: Append, tried_s: float) -> Stored:
        """Append as `EventLog.append` does a commit that may be stored since `tried_s` (monotonic
        clock); the time already waited counts.
        """
        ...


def appends_here(log: EventLog) -> AppendsHere | None:
    """Return the log if it can append in the calling thread, else None."""
    return cast("AppendsHere", log) if _is_able(log, "append_here") else None


def _is_able(log: Any, method: str) -> bool:
    """Return whether a log has an optional ability: a wrapping one, if the log behind it has it."""
    while log is not None and hasattr(type(log), method):
        log = log.__dict__.get("base")
        if log is None:
            return True
    return False


class ReadsBack(Protocol):
    """Optional ability of a log: return just-written commits as readers will get them."""

    async def as_read(self, commits: list[Stored]) -> list[Stored]:
        """Return commits of one stream, in order, as a read returns them."""
        ...


def as_read(log: EventLog) -> ReadsBack | None:
    """Return the log if it has `as_read`, else None."""
    return cast("ReadsBack", log) if _is_able(log, "as_read") else None


def in_parts(
    needed: Iterable[tuple[T, Sequence[tuple[str, int]]]],
) -> Iterator[tuple[list[T], list[tuple[str, int]]]]:
    """Yield items that need blobs in groups of up to FETCHED_BYTES_MAX, with those blobs."""
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


# Waiting for a state of the log: the log is followed, never polled.
#
# Everything here runs on the bus's loop, and may be cancelled at any time.

READY, OVER, TIMEOUT = "ready", "over", "timeout"
"""Results of a wait: the state is reached; it can never be reached; the time is up."""


async def until(
    log: EventLog,
    check: Callable[[], Awaitable[str | None]],
    concerns: Callable[[Stored], bool],
    timeout_s: float | None,
    of: StreamId | None = None,
) -> str:
    """Follow the log, or one stream of it, until `check` returns a result; it is called at once,
    and after each commit that `concerns` it.
    """
    after = (
        await log.head()
    )  # before the first `check`, so that no commit between the two is missed
    verdict = await check()
    if verdict is not None:
        return verdict
    try:
        async with asyncio.timeout(timeout_s):
            async with contextlib.aclosing(log.follow(after, of=of)) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
                async for stored in commits:
                    if concerns(stored):
                        verdict = await check()
                        if verdict is not None:
                            return verdict
    except TimeoutError:
        pass
    return TIMEOUT
