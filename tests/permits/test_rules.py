"""Permissions of a role by its rules alone: deny by default, and a refusal names what to grant."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.errors import BadValue
from hansard.domain.roles import authorize
from hansard.domain.roles import check as role_check
from hansard.domain.roles.authorize import Trust, known
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule

OWN = RoleRule("own", roles=("writer",))
NOTES = RoleRule("notes", keys=("notes/**",))
WRITER = RoleDefined(
    sees=(OWN, NOTES),
    may=May(tools=("search_*",), kinds=("message.added", "task.claimed"), keys=("notes/*",)),
)


def test_what_is_not_named_is_refused():
    """Tools, kinds and keys are allowed by pattern only, and nothing for a withdrawn role."""
    assert authorize.may_call(WRITER, "search_web").allowed
    assert not authorize.may_call(WRITER, "send").allowed
    assert not authorize.may_call(WRITER, "").allowed
    assert authorize.may_state(WRITER, "message.added.v1").allowed
    assert not authorize.may_state(WRITER, "decision.made.v1").allowed
    assert authorize.may_write(WRITER, "notes/a").allowed
    assert not authorize.may_write(WRITER, "notes/a/b").allowed
    nothing = RoleDefined()
    for rules in (nothing, None):
        assert not authorize.may_call(rules, "search_web").allowed
        assert not authorize.may_state(rules, "message.added.v1").allowed
        assert not authorize.may_write(rules, "notes/a").allowed
        assert not authorize.sees_whole_key(rules, "notes/a").allowed
        assert not any(authorize.may_be_trusted(rules, trust).allowed for trust in Trust)


def test_a_session_s_own_events_need_no_kind():
    """Session events need no kind in the rules; what an agent states does."""
    for tag in ("agent.session_began.v1", "step.requested.v1", "tool.declared.v1", "agent.left.v1"):
        assert authorize.may_state(RoleDefined(), tag).allowed
        assert not authorize.may_state(None, tag).allowed
    assert not authorize.may_state(RoleDefined(), "agent.handed_off.v1").allowed


def test_who_may_claim_may_extend_and_give_back():
    """A role that may claim may extend and release its claim; completion is a separate
    permission.
    """
    assert authorize.may_state(WRITER, "task.extended.v1").allowed
    assert authorize.may_state(WRITER, "task.released.v1").allowed
    assert not authorize.may_state(WRITER, "task.completed.v1").allowed


SEEN_WHOLE = [
    (RoleRule("r", keys=("notes/*",)), True),
    (RoleRule("r", kinds=("board.*",)), True),
    (RoleRule("r", kinds=("**",)), True),
    (RoleRule("r", kinds=("board.*",), keys=("notes/a",)), True),
    (RoleRule("r", keys=("notes/b",)), False),
    (RoleRule("r", keys=("notes/*",), roles=("writer",)), False),
    (RoleRule("r", keys=("notes/*",), agents=("ada",)), False),
    (RoleRule("r", keys=("notes/*",), labels={"team": "x"}), False),
    (RoleRule("r", keys=("notes/*",), kinds=("board.put",)), False),
    (RoleRule("r", keys=("notes/*",), kinds=("board.*",), fields=("value",)), False),
    (RoleRule("r", roles=("writer",)), False),
]


@pytest.mark.parametrize(("rule", "whole"), SEEN_WHOLE)
def test_a_key_is_read_only_where_all_of_it_is_seen(rule, whole):
    """A key that a rule may hide in part is neither read nor written."""
    rules = RoleDefined(sees=(rule,), may=May(keys=("notes/*",)))
    assert authorize.sees_whole_key(rules, "notes/a").allowed is whole
    assert authorize.may_write(rules, "notes/a").allowed is whole


MASKS = [
    (Mask("m", ("board.put",), ("value",)), False),
    (Mask("m", ("**",), ("labels",)), False),
    (Mask("m", ("board.put",), ("value",), keys=("notes/a",)), False),
    (Mask("m", ("board.put",), ("value",), keys=("other/*",)), True),
    (Mask("m", ("board.put",), ("value",), roles=("nobody",)), False),
    (Mask("m", ("board.put",), ("value",), Masking.DROP), False),
    (Mask("m", ("board.put",), ("value",), Masking.HASH), False),
    (Mask("m", ("message.added",), ("content",)), True),
]


@pytest.mark.parametrize(("mask", "whole"), MASKS)
def test_a_mask_that_may_touch_a_key_hides_it(mask, whole):
    """The rules alone decide whether a mask may touch a key, never the recorded data."""
    rules = RoleDefined(sees=(RoleRule("all", keys=("**",)),), masks=(mask,))
    decision = authorize.sees_whole_key(rules, "notes/a")
    assert decision.allowed is whole
    assert whole or "mask 'm'" in decision.because


@pytest.mark.parametrize("trust", list(Trust))
def test_trust_is_granted_one_by_one(trust):
    """Approving, settling and querying are three things."""
    rules = RoleDefined(may=msgspec.convert({trust.value: True}, May))
    assert [each for each in Trust if authorize.may_be_trusted(rules, each).allowed] == [trust]


keys = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1)


@given(keys)
def test_what_a_refusal_asks_for_allows_it(key):
    """The line that a refusal names allows exactly that key, whatever its characters."""
    named = authorize.may_write(RoleDefined(), key)
    seen = authorize.sees_whole_key(RoleDefined(), key)
    line = seen.ask_for.replace(", keys", "\nkeys", 1)
    text = f'[roles.a.may]\n{named.ask_for}\n[[roles.a.sees]]\nname = "r"\n{line}\n'
    rules = role_check.parse(text)["a"]
    assert authorize.may_write(rules, key).allowed
    assert not authorize.may_write(rules, key + "x").allowed


@pytest.mark.parametrize("tag", sorted(known()))
def test_the_rule_that_a_refusal_names_allows_the_kind(tag):
    """The line that a refusal names is a rule that is taken, and allows that kind."""
    decision = authorize.may_state(RoleDefined(), tag)
    if not decision.allowed:
        rules = role_check.parse(f"[roles.a.may]\n{decision.ask_for}\n")["a"]
        assert authorize.may_state(rules, tag).allowed


@pytest.mark.parametrize(
    ("sees", "keys", "lacking"),
    [
        ((), ("a",), "'a'"),
        ((OWN,), ("a/*",), r"'a/\*'"),
        ((OWN, NOTES), ("notes/a", "other"), "'other'"),
        ((OWN, NOTES), ("notes/**", "other/*"), None),
        ((RoleRule("all", kinds=("**",)),), ("**",), None),
    ],
)
def test_a_key_that_is_written_unseen_is_refused_when_applied(sees, keys, lacking):
    """Patterns that surely name an unseen key are refused when the role is applied."""
    rules = RoleDefined(sees=sees, may=May(keys=keys))
    if lacking is None:
        role_check.check(rules)
        return
    with pytest.raises(BadValue, match=f"keys of may: {lacking} .*not fully see"):
        role_check.check(rules)


def test_rules_that_stand_on_record_are_still_read():
    """Rules recorded before this check are judged as they are, and allow no such write."""
    old = RoleDefined(may=May(keys=("a",)))
    read = msgspec.json.decode(msgspec.json.encode(old), type=RoleDefined)
    assert not authorize.may_write(read, "a").allowed
