"""An async call that is cancelled at each of its stages: nothing is left half written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed

import hansard
from hansard.bus.commits import revive_all
from hansard.bus.errors import AppendUnknown
from hansard.bus.log import Append, Stored
from hansard.bus.portal import Portal
from hansard.domain import approval as budgets
from hansard.domain import decider
from hansard.domain.ids import KeyStream
from hansard.domain.steps import StepStatus
from tests.faults._broker import NatsServer
from tests.faults._held import HeldLog
from tests.faults._inside import World

pytestmark = pytest.mark.timeout(180)

NAMES: Any = {"run": "r1", "agent": "worker", "role": "worker"}
WITH_EFFECTS = ["idempotent", "reconcile", "once"]

SETTLE_S = 0.05
"""Long enough for a task that does not wait for its write to end: it would end at once."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world of this test alone."""
    return World(tmp_path)


@pytest.fixture
async def record(server: NatsServer, workspace: str) -> AsyncIterator[hansard.AsyncRecord]:
    """Yield a workspace of this test alone, for the async client."""
    async with hansard.connect_async(workspace=workspace, **server.login) as record:
        yield record


class Body:
    """A tool's body that changes the world and then stays in it until it is released."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun = asyncio.Event()
        self.release = asyncio.Event()

    def declare(self, session: hansard.AsyncSession, policy: str) -> Any:
        """Declare the tool under a policy."""
        world, body = self.world, self

        def ask(word: str) -> Any:
            return hansard.Happened(f"did {word}") if world.read() else hansard.DID_NOT_HAPPEN

        @session.tool(effects=hansard.reconcile(ask) if policy == "reconcile" else policy)
        async def act(word: str) -> str:
            await asyncio.to_thread(world.effect, "act", word)
            body.begun.set()
            await body.release.wait()
            return f"did {word}"

        return act

    async def cut_off(self, session: hansard.AsyncSession, policy: str) -> None:
        """Call it, and cancel the call while it is in the body."""
        task = asyncio.create_task(self.declare(session, policy)("letter"))
        await self.begun.wait()
        task.cancel()
        await _cancelled(task)


def _hold(record: hansard.AsyncRecord, tag: str) -> HeldLog:
    held = HeldLog(record.workspace.log, tag)
    record.workspace.log = held
    return held


async def _cancelled(task: asyncio.Task[Any]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def _cut_off(held: HeldLog, task: asyncio.Task[Any]) -> None:
    """Cancel a call while a write is held, and let that go on."""
    await held.reached.wait()
    task.cancel()
    await asyncio.sleep(SETTLE_S)
    assert not task.done()
    held.release.set()
    await _cancelled(task)


async def _step(record: hansard.AsyncRecord, number: int = 1) -> Any:
    """Return a step as it is in the log, not as the session believes."""
    state = await record.state("r1")
    return state.agent("worker").steps.get(number)


async def _resumed(record: hansard.AsyncRecord, world: World, policy: str) -> Any:
    """Return the outcome of the same call in a later session."""
    body = Body(world)
    body.release.set()
    async with record.run("cancelled", **NAMES) as session:
        return await body.declare(session, policy)("letter")


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("policy", WITH_EFFECTS)
async def test_before_the_intent_is_acknowledged(record, world, policy):
    """The write is awaited, the body never begins, and resuming runs it without a question."""
    held, body = _hold(record, "step.requested.v1"), Body(world)
    async with record.run("cancelled", **NAMES) as session:
        await _cut_off(held, asyncio.create_task(body.declare(session, policy)("letter")))
        step = await _step(record)
        assert (step.status, step.safe) == (StepStatus.FAILED, True)
        assert step.error.type == "CancelledError"
    assert not body.begun.is_set()
    assert await _resumed(record, world, policy) == "did letter"
    assert len(world.read()) == 1


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("policy", WITH_EFFECTS)
async def test_during_the_body(record, world, policy):
    """The step is in doubt, on record before the cancellation comes through."""
    body = Body(world)
    async with record.run("cancelled", **NAMES) as session:
        await body.cut_off(session, policy)
        step = await _step(record)
        assert (step.status, step.error.type) == (StepStatus.IN_DOUBT, "CancelledError")
    if policy == "once":
        with pytest.raises(hansard.InDoubt):
            await _resumed(record, world, policy)
        assert len(world.read()) == 1
        await record.settle("r1", "1", "happened", result="did letter")
    assert await _resumed(record, world, policy) == "did letter"
    assert len(world.read()) == (2 if policy == "idempotent" else 1)


async def test_again_and_again_while_the_doubt_is_recorded(record, world):
    """The doubt is recorded under a shield: no number of cancellations cuts that write short."""
    held, body = _hold(record, "step.in_doubt.v1"), Body(world)
    async with record.run("cancelled", **NAMES) as session:
        task = asyncio.create_task(body.declare(session, "once")("letter"))
        await body.begun.wait()
        task.cancel()
        await held.reached.wait()
        for _ in range(5):
            task.cancel()
            await asyncio.sleep(SETTLE_S / 5)
        assert not task.done()
        held.release.set()
        await _cancelled(task)
        assert (await _step(record)).status is StepStatus.IN_DOUBT


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("policy", ["pure", *WITH_EFFECTS])
async def test_while_the_outcome_is_recorded(record, world, policy):
    """The write of an outcome is completed, and resuming returns that outcome."""
    held, body = _hold(record, "step.completed.v1"), Body(world)
    body.release.set()
    async with record.run("cancelled", **NAMES) as session:
        await _cut_off(held, asyncio.create_task(body.declare(session, policy)("letter")))
        assert (await _step(record)).status is StepStatus.COMPLETED
    assert await _resumed(record, world, policy) == "did letter"
    assert len(world.read()) == 1


async def test_during_a_pure_body_nothing_is_recorded(record, world):
    """A pure call that was cut leaves no trace, and runs again."""
    body = Body(world)
    async with record.run("cancelled", **NAMES) as session:
        await body.cut_off(session, "pure")
        assert await _step(record) is None
    assert await _resumed(record, world, "pure") == "did letter"


async def test_between_attempts_the_effect_surely_did_not_happen(record, world):
    """A call cancelled between two attempts is not in doubt: the last attempt did nothing."""
    recorded = _hold(record, "step.attempted.v1")

    def declare(session: hansard.AsyncSession, *, works: bool) -> Any:
        @session.tool(attempts=2, wait=wait_fixed(60))
        async def act(word: str) -> str:
            if not works:
                raise hansard.errors.NotDone(word)
            world.effect("act", word)
            return f"did {word}"

        return act

    async with record.run("cancelled", **NAMES) as session:
        task = asyncio.create_task(declare(session, works=False)("letter"))
        await recorded.reached.wait()
        recorded.release.set()
        await asyncio.sleep(SETTLE_S)
        assert not task.done()
        task.cancel()
        await _cancelled(task)
        step = await _step(record)
        assert (step.status, step.safe) == (StepStatus.FAILED, True)
    async with record.run("cancelled", **NAMES) as session:
        assert await declare(session, works=True)("letter") == "did letter"
    assert len(world.read()) == 1


async def test_by_a_deadline_around_the_call(record, world):
    """`asyncio.timeout` cancels the call: the caller gets its TimeoutError, the step its doubt."""
    async with record.run("cancelled", **NAMES) as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await Body(world).declare(session, "once")("letter")
        assert (await _step(record)).status is StepStatus.IN_DOUBT


async def test_of_a_gather_reaches_all_its_calls(record, world):
    """Each open call of a cancelled gather is in doubt; the session goes on after it."""
    bodies = [Body(world), Body(world)]
    async with record.run("cancelled", **NAMES) as session:
        tools = [body.declare(session, "once") for body in bodies]
        both = [tool(f"letter {number}") for number, tool in enumerate(tools)]
        task = asyncio.create_task(session.gather(*both))
        await asyncio.gather(*(body.begun.wait() for body in bodies))
        task.cancel()
        await _cancelled(task)
        assert [(await _step(record, n)).status for n in (1, 2)] == [StepStatus.IN_DOUBT] * 2
        bodies[0].release.set()
        assert await tools[0]("another") == "did another"


async def test_by_a_failing_sibling_in_a_task_group(record, world):
    """A task group's first error cancels the others: their open calls are in doubt."""
    body = Body(world)

    async def fails() -> None:
        await body.begun.wait()
        raise ValueError("enough")

    async with record.run("cancelled", **NAMES) as session:
        with pytest.raises(ExceptionGroup) as raised:  # noqa: PT012 -- it comes from the block's end
            async with session.task_group() as group:
                group.create_task(body.declare(session, "once")("letter"))
                group.create_task(fails())
        assert raised.group_contains(ValueError, match="enough")
        assert (await _step(record)).status is StepStatus.IN_DOUBT


async def test_of_a_composite_leaves_its_part_in_doubt(record, world):
    """The part that was open is in doubt, the composite around it is entered again."""
    body = Body(world)

    def declare(session: hansard.AsyncSession, body: Body) -> Any:
        act = body.declare(session, "once")

        @session.tool(effects="composite")
        async def campaign(word):
            return [await act(f"{word} 1"), await act(f"{word} 2")]

        return campaign

    async with record.run("cancelled", **NAMES) as session:
        task = asyncio.create_task(declare(session, body)("letter"))
        await body.begun.wait()
        task.cancel()
        await _cancelled(task)
        assert (await _step(record, 1)).status is StepStatus.REQUESTED
        assert (await _step(record, 2)).status is StepStatus.IN_DOUBT
    await record.settle("r1", "2", "happened", result="did letter 1")
    again = Body(world)
    again.release.set()
    async with record.run("cancelled", **NAMES) as session:
        assert await declare(session, again)("letter") == ["did letter 1", "did letter 2"]
    assert [line["word"] for line in world.read()] == ["letter 1", "letter 2"]


async def test_of_a_sync_body_leaves_it_running(record, world):
    """A thread cannot be cancelled: its effect still happens, which is why the step is in doubt."""
    begun, going = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    async with record.run("cancelled", **NAMES) as session:

        @session.tool
        def act(word):
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(going.wait(), loop).result()
            world.effect("act", word)
            loop.call_soon_threadsafe(done.set)

        done = asyncio.Event()
        task = asyncio.create_task(act("letter"))
        await begun.wait()
        task.cancel()
        await _cancelled(task)
        assert (await _step(record)).status is StepStatus.IN_DOUBT
        assert world.read() == []
        going.set()
        await done.wait()
    assert len(world.read()) == 1


@pytest.mark.parametrize("during", ["the next item", "the recording of one"])
async def test_of_a_stream(record, world, during):
    """A cancelled stream is in doubt, keeps the recorded items, and runs its own cleanup."""
    stuck, cleaned = asyncio.Event(), asyncio.Event()
    held = _hold(record, "step.yielded.v1") if during == "the recording of one" else None
    items = []

    def declare(session: hansard.AsyncSession) -> Any:
        @session.tool
        async def lines(count):
            try:
                for number in range(count):
                    yield number
                stuck.set()
                await asyncio.Event().wait()
            finally:
                cleaned.set()

        return lines

    async def read(session: hansard.AsyncSession) -> None:
        async with contextlib.aclosing(declare(session)(2)) as stream:
            async for item in stream:
                items.append(item)  # noqa: PERF401 -- what was handed on before it was cut counts

    async with record.run("cancelled", **NAMES) as session:
        task = asyncio.create_task(read(session))
        if held is not None:
            await _cut_off(held, task)
        else:
            await stuck.wait()
            task.cancel()
            await _cancelled(task)
        step = await _step(record)
        assert step.status is StepStatus.IN_DOUBT
        assert len(step.items) == (2 if held is None else 1)
        assert items == ([0, 1] if held is None else [])
        assert cleaned.is_set()
    with pytest.raises(hansard.InDoubt, match=f"after {len(step.items)} items?"):
        async with record.run("cancelled", **NAMES) as session:
            await read(session)


@pytest.mark.parametrize("raises", [False, True], ids=["a result", "an error"])
async def test_while_a_budget_is_corrected(record, world, raises):
    """The outcome is on record before the budget is: a cancellation in between loses neither."""
    held = _hold(record, "budget.spent.v1")
    limit = hansard.budget("cost", 10, unit="cost", reserve=2)

    def declare(session: hansard.AsyncSession) -> Any:
        @session.tool
        async def act(word):
            world.effect("act", word)
            session.usage(cost=3)
            if raises:
                raise ConnectionError(word)
            return f"did {word}"

        return act

    async with record.run("cancelled", gate=[limit], **NAMES) as session:
        await _cut_off(held, asyncio.create_task(declare(session)("letter")))
        expected = StepStatus.IN_DOUBT if raises else StepStatus.COMPLETED
        assert (await _step(record)).status is expected
    assert len(world.read()) == 1


# ---------------------------------------------------------------- budgets, before the body begins


async def _gone(record: hansard.AsyncRecord, name: str) -> float:
    """Return how much of a budget is spent, by the log."""
    stored = await record.workspace.log.read(KeyStream("r1", budgets.key_of(name)))
    events = revive_all([each.commit for each in stored])
    return decider.fold(budgets.BudgetState(), events).total


def _quick(session: hansard.AsyncSession, policy: Any, done: list[int]) -> Any:
    @session.tool(effects=policy)
    async def act(number):
        done.append(number)
        return number

    return act


@pytest.mark.parametrize(
    ("policy", "tag"),
    [
        ("pure", "budget.reserved.v1"),
        ("once", "budget.reserved.v1"),
        ("once", "step.requested.v1"),
        ("idempotent", "step.requested.v1"),
    ],
)
async def test_before_the_body_draws_on_no_budget(record, policy, tag):
    """A call cut off before its body gives back its share of the budget."""
    done: list[int] = []
    limit = hansard.budget("few", 2)
    held = _hold(record, tag)
    async with record.run("cancelled", gate=[limit], **NAMES) as session:
        act = _quick(session, policy, done)
        await _cut_off(held, asyncio.create_task(act(0)))
        assert (done, await _gone(record, "few")) == ([], 0)
        assert await act(1) == 1
    again = {"settle": lambda _: hansard.Verdict.RUN_AGAIN}
    async with record.run("cancelled", gate=[limit], **again, **NAMES) as session:
        act = _quick(session, policy, done)
        assert await act(2) == 2
        with pytest.raises(hansard.Blocked, match="its limit of 2 calls is used up"):
            await act(3)
    assert done == [1, 2]


async def test_before_a_stream_begins_draws_on_no_budget(record):
    """A stream that is cut off before its first item is requested draws on no budget."""
    held = _hold(record, "step.requested.v1")
    async with record.run("cancelled", gate=[hansard.budget("few", 1)], **NAMES) as session:

        @session.tool
        async def lines(word):
            yield word

        async def read(word: str) -> list[str]:
            return [item async for item in lines(word)]

        await _cut_off(held, asyncio.create_task(read("a")))
        assert await _gone(record, "few") == 0
        assert await read("b") == ["b"]


async def test_before_a_joint_decision_draws_on_no_budget(record):
    """A claim cut off before its decision is queued is refunded; one cut off later counts."""
    intent = _hold(record, "step.requested.v1")
    rule = hansard.budget("few", 1, tool="team.claim")
    async with record.run("cancelled", gate=[rule], **NAMES) as session:
        await session.team.add("count")
        await _cut_off(intent, asyncio.create_task(session.team.claim()))
        assert await _gone(record, "few") == 0
        assert (await session.team.tasks())[0].status == "open"
        assert await session.team.claim() is not None
        assert await _gone(record, "few") == 1


async def test_during_a_joint_decision_counts(record):
    """A write that is cut off on its way is made, and counts."""
    write = _hold(record, "board.added.v1")
    rule = hansard.budget("few", 1, tool="board.add")
    async with record.run("cancelled", gate=[rule], **NAMES) as session:
        await _cut_off(write, asyncio.create_task(session.board.add("hits")))
        assert await session.board.get("hits") == 1
        assert await _gone(record, "few") == 1


async def test_again_while_a_share_is_refunded_loses_none(record):
    """A second cancellation while one of two budgets is refunded loses neither share."""
    intent, back = _hold(record, "step.requested.v1"), _hold(record, "budget.spent.v1")
    rules = [hansard.budget("one", 1), hansard.budget("other", 1)]
    done: list[int] = []
    async with record.run("cancelled", gate=rules, **NAMES) as session:
        act = _quick(session, "once", done)
        task = asyncio.create_task(act(0))
        await intent.reached.wait()
        task.cancel()
        intent.release.set()
        await _cut_off(back, task)
        assert [await _gone(record, name) for name in ("one", "other")] == [0, 0]
        assert await act(1) == 1


async def test_as_the_session_ends_draws_on_no_budget(record):
    """A share is given back when the session ends, or is cancelled, before the body begins."""
    intent, failed = _hold(record, "step.requested.v1"), _hold(record, "step.failed.v1")
    done: list[int] = []
    async with record.run("cancelled", gate=[hansard.budget("few", 1)], **NAMES) as session:
        task = asyncio.create_task(_quick(session, "once", done)(0))
        await intent.reached.wait()
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(SETTLE_S)
        intent.release.set()
        await _cut_off(failed, task)
        await closing
    assert (done, await _gone(record, "few")) == ([], 0)


@pytest.mark.parametrize("tag", ["budget.reserved.v1", "step.attempted.v1"])
async def test_before_another_attempt_draws_on_no_budget(record, world, tag):
    """A reopened step cut off before its attempt gives back that attempt's share only."""
    body = Body(world)
    limit = hansard.budget("few", 2)
    async with record.run("cancelled", gate=[limit], **NAMES) as session:
        await body.cut_off(session, "idempotent")
    assert await _gone(record, "few") == 1
    held = _hold(record, tag)
    async with record.run("cancelled", gate=[limit], **NAMES) as session:
        body.release.set()
        await _cut_off(held, asyncio.create_task(body.declare(session, "idempotent")("letter")))
        assert await _gone(record, "few") == 1
    async with record.run("cancelled", gate=[limit], **NAMES) as session:
        assert await body.declare(session, "idempotent")("letter") == "did letter"
    assert await _gone(record, "few") == 2


async def test_a_refunded_share_is_reserved_again(record, world):
    """A step begun again passes the limit again; shares taken meanwhile stay taken."""
    body, limit = Body(world), hansard.budget("few", 2)
    async with record.run("cancelled", gate=[limit], **NAMES) as session:
        await body.cut_off(session, "idempotent")
    body.release.set()
    held = _hold(record, "budget.reserved.v1")
    async with record.run("cancelled", gate=[limit], **NAMES) as session:
        act = body.declare(session, "idempotent")
        await _cut_off(held, asyncio.create_task(act("letter")))
        async with record.run(run="r1", agent="other", gate=[limit]) as other:
            assert await _quick(other, "once", [])(1) == 1
        with pytest.raises(hansard.Blocked, match="its limit of 2 calls is used up"):
            await act("letter")
    assert len(world.read()) == 1
    assert await _gone(record, "few") == 2


class SilentLog:
    """The real log; whether an intent is stored is not known."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """Append, and lose the answer for an intent."""
        stored: Stored = await self._log.append(append)
        if any(event.type == "step.requested.v1" for event in append.commit.events):
            raise AppendUnknown(append.stream, append.commit.version, append.commit.id, 0.0)
        return stored


async def test_an_unknown_intent_keeps_its_share(record):
    """An intent that may be on record keeps its share of the budget."""
    done: list[int] = []
    log = record.workspace.log
    record.workspace.log = SilentLog(log)
    with pytest.raises(AppendUnknown):
        async with record.run("cancelled", gate=[hansard.budget("few", 2)], **NAMES) as session:
            await _quick(session, "idempotent", done)(0)
    record.workspace.log = log
    assert (done, await _gone(record, "few")) == ([], 1)


def test_an_interrupt_before_the_body_draws_on_no_budget(server, workspace, monkeypatch):
    """Ctrl-C in the sync client while a share is set aside gives the share back."""
    done: list[int] = []
    run = Portal.run
    interrupted: list[Future[Any]] = []

    def interrupt(portal: Portal, work: Any) -> Any:
        if work.__name__ == "reserve" and not interrupted:
            interrupted.append(asyncio.run_coroutine_threadsafe(work, portal.loop))
            raise KeyboardInterrupt
        return run(portal, work)

    monkeypatch.setattr(Portal, "run", interrupt)
    rule = hansard.budget("few", 1)
    with (
        hansard.connect(workspace=workspace, **server.login) as record,
        record.run("cancelled", gate=[rule], **NAMES) as session,
    ):

        @session.tool
        def act(number):
            done.append(number)
            return number

        with pytest.raises(KeyboardInterrupt):
            act(0)
        interrupted[0].result()
        assert done == []
        assert act(1) == 1
        with pytest.raises(hansard.Blocked, match="its limit of 1 calls is used up"):
            act(2)
