"""Cache of query results over published tables, for quick runs.

Planning one of the large questions (an audit, a comparison) takes DuckDB a quarter of a second, and
tests repeat them in several forms; opening the file of tables takes a twentieth. For the same
tables the cached result is returned and the file stays open; `make test-full` opens it and queries
again.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from hansard.inspect import comparison_parts, tables
from hansard.projections.report import Question, Report
from hansard.projections.report import report as compare
from hansard.projections.snapshots import PublishedSnapshot, Reader
from hansard.projections.store import Store
from tests.conftest import THOROUGH

OPEN_MAX = 4
"""Files that stay open: of several workspaces that a test asks in turn."""


class _Opened:
    """Open table files by content: the newest few."""

    def __init__(self) -> None:
        self._stores: dict[tuple[Any, ...], Store] = {}

    def of(self, generation: PublishedSnapshot) -> Store:
        """Return the store of a generation; close another one at its path first."""
        key = (generation.path, generation.position, generation.digest)
        if key not in self._stores:
            for each in [each for each in self._stores if each[0] == generation.path]:
                self._stores.pop(each).close()
            self._stores[key] = Store(generation.path, read_only=True)
            while len(self._stores) > OPEN_MAX:
                self._stores.pop(next(iter(self._stores))).close()
        return self._stores[key]

    def close(self) -> None:
        """All of them."""
        while self._stores:
            self._stores.popitem()[1].close()


class _Cached:
    """Tables of a generation that are opened at the first query without a cached answer."""

    def __init__(
        self, generation: PublishedSnapshot, opened: _Opened, kept: dict[bytes, Any]
    ) -> None:
        self.position, self.digest = generation.position, generation.digest
        self.path = generation.path
        self._store = partial(opened.of, generation)
        self._kept = kept
        self._is_aside = False

    def all(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self._store().all(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return all rows of a query as dicts; those of temporary tables are not cached."""
        if self._is_aside:
            return self._store().rows(sql, parameters)
        key = msgspec.json.encode([str(self.path), self.position, self.digest, sql, [*parameters]])
        if key not in self._kept:
            self._kept[key] = self._store().rows(sql, parameters)
        return copy.deepcopy(self._kept[key])

    @contextlib.contextmanager
    def scratch(self) -> Iterator[None]:
        """Run queries with temporary tables."""
        self._is_aside = True
        try:
            with self._store().scratch():
                yield
        finally:
            self._is_aside = False

    def interrupt(self) -> None:
        """Interrupt the current query."""
        self._store().interrupt()


@contextlib.contextmanager
def cached_queries() -> Iterator[Callable[[], None]]:
    """Keep answers of reports by file, position and digest; yield a function that forgets them."""
    kept: dict[bytes, Any] = {}
    if THOROUGH:
        yield kept.clear
        return
    stores = _Opened()

    @contextlib.asynccontextmanager
    async def stays_open(generation: PublishedSnapshot) -> AsyncIterator[_Cached]:
        yield _Cached(generation, stores, kept)

    def report(reader: Reader, question: Question) -> Report:
        key = msgspec.json.encode([str(reader.path), reader.position, reader.digest, question])
        if key not in kept:
            kept[key] = compare(reader, question)
        return copy.deepcopy(kept[key])

    with contextlib.closing(stores), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "opened", stays_open)
        patch.setattr(comparison_parts, "report", report)
        yield kept.clear


@pytest.fixture(scope="module", autouse=True)
def tables_stay_open() -> Iterator[None]:
    """Keep tables open, in folders whose `conftest.py` imports this fixture."""
    with cached_queries():
        yield
