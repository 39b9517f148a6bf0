"""One broker for the whole test session; a fresh workspace for every test; both clients."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard.agents.record import Record
from hansard.bus.server import join
from tests.agents.twins import Lab

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a server that stays up until the last test is done."""
    folder = tmp_path_factory.mktemp("broker")
    with join(folder):
        yield folder


@pytest.fixture
def workspace() -> str:
    """The name of a workspace that nobody has used."""
    return f"lab-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(params=["sync", "async"])
def lab(request: pytest.FixtureRequest, data_dir: Path, workspace: str) -> Lab:
    """A fresh workspace, for each of the two clients."""
    return Lab(request.param, data_dir, workspace)


@pytest.fixture
def record(data_dir: Path, workspace: str) -> Iterator[Record]:
    """A fresh workspace, opened by the sync client."""
    with hansard.connect(workspace, data_dir=data_dir) as opened:
        yield opened
