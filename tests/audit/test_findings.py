"""Planted faults: each is found by its view alone; honest runs have no finding."""

import contextlib
import random
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.domain.events import Recorded
from hansard.domain.experiment import ExperimentRegistered, Metric, PlannedArm
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.roles.model import May, RoleDefined, RoleRule
from hansard.domain.run import RunScored
from tests.audit.planted import Planted, kill
from tests.audit.planted import plant as plant_faults
from tests.audit.support import Audited
from tests.cli.planting import commit, plant
from tests.examples.support import TRADING, new_desk
from tests.real.support import write
from tests.team.forging import forged, message, message_added, publish

pytestmark = pytest.mark.slow

EXPECTED = {
    "intent": ("orphan_intents", "waiting"),
    "storm": ("retries", "storm"),
    "flip": ("threshold_flips", "selected would fail"),
    "late": ("late_outcomes", "completed"),
    "cost": ("gaps", "cost"),
    "spread": ("odd_selection", "late starts"),
}


def test_each_planted_fault_is_reported_by_its_view_alone(planted: Planted):
    """Six runs, six faults, six findings."""
    assert planted.place.findings() == {
        run: {EXPECTED[about]} for run, about in planted.about.items()
    }


def test_every_query_of_the_tour_runs(planted: Planted):
    """Each has a sentence before it that ends, and is SQL over the tables that there are."""
    queries = statements()
    assert len(queries) >= 15
    for words, _ in queries:
        assert re.search(r"\?.*\.$", words), words
    answers = planted.place.answers(*((sql, []) for _, sql in queries))
    answered = [sql for (_, sql), rows in zip(queries, answers, strict=True) if rows]
    assert len(answered) > 2, answered


def test_the_command_exits_with_1_if_there_are_findings(planted: Planted, honest: Planted):
    """A clean workspace gives 0, and both outputs name the position."""
    done = planted.place.call("audit", "--json")
    assert done.code == 1, done.err
    *findings, summary = done.lines
    assert summary["findings"] == len(findings) == 6
    assert summary["topics"] == {
        "costs": 1,
        "intents": 2,
        "retries": 1,
        "selection": 1,
        "thresholds": 1,
    }
    assert all(row["evidence"] and row["question"] for row in findings)
    assert {row["link"] for row in findings if row["run"] == "fetch-1"} == {
        "hansard run show fetch-1 --at "
        + str(
            planted.place.value(
                "SELECT min(position) FROM events WHERE type LIKE 'step.req%' AND run = 'fetch-1'"
            )
        )
    }
    assert {row["run"] for row in findings} == set(planted.about)
    assert summary["position"] == planted.place.value("SELECT position FROM progress")
    done = honest.place.call("audit")
    assert done.code == 0, done.out
    assert re.search(r"nothing found in .*intents.*retries.*selection", done.out)
    assert "  overrides: no refusals and settlements are recorded" in done.out


def test_a_call_with_effects_after_the_end_of_its_run_is_found(home: Path):
    """A run that a person cancels while its agent is at work: only later effects are reported."""
    place = Audited(home, "ended")
    with (
        hansard.connect("ended", data_dir=home) as record,
        record.run("mailing", run="stopped") as session,
    ):

        @session.tool
        def send(to: str) -> str:
            return to

        @session.tool(effects="pure")
        def look(to: str) -> str:
            return to

        send("a@example.org")
        record.cancel("stopped", by="eva")
        look("b@example.org")
        send("b@example.org")
    [found] = place.rows("SELECT * FROM findings(0.01)")
    assert (found["view"], found["kind"], found["step"]) == ("late_outcomes", "after the end", 3)
    assert (found["topic"], found["severity"]) == ("effects", "high")
    assert "send (agent_1#3) is completed and was called after the run was recorded as" in (
        found["fact"].replace(found["agent"], "agent_1")
    )


@pytest.mark.thorough(quick="test_the_command_exits_with_1_if_there_are_findings")
def test_the_command_takes_a_run_and_the_size_of_a_flip(planted: Planted):
    """A run lists its own findings; a smaller flip is none; an unknown run is an error."""
    done = planted.place.call("audit", "fetch-1")
    assert done.code == 1
    assert "storm: fetch (reader#1) took 6 attempts" in done.out
    assert "run fetch-1, as of position" in done.out
    assert planted.place.call("audit", "choice-1", "--flip", "0.001").code == 0
    assert "see 'hansard runs'" in planted.place.call("audit", "nowhere").err


@pytest.mark.thorough(quick="audit/test_kinds.py::test_each_planted_kind_is_reported_alone")
def test_findings_are_folded_and_filtered(home: Path):
    """Findings are worst first, folded and filtered; an unknown name lists the known ones."""
    place = Audited(home, "folded")
    with hansard.connect("folded", data_dir=home) as record:
        for number in range(5):
            with record.run("w", run=f"r{number}") as session:
                session.decide(
                    "?", selected="a", alternatives=[{"id": "a", "score": 0.5}], threshold=0.5
                )
        with contextlib.suppress(TimeoutError), record.run("doubt", run="doubt") as session:

            @session.tool
            def send(to: str) -> str:
                raise TimeoutError

            send("x")
    output = place.call("audit").out
    assert output.index("high  intents: 1 of this kind") < output.index(
        "low  thresholds: 5 of this kind; 3 shown, --all shows all"
    )
    assert output.count("selected would fail: run r") == 3
    assert "not checked:\n" in output
    assert "\n  overrides: no refusals and settlements are recorded" in output
    assert "checked, nothing found:\n  effects: " in output
    settle = r"hansard run settle doubt '?\w+#1'? \(--happened RESULT or --did-not-happen\)"
    assert re.search(rf"\n {{6}}next: {settle}\n", output)
    assert place.call("audit", "--all").out.count("selected would fail: run r") == 5
    assert len(place.call("audit", "--json").lines) == 7
    for options, count in (
        (("--kind", "thresholds"), 5),
        (("--kind", "in doubt"), 1),
        (("--kind", "orphan_intents", "--kind", "thresholds"), 6),
        (("--severity", "medium"), 1),
    ):
        assert place.call("audit", *options, "--json").lines[-1]["findings"] == count
    retries = place.call("audit", "--kind", "retries")
    assert (retries.code, "nothing found in retries" in retries.out) == (0, True)
    severe = place.call("audit", "--severity", "high", "--kind", "thresholds")
    assert (
        "no finding of this severity; 5 less severe findings left out by --severity" in severe.out
    )
    assert "nothing found" not in severe.out
    [doubt] = place.call("audit", "--kind", "in doubt", "--json").lines[:-1]
    command, _, choice = doubt["next"].partition(" (")
    assert choice == "--happened RESULT or --did-not-happen)"
    done = place.call(*shlex.split(command)[1:], "--did-not-happen")
    assert (done.code, place.call("audit", "--kind", "in doubt").code) == (0, 0), done.err
    for options, error in (
        (("--kind", "x"), "no kind of finding has the name 'x': there are "),
        (("--severity", "x"), "no severity has the name 'x': there are high, medium and low"),
        (("--experiment", "x"), "no experiment has the name 'x': there is none"),
    ):
        done = place.call("audit", *options)
        assert done.code not in (0, 1)
        assert error in done.err


@pytest.mark.thorough(quick="test_each_planted_fault_is_reported_by_its_view_alone")
def test_thresholds_turn_by_as_much_as_they_are_moved(home: Path):
    """Margins of every sign and size: found exactly where |margin| is within x."""
    place = Audited(home, "flips")
    seeded = random.Random(5)
    margins = [round(seeded.uniform(-0.2, 0.2), 3) for _ in range(40)]
    with hansard.connect("flips", data_dir=home) as record, record.run("f", run="f") as session:
        for number, margin in enumerate(margins):
            options: list[Any] = [{"id": "a", "score": 0.5 + margin}, "b"]
            session.decide(f"{number}?", selected="a", alternatives=options, threshold=0.5)
    for x in (0.0, 0.01, 0.1, 0.3):
        turned = {
            (int(row["fact"].partition("?")[0]), row["kind"])
            for row in place.rows("SELECT * FROM threshold_flips($1)", x)
        }
        assert turned == {
            (number, f"selected would {'fail' if margin >= 0 else 'pass'}")
            for number, margin in enumerate(margins)
            if (0.5 + margin >= 0.5 and 0.5 + margin < 0.5 + x)
            or (0.5 + margin < 0.5 and 0.5 + margin >= 0.5 - x)
        }


@pytest.mark.thorough
def test_an_intent_is_followed_through_what_became_of_it(home: Path):
    """The intent is listed while open, skipped by a later session or in doubt; not once settled."""
    place = Audited(home, "intents")
    kill(place, "mail-1")
    assert place.findings() == {"mail-1": {("orphan_intents", "waiting")}}
    with hansard.connect("intents", data_dir=home) as record:
        with record.run(run="mail-1", agent="sender", role="sender"):
            pass  # it continues without the call
        assert place.findings() == {"mail-1": {("orphan_intents", "ended")}}
        record.settle("mail-1", "1", "did_not_happen", by="ann", reason="nothing in the outbox")
        assert place.findings() == {}
        [row] = place.rows("SELECT * FROM policy_overrides")
        assert "as did_not_happen by ann" in row["fact"]
        assert "nothing in the outbox" in row["fact"]
        with contextlib.suppress(TimeoutError), record.run("doubt", run="doubt") as session:

            @session.tool
            def send(to: str) -> str:
                raise TimeoutError

            send("x")
    assert place.findings()["doubt"] == {("orphan_intents", "in doubt")}


def test_a_topic_with_a_finding_is_not_listed_as_not_checked(home: Path):
    """A call that was ordered to run again is an override, also in a record without refusals."""
    place = Audited(home, "again")

    def program(record: hansard.Record, to: str) -> None:
        with record.run("w", run="again") as session:
            session.tool(name="send", effects="once")(lambda to: to)(to)

    with hansard.connect("again", data_dir=home) as record:
        program(record, "ann")
        with pytest.raises(hansard.Diverged):
            program(record, "bob")
        record.settle("again", "1", "run_again", by="eva", reason="it must go out again")
    *_, summary = place.call("audit", "--json").lines
    [overrides] = [each for each in summary["looked"] if each["topic"] == "overrides"]
    assert (overrides["looked"], overrides["findings"], overrides["why_not"]) == (1, 1, None)


def test_a_blocked_call_that_ran_is_an_override(home: Path):
    """By the same agent without the rule, and by another; not another call, nor an earlier one."""
    place = Audited(home, "overrides")
    gate = [hansard.deny("remove")]

    def remove(session: hansard.Session, path: str) -> None:
        session.tool(name="remove", effects="pure")(lambda path: path)(path)

    with hansard.connect("overrides", data_dir=home) as record:
        for run, agent in (("same", "ann"), ("other", "bob")):
            with record.run("w", run=run, agent="eve", role="r") as session:
                remove(session, "b")  # before the rule
            with (
                pytest.raises(hansard.Blocked),
                record.run(run=run, agent="ann", role="r", gate=gate) as session,
            ):
                remove(session, "b")
            with record.run(run=run, agent=agent, role="r") as session:
                remove(session, "c")
        assert place.rows("SELECT run FROM policy_overrides") == []
        for run, agent in (("same", "ann"), ("other", "bob")):
            with record.run(run=run, agent=agent, role="r") as session:
                remove(session, "c")
                remove(session, "b")
    assert place.findings() == {
        "same": {("policy_overrides", "ran later")},
        "other": {("policy_overrides", "ran by another")},
    }
    facts = [row["fact"] for row in place.rows("SELECT * FROM policy_overrides ORDER BY kind")]
    assert "rule deny remove blocked the same call of ann#1" in facts[0]


def _look_five_times(record: hansard.Record, run: str, good: int | None) -> None:
    """Make the same call five times; at most one of them succeeds."""
    numbers = iter(range(5))
    with record.run("w", run=run) as session:

        @session.tool(effects="pure")
        def look(x: str) -> str:
            if next(numbers) != good:
                raise LookupError("gone")
            return x

        for _ in range(5):
            with contextlib.suppress(LookupError):
                look("x")


@pytest.mark.thorough(quick="test_each_planted_fault_is_reported_by_its_view_alone")
def test_calls_repeated_in_vain(home: Path):
    """Five failures of one call are found; not four, nor where one between them succeeded."""
    place = Audited(home, "vain")
    with hansard.connect("vain", data_dir=home) as record:
        for run, good in (("five", None), ("four", 4), ("mended", 3)):
            _look_five_times(record, run, good)
    assert place.findings() == {"five": {("retries", "repeated")}}


PLAN = ExperimentRegistered(
    arms=(PlannedArm("a"), PlannedArm("b")), metrics=(Metric("reward"),), planned=3, trials=2
)


def _trials(place: Audited, folder: Path, trials: list[tuple[str, int, int, bool]]) -> None:
    """Import runs: arm, task, trial, scored."""
    file = folder / "trials.jsonl"
    for arm_of_file in {arm for arm, *_ in trials}:
        write(
            file,
            (
                {
                    "run": f"{len(trials)} trials, {number}",
                    "task": task,
                    "trial": trial,
                    "messages": [],
                    "outcome": {"reward": 1.0} if scored else {"error": None},
                }
                for number, (arm, task, trial, scored) in enumerate(trials)
                if arm == arm_of_file
            ),
        )
        done = place.call(
            "import", "chat-jsonl", str(file), "--experiment", "e", "--arm", arm_of_file
        )
        assert done.code == 0, done.err


@pytest.mark.thorough(quick="audit/test_kinds.py::test_each_planted_kind_is_reported_alone")
def test_trials_that_do_not_fit_the_plan(home: Path, tmp_path: Path):
    """Double, surplus, unplanned and unscored trials are found, and missing ones at a stop."""
    place = Audited(home, "trials")
    with hansard.connect("trials", data_dir=home) as record:
        record.experiments.register("e", PLAN)
        _trials(place, tmp_path, [("a", 1, 0, True), ("a", 1, 1, True), ("b", 1, 0, True)])
        assert place.findings() == {}
        more = [("a", 2, 0, True), ("a", 2, 0, True), ("a", 2, 1, True), ("c", 1, 0, True)]
        _trials(place, tmp_path, [*more, ("b", 2, 0, False)])
        kinds = [row["kind"] for row in place.rows("SELECT kind FROM gaps ORDER BY kind")]
        assert kinds == ["no outcome", "not in the plan", "same trial", "trials"]
        record.experiments.stop("e", reason="enough")
    facts = place.rows("SELECT kind, fact FROM gaps WHERE kind IN ('trials', 'tasks')")
    facts_by_kind = sorted((row["kind"], row["fact"]) for row in facts)
    assert facts_by_kind == [
        ("tasks", "arm a of e has 2 tasks, and the plan says 3"),
        ("tasks", "arm b of e has 2 tasks, and the plan says 3"),
        ("tasks", "arm c of e has 1 task, and the plan says 3"),
        ("trials", "task 1 has 1 trial under arm b of e, and the plan says 2"),
        ("trials", "task 1 has 1 trial under arm c of e, and the plan says 2"),
        ("trials", "task 2 has 1 trial under arm b of e, and the plan says 2"),
        ("trials", "task 2 has 3 trials under arm a of e, and the plan says 2"),
    ]


@pytest.mark.thorough(quick="audit/test_kinds.py::test_each_planted_kind_is_reported_alone")
def test_what_a_source_claims_is_held_against_the_record(home: Path, tmp_path: Path):
    """A run's newest score and an arm's mean are compared with claims, to the claimed digits."""
    place = Audited(home, "claims")

    def bring_in(claims: dict[str, Any]) -> list[str]:
        """Import three runs of one arm, 2 of 3 solved, each with its claims."""
        file = tmp_path / "claims.jsonl"
        scores = [1, 1, 0]
        trials: list[dict[str, Any]] = [
            {"task": n, "messages": [], "outcome": {"reward": reward}, "claims": {"reward": reward}}
            for n, reward in enumerate(scores)
        ]
        trials[0]["claims"] |= claims
        trials[1]["labels"] = {"claim: reward": "as much as one likes"} if claims else {}
        trials[1].pop("claims")
        write(file, trials)
        done = place.call("import", "chat-jsonl", str(file), "--experiment", "e", "--arm", "a")
        assert done.code == 0, done.err
        rows = place.rows("SELECT fact FROM odd_scores ORDER BY kind")
        return [row["fact"] for row in rows]

    assert bring_in({}) == []
    place = Audited(home, "claims-short")  # 0.70 and 0.7 are the same in JSON
    (short,) = bring_in({"means": {"reward": 0.70}})
    assert short.startswith("claimed is a mean reward of 0.7 under arm a, and that of its 3")
    place = Audited(home, "claims-mean")
    assert bring_in({"means": {"reward": 0.67}}) == []
    with hansard.connect(place.workspace, data_dir=home) as record:
        (run,) = [run for run, life in record.runs() if life.assigned and life.assigned.task == "0"]
        record.experiments.score(run, {"reward": 0}, by="again")
    rows = place.rows("SELECT kind, fact FROM findings(0) WHERE view = 'odd_scores' ORDER BY kind")
    assert [(row["kind"], row["fact"]) for row in rows] == [
        (
            "claimed mean",
            (
                "claimed is a mean reward of 0.67 under arm a, "
                "and that of its 3 scored runs is 0.333333"
            ),
        ),
        ("claimed score", "claimed is reward 1 in task 0, and again says 0.0"),
    ]
    assert place.call("audit").code == 1


def test_unanswered_calls_of_messages(home: Path, tmp_path: Path):
    """A call that no message answers is found where the run ended; the step is an orphan."""
    place = Audited(home, "unanswered")
    call = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
    call_message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answered = {"role": "tool", "tool_call_id": "c1", "content": "there"}
    file = tmp_path / "chats.jsonl"
    with hansard.connect("unanswered", data_dir=home):
        write(
            file,
            [
                {"run": "good", "messages": [call_message, answered], "outcome": {}},
                {"run": "bad", "messages": [call_message], "outcome": {}},
                {"run": "open", "messages": [call_message]},
            ],
        )
        assert place.call("import", "chat-jsonl", str(file)).code in (0, 1)
    named = {
        row["run"]: row["name"]
        for row in place.rows("SELECT run, labels->>'source_run' AS name FROM runs")
    }
    kinds_by_run = {named[run]: kinds for run, kinds in place.findings().items()}
    assert kinds_by_run == {
        "bad": {("orphan_intents", "ended"), ("gaps", "unanswered call")},
        "open": {("orphan_intents", "waiting")},
    }


def test_what_the_log_holds_and_no_table_takes(home: Path):
    """An event type of a newer version, and a hole in a stream's versions."""
    place = Audited(home, "odd")
    with hansard.connect("odd", data_dir=home) as record:
        for run in ("new", "hole"):
            with record.run("w", run=run):
                pass
        at = place.rows(
            "SELECT run, max(version) AS v FROM events WHERE stream = 'life' GROUP BY run"
        )
        ends = {row["run"]: row["v"] for row in at}
        odd = Recorded("run.dreamt.v7", "d1", msgspec.Raw(b'{"of": "sheep"}'))
        scored = RunScored(metrics={"reward": 1.0}, by="judge")
        plant(home, "odd", (RunStream("new"), commit(ends["new"] + 1, odd, epoch=0)))
        plant(home, "odd", (RunStream("hole"), commit(ends["hole"] + 3, scored, epoch=0)))
    gaps = {row["run"]: row for row in place.rows("SELECT * FROM gaps")}
    assert gaps["new"]["kind"] == "unknown type"
    assert "1 event of type run.dreamt.v7" in gaps["new"]["fact"]
    assert gaps["hole"]["kind"] == "version hole"
    last = ends["hole"] + 3
    assert (
        f"has {ends['hole'] + 1} events, and their versions go from 1 to {last}"
        in (gaps["hole"]["fact"])
    )


# ------------------------------------------------------------ the tour of examples/audit.sql


TOUR = Path(__file__).parents[2] / "examples" / "audit.sql"


def statements() -> list[tuple[str, str]]:
    """Return each question: the sentence before it, and its SQL."""
    questions = []
    for block in TOUR.read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip().splitlines()
        words = " ".join(line.removeprefix("--").strip() for line in lines if line[:2] == "--")
        sql = "\n".join(line for line in lines if line[:2] != "--")
        if sql:
            questions.append((words, sql.removesuffix(";")))
    return questions


def office(place: Audited) -> None:
    """Record a team with a waiting, a refused and an unanswered agent, and one forged commit."""
    with hansard.connect(place.workspace, data_dir=place.home) as record:
        sees = RoleRule(name="all", kinds=("**",))
        record.roles.apply("clerk", RoleDefined(sees=(sees,), may=May(kinds=("message.added",))))
        asks = [hansard.ask_first(tool="post", timeout_s=0.2)]
        with (
            record.run("office", run="office-1", agent="ada", role="boss", gate=asks) as ada,
            record.run(run="office-1", agent="cyd", role="clerk") as cyd,
        ):
            ada.team.add("Read", task="read")
            ada.team.add("Write", waits_for=["read"], task="write")
            mine = ada.team.claim()
            assert mine is not None
            ada.team.complete(mine)
            ada.team.claim()
            with pytest.raises(hansard.Blocked):
                ada.tool(effects="once", name="post")(lambda: None)()
            with pytest.raises(hansard.Blocked):
                cyd.board.put("plan", 1)
        stream = AgentStream("office-1", "clerk", "cyd")
        version = record.state("office-1").vector[str(stream)] + 1
        made = (stream, forged(version, message_added(), by="ada", epoch=1))
        publish(place.home, message(place.workspace, version, made))


@pytest.fixture(scope="module")
def trade(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Return the trading example, killed and settled, and runs with one fault each."""
    place = Audited(home, "tour")
    plant_faults(place, tmp_path_factory.mktemp("chats"), honest=False)
    empty = tmp_path_factory.mktemp("texts")
    desk = new_desk(TRADING, tmp_path_factory.mktemp("desk"), empty, home, "tour")
    desk.start(kill_at="return enter_in_book")
    assert desk.start().returncode != 0
    desk.settle()
    done = desk.start()
    assert done.returncode == 0, done.stderr
    office(place)
    return place


@pytest.mark.thorough(quick="audit/test_findings.py::test_every_query_of_the_tour_runs")
def test_every_question_is_answered(trade: Audited):
    """Each answer has rows if such data exists."""
    questions = statements()
    answers = trade.answers(*((sql, []) for _, sql in questions))
    assert [words for (words, _), rows in zip(questions, answers, strict=True) if not rows] == []


@pytest.mark.thorough
def test_the_answers_are_those_of_the_trade(trade: Audited):
    """The settled order is reported as settled; at the decision no order was known."""
    queries = {
        key: next(sql for words, sql in statements() if words.startswith(key))
        for key in ("What did a person do", "What was known when", "Where did somebody")
    }
    person, known, over = trade.answers(*((sql, []) for sql in queries.values()))
    assert [(row["run"], row["what"]) for row in person] == [("trade-1", "settled")]
    assert {row["tool"] for row in known} == {"daily_prices", "moving_average", "judge"}
    assert {row["status"] for row in known} == {"completed"}
    assert [(row["kind"], row["run"]) for row in over] == [("settled", "trade-1")]
    assert "trade-1" not in trade.findings()
