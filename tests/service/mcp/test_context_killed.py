"""`update_context` of a server that is killed at any append: nothing lost, nothing twice."""

import asyncio
import os
import random

import pytest

import hansard
from tests.cli.killed import COMMAND, PROGRAM
from tests.faults._warm import python
from tests.integrations.mcp.support import Setup, wire

pytestmark = pytest.mark.slow

SERVE = ["mcp", "serve", "--tools", "all", "--agent", "ada", "--role", "ada"]
SPACE = "agent/ada"
LAST = 130
"""The last point at which it may be killed: syncs of a new workspace, then about six contexts."""


@pytest.mark.long
async def test_a_context_that_is_acknowledged_is_there_once(setup: Setup, rounds, evidence):
    """A context cut by a kill is stored whole or not at all; sent again it is stored once."""
    chance = random.Random(os.environ["SEED"])

    def begun() -> None:
        with hansard.connect(setup.workspace, data_dir=setup.data_dir) as record:
            record.memory(SPACE).set_policy("off", by="alice", reason="a test")

    def stored() -> tuple[list[str], list[str], list[int]]:
        """Return the lines, the files, and the number of files in each change."""
        with hansard.connect(setup.workspace, data_dir=setup.data_dir) as record:
            memory = record.memory(SPACE)
            paths = [each.path for each in memory.entries()]
            notes = sorted((path for path in paths if path != "AGENTS.md"), key=len)
            lines = memory.view("AGENTS.md").splitlines() if "AGENTS.md" in paths else []
            made = [len(memory.history(path)) for path in notes]
            return lines, notes, made

    await asyncio.to_thread(begun)
    number = kills = 0
    for _ in range(rounds(2, 50)):
        point = str(chance.randrange(1, LAST) if kills else LAST)
        command = [python(), "-c", PROGRAM + COMMAND, point, *SERVE]
        async with wire(setup, command) as client:
            try:
                await client.greet()
                while True:
                    context = {
                        "files": {f"n/{number:04}.md": f"{number}\n"},
                        "user_preferences": [f"Rule {number:04}."],
                    }
                    result = await client.call(
                        "update_context",
                        agent_id="ada",
                        context=context,
                        timestamp="2026-01-01T00:00:00+00:00",
                    )
                    assert not result.get("isError"), result
                    number += 1
            except (ValueError, ConnectionError):
                kills += 1
        lines, notes, made = await asyncio.to_thread(stored)
        assert len(lines) == len(notes) in {number, number + 1}
        assert lines == [f"- Rule {each:04}." for each in range(len(lines))]
        assert notes == [f"n/{each:04}.md" for each in range(len(lines))]
        assert made == [1] * len(notes)
    assert kills == rounds(2, 50)
    assert number > 0
    evidence.record("mcp.update_context.kills", kills=kills, acknowledged=number)
