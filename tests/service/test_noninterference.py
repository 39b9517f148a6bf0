"""Events hidden from a role have no influence on the service's answers, byte for byte."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from hansard.broker.files import Durability
from hansard.broker.lease import join
from tests.evidence import Evidence
from tests.service import _pairs
from tests.service._exchange import STRANGE, Request, answers_outside, do, exchanged, of_record
from tests.service._pairs import APPROVAL, SECRET, Act, Cast, Moment, pairs
from tests.service.support import House, Served

pytestmark = pytest.mark.slow

ROLES = """
[roles.writer]
sees = [
    { name = "own work", roles = ["writer"] },
    { name = "findings", kinds = ["board.*"], keys = ["findings/**"] },
]
[roles.writer.may]
tools = ["**"]
kinds = ["message.*", "task.*", "mail.*", "agent.*", "board.*"]
keys = ["findings/**"]
settle = true
approve = true
view = ["clerk"]
[roles.clerk]
sees = [{ name = "what writers say", kinds = ["message.*"], roles = ["writer"] }]
[roles.boss]
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"], kinds = ["**"], keys = ["**"] }
"""
REQUESTS: list[Request] = [
    do("facts.message", "user", "hello", None, {}),
    do("board.put", "findings/a", 1, None, {}, None, None),
    do("board.entry", "findings/a"),
    do("board.entry", "plans/x"),
    do("board.put", "plans/x", 1, None, {}, None, None),
    do("board.keys"),
    do("team.tasks"),
    do("team.add", "mine", None, "writer", None, [], [], "w1"),
    do("team.add", "mine too", None, "writer", None, [], [], None),
    do("team.add", "waits", None, None, None, ["t1"], [], "w2"),
    do("team.claim", None, None, 0),
    do("team.tasks"),
    do("team.send", "hi", "writer", None),
    do("team.inbox"),
    do("session.view", None, None),
    do("session.view", STRANGE, None),
    do("team.wait_for", "findings/b", None, 0.05),
    do("team.wait_for", "plans/x", None, 0.05),
    do("team.wait_for", None, "t1", 0.05),
    do("team.wait_for", None, None, 5, 0.05),
    do("facts.hand_off", "eve", "x", {}),
    do("team.send", "hi", None, "eve"),
    do("team.send", "hi", None, "nobody"),
]


def hidden(house: House, how_much: int) -> None:
    """Act in a role that `writer` does not see: not at all, or more and more."""
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


OUTSIDE: list[Request] = [
    of_record("record.roles.view", "r1"),
    of_record("record.roles.view", "hidden"),
    of_record("record.roles.view", "r1", STRANGE),
    *(of_record("record.roles.view", run, None, None, "clerk") for run in ("r1", "hidden", "none")),
    of_record("record.roles.view", "r1", None, None, "boss"),
    of_record("record.settle", "hidden", "eve#1", "happened"),
    of_record("record.settle", "r1", "eve#1", "happened"),
    of_record("record.settle", "none", "eve#1", "happened"),
    of_record("record.approvals.grant", "0" * 32),
    of_record("record.sql", "SELECT 1"),
]


@pytest.mark.parametrize("how_much", [pytest.param(1, marks=pytest.mark.thorough), 3])
def test_answers(house: House, other: House, how_much: int) -> None:
    """Two workspaces that differ in hidden data give equal answers to every request."""
    sides = []
    other.begin()
    try:
        for where, much in ((house, 0), (other, how_much)):
            where.apply(ROLES)
            hidden(where, much)
            where.login()
            sides.append(exchanged(where, "r1", REQUESTS, OUTSIDE))
    finally:
        other.end()
    check_same(*sides)
    assert len(sides[0]) > len(REQUESTS) + len(OUTSIDE)


CARRYING = """
[roles.writer]
sees = [{ name = "all", kinds = ["**", "access.*", "principal.*", "view.*", "query.*"] }]
[roles.writer.may]
tools = ["**"]
kinds = ["**"]
keys = ["findings/**"]
settle = true
approve = true
query = true
[roles.boss]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"], kinds = ["**"], keys = ["**"], query = true }
"""


def carries_on(house: House, how_much: int) -> None:
    """Act elsewhere as a principal that was shown a secret: not at all, or more and more."""
    with house.trusted() as record:
        with record.run("w", run="source", agent="zoe", role="boss") as zoe:
            zoe.message("user", "it is secret", label="secret")
            zoe.board.put("vault", SECRET)
        with record.run("w", run="r1", agent="bob", role="writer") as bob:
            bob.message("user", "to be seen")
    with house.connect("eve", "boss") as record:
        with record.run(run="source") as eve:
            assert eve.board.get("vault") == SECRET
        for number in range(how_much):
            with record.run(run="r1") as eve:
                eve.message("user", f"{SECRET} {number}")
                eve.board.put(f"plans/{number}", SECRET)
                eve.checkpoint(SECRET, n=number)
            labels = {"n": SECRET}
            run = "hidden" if not number else f"hidden-{SECRET}-{number}"
            with record.run(f"o {SECRET}", run=run, labels=labels) as eve:
                eve.team.add(SECRET, task=f"t {SECRET}")
                eve.board.put(SECRET, number)
            record.roles.view("r1")


@pytest.mark.thorough
def test_answers_beside_a_carrying_principal(worlds: tuple[Served, Served]) -> None:
    """A carrying principal elsewhere changes no answer or table of an uncleared role."""
    sides = []
    for where, much in zip(worlds, (0, 2), strict=True):
        where.apply(CARRYING)
        where.login("eve", "boss")
        carries_on(where, much)
        outside = [each for each in OUTSIDE if each[0] != "sql"]
        answers = exchanged(where, "r1", REQUESTS, outside)
        sides.append(answers + counts(where))
    check_same(*sides)


def check_same(one: list[tuple[str, bytes]], other: list[tuple[str, bytes]]) -> None:
    """Check that requests and answers are equal byte for byte, without any hidden text."""
    assert [what for what, _ in one] == [what for what, _ in other]
    for (what, first), (_, second) in zip(one, other, strict=True):
        if first != second:
            same = itertools.takewhile(
                lambda two: two[0] == two[1], zip(first, second, strict=False)
            )
            at = len(list(same))
            around = slice(max(0, at - 200), at + 200)
            pytest.fail(f"{what}:\n{first[around]!r}\n{second[around]!r}")
    assert not any(SECRET.encode() in answer for _, answer in (*one, *other))


# ------------------------------------------------------------ any history


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    """Two workspaces with the same roles, each with its service."""
    with join(tmp_path / "broker", Durability.RELAXED):  # power loss is not tested here
        one, other = (Served(tmp_path / "broker", f"any-{name}", tmp_path) for name in "ab")
        made = one, other
        for each in made:
            each.apply(_pairs.ROLES)
            each.login()
            each.begin()
        try:
            yield made
        finally:
            for each in made:
                each.end()


def requests_of(run: str) -> tuple[list[Request], list[Request]]:
    """Return the requests of a role within a session, and outside: of seen, hidden and absent
    things.

    Names taken by hidden things are left out: the id of a run or of a task is shared by all, so the
    creator of a run or task with that id learns that it exists.
    """
    within = [
        *REQUESTS,
        *(do("board.entry", key) for key in ("findings/b", "findings/c-n", "plans/a", "plans/c-n")),
        do("board.put", "findings/a", 2, 999, {}, None, None),
        do("board.put", "findings/a", 3, None, {}, None, "last writer"),
        do("board.append", "findings/b", 1),
        do("board.append", "plans/b", 1),
        do("board.remove", "findings/c", "any"),
        do("board.remove", "plans/c", "any"),
        do("team.add", "of a name", None, "writer", None, [], [], "a"),
        do("team.add", "after hidden", None, "writer", None, ["hidden-b"], [], "w3"),
        do("team.add", "after a role", None, "writer", None, [], ["boss"], "w4"),
        do("team.add", "for a boss", None, "boss", None, [], [], None),
        do("team.claim", None, None, 0),
        do("team.claim", "boss", None, 0),
        do("team.wait_for", None, "hidden-a", 0.01),
        do("team.wait_for", None, "a", 0.01),
        do("facts.hand_off", "boss", "x", {}),
        do("facts.context"),
        do("board.keys"),
        do("team.tasks"),
        do("no.such", 1),
    ]
    steps = [f"{name}#{number}" for name in ("eve", "zoe", "nobody") for number in (1, 2)]
    outside: list[Request] = [
        *(of_record("record.roles.view", each) for each in (run, f"{run}-hidden", f"{run}-not")),
        of_record("record.roles.view", run, STRANGE),
        *(
            of_record("record.roles.view", each, None, None, "clerk")
            for each in (run, f"{run}-hidden", f"{run}-not")
        ),
        of_record("record.roles.view", run, None, None, "boss"),
        *(of_record("record.settle", run, each, "happened") for each in steps),
        of_record("record.settle", f"{run}-hidden", "eve#1", "happened"),
        *(of_record("record.approvals.grant", each) for each in (APPROVAL, "1" * 32, "a")),
        of_record("record.approvals.deny", APPROVAL),
        of_record("record.sql", ""),
        of_record("record.no_such"),
    ]
    return within, outside


TABLES = (
    *("events", "runs", "agents", "steps", "messages", "decisions", "board"),
    *("tasks", "mail", "approvals", "refusals", "views_served"),
)


def counts(house: House) -> list[tuple[str, bytes]]:
    """Return the row counts of tables and views of the role's own database."""
    each = [f"SELECT '{name}' AS name, count(*) AS rows FROM {name}" for name in TABLES]
    whole = of_record("record.sql", " UNION ALL ".join(each))
    return answers_outside(house, [whole])


def answers_to(where: House, run: str, acts: Sequence[Sequence[Act]]) -> list[tuple[str, bytes]]:
    """Return the answers to the role where these acts happen: half of them before its session."""
    with where.trusted() as record, Cast(record, run) as cast:
        half = len(acts) // 2
        for each in acts[:half]:
            cast.do(each)
        later = [functools.partial(cast.do, each) for each in acts[half:]]
        return exchanged(where, run, *requests_of(run), later)


@pytest.mark.thorough
@pytest.mark.timeout(3_600)
def test_any_history(worlds: tuple[Served, Served], evidence: Evidence) -> None:
    """No history of unseen agents changes an answer or a row count."""
    tried: set[str] = set()
    runs = 0

    @given(pair=pairs)
    @settings(  # one example plays two runs and asks some 170 things: none is spent on shrinking
        max_examples=max(2, settings().max_examples // 12), phases=set(Phase) - {Phase.shrink}
    )
    def look(pair: list[Moment]) -> None:
        nonlocal runs
        runs += 1
        tried.update(_pairs.kinds_of(pair))
        run = f"any-history-{runs}"
        sides = [[getattr(moment, side) for moment in pair] for side in ("one", "other")]
        with ThreadPoolExecutor() as threads:
            check_same(*threads.map(answers_to, worlds, [run, run], sides))

    look()
    assert len(tried) >= 4, tried  # else the law would say little
    check_same(counts(worlds[0]), counts(worlds[1]))
    evidence.record("service.noninterference", pairs=runs, differing=0)
