"""Snapshots of a run: the chain from its request to its end, and resuming from any link."""

from typing import Any

import pytest

import hansard
from hansard.agents.steps import payloads
from hansard.domain.ids import AgentStream
from hansard.domain.snapshot import snapshot_id
from hansard.types import Moment
from tests.agents.twins import TwinRecord

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]
"""Client-independent tests: a single sync-client case is in the quick run."""

STREAM = AgentStream("r", "writer", "ada")
BIG = payloads.INLINE_BYTES_MAX + 1


async def _work(record: TwinRecord, calls: list[str], stop: bool = False, **options: Any) -> None:
    """Record a run of two calls, the first with a large result."""
    async with record.run(run="r", **options) as session:
        await _job(session, calls, stop=stop)


async def _job(session: Any, calls: list[str], *, stop: bool = False) -> None:
    @session.tool(effects="idempotent")
    async def write(what: str) -> str:
        calls.append(what)
        return what * BIG

    await session.message("user", "go", tokens=2)
    request = await session.snapshot()
    assert request.moment is (Moment.NOW if calls else Moment.REQUEST)
    await write("a")
    await session.message("assistant", "half", tokens=1)
    if stop:
        raise KeyboardInterrupt
    await write("b")


@pytest.mark.slow(cases=1)
async def test_the_chain_begins_with_the_request_and_ends_with_the_final_state(record: TwinRecord):
    """Each snapshot has an id, names its predecessor and is found by it, in its run or anywhere."""
    await _work(record, [], conversation="c")
    chain = await record.snapshots("r")
    assert [made.moment for made in chain] == [
        Moment.REQUEST,
        Moment.BEFORE,
        Moment.AFTER,
        Moment.BEFORE,
        Moment.AFTER,
        Moment.FINAL,
    ]
    assert [made.parent_snapshot for made in chain] == [
        None,
        *(made.snapshot_id for made in chain[:-1]),
    ]
    assert [made.snapshot_id for made in chain] == [
        snapshot_id(STREAM, made.version) for made in chain
    ]
    results = [made.tool_execution.result for made in chain if made.moment is Moment.AFTER]
    assert [(each.status, each.data) for each in results] == [
        ("success", "a" * BIG),
        ("success", "b" * BIG),
    ]
    windows = [made.agent_state.context_window for made in chain]
    assert [window.total_tokens for window in windows] == [2, 2, 2, 3, 3, 3]
    assert chain[0].agent_state.conversation_id == "c"
    assert chain[-1].metadata.server_version == f"hansard/{hansard.__version__}"
    stored = {each.commit.last_version: each.time for each in await record.commits("r")}
    assert chain[-1].timestamp == stored[chain[-1].version]
    for made in chain:
        assert await record.snapshot(made.snapshot_id, run="r") == made
    assert await record.snapshot(chain[2].snapshot_id) == chain[2]
    until = await record.snapshots("r", agent="ada", at=chain[2].snapshot_id)
    assert until == chain[:3]
    with pytest.raises(hansard.NotFound, match="in any of 1 run"):
        await record.snapshot("0190f3a1-0000-8000-8000-000000000000")


async def test_from_the_newest_snapshot_the_run_goes_on(record: TwinRecord):
    """The newest snapshot resumes a stopped run: finished work is not repeated."""
    calls: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        await _work(record, calls, stop=True)
    newest = (await record.snapshots("r"))[-1]
    async with record.replay_from(newest.snapshot_id) as session:
        assert session.run == "r"
        await _job(session, calls)
    assert calls == ["a", "b"]
    kinds = [made.moment for made in await record.snapshots("r")]
    assert kinds.count(Moment.FINAL) == 2


async def test_from_an_older_snapshot_a_fork_goes_on(record: TwinRecord):
    """A fork from a snapshot is answered up to it, and its run stays as it is."""
    calls: list[str] = []
    await _work(record, calls)
    before = await record.snapshots("r")
    async with record.replay_from(before[2], effects="live") as session:
        assert session.run != "r"
        await _job(session, calls)
        fork = session.run
    assert calls == ["a", "b", "b"]
    assert await record.snapshots("r") == before
    forked = await record.snapshots(fork)
    assert [made.snapshot_id for made in forked[:3]] == [made.snapshot_id for made in before[:3]]
    assert (forked[3].parent_snapshot, forked[3].run) == (before[2].snapshot_id, fork)
