"""Groups of arms that cannot be distinguished."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.inspect.comparison_parts import decides, decisive, groups


def test_an_arm_between_two_that_differ_is_in_both_groups():
    """If a and c differ and b is like both, the groups are ab and bc."""
    alike = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}}
    assert groups("abc", alike) == [["a", "b"], ["b", "c"]]


def test_none_differ_and_all_differ():
    """The result is one group of all, or one of each."""
    assert groups("abc", {name: set("abc") for name in "abc"}) == [["a", "b", "c"]]
    assert groups("abc", {name: set() for name in "abc"}) == [["a"], ["b"], ["c"]]


@given(st.sets(st.sampled_from(list(combinations("abcdefg", 2)))))
def test_two_arms_share_a_group_just_where_they_are_alike(pairs):
    """Groups hold exactly the pairs that do not differ, and no group is part of another."""
    alike = {name: {b for a, b in pairs if a == name} for name in "abcdefg"}
    for a, b in pairs:
        alike[b].add(a)
    maximal = groups("abcdefg", alike)
    shared = {pair for group in maximal for pair in combinations(group, 2)}
    assert shared == pairs
    assert not any(set(one) < set(other) for one in maximal for other in maximal)
    assert {name for group in maximal for name in group} == set("abcdefg")


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
    ("stop", "interval", "sentence"),
    [
        (
            "fixed",
            (0.1254, 0.8898),
            ": its interval excludes 0, but p 0.1600 is above 0.05 (paired t test)",
        ),
        ("sequential", (-0.109, 1.125), ": p 0.1600 is above 0.05 (paired t test)"),
    ],
)
def test_a_sequential_plan_shows_the_interval_of_any_look(stop, interval, sentence):
    """Under repeated looks a fixed interval excludes 0 far more often than its level states."""
    row: dict[str, Any] = {**ROW, "stop": stop}
    assert decisive(row) == interval
    assert decides(row) == sentence
