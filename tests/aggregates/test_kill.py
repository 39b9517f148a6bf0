"""A trading book whose traders are killed: an order and its step are both there, or neither is."""

import os
import random
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.bus.portal import portal
from hansard.domain.aggregate_types import KIND, AggregateChanged
from hansard.domain.ids import AgentStream
from tests.faults._warm import run
from tests.faults.support import Stage

pytestmark = pytest.mark.slow

TRADING = Path(__file__).with_name("programs") / "trading.py"
FUNDS = Decimal("1000.00")
TRADERS = ("ada", "bob")
DAYS = 3
BEGUN_S_MAX = 60.0
END_S_MAX = 170.0

Saved = set[tuple[str, int, str, int]]
"""(agent, step, aggregate, version)"""


def steps_of(stage: Stage) -> Saved:
    """Return the saves that the recorded steps report."""
    saves: Saved = set()
    tools: dict[tuple[str, int], str] = {}
    for stored in stage.commits():
        if not isinstance(stored.stream, AgentStream):
            continue
        agent = stored.stream.agent
        for recorded in stored.commit.events:
            data = msgspec.json.decode(recorded.data)
            if recorded.type == "step.requested.v1":
                tools[agent, data["step"]] = data["tool"]
                continue
            save = tools.get((agent, data.get("step", 0))) == "aggregate.save"
            if save and recorded.type == "step.completed.v1":
                for one in data["result"]["saved"]:
                    saves.add((agent, data["step"], one["id"], one["version"]))
    return saves


def changes_of(stage: Stage) -> list[tuple[Any, AggregateChanged]]:
    """Return the recorded changes that this run's steps made to aggregates."""
    commits = portal().run(stage.record.workspace.log.read_kind(KIND))
    events = [
        (stored, stored.commit.version + place, recorded)
        for stored in commits
        for place, recorded in enumerate(stored.commit.events)
    ]
    changes = [
        ((stored, version), msgspec.json.decode(recorded.data, type=AggregateChanged))
        for stored, version, recorded in events
    ]
    return [(where, change) for where, change in changes if change.run == stage.run]


class Book(msgspec.Struct):
    """Current state: the ids of the orders, and the balance of the account."""

    orders: list[str]
    left: Decimal


def check(stage: Stage) -> Book:
    """Check that each order has its step and no money is lost; return the recorded state."""
    newest: dict[tuple[str, int, str], int] = {}
    spent, placed = Decimal(0), Decimal(0)
    orders: list[str] = []
    paid: list[str] = []
    for (stored, version), change in changes_of(stage):
        who = (stored.commit.actor.agent, change.step, stored.stream.id)
        newest[who] = max(version, newest.get(who, 0))
        state = msgspec.json.decode(change.state)
        if change.event == "account-paid.v1":
            spent += Decimal(state["amount"]["$decimal"])
            paid.append(state["order"]["$uuid"])
        elif change.event == "order-placed.v1":
            placed += Decimal(state["limit"]["$decimal"])
            orders.append(stored.stream.id)
    assert sorted(orders) == sorted(set(paid))
    assert len(paid) == len(orders)
    assert {(*who, version) for who, version in newest.items()} == steps_of(stage)
    assert spent == placed
    return Book(orders, FUNDS - spent)


@pytest.mark.parametrize(
    ("when", "days"),
    [
        ("before", 1),
        *(pytest.param(when, 2, marks=pytest.mark.thorough) for when in ("before", "after")),
    ],
)
def test_a_trader_killed_at_each_append_leaves_both_or_neither(stage: Stage, when: str, days: int):
    """An order and its step are both on record or neither; resumed, each order is placed once."""
    number = 1
    while True:
        stage.begin(f"{when}-{number}")
        settings: dict[str, Any] = {"agent": "ada", "owner": f"{when}-{number}", "days": days}
        child = stage.start(TRADING, number=number, when=when, **settings)
        deadline = time.monotonic() + BEGUN_S_MAX
        while not Path(child.job.marker).exists() and child.process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if child.process.poll() is not None:  # it has fewer appends than that
            assert child.end().error == ""
            break
        child.kill()
        check(stage)
        report = stage.go_on(TRADING, **settings)
        assert report.error == "", report.message
        book = check(stage)
        assert len(book.orders) == days
        assert report.results == str(book.left)
        number += 1
    assert number > 2 * days + 1


@pytest.mark.thorough(quick="test_a_trader_killed_at_each_append_leaves_both_or_neither")
@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_two_traders_of_one_account_are_killed_again_and_again(stage: Stage, rounds, evidence):
    """After random kills each order has its step, and at the end every cent is accounted for."""
    count, seed = rounds(3, 200), random.randrange(2**32)
    chance = random.Random(seed)
    in_the_middle = conflicts = 0
    for number in range(count):
        owner = f"desk-{number}"
        stage.begin(owner)
        arguments: dict[str, Any] = {"owner": owner, "days": DAYS}
        children = [stage.start(TRADING, agent=agent, **arguments) for agent in TRADERS]
        deadline = time.monotonic() + BEGUN_S_MAX
        while not stage.world.read("began") and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.15))
        for child in chance.sample(children, len(children)):
            child.kill()
            in_the_middle += child.process.returncode != 0
        check(stage)
        children = [stage.start(TRADING, agent=agent, **arguments) for agent in TRADERS]
        reports = [child.end(END_S_MAX) for child in children]
        assert [report.error for report in reports] == ["", ""], (seed, reports)
        book = check(stage)
        assert len(book.orders) == DAYS * len(TRADERS), seed
        assert str(book.left) in [report.results for report in reports], seed
        conflicts += sum(
            step.error is not None and step.error.type == "AggregateConflict"
            for agent in stage.view().agents.values()
            for step in agent.steps.values()
        )
    assert in_the_middle > 0, f"no kill of seed {seed} came before the end"
    evidence.record(
        "aggregates.traders_killed",
        rounds=count,
        in_the_middle=in_the_middle,
        conflicts=conflicts,
        orders=count * DAYS * len(TRADERS),
        lost=0,
        doubled=0,
    )


# ------------------------------------------------------------ the example


BOOK = Path(__file__).parents[2] / "examples" / "trading_book" / "book.py"
README = BOOK.with_name("README.md").read_text()
PROGRAM_S_MAX = 170


@pytest.mark.thorough(
    quick="tests/aggregates/test_kill.py::test_a_trader_killed_at_each_append_leaves_both_or_neither"
)
def test_the_trading_book_prints_what_its_readme_says(tmp_path: Path, data_dir: Path, workspace):
    """Run, run again, run as another trader: the same orders, each once."""
    place = {"HANSARD_DATA_DIR": str(data_dir), "HANSARD_WORKSPACE": workspace}

    def book(*arguments: str) -> str:
        env = {"PATH": os.environ.get("PATH", ""), **place}
        done = run([str(BOOK), *arguments], cwd=tmp_path, env=env, timeout=PROGRAM_S_MAX)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = book()
    assert first in README
    shown = book("--book")
    assert book() == first
    assert book("--book") == shown
    assert book("book-1", "bob") in README
    lines = book("--book").splitlines()
    assert lines[0] == "account desk: 40.22, 10 orders"
    assert len(lines) == 11
