"""Brokers with runs to audit, made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from tests.audit.planted import Planted, plant
from tests.audit.support import Audited
from tests.projections.query_cache import tables_stay_open
from tests.projections.story import tell

__all__ = ["tables_stay_open"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the data directory that all tests share, its broker held."""
    folder = tmp_path_factory.mktemp("audit") / "data"
    with hansard.connect("held", data_dir=folder):
        yield folder


@pytest.fixture(scope="session")
def story(home: Path) -> Audited:
    """Record real runs of every kind, with forks, doubts and budgets."""
    with hansard.connect("story", data_dir=home) as record:
        tell(record)
    return Audited(home, "story")


@pytest.fixture(scope="session")
def planted(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Six runs with a fault each."""
    place = Audited(home, "planted")
    return Planted(place, plant(place, tmp_path_factory.mktemp("chats"), honest=False))


@pytest.fixture(scope="session")
def honest(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Return the same six runs without faults."""
    place = Audited(home, "honest")
    return Planted(place, plant(place, tmp_path_factory.mktemp("chats"), honest=True))
