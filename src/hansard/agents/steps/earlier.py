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

from collections.abc import Iterator

from hansard.agents.steps.ledger import CallIdentity, Ledger
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.tools import DECLARED, ToolSpec
from hansard.domain.errors import Corrupt
from hansard.domain.fingerprint import call_base, canonical
from hansard.domain.payload.parts import arguments_of
from hansard.domain.steps import Step
from hansard.domain.values import Plain

Place = tuple[str, tuple[int, ...]]
"""A scope's path, and the steps whose results it has seen last."""


class EarlierCalls:
    """The calls on record from before one session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names: dict[tuple[str, str], dict[frozenset[str], None]] | None = None
        self._effects: dict[str, list[tuple[Step, Step]]] | None = None
        self._overlapped: set[Place] = set()

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
                pairs = self._effects.get(path, [])
                pairs[:] = [pair for pair in pairs if not self._is_gone(*pair)]
                for effect, at in pairs:
                    if self._may_be(call, effect, at):
                        decided = self._ledger.state.steps[effect.number].verdict is not None
                        found.append((not decided, at.after != after, effect.number))
            return self._ledger.state.steps[min(found)[-1]] if found else None

    def _recorded_effects(self) -> dict[str, list[tuple[Step, Step]]]:
        """Effects by the paths of the scopes that they are in, each with the step of that scope:
        itself, or the composite in whose body it is.
        """
        steps, opened = self._ledger.state.steps, self._ledger.opened
        found: dict[str, list[tuple[Step, Step]]] = {}
        for step in steps.values():
            if step.version > opened:
                continue
            if step.unordered:
                self._overlapped.add((step.scope, step.after))
            if not step.may_have_happened:
                continue
            at: Step | None = step
            while at is not None:
                found.setdefault(at.scope, []).append((step, at))
                at = steps.get(at.parent) if at.parent is not None else None
        return found

    def _around(self, call: Call) -> Iterator[Place]:
        """Where a call stands: in its scope, and around it as far as the composites are new."""
        scope = call.place.scope
        yield scope.path, call.place.after
        around = self._ledger.state.steps.get(scope.step or 0)
        while around is not None and around.version > self._ledger.opened:
            yield around.scope, around.after
            around = self._ledger.state.steps.get(around.parent or 0)

    def _is_gone(self, effect: Step, at: Step) -> bool:
        """Whether a recorded effect can be no rival any more in the scope of the step `at`."""
        now = self._ledger.state.steps[effect.number]
        if not now.may_have_happened or self._ledger.is_replayed(now):
            return True
        return at is not effect and at.number in self._ledger.requested

    def _may_be(self, call: Call, effect: Step, at: Step) -> bool:
        """Whether a new call may be a recorded effect in another form."""
        spec, state = call.spec, self._ledger.state
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
