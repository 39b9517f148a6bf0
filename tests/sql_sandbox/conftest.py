"""Tables that are published, and a door in front of them that tests ask without a loop."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from hansard.domain import run
from hansard.domain.ids import RunStream
from hansard.projections.runner import LiveStore
from hansard.projections.sql_sandbox.answer import Answer
from hansard.projections.sql_sandbox.rows import Bounds, Limits
from hansard.projections.sql_sandbox.sandbox import Door
from hansard.projections.table_files import TableFiles, WriteLock
from tests.projections.support import Messages, fill

RUNS = 50
SECRET = "a-password-that-nobody-may-see"


def fill_place(place: TableFiles, count: int = RUNS) -> None:
    """Publish some runs."""
    messages = Messages()
    for number in range(count):
        messages.add(RunStream(f"r{number}"), 1, [run.RunStarted(workflow="w")])
    hold = WriteLock(place)
    store = LiveStore(hold)
    fill(store, messages.all)
    store.close()
    hold.close()


class Asker:
    """A door in a loop of its own."""

    def __init__(self, place: TableFiles, bounds: Bounds) -> None:
        self.place = place
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.door = Door(place, bounds)
        self._run(self.door.__aenter__())

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def ask(self, sql: str, limits: Limits | None = None) -> Answer:
        """Ask and wait."""
        return self._run(self.door.ask(sql, limits))

    def later(self, sql: str, limits: Limits | None = None):
        """Ask and do not wait."""
        return asyncio.run_coroutine_threadsafe(self.door.ask(sql, limits), self._loop)

    def workers(self) -> list[int]:
        """Return the process ids of idle workers."""
        pool = self.door._pool
        assert pool is not None
        return [worker.pid for worker in pool._idle]

    def close(self) -> None:
        """End it."""
        self._run(self.door.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> TableFiles:
    """Return published tables that no test changes."""
    made = TableFiles.of(tmp_path_factory.mktemp("door"), "w")
    fill_place(made)
    return made


@pytest.fixture(scope="session")
def asker(place: TableFiles) -> Iterator[Asker]:
    """Yield an asker of the published tables that every test may use."""
    patched = pytest.MonkeyPatch()
    patched.setenv("HANSARD_NATS_PASSWORD", SECRET)
    made = Asker(place, Bounds(workers_max=2, spares=0))
    yield made
    made.close()
    patched.undo()
