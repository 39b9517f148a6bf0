"""Why was Product X recommended: the support desk's own program asked, in all four forms."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.audit.support import Audited
from tests.cli.support import environment
from tests.faults._warm import run

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[2] / "examples" / "support_desk" / "recommend.py"
ADDRESS = r"\d+\.\d+"


@pytest.fixture(scope="module")
def asked(home: Path) -> tuple[Audited, str]:
    """The program as its README starts it, and the decision it made."""
    place = Audited(home, "desk")
    env = environment(home, HANSARD_WORKSPACE="desk")
    done = run([str(PROGRAM), "customer-7"], cwd=home, env=env, timeout=170)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "customer-7 is recommended Product X, a season ticket\n"
    [decision] = [row["decision"] for row in place.rows("SELECT decision FROM decisions")]
    return place, decision


def _events(place: Audited) -> dict[str, dict[str, Any]]:
    """Each outcome of a step on record by its event: its tool and what it returned."""
    rows = place.rows(
        "SELECT events.id, steps.tool, result FROM steps JOIN events "
        "ON events.run = steps.run AND events.agent = steps.agent "
        "AND events.version = steps.outcome_version"
    )
    return {row["id"]: row for row in rows}


@pytest.mark.thorough(
    quick="tests/audit/test_why_recommended.py::test_json_and_sql_tell_it_with_the_event_of_each_line"
)
def test_the_text_tells_it_with_the_event_of_each_line(asked: tuple[Audited, str]):
    """The preference, the 50 profiles, 0.92 against 0.78 and 0.81, the threshold, the decision."""
    place, decision = asked
    told = place.call("why", decision, "--all").out
    assert re.search(r"Which product for customer-7\? +X\n", told)
    assert re.search(rf"position {ADDRESS}\.", told)
    assert "Because: 50 customers who prefer jazz rate it best" in told
    assert "Its score 0.92 passes the threshold 0.85 by 0.07." in told
    assert "It is 0.11 above the best of the others, 0.81." in told
    assert "It was made from 51 results of read_profile and 3 results of rate." in told
    for product, score in (("X", 0.92), ("Y", 0.78), ("Z", 0.81)):
        assert re.search(rf"\d  {product} +{score} .* {ADDRESS}\n", told)
        assert re.search(rf"got +adviser#\d+ rate +{score} +{ADDRESS}\n", told)
    mine = r'1 +got +adviser#1 read_profile +\{"customer":"customer-7","prefers":"jazz",'
    assert re.search(rf"{mine}.* {ADDRESS}\n", told)
    others = re.findall(
        rf'got +adviser#\d+ read_profile +\{{"customer":"(.*?)".* {ADDRESS}\n', told
    )
    assert others == ["customer-7", *(f"customer-{number}" for number in range(101, 151))]


def _check(facts: list[dict[str, Any]], place: Audited) -> None:
    """The same facts, each with its event, and the event says what the line does."""
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


def test_json_and_sql_tell_it_with_the_event_of_each_line(asked: tuple[Audited, str]):
    """Each fact names its event, and that event returned what the fact says."""
    place, decision = asked
    *facts, last = place.call("why", decision, "--json").lines
    assert last["kind"] == "explained"
    _check(facts, place)
    rows = place.rows("SELECT part, number, name, value, event FROM why($1)", decision)
    inputs = place.rows("SELECT * FROM inputs($1)", decision)
    found = [{**row, "value": json.loads(row["value"])} for row in rows if row["part"] != "input"]
    found += [{**row, "part": "input", "value": json.loads(row["value"])} for row in inputs]
    _check(found, place)


class _Rows(HTMLParser):
    """The text of a page's table rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[str] = []
        self._within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append("")
            self._within = True

    def handle_endtag(self, tag: str) -> None:
        self._within = self._within and tag != "tr"

    def handle_data(self, data: str) -> None:
        if self._within:
            self.rows[-1] += f" {data.strip()}"


@pytest.mark.thorough(
    quick="tests/audit/test_why_recommended.py::test_json_and_sql_tell_it_with_the_event_of_each_line"
)
def test_the_page_tells_it_with_the_event_of_each_line(asked: tuple[Audited, str], tmp_path: Path):
    """All of it is on the page, what is many too; each row ends with its address."""
    place, decision = asked
    file = tmp_path / "why.html"
    assert place.call("why", decision, "--html", str(file)).code == 0
    text = file.read_text(encoding="utf-8")
    assert "passes the threshold 0.85 by 0.07" in text
    page = _Rows()
    page.feed(text)
    rows = [" ".join(row.split()) for row in page.rows]
    for product, score in (("X", 0.92), ("Y", 0.78), ("Z", 0.81)):
        assert any(re.search(rf"^\d {product} {score} .* {ADDRESS}$", row) for row in rows)
        assert any(re.search(rf"got adviser#\d+ rate {score} {ADDRESS}$", row) for row in rows)
    profiles = [row for row in rows if re.search(r"got adviser#\d+ read_profile", row)]
    assert len(profiles) == 51
    assert all(re.search(rf" {ADDRESS}$", row) for row in profiles)
    assert '"prefers":"jazz"' in profiles[0]


def test_an_input_that_is_none_is_refused_when_it_is_stated(asked: tuple[Audited, str]):
    """It names the input and what is nearest, and nothing is recorded."""
    place, _ = asked
    with (
        hansard.connect("desk", data_dir=place.home) as record,
        record.run("refused", run="refused", agent="adviser", role="adviser") as session,
    ):
        session.tool(name="rate", effects="pure")(lambda product: 0.92)("X")
        with pytest.raises(hansard.BadValue, match=r"input 1: 0\.93 is nothing .* nearest: 0\.92"):
            session.decide("Which?", selected="X", inputs=[0.93])
        assert not session.state.facts
