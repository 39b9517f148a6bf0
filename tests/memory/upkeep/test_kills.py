"""A killed compaction is made whole or not at all, and concurrent writes are kept."""

import os
import random

import pytest

from tests.cli.killed import killed_at

pytestmark = pytest.mark.slow

LAST = 14
"""Last point at which a kill can hit; beyond it the compaction is done."""

LONG, SHORT = "Answer in bullets, and briefly please.", "- answer in bullets and briefly please"


@pytest.mark.long
def test_a_killed_compaction_is_made_or_not(call, record, data_dir, workspace, rounds, evidence):
    """A killed compaction is made or not; run again it is made once."""
    chance = random.Random(os.environ["SEED"])
    killed, memory = killed_at(data_dir, workspace), record.memory()
    kills, least = 0, rounds(quick=1, full=50)
    written: list[str] = []
    while kills < least:  # a point may lie beyond its end
        number = len(written)
        before = f"{LONG}\nRound {number}.\n{SHORT}\n"
        after = f"{LONG}\nRound {number}.\n"
        memory.create("AGENTS.md", before, by="ann")
        memory.create(f"notes/{number}.md", f"Written in round {number}.\n", by="bob")
        written.append(f"notes/{number}.md")
        stood = len(memory.history("AGENTS.md"))
        kills += killed(chance.randrange(1, LAST), "memory", "compact", "org", "--apply")
        assert memory.view("AGENTS.md") in {before, after}
        call("memory", "compact", "org", "--apply")
        assert memory.view("AGENTS.md") == after
        assert len(memory.history("AGENTS.md")) == stood + 1
        assert [each.path for each in memory.entries()] == sorted(["AGENTS.md", *written])
    evidence.record("memory.compact.kills", kills=kills, rounds=len(written))
