"""Experience from an airline agent's successful runs, applied to other tasks."""

import json
from pathlib import Path

import pytest

from benchmarks import airline

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2].parent / "shared/data/tau-bench/dev/gpt-4o-airline.json"


@pytest.mark.skipif(not FILE.exists(), reason="no ../shared/data/tau-bench here")
def test_a_procedure_of_tools_foretells_more_than_the_most_frequent():
    """A learned procedure predicts unseen runs better than the most frequent action."""
    every = airline.runs(json.loads(FILE.read_text()))
    assert (len(every), sum(each.success for each in every)) == (200, 84)
    results = airline.compared(every)
    tool, argument = "next tool, {}", "argument, {}"
    for what in (tool, argument):
        learned, most = (
            results[what.format(by)] for by in ("by the procedure", "the most frequent")
        )
        assert learned.of == most.of
        assert learned.share > most.share
        assert learned.low <= learned.share <= learned.high
    failed = results["flow check flags, of runs that failed"]
    succeeded = results["flow check flags, of runs that succeeded"]
    assert failed.of + succeeded.of == 100
    assert failed.share > succeeded.share
