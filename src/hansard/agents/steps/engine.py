"""A step: resolve, gate, run, record; the only module that handles doubt.

Everything here is written once for both clients: immediate answers are plain functions, everything
that waits is a flow (see `hansard.agents.flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hansard.agents.errors import (
    NOT_REPLAYED,
    Miss,
    NeedsSettling,
    ResultMismatch,
    SecretUnavailable,
    SessionEnded,
    ToolChanged,
    doubt,
    warn,
)
from hansard.agents.flow import Body, Flow, Pause
from hansard.agents.policy.approvals import LogBudgets
from hansard.agents.steps import payloads
from hansard.agents.steps.conversions import check_settled, from_plain
from hansard.agents.steps.doubt import MODEL, DoubtSettler, EarlierCalls, before
from hansard.agents.steps.failures import raised
from hansard.agents.steps.gating import STOPPED, Gated, Reservation
from hansard.agents.steps.ledger import Ledger, Mode, is_final
from hansard.agents.steps.placeholders import Masker, key_of, reveal
from hansard.agents.steps.recorder import Call, Settings, StepRecorder, comes_from_outside
from hansard.agents.steps.reused import Answer, Lookup, Reuser
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import ToolSpec
from hansard.agents.workspace import Workspace
from hansard.domain import payload, values
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import call_base, canonical
from hansard.domain.label import parse
from hansard.domain.payload import MARK, BlobsNeeded, without_blobs
from hansard.domain.prompt import texts_in, uses
from hansard.domain.steps import Effects, Step, StepStatus, ToolDeclared, Verdict, Withheld


class StepEngine(Gated):
    """Steps of one session."""

    def __init__(
        self, ledger: Ledger, settings: Settings, workspace: Workspace, budgets: LogBudgets
    ) -> None:
        outcomes = StepRecorder(ledger, settings, workspace.blobs)
        super().__init__(outcomes, budgets, workspace.boards)
        self.workspace = workspace
        self.doubts = DoubtSettler(self.outcomes)
        self._checked: set[str] = set()
        self._known: dict[str, str] = {}
        if settings.parent is not None:
            ledger.parent_calls = {step.call: step for step in settings.parent.steps.values()}
        self._earlier = EarlierCalls(ledger)
        self._reuser = Reuser(self, workspace)

    # Resolve

    def scope(self, tool: str) -> Scope:
        """Return the scope of a call made here. Raises SessionEnded, NoScope, ToolError."""
        return self.ledger.scope(tool)

    def begin(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Return a call with its place in the record. Raises TypeError, BadValue, NoScope."""
        arguments = spec.arguments(args, kwargs)
        call = self._placed(spec, arguments)
        if self.settings.texts is None or call.step is not None:
            return call
        changed = self.settings.texts.arguments(arguments, spec.kind)
        if changed is arguments:
            return call
        call.place.scope.uncount(call.place.base, call.place.occurrence)
        return self._placed(spec, changed)

    def _placed(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> Call:
        plain, defaults, form = self._plain(spec, arguments)
        scope = self.ledger.scope(spec.name)
        base = call_base(spec.name, spec.version, self.stream.agent, scope.path, form)
        warning = self.source_changed(spec)
        if warning:
            warn(warning, ToolChanged, spec.defined)
        texts = texts_in(arguments)
        for each in texts:
            self.ledger.shown(each.label)
        place, step = self.ledger.place(scope, base, defaults)
        if step is None:
            identities = self._earlier.identities(spec, scope.path, plain, defaults)
            place, step = self.ledger.place_as_recorded(place, spec.name, identities)
        value = uses(texts, spec.prompts)
        whole = None if defaults else form
        return Call(spec, arguments, plain, whole, place, step, spec.effects, prompts=value)

    def _plain(
        self, spec: ToolSpec, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], tuple[str, ...], bytes]:
        """Return the arguments as recorded, the names of those with their declared default, and the
        canonical form of the others. Raises BadValue.
        """
        plain: dict[str, Any] = {
            name: values.plain(value, f"{spec.name}({name})", self.settings.scrub)
            for name, value in arguments.items()
            if name != spec.key_argument
        }
        defaults = spec.at_default(plain) if spec.defaults else ()
        counted = plain
        if defaults:
            counted = {name: value for name, value in plain.items() if name not in defaults}
        form = canonical(counted)
        if len(form) > payloads.VALUE_BYTES_MAX:
            raise payloads.too_large(f"the arguments of {spec.name}", len(form))
        return plain, defaults, form

    def is_early(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call is recorded, but after steps that were not called yet.

        Raises BadValue, NoScope.
        """
        _, _, form = self._plain(spec, arguments)
        scope = self.ledger.scope(spec.name)
        base = call_base(spec.name, spec.version, self.stream.agent, scope.path, form)
        return self.ledger.is_early(scope, base)

    def source_changed(self, spec: ToolSpec) -> str:
        """Return a source-change warning, at most once per tool; empty for none.

        Raises BadValue, and Miss in a strict replay.
        """
        if spec.name in self._checked:
            return ""
        parts = [spec.name, spec.version, spec.kind, *spec.aliases]
        where = "name, version or kind of a tool"
        if values.plain(parts, where, self.settings.scrub) != parts:
            raise BadValue(where, "it holds a secret or a lone surrogate", "remove that")
        self._checked.add(spec.name)
        state = self.ledger.state
        before = [state.tools[name] for name in spec.names if name in state.tools]
        if not before or self.settings.mode is Mode.OFFLINE:
            return ""
        edited = any(_edited(each, spec) for each in before)
        if self.settings.mode is Mode.STRICT:
            if edited:
                raise Miss("strict", f"{spec.name} with other source", f"{spec.name} as recorded")
            return ""
        same = spec.name not in state.edited and not edited
        if same or not self._answers_of_another(spec):
            return ""
        of_world = spec.effects not in (Effects.PURE, Effects.COMPOSITE)
        return (
            f"the source of {spec.name} has changed since its recorded calls ran. "
            "A call with recorded arguments returns its recorded result; any other call "
            + (
                "stops as Diverged while a recorded effect is not replayed. "
                if of_world
                else "runs. "
            )
            + "Change version= to run all of its calls again"
        )

    def _answers_of_another(self, spec: ToolSpec) -> bool:
        """Return whether a recorded call of this tool and version was run by another source and has
        a valid outcome; the outcome of a call that is to be run again does not count.
        """
        state = self.ledger.state
        return any(
            step.tool in spec.names
            and (then := state.declaration_of(step)) is not None
            and then.version == spec.version
            and _edited(then, spec)
            and (
                step.status is StepStatus.COMPLETED
                or (step.status is StepStatus.FAILED and self.ledger.has_continued(step))
            )
            for step in state.steps.values()
        )

    def answer(self, call: Call) -> tuple[bool, Any]:
        """Return (True, result) if the record answers immediately; raise a recorded error that is
        final.

        No write, no wait, no other thread: this is the cost of replay.
        """
        step = call.step
        if step is None or step.status is not StepStatus.COMPLETED:
            if step is not None and self.raises_again(step):
                self.ledger.advance(call.place.scope, step)
                raise raised(step, call.spec)
            return False, None
        if step.version <= self.ledger.inherited and self.asks_anything:
            return False, None
        raw = bytes(step.result)
        if MARK in raw:
            try:
                plain = without_blobs(self.outcomes.reader.result(step))
            except BlobsNeeded:
                return False, None
        elif payload.BLOB in raw:
            return False, None
        else:
            plain = values.decode(raw)
        is_as_it_was = (
            call.spec.returns is None
            and not step.inexact
            and b'"$' not in raw
            and step.verdict is not Verdict.HAPPENED
        )
        try:
            value = plain if is_as_it_was else self._restored(call.spec, step, plain)
        except ResultMismatch:
            self._uncount(call)
            raise
        self.ledger.advance(call.place.scope, step)
        return True, self._labelled(call.spec, value)

    def raises_again(self, step: Step) -> bool:
        """Return whether a recorded refusal or failure is raised again, and nothing runs."""
        if step.status is StepStatus.BLOCKED:
            return self.settings.mode.reads_only
        return step.status is StepStatus.FAILED and (
            self.settings.mode.reads_only
            or self.ledger.has_continued(step)
            or (step.error is not None and step.error.is_answer)
        )

    def _restored(self, spec: ToolSpec, step: Step, plain: values.Plain) -> Any:
        value = self.result_of(spec, step, plain)
        self.outcomes.warn_inexact(step.number, step.tool, step.inexact)
        return value

    def result_of(self, spec: ToolSpec, step: Step, plain: values.Plain) -> Any:
        """Return a recorded result, or an item of one, as the caller receives it. Raises
        ResultMismatch.
        """
        try:
            value = from_plain(plain, spec.returns)
            if step.verdict is Verdict.HAPPENED and spec.settles is not None:
                check_settled(value, spec.settles)
        except BadValue as error:
            if step.inexact:  # an inexact result need not match
                return values.revive(plain)
            raise ResultMismatch(self.outcomes.address, step, error) from error
        return value

    def _labelled(self, spec: ToolSpec, value: Any) -> Any:
        if spec.gives:
            declared = self.ledger.state.tools.get(spec.name)
            if declared is None or declared.gives != spec.gives:  # changed since this was recorded
                self.ledger.shown(parse(spec.gives))
        return value

    def execute(
        self,
        call: Call,
        plan: Callable[[Call], Flow[Step | None]] | None = None,
        run: Callable[[Call], Flow[Any]] | None = None,
    ) -> Flow[Any]:
        """Handle a call that `answer` could not: run, settle, or stop; by default as a tool's
        call.
        """
        self.ledger.enter_call(call.place.scope)
        try:
            step = yield from (plan or self.plan)(call)
            if step is not None:
                result = yield from self.returned(call, step)
            else:
                result = yield from (run or self._run)(call)
            if call.number:
                self.ledger.advance(call.place.scope, self.ledger.state.steps[call.number])
        except BaseException as error:
            done = self.ledger.state.steps.get(call.number)
            if done is not None and is_final(done):
                was_received = not isinstance(error, NeedsSettling)
                self.ledger.advance(call.place.scope, done, was_received=was_received)
            elif done is not None or isinstance(error, NeedsSettling) or comes_from_outside(error):
                self._uncount(call)
            raise
        else:
            return result
        finally:
            self.ledger.stop(call.number)
            self.ledger.leave_call(call.place.scope)

    def _uncount(self, call: Call) -> None:
        """Uncount a call whose outcome is not recorded, so that an equal later call is the same
        one: if it is in doubt, that call stops; if nothing is known of it, that call runs instead.
        """
        with self.ledger.lock:
            call.place.scope.uncount(call.place.base, call.place.occurrence)

    def reraise(self, call: Call, step: Step) -> None:
        """Raise a recorded failure; do nothing for a success."""
        if step.status is not StepStatus.COMPLETED:
            raise raised(step, call.spec)

    def returned(self, call: Call, step: Step) -> Flow[Any]:
        """Return a recorded outcome, with large values fetched."""
        self.ledger.advance(call.place.scope, step)
        self.reraise(call, step)
        plain = yield from self.outcomes.fetch(self.outcomes.reader.result(step))
        return self._labelled(call.spec, self._restored(call.spec, step, plain))

    # Plan a call: a returned step is the answer, None means run.

    def plan(self, call: Call) -> Flow[Step | None]:
        """Return the step that answers a call, or None to run it."""
        step = call.step
        if self.doubts.is_probed(call):
            self.demand_writes(call)
            yield from self.ask_rules(call)
            return (yield from self.doubts.probed(call))
        if step is None and self.settings.edits is not None:
            self.demand_writes(call)
            yield from self.ask_rules(call)
            answer = yield from self.doubts.edited(call)
            if answer is not None:
                return answer
        if step is None:
            return (yield from self._plan_new(call))
        if step.status is StepStatus.COMPLETED:
            if step.version <= self.ledger.inherited:
                yield from self.ask_rules(call)
            return step
        if self.raises_again(step):
            return step
        if self.settings.mode.reads_only:
            if step.is_open:
                raise doubt(self.outcomes.address, step)
            return step
        has_edit = self.doubts.holds_edit(step)
        later = self._in_parent(step) if step.is_open and not has_edit else None
        if later is not None:
            yield from self.ask_rules(call)
            call.take_up(step)
            if step.version > self.ledger.inherited:
                call.withheld = Withheld.OUTCOME
            yield from self.doubts.adopt(call, later)
            return self.ledger.state.steps[call.number]
        call.take_up(step)
        settled: Step | None = None
        if step.is_in_doubt:
            if call.effects is Effects.RECONCILE:
                settled = yield from self.doubts.ask_world(call, step)
            elif call.effects is Effects.ONCE:
                settled = yield from self.doubts.settle(call, step)
        if settled is None and self._withholds(call):
            yield from self.ask_rules(call)
            yield from self.doubts.shadow(call)
            return self.ledger.state.steps[call.number]
        return settled

    def _plan_new(self, call: Call) -> Flow[Step | None]:
        self.demand_writes(call)
        old = self.ledger.recorded_call(call.place.known_by)
        if not call.has_effects:
            return None
        if self.settings.shadows:
            yield from self.ask_rules(call)
            parents = self.ledger.parent_calls.get(call.place.known_by)
            if not self._withholds(call) and not self._answers(call, old, parents):
                return None
            yield from self.doubts.shadow(call, old, parents)
            return self.ledger.state.steps[call.number]
        if old is None or old.status in (StepStatus.BLOCKED, StepStatus.NOT_DONE):
            return (yield from self._plan_unknown(call))
        call.key = old.key
        if call.effects is Effects.IDEMPOTENT or (old.status is StepStatus.FAILED and old.safe):
            return None
        if old.is_open:
            # The outcome is recorded at the call's present place, where the next replay finds it.
            by_world = call.effects is Effects.RECONCILE
            ask = self.doubts.ask_world if by_world else self.doubts.settle
            settled = yield from ask(call, old)
            if settled is None:
                return None
            yield from self.doubts.adopt(call, settled)
            return self.ledger.state.steps[call.number]
        return (yield from self.doubts.diverged(call, old))

    def _withholds(self, call: Call) -> bool:
        """Return whether a call that the record does not answer must not run in this fork."""
        runs = self.settings.models and call.spec.kind == MODEL
        runs = runs and call.effects is Effects.IDEMPOTENT
        return self.settings.shadows and call.has_effects and not runs

    def _answers(self, call: Call, *candidates: Step | None) -> bool:
        """Return whether the recorded outcome of an equal call answers a call of a model."""
        return any(
            step is not None
            and step.status is StepStatus.COMPLETED
            and not (self.ledger.full and step.fingerprint != call.place.fingerprint)
            for step in candidates
        )

    def _plan_unknown(self, call: Call) -> Flow[Step | None]:
        """Plan an effect that is not recorded under its own key."""
        while (rival := self._earlier.rival(call)) is not None:
            if rival.is_open:
                rival = yield from self.doubts.settle(call, rival)
                if rival is None:  # it did not happen
                    continue
            call.instead_of = rival.number
            return (yield from self.doubts.diverged(call, rival, NOT_REPLAYED))
        return None

    def demand_writes(self, call: Call) -> None:
        """Raise Miss for an unrecorded call in a read-only mode."""
        if self.settings.mode.reads_only:
            self.outcomes.refused_before(*(call.needs or ()))
            now = f"{call.spec.name} {call.canonical.decode()[:200]}"
            self.ledger.missed.append(now)
            expected = self.ledger.expected(call.place.scope)
            raise Miss(self.settings.mode.value, now, expected, before(self.ledger))

    def _in_parent(self, step: Step) -> Step | None:
        """Return the parent's outcome of an intent that is open in a fork: the same step or
        call.
        """
        inherited = step.version <= self.ledger.inherited
        if self.settings.parent is None or not (inherited or self.settings.shadows):
            return None
        same = self.settings.parent.steps.get(step.number) if inherited else None
        for past in (same, self.ledger.parent_calls.get(step.call)):
            if past is not None and past.status in (StepStatus.COMPLETED, StepStatus.FAILED):
                return past
        return None

    # Run and record

    def _run(self, call: Call) -> Flow[Any]:
        spec = call.spec
        again = call.is_recorded
        held = yield from self.gate(call)
        lookup = yield from self._look_up(call, held)
        if lookup is not None and lookup.answer is not None:
            return (yield from self._reuse(call, lookup.answer, held))
        arguments = yield from self.revealed(call, held)
        if not call.number:
            call.number = self.ledger.next_step()
        try:
            if again:
                yield from self.outcomes.again(call)
            elif call.effects is not Effects.PURE or call.approval is not None:
                yield from self.outcomes.intend(call)
        except STOPPED as error:
            yield from self.called_off(call, held, error)
            raise
        if spec.key_argument:
            arguments = {**arguments, spec.key_argument: call.key}
        args, kwargs = spec.passed(arguments)
        while True:
            yield from self.start(call, held)
            scope = self.body_scope(call)
            try:
                result, took = yield Body(spec.function, args, kwargs, scope, spec.timeout_s)
            except BaseException as error:  # noqa: BLE001 -- `raised` records it and raises it
                try:
                    wait_s = yield from self.outcomes.raised(call, error, scope)
                finally:
                    yield from self.spend(held, scope.usage)
                yield from self._pause(call, error, wait_s)
                held = yield from self.gate(call)
                continue
            if call.masker is not None:
                result = call.masker.put_back(result)
            # The outcome first: a cancellation while a budget is corrected must not lose it.
            try:
                yield from self.outcomes.completed(call, result, took, scope.usage)
            finally:
                yield from self.spend(held, scope.usage)
            if lookup is not None and not self.ledger.state.steps[call.number].inexact:
                yield from self._reuser.offer(call, lookup)
            return result

    def _look_up(self, call: Call, held: Reservation) -> Flow[Lookup | None]:
        """Look up a reusable answer of earlier runs. A call whose intent is recorded, or that ran
        here before, concerns an effect of this run and is not lookup up.
        """
        if call.spec.reuse is None or call.is_recorded or call.key is not None:
            return None
        try:
            return (yield from self._reuser.look(call, call.spec.reuse))
        except BaseException:
            yield from self.release(call, held)
            raise

    def _reuse(self, call: Call, answer: Answer, held: Reservation) -> Flow[Any]:
        """Record an earlier run's answer as the call's outcome, without running it. On a budget it
        counts as a call without usage.
        """
        if not call.number:
            call.number = self.ledger.next_step()
        yield from self.start(call, held)
        self.ledger.shown(answer.label)
        try:
            result = payloads.Result(answer.plain)
            yield from self.outcomes.completed_as(call, result, 0.0, {}, answer.source)
        finally:
            yield from self.spend(held, None)
        return self._labelled(call.spec, answer.value)

    def start(self, call: Call, held: Reservation) -> Flow[None]:
        """Mark a body as started; if the session has ended meanwhile, record that the attempt never
        started.
        """
        try:
            self.ledger.start(call.number)
        except SessionEnded as error:
            try:
                if call.is_recorded and call.has_effects:
                    yield from self.outcomes.never_began(call, error)
            finally:
                yield from self.release(call, held)
            raise

    def revealed(self, call: Call, held: Reservation) -> Flow[dict[str, Any]]:
        """Return the arguments for the tool: placeholders for values that it need not know, and
        secrets revealed. Raises SecretUnavailable, BadValue.
        """
        arguments: dict[str, Any] = dict(call.arguments)
        spec = call.spec
        try:
            if spec.placeholders is not None:
                key = key_of(self.settings.secrets, self.stream.run)
                call.masker = Masker(spec.placeholders, key, self._known, spec.name)
                arguments = call.masker.hide(arguments)
            if b'"$secret"' in call.canonical:
                arguments = reveal(arguments, self.settings.secrets, spec.name)
        except (SecretUnavailable, BadValue):
            yield from self.release(call, held)
            raise
        return arguments

    def _pause(self, call: Call, last: BaseException, wait_s: float) -> Flow[None]:
        """Wait for the next attempt; an interruption after a safe error leaves nothing in doubt."""
        try:
            yield Pause(wait_s)
        except BaseException as error:
            if call.spec.is_safe(last):
                yield from self.outcomes.never_began(call, error)
            raise

    def body_scope(self, call: Call) -> Scope:
        """Return the scope of a call's body; calls may be made in it if the tool is composite."""
        place = call.place
        scope = Scope(
            self.ledger, place.call, place.fingerprint, place.after, call.number, place.other
        )
        scope.nests = call.effects is Effects.COMPOSITE
        if call.step is None:  # its scope waits for it, and its calls are recorded nowhere else
            scope.blocked = place.scope
        scope.inherit(place.scope.beside)
        if call.masker is not None:
            scope.usage.update(call.masker.counts)
        return scope


def _edited(then: ToolDeclared, now: ToolSpec) -> bool:
    """Return whether a tool's source is known to have changed."""
    return bool(then.source and now.source and then.source != now.source)
