"""BFCL: the same 1,700 cases under two ways to call functions, and the published table."""

import csv
import json
from collections import Counter
from statistics import fmean, quantiles, stdev

import msgspec
import pytest

from hansard.agents.workspace import RunLife
from tests.real import support
from tests.real.converters import bfcl

pytestmark = pytest.mark.real

ARMS = {"prompt": "gpt-4o-2024-05-13", "fc": "gpt-4o-2024-05-13-FC"}
"""The model's name in the files, by arm."""

TABLE = {"prompt": "GPT-4o-2024-05-13 (Prompt)", "fc": "GPT-4o-2024-05-13 (FC)"}
"""Name of each arm in the published table."""

COLUMNS = {
    "Overall Acc": None,
    "Simple Function AST": ("simple", "java", "javascript"),
    "Python Simple Function AST": ("simple",),
    "Java Simple Function AST": ("java",),
    "JavaScript Simple Function AST": ("javascript",),
    "Multiple Functions AST": ("multiple_function",),
    "Parallel Functions AST": ("parallel_function",),
    "Parallel Multiple AST": ("parallel_multiple_function",),
    "Simple Function Exec": ("executable_simple", "rest"),
    "Python Simple Function Exec": ("executable_simple",),
    "REST Simple Function Exec": ("rest",),
    "Multiple Functions Exec": ("executable_multiple_function",),
    "Parallel Functions Exec": ("executable_parallel_function",),
    "Parallel Multiple Exec": ("executable_parallel_multiple_function",),
    "Relevance Detection": ("relevance",),
}
"""Columns of the table that are a share of right cases, and of which categories; None is all."""

SUMMARIES = {"AST Summary": "AST", "Exec Summary": "Exec"}
"""Columns that are the mean of four others: those of which the name ends so."""

FOUR = ("Simple Function", "Multiple Functions", "Parallel Functions", "Parallel Multiple")

DOLLARS = {"input_tokens": 5e-6, "output_tokens": 15e-6}
"""The model's price of a token when the table was made."""


class Arm(msgspec.Struct):
    """Recorded data of one arm."""

    report: dict[str, object]
    lives: list[RunLife]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a workspace of its own for this data set."""
    with support.opened(tmp_path_factory.mktemp("bfcl")) as made:
        yield made


@pytest.fixture(scope="module")
def arms(place, real_data, tmp_path_factory):
    """Both arms, imported."""
    folder = tmp_path_factory.mktemp("chats")
    reports = {}
    for arm, model in ARMS.items():
        file = folder / f"{arm}.jsonl"
        support.write(file, bfcl.convert(real_data / "bfcl" / "dev", model))
        reports[arm] = place.imported("chat-jsonl", file, "bfcl", arm)
    lives = place.lives()
    return {
        arm: Arm(reports[arm], [life for life in lives if life.state.assigned.arm == arm])
        for arm in ARMS
    }


@pytest.fixture(scope="module")
def stored(place, arms):
    """Return the commits of both arms, by run."""
    commits: dict[str, list[support.Stored]] = {}
    for commit in place.stored():
        commits.setdefault(commit.run, []).append(commit)
    return commits


@pytest.fixture(scope="module")
def table(real_data):
    """Return the published rows, by arm."""
    with (real_data / "bfcl" / "dev" / "data.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["Model"]: row for row in csv.DictReader(file)}
    return {arm: rows[name] for arm, name in TABLE.items()}


def _share(lives, categories):
    """Percent of right cases in some categories, as the record scores them."""
    right = [
        life.state.scores["valid"]
        for life in lives
        if categories is None or life.state.workflow in categories
    ]
    return 100 * fmean(right)


@pytest.mark.thorough(
    quick="real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
def test_both_arms_answer_the_same_1700_cases(arms):
    """1,700 scored cases an arm, the same tasks in both, all under one experiment, no `sql`."""
    tasks = [Counter(life.state.assigned.task for life in arm.lives) for arm in arms.values()]
    assert tasks[0] == tasks[1]
    assert len(tasks[0]) == tasks[0].total() == 1_700
    every = [life.state for arm in arms.values() for life in arm.lives]
    assert {state.assigned.experiment for state in every} == {"bfcl"}
    assert bfcl.UNSCORED not in {state.workflow for state in every}


@pytest.mark.thorough(
    quick="real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
def test_the_published_shares_come_out_of_the_record(arms, table):
    """Accuracies of 80.53 and 83.00, and those by category, equal the published ones."""
    overall = {}
    for arm, recorded in arms.items():
        shares = {name: _share(recorded.lives, parts) for name, parts in COLUMNS.items()}
        for name, ending in SUMMARIES.items():
            shares[name] = fmean(shares[f"{part} {ending}"] for part in FOUR)
        assert {name: float(table[arm][name].rstrip("%")) for name in shares} == {
            name: pytest.approx(share, abs=0.0051) for name, share in shares.items()
        }
        overall[arm] = round(shares["Overall Acc"], 2)
    assert overall == {"prompt": 80.53, "fc": 83.00}


@pytest.mark.thorough(quick="real/test_tau2_bench.py::test_the_agents_cost_is_that_of_its_messages")
def test_latency_and_cost_come_out_of_the_record(arms, stored, table):
    """Latency, its spread and the cost of 1,000 cases are as published."""
    for arm, recorded in arms.items():
        latency = [life.state.scores["latency_s"] for life in recorded.lives]
        messages = [
            message
            for life in recorded.lives
            for commit in stored[life.run]
            for message in commit.events("message.added.v1")
        ]
        assert len(messages) == 1_700
        cost = fmean(
            sum(message["usage"][name] * price for name, price in DOLLARS.items())
            for message in messages
        )
        computed = {
            "Latency Mean (s)": fmean(latency),
            "Latency Standard Deviation (s)": stdev(latency),
            "Latency 95th Percentile (s)": quantiles(latency, n=20, method="inclusive")[-1],
            "Cost ($ Per 1k Function Calls)": 1_000 * cost,
        }
        assert {name: round(value, 2) for name, value in computed.items()} == {
            name: float(table[arm][name]) for name in computed
        }


@pytest.mark.thorough
def test_every_call_is_a_step_that_is_listed_as_unanswered(arms, stored, real_data):
    """Each unanswered call is an open step with its arguments, and is listed."""
    expected = {}
    for run in bfcl.convert(real_data / "bfcl" / "dev", ARMS["fc"]):
        for call in run["messages"][0].get("tool_calls", []):
            expected[call["id"]] = (call["function"]["name"], call["function"]["arguments"])
    steps = {
        step["call_id"]: (step["tool"], step["arguments"])
        for life in arms["fc"].lives
        for commit in stored[life.run]
        for step in commit.events("step.requested.v1")
    }
    assert steps.keys() == expected.keys()
    broken = 0
    for id_, (tool, text) in expected.items():
        try:
            arguments = json.loads(text)
        except ValueError:
            arguments = {"arguments": text}
            broken += 1
        assert steps[id_] == (tool, arguments)
    assert broken == 2
    assert sorted(id_ for _, id_ in arms["fc"].report["unanswered"]) == sorted(expected)
    assert arms["prompt"].report["unanswered"] == []
