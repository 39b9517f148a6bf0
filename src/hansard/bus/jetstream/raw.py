"""A workspace's streams as stored, undecoded: for their figures and for the recheck.

Nothing here creates or changes a stream, and messages that cannot be decoded are passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, Contradiction
from hansard.bus.jetstream import streams as jetstream_streams
from hansard.bus.jetstream._read import Reader
from hansard.bus.jetstream.blobs import JetStreamBlobs
from hansard.bus.jetstream.calls import api, late_of, leader_of, replicas_of
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.push import Push
from hansard.bus.jetstream.streams import STREAM_NOT_FOUND
from hansard.bus.log import RawMessage, Stored
from hansard.bus.marks import ACCEPTED, OUTSIDE_REMEDY, Extent, Newest, loss
from hansard.domain.errors import Corrupt
from hansard.domain.ids import StreamId, workspace_name

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


async def refuse_loss(direct: Direct, workspace: str) -> Extent:
    """Return the extent of a workspace's log; empty if there is none yet.

    Raises Corrupt if the server does not offer a stream whose messages are on the disk, if the log
    lost positions at its head, in the middle or at its end, or if it is not the one that its mark
    was kept for. Such a log must not be replaced, or written to.
    """
    witness = direct.broker.options.witness
    kept = witness.kept(workspace) if witness is not None else None
    log, blob = subjects.log_stream(workspace), subjects.blob_stream(workspace)
    log_info, blob_info = await asyncio.gather(_info(direct, log), _info(direct, blob))
    if witness is not None:
        for name, info in ((log, log_info), (blob, blob_info)):
            folder = witness.files(name) if info is None else None
            if folder is not None:
                raise witness.hidden(workspace, name, folder)
    extent = Extent.of(log_info) if log_info is not None else Extent()
    blobs = Extent.of(blob_info).last if blob_info is not None else 0
    newest: Newest | None = None
    if kept is not None and kept.mark.checkable and kept.mark.chained <= extent.last:
        newest = await _message(direct, log, kept.mark.chained)
    if loss(kept, extent, blobs, newest) is None:
        return extent
    gaps = await _gaps(direct, log, extent) if extent.missing else ""
    remedy = (
        witness.remedy(workspace)
        if witness is not None
        else OUTSIDE_REMEDY.format(stream=log, key=ACCEPTED, missing=extent.missing)
    )
    fact = loss(kept, extent, blobs, newest, gaps)
    raise Corrupt(f"workspace {workspace!r}", f"{fact}. {remedy}")


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
    return None if message is None else (message.subject, message.data)


async def _gaps(direct: Direct, name: str, extent: Extent) -> str:
    """Describe the first missing positions of a stream, for people."""
    info = await direct.info(name, {"deleted_details": True})
    head = range(1, min(extent.first, extent.last + 1))
    runs = _runs([*head, *(info["state"].get("deleted") or [])])
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


PAGES_MAX = 1_000
"""Bound of the loops over the server's lists in pages (of 1,024 streams, 100,000 subjects)."""

_LOG = re.compile(r"hansard_log-(?P<workspace>.+)")
_BLOB = re.compile(r"hansard_blob\.[^.]+\.(?P<sha256>[0-9a-f]{64})\.(?P<chunk>\d+)")


class Figures(msgspec.Struct, frozen=True):
    """One JetStream stream: its messages and bytes, first and last sequence, replicas; its leader
    and the lagging servers, in a cluster.
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


class RawWorkspace:
    """One workspace over a connection of its own. Created by `open`; close it with `close()`."""

    def __init__(self, workspace: str, broker: Broker, *, damaged: bool = False) -> None:
        self.workspace = workspace
        self._broker = broker
        self._damaged = damaged
        self._direct = Direct(broker)
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
                await raw.refuse_loss()
            except BaseException:
                await raw.close()
                raise
        return raw

    @property
    def server_version(self) -> str:
        """The broker's version, as reported on connect."""
        return self._broker.server_version

    async def figures(self) -> list[Figures]:
        """Return the log, blob and snapshot streams that exist."""
        streams: list[Figures] = []
        for name in (
            subjects.log_stream(self.workspace),
            subjects.blob_stream(self.workspace),
            subjects.snapshot_stream(self.workspace),
        ):
            info = await self._info(name)
            if info is not None:
                state = info["state"]
                streams.append(
                    Figures(
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
                )
        return streams

    async def workspaces(self) -> list[str]:
        """Return the names of all workspaces on the broker that this login sees."""
        names: list[str] = []
        for _ in range(PAGES_MAX):
            page = await api(self._broker, "STREAM.NAMES", {"offset": len(names)})
            names += page.get("streams") or []
            if not page.get("streams") or len(names) >= page.get("total", 0):
                break
        return sorted(m["workspace"] for name in names if (m := _LOG.fullmatch(name)) is not None)

    async def extent(self) -> Extent:
        """Return the log's first and newest position and its number of messages; all 0 if it does
        not exist.
        """
        info = await self._info(subjects.log_stream(self.workspace))
        return Extent() if info is None else Extent.of(info)

    async def chunks(
        self, after: int = 0, *, until: int | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Yield as `follow` does, but all messages that arrived together, up to 256.

        Raises Corrupt at a jump in the positions that is a loss, unless the log may be damaged.
        """
        if until is not None and until <= after:
            return
        everything = f"{subjects.workspace_prefix(self.workspace)}.>"
        name = subjects.log_stream(self.workspace)
        push = Push(self._broker, name, everything, after, until=until)
        chunks, at = push.chunks(), after
        try:
            async for chunk in chunks:
                if chunk[-1].position != at + len(chunk) and not self._damaged:
                    await self.refuse_loss()
                at = chunk[-1].position
                decoded = [
                    RawMessage(m.position, m.stamp, m.subject, m.data, m.origin, m.fault)
                    for m in chunk
                    if until is None or m.position <= until
                ]
                last = chunk[-1].position
                if decoded:
                    yield Chunk(decoded, max(push.position + push.pending, last))
                if until is not None and last >= until:
                    return
        finally:
            await chunks.aclose()

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
        batch = await self._direct.following(subjects.log_stream(self.workspace), after + 1, count)
        return [
            RawMessage(m.position, m.stamp, m.subject, m.data, m.origin, m.fault) for m in batch
        ]

    async def past(self, stream: StreamId) -> list[Stored]:
        """Return a stream's own commits, by version; unreadable ones are stand-ins. Raises Corrupt
        if one is missing.
        """
        reader = Reader(self.workspace, Direct(self._broker), screened=True)
        return await reader.read_streams([stream])

    async def blob_chunks(self) -> dict[str, set[int]]:
        """Return the existing chunks of each blob, by the hash of the whole."""
        chunks: dict[str, set[int]] = {}
        name, offset = subjects.blob_stream(self.workspace), 0
        if await self._state(name) is None:
            return chunks
        for _ in range(PAGES_MAX):
            question = {"subjects_filter": ">", "offset": offset}
            info = await api(self._broker, f"STREAM.INFO.{name}", question)
            page = info["state"].get("subjects") or {}
            for subject in page:
                parts = _BLOB.fullmatch(subject)
                if parts is not None:
                    chunks.setdefault(parts["sha256"], set()).add(int(parts["chunk"]))
            offset += len(page)
            if not page or offset >= info.get("total", 0):
                break
        return chunks

    async def blobs(self, named: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Fetch some blobs by hash with one request, and verify each. Raises NotFound, Corrupt."""
        return await self._blobs.get_all(named)

    async def refuse_loss(self) -> None:
        """Raise Corrupt if the broker lost data that was on its disk."""
        await refuse_loss(self._direct, self.workspace)

    async def contradictions(self) -> list[str]:
        """List differences between the streams' settings and those that Hansard requires."""
        items: list[str] = []
        for item in (
            jetstream_streams.log_config(self.workspace),
            jetstream_streams.blob_config(self.workspace),
            jetstream_streams.snapshot_config(self.workspace),
        ):
            existing = await jetstream_streams.config_of(self._broker, item["name"])
            if existing is None:
                items.append(f"stream {item['name']!r} does not exist")
                continue
            try:
                jetstream_streams.compare(item, existing)
            except Contradiction as error:
                items.append(str(error))
        return items

    async def close(self) -> None:
        """Close the connection."""
        await self._broker.close()

    async def _state(self, name: str) -> dict[str, Any] | None:
        info = await self._info(name)
        return None if info is None else info["state"]

    async def _info(self, name: str) -> dict[str, Any] | None:
        """Return the stream's state as its leader reports it."""
        try:
            return await self._direct.info(name)
        except BrokerError as error:
            if error.code == jetstream_streams.STREAM_NOT_FOUND:
                return None
            raise
