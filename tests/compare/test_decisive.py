"""Which interval is told beside a verdict: that of the p which decides."""

from typing import Any

import pytest

from hansard.inspect.comparison_parts import decides, decisive

ROW = {
    "verdict": "cannot tell",
    "problem": None,
    "test": "paired t test",
    "tests_disagree": False,
    "family": 1,
    "holm_p": 0.16,
    "alpha": 0.05,
    "low": 0.1254,
    "high": 0.8898,
    "always_low": -0.109,
    "always_high": 1.125,
}


@pytest.mark.parametrize(
    ("stop", "interval", "said"),
    [
        (
            "fixed",
            (0.1254, 0.8898),
            ": its interval excludes 0, but p 0.1600 is above 0.05 (paired t test)",
        ),
        ("sequential", (-0.109, 1.125), ": p 0.1600 is above 0.05 (paired t test)"),
    ],
)
def test_a_sequential_plan_is_told_the_interval_of_any_look(
    stop: str, interval: tuple[float, float], said: str
):
    """The fixed one, looked at again and again, excludes 0 far more often than it says."""
    row: dict[str, Any] = {**ROW, "stop": stop}
    assert decisive(row) == interval
    assert decides(row) == said
