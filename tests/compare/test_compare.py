"""`hansard compare`: one report in four forms, from numbers that SQL alone computed."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles as Tables
from tests.compare.conftest import EVIL, TASKS, TRIALS, trial
from tests.real.support import WORKSPACE, CommandOutput, Place, opened, write

pytestmark = pytest.mark.later

Compare = Callable[..., CommandOutput]


def _of(lines: list[dict[str, Any]], kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [
        line
        for line in lines
        if line["kind"] == kind and all(line[name] == value for name, value in fields.items())
    ]


@pytest.fixture(scope="session")
def compared(place: Place) -> Compare:
    """Return the comparison of the experiment, by the options; each is computed once."""

    @functools.cache
    def ask(*options: str) -> CommandOutput:
        output = place.call("compare", "greeting", *options)
        assert output.code == 0, output.err
        return output

    return ask


@pytest.fixture(scope="session")
def lines(compared: Compare) -> list[dict[str, Any]]:
    """Return the report as lines."""
    return compared("--json").lines


def test_the_report_has_its_experiment_and_position(place: Place, lines: list[dict[str, Any]]):
    """Position and digest of the log, the plan's standing, the baseline."""
    [head] = _of(lines, "report")
    assert lines[0] == head
    assert head["position"] == place.head()
    assert re.fullmatch("[0-9a-f]{64}", head["digest"])
    assert head["plan"]["standing"] == "exploratory: no plan is registered"
    assert head["baseline"] == "steady"


def test_what_is_better_is_reported(lines: list[dict[str, Any]]):
    """`bold` solves 9 of 24 tasks more and loses none: better, by every test."""
    [row] = _of(lines, "comparison", part="judged", arm="bold", default=True)
    assert row["verdict"] == "better"
    assert row["difference"] == pytest.approx(9 / TASKS)
    assert (row["wins"], row["losses"], row["ties"]) == (9, 0, 15)
    assert row["mcnemar_p"] == pytest.approx(2 * 0.5**9)
    assert 0 < row["low"] < row["difference"] < row["high"]
    assert row["always_low"] < row["low"]
    assert row["holm_p"] >= row["p"]
    assert (row["family"], row["base_trials"]) == (2, TASKS * TRIALS)


def test_what_is_missing_is_a_failure_and_leaving_it_out_is_shown(lines: list[dict[str, Any]]):
    """Failures count against an arm; leaving them out is shown and changes the verdict."""
    rows = {row["counting"]: row for row in _of(lines, "comparison", part="judged", arm=EVIL)}
    failure, excluded = rows["failure"], rows["excluded"]
    assert failure["default"]
    assert (failure["arm_missing"], failure["unmatched"], failure["tasks"]) == (21, 4, 20)
    assert failure["arm_mean"] == pytest.approx(8 / 20)
    assert failure["difference"] == pytest.approx(-4 / 20)
    assert (excluded["tasks"], excluded["valueless"], excluded["difference"]) == (13, 7, 0)
    assert failure["verdict"] == excluded["verdict"] == "depends on missing values"
    assert (failure["counted_verdict"], excluded["counted_verdict"]) == ("worse", "cannot tell")
    [unmatched] = _of(lines, "unmatched")
    assert (unmatched["without_it"], unmatched["tasks"], unmatched["first"][0]) == (EVIL, 4, "t20")
    account = {row["arm"]: row for row in _of(lines, "accounting")}
    assert (account[EVIL]["failed"], account[EVIL]["tasks_lacking"]) == (21, 4)


def test_a_missing_cost_is_no_cost_and_no_failure(lines: list[dict[str, Any]]):
    """Guardrails are shown beside, without a verdict in the forms for people."""
    [row] = _of(lines, "comparison", part="beside", arm="bold", metric="cost", default=True)
    assert row["better"] == "lower"
    assert row["difference"] == pytest.approx(0.01)
    metrics = {row["metric"] for row in _of(lines, "arm", part="beside")}
    assert {"cost", "tokens", "latency_ms"} <= metrics
    assert "success" not in metrics


def test_latency_is_what_the_source_says(lines: list[dict[str, Any]]):
    """Runs with times have a latency: the last message of task 23 is 23 s after the first."""
    rows = _of(lines, "arm", part="beside", metric="latency_ms", arm="steady")
    assert rows[0]["p99"] <= 23_000
    assert rows[0]["p50"] == pytest.approx(11_500)


def test_curves_of_a_metric_of_success(lines: list[dict[str, Any]]):
    """Tasks that always or never succeed: pass@k = pass^k = the mean, up to three trials."""
    rows = _of(lines, "curve", part="judged", arm="bold")
    assert [row["k"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["pass_at_k"] == row["pass_hat_k"] == pytest.approx(21 / TASKS)


@pytest.mark.slow
def test_tasks_that_went_worse_are_named_with_their_runs(place: Place, lines: list[dict[str, Any]]):
    """The failing arm's four tasks of those the baseline solves, and runs that exist."""
    rows = _of(lines, "regression")
    assert {row["task"] for row in rows} == {"t00", "t03", "t06", "t09"}
    output = place.call("run", "show", rows[0]["base_runs"][0], "--json")
    assert output.code == 0


@pytest.mark.thorough
def test_the_same_log_and_question_give_the_same_bytes(place, tmp_path, forget_answers):
    """A repeated question, to rebuilt tables, gives the same bytes in every form."""

    def ask(*arguments: str) -> str:
        output = place.call("compare", "greeting", *arguments)
        assert output.code == 0, output.err
        return output.out

    def all_forms(name: str) -> list[bytes]:
        forms = [ask("--json").encode(), ask().encode()]
        file = tmp_path / f"{name}.md"
        ask("--format", "markdown", "-o", str(file))
        return [*forms, file.read_bytes()]

    first = all_forms("first")
    assert place.call("rebuild").code == 0
    forget_answers()
    assert all_forms("rebuilt") == first


@pytest.mark.thorough(quick="test_every_number_is_the_answer_of_sql")
@pytest.mark.long
def test_rows_stand_in_one_order_whichever_way_is_counted(place, rounds, forget_answers):
    """With the worst case, each pair has a row for each other way of counting, too."""
    command = ("compare", "greeting", "--all-pairs", "--by", "domain", "--missing", "worst-case")
    answers = []
    for _ in range(rounds(2, 5)):
        forget_answers()
        answers.append(place.call(*command, "--json").lines)
    rows = _of(answers[0], "comparison", part="judged")
    assert {row["counting"] for row in rows} == {"worst-case", "failure", "excluded"}
    assert all(each == answers[0] for each in answers)


@pytest.mark.slow
def test_every_number_is_the_answer_of_sql(place: Place, lines: list[dict[str, Any]]):
    """The lines equal the rows of the macros, column for column, in a separate query."""
    store = Store(Tables.of(place.home, WORKSPACE).path, read_only=True)
    try:
        rows = store.rows(
            'FROM comparisons($1) ORDER BY slice, number, metric, arm, "default" DESC', ["greeting"]
        )
        judged = _of(lines, "comparison", part="judged")
        names = rows[0].keys()
        places = {row["arm"]: place for place, row in enumerate(_of(lines, "arm", part="judged"))}
        rows.sort(key=lambda row: places[row["arm"]])  # the report's order of arms
        assert [{name: row[name] for name in names} for row in judged] == rows
    finally:
        store.close()


@pytest.mark.thorough(quick="test_every_number_is_the_answer_of_sql")
@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--by", "domain", "--metric", "cost"], ", by_label := 'domain', only_metric := 'cost'"),
        ([], ""),
        (["--missing", "worst-case"], ", counted_as := 'worst-case'"),
        (["--all-pairs"], ", all_pairs := true"),
    ],
)
def test_a_combined_report_equals_each_macro_alone(place, compared, options, arguments):
    """This holds for comparisons, arms, curves and regressions, judged and beside."""
    lines = compared(*options, "--json").lines
    alone = arguments.replace(", all_pairs := true", "")
    beside = "" if "worst" not in arguments else ", counted_as := 'failure'"
    others = ["completion", "cost", "tokens", "latency_ms", "tool_error_rate"]
    metrics = {(line["part"], line["metric"]) for line in _of(lines, "arm")}
    each = sorted(metric for part, metric in metrics if part == "beside")
    assert each
    assert set(each) <= set(others)
    macros = {
        ("comparison", "judged"): f"comparisons('greeting'{arguments})",
        ("arm", "judged"): f"arm_summary('greeting'{alone})",
        ("curve", "judged"): f"pass_curves('greeting'{alone})",
        ("regression", None): f"regressions('greeting'{alone}) WHERE slice = ''",
        ("comparison", "beside"): f"comparisons('greeting', each := {each}{beside})",
        ("arm", "beside"): f"arm_summary('greeting', each := {each}{beside})",
    }
    store = Store(Tables.of(place.home, WORKSPACE).path, read_only=True)
    try:
        for (kind, part), sql in macros.items():
            rows = store.rows(f"FROM {sql}")
            part_lines = _of(lines, kind, part=part) if part else _of(lines, kind)
            if kind == "regression":  # of which some are shown
                assert part_lines
                assert all({name: row[name] for name in rows[0]} in rows for row in part_lines)
                worse = Counter((row["metric"], row["arm"]) for row in rows)
                shown = Counter((row["metric"], row["arm"], row["of"]) for row in part_lines)
                assert shown == {(*of, count): min(count, 10) for of, count in worse.items()}
                continue
            assert bool(rows) == bool(part_lines), sql
            mine = [{name: row[name] for name in rows[0]} for row in part_lines]
            assert sorted(mine, key=repr) == sorted(rows, key=repr), sql
    finally:
        store.close()


SIZES = [
    ([("a", "t1"), ("a", "t2")], "An interim analysis: 0 of 2 tasks planned"),
    ([("b", "t1")], "An interim analysis: 1 of 2 tasks planned"),
    ([("b", "t2"), ("a", "t1")], "An interim analysis: 2 of 4 trials planned"),
    ([("a", "t2"), ("b", "t1"), ("b", "t2")], "At its planned size, 2 tasks"),
    ([("a", "t3"), ("b", "t3"), ("a", "t3"), ("b", "t3")], "Past its planned size of 2 tasks"),
]
"""Trials that are added in turn, and the sentence that the comparison then has."""


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({2, 3}, id="two", marks=pytest.mark.slow),
        pytest.param({0, 1, 2, 3, 4}, id="all", marks=pytest.mark.thorough),
    ],
)
def test_each_way_of_not_being_at_the_planned_size_is_shown(data_dir, workspace, call, shown):
    """Missing arms, tasks and trials are early looks; too many are reported too."""
    plan = hansard.experiments.plan(
        question="?", arms=["a", "b"], metrics=["reward"], unit="trial", planned=2, trials=2
    )
    with hansard.connect(workspace, data_dir=data_dir) as record:
        record.experiments.register("sized", plan)

        for number, (trials, sentence) in enumerate(SIZES):
            for arm, task in trials:
                with record.run("w", experiment="sized", arm=arm, task=task) as session:
                    run = session.run
                record.experiments.score(run, {"reward": 1.0}, by="g")
            if number in shown:
                text = call("compare", "sized", "--show", "summary").out
                assert sentence in text
                early = "interim, " in text.splitlines()[2]
                assert early == (number in (1, 2)), text


def test_scores_of_another_metric_are_not_the_deciding_one(data_dir, workspace, call):
    """Ended runs without the deciding metric are named, as are the tasks of one arm."""
    metrics = ["success", "cost"]
    plan = hansard.experiments.plan(question="?", arms=["a", "b"], metrics=metrics, planned=3)
    with hansard.connect(workspace, data_dir=data_dir) as record:
        record.experiments.register("e", plan)
        for arm, task in (("a", "t1"), ("a", "t2"), ("b", "t1"), ("b", "t2"), ("b", "t3")):
            with record.run("w", experiment="e", arm=arm, task=task) as session:
                run = session.run
            success = {} if arm == "b" and task != "t1" else {"success": 1.0}
            record.experiments.score(run, {"cost": 0.1} | success, by="g")
    shown = call("compare", "e").out
    assert "without a value of success: b 2 of 3 (counted as failures)" in shown
    assert "So does a task that only one arm has, of the 3 planned" in shown
    accounts = _of(call("compare", "e", "--json").lines, "accounting")
    assert [(row["judged"], row["never_judged"]) for row in accounts] == [(2, 0), (1, 2)]
    audit = call("audit", "--experiment", "e")
    assert audit.out.count("has no score of success in task") == 2
    assert "only whether runs have scores is checked" in audit.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["nope"], "no experiment 'nope': known are greeting"),
        (["greeting", "--metric", "joy"], "no metric 'joy': known are completion, cost,"),
        (["greeting", "--baseline", "x"], "no arm 'x': known are steady, bold,"),
        (["greeting", "--by", "colour"], "no label of runs 'colour': known are domain, group,"),
        (["greeting", "--all-pairs", "--baseline", "bold"], "all pairs have no baseline, which"),
        (["greeting", "--show", "arms,x"], "no section 'x': there are summary, plan, arms, pairs,"),
        (["'; DROP TABLE runs; --"], "no experiment"),
    ],
)
def test_what_is_not_known_is_named_with_what_is(place: Place, arguments: list[str], fact: str):
    """An error, exit code 2, nothing on stdout."""
    output = place.call("compare", *arguments)
    assert (output.code, output.out) == (2, "")
    assert fact in output.err


@pytest.mark.slow
def test_the_text_says_the_verdicts(compared: Compare):
    """The text has verdicts, intervals and McNemar, and nothing that moves the cursor."""
    text = compared().out
    assert "bold against steady: better" in text
    assert "9 won, 0 lost, 15 tied; exact sign test of tasks p 0.0039" in text
    assert "depends on missing values (counted as failures: worse, left out: cannot tell)" in text
    assert "With 21 trials without a value left out instead: cannot tell, difference" in text
    assert "Failures are unevenly spread: 72 of 72 runs of steady ended as completed, 39 of" in text
    assert "paired by task, 20 tasks, 4 tasks of one arm only left out" in text
    assert "Tasks that only one arm has" in text
    assert "No size was planned" in text
    assert "\u202e" not in text
    assert "\\u202e" in text


@pytest.mark.slow
def test_ten_lines_say_what_it_comes_to_and_sections_are_chosen(place: Place):
    """The summary has warnings, verdicts and sizes; arms are ordered by the deciding metric."""
    first, warned, *lines = place.call("compare", "greeting", "--show", "summary").out.splitlines()
    assert len(lines) <= 8
    assert first == "Experiment greeting"
    assert warned.startswith("Failures are unevenly spread: 72 of 72 runs of steady ended as")
    assert lines[0].startswith("bold against steady: better, by Holm's p 0.0023 over 2 comparisons")
    depends = "depends on missing values (counted as failures: worse, left out: cannot tell)"
    assert depends in lines[1]
    assert lines[1].endswith("; 4 tasks of one arm only left out.")
    assert lines[2] == "Only steady was compared with each: --all-pairs ranks the arms."
    assert lines[3].startswith("204 runs of 3 arms, 24 tasks; exploratory: no plan is registered.")
    assert lines[4].endswith(" 21 of 60.")
    shown = place.call("compare", "greeting", "--show", "summary,arms,tasks").out.splitlines()
    assert "Sections below: arms, tasks. Choose with --show NAME,..." in shown
    table = shown[shown.index("") + 2 :][:4]
    assert [row.split()[0] for row in table[:3]] == ["arm", "bold", "steady"]
    assert "p50" not in table[0]
    assert not {"Plan and settings", "How the runs ended"}.intersection(shown)
    assert "Tasks that went worse" in shown


@pytest.mark.slow
def test_markdown_shows_names_as_they_are(place: Place):
    """A hostile name is escaped: no cell, no emphasis, no tag of its own."""
    file = place.home / "report.md"
    assert place.call("compare", "greeting", "--format", "markdown", "-o", str(file)).code == 0
    text = file.read_text()
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()]
    tables = [len(list(same)) for width, same in itertools.groupby(bars) if width]
    assert tables[0] == 2 + 3  # the head, the rule, an arm a row
    assert r"\<b\>\|$x\_1$" in text
    assert "**bold against steady: better, by Holm's p " in text


# ------------------------------------------------------------ experiments that are not whole


@pytest.mark.slow
def test_open_and_repeated_trials_are_shown_before_the_sizes(data_dir, workspace, call):
    """Open and doubled trials are reported, and unequal arms without a plan are not."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        trials = [("a", n) for n in (*range(12), 0)] + [("b", n) for n in range(2)]
        for arm, task in trials:
            with record.run("w", experiment="e", arm=arm, task=f"t{task}", trial=0) as session:
                run = session.run
            record.experiments.score(run, {"reward": task % 2}, by="g")
        with record.run("w", experiment="e", arm="b", task="t2", trial=0):
            output = call("compare", "e").out
            lines = call("compare", "e", "--json").lines
    assert "b against a: not finished: 1 run of b still open: end, resume or settle them" in output
    assert "No run failed; not finished: b 1 of 3; 1 trial recorded more than once (of a)" in output
    assert "9 tasks of one arm only and 1 task without a value under an arm left out" in output
    assert "Units are missing" not in output
    assert "ended as completed" not in output
    [row] = [line for line in lines if line["kind"] == "comparison" and line["default"]][:1]
    assert (row["verdict"], row["arm_open"], row["difference"]) == ("not finished", 1, 0)


@pytest.mark.slow
def test_a_test_that_disagrees_is_named_beside_the_verdict(data_dir, workspace, call):
    """Five tasks won and none lost of 20: better by the paired t test, not by the exact one."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for arm in "ab":
            for task in range(20):
                with record.run("w", experiment="e", arm=arm, task=f"t{task}") as session:
                    run = session.run
                record.experiments.score(run, {"reward": float(arm == "b" and task < 5)}, by="g")
    output = call("compare", "e", "--show", "summary,pairs").out
    assert "b against a: better, by p 0.0210 (paired t test); the exact McNemar test disagrees" in (
        output
    )
    assert "exact McNemar test p 0.0625, which is on the other side of 0.05: the tests" in output
    assert "two samples" not in output
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for task in range(20):
            with record.run("w", experiment="e", arm="c", task=f"t{task}") as session:
                run = session.run
            record.experiments.score(run, {"reward": float(task < 7)}, by="g")
    output = call("compare", "e", "--show", "summary,pairs").out
    verdict = "b against a: better, by Holm's p 0.0210 over 2 comparisons (paired t test)"
    assert f"{verdict}; the exact McNemar test disagrees, with Holm's p 0.0625" in output
    of_c = [line for line in output.splitlines() if line.startswith("c against a: better")]
    assert of_c, output
    assert not any("disagree" in line for line in of_c)  # Holm's p 0.0312


# ------------------------------------------------------------ impossible times of runs


TRIALS_MIN = 6


@pytest.mark.thorough(quick="audit/test_kinds.py::test_each_planted_kind_is_reported_alone")
def test_latency_is_not_compared_where_all_times_are_equal(tmp_path: Path):
    """If one arm has one time for all, latency has a sentence and a line, but no figure."""
    runs = [trial(arm, task, 0) for arm in ("steady", "bold") for task in range(TRIALS_MIN)]
    for run in runs:
        for message in run["messages"] if run["arm"] == "bold" else []:
            message["timestamp"] = "2026-01-01T00:00:01Z"
    write(tmp_path / "runs.jsonl", runs)
    with opened(tmp_path / "data") as place:
        assert place.call("import", "chat-jsonl", str(tmp_path / "runs.jsonl")).code == 0
        output = place.call("compare", "greeting").out
        lines = place.call("compare", "greeting", "--json").lines
    assert "Latency is not compared: all " in output, output
    assert " times of the 6 runs of arm bold are 2026-01-01 00:00:01." in output
    assert "latency_ms" not in output
    assert [line["odd"] for line in lines if line["kind"] == "odd_time"] == ["all equal"]
    assert not [line for line in lines if line.get("metric") == "latency_ms"]
