"""The record of a restricted agent, for both clients. Returned by `hansard.connect`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, ClassVar, NoReturn

import msgspec

from hansard.agents.annotations.statements import Every
from hansard.agents.experiments import PlacementRequest
from hansard.agents.flow import Drive, Flow, name_of
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.store import BlamedLine, secrets
from hansard.agents.memory.twins import AsyncMemorySpace, MemorySpace
from hansard.agents.policy.gate import Budget, GateRule
from hansard.agents.runs import label_texts
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.scope import around, back, enter, guard_secrets, kept
from hansard.bus.clock import OS_USER
from hansard.bus.portal import Portal
from hansard.client.beginning import Ended, report_ended
from hansard.client.common import AsyncCommonRecord, CommonRecord
from hansard.client.options import Defaults, RunOptions, check_rules
from hansard.client.record import AsyncRecord, Record
from hansard.client.restricted import calls
from hansard.client.restricted.calls import (
    BoardFlows,
    EngineOptions,
    MemoryFlows,
    PreparedCall,
    RemoteEngine,
    RemoteScope,
    TeamFlows,
    TrustedOnly,
    ViewFlows,
    answered,
    ask,
    prepared,
)
from hansard.client.restricted.link import Link, SessionLink, value_of
from hansard.client.session import (
    AsyncCommonSession,
    AsyncSession,
    CommonSession,
    Session,
    SessionFlows,
    SessionRankers,
    _Session,
)
from hansard.domain.choices import check_options, first
from hansard.domain.errors import HansardError
from hansard.domain.ids import AgentStream
from hansard.domain.memory.files import ORG, MemoryPolicySet, space_name
from hansard.domain.memory.space import MemoryInvalid
from hansard.domain.redaction import Redaction
from hansard.domain.values import recordable
from hansard.inspect.savings import Saved
from hansard.operations.declare import TRUSTED, Async, Context, Operation, Sync
from hansard.operations.memory import FileOp, Spaces
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import NotOffered
from hansard.operations.protocol.remote_call import encode_budgets

# The session of a restricted agent, over the service, of both clients.


class Loop:
    """The progress of a loop, kept by the service."""

    def __init__(self, engine: RemoteEngine, name: str, every: Every) -> None:
        self._engine = engine
        self._arguments = name, every
        self._scope = engine.scope("resumable")
        self._around = around()
        self._number = 0

    def _ask(self, name: str, *args: Any) -> Flow[Any]:
        return (yield from ask(self._engine, f"loop.{name}", self._number, *args))

    def begin(self) -> Flow[list[Any]]:
        """Find the items done before; return their results, in order."""
        request = prepared(self._engine, "loop.begin", 0, self._arguments)
        answer = yield from answered(self._engine, request)
        self._number = answer.context
        results: list[Any] = wire.decode_result(answer.value, request.operation.result)
        return results

    def skips(self, item: object) -> Flow[bool]:
        """Return whether an item was done before; if not, enter its scope."""
        path = yield from self._ask("skips", item)
        if path is None:
            return True
        parent = self._scope
        enter(parent.child(path) if isinstance(parent, RemoteScope) else parent)
        return False

    def done(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Mark an item as done, and keep the results."""
        yield from self._ask("done", results)
        back(self._around)

    def leave(self) -> Flow[None]:
        """Leave the loop, completed or not."""
        back(self._around)
        if self._engine.link.lost is None:
            yield from self._ask("leave")

    def end(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Mark all items as done, and keep the remaining results."""
        yield from self._ask("end", results)


class Restricted(TrustedOnly, _Session):
    """The operations of a restricted agent's session, over the service."""

    _called = "session"
    _remedy: ClassVar = {
        "state": "read session.view(), or session.context()",
        "snapshot": "read session.view(), or session.context()",
        "saved": "use record.savings(run=session.run), if the role may query",
        "save": "have a trusted program save it from the agent's decision or hand-over",
        "window": "read session.context(), or session.view()",
        "compact": "have a trusted program compact the conversation",
        "get": "have a trusted program get it, and put the needed data on the board",
        "label": "read the labels of shown data in session.view()",
    }

    def _made(self, now: Drive | None) -> SessionFlows:
        engine: RemoteEngine = self.engine
        team = TeamFlows(engine, "team")
        return SessionFlows(
            facts=calls.Flows(engine, "facts"),
            views=ViewFlows(engine, "session"),
            board=BoardFlows(engine, now),
            memory=MemoryFlows(engine),
            team=team,
            mail=team,
        )

    def _progress(self, name: str, every: Every) -> Loop:
        return Loop(self.engine, name, every)


class AsyncRestrictedSession(Restricted, AsyncCommonSession):
    """A restricted agent's session, for the async client."""

    _trusted = AsyncSession

    async def _items(self, call: PreparedCall) -> AsyncGenerator[Any, None]:
        engine: RemoteEngine = self.engine
        busy = engine.ledger.enter_call(call.scope)
        number = 0
        try:
            while True:
                item = await self._drive(engine.item(call, number, busy=busy))
                if item.end:
                    return
                number = number or item.context
                try:
                    yield call.value(item)
                except GeneratorExit:
                    await self._drive(engine.shut(call, number))
                    raise
        finally:
            engine.ledger.leave_call(call.scope)


class RestrictedSession(Restricted, CommonSession):
    """A restricted agent's session, for the sync client."""

    _trusted = Session

    def _items(self, call: PreparedCall) -> Generator[Any, None, None]:
        engine: RemoteEngine = self.engine
        busy = engine.ledger.enter_call(call.scope)
        number = 0
        try:
            while True:
                item = self._drive(engine.item(call, number, busy=busy))
                if item.end:
                    return
                number = number or item.context
                try:
                    yield call.value(item)
                except GeneratorExit:
                    self._drive(engine.shut(call, number))
                    raise
        finally:
            engine.ledger.leave_call(call.scope)


TAKEN = frozenset(
    {"run", "mode", "gate", "redact", "secrets", "settle", "labels", "program"}
    | {"correlation", "traceparent", "experiment", "arm", "task", "trial", "unit"}
)
"""The options of a run that a restricted agent has."""


class RestrictedOpening(msgspec.Struct, frozen=True):
    """A session to be opened: the request, and the options that stay here."""

    request: wire.Open
    options: EngineOptions


def _demand_own_role(link: Link, role: str | None) -> None:
    """Raise NotOffered for another role than that of the credentials."""
    mine = link.credentials.role
    if role not in (None, mine):
        raise NotOffered(f"role={role!r:.80}", f"these credentials are of role {mine!r}")


def restricted_opening(
    link: Link,
    defaults: Defaults,
    workflow: str | None,
    agent: str | None,
    role: str | None,
    options: dict[str, Any],
) -> RestrictedOpening:
    """Return the session to open. Raises NotOffered, BadName, BadValue.

    Beside the options of a run there is `reopens`: the MCP server passes False for a read.
    """
    reopens = options.pop("reopens", True)
    mine = link.credentials
    _demand_own_role(link, role)
    if agent not in (None, mine.principal):
        raise NotOffered(f"agent={agent!r:.80}", f"take part as {mine.principal!r}")
    check_options("record.run", options, RunOptions.__annotations__)
    for name, value in options.items():
        if name not in TAKEN and value not in (None, (), {}):
            raise NotOffered(f"record.run({name}=)", TRUSTED)
    taken = {name: value for name, value in options.items() if value is not None}
    rules: Sequence[GateRule] = taken.get("gate", defaults.gate)
    check_rules(rules)
    settle = taken.get("settle", defaults.settle)
    place = {kind: taken.get(kind) for kind in PlacementRequest.__struct_fields__}
    PlacementRequest(**place).check()
    budgets = [rule for rule in rules if isinstance(rule, Budget)]
    mode = taken.get("mode", defaults.mode)
    scrub = Redaction.of(taken.get("redact", {}))
    scrub = scrub.joined(link.redaction) if scrub is not None else link.redaction
    run = taken.get("run", defaults.run)
    if workflow is None and run is None:
        workflow = defaults.workflow
    name = PurePath(sys.argv[0]).name if sys.argv else ""
    request = wire.Open(
        workflow=workflow,
        run=run,
        agent=mine.principal,
        mode=Mode(mode).value if mode is not None else None,
        labels=label_texts(taken.get("labels", {}), scrub),
        program=recordable(taken.get("program", name), scrub),
        correlation=taken.get("correlation"),
        traceparent=taken.get("traceparent"),
        budgets=encode_budgets(budgets),
        settles=name_of(settle) if settle is not None else "",
        reopens=reopens,
        **place,
    )
    engine_options = EngineOptions(
        mode=Mode.LIVE,
        rules=rules,
        scrub=scrub,
        secrets=taken.get("secrets", defaults.secrets),
        settle=settle,
    )
    return RestrictedOpening(request, engine_options)


async def opened(link: Link, what: RestrictedOpening) -> RemoteEngine:
    """Open the session. Raises AccessRefused, ServiceGone, ServiceBusy, Refused."""
    session = await link.open_session(what.request, what.options.scrub)
    options = msgspec.structs.replace(what.options, mode=Mode(session.opened.mode))
    mine = link.credentials
    stream = AgentStream(session.opened.run, mine.role, mine.principal)
    return RemoteEngine(session, stream, options)


async def closed(engine: RemoteEngine, report: str | None, error: BaseException | None) -> None:
    """End a session in order. If `error` is given, an own error is only added to it as a note."""
    try:
        await _closed(engine, error)
    finally:
        mode = engine.settings.mode
        if report is not None and mode is not Mode.LIVE:
            report_ended(Ended(engine.stream.run, engine.stream.agent, mode, Saved()), report)


async def _closed(engine: RemoteEngine, error: BaseException | None) -> None:
    link: SessionLink = engine.link
    engine.ledger.ended = True
    if error is not None and link.lost is not None:
        return
    fault = faults.of_program(error, None, engine.settings.scrub) if error is not None else None
    try:
        answer = await link.ask("close", wire.BlockExit(fault=fault))
        notes = wire.load(value_of(answer)) or ()
    except HansardError as failed:
        if error is None:
            raise
        error.add_note(f"the end of the session could not be recorded: {failed}")
    else:
        for note in notes:
            if error is not None and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
    finally:
        await link.end()


class RemoteContext(Context):
    """Sends operations to the service."""

    is_remote = True

    def __init__(self, link: Link) -> None:
        self.link = link
        self.redaction = link.redaction

    def demand_own(self, method: str, by: str) -> None:
        """Raise NotOffered: a restricted agent acts in its own name."""
        if by != OS_USER:
            raise NotOffered(f"record.{method}(by=)", TRUSTED)

    async def send(
        self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Send an operation. Raises RoleRefused, NotFound, Refused, NotOffered, BadValue."""
        request = operation.build_request(args, kwargs, self.redaction)
        answer = value_of(await self.link.outside(operation.verb, request))
        return wire.decode_result(answer, operation.result)


@guard_secrets("memory")
class RemoteStore:
    """One space; secrets are never sent. Everything runs on the bus's loop."""

    def __init__(self, context: RemoteContext, space: str) -> None:
        self.space = space_name(space)
        self._principal = context.link.credentials.principal
        self._spaces: Spaces[Async] = Spaces(context)
        self._redaction = context.redaction

    @property
    def pending(self) -> int:
        """The number of changes that wait: none."""
        return 0

    async def flush(self, timeout_s: float = 0.0) -> None:
        """Do nothing: each change is in the log when it is acknowledged."""

    def cached(self, path: str) -> MemoryEntry | None:
        """Return None: nothing is cached, since each read of a role is recorded."""
        del path
        return None

    async def follow(self) -> NoReturn:
        """Raise NotOffered."""
        raise NotOffered("memory.follow", "read the file: each read of a role is recorded")

    async def entry(self, path: str, at: object = None) -> MemoryEntry:
        """Return a file."""
        return await self._spaces.entry(self.space, path, at)

    async def entries(self, at: object = None) -> list[MemoryEntry]:
        """Return all files that the role sees."""
        return await self._spaces.entries(self.space, at)

    async def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(each.path for each in await self.entries())

    async def versions(self, path: str | None = None) -> list[MemoryVersion]:
        """Return the versions of a file, or of all."""
        return await self._spaces.history(self.space, path)

    async def diff(self, path: str | None, before: object, after: object = None) -> str:
        """Return the differences of a file, or of all, between two points."""
        return await self._spaces.diff(self.space, path, before, after)

    async def blame(self, path: str) -> list[BlamedLine]:
        """Return for each line the change that added it."""
        return await self._spaces.blame(self.space, path)

    async def change(
        self, ops: Sequence[Op], by: Any, reason: str = "", sources: Sequence[str] = ()
    ) -> int:
        """Make a change; return 0, since versions count changes of others. Raises MemoryInvalid."""
        self._demand_own(by)
        bad = [
            each
            for op in ops
            for field in ("text", "old", "new")
            for each in secrets(op["path"], op.get(field, ""), self._redaction)
        ]
        if bad:
            raise MemoryInvalid(self.space, bad)
        request = [msgspec.convert(op, FileOp) for op in ops]
        await self._spaces.change(self.space, request, reason, sources)
        return 0

    async def remember(self, text: str, by: str, path: str, sources: Sequence[str] = ()) -> int:
        """Add an item to a file's list."""
        return await self.change([drafts.remember(path, text)], by, "to be remembered", sources)

    async def revert(self, change: str, by: Any, reason: str = "") -> int:
        """Undo a change; return 0."""
        self._demand_own(by)
        await self._spaces.revert(self.space, change, reason)
        return 0

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> NoReturn:
        """Raise NotOffered: only a trusted program sets the approval policy."""
        del policy, by
        raise NotOffered("memory.set_policy", TRUSTED)

    def _demand_own(self, by: Any) -> None:
        if by != self._principal:
            remedy = f"the credentials are those of {self._principal!r}: give that name"
            raise NotOffered(f"by={by!r:.80}", remedy)


class _OfRole(TrustedOnly):
    """The parts that the records of both clients derive from their credentials."""

    _link: Link
    _defaults: Defaults

    _called = "record"
    _remedy: ClassVar = {"workspace": TRUSTED}

    def _brief(self) -> dict[str, Any]:
        mine = self._link.credentials
        return {
            "workspace": mine.workspace,
            "principal": mine.principal,
            "role": mine.role,
            "sessions": first(kept(self), lambda each: f"{each.agent} in run {each.run}"),
        }

    def _place(self) -> str:
        return self._link.where


@guard_secrets("record")
class AsyncRestrictedRecord(_OfRole, AsyncCommonRecord[AsyncRestrictedSession, Async]):
    """A workspace's record for the async client of a restricted agent.

    It has the operations of a trusted program (`AsyncRecord`) that the role allows, on the part of
    the record that the role sees.
    """

    _trusted = AsyncRecord

    def __init__(self, link: Link, defaults: Defaults) -> None:
        link.redaction = Redaction.of(defaults.redact)
        super().__init__(RemoteContext(link))
        self._link = link
        self._defaults = defaults

    async def _disconnect(self) -> None:
        await self._link.close()

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncRestrictedSession:
        what = restricted_opening(self._link, self._defaults, workflow, agent, role, options)
        engine = await opened(self._link, what)
        end = partial(closed, engine, self._defaults.report)
        return AsyncRestrictedSession(engine, engine.arm, end)

    def memory(self, space: str = ORG) -> AsyncMemorySpace:
        """Return a memory space as the role sees it.

        It can be changed where the role may, and where no approval is required: changes that need
        one are made by a session (`session.memory`).

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: The space's name is none of these.
        """
        return AsyncMemorySpace(RemoteStore(RemoteContext(self._link), space), SessionRankers())


@guard_secrets("record")
class RestrictedRecord(_OfRole, CommonRecord[RestrictedSession, Sync]):
    """A workspace's record for a restricted agent's sync client; see `AsyncRestrictedRecord`."""

    _portal: Portal
    _trusted = Record

    def __init__(self, link: Link, portal: Portal, defaults: Defaults) -> None:
        link.redaction = Redaction.of(defaults.redact)
        super().__init__(RemoteContext(link), portal)
        self._link = link
        self._defaults = defaults

    def _disconnect(self) -> None:
        self._portal.release(self._link.close())

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> RestrictedSession:
        what = restricted_opening(self._link, self._defaults, workflow, agent, role, options)
        engine = self._portal.run(opened(self._link, what))
        end = partial(closed, engine, self._defaults.report)
        return RestrictedSession(engine, engine.arm, self._portal, end)

    def memory(self, space: str = ORG) -> MemorySpace:
        """Return a memory space; see `AsyncRestrictedRecord.memory`."""
        return MemorySpace(
            RemoteStore(RemoteContext(self._link), space), SessionRankers(), self._portal
        )
