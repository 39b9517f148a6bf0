"""Operations at the client: send a request, run its callbacks, return the result.

Written once for both clients, as flows (see `hansard.agents.flow`).
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from hansard.agents.errors import ResultInexact, ToolChanged
from hansard.agents.flow import (
    END,
    Body,
    Flow,
    Io,
    Pause,
    Watch,
    awaited,
    close,
    done,
    following,
    is_coroutine_function,
    name_of,
)
from hansard.agents.policy import gate
from hansard.agents.steps import payloads
from hansard.agents.steps.conversions import from_plain
from hansard.agents.steps.failures import raised
from hansard.agents.steps.placeholders import Masker, key_of, reveal
from hansard.agents.steps.recorder import INTERRUPTIONS, UnsettledStep
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import DECLARED, DidNotHappen, Happened, ToolSpec
from hansard.bus.errors import TooLarge
from hansard.bus.portal import in_loop
from hansard.client.restricted.engine import RemoteCore, RemoteScope
from hansard.domain import value_types, values
from hansard.domain.errors import BadValue
from hansard.domain.prompt import texts_in, uses
from hansard.domain.steps import Effects, Verdict
from hansard.domain.values import recordable
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.wire import BodyResult, Call, Declared, Failed, Next, Run, Value

WAITS_MAX = 100
"""Most waits between attempts that are sent; the last one applies to all further attempts."""


class Callback:
    """The functions of the client that the service may call in one operation, and their result."""

    def __init__(self, engine: RemoteCore, spec: ToolSpec | None = None) -> None:
        self.engine = engine
        self.spec = spec
        self.value: Any = None
        self.inexact = ""
        self.error: BaseException | None = None

    def run(self, request: Run) -> Flow[BodyResult]:
        """Run the callback; an exception becomes its result."""
        scope = self.scope(request)
        try:
            if request.what == "settle":
                outcome = yield from self._settled(request, scope)
            else:
                outcome = yield from self.work(request, scope)
        except BaseException as error:  # noqa: BLE001 -- sent to the service, which decides
            self.error = error
            fault = faults.of_program(error, self.spec, self.engine.settings.scrub)
            return BodyResult(fault=fault, usage=scope.usage)
        return msgspec.structs.replace(outcome, usage=scope.usage)

    def scope(self, request: Run) -> Scope:
        """Return the scope that the callback runs in."""
        scope = RemoteScope(self.engine.ledger, request.scope, "", (), None)
        composite = self.spec is not None and self.spec.effects is Effects.COMPOSITE
        scope.nests = composite and request.what in ("body", "item")
        return scope

    def work(self, request: Run, scope: Scope) -> Flow[BodyResult]:
        """Run the requested callback. Raises BadValue for one that this client does not know."""
        yield Pause(0)
        del scope
        raise BadValue("the service's callback", f"{request.what!r:.40}", wire.ONE_VERSION)

    def _settled(self, request: Run, scope: Scope) -> Flow[BodyResult]:
        """Settle a step by the program's own policy.

        A plain function is called here, in the thread in which a trusted session calls it.
        """
        step = wire.read(request.arguments, UnsettledStep)
        policy: Any = self.engine.settings.settle
        scope.nests = False
        if is_coroutine_function(policy):
            answer, _ = yield Body(policy, (step,), {}, scope)
        else:
            answer = policy(step)
            if inspect.isawaitable(answer):
                answer, _ = yield Body(awaited, (answer,), {}, scope)
        return BodyResult(result=_verdict_text(answer, self.engine))

    def encode(self, result: Any) -> BodyResult:
        """Keep a result and return it in the form that is sent."""
        self.value = result
        returns = self.spec.returns if self.spec is not None else None
        found = payloads.plain_result(result, returns, self.engine.settings.scrub)
        self.inexact = found.inexact
        return BodyResult(result=values.dump(found.plain), inexact=found.inexact)


class ResolveCallback(Callback):
    """Resolves a conflicting put by the program's own function."""

    def __init__(self, engine: RemoteCore, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(engine)
        self._function = function

    def work(self, request: Run, scope: Scope) -> Flow[BodyResult]:
        """Return the value to put."""
        mine, theirs = wire.load(request.arguments)
        scope.nests = False
        result, _ = yield Body(self._function, (mine, theirs), {}, scope)
        return BodyResult(result=wire.dump(result, "resolve"))


class ToolCallback(Callback):
    """Runs a tool's own functions."""

    def __init__(self, engine: RemoteCore, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        super().__init__(engine, spec)
        self.tool = spec
        self.arguments = arguments
        self.hides = False
        """True if an argument is a secret."""
        self.masker: Masker | None = None
        """Replaces texts by placeholders before the tool gets them."""

    def work(self, request: Run, scope: Scope) -> Flow[BodyResult]:
        """Run the tool's body, its shadow or its reconcile function."""
        spec = self.tool
        match request.what:
            case "body":
                args, kwargs = spec.passed(self.given(request))
                if self.masker is not None:
                    scope.usage.update(self.masker.counts)
                result, _ = yield Body(spec.function, args, kwargs, scope, spec.timeout_s)
                return self.encode(self.masker.put_back(result) if self.masker else result)
            case "shadow" if spec.shadow is not None:
                result, _ = yield Body(spec.shadow, (), dict(self.arguments), scope)
                return self.encode(result)
            case "ask" if spec.reconcile is not None:
                fields = wire.load(request.arguments)
                key = fields.get(spec.key_argument) if spec.key_argument is not None else None
                given = spec.question(self.revealed(dict(self.arguments)), key)
                answer, _ = yield Body(spec.reconcile, (), given, scope, spec.timeout_s)
                return BodyResult(result=_verdict_text(answer, self.engine))
            case _:
                return (yield from super().work(request, scope))

    def given(self, request: Run) -> dict[str, Any]:
        """Return the arguments for the tool: with placeholders, revealed secrets, and the key."""
        arguments = dict(self.arguments)
        if self.tool.placeholders is not None:
            key = key_of(self.engine.settings.secrets, self.engine.stream.run)
            known = self.engine.known
            self.masker = Masker(self.tool.placeholders, key, known, self.tool.name)
            arguments = self.masker.hide(arguments)
        return {**self.revealed(arguments), **wire.load(request.arguments)}

    def revealed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the values of secrets."""
        if not self.hides:
            return arguments
        found: dict[str, Any] = reveal(arguments, self.engine.settings.secrets, self.tool.name)
        return found


class StreamCallback(ToolCallback):
    """Runs a streaming tool's own iterator."""

    def __init__(self, engine: RemoteCore, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        super().__init__(engine, spec, arguments)
        self._inner: Any = None
        self._usage: dict[str, float] = {}

    def work(self, request: Run, scope: Scope) -> Flow[BodyResult]:
        """Return the next item, or the iterator's end."""
        scope.usage = self._usage  # of the whole call
        match request.what:
            case "item":
                if self._inner is None:
                    args, kwargs = self.tool.passed(self.given(request))
                    self._inner = self.tool.function(*args, **kwargs)
                    if self.masker is not None:
                        self._inner = self.masker.items(self._inner)
                        self._usage.update(self.masker.counts)
                item, _ = yield Body(_driven(following, self._inner), (), {}, scope)
                return self.encode(item) if item is not END else BodyResult(end=True)
            case "shut":
                if self._inner is not None:
                    yield Body(_driven(close, self._inner), (), {}, scope)
                return BodyResult()
            case _:
                return (yield from super().work(request, scope))


def _driven(work: Callable[[Any], Coroutine[Any, Any, Any]], items: Any) -> Callable[[], Any]:
    """Return a body that does work on a generator: awaited in a loop, else in place."""
    return functools.partial(work, items) if in_loop() else lambda: done(work(items))


def _verdict_text(cause: object, engine: RemoteCore) -> msgspec.Raw:
    match cause:
        case Happened(result):
            plain = values.plain(result, "settled result", engine.settings.scrub)
            return values.dump(["happened", plain])
        case DidNotHappen():
            return values.dump(["did not happen"])
        case Verdict():
            return values.dump(["verdict", cause.value])
        case _:
            return values.dump(None)


# ------------------------------------------------------------ operations


def exchange(
    engine: RemoteCore, verb: str, data: Any, scope: Scope, local: Callback, *, busy: bool = False
) -> Flow[Value]:
    """Send an operation and run the callbacks that the service requests, until the result.

    Raises the operation's own error, AccessRefused, ServiceGone, TooLarge.
    """
    began: list[int] = []
    ask = functools.partial(engine.link.ask, verb, data, scope=scope.path, busy=busy, began=began)
    try:
        word = yield Watch(ask)
        while isinstance(word, Run):
            if word.warning:
                warnings.warn(word.warning, ToolChanged, stacklevel=8)
            outcome = yield from local.run(word)
            word = yield from _send_outcome(engine, word.turn, outcome, local)
    except INTERRUPTIONS:
        if began:
            yield Io(functools.partial(engine.link.ask, "cancel", None, turn=began[0]))
        raise
    match word:
        case Value():
            if word.warning:
                warnings.warn(word.warning, ToolChanged, stacklevel=8)
            return word
        case Failed():
            raise _error(word, local)
        case _:
            raise BadValue("the service's answer", f"a {type(word).__name__}", wire.ONE_VERSION)


def _send_outcome(engine: RemoteCore, turn: int, outcome: BodyResult, local: Callback) -> Flow[Any]:
    """Send a callback's result; if it is too large for a message, its size."""
    try:
        return (yield Watch(functools.partial(engine.link.ask, "done", outcome, turn=turn)))
    except TooLarge as error:
        local.inexact = f"result: {error.size:,} bytes; hand large values over by reference"
        result = values.dump("<too large>")
        outcome = BodyResult(result=result, inexact=local.inexact, usage=outcome.usage)
    return (yield Watch(functools.partial(engine.link.ask, "done", outcome, turn=turn)))


def _error(word: Failed, local: Callback) -> BaseException:
    if word.own and local.error is not None:
        for note in word.fault.notes:
            local.error.add_note(note)
        return local.error
    if word.fault.category == "recorded":
        return raised(faults.recorded_step(word.fault, local.spec), local.spec)
    return faults.ours(word.fault)


# ------------------------------------------------------------ tool calls


class PreparedCall(msgspec.Struct):
    """A call, ready to be sent."""

    scope: Scope
    data: Call
    local: ToolCallback

    def value(self, report: Value) -> Any:
        """Return the call's result, or an item of it: made here, or read from the record."""
        local = self.local
        if not report.own:
            return from_plain(wire.plain(report.value), local.tool.returns)
        if local.inexact:
            message = f"{local.tool.name}: its result is not recorded exactly: {local.inexact}"
            warnings.warn(message, ResultInexact, stacklevel=2)
        return local.value


class RemoteEngine(RemoteCore):
    """Calls tools as a trusted session's engine does."""

    def begin(
        self, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> PreparedCall:
        """Prepare a call in its scope. Raises TypeError, BadValue, NoScope, ToolError."""
        arguments = spec.arguments(args, kwargs)
        scrub = self.settings.scrub
        plain: dict[str, Any] = {
            name: values.plain(value, f"{spec.name}({name})", scrub)
            for name, value in arguments.items()
            if name != spec.key_argument
        }
        scope = self.scope(spec.name)
        raw = values.dump(plain)
        local = (StreamCallback if spec.is_stream else ToolCallback)(self, spec, arguments)
        local.hides = b'"$secret"' in bytes(raw)
        call = Call(
            tool=declared(spec),
            arguments=raw,
            verdict=verdict_of(self, spec, arguments),
            secrets=_secrets(self, bytes(raw)),
            prompts=uses(texts_in(arguments)),
            defaults=spec.at_default(plain),
            program=tuple(sorted(DECLARED | self.ledger.declared)),
        )
        return PreparedCall(scope, call, local)

    def answer(self, _: PreparedCall) -> tuple[bool, Any]:
        """Return that no recorded answer is known: only the service knows."""
        return False, None

    def execute(self, call: PreparedCall) -> Flow[Any]:
        """Return the result, now or as recorded. Raises as a trusted session does."""
        busy = self.ledger.enter_call(call.scope)
        try:
            value = yield from exchange(self, "call", call.data, call.scope, call.local, busy=busy)
        finally:
            self.ledger.leave_call(call.scope)
        return call.value(value)

    def item(self, call: PreparedCall, number: int, *, busy: bool) -> Flow[Value]:
        """Return the next item of a stream; the first one if it has no number yet."""
        if number:
            return (yield from exchange(self, "next", Next(number), call.scope, call.local))
        return (yield from exchange(self, "stream", call.data, call.scope, call.local, busy=busy))

    def shut(self, call: PreparedCall, number: int) -> Flow[Value]:
        """End a stream whose reader stopped."""
        return (yield from exchange(self, "shut", Next(number), call.scope, call.local))


def verdict_of(
    engine: RemoteCore, spec: ToolSpec, arguments: Mapping[str, Any]
) -> wire.Verdict | None:
    """Return the verdict of the client's own gate rules on a call; None if they allow it."""
    stream = engine.stream
    request = gate.GateCall(
        spec.name, arguments, stream.run, stream.agent, stream.role, spec.effects.value
    )
    verdict = gate.ask(engine.settings.rules, request)
    scrub = engine.settings.scrub
    if verdict.asks is not None:
        title = recordable(verdict.asks.title(), scrub)
        return wire.Verdict(title, timeout_s=verdict.asks.timeout_s)
    if verdict.allowed:
        return None
    return wire.Verdict(recordable(verdict.rule, scrub), recordable(verdict.reason, scrub))


def _secrets(engine: RemoteCore, raw: bytes) -> tuple[str, ...]:
    """Return the names of a call's secret arguments whose values this client has."""
    if b'"$secret"' not in raw:
        return ()
    provider = engine.settings.secrets
    if provider is None:
        return ()
    names: list[str] = []
    with value_types.reading():
        values.load(raw, names.append)
    give = provider if callable(provider) else provider.get
    return tuple(name for name in sorted(set(names)) if give(name) is not None)


def declared(spec: ToolSpec) -> Declared:
    """Return a tool's declaration in the form that is sent."""
    further = min(spec.attempts - 1, WAITS_MAX)
    return Declared(
        name=spec.name,
        effects=spec.effects.value,
        aliases=spec.aliases,
        version=spec.version,
        kind=spec.kind,
        source=spec.source,
        attempts=spec.attempts,
        waits=tuple(round(spec.wait_s(attempt + 1), 6) for attempt in range(further)),
        key_argument=spec.key_argument,
        asks=name_of(spec.reconcile) if spec.reconcile is not None else "",
        shadows=spec.shadow is not None,
        does=spec.does,
        gives=spec.gives,
        takes=spec.takes,
        reuse=(spec.reuse.ttl_s, spec.reuse.scope.value) if spec.reuse is not None else None,
    )
