"""Published generations: content, permitted readers, and recovery after a kill."""

import fcntl
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest

from hansard.projections import snapshots as published
from hansard.projections.errors import Behind
from hansard.projections.rows import Rows
from hansard.projections.runner import LiveStore
from hansard.projections.snapshots import PublishedSnapshot
from hansard.projections.store import Digest, Store
from hansard.projections.table_files import TableFiles, WriteLock
from tests.faults._warm import start
from tests.sql_sandbox.story import LENGTH, message

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0
BIG = 110_000
"""Commits that DuckDB writes into the file before it commits them: over 122,880 rows."""


def grow(store: LiveStore, count: int) -> None:
    """One batch of so many commits."""
    at = store.progress.position
    rows = Rows(at)
    for position in range(at + 1, at + 1 + count):
        rows.add(message(position))
    batch = rows.take()
    assert batch is not None
    store.write(batch, batch.position)


def opened(tmp_path: Path) -> tuple[TableFiles, WriteLock, LiveStore]:
    """Return an empty workspace with its write lock held."""
    place = TableFiles.of(tmp_path, "w")
    hold = WriteLock(place)
    return place, hold, LiveStore(hold)


def digests(generation: PublishedSnapshot) -> dict[str, Digest]:
    """Return the digests of the tables that a reader finds."""
    store = Store(generation.path, read_only=True)
    try:
        assert store.progress.position == generation.position
        return store.digests()
    finally:
        store.close()


def check_counts(generation: PublishedSnapshot) -> None:
    """Check that each position of the story has the counts that follow from its number."""
    with duckdb.connect(generation.path, read_only=True) as con:
        position = generation.position
        [(runs,)] = con.execute("SELECT count(*) FROM runs").fetchall()
        [(ended,)] = con.execute("SELECT count(*) FROM runs WHERE status = 'completed'").fetchall()
        [(steps, cost)] = con.execute("SELECT count(*), fsum(cost) FROM steps").fetchall()
        [(last, events)] = con.execute("SELECT max(position), count(*) FROM events").fetchall()
        whole, part = divmod(position, LENGTH)
        assert (runs, ended, last) == (whole + (part > 0), whole, position)
        assert steps == whole + (part > 1)
        assert events == whole * 6 + (0, 1, 3, 4, 5)[part]
        costed = whole + (part == 4)
        assert (cost or 0) == sum(range(costed)) / 8


@pytest.mark.thorough
def test_a_generation_is_the_tables_at_its_position(tmp_path: Path):
    """In batches of every size, with and without a new base: equal digests of every table."""
    place, hold, store = opened(tmp_path)
    store.meanwhile = False
    chance, based = random.Random(7), 0
    for number in range(10):
        before = place.path.stat().st_mtime_ns
        grow(store, BIG if number == 6 else chance.randrange(1, 500))
        written_into = place.path.stat().st_mtime_ns != before
        assert written_into == (number == 6)
        if number % 3 == 0:
            time.sleep(0.05)
        store.publish(now=True)
        generation = published.newest(place)
        assert generation is not None
        assert generation.position == store.progress.position
        based += not generation.path.with_name("tables.duckdb.wal").exists()
        if number % 3 == 0 or number in {6, 7}:
            assert digests(generation) == store.digests()
            check_counts(generation)
    assert 2 <= based < 10  # both kinds were met
    store.close()
    hold.close()


def test_old_ones_go_when_nobody_reads_them(tmp_path: Path):
    """A generation in use stays and gives the same answers however much is published; then it
    goes.
    """
    place, hold, store = opened(tmp_path)
    grow(store, 7)
    with published.holding(place) as held:
        assert held is not None
        before = digests(held)
        for _ in range(2):
            grow(store, 10)
            store.publish(now=True)
        assert digests(held) == before
        assert len(list(place.published.glob("gen-*"))) == 2
    grow(store, 1)
    store.publish(now=True)
    assert [path.name.split("-")[1] for path in place.published.glob("gen-*")] == ["28"]
    store.close()
    hold.close()
    assert sorted(path.name.split("-")[0] for path in place.published.iterdir()) == ["gen"]


def test_what_is_published_is_what_a_closed_store_held(tmp_path: Path):
    """Closing publishes the last batch; opening again publishes nothing new."""
    place, hold, store = opened(tmp_path)
    store.meanwhile = False
    grow(store, 12)
    assert published.newest(place) is None
    store.close()
    hold.close()
    generation = published.newest(place)
    assert generation is not None
    assert generation.position == 12
    again = LiveStore(hold := WriteLock(place))
    assert not again.stale
    again.close()
    hold.close()
    assert published.newest(place) == generation
    status = place.status()
    assert status is not None
    assert (status.position, status.published) == (12, 12)


def test_duckdb_keeps_its_lock_while_it_is_copied(tmp_path: Path):
    """Copying the tables never releases DuckDB's lock."""
    place, hold, store = opened(tmp_path)
    grow(store, 10)
    store.publish(now=True)
    tried = f"import duckdb; duckdb.connect({str(place.path)!r})"
    done = subprocess.run([sys.executable, "-c", tried], capture_output=True, check=False)
    assert b"Conflicting lock" in done.stderr
    store.close()
    hold.close()


async def test_a_position_is_awaited(tmp_path: Path):
    """A wait ends when the position is published, or at its timeout."""
    place, hold, store = opened(tmp_path)
    grow(store, 5)
    store.publish(now=True)
    assert (await published.wait_for(place, 5, 1)).position == 5
    with pytest.raises(Behind, match=r"position 6 was not projected within 0\.05 s"):
        await published.wait_for(place, 6, 0.05)

    def go_on() -> None:
        grow(store, 5)
        store.publish(now=True)

    later = threading.Timer(0.1, go_on)
    later.start()
    assert (await published.wait_for(place, 10, WAIT_S)).position == 10
    later.join()
    store.close()
    hold.close()


def test_a_rebuild_withdraws_what_was_published(tmp_path: Path):
    """Tables that were replaced are not answered from; a reader that has them open reads on."""
    place, hold, store = opened(tmp_path)
    grow(store, 10)
    store.close()
    with published.holding(place) as held:
        assert held is not None
        reader = duckdb.connect(held.path, read_only=True)
        Store(place.fresh).close()
        place.replace()
        assert published.newest(place) is None
        assert reader.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]
        reader.close()
    hold.close()


def test_half_a_generation_is_never_opened(tmp_path: Path):
    """An incomplete or foreign generation is ignored, and removed by the next publisher."""
    place, hold, store = opened(tmp_path)
    grow(store, 5)
    store.close()
    hold.close()
    generation = published.newest(place)
    assert generation is not None
    base = place.published
    (base / "gen-9-99999999999999999999").mkdir()
    (base / ".gen-9-1").mkdir()
    (base / "base-3.duckdb").write_bytes(b"half")
    other = base / "gen-8-99999999999999999998"
    other.mkdir()
    (other / "generation.json").write_text(
        '{"position": 8, "head": 8, "digest": "x", "schema": 9999}', encoding="utf-8"
    )
    assert published.newest(place) == generation
    hold = WriteLock(place)
    store = LiveStore(hold)
    grow(store, 1)
    store.publish(now=True)
    assert len(list(base.glob("gen-*"))) == 1
    store.close()
    hold.close()
    assert [path.name.split("-")[:2] for path in base.iterdir()] == [["gen", "6"]]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kills_leave_whole_generations(tmp_path: Path, rounds, evidence):
    """Under kills, each generation found is whole and never older than the last."""
    place, kills = TableFiles.of(tmp_path, "w"), rounds(2, 20)
    wrong: list[BaseException] = []
    stop, read = threading.Event(), itertools.count()
    reader = threading.Thread(target=_read_on, args=(place, stop, wrong, read))
    reader.start()
    chance, seen = random.Random(random.getrandbits(32)), 0
    try:
        for number in range(kills):
            command = ["-m", "tests.sql_sandbox.publish", str(tmp_path), "w", str(number)]
            child = start(command, ROOT, os.environ)
            began_s = time.monotonic()
            while time.monotonic() - began_s < WAIT_S:
                generation = published.newest(place)
                if generation is not None and generation.position > seen:
                    break
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.4))
            child.kill()
            child.wait()
            generation = published.newest(place)
            assert generation is not None
            assert generation.position > seen
            seen = generation.position
            check_counts(generation)
    finally:
        stop.set()
        reader.join()
    assert wrong == []
    reads = next(read)
    assert reads > kills
    generation = published.newest(place)
    assert generation is not None
    store = LiveStore(WriteLock(place))
    assert store.progress.position >= generation.position
    store.publish(now=True)
    newest = published.newest(place)
    assert newest is not None
    assert digests(newest) == store.digests()
    store.close()
    evidence.record("kill.published", kills=kills, positions=seen, reads=reads, broken=0)


def _read_on(place: TableFiles, stop: threading.Event, wrong: list[BaseException], read) -> None:
    """Open whatever is newest, again and again."""
    last = 0
    while not stop.is_set():
        try:
            with published.holding(place) as generation:
                if generation is None:
                    time.sleep(0.01)
                    continue
                assert generation.position >= last
                last = generation.position
                check_counts(generation)
                next(read)
            time.sleep(0.03)
        except BaseException as error:  # noqa: BLE001 -- reported by the test that started this thread
            wrong.append(error)
            return


def test_a_reader_that_has_gone_holds_nothing(tmp_path: Path):
    """A lock is that of a process: when it is killed, its generation goes with the next one."""
    place, hold, store = opened(tmp_path)
    grow(store, 5)
    store.publish(now=True)
    held = published.newest(place)
    assert held is not None
    waits = "import os, fcntl, time, sys; fd = os.open(sys.argv[1], os.O_RDONLY); "
    waits += "fcntl.flock(fd, fcntl.LOCK_SH); print('held', flush=True); time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-c", waits, str(held.folder)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    grow(store, 5)
    store.publish(now=True)
    assert held.folder.exists()
    child.kill()
    child.communicate()
    grow(store, 5)
    store.publish(now=True)
    assert not held.folder.exists()
    fd = os.open(place.published, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    store.close()
    hold.close()
