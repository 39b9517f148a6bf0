"""MCPMark: ten models, 127 tasks, up to four runs each, and the published summary."""

import pytest

from tests.real import support
from tests.real.converters import mcpmark

pytestmark = [pytest.mark.real, pytest.mark.thorough]  # a part of it: test_figures.py

RUNS = 9 * 127 * 4 + 127
"""Nine models ran every task four times, one of them once."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a workspace of its own for this data set."""
    with support.opened(tmp_path_factory.mktemp("mcpmark-data")) as made:
        yield made


@pytest.fixture(scope="module")
def imported(place, real_data, tmp_path_factory):
    """Import all runs in one file that names each arm; return the summary and the lives."""
    file = tmp_path_factory.mktemp("mcpmark") / "chats.jsonl"
    archive = real_data / "mcpmark" / "dev" / "model_results.tar.gz"
    assert support.write(file, mcpmark.convert(archive)) == RUNS
    report = place.imported("chat-jsonl", file, "mcpmark")
    return report, place.lives()


def test_runs_without_messages_are_runs(imported):
    """4,699 runs without messages are on record, with errors, and without nulls as numbers."""
    report, lives = imported
    assert (report["runs"], report["messages"], report["bad"]) == (RUNS, 0, 0)
    assert len(lives) == RUNS
    assert {life.state.assigned.experiment for life in lives} == {"mcpmark"}
    assert len({life.state.assigned.arm for life in lives}) == 10
    failed = [life.state for life in lives if life.state.status.value == "failed"]
    assert len(failed) == 298
    assert all(state.error is not None and state.error.message for state in failed)
    assert sum("reasoning_tokens" not in life.state.scores for life in lives) == 1_426


def test_the_audit_finds_what_is_true_of_them(place, imported):
    """One model was tried once a task, three fail more often than the others: no false alarm."""
    del imported
    findings = place.call("audit", "--json").lines[:-1]
    assert [row["what"] for row in findings] == ["uneven", "uneven", "uneven", "trials differ"]
    facts = sorted(row["fact"].partition(" failed")[0] for row in findings[:-1])
    assert facts == [
        "18 of the 127 runs of arm claude-opus-4-1",
        "72 of the 508 runs of arm claude-sonnet-4",
        "90 of the 508 runs of arm qwen-3-max",
    ]
    assert "claude-opus-4-1 up to 1" in findings[-1]["fact"]
