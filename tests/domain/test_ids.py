"""Names and identifiers: layouts as RFC 9562 has them, names that can be carried, and no others."""

from uuid import RFC_4122, UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansard.domain import ids
from hansard.domain.errors import BadName
from hansard.domain.ids import NAME_LENGTH_MAX, AgentStream, KeyStream, RunStream, WorkspaceStream

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_uuid7_has_its_time_its_version_and_its_variant(ms, entropy):
    """RFC 9562 5.7: 48 bits of milliseconds, version 7, variant 10, the rest random."""
    made = UUID(ids.uuid7(ms, entropy))
    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.int >> 80 == ms
    rand = int.from_bytes(entropy, "big")
    assert made.int & (1 << 62) - 1 == rand & (1 << 62) - 1
    assert made.int >> 64 & 0xFFF == rand >> 68 & 0xFFF


@given(st.integers(0, 2**48 - 2), st.binary(min_size=10, max_size=10))
def test_later_uuid7s_sort_later(ms, entropy):
    """The text of a later millisecond's id sorts after every id of an earlier one."""
    assert ids.uuid7(ms, b"\xff" * 10) < ids.uuid7(ms + 1, entropy)


@given(st.lists(names, max_size=3), st.lists(names, max_size=3))
def test_a_uuid8_is_its_texts(one, other):
    """RFC 9562 5.8: version 8, variant 10; equal exactly where the texts and their borders are."""
    made = UUID(ids.uuid8(*one))
    assert (made.version, made.variant) == (8, RFC_4122)
    assert (ids.uuid8(*one) == ids.uuid8(*other)) == (one == other)


@pytest.mark.parametrize("name", ["a", "9", "lab-2", "a" * 40, "0--"])
def test_workspace_names_that_are_some(name):
    """A workspace name is its own subject token."""
    assert ids.workspace_name(name) == name


BAD_WORKSPACES = [
    "", "-a", "A", "a.b", "a b", "a" * 41, "*", ">", "../x", "é", "a\n", "a\0", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", [*BAD_WORKSPACES, None, 5, b"lab", ["lab"]])
def test_workspace_names_that_are_none(name):
    """Anything that would need escaping is refused with the rule."""
    with pytest.raises(BadName, match="use 1 to 40 of") as refusal:
        ids.workspace_name(name)
    assert (refusal.value.kind, refusal.value.value) == ("workspace", name)


@pytest.mark.parametrize(
    "name",
    ["a", "a.b", "*", ">", "../etc", "a/b", "été", "\U0001f4a5", " ", "$x", "n" * NAME_LENGTH_MAX],
)
def test_other_names_are_any_text(name):
    """Runs, roles, agents, keys and tools may have any name."""
    assert ids.name("agent", name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a\0", "a\nb", "\x1b[1m", "\x7f", "\ud800", "n" * (NAME_LENGTH_MAX + 1), None, 5, b"a"],
)
def test_a_name_that_cannot_be_carried_is_refused(name):
    """No control characters, no lone surrogates, nothing empty, nothing endless, only text."""
    with pytest.raises(BadName) as refusal:
        ids.name("agent", name)
    assert refusal.value.kind == "agent"
    assert len(str(refusal.value)) < 500


streams = st.one_of(
    st.builds(RunStream, st.just("r")),
    st.builds(AgentStream, st.just("r"), names, names),
    st.builds(KeyStream, st.just("r"), names),
)
slashes = st.text(st.sampled_from("/a%"), min_size=1, max_size=4)


@given(
    st.one_of(streams, st.builds(AgentStream, st.just("r"), slashes, slashes)),
    st.one_of(streams, st.builds(AgentStream, st.just("r"), slashes, slashes)),
)
@example(AgentStream("r", "a/b", "c"), AgentStream("r", "a", "b/c"))
@example(AgentStream("r", "a%2Fb", "c"), AgentStream("r", "a/b", "c"))
@example(KeyStream("r", "x"), AgentStream("r", "x", "x"))
def test_a_stream_s_name_inside_its_run_is_its_own(one, other):
    """No two streams of a run have one name, whatever slashes their parts hold."""
    assert (str(one) == str(other)) == (one == other)


def test_a_stream_in_another_run_keeps_its_name():
    """A fork's streams have the parent's names; lasting streams belong to no run."""
    for stream in (RunStream("r"), AgentStream("r", "writer", "ada"), KeyStream("r", "k")):
        moved = ids.in_run(stream, "s")
        assert str(moved) == str(stream)
        assert (ids.run_of(stream), ids.run_of(moved)) == ("r", "s")
    lasting = WorkspaceStream("conversation", "c")
    assert ids.in_run(lasting, "s") is lasting
    assert ids.run_of(lasting) is None
