"""tau-bench and tau2-bench files as runs; the real ones are counted in tests/real."""

import json
from typing import Any

import pytest

from hansard.domain import run as runs
from hansard.domain.decider import fold
from hansard.domain.errors import BadValue
from hansard.domain.run import RunCompleted, RunFailed, RunStarted
from hansard.domain.steps import StepFailed
from hansard.ext.importers.chat import ChatRun, ImportDefaults, mapped, run_id
from hansard.ext.importers.sources import records
from tests.importers.support import NOW, asks, call, events, of_type, rederived, says


class Nobody:
    """A watcher that counts what was read."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, count: int) -> None:
        """Count on."""
        self.count += count

    def bad(self, bad: Any) -> None:
        """Expect no bad record."""
        raise AssertionError(bad)


def read(
    tmp_path, format_: str, document: Any, defaults: ImportDefaults | None = None
) -> list[Any]:
    """Return a document's runs as commits."""
    path = tmp_path / "file.json"
    path.write_text(json.dumps(document, indent=1))
    watcher = Nobody()
    out = []
    for _, parsed in records(format_, path, defaults or ImportDefaults(), watcher):
        assert isinstance(parsed, ChatRun), parsed
        out.append(mapped(parsed, run_id(parsed), path.name, NOW))
    assert watcher.count == path.stat().st_size
    return out


def life(out: Any) -> runs.RunState:
    """Return a run's life, folded."""
    return fold(runs.RunState(), events(out, "life"))


TAU = {
    "task_id": 7,
    "trial": 3,
    "reward": 0.5,
    "info": {"task": {"outputs": []}, "source": "user"},
    "traj": [says("user", "hi")],
    "records": {},
}


def test_a_run_of_tau_bench(tmp_path):
    """Task and trial are the assignment, the reward a score, the rest details and labels."""
    [out] = read(tmp_path, "tau-bench", [TAU], ImportDefaults("e", "a"))
    state = life(out)
    assert state.assigned == runs.RunAssigned(experiment="e", arm="a", task="7", trial=3)
    assert state.scores == {"reward": 0.5}
    assert json.loads(bytes(state.judged[0].details)) == TAU["info"]
    assert state.labels == {"source": "tau-bench", "source_file": "file.json", "records": "{}"}
    assert (state.workflow, state.status) == ("tau-bench", "completed")


def test_a_run_of_tau_bench_that_broke_is_failed(tmp_path):
    """The benchmark's own error in `info` makes a failed run."""
    broken = {**TAU, "traj": [], "reward": 0.0, "info": {"error": "rate limit", "traceback": "x"}}
    [out] = read(tmp_path, "tau-bench", [broken])
    [failed] = of_type(out, RunFailed)
    assert failed.error.message == "rate limit"
    assert life(out).scores == {"reward": 0.0}


def test_a_run_that_nobody_scored_stays_open(tmp_path):
    """A run without reward and info stays open."""
    [out] = read(tmp_path, "tau-bench", [{"task_id": "x", "traj": []}])
    assert life(out).status == "open"


def simulation(**more: Any) -> dict[str, Any]:
    """Return a simulation of tau2-bench."""
    flat = {"id": "t1", "name": "find", "arguments": {"order": 17}, "requestor": "assistant"}
    return {
        "id": "sim-1",
        "task_id": "12",
        "timestamp": "2026-03-03T19:21:00",
        "start_time": "2026-03-03T19:20:24.239382",
        "end_time": "2026-03-03T19:20:38.614242",
        "duration": 14.25,
        "termination_reason": "user_stop",
        "agent_cost": 0.5,
        "user_cost": 0.25,
        "reward_info": {"reward": 1.0, "db_check": {"db_match": True}},
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": [flat], "timestamp": "T1"},
            {"role": "tool", "id": "t1", "content": "Error: no", "error": True, "requestor": "x"},
        ],
        "trial": 0,
        "seed": 626729,
        **more,
    }


def document(*simulations: dict[str, Any]) -> dict[str, Any]:
    """Return a result file of tau2-bench."""
    info = {
        "git_commit": "abc",
        "agent_info": {"implementation": "llm_agent", "llm": "m1", "llm_args": {}},
        "user_info": {"implementation": "user_simulator", "llm": "m2"},
        "environment_info": {"domain_name": "airline", "policy": "be kind"},
    }
    return {"timestamp": "T", "info": info, "tasks": [{}], "simulations": list(simulations)}


def test_a_simulation_of_tau2_bench(tmp_path):
    """Costs and durations are metrics, times are claims, an error is a failed step."""
    [out] = read(tmp_path, "tau2-bench", document(simulation()))
    state = life(out)
    assert state.assigned == runs.RunAssigned(task="12", trial=0)
    assert state.scores == {"reward": 1.0, "agent_cost": 0.5, "user_cost": 0.25, "duration": 14.25}
    assert json.loads(bytes(state.judged[0].details)) == simulation()["reward_info"]
    assert state.labels == {
        "source": "tau2-bench",
        "source_file": "file.json",
        "source_run": "sim-1",
        "domain": "airline",
        "agent": "llm_agent",
        "agent_llm": "m1",
        "user": "user_simulator",
        "user_llm": "m2",
        "git_commit": "abc",
        "termination_reason": "user_stop",
        "timestamp": "2026-03-03T19:21:00",
        "seed": "626729",
    }
    claimed = [event.occurred_at for append in out.appends for event in append.commit.events]
    assert claimed[0] == "2026-03-03T19:20:24.239382"
    assert claimed[-1] == "2026-03-03T19:20:38.614242"
    assert "T1" in claimed
    [failed] = of_type(out, StepFailed)
    assert failed.error.message == "Error: no"
    assert not rederived(out)[0].differs


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"termination_reason": "max_steps"}, RunCompleted),
        ({"termination_reason": "too_many_errors"}, RunFailed),
        ({"termination_reason": "agent_error", "reward_info": None}, RunFailed),
        ({"termination_reason": None, "reward_info": None}, RunStarted),
    ],
)
def test_how_a_simulation_ended(tmp_path, more, kind):
    """A simulation's reason decides its outcome; without reason and reward it is open."""
    [out] = read(tmp_path, "tau2-bench", document(simulation(**more)))
    assert isinstance(events(out, "life")[-1], kind) or kind is RunStarted
    assert (life(out).status == "open") == (kind is RunStarted)


def test_a_claim_about_time_that_is_none_is_bad(tmp_path):
    """An overlong timestamp is refused, since it is kept verbatim."""
    with pytest.raises(BadValue, match="timestamp: 300,000 characters"):
        read(tmp_path, "tau2-bench", document(simulation(start_time="1" * 300_000)))


def test_each_format_has_ids_of_its_own(tmp_path):
    """The same content under another format is another run."""
    one = {"task_id": 1, "id": "1", "traj": [], "messages": []}
    [tau] = read(tmp_path, "tau-bench", [one])
    [tau2] = read(tmp_path, "tau2-bench", document(one))
    assert tau.run != tau2.run


def test_an_experiment_makes_other_runs(tmp_path):
    """One file imported for two experiments is stored twice."""
    [one] = read(tmp_path, "tau-bench", [TAU], ImportDefaults("e", "a"))
    [two] = read(tmp_path, "tau-bench", [TAU], ImportDefaults("e", "b"))
    [none] = read(tmp_path, "tau-bench", [TAU])
    assert len({one.run, two.run, none.run}) == 3


def test_a_long_leftover_is_no_label(tmp_path):
    """An additional field that is too long for a label is left out, as the format documents."""
    traj = [asks(call("c", "t"))]
    [out] = read(tmp_path, "tau-bench", [{**TAU, "traj": traj, "more": "x" * 2_000}])
    assert "more" not in life(out).labels
