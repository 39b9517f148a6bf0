"""Blobs on JetStream: chunks of 512 KiB on a subject each, below the hash of the whole."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Sequence

from hansard.bus import subjects
from hansard.bus.blobs import verified
from hansard.bus.errors import BrokerError, NotFound
from hansard.bus.jetstream.calls import publish
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.patience import Patience
from hansard.bus.jetstream.wire import FIRST, NoAnswer, Rejected
from hansard.bus.own_tasks import own_task

CHUNK_BYTES = 512 * 1024
"""Part of the stored format: a chunk's number times this is its place in the blob."""

CHUNKS_AT_ONCE_MAX = 8
"""Chunks in flight: 4 MiB, half of what the connection buffers."""


class JetStreamBlobs:
    """A `Blobs` in the workspace's blob stream."""

    def __init__(self, workspace: str, writes: Broker, direct: Direct) -> None:
        self._workspace = workspace
        self._stream = subjects.blob_stream(workspace)
        self._broker = writes
        self._direct = direct

    async def put(self, data: bytes) -> str:
        """Store; returns when every chunk is acknowledged. Raises BrokerError, Unreachable,
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
        """Fetch and verify. Raises NotFound (a chunk is missing), Corrupt (it is not what it
        was).
        """
        return (await self.get_all([(sha256, size)]))[sha256]

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Fetch several and verify each; a request has up to a thousand chunks. Raises as `get`."""
        chunks = {
            sha256: [
                subjects.blob_subject(self._workspace, sha256, number)
                for number in range(-(-size // CHUNK_BYTES))
            ]
            for sha256, size in blobs
        }
        names = list(itertools.chain.from_iterable(chunks.values()))
        found = {m.subject: m.data for m in await self._direct.named(self._stream, names, 0)}
        missing = [name for name in names if name not in found]
        if missing:  # a replica that lags may not have it yet
            more = await self._direct.named(self._stream, missing)
            found |= {message.subject: message.data for message in more}
        made: dict[str, bytes] = {}
        for sha256, size in blobs:
            lost = [name for name in chunks[sha256] if name not in found]
            if lost:
                what = f"blob {sha256} ({len(lost)} of {len(chunks[sha256])} chunks)"
                remedy = "it was erased, or its writer was killed before it was complete"
                raise NotFound(what, remedy)
            data = b"".join(found[name] for name in chunks[sha256])
            made[sha256] = verified(sha256, size, data)
        return made

    async def _put(self, sha256: str, number: int, body: bytes) -> None:
        """One chunk, again until it is acknowledged: the same bytes may be sent any number of
        times.
        """
        subject = subjects.blob_subject(self._workspace, sha256, number)
        known = self._direct.known.of(self._stream)
        patience: Patience | None = None
        began = time.monotonic()
        while True:
            try:
                await publish(self._broker, subject, body, FIRST, known)
            except Rejected as error:
                if not error.lost_race:
                    doing = f"storing blob {sha256}"
                    raise BrokerError(doing, error.code, error.description) from error
                break  # it is there
            except NoAnswer as error:
                patience = patience or Patience(self._broker, began)
                await patience.again(error)
            else:
                break
        host = self._broker.options.host
        if host is not None:
            host.check(self._stream)
