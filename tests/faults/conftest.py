"""A nats-server for all fault tests of a process, and a stage for each test."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults._broker import NatsServer
from tests.faults.support import Stage

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A strict server that no test may kill."""
    server = NatsServer(tmp_path_factory.mktemp("broker"), "strict")
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def workspace() -> str:
    """The name of a workspace that no other test uses."""
    return f"faults-{next(_numbers)}"


@pytest.fixture
def stage(server: NatsServer, tmp_path: Path, workspace: str) -> Iterator[Stage]:
    """A run to be killed and resumed, its world, and what is on record of it."""
    stage = Stage(server, tmp_path, workspace)
    try:
        yield stage
    finally:
        stage.close()
