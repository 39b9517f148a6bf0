"""The DuckDB tables that answer a record's SQL queries.

They are first brought up to date, by this process unless another does it
(`hansard.inspect.tables`). One worker process, started for the first query, serves a record until
it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hansard.bus.jetstream import BrokerOptions
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.loggers import logger
from hansard.domain.choices import NOTHING
from hansard.inspect.tables import answering, published, read
from hansard.operations.sql_answer import SqlAnswer, as_arrow
from hansard.projections.snapshots import Reader
from hansard.projections.sql_sandbox.answer import ARROW, Answer, simple
from hansard.projections.sql_sandbox.rows import ONE_QUESTION
from hansard.projections.sql_sandbox.sandbox import Door
from hansard.projections.table_files import TableFiles

T = TypeVar("T")

_log = logger(__name__)


class Tables:
    """A workspace's tables, in a folder. Close them with `close`."""

    def __init__(self, workspace: str, folder: Path, runtime: BrokerOptions) -> None:
        self._workspace = workspace
        self._runtime = runtime
        self._place = TableFiles.of(folder, workspace)
        self._door: Door | None = None
        self._open = contextlib.AsyncExitStack()

    async def ask(
        self, question: str, parameters: tuple[object, ...], tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """Answer a query as of the newest position at the time of the call.

        `tables` are the caller's own. Raises SqlError, ProjectionError, BusError, BadValue.
        """
        frames = await asyncio.to_thread(as_arrow, tables) if tables else {}
        if self._door is None:
            self._door = await self._open.enter_async_context(
                Door(self._place, ONE_QUESTION, arrow=ARROW)
            )
        async with published(self._place, self._raw, _log.warning):
            return program_answer(
                await self._door.ask(question, parameters=parameters, tables=frames, arrow=ARROW)
            )

    async def read(self, reads: Callable[[Reader], T]) -> T:
        """Run one of our own reads in a thread, as of the newest position at the time of the call.

        Raises ProjectionError, BusError, and what it raises.
        """
        async with answering(self._place, self._raw, _log.warning) as reader:
            return await read(reader, reads)

    @contextlib.asynccontextmanager
    async def _raw(self) -> AsyncGenerator[RawWorkspace]:
        raw = await RawWorkspace.open(self._runtime, self._workspace)
        try:
            yield raw
        finally:
            await raw.close()

    async def close(self) -> None:
        """Stop the worker."""
        await self._open.aclose()


def program_answer(answer: Answer) -> SqlAnswer:
    """Convert an answer to the form that programs get."""
    rows: list[tuple[Any, ...]] = [tuple(map(simple, row)) for row in answer.tuples()]
    ipc = answer.arrow() if answer.is_arrow else b""
    return SqlAnswer(answer.columns, rows, answer.position, answer.cut, ipc)
