"""The comparison of a workspace's log with what is known of it, at every door.

It runs before anything is made or written, whenever a workspace is opened, after each reconnect, at
each jump in the positions that a follower reads, and every few seconds in `hansard up`. It costs
two STREAM.INFO requests, side by side, and the read of one message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from hansard.bus import subjects
from hansard.bus.errors import BrokerError
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.streams import STREAM_NOT_FOUND
from hansard.bus.marks import ACCEPTED, OUTSIDE_REMEDY, Extent, Newest, loss
from hansard.domain.errors import Corrupt

MADE_S_MAX = 2.0
MADE_POLL_S = 0.02
"""From the first file of a stream until the server offers it: milliseconds on an idle machine."""

GAPS_SHOWN_MAX = 5
"""Gaps in the positions that an error names; `hansard check` has all."""


async def refuse_loss(direct: Direct, workspace: str) -> Extent:
    """Return the extent of a workspace's log; empty where there is none yet.

    Raises Corrupt where the server does not offer a stream whose messages are on the disk, where
    the log lost positions at its head, in the middle or at its end, and where it is not the one
    that its mark was kept of. Nothing may be made in the place of such a log, or written to it.
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
    """A stream's STREAM.INFO; None if there is none.

    The files of one that another process makes right now are there before the server offers it.
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
    """The subject and body at a position; None where the server has none, or cannot read it."""
    try:
        message = await direct.at(name, position)
    except BrokerError:
        return None
    return None if message is None else (message.subject, message.data)


async def _gaps(direct: Direct, name: str, extent: Extent) -> str:
    """The first missing positions of a stream, as people read them."""
    info = await direct.info(name, {"deleted_details": True})
    head = range(1, min(extent.first, extent.last + 1))
    runs = _runs([*head, *(info["state"].get("deleted") or [])])
    shown = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in runs[:GAPS_SHOWN_MAX]]
    return ", ".join(shown) + (" and more" if len(runs) > GAPS_SHOWN_MAX else "")


def _runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Positions in order as runs of consecutive ones."""
    found: list[tuple[int, int]] = []
    for position in positions:
        if found and position == found[-1][1] + 1:
            found[-1] = (found[-1][0], position)
        else:
            found.append((position, position))
    return found
