"""Late ends of runs and tasks: the same through either door, where the role allows it."""

import contextlib
from typing import Any

import pytest

import hansard
from hansard import settings
from hansard.agents.errors import RoleRefused, SessionEnded
from hansard.bus.errors import Closed, NotFound
from hansard.bus.portal import portal
from hansard.client import unfinished
from hansard.client.opening import reading
from hansard.domain.errors import Refused
from hansard.domain.run import RunStatus
from hansard.domain.steps import StepStatus
from hansard.domain.team import TaskStatus
from tests.agents.test_session_ended import Held, begun, operations
from tests.service.support import House, Lab
from tests.service.test_parity import play
from tests.team.support import team_of

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=1), pytest.mark.slow(cases=0)]

WORKER = """
[roles.worker]
[[roles.worker.sees]]
name = "own"
roles = ["worker"]
[[roles.worker.sees]]
name = "lives and tasks"
kinds = ["run.*", "task.*"]
[roles.worker.may]
tools = ["**"]
kinds = ["message.added", "task.added", "task.claimed", "task.completed", "task.failed"MORE]
"""


def worker(*more: str) -> str:
    """Return a role that works, and may state these kinds besides."""
    return WORKER.replace("MORE", "".join(f', "{kind}"' for kind in more))


def state_of(lab: Lab) -> Any:
    """Return the run as a trusted program reads it."""
    with lab.house.trusted() as record:
        return record.state("r")


def test_a_run_ends_with_its_last_agent_through_either_door(lab: Lab) -> None:
    """Two agents: the one that began it leaves first, the other one's error is the run's."""

    async def scenario() -> None:
        async with lab.connect("ada") as mine, lab.connect("bob") as other:
            with pytest.raises(ValueError, match="no ink"):
                await both(mine, other)

    async def both(mine: Any, other: Any) -> None:
        inner = other.run(run="r", agent="bob")
        async with mine.run(run="r"):
            await inner.__aenter__()
        error = ValueError("no ink")
        if not await inner.__aexit__(type(error), error, None):
            raise error

    play(lab, scenario())
    life = state_of(lab).life
    assert (life.status, life.missing) == (RunStatus.FAILED, [])
    assert [end.outcome for end in life.ends.values()] == ["completed", "failed"]


def test_a_call_in_doubt_leaves_its_claim_through_either_door(lab: Lab) -> None:
    """The task stays claimed; settled, it is done under the same claim."""

    async def session(error: Exception | None) -> None:
        async with lab.connect() as record, record.run(run="r") as session:

            @session.tool(name="send")
            async def send(to: str) -> str:
                if error is not None:
                    raise error
                return to

            await team_of(session).add("send it")
            async with team_of(session).claimed(lease_s=60) as task:
                task.result = await send("eve")

    async def settled(step: str) -> None:
        async with lab.connect() as record:
            await record.settle("r", step, "happened", result="eve")

    for expected in (TimeoutError, hansard.InDoubt):
        with pytest.raises(expected):
            play(lab, session(TimeoutError("?")))
        assert state_of(lab).team.tasks["t1"].status is TaskStatus.CLAIMED
    [step] = [each for each in state_of(lab).agent("ada").steps.values() if each.tool == "send"]
    play(lab, settled(f"ada#{step.number}"))
    play(lab, session(None))
    task = state_of(lab).team.tasks["t1"]
    assert (task.status, task.number, bytes(task.result)) == (TaskStatus.DONE, 1, b'"eve"')


def test_a_task_is_reopened_through_either_door(lab: Lab) -> None:
    """An agent reopens it in its session, and a person outside of it, in their own name."""

    async def scenario() -> None:
        async with lab.connect() as record, record.run(run="r") as session:
            team = team_of(session)
            await team.add("one")
            await team.fail(await team.claim(), "not possible")
            assert await team.reopen("t1", "it is") is True
            await team.fail(await team.claim(), "not possible")
            assert await record.reopen("r", "t1", reason="once more") is True
            assert await record.reopen("r", "t1") is False
            task = await team.claim()
            assert (task.number, task.because) == (3, "once more")
            await team.complete(task)
            with pytest.raises(hansard.HansardError):
                await record.reopen("r", "t1")

    play(lab, scenario())
    assert state_of(lab).team.tasks["t1"].status is TaskStatus.DONE


def test_a_role_that_is_not_allowed_it_ends_and_reopens_nothing(house: House) -> None:
    """Ending and reopening are denied by default, and write nothing."""
    house.apply(worker())
    with house.trusted() as record, record.run("w", run="r", agent="lead", role="lead") as lead:
        lead.team.add("one", role="worker")
        lead.team.add("hidden", agent="lead", task="hidden")
        lead.team.fail(lead.team.claim("lead"), "no")
        with house.connect("bob", "worker") as other:
            with other.run(run="r") as bob:
                bob.team.fail(bob.team.claim(), "not possible")
                with pytest.raises(RoleRefused, match=r'kinds = \["task.reopened"\]'):
                    bob.team.reopen("t1")
            for say, kind in (
                (lambda: other.reopen("r", "t1"), "task.reopened"),
                (lambda: other.finish("r"), "run.completed"),
                (lambda: other.cancel("r"), "run.cancelled"),
            ):
                with pytest.raises(RoleRefused, match=kind):
                    say()
        house.apply(worker("task.reopened", "run.*"))
        with house.connect("bob", "worker") as other:
            assert other.reopen("r", "t1") is True
            with pytest.raises(NotFound):
                other.reopen("r", "t9")
            with pytest.raises(NotFound):
                other.finish("r9")
            assert other.cancel("r", reason="late") is True
            with pytest.raises(Refused, match="has already ended with another status"):
                other.finish("r")
    with house.trusted() as record:
        state = record.state("r")
    assert state.life.status is RunStatus.CANCELLED
    assert state.team.tasks["t1"].status is TaskStatus.OPEN


def test_an_ended_session_says_so_through_either_door(lab: Lab) -> None:
    """Each operation fails as soon as the block is left, and so does a waiting one."""

    async def scenario() -> None:
        async with lab.connect() as record:
            async with record.run(run="r") as session:

                @session.tool(name="send")
                async def send(to: str) -> str:
                    return to

                await send("eve")
            raw = session.raw
            tool = send if lab.is_async else send.raw
            for name, operation in operations(raw, tool).items():
                with pytest.raises(SessionEnded, match="agent 'ada' in run r has ended"):
                    pytest.fail(f"{name} gave {await begun(operation)!r}")

    play(lab, scenario())
    assert [step.tool for step in state_of(lab).agent("ada").steps.values()] == ["send"]


@pytest.mark.parametrize("door", ["trusted", "restricted"])
def test_a_body_that_runs_on_is_on_record_through_either_door(house: House, door: str) -> None:
    """A late body is recorded in a trusted session; a restricted client gets SessionEnded."""
    held, lab = Held(), Lab(house, door, "sync")
    with house.trusted() if door == "trusted" else house.connect() as record:
        with record.run("w", run="r", agent="ada", role="writer") as session:
            held.call(session.tool(name="send")(held.body))
        [step] = state_of(lab).agent("ada").steps.values()
        assert step.status is StepStatus.IN_DOUBT
        outcome = held.end()
    [step] = state_of(lab).agent("ada").steps.values()
    if door == "trusted":
        assert (outcome, step.status, step.late) == ("sent to eve", StepStatus.COMPLETED, True)
    else:
        assert (type(outcome), step.status) == (SessionEnded, StepStatus.IN_DOUBT)
    assert state_of(lab).life.status is RunStatus.COMPLETED


def test_a_closed_restricted_record_says_so_at_once(house: House) -> None:
    """No answer is waited for."""
    with house.connect() as record:
        pass
    for ask in (lambda: record.roles.view("r"), lambda: record.finish("r"), lambda: record.sql("")):
        with pytest.raises(Closed, match="the record was closed"):
            ask()


def test_an_agent_is_at_work_as_long_as_its_service_is(house: House) -> None:
    """A service that ended, and is not restarted, has no agent at work."""
    config = settings.load({}, workspace=house.workspace, data_dir=house.data_dir)

    async def at_work() -> dict[str, bool]:
        async with reading(config) as workspace:
            return await unfinished.processes(workspace, config, "r", {"ada": "writer"}, ["ada"])

    with (
        contextlib.suppress(hansard.errors.BusError),
        house.connect() as record,
        record.run("w", run="r"),
    ):
        assert portal().run(at_work()) == {"ada": True}
        house.end()
        assert portal().run(at_work()) == {"ada": False}
        house.begin()  # which does not know the session
