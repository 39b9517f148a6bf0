"""Programs that end in the middle of work; each touches its marker where it ends or waits."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import hansard
from tests.faults._inside import Job

JOB = msgspec.json.decode(sys.argv[1], type=Job)
KEPT: list[Any] = []
"""Objects that a program still holds when it ends."""


def reach() -> None:
    """Say that the program is about to end."""
    Path(JOB.marker).touch()


def opened() -> hansard.Session:
    """Return a session that opens its own record."""
    return hansard.Session("ends", workspace=JOB.workspace, run=JOB.run)


def words_of(session: hansard.Session) -> Iterator[str]:
    """Return a stream of a tool with an effect, after its first word."""

    @session.tool(effects=JOB.settings["effects"])
    def answer(question: str) -> Iterator[str]:
        yield from question

    words = answer("abcd")
    KEPT.append(words)
    assert next(words) == "a"
    return words


def half_read() -> None:
    """Hold a stream after its session."""
    with opened() as session:
        words_of(session)
        reach()


def zipped() -> None:
    """Read a stream by `zip`, which stops early."""
    with opened() as session:
        assert list(zip([1, 2], words_of(session), strict=False)) == [(1, "b"), (2, "c")]
        reach()


def error() -> None:
    """Raise in the middle of a stream."""
    with opened() as session:
        words_of(session)
        reach()
        raise ValueError("a bug")


def exit_() -> None:
    """Leave by `sys.exit` in the middle of a stream."""
    with opened() as session:
        words_of(session)
        reach()
        sys.exit(3)


def interrupt() -> None:
    """Be interrupted in the middle of a stream."""
    with opened() as session:
        for _ in words_of(session):
            reach()
            signal.raise_signal(signal.SIGINT)


def unclosed_session() -> None:
    """Enter a session and never leave it."""
    session = opened()
    KEPT.append(session)
    words_of(session.__enter__())
    reach()


def unclosed_record() -> None:
    """Enter a run's block and never leave it, nor close its record."""
    block = hansard.connect(workspace=JOB.workspace).run("ends", run=JOB.run)
    KEPT.append(block)
    words_of(block.__enter__())
    reach()


def entered_record() -> None:
    """Enter a record's block and never leave it; its run's block is left."""
    record = hansard.connect(workspace=JOB.workspace)
    KEPT.append(record)
    record.__enter__()
    with record.run("ends", run=JOB.run) as session:
        quick = session.tool(effects="pure", name="quick")(lambda number: number)
        quick(1)
    reach()


def generator() -> None:
    """Hold the blocks in a generator that is never finished."""

    def holding() -> Iterator[Any]:
        record = hansard.connect(workspace=JOB.workspace)
        with record, record.run("ends", run=JOB.run) as session:
            yield words_of(session)

    items = holding()
    KEPT.append(items)
    next(items)
    reach()


def _child_exits() -> None:
    """Fork a child that leaves all blocks; it must exit with its own code."""
    child = os.fork()
    if child == 0:
        sys.exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def forked() -> None:
    """Fork children inside the block, in the middle of a stream as well."""
    with opened() as session:
        for _ in range(10):
            _child_exits()
            session.message("user", "hello")
        for _ in words_of(session):
            _child_exits()
        reach()


# ------------------------------------------------------------ asyncio


async def _at_work(work: Callable[[Any, Any], Any]) -> None:
    record = await hansard.connect_async(workspace=JOB.workspace)
    async with record, record.run("ends", run=JOB.run) as session:

        @session.tool(effects="pure")
        async def quick(number: int) -> int:
            return number

        await quick(1)
        await work(session, quick)


def _exit_at_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))


def terminated_idle() -> None:
    """Wait for SIGTERM between two calls."""

    async def work(_: Any, __: Any) -> None:
        reach()
        await asyncio.sleep(60)

    _exit_at_sigterm()
    asyncio.run(_at_work(work))


def terminated_in_call() -> None:
    """Wait for SIGTERM in a call."""

    async def work(session: Any, _: Any) -> None:
        @session.tool(effects="once")
        async def slow(number: int) -> int:
            reach()
            await asyncio.sleep(60)
            return number

        await slow(1)

    _exit_at_sigterm()
    asyncio.run(_at_work(work))


def terminated_busy() -> None:
    """Be terminated while calls are written."""

    async def work(_: Any, quick: Any) -> None:
        for number in range(1_000_000):
            await quick(number)
            if number == 20:
                reach()

    _exit_at_sigterm()
    asyncio.run(_at_work(work))


def terminated_all_tasks() -> None:
    """Cancel all tasks of the loop at SIGTERM: the usual recipe for a graceful end."""

    async def work(_: Any, __: Any) -> None:
        def cancel() -> None:
            for task in asyncio.all_tasks():
                task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel)
        reach()
        await asyncio.sleep(60)

    asyncio.run(_at_work(work))


def exit_in_gather() -> None:
    """Call `sys.exit` in a task beside others."""

    async def work(session: Any, quick: Any) -> None:
        @session.tool(effects="once")
        async def parse(text: str) -> str:
            reach()
            sys.exit(len(text) + 3)

        await asyncio.gather(parse("x"), quick(2))

    asyncio.run(_at_work(work))


def half_read_async() -> None:
    """Hold a stream after its session, with the async client."""

    async def work(session: Any, _: Any) -> None:
        @session.tool(effects=JOB.settings["effects"])
        async def answer(question: str) -> Any:
            for word in question:
                yield word

        words = answer("abcd")
        KEPT.append(words)
        assert await anext(words) == "a"
        reach()

    asyncio.run(_at_work(work))


def forked_async() -> None:
    """Fork children inside a block of the async client."""

    async def work(_: Any, quick: Any) -> None:
        for number in range(10):
            _child_exits()
            await quick(number)
        reach()

    asyncio.run(_at_work(work))


def unclosed_async() -> None:
    """Leave a session of the async client open."""

    async def main() -> None:
        record = await hansard.connect_async(workspace=JOB.workspace)
        session = await record.open("ends", run=JOB.run)
        KEPT.append(session)

        @session.tool(effects="pure")
        async def quick(number: int) -> int:
            return number

        assert await quick(1) == 1
        reach()

    asyncio.run(main())


SHAPES = {
    "half_read": half_read,
    "zip": zipped,
    "error": error,
    "exit": exit_,
    "interrupt": interrupt,
    "unclosed_session": unclosed_session,
    "unclosed_record": unclosed_record,
    "entered_record": entered_record,
    "generator": generator,
    "terminated_idle": terminated_idle,
    "terminated_in_call": terminated_in_call,
    "terminated_busy": terminated_busy,
    "terminated_all_tasks": terminated_all_tasks,
    "exit_in_gather": exit_in_gather,
    "forked": forked,
    "forked_async": forked_async,
    "half_read_async": half_read_async,
    "unclosed_async": unclosed_async,
}

if __name__ == "__main__":
    SHAPES[JOB.settings["shape"]]()
