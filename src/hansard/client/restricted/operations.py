"""A session's operations, except tools, at the client.

Each is sent as declared (`hansard.operations.session`), by flows in place of those of a trusted
session.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from hansard.agents.flow import Drive, Flow, name_of
from hansard.agents.memory.operations import SPECS as MEMORY
from hansard.agents.memory.search import HITS_MAX, By
from hansard.agents.memory.store import secrets
from hansard.agents.team.tasks import Task
from hansard.client.restricted.calls import Callback, ResolveCallback, exchange, verdict_of
from hansard.client.restricted.engine import RemoteCore
from hansard.domain import values
from hansard.domain.errors import HansardError
from hansard.domain.memory.space import MemoryInvalid
from hansard.domain.values import Scrub
from hansard.operations.declare import ChainKind, Kind, Operation, SecretName, event_point
from hansard.operations.protocol import faults, shapes, wire
from hansard.operations.protocol.errors import NotOffered
from hansard.operations.protocol.wire import BlockExit, Do
from hansard.operations.session import OPERATIONS, Claim, Function, Raised

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

    def change(self, name: str, *given: Any, **named: Any) -> Any:
        """Make a change that is not conditional on a version."""
        return getattr(self, name)(*given, **named)


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

    def claim(self, *given: Any) -> Flow[tuple[Task | None, bool]]:
        """Claim a task; only the service knows if it was claimed before."""
        task = yield from ask(self.engine, "team.claim", 0, *given)
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
    given = {**dict(zip(operation.fields, args, strict=False)), **kwargs}
    fields: dict[str, Any] = {}
    for field, value in given.items():
        if callable(value):
            local = ResolveCallback(engine, value)
        kind = operation.fields.get(field, Kind.PLAIN)
        fields[field] = _encoded(value, kind, field, operation.called, scrub)
    request = operation.request(**fields)
    verdict = None
    if operation.group == "memory" and engine.settings.rules:
        verdict = verdict_of(engine, _SPECS.get(operation.method, MEMORY["change"]), given)
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


def _simple(given: Any) -> Any:
    """Convert an argument to a type that values support."""
    if isinstance(given, Mapping) and not isinstance(given, dict):
        return dict(given)
    plain = isinstance(given, str | bytes | list | tuple | dict | set | frozenset | msgspec.Struct)
    if isinstance(given, Iterable) and not plain and not hasattr(given, "__fspath__"):
        return list(given)
    return given


def _typed(given: Any, where: str, scrub: Scrub | None) -> Any:
    """Convert an argument to its declared type, where values do not support it.

    One of another type keeps it, and the service refuses it.
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
    """Send an operation and return its result."""
    found = yield from answered(engine, request, verb)
    return shapes.decode_result(found.value, request.operation.result)


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
        found = yield from answered(self._engine, request, "enter")
        self.number = found.context
        self._gave = shapes.decode_result(found.value, request.operation.result)
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
        found = yield from exchange(engine, "exit", left, engine.ledger.here, Callback(engine))
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
