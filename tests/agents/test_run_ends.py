"""End of a run: with its last agent, as the worst outcome of all, or by command."""

import asyncio
import contextlib

import pytest

import hansard
from hansard.agents import runs
from hansard.agents.access.carried import put_together
from hansard.domain.errors import Refused
from hansard.domain.ids import RunStream
from hansard.domain.run import RunStatus
from tests.agents.twins import Lab, TwinRecord


async def life(record, run="r"):
    """Return a run's life."""
    return (await record.state(run)).life


async def ends(record, run="r"):
    """Return the events by which a run was left and ended, in order."""
    events = []
    for stored in await record.commits(run):
        if stored.stream == RunStream(run):
            tags = [each.type.removesuffix(".v1") for each in stored.commit.events]
            events += [
                tag
                for tag in tags
                if tag not in ("run.started", "run.forked", "run.agent_joined", "run.resumed")
            ]
    return events


async def _fails(record, **options):
    """Leave a session's block by an error."""
    async with record.run(run="r", **options):
        raise ValueError("no ink")


async def test_a_run_goes_on_when_who_began_it_leaves(record: TwinRecord):
    """It stays open for the other agent, and fails if that one raises: the last end counts."""
    with pytest.raises(ValueError, match="no ink"):
        await _left_by_its_starter(record)
    state = await life(record)
    assert (state.status, state.missing) == (RunStatus.FAILED, [])
    assert state.error.message == "no ink"
    assert await ends(record) == ["run.agent_left", "run.agent_left", "run.failed"]


async def test_a_failed_run_is_completed_by_its_agents_alone(record: TwinRecord):
    """By hand it may be abandoned, not called a success; the same end again is no event."""
    with pytest.raises(ValueError, match="no ink"):
        await _fails(record)
    with pytest.raises(Refused, match="run r is failed and cannot become completed: resume it"):
        await record.finish("r")
    assert not await record.finish("r", failed="no ink")
    assert await record.cancel("r")
    state = await life(record)
    assert (state.status, state.error) == (RunStatus.CANCELLED, None)


async def _left_by_its_starter(record):
    async with contextlib.AsyncExitStack() as inner:
        async with record.run(run="r", agent="ada") as ada:
            bob = await inner.enter_async_context(record.run(run="r", agent="bob"))
            await ada.message("user", "hello")
        state = await life(record)
        assert (state.status, state.missing) == (RunStatus.OPEN, ["bob"])
        await bob.message("user", "still here")
        raise ValueError("no ink")


async def test_a_failure_counts_though_another_agent_leaves_last(record: TwinRecord):
    """The run fails because of that agent and names it; a resume repairs it."""
    async with record.run(run="r", agent="ada"):
        with pytest.raises(ValueError, match="no ink"):
            await _fails(record, agent="bob")
        assert (await life(record)).status is RunStatus.OPEN
    state = await life(record)
    assert state.status is RunStatus.FAILED
    assert (state.error.type, state.error.message) == ("ValueError", "no ink")
    last = [each for each in await record.commits("r") if each.stream == RunStream("r")][-1]
    assert b"no ink" not in last.body  # another agent's error is reported by that agent
    assert b"agent 'bob' failed" in last.body
    async with record.run(run="r", agent="bob"):
        assert (await life(record)).missing == ["bob"]
    assert (await life(record)).status is RunStatus.COMPLETED


async def test_agents_one_after_the_other_are_one_run(record: TwinRecord):
    """An agent that joins an ended run reopens it; the run ends with that agent."""
    async with record.run(run="r", agent="ada"):
        pass
    assert (await life(record)).status is RunStatus.COMPLETED
    async with record.run(run="r", agent="bob", role="reader"):
        state = await life(record)
        assert (state.status, state.missing) == (RunStatus.OPEN, ["bob"])
    assert (await life(record)).status is RunStatus.COMPLETED
    assert [run.status for _, run in await record.runs()] == [RunStatus.COMPLETED]


async def test_a_completed_run_stays_so_while_a_session_adds_nothing(record: TwinRecord):
    """A divergence or an error of its program leaves the outcome; after new events, or by another
    agent, it counts. The exception names the outcome.
    """

    async def order(amount: int, error: str = "") -> None:
        async with record.run(run="r", agent="ada") as session:

            @session.tool()
            async def pay(amount: int) -> int:
                return amount

            await pay(amount)
            if error == "after news":
                await session.message("user", error)
            if error:
                raise ValueError(error)

    await order(120)
    with pytest.raises(hansard.Diverged) as stopped:
        await order(130)
    stays = "hansard: run r stays completed, though this session failed"
    assert stopped.value.__notes__[-1] == stays
    with pytest.raises(ValueError, match="mistake"):
        await order(120, "mistake")
    state = await life(record)
    assert (state.status, state.ends["ada"].error.message) == (RunStatus.COMPLETED, "mistake")
    assert (await ends(record))[-2:] == ["run.agent_left", "run.completed"]
    async with record.run(run="r", agent="bob"):
        pass
    assert (await life(record)).status is RunStatus.COMPLETED  # the older failure counts no longer
    with pytest.raises(ValueError, match="after news") as failed:
        await order(120, "after news")
    assert failed.value.__notes__[-1] == (
        "hansard: run r was completed before this session; now it is failed"
    )
    assert (await life(record)).status is RunStatus.FAILED
    await order(120)
    with pytest.raises(ValueError, match="no ink"):
        await _fails(record, agent="eve")
    assert (await life(record)).status is RunStatus.FAILED


async def test_a_completed_run_stays_so_after_a_lost_race(lab: Lab, monkeypatch):
    """An agent of another process joins and leaves while a session that adds nothing is left. The
    exception says that the run is open if another agent is still at work.
    """

    async def write_late(*args):
        monkeypatch.setattr(runs, "put_together", put_together)
        async with (
            hansard.connect_async(lab.workspace, data_dir=lab.data_dir) as other,
            other.run("w", run="r", agent="bob", role="writer"),
        ):
            pass
        return await put_together(*args)

    async with lab.connect() as record:
        async with record.run(run="r"):
            pass
        monkeypatch.setattr(runs, "put_together", write_late)
        with pytest.raises(ValueError, match="no ink") as failed:
            await _fails(record)
        assert failed.value.__notes__[-1] == (
            "hansard: run r stays completed, though this session failed"
        )
        state = await life(record)
        assert (state.status, [*state.ends]) == (RunStatus.COMPLETED, ["bob", "ada"])
        async with contextlib.AsyncExitStack() as inner:
            with pytest.raises(ValueError, match="no ink") as failed:
                async with record.run(run="r"):
                    await inner.enter_async_context(record.run(run="r", agent="bob"))
                    raise ValueError("no ink")
        assert failed.value.__notes__[-1] == (
            "hansard: run r was completed before this session; now it is open"
        )


async def test_a_run_in_doubt_ends_after_it_is_settled_and_resumed(record: TwinRecord):
    """The run in doubt ends well once it is settled, resumed and left by both agents."""

    async def session(record, error):
        async with record.run(run="r", agent="bob") as bob:

            @bob.tool(name="send")
            async def send(to):
                raise error

            return await send("eve")

    async with record.run(run="r", agent="ada"):
        for expected in (TimeoutError, hansard.InDoubt):
            with pytest.raises(expected):
                await session(record, TimeoutError("?"))
        await record.settle("r", "bob#1", "happened", result="sent")
        assert (await life(record)).missing == ["ada"]
        assert await session(record, None) == "sent"
    assert (await life(record)).status is RunStatus.COMPLETED


async def test_a_fork_ends_with_those_who_took_part_in_it(lab: Lab):
    """An agent at work or failed in the parent does not count in the fork."""
    async with lab.connect() as record, record.run(run="r", agent="ada"):
        with pytest.raises(ValueError, match="no ink"):
            await _fails(record, agent="bob")
        child = await record.fork("r")
        assert (await life(record, child)).missing == []
        async with record.run(run=child, agent="ada"):
            assert (await life(record, child)).missing == ["ada"]
        assert (await life(record, child)).status is RunStatus.COMPLETED
        assert (await life(record)).missing == ["ada"]


async def test_somebody_ends_a_run_and_its_late_agents_change_nothing(record: TwinRecord):
    """A finish or cancel by name is recorded once; an agent still at work keeps recording."""
    for run, end, other in (("r1", "finish", "cancel"), ("r2", "cancel", "finish")):
        status = RunStatus.COMPLETED if end == "finish" else RunStatus.CANCELLED
        async with record.run(run=run, agent="ada") as ada:
            statement = {"by": "paula", "reason": "enough"}
            assert await getattr(record, end)(run, **statement) is True
            assert await getattr(record, end)(run, by="quentin") is False
            with pytest.raises(Refused, match=f"{status.value} and cannot become failed"):
                await record.finish(run, failed="no ink")
            with pytest.raises(Refused, match=f"is {status.value} and cannot become"):
                await getattr(record, other)(run)
            await ada.message("user", "goes on")
            state = await life(record, run)
            assert (state.status, state.missing) == (status, [])
        assert (await life(record, run)).status is status
        commits = [each for each in await record.commits(run) if each.stream == RunStream(run)]
        [word] = [each for each in commits if each.commit.actor.agent == "paula"]
        assert b"enough" in word.body
        assert (await ends(record, run))[-1] == "run.agent_left"
    with pytest.raises(hansard.errors.BusError, match="run never was not found"):
        await record.finish("never")


@pytest.mark.slow
@pytest.mark.long
def test_agents_come_and_go_at_once(data_dir, workspace, rounds):
    """Agents on two connections race for the run's life: each end is on record, the run's once."""

    async def main():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as record,
            hansard.connect_async(workspace, data_dir=data_dir) as other,
        ):

            async def one(run, number):
                door = other if number % 3 else record
                async with door.run("w", run=run, agent=f"a{number}"):
                    await asyncio.sleep(0)

            for turn in range(rounds(1, 4)):
                run = f"r{turn}"
                async with record.run("w", run=run, agent="first"):
                    await asyncio.gather(*(one(run, number) for number in range(50)))
                state = (await record.state(run)).life
                assert (state.status, state.missing) == (RunStatus.COMPLETED, [])
                assert len(state.ends) == 51
                commits = await record.workspace.log.read(RunStream(run))
                tags = [each.type for stored in commits for each in stored.commit.events]
                assert tags.count("run.agent_left.v1") == 51

    asyncio.run(main())
