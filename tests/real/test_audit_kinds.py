"""Changed copies of published files are reported by kind; the originals have no findings."""

import copy
import json
import random
from datetime import datetime, timedelta

import pytest

import hansard
from tests.real import support
from tests.real.converters import game24

pytestmark = [
    pytest.mark.real,
    pytest.mark.thorough(
        quick="tests/audit/test_kinds.py::test_each_planted_kind_is_reported_alone"
    ),
]

AIRLINE = "airline_claude-sonnet-4-5_aide.json"
OTHER = "airline_button-claude-opus-4-6_distyl.json"
PUZZLES = {
    "io": "gpt-4_0.7_naive_standard_sample_100_start900_end1000.json",
    "tot": "gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json",
}


def _flipped(publication):
    """Flip three rewards, first alone, then with their parts, so only `db_match` differs."""
    for run in publication["simulations"][:9:3]:
        run["reward_info"]["reward"] = 1.0 - run["reward_info"]["reward"]
    run["reward_info"]["reward_breakdown"]["DB"] = run["reward_info"]["reward"]


def _copied(publication):
    """Copy one task's conversation to eight tasks."""
    runs = publication["simulations"]
    longest = max(runs, key=lambda run: len(run["messages"]))
    for run in [run for run in runs if run is not longest][:7]:
        for name in ("messages", "agent_cost", "user_cost"):
            run[name] = copy.deepcopy(longest[name])
        began = datetime.fromisoformat(run["start_time"])
        for number, message in enumerate(run["messages"]):
            message["timestamp"] = (began + timedelta(seconds=1.37 * number)).isoformat()


def _dropped(publication):
    """Tasks that failed are left out."""
    publication["simulations"] = [
        run for run in publication["simulations"] if run["reward_info"]["reward"] == 1.0
    ]


def _retried(publication):
    """Add a second trial of each task, half an hour after the first; leave out the failed ones."""
    seeded = random.Random(4)
    for run in list(publication["simulations"]):
        again = copy.deepcopy(run)
        if run["reward_info"]["reward"] < 1.0:
            continue
        again.update(id=f"{run['id']}-2", trial=1)
        for message in [*again["messages"], again]:
            for name in ("timestamp", "start_time", "end_time"):
                if message.get(name):
                    later = timedelta(minutes=30, seconds=seeded.uniform(0, 9))
                    message[name] = (datetime.fromisoformat(message[name]) + later).isoformat()
        for message in again["messages"]:
            if message["role"] == "assistant" and message["content"]:
                message["content"] = " ".join(reversed(message["content"].split()))
        publication["simulations"].append(again)


def _earlier(publication):
    """Three runs of the last tasks began nine hours earlier, before all others."""
    began = sorted(publication["simulations"], key=lambda run: run["start_time"])
    for run in began[-3:]:
        for each in [*run["messages"], run]:
            for name in ("timestamp", "start_time", "end_time"):
                if each.get(name):
                    when = datetime.fromisoformat(each[name]) - timedelta(hours=9)
                    each[name] = when.isoformat()


def _mixed(publication):
    """Another model answers in fifteen runs."""
    for run in publication["simulations"][10:25]:
        for message in run["messages"]:
            if (message.get("raw_data") or {}).get("model"):
                message["raw_data"]["model"] = "claude-opus-4-1-20250805"


FORGED = {
    "flipped": (_flipped, {"contradicts its checks"}),
    "copied": (_copied, {"over tasks"}),
    "dropped": (_dropped, {"tasks lacking"}),
    "retried": (_retried, {"fewer trials", "trials differ"}),
    "earlier": (_earlier, {"early starts"}),
    "mixed": (_mixed, {"several models", "undeclared model"}),
}
"""Changes made to a file, and the kinds of findings that detect each."""

TOPICS = {
    "flipped": {"scores"},
    "copied": {"copies"},
    "dropped": {"selection"},
    "retried": {"selection"},
    "earlier": {"selection"},
    "mixed": {"models"},
}


BESIDE = ("dropped", "retried", "mixed")
"""Changes that are compared with the other system's file."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a workspace for all of these."""
    home = tmp_path_factory.mktemp("kinds")
    with hansard.connect(support.WORKSPACE, data_dir=home):
        yield support.Place(home)


@pytest.fixture(scope="module")
def audit_lines(place, real_data, tmp_path_factory):
    """All findings, after the import of the published files and of five changed copies."""
    folder, tau2 = tmp_path_factory.mktemp("forged"), real_data / "tau2-bench" / "dev"
    for name, (change, _) in FORGED.items():
        publication = json.loads((tau2 / AIRLINE).read_bytes())
        change(publication)
        (folder / f"{name}.json").write_text(json.dumps(publication))
        place.imported("tau2-bench", folder / f"{name}.json", name, "sonnet")
        if name in BESIDE:
            place.imported("tau2-bench", tau2 / OTHER, name, "opus")
    place.imported("tau2-bench", tau2 / AIRLINE, "published-tau2", "sonnet")
    place.imported("tau2-bench", tau2 / OTHER, "published-tau2", "opus")
    tau = real_data / "tau-bench" / "dev"
    place.imported("tau-bench", tau / "gpt-4o-airline.json", "published-airline", "gpt-4o")
    for arm in ("tool-calling", "tool-calling-with-preconditions"):
        file = tau / f"agentverify_{arm}_retail0-99.json"
        place.imported("tau-bench", file, "published-retail", arm)
    for arm, name in PUZZLES.items():
        file = folder / f"{arm}.jsonl"
        support.write(file, game24.convert(real_data / "tree-of-thought" / "dev" / "game24" / name))
        place.imported("chat-jsonl", file, "published-game24", arm)
    return place.call("audit", "--json").lines


@pytest.mark.parametrize("name", FORGED)
def test_a_changed_copy_is_reported_under_its_kind(audit_lines, name):
    """Each change is reported under its own kind, and no other kind finds anything."""
    mine = [row for row in audit_lines[:-1] if row["experiment"] == name]
    assert {row["what"] for row in mine} == FORGED[name][1]
    assert {row["topic"] for row in mine} == TOPICS[name]
    assert all(row["link"].startswith(f"hansard run show {row['run']} --at ") for row in mine)


def test_findings_have_their_figures(audit_lines):
    """The figures of each forgery stand in its findings."""
    facts = {(row["experiment"], row["what"]): row["fact"] for row in audit_lines[:-1]}
    assert sum(row["experiment"] == "flipped" for row in audit_lines[:-1]) == 3
    assert "stands in 8 runs" in facts["copied", "over tasks"]
    assert "arm sonnet lacks 14 of the 50 tasks" in facts["dropped", "tasks lacking"]
    assert (
        "14 of the 50 tasks of arm sonnet have fewer trials than the 2"
        in (facts["retried", "fewer trials"])
    )
    words = "claude-sonnet-4-5 answered in 35 runs, claude-opus-4-1 answered in 15 runs"
    assert words in facts["mixed", "several models"]
    assert facts["mixed", "undeclared model"].startswith("claude-opus-4-1-20250805 answered in 15 ")


def test_published_runs_are_silent(audit_lines, record_property):
    """The audit has no findings in 700 published runs, and lists the checks that it could not
    make.
    """
    mine = [row for row in audit_lines[:-1] if (row["experiment"] or "").startswith("published-")]
    looked = [
        row
        for row in audit_lines[-1]["looked"]
        if (row["experiment"] or "").startswith("published-") and row["topic"] == "selection"
    ]
    runs = sum(row["looked"] for row in looked)
    print(f"false alarms: {len(mine)} in {runs} published runs")  # noqa: T201 -- the rate is reported
    record_property("false_alarms", len(mine))
    assert (mine, runs) == ([], 700)
    blind = {
        (row["topic"], row["experiment"]): row["why_not"]
        for row in audit_lines[-1]["looked"]
        if row["why_not"]
    }
    assert blind["models", "published-airline"] == "no model is recorded"
    assert blind["models", "published-tau2"] == "no model is recorded in 50 of 100 runs"
    assert blind["times", "published-retail"] == "no times of a source are recorded"
