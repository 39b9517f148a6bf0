"""Every operation of a record through both doors: the same results, errors and events."""

from __future__ import annotations

import asyncio
import inspect
import re
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.policy.approvals import Approvals
from hansard.bus.portal import portal
from hansard.domain.approval import ApprovalRequested
from hansard.domain.values import dump
from hansard.operations.session import OPERATIONS, of_slices
from tests.actions.test_cache import cache, entry
from tests.agents.twins import at_once
from tests.experience import journeys
from tests.service.support import Served

pytestmark = pytest.mark.slow

SEES = """
[[roles.writer.sees]]
name = "caches"
kinds = ["actions.*"]
[[roles.writer.sees]]
name = "experiences"
kinds = ["experience.*"]
[[roles.writer.sees]]
name = "prompts"
kinds = ["prompt.*"]
"""
ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{64}"
)
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ][0-9:.]+(?:Z|\+00:00)?")
VOLATILE = frozenset(
    {"position", "recorded_at", "at", "since", "address", "duration_ms", "digest", "label", "ipc"}
    | {"looked", "seconds", "beside"}
)
"""Fields that differ by design: counted, measured, or derived from visible data."""

QUESTIONS = ("1" * 32, "2" * 32)
WITHHELD = frozenset(
    {"roles.view", "egress", "settle", "reopen", "approvals.deny", "finish", "cancel"}
)
"""Operations whose refusals say less to a restricted agent, since hidden things appear absent."""

PLAN = hansard.experiments.plan(arms=["plain", "bold"], metrics=["solved"])


class Door:
    """A record of either kind and client, called by name."""

    def __init__(self, record: Any, *, trusted: bool) -> None:
        self._record = record
        self._trusted = trusted
        self.called: set[str] = set()

    async def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call an operation; a trusted program names the actor."""
        self.called.add(name)
        method = attrgetter(name)(self._record)
        acting = inspect.signature(method).parameters.get("by")
        if self._trusted and acting is not None and acting.default != "run":
            kwargs["by"] = "ada"
        result = method(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def of_space(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call an operation of the space of memory `org`."""
        result = getattr(self._record.memory("org"), name)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result


async def _taught(house: Served) -> str:
    """Keep an experience, and replay it once; one of the runs that taught it."""
    async with hansard.connect_async(house.workspace, data_dir=house.data_dir) as record:
        runs = [await journeys.booked(record, city) for city in ("Ulm", "Bern")]
        await journeys.kept(record, "journey", runs)
        await journeys.again(record, "journey", "again")
        return runs[0]


def prepared(house: Served) -> dict[str, str]:
    """Record runs, open questions, steps in doubt and a failed task; return their ids."""
    with house.trusted() as record:
        record.experiments.register("e", PLAN)
        record.memory("org").set_policy("off", by="eve")
        for arm in ("plain", "bold"):
            with record.run("w", run=arm, experiment="e", arm=arm, task="t") as session:
                options = [{"id": "this", "score": 0.6}, "that"]
                session.decide("?", selected="this", alternatives=options, threshold=0.5)
            record.experiments.score(arm, {"solved": int(arm == "bold")}, by="judge")
        eve = record.open("w", run="doubt", agent="eve", role="boss")

        @eve.tool(effects="once")
        def send(to: str) -> str:
            raise TimeoutError(to)

        for who in ("bo", "di"):
            with pytest.raises(TimeoutError):
                send(who)
        task = eve.team.add("to do", task="t1")
        claimed = eve.team.claim()
        assert claimed is not None
        eve.team.fail(claimed, "no")
        approvals = Approvals(record.workspace.states, "doubt")
        for question in QUESTIONS:
            request = ApprovalRequested(
                approval=question,
                agent="eve",
                role="boss",
                step=1,
                tool="send",
                arguments=dump({"to": "bo"}),
                call="c",
                fingerprint="f",
                rule="ask",
                timeout_ms=600_000,
            )
            portal().run(approvals.record(request, "eve"))
    return {"task": task, "run": asyncio.run(_taught(house))}


def plain(value: Any, *volatile: str) -> Any:
    """Return a result with volatile fields removed, and placeholders for ids and times."""
    without = VOLATILE.union(volatile)
    match value:
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return {"type": type(value).__name__, **plain(fields, *volatile)}
        case dict():
            return {
                key: plain(each, *volatile) for key, each in value.items() if key not in without
            }
        case list() | tuple():
            return type(value)(plain(each, *volatile) for each in value)
        case str():
            return TIME.sub("TIME", ID.sub("ID", value))
        case datetime():
            return "TIME"
        case _:
            return value


def refusal(name: str, error: Exception) -> tuple[str, str]:
    """Return an error's class as callers catch it, and the first line of its message."""
    kinds = (hansard.NotFound, hansard.errors.Refused, hansard.errors.CallerError)
    if name in WITHHELD and isinstance(error, kinds[:2]):
        return "refused", ""
    kind = next((each for each in kinds if isinstance(error, each)), type(error))
    return kind.__name__, str(error).partition("\n")[0]


async def reports(step: Any) -> None:
    """Call the operations that answer from tables, and views, which take longest."""
    await step("prompts.report", "rag")
    await step("prompts.report", alpha=3.0)
    await step("roles.view", "plain", role="writer")
    await step("roles.view", "none", role="writer")
    await step("roles.viewable")
    await step("sql", "SELECT ? AS a, [1.5, NULL] AS b", "x")
    await step("sql", "SELECT sum(n) FROM t", tables={"t": [{"n": 1}, {"n": 2}]})
    await step("sql", "SELECT nothing")
    await step("sql", "SELECT ?", {"a": 1})
    await step("savings", workflow="again")
    await step("savings", month="2026-99")
    await step("savings", by="nothing")
    await step("experiments.compare", "e", baseline="plain")
    await step("experiments.compare", "none")
    await step("experiments.compare", "e", higher_is_better=3)
    await step("experiments.compare", "e", metrics="m")
    await step("audit", "plain", flip=0.2)
    await step("audit", "none")
    await step("audit", severity="worst")
    await step("why", "bold")
    await step("why", "none")


async def everything(  # noqa: PLR0915 -- a step each
    door: Door, ids: dict[str, str], *, tables: bool
) -> list[tuple[str, Any]]:
    """Call operations, in success and in failure; return results and errors."""
    answers: list[tuple[str, Any]] = []

    async def step(name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            result = await door(name, *args, **kwargs)
        except hansard.HansardError as error:
            result = refusal(name, error)
        answers.append((name, plain(result)))
        return result

    async def in_space(name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            result = await door.of_space(name, *args, **kwargs)
        except hansard.HansardError as error:
            result = refusal(name, error)
        number = type(result) is int  # a version of the space counts what others wrote
        answers.append((f"memory.{name}", None if number else plain(result, "version")))
        return result

    await step("prompts.add", "rag", "Answer {query}.", parameters={"t": (1, 2)}, reason="first")
    await step("prompts.add", "rag", "Answer {query} now.", model="m", feedback_applied=["briefer"])
    await step("prompts.add", "rag", "")
    await step("prompts.add", "rag", "x", parents=[9])
    await step("prompts.add", "a@b", "x")
    await step("prompts.alias", "rag@1", "production", expected=None, reason="begin")
    await step("prompts.alias", "rag@2", "production", expected=2)
    await step("prompts.alias", "rag@1", "production")
    await step("prompts.alias", "rag@1", "other")
    await step("prompts.alias", "rag", "other", take_away=True)
    await step("prompts.get", "rag@production")
    await step("prompts.get", "rag@9")
    await step("prompts.get", "none")
    await step("prompts.list")
    await step("prompts.give_feedback", "rag@2", "too_verbose", rating=0.5)
    await step("prompts.give_feedback", "rag@2", rating=7)
    await step("prompts.give_feedback", "rag@2")
    await step("prompts.promote", "rag@2")
    await step("prompts.promote", "rag@2", reason="it is shorter")
    await step("prompts.promote", "rag@1", experiment="e", reason="both")
    await step("prompts.evolve", "rag@2", ["too_verbose", "missing_context"], reason="both")
    await step("prompts.evolve", "rag@2", "no such rule")
    await step("prompts.retire", "rag@1", reason="old")
    await step("prompts.retire", "rag@1")
    await step("prompts.retire", "rag")
    await step("prompts.list")

    actions = cache(entry(0), entry(1, arguments=[{"$secret": "pw"}]))
    await step("actions.keep", "form", actions, reason="as on Monday")
    await step("actions.keep", "form", actions)
    await step("actions.keep", "form", cache(entry(0)))
    await step("actions.keep", "form", cache(entry(0), entry(0)))
    await step("actions.get", "form", 1)
    await step("actions.get", "form", 9)
    await step("actions.get", "none")
    await step("actions.revert", "form", 1, reason="the other is wrong")
    await step("actions.review", "form", reason="good")
    await step("actions.review", "none")
    await step("actions.list")
    await step("actions.log", "form")
    await step("actions.log", "none")

    await step("experiences.list")
    await step("experiences.get", "journey")
    await step("experiences.get", "journey", 9)
    await step("experiences.get", "none")
    await step("experiences.find", journeys.TASK, tools=["book"])
    await step("experiences.find")
    await step("experiences.retire", "journey", reason="no trains")
    await step("experiences.find", journeys.TASK, retired=True)
    await step("experiences.confirm", "journey", reason="trains again")
    await step("experiences.confirm", "journey", ["no such check"])
    await step("experiences.log", "journey")
    await step("experiences.log", "none")
    await step("egress", ids["run"])
    await step("egress", "none")

    if tables:
        await reports(step)

    await step("settle", "doubt", "eve#1", "happened", result={"a": (1, b"x")}, reason="seen")
    await step("settle", "doubt", "eve#2", "did_not_happen")
    await step("settle", "doubt", "eve#9", "happened")
    await step("settle", "doubt", "eve#2", "perhaps")
    await step("reopen", "doubt", ids["task"], reason="again")
    await step("reopen", "doubt", "none")
    await step("approvals.grant", QUESTIONS[0], reason="read it")
    await step("approvals.grant", QUESTIONS[0])
    await step("approvals.deny", QUESTIONS[1], reason="no")
    await step("approvals.deny", "0" * 32)
    await step("finish", "doubt", reason="done")
    await step("finish", "doubt")
    await step("finish", "none")
    await step("cancel", "doubt", reason="enough")
    await step("cancel", "plain")
    await step("cancel", "none")
    await step("invalidate", tool="search", reason="rebuilt")
    await step("invalidate")

    await in_space("create", "notes/a.md", "Zebras.\n", by="ada", reason="to know")
    await in_space("create", "notes/b.md", "Bears.\n", by="ada")
    await in_space("edit", "notes/a.md", "Zebras", "Two zebras", by="ada", reason="counted")
    await in_space("edit", "notes/a.md", "absent", "x", by="ada")
    await in_space("rename", "notes/b.md", "notes/c.md", by="ada")
    await in_space("view", "notes/a.md")
    await in_space("entry", "notes/a.md")
    await in_space("entry", "notes/none.md")
    await in_space("entries")
    await in_space("ls")
    await in_space("blame", "notes/a.md")
    await in_space("diff", before="2020-01-01T00:00:00Z")
    changes = await in_space("history", "notes/a.md")
    await in_space("revert", changes[-1].event, by="ada", reason="not so")
    await in_space("view", "notes/a.md")
    await in_space("delete", "notes/c.md", by="ada")
    await in_space("history")
    return answers


def events_of(house: Served) -> list[Any]:
    """Return the recorded events of prompts, caches, experiences, memory and the run in doubt."""
    events: list[Any] = []
    with house.trusted() as record:
        log = record.workspace.log
        for kind in ("prompt", "actions", "experience", "memory", "reuse"):
            for stored in portal().run(log.read_kind(kind)):
                for event in stored.commit.events:
                    events.append((str(stored.stream), event.type, _data(event)))
        for stored in portal().run(log.read_run("doubt")):
            for event in stored.commit.events:
                if event.type not in ("view.served.v1", "query.answered.v1"):
                    events.append((str(stored.stream), event.type, _data(event)))
    return events


def _data(event: Any) -> Any:
    return plain(msgspec.json.decode(event.data))


async def _played(house: Served, door: str, *, tables: bool) -> tuple[list[Any], set[str]]:
    ids = await asyncio.to_thread(prepared, house)
    arguments: dict[str, Any] = {"workspace": house.workspace, "data_dir": house.data_dir}
    if door == "restricted":
        arguments = {"credentials": await asyncio.to_thread(house.login)}
    async with hansard.connect_async(**arguments) as record:
        calls = Door(record, trusted=door == "trusted")
        return await everything(calls, ids, tables=tables), calls.called


def played(house: Served, door: str, client: str, *, tables: bool) -> tuple[list[Any], set[str]]:
    """Play it with a client through a door."""
    if client == "async":
        return asyncio.run(_played(house, door, tables=tables))
    ids = prepared(house)
    arguments: dict[str, Any] = {"workspace": house.workspace, "data_dir": house.data_dir}
    if door == "restricted":
        arguments = {"credentials": house.login()}
    with hansard.connect(**arguments) as record:
        calls = Door(record, trusted=door == "trusted")
        return at_once(everything(calls, ids, tables=tables)), calls.called


FULL = pytest.mark.thorough(quick="test_each_operation_is_the_same_through_both_doors")


@pytest.mark.parametrize(
    ("client", "trusted", "tables"),
    [
        ("async", "sync", False),
        pytest.param("async", "sync", True, marks=FULL),
        pytest.param("sync", "async", True, marks=FULL),
    ],
)
def test_each_operation_is_the_same_through_both_doors(
    served: Any, client: str, trusted: str, tables: bool
) -> None:
    """A permitted restricted agent gets the results and the record of a trusted program, whichever
    client either has. In `make check` this is shown for operations that need no tables.
    """
    house, other = served(f"parity-{client}", SEES), served(f"trusted-{trusted}", SEES)
    answers, called = played(house, "restricted", client, tables=tables)
    expected, _ = played(other, "trusted", trusted, tables=tables)
    pairs = zip(answers, expected, strict=True)
    assert [(mine, theirs) for mine, theirs in pairs if mine != theirs] == []
    assert events_of(house) == events_of(other)
    slices = of_slices()
    declared = {
        each.method
        for each in OPERATIONS.values()
        if each.group == "record" and not each.method.startswith("memory.")
        if each.name not in slices
    }
    assert not tables or declared <= called
