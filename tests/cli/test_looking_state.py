"""`run state` and its differences: laws that hold between any two points."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.domain.ids import RunStream
from hansard.domain.run import RunAssigned, RunScored
from tests.cli.planting import commit, plant
from tests.cli.support import WORKSPACE, Call, Runs

POINTS = ("life@1", "researcher_1@6", "researcher_1@20", "researcher_1@33", "now")


def state(call: Call, run: str, point: str, *more: str) -> dict[str | None, Any]:
    """Return a run's state at a point: its life under None, then each agent."""
    at = [] if point == "now" else ["--at", point]
    parts: dict[str | None, Any] = {}
    for line in call("run", "state", run, *at, *more, "--json").lines:
        about = {"kind", "run", "agent", "position"}
        parts[line.get("agent")] = {k: v for k, v in line.items() if k not in about}
    return parts


def difference(call: Call, run: str, before: str, after: str, *more: str) -> list[dict[str, Any]]:
    """Return the differences between two points."""
    return call("run", "state", run, "--diff", before, after, *more, "--json").lines


def applied(before: dict[str | None, Any], changes: list[dict[str, Any]]) -> dict[str | None, Any]:
    """Apply changes to a state: in order, but removals last and from the end."""
    after = copy.deepcopy(before)
    gone = [change for change in changes if change["change"] == "removed"]
    for change in [c for c in changes if c not in gone] + gone[::-1]:
        *path, last = change["path"]
        inside = after.setdefault(change["agent"], {})
        for part in path:
            inside = inside.setdefault(part, {}) if isinstance(inside, dict) else inside[part]
        if change["change"] == "removed":
            del inside[last]
        elif isinstance(inside, list) and change["change"] == "added":
            inside.insert(last, change["after"])
        else:
            inside[last] = change["after"]
    return after


def bare(parts: dict[str | None, Any]) -> str:
    """Return a state without absent agents and empty kinds."""
    kept = {
        str(name): {field: value for field, value in agent.items() if value != {}}
        for name, agent in parts.items()
    }
    return json.dumps({name: agent for name, agent in kept.items() if agent}, sort_keys=True)


@pytest.mark.fast(cases=5, slow=0)
@pytest.mark.parametrize("before", POINTS)
@pytest.mark.parametrize("after", ["researcher_1@6", "researcher_1@33", "now"])
def test_a_difference_applied_gives_the_other_state(call, runs, before, after):
    """Diff P Q made to the state at P is the state at Q, whichever is later."""
    changes = difference(call, runs.team, before, after)
    first, second = state(call, runs.team, before), state(call, runs.team, after)
    assert bare(applied(first, changes)) == bare(second)
    assert (changes == []) == (before == after)


def test_backwards_is_the_inverse(call: Call, runs: Runs):
    """Diff Q P is diff P Q with sides changed, added for removed."""
    there = difference(call, runs.team, "researcher_1@6", "now")
    back = difference(call, runs.team, "now", "researcher_1@6")
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    assert len(there) == len(back) > 5
    for change in there:
        turned = {
            **change,
            "change": opposite[change["change"]],
            "before": change["after"],
            "after": change["before"],
        }
        assert turned in back


def test_a_fork_begins_with_the_state_at_its_cut(call: Call, runs: Runs):
    """Its agent equals the parent's, and its streams continue from those versions."""
    there, here = state(call, runs.team, "researcher_1@6"), state(call, runs.forked, "now")
    assert here["researcher_1"] == there["researcher_1"]
    assert (
        here[None]["streams"]["agent/researcher/researcher_1"] == there["researcher_1"]["version"]
    )
    assert here[None]["forked"]["parent"] == runs.team


def test_the_state_is_whole(call: Call, runs: Runs):
    """Steps with all of their fields, facts by version, checkpoints and tools by name."""
    whole = state(call, runs.team, "now")
    researcher = whole["researcher_1"]
    assert len(researcher["steps"]) == 13
    assert researcher["steps"]["2"]["result"] == 13
    assert researcher["steps"]["6"]["attempts"][0]["error"]["type"] == "ValueError"
    assert researcher["checkpoints"]["gathered"]["data"] == {"papers": 3}
    [message] = researcher["messages"].values()
    assert (message["role"], message["content"], message["tokens"]) == ("user", "find papers", 3)
    [decision] = researcher["decisions"].values()
    assert decision["selected"] == "p1"
    assert whole[None]["labels"] == {"kind": "test"}
    text = call("run", "state", runs.team).out
    for fact in ("steps: 13", "gathered", 'user: "find papers"', "KeyError", "Which first?"):
        assert fact in text


def test_people_get_groups(call: Call, runs: Runs):
    """Each kind has a count, each item a sign, each change both values; counts equal the lines."""
    changes = difference(call, runs.team, "researcher_1@6", "researcher_1@20")
    text = call("run", "state", runs.team, "--diff", "researcher_1@6", "researcher_1@20").out
    assert f"{len(changes):,} differences" in text
    assert "steps: 4 added, 1 changed" in text
    assert '~ 2  status: "requested" → "completed"' in text
    assert "+ 3  add(a=5, b=1)  completed  → 6" in text
    back = call("run", "state", runs.team, "--diff", "researcher_1@20", "researcher_1@6").out
    assert "steps: 4 removed, 1 changed" in back
    assert "- 3  add(a=5, b=1)" in back


def test_one_agent_can_be_selected(call: Call, runs: Runs):
    """`--agent` narrows a state and a difference; an agent added in between is all new."""
    assert list(state(call, runs.team, "now", "--agent", "writer")) == [None, "writer"]
    changes = difference(call, runs.team, "researcher_1@6", "now", "--agent", "writer")
    assert {change["agent"] for change in changes} == {None, "writer"}
    result = call("run", "state", runs.team, "--diff", "researcher_1@6", "now", "--agent", "nobody")
    assert result.code == 2
    assert "nobody" in result.err


@pytest.mark.parametrize(
    "points",
    [("--at", "1", "--diff", "1", "2"), ("--diff", "yesterday", "now"), ("--diff", "now", "0")],
)
def test_what_cannot_be_compared_is_reported(call: Call, runs: Runs, points: tuple[str, ...]):
    """Exit code 2, nothing on stdout, one message."""
    result = call("run", "state", runs.team, *points)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")


def test_what_a_run_is_a_trial_of_and_who_judged_it(call: Call, record: hansard.Record, home: Path):
    """Assignment, newest value of each metric, and judge are in show and in differences."""
    with record.run("judged", run="judged-run", agent="a", role="r") as session:
        session.message("user", "hello")
    assigned = RunAssigned(experiment="greeting", arm="short", task="t-1", trial=2)
    judgements = [
        RunScored(metrics={"reward": 0.0, "cost": 3.5}, by="script"),
        RunScored(metrics={"reward": 1.0}, by="a person", because="it did it"),
    ]
    for version, event in enumerate([assigned, *judgements], 5):
        plant(home, WORKSPACE, (RunStream("judged-run"), commit(version, event, epoch=0)))
    run = call("run", "show", "judged-run", "--json").lines[0]
    assert run["assigned"] == {"experiment": "greeting", "arm": "short", "task": "t-1", "trial": 2}
    assert run["scores"] == {"reward": 1.0, "cost": 3.5}
    assert [each["by"] for each in run["judged"]] == ["script", "a person"]
    text = call("run", "show", "judged-run").out
    assert "experiment greeting, arm short, task t-1, trial 2" in text
    assert "reward 1, cost 3.5" in text
    assert "script, a person" in text
    changes = difference(call, "judged-run", "life@3", "now")
    values = {".".join(map(str, change["path"])): change["after"] for change in changes}
    assert (values["scores.reward"], values["judged.2"]["by"]) == (1.0, "a person")
    assert values["assigned"]["arm"] == "short"
