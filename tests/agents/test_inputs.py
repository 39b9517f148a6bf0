"""Inputs of a decision: any value that a program holds, as its source event."""

import inspect
import json
import re
from typing import Any
from uuid import uuid4

import pytest

import hansard
from hansard.agents.flow import drive_async
from tests.agents.twins import Lab, TwinRecord, TwinSession
from tests.audit.support import decided_of_old

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]
"""Client-independent tests: a single sync-client case is in the quick run."""


async def now(value: Any) -> Any:
    """Return the value of either client, awaited if necessary."""
    return await value if inspect.isawaitable(value) else value


async def decisions(record: Any, run: str = "r") -> list[list[str]]:
    """Return the inputs of ada's decisions."""
    state = (await record.state(run)).agent("ada")
    return [list(decision.inputs) for decision in state.decisions]


async def ids(record: Any, run: str = "r") -> dict[tuple[str, int], str]:
    """Return the ids of step outcomes, by agent and step."""
    event_ids: dict[tuple[str, int], str] = {}
    for stored in await record.commits(run):
        for event in stored.commit.events:
            if event.type in ("step.completed.v1", "step.failed.v1"):
                step = json.loads(bytes(event.data))["step"]
                event_ids[stored.stream.agent, step] = event.id
    return event_ids


async def events(record: Any, type_: str, run: str = "r") -> list[str]:
    """Return the ids of a run's events of a type."""
    commits = await record.commits(run)
    return [event.id for each in commits for event in each.commit.events if event.type == type_]


def tools(session: TwinSession) -> tuple[Any, Any, Any]:
    """Return a tool that returns records, one that returns numbers, one that yields items."""

    @session.tool(effects="pure")
    async def profile(name: str) -> dict[str, Any]:
        return {"name": name, "likes": f"{name}'s jazz", "seen": (1, 2)}

    @session.tool(effects="pure")
    async def score(product: str) -> float:
        return {"X": 0.92, "Y": 0.78, "Z": 0.81}.get(product, 0.5)

    @session.tool(effects="pure")
    async def items(count: int):
        for n in range(count):
            yield f"item {n}"

    return profile, score, items


@pytest.mark.fast(cases=99, slow=0)
async def test_an_input_is_whatever_the_program_has_at_hand(record: TwinRecord):
    """An input may be a value, step, entry, view or id; a replay makes the same decision."""
    async with record.run(run="r", agent="bob", role="reader") as session:
        _, score, _ = tools(session)
        await score("Y")
        await now(session.raw.board.put("plan", {"product": "X"}))
    [put] = await events(record, "board.put.v1")
    bob = (await ids(record))["bob", 1]
    commit = (await record.commits("r"))[0].commit.id
    for mode in (None, "resume", "strict", "offline"):
        async with record.run(run="r", mode=mode) as session:
            profile, score, items = tools(session)
            ann = await profile("ann")
            best = await score("X")
            numbers = [item async for item in items(3)]
            entry = await now(session.raw.board.entry("plan"))
            view = await now(session.raw.view())

            async def decide(*inputs: Any, session: TwinSession = session) -> None:
                await session.decide("Which?", selected="X", inputs=inputs)

            await decide(ann, best)
            await decide(numbers, entry, view)
            await decide(ann["likes"], "item 2", entry.value["product"])
            await decide("ada#1", "bob#1", "plan@1", "plan")
            await decide(bob, commit, put)
            await decide(session.raw.state.steps[2])
    event_ids = await ids(record)
    mine = {step: event for (agent, step), event in event_ids.items() if agent == "ada"}
    [served] = await events(record, "view.served.v1")
    assert await decisions(record) == [
        [mine[1], mine[2]],
        [mine[3], put, served],
        [mine[1], mine[3], mine[4]],
        [mine[1], bob, put],
        [bob, commit, put],
        [mine[2]],
    ]


async def test_an_equal_value_of_two_steps_names_both(record: TwinRecord):
    """The value does not reveal its step, so both are inputs."""
    async with record.run(run="r") as session:
        _, score, _ = tools(session)
        await score("one")
        half = await score("two")
        await score("X")
        await session.decide("Which?", selected="two", inputs=[half])
    event_ids = await ids(record)
    assert await decisions(record) == [[event_ids["ada", 1], event_ids["ada", 2]]]


WRONG = [
    (0.93, "input 1: 0.93 was returned by no call here; the nearest: 0.92 of ada#2 score"),
    ("ann's jaz", 'nearest: "ann\'s jazz" of ada#1 profile'),
    ({"name": "eve"}, '{"name":"eve"} was returned by no call here'),
    ("ada#9", "ada#9 is not a step on record; its newest steps with one: "),
    ("eve#1", '"eve#1" was returned by no call here'),
    ("bob#7", "bob#7 has no outcome on record; its newest steps with one: bob#1"),
    ("plan@7", "key 'plan' has no version 7: it is at version 1"),
    ("nowhere@1", "key 'nowhere' has no version 1: it was never written"),
    ("plan", '"plan" was returned by no call here'),
    ("no such event", '"no such event" was returned by no call here'),
    (str(uuid4()), "no event or commit .* is on record"),
    ("01a202a2-d28d-71e8-a196-e7d64d5d822b", "no event or commit 01a202a2-.* is on record"),
    (object(), "a builtins.object cannot be recorded"),
]


async def test_an_input_that_is_none_is_refused_before_anything_is_recorded(record: TwinRecord):
    """The fact, the value, the remedy; the program may state the decision with another one."""
    async with record.run(run="r", agent="bob", role="reader") as session:
        _, score, _ = tools(session)
        await score("Y")
        await now(session.raw.board.put("plan", 1))
    async with record.run(run="r") as session:
        profile, score, _ = tools(session)
        ann = await profile("ann")
        await score("X")
        before = await record.tags("r", None)
        for wrong, fact in WRONG:
            with pytest.raises(hansard.BadValue, match=re.escape(fact).replace(r"\.\*", ".*")):
                await session.decide("Which?", selected="X", inputs=[wrong])
            with pytest.raises(hansard.BadValue, match="input 2"):
                await session.decide("Which?", selected="X", inputs=[ann, wrong])
        for none in ("ada#1", {"a": 1}, 7):
            with pytest.raises(hansard.BadValue, match="give a list"):
                await session.decide("Which?", selected="X", inputs=none)
        assert await record.tags("r", None) == before
        await session.decide("Which?", selected="X", inputs=[ann])
    assert await decisions(record) == [[(await ids(record))["ada", 1]]]


async def test_a_part_of_too_many_results_is_refused(lab: Lab):
    """A value that occurs in many results has no single origin, and is refused."""
    async with lab.connect() as record, record.run(run="r") as session:
        profile, _, _ = tools(session)
        for n in range(21):
            await profile(f"p{n}")
        with pytest.raises(hansard.BadValue, match="1 is part of the results of 21 steps"):
            await session.decide("Which?", selected="X", inputs=[1])


async def test_a_value_is_looked_for_in_the_scope_of_the_decision(record: TwinRecord):
    """An equal value of a parallel branch is not an input of the decision."""
    for _ in range(2):
        async with record.run(run="r") as session:
            _, score, _ = tools(session)
            await score("before")

            async def branch(name: str, score: Any = score, at: Any = session) -> None:
                best = await score(name)
                await at.decide(name, selected=name, inputs=[best])

            await session.gather(lambda: branch("a"), lambda: branch("b"))
            await session.decide("all", selected="a", inputs=[0.5])
    state = (await record.state("r")).agent("ada")
    event_ids = await ids(record)
    steps = {json.loads(bytes(s.arguments))["product"]: n for n, s in state.steps.items()}
    mine = {name: event_ids["ada", number] for name, number in steps.items()}
    inputs = {decision.question: set(decision.inputs) for decision in state.decisions}
    assert inputs == {
        "a": {mine["before"], mine["a"]},
        "b": {mine["before"], mine["b"]},
        "all": set(mine.values()),
    }
    assert len(state.decisions) == 3


async def test_a_fork_s_inputs_are_its_parent_s_events(record: TwinRecord):
    """Inputs that a fork took over are events of its parent's stream."""
    async with record.run(run="r") as session:
        profile, _, _ = tools(session)
        await profile("ann")
    fork = await record.fork("r")
    async with record.run(run=fork) as session:
        profile, score, _ = tools(session)
        ann = await profile("ann")
        best = await score("X")
        await session.decide("Which?", selected="X", inputs=[ann, best, "ada#1"])
    expected = [(await ids(record))["ada", 1], (await ids(record, fork))["ada", 2]]
    assert await decisions(record, fork) == [expected]


async def test_an_event_of_another_run_is_an_input(record: TwinRecord):
    """An input of another run is found in the log by its id."""
    async with record.run(run="before") as session:
        await session.message("user", "from another run")
    [message] = await events(record, "message.added.v1", "before")
    async with record.run(run="r") as session:
        await session.decide("Which?", selected="X", inputs=[message])
    assert await decisions(record) == [[message]]


async def test_what_was_recorded_with_any_text_is_found_again(lab: Lab):
    """Inputs of earlier versions, any text, are read, and stating them again adds nothing."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            flow = decided_of_old(session.raw, ["a note"], question="Which?", selected="X")
            await now(session.raw._drive(flow) if not lab.is_async else drive_async(flow))
        async with record.run(run="r", mode="strict") as session:
            await session.decide("Which?", selected="X", inputs=["a note"])
        async with record.run(run="r") as session:
            await session.decide("Which?", selected="X", inputs=["a note"])
            with pytest.raises(hansard.BadValue, match="another note"):
                await session.decide("Which?", selected="X", inputs=["another note"])
        assert await decisions(record) == [["a note"]]
