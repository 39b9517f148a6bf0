"""Impossible times of runs: latency is not compared, and the reason is given."""

from pathlib import Path

import pytest

from tests.compare.conftest import trial
from tests.real.support import opened, write

pytestmark = pytest.mark.thorough

TRIALS = 6


@pytest.mark.thorough(quick="audit/test_kinds.py::test_each_planted_kind_is_reported_alone")
def test_latency_is_not_compared_where_all_times_are_equal(tmp_path: Path):
    """If one arm has one time for all, latency has a sentence and a line, but no figure."""
    runs = [trial(arm, task, 0) for arm in ("steady", "bold") for task in range(TRIALS)]
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
