"""Budgets of a restricted agent's gate: the client declares them, the service counts them."""

import math
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.agents.errors import RoleRefused
from hansard.agents.policy.gate import Budget
from hansard.bus.portal import portal
from hansard.domain.errors import BadName, BadValue
from hansard.operations.protocol import remote_call, wire
from hansard.operations.protocol.wire import Open
from tests.service.support import House
from tests.service.test_attacks import refusals
from tests.service.test_doors import wait_for_question

pytestmark = pytest.mark.later

COUNTER = """
[roles.counter]
[[roles.counter.sees]]
name = "own work"
roles = ["counter"]
SEES
[roles.counter.may]
tools = ["**"]
kinds = ["message.*"MAY]
"""
SEES = '[[roles.counter.sees]]\nname = "budgets"\nkinds = ["budget.*"]'
MAY = ', "budget.*"'


def counter(*, sees: bool = True, may: bool = True) -> str:
    """Return a role that may count calls, or lacks a rule for that."""
    text = COUNTER.replace("SEES", SEES if sees else "")
    return text.replace("MAY", MAY if may else "")


def spending(record: Any, name: str, limit: float, calls: int, **options: Any) -> list[str]:
    """Return the outcomes of calls of this record's agent under one budget."""
    answers: list[str] = []
    with record.run(run=name, gate=[hansard.budget("calls", limit)], **options) as session:
        send = session.tool(effects="once", name="send")(lambda to: f"sent {to}")
        for to in range(calls):
            try:
                answers.append(send(to))
            except hansard.Blocked as error:
                answers.append(error.rule)
    return answers


def test_counted_over_all_processes(house: House) -> None:
    """All processes count on one budget; a resumed program is not counted again."""
    house.apply(counter())
    sent = [f"sent {n}" for n in range(9)]
    with house.connect("ada", "counter") as ada, house.connect("bob", "counter") as bob:
        assert spending(ada, "r1", 5, 2, workflow="w") == sent[:2]
        with house.trusted() as record:
            assert spending(record, "r1", 5, 1, agent="eve", role="trusted") == sent[:1]
        assert spending(bob, "r1", 5, 3) == [*sent[:2], "calls"]
        assert spending(ada, "r1", 5, 4) == [*sent[:2], "calls", "calls"]
        assert spending(ada, "r1", 6, 4) == [*sent[:3], "calls"]
    with house.trusted() as record:
        commits = portal().run(record.workspace.log.read_run("r1"))
        reservations = [
            (stored.commit.actor.agent, event.type)
            for stored in commits
            if getattr(stored.stream, "key", "") == "budget calls"
            for event in stored.commit.events
        ]
    assert [who for who, _ in reservations] == ["ada", "ada", "eve", "bob", "bob", "ada"]
    assert {kind for _, kind in reservations} == {"budget.reserved.v1"}


def test_what_another_gave_back_is_there_at_once(house: House) -> None:
    """A returned share is available at once to restricted and trusted agents."""
    house.apply(counter())
    rule = hansard.budget("t", 10, unit="tokens", reserve=6)
    options = {"workflow": "w", "run": "r1", "gate": [rule]}
    with (
        house.connect("ada", "counter") as ours,
        house.trusted() as record,
        ours.run(**options) as ada,
        record.run(agent="eve", role="trusted", **options) as eve,
    ):

        def tool(session: Any) -> Any:
            @session.tool(effects="once")
            def send(to: int) -> int:
                session.usage(tokens=1)
                if to == 0:
                    with pytest.raises(hansard.Blocked, match="'t' blocked send"):
                        others[0](1)
                return to

            return send

        mine, hers = tool(ada), tool(eve)
        for one, other in ((mine, hers), (hers, mine)):
            others = [other]
            assert one(0) == 0
            assert other(2) == 2


@pytest.mark.parametrize(
    ("lacks", "line"),
    [
        ("may", 'kinds = ["budget.*"] in [roles.counter.may]'),
        ("sees", 'kinds = ["budget.*"], keys = ["budget calls"]'),
    ],
)
def test_a_role_that_may_not_count(house: House, lacks: str, line: str) -> None:
    """A budget that a role may not count on is refused on record; a replay needs none."""
    house.apply(counter())
    with house.connect("ada", "counter") as record:
        answers = spending(record, "r1", 5, 1, workflow="w")
        house.apply(counter(**{lacks: False}))
        for run in ("r1", "r2"):
            with pytest.raises(RoleRefused, match="counting on budget 'calls'") as no:
                spending(record, run, 5, 1, workflow="w")
            assert line in str(no.value)
        assert spending(record, "r1", 5, 1, mode="strict") == answers
    [refused] = [each for each in refusals(house) if each.operation == "open"]
    assert line in refused.because
    with house.trusted() as record:
        assert [run for run, _ in record.runs()] == ["r1"]


def test_counted_at_once(house: House) -> None:
    """Concurrent agents together get no more calls than the limit."""
    house.apply(counter())
    names = [f"agent-{n}" for n in range(4)]
    for name in names:
        house.login(name, "counter")
    with house.trusted() as record, record.run("w", run="r1", agent="eve", role="trusted"):
        pass
    answers: dict[str, list[str]] = {}

    def work(name: str) -> None:
        with house.connect(name, "counter") as record:
            answers[name] = spending(record, "r1", 9, 5)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    outcomes = [each for name in names for each in answers[name]]
    assert (len(outcomes), outcomes.count("calls")) == (20, 11)


@pytest.mark.parametrize("calls", [1, 3])
def test_what_others_used_is_not_shown(house: House, other: House, calls: int) -> None:
    """The usage of unseen agents has no influence on a refusal."""
    sides = []
    other.begin()
    try:
        for where, much in ((house, 0), (other, calls)):
            where.apply(counter(sees=False))
            with where.trusted() as record:
                spending(record, "r1", 2, much, workflow="w", agent="eve", role="trusted")
            requests = [
                Open(agent="ada", run="r1", budgets=remote_call.encode_budgets([made]))
                for name in ("calls", "others")
                for made in (Budget(name=name, limit=2), Budget(name=name, limit=4, tool="x"))
            ]
            with where.link("ada", "counter") as link:
                answers = [portal().run(link.outside("open", each)) for each in requests]
            sides.append([wire.encode(answer) for answer in answers])
    finally:
        other.end()
    assert sides[0] == sides[1]
    assert all(b"RoleRefused" in answer for answer in sides[0])


def test_what_is_labelled_higher_is_not_counted_with(house: House) -> None:
    """Usage of an agent with a higher label is not counted, since a refusal would reveal it."""
    house.apply(counter())
    with house.connect("ada", "counter") as record:
        assert spending(record, "r1", 5, 1, workflow="w") == ["sent 0"]
        with (
            house.trusted() as trusted,
            trusted.run(run="r1", agent="eve", gate=[hansard.budget("calls", 9)]) as eve,
        ):
            look = eve.tool(effects="pure", name="look")(lambda: 1)
            eve.message("user", "the code is 4711", label="secret")
            look()
        assert spending(record, "r1", 5, 3) == ["sent 0", "label", "label"]
        with house.trusted() as trusted:
            blocked = trusted.state("r1").agent("ada").steps[2]
    assert blocked.error is not None
    assert "clearance" in blocked.error.message


def test_a_usage_below_nothing_gives_no_room(house: House) -> None:
    """A negative usage makes no room for others."""
    house.apply(counter())
    answers: list[str] = []
    gate = [hansard.budget("money", 3, unit="cost", reserve=1)]
    with house.connect("ada", "counter", gate=gate) as record, record.run("w") as session:

        @session.tool(effects="once")
        def send(to: int) -> int:
            session.usage(cost=-100 if to == 0 else 2)
            return to

        for to in range(4):
            try:
                answers.append(str(send(to)))
            except hansard.Blocked as error:
                answers.append(error.rule)
    assert answers == ["0", "1", "2", "money"]


def test_a_granted_call_is_counted(house: House) -> None:
    """A granted call is counted, and refused where nothing is left."""
    house.login("bob")
    answers: list[str] = []
    gate = [hansard.ask_first("send", timeout_s=30), hansard.budget("calls", 1)]

    def work() -> None:
        with house.connect(gate=gate) as record, record.run("w", run="r1") as session:
            send = session.tool(effects="once", name="send")(lambda to: to)
            for to in range(2):
                try:
                    answers.append(str(send(to)))
                except hansard.Blocked as error:
                    answers.append(error.rule)

    thread = threading.Thread(target=work)
    thread.start()
    with house.connect("bob") as record:
        for _ in range(2):
            record.approvals.grant(wait_for_question(record), reason="looked at it")
    thread.join(20)
    assert answers == ["0", "calls"]


def test_a_call_that_may_have_been_made_stays_counted(house: House) -> None:
    """A client lost in a tool leaves its share set aside for good."""
    ran: list[str] = []

    def send() -> str:
        ran.append("send")
        if len(ran) == 1:
            house.end()
        return "sent"

    def resumed(limit: float) -> str:
        gate = [hansard.budget("money", limit, unit="cost", reserve=2)]
        with house.connect(gate=gate) as record, record.run("w", run="r1") as session:
            return session.tool(effects="once")(send)()

    with pytest.raises(hansard.HansardError, match="hansard up"):
        resumed(3)
    house.begin()
    with pytest.raises(hansard.InDoubt):
        resumed(3)
    with house.trusted() as record:
        record.settle("r1", "ada#1", "did_not_happen")
    with pytest.raises(hansard.Blocked, match="its limit of 3 cost is used up"):
        resumed(3)
    assert resumed(4) == "sent"
    assert ran == ["send", "send"]


_amounts = st.floats(allow_nan=False) | st.integers(-(2**60), 2**60)
_names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
_patterns = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\\.*"),
    min_size=1,
    max_size=20,
) | st.sampled_from(["**", "*", "send", "send_*", "\\*"])


@pytest.mark.thorough(quick="test_counted_over_all_processes")
@given(
    st.lists(
        st.builds(
            Budget,
            name=_names,
            limit=_amounts,
            reserve=st.floats(0, 1e300) | st.integers(0, 2**60),
            unit=_names,
            tool=_patterns,
            role=_patterns,
        ),
        max_size=4,
    )
)
def test_a_budget_is_sent_unchanged(budgets: list[Budget]) -> None:
    """Over the wire a budget is the same, its limits without end and its kinds of numbers, too."""
    request = Open(agent="ada", budgets=remote_call.encode_budgets(budgets))
    opening = wire.read(msgspec.Raw(wire.encode(request)), Open)
    restored = remote_call.Program(opening.budgets, "").rules.budgets
    assert list(restored) == budgets
    numbers = [(type(each.limit), type(each.reserve)) for each in budgets]
    assert [(type(each.limit), type(each.reserve)) for each in restored] == numbers


@pytest.mark.parametrize(
    "budgets",
    [
        *(7, {"name": "x"}, ["x"], [{"name": "x"}], [{"name": "x", "limit": 1, "more": 2}]),
        *(
            [{"name": "", "limit": 1}],
            [{"name": "x", "limit": "1"}],
            [{"name": "x", "limit": None}],
        ),
        *([{"name": "x", "limit": 1, "tool": 7}], [{"name": "x", "limit": 1, "reserve": -1}]),
        *([{"name": "x", "limit": 1, "reserve": math.inf}], [{"name": "x", "limit": 1}] * 101),
    ],
)
def test_what_is_no_budget_is_refused(budgets: Any) -> None:
    """Whatever a client sends as budgets: an error of the caller's, before anything is done."""
    with pytest.raises((BadName, BadValue)):
        remote_call.Program(wire.dump(budgets), "")
