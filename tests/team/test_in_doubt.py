"""A task in doubt keeps its claim and resumes when settled; a failed one can be reopened."""

import asyncio
import functools

import pytest

import hansard
from hansard.domain.errors import Refused
from hansard.domain.team import TaskStatus
from tests.agents.twins import Lab, twins
from tests.team.support import task_tags, team_of

pytestmark = pytest.mark.fast(cases=99, slow=0)
"""The results do not depend on the client: the quick run includes the sync one's tests here."""

CLAIMED = ["task.added.v1", "task.claimed.v1"]


async def _tags(record):
    """Return the tags of the task events, without heartbeats."""
    return [tag for tag in await task_tags(record, "r") if tag != "task.extended.v1"]


async def _work(session, raised, *, wrap=None, inside=None):
    """Do one claimed task, whose only call sends a message."""
    sent = []

    @session.tool(name="send")
    async def send(what):
        sent.append(what)
        if raised is not None:
            raise raised
        return f"sent {what}"

    async with team_of(session).claimed(lease_s=60) as task:
        try:
            task.result = await (inside(send) if inside is not None else send("mail"))
        except BaseException as error:
            if wrap is None:
                raise
            raise wrap from error
    return sent


async def _session(record, how, raised=None, wrap=None):
    """Run one session that adds and does the task; return the messages sent."""
    async with record.run(run="r") as session:
        await team_of(session).add("send mail")
        shape = {"gathered": _gathered, "composed": _composed}.get(how)
        inside = shape(session) if shape else None
        return await _work(session, raised, wrap=wrap, inside=inside)


async def _fails(block):
    """Leave the block by an error of its own."""
    async with block:
        message = "no"
        raise ValueError(message)


def _gathered(session):
    async def inside(send):
        [result] = await session.gather(functools.partial(send, "mail"))
        return result

    return inside


def _composed(session):
    async def inside(send):
        @session.tool(name="outer", effects="composite")
        async def outer():
            return await send("mail")

        return await outer()

    return inside


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("how", ["bare", "wrapped", "gathered", "composed", "interrupted"])
@twins
async def test_a_call_in_doubt_leaves_the_claim_and_goes_on_when_it_is_settled(lab: Lab, how):
    """A call in doubt leaves the task claimed, and settling it ends the task."""
    error = {"interrupted": KeyboardInterrupt()}.get(how, TimeoutError("no answer"))
    wrap = RuntimeError("the mail failed") if how == "wrapped" else None
    async with lab.connect() as record:
        with pytest.raises(type(wrap or error)):
            await _session(record, how, error, wrap)
        assert (await record.state("r")).team.tasks["t1"].status is TaskStatus.CLAIMED
        assert await _tags(record) == CLAIMED
        with pytest.raises(hansard.InDoubt):
            await _session(record, how)
        assert await _tags(record) == CLAIMED
        [step] = [each for each in await record.steps("r") if each.tool == "send"]
        await record.settle("r", f"ada#{step.number}", "happened", result="sent mail")
        assert await _session(record, how) == []
        task = (await record.state("r")).team.tasks["t1"]
        assert (task.status, task.number) == (TaskStatus.DONE, 1)


@twins
async def test_an_error_of_the_block_fails_the_task_where_nothing_is_in_doubt(lab: Lab):
    """A doubt from before the claim, or in another branch, does not belong to the task."""
    async with lab.connect() as record, record.run(run="r") as session:

        @session.tool(name="send")
        async def send(to):
            raise TimeoutError(to)

        with pytest.raises(TimeoutError):
            await send("before")
        await team_of(session).add("t")

        async def other():
            with pytest.raises(TimeoutError):
                await send("elsewhere")

        async def fails():
            with pytest.raises(ValueError, match="no"):
                await _fails(team_of(session).claimed())

        await session.gather(other)
        await session.gather(fails)
        assert (await record.state("r")).team.tasks["t1"].status is TaskStatus.FAILED


def test_an_error_group_of_what_stops_the_run_leaves_the_claim(data_dir, workspace):
    """An error group counts as the errors in it."""

    async def stops():
        message = "not here"
        raise Refused(message)

    async def grouped(record):
        async with record.run("w", run="r", agent="ada", role="writer") as ada:
            await ada.team.add("t")
            async with ada.team.claimed(), ada.task_group() as group:
                group.create_task(stops())

    async def main():
        async with hansard.connect_async(workspace, data_dir=data_dir) as record:
            with pytest.raises(ExceptionGroup):
                await grouped(record)
            [task] = (await record.state("r")).team.tasks.values()
            assert task.status is TaskStatus.CLAIMED

    asyncio.run(main())


@twins
async def test_a_task_that_failed_is_reopened_on_record_and_what_waits_goes_on(lab: Lab):
    """A failed task is reopened under its number, on record, and replays."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            team = team_of(session)
            await team.add("one", task="a")
            await team.add("two", task="b", waits_for=["a"])
            assert await team.reopen("a") is False
            await team.fail(await team.claim(), ValueError("no ink"))
            assert [each.status for each in await team.tasks()] == ["failed", "blocked"]
            assert await team.reopen("a", "there is ink") is True
            one, two = await team.tasks()
            assert (one.status, one.error, one.because, two.status) == (
                "open",
                "",
                "there is ink",
                "waiting",
            )
            task = await team.claim()
            assert (task.id, task.number, task.because) == ("a", 2, "there is ink")
            await team.complete(task)
            with pytest.raises(Refused, match="'a' is done: only one that has failed"):
                await team.reopen("a")
            with pytest.raises(Refused, match="no task 'x'"):
                await team.reopen("x")
        async with record.run(run="r", mode="offline") as session:
            team = team_of(session)
            await team.add("one", task="a")
            await team.add("two", task="b", waits_for=["a"])
            assert await team.reopen("a") is False
            await team.fail(await team.claim(), ValueError("no ink"))
            await team.tasks()
            assert await team.reopen("a", "there is ink") is True
        tags = await _tags(record)
        assert tags[2:5] == ["task.claimed.v1", "task.failed.v1", "task.reopened.v1"]


@twins
async def test_somebody_outside_reopens_a_task_and_an_agent_that_waits_gets_it(lab: Lab):
    """A person outside of the run can reopen a task, which counts and is recorded in their name."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            team = team_of(session)
            await team.add("one")
            await team.fail(await team.claim(), "not possible")
        assert await record.reopen("r", "t1", by="paula", reason="try again") is True
        assert await record.reopen("r", "t1", by="paula") is False
        async with record.run(run="r", agent="bob") as bob:
            task = await team_of(bob).claim()
            assert (task.number, task.because) == (2, "try again")
        last = [each for each in await record.commits("r") if "task" in str(each.stream)][-2]
        assert last.commit.actor.agent == "paula"
