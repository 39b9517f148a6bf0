"""One store for the tests of a module, without rows when each begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hansard.projections.store import Store
from tests.statistics import support


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, frozenset[str]]]:
    """Yield a store, opened once since that takes a tenth of a second, and its never empty
    tables.
    """
    made = support.opened(tmp_path_factory.mktemp("store"))
    yield made, support.filled(made)
    made.close()


@pytest.fixture
def store(opened: tuple[Store, frozenset[str]]) -> Iterator[Store]:
    """Yield an empty store."""
    made, kept = opened
    yield made
    for table in support.filled(made) - kept:
        made.all(f'DELETE FROM "{table}"')
