"""A restricted agent's session in the service: an ordinary one, on the real log.

All checks and records of a session apply unchanged; this module only finds the scope of a request,
runs it as a turn, and keeps what is open between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec
from cachetools import FIFOCache

from hansard.agents import runs
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.runs import Opened
from hansard.agents.steps.scope import Scope, current, enter
from hansard.agents.team.tasks import Task
from hansard.agents.workspace import Workspace
from hansard.bus.errors import AppendUnknown, BusError
from hansard.client.session import AsyncSession, async_session_of
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.value_types import reading_context
from hansard.operations.declare import Operation, Takes
from hansard.operations.protocol import faults, shapes, wire
from hansard.operations.protocol.errors import ServiceBusy, ServiceGone
from hansard.operations.protocol.faults import ClientGone
from hansard.operations.protocol.remote_call import Program, RemoteCall, value
from hansard.operations.protocol.wire import (
    Answer,
    Began,
    BlockExit,
    BodyResult,
    Call,
    Do,
    Failed,
    Joined,
    Next,
    Request,
)
from hansard.operations.session import read
from hansard.service import operations, proxies
from hansard.service.operations import Loop
from hansard.service.proxies import Proxy

SCOPES_MAX = 100_000
"""Most scopes of one session that are open at a time."""

FAULTS_MAX = 256
"""Most errors sent to the client that are recognized when its program raises them again."""

TURNS_MAX = 1_000
"""Most operations of one session under way at a time, beside those in `ENDS`."""

ENDS = frozenset(("exit", "shut"))
"""Operations that end a block or a stream: allowed also at the limit."""

OVER = "this session has ended"

BLOCKS = frozenset(("board.transaction", "team.claimed"))
"""Operations that begin a `with` block."""

OPEN_MAX = 10_000
"""Most blocks, streams and loops of one session that are open at a time."""


class Stream(msgspec.Struct):
    """A streamed call: its items, and the tool that produces them."""

    call: Call
    items: AsyncIterator[Any]
    proxy: Proxy


class Block(msgspec.Struct):
    """A `with` block: a transaction or a claim. `inside` is its value."""

    manager: AbstractAsyncContextManager[Any]
    inside: Any


class Hosted:
    """One hosted session. On the service's loop."""

    def __init__(
        self,
        workspace: Workspace,
        opened: Opened,
        program: Program,
        carried: AccumulatedLabel,
        reading: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """Host an opened session. `reading` gives a place among readers of whole runs."""
        self.opened = opened
        opened.engine.outcomes.warns = False
        self.session = async_session_of(opened.engine, opened.arm)
        self.heard = time.monotonic()
        """The time of the client's last request (`time.monotonic`)."""
        self.rules_version = 0
        """The version of the role's rules when the session was opened."""
        self.over = False
        self._workspace = workspace
        self._program = program
        self._carried = carried
        self._reading = reading
        self._ledger = opened.engine.ledger
        self._scopes: dict[str, Scope] = {"": self._ledger.root}
        self.turns: dict[int, RemoteCall] = {}
        self.cancelled: set[int] = set()
        """Turns that a request of the client is cancelling."""
        self._is_closing = False
        self._open: dict[int, Loop | Stream | Block] = {}
        self._leaving: set[int] = set()
        """Open blocks and streams that an operation is about to leave."""
        self._known: FIFOCache[int, BaseException] = FIFOCache(FAULTS_MAX)
        self._claims: operations.Claims = set()
        self._number = 0
        self._taken = 0
        self._missing: set[int] = set()

    @property
    def lowered(self) -> int:
        """The version of the event that last lowered the principal's label, at opening."""
        return self._carried.lowered

    async def record_shown(self) -> None:
        """Record that the principal is shown all that its agent was, before an answer is sent.

        Raises Lowered, BusError: then nothing may be sent.
        """
        await self._carried.shown(self._ledger.label.stored)

    # ------------------------------------------------------------ requests

    def accepts(self, number: int) -> bool:
        """Return whether a request's number is new: each is accepted once."""
        if number > self._taken:
            if number - self._taken > OPEN_MAX:
                return False
            self._missing.update(range(self._taken + 1, number))
            self._taken = number
            return len(self._missing) <= OPEN_MAX
        if number in self._missing:
            self._missing.discard(number)
            return True
        return False

    def note(self, scopes: tuple[Began | Joined, ...]) -> None:
        """Apply changes of the client's scopes. Raises BadValue."""
        for each in scopes:
            parent = self._scope(each.parent)
            match each:
                case Began():
                    if len(self._scopes) >= SCOPES_MAX:
                        raise BadValue("scopes", f"over {SCOPES_MAX:,} are open", "join some")
                    held = each.apart and not parent.open
                    parent.open += held
                    child = parent.item(each.name)
                    parent.open -= held
                    self._scopes[child.path] = child
                case Joined():
                    parent.join([self._scope(path) for path in each.children])
                    for path in each.children:
                        self._scopes.pop(path, None)

    def _scope(self, path: str) -> Scope:
        scope = self._scopes.get(path)
        if scope is None:
            raise BadValue("scope", f"{path!r:.80} is not open", "use the client")
        return scope

    def begin(self, verb: str, request: Request) -> RemoteCall:
        """Begin an operation. Raises BadValue, ServiceBusy."""
        if len(self.turns) >= TURNS_MAX and verb not in ENDS:
            raise ServiceBusy("operations of this session open", TURNS_MAX, 1.0)
        scope = self._scope(request.scope)
        work = self._work(verb, request)
        turn = RemoteCall(request.n)
        self.turns[request.n] = turn

        async def run() -> None:
            enter(scope)
            self._program.of_turn(turn)
            # The other call may have ended here, but not for the client, whose view counts.
            held = request.busy and not scope.open
            scope.open += held
            try:
                turn.finish(await work(turn))
            except BaseException as error:  # noqa: BLE001 -- every error is sent to the client
                turn.finish(self.failed(turn, error))
            finally:
                scope.open -= held
                for path in turn.scopes:
                    self._scopes.pop(path, None)

        turn.task = asyncio.get_running_loop().create_task(run(), context=reading_context())
        return turn

    def failed(self, turn: RemoteCall, error: BaseException) -> Failed:
        """Convert an error to a last answer."""
        if turn.is_own(error):
            return Failed(wire.Fault(notes=faults.notes_of(error)), own=True)
        if self.over and isinstance(error, asyncio.CancelledError):
            error = ServiceGone(OVER)
        fault = faults.of_service(error, self._ledger.state.steps)
        if fault.category == "ours":
            self._number += 1
            self._known[self._number] = error
            fault = msgspec.structs.replace(fault, known=self._number)
            operations.log_unexpected(error, fault)
        return Failed(fault)

    def _work(self, verb: str, request: Request) -> Callable[[RemoteCall], Awaitable[Answer]]:
        match verb:
            case "do":
                return self._do(wire.read(request.data, Do))
            case "call":
                return self._call(wire.read(request.data, Call))
            case "stream":
                return self._stream(wire.read(request.data, Call))
            case "next":
                return self._next(wire.read(request.data, Next).stream)
            case "shut":
                return self._shut(wire.read(request.data, Next).stream)
            case "enter":
                return self._enter(wire.read(request.data, Do))
            case "exit":
                return self._exit(wire.read(request.data, BlockExit))
            case _:
                raise BadValue(
                    "request", f"unknown verb {verb!r:.40}", "use the client of this version"
                )

    def set_result(self, turn: RemoteCall, outcome: BodyResult) -> bool:
        """Set a callback's result; an error that the service had sent is raised again as itself."""
        known = self._known.get(outcome.fault.known) if outcome.fault is not None else None
        return turn.fail(known) if known is not None else turn.set_result(outcome)

    # ------------------------------------------------------------ tools

    def _proxy(self, turn: RemoteCall, call: Call) -> Proxy:
        self._program.of_call(call)
        self._ledger.declared.update(call.program)
        return Proxy(turn, call, self._here, self._reported)

    def _reported(self, usage: dict[str, float]) -> None:
        self.session.usage(**usage)

    def _here(self, turn: RemoteCall) -> Scope | None:
        """Return the current scope; the client knows it by its path until the turn ends."""
        scope = current(self._ledger)
        if scope is not None and scope.path not in self._scopes:
            self._scopes[scope.path] = scope
            turn.scopes.add(scope.path)
        return scope

    def _call(self, call: Call) -> Callable[[RemoteCall], Awaitable[Answer]]:
        async def work(turn: RemoteCall) -> Answer:
            spec = self._proxy(turn, call).spec()
            turn.warning = self.session.engine.source_changed(spec)
            found = await self.session.call(spec, (), wire.load(call.arguments))
            return value(turn, found)

        return work

    def _stream(self, call: Call) -> Callable[[RemoteCall], Awaitable[Answer]]:
        async def work(turn: RemoteCall) -> Answer:
            proxy = self._proxy(turn, call)
            spec = proxy.spec(streams=True)
            turn.warning = self.session.engine.source_changed(spec)
            items = self.session.call(spec, (), wire.load(call.arguments))
            stream = Stream(call, items, proxy)
            self._keep(turn.number, stream)
            found = await self._item(turn, stream)
            if found.end:
                self._open.pop(turn.number, None)
            return msgspec.structs.replace(found, context=turn.number)

        return work

    def _next(self, number: int) -> Callable[[RemoteCall], Awaitable[Answer]]:
        stream: Stream = self._opened(number, Stream)

        async def work(turn: RemoteCall) -> Answer:
            self._program.of_call(stream.call)  # the tool may be called again
            return await self._item(turn, stream)

        return work

    @staticmethod
    async def _item(turn: RemoteCall, stream: Stream) -> wire.Value:
        stream.proxy.turn = turn
        try:
            found = await anext(stream.items)
        except StopAsyncIteration:
            return wire.Value(end=True)
        return value(turn, found)

    def _shut(self, number: int) -> Callable[[RemoteCall], Awaitable[Answer]]:
        stream: Stream = self._leave_once(number, Stream)

        async def work(turn: RemoteCall) -> Answer:
            stream.proxy.turn = turn
            self._forget(number)
            items: Any = stream.items
            await items.aclose()
            return wire.Value(end=True)

        return work

    # ------------------------------------------------------------ operations and blocks

    def _do(self, request: Do) -> Callable[[RemoteCall], Awaitable[Answer]]:
        async def work(turn: RemoteCall) -> Answer:
            operation, fields = self._decoded(turn, request)
            self._program.rules.of_call(request.verdict)
            if operation.name == "loop.begin":
                target: Any = Loop(self.session, self._scopes)
                before = await operations.run(target, operation, fields, self._claims)
                self._keep(turn.number, target)
                return wire.Value(await shapes.encode_result(before), context=turn.number)
            target = self._target(operation, request.context)
            reads = operation.takes is Takes.RUN
            async with self._reading() if reads else contextlib.nullcontext():
                found = await operations.run(target, operation, fields, self._claims)
                return wire.Value(await shapes.encode_result(found))

        return work

    def _decoded(self, turn: RemoteCall, query: Do) -> tuple[Operation, dict[str, Any]]:
        """Decode an operation of the session and its arguments. Raises BadValue, Refused."""
        operation, request = read(query.operation)
        if operation.group not in operations.ANSWERS:
            raise BadValue(
                "request", f"{operation.name!r} is not an operation of a session", "send it outside"
            )
        resolving = partial(proxies.resolving, turn)
        return operation, operations.given(operation, request, self._claims, resolving)

    def _target(self, operation: Operation, context: int) -> Any:
        """Return the object that answers an operation: the session, or the block."""
        kind = operations.IN_BLOCKS.get(operation.group)
        if kind is Loop:
            loop: Loop = self._opened(context, Loop)
            if operation.name == "loop.leave":
                self._open.pop(context, None)
            return loop
        block: Block | None = self._opened(context, Block) if context else None
        inside: Any = self.session if block is None else block.inside
        if operation.name in BLOCKS or (kind is None) != isinstance(inside, AsyncSession):
            fact = f"{operation.name!r} is outside of its block"
            raise BadValue("request", fact, "use the client")
        return inside

    def _enter(self, request: Do) -> Callable[[RemoteCall], Awaitable[Answer]]:
        async def work(turn: RemoteCall) -> Answer:
            operation, fields = self._decoded(turn, request)
            if operation.name not in BLOCKS:
                raise BadValue("request", f"{operation.name!r} is not a block", "use the client")
            part = getattr(self.session, operation.group)
            manager = getattr(part, operation.method)(**fields)
            inside = await manager.__aenter__()
            operations.note(self._claims, inside)
            self._keep(turn.number, Block(manager, inside))
            record = inside if isinstance(inside, Task) else None
            return wire.Value(await shapes.encode_result(record), context=turn.number)

        return work

    def _exit(self, left: BlockExit) -> Callable[[RemoteCall], Awaitable[Answer]]:
        block: Block = self._leave_once(left.context, Block)

        async def work(turn: RemoteCall) -> Answer:
            del turn
            self._forget(left.context)
            error = self.error(left)
            if error is None and hasattr(block.inside, "result"):
                block.inside.result = wire.load(left.result)
            if error is None:
                await block.manager.__aexit__(None, None, None)
                return wire.Value()
            try:
                await block.manager.__aexit__(type(error), error, None)
            except BaseException as raised:
                if raised is not error:
                    raise
            return wire.Value(wire.dump(list(faults.notes_of(error))))

        return work

    def error(self, left: BlockExit) -> BaseException | None:
        """Return the error by which a block is left: the one that was sent, or a rebuilt one."""
        if left.fault is None:
            return None
        known = self._known.get(left.fault.known)
        return known if known is not None else faults.rebuilt(left.fault)

    def _keep(self, number: int, what: Loop | Stream | Block) -> None:
        if len(self._open) >= OPEN_MAX:
            raise BadValue("session", f"{OPEN_MAX:,} blocks and streams are open", "end some")
        self._open[number] = what

    def _opened(self, number: int, kind: type[Any]) -> Any:
        found = self._open.get(number)
        if not isinstance(found, kind):
            raise BadValue(
                "request", f"{number} is not an open {kind.__name__.lower()}", "open one"
            )
        return found

    def _leave_once(self, number: int, kind: type[Any]) -> Any:
        """Return an open block or stream to leave. Raises BadValue if it is already being left."""
        found = self._opened(number, kind)
        if number in self._leaving:
            raise BadValue("request", f"{number} is being left already", "use the client")
        self._leaving.add(number)
        return found

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)
        self._leaving.discard(number)

    # ------------------------------------------------------------ the end

    def begin_close(self) -> None:
        """Begin closing. Raises BadValue if the session is already being closed."""
        if self._is_closing:
            raise BadValue("request", "the session is being closed already", "use the client")
        self._is_closing = True

    async def close(self, error: BaseException | None) -> None:
        """Close the session in order.

        Raises what prevents it; if the program failed, its error gets that as a note instead.
        """
        self.over = True
        await self._end_turns()
        await runs.close_agent(self._workspace, self.opened, error)
        self._forbid_writes()

    async def abandon(self) -> None:
        """Leave the session of a client that is gone: its callbacks are in doubt.

        Like a killed process it records nothing more; its next session takes the next epoch.
        """
        if self.over:
            return
        self.over = True
        await self._end_turns()
        self._forbid_writes()
        gone = AppendUnknown(self.opened.engine.stream, 0, "", 0.0)
        for block in [each for each in self._open.values() if isinstance(each, Block)]:
            with contextlib.suppress(
                HansardError, ClientGone
            ):  # this only stops the block's heartbeat
                await block.manager.__aexit__(type(gone), gone, None)
        self._open.clear()

    async def _end_turns(self) -> None:
        """End every turn."""
        ends: set[asyncio.Task[Any]] = set()
        for turn in list(self.turns.values()):
            if turn.task is not None and not turn.task.done():
                ends.add(turn.task)
                if not turn.abandon():
                    turn.task.cancel()
        if ends:
            _, late = await asyncio.wait(ends, timeout=operations.GRACE_S)
            for task in late:
                task.cancel()

    def _forbid_writes(self) -> None:
        """Prevent further records by this session, whatever is still closed or collected."""
        writer = self.opened.writer
        if writer is not None and writer.lost is None:
            writer.lost = BusError(OVER)
