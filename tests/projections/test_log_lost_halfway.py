"""A reader that loses the broker while it brings the tables up answers with an error."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.jetstream import push
from hansard.client import opening
from hansard.client.opening import reading_raw
from hansard.inspect import tables
from hansard.inspect.tables import answering
from hansard.projections.errors import PartialTables
from hansard.projections.table_files import TableFiles
from hansard.settings import Settings
from tests.faults._broker import NatsServer

pytestmark = pytest.mark.slow

RUNS, SOME = 12, 20
"""Runs, and the messages of them that the tables get before the server is killed."""

COUNT = "SELECT count(*) FROM runs"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """Yield a server of this test alone, with runs in it; it may be killed."""
    made = NatsServer(tmp_path / "broker", "relaxed")
    made.start()
    try:
        with hansard.connect("lab", **made.login) as record:
            for _ in range(RUNS):
                with record.run("w"):
                    pass
        yield made
    finally:
        made.stop()


@pytest.fixture
def place(tmp_path: Path) -> TableFiles:
    """Return the place of the tables."""
    return TableFiles.of(tmp_path / "data", "lab")


def settings_of(server: NatsServer, folder: Path) -> Settings:
    """Return settings that locate the server."""
    login = server.login
    return Settings(
        workspace="lab",
        data_dir=folder / "data",
        nats_url=login["nats"],
        nats_user=login["nats_user"],
        nats_password=login["nats_password"],
    )


class Mortal:
    """A log whose server is killed once the tables hold its first messages."""

    def __init__(self, raw: Any, server: NatsServer, written: asyncio.Event) -> None:
        self._raw, self._server, self._written = raw, server, written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    async def chunks(self, after: int = 0, *, until: int | None = None) -> AsyncGenerator[Any]:
        """Yield the first messages, and fetch the others after the server is dead."""
        async with contextlib.aclosing(self._raw.chunks(after, until=until)) as chunks:
            first = await anext(chunks)
        some = first.messages[:SOME]
        yield type(first)(some, first.head)
        await self._written.wait()
        self._server.kill()
        async for chunk in self._raw.chunks(some[-1].position, until=until):
            yield chunk


def ask(
    place: TableFiles, settings: Settings, killed: NatsServer | None = None
) -> tuple[int, list[str]]:
    """Return the number of runs in an answer, and its notes."""
    notes: list[str] = []
    written = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open_raw() -> AsyncGenerator[Any]:
        async with reading_raw(settings) as raw:
            yield raw if killed is None else Mortal(raw, killed, written)

    @contextlib.contextmanager
    def bar() -> Iterator[Any]:
        yield lambda _position, _wanted: written.set()

    async def answer() -> int:
        async with answering(place, open_raw, notes.append, bar) as reader:
            [(count,)] = await tables.read(reader, lambda asks: asks.all(COUNT))
            return int(count)

    return asyncio.run(answer()), notes


def test_no_answer_of_a_part_of_the_log(server, place, tmp_path, monkeypatch):
    """A lost broker is an error with both positions; a whole answer is kept and noted later."""
    monkeypatch.setattr(push, "NO_ANSWER_S_MAX", 1.0)
    monkeypatch.setattr(opening, "OUTSIDE_CONNECT_TIMEOUT_S", 0.5)
    settings = settings_of(server, tmp_path)
    with pytest.raises(PartialTables, match=r"hold [\d,]+ of [\d,]+ positions") as lost:
        ask(place, settings, server)
    assert 0 < lost.value.position < lost.value.target
    with pytest.raises(PartialTables):
        ask(place, settings)
    server.start()
    assert ask(place, settings) == (RUNS, [])
    server.kill()
    count, [note] = ask(place, settings)
    assert count == RUNS
    assert "answered from the existing tables, since the log cannot be read" in note
