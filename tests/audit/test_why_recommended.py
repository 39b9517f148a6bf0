"""Reasons for recommending Product X: queries on the support desk's run, in JSON and SQL."""

import json
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.audit.support import Audited
from tests.cli.support import environment
from tests.faults._warm import run

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[2] / "examples" / "support_desk" / "recommend.py"


@pytest.fixture(scope="module")
def recommended(home: Path) -> tuple[Audited, str]:
    """Return the program as its README starts it, and the decision it made."""
    place = Audited(home, "desk")
    env = environment(home, HANSARD_WORKSPACE="desk")
    done = run([str(PROGRAM), "customer-7"], cwd=home, env=env, timeout=170)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "customer-7 is recommended Product X, a season ticket\n"
    [decision] = [row["decision"] for row in place.rows("SELECT decision FROM decisions")]
    return place, decision


def _events(place: Audited) -> dict[str, dict[str, Any]]:
    """Return each recorded step outcome by its event: tool and result."""
    rows = place.rows(
        "SELECT events.id, steps.tool, result FROM steps JOIN events "
        "ON events.run = steps.run AND events.agent = steps.agent "
        "AND events.version = steps.outcome_version"
    )
    return {row["id"]: row for row in rows}


def _check(facts: list[dict[str, Any]], place: Audited) -> None:
    """Check that the facts are the same and that each one's event states it."""
    values = {row["name"]: row["value"] for row in facts if row["part"] == "decision"}
    assert (values["selected"], values["score"], values["threshold"]) == ("X", 0.92, 0.85)
    options = {row["name"]: row["value"]["score"] for row in facts if row["part"] == "alternative"}
    assert options == {"X": 0.92, "Y": 0.78, "Z": 0.81}
    assert all(row["event"] for row in facts)
    events = _events(place)
    inputs = [(row, events[row["event"]]) for row in facts if row["part"] == "input"]
    assert [row["tool"] for _, row in inputs] == ["read_profile"] * 51 + ["rate"] * 3
    results = [json.loads(row["result"]) for _, row in inputs]
    assert (results[0]["customer"], results[0]["prefers"]) == ("customer-7", "jazz")
    assert results[51:] == [0.92, 0.78, 0.81]
    assert [json.loads(row["value"]["words"]) for row, _ in inputs] == results


def test_json_and_sql_tell_it_with_the_event_of_each_line(recommended: tuple[Audited, str]):
    """Each fact names its event, which returned that fact."""
    place, decision = recommended
    *facts, last = place.call("why", decision, "--json").lines
    assert last["kind"] == "explained"
    _check(facts, place)
    rows = place.rows("SELECT part, number, name, value, event FROM why($1)", decision)
    inputs = place.rows("SELECT * FROM inputs($1)", decision)
    facts_of_tables = [
        {**row, "value": json.loads(row["value"])} for row in rows if row["part"] != "input"
    ]
    facts_of_tables += [
        {**row, "part": "input", "value": json.loads(row["value"])} for row in inputs
    ]
    _check(facts_of_tables, place)


def test_an_input_that_is_none_is_refused_when_it_is_stated(recommended: tuple[Audited, str]):
    """The error names the input and the nearest one, and nothing is recorded."""
    place, _ = recommended
    with (
        hansard.connect("desk", data_dir=place.home) as record,
        record.run("refused", run="refused", agent="adviser", role="adviser") as session,
    ):
        session.tool(name="rate", effects="pure")(lambda product: 0.92)("X")
        with pytest.raises(
            hansard.BadValue, match=r"input 1: 0\.93 was returned by no call .* nearest: 0\.92"
        ):
            session.decide("Which?", selected="X", inputs=[0.93])
        assert not session.state.facts
