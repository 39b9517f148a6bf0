"""Whether two runs can be compared: what differs between them besides where they part.

Four things are looked at, each after the newest event that both runs share: the tools' code (as
declared where they were called), the models that were asked, the prompts (messages of the roles
`system` and `developer`, of the whole window), and effects that a fork withheld. The view `forks`
says the same of each fork and its parent (`projections/schema/33_forks.sql`).
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from hansard.bus.commits import revive
from hansard.domain.agent import MessageAdded
from hansard.domain.choices import counted, listed
from hansard.domain.steps import Step, ToolDeclared, Withheld
from hansard.inspect.answer import plain_text
from hansard.inspect.payloads import recorded
from hansard.inspect.trace import AgentHistory

PROMPT_ROLES = frozenset({"system", "developer"})
"""Roles of messages that instruct a model."""

NAMED_MAX = 4
"""Tools and models that a sentence names."""


class Sameness(StrEnum):
    """How two runs compare in one respect."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_ON_RECORD = "not on record"


class Comparable(StrEnum):
    """Whether two runs can be compared.

    Attributes:
        COMPARABLE: All that is looked at is on record, and nothing of it differs.
        DIFFERS: Something does: what came out different may come of that.
        CANNOT_TELL: Nothing that is on record differs, and not all of it is on record.
    """

    COMPARABLE = "comparable"
    DIFFERS = "differs"
    CANNOT_TELL = "cannot tell"


class Respect(msgspec.Struct, frozen=True):
    """One respect: `name` is `code`, `model`, `prompt` or `effects`, `because` says it in words."""

    name: str
    sameness: Sameness
    because: str


class Comparability(msgspec.Struct, tag_field="kind", tag="comparability", kw_only=True):
    """The verdict, what it rests on, and how many effects either run withheld after the cut."""

    verdict: Comparable
    differs_in: list[str]
    not_on_record: list[str]
    respects: list[Respect]
    withheld_a: dict[str, int]
    withheld_b: dict[str, int]


class _Side(msgspec.Struct):
    """What a run has on record after the cut."""

    code: dict[str, set[tuple[str, str, str]]] = {}
    models: set[str] = set()
    prompts: set[bytes] = set()
    withheld: Counter[Withheld] = msgspec.field(default_factory=Counter)


def comparability(a: Mapping[str, AgentHistory], b: Mapping[str, AgentHistory]) -> Comparability:
    """What two runs differ in besides where they part, of their agents by name."""
    sides = [_side(one, other) for one, other in ((a, b), (b, a))]
    respects = [_code(*sides), _model(*sides), _prompt(*sides), _effects(*sides)]
    differs = [each.name for each in respects if each.sameness is Sameness.DIFFERS]
    unknown = [each.name for each in respects if each.sameness is Sameness.NOT_ON_RECORD]
    known = Comparable.CANNOT_TELL if unknown else Comparable.COMPARABLE
    return Comparability(
        verdict=Comparable.DIFFERS if differs else known,
        differs_in=differs,
        not_on_record=unknown,
        respects=respects,
        withheld_a=_counts(sides[0]),
        withheld_b=_counts(sides[1]),
    )


def _counts(side: _Side) -> dict[str, int]:
    return {how.value: side.withheld[how] for how in Withheld}


# ---------------------------------------------------------------- what is on record


def _side(ours: Mapping[str, AgentHistory], theirs: Mapping[str, AgentHistory]) -> _Side:
    side = _Side()
    for name, agent in ours.items():
        cut = _cut(agent, theirs.get(name))
        declared: dict[str, list[tuple[int, ToolDeclared]]] = {}
        for version, stored in agent.events.items():
            event = revive(stored.event)
            if isinstance(event, ToolDeclared):
                declared.setdefault(event.tool, []).append((version, event))
        for noted in agent.state.facts:
            if isinstance(noted.fact, MessageAdded):
                _message(side, noted.fact, after=noted.version > cut)
        for step in agent.steps:
            if step.version > cut:
                _step(side, step, declared.get(step.tool, []))
    return side


def _cut(agent: AgentHistory, other: AgentHistory | None) -> int:
    """The newest version that both have from one event; 0 where they share none."""
    if other is None:
        return 0
    shared = (
        version
        for version, event in agent.events.items()
        if version in other.events and other.events[version].event.id == event.event.id
    )
    return max(shared, default=0)


def _message(side: _Side, message: MessageAdded, *, after: bool) -> None:
    if message.role in PROMPT_ROLES:
        side.prompts.add(bytes(message.content))
    if after:
        _named(side, recorded(message.fields))


def _step(side: _Side, step: Step, declared: list[tuple[int, ToolDeclared]]) -> None:
    _named(side, recorded(step.arguments))
    if step.withheld is not None:
        side.withheld[step.withheld] += 1
    found = bisect.bisect_right(declared, step.version, key=lambda one: one[0])
    if found:
        tool = declared[found - 1][1]
        said = (tool.version, tool.source, tool.effects.value)
        side.code.setdefault(step.tool, set()).add(said)


def _named(side: _Side, told: Any) -> None:
    model = told.get("model") if isinstance(told, dict) else None
    if isinstance(model, str) and model:
        side.models.add(model)


# ---------------------------------------------------------------- how that compares


def _code(a: _Side, b: _Side) -> Respect:
    """Tools that both called; what one alone called is another call, not other code."""
    both = sorted(a.code.keys() & b.code.keys())
    other = [tool for tool in both if a.code[tool] != b.code[tool]]
    if other:
        return _differs("code", f"{_listed(other)}: {_changed(a.code, b.code, other)}")
    blind = [tool for tool in both if any(not source for _, source, _ in a.code[tool])]
    if blind or not both:
        why = f"no source of {_listed(blind)}" if blind else "they called no tool that both called"
        return Respect("code", Sameness.NOT_ON_RECORD, why)
    because = f"{counted(len(both), 'tool')} that both called; other code is not recorded"
    return Respect("code", Sameness.SAME, because)


def _changed(
    a: Mapping[str, set[tuple[str, str, str]]],
    b: Mapping[str, set[tuple[str, str, str]]],
    tools: Iterable[str],
) -> str:
    """What of the declarations is another one."""
    parts = ("version", "source", "effects")
    names = [
        part
        for index, part in enumerate(parts)
        if any({one[index] for one in a[tool]} != {one[index] for one in b[tool]} for tool in tools)
    ]
    return f"another {' and '.join(names)}" if names else "declared in turns"


def _model(a: _Side, b: _Side) -> Respect:
    if not a.models or not b.models:
        return Respect(
            "model", Sameness.NOT_ON_RECORD, _missing(a.models, b.models, "names a model")
        )
    if a.models == b.models:
        return Respect("model", Sameness.SAME, _listed(sorted(a.models)))
    return _differs("model", f"A: {_listed(sorted(a.models))}; B: {_listed(sorted(b.models))}")


def _prompt(a: _Side, b: _Side) -> Respect:
    if a.prompts == b.prompts and a.prompts:
        return Respect(
            "prompt", Sameness.SAME, counted(len(a.prompts), "message") + " that instruct"
        )
    if not a.prompts and not b.prompts:
        why = _missing(a.prompts, b.prompts, "has a message of the role system or developer")
        return Respect("prompt", Sameness.NOT_ON_RECORD, why)
    only = [len(one.prompts - other.prompts) for one, other in ((a, b), (b, a))]
    return _differs("prompt", f"messages that instruct only in A: {only[0]}, only in B: {only[1]}")


def _effects(a: _Side, b: _Side) -> Respect:
    """Effects that were answered as the parent's were make no difference to who called them."""
    told = "; ".join(
        f"{letter}: {text}" for letter, side in (("A", a), ("B", b)) for text in _withheld(side)
    )
    if any(side.withheld[how] for side in (a, b) for how in (Withheld.SHADOW, Withheld.REFUSED)):
        return _differs("effects", told)
    return Respect("effects", Sameness.SAME, told or "none was withheld")


def _withheld(side: _Side) -> Iterator[str]:
    """What a run withheld, in words."""
    found = side.withheld
    if not found.total():
        return
    said = {
        Withheld.OUTCOME: "answered with an outcome on record",
        Withheld.SHADOW: "answered by a shadow",
        Withheld.REFUSED: "refused",
    }
    parts = [f"{found[how]:,} {text}" for how, text in said.items() if found[how]]
    yield f"{counted(found.total(), 'effect')} withheld ({', '.join(parts)})"


def _differs(name: str, because: str) -> Respect:
    return Respect(name, Sameness.DIFFERS, because)


def _missing(a: set[Any], b: set[Any], what: str) -> str:
    """Whose record lacks something."""
    if not a and not b:
        return f"nothing {what}" if what.startswith("names") else f"neither {what}"
    return f"nothing in {'B' if a else 'A'} {what}"


def _listed(names: list[str]) -> str:
    shown = [plain_text(name) for name in names[:NAMED_MAX]]
    more = len(names) - len(shown)
    return listed([*shown, f"{more:,} more"] if more else shown)
