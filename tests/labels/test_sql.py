"""SQL lists the decisions that rest on untrusted input, with their sources."""

import pytest

from tests.fixtures import together
from tests.labels.support import apply_roles, history, read_secret

pytestmark = pytest.mark.slow

WHY = {"approver": "eve", "reason": "checked by hand"}


@pytest.fixture
def rows(call):
    """Return a function that runs a query and gives rows by column name."""

    def ask(sql: str) -> list[dict]:
        output = call("sql", sql, "--json")
        assert output.code == 0, output.err
        return output.lines

    return ask


@pytest.fixture
def team(record):
    """Ada reads an untrusted page, bob what she wrote, cyd what he wrote; dan reads neither."""
    with (
        record.run("w", run="r", agent="ada", role="researcher") as ada,
        record.run("w", run="r", agent="bob", role="analyzer") as bob,
        record.run("w", run="r", agent="cyd", role="writer") as cyd,
        record.run("w", run="r", agent="dan", role="writer") as dan,
    ):
        ada.board.put("title", "plans")
        ada.decide("read?", selected="yes")
        dan.message("user", "an aside", label="untrusted")
        dan.board.put("aside", 1)
        read_secret(ada)
        ada.board.put("found", "a plan")
        assert bob.board.get("title") == "plans"
        bob.decide("begin?", selected="yes")
        bob.board.get("found")
        bob.decide("compare?", selected="yes")
        bob.team.send("look", agent="cyd")
        cyd.team.inbox()
        cyd.decide("write?", selected="yes")
    return record


def test_a_decision_names_its_sources(team, rows):
    """A decision's sources are found over any number of agents; untainted decisions are absent."""
    decisions = rows("SELECT * FROM tainted_decisions ORDER BY position")
    assert [(row["question"], row["agent"]) for row in decisions] == [
        ("compare?", "bob"),
        ("write?", "cyd"),
    ]
    assert {tuple(row["sources"]) for row in decisions} == {("read (ada#2)",)}
    assert {row["confidentiality"] for row in decisions} == {"secret"}
    assert not any(row["is_declassified"] for row in decisions)
    [source] = rows("SELECT DISTINCT source FROM untrusted_sources")
    [completed] = [
        each.id
        for stored in history(team, "r")
        for each in stored.commit.events
        if each.type == "step.completed.v1"
        and stored.commit.label
        and b"plan" in bytes(each.data)
        and stored.commit.actor.agent == "ada"
        and b"about" in bytes(each.data)
    ]
    assert source["source"] == completed


@pytest.mark.thorough(quick="test_a_decision_names_its_sources")
def test_a_put_that_is_settled_rests_on_what_it_replaced(record, rows):
    """A resolved put rests on the value it replaced, although its write precedes its outcome."""
    with together(record, ada="researcher", bob="analyzer") as (ada, bob):
        read_secret(ada)
        ada.board.put("found", ["a plan"])
        bob.board.put("found", ["mine"], resolve=lambda mine, theirs: theirs + mine)
        bob.decide("write?", selected="yes")
    [row] = rows("SELECT sources FROM tainted_decisions")
    assert row["sources"] == ["read (ada#1)"]


@pytest.mark.thorough(quick="test_a_decision_names_its_sources")
def test_the_tables_say_what_the_log_says(team, rows):
    """Tables have a row for each labelled event, and the declarations of tools."""
    expected = {
        each.id: str(stored.commit.label)
        for stored in history(team, "r")
        for each in stored.commit.events
        if stored.commit.label is not None
    }
    labels = rows("SELECT event, confidentiality, untrusted FROM labels")
    by_event = {
        row["event"]: f"{row['confidentiality']}{' untrusted' if row['untrusted'] else ''}"
        for row in labels
    }
    assert by_event.keys() == expected.keys()
    assert {each.replace("public untrusted", "untrusted") for each in by_event.values()} == set(
        expected.values()
    )
    [tool] = rows("SELECT gives, takes FROM tools WHERE tool = 'read'")
    assert tool == {"gives": "secret untrusted", "takes": None}


@pytest.mark.thorough(quick="test_a_decision_names_its_sources")
def test_over_tasks_and_views(record, rows):
    """A source is found over every path by which untrusted input reaches an agent."""
    apply_roles(record)
    with together(record, ada="researcher", bob="researcher", cyd="researcher") as (ada, bob, cyd):
        ada.team.add("clear", agent="cyd")
        read_secret(ada)
        ada.team.add("compare", agent="bob")
        bob.team.claim()
        bob.decide("claimed?", selected="yes")
        cyd.team.claim()
        cyd.decide("clear?", selected="yes")
        cyd.view()
        cyd.decide("viewed?", selected="yes")
    sources = {row["question"]: row["sources"] for row in rows("FROM tainted_decisions")}
    assert sources == {"claimed?": ["read (ada#2)"], "viewed?": ["read (ada#2)"]}
