"""A killed checkout or commit leaves no half-written file, and can be run again."""

import itertools
import os
import random

import pytest

from hansard.ext.memory import harnesses, imports
from tests.cli.killed import killed_at
from tests.memory.portable.test_commands import json_of
from tests.memory.portable.test_harnesses import SPACE

pytestmark = pytest.mark.slow

LAST = {"checkout": 24, "commit": 26}
"""Last points at which a kill can hit a command; beyond them it is done."""


@pytest.fixture
def killed(data_dir, workspace):
    """Run a command that is killed at a point; whether it was."""
    return killed_at(data_dir, workspace)


@pytest.mark.long
def test_a_killed_commit_is_run_again(call, killed, record, tmp_path, rounds, evidence):
    """A killed commit leaves whole files; run again, the change is there once."""
    chance = random.Random(os.environ["SEED"])
    harnesses.write(tmp_path / "in", SPACE)
    json_of(call, "import", tmp_path / "in")
    folder = tmp_path / "work"
    json_of(call, "checkout", folder)
    kills, least, tries = 0, rounds(quick=2, full=50), itertools.count()
    while kills < least:  # a point may lie beyond its end
        number = next(tries)
        mine, theirs = f"Mine {number}.\n", f"Theirs {number}.\n"
        (folder / "AGENTS.md").write_text(mine)
        (folder / f"notes/{number}.md").write_text(mine)
        before = harnesses.read(folder, leave_out=[imports.MARK])
        space = record.memory("org")
        space.create("web/AGENTS.md", theirs, by="ann")
        space.create(f"web/{number}.md", theirs, by="ann")
        stood = len(space.history())
        kills += killed(chance.randrange(1, LAST["commit"]), "memory", "commit", folder)
        brought = {"web/AGENTS.md": theirs.encode(), f"web/{number}.md": theirs.encode()}
        after = before | brought
        for path, content in harnesses.read(folder, leave_out=[imports.MARK]).items():
            assert content in {before.get(path), after[path]}, path
        json_of(call, "commit", folder)
        assert harnesses.read(folder, leave_out=[imports.MARK]) == after
        files = {entry.path: entry.text.encode() for entry in record.memory("org").entries()}
        assert files == after
        assert len({each.version for each in space.history()[stood:]}) == 1
        assert not list(folder.rglob(f"*{harnesses.PARTIAL}"))
    evidence.record("memory.commit.kills", kills=kills, rounds=next(tries))


@pytest.mark.long
def test_a_killed_checkout_leaves_no_folder(call, killed, tmp_path, rounds, evidence):
    """A killed checkout leaves a whole folder or none; the next checkout removes the leftovers."""
    chance = random.Random(os.environ["SEED"])
    harnesses.write(tmp_path / "in", SPACE)
    json_of(call, "import", tmp_path / "in")
    kills, least, tries = 0, rounds(quick=1, full=50), itertools.count()
    while kills < least:
        number = next(tries)
        folder = tmp_path / f"work-{number}"
        kills += killed(chance.randrange(1, LAST["checkout"]), "memory", "checkout", folder)
        if not folder.exists():
            json_of(call, "checkout", folder)
        assert harnesses.read(folder, leave_out=[imports.MARK]) == SPACE
        json_of(call, "commit", folder)
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()
    evidence.record("memory.checkout.kills", kills=kills, rounds=next(tries))
