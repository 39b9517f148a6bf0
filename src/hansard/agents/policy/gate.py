"""The gate: checks before a call runs.

Rules are checked in order; the first matching `allow`, `deny` or `ask_first` decides. A call that
no rule matches is allowed (end the list with `deny()` to reverse that). Budgets apply whatever the
rules decide, across all processes of a run and after a resume: they are counted in the log,
reserved before the call and corrected after it.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from hansard.agents.flow import name_of
from hansard.domain import ids
from hansard.domain.approval import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN
from hansard.domain.choices import check_options
from hansard.domain.errors import BadValue
from hansard.domain.roles.model import DOT, NONE, read, role_matches, tool_matches

ALL = "**"
"""Pattern of every tool, including those with dots in their names, such as `board.put`."""

Condition = Callable[[Any], bool]
"""Returns whether one argument's value matches. A value of the wrong type does not match."""


class GateCall(msgspec.Struct, frozen=True):
    """A call that a rule decides on. `arguments` are the values that the tool will receive.

    Attributes:
        tool: The tool's name.
        arguments: The values that it will receive, by name.
        run: The run's id.
        agent: The agent's name.
        role: Its role.
        effects: The tool's effect policy.
    """

    tool: str
    arguments: Mapping[str, Any]
    run: str
    agent: str
    role: str
    effects: str


class Verdict(msgspec.Struct, frozen=True):
    """Result of the rules: the rule that decided and, if it denied, the reason; `asks` is the rule
    that requires an approval.
    """

    allowed: bool
    rule: str
    reason: str = ""
    asks: AskFirst | None = None


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a rule that selects calls: their tool and role match the patterns, all `where`
    conditions hold, and not all `unless` conditions hold.
    """

    tool: str = ALL
    role: str = "*"
    where: Mapping[str, Condition] = {}
    unless: Mapping[str, Condition] = {}
    name: str = ""

    def __post_init__(self) -> None:
        """Raise BadValue for an invalid pattern."""
        _check_patterns(self)

    def matches(self, call: GateCall) -> bool:
        """Return whether this rule applies to a call."""
        if not _is_of(self, call) or not _all_hold(self.where, call.arguments):
            return False
        return not (self.unless and _all_hold(self.unless, call.arguments))

    def _described(self, verb: str) -> str:
        parts = [verb, self.tool]
        parts += [f"role {self.role}"] if self.role != "*" else []
        parts += [f"where {', '.join(sorted(self.where))}"] if self.where else []
        parts += [f"unless {', '.join(sorted(self.unless))}"] if self.unless else []
        return " ".join(parts)


class CallRule(_Rule, frozen=True, kw_only=True):
    """A rule made by `allow(...)` or `deny(...)`.

    It matches a call whose tool and role match the patterns, if all `where` conditions hold and not
    all `unless` conditions hold.

    Attributes:
        allows: True if it allows the calls that it matches, False if it denies them.
        tool: Pattern of tools.
        role: Pattern of roles.
        name: The rule's name; a description of the rule if empty.
        reason: The reason in the error message.
    """

    allows: bool
    reason: str = ""

    def title(self) -> str:
        """Return the rule's name, or a description of the rule."""
        return self.name or self._described("allow" if self.allows else "deny")


class AskFirst(_Rule, frozen=True, kw_only=True):
    """A rule made by `ask_first(...)`: a matching call runs only after it was approved.

    Calls match as for a `CallRule` (see `hansard.domain.approval`). The call waits up to
    `timeout_s` seconds for the answer; a request always has a timeout, so None is rejected.

    Attributes:
        tool: Pattern of tools.
        role: Pattern of roles.
        where: Conditions of arguments by name; all must hold.
        unless: Conditions of arguments by name; the rule does not apply if all hold.
        name: The rule's name; a description of the rule if empty.
    """

    timeout_s: float = 3_600.0

    def __post_init__(self) -> None:
        """Raise BadValue for an invalid pattern or timeout."""
        super().__post_init__()
        least, most = TIMEOUT_MS_MIN / 1_000, TIMEOUT_MS_MAX / 1_000
        if not _is_number(self.timeout_s) or not least <= self.timeout_s <= most:
            fact = f"timeout_s={self.timeout_s!r:.40}"
            raise BadValue("ask_first", fact, f"give {least:g} to {most:,.0f} seconds")

    def title(self) -> str:
        """Return the rule's name, or a description of the rule."""
        return self.name or self._described("ask first")


def _is_of(rule: _Rule | Budget, call: GateCall) -> bool:
    return tool_matches(rule.tool, call.tool) and role_matches(rule.role, call.role)


def _check_patterns(rule: _Rule | Budget) -> None:
    """Raise BadValue for an invalid pattern."""
    read(rule.tool, DOT, "tool")
    read(rule.role, NONE, "role")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A limit over all calls of a run whose tool and role match.

    `unit` is `calls`, or the name of a usage figure that tools report (`input_tokens`, `cost`);
    `reserve` is set aside before each call and replaced by the reported usage.

    Attributes:
        name: The budget's name, used in `Blocked`.
        limit: The largest allowed total.
        tool: Pattern of tools.
        role: Pattern of roles.
    """

    name: str
    limit: float
    unit: str = "calls"
    reserve: float = 1.0
    tool: str = ALL
    role: str = "*"

    def __post_init__(self) -> None:
        """Raise BadName or BadValue for an invalid field."""
        ids.name("budget", self.name)
        _check_patterns(self)
        if not _is_number(self.limit) or math.isnan(self.limit):
            raise BadValue(f"limit of budget {self.name!r}", repr(self.limit), "give a number")
        if not _is_number(self.reserve) or not 0 <= self.reserve < math.inf:
            remedy = "give a finite number, 0 or more"
            raise BadValue(f"reserve of budget {self.name!r}", repr(self.reserve), remedy)

    def matches(self, call: GateCall) -> bool:
        """Return whether this budget counts a call."""
        return _is_of(self, call)

    def used(self, usage: Mapping[str, float]) -> float:
        """Return a completed call's usage as reported, else as reserved."""
        if self.unit == "calls":
            return 1.0
        if self.unit == "tokens":
            tokens = [value for key, value in usage.items() if key.endswith("tokens")]
            return sum(tokens) if tokens else self.reserve
        return usage.get(self.unit, self.reserve)


Check = Callable[[GateCall], "str | bool | None"]
"""A rule in Python: a text denies with that reason, False denies, any other result passes on."""

GateRule = CallRule | AskFirst | Budget | Check

_R = TypeVar("_R", CallRule, AskFirst, Budget)


class _Calls(TypedDict, total=False):
    """Options that select a rule's calls."""

    role: str
    """Pattern of roles."""
    where: Mapping[str, Condition]
    """Conditions of arguments by name; all must hold."""
    unless: Mapping[str, Condition]
    """Conditions of arguments by name; the rule does not apply if all hold."""


class RuleOptions(_Calls, total=False):
    """Options of `allow` and `deny` besides the tool."""

    name: str
    """The rule's name; by default a description of the rule."""
    reason: str
    """The reason in the error message."""


class AskOptions(_Calls, total=False):
    """Options of `ask_first` besides the tool."""

    timeout_s: float
    """Seconds that the call waits for an answer."""
    name: str
    """The rule's name; by default a description of the rule."""


class BudgetOptions(TypedDict, total=False):
    """Options of `budget` besides its name and limit."""

    unit: str
    """`calls`, `tokens`, or one figure that tools report."""
    reserve: float
    """Set aside before each call, and replaced by the reported usage."""
    tool: str
    """Pattern of tools whose calls count."""
    role: str
    """Pattern of roles whose calls count."""


def _build(kind: type[_R], where: str, options: Mapping[str, Any], fields: Mapping[str, Any]) -> _R:
    """Build a rule. Raises BadOption for an unknown field."""
    known = [name for name in kind.__struct_fields__ if name not in options]
    check_options(where, fields, known)
    return kind(**options, **fields)


def allow(tool: str = ALL, **fields: Unpack[RuleOptions]) -> CallRule:
    """Allow calls of a tool.

    Args:
        tool: Pattern of tools (`send_*`); all tools by default. Patterns are those of roles.

    Keyword Args:
        role (str): Pattern of roles.
        where (Mapping): Conditions of arguments by name; all must hold.
        unless (Mapping): Conditions of arguments by name; the rule does not apply if all hold.
        name (str): The rule's name; by default a description of the rule.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadValue: The pattern is invalid.
    """
    return _build(CallRule, "allow", {"allows": True, "tool": tool}, fields)


def deny(tool: str = ALL, **fields: Unpack[RuleOptions]) -> CallRule:
    """Deny calls of a tool: they raise `Blocked`.

    Args:
        tool: Pattern of tools (`send_*`); all tools by default. Patterns are those of roles.

    Keyword Args:
        role (str): Pattern of roles.
        where (Mapping): Conditions of arguments by name; all must hold.
        unless (Mapping): Conditions of arguments by name; the rule does not apply if all hold.
        name (str): The rule's name; by default a description of the rule.
        reason (str): The reason in the error message.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadValue: The pattern is invalid.
    """
    return _build(CallRule, "deny", {"allows": False, "tool": tool}, fields)


def ask_first(tool: str = ALL, **fields: Unpack[AskOptions]) -> AskFirst:
    """Require approval before calls of a tool run.

    Args:
        tool: Pattern of tools (`send_*`); all tools by default. Patterns are those of roles.

    Keyword Args:
        role (str): Pattern of roles.
        where (Mapping): Conditions of arguments by name; all must hold.
        unless (Mapping): Conditions of arguments by name; the rule does not apply if all hold.
        name (str): The rule's name; by default a description of the rule.
        timeout_s (float): Seconds that the call waits for an answer, at least 0.1; an hour by
            default. A request always has a timeout: neither None nor 0 is allowed.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadValue: The pattern is invalid, or `timeout_s` is out of range.
    """
    return _build(AskFirst, "ask_first", {"tool": tool}, fields)


def budget(name: str, limit: float, **fields: Unpack[BudgetOptions]) -> Budget:
    """Limit the usage of a run, across all its processes and after a resume.

    Args:
        name: The budget's name, used in `Blocked`.
        limit: The largest allowed total.

    Keyword Args:
        unit (str): `calls`; `tokens`, the sum of all figures that end in it; or one figure that
            tools report (`input_tokens`, `cost`).
        reserve (float): Set aside before each call, and replaced by the reported usage; by
            default 1.
        tool, role (str): Patterns of the calls that count.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadName, BadValue: The name or a number is invalid.
    """
    return _build(Budget, "budget", {"name": name, "limit": limit}, fields)


def path_under(*roots: str | os.PathLike[str]) -> Condition:
    """Match a file path inside one of some folders, with links and `..` resolved."""
    resolved = [os.path.realpath(root) for root in roots]

    def holds(value: Any) -> bool:
        if not isinstance(value, str | os.PathLike):
            return False
        try:
            path = os.path.realpath(value)
        except (OSError, ValueError):
            return False
        return any(
            path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in resolved
        )

    return holds


def host_in(*hosts: str) -> Condition:
    """Match a URL by its host; `.example.org` matches every host under it.

    A URL with a backslash, a space or a control character never matches: clients disagree on its
    host.
    """

    def holds(value: Any) -> bool:
        return isinstance(value, str) and ids.host_in(value, hosts)

    return holds


def at_most(limit: float) -> Condition:
    """Match a number not above a limit. NaN and other values do not match."""
    return lambda value: _is_number(value) and value <= limit


def at_least(limit: float) -> Condition:
    """Match a number not below a limit. NaN and other values do not match."""
    return lambda value: _is_number(value) and value >= limit


def one_of(*choices: object) -> Condition:
    """Match a value that equals one of some, including its type."""
    return lambda value: any(type(value) is type(item) and value == item for item in choices)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_hold(conditions: Mapping[str, Condition], arguments: Mapping[str, Any]) -> bool:
    return all(
        name in arguments and condition(arguments[name]) for name, condition in conditions.items()
    )


def ask(rules: Sequence[GateRule], call: GateCall) -> Verdict:
    """Return the rules' verdict on a call; budgets are reserved by the session."""
    for rule in rules:
        if isinstance(rule, Budget):
            continue
        if isinstance(rule, CallRule | AskFirst):
            if not rule.matches(call):
                continue
            if isinstance(rule, AskFirst):
                return Verdict(allowed=True, rule=rule.title(), asks=rule)
            return Verdict(rule.allows, rule.title(), rule.reason or rule.title())
        verdict: Any = rule(call)
        if inspect.isawaitable(verdict):
            if inspect.iscoroutine(verdict):
                verdict.close()
            fact = "it returns an awaitable, which is not a verdict"
            raise BadValue(f"gate rule {name_of(rule)!r:.80}", fact, "give a plain function")
        if isinstance(verdict, str) or verdict is False:
            name = name_of(rule)
            return Verdict(allowed=False, rule=name, reason=verdict or f"{name} denied the call")
    return Verdict(allowed=True, rule="")
