"""What a client may have its session do, by name; and what is not offered to a restricted agent."""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager
from typing import Any

from hansard.agents.flow import drive_async
from hansard.agents.session import AsyncSession
from hansard.agents.team import Task
from hansard.agents.views import derive
from hansard.bus._logging import logger
from hansard.bus.errors import NotFound
from hansard.domain.errors import BadValue, Refused
from hansard.service import faults, wire
from hansard.service.errors import NotOffered
from hansard.service.wire import Do, Fault

GRACE_S = 5.0
"""How long what was under way may take to be put on record when its client is gone, in seconds."""

_log = logger(__name__)

_FACTS = frozenset(
    ("checkpoint", "checkpoint_data", "decide", "message", "resource", "hand_off", "context")
)
_BOARD = frozenset(("entry", "keys", "put", "change", "remove"))
_TEAM = frozenset(
    (
        *("add", "claim", "extend", "complete", "fail", "release", "hand_off", "reopen", "tasks"),
        "wait_for",
    )
)
_OF_TASK = frozenset(("extend", "complete", "fail", "release", "hand_off"))
OFFERED = {
    "facts": _FACTS,
    "board": _BOARD,
    "team": _TEAM,
    "mail": frozenset(("send", "inbox")),
    "views": frozenset(("view",)),
    "transaction": frozenset(("get", "put", "change", "remove", "roll_back")),
}
"""The flows of a session by what they belong to: those that its clients drive, and no others."""
READ_RUNS = frozenset(("views.view",))
"""Those that read a whole run: they wait for a place as the same does outside of a session."""


def given(asked: Do) -> tuple[list[Any], dict[str, Any]]:
    """An operation's arguments. Raises BadValue."""
    args, kwargs = wire.load(asked.args), wire.load(asked.kwargs)
    args, kwargs = [] if args is None else args, {} if kwargs is None else kwargs
    if type(args) is not list or type(kwargs) is not dict:
        raise BadValue("request", f"a {type(args).__name__} as arguments", "use the client")
    if not all(0 <= index < len(args) for index in (*asked.functions, *asked.faults)):
        raise BadValue("request", "an argument that is not there", "use the client")
    for index, fault in asked.faults.items():
        args[index] = faults.rebuilt(fault)
    return args, kwargs


Claims = set[tuple[str, int]]
"""The claims, by task and number, that a session was told of as its own."""


async def run(
    target: Any, name: str, args: list[Any], kwargs: dict[str, Any], claims: Claims
) -> Any:
    """Run an operation of a session, or of the transaction that it belongs to. Raises what it
    raises, BadValue for one that there is not, NotOffered, and Refused for another's claim.
    """
    group, _, method = name.partition(".")
    if method not in OFFERED.get(group, ()):
        raise BadValue("request", f"there is no operation {name!r:.80}", "use the client")
    if isinstance(target, AsyncSession) == (group == "transaction"):
        raise BadValue("request", f"{name!r:.80} stands outside of its block", "use the client")
    if group == "team" and method in _OF_TASK and args:
        args = [_claimed(_task(args[0]), claims), *args[1:]]
    if name == "team.wait_for":
        _no_position(args, kwargs)
    if name == "views.view":
        await _visible(target, *args[:1])
    function = getattr(_holder(target, group), method)
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise BadValue("request", f"{name}: {error}", "use the client of this version") from error
    found: Any = function(*args, **kwargs)
    if inspect.isgenerator(found):
        flow: Any = found
        found = await drive_async(flow)
    if name == "team.claim":
        note(claims, found[0])
    return found


def note(claims: Claims, task: object) -> None:
    """Take note of a claim."""
    if isinstance(task, Task):
        claims.add((task.id, task.number))


def _claimed(task: Task, claims: Claims) -> Task:
    """A task that the session has claimed. A claim's number is no secret: whose it is counts."""
    if (task.id, task.number) not in claims:
        message = f"claim {task.number} of task {task.id!r:.80} is not of this session: claim it"
        raise Refused(message)
    return task


def _holder(target: Any, group: str) -> Any:
    match group:  # the service drives what a session's twins drive
        case "facts":
            return target.facts
        case "board":
            return target.board._flows  # noqa: SLF001 -- see above
        case "team":
            return target.team._flows  # noqa: SLF001 -- see above
        case "mail":
            return target.team._mail  # noqa: SLF001 -- see above
        case "views":
            return target._views  # noqa: SLF001 -- see above
        case _:
            return target._flows  # noqa: SLF001 -- see above


def block(
    session: AsyncSession, name: str, args: list[Any], kwargs: dict[str, Any]
) -> AbstractAsyncContextManager[Any]:
    """A `with` block of a session. Raises BadValue."""
    try:
        match name:
            case "board.transaction":
                return session.board.transaction(*args, **kwargs)
            case "team.claimed":
                return session.team.claimed(*args, **kwargs)
            case _:
                pass
    except TypeError as error:
        raise BadValue("request", f"{name}: {error}", "use the client of this version") from error
    raise BadValue("request", f"there is no block {name!r:.80}", "use the client")


def _task(told: Any) -> Task:
    try:
        return Task(**told)
    except TypeError as error:
        raise BadValue("task", f"{told!r:.80}", "give one that was claimed") from error


def _no_position(args: list[Any], kwargs: dict[str, Any]) -> None:
    position = kwargs.get("position", args[2] if len(args) > 2 else None)  # noqa: PLR2004 -- key, task, position
    if position is not None:
        raise NotOffered(
            "wait_for(position=)", "positions count what it may not see; wait for a key"
        )


async def _visible(session: AsyncSession, at: object = None) -> None:
    """Refuse a point that is no event which the role sees: there is no other, as far as it knows.
    Raises NotOffered, NotFound.
    """
    if at is None:
        return
    if type(at) is not str:
        remedy = "give the id of an event that it was shown"
        raise NotOffered(f"view(at={at!r:.40})", remedy)
    core = session.core
    made = await derive(core.boards.states, core.stream.role, core.stream.run)
    if all(shown.id != at for _, shown in made.view.events):
        raise not_shown(at)


def not_shown(at: str) -> NotFound:
    """What is said of an event that is not there, as far as a role knows."""
    return NotFound(f"event {at!r:.80}", "give the id of an event that the role is shown")


def log_unexpected(error: BaseException, fault: Fault) -> None:
    """Have what the client is not told stand in the service's own log."""
    if fault.type == "ServiceFailed":
        _log.warning("an operation failed", error=f"{type(error).__name__}: {error}")
