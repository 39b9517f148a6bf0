"""The tables as they were published, to be asked: what is behind is projected first.

Where another process projects (`hansard up`), what it publishes is awaited; else this one projects
up to the newest position, publishes and lets go.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from hansard.bus.errors import BrokerError, Unreachable
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.commands import _show
from hansard.commands._open import Options, data_dir_of, reading_raw
from hansard.domain.errors import Corrupt
from hansard.projections import generations
from hansard.projections.errors import Behind, Held
from hansard.projections.generations import Generation
from hansard.projections.place import Place
from hansard.projections.rows import digest
from hansard.projections.runner import Projector
from hansard.projections.store import Store

WAIT_S = 10.0
"""How long the tables may take to get to where they are wanted, if another process makes them."""

POLL_S = 0.01


class Answers:
    """Tables that do not change while they are asked. For our own SQL: nothing bounds its cost."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def position(self) -> int:
        """Every answer holds as of this position."""
        return self._store.progress.position

    @property
    def digest(self) -> str:
        """SHA-256 of the message there."""
        return self._store.progress.digest

    @property
    def path(self) -> Path:
        """The file that is asked."""
        return self._store.path

    def all(self, sql: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Every row of an answer."""
        return self._store.all(sql, given)

    def rows(self, sql: str, given: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Every row of an answer, by the names of its columns."""
        return self._store.rows(sql, given)


@contextlib.asynccontextmanager
async def answering(
    options: Options, *, wait_for: int | None = None
) -> AsyncGenerator[Answers, None]:
    """The newest generation, opened for our own questions. Raises as `published`."""
    async with published(options, wait_for=wait_for) as generation:
        store = await asyncio.to_thread(Store, generation.path, read_only=True)
        try:
            yield Answers(store)
        finally:
            await asyncio.to_thread(store.close)


@contextlib.asynccontextmanager
async def published(
    options: Options, *, wait_for: int | None = None
) -> AsyncGenerator[Generation, None]:
    """The newest generation, at the head of the log as of this call, or at `wait_for`.

    Where the broker cannot be reached, or another process takes too long to get there, it is what
    stands, and stderr says so. Raises NotFound, Behind, ProjectionError, BusError.
    """
    place = place_of(options)
    try:
        async with reading_raw(options) as raw:
            await reach(raw, place, wait_for)
    except (Unreachable, BrokerError) as error:
        stands = generations.newest(place)
        if stands is None or stands.position < (wait_for or 0):
            raise
        _show.hint(f"answered from what stands, since the log cannot be read: {error}")
    with generations.holding(place) as held:
        if held is None:
            raise Behind(wait_for or 0, 0, WAIT_S)
        yield held


def place_of(options: Options) -> Place:
    """The workspace's tables. Raises BadName, SettingsError."""
    settings = options.settings()
    return Place.of(data_dir_of(settings), settings.workspace)


async def reach(raw: RawWorkspace, place: Place, wait_for: int | None = None) -> None:
    """Have a generation published at the head of the log, or at `wait_for`, by whichever process.

    Raises Behind, OtherLog, ProjectionError, BusError, Corrupt (the log lost its end).
    """
    _, head = await raw.bounds()
    wanted = head if wait_for is None else wait_for
    until_s = time.monotonic() + WAIT_S
    stands = generations.newest(place)
    if stands is not None and wanted <= stands.position and await _is_of(raw, stands, head):
        return
    while True:
        try:
            projector = await Projector.open(raw, place)
        except Held as held:
            stands = generations.newest(place)
            if stands is not None and wanted <= stands.position <= max(head, stands.head):
                return
            if time.monotonic() >= until_s:
                if stands is None or wait_for is not None:
                    raise Behind(wanted, stands.position if stands else 0, WAIT_S) from held
                _show.hint(
                    f"answered from what stands, {wanted - stands.position:,} behind: {held}"
                )
                return
            await asyncio.sleep(POLL_S)
            continue
        reached = await _project(projector, wanted, None if wanted <= head else WAIT_S)
        if reached < wanted:
            fact = (
                f"it goes to position {max(head, wanted):,}, but from {reached + 1:,} on it is gone"
            )
            raise Corrupt(f"the log of workspace {raw.workspace!r}", fact)
        return


async def _project(projector: Projector, wanted: int, timeout_s: float | None) -> int:
    """Bring the tables to a position and publish them; where they stand then, which is before it
    where the log has lost what is there. Raises Behind where the log ends before.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await projector.run(until=wanted)
    except TimeoutError as error:
        reached = projector.store.progress.position
        raise Behind(wanted, reached, timeout_s or 0.0) from error
    finally:
        await projector.close()
    return projector.store.progress.position


async def _is_of(raw: RawWorkspace, stands: Generation, head: int) -> bool:
    """Whether a generation was made of this log: it holds the same message there."""
    if stands.position > head or not stands.position:
        return stands.position == head
    async with contextlib.aclosing(
        raw.chunks(stands.position - 1, until=stands.position)
    ) as chunks:
        async for chunk in chunks:
            return [digest(message) for message in chunk.messages] == [stands.digest]
    return False
