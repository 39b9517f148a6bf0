"""Doubt, divergence and probes: decisions about a call whose effect may have happened already, or
whose recorded answer is swapped.

Each function returns the step that is the answer, or None if the call is to run; if only a person
can decide, it raises.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.agents.errors import (
    EARLIER_STEP_CHANGED,
    NOT_REPLAYED,
    Diverged,
    NeedsSettling,
    NotAnswered,
    ReplayDiffers,
    ResultMismatch,
    ShadowedEffect,
    doubt,
)
from hansard.agents.flow import Body, Flow, awaited, is_coroutine_function, name_of
from hansard.agents.policy.permits import refused, trusts
from hansard.agents.steps import payloads
from hansard.agents.steps.conversions import check_settled, from_plain
from hansard.agents.steps.failures import raised
from hansard.agents.steps.ledger import CallIdentity, Ledger, describe
from hansard.agents.steps.placeholders import reveal
from hansard.agents.steps.recorder import UNTOUCHED, Call, StepRecorder, UnsettledStep
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import DECLARED, DidNotHappen, Happened, ToolSpec
from hansard.bus.errors import NotFound
from hansard.domain import payload, values
from hansard.domain.agent import AgentState, Refuse, Tell
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.fingerprint import call_base, canonical, digest
from hansard.domain.payload import MARK, WholeSteps, arguments_of
from hansard.domain.roles.authorize import Trust
from hansard.domain.run import EditedResult, Swap, with_bodies
from hansard.domain.steps import (
    Effects,
    Failure,
    Step,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepSettled,
    StepStatus,
    StepYielded,
    Verdict,
    Withheld,
)
from hansard.domain.values import Plain, replaced

# ------------------------------ earlier calls of an edited program
#
# An edit may change the key of a call. Two rules keep its effect from happening twice:
# - Identities: arguments at their default are not part of the key, and a tool may have had another
#   name (`aliases=`). A call whose key is not on record is looked up with each set of arguments
#   that calls of its tool were recorded with.
# - Rivals: a recorded effect that no call of this session matched is a rival of a new effect in the
#   same scope. The new call stops until a person or policy decides.

Place = tuple[str, tuple[int, ...]]
"""A scope's path, and the steps whose results it has seen last."""

_SPAWNED = re.compile(r"(?P<around>.*)/\d+\.\d+")
"""Path of a scope that was spawned in another one."""


class _Recorded(msgspec.Struct, frozen=True):
    """A recorded effect as seen from a scope: its own, or an enclosing one.

    Attributes:
        effect: The effect.
        at: The effect itself, or the composite whose body contains it, seen from that scope.
        child: The path of the spawned scope that contains it, seen from that scope; empty for none.
    """

    effect: Step
    at: Step
    child: str = ""


class EarlierCalls:
    """Calls recorded before a session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names: dict[tuple[str, str], dict[frozenset[str], None]] | None = None
        self._effects: dict[str, list[_Recorded]] | None = None
        self._overlapped: set[Place] = set()
        self._concurrent: set[str] = set()

    def identities(
        self, spec: ToolSpec, path: str, plain: dict[str, Plain], defaults: tuple[str, ...]
    ) -> Iterator[CallIdentity]:
        """Yield the identities under which a call may be recorded, besides its current one.

        Args:
            spec: The tool.
            path: The scope's path.
            plain: The call's arguments, as recorded.
            defaults: Names of the arguments that have their declared default.
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
        """Return the sets of argument names in recorded call keys, by tool and scope."""
        names_by_call: dict[tuple[str, str], dict[frozenset[str], None]] = {}
        recorded = [*self._ledger.parent_calls.values(), *self._ledger.state.steps.values()]
        for step in recorded:
            names = _names(step).difference(step.defaults)
            names_by_call.setdefault((step.tool, step.scope), {})[names] = None
        return names_by_call

    # ------------------------------------------------------------ rivals

    def rival(self, call: Call) -> Step | None:
        """Return the recorded effect that an unrecorded call may repeat, or None.

        Among several, prefers one that was settled, then one after the same steps.
        """
        with self._ledger.lock:
            if self._effects is None:
                self._effects = self._recorded_effects()
            rivals: list[tuple[bool, bool, int]] = []
            for path, after in self._around(call) if self._effects else ():
                left = self._effects.get(path, [])
                left[:] = [each for each in left if not self._is_gone(each)]
                for each in left:
                    if self._may_be(call, each):
                        number = each.effect.number
                        decided = self._ledger.state.steps[number].verdict is not None
                        rivals.append((not decided, each.at.after != after, number))
            return self._ledger.state.steps[min(rivals)[-1]] if rivals else None

    def _recorded_effects(self) -> dict[str, list[_Recorded]]:
        """Return recorded effects by the paths of their scopes and of the enclosing ones."""
        steps, opened = self._ledger.state.steps, self._ledger.opened
        effects: dict[str, list[_Recorded]] = {}
        for step in steps.values():
            if step.version > opened:
                continue
            if step.unordered:
                self._overlapped.add((step.scope, step.after))
                self._concurrent.add(step.scope)
            at: Step | None = step if step.may_have_happened else None
            while at is not None:
                path, child = at.scope, ""
                effects.setdefault(path, []).append(_Recorded(step, at))
                while (spawned := _SPAWNED.fullmatch(path)) is not None:
                    child, path = path, spawned["around"]
                    effects.setdefault(path, []).append(_Recorded(step, at, child))
                at = steps.get(at.parent) if at.parent is not None else None
        return effects

    def _around(self, call: Call) -> Iterator[Place]:
        """Yield a call's place in its scope, and in the enclosing scopes that wait for it."""
        scope: Scope | None = call.place.scope
        after = call.place.after
        while scope is not None:
            yield scope.path, after
            scope = scope.blocked
            after = scope.after if scope is not None else ()

    def _is_gone(self, recorded: _Recorded) -> bool:
        """Return whether a recorded effect can no longer be a rival, seen from a scope."""
        now = self._ledger.state.steps[recorded.effect.number]
        if not now.may_have_happened or self._ledger.is_replayed(now):
            return True
        return recorded.at is not recorded.effect and recorded.at.number in self._ledger.requested

    def _may_be(self, call: Call, recorded: _Recorded) -> bool:
        """Return whether a new call may be a recorded effect in another form."""
        spec, state, effect, at = call.spec, self._ledger.state, recorded.effect, recorded.at
        if recorded.child:
            if recorded.child in self._ledger.live:  # it may still be called there
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
        if any(number not in self._ledger.received for number in at.after):
            return True
        # Concurrent calls have no fixed order: an equal call may still follow.
        names = _names(effect)
        if same:
            return not spec.takes_all(names)
        return spec.name not in state.tools and names == call.plain.keys()


def _names(step: Step) -> frozenset[str]:
    """Return the names of a step's recorded arguments; empty if they are not recorded by name."""
    try:
        return frozenset(arguments_of(bytes(step.arguments), f"step {step.number}"))
    except Corrupt:
        return frozenset()


FORK = "fork"
"""Rule name of a fork's refusal of an effect that has no substitute."""


class DoubtSettler:
    """Settles a session's doubts."""

    def __init__(self, outcomes: StepRecorder) -> None:
        self.outcomes = outcomes
        self.ledger = outcomes.ledger
        self.settings = outcomes.settings
        self.stream = outcomes.stream
        self._parent = payloads.Reader(lambda: self.settings.parent or AgentState())

    def diverged(
        self, call: Call, old: Step, reason: str = EARLIER_STEP_CHANGED
    ) -> Flow[Step | None]:
        """Settle a call that may repeat a recorded effect, or stop it. Raises Diverged."""
        verdict, why = old.verdict, ""
        whole = yield from self._whole(old)
        now = f"{call.spec.name} {call.canonical.decode()[:200]} after {list(call.place.after)}"
        if verdict not in (Verdict.REUSE, Verdict.RUN_AGAIN):
            answer, why = yield from self._policy(call, whole, now)
            if isinstance(answer, Verdict) and answer in (Verdict.REUSE, Verdict.RUN_AGAIN):
                verdict = answer
                yield from self._settled(old, verdict, _named("policy", self.settings.settle))
        if verdict is Verdict.REUSE:
            yield from self.adopt(call, old)
            return self.ledger.state.steps[call.number]
        if verdict is Verdict.RUN_AGAIN:
            call.key = None
            return None
        field, digests = "after", (old.fingerprint, call.place.fingerprint)
        if reason == NOT_REPLAYED:
            field, digests = "call", (old.call, call.place.call)
        error = Diverged(self.outcomes.address, whole, now, reason, field=field, digests=digests)
        raise _because(error, why)

    def _whole(self, step: Step) -> Flow[Step]:
        """Return a step with its full values, except blobs, for people and policies."""
        try:
            whole: Step = yield from self.outcomes.fetch(self.outcomes.reader.step(step))
        except (NotFound, Corrupt):
            return step
        return whole

    def _settled(self, step: Step, verdict: Verdict, by: str, result: Any = None) -> Flow[None]:
        """Record a verdict, after the blob of a large result."""
        plain = values.plain(result, "settled result", self.settings.scrub)
        packed = payloads.pack(plain, "settled result")
        yield from self.outcomes.put(packed.blobs)
        event = StepSettled(
            step=step.number,
            verdict=verdict,
            by=by,
            result=packed.raw,
            digest=digest(canonical(plain)) if verdict is Verdict.HAPPENED else "",
        )
        yield from self.outcomes.record(Tell(event))

    def settle(self, call: Call, step: Step) -> Flow[Step | None]:
        """Settle a doubt by the session's policy, or raise the error that asks a person."""
        step = yield from self._whole(step)
        verdict, why = yield from self._policy(call, step)
        by = _named("policy", self.settings.settle)
        return (yield from self._apply_verdict(call, step, verdict, by, why))

    def _policy(self, call: Call, step: Step, now: str = "") -> Flow[tuple[Any, str]]:
        """Return the verdict of the session's policy, if any. It is not called if the role may not
        settle; the refusal's text is returned. `now`: the call that diverged from the step.
        """
        if self.settings.settle is None:
            return None, ""
        refusal = self.settings.permit.refusal(
            trusts(Trust.SETTLE, f"{self.stream.agent}#{step.number}")
        )
        if refusal is not None:
            yield from self.outcomes.record(Refuse(refusal))
            return None, str(refused(refusal))
        request = self._unsettled(call, step, now)
        body: tuple[Any, tuple[Any, ...]] = self.settings.settle, (request,)
        if not is_coroutine_function(self.settings.settle):
            verdict = self.settings.settle(request)
            if not inspect.isawaitable(verdict):
                return verdict, ""
            body = awaited, (verdict,)
        scope = Scope(self.ledger, step.call, step.fingerprint, (), step.number)
        scope.nests = False
        verdict, _ = yield Body(*body, {}, scope)
        return verdict, ""

    def _unsettled(self, call: Call, step: Step, now: str) -> UnsettledStep:
        """Return a step with the further facts that a policy may need."""
        address = self.outcomes.address
        declared = self.ledger.state.declaration_of(step)
        return UnsettledStep(
            **msgspec.structs.asdict(step),
            run=address.run,
            agent=address.agent,
            command=address.command,
            diverged=bool(now),
            now=now,
            source_before=declared.source if declared is not None else "",
            source_now=call.spec.source,
            defined=call.spec.defined,
        )

    def _apply_verdict(
        self, call: Call, step: Step, value: Any, by: str, why: str = ""
    ) -> Flow[Step | None]:
        match value:
            case Happened(result):
                self._check(call, step, result)
                yield from self._settled(step, Verdict.HAPPENED, by, result)
                return self.ledger.state.steps[step.number]
            case DidNotHappen():
                yield from self._settled(step, Verdict.DID_NOT_HAPPEN, by)
                return None
            case _:
                raise _because(doubt(self.outcomes.address, step), why)

    def _check(self, call: Call, step: Step, result: Any) -> None:
        """Raise ResultMismatch for a result that does not match the tool's return type."""
        if call.spec.settles is not None:
            try:
                check_settled(result, call.spec.settles)
            except BadValue as error:
                settled = msgspec.structs.replace(step, verdict=Verdict.HAPPENED)
                raise ResultMismatch(self.outcomes.address, settled, error) from error

    def ask_world(self, call: Call, step: Step) -> Flow[Step | None]:
        """Call a tool's reconcile function; an exception in it leaves the step in doubt."""
        ask = call.spec.reconcile
        if ask is None:
            return (yield from self.settle(call, step))
        scope = Scope(self.ledger, call.place.call, call.place.fingerprint, (), step.number)
        scope.nests = False
        arguments = reveal(dict(call.arguments), self.settings.secrets, call.spec.name)
        request = call.spec.question(arguments, step.key)
        try:
            answer, _ = yield Body(ask, (), request, scope, call.spec.timeout_s)
        except Exception as error:
            unknown = doubt(self.outcomes.address, step)
            unknown.add_note(f"its reconcile function raised {type(error).__name__}: {error}")
            raise unknown from error
        return (yield from self._apply_verdict(call, step, answer, _named("reconcile", ask)))

    def adopt(self, call: Call, old: Step) -> Flow[None]:
        """Record here an outcome that is recorded elsewhere."""
        blobs, opening = ([], []) if call.is_recorded else (yield from self.outcomes.opening(call))
        yield from self.outcomes.put(blobs)
        commands: list[Any] = []
        result = old.result
        if MARK in bytes(result) and self._is_parents(old):
            # It may refer to events that the parent recorded after the cut, outside this stream.
            plain = yield from self.outcomes.fetch(self._parent.result(old))
            packed = yield from self.outcomes.packed_result(call, plain)
            yield from self.outcomes.put(packed.blobs)
            result = packed.raw
        # A stream settled as `happened` has the settled result, not its items before the cut.
        streamed = old.streamed and old.verdict is not Verdict.HAPPENED
        if streamed:
            commands += [
                StepYielded(step=call.number, index=index, items=(item,))
                for index, item in enumerate(old.items)
            ]
        if old.status is StepStatus.COMPLETED:
            commands.append(
                StepCompleted(
                    step=call.number,
                    result=result,
                    digest=old.digest,
                    items=len(old.items) if streamed else None,
                    closed=old.closed,
                    reused=old.number,
                )
            )
        else:
            error = old.error or Failure("Unknown", "")
            commands.append(
                StepFailed(step=call.number, error=error, digest=old.digest, safe=old.safe)
            )
        withheld = self.outcomes.withheld(call)
        yield from self.outcomes.record(*opening, *withheld, *map(Tell, commands))
        if self._is_parents(old):
            self.ledger.adopted[call.number] = old

    def _is_parents(self, step: Step) -> bool:
        parent = self.settings.parent
        return parent is not None and parent.steps.get(step.number) is step

    def shadow(self, call: Call, *candidates: Step | None) -> Flow[None]:
        """Withhold a fork's effect: answer with a recorded outcome or the declared shadow, or raise
        ShadowedEffect.
        """
        for step in candidates:
            if step is not None and step.status in (StepStatus.COMPLETED, StepStatus.FAILED):
                call.withheld = Withheld.OUTCOME
                yield from self.adopt(call, step)
                return
        if call.spec.shadow is None:
            yield from self._refused(call)
            raise ShadowedEffect(call.spec.name)
        call.withheld = Withheld.SHADOW
        scope = Scope(self.ledger, call.place.call, call.place.fingerprint, (), None)
        scope.nests = False
        if call.is_recorded:
            yield from self.outcomes.again(call)
        body = Body(call.spec.shadow, (), dict(call.arguments), scope)
        call.spec = msgspec.structs.replace(call.spec, kind="shadow")
        try:
            result, took = yield body
        except UNTOUCHED:
            raise
        except Exception as error:
            yield from self.outcomes.failed(call, error)
            raise
        yield from self.outcomes.completed(call, result, took, {})

    def _refused(self, call: Call) -> Flow[None]:
        """Record that an effect has no substitute, unless that is already recorded."""
        step = self.ledger.state.steps.get(call.number)
        if step is not None and step.withheld is Withheld.REFUSED:
            return
        call.withheld = Withheld.REFUSED
        if call.is_recorded:
            yield from self.outcomes.again(call)
        reason = str(ShadowedEffect(call.spec.name))
        yield from self.outcomes.ended_as(
            call, lambda number: StepBlocked(step=number, rule=FORK, reason=reason)
        )

    # ------------------------------------------------------------ edits

    def edited(self, call: Call) -> Flow[Step | None]:
        """Return the step that answers a call in a fork with edits; None if it depends on one.

        An edited call gets its new result, settled as `happened` by the author of the edit. A call
        that the parent made after the same results gets the parent's outcome.
        """
        edit = (self.settings.edits or {}).get(call.place.known_by)
        if edit is not None:
            yield from self._supply(call, edit)
            return self.ledger.state.steps[call.number]
        old = self.ledger.parent_calls.get(call.place.known_by)
        if old is None or old.fingerprint != call.place.fingerprint or self.holds_edit(old):
            return None
        is_final = call.effects in (Effects.ONCE, Effects.RECONCILE)
        if old.status is not StepStatus.COMPLETED and not (
            is_final and old.status is StepStatus.FAILED
        ):
            return None
        if call.has_effects:
            call.withheld = Withheld.OUTCOME
        yield from self.adopt(call, old)
        return self.ledger.state.steps[call.number]

    def holds_edit(self, step: Step) -> bool:
        """Return whether a composite's body has an edited call, so that it runs again."""
        parents = self.settings.parent.steps if self.settings.parent is not None else {}
        for edit in (self.settings.edits or {}).values():
            inner = self.ledger.parent_calls.get(edit.call)
            while inner is not None and inner.parent is not None:
                if inner.parent == step.number:
                    return True
                inner = parents.get(inner.parent)
        return False

    def _supply(self, call: Call, edit: EditedResult) -> Flow[None]:
        """Record a call with an edited result; nothing runs. Raises BadValue for a result that is
        not of the tool's return type.
        """
        plain = yield from self.outcomes.fetch(payload.unpack(edit.result))
        listed = isinstance(plain, list) and call.spec.is_stream
        try:
            for each in plain if listed else [plain]:
                value = from_plain(each, call.spec.returns)
                if call.spec.settles is not None:
                    check_settled(value, call.spec.settles)
        except BadValue as error:
            which = f"the edited result of step {edit.agent}#{edit.step} ({edit.tool})"
            remedy = "fork again with a result of the tool's return type"
            raise BadValue(which, f"{error.where}: {error.fact}", remedy) from error
        if call.has_effects:
            call.withheld = Withheld.EDIT
        blobs, opening = yield from self.outcomes.opening(call)
        yield from self.outcomes.put(blobs)
        event = StepSettled(
            step=call.number,
            verdict=Verdict.HAPPENED,
            by=edit.by,
            result=edit.result,
            digest=edit.digest,
            because=edit.reason,
        )
        yield from self.outcomes.record(*opening, *self.outcomes.withheld(call), Tell(event))

    # ------------------------------------------------------------ probes

    def is_probed(self, call: Call) -> bool:
        """Return whether the swap concerns the call, and the fork's own record does not answer
        it.
        """
        swap, step = self.settings.swap, call.step
        if swap is None or not (call.spec.kind == MODEL or _is_swapped(call, swap)):
            return False
        return step is None or _is_refusal(step)

    def probed(self, call: Call) -> Flow[Step | None]:
        """Return the step that answers the call, or None to run it. Raises NotAnswered."""
        if call.step is not None:  # an earlier refusal, recorded in the fork
            self.ledger.advance(call.place.scope, call.step)
            raise raised(call.step, call.spec)
        swap = self.settings.swap
        if swap is not None and _is_swapped(call, swap):
            return (yield from self._swapped(call, swap))
        old = self.ledger.parent_calls.get(call.place.call)
        if (
            old is not None
            and old.status in (StepStatus.COMPLETED, StepStatus.FAILED)
            and not (self.ledger.full and old.fingerprint != call.place.fingerprint)
        ):
            yield from self.adopt(call, old)
            return self.ledger.state.steps[call.number]
        if swap is not None and swap.live:
            return None
        why = "the run's record has no such call, and --live was not given"
        return (yield from self._not_answered(call, why))

    def _swapped(self, call: Call, swap: Swap) -> Flow[Step | None]:
        old = yield from self._recorded(call, swap)
        if old is None:
            agent = self.outcomes.stream.agent
            why = f"it returns {swap.path}, and the run's record has no such call by {agent!r}"
            return (yield from self._not_answered(call, why))
        plain = yield from self.outcomes.fetch(self._parent.result(old))
        try:
            plain = replaced(plain, swap.within, msgspec.json.decode(swap.after))
        except KeyError:
            why = f"its recorded result at step {old.number} has no {swap.path}"
            return (yield from self._not_answered(call, why))
        yield from self.outcomes.completed_as(call, payloads.Result(plain), 0.0, {})
        return self.ledger.state.steps[call.number]

    def _recorded(self, call: Call, swap: Swap) -> Flow[Step | None]:
        """Return the parent's recorded call: the same one, else the newest with its arguments."""
        same = self.ledger.parent_calls.get(call.place.call)
        if same is not None and same.status is StepStatus.COMPLETED:
            return same
        newest: Step | None = None
        parent = self.settings.parent or AgentState()
        for step in parent.steps.values():
            if step.tool == swap.tool and step.status is StepStatus.COMPLETED:
                arguments = yield from self.outcomes.fetch(self._parent.arguments(step))
                if digest(canonical(arguments)) == swap.arguments:
                    newest = step
        return newest

    def _not_answered(self, call: Call, why: str) -> Flow[Step | None]:
        """Record that a call is not answered, and raise the error."""
        error = NotAnswered(call.spec.name, why)
        yield from self.outcomes.failed(call, error)
        raise error


def _because(error: NeedsSettling, why: str) -> NeedsSettling:
    """Return a doubt with the reason that the session's policy did not settle it."""
    if why:
        error.args = (f"{error}\n{why}",)
    return error


def _named(kind: str, function: object) -> str:
    """Name the settler of a step: the person consulted by a policy, else the policy."""
    return getattr(function, "answered_by", "") or f"{kind}:{name_of(function)}"


# Calls in a probe's fork: answered from the record with one value swapped, answered as recorded,
# or not answered.
#
# The value is swapped in the answer of the call that returned it, whenever the program makes that
# call again with the same arguments. A model call that the parent recorded is answered from the
# record: the same call with the same arguments, or, in a run with the full chain, with the same
# fingerprint. All other such calls run only if the probe may run them; otherwise a failure is
# recorded, so that a program that continues without the answer is distinct from one that had it.

# Comparison of a replay with its record, step by step: equal, missing and additional calls.

EQUAL_LINES_MAX = 2
"""Matching calls that are shown before and after each difference."""

LINES_MAX = 40
"""Largest number of lines of the comparison; the rest is only counted."""

EQUAL, ON_RECORD, BESIDES = "  = ", "  - ", "  + "


def before(ledger: Ledger) -> str:
    """Return the last calls of a replay, as recorded; empty if there are none."""
    with ledger.lock:
        steps = WholeSteps(ledger.state.steps)
        received = list(ledger.received)
        last = [EQUAL + describe(steps[number]) for number in received[-EQUAL_LINES_MAX:]]
    more = len(received) - len(last)
    return "\n".join([f"  ... {more:,} as recorded", *last] if more else last)


def difference(ledger: Ledger) -> ReplayDiffers | None:
    """Return the difference of a finished strict replay from its record, or None."""
    with ledger.lock:
        path, steps = ledger.path, ledger.state.steps
        if path is None:
            return None
        request = ledger.met.union(ledger.received)
        made = with_bodies(request, steps)
        tops = set(path.steps)
        tops = {number for number in tops if steps[number].parent not in tops}
        lacking = tops - made
        known = with_bodies(path.steps, steps)
        besides = sorted(request - known) if path.exact else []
        if not (lacking or besides or ledger.missed):
            return None
        whole = WholeSteps(steps)
        lines = [
            (ON_RECORD if number in lacking else EQUAL) + describe(whole[number])
            for number in sorted(tops)
        ]
        absent = [line.removeprefix(ON_RECORD) for line in lines if line.startswith(ON_RECORD)]
        extra = [*(describe(whole[number]) for number in besides), *ledger.missed]
        lines += [BESIDES + each for each in extra]
    return ReplayDiffers(ledger.stream.agent, absent, extra, _shortened(lines))


def _shortened(lines: list[str]) -> str:
    """Return lines with runs of equal ones, away from differences, replaced by counts."""
    differ = [index for index, line in enumerate(lines) if not line.startswith(EQUAL)]
    near = {
        index for at in differ for index in range(at - EQUAL_LINES_MAX, at + EQUAL_LINES_MAX + 1)
    }
    shown: list[str] = []
    for is_near, group in itertools.groupby(range(len(lines)), near.__contains__):
        run = [lines[index] for index in group]
        shown += run if is_near else [f"  ... {len(run):,} as recorded"]
    if len(shown) > LINES_MAX:
        shown[LINES_MAX:] = [f"  ... {len(shown) - LINES_MAX:,} more lines"]
    return "\n".join(shown)


MODEL = "model"


def _is_swapped(call: Call, swap: Swap) -> bool:
    return call.spec.name == swap.tool and digest(call.canonical) == swap.arguments


def _is_refusal(step: Step) -> bool:
    error = step.error
    return (
        step.status is StepStatus.FAILED
        and error is not None
        and error.type == NotAnswered.__name__
    )
