"""Labels are a lattice: a join covers its parts, and is no higher than needed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.decider import label_after, lowered
from hansard.domain.errors import BadValue, Refused
from hansard.domain.label import LOWEST, Confidentiality, Label, join, level, parse, raised, text
from hansard.domain.roles import check as role_file

labels = st.builds(Label, st.sampled_from(Confidentiality), st.booleans())
levels = st.sampled_from(Confidentiality)


@given(labels, labels, labels)
def test_joining_is_associative_commutative_and_idempotent(a, b, c):
    """Labels form a join semilattice, so order and repetition of input do not matter."""
    assert a.join(b).join(c) == a.join(b.join(c)) == join(c, b, a)
    assert a.join(b) == b.join(a)
    assert a.join(a) == a
    assert a.join(None) == a.join(LOWEST) == a


@given(labels, labels, levels)
def test_clearance_for_a_join_covers_each_part(a, b, clearance):
    """A clearance covers a join exactly if it covers each part."""
    both = a.flows_to(clearance) and b.flows_to(clearance)
    assert a.join(b).flows_to(clearance) == both
    assert join(a, b).untrusted == (a.untrusted or b.untrusted)


@given(labels)
def test_a_label_is_read_back_from_its_text(label):
    """A label is parsed from words in either order, from states and from stored commits."""
    words = str(label).split()
    assert parse(str(label)) == parse(" ".join(reversed(words))) == label
    assert parse(text(label)) == label
    assert (label.stored is None) == (text(label) == "") == (label == LOWEST)
    assert msgspec.json.decode(msgspec.json.encode(label), type=Label) == label


@given(labels, labels)
def test_what_states_keep_is_raised(kept, more):
    """A label kept as text is raised by the join of labels."""
    assert raised(text(kept), more) == text(kept.join(more))
    assert raised(text(kept), None) == text(kept)


@given(labels, labels)
def test_a_declassification_lowers_or_is_refused(before, to):
    """A declassification removes confidentiality or distrust, and adds none."""
    lowers = to != before and join(to, before) == before
    if lowers:
        event = lowered(before, to, "eve", "reviewed")
        assert (label_after(event), parse(event.before)) == (to, before)
    else:
        with pytest.raises(Refused, match="would not lower"):
            lowered(before, to, "eve", "reviewed")


@pytest.mark.parametrize("wrong", ["secretly", "secret public", "untrusted untrusted", "top", 7])
def test_what_is_no_label_is_refused(wrong):
    """An invalid label is refused, with the valid words."""
    with pytest.raises(BadValue, match="give one of public, internal, confidential, secret"):
        parse(wrong)


def test_what_is_no_clearance_is_refused():
    """An empty clearance is public; distrust is not a clearance."""
    assert level("") is Confidentiality.PUBLIC
    assert level("secret") is Confidentiality.SECRET
    with pytest.raises(BadValue, match="clearance: 'untrusted'"):
        level("untrusted")


@pytest.mark.slow
def test_a_role_is_cleared_in_its_file():
    """A role file's clearance is read back as written, and an invalid one is refused."""
    text_of = (
        '[roles.clerk]\nclearance = "{}"\n[[roles.clerk.sees]]\nname = "all"\nkinds = ["**"]\n'
    )
    roles = role_file.parse(text_of.format("confidential"))
    assert roles["clerk"].clearance == "confidential"
    assert role_file.parse(role_file.write(roles)) == roles
    with pytest.raises(BadValue, match=r"role 'clerk': clearance: 'high'; give one of public"):
        role_file.parse(text_of.format("high"))
