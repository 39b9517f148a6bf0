"""The gate: what a call must pass before it runs.

Rules are asked in order; the first `allow`, `deny` or `ask_first` that matches decides, and what no
rule matches is allowed (end with `deny()` to turn that around). Budgets hold whatever the rules
say, over all processes of a run and after a resume: they are counted in the log, reserved before
the call and corrected after it.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from hansard.agents.callables import name_of
from hansard.domain import ids
from hansard.domain.approval import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN
from hansard.domain.choices import check_options
from hansard.domain.errors import BadValue
from hansard.domain.roles.model import DOT, NONE, read, role_matches, tool_matches

ALL = "**"
"""The pattern of every tool: those whose names have dots, such as `board.put`, too."""

Condition = Callable[[Any], bool]
"""Says of one argument's value whether it fits. A value it cannot judge does not fit."""


class GateCall(msgspec.Struct, frozen=True):
    """What a rule is asked about. `arguments` are the values the tool will get.

    Attributes:
        tool: The tool.
        arguments: The values that it will get, by name.
        run: The run's id.
        agent: The agent.
        role: Its role.
        effects: What the tool does to the world.
    """

    tool: str
    arguments: Mapping[str, Any]
    run: str
    agent: str
    role: str
    effects: str


class Verdict(msgspec.Struct, frozen=True):
    """What the rules say: the rule that decided and, where it refused, why; `asks` is the rule that
    wants a person's word first.
    """

    allowed: bool
    rule: str
    reason: str = ""
    asks: AskFirst | None = None


class CallRule(msgspec.Struct, frozen=True, kw_only=True):
    """`allow(...)` or `deny(...)`. It matches a call whose tool and role fit the patterns, all of
    whose `where` conditions hold, and not all of whose `unless` conditions hold.

    Attributes:
        allows: Whether it allows what it matches, or denies it.
        tool: Of which tools, as a pattern.
        role: Of which roles, as a pattern.
        name: The rule's; what it says if empty.
        reason: What the error says.
    """

    allows: bool
    tool: str = ALL
    role: str = "*"
    where: Mapping[str, Condition] = {}
    unless: Mapping[str, Condition] = {}
    name: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        """Raises BadValue."""
        _check_patterns(self)

    def matches(self, call: GateCall) -> bool:
        """Whether this rule is about a call."""
        return _fits(self, call)

    def title(self) -> str:
        """The rule's name, or what it says."""
        return self.name or _rule_text("allow" if self.allows else "deny", self)


class AskFirst(msgspec.Struct, frozen=True, kw_only=True):
    """`ask_first(...)`: a call that it matches, as a `CallRule` does, runs only once somebody
    granted it (`hansard.domain.approval`). It waits for the answer for `timeout_s` seconds: a
    question has always a bound, so that None is refused.

    Attributes:
        tool: Of which tools, as a pattern.
        role: Of which roles, as a pattern.
        where: Conditions of arguments by name, all of which hold.
        unless: Conditions of arguments by name: not where all of them hold.
        name: The rule's; what it says if empty.
    """

    tool: str = ALL
    role: str = "*"
    where: Mapping[str, Condition] = {}
    unless: Mapping[str, Condition] = {}
    timeout_s: float = 3_600.0
    name: str = ""

    def __post_init__(self) -> None:
        """Raises BadValue."""
        _check_patterns(self)
        least, most = TIMEOUT_MS_MIN / 1_000, TIMEOUT_MS_MAX / 1_000
        if not _is_number(self.timeout_s) or not least <= self.timeout_s <= most:
            fact = f"timeout_s={self.timeout_s!r:.40}"
            raise BadValue("ask_first", fact, f"give {least:g} to {most:,.0f} seconds")

    def matches(self, call: GateCall) -> bool:
        """Whether this rule is about a call."""
        return _fits(self, call)

    def title(self) -> str:
        """The rule's name, or what it says."""
        return self.name or _rule_text("ask first", self)


def _is_of(rule: CallRule | AskFirst | Budget, call: GateCall) -> bool:
    return tool_matches(rule.tool, call.tool) and role_matches(rule.role, call.role)


def _check_patterns(rule: CallRule | AskFirst | Budget) -> None:
    """Raises BadValue for what is no pattern."""
    read(rule.tool, DOT, "tool")
    read(rule.role, NONE, "role")


def _fits(rule: CallRule | AskFirst, call: GateCall) -> bool:
    if not _is_of(rule, call):
        return False
    if not _all_hold(rule.where, call.arguments):
        return False
    return not (rule.unless and _all_hold(rule.unless, call.arguments))


def _rule_text(verb: str, rule: CallRule | AskFirst) -> str:
    parts = [verb, rule.tool]
    parts += [f"role {rule.role}"] if rule.role != "*" else []
    parts += [f"where {', '.join(sorted(rule.where))}"] if rule.where else []
    parts += [f"unless {', '.join(sorted(rule.unless))}"] if rule.unless else []
    return " ".join(parts)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A limit over all calls of a run whose tool and role fit.

    `unit` is `calls`, or the name of a usage figure that tools report (`input_tokens`, `cost`);
    `reserve` is set aside before each call and replaced by what the call reports.

    Attributes:
        name: The budget's, as `Blocked` names it.
        limit: The most.
        tool: Of which tools, as a pattern.
        role: Of which roles, as a pattern.
    """

    name: str
    limit: float
    unit: str = "calls"
    reserve: float = 1.0
    tool: str = ALL
    role: str = "*"

    def __post_init__(self) -> None:
        """Raises BadName, BadValue."""
        ids.name("budget", self.name)
        _check_patterns(self)
        if not _is_number(self.limit) or math.isnan(self.limit):
            raise BadValue(f"limit of budget {self.name!r}", repr(self.limit), "give a number")
        if not _is_number(self.reserve) or not 0 <= self.reserve < math.inf:
            remedy = "give a finite number, 0 or more"
            raise BadValue(f"reserve of budget {self.name!r}", repr(self.reserve), remedy)

    def matches(self, call: GateCall) -> bool:
        """Whether this budget counts a call."""
        return _is_of(self, call)

    def used(self, usage: Mapping[str, float]) -> float:
        """What an ended call took: what it reported, else what was reserved."""
        if self.unit == "calls":
            return 1.0
        if self.unit == "tokens":
            found = [value for key, value in usage.items() if key.endswith("tokens")]
            return sum(found) if found else self.reserve
        return usage.get(self.unit, self.reserve)


class Budgets(Protocol):
    """Where budgets are counted."""

    async def reserve(self, budget: Budget, call: str) -> bool:
        """Set a call's share aside; False where the limit does not allow it."""
        ...

    async def spend(self, budget: Budget, call: str, amount: float) -> None:
        """Replace a call's share by what it took."""


Check = Callable[[GateCall], "str | bool | None"]
"""A rule in Python: a text refuses with that reason, False refuses, anything else passes on."""

GateRule = CallRule | AskFirst | Budget | Check

_R = TypeVar("_R", CallRule, AskFirst, Budget)


class _Calls(TypedDict, total=False):
    """Which calls a rule is about."""

    role: str
    """Of whom, as a pattern."""
    where: Mapping[str, Condition]
    """Conditions of arguments by name, all of which hold."""
    unless: Mapping[str, Condition]
    """Conditions of arguments by name: not where all of them hold."""


class RuleOptions(_Calls, total=False):
    """What `allow` and `deny` take besides the tool."""

    name: str
    """The rule's; what it says if not given."""
    reason: str
    """What the error says."""


class AskOptions(_Calls, total=False):
    """What `ask_first` takes besides the tool."""

    timeout_s: float
    """Seconds that the call waits for an answer."""
    name: str
    """The rule's; what it says if not given."""


class BudgetOptions(TypedDict, total=False):
    """What `budget` takes besides its name and limit."""

    unit: str
    """`calls`, `tokens`, or one figure that tools report."""
    reserve: float
    """Set aside before each call, and replaced by what it reports."""
    tool: str
    """Of which calls, as a pattern of tools."""
    role: str
    """Of which calls, as a pattern of roles."""


def _made(kind: type[_R], where: str, given: Mapping[str, Any], fields: Mapping[str, Any]) -> _R:
    """A rule. Raises BadOption for a field that there is not."""
    known = [name for name in kind.__struct_fields__ if name not in given]
    check_options(where, fields, known)
    return kind(**given, **fields)


def allow(tool: str = ALL, **fields: Unpack[RuleOptions]) -> CallRule:
    """Allow calls of a tool.

    Args:
        tool: Which, as a pattern (`send_*`); all of them if not given. Patterns are those of roles.

    Keyword Args:
        role (str): Of whom, as a pattern.
        where (Mapping): Conditions of arguments by name, all of which hold.
        unless (Mapping): Conditions of arguments by name: not where all of them hold.
        name (str): The rule's; what it says if not given.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadValue: It is no pattern.
    """
    return _made(CallRule, "allow", {"allows": True, "tool": tool}, fields)


def deny(tool: str = ALL, **fields: Unpack[RuleOptions]) -> CallRule:
    """Refuse calls of a tool: they raise `Blocked`.

    Args:
        tool: Which, as a pattern (`send_*`); all of them if not given. Patterns are those of roles.

    Keyword Args:
        role (str): Of whom, as a pattern.
        where (Mapping): Conditions of arguments by name, all of which hold.
        unless (Mapping): Conditions of arguments by name: not where all of them hold.
        name (str): The rule's; what it says if not given.
        reason (str): What the error says.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadValue: It is no pattern.
    """
    return _made(CallRule, "deny", {"allows": False, "tool": tool}, fields)


def ask_first(tool: str = ALL, **fields: Unpack[AskOptions]) -> AskFirst:
    """Have somebody asked before calls of a tool run.

    Args:
        tool: Which, as a pattern (`send_*`); all of them if not given. Patterns are those of roles.

    Keyword Args:
        role (str): Of whom, as a pattern.
        where (Mapping): Conditions of arguments by name, all of which hold.
        unless (Mapping): Conditions of arguments by name: not where all of them hold.
        name (str): The rule's; what it says if not given.
        timeout_s (float): Seconds that the call waits for an answer, at least 0.1; an hour if not
            given. A question has always a bound: neither None nor 0 is one.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadValue: `timeout_s` is out of its bounds.
    """
    return _made(AskFirst, "ask_first", {"tool": tool}, fields)


def budget(name: str, limit: float, **fields: Unpack[BudgetOptions]) -> Budget:
    """Limit what a run may use, over all its processes and after a resume.

    Args:
        name: The budget's, as `Blocked` names it.
        limit: The most.

    Keyword Args:
        unit (str): `calls`; `tokens`, all figures that end so; or one figure that tools report
            (`input_tokens`, `cost`).
        reserve (float): Set aside before each call, and replaced by what it reports; 1.
        tool, role (str): Of which calls, as patterns.

    Raises:
        BadOption: There is no such option; the message names the nearest.
        BadName, BadValue: The name is not one, or a number is none.
    """
    return _made(Budget, "budget", {"name": name, "limit": limit}, fields)


def path_under(*roots: str | os.PathLike[str]) -> Condition:
    """A file path inside one of some folders, links and `..` resolved."""
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
    """A URL whose host is one of some; `.example.org` stands for every host under it.

    A URL with a backslash, a space or a control character fits none: clients disagree on its host.
    """

    def holds(value: Any) -> bool:
        return isinstance(value, str) and ids.host_in(value, hosts)

    return holds


def at_most(limit: float) -> Condition:
    """A number not over a limit. NaN and what is not a number do not fit."""
    return lambda value: _is_number(value) and value <= limit


def at_least(limit: float) -> Condition:
    """A number not under a limit. NaN and what is not a number do not fit."""
    return lambda value: _is_number(value) and value >= limit


def one_of(*choices: object) -> Condition:
    """A value that equals one of some, in type too."""
    return lambda value: any(type(value) is type(item) and value == item for item in choices)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_hold(conditions: Mapping[str, Condition], arguments: Mapping[str, Any]) -> bool:
    return all(
        name in arguments and condition(arguments[name]) for name, condition in conditions.items()
    )


def ask(rules: Sequence[GateRule], call: GateCall) -> Verdict:
    """What the rules say of a call; budgets are for the session to reserve."""
    for rule in rules:
        if isinstance(rule, Budget):
            continue
        if isinstance(rule, CallRule):
            if rule.matches(call):
                return Verdict(rule.allows, rule.title(), rule.reason or rule.title())
            continue
        if isinstance(rule, AskFirst):
            if rule.matches(call):
                return Verdict(allowed=True, rule=rule.title(), asks=rule)
            continue
        verdict: Any = rule(call)
        if inspect.isawaitable(verdict):
            if inspect.iscoroutine(verdict):
                verdict.close()
            fact = "it gives something to await, which says neither yes nor no"
            raise BadValue(f"gate rule {name_of(rule)!r:.80}", fact, "give a plain function")
        if isinstance(verdict, str) or verdict is False:
            name = name_of(rule)
            return Verdict(allowed=False, rule=name, reason=verdict or f"{name} said no")
    return Verdict(allowed=True, rule="")
