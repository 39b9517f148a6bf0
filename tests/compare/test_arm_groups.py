"""Groups of arms that cannot be told apart."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hansard.inspect.comparison_parts import groups


def test_an_arm_between_two_that_differ_is_in_both_groups():
    """Of a and c, which differ, b is like both: ab and bc."""
    alike = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}}
    assert groups("abc", alike) == [["a", "b"], ["b", "c"]]


def test_none_differ_and_all_differ():
    """One group of all, or one of each."""
    assert groups("abc", {name: set("abc") for name in "abc"}) == [["a", "b", "c"]]
    assert groups("abc", {name: set() for name in "abc"}) == [["a"], ["b"], ["c"]]


@given(st.sets(st.sampled_from(list(combinations("abcdefg", 2)))))
def test_two_arms_share_a_group_just_where_they_are_alike(pairs):
    """Groups hold exactly the pairs that do not differ, and none is part of another."""
    alike = {name: {b for a, b in pairs if a == name} for name in "abcdefg"}
    for a, b in pairs:
        alike[b].add(a)
    found = groups("abcdefg", alike)
    shared = {pair for group in found for pair in combinations(group, 2)}
    assert shared == pairs
    assert not any(set(one) < set(other) for one in found for other in found)
    assert {name for group in found for name in group} == set("abcdefg")
