"""The operations of a session, each answered by what has its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from hansard.agents.access.views import View, derive
from hansard.agents.annotations.statements import Annotations, Progress
from hansard.agents.board.twins import AsyncBoard, AsyncTransaction
from hansard.agents.flow import Flow, drive_async
from hansard.agents.memory.twins import AsyncMemory
from hansard.agents.steps.scope import Scope, current
from hansard.agents.team.tasks import Task
from hansard.agents.team.twins import AsyncTeam
from hansard.bus.errors import NotFound
from hansard.bus.loggers import logger, unexpected
from hansard.client.session import AsyncSession
from hansard.domain.errors import Refused
from hansard.domain.values import Secret
from hansard.operations import session as operations
from hansard.operations.declare import Ask, Kind, Operation, SecretName, data_of
from hansard.operations.memory import FileOp
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.wire import Fault
from hansard.operations.session import Claim, Function, Raised

# A client's `resumable` loop: how far it has come, the session knows.


class Loop:
    """One loop, and the scope of the item that it is at. `scopes` are those that the client knows.

    Its methods answer the operations of their names.
    """

    def __init__(self, session: AsyncSession, scopes: dict[str, Scope]) -> None:
        self._session = session
        self._scopes = scopes
        self._progress: Any = None
        self._child: Scope | None = None

    async def begin(self, name: str, every: int) -> list[Any]:
        """Find what was done before; its results. Raises BadValue."""
        self._progress = Progress(self._session.facts, name, every)
        found: list[Any] = await drive_async(self._progress.begin())
        return found

    def skips(self, item: object) -> Flow[str | None]:
        """The next item: the path of its scope; None where it was done before."""
        skipped = yield from self._progress.skips(item)
        child = None if skipped else current(self._session.engine.ledger)
        if child is None:
            return None
        self._scopes[child.path] = self._child = child
        return child.path

    async def done(self, results: list[Any]) -> None:
        """The item is done."""
        await drive_async(self._progress.done(results))
        self._ended()

    def leave(self) -> Flow[None]:
        """The loop is over, in whatever way."""
        yield from self._progress.leave()
        self._ended()

    def end(self, results: list[Any]) -> Flow[None]:
        """All items are done."""
        flow: Flow[None] = self._progress.end(results)
        return flow

    def _ended(self) -> None:
        """An item's scope is no one's any more."""
        if self._child is not None:
            self._scopes.pop(self._child.path, None)
            self._child = None


GRACE_S = 5.0
"""How long what was under way may take to be put on record when its client is gone, in seconds."""

_log = logger(__name__)

Claims = set[tuple[str, int]]
"""The claims, by task and number, that a session was told of as its own."""


class Views:
    """The views of a session's role."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def view(self, at: str | None, key: bytes | None) -> View:
        """The run as the role sees it: now, or at an event that it sees. There is no other, as far
        as it knows. Raises NotFound.
        """
        engine = self._session.engine
        if at is not None:
            made = await derive(engine.boards.states, engine.stream.role, engine.stream.run)
            if all(shown.id != at for _, shown in made.view.events):
                raise not_shown(at)
        return await self._session.view(at, key=key)


async def _lines(memory: AsyncMemory, pattern: str, glob: str) -> list[list[Any]]:
    return [list(each) for each in await memory.grep(pattern, glob=glob)]


async def _change(
    memory: AsyncMemory, ops: list[FileOp], because: str, space: str | None, sources: list[str]
) -> None:
    async with memory.change(because, space=space, sources=sources) as change:
        for each in ops:
            each.add_to(change)


OTHERWISE: dict[str, Callable[..., Any]] = {"memory.grep": _lines, "memory.change": _change}
"""What answers operations of memory in place of the session's own methods."""

IN_BLOCKS: dict[str, type[Any]] = {"transaction": AsyncTransaction, "loop": Loop}
"""What answers the operations that stand in a block, by their group."""

ANSWERS: dict[str, type[Any]] = {
    "facts": Annotations,
    "board": AsyncBoard,
    "memory": AsyncMemory,
    "team": AsyncTeam,
    "session": Views,
    **IN_BLOCKS,
}
"""What answers the operations of a session, by their group."""


def demand_handlers(answers: dict[str, type[Any]]) -> None:
    """Raise TypeError where a declared operation has no method that takes its fields."""
    for each in operations.OPERATIONS.values():
        if each.group not in answers:
            continue
        method = OTHERWISE.get(each.name, getattr(answers[each.group], each.method, None))
        if method is None:
            message = f"{answers[each.group].__name__} has no {each.method} for {each.name}"
            raise TypeError(message)
        try:
            inspect.signature(method).bind(None, **dict.fromkeys(each.fields))
        except TypeError as error:
            message = f"{each.name} is declared with other fields than it takes: {error}"
            raise TypeError(message) from error


demand_handlers(ANSWERS)


def given(
    operation: Operation,
    request: Ask,
    claims: Claims,
    resolving: Callable[[str], Callable[..., Any]],
) -> dict[str, Any]:
    """What a request gives, by field. `resolving` makes a function of one of the client's.

    Raises BadValue, and Refused for a claim that is not the session's.
    """

    def one(value: Any) -> Any:
        match value:
            case SecretName():
                return Secret(value.name)
            case Function():
                return resolving(value.name)
            case Raised():
                return faults.rebuilt(value.fault)
            case Claim():
                return _claimed(value, claims)
            case dict():
                return {key: one(each) for key, each in value.items()}
            case _:
                return value

    found: dict[str, Any] = {}
    for field, kind in operation.fields.items():
        value = getattr(request, field)
        match kind:
            case Kind.DATA:
                found[field] = data_of(value, f"{operation.called}({field})")
            case Kind.VALUE:
                found[field] = wire.load(value)
            case Kind.VALUES:
                found[field] = [wire.load(each) for each in value]
            case _:
                found[field] = one(value)
    return found


async def run(target: Any, operation: Operation, fields: dict[str, Any], claims: Claims) -> Any:
    """Have a session, or what is open in it, do something. Raises what that raises."""
    answering = _answering(target, operation)
    if operation.name in OTHERWISE:
        found: Any = OTHERWISE[operation.name](answering, **fields)
    else:
        found = getattr(answering, operation.method)(**fields)
    if inspect.isgenerator(found):
        flow: Any = found
        found = await drive_async(flow)
    elif inspect.isawaitable(found):
        found = await found
    note(claims, found)
    return found


def _answering(target: Any, operation: Operation) -> Any:
    match operation.group:
        case "facts" | "board" | "team" | "memory":
            return getattr(target, operation.group)
        case "session":
            return Views(target)
        case _:
            return target


def note(claims: Claims, task: object) -> None:
    """Take note of a claim."""
    if isinstance(task, Task):
        claims.add((task.id, task.number))


def _claimed(claim: Claim, claims: Claims) -> Task:
    """A task that the session has claimed. A claim's number is no secret: whose it is counts."""
    if (claim.id, claim.number) not in claims:
        message = f"claim {claim.number} of task {claim.id!r:.80} is not of this session: claim it"
        raise Refused(message)
    return Task(claim.id, "", claim.number)


def not_shown(at: str) -> NotFound:
    """What is said of an event that is not there, as far as a role knows."""
    return NotFound(f"event {at!r:.80}", "give the id of an event that the role is shown")


def log_unexpected(error: BaseException, fault: Fault) -> None:
    """Have what the client is not told stand in the service's own log."""
    if fault.type == "ServiceFailed":
        _log.warning("an operation failed", **unexpected(error))
