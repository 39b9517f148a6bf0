"""A decision in full: its source events, its alternatives, its conditions and its outcome."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.domain.experiment import ExperimentRegistered, Metric, PlannedArm
from tests.audit.support import Audited, decided_of_old
from tests.cli.support import environment
from tests.faults import _warm
from tests.faults._warm import run

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\x1b[31m\"'&"


class DecidedRun(msgspec.Struct, frozen=True):
    """A run with two decisions, and the ids that they were made from."""

    place: Audited
    first: str
    second: str
    third: str
    inputs: list[str]


@pytest.fixture(scope="module")
def explained(home: Path) -> DecidedRun:
    """Make a decision with one of each related fact."""
    place = Audited(home, "why")
    plan = ExperimentRegistered(
        arms=(PlannedArm("only", prompt="p 3", model="m-1", parameters=msgspec.Raw(b'{"t":0}')),),
        metrics=(Metric("reward"),),
    )
    with hansard.connect("why", data_dir=home) as record:
        record.experiments.register("e", plan)
        with record.run("other", run="before", agent="x", role="x") as session:
            session.message("user", "from another run")
        with record.run(
            "deciding",
            run="run-1",
            agent="ann",
            role="judge",
            experiment="e",
            task="t",
            on_behalf_of=("bob",),
            gate=[hansard.deny("publish", where={"to": lambda to: to == "all"}, name="few")],
        ) as session:

            @session.tool(effects="pure", version="7", kind="model")
            def rate(model: str, text: str) -> float:
                return len(text) / 10

            @session.tool(effects="pure")
            def publish(to: str) -> str:
                return f"published to {to}"

            session.message("user", f"What of {HOSTILE}?")
            rate("m-1", "abcdefg")
            inputs = _ids(place, "before", "run-1")
            session.decide(
                f"Publish {HOSTILE}?",
                selected="some",
                alternatives=[
                    {"id": "some", "score": 0.7, "reason": "it is rated so"},
                    {"id": "all", "score": 0.65, "rejected_because": "the gate refuses it"},
                    "none",
                ],
                inputs=inputs,
                threshold=0.6,
                confidence=0.8,
                reason="the rating passes",
            )
            try:
                publish("all")
            except hansard.Blocked:
                publish("some")
            session.hand_off("editor", {"count": 1}, reason="it is out")
            session.decide("Done?", selected="yes")
            publish("nobody")
            unknown = ["no such event"]
            session._drive(decided_of_old(session, unknown, question="Old?", selected="so"))
        record.experiments.score("run-1", {"reward": 1.0}, by="reader", reason="well done")
    decided = [row["decision"] for row in place.rows("SELECT decision FROM decided('run-1')")]
    first, second, third = decided
    return DecidedRun(place, first, second, third, inputs)


def _ids(place: Audited, *runs: str) -> list[str]:
    """Return the ids of a message of one run and of another's first outcome's commit."""
    before, run = runs
    message = place.value("SELECT id FROM events WHERE run = $1 AND type LIKE 'message%'", before)
    done = "SELECT commit_id FROM events WHERE run = $1 AND type = 'step.completed.v1'"
    return [message, place.value(done, run)]


def _parts(explained: DecidedRun, decision: str) -> dict[str, list[dict[str, Any]]]:
    by_part: dict[str, list[dict[str, Any]]] = {}
    for row in explained.place.rows("SELECT * FROM why($1)", decision):
        by_part.setdefault(row["part"], []).append({**row, "value": json.loads(row["value"])})
    return by_part


def test_a_decision_is_shown_with_its_context(explained: DecidedRun):
    """Each part, with its values."""
    parts = _parts(explained, explained.first)
    facts = {row["name"]: row["value"] for row in parts["decision"]}
    assert (facts["question"], facts["selected"]) == (f"Publish {HOSTILE}?", "some")
    assert facts["because"] == "the rating passes"
    assert facts["margin"] == pytest.approx(0.1)
    assert facts["lead"] == pytest.approx(0.05)
    assert facts["confidence"] == 0.8
    alternatives = [(row["number"], row["name"], row["value"]) for row in parts["alternative"]]
    assert [each[:2] for each in alternatives] == [(1, "some"), (2, "all"), (3, "none")]
    assert alternatives[0][2]["selected"] is True
    assert alternatives[1][2]["rejected_because"] == "the gate refuses it"
    [after] = parts["after"]
    assert (after["name"], after["value"]["status"]) == ("rate", "completed")
    assert after["value"]["words"] == "0.7"
    [message] = parts["message"]
    assert message["value"]["words"].startswith("user: What of <script>")
    [policy] = parts["policy"]
    assert (policy["name"], policy["value"]["when"]) == ("few", "after")
    followed = [(row["name"], row["value"]["status"]) for row in parts["followed"]]
    assert followed == [("publish", "blocked"), ("publish", "completed")]
    [handed] = parts["hand-off"]
    assert (handed["name"], handed["value"]["because"]) == ("editor", "it is out")
    [following] = parts["next"]
    assert following["event"] == explained.second
    assert {row["name"] for row in parts["outcome"]} == {"run completed", "scored"}
    assert "settlement" not in parts


def test_inputs_name_their_source_events(explained: DecidedRun):
    """An event of another run, a commit of this one (its events), and an id of nothing."""
    inputs = _parts(explained, explained.first)["input"]
    assert {row["number"] for row in inputs} == {1, 2}
    assert [row["number"] for row in inputs if row["name"] == "elsewhere"] == [1]
    rows = [
        {**row, "value": json.loads(row["value"])}
        for row in explained.place.rows("SELECT * FROM inputs($1)", explained.first)
    ]
    assert [row for row in inputs if row["number"] == 2] == [
        row for row in rows if row["number"] == 2
    ]
    [other] = [row for row in rows if row["number"] == 1]
    assert (other["event"], other["value"]["run"]) == (explained.inputs[0], "before")
    assert other["value"]["words"] == "user: from another run"
    commit = [row for row in rows if row["number"] == 2]
    events = explained.place.rows("SELECT id FROM events WHERE commit_id = $1", explained.inputs[1])
    assert {row["event"] for row in commit} == {row["id"] for row in events}
    assert {(row["value"]["tool"], row["value"]["step"]) for row in commit} >= {("rate", 1)}
    [nothing] = explained.place.rows("SELECT * FROM inputs($1)", explained.third)
    assert (nothing["name"], nothing["event"]) == ("unknown", "no such event")


def test_versions_and_who_acted(explained: DecidedRun):
    """The arm's prompt and model, the call's model, the tool and the principals are shown."""
    parts = _parts(explained, explained.first)
    versions = {(row["name"], json.dumps(row["value"])) for row in parts["version"]}
    assert {("experiment", '"e"'), ("arm", '"only"'), ("prompt", '"p 3"')} <= versions
    assert ("model", '"m-1"') in versions
    assert ("parameters", '{"t": 0}') in versions
    [rate] = [row["value"] for row in parts["version"] if row["name"] == "rate"]
    assert (rate["version"], rate["effects"]) == ("7", "pure")
    actor = {row["name"]: row["value"] for row in parts["actor"]}
    assert (actor["written by"], actor["on behalf of"]) == ("ann", ["bob"])


def test_all_earlier_input_of_its_agent_is_shown(explained: DecidedRun):
    """Every result and message before a decision, those before an earlier one, too."""
    parts = _parts(explained, explained.second)
    steps = [(row["number"], row["name"], row["value"]["status"]) for row in parts["after"]]
    assert steps == [
        (1, "rate", "completed"),
        (2, "publish", "blocked"),
        (3, "publish", "completed"),
    ]
    assert [row["value"]["last"] for row in parts["after"]] == [False, False, True]
    assert len(parts["message"]) == 1
    assert [row["value"]["words"] for row in parts["followed"]] == ["published to nobody"]


def test_the_answer_for_people_is_in_words(explained: DecidedRun):
    """The output has question, sentences, tables and addresses, and cannot move the cursor."""
    for reference in (explained.first, explained.first[:-1], _address(explained)):
        done = explained.place.call("why", reference)
        assert done.code == 0, done.err
        assert "Its score 0.7 passes the threshold 0.6 by 0.1." in done.out
        assert "It is 0.05 above the best of the others, 0.65." in done.out
        assert "the gate refuses it" in done.out
        assert "published to some" in done.out
        assert "\x1b" not in done.out
        position = _address(explained).partition(".")[0]
        assert f"hansard run show run-1 --at {position}" in done.err


def _address(explained: DecidedRun) -> str:
    query = "SELECT position || '.' || event_index FROM events WHERE id = $1"
    return str(explained.place.value(query, explained.first))


def test_a_run_lists_its_decisions(explained: DecidedRun):
    """By its id or as the last one."""
    for name in ("run-1", "last"):
        *decisions, last = explained.place.call("why", name, "--json").lines
        assert [row["decision"] for row in decisions] == [
            explained.first,
            explained.second,
            explained.third,
        ]
        assert (last["kind"], last["run"]) == ("decisions", "run-1")
    assert "3 decisions of run run-1" in explained.place.call("why", "run-1").out


def test_a_run_with_one_decision_explains_it(explained: DecidedRun):
    """No list of one: the answer is that of the decision's own id."""
    with hansard.Session(
        "deciding", run="one-decision", agent="ann", workspace="why", data_dir=explained.place.home
    ) as session:
        session.decide("go?", selected="yes")
    assert "go?" in explained.place.call("why", "one-decision").out
    *facts, last = explained.place.call("why", "one-decision", "--json").lines
    assert last["kind"] == "explained"
    assert explained.place.call("why", last["decision"], "--json").lines == [*facts, last]


def test_what_is_no_decision_is_refused_with_the_remedy(explained: DecidedRun):
    """Unknown, another event, not there, several."""
    done = explained.place.call("why", "zzz")
    assert done.code == 2
    assert "'zzz' was not found: give a decision's id" in done.err
    done = explained.place.call("why", "1.0")
    assert done.code == 2
    assert "is not a decision but experiment.registered.v1" in done.err
    assert "the tables end at" in explained.place.call("why", "99999.0").err
    shared = explained.first[:8]
    assert explained.second.startswith(shared)
    assert (
        f"several decisions or runs begin with '{shared}'"
        in explained.place.call("why", shared).err
    )


class _Page(HTMLParser):
    """A page as a browser sees it: elements, attributes, policy and style."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.policy = ""
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        assert not {"src", "href", "onclick", "style"} & named.keys()
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nobody_and_runs_nothing(explained: DecidedRun, tmp_path: Path):
    """One file: no script, no request, its style by hash; hostile text is text."""
    file = tmp_path / "why.html"
    done = explained.place.call("why", explained.first, "--html", str(file))
    assert done.code == 0, done.err
    page = file.read_text(encoding="utf-8")
    seen = _Page()
    seen.feed(page)
    assert "script" not in seen.tags
    assert "link" not in seen.tags
    assert "<script>alert(1)</script>" in seen.text
    assert "\x1b" not in page
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(style) == 1
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    assert seen.policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "script-src" not in seen.policy
    for text in ("the gate refuses it", "published to some", "as of position"):
        assert text in seen.text
    command = ["-m", "hansard", "-w", "why", "why", explained.first, "--html", "-"]
    env = environment(explained.place.home)
    written = _warm.run(command, cwd=explained.place.home, env=env, timeout=170)
    assert (written.returncode, written.stdout) == (0, page), written.stderr
    assert explained.place.call("why", explained.first, "--html", "-", "--json").code == 2


@pytest.fixture(scope="module")
def many(home: Path) -> tuple[Audited, str]:
    """Return a recommendation that rests on a profile, fifty more, and three scores."""
    place = Audited(home, "many")
    with hansard.Session(
        "recommending", run="r", agent="ann", role="judge", workspace="many", data_dir=home
    ) as session:

        @session.tool(effects="pure")
        def profile(user: int) -> dict[str, str]:
            return {"user": f"u{user}", "prefers": f"jazz {user}"}

        @session.tool(effects="pure")
        def compare(product: str) -> float:
            return {"X": 0.92, "Y": 0.78, "Z": 0.81}[product]

        profiles = [profile(user) for user in range(50)]
        scores = [compare(product) for product in "XYZ"]
        session.message("user", "What for u0?")
        session.decide(
            "Which product for u0?",
            selected="X",
            alternatives=[{"id": k, "score": v} for k, v in zip("XYZ", scores, strict=True)],
            inputs=[profiles[0]["prefers"], *profiles, *scores],
            threshold=0.85,
        )
        session.board.put("plan", {"of": "X"})
        seen = [session.board.entry("plan"), session.view()]
        session.decide("Is it planned?", selected="yes", inputs=seen)
    return place, place.value("SELECT decision FROM decisions WHERE threshold = 0.85")


@pytest.mark.thorough(quick="test_the_page_folds_without_a_script")
def test_what_is_many_is_folded_and_listed_by_all(many: tuple[Audited, str]):
    """The terminal folds with a count; --all and NDJSON have everything."""
    place, decision = many
    few = place.call("why", decision).out
    assert "and 43 before these; --all lists them" in few
    assert "and 47 more of profile; --all lists them" in few
    assert "It was made from 50 results of profile and 3 results of compare." in few
    for score in ("0.92", "0.78", "0.81"):
        assert re.search(rf"got +ann#\d+ compare +{score} +\d+\.\d", few)
    whole = place.call("why", decision, "--all").out
    assert "--all" not in whole
    assert "jazz 30" not in few
    for text in ("jazz 0", "0.92", "0.78", "0.81", "passes the threshold 0.85 by 0.07"):
        assert text in few
    assert all(f'"prefers":"jazz {user}"' in whole for user in range(50))
    *facts, _ = place.call("why", decision, "--json").lines
    numbers = [fact["number"] for fact in facts if fact["part"] == "after"]
    assert numbers == list(range(1, 54))
    inputs = [fact for fact in facts if fact["part"] == "input"]
    assert [fact["value"]["step"] for fact in inputs] == list(range(1, 54))
    assert all(fact["address"] and fact["event"] for fact in inputs)


@pytest.mark.thorough(quick="test_a_decision_is_shown_with_its_context")
def test_entries_and_views_are_shown_as_such(many: tuple[Audited, str]):
    """The writer, key and value of an entry are shown; a view is shown as a view."""
    place, _ = many
    decision = place.value("SELECT decision FROM decisions WHERE threshold IS NULL")
    output = place.call("why", decision).out
    assert re.search(r'1 +put +ann plan +\{"of":"X"\} +\d+\.0', output)
    assert re.search(r"2 +was shown +ann view judge +as judge, events: \d+ +\d+\.0", output)


def test_the_page_folds_without_a_script(many: tuple[Audited, str], tmp_path: Path):
    """The page holds everything; long parts open by a click."""
    place, decision = many
    file = tmp_path / "why.html"
    assert place.call("why", decision, "--html", str(file)).code == 0
    seen = _Page()
    seen.feed(file.read_text(encoding="utf-8"))
    assert seen.tags.count("details") == 2
    assert "and 47 more of profile" in seen.text
    assert "--all" not in seen.text
    assert all(f"jazz {user}" in seen.text for user in range(50))


# ------------------------------------------------------------ a recommendation


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
