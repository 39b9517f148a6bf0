"""A session's operations but tools at the client: each is sent as the flow it is at the service."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from typing import Any

import msgspec

from hansard.agents.board_twins import (
    AsyncBoard,
    AsyncTransaction,
    Drive,
    SyncBoard,
    SyncTransaction,
)
from hansard.agents.callables import name_of
from hansard.agents.flow import Flow, drive_async
from hansard.agents.scope import Scope, current
from hansard.agents.secrets import check_names
from hansard.agents.team import Task
from hansard.agents.team_twins import AsyncTeam, SyncTeam
from hansard.domain import values
from hansard.domain.errors import HansardError
from hansard.service import faults, wire
from hansard.service.client.calls import Doing, Resolving, converse
from hansard.service.client.core import RemoteCore
from hansard.service.shapes import shape
from hansard.service.wire import Do, Left

STEPS = frozenset({"board", "team", "mail", "views"})
"""What is a step of the agent; the rest is a fact."""

NAMES: dict[str, tuple[int, ...]] = {
    "board.entry": (0,),
    "board.put": (0,),
    "board.change": (1,),
    "board.remove": (0,),
    "facts.hand_off": (0,),
    "loop.begin": (0,),
    "mail.send": (1, 2),
    "team.add": (2, 3, 4, 5, 6),
    "team.claim": (0,),
    "team.claimed": (0,),
    "team.hand_off": (1, 2),
    "team.wait_for": (0, 1),
    "transaction.change": (1,),
    "transaction.entry": (0,),
    "transaction.get": (0,),
    "transaction.put": (0,),
    "transaction.remove": (0,),
}
"""Arguments that others go by: a secret in one would be known by another name."""


class Flows:
    """A group of operations; `context` is the block that they belong to, 0 for the session."""

    def __init__(self, core: RemoteCore, group: str, context: int = 0) -> None:
        self.core = core
        self._group = group
        self._context = context

    def __getattr__(self, name: str) -> Callable[..., Flow[Any]]:
        return functools.partial(operation, self.core, f"{self._group}.{name}", self._context)


def operation(core: RemoteCore, name: str, context: int, /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """Have the session do something. Raises what that raises."""
    asked, doing = prepared(core, name, context, args, kwargs)
    return (yield from asked_for(core, asked, doing))


def prepared(
    core: RemoteCore, name: str, context: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Do, Doing]:
    """An operation as it is asked for. Raises BadValue."""
    doing = Doing(core)
    functions: dict[int, str] = {}
    errors: dict[int, wire.Fault] = {}
    told: list[Any] = []
    for index, given in enumerate(args):
        if isinstance(given, BaseException):
            errors[index] = faults.of_program(given, None, core.settings.scrub)
            told.append(None)
        elif callable(given):
            functions[index] = name_of(given)
            doing = Resolving(core, given)
            told.append(None)
        else:
            told.append(_simple(given))
    where = name.partition(".")[2]
    plain = values.plain(told, where, core.settings.scrub)
    for index in NAMES.get(name, ()):
        check_names(name, {"name": told[index : index + 1]}, core.settings.scrub)
    named = values.plain(
        {each: _simple(given) for each, given in kwargs.items()}, where, core.settings.scrub
    )
    asked = Do(
        name=name,
        args=values.dump(plain),
        kwargs=values.dump(named),
        functions=functions,
        faults=errors,
        context=context,
    )
    return asked, doing


def _simple(given: Any) -> Any:
    """An argument as a value can say it."""
    if isinstance(given, Task):
        return msgspec.structs.asdict(given)
    if isinstance(given, Mapping) and not isinstance(given, dict):
        return dict(given)
    plain = isinstance(given, str | bytes | list | tuple | dict | set | frozenset | msgspec.Struct)
    if isinstance(given, Iterable) and not plain and not hasattr(given, "__fspath__"):
        return list(given)
    return given


def asked_for(core: RemoteCore, asked: Do, doing: Doing, verb: str = "do") -> Flow[Any]:
    """Ask for an operation; what it came to."""
    group, _, method = asked.name.partition(".")
    if group not in STEPS and group != "transaction":
        scope = core.scope(method) if method not in ("context", "checkpoint_data") else None
        found = yield from converse(core, verb, asked, scope or here(core), doing)
        return shape(asked.name)[1](found.value)
    scope = core.scope(asked.name)
    busy = core.ledger.enter_call(scope)
    try:
        found = yield from converse(core, verb, asked, scope, doing, busy=busy)
    finally:
        core.ledger.leave_call(scope)
    return shape(asked.name)[1](found.value)


def here(core: RemoteCore) -> Scope:
    """The scope that is current, or the run's."""
    return current(core.ledger) or core.ledger.root


# ------------------------------------------------------------ blocks


def enter_block(core: RemoteCore, name: str, *args: Any, **kwargs: Any) -> Flow[tuple[int, Any]]:
    """Begin a `with` block of the session: its number, and what it gives."""
    asked, doing = prepared(core, name, 0, args, kwargs)
    scope = core.scope(name)
    busy = core.ledger.enter_call(scope)
    try:
        found = yield from converse(core, "enter", asked, scope, doing, busy=busy)
    finally:
        core.ledger.leave_call(scope)
    return found.context, shape(name)[1](found.value)


def exit_block(
    core: RemoteCore, number: int, error: BaseException | None, result: Any = None
) -> Flow[None]:
    """Leave it. What the session has to add to the error is added."""
    scrub = core.settings.scrub
    left = Left(
        context=number,
        fault=faults.of_program(error, None, scrub) if error is not None else None,
        result=values.dump(values.plain(result, "result", scrub)),
    )
    if error is not None and core.link.lost is not None:
        return
    found = yield from converse(core, "exit", left, here(core), Doing(core))
    if error is not None:
        for note in wire.load(found.value) or ():
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)


class RemoteBoard(SyncBoard):
    """The run's shared state, for the sync client."""

    def __init__(self, core: RemoteCore, drive: Drive) -> None:
        self._core = core
        self._flows: Any = Flows(core, "board")
        self._drive = drive

    @contextlib.contextmanager
    def transaction(self) -> Generator[SyncTransaction, None, None]:
        """Several keys in one commit; see `SyncBoard.transaction`."""
        number, _ = self._drive(enter_block(self._core, "board.transaction"))
        flows: Any = Driven(self._core, number, self._drive)
        try:
            yield SyncTransaction(flows, self._drive)
        except BaseException as error:
            self._drive(exit_block(self._core, number, error))
            raise
        else:
            self._drive(exit_block(self._core, number, None))


class Driven(Flows):
    """A transaction's operations: its writes are asked for at once, its other operations driven by
    whoever asks.
    """

    def __init__(self, core: RemoteCore, number: int, drive: Drive) -> None:
        super().__init__(core, "transaction", number)
        self._drive = drive

    def __getattr__(self, name: str) -> Callable[..., Any]:
        flow = super().__getattr__(name)
        if name in ("put", "change", "remove"):
            return lambda *args, **kwargs: self._drive(flow(*args, **kwargs))
        return flow


class Waiting(Flows):
    """A transaction's operations for the async client, whose writes are plain calls: they are sent
    with the next operation that is awaited, at the latest the end of the block.
    """

    def __init__(self, core: RemoteCore, number: int) -> None:
        super().__init__(core, "transaction", number)
        self._writes: list[tuple[Do, Doing]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in ("put", "change", "remove"):
            return functools.partial(self._write, name)
        flow = super().__getattr__(name)

        def after(*args: Any, **kwargs: Any) -> Flow[Any]:
            yield from self.sent()
            return (yield from flow(*args, **kwargs))

        return after

    def _write(self, name: str, *args: Any, **kwargs: Any) -> None:
        core, number = self.core, self._context
        self._writes.append(prepared(core, f"transaction.{name}", number, args, kwargs))

    def sent(self) -> Flow[None]:
        """Send the writes that wait. Raises what the first that is refused raises."""
        while self._writes:
            asked, doing = self._writes.pop(0)
            yield from asked_for(self.core, asked, doing)


class AsyncRemoteBoard(AsyncBoard):
    """The run's shared state, for the async client."""

    def __init__(self, core: RemoteCore) -> None:
        self._core = core
        self._flows: Any = Flows(core, "board")

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTransaction, None]:
        """Several keys in one commit; see `SyncBoard.transaction`. A write that is refused is told
        by the next operation that is awaited.
        """
        number, _ = await drive_async(enter_block(self._core, "board.transaction"))
        flows: Any = Waiting(self._core, number)
        try:
            yield AsyncTransaction(flows)
            await drive_async(flows.sent())
        except BaseException as error:
            with contextlib.suppress(HansardError):  # the block's own error is the stronger news
                await drive_async(flows.sent())
            await drive_async(exit_block(self._core, number, error))
            raise
        else:
            await drive_async(exit_block(self._core, number, None))


class RemoteTeam(SyncTeam):
    """What the run's agents are to do, for the sync client."""

    def __init__(self, core: RemoteCore, drive: Drive) -> None:
        self._core = core
        self._flows: Any = Flows(core, "team")
        self._mail: Any = Flows(core, "mail")
        self._drive = drive

    @contextlib.contextmanager
    def claimed(
        self, role: str | None = None, *, lease: float | None = None, timeout: float | None = 0
    ) -> Generator[Task | None, None, None]:
        """Claim a task for a block of code; see `SyncTeam.claimed`."""
        entering = enter_block(self._core, "team.claimed", role, lease=lease, timeout=timeout)
        number, task = self._drive(entering)
        try:
            yield task
        except BaseException as error:
            self._drive(exit_block(self._core, number, error))
            raise
        else:
            self._drive(exit_block(self._core, number, None, _result(task)))


class AsyncRemoteTeam(AsyncTeam):
    """What the run's agents are to do, for the async client."""

    def __init__(self, core: RemoteCore) -> None:
        self._core = core
        self._flows: Any = Flows(core, "team")
        self._mail: Any = Flows(core, "mail")

    @contextlib.asynccontextmanager
    async def claimed(
        self, role: str | None = None, *, lease: float | None = None, timeout: float | None = 0
    ) -> AsyncGenerator[Task | None, None]:
        """Claim a task for a block of code; see `SyncTeam.claimed`."""
        entering = enter_block(self._core, "team.claimed", role, lease=lease, timeout=timeout)
        number, task = await drive_async(entering)
        try:
            yield task
        except BaseException as error:
            await drive_async(exit_block(self._core, number, error))
            raise
        else:
            await drive_async(exit_block(self._core, number, None, _result(task)))


def _result(task: Task | None) -> Any:
    return task.result if task is not None else None
