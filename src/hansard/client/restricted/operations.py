"""A session's operations but tools at the client: each is sent as it is declared
(`hansard.operations.session`), by what has the place of the flow that a trusted session drives.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from hansard.agents.callables import name_of
from hansard.agents.flow import Drive, Flow
from hansard.agents.memory.operations import SPECS as MEMORY
from hansard.agents.memory.search import HITS_MAX, By
from hansard.agents.memory.write import secrets
from hansard.agents.team.tasks import Task
from hansard.client.restricted.calls import Callback, Resolving, converse, verdict_of
from hansard.client.restricted.engine import RemoteCore
from hansard.domain import values
from hansard.domain.errors import HansardError
from hansard.domain.memory.space import MemoryInvalid
from hansard.domain.values import Scrub
from hansard.operations.declare import ChainKind, Kind, Operation, SecretName, event_point
from hansard.operations.protocol import faults, shapes, wire
from hansard.operations.protocol.errors import NotOffered
from hansard.operations.protocol.wire import Do, Left
from hansard.operations.session import OPERATIONS, Claim, Function, Raised

_SPECS = {**MEMORY, "entry": MEMORY["view"]}
"""What the gate's rules know operations of memory as, by their method."""


class Flows:
    """A group of operations; `context` is the block that they belong to, 0 for the session."""

    def __init__(self, engine: RemoteCore, group: str) -> None:
        self.engine = engine
        self._group = group
        self._context = 0

    def __getattr__(self, name: str) -> Callable[..., Flow[Any]]:
        if f"{self._group}.{name}" not in OPERATIONS:
            raise AttributeError(name)
        return functools.partial(ask, self.engine, f"{self._group}.{name}", self._context)

    def change(self, name: str, *given: Any, **named: Any) -> Any:
        """A change that goes by no version: an operation of its own."""
        return getattr(self, name)(*given, **named)


class BoardFlows(Flows):
    """The operations of the board. `now`: runs a flow at once, where nobody awaits it."""

    def __init__(self, engine: RemoteCore, now: Drive | None) -> None:
        super().__init__(engine, "board")
        self._now = now

    def transaction(self) -> TransactionFlows:
        """A transaction that is to begin."""
        return TransactionFlows(self.engine, self._now)


class TeamFlows(Flows):
    """The operations of the team, as its twins call them."""

    def claimed(self) -> Block:
        """A block that is to claim a task."""
        return Block(self.engine, "team.claimed")

    def claim(self, *given: Any) -> Flow[tuple[Task | None, bool]]:
        """A task; whether it was claimed before, the service knows."""
        task = yield from ask(self.engine, "team.claim", 0, *given)
        return task, False

    def wait_for(
        self, key: str | None, task: str | None, position: int | None, timeout: float | None
    ) -> Flow[bool]:
        """Wait for a key or a task. Raises NotOffered for a position."""
        if position is not None:
            remedy = "positions count what it may not see; wait for a key"
            raise NotOffered("wait_for(position=)", remedy)
        outcome: bool = yield from ask(self.engine, "team.wait_for", 0, key, task, timeout)
        return outcome


class MemoryFlows(Flows):
    """The operations of memory, as its twins call them."""

    def __init__(self, engine: RemoteCore) -> None:
        super().__init__(engine, "memory")

    def view(self, path: str, space: str | None, at: object) -> Flow[Any]:
        """A file. Raises NotOffered for a point that counts what others wrote."""
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
        """The files that fit a question by their words. Raises NotOffered for vectors."""
        if embedder is not None or by not in (None, By.WORDS):
            raise NotOffered("session.memory.search(embedder=)", "search by words")
        return (yield from ask(self.engine, "memory.search", 0, question, glob, limit, kind))

    def prompt(self, budget: int | None, count: object) -> Flow[Any]:
        """The block of the system prompt. Raises NotOffered for a count of the program's own."""
        if count is not None:
            raise NotOffered("session.memory.prompt(count=)", "give the budget in characters")
        return (yield from ask(self.engine, "memory.prompt", 0, budget))

    def command(self, text: str, path: str, space: str | None) -> NoReturn:
        """Raises NotOffered: which event a message is a restricted agent is not told."""
        del text, path, space
        raise NotOffered("session.memory.command", "use session.memory.remember")

    def change(self, ops: Any, because: str, space: str | None, sources: Any) -> Flow[None]:
        """Change files. A secret is sent nowhere. Raises MemoryInvalid."""
        scrub = self.engine.settings.scrub
        bad = [
            each for op in ops for text in _texts(op) for each in secrets(op["path"], text, scrub)
        ]
        if bad:
            raise MemoryInvalid(space or "memory", bad)
        named = {"ops": ops, "because": because, "space": space, "sources": sources}
        yield from ask(self.engine, "memory.change", 0, **named)


def _texts(op: Mapping[str, Any]) -> list[str]:
    return [op[field] for field in ("text", "old", "new") if op.get(field)]


class ViewFlows(Flows):
    """The session's views."""

    def view(self, at: object, key: bytes | None) -> Flow[Any]:
        """The run as the role sees it. Raises NotOffered."""
        return (yield from ask(self.engine, "session.view", 0, event_point(at), key))


class Prepared(msgspec.Struct, frozen=True):
    """An operation, ready to be asked for."""

    operation: Operation
    data: Do
    doing: Callback


def ask(engine: RemoteCore, name: str, context: int, /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """Have the session do something. Raises what that raises."""
    return (yield from request_operation(engine, prepared(engine, name, context, args, kwargs)))


def prepared(
    engine: RemoteCore,
    name: str,
    context: int = 0,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = wire.NOTHING,
) -> Prepared:
    """An operation as it is asked for; `args` are its request's fields, in their order.

    Raises BadValue, TypeError.
    """
    operation = OPERATIONS[name]
    scrub = engine.settings.scrub
    doing = Callback(engine)
    given = {**dict(zip(operation.fields, args, strict=False)), **kwargs}
    fields: dict[str, Any] = {}
    for field, value in given.items():
        if callable(value):
            doing = Resolving(engine, value)
        kind = operation.fields.get(field, Kind.PLAIN)
        fields[field] = _encoded(value, kind, field, operation.called, scrub)
    request = operation.request(**fields)
    verdict = None
    if operation.group == "memory" and engine.settings.rules:
        verdict = verdict_of(engine, _SPECS.get(operation.method, MEMORY["change"]), given)
    data = Do(operation=msgspec.Raw(wire.encode(request)), context=context, verdict=verdict)
    return Prepared(operation, data, doing)


def _encoded(value: Any, kind: Kind, field: str, name: str, scrub: Scrub | None) -> Any:
    where = f"{name}({field})"
    match kind:
        case Kind.VALUE | Kind.DATA:
            return values.dump(values.plain(_simple(value), where, scrub))
        case Kind.VALUES:
            return [values.dump(values.plain(_simple(each), where, scrub)) for each in value]
        case Kind.NAME:
            return _typed(value, where, None)  # a secret in a name is refused as it is sent
        case Kind.PLAIN:
            return _typed(value, where, scrub)


def _simple(given: Any) -> Any:
    """An argument as a value can say it."""
    if isinstance(given, Mapping) and not isinstance(given, dict):
        return dict(given)
    plain = isinstance(given, str | bytes | list | tuple | dict | set | frozenset | msgspec.Struct)
    if isinstance(given, Iterable) and not plain and not hasattr(given, "__fspath__"):
        return list(given)
    return given


def _typed(given: Any, where: str, scrub: Scrub | None) -> Any:
    """What no value of a program is, as it is declared; what is of another type stays of another
    type, and the service says so.
    """
    match given:
        case Task():
            return Claim(given.id, given.number)
        case BaseException():
            return Raised(faults.of_program(given, None, scrub))
        case bytes():
            return given
        case Mapping():
            return {
                values.plain(key, where, scrub): _typed(each, where, scrub)
                for key, each in given.items()
            }
        case _ if callable(given):
            return Function(name_of(given))
        case Iterable() if not isinstance(given, str):
            return [_typed(each, where, scrub) for each in given]
        case _:
            plain = values.plain(given, where, scrub)
            if isinstance(given, str) and isinstance(plain, dict) and "$secret" in plain:
                return SecretName(plain["$secret"])
            return plain


def request_operation(engine: RemoteCore, request: Prepared, verb: str = "do") -> Flow[Any]:
    """Ask for an operation; what it came to."""
    found = yield from answered(engine, request, verb)
    return shapes.back(found.value, request.operation.result)


def answered(engine: RemoteCore, request: Prepared, verb: str = "do") -> Flow[wire.Value]:
    """Ask for an operation; the answer."""
    operation, data, doing = request.operation, request.data, request.doing
    match operation.place:
        case ChainKind.NONE:
            return (yield from converse(engine, verb, data, engine.ledger.here, doing))
        case ChainKind.FACT:
            scope = engine.scope(operation.called)
            return (yield from converse(engine, verb, data, scope, doing))
        case ChainKind.STEP:
            scope = engine.scope(operation.called)
            busy = engine.ledger.enter_call(scope)
            try:
                return (yield from converse(engine, verb, data, scope, doing, busy=busy))
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
        """Begin it; what it gives."""
        request = prepared(self._engine, self._name, 0, args)
        found = yield from answered(self._engine, request, "enter")
        self.number = found.context
        self._gave = shapes.back(found.value, request.operation.result)
        return self._gave

    def end(self, error: BaseException | None) -> Flow[None]:
        """Leave it. What the session has to add to the error is added."""
        engine = self._engine
        scrub = engine.settings.scrub
        result = getattr(self._gave, "result", None) if error is None else None
        left = Left(
            context=self.number,
            fault=faults.of_program(error, None, scrub) if error is not None else None,
            result=values.dump(values.plain(result, "result", scrub)),
        )
        if error is not None and engine.link.lost is not None:
            return
        found = yield from converse(engine, "exit", left, engine.ledger.here, Callback(engine))
        if error is not None:
            for note in wire.load(found.value) or ():
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)


WRITES = frozenset(
    each.method
    for each in OPERATIONS.values()
    if each.group == "transaction" and each.method not in ("get", "roll_back")
)
"""A transaction's operations that its twins call plainly: they wait for its end."""


class TransactionFlows(Flows):
    """A transaction's operations. Its writes are plain calls: without `now` they are sent with the
    next operation that is awaited, at the latest the end of the block.
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
        """Send the writes that wait. Raises what the first that is refused raises."""
        while self._writes:
            yield from request_operation(self.engine, self._writes.pop(0))

    def begin(self) -> Flow[None]:
        """Begin it."""
        yield from self._block.begin()
        self._context = self._block.number

    def end(self, error: BaseException | None) -> Flow[None]:
        """The block is left."""
        if error is None:
            try:
                yield from self._sent()
            except BaseException as refused:
                yield from self.end(refused)
                raise
        else:
            with contextlib.suppress(HansardError):  # the block's own error is the stronger news
                yield from self._sent()
        yield from self._block.end(error)
