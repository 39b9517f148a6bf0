"""`session.team`: results of each operation, in both clients, live and resumed."""

import asyncio
import time

import pytest

import hansard
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.team import TASKS_KEY as KEY
from hansard.domain.team import ClaimLost
from tests.agents.twins import Lab, twins
from tests.team.support import task_tags, team_of

pytestmark = pytest.mark.fast(cases=99, slow=0)


@twins
async def test_a_task_from_its_adding_to_its_end(lab: Lab):
    """Added, waited for, claimed by its role alone, done; the next one is then claimable."""
    async with (
        lab.connect() as record,
        record.run(run="r", agent="ada", role="researcher") as ada,
        record.run(run="r", agent="bob", role="writer") as bob,
    ):
        mine, other = team_of(ada), team_of(bob)
        what = {"topic": "seeds", "pages": (1, 2)}
        assert await mine.add("Find papers", what=what, role="researcher") == "t1"
        assert await mine.add("Write", role="writer", waits_for=["t1"]) == "t2"
        assert await mine.add("Big", what="x" * 100_000, agent="bob", waits_for=["t2"]) == "t3"
        assert await other.claim() is None
        task = await mine.claim(lease_s=30)
        assert (task.id, task.title, task.number, task.what) == ("t1", "Find papers", 1, what)
        assert await mine.claim() is None
        await mine.extend(task, lease_s=60)
        one, two, three = await other.tasks()
        assert (one.status, one.holder, one.number, one.by) == ("claimed", "ada", 1, "ada")
        assert 50 < one.lease_left_s <= 60
        assert (two.status, two.waits_for, three.status) == ("waiting", ["t1"], "waiting")
        await mine.complete(task, {"papers": 3})
        task = await other.claim()
        assert (task.id, task.what) == ("t2", None)
        await other.release(task, "later")
        task = await other.claim()
        assert (task.id, task.number, task.because) == ("t2", 2, "later")
        await other.complete(task)
        task = await other.claim()
        assert (task.id, task.what) == ("t3", "x" * 100_000)
        await other.fail(task, ValueError("no ink"))
        one, two, three = await mine.tasks()
        assert (one.result, one.status, two.status) == ({"papers": 3}, "done", "done")
        assert (three.status, three.error) == ("failed", "ValueError: no ink")
        with pytest.raises(ClaimLost, match="is failed by 'bob'"):
            await other.complete(task)


@twins
async def test_a_claim_and_its_outcome_are_one_commit(lab: Lab):
    """The tasks' commit and the step's outcome have one transaction id and stand side by side."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            await team_of(session).add("t")
            assert await team_of(session).claim()
        commits = [
            stored for stored in await record.commits("r") if stored.stream == KeyStream("r", KEY)
        ]
        assert [stored.commit.actor.agent for stored in commits] == ["ada", "ada"]
        for stored in commits:
            assert stored.commit.tx
            [beside] = [
                other
                for other in await record.commits("r")
                if other.commit.tx and other.commit.tx.id == stored.commit.tx.id
                if other.stream == AgentStream("r", "writer", "ada")
            ]
            assert beside.commit.events[-1].type == "step.completed.v1"
            assert stored.position == beside.position + 1


async def _everything(record, **options):
    """Run a session with one operation of each kind; return the results."""
    results = []
    async with record.run(run="r", **options) as session:
        team = team_of(session)
        results.append(await team.add("one", what={"x": "y" * 80_000}))
        results.append(await team.add("two", task="mine", waits_for=["t1"]))
        results.append(await team.add("three", role="nobody"))
        try:
            await team.add("four", waits_for=["never"])
        except hansard.errors.Refused as refused:
            results.append(str(refused))
        task = await team.claim()
        results.append((task.id, task.number, task.what))
        await team.extend(task)
        await team.release(task, "tired")
        try:
            await team.complete(task)
        except ClaimLost as lost:
            results.append(
                (str(lost), lost.task, lost.number, lost.found, lost.holder, lost.status)
            )
        task = await team.claim()
        results.append((task.id, task.number))
        await team.hand_off(task, agent="ada", with_=["note"], reason="mine")
        task = await team.claim()
        results.append((task.id, task.number, task.given, task.because))
        await team.complete(task, {"done": True})
        results.append(await team.wait_for(task="t1"))
        results.append(await team.send({"hello": 1}, agent="ada"))
        results.append(await team.send("z" * 80_000, role="writer"))
        results.append([(mail.number, mail.content) for mail in await team.inbox()])
        results.append(await team.inbox())
        async with team.claimed() as task:
            results.append(task.id)
            task.result = "by the block"
        results.append(await team.claim())
        entries = await team.tasks()
        results.append([(each.id, each.status, each.result) for each in entries])
    return results


@twins
async def test_a_resumed_session_gets_the_same_answers_and_writes_nothing_again(lab: Lab):
    """A resumed session gets the same answers in every mode and writes nothing."""
    async with lab.connect() as record:
        first = await _everything(record)
        async with record.run(run="r", agent="bob", role="nobody") as other:
            await team_of(other).claim()
            await team_of(other).send("late", agent="ada")
        before = await task_tags(record, "r")
        for mode in ("strict", "offline", None):
            assert await _everything(record, mode=mode) == first
        assert await task_tags(record, "r") == before
        steps = await record.steps("r")
        assert {step.kind for step in steps} == {"team"}
        assert (await record.state("r")).team.tasks["t1"].number == 3


@twins
async def test_a_claim_whose_lease_ran_out_is_taken_over(lab: Lab):
    """Another agent takes over an expired claim by the log's time; the first one learns who
    has it.
    """
    async with (
        lab.connect() as record,
        record.run(run="r") as ada,
        record.run(run="r", agent="bob") as bob,
    ):
        mine, other = team_of(ada), team_of(bob)
        await mine.add("t")
        task = await mine.claim(lease_s=0.5)
        assert await other.claim(timeout_s=0) is None
        began = time.monotonic()
        taken = await other.claim(timeout_s=20)
        assert 0.2 < time.monotonic() - began < 10
        assert (taken.id, taken.number) == ("t1", 2)
        for late in (mine.extend, mine.complete, mine.release):
            with pytest.raises(ClaimLost, match=r"claimed by 'bob' \(claim 2\)"):
                await late(task)
        await other.complete(taken, "bob's")
        assert [each.result for each in await mine.tasks()] == ["bob's"]


@twins
async def test_a_claimed_block_keeps_its_claim_and_ends_it(lab: Lab):
    """Longer than its lease, a block keeps the claim; it completes, fails or hands off its task."""
    async with (
        lab.connect() as record,
        record.run(run="r") as ada,
        record.run(run="r", agent="bob") as bob,
    ):
        mine, other = team_of(ada), team_of(bob)
        for number in range(4):
            await mine.add(f"task {number}")
        async with mine.claimed(lease_s=0.6) as task:
            await mine.wait_for(key="never", timeout_s=1.5)
            assert (await other.tasks())[0].status == "claimed"
            task.result = 7
        with pytest.raises(ZeroDivisionError):
            async with mine.claimed():
                _ = 1 / 0
        async with mine.claimed() as task:
            await mine.hand_off(task, agent="bob", with_={"half": 1}, reason="yours")
        with pytest.raises(KeyboardInterrupt):
            async with mine.claimed():
                raise KeyboardInterrupt
        shown = [(each.status, each.result, each.error) for each in await mine.tasks()]
        assert shown == [
            ("done", 7, ""),
            ("failed", None, "ZeroDivisionError: division by zero"),
            ("open", None, ""),
            ("open", None, ""),
        ]
        tags = await task_tags(record, "r")
        assert 2 <= tags.count("task.extended.v1") <= 8
        async with other.claimed() as task:
            assert (task.id, task.given, task.because) == ("t3", {"half": 1}, "yours")
        async with other.claimed() as task:
            assert (task.id, task.because) == ("t4", "interrupted")
        async with other.claimed() as task:
            assert task is None


@twins
async def test_what_is_waited_for(lab: Lab):
    """A wait returns whether its condition held in time; invalid conditions and two at once
    fail.
    """
    async with lab.connect() as record, record.run(run="r") as session:
        team = team_of(session)
        head = await record.io(record.raw.workspace.log.head())
        assert await team.wait_for(position=head) is True
        assert await team.wait_for(position=head + 1_000, timeout_s=0.2) is False
        assert await team.wait_for(key="k", timeout_s=0.1) is False
        assert await team.wait_for(task="t1", timeout_s=0) is False
        await team.add("one", role="nobody")
        await team.add("two", waits_for=["t1"], role="nobody")
        assert await team.wait_for(task="t1", timeout_s=0.1) is False
        task = await team.claim("nobody")
        await team.fail(task, "not possible")
        assert await team.wait_for(task="t1") is True
        assert await team.wait_for(task="t2") is False
        assert await team.claim("nobody", timeout_s=None) is None
        assert await team.claim("nobody", timeout_s=0.2) is None
        for wrong in ({}, {"key": "k", "task": "t"}, {"position": -1}, {"key": "budget x"}):
            with pytest.raises(hansard.HansardError):
                await team.wait_for(**wrong)


def test_a_wait_ends_when_another_process_would_say_so(record, data_dir, workspace):
    """A wait ends soon after another connection writes."""

    async def main():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as one,
            hansard.connect_async(workspace, data_dir=data_dir) as two,
            one.run("w", run="r", agent="ada") as ada,
            two.run("w", run="r", agent="bob") as bob,
        ):
            waits = [
                asyncio.create_task(_timed(ada, key="k")),
                asyncio.create_task(_timed(ada, task="t1")),
            ]
            await asyncio.sleep(0.3)
            assert not any(each.done() for each in waits)
            await bob.board.put("k", 1)
            at_key = time.monotonic()
            await bob.team.add("t")
            task = await bob.team.claim()
            assert task
            await asyncio.sleep(0.2)
            assert not waits[1].done()
            await bob.team.complete(task)
            at_task = time.monotonic()
            ended = await asyncio.gather(*waits)
            assert [arrived for arrived, _ in ended] == [True, True]
            assert ended[0][1] - at_key < 2
            assert ended[1][1] - at_task < 2
            cancelled = asyncio.create_task(_timed(ada, key="never"))
            await asyncio.sleep(0.2)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled

    asyncio.run(main())


async def _timed(session, **what):
    arrived = await session.wait_for(**what)
    return arrived, time.monotonic()


@twins
async def test_each_message_is_given_once_to_each_agent(lab: Lab):
    """Each message is given to each agent once, on resume too."""
    async with lab.connect() as record:
        async with record.run(run="r", agent="ada") as ada, record.run(run="r", agent="bob") as bob:
            mine, other = team_of(ada), team_of(bob)
            await mine.send("to bob", agent="bob")
            await mine.send(("to", "writers"), role="writer")
            await other.send("to nobody here", role="reader")
            got = await other.inbox()
            assert [(each.number, each.sender, each.role, each.content) for each in got] == [
                (1, "ada", "writer", "to bob"),
                (2, "ada", "writer", ("to", "writers")),
            ]
            assert [each.number for each in await mine.inbox()] == [2]
            assert await other.inbox() == []
            for wrong in ({}, {"role": "a", "agent": "b"}):
                with pytest.raises(hansard.BadValue, match="one of them"):
                    await mine.send("x", **wrong)
        async with record.run(run="r", agent="cyd", role="reader") as cyd:
            assert [each.number for each in await team_of(cyd).inbox()] == [3]
            await team_of(cyd).send("more", agent="bob")
        async with record.run(run="r", agent="bob") as bob:
            again = team_of(bob)
            await again.send("to nobody here", role="reader")
            assert await again.inbox() == got
            assert await again.inbox() == []
            assert [each.content for each in await again.inbox()] == ["more"]


@twins
async def test_what_cannot_be_taken_is_refused_before_anything_is_written(lab: Lab):
    """Wrong kinds of arguments, at the door."""
    async with lab.connect() as record, record.run(run="r") as session:
        team = team_of(session)
        for wrong in (
            {"title": ""},
            {"title": 7},
            {"title": "t", "waits_for": "t1"},
            {"title": "t", "waits_for": [1]},
            {"title": "t", "role": "a", "agent": "b"},
            {"title": "t", "task": "a\nb"},
            {"title": "t", "what": {1: float("nan"), "x": object()}},
        ):
            with pytest.raises(hansard.HansardError):
                await team.add(wrong.pop("title"), **wrong)
        for lease in (0, float("nan"), "long", True, 10**9):
            with pytest.raises(hansard.HansardError):
                await team.claim(lease_s=lease)
        for timeout in (-1, float("inf"), "soon", True):
            with pytest.raises(hansard.HansardError):
                await team.claim(timeout_s=timeout)
        with pytest.raises(hansard.errors.BadName, match="budgets, tasks"):
            session.raw.board.put(
                "team tasks", 1
            ) if not session.is_async else await session.raw.board.put("team tasks", 1)
        assert await task_tags(record, "r") == []


def test_a_cancelled_block_gives_its_task_back(data_dir, workspace):
    """A cancelled block reopens its task and stops its heartbeat."""

    async def main():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as record,
            record.run("w", run="r", agent="ada", role="writer") as ada,
        ):
            await ada.team.add("t")
            held = asyncio.Event()

            async def work():
                async with ada.team.claimed(lease_s=0.3):
                    held.set()
                    await asyncio.sleep(60)

            before = asyncio.all_tasks()
            working = asyncio.create_task(work())
            await held.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            [entry] = (await record.state("r")).team.tasks.values()
            assert (entry.status, entry.because, entry.number) == ("open", "interrupted", 1)
            left = {each for each in asyncio.all_tasks() - before if "_beat" in repr(each)}
            assert not left

    asyncio.run(main())
