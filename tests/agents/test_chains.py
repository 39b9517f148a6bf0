"""The two chains: by results, where an equal result cuts a change off, and the full one."""

from functools import partial

import pytest

import hansard
from tests.agents.twins import TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)


async def _three(record, ran, *edits, mode=None, run="r", chain=None, items=0):
    """Make three calls whose results do not reveal an edit; then a loop and two branches."""
    async with record.run(run=run, mode=mode, chain=chain) as session:

        @session.tool(effects="pure")
        async def step(name: str) -> str:
            ran.append(name)
            return name[0]

        for name in "abc":
            await step(name + "!" if name in edits else name)
        await session.gather(partial(step, "left"), partial(step, "right"))
        async for item in session.resumable(range(items)):
            await step(f"item {item}")
        await step("last")


async def test_an_early_change_invalidates_all_that_follows_in_a_full_chain(record: TwinRecord):
    """In a full chain all that follows an edit runs; by results an equal result cuts it off."""
    for chain, again in (("result", ["b!"]), ("full", ["b!", "c", "left", "right", "last"])):
        ran: list[str] = []
        await _three(record, ran, run=chain, chain=chain)
        await _three(record, ran, run=chain, mode="strict")
        assert sorted(ran) == sorted(["a", "b", "c", "left", "right", "last"])
        ran.clear()
        await _three(record, ran, "b", run=chain)
        assert sorted(ran) == sorted(again)
        ran.clear()
        await _three(record, ran, "b", run=chain)
        await _three(record, ran, "b", run=chain, mode="strict")
        assert ran == []


async def test_a_run_keeps_its_chain_and_so_do_its_forks(record: TwinRecord):
    """The chain is recorded at the run's beginning; another one is an error that names it."""
    ran: list[str] = []
    with pytest.raises(hansard.BadValue, match="chain"):
        await _three(record, ran, chain="half")
    await _three(record, ran, chain="full")
    assert (await record.state("r")).life.chain == "full"
    await _three(record, ran, chain="full")
    with pytest.raises(hansard.errors.Refused, match="run r has chain='full', not 'result'"):
        await _three(record, ran, chain="result")
    with pytest.raises(hansard.errors.Refused, match="has chain='full'"):
        async with record.run(run="r", agent="bob", chain="result"):
            pass
    fork = await record.fork("r", at="ada@5")
    ran.clear()
    await _three(record, ran, "a", run=fork)
    assert (await record.state(fork)).life.chain == "full"
    assert sorted(ran) == sorted(["a!", "b", "c", "left", "right", "last"])
    await _three(record, ran, run="old")
    with pytest.raises(hansard.errors.Refused, match="has chain='result', not 'full'"):
        await _three(record, ran, run="old", chain="full")


@pytest.mark.slow(cases=1)
async def test_both_fingerprints_are_columns_of_steps(record: TwinRecord):
    """Both fingerprints are stored; only the full one changes after an edit with equal result."""
    question = """
        SELECT arguments->>'$.name' AS name, fingerprint_result, fingerprint_full
        FROM steps WHERE run = $1 ORDER BY name
    """
    ran: list[str] = []
    await _three(record, ran, run="one", chain="result")
    await _three(record, ran, run="two", chain="full")
    await _three(record, ran, "a", run="three")
    rows_of = {run: (await record.sql(question, run)).dicts() for run in ("one", "two", "three")}
    assert rows_of["one"] == rows_of["two"]  # two of them are made at once, in either order
    assert None not in {value for row in rows_of["one"] for value in row.values()}
    pairs = list(zip(rows_of["one"], rows_of["three"], strict=True))[1:]  # after the edited one
    assert all(a["fingerprint_result"] == b["fingerprint_result"] for a, b in pairs)
    assert all(a["fingerprint_full"] != b["fingerprint_full"] for a, b in pairs)
    await _three(record, ran, run="one", items=2)
    await _three(record, ran, run="one", items=3)
    rows = (await record.sql(question, "one")).dicts()
    known = {row["name"]: row["fingerprint_full"] is not None for row in rows}
    assert known["item 0"]
    assert not known["item 2"]
