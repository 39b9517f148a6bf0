"""A session without a block, its current scope and end, through both doors and clients."""

import asyncio
import contextvars
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.agents.errors import SessionEnded, ToolError
from hansard.domain.run import RunStatus
from tests.agents.twins import SyncTool, at_once, plain
from tests.faults._warm import python
from tests.service.support import Lab
from tests.service.test_parity import play

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=1, slow=0)]

ran: list[Any] = []


async def _double(text: str) -> str:
    ran.append(text)
    return text * 2


@pytest.fixture(autouse=True)
def _nobody_is_open() -> Any:
    """Each test leaves no session behind, or another test's calls would find it."""
    ran.clear()
    assert hansard.sessions() == []
    yield
    assert hansard.sessions() == []


def tool_for(lab: Lab) -> Any:
    """Return a `@hansard.tool` of the module, as the client calls it."""
    declare = hansard.tool(effects="pure", name="double")
    return declare(_double) if lab.is_async else SyncTool(declare(plain(_double)))


async def cell(lab: Lab, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Do something as a notebook's cell: in a context of its own, which ends with it."""
    if lab.is_async:
        return await asyncio.create_task(work())
    return contextvars.copy_context().run(at_once, work())


def life(lab: Lab, run: str) -> Any:
    """Return a run's lifecycle as a trusted program reads it."""
    with lab.house.trusted() as record:
        return record.state(run).life


def test_cells_share_a_session(lab: Lab) -> None:
    """A session opened in one cell is used and closed in later ones; no context is shared."""
    double = tool_for(lab)

    async def scenario() -> None:
        async with lab.connect() as record:
            held: list[Any] = []

            async def opening() -> None:
                held.append(await record.open(run="r"))

            async def calling() -> str:
                result: str = await double("x")
                await held[0].decide("Which?", selected="a", alternatives=["a", "b"])
                await held[0].checkpoint("k", found=result)
                return result

            await cell(lab, opening)
            assert [each.run for each in hansard.sessions()] == ["r"]
            assert await cell(lab, calling) == "xx"
            await cell(lab, held[0].close)
            assert hansard.sessions() == []
            await cell(lab, held[0].close)  # again: nothing happens
            with pytest.raises(ToolError, match=r"no session is current.*record\.open"):
                await cell(lab, calling)
            with pytest.raises(SessionEnded, match="closed"):
                await held[0].checkpoint("late")

    play(lab, scenario())
    assert life(lab, "r").status is RunStatus.COMPLETED
    assert ran == ["x"]


def test_opened_again_it_goes_on_and_the_earlier_one_has_ended(lab: Lab) -> None:
    """The cell that opens is run again: the calls after it are answered from the record."""
    double = tool_for(lab)

    async def scenario() -> None:
        async with lab.connect() as record:
            first = await record.open(run="r")
            assert await double("x") == "xx"
            again = await record.open(run="r")
            assert hansard.sessions() == [again.raw]
            assert await double("x") == "xx"
            with pytest.raises(SessionEnded, match="opened again"):
                await first.checkpoint("late")
            await first.close()
            await again.close()

    play(lab, scenario())
    assert ran == ["x"]
    assert life(lab, "r").status is RunStatus.COMPLETED


def test_two_open_sessions_are_distinguished_or_refused(lab: Lab) -> None:
    """With two open sessions a call is refused with both names, unless `use` selects one."""
    double = tool_for(lab)

    async def scenario() -> None:
        async with lab.connect() as record:
            one, two = await record.open(run="one"), await record.open(run="two")
            with pytest.raises(
                ToolError, match=r"2 sessions are open.*run one.*run two.*session\.use"
            ):
                await double("x")
            with one.use():
                assert await double("x") == "xx"
                with two.use():
                    assert await double("y") == "yy"
                assert await double("z") == "zz"
            await two.close()
            assert await double("w") == "ww"
            await one.close()

    play(lab, scenario())
    with lab.house.trusted() as record:
        counts = [len(record.state(run).agent("ada").steps) for run in ("one", "two")]
    assert counts == [3, 1]


def test_a_block_comes_before_what_is_open_without_one(lab: Lab) -> None:
    """Inside `with record.run(...)` a call uses that session, whatever else is open."""
    double = tool_for(lab)

    async def scenario() -> None:
        async with lab.connect() as record:
            other = await record.open(run="other")
            async with record.run(run="inner"):
                await double("x")
            await other.close()

    play(lab, scenario())
    with lab.house.trusted() as record:
        assert len(record.state("inner").agent("ada").steps) == 1
        assert not record.state("other").agent("ada").steps


@pytest.mark.parametrize("fails", [False, True])
def test_a_record_that_is_closed_ends_what_is_open(lab: Lab, fails: bool) -> None:
    """In order: completed, or failed where the record's block was left by an error."""

    async def scenario() -> None:
        async with lab.connect() as record:
            await record.open(run="r")
            if fails:
                raise ValueError("no ink")

    if fails:
        with pytest.raises(ValueError, match="no ink"):
            play(lab, scenario())
    else:
        play(lab, scenario())
    assert life(lab, "r").status is (RunStatus.FAILED if fails else RunStatus.COMPLETED)


def test_closed_with_an_error_it_has_failed(lab: Lab) -> None:
    """`close(error)` fails the session as an error in a block does."""

    async def scenario() -> None:
        async with lab.connect() as record:
            session = await record.open(run="r")
            await session.close(ValueError("no ink"))

    play(lab, scenario())
    assert (life(lab, "r").status, life(lab, "r").error.message) == (RunStatus.FAILED, "no ink")


def test_a_loop_leaves_nothing_current_behind(lab: Lab) -> None:
    """After `resumable` the next session is found, not the one that the loop was of."""
    double = tool_for(lab)

    async def scenario() -> None:
        async with lab.connect() as record:
            session = await record.open(run="one")
            async for item in session.resumable(["a", "b"]):
                await double(item)
            await session.close()
            session = await record.open(run="two")
            await double("c")
            await session.close()

    play(lab, scenario())
    assert ran == ["a", "b", "c"]


def test_calls_side_by_side_are_taken_as_in_a_block(lab: Lab) -> None:
    """A bare `asyncio.gather` in a cell is not refused."""
    if not lab.is_async:
        pytest.skip("the sync client has no tasks")
    double = tool_for(lab)

    async def scenario() -> None:
        async with lab.connect() as record:
            session = await record.open(run="r")
            assert await cell(lab, lambda: _both(double)) == ["xx", "yy"]
            await session.close()

    play(lab, scenario())


async def _both(double: Any) -> list[str]:
    return list(await asyncio.gather(double("x"), double("y")))


def test_a_block_that_ends_in_another_context_ends(lab: Lab) -> None:
    """A fixture's end, or the next cell, has another context than its begin."""

    async def scenario() -> None:
        async with lab.connect() as record:
            block = record.run(run="r")
            await cell(lab, block.__aenter__)
            await cell(lab, lambda: block.__aexit__(None, None, None))

    play(lab, scenario())
    assert life(lab, "r").status is RunStatus.COMPLETED


def test_a_session_whose_loop_is_gone_is_not_found(lab: Lab) -> None:
    """One that `asyncio.run` left open is out of reach; the next one is the only one."""
    if not lab.is_async:
        pytest.skip("the sync client has no loop of its own")
    double = tool_for(lab)

    async def forgotten() -> None:
        record = await hansard.connect_async(lab.house.workspace, data_dir=lab.house.data_dir)
        await record.open("w", run="one")
        await record.workspace.close()

    async def scenario() -> None:
        async with lab.connect() as record:
            session = await record.open(run="two")
            assert await double("x") == "xx"
            await session.close()

    asyncio.run(forgotten())
    asyncio.run(scenario())


PROGRAM = """
import sys, hansard
record = hansard.connect("lab", data_dir=sys.argv[1])
record.open("w", run="r-1", agent="ada")
"""


@pytest.mark.fast(cases=0)
@pytest.mark.slow
def test_one_that_nobody_closed_is_named_at_the_end(tmp_path: Path) -> None:
    """The program names an unclosed session on stderr; the run stays open, to be resumed."""
    done = subprocess.run(
        [python(), "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0
    assert "never closed" in done.stderr
    with hansard.connect("lab", data_dir=tmp_path) as record:
        assert record.state("r-1").life.status is RunStatus.OPEN
