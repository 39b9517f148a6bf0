"""What a role does not see has no influence on what the service answers, byte for byte."""

import re
from typing import Any

import pytest

import hansard
from hansard.bus.portal import portal
from hansard.service import wire
from hansard.service.client.link import Link, SessionLink
from hansard.service.wire import Do, Open
from tests.service.support import House

ROLES = """
[roles.writer]
[[roles.writer.sees]]
name = "own work"
roles = ["writer"]
[[roles.writer.sees]]
name = "findings"
kinds = ["board.*"]
keys = ["findings/**"]
[roles.writer.may]
tools = ["**"]
kinds = ["message.*", "task.*", "mail.*", "agent.*", "board.*"]
keys = ["findings/**"]
settle = true
approve = true
[roles.boss]
[[roles.boss.sees]]
name = "all"
kinds = ["**"]
[roles.boss.may]
tools = ["**"]
kinds = ["**"]
keys = ["**"]
"""
SECRET = "planted-4711"
IDS = re.compile(
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    rb"|[0-9a-f]{32}"  # names of sessions and instances
)
MEASURED = re.compile(
    rb"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)"  # times
    rb"|(?<=\"duration_ms\":)[0-9.e-]+"
    rb"|(?<=\"lease_left_s\":)[0-9.]+"
    rb"|(?<=\"digest\":\")[A-Za-z0-9_-]{24}"  # of what has ids and times in it
)


def args(*given: Any) -> Any:
    """Arguments over the wire."""
    return wire.dump(list(given))


ASKED: list[tuple[str, Any]] = [
    ("do", Do(name="facts.message", args=args("user", "hello", None, {}))),
    ("do", Do(name="board.put", args=args("findings/a", 1, None, {}, None, None))),
    ("do", Do(name="board.entry", args=args("findings/a"))),
    ("do", Do(name="board.entry", args=args("plans/x"))),
    ("do", Do(name="board.put", args=args("plans/x", 1, None, {}, None, None))),
    ("do", Do(name="board.keys")),
    ("do", Do(name="team.tasks")),
    ("do", Do(name="team.add", args=args("mine", None, "writer", None, [], [], "w1"))),
    ("do", Do(name="team.add", args=args("mine too", None, "writer", None, [], [], None))),
    ("do", Do(name="team.add", args=args("waits", None, None, None, ["t1"], [], "w2"))),
    ("do", Do(name="team.claim", args=args(None, None, 0))),
    ("do", Do(name="team.tasks")),
    ("do", Do(name="mail.send", args=args("hi", "writer", None))),
    ("do", Do(name="mail.inbox")),
    ("do", Do(name="views.view", args=args(None, None))),
    ("do", Do(name="views.view", args=args("01a1fef2-5cb1-793a-a392-e2de8fb45e85", None))),
    ("do", Do(name="team.wait_for", args=args("findings/b", None, None, 0.05))),
    ("do", Do(name="team.wait_for", args=args("plans/x", None, None, 0.05))),
    ("do", Do(name="team.wait_for", args=args(None, "t1", None, 0.05))),
    ("do", Do(name="team.wait_for", args=args(None, None, 5, 0.05))),
    ("do", Do(name="facts.hand_off", args=args("eve", "x", {}))),
    ("do", Do(name="mail.send", args=args("hi", None, "eve"))),
    ("do", Do(name="mail.send", args=args("hi", None, "nobody"))),
]


def hidden(house: House, how_much: int) -> None:
    """What a role that `writer` does not see does: nothing, or more and more."""
    with house.trusted() as record, record.run("w", run="r1", agent="bob", role="writer") as bob:
        bob.message("user", "to be seen")
        if not how_much:
            return
        with record.run(run="r1", agent="eve", role="boss") as eve:
            for number in range(how_much):
                eve.message("user", f"{SECRET} {number}")
                eve.board.put(f"plans/{'x' * number}", SECRET, expected="any")
                eve.board.put("plans/x", SECRET, expected="any")
                eve.team.add(f"{SECRET} {number}", role="boss")
                eve.team.send(SECRET, role="boss")
            with record.run(run="r1", agent=f"zoe {SECRET}", role="boss") as zoe:
                zoe.team.claim()
        for number in range(how_much):
            name = "hidden" if not number else None
            with record.run("o", run=name, agent="eve", role="boss", labels={"n": SECRET}) as eve:
                eve.checkpoint("x", n=number)


OUTSIDE = [
    ("view", wire.Ask(run="r1")),
    ("view", wire.Ask(run="hidden")),
    ("view", wire.Ask(run="r1", at="01a1fef2-5cb1-793a-a392-e2de8fb45e85")),
    ("settle", wire.Ask(run="hidden", step="eve#1", verdict="happened")),
    ("settle", wire.Ask(run="r1", step="eve#1", verdict="happened")),
    ("settle", wire.Ask(run="none", step="eve#1", verdict="happened")),
    ("approve", wire.Ask(approval="0" * 32)),
    ("sql", wire.Ask(statement="SELECT 1")),
]


async def answers(house: House, run: str) -> list[bytes]:
    """What the service answers, as bytes, less ids and times."""
    link = await Link.open(house.known())
    told: list[bytes] = []
    ask = link.requests.ask

    async def listening(subject: str, payload: bytes, timeout_s: float) -> bytes:
        answer = await ask(subject, payload, timeout_s)
        if not subject.endswith("beat"):
            told.append(answer)
        return answer

    link.requests.ask = listening  # type: ignore[method-assign] # only listens
    try:
        for wrong, workflow in (("r2", None), (run, "another")):
            try:
                await link.open_session(Open(agent="ada", run=wrong, workflow=workflow))
            except hansard.HansardError:
                continue
        session: SessionLink = await link.open_session(Open(agent="ada", run=run))
        for verb, asked in ASKED:
            await session.ask(verb, asked)
        for outside in OUTSIDE:
            await link.outside(*outside)
        await session.ask("close", wire.Left())
        await session.end()
    finally:
        await link.close()
    return [numbered(answer) for answer in told]


def numbered(answer: bytes) -> bytes:
    """An answer, its ids numbered in the order in which they come, without what is measured."""
    names: dict[bytes, bytes] = {}
    answer = IDS.sub(lambda found: names.setdefault(found[0], b"#%d" % len(names)), answer)
    return MEASURED.sub(b"#", answer)


@pytest.mark.parametrize("how_much", [1, 3])
def test_answers(house: House, other: House, how_much: int) -> None:
    """Two workspaces that differ in what the role does not see: every answer is the same."""
    found = []
    other.begin()
    try:
        for where, much in ((house, 0), (other, how_much)):
            where.apply(ROLES)
            hidden(where, much)
            where.login()
            found.append(portal().run(answers(where, "r1")))
    finally:
        other.end()
    empty, full = found
    assert len(empty) == len(full) > len(ASKED)
    asked = [
        *(["open"] * 3),
        *(f"{each.name} {bytes(each.args)!r}" for _, each in ASKED),
        *(f"{verb} {each!r}" for verb, each in OUTSIDE),
        "close",
    ]
    differing = [
        (what, one, two) for what, one, two in zip(asked, empty, full, strict=True) if one != two
    ]
    assert differing == []
    assert not any(SECRET.encode() in answer for answer in full)
