"""Fifty agents of one process at one counter, one list and one value."""

import asyncio
from collections import Counter

import pytest

import hansard

pytestmark = pytest.mark.slow

AGENTS = 50


@pytest.mark.thorough(quick="board/test_kill.py::test_8_processes_put_by_version_and_lose_nothing")
async def test_fifty_agents_lose_nothing_and_retry_nothing(data_dir, workspace, rounds):
    """Every write of 50 agents is there once, in each agent's order, without a retry."""
    each = rounds(2, 40)

    async def work(record, name):
        async with record.run("team", run="crowd", agent=name, role="worker") as session:
            board, told = session.board, []
            for number in range(each):
                told.append(await board.add("hits"))
                await board.append("log", [name, number])
                seen = await board.get("last")  # who meets nobody since then puts what it said
                await board.put("last", seen + 1, resolve=lambda _, theirs: theirs + 1)
            return told

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("team", run="crowd", agent="starter") as starter:
            await starter.board.put("last", 0)
            names = [f"agent {n}" for n in range(AGENTS)]
            told = await asyncio.gather(*(work(record, name) for name in names))
            hits = await starter.board.get("hits")
            log = await starter.board.get("log")
            last = await starter.board.get("last")
        commits = (await record.state("crowd")).boards
    assert hits == AGENTS * each
    assert sorted(total for totals in told for total in totals) == list(range(1, hits + 1))
    assert all(totals == sorted(totals) for totals in told)
    assert Counter(name for name, _ in log) == dict.fromkeys(names, each)
    for name in names:
        assert [number for by, number in log if by == name] == list(range(each))
    assert last == AGENTS * each
    assert commits["last"].changed == AGENTS * each + 1
