"""Comparability of a fork with its parent: `run diff` and the view `forks` agree."""

import itertools
import os
import random
from typing import Any

import pytest

import hansard
from hansard._version import SERVER_VERSION
from tests.cli.support import Call

pytestmark = pytest.mark.later

_workspaces = itertools.count(1)


@pytest.fixture(scope="module")
def workspace() -> str:
    """Return one workspace for all tests, each of which has its own runs."""
    return f"comparable-{os.getpid()}-{next(_workspaces)}"


class Program:
    """A program whose first message, model, tool text and shadow may change between its runs."""

    def __init__(self, **parts: Any) -> None:
        self.parts = {"prompt": "be exact", "model": "m-1", "code": 1, "shadow": False, **parts}

    def play(self, record: hansard.Record, run: str = "", *, mails: int = 1, asks: int = 2) -> str:
        """Run it, or continue a run; a refused mail is skipped."""
        parts = self.parts
        with record.run(
            "comparable", run=run or None, agent="ada", role="writer", settle=_again
        ) as session:
            ask = session.tool(effects="pure", kind="model", name="ask")(_asks(parts["code"]))
            mail = session.tool(name="mail", shadow=_shadow if parts["shadow"] else None)(_mail)
            if parts["prompt"]:
                session.message("system", parts["prompt"])
            for number in range(asks):
                ask(f"question {number}", parts["model"])
            for number in range(mails):
                try:
                    mail(f"{number}@example.org")
                except hansard.errors.ShadowedEffect:
                    continue
            return session.run


def _again(_: object) -> hansard.Verdict:
    return hansard.Verdict.RUN_AGAIN


def _asks(code: int) -> Any:
    def one(question: str, model: str | None) -> str:
        return f"{question} by {model}"

    def other(question: str, model: str | None) -> str:
        return f"{question}, says {model}"

    return one if code == 1 else other


def _mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def _shadow(to: str) -> str:
    return f"would send to {to}"


def rows(record: hansard.Record, run: str) -> dict[str, Any]:
    """Return a fork's row."""
    answer = record.sql("SELECT * FROM forks WHERE run = ?", run)
    [row] = answer.rows
    return dict(zip(answer.columns, row, strict=True))


def compared(call: Call, a: str, b: str) -> dict[str, Any]:
    """Return the answer of `run diff`."""
    [line] = [x for x in call("run", "diff", a, b, "--json").lines if x["kind"] == "comparability"]
    return line


def agree(call: Call, row: dict[str, Any], parent: str, fork: str) -> dict[str, Any]:
    """Both answers of a fork, which must be one."""
    line = compared(call, parent, fork)
    sameness = {each["name"]: each["sameness"] for each in line["respects"]}
    assert line["verdict"] == row["comparability"], (sameness, row)
    assert line["differs_in"] == row["differs_in"]
    assert line["not_on_record"] == row["not_on_record"]
    for name in ("code", "model", "prompt"):
        assert sameness[name] == row[name], name
    withheld = {how: row[f"withheld_{how}"] for how in ("outcome", "shadow", "refused", "edit")}
    assert line["withheld_b"] == withheld
    return line


CASES: tuple[tuple[dict[str, Any], dict[str, Any], str, list[str]], ...] = (
    ({}, {}, "comparable", []),
    ({}, {"model": "m-2"}, "differs", ["model"]),
    ({}, {"prompt": "be brief"}, "differs", ["prompt"]),
    ({}, {"code": 2}, "differs", ["code"]),
    ({}, {"mails": 2}, "differs", ["effects"]),
    ({}, {"mails": 2, "shadow": True}, "differs", ["effects"]),
    ({"model": None}, {}, "cannot tell", []),
    ({"prompt": ""}, {}, "cannot tell", []),
    ({}, {"asks": 0, "mails": 0}, "cannot tell", []),
    ({}, {"idle": True}, "nothing ran", []),
    ({"model": None}, {"code": 2}, "differs", ["code"]),
)
"""A program's options, its fork's changes, the verdict, and the differing respects."""


@pytest.fixture(scope="module")
def forked(record: hansard.Record) -> list[tuple[str, dict[str, Any]]]:
    """Run all cases before one SQL query; return the parent and the row of each case's fork."""
    made: list[tuple[str, str]] = []
    for parts, again, _, _ in CASES:
        parent = Program(**parts).play(record)
        fork = record.fork(parent, at="ada@1")
        sizes = {name: again[name] for name in ("mails", "asks") if name in again}
        rest = {name: value for name, value in again.items() if name not in sizes}
        if not rest.pop("idle", False):
            Program(**{**parts, **rest}).play(record, fork, **sizes)
        made.append((parent, fork))
    by_fork = {row["run"]: row for row in record.sql("FROM forks").dicts()}
    return [(parent, by_fork[fork]) for parent, fork in made]


@pytest.mark.fast(cases=2)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(number, marks=pytest.mark.thorough if number in (5, 7) else ())
        for number in range(len(CASES))
    ],
)
def test_the_verdict(call: Call, forked: list[tuple[str, dict[str, Any]]], case: int):
    """The verdict covers each respect, and those unknown because nothing is on record."""
    parent, row = forked[case]
    line = agree(call, row, parent, row["run"])
    assert (line["verdict"], line["differs_in"]) == CASES[case][2:]


@pytest.mark.thorough(quick="agents/test_forks.py::test_a_withheld_effect_is_an_event")
def test_people_are_shown_what_was_withheld(call: Call, record: hansard.Record):
    """Diff, trace, trail and SQL show the call, its arguments, its effect and its answer."""
    program = Program()
    parent = program.play(record)
    fork = record.fork(parent, at="ada@1")
    program.play(record, fork, mails=2)
    text = call("run", "diff", parent, fork).out
    assert "they also differ in effects" in text
    assert (
        "effects  differs: B: 2 effects withheld (1 answered with an outcome on record, 1 refused)"
        in text
    )
    assert "code     same: 2 tools that both called" in text
    assert "withheld: without an answer" in text
    trace = call("run", "trace", fork).out
    assert "withheld: answered with an outcome on record" in trace
    assert "would do  Send a mail." in call("run", "trace", fork, "--full").out
    lines = call("run", "trace", fork, "--json").lines
    assert [line["withheld"] for line in lines] == [None, None, "outcome", "refused"]
    trail = record.sql("SELECT what, tool, detail FROM trail(?) WHERE what = 'withheld'", fork)
    assert trail.rows == [
        ("withheld", "mail", "outcome: Send a mail."),
        ("withheld", "mail", "refused: Send a mail."),
    ]
    view = record.sql(
        "SELECT tool, effects, arguments::VARCHAR, how, would, status, parent FROM withheld "
        "WHERE run = ? ORDER BY position, version",
        fork,
    )
    assert view.rows == [
        ("mail", "once", '{"to":"0@example.org"}', "outcome", "Send a mail.", "completed", parent),
        ("mail", "once", '{"to":"1@example.org"}', "refused", "Send a mail.", "blocked", parent),
    ]
    steps = record.sql("SELECT step, withheld FROM steps WHERE run = ? ORDER BY step", fork)
    assert steps.rows == [(1, None), (2, None), (3, "outcome"), (4, "refused")]


def test_runs_that_are_no_forks_are_compared_too(call: Call, record: hansard.Record):
    """Two runs that share nothing are compared in full."""
    a, b = Program().play(record), Program(model="m-2").play(record)
    assert compared(call, a, b)["differs_in"] == ["model"]
    assert "model    differs: A: m-1; B: m-2" in call("run", "diff", a, b).out
    assert compared(call, a, Program().play(record))["verdict"] == "comparable"


@pytest.mark.thorough(quick="test_the_verdict")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2, 3))]
)
def test_both_answers_are_one(call, record, seed, rounds):
    """Both agree for forks of forks, cut anywhere, changed in any part."""
    chance = random.Random(seed)
    known = [Program().play(record, mails=2)]
    for _ in range(rounds(3, 6)):
        parent = chance.choice(known)
        own = record.sql("SELECT DISTINCT position FROM events WHERE run = ? ORDER BY 1", parent)
        ends = [position for (position,) in own.rows]
        fork = record.fork(
            parent, at=chance.choice(ends), effects=chance.choice(["shadow", "shadow", "live"])
        )
        program = Program(
            prompt=chance.choice(["be exact", "be exact", "", "be brief"]),
            model=chance.choice(["m-1", "m-1", "m-2", None]),
            code=1,
            shadow=chance.random() < 0.4,
        )
        program.play(record, fork, mails=chance.randint(0, 3), asks=chance.randint(0, 3))
        assert agree(call, rows(record, fork), parent, fork)["respects"]
        known.append(fork)


def test_a_tool_of_hansard_has_its_version_as_code(call: Call, record: hansard.Record):
    """A call of the board is compared by the version of Hansard on record."""

    def noted() -> str:
        with record.run("notes", agent="ada", role="writer") as session:
            session.board.put("topic", "prices")
            return session.run

    text = call("run", "diff", noted(), noted()).out
    assert f"those of Hansard of version {SERVER_VERSION}; other code is not recorded" in text
    assert "no source of" not in text
