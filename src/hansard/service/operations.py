"""The operations of a session (`hansard.client.operations`), each answered by what has its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from hansard.agents.access.views import View, derive
from hansard.agents.annotations.statements import Annotations
from hansard.agents.board.twins import AsyncBoard, AsyncTransaction
from hansard.agents.flow import drive_async
from hansard.agents.team.tasks import Task
from hansard.agents.team.twins import AsyncTeam
from hansard.bus.errors import NotFound
from hansard.bus.loggers import logger, unexpected
from hansard.client import operations
from hansard.client.operations import Ask, Claim, Function, Kind, Operation, Raised, SecretName
from hansard.client.protocol import faults, wire
from hansard.client.protocol.wire import Fault
from hansard.client.session import AsyncSession
from hansard.domain.errors import BadValue, Refused
from hansard.domain.values import Secret
from hansard.service.loops import Loop

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


IN_BLOCKS: dict[str, type[Any]] = {"transaction": AsyncTransaction, "loop": Loop}
"""What answers the operations that stand in a block, by their group."""

ANSWERS: dict[str, type[Any]] = {
    "facts": Annotations,
    "board": AsyncBoard,
    "team": AsyncTeam,
    "session": Views,
    **IN_BLOCKS,
}
"""What answers the operations of a session, by their group."""


def demand_handlers(answers: dict[str, type[Any]], *, by_field: bool) -> None:
    """Raise TypeError where a declared operation has no method that answers it. by_field: the
    method takes the fields of its request by their names.
    """
    for each in operations.OPERATIONS.values():
        if each.group not in answers:
            continue
        method = getattr(answers[each.group], each.method, None)
        if method is None:
            message = f"{answers[each.group].__name__} has no {each.method} for {each.name}"
            raise TypeError(message)
        if by_field:
            try:
                inspect.signature(method).bind(None, **dict.fromkeys(each.fields))
            except TypeError as error:
                message = f"{each.name} is declared with other fields than it takes: {error}"
                raise TypeError(message) from error


demand_handlers(ANSWERS, by_field=True)


def given(
    operation: Operation,
    asked: Ask,
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
        value = getattr(asked, field)
        match kind:
            case Kind.DATA:
                found[field] = data_of(operation, field, value)
            case Kind.VALUE:
                found[field] = wire.load(value)
            case Kind.VALUES:
                found[field] = [wire.load(each) for each in value]
            case _:
                found[field] = one(value)
    return found


def data_of(operation: Operation, field: str, value: msgspec.Raw) -> dict[str, Any]:
    """A field's values by their names. Raises BadValue."""
    found = wire.load(value)
    if type(found) is not dict:
        where = f"{operation.called}({field})"
        raise BadValue(where, f"{found!r:.80}", "give values by their names")
    return found


async def run(target: Any, operation: Operation, fields: dict[str, Any], claims: Claims) -> Any:
    """Have a session, or what is open in it, do something. Raises what that raises."""
    found: Any = getattr(_answering(target, operation), operation.method)(**fields)
    if inspect.isgenerator(found):
        flow: Any = found
        found = await drive_async(flow)
    elif inspect.isawaitable(found):
        found = await found
    note(claims, found)
    return found


def _answering(target: Any, operation: Operation) -> Any:
    match operation.group:
        case "facts" | "board" | "team":
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
