"""Trajectories of ATIF as runs. They are written by hand; Harbor's own models accept them."""

import json
from typing import Any

import pytest

from hansard.domain import run as runs
from hansard.domain.agent import MessageAdded
from hansard.domain.decider import fold
from hansard.domain.ids import AgentStream
from hansard.domain.steps import StepCompleted, StepFailed, StepRequested
from hansard.ext.importers.chat import ChatRun, ImportDefaults, mapped, run_id
from hansard.ext.importers.sources import records
from tests.importers.support import NOW, events, log_of, of_type, rederived
from tests.importers.test_tau import Nobody

pytestmark = pytest.mark.later


def step(number: int, source: str, message: Any, **more: Any) -> dict[str, Any]:
    """Return a step."""
    time = f"2026-11-02T10:00:0{number}+00:00"
    return {"step_id": number, "timestamp": time, "source": source, "message": message, **more}


def call(id_: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool call."""
    return {"tool_call_id": id_, "function_name": name, "arguments": arguments}


METRICS = {"prompt_tokens": 120, "completion_tokens": 8, "cached_tokens": 100, "cost_usd": 0.25}

TRAJECTORY: dict[str, Any] = {
    "schema_version": "ATIF-v1.8",
    "session_id": "5e55",
    "agent": {"name": "terminus", "version": "2.0", "model_name": "m1", "tool_definitions": [{}]},
    "steps": [
        step(1, "system", "You have a shell."),
        step(2, "user", "List the files."),
        step(
            3,
            "agent",
            "I list them.",
            reasoning_content="One command does.",
            tool_calls=[call("c1", "shell", command="ls"), call("c2", "shell", command="bad")],
            observation={
                "results": [
                    {"source_call_id": "c1", "content": "a.txt"},
                    {"source_call_id": "c2", "content": "no", "extra": {"is_error": True}},
                ]
            },
            metrics=METRICS,
        ),
        step(4, "agent", "There is one.", metrics=METRICS),
    ],
    "final_metrics": {"total_cost_usd": 0.5, "total_prompt_tokens": 240, "total_steps": 4},
}


def read(tmp_path: Any, trajectory: dict[str, Any]) -> Any:
    """Return a trajectory as commits."""
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(trajectory, indent=1))
    watcher = Nobody()
    [(_, parsed)] = records("atif", path, ImportDefaults(), watcher)
    assert isinstance(parsed, ChatRun), parsed
    assert watcher.count == path.stat().st_size
    return mapped(parsed, run_id(parsed), path.name, NOW)


def plain(value: Any) -> Any:
    """Return a recorded value."""
    return json.loads(bytes(value))


def test_a_trajectory_is_a_run(tmp_path):
    """Steps are messages with their tokens, costs and times; the final metrics are the run's."""
    out = read(tmp_path, TRAJECTORY)
    messages = of_type(out, MessageAdded)
    assert [message.role for message in messages] == [
        *("system", "user", "assistant", "tool", "tool", "assistant")
    ]
    assert messages[2].usage == {
        "input_tokens": 120,
        "output_tokens": 8,
        "cached_tokens": 100,
        "cost": 0.25,
    }
    assert plain(messages[2].fields)["reasoning_content"] == "One command does."
    state = fold(runs.RunState(), events(out, "life"))
    assert state.scores == TRAJECTORY["final_metrics"]
    assert (state.workflow, state.status) == ("atif", "completed")
    assert state.labels == {
        "source": "atif",
        "source_file": "trajectory.json",
        "source_run": "5e55",
        "session": "5e55",
        "model": "m1",
        "atif": "ATIF-v1.8",
        "agent_version": "2.0",
    }
    times = [event.occurred_at for append in out.appends for event in append.commit.events]
    assert (times[0], times[-1]) == ("2026-11-02T10:00:01+00:00", "2026-11-02T10:00:04+00:00")
    assert out.tally.left_out == {"list of tool definitions": 1}


def test_its_calls_are_steps(tmp_path):
    """Results are matched by id; one that Harbor marks as an error is a failed step."""
    out = read(tmp_path, TRAJECTORY)
    requests = [(each.tool, plain(each.arguments)) for each in of_type(out, StepRequested)]
    assert requests == [("shell", {"command": "ls"}), ("shell", {"command": "bad"})]
    [done] = of_type(out, StepCompleted)
    assert plain(done.result) == "a.txt"
    [failed] = of_type(out, StepFailed)
    assert failed.error.message == "no"
    assert not any(checked.differs for checked in rederived(out))


def test_a_sub_agent_is_an_agent_of_the_run(tmp_path):
    """An embedded sub-agent is at the result that refers to it; an external one is counted."""
    inner = {
        "schema_version": "ATIF-v1.8",
        "trajectory_id": "helper-1",
        "agent": {"name": "helper", "version": "1"},
        "steps": [step(1, "user", "Count."), step(2, "agent", "Two.", metrics=METRICS)],
    }
    results = [
        {
            "source_call_id": "c1",
            "content": "Two.",
            "subagent_trajectory_ref": [
                {"trajectory_id": "helper-1"},
                {"trajectory_path": "elsewhere.json"},
            ],
        }
    ]
    outer = step(3, "agent", "", tool_calls=[call("c1", "ask")], observation={"results": results})
    whole = {**TRAJECTORY, "subagent_trajectories": [inner]}
    whole["steps"] = [*TRAJECTORY["steps"][:2], outer]
    out = read(tmp_path, whole)
    agents = [
        append.stream.agent for append in out.appends if isinstance(append.stream, AgentStream)
    ]
    assert set(agents) == {"terminus", "helper-1"}
    assert agents.index("helper-1", 2) < len(agents) - 1
    assert out.tally.left_out["trajectory of a sub-agent in another file"] == 1
    assert out.tally.unanswered == []
    assert out.tally.messages == 6


def test_without_final_metrics_it_is_open(tmp_path):
    """A run without final metrics is open, since its trajectory does not tell how it ended."""
    out = read(tmp_path, {**TRAJECTORY, "final_metrics": None})
    assert fold(runs.RunState(), events(out, "life")).status == "open"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema_version": "ATIF-v2.0"}, "schema_version: 'ATIF-v2.0' is not known"),
        ({"steps": [{"step_id": 1}]}, "Object missing required field `source`"),
        ({"steps": [step(1, "tool", "x")]}, "Invalid enum value 'tool' - at `$.steps[0].source`"),
        (
            {"steps": [{**step(1, "user", "x"), "timestamp": "yesterday"}]},
            "messages[0].timestamp: 'yesterday' is not a time",
        ),
        (
            {"subagent_trajectories": [{"steps": []}]},
            "subagent_trajectories[0].trajectory_id: None is missing or there twice",
        ),
    ],
)
def test_a_trajectory_that_is_wrong_is_refused_whole(
    bring_in, home, workspace, tmp_path, change, reason
):
    """A wrong trajectory is refused with place and remedy; nothing is on record."""
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps({**TRAJECTORY, **change}))
    result = bring_in(path)
    [line] = result.err.splitlines()
    assert line.startswith(f"{path}:1: {reason}")
    assert (result.code, log_of(home, workspace)) == (1, [])
