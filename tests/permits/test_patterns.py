"""Tool patterns have one syntax: in the gate's rules and in roles."""

import pytest

import hansard
from hansard.agents.policy.gate import GateCall
from hansard.domain.roles.authorize import may_call
from hansard.domain.roles.model import May, RoleDefined

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
