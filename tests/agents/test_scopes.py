"""Scopes: parallel calls keep their places in any order of ends; without a scope: refused."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import hansard
from hansard.agents.steps import scope
from hansard.agents.steps.scope import JOIN_ENDS_MAX, OpenCalls, Scope, unrecorded_joins
from hansard.domain.fingerprint import joined
from hansard.domain.ids import AgentStream
from hansard.domain.steps import JOIN_TIMES_MAX, Join
from tests.agents.twins import Lab, TwinRecord


def _steps(session):
    return list(session.state.steps.values())


async def test_gathered_branches_are_scopes_joined_in_spawn_order(lab: Lab):
    """Each branch is a chain; the call after the gather follows all ends in spawn order."""
    async with lab.connect() as record:
        for mode in (None, "strict", "resume"):
            ran: list[str] = []
            async with record.run(run="r", mode=mode) as session:

                @session.tool(effects="pure")
                async def work(name: str) -> str:
                    ran.append(name)
                    return name.upper()

                async def branch(name: str) -> str:
                    return await work(name) + await work(name + name)

                assert await work("before") == "BEFORE"
                results = await session.gather(*(lambda n=n: branch(n) for n in "abc"))
                assert results == ["AAA", "BBB", "CCC"]
                assert await work("after") == "AFTER"
            assert bool(ran) is (mode is None)
        steps = {bytes(step.arguments): step for step in await record.steps("r")}
    ends = [steps[b'{"name":"%s"}' % name].number for name in (b"aa", b"bb", b"cc")]
    assert list(steps[b'{"name":"after"}'].after) == ends
    assert [steps[b'{"name":"%s"}' % name].scope for name in (b"a", b"b", b"c")] == [
        "/0.0", "/0.1", "/0.2",
    ]  # fmt: skip
    before = (steps[b'{"name":"before"}'].number,)
    assert all(steps[b'{"name":"%s"}' % name].after == before for name in (b"a", b"b", b"c"))


async def test_an_edit_in_one_branch_leaves_the_others_as_they_were(record: TwinRecord):
    """Only the changed branch runs again, and the join if its input differs."""
    for edited in (False, True):
        ran: list[str] = []
        async with record.run(run="r") as session:

            @session.tool(effects="pure")
            async def work(name: str) -> str:
                ran.append(name)
                return name

            await session.gather(lambda: work("a"), lambda: work("edited" if edited else "b"))
            await work("after")
        assert sorted(ran) == (["after", "edited"] if edited else ["a", "after", "b"])


async def test_the_first_error_of_a_gather_is_raised_when_all_have_ended(record: TwinRecord):
    """Every branch runs to its end; the first error in spawn order is raised, on replay too."""
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="pure")
            async def work(name: str) -> str:
                if name != "fine":
                    raise ValueError(name)
                return name

            with pytest.raises(ValueError, match="first"):
                await session.gather(
                    lambda: work("fine"), lambda: work("first"), lambda: work("second")
                )
            assert len(_steps(session)) == 3


def test_threads_are_scopes_joined_at_their_result(record):
    """Threads join in the order in which `.result()` is called, which the program decides."""
    for mode in (None, "strict"):
        slow = threading.Event()
        with record.run("w", run="r", mode=mode) as session:

            @session.tool(effects="pure")
            def work(name: str) -> str:
                assert mode is None
                return name

            def late(function: str) -> str:
                slow.wait(5)
                return work(function)

            one = session.thread(late, function="late")

            def early() -> str:
                result = work("early")
                slow.set()
                return result

            two = session.thread(early)
            assert one.result() == "late"
            assert two.result() == "early"
            assert one.result() == "late"
            work("after")
    steps = record.state("r").agents["agent"].steps.values()
    by_name = {bytes(step.arguments): step for step in steps}
    assert by_name[b'{"name":"late"}'].scope == "/0.0"
    assert by_name[b'{"name":"early"}'].scope == "/1.0"
    assert by_name[b'{"name":"after"}'].after == (by_name[b'{"name":"early"}'].number,)


def test_a_thread_s_error_is_raised_at_its_result(record):
    """An error in a thread is not lost and not raised twice elsewhere."""
    with record.run("w") as session:

        def fail() -> None:
            raise ValueError("in the thread")

        thread = session.thread(fail)
        with pytest.raises(ValueError, match="in the thread"):
            thread.result()
        assert session.state.steps == {}


def _task_group(data_dir, workspace, mode, ran):
    async def main() -> list[str]:
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as record,
            record.run("w", run="r", mode=mode) as session,
        ):

            @session.tool(effects="pure")
            async def work(name: str) -> str:
                ran.append(name)
                await asyncio.sleep(0.01 if name == "a" else 0)
                return name

            async def branch(name: str) -> str:
                return await work(name) + await work(name * 2)

            async with session.task_group() as group:
                tasks = [group.create_task(branch(name)) for name in "ab"]
            await work("after")
            return [task.result() for task in tasks]

    return asyncio.run(main())


def test_a_task_group_s_tasks_are_scopes(data_dir, workspace):
    """Tasks of `session.task_group` have scopes, joined at the group's end in spawn order."""
    ran: list[str] = []
    assert _task_group(data_dir, workspace, None, ran) == ["aaa", "bbb"]
    assert sorted(ran) == ["a", "aa", "after", "b", "bb"]
    assert _task_group(data_dir, workspace, "strict", ran) == ["aaa", "bbb"]
    assert len(ran) == 5
    with hansard.connect(workspace, data_dir=data_dir) as record:
        steps = record.state("r").agents["agent"].steps.values()
        numbers = {bytes(step.arguments): step.number for step in steps}
        after = next(step for step in steps if b"after" in bytes(step.arguments))
        assert after.after == (numbers[b'{"name":"aa"}'], numbers[b'{"name":"bb"}'])


def test_a_bare_gather_replays_by_its_arguments(data_dir, workspace):
    """A bare asyncio.gather replays by arguments in any order, as do chains after it."""
    ran: list[int] = []

    async def main(mode: str | None, order: list[int]) -> list[int]:
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as record,
            record.run("w", run="r", mode=mode) as session,
        ):

            @session.tool(effects="pure")
            async def work(x: int) -> int:
                ran.append(x)
                await asyncio.sleep(0.01 * (3 - x))
                return x * 2

            results = await asyncio.gather(*(work(x) for x in order))
            return [*results, await work(9)]

    assert asyncio.run(main(None, [0, 1, 2])) == [0, 2, 4, 18]
    for mode in ("strict", "offline", "resume"):
        assert asyncio.run(main(mode, [0, 1, 2])) == [0, 2, 4, 18]
    assert sorted(ran) == [0, 1, 2, 9]


def test_a_call_from_nowhere_is_refused_while_others_are_open(record):
    """A thread outside any scope gets NoScope while a call is open, else the run's chain."""
    begun, go_on = threading.Event(), threading.Event()
    with record.run("w") as session, ThreadPoolExecutor(2) as pool:

        @session.tool(effects="pure")
        def slow() -> str:
            begun.set()
            go_on.wait(5)
            return "slow"

        @session.tool(effects="pure")
        def quick() -> str:
            return "quick"

        assert pool.submit(quick).result() == "quick"
        thread = session.thread(slow)
        begun.wait(5)
        with pytest.raises(hansard.errors.NoScope, match=r"session\.gather"):
            pool.submit(quick).result()
        go_on.set()
        assert thread.result() == "slow"
        assert [step.tool for step in _steps(session)] == ["quick", "slow"]


async def test_branches_may_begin_while_a_stream_is_read(record: TwinRecord):
    """For each item of an open stream a gather: its calls, and those after the stream, replay."""
    for mode in (None, "strict", "resume"):
        ran: list[str] = []
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="pure")
            async def read():
                for name in "abc":
                    yield name

            @session.tool(effects="once")
            async def work(name: str) -> str:
                ran.append(name)
                return name * 2

            results = []
            async for name in read():
                branch = partial(work, name)
                results += await session.gather(branch, branch)
                results.append(await work(name))
            assert results == ["aa"] * 3 + ["bb"] * 3 + ["cc"] * 3
            await work("after")
            await session.gather(lambda: work("last"))
        assert len(ran) == (11 if mode is None else 0)


def _root() -> Scope:
    return Scope(OpenCalls(AgentStream("r", "writer", "ada")), "", "begin", (), None)


def _unrecorded(scope: Scope) -> list[Join]:
    return [join for _, join in unrecorded_joins(scope.junction)]


def test_a_scope_reports_the_joins_that_led_to_its_head():
    """A scope reports each join once, after those that it needs, and the last gives the head."""
    root = _root()
    first, second = root.spawn(2)
    inner = first.spawn(1)
    inner[0].go_on("result", (1,))
    first.join(inner)
    root.join([first, second])
    ends = joined("begin", ["result"]), "begin"
    assert _unrecorded(root) == [Join("begin", ("result",)), Join("begin", ends)]
    assert _unrecorded(root)[-1].result() == root.head
    [child] = root.spawn(1)
    assert _unrecorded(child) == _unrecorded(root)
    for junction, _ in unrecorded_joins(child.junction):
        junction.mark_recorded()
    assert (_unrecorded(root), _unrecorded(child)) == ([], [])
    before = root.head
    root.join([child])
    assert _unrecorded(root) == [Join(before, (before,))]
    root.go_on("another", (2,))
    assert _unrecorded(root) == []


def test_successive_idle_children_are_reported_together(monkeypatch: pytest.MonkeyPatch):
    """Any number of them is recorded at once, and others continue from their head."""
    times_max = JOIN_TIMES_MAX // 100
    monkeypatch.setattr(scope, "JOIN_TIMES_MAX", times_max)
    root = _root()
    for _ in range(times_max + 7):
        root.join(root.spawn(1))
    root.join(root.spawn(2))
    assert [(join.times, len(join.ends)) for join in _unrecorded(root)] == [
        (times_max, 1),
        (7, 1),
        (1, 2),
    ]
    heads = [join.result() for join in _unrecorded(root)]
    assert [join.head for join in _unrecorded(root)] == ["begin", *heads[:-1]]
    assert heads[-1] == root.head


def test_of_too_many_joins_only_the_head_is_recorded():
    """Only the head is recorded, so that a step stays small; later steps continue from it."""
    root = _root()
    children = root.spawn(JOIN_ENDS_MAX + 1)
    root.join(children)
    assert _unrecorded(root) == [Join(root.head)]
    for junction, _ in unrecorded_joins(root.junction):
        junction.mark_recorded()
    head = root.head
    [child] = root.spawn(1)
    child.go_on("result", (1,))
    root.join([child])
    assert _unrecorded(root) == [Join(head, ("result",))]
