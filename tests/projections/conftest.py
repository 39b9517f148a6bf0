"""A broker with real runs on it, made once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.log import RawMessage
from tests.cli.planting import options
from tests.projections.story import tell
from tests.projections.support import WORKSPACE


class Story(msgspec.Struct):
    """The story's runs, and the messages of its log."""

    runs: list[str]
    messages: list[RawMessage]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory that all tests share."""
    return tmp_path_factory.mktemp("projections") / "data"


@pytest.fixture(scope="session")
def record(home: Path) -> Iterator[hansard.Record]:
    """Yield the workspace that all tests share, held open so that its broker stays."""
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as opened:
        yield opened


@pytest.fixture(scope="session")
def story(home: Path, record: hansard.Record) -> Story:
    """Real runs of every kind."""
    runs = tell(record)

    async def read() -> list[RawMessage]:
        raw = await RawWorkspace.open(options(home), WORKSPACE)
        try:
            last = (await raw.extent()).last
            return [message async for message in raw.follow(until=last)]
        finally:
            await raw.close()

    return Story(runs, asyncio.run(read()))
