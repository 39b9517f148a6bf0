"""Operations at the client: send a request, run its callbacks, return the result.

Written once for both clients, as flows (see `hansard.agents.flow`).

Long because scopes, callbacks, tool calls and the other operations share one exchange.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgspec

from hansard.agents.errors import ResultInexact, ToolChanged, warn
from hansard.agents.flow import (
    END,
    Body,
    Drive,
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
from hansard.agents.memory.operations import SPECS as MEMORY
from hansard.agents.memory.search import HITS_MAX, By
from hansard.agents.memory.store import secrets
from hansard.agents.policy import gate
from hansard.agents.steps import payloads
from hansard.agents.steps.conversions import from_plain
from hansard.agents.steps.failures import raised
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.placeholders import Masker, SecretProvider, key_of, reveal
from hansard.agents.steps.recorder import INTERRUPTIONS, Settle, UnsettledStep
from hansard.agents.steps.scope import OpenCalls, Scope
from hansard.agents.steps.tools import DECLARED, DidNotHappen, Happened, ToolSpec
from hansard.agents.team.tasks import Task
from hansard.bus.errors import TooLarge
from hansard.bus.portal import in_loop
from hansard.client.restricted.link import SessionLink
from hansard.domain import value_types, values
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.ids import AgentStream
from hansard.domain.memory.space import MemoryInvalid
from hansard.domain.prompt import texts_in, uses
from hansard.domain.redaction import Redaction
from hansard.domain.steps import Effects, Verdict
from hansard.domain.values import Scrub, recordable
from hansard.operations.declare import TRUSTED, ChainKind, Kind, Operation, SecretName, event_point
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import NotOffered
from hansard.operations.protocol.wire import (
    Began,
    BlockExit,
    BodyResult,
    Call,
    Declared,
    Do,
    Failed,
    Joined,
    Next,
    Run,
    Value,
    decode_arm,
)
from hansard.operations.session import OPERATIONS, Claim, Function, Raised

# A session's core at the client: the scopes of its calls. Results are kept by the service.


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a session that stay in this process."""

    mode: Mode
    rules: Sequence[gate.GateRule] = ()
    scrub: Redaction | None = None
    secrets: SecretProvider | None = None
    settle: Settle | None = None


class RemoteScope(Scope):
    """A scope of calls whose results the service keeps; its child scopes are sent to the service.

    Both sides identify a scope by its path.
    """

    __slots__ = ()

    def item(self, name: str) -> Scope:
        """Begin a child scope of a given name."""
        apart = self.open > 0
        self.session.note(Began(self.path, name, apart))
        return self.child(f"{self.path}/{name}", apart=apart)

    def child(self, path: str, *, apart: bool = False) -> RemoteScope:
        """Return a child scope that the service knows already."""
        made = RemoteScope(self.session, path, "", (), self.step)
        made.nests = self.nests
        made.apart = apart
        made.usage = self.usage
        return made

    def join(self, children: list[Scope]) -> None:
        """Continue after child scopes."""
        if children:
            self.session.note(Joined(self.path, tuple(child.path for child in children)))


class RemoteLedger(OpenCalls):
    """The calls that are open at the client."""

    def __init__(self, stream: AgentStream, note: Callable[[Began | Joined], None]) -> None:
        super().__init__(stream, RemoteScope)
        self.note = note


class RemoteCore:
    """The state that a session's operations share, and the link to the service."""

    def __init__(self, link: SessionLink, stream: AgentStream, settings: EngineOptions) -> None:
        self.link = link
        self.stream = stream
        self.settings = settings
        self.arm = decode_arm(link.opened.arm)
        self.ledger = RemoteLedger(stream, link.note)
        self.known: dict[str, str] = {}
        """The values that placeholders of the session stand for."""

    def scope(self, tool: str) -> Scope:
        """Return the scope of a call made here. Raises SessionEnded, NoScope, ToolError."""
        return self.ledger.scope(tool)


class TrustedOnly:
    """A mixin that raises NotOffered for attributes that only the class `_trusted` has.

    `_remedy` holds the remedy of each. To a type checker they do not exist.
    """

    _called: ClassVar[str]
    _trusted: ClassVar[type]
    _remedy: ClassVar[Mapping[str, str]]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in self._remedy or (not name.startswith("_") and hasattr(self._trusted, name)):
                raise NotOffered(f"{self._called}.{name}", self._remedy.get(name, TRUSTED))
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)


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
        payload = payloads.plain_result(result, returns, self.engine.settings.scrub)
        self.inexact = payload.inexact
        return BodyResult(result=values.dump(payload.plain), inexact=payload.inexact)


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
                args, kwargs = spec.passed(self.tool_arguments(request))
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
                arguments = spec.question(self.revealed(dict(self.arguments)), key)
                answer, _ = yield Body(spec.reconcile, (), arguments, scope, spec.timeout_s)
                return BodyResult(result=_verdict_text(answer, self.engine))
            case _:
                return (yield from super().work(request, scope))

    def tool_arguments(self, request: Run) -> dict[str, Any]:
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
        plain: dict[str, Any] = reveal(arguments, self.engine.settings.secrets, self.tool.name)
        return plain


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
                    args, kwargs = self.tool.passed(self.tool_arguments(request))
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
                warn(word.warning, ToolChanged, local.spec.defined if local.spec else "")
            outcome = yield from local.run(word)
            word = yield from _send_outcome(engine, word.turn, outcome, local)
    except INTERRUPTIONS:
        if began:
            yield Io(functools.partial(engine.link.ask, "cancel", None, turn=began[0]))
        raise
    match word:
        case Value():
            if word.warning:
                warn(word.warning, ToolChanged, local.spec.defined if local.spec else "")
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
            message = (
                f"step of {local.tool.name}: its result is not recorded exactly, "
                f"and a resume or replay returns the recorded part: {local.inexact}"
            )
            warn(message, ResultInexact)
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


# A session's operations, except tools, at the client.
#
# Each is sent as declared (`hansard.operations.session`), by flows in place of those of a trusted
# session.

_SPECS = {**MEMORY, "entry": MEMORY["view"]}
"""Names of memory operations in gate rules, by method."""


class Flows:
    """A group of operations; `context` is the number of their block, 0 for the session."""

    def __init__(self, engine: RemoteCore, group: str) -> None:
        self.engine = engine
        self._group = group
        self._context = 0

    def __getattr__(self, name: str) -> Callable[..., Flow[Any]]:
        if f"{self._group}.{name}" not in OPERATIONS:
            raise AttributeError(name)
        return functools.partial(ask, self.engine, f"{self._group}.{name}", self._context)

    def change(self, name: str, *args: Any, **named: Any) -> Any:
        """Make a change that is not conditional on a version."""
        return getattr(self, name)(*args, **named)


class BoardFlows(Flows):
    """The operations of the board. `now` runs a flow at once, where it is not awaited."""

    def __init__(self, engine: RemoteCore, now: Drive | None) -> None:
        super().__init__(engine, "board")
        self._now = now

    def transaction(self) -> TransactionFlows:
        """Return a transaction that has not begun."""
        return TransactionFlows(self.engine, self._now)


class TeamFlows(Flows):
    """The operations of the team, with the interface of a trusted session's."""

    def claimed(self) -> Block:
        """Return a block that claims a task when it begins."""
        return Block(self.engine, "team.claimed")

    def claim(self, *args: Any) -> Flow[tuple[Task | None, bool]]:
        """Claim a task; only the service knows if it was claimed before."""
        task = yield from ask(self.engine, "team.claim", 0, *args)
        return task, False

    def wait_for(
        self, key: str | None, task: str | None, position: int | None, timeout: float | None
    ) -> Flow[bool]:
        """Wait for a key or a task. Raises NotOffered for a position."""
        if position is not None:
            remedy = "positions count hidden commits; wait for a key"
            raise NotOffered("wait_for(position=)", remedy)
        outcome: bool = yield from ask(self.engine, "team.wait_for", 0, key, task, timeout)
        return outcome


class MemoryFlows(Flows):
    """The operations of memory, with the interface of a trusted session's."""

    def __init__(self, engine: RemoteCore) -> None:
        super().__init__(engine, "memory")

    def view(self, path: str, space: str | None, at: object) -> Flow[Any]:
        """Return a file. Raises NotOffered for a point that counts commits of others."""
        point = at.isoformat() if isinstance(at, datetime) else event_point(at)
        return (yield from ask(self.engine, "memory.entry", 0, path, space, point))

    def search(
        self,
        question: str,
        embedder: object = None,
        *,
        by: str | None = None,
        glob: str = "",
        kind: str = "",
        limit: int = HITS_MAX,
    ) -> Flow[Any]:
        """Return the files that match a question by words. Raises NotOffered for vectors."""
        if embedder is not None or by not in (None, By.WORDS):
            raise NotOffered("session.memory.search(embedder=)", "search by words")
        return (yield from ask(self.engine, "memory.search", 0, question, glob, limit, kind))

    def prompt(self, budget: int | None, count: object) -> Flow[Any]:
        """Return the block of the system prompt. Raises NotOffered for a token counter."""
        if count is not None:
            raise NotOffered("session.memory.prompt(count=)", "give the budget in characters")
        return (yield from ask(self.engine, "memory.prompt", 0, budget))

    def command(self, text: str, path: str, space: str | None) -> NoReturn:
        """Raise NotOffered: a restricted agent does not learn the event of a message."""
        del text, path, space
        raise NotOffered("session.memory.command", "use session.memory.remember")

    def change(self, ops: Any, reason: str, space: str | None, sources: Any) -> Flow[None]:
        """Change files; secrets are never sent. Raises MemoryInvalid."""
        scrub = self.engine.settings.scrub
        bad = [
            each for op in ops for text in _texts(op) for each in secrets(op["path"], text, scrub)
        ]
        if bad:
            raise MemoryInvalid(space or "memory", bad)
        named = {"ops": ops, "reason": reason, "space": space, "sources": sources}
        yield from ask(self.engine, "memory.change", 0, **named)


def _texts(op: Mapping[str, Any]) -> list[str]:
    return [op[field] for field in ("text", "old", "new") if op.get(field)]


class ViewFlows(Flows):
    """The session's views."""

    def view(self, at: object, key: bytes | None) -> Flow[Any]:
        """Return the run as the role sees it. Raises NotOffered."""
        return (yield from ask(self.engine, "session.view", 0, event_point(at), key))


class Prepared(msgspec.Struct, frozen=True):
    """An operation, ready to be sent."""

    operation: Operation
    data: Do
    local: Callback


def ask(engine: RemoteCore, name: str, context: int, /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """Send an operation of the session and return its result. Raises the operation's error."""
    return (yield from request_operation(engine, prepared(engine, name, context, args, kwargs)))


def prepared(
    engine: RemoteCore,
    name: str,
    context: int = 0,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = wire.NOTHING,
) -> Prepared:
    """Prepare an operation; `args` are the fields of its request, in order.

    Raises BadValue, TypeError.
    """
    operation = OPERATIONS[name]
    scrub = engine.settings.scrub
    local = Callback(engine)
    arguments = {**dict(zip(operation.fields, args, strict=False)), **kwargs}
    fields: dict[str, Any] = {}
    for field, value in arguments.items():
        if callable(value):
            local = ResolveCallback(engine, value)
        kind = operation.fields.get(field, Kind.PLAIN)
        fields[field] = _encoded(value, kind, field, operation.called, scrub)
    request = operation.request(**fields)
    verdict = None
    if operation.group == "memory" and engine.settings.rules:
        verdict = verdict_of(engine, _SPECS.get(operation.method, MEMORY["change"]), arguments)
    data = Do(operation=msgspec.Raw(wire.encode(request)), context=context, verdict=verdict)
    return Prepared(operation, data, local)


def _encoded(value: Any, kind: Kind, field: str, name: str, scrub: Scrub | None) -> Any:
    where = f"{name}({field})"
    match kind:
        case Kind.VALUE | Kind.DATA:
            return values.dump(values.plain(_simple(value), where, scrub))
        case Kind.VALUES:
            return [values.dump(values.plain(_simple(each), where, scrub)) for each in value]
        case Kind.NAME:
            return _typed(value, where, None)  # a secret in a name is refused when it is sent
        case Kind.PLAIN:
            return _typed(value, where, scrub)


def _simple(value: Any) -> Any:
    """Convert an argument to a type that values support."""
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return dict(value)
    plain = isinstance(value, str | bytes | list | tuple | dict | set | frozenset | msgspec.Struct)
    if isinstance(value, Iterable) and not plain and not hasattr(value, "__fspath__"):
        return list(value)
    return value


def _typed(value: Any, where: str, scrub: Scrub | None) -> Any:
    """Convert an argument to its declared type, where values do not support it.

    One of another type keeps it, and the service refuses it.
    """
    match value:
        case Task():
            return Claim(value.id, value.number)
        case BaseException():
            return Raised(faults.of_program(value, None, scrub))
        case bytes():
            return value
        case Mapping():
            return {
                values.plain(key, where, scrub): _typed(each, where, scrub)
                for key, each in value.items()
            }
        case _ if callable(value):
            return Function(name_of(value))
        case Iterable() if not isinstance(value, str):
            return [_typed(each, where, scrub) for each in value]
        case _:
            plain = values.plain(value, where, scrub)
            if isinstance(value, str) and isinstance(plain, dict) and "$secret" in plain:
                return SecretName(plain["$secret"])
            return plain


def request_operation(engine: RemoteCore, request: Prepared, verb: str = "do") -> Flow[Any]:
    """Send an operation and return its result."""
    answer = yield from answered(engine, request, verb)
    return wire.decode_result(answer.value, request.operation.result)


def answered(engine: RemoteCore, request: Prepared, verb: str = "do") -> Flow[wire.Value]:
    """Send an operation and return its answer."""
    operation, data, local = request.operation, request.data, request.local
    match operation.place:
        case ChainKind.NONE:
            return (yield from exchange(engine, verb, data, engine.ledger.here, local))
        case ChainKind.FACT:
            scope = engine.scope(operation.called)
            return (yield from exchange(engine, verb, data, scope, local))
        case ChainKind.STEP:
            scope = engine.scope(operation.called)
            busy = engine.ledger.enter_call(scope)
            try:
                return (yield from exchange(engine, verb, data, scope, local, busy=busy))
            finally:
                engine.ledger.leave_call(scope)


# ------------------------------------------------------------ blocks


class Block:
    """A `with` block of the session."""

    def __init__(self, engine: RemoteCore, name: str) -> None:
        self._engine = engine
        self._name = name
        self._gave: Any = None
        self.number = 0

    def begin(self, *args: Any) -> Flow[Any]:
        """Begin the block; return its value."""
        request = prepared(self._engine, self._name, 0, args)
        answer = yield from answered(self._engine, request, "enter")
        self.number = answer.context
        self._gave = wire.decode_result(answer.value, request.operation.result)
        return self._gave

    def end(self, error: BaseException | None) -> Flow[None]:
        """Leave the block. Notes of the service are added to the error."""
        engine = self._engine
        scrub = engine.settings.scrub
        result = getattr(self._gave, "result", None) if error is None else None
        left = BlockExit(
            context=self.number,
            fault=faults.of_program(error, None, scrub) if error is not None else None,
            result=values.dump(values.plain(result, "result", scrub)),
        )
        if error is not None and engine.link.lost is not None:
            return
        answer = yield from exchange(engine, "exit", left, engine.ledger.here, Callback(engine))
        if error is not None:
            for note in wire.load(answer.value) or ():
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)


WRITES = frozenset(
    each.method
    for each in OPERATIONS.values()
    if each.group == "transaction" and each.method not in ("get", "roll_back")
)
"""A transaction's operations that its twins call plainly: they wait for its end."""


class TransactionFlows(Flows):
    """A transaction's operations. Its writes are plain calls.

    Without `now` they are sent with the next operation that is awaited, at the latest at the end of
    the block.
    """

    def __init__(self, engine: RemoteCore, now: Drive | None) -> None:
        super().__init__(engine, "transaction")
        self._block = Block(engine, "board.transaction")
        self._now = now
        self._writes: list[Prepared] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in WRITES:
            return functools.partial(self._write, name)
        flow = super().__getattr__(name)

        def after(*args: Any, **kwargs: Any) -> Flow[Any]:
            yield from self._sent()
            return (yield from flow(*args, **kwargs))

        return after

    def _write(self, name: str, *args: Any, **kwargs: Any) -> None:
        request = prepared(self.engine, f"transaction.{name}", self._context, args, kwargs)
        self._writes.append(request)
        if self._now is not None:
            self._now(self._sent())

    def _sent(self) -> Flow[None]:
        """Send the pending writes. Raises the error of the first that is refused."""
        while self._writes:
            yield from request_operation(self.engine, self._writes.pop(0))

    def begin(self) -> Flow[None]:
        """Begin the transaction."""
        yield from self._block.begin()
        self._context = self._block.number

    def end(self, error: BaseException | None) -> Flow[None]:
        """Leave the block."""
        if error is None:
            try:
                yield from self._sent()
            except BaseException as refused:
                yield from self.end(refused)
                raise
        else:
            with contextlib.suppress(HansardError):  # the block's own error takes precedence
                yield from self._sent()
        yield from self._block.end(error)
