"""Published tables, brought up to date for queries.

If another process projects (`hansard up`), its publication is awaited; otherwise this process
projects up to the newest position, publishes and releases the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hansard.bus.errors import BrokerError, Unreachable
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.marks import Extent
from hansard.domain.errors import Corrupt
from hansard.projections import snapshots as generations
from hansard.projections.errors import Ahead, Behind, Held, PartialTables, TooCostly
from hansard.projections.rows import digest
from hansard.projections.snapshots import PublishedSnapshot, Reader
from hansard.projections.table_files import TableFiles

if TYPE_CHECKING:
    from hansard.projections.runner import Projector
    from hansard.projections.store import Store

WAIT_S = 10.0
"""Longest wait for another process to publish the requested position, in seconds."""

POLL_S = 0.01


T = TypeVar("T")

OpenRaw = Callable[[], AbstractAsyncContextManager[RawWorkspace]]
"""Function that opens the log that the tables are made from."""

Tell = Callable[[str], None]
"""Callback for a note to the user: a rebuild, or an answer that is not current."""

Bar = Callable[[], AbstractContextManager[Callable[[int, int], None]]]
"""Context manager of a progress bar; it yields a function of the position reached and the target.
"""


def _no_bar() -> AbstractContextManager[Callable[[int, int], None]]:
    return contextlib.nullcontext(lambda _reached, _wanted: None)


@contextlib.asynccontextmanager
async def answering(
    place: TableFiles, open_raw: OpenRaw, tell: Tell, bar: Bar = _no_bar
) -> AsyncGenerator[Reader, None]:
    """Open the newest generation. Raises as `published`, and what opening a `Store` raises."""
    async with published(place, open_raw, tell, bar) as generation, opened(generation) as store:
        yield store


@contextlib.asynccontextmanager
async def opened(generation: PublishedSnapshot) -> AsyncGenerator[Store, None]:
    """Open a generation in a thread, which takes long, and close it. Raises as a `Store`."""
    store = await asyncio.to_thread(_store, generation.path)
    try:
        yield store
    finally:
        await asyncio.to_thread(store.close)


def _store(path: Path) -> Store:
    from hansard.projections.store import Store  # noqa: PLC0415 -- DuckDB takes long

    return Store(path, read_only=True)


@contextlib.asynccontextmanager
async def published(
    place: TableFiles,
    open_raw: OpenRaw,
    tell: Tell,
    bar: Bar = _no_bar,
    *,
    wait_for: int | None = None,
) -> AsyncGenerator[PublishedSnapshot, None]:
    """Yield the newest generation: at the head of the log as of this call, or at `wait_for`.

    That position is fixed before the tables are brought there, and the generation is checked
    against it. If the broker cannot be reached at all, yields the newest generation, provided that
    it holds everything that was known of the log when it was made, and calls `tell`.

    Raises NotFound, Behind, PartialTables (the log was lost half-way), ProjectionError, BusError.
    """
    least = await _bring_up_to_date(place, open_raw, tell, bar, wait_for)
    with generations.holding(place) as held:
        if held is None or held.position < least:
            raise Behind(least, held.position if held is not None else 0, WAIT_S)
        yield held


async def _bring_up_to_date(
    place: TableFiles, open_raw: OpenRaw, tell: Tell, bar: Bar, wait_for: int | None
) -> int:
    """Bring the tables up to date, and return the least position of an answer."""
    least: int | None = None
    try:
        async with open_raw() as raw:
            extent = await raw.extent()
            least = extent.last if wait_for is None else wait_for
            await reach(raw, place, tell, bar, target=least, extent=extent)
    except (Unreachable, BrokerError) as error:
        current = generations.newest(place)
        if current is None:
            raise
        if least is None:
            least = max(current.head, wait_for or 0)
        if current.position < least:
            raise PartialTables(current.position, least, error) from error
        tell(f"answered from the existing tables, since the log cannot be read: {error}")
    return least


async def read(reader: Reader, reads: Callable[[Reader], T], limit_s: float | None = None) -> T:
    """Run a read in a thread.

    The tables must stay open until it ends: a read that takes longer than `limit_s`, or whose
    caller was cancelled, is interrupted.

    Raises TooCostly, and the errors of `reads`.
    """
    work = asyncio.create_task(asyncio.to_thread(reads, reader))
    try:
        async with asyncio.timeout(limit_s):
            return await asyncio.shield(work)
    except TimeoutError as error:
        raise TooCostly("time", f"{limit_s:g} s") from error
    finally:
        while not work.done():
            reader.interrupt()
            await asyncio.wait({work}, timeout=POLL_S)
        if not work.cancelled():
            work.exception()  # its exception is retrieved


async def reach(
    raw: RawWorkspace,
    place: TableFiles,
    tell: Tell,
    bar: Bar = _no_bar,
    *,
    target: int,
    extent: Extent,
) -> None:
    """Ensure that a generation is published at a position, by this or another process.

    `extent` is the extent of the log when that position was fixed.

    Raises Behind, OtherLog, ProjectionError, BusError, Corrupt (the log lost its end).
    """
    head = extent.last
    until_s = time.monotonic() + WAIT_S
    current = generations.newest(place)
    if current is not None and target <= current.position and await _is_of(raw, current, extent):
        return
    from hansard.projections.runner import Projector  # noqa: PLC0415 -- DuckDB takes long

    while True:
        try:
            projector = await Projector.open(raw, place)
        except Held as held:
            current = generations.newest(place)
            if current is not None and target <= current.position:
                extent = await raw.extent()
                if current.position <= extent.last and not extent.gone_since(current):
                    return
                path, gone = current.path, extent.gone_since(current)
                raise Ahead(path, current.position, extent.last, gone) from held
            if time.monotonic() >= until_s:
                raise Behind(target, current.position if current else 0, WAIT_S) from held
            await asyncio.sleep(POLL_S)
            continue
        if projector.store.restarted:
            tell(f"rebuilding {str(place.path)!r} from the log: another schema made it")
        reached = await _project(projector, target, None if target <= head else WAIT_S, bar)
        if reached < target:
            fact = f"it ends at {max(head, target):,}, but from {reached + 1:,} on it is missing"
            raise Corrupt(f"the log of workspace {raw.workspace!r}", fact)
        return


async def _project(projector: Projector, target: int, timeout_s: float | None, bar: Bar) -> int:
    """Bring the tables to a position and publish them.

    Returns the position reached, which is smaller if the log has lost messages. Raises Behind if
    the log ends before.
    """
    try:
        with bar() as update:
            async with asyncio.timeout(timeout_s):
                await projector.run(
                    until=target, moved=lambda batch, _: update(batch.position, target)
                )
    except TimeoutError as error:
        reached = projector.store.progress.position
        raise Behind(target, reached, timeout_s or 0.0) from error
    finally:
        await projector.close()
    return projector.store.progress.position


async def _is_of(raw: RawWorkspace, current: PublishedSnapshot, extent: Extent) -> bool:
    """Return whether a generation was made from this log.

    True if it holds as many messages up to its position, and the same message there.
    """
    if current.position > extent.last or not current.position:
        return current.position == extent.last
    if extent.gone_since(current):
        return False
    async with contextlib.aclosing(
        raw.chunks(current.position - 1, until=current.position)
    ) as chunks:
        async for chunk in chunks:
            return [digest(message) for message in chunk.messages] == [current.digest]
    return False
