"""The record as a restricted agent has it: sync and async. Made by `hansard.connect`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, NoReturn, Self

import msgspec
from msgspec import structs

from hansard.agents.callables import name_of
from hansard.agents.experiments import Asked
from hansard.agents.failures import recordable
from hansard.agents.gate import Budget, GateRule
from hansard.agents.ledger import Mode
from hansard.agents.record import AsyncRecord, Defaults, Record, check_rules
from hansard.agents.runs import told_labels
from hansard.agents.scope import kept
from hansard.agents.secrets import check_names, scrubber
from hansard.agents.session import AsyncSession, Session, stay, stay_async, within, within_async
from hansard.agents.views import View
from hansard.bus.access import Credentials
from hansard.bus.portal import Portal
from hansard.domain import values
from hansard.domain.brief import first
from hansard.domain.errors import HansardError
from hansard.domain.ids import AgentStream
from hansard.domain.values import Scrub
from hansard.service import faults, shapes, wire
from hansard.service.client.core import Given, RemoteCore
from hansard.service.client.link import Link, SessionLink, value_of
from hansard.service.client.session import AsyncRemoteSession, RemoteSession
from hansard.service.errors import NotOffered
from hansard.service.program import told_budgets

TAKEN = frozenset(
    {"run", "mode", "gate", "redact", "secrets", "settle", "labels", "program"}
    | {"correlation", "traceparent", "experiment", "arm", "task", "trial", "unit"}
)
"""The options of a run that a restricted agent has."""

TRUSTED = "ask a trusted program, or whoever runs the workspace"


class Wanted(msgspec.Struct, frozen=True):
    """A session that is to be opened: what the service is asked, and what stays here."""

    asked: wire.Open
    given: Given


def wanted(
    link: Link,
    defaults: Defaults,
    workflow: str | None,
    agent: str | None,
    role: str | None,
    options: Mapping[str, Any],
) -> Wanted:
    """What to open. Raises NotOffered, BadName, BadValue."""
    mine = link.credentials
    if role not in (None, mine.role):
        raise NotOffered(f"role={role!r:.80}", f"these credentials are of role {mine.role!r}")
    if agent not in (None, mine.principal):
        raise NotOffered(f"agent={agent!r:.80}", f"take part as {mine.principal!r}")
    for name, value in options.items():
        if name not in TAKEN and value not in (None, (), {}):
            raise NotOffered(f"record.run({name}=)", TRUSTED)
    taken = {name: value for name, value in options.items() if value is not None}
    rules: Sequence[GateRule] = taken.get("gate", defaults.gate)
    check_rules(rules)
    settle = taken.get("settle", defaults.settle)
    place = {kind: taken.get(kind) for kind in Asked.__struct_fields__}
    Asked(**place).check()
    budgets = [rule for rule in rules if isinstance(rule, Budget)]
    mode = taken.get("mode", defaults.mode)
    scrub = scrubber(taken.get("redact", defaults.redact))
    names = {
        "run": taken.get("run", defaults.run),
        "workflow": workflow,
        "correlation": taken.get("correlation"),
        "traceparent": taken.get("traceparent"),
        "labels": [*taken["labels"]] if isinstance(taken.get("labels"), Mapping) else None,
        "gate": [structs.asdict(each) for each in budgets],
        **place,
    }
    check_names("record.run", names, scrub)
    name = PurePath(sys.argv[0]).name if sys.argv else ""
    asked = wire.Open(
        workflow=workflow,
        run=taken.get("run", defaults.run),
        agent=mine.principal,
        mode=Mode(mode).value if mode is not None else None,
        labels=told_labels(taken.get("labels", {}), scrub),
        program=recordable(taken.get("program", name), scrub),
        correlation=taken.get("correlation"),
        traceparent=taken.get("traceparent"),
        budgets=told_budgets(budgets),
        settles=name_of(settle) if settle is not None else "",
        **place,
    )
    given = Given(
        mode=Mode.LIVE,
        rules=rules,
        scrub=scrub,
        secrets=taken.get("secrets", defaults.secrets),
        settle=settle,
    )
    return Wanted(asked, given)


async def opened(link: Link, what: Wanted) -> RemoteCore:
    """Open it. Raises AccessRefused, ServiceGone, ServiceBusy, Refused."""
    session = await link.open_session(what.asked)
    given = msgspec.structs.replace(what.given, mode=Mode(session.opened.mode))
    mine = link.credentials
    stream = AgentStream(session.opened.run, mine.role, mine.principal)
    return RemoteCore(session, stream, given)


async def closed(core: RemoteCore, error: BaseException | None) -> None:
    """End a session in order. With an error it never raises one of its own: it adds a note."""
    link: SessionLink = core.link
    core.ledger.ended = True
    if error is not None and link.lost is not None:
        return
    fault = faults.of_program(error, None, core.settings.scrub) if error is not None else None
    try:
        answer = await link.ask("close", wire.Left(fault=fault))
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


async def view(link: Link, run: str, at: str | None, key: bytes | None) -> View:
    """A run as the role sees it. Raises NotFound, NotOffered."""
    if at is not None and not isinstance(at, str):
        raise NotOffered(f"view(at={at!r:.40})", "give the id of an event that it was shown")
    asked = wire.Ask(run=run, at=at, key=key.hex() if key is not None else None)
    raw = value_of(await link.outside("view", asked))
    found: View = shapes.shape("views.view")[1](raw)
    return found


async def sql(link: Link, statement: str) -> Any:
    """The answer of the role's own database. Raises RoleRefused, NotOffered."""
    return wire.load(value_of(await link.outside("sql", wire.Ask(statement=statement))))


async def say(link: Link, verb: str, asked: wire.Ask) -> None:
    """Grant, deny or settle. Raises RoleRefused, NotFound, Refused."""
    value_of(await link.outside(verb, asked))


async def say_so(link: Link, verb: str, asked: wire.Ask, scrub: Scrub | None) -> bool:
    """Reopen a task, finish or cancel a run; False where it is so already. Raises as `say`."""
    asked = structs.replace(asked, because=recordable(asked.because, scrub))
    return bool(wire.load(value_of(await link.outside(verb, asked))))


def _settling(
    run: str, step: str, verdict: str, result: Any, because: str, scrub: Scrub | None
) -> wire.Ask:
    plain = values.plain(result, "result", scrub)
    because = recordable(because, scrub)
    return wire.Ask(run=run, step=step, verdict=verdict, result=values.dump(plain), because=because)


class _Trusted:
    """What only a trusted program has: other people's states, and what is said of all runs."""

    _link: Link

    def _brief(self) -> dict[str, Any]:
        mine = self._link.credentials
        return {
            "workspace": mine.workspace,
            "principal": mine.principal,
            "role": mine.role,
            "sessions": first(kept(self), lambda each: f"{each.agent} in run {each.run}"),
        }

    def _refuse(self, name: str) -> NoReturn:
        raise NotOffered(f"record.{name}", TRUSTED)

    def __getattribute__(self, name: str) -> Any:
        if name in _NOT_OFFERED:
            object.__getattribute__(self, "_refuse")(name)
        return object.__getattribute__(self, name)


_OFFERED = {
    *("run", "open", "close", "view", "sql", "approve", "deny", "settle"),
    *("reopen", "finish", "cancel"),
}
_NOT_OFFERED = {
    name
    for name in {*vars(Record), *vars(AsyncRecord), "workspace"}
    if not name.startswith("_") and name not in _OFFERED
}


class RestrictedRecord(_Trusted, Record):
    """A workspace's record for the sync client of a restricted agent."""

    def __init__(self, link: Link, portal: Portal, defaults: Defaults) -> None:
        self._link = link
        self._portal = portal
        self._defaults = defaults

    @contextlib.contextmanager
    def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Any,
    ) -> Generator[Session, None, None]:
        """Begin a run, or with `run=ID` join or resume one, as the agent of this principal's name.

        options: run, mode, gate, redact, secrets, settle, labels, and, where the role sees it, the
        run's place in an experiment: experiment, task, trial, unit, arm. What is redacted never
        leaves this process. Raises NotOffered, RoleRefused, AccessRefused, ServiceGone and
        ServiceBusy.
        """
        with within(self._new(workflow, agent, role, options)) as session:
            yield session

    def open(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Any,
    ) -> Session:
        """Like `run`, without a block: until `session.close()`; see `hansard.Record.open`."""
        return stay(self._new(workflow, agent, role, options), self, self._link.where)

    def _new(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> Session:
        what = wanted(self._link, self._defaults, workflow, agent, role, options)
        core = self._portal.run(opened(self._link, what))
        return RemoteSession(core, self._portal, partial(closed, core))

    def view(self, run: str, at: str | None = None, *, key: bytes | None = None) -> View:
        """A run as the role sees it: now, or at an event that it was shown."""
        return self._portal.run(view(self._link, run, at, key))

    def sql(self, statement: str) -> Any:
        """The answer of the role's own database, where the role may query."""
        return self._portal.run(sql(self._link, statement))

    def approve(self, approval: str, *, because: str = "") -> None:  # type: ignore[override] # it says so itself
        """Grant what an agent asks, where the role may and is shown the question."""
        self._portal.run(say(self._link, "approve", wire.Ask(approval=approval, because=because)))

    def deny(self, approval: str, *, because: str = "") -> None:  # type: ignore[override] # see above
        """Deny what an agent asks, where the role may and is shown the question."""
        self._portal.run(say(self._link, "deny", wire.Ask(approval=approval, because=because)))

    def settle(  # type: ignore[override] # see above
        self, run: str, step: str, verdict: str, *, result: Any = None, because: str = ""
    ) -> None:
        """Say what is true of a step in doubt, where the role may and is shown the step."""
        scrub = scrubber(self._defaults.redact)
        asked = _settling(run, step, verdict, result, because, scrub)
        self._portal.run(say(self._link, "settle", asked))

    def reopen(self, run: str, task: str, *, because: str = "") -> bool:  # type: ignore[override] # it says so itself
        """Have a task that failed be done after all, where the role may state `task.reopened` and
        is shown the task.
        """
        return self._say_so("reopen", wire.Ask(run=run, task=task, because=because))

    def finish(self, run: str, *, because: str = "") -> bool:  # type: ignore[override] # see above
        """Say that a run has ended as it should, where the role may state `run.completed`."""
        return self._say_so("finish", wire.Ask(run=run, because=because))

    def cancel(self, run: str, *, because: str = "") -> bool:  # type: ignore[override] # see above
        """Say that a run is cancelled, where the role may state `run.cancelled`."""
        return self._say_so("cancel", wire.Ask(run=run, because=because))

    def _say_so(self, verb: str, asked: wire.Ask) -> bool:
        return self._portal.run(say_so(self._link, verb, asked, scrubber(self._defaults.redact)))

    def _let_go(self) -> None:
        self._portal.run(self._link.close())

    def __enter__(self) -> Self:
        return self


class AsyncRestrictedRecord(_Trusted, AsyncRecord):
    """A workspace's record for the async client of a restricted agent."""

    def __init__(self, link: Link, defaults: Defaults) -> None:
        self._link = link
        self._defaults = defaults

    @contextlib.asynccontextmanager
    async def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Any,
    ) -> AsyncGenerator[AsyncSession, None]:
        """Begin a run, or join or resume one; see `RestrictedRecord.run`."""
        async with within_async(await self._new(workflow, agent, role, options)) as session:
            yield session

    async def open(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Any,
    ) -> AsyncSession:
        """Like `run`, without a block: until `session.close()`; see `hansard.Record.open`."""
        session = await self._new(workflow, agent, role, options)
        return await stay_async(session, self, self._link.where)

    async def _new(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncSession:
        what = wanted(self._link, self._defaults, workflow, agent, role, options)
        core = await opened(self._link, what)
        return AsyncRemoteSession(core, partial(closed, core))

    async def view(self, run: str, at: str | None = None, *, key: bytes | None = None) -> View:
        """A run as the role sees it: now, or at an event that it was shown."""
        return await view(self._link, run, at, key)

    async def sql(self, statement: str) -> Any:
        """The answer of the role's own database, where the role may query."""
        return await sql(self._link, statement)

    async def approve(self, approval: str, *, because: str = "") -> None:  # type: ignore[override] # it says so itself
        """Grant what an agent asks, where the role may and is shown the question."""
        await say(self._link, "approve", wire.Ask(approval=approval, because=because))

    async def deny(self, approval: str, *, because: str = "") -> None:  # type: ignore[override] # see above
        """Deny what an agent asks, where the role may and is shown the question."""
        await say(self._link, "deny", wire.Ask(approval=approval, because=because))

    async def settle(  # type: ignore[override] # see above
        self, run: str, step: str, verdict: str, *, result: Any = None, because: str = ""
    ) -> None:
        """Say what is true of a step in doubt, where the role may and is shown the step."""
        scrub = scrubber(self._defaults.redact)
        asked = _settling(run, step, verdict, result, because, scrub)
        await say(self._link, "settle", asked)

    async def reopen(self, run: str, task: str, *, because: str = "") -> bool:  # type: ignore[override] # it says so itself
        """Have a task that failed be done after all, where the role may state `task.reopened` and
        is shown the task.
        """
        return await self._say_so("reopen", wire.Ask(run=run, task=task, because=because))

    async def finish(self, run: str, *, because: str = "") -> bool:  # type: ignore[override] # see above
        """Say that a run has ended as it should, where the role may state `run.completed`."""
        return await self._say_so("finish", wire.Ask(run=run, because=because))

    async def cancel(self, run: str, *, because: str = "") -> bool:  # type: ignore[override] # see above
        """Say that a run is cancelled, where the role may state `run.cancelled`."""
        return await self._say_so("cancel", wire.Ask(run=run, because=because))

    async def _say_so(self, verb: str, asked: wire.Ask) -> bool:
        return await say_so(self._link, verb, asked, scrubber(self._defaults.redact))

    async def _let_go(self) -> None:
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self


def connected(login: Credentials, portal: Portal, defaults: Defaults) -> RestrictedRecord:
    """The record of a restricted agent. Raises Unreachable, AccessRefused."""
    return RestrictedRecord(portal.run(Link.open(login)), portal, defaults)


async def connected_async(login: Credentials, defaults: Defaults) -> AsyncRestrictedRecord:
    """The record of a restricted agent, async. Raises Unreachable, AccessRefused."""
    return AsyncRestrictedRecord(await Link.open(login), defaults)
