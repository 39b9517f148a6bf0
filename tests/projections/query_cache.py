"""Cache of query results over published tables, for quick runs.

Planning one of the large questions (an audit, a comparison) takes DuckDB a quarter of a second, and
tests repeat them in several forms; opening the file of tables takes a twentieth. For the same
tables the cached result is returned and the file stays open; `make test-full` opens it and queries
again.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from hansard.inspect import comparison_parts
from hansard.inspect.tables import _Tables
from hansard.projections.report import Question, Report
from hansard.projections.report import report as compare
from hansard.projections.snapshots import Reader
from hansard.projections.store import Store
from tests.conftest import THOROUGH

OPEN_MAX = 4
"""Files that stay open: of several workspaces that a test asks in turn."""


class _Opened:
    """Open table files by content: the newest few."""

    def __init__(self) -> None:
        self._stores: dict[tuple[Any, ...], Store] = {}

    def of(self, tables: _Tables) -> Store:
        """Return the store of a generation; close another one at its path first."""
        key = (tables.path, tables.position, tables.digest)
        if key not in self._stores:
            for each in [each for each in self._stores if each[0] == tables.path]:
                self._stores.pop(each).close()
            self._stores[key] = Store(tables.path, read_only=True)
            while len(self._stores) > OPEN_MAX:
                self._stores.pop(next(iter(self._stores))).close()
        return self._stores[key]

    def close(self) -> None:
        """All of them."""
        while self._stores:
            self._stores.popitem()[1].close()


@contextlib.contextmanager
def cached_queries() -> Iterator[Callable[[], None]]:
    """Keep answers of reports by file, position and digest; yield a function that forgets them."""
    kept: dict[bytes, Any] = {}
    if THOROUGH:
        yield kept.clear
        return
    aside: list[_Tables] = []
    opened = _Opened()
    ask, scratch_of = _Tables.rows, _Tables.scratch

    def rows(self: _Tables, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        if self in aside:  # of temporary tables
            return ask(self, sql, parameters)
        key = msgspec.json.encode([str(self.path), self.position, self.digest, sql, [*parameters]])
        if key not in kept:
            kept[key] = ask(self, sql, parameters)
        return copy.deepcopy(kept[key])

    @contextlib.contextmanager
    def scratch(self: _Tables) -> Iterator[None]:
        aside.append(self)
        try:
            with scratch_of(self):
                yield
        finally:
            aside.remove(self)

    def stays_open(self: _Tables) -> Store:
        self._store = opened.of(self)  # it is this one that `interrupt` ends
        return self._store

    def report(reader: Reader, question: Question) -> Report:
        key = msgspec.json.encode([str(reader.path), reader.position, reader.digest, question])
        if key not in kept:
            kept[key] = compare(reader, question)
        return copy.deepcopy(kept[key])

    with contextlib.closing(opened), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Tables, "_opened", stays_open)
        patch.setattr(_Tables, "close", lambda self: None)
        patch.setattr(_Tables, "rows", rows)
        patch.setattr(_Tables, "scratch", scratch)
        patch.setattr(comparison_parts, "report", report)
        yield kept.clear


@pytest.fixture(scope="module", autouse=True)
def tables_stay_open() -> Iterator[None]:
    """Keep tables open, in folders whose `conftest.py` imports this fixture."""
    with cached_queries():
        yield
