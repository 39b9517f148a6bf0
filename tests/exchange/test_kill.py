"""An import that is killed at any moment and run again yields the same log."""

import json
import random
import time

import pytest

from tests.cli.support import environment
from tests.exchange.support import exported, in_workspace, places
from tests.faults._warm import run
from tests.importers.support import answer, asks, chat, says, stored_beyond, written
from tests.importers.support import call as tool_call

pytestmark = pytest.mark.slow

RUNS = 40
MORE_KILLS_MAX = 20
"""Largest number of further kills until one hits the middle of an import."""


def records():
    """Runs of several sizes, some with contents that are blobs."""
    chance = random.Random(3)
    for n in range(RUNS):
        messages = [says("user", "x" * chance.choice((10, 1_000, 70_000)) + str(n))]
        for turn in range(chance.randrange(1, 20)):
            request = tool_call("c", "t", json.dumps({"turn": turn}))
            messages += [asks(request), answer("c", turn)]
        yield chat(*messages, run=n, trial=n, outcome={"reward": chance.random()})


@pytest.fixture(scope="module")
def file(home, tmp_path_factory):
    """Return an export whose import takes a while, with blobs."""
    folder = tmp_path_factory.mktemp("kill")
    name = "killed-source"
    chats = written(folder / "chats.jsonl", records())
    argv = ["-m", "hansard", "-w", name, "import", "chat-jsonl", str(chats)]
    done = run(argv, cwd=folder, env=environment(home), timeout=170)
    assert done.returncode == 0, done.stderr
    runs = sorted(in_workspace(home, name, lambda opened: opened.log.runs()))
    path = folder / "runs.jsonl"
    path.write_bytes(exported(home, name, *runs))
    return path


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_import_goes_on_where_it_was(home, start, call, file, rounds, evidence):
    """Resumed after SIGKILL, an import is equal to an undisturbed one, byte for byte."""
    assert call("undisturbed", "import", "events", file).code == 0
    undisturbed = places(home, "undisturbed")
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    halves = 0
    count, number = rounds(2, 40) // 2, 0
    while number < count or (not halves and number < count + MORE_KILLS_MAX):
        number += 1
        into = f"killed-{seed}-{number}"
        child = start(into, "import", "events", file)
        stored_beyond(home, into, chance.randrange(len(undisturbed) // 2))
        child.kill()
        child.communicate(timeout=170)
        before = places(home, into)
        assert before == undisturbed[: len(before)], (seed, number)
        halves += 0 < len(before) < len(undisturbed)
        result = call(into, "import", "events", file, "--json")
        assert result.code == 0, (seed, number, result.err)
        # less, where the broker was still storing what it had been sent
        assert result.lines[-1]["new"] <= len(undisturbed) - len(before), (seed, number)
        assert places(home, into) == undisturbed, (seed, number)
        checked = call(into, "check", "--json")
        assert checked.code == 0, (seed, number, checked.out)
    assert halves > 0, f"no kill of seed {seed} came in the middle"
    evidence.record("export.import_killed", rounds=number, in_the_middle=halves, differing=0)


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_export_leaves_what_was_there(home, start, file, tmp_path, rounds, evidence):
    """After SIGKILL the file is the old one or the whole export; a second run succeeds."""
    name = "killed-source"
    runs = sorted(in_workspace(home, name, lambda opened: opened.log.runs()))
    whole = file.read_bytes()
    target = tmp_path / "runs.jsonl"
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    begun = 0
    count, number = rounds(2, 20), 0
    while number < count or (not begun and number < count + MORE_KILLS_MAX):
        number += 1
        target.write_text("before")
        child = start(name, "export", *runs, "--output", target)
        if number > count:  # none has come while it was written yet: this one does
            _begins(tmp_path, child)
        elif number % 2 == 0 and _begins(tmp_path, child):
            time.sleep(chance.uniform(0, 0.3))
        else:
            time.sleep(chance.uniform(0, 2.5))
        child.kill()
        child.communicate(timeout=170)
        assert target.read_bytes() in {b"before", whole}, (seed, number)
        begun += any(tmp_path.glob(".*.part"))
        for part in tmp_path.glob(".*.part"):
            part.unlink()
    assert begun > 0, f"no kill of seed {seed} came while it was written"
    again = start(name, "export", *runs, "--output", target)
    again.communicate(timeout=170)
    assert (again.returncode, target.read_bytes()) == (0, whole)
    evidence.record("export.killed", rounds=number, while_written=begun, torn=0)


def _begins(folder, child):
    """Wait until an export writes, or ends."""
    while child.poll() is None:
        if any(part.stat().st_size for part in folder.glob(".*.part")):
            return True
        time.sleep(0.005)
    return False
