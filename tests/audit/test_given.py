"""Inputs before a decision: the tables say what the agent's session knew."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.client.session import AsyncSession
from tests.audit.support import Audited

pytestmark = pytest.mark.slow

Known = dict[str, list[int]]


class Program:
    """A program that decides at many places, and notes its session's inputs at each."""

    def __init__(self, session: AsyncSession, known: Known, edited: str = "") -> None:
        self.session = session
        self.known = known

        @session.tool(effects="pure", name="look")
        async def looked(name: str, wait_s: float) -> str:
            await asyncio.sleep(wait_s)
            return name

        def look(name: str, wait_s: float = 0.0) -> Awaitable[str]:
            called: Awaitable[str] = looked(name + edited, wait_s)
            return called

        @session.tool(effects="composite")
        async def plan(name: str) -> str:
            await look(f"{name} inside")
            await self.decide(f"in {name}")
            await self.session.gather(look(f"{name} a"), self.branch(f"{name} b"))
            await self.decide(f"at the end of {name}")
            return name

        @session.tool(effects="pure")
        async def fail(name: str) -> str:
            raise ValueError(name)

        self.look, self.plan, self.fail = look, plan, fail

    async def decide(self, question: str) -> None:
        """Decide, and note the inputs so far."""
        engine = self.session.engine
        steps = engine.ledger.received_in(engine.scope("decide"))
        await self.session.decide(question, selected="x")
        self.known[question] = steps

    async def branch(self, name: str) -> None:
        """Decide between two calls in a scope."""
        await self.look(name)
        await self.decide(name)
        await self.look(f"{name} after")


async def everything(program: Program) -> None:
    """Make calls in sequence, in parallel, in bodies, overlapping and failing."""
    session, look = program.session, program.look
    await program.decide("before all")
    await look("one")
    await look("two")
    await program.decide("two in a row")
    await session.gather(program.branch("left"), program.branch("right"))
    await program.decide("joined")
    await program.plan("a plan")
    await program.decide("after a plan")
    with contextlib.suppress(ValueError):
        await program.fail("it cannot")
    await program.decide("after a failure")
    await look("alone")
    await asyncio.gather(look("beside 1", 0.02), look("beside 2"), look("beside 3"))
    await program.decide("after what overlapped")
    await session.gather(program.branch("later left"), program.branch("later right"))
    await program.plan("a later plan")

    async def overlapping() -> None:
        await asyncio.gather(look("within 1", 0.02), look("within 2"))

    await session.gather(overlapping(), program.branch("apart"))
    await program.decide("joined what overlapped")
    async for _ in session.resumable(range(3)):
        await look("an item")
        await program.decide("item")
    await program.decide("the end")


def steps_of_why(place: Audited, run: str) -> Known:
    """Return the steps that `why` lists as inputs, by question."""
    query = "SELECT question, decision FROM decisions WHERE run = $1 ORDER BY version"
    decided = place.rows(query, run)
    after = "SELECT number FROM why($1) WHERE part = 'after'"
    answers = place.answers(*((after, [row["decision"]]) for row in decided))
    pairs = zip(decided, answers, strict=True)
    return {row["question"]: [each["number"] for each in rows] for row, rows in pairs}


def play(home: Path, workspace: str, *sessions: Callable[[Any], Awaitable[None]]) -> None:
    """Play sessions of one record, one after the other."""

    async def work() -> None:
        async with hansard.connect_async(workspace, data_dir=home) as record:
            for session in sessions:
                await session(record)

    asyncio.run(work())


@pytest.mark.thorough
def test_the_tables_say_what_the_session_knew(home: Path):
    """In chains, branches, bodies of tools, loops, and where calls overlapped."""
    known: Known = {}

    async def whole(record: Any) -> None:
        async with record.run("w", run="r", agent="ann", role="judge") as session:
            await everything(Program(session, known))

    play(home, "given", whole)
    assert steps_of_why(Audited(home, "given"), "r") == known
    assert (known["before all"], known["two in a row"]) == ([], [1, 2])
    assert set(known["left"]) < set(known["joined"])
    assert len(known["left"]) == len(known["right"]) == 3
    assert len(known["the end"]) > 20


def test_a_resumed_and_edited_program_leaves_what_it_no_longer_does(home: Path):
    """Calls that the edited program no longer makes are inputs of none of its decisions."""
    first: Known = {}
    second: Known = {}

    def run(edited: str, known: Known) -> Any:
        async def whole(record: Any) -> None:
            async with record.run("w", run="r", agent="ann", role="judge") as session:
                await everything(Program(session, known, edited))

        return whole

    play(home, "edited", run("", first), run(" edited", second))
    place = Audited(home, "edited")
    rows = place.rows("SELECT question, decision FROM decisions ORDER BY version")
    for question in ("two in a row", "joined", "after what overlapped"):
        made = [row["decision"] for row in rows if row["question"] == question]
        after = "SELECT number FROM why($1) WHERE part = 'after'"
        answers = place.answers(*((after, [decision]) for decision in made))
        assert [[row["number"] for row in steps] for steps in answers] == [
            first[question],
            second[question],
        ]
    assert not set(first["joined"]) & set(second["joined"])


@pytest.mark.thorough(quick="test_a_resumed_and_edited_program_leaves_what_it_no_longer_does")
def test_agents_of_one_run_know_each_their_own(home: Path):
    """Another agent's inputs are not its own, but reading them is a step."""
    known: Known = {}

    async def team(record: Any) -> None:
        async with record.run("w", run="r", agent="bob", role="reader") as session:
            await Program(session, {}).look("bob's")
            await session.board.put("plan", 1)
        async with record.run("w", run="r", agent="ann", role="judge") as session:
            program = Program(session, known)
            await program.look("ann's")
            await session.board.get("plan")
            await session.view()
            await program.decide("ann's")

    play(home, "team", team)
    assert steps_of_why(Audited(home, "team"), "r") == known == {"ann's": [1, 2, 3]}
