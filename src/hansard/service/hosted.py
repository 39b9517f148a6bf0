"""A restricted agent's session in the service: an ordinary one, on the real log.

All checks and records of a session apply unchanged; this module only finds the scope of a request,
runs it as a turn, and keeps what is open between requests.

Long because the requests, the proxies of a client's functions and the objects that answer are one
protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import keyword
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec
from cachetools import FIFOCache
from tenacity import wait_chain, wait_fixed

from hansard.agents import runs
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.access.roles import View, derive
from hansard.agents.annotations.statements import Annotations, Every, Progress
from hansard.agents.board import SPECS as BOARD
from hansard.agents.board import AsyncBoard, AsyncTransaction
from hansard.agents.errors import ToolError
from hansard.agents.flow import Flow, drive_async
from hansard.agents.memory.twins import AsyncMemory
from hansard.agents.runs import Opened
from hansard.agents.steps.payloads import Approximation
from hansard.agents.steps.scope import Scope, current, drop, enter
from hansard.agents.steps.tools import DOES_CHARACTERS_MAX, RETRY_WAIT, ToolSpec, check_reuse
from hansard.agents.team.tasks import Task
from hansard.agents.team.twins import AsyncTeam
from hansard.agents.workspace import Workspace
from hansard.bus.errors import AppendUnknown, BusError, NotFound
from hansard.bus.loggers import logger, unexpected
from hansard.client.session import AsyncSession, async_session_of
from hansard.domain import ids, label, values
from hansard.domain.errors import BadValue, HansardError, Refused
from hansard.domain.prompt import checked
from hansard.domain.reuse import Reuse, reuse
from hansard.domain.steps import Effects
from hansard.domain.value_types import reading_context
from hansard.domain.values import Secret
from hansard.operations import session as operations
from hansard.operations.declare import Ask, Kind, Operation, SecretName, Takes, data_of
from hansard.operations.memory import FileOp
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import ClientGone, Doubtful, ServiceBusy, ServiceGone
from hansard.operations.protocol.remote_call import Program, RemoteCall, settlement, value
from hansard.operations.protocol.wire import (
    Answer,
    Began,
    BlockExit,
    BodyResult,
    Call,
    Declared,
    Do,
    Failed,
    Joined,
    Next,
    Request,
)
from hansard.operations.session import Claim, Function, Raised, read

# The operations of a session, each answered by the method of its name.

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

    async def begin(self, name: str, every: Every) -> list[Any]:
        """Find the items done before; return their results. Raises BadValue."""
        self._progress = Progress(self._session.facts, name, every)
        results: list[Any] = await drive_async(self._progress.begin())
        return results

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


def decode_arguments(
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

    arguments: dict[str, Any] = {}
    for field, kind in operation.fields.items():
        value = getattr(request, field)
        match kind:
            case Kind.DATA:
                arguments[field] = data_of(value, f"{operation.called}({field})")
            case Kind.VALUE:
                arguments[field] = wire.load(value)
            case Kind.VALUES:
                arguments[field] = [wire.load(each) for each in value]
            case _:
                arguments[field] = one(value)
    return arguments


async def run(target: Any, operation: Operation, fields: dict[str, Any], claims: Claims) -> Any:
    """Run an operation on a session, or a block in it. Raises the operation's error."""
    answering = _answering(target, operation)
    if operation.name in OTHERWISE:
        result: Any = OTHERWISE[operation.name](answering, **fields)
    else:
        result = getattr(answering, operation.method)(**fields)
    if inspect.isgenerator(result):
        flow: Any = result
        result = await drive_async(flow)
    elif inspect.isawaitable(result):
        result = await result
    note(claims, result)
    return result


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


# A client's tool as one of the service's session: all its functions run in the client.

ATTEMPTS_MAX = 1_000
WAIT_S_MAX = 3_600.0
"""Longest wait between two attempts, in seconds."""

RESOLVE_S_MAX = 5.0
"""Seconds a client may take to resolve a conflicting put, while others cannot write the key."""

ARGUMENTS_MAX = 1_000
RESERVED_KINDS = frozenset({"aggregate", "board", "memory", "team", "view", "shadow"})
RESERVED_NAMES = tuple(
    {f"{spec.kind}." for spec in BOARD.values()} | {"aggregate.", "memory.", "team.", "session."}
)
"""Names of the session's own operations, which a client's tool may not have."""


class Proxy:
    """One tool of a client, as called in one turn; for a stream `turn` changes with each item."""

    def __init__(
        self,
        turn: RemoteCall,
        call: Call,
        here: Callable[[RemoteCall], Scope | None],
        report: Callable[[dict[str, float]], None],
    ) -> None:
        self.turn = turn
        self.declared = call.tool
        self.arguments = _arguments(call)
        self.defaults = call.defaults
        self.prompts = checked(call.prompts)
        self._here = here
        self._report = report

    def spec(self, *, streams: bool = False) -> ToolSpec:
        """Return the tool for the session. Raises ToolError, BadName, BadValue."""
        declared = self.declared
        _check(declared)
        names = [*self.arguments]
        if declared.key_argument is not None and declared.key_argument not in names:
            names.append(declared.key_argument)
        effects = Effects(declared.effects)
        function: Callable[..., Any] = _generating(self) if streams else _coroutine(self)
        waits = [wait_fixed(wait_s) for wait_s in declared.waits]
        spec = ToolSpec(
            function=function,
            name=ids.name("tool", declared.name),
            effects=effects,
            aliases=tuple(ids.name("tool", each) for each in declared.aliases),
            version=declared.version,
            kind=declared.kind,
            attempts=declared.attempts,
            wait=wait_chain(*waits) if waits else RETRY_WAIT,
            doubtful_errors=(Doubtful,),
            reconcile=_asking(self) if declared.asks else None,
            shadow=_shadowing(self) if declared.shadows else None,
            key_argument=declared.key_argument,
            source=declared.source,
            does=declared.does[:DOES_CHARACTERS_MAX],
            gives=str(label.parse(declared.gives, "gives")) if declared.gives else "",
            takes=label.level(declared.takes, "takes").value if declared.takes else "",
            signature=_signature(names),
            defaults={
                name: values.plain(value, name)
                for name, value in self.arguments.items()
                if name in self.defaults
            },
            prompts=self.prompts,
            reuse=_reuse(declared),
        )
        check_reuse(spec.reuse, spec)
        return spec

    async def run(self, what: str, arguments: dict[str, Any]) -> BodyResult:
        """Run a part of the tool in the client, in the current scope."""
        key = self.declared.key_argument
        value = wire.dump({key: arguments[key]} if key is not None and key in arguments else {})
        scope = self._here(self.turn)
        try:
            outcome = await self.turn.run(what, value, scope.path if scope is not None else "")
        finally:
            self.turn.warning = ""
        if outcome.usage:
            if scope is not None:
                scope.usage.clear()
            self._report(outcome.usage)
        return outcome

    def result(self, outcome: BodyResult) -> Any:
        """Return the body's result, as far as it can be recorded."""
        content: Any = wire.load(outcome.result)
        if outcome.inexact:
            content = Approximation(content, outcome.inexact)
        self.turn.own = [content]
        return content

    async def items(self, arguments: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Iterate over the items of a streaming tool."""
        ended = False
        try:
            while True:
                try:
                    outcome = await self.run("item", arguments)
                except BaseException:
                    ended = True
                    raise
                if outcome.end:
                    ended = True
                    return
                yield self.result(outcome)
        finally:
            if not ended:
                await self.run("shut", {})


def _reuse(declared: Declared) -> Reuse | None:
    if declared.reuse is None:
        return None
    ttl_s, scope = declared.reuse
    return reuse(ttl_s=ttl_s, scope=scope)


def _coroutine(proxy: Proxy) -> Callable[..., Any]:
    async def body(**arguments: Any) -> Any:
        return proxy.result(await proxy.run("body", arguments))

    return _called(body, proxy.declared.name)


def _generating(proxy: Proxy) -> Callable[..., Any]:
    async def body(**arguments: Any) -> AsyncGenerator[Any, None]:
        items = proxy.items(arguments)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    return _called(body, proxy.declared.name)


def _asking(proxy: Proxy) -> Callable[..., Any]:
    async def ask(**arguments: Any) -> Any:
        outcome = await proxy.run("ask", arguments)
        return settlement(outcome.result)

    return _called(ask, proxy.declared.asks)


def _shadowing(proxy: Proxy) -> Callable[..., Any]:
    async def shadow(**arguments: Any) -> Any:
        return proxy.result(await proxy.run("shadow", arguments))

    return _called(shadow, proxy.declared.name)


def resolving(turn: RemoteCall, name: str) -> Callable[[Any, Any], Any]:
    """Return a proxy of a client's function that resolves a conflicting put, for a thread."""
    loop = asyncio.get_running_loop()

    async def call(mine: Any, theirs: Any) -> BodyResult:
        work = turn.run("resolve", wire.dump([mine, theirs], "key"))
        return await asyncio.wait_for(work, RESOLVE_S_MAX)

    def resolve(mine: Any, theirs: Any) -> Any:
        outcome = asyncio.run_coroutine_threadsafe(call(mine, theirs), loop).result()
        if outcome.inexact:
            raise BadValue("resolve", outcome.inexact, "return a smaller value")
        return wire.load(outcome.result)

    return _called(resolve, name)


def _called(function: Any, name: str) -> Callable[..., Any]:
    function.__name__ = name
    result: Callable[..., Any] = function
    return result


def _arguments(call: Call) -> dict[str, Any]:
    arguments = wire.load(call.arguments)
    if type(arguments) is not dict or len(arguments) > ARGUMENTS_MAX:
        raise BadValue("arguments", f"a {type(arguments).__name__}", "give them by name")
    return arguments


def _signature(names: list[str]) -> inspect.Signature:
    for name in names:
        if type(name) is not str or not name.isidentifier() or keyword.iskeyword(name):
            raise BadValue(
                "arguments", f"{name!r:.80} is not a parameter name", "give an identifier"
            )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind, default=None) for name in names])


def _check(declared: Declared) -> None:
    """Raise ToolError for a declaration that a program could not make."""
    if declared.kind in RESERVED_KINDS or declared.name.startswith(RESERVED_NAMES):
        message = (
            f"{declared.name!r:.80} of kind {declared.kind!r:.40} is reserved for the session's "
            "own operations: give the tool another name and kind"
        )
        raise ToolError(message)
    known = {each.value for each in Effects}
    if declared.effects not in known or (declared.effects == Effects.RECONCILE) != bool(
        declared.asks
    ):
        message = f"effects={declared.effects!r:.40} of {declared.name!r:.80} is not a policy"
        raise ToolError(message)
    waits_fit = all(0 <= wait_s <= WAIT_S_MAX for wait_s in declared.waits)
    if not 1 <= declared.attempts <= ATTEMPTS_MAX or not waits_fit:
        message = (
            f"{declared.attempts} attempts of {declared.name!r:.80}, up to "
            f"{max(declared.waits, default=0):g} s apart: at most {ATTEMPTS_MAX:,} are made, "
            f"{WAIT_S_MAX:g} s apart"
        )
        raise ToolError(message)


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

EARLY_S_MAX, EARLY_POLL_S = 5.0, 0.005
"""Longest wait of a request for earlier ones, in seconds, and time between two looks."""

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
        drop(self.session)  # the client's process warns if its program leaves the session open
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
        stream = opened.engine.stream
        self.log = _log.bind(run=stream.run, agent=stream.agent, role=stream.role)
        self._scopes: dict[str, Scope] = {"": self._ledger.root}
        self.turns: dict[int, RemoteCall] = {}
        self.cancelled: set[int] = set()
        """Turns that a request of the client is cancelling."""
        self._is_closing = False
        self._open: dict[int, Loop | Stream | Block] = {}
        self._leaving: set[int] = set()
        """Open blocks and streams that an operation is about to leave."""
        self._known: FIFOCache[int, BaseException] = FIFOCache(FAULTS_MAX)
        self._claims: Claims = set()
        self._number = 0
        self._taken = 0
        self._missing: set[int] = set()
        self._due_from = 0

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

    def is_early(self, request: Request) -> bool:
        """Return whether a request depends on the scope changes of earlier ones that are missing.

        Numbers are in the order of sending, and over HTTP requests may overtake each other.
        """
        if not request.scopes and request.scope in self._scopes:
            return False
        due_from = self._due_from
        if max(self._taken, due_from) + 1 < request.n:
            return True
        return any(due_from < number < request.n for number in self._missing)

    async def until_due(self, request: Request) -> None:
        """Wait until no earlier request is missing, for at most `EARLY_S_MAX`.

        A request that was too large is never sent: later ones do not wait for it again.
        """
        until_s = time.monotonic() + EARLY_S_MAX
        while self.is_early(request):
            if time.monotonic() > until_s:
                self._due_from = request.n - 1
                return
            await asyncio.sleep(EARLY_POLL_S)

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
            if fault.type == "ServiceFailed":  # its text is not shown to the client
                self.log.warning("an operation failed", **unexpected(error))
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
            result = await self.session.call(spec, (), wire.load(call.arguments))
            return value(turn, result)

        return work

    def _stream(self, call: Call) -> Callable[[RemoteCall], Awaitable[Answer]]:
        async def work(turn: RemoteCall) -> Answer:
            proxy = self._proxy(turn, call)
            spec = proxy.spec(streams=True)
            turn.warning = self.session.engine.source_changed(spec)
            items = self.session.call(spec, (), wire.load(call.arguments))
            stream = Stream(call, items, proxy)
            self._keep(turn.number, stream)
            item = await self._item(turn, stream)
            if item.end:
                self._open.pop(turn.number, None)
            return msgspec.structs.replace(item, context=turn.number)

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
            item = await anext(stream.items)
        except StopAsyncIteration:
            return wire.Value(end=True)
        return value(turn, item)

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
                before = await run(target, operation, fields, self._claims)
                self._keep(turn.number, target)
                return wire.Value(await wire.encode_result(before), context=turn.number)
            target = self._target(operation, request.context)
            reads = operation.takes is Takes.RUN
            async with self._reading() if reads else contextlib.nullcontext():
                result = await run(target, operation, fields, self._claims)
                return wire.Value(await wire.encode_result(result))

        return work

    def _decoded(self, turn: RemoteCall, query: Do) -> tuple[Operation, dict[str, Any]]:
        """Decode an operation of the session and its arguments. Raises BadValue, Refused."""
        operation, request = read(query.operation)
        if operation.group not in ANSWERS:
            raise BadValue(
                "request", f"{operation.name!r} is not an operation of a session", "send it outside"
            )
        resolver = partial(resolving, turn)
        return operation, decode_arguments(operation, request, self._claims, resolver)

    def _target(self, operation: Operation, context: int) -> Any:
        """Return the object that answers an operation: the session, or the block."""
        kind = IN_BLOCKS.get(operation.group)
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
            note(self._claims, inside)
            self._keep(turn.number, Block(manager, inside))
            record = inside if isinstance(inside, Task) else None
            return wire.Value(await wire.encode_result(record), context=turn.number)

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
        target = self._open.get(number)
        if not isinstance(target, kind):
            raise BadValue(
                "request", f"{number} is not an open {kind.__name__.lower()}", "open one"
            )
        return target

    def _leave_once(self, number: int, kind: type[Any]) -> Any:
        """Return an open block or stream to leave. Raises BadValue if it is already being left."""
        target = self._opened(number, kind)
        if number in self._leaving:
            raise BadValue("request", f"{number} is being left already", "use the client")
        self._leaving.add(number)
        return target

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
        if self.opened.held is not None:
            self.opened.held.close(is_done=False)
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
            _, late = await asyncio.wait(ends, timeout=GRACE_S)
            for task in late:
                task.cancel()

    def _forbid_writes(self) -> None:
        """Prevent further records by this session, whatever is still closed or collected."""
        writer = self.opened.writer
        if writer is not None and writer.lost is None:
            writer.lost = BusError(OVER)
