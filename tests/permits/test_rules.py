"""Permissions of a role by its rules alone: deny by default, and a refusal names what to grant."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.agents.policy.gate import GateCall
from hansard.domain import access
from hansard.domain.errors import BadValue
from hansard.domain.ids import WorkspaceStream
from hansard.domain.roles import authorize
from hansard.domain.roles import check as role_check
from hansard.domain.roles.authorize import Trust, known, may_call
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule

OWN = RoleRule("own", roles=("writer",))
NOTES = RoleRule("notes", keys=("notes/**",))
WRITER = RoleDefined(
    sees=(OWN, NOTES),
    may=May(tools=("search_*",), kinds=("message.added", "task.claimed"), keys=("notes/*",)),
)


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


# ------------------------------------------------------------ tool patterns have one syntax


TABLE = [
    ("send_mail", "send_mail", True),
    ("send_mail", "Send_mail", False),
    ("send_*", "send_mail", True),
    ("send_*", "send_", True),
    ("send_*", "resend_mail", False),
    ("send_*", "send_mail.now", False),
    ("*", "send", True),
    ("*", "board.put", False),
    ("*.put", "board.put", True),
    ("**", "send", True),
    ("**", "board.put", True),
    ("board.*", "board.put", True),
    ("board.**", "board.put", True),
    ("board.**", "board", False),
    ("s?nd", "send", False),
    ("s?nd", "s?nd", True),
    ("[s]end", "send", False),
    ("a\\*b", "a*b", True),
    ("a\\*b", "axb", False),
]


def call(tool: str) -> GateCall:
    """Return a call of a tool."""
    return GateCall(tool=tool, arguments={}, run="r", agent="a", role="r", effects="pure")


@pytest.mark.parametrize(("pattern", "tool", "fits"), TABLE)
def test_the_gate_and_a_role_agree_on_a_pattern(pattern: str, tool: str, fits: bool) -> None:
    """A gate rule covers exactly the tools that a role with the same pattern may call."""
    for rule in (
        hansard.deny(pattern),
        hansard.ask_first(pattern),
        hansard.budget("calls", 1, tool=pattern),
    ):
        assert rule.matches(call(tool)) is fits
    assert may_call(RoleDefined(may=May(tools=(pattern,))), tool).allowed is fits


def test_a_rule_without_a_tool_is_of_all() -> None:
    """A rule without a tool covers all tools, including names with dots."""
    for tool in ("send", "board.put", "a.b.c"):
        assert hansard.deny().matches(call(tool))


@pytest.mark.parametrize("pattern", ["", "a**", "a..b", "**.b", "\\n"])
def test_what_is_no_pattern_is_no_rule(pattern: str) -> None:
    """An invalid pattern is refused where the rule is made, not where it would match."""
    with pytest.raises(hansard.BadValue, match=r"pattern|segment|backslash|end"):
        hansard.deny(pattern)


# ------------------------------------------------------------ queries


CLERK = """
[roles.clerk]
sees = [{ name = "all", kinds = ["**"] }]
"""


def test_a_role_that_may_not_query_is_refused_on_record(call, record):
    """The error names the missing permission; the refused access is recorded with caller and
    role.
    """
    record.roles.apply("clerk", role_check.parse(CLERK)["clerk"])
    with record.run("w", run="r"):
        pass
    refused = call("sql", "--role", "clerk", "SELECT 1")
    assert refused.code == 2
    assert "query = true" in refused.err
    stream = WorkspaceStream(access.KIND, access.STRANGER)
    stored = record._portal.run(record.workspace.log.read(stream))
    [refusal] = [msgspec.json.decode(each.data) for item in stored for each in item.commit.events]
    assert (refusal["role"], refusal["operation"]) == ("clerk", "query")
    assert "query = true in [roles.clerk.may]" in refusal["because"]
