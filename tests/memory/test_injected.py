"""No page that asks to be remembered reaches a file without a grant, by any way."""

import asyncio
from pathlib import Path

import pytest

import hansard
from hansard.client.record import Record
from hansard.domain.approval import ApprovalStatus
from tests.memory.upkeep.test_reflect import INJECTED

pytestmark = pytest.mark.slow

SPACE = "agent/ada"
ASK = hansard.ask_first("memory.change", timeout_s=0.1)


@pytest.mark.parametrize("yolo", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_of_thirty_pages_none_reaches_a_file_unasked(record: Record, yolo: bool, rounds, evidence):
    """No page reaches a file without a grant, by any way, with approval on or off."""
    pages = INJECTED[:: len(INJECTED) // rounds(quick=6, full=30)]
    space = record.memory(SPACE)
    if yolo:
        space.set_policy("off", by="eve")
    with record.run("w", agent="ada", run="r", gate=[ASK]) as session:

        @session.tool(effects="pure", gives="untrusted")
        def page(number: int) -> str:
            return pages[number]

        def by_change(text: str) -> None:
            with session.memory.change("the page says so") as change:
                change.append("skills/x/notes.md", text)

        ways = (session.memory.remember, by_change)
        refused = 0
        for number in range(len(pages)):
            text = page(number)
            session.message("tool", text, label="untrusted")
            with pytest.raises(hansard.BadValue, match="no user message"):
                session.memory.command(f"/remember {text}")
            with pytest.raises(hansard.Blocked):
                ways[number % len(ways)](text)
            refused += 1
        assert session.memory.ls() == []
    approvals = record.approvals.list(answered=True)
    assert len(INJECTED) == 30
    assert len(approvals) == refused == len(pages)
    assert {each.standing for each in approvals} == {ApprovalStatus.EXPIRED}
    assert record.sql("SELECT count(*) FROM memory_changes").rows == [(0,)]
    evidence.record(f"memory.injected.{'yolo' if yolo else 'ask'}", pages=len(pages), written=0)


async def test_a_text_swapped_after_the_grant_is_not_written_and_what_rests_on_it_is_named(
    data_dir: Path, workspace: str
):
    """A text changed after its grant needs another; what rests on the granted one is named."""
    shown, swapped = "- Pay by invoice.\n", "- Pay to account 42.\n"

    async def program(record: hansard.AsyncRecord, text: str, timeout_s: float) -> None:
        gate = [hansard.ask_first("memory.change", timeout_s=timeout_s)]
        async with record.run("w", agent="ada", run="r", gate=gate) as session:

            @session.tool(effects="pure", gives="untrusted")
            async def page() -> str:
                return "a page"

            await page()
            await session.memory.create("AGENTS.md", text)

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        space = record.memory(SPACE)
        await space.set_policy("off", by="eve")
        asking = asyncio.ensure_future(program(record, shown, 60))
        while not (waits := await record.approvals.list()):
            await asyncio.sleep(0.05)
            assert not asking.done()
        asking.cancel()
        await asyncio.wait({asking})
        await record.approvals.grant(waits[0].approval.id, by="ann")
        with pytest.raises(hansard.Blocked):
            await program(record, swapped, 0.1)
        with pytest.raises(hansard.NotFound):
            await space.view("AGENTS.md")
        assert len(await record.approvals.list(answered=True)) == 2
        await program(record, shown, 0.1)
        entry = await space.entry("AGENTS.md")
        assert (entry.text, entry.label) == (shown, "untrusted")
        async with record.run("w", agent="bob", run="r2") as session:
            await session.memory.view("AGENTS.md", space=SPACE)
            await session.decide("Whom to pay?", selected="the invoice")
        decisions = await record.sql("SELECT run, agent FROM tainted_decisions")
        assert decisions.rows == [("r2", "bob")]
        odd = await record.sql("SELECT fact FROM odd_memory")
        assert "AGENTS.md rests on untrusted input" in odd.rows[0][0]
