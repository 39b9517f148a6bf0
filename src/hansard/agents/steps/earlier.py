"""Calls on record from before a session began, and how the calls of an edited program find them.

An edit may give a call another key: a parameter with a default is added, a tool or an argument is
renamed, an argument has another value. Two things then keep its effect from happening twice.

*Identities.* Arguments at their declared default are no part of a call's key. Records of before
that rule have all of them in it, and a tool may have been called otherwise (`aliases=`). So a call
whose own key is not on record is looked for with each set of arguments that calls of its tool were
recorded with.

*Rivals.* A recorded effect that no call of this session has turned out to be is a rival of a new
effect in the same scope: the new one may be the recorded one in another form. It stops until
somebody decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from hansard.agents.steps.ledger import CallIdentity, Ledger
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import DECLARED, ToolSpec
from hansard.domain.errors import Corrupt
from hansard.domain.fingerprint import call_base, canonical
from hansard.domain.payload.parts import arguments_of
from hansard.domain.steps import Step
from hansard.domain.values import Plain

Place = tuple[str, tuple[int, ...]]
"""A scope's path, and the steps whose results it has seen last."""

_SPAWNED = re.compile(r"(?P<around>.*)/\d+\.\d+")
"""The path of a scope that was spawned in another one."""


class _Recorded(msgspec.Struct, frozen=True):
    """A recorded effect as seen from a scope: its own, or one around it.

    Attributes:
        effect: The effect.
        at: Itself, or the composite in whose body it is, seen from that scope.
        child: The path of the spawned scope that it is in, seen from that scope; empty for none.
    """

    effect: Step
    at: Step
    child: str = ""


class EarlierCalls:
    """The calls on record from before one session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names: dict[tuple[str, str], dict[frozenset[str], None]] | None = None
        self._effects: dict[str, list[_Recorded]] | None = None
        self._overlapped: set[Place] = set()
        self._concurrent: set[str] = set()

    def identities(
        self, spec: ToolSpec, path: str, plain: dict[str, Plain], defaults: tuple[str, ...]
    ) -> Iterator[CallIdentity]:
        """What a call of a scope may be recorded as, besides what it is by today's rule.

        Args:
            spec: The tool.
            path: The scope's.
            plain: The call's arguments, as they are recorded.
            defaults: Those of them that have their declared default.
        """
        if self._names is None:
            self._names = self._argument_names()
        for tool in spec.names:
            for names in self._names.get((tool, path), ()):
                left_out = plain.keys() - names
                if not (names <= plain.keys() and left_out <= set(defaults)):
                    continue
                if tool == spec.name and left_out == set(defaults):
                    continue
                form = canonical({name: plain[name] for name in names})
                base = call_base(tool, spec.version, self._ledger.stream.agent, path, form)
                yield CallIdentity(base, tuple(sorted(left_out)), tool)

    def _argument_names(self) -> dict[tuple[str, str], dict[frozenset[str], None]]:
        """The sets of arguments that are part of recorded call keys, by tool and scope."""
        found: dict[tuple[str, str], dict[frozenset[str], None]] = {}
        recorded = [*self._ledger.parent_calls.values(), *self._ledger.state.steps.values()]
        for step in recorded:
            names = _names(step).difference(step.defaults)
            found.setdefault((step.tool, step.scope), {})[names] = None
        return found

    # ------------------------------------------------------------ rivals

    def rival(self, call: Call) -> Step | None:
        """The recorded effect that a call which is not on record may repeat; None for none.

        Of several, one that was decided about comes first, then one after the same steps.
        """
        with self._ledger.lock:
            if self._effects is None:
                self._effects = self._recorded_effects()
            found: list[tuple[bool, bool, int]] = []
            for path, after in self._around(call) if self._effects else ():
                left = self._effects.get(path, [])
                left[:] = [each for each in left if not self._is_gone(each)]
                for each in left:
                    if self._may_be(call, each):
                        number = each.effect.number
                        decided = self._ledger.state.steps[number].verdict is not None
                        found.append((not decided, each.at.after != after, number))
            return self._ledger.state.steps[min(found)[-1]] if found else None

    def _recorded_effects(self) -> dict[str, list[_Recorded]]:
        """Effects by the paths of the scopes that they are in, and of those around these."""
        steps, opened = self._ledger.state.steps, self._ledger.opened
        found: dict[str, list[_Recorded]] = {}
        for step in steps.values():
            if step.version > opened:
                continue
            if step.unordered:
                self._overlapped.add((step.scope, step.after))
                self._concurrent.add(step.scope)
            at: Step | None = step if step.may_have_happened else None
            while at is not None:
                path, child = at.scope, ""
                found.setdefault(path, []).append(_Recorded(step, at))
                while (spawned := _SPAWNED.fullmatch(path)) is not None:
                    child, path = path, spawned["around"]
                    found.setdefault(path, []).append(_Recorded(step, at, child))
                at = steps.get(at.parent) if at.parent is not None else None
        return found

    def _around(self, call: Call) -> Iterator[Place]:
        """Where a call stands: in its scope, and in those around it that wait for it."""
        scope: Scope | None = call.place.scope
        after = call.place.after
        while scope is not None:
            yield scope.path, after
            scope = scope.blocked
            after = scope.after if scope is not None else ()

    def _is_gone(self, recorded: _Recorded) -> bool:
        """Whether a recorded effect can be no rival any more, seen from a scope."""
        now = self._ledger.state.steps[recorded.effect.number]
        if not now.may_have_happened or self._ledger.is_replayed(now):
            return True
        return recorded.at is not recorded.effect and recorded.at.number in self._ledger.requested

    def _may_be(self, call: Call, recorded: _Recorded) -> bool:
        """Whether a new call may be a recorded effect in another form."""
        spec, state, effect, at = call.spec, self._ledger.state, recorded.effect, recorded.at
        if recorded.child:
            if recorded.child in self._ledger.live:  # it may still follow there
                return False
            if _SPAWNED.sub(r"\g<around>", recorded.child) in self._concurrent:
                return False
        declared = state.declaration_of(effect)
        same = effect.tool in spec.names
        if same and declared is not None and declared.version != spec.version:
            return False
        if not same:
            known = effect.tool in self._ledger.declared or effect.tool in DECLARED
            if known or declared is None or not declared.source:
                return False
        if (at.scope, at.after) not in self._overlapped:
            return True
        if any(number not in self._ledger.handed for number in at.after):
            return True
        # Calls side by side come in any order: an equal call may still follow.
        names = _names(effect)
        if same:
            return not spec.takes_all(names)
        return spec.name not in state.tools and names == call.plain.keys()


def _names(step: Step) -> frozenset[str]:
    """The names of a step's recorded arguments; none where they are not given by name."""
    try:
        return frozenset(arguments_of(bytes(step.arguments), f"step {step.number}"))
    except Corrupt:
        return frozenset()
