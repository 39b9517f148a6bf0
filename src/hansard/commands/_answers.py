"""Questions of our own, asked of the tables as they stand at a position."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from hansard.commands._open import Options, data_dir_of, reading_raw
from hansard.projections.place import Place
from hansard.projections.runner import Projector
from hansard.projections.store import Store


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

    def all(self, sql: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Every row of an answer."""
        return self._store.all(sql, given)

    def rows(self, sql: str, given: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Every row of an answer, by the names of its columns."""
        return self._store.rows(sql, given)


@contextlib.asynccontextmanager
async def answering(options: Options) -> AsyncGenerator[Answers]:
    """The tables, up to the newest position of the log. Raises NotFound, ProjectionError."""
    settings = options.settings()
    place = Place.of(data_dir_of(settings), settings.workspace)
    async with reading_raw(options) as raw:
        projector = await Projector.open(raw, place)
        try:
            _, last = await raw.bounds()
            if last > projector.store.progress.position:
                await projector.run(until=last)
        finally:
            await projector.close()
    store = await asyncio.to_thread(Store, place.path, read_only=True)
    try:
        yield Answers(store)
    finally:
        await asyncio.to_thread(store.close)
