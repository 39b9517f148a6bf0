"""One program, through either door, with either client: the same results, and the same record."""

import asyncio
import math
import re
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

import hansard
from tests.agents.twins import at_once
from tests.service.scenarios import SCENARIOS, caught, done
from tests.service.scenarios_given import WITH_OPTIONS, by_rule
from tests.service.support import House, Lab

PROGRAMS = SCENARIOS | WITH_OPTIONS
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
COMMAND = re.compile(r"hansard( --[a-z-]+ \S+)* run settle")
"""Settle command, whose record location differs: only trusted programs learn the folder."""
STEP = re.compile(r"step ada#\d+ \((\w+)\): its result")
"""Step of a warning that a client gives: only the service knows its number."""
VOLATILE = frozenset({"duration_ms", "retry_in_ms", "at", "seen", "digest_of_view"})
SIDE_BY_SIDE = frozenset({"nested"})
WITH_IDS = frozenset({"board", "memory", "transactions", "viewing", "inputs"})
"""Scenarios that record event names, so that digests of these and of later events differ."""
RULES = [hansard.deny("send", where={"to": hansard.one_of("boss")}, name="not to the boss")]
BUDGETS = [
    *(hansard.budget("calls", 3, tool="send"), hansard.ask_first("nobody's")),
    *(hansard.budget("money", 7, unit="cost", reserve=2, tool="*d", role="wr*"),),
    *(hansard.budget("items", 5.5, unit="items", reserve=0, tool="count"),),
    *(hansard.budget("much", math.inf), hansard.budget("of others", -math.inf, role="boss")),
]
PLAN = hansard.experiments.plan(
    arms=[
        "plain",
        {"name": "bold", "prompt": "p 4", "model": "m", "parameters": {"t": 0.5, "of": (1, b"x")}},
    ],
    metrics=["reward"],
)
OPTIONS: dict[str, dict[str, Any]] = {
    "budgets": {"gate": [*RULES, *BUDGETS]},
    "settled": {"settle": by_rule},
    "placed": {"experiment": "greeting", "arm": "bold", "task": "t-1", "trial": 3},
}


def play(lab: Lab, scenario: Coroutine[Any, Any, None]) -> None:
    """Play with the lab's client."""
    if lab.is_async:
        asyncio.run(scenario)
    else:
        at_once(scenario)


def bare(value: Any, names: dict[str, str]) -> Any:
    """Return a value without times, durations and ids: ids are numbered in order of appearance."""
    match value:
        case dict():
            is_view = "served" in value or "rules" in value  # digests of what has ids and times
            return {
                key: bare(item, names)
                for key, item in value.items()
                if key not in VOLATILE and not (is_view and key == "digest")
            }
        case list():
            return [bare(item, names) for item in value]
        case str():
            value = COMMAND.sub("hansard run settle", value)
            value = STEP.sub(r"step of \1: its result", value)
            return UUID.sub(lambda id_: names.setdefault(id_[0], f"id{len(names)}"), value)
        case _:
            return value


def record_of(lab: Lab, run: str) -> list[Any]:
    """Return a run's record, by stream."""
    names: dict[str, str] = {}
    events = []
    for stored in sorted(lab.commits(run), key=lambda each: str(each.stream)):
        for event in stored.commit.events:
            data = bare(msgspec.json.decode(event.data), names)
            if event.type == "step.completed.v1" and "served" in str(data.get("result")):
                data.pop("digest")
            if event.type == "checkpoint.saved.v1" and data["data"].pop("auto", None):  # measured
                data.pop("fingerprint")
            of_ids = ("digest", "fingerprint", "full", "call", "key")
            for digest in of_ids if run in WITH_IDS else ():
                data.pop(digest, None)
            events.append((str(stored.stream), stored.commit.epoch, event.type, data))
    return by_place(events) if run in SIDE_BY_SIDE else events


def by_place(record: list[Any]) -> list[Any]:
    """Sort events by content, since parallel branches record in any order."""
    for *_, data in record:
        for number in ("step", "after", "parent"):
            data.pop(number, None)
    return sorted(record, key=str)


def results_of(house: House, door: str, client: str, name: str) -> tuple[list[Any], list[Any]]:
    """Return a program's results, also when resumed and replayed, and the record."""
    lab = Lab(house, door, client)
    answers: list[Any] = []

    async def scenario() -> None:
        options = OPTIONS.get(name, {})
        async with lab.connect(gate=RULES) as record, record.run(run=name, **options) as session:
            await PROGRAMS[name](session, answers)

    with house.trusted() as record:
        record.experiments.register("greeting", PLAN)
        for space in ("agent/ada", "org"):
            record.memory(space).set_policy("off", by="eve")
    play(lab, scenario())
    return bare(answers, {}), record_of(lab, name)


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same(house: House, other: House, client: str, name: str) -> None:
    """A restricted agent's program gets the same results and record as a trusted one."""
    house.login("ada")
    answers, record = results_of(house, "restricted", client, name)
    expected, recorded = results_of(other, "trusted", client, name)
    assert answers == expected
    assert record == recorded
    assert len(record) > 3


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_over_http(house: House, other: House, client: str, name: str) -> None:
    """A program leaves the same record over HTTP as over NATS, also when it is resumed."""
    other.begin()
    house.listen()
    results = []
    try:
        for where in (house, other):
            where.login("ada")
            assert where.known().is_http is (where is house)
            once = results_of(where, "restricted", client, name)
            again = results_of(where, "restricted", client, name) if name in RESUMED else None
            results.append((once, again))
    finally:
        other.end()
    assert results[0] == results[1]
    assert len(results[0][0][1]) > 3


RESUMED = [name for name in PROGRAMS if name not in ("failures", "team", "claimed")]


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("name", RESUMED)
def test_resumed(house: House, other: House, client: str, name: str) -> None:
    """A resumed program gets its earlier results again, as a trusted one does."""
    house.login("ada")
    results = {}
    for door, where in (("restricted", house), ("trusted", other)):
        results_of(where, door, client, name)
        results[door] = results_of(where, door, client, name)
    assert results["restricted"] == results["trusted"]


def two(lab: Lab, answers: list[Any]) -> Coroutine[Any, Any, None]:
    """Two agents, each with its own program: tasks and messages between them."""

    async def scenario() -> None:
        async with (
            lab.connect("ada") as one,
            lab.connect("bob") as another,
            one.run(run="two") as ada,
            another.run(run="two", agent="bob") as bob,
        ):
            await done(ada.team.add("first", agent="bob", task="f", what=(1, 2)))
            await done(ada.team.add("second", role="writer", waits_for=["f"], task="s"))
            task = await done(bob.team.claim(timeout_s=5))
            answers.append((task.id, task.what, await done(ada.team.claim())))
            await done(bob.team.send({"for": "ada"}, agent="ada"))
            await done(bob.team.hand_off(task, agent="ada", with_=[3], reason="yours"))
            mine = await done(ada.team.claim(timeout_s=5))
            answers.append((mine.id, mine.given, mine.because, mine.number))
            answers.append(await caught(lambda: bob.team.complete(task)))
            await done(ada.board.put("k", "ada"))
            answers.append(await caught(lambda: bob.board.put("k", "bob")))
            answers.append(await done(bob.board.put("k", "bob", resolve="last writer")))
            await done(ada.team.complete(mine, "done"))
            answers.append(await done(bob.wait_for(task="f", timeout_s=5)))
            answers.append([(each.sender, each.content) for each in await done(ada.team.inbox())])
            answers.append([(each.id, each.status) for each in await done(bob.team.tasks())])
            await ada.hand_off("bob", reason="end")

    return scenario()


@pytest.mark.fast(cases=99, slow=0)
def test_two_agents(house: House, other: House, client: str) -> None:
    """Two restricted agents interact as trusted ones do."""
    results = {}
    for door, where in (("restricted", house), ("trusted", other)):
        lab = Lab(where, door, client)
        for name in ("ada", "bob"):
            where.login(name)
        answers: list[Any] = []
        play(lab, two(lab, answers))
        record = record_of(lab, "two")
        for *_, data in record:
            for digest in ("digest", "fingerprint", "full", "call"):
                data.pop(digest, None)
        results[door] = bare(answers, {}), record
    assert results["restricted"] == results["trusted"]


def test_what_each_session_is(lab: Lab) -> None:
    """Only a trusted session is a `Session`; both are a `CommonSession`."""
    trusted: Any = hansard.AsyncSession if lab.is_async else hansard.Session
    common: Any = hansard.types.AsyncCommonSession if lab.is_async else hansard.types.CommonSession

    async def scenario() -> None:
        async with lab.connect() as record, record.run("w") as session:
            assert isinstance(session.raw, common)
            assert isinstance(session.raw, trusted) == (lab.door == "trusted")

    play(lab, scenario())
    ours = ("state", "label", "saved", "snapshot", "save", "get", "window", "compact")
    offered = {name for name in dir(trusted) if not name.startswith("_")}
    assert offered - {*dir(common)} == {*ours}
