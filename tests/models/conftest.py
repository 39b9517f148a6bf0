"""A local provider of models, and a record whose model calls go through the proxy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.house import House
from tests.models.provider import Provider


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Yield a provider whose address and authority are in the environment."""
    running = Provider(tmp_path)
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    yield running
    running.stop()


@pytest.fixture
def house(workspace: str, data_dir: Path) -> House:
    """Return a record."""
    return House(workspace, data_dir)
