"""The operations of a session, each answered by the method of its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from hansard.agents.access.roles import View, derive
from hansard.agents.annotations.statements import Annotations, Progress
from hansard.agents.board import AsyncBoard, AsyncTransaction
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

# A client's `resumable` loop; the session keeps its progress.


class Loop:
    """One loop, and the scope of its present item. `scopes` are those that the client knows.

    Its methods answer the operations of their names.
    """

    def __init__(self, session: AsyncSession, scopes: dict[str, Scope]) -> None:
        self._session = session
        self._scopes = scopes
        self._progress: Any = None
        self._child: Scope | None = None

    async def begin(self, name: str, every: int) -> list[Any]:
        """Find the items done before; return their results. Raises BadValue."""
        self._progress = Progress(self._session.facts, name, every)
        found: list[Any] = await drive_async(self._progress.begin())
        return found

    def skips(self, item: object) -> Flow[str | None]:
        """Begin the next item; return the path of its scope, None if it was done before."""
        skipped = yield from self._progress.skips(item)
        child = None if skipped else current(self._session.engine.ledger)
        if child is None:
            return None
        self._scopes[child.path] = self._child = child
        return child.path

    async def done(self, results: list[Any]) -> None:
        """Mark the item as done."""
        await drive_async(self._progress.done(results))
        self._ended()

    def leave(self) -> Flow[None]:
        """Leave the loop, completed or not."""
        yield from self._progress.leave()
        self._ended()

    def end(self, results: list[Any]) -> Flow[None]:
        """Mark all items as done."""
        flow: Flow[None] = self._progress.end(results)
        return flow

    def _ended(self) -> None:
        """Forget the scope of an item."""
        if self._child is not None:
            self._scopes.pop(self._child.path, None)
            self._child = None


GRACE_S = 5.0
"""Seconds in which turns under way may be recorded after their client is gone."""

_log = logger(__name__)

Claims = set[tuple[str, int]]
"""The session's own claims, by task and number."""


class Views:
    """The views of a session's role."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def view(self, at: str | None, key: bytes | None) -> View:
        """Return the run as the role sees it: now, or at an event that it sees.

        An event that it does not see does not exist for it. Raises NotFound.
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
    memory: AsyncMemory, ops: list[FileOp], reason: str, space: str | None, sources: list[str]
) -> None:
    async with memory.change(reason, space=space, sources=sources) as change:
        for each in ops:
            each.add_to(change)


OTHERWISE: dict[str, Callable[..., Any]] = {"memory.grep": _lines, "memory.change": _change}
"""Functions that answer operations of memory instead of the session's own methods."""

IN_BLOCKS: dict[str, type[Any]] = {"transaction": AsyncTransaction, "loop": Loop}
"""Classes that answer the operations of a block, by group."""

ANSWERS: dict[str, type[Any]] = {
    "facts": Annotations,
    "board": AsyncBoard,
    "memory": AsyncMemory,
    "team": AsyncTeam,
    "session": Views,
    **IN_BLOCKS,
}
"""Classes that answer the operations of a session, by group."""


def demand_handlers(answers: dict[str, type[Any]]) -> None:
    """Raise TypeError if a declared operation has no method that takes its fields."""
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
            message = f"{each.name} is declared with fields that its method does not take: {error}"
            raise TypeError(message) from error


demand_handlers(ANSWERS)


def given(
    operation: Operation,
    request: Ask,
    claims: Claims,
    resolving: Callable[[str], Callable[..., Any]],
) -> dict[str, Any]:
    """Return the arguments of a request by field; `resolving` makes proxies of client functions.

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
    """Run an operation on a session, or a block in it. Raises the operation's error."""
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
    """Add a claim to the session's own."""
    if isinstance(task, Task):
        claims.add((task.id, task.number))


def _claimed(claim: Claim, claims: Claims) -> Task:
    """Return a task that the session has claimed; numbers of claims are not secret."""
    if (claim.id, claim.number) not in claims:
        message = f"claim {claim.number} of task {claim.id!r:.80} is not of this session: claim it"
        raise Refused(message)
    return Task(claim.id, "", claim.number)


def not_shown(at: str) -> NotFound:
    """Build the error for an event that a role does not see."""
    return NotFound(f"event {at!r:.80}", "give the id of an event that the role is shown")


def log_unexpected(error: BaseException, fault: Fault) -> None:
    """Log an error whose text the client may not see."""
    if fault.type == "ServiceFailed":
        _log.warning("an operation failed", **unexpected(error))
