"""Blobs on JetStream: chunks of 512 KiB, one per subject, below the hash of the whole."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Sequence

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, BusError, NotFound
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct, RetryBudget, publish
from hansard.bus.jetstream.wire import FIRST, NoAnswer, Rejected, acknowledged
from hansard.bus.log import verified
from hansard.bus.loggers import logger
from hansard.bus.portal import own_task

# Snapshots on JetStream: derived states outside the log, which may be deleted at any time.
#
# A reader checks a snapshot against the log or rebuilds it: a missing or old one costs time, never
# correctness.

HEADROOM_BYTES = 4 * 1024
"""Room for a message's subject and headers within the server's limit, in bytes."""

IN_FLIGHT_MAX = 64
"""Most unacknowledged snapshots; more are not sent, since they can be recreated."""

_log = logger(__name__)


class _Unacknowledged:
    """Logs the outcome of sending a snapshot, for which no caller waits."""

    def __init__(self, snapshots: JetStreamSnapshots, subject: str) -> None:
        self._snapshots = snapshots
        self._subject = subject
        self.inbox = ""

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receiver
        self._snapshots.settle(self.inbox)
        try:
            acknowledged(data)
        except (Rejected, NoAnswer) as error:
            _log.warning("snapshot not stored", subject=self._subject, why=str(error))

    def lost(self, error: BusError) -> None:
        self._snapshots.settle(self.inbox)
        _log.debug("snapshot perhaps not stored", subject=self._subject, why=str(error))


class JetStreamSnapshots:
    """The snapshots of one workspace. A key is a subject built by `subjects.snapshot_prefix`."""

    def __init__(self, workspace: str, writes: Broker, direct: Direct, era: str = "") -> None:
        """`era` keeps apart the snapshots made before and after a promotion of a region: a former
        home that does not know of it may send more, of commits that the log lacks.
        """
        self._keys = f"hansard_snap.{workspace}.", f"hansard_snap.{workspace}.{era}"
        self._stream = subjects.snapshot_stream(workspace)
        self._broker = writes
        self._direct = direct
        self._in_flight: set[str] = set()

    async def put(self, subject: str, data: bytes) -> bool:
        """Send a snapshot without waiting for its acknowledgement; return False if it was not sent.

        It is not sent if it is too large for one message, if 64 are unacknowledged, or while
        disconnected.
        """
        if len(data) + HEADROOM_BYTES > self._broker.max_payload:
            return False
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            return False
        receiver = _Unacknowledged(self, subject)
        receiver.inbox = self._broker.expect(receiver)
        self._in_flight.add(receiver.inbox)
        try:
            await self._broker.send(subject.replace(*self._keys, 1), data, receiver.inbox)
        except NoAnswer:
            self.settle(receiver.inbox)
            return False
        return True

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the snapshots that exist, by subject, with one request per thousand. A lagging
        replica may omit some, which costs time only.
        """
        own = {key.replace(*self._keys, 1): key for key in keys}
        messages = await self._direct.named(self._stream, [*own], 0)
        return {own[message.subject]: message.body for message in messages}

    def settle(self, inbox: str) -> None:
        """Drop an unacknowledged snapshot."""
        self._in_flight.discard(inbox)
        self._broker.forget(inbox)


CHUNK_BYTES = 512 * 1024
"""Size of a chunk, in bytes. Part of the stored format: a chunk's number times this is its offset.
"""

CHUNKS_AT_ONCE_MAX = 8
"""Most chunks in flight: 4 MiB, half of what the connection buffers."""


class JetStreamBlobs:
    """A `Blobs` in the workspace's blob stream."""

    def __init__(self, workspace: str, writes: Broker, direct: Direct) -> None:
        self._workspace = workspace
        self._stream = subjects.blob_stream(workspace)
        self._broker = writes
        self._direct = direct

    async def put(self, data: bytes) -> str:
        """Store a blob; return when every chunk is acknowledged. Raises BrokerError, Unreachable,
        StoreGone.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        chunks = range(-(-len(data) // CHUNK_BYTES))
        for start in range(0, len(chunks), CHUNKS_AT_ONCE_MAX):
            group = chunks[start : start + CHUNKS_AT_ONCE_MAX]
            bodies = [data[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES] for number in group]
            await asyncio.gather(
                *(own_task(self._put(sha256, *chunk)) for chunk in zip(group, bodies, strict=True))
            )
        return sha256

    async def get(self, sha256: str, size: int) -> bytes:
        """Fetch and verify a blob. Raises NotFound (a chunk is missing), Corrupt (its bytes
        differ).
        """
        return (await self.get_all([(sha256, size)]))[sha256]

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Fetch several blobs and verify each; a request has up to a thousand chunks. Raises as
        `get`.
        """
        chunks = {
            sha256: [
                subjects.blob_subject(self._workspace, sha256, number)
                for number in range(-(-size // CHUNK_BYTES))
            ]
            for sha256, size in blobs
        }
        names = list(itertools.chain.from_iterable(chunks.values()))
        bodies = {m.subject: m.body for m in await self._direct.named(self._stream, names, 0)}
        missing = [name for name in names if name not in bodies]
        if missing:  # a lagging replica may not have it yet
            more = await self._direct.named(self._stream, missing)
            bodies |= {message.subject: message.body for message in more}
        whole: dict[str, bytes] = {}
        for sha256, size in blobs:
            lost = [name for name in chunks[sha256] if name not in bodies]
            if lost:
                what = f"blob {sha256} ({len(lost)} of {len(chunks[sha256])} chunks)"
                remedy = "it was erased, or its writer was killed before it was complete"
                raise NotFound(what, remedy)
            data = b"".join(bodies[name] for name in chunks[sha256])
            whole[sha256] = verified(sha256, size, data)
        return whole

    async def _put(self, sha256: str, number: int, body: bytes) -> None:
        """Send one chunk until it is acknowledged; repeating it is harmless."""
        subject = subjects.blob_subject(self._workspace, sha256, number)
        known = self._direct.known.of(self._stream)
        budget: RetryBudget | None = None
        began = time.monotonic()
        while True:
            try:
                await publish(self._broker, subject, body, FIRST, known)
            except Rejected as error:
                if not error.lost_race:
                    action = f"storing blob {sha256}"
                    raise BrokerError(action, error.code, error.description) from error
                break  # it is stored
            except NoAnswer as error:
                budget = budget or RetryBudget(self._broker, began)
                await budget.again(error)
            else:
                break
        host = self._broker.options.host
        if host is not None:
            host.check(self._stream)
