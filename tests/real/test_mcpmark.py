"""MCPMark: ten models, 127 tasks, up to four runs each, and the published summary."""

import json
from math import fsum
from statistics import fmean, pstdev

import pytest

from tests.real import support
from tests.real.converters import mcpmark

pytestmark = [pytest.mark.real, pytest.mark.thorough]  # a part of it: test_figures.py

RUNS = 9 * 127 * 4 + 127
"""Nine models ran every task four times, one of them once."""

TOTALS = {
    "execution_time_s": "agent_execution_time",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "turns": "turns",
}
"""Metrics, and what their totals and averages are called in the summary."""

NOT_FROM_RUNS = {"per_run_cost", "actual_model_name", "is_open_source_model", "is_reasoning_model"}
"""What the summary says and no run does: prices and facts about the model."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A workspace of its own for this data set."""
    with support.opened(tmp_path_factory.mktemp("mcpmark-data")) as made:
        yield made


@pytest.fixture(scope="module")
def imported(place, real_data, tmp_path_factory):
    """All runs, imported in one file that names each run's arm itself; what was told, and the
    lives on record.
    """
    file = tmp_path_factory.mktemp("mcpmark") / "chats.jsonl"
    archive = real_data / "mcpmark" / "dev" / "model_results.tar.gz"
    assert support.write(file, mcpmark.convert(archive)) == RUNS
    told = place.imported("chat-jsonl", file, "mcpmark")
    return told, place.lives()


@pytest.fixture(scope="module")
def published(real_data):
    """The summary's parts: overall, and by service, each by model."""
    said = json.loads((real_data / "mcpmark" / "dev" / "summary.json").read_bytes())
    return {part: models for part, models in said.items() if isinstance(models, dict)}


def _summary(lives):
    """What the published summary says of a model, computed from the lives of its runs."""
    by_task: dict[str, dict[int, float]] = {}
    for life in lives:
        trials = by_task.setdefault(life.state.assigned.task, {})
        trials[life.state.assigned.trial] = life.state.scores["success"]
    numbers = sorted({trial for by_trial in by_task.values() for trial in by_trial})
    shares = [fmean(by_trial[trial] for by_trial in by_task.values()) for trial in numbers]
    found = {
        "total_tasks": len(by_task),
        "pass@1": {"avg": round(fmean(shares), 4), "std": round(pstdev(shares), 4)},
    }
    if len(numbers) > 1:
        found["pass@4"] = round(fmean(max(t.values()) for t in by_task.values()), 4)
        found["pass^4"] = round(fmean(min(t.values()) for t in by_task.values()), 4)
    for metric, name in TOTALS.items():
        total = fsum(life.state.scores[metric] for life in lives)
        found[name if name.startswith("total_") else f"total_{name}"] = pytest.approx(
            total, rel=1e-12
        )
        found[f"avg_{name}"] = pytest.approx(total / len(lives), abs=5.1e-5)
        if metric in ("input_tokens", "output_tokens"):
            found[f"per_run_{name}"] = total / len(numbers)
    return found


def test_runs_without_messages_are_runs(imported):
    """All 4,699 runs are on record, with no message and their assignment; an error of the source
    is the error the run failed with, and none of the source's nulls became a number.
    """
    told, lives = imported
    assert (told["runs"], told["messages"], told["bad"]) == (RUNS, 0, 0)
    assert len(lives) == RUNS
    assert {life.state.assigned.experiment for life in lives} == {"mcpmark"}
    assert len({life.state.assigned.arm for life in lives}) == 10
    failed = [life.state for life in lives if life.state.status.value == "failed"]
    assert len(failed) == 298
    assert all(state.error is not None and state.error.message for state in failed)
    assert sum("reasoning_tokens" not in life.state.scores for life in lives) == 1_426


@pytest.mark.parametrize(
    "part", ["overall", "filesystem", "github", "notion", "playwright", "postgres"]
)
def test_the_published_summary_comes_out_of_the_record(imported, published, part):
    """Every figure of every model: pass@1 with its deviation over the population of runs, pass@4,
    pass^4, tokens, turns and time, overall and for each service.
    """
    _, lives = imported
    assert len(published[part]) == 10
    for model, said in published[part].items():
        mine = [
            life
            for life in lives
            if life.state.assigned.arm == model and part in ("overall", life.state.workflow)
        ]
        assert _summary(mine) == {k: v for k, v in said.items() if k not in NOT_FROM_RUNS}, model


def test_the_audit_finds_what_is_true_of_them(place, imported):
    """One model was tried once a task, three fail more often than the others: no false alarm."""
    del imported
    found = place.call("audit", "--json").lines[:-1]
    assert [row["what"] for row in found] == ["uneven", "uneven", "uneven", "trials differ"]
    facts = sorted(row["fact"].partition(" failed")[0] for row in found[:-1])
    assert facts == [
        "18 of the 127 runs of arm claude-opus-4-1",
        "72 of the 508 runs of arm claude-sonnet-4",
        "90 of the 508 runs of arm qwen-3-max",
    ]
    assert "claude-opus-4-1 up to 1" in found[-1]["fact"]
