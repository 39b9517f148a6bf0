"""An import that is killed at any moment and run again yields the same log."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import environment
from tests.faults._warm import python
from tests.importers import dying
from tests.importers.support import (
    answer,
    asks,
    bodies,
    call,
    chat,
    log_of,
    says,
    stored_beyond,
    written,
)

pytestmark = pytest.mark.slow

PROGRAM = Path(dying.__file__)

RUNS = 100
MORE_KILLS_MAX = 20
"""Largest number of further kills until one hits the middle of an import."""


def records():
    """Runs of several sizes, some with contents that are blobs."""
    chance = random.Random(3)
    for n in range(RUNS):
        turns = chance.randrange(1, 20)
        messages = [says("user", "x" * chance.choice((10, 1_000, 70_000)) + str(n))]
        for turn in range(turns):
            messages += [asks(call("c", "t", json.dumps({"turn": turn}))), answer("c", turn)]
        yield chat(*messages, run=n, trial=n, outcome={"reward": chance.random()})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a file whose import takes about a second."""
    return written(tmp_path_factory.mktemp("kill") / "chats.jsonl", records())


@pytest.fixture(scope="module")
def undisturbed(home, file):
    """Return the log of an import that nobody killed, by place."""
    argv = ["-w", "undisturbed", "import", "chat-jsonl", "-"]
    subprocess.run(
        [python(), "-m", "hansard", *argv],
        env=environment(home),
        input=file.read_bytes(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(bodies(home, "undisturbed"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_import_goes_on_where_it_was(home, start, file, undisturbed, rounds):
    """An import killed at random and run again stores every commit once."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    data = file.read_bytes()
    halves = 0
    count, number = rounds(2, 40) // 2, 0
    while number < count or (not halves and number < count + MORE_KILLS_MAX):
        number += 1
        into, hint = f"killed-{seed}-{number}", f"seed {seed}, round {number}"
        with file.open("rb") as stdin:
            child = start("-w", into, "import", "chat-jsonl", "-", stdin=stdin)
        stored_beyond(home, into, chance.randrange(len(undisturbed) // 2))
        child.kill()
        child.communicate(timeout=170)
        before = [stored.body for stored in log_of(home, into)]
        halves += 0 < len(before) < len(undisturbed)
        again = start("-w", into, "import", "chat-jsonl", "-", "--json", stdin=subprocess.PIPE)
        out, err = again.communicate(data, timeout=120)
        assert again.returncode == 0, (hint, err)
        # What was on its way when it was killed may be stored after we looked.
        assert json.loads(out)["new"] <= len(undisturbed) - len(before), hint
        assert [stored.body for stored in log_of(home, into)][: len(before)] == before, hint
        imported = bodies(home, into)
        assert len(imported) == len(undisturbed), hint
        assert dict(imported) == undisturbed, hint
    assert halves > 0, f"no kill of seed {seed} came in the middle"


@pytest.mark.thorough
def test_two_imports_of_one_file_at_once_are_one(home, workspace, start, file, undisturbed):
    """Two processes that import the same file at the same time: each commit once."""
    children = []
    for _ in range(2):
        with file.open("rb") as stdin:
            children.append(start("import", "chat-jsonl", "-", "--json", stdin=stdin))
    outputs = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    imported = bodies(home, workspace)
    assert len(imported) == len(undisturbed)
    assert dict(imported) == undisturbed
    assert sum(json.loads(out)["new"] for out, _ in outputs) <= len(undisturbed)
