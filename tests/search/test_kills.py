"""An indexer killed at random moments while the log grows leaves the index of a clean rebuild."""

import os
import random
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from tests.faults._warm import Process, start
from tests.search.support import brought_up, content, grow, place_of, rebuilt

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


def _start(home: Path, workspace: str) -> Process:
    return start(["-m", "tests.search.fill", str(home), workspace], ROOT, os.environ)


def _load(home: Path, workspace: str, stop: threading.Event) -> None:
    """Append commits as fast as possible until stopped."""
    for since in count(0, 200):
        if stop.is_set():
            return
        grow(home, workspace, since, 200)


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.timeout(600)
def test_kills_under_load_leave_no_trace(home: Path, workspace: str, rounds, evidence):
    """After kills, rows and words equal a rebuild's, and FTS5's own check is clean."""
    place, kills = place_of(home, workspace), rounds(3, 50)
    chance = random.Random(random.getrandbits(32))
    stop = threading.Event()
    growing = threading.Thread(target=_load, args=(home, workspace, stop))
    growing.start()
    moved, seen = 0, 0
    try:
        for _ in range(kills):
            child = _start(home, workspace)
            until_s = time.monotonic() + WAIT_S
            while child.poll() is None and time.monotonic() < until_s:
                status = place.status()
                if status is not None and status.pid == child.pid and status.position > seen:
                    break
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.1))
            child.kill()
            child.wait()
            status = place.status()
            assert status is not None
            moved += status.position > seen
            seen = status.position
    finally:
        stop.set()
        growing.join()
    reached = brought_up(home, workspace)
    whole = content(place.path)
    assert rebuilt(home, workspace) == reached
    assert content(place.path) == whole
    assert whole["pages"] == [("ok",)]
    assert len(whole["rows"]) == reached // 2 * 4
    assert moved >= kills // 2
    evidence.record("kill.search_index", kills=kills, commits=reached, differing_rows=0)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_rebuild_that_is_killed_leaves_the_old_index(home: Path, workspace: str, rounds):
    """The index is whole at any moment; the next rebuild discards a half made one."""
    grow(home, workspace, 0, 1_000)
    reached = brought_up(home, workspace)
    place, chance = place_of(home, workspace), random.Random(7)
    before = content(place.path)
    cut = 0
    kills = rounds(1, 10)
    for _ in range(kills):
        child = start(["-c", _REBUILD, str(home), workspace], ROOT, os.environ)
        until_s = time.monotonic() + WAIT_S
        while not place.fresh.exists() and child.poll() is None and time.monotonic() < until_s:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.3))
        cut += child.poll() is None
        child.kill()
        child.wait()
        assert content(place.path) == before
    assert cut >= max(1, kills // 2)
    assert rebuilt(home, workspace) == reached
    assert content(place.path) == before
    assert not place.fresh.exists()


_REBUILD = """
import sys
from pathlib import Path
from hansard.projections import runner
from hansard.projections.full_text import Question, ask
from tests.search.support import rebuilt
runner.BATCH_EVENTS_MAX = 200
rebuilt(Path(sys.argv[1]), sys.argv[2])
"""
