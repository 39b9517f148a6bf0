"""The tools: one for each operation of a session, and a few for operations of a record.

Each has a schema of its arguments and of its result.

Long because the tools are one list, each with its request and its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import re
import secrets
import tomllib
import types
import typing
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_type_hints

import msgspec

from hansard.agents.access import roles
from hansard.agents.access.carried import LabelledLog
from hansard.agents.artifacts import versions as artifacts
from hansard.agents.edits import Replacement
from hansard.agents.errors import RoleRefused, SessionEnded
from hansard.agents.memory.reading import MemoryEntry
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Need
from hansard.agents.steps.scope import Scope, drop, enter, leave
from hansard.agents.steps.tools import operation
from hansard.bus.errors import Fenced, NotFound
from hansard.bus.loggers import logger
from hansard.client.options import AGENT
from hansard.domain.choices import NOTHING, nearest
from hansard.domain.errors import BadValue, CallerError, HansardError, Refused
from hansard.domain.label import Label
from hansard.domain.memory.files import AGENTS, RUNS
from hansard.domain.run import ForkEffects, RunStatus
from hansard.operations import session as operations
from hansard.operations.declare import Async, Kind, Operation, SecretName, documented
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import AccessRefused, NotOffered, ServiceGone
from hansard.operations.record import RecordOperations
from hansard.operations.session import Claim, Function, Raised
from hansard.service.hosted import Claims, decode_arguments, run

# The tools that a client is offered, their names, and descriptions of their parameters.

ALL, DEFAULT = "all", "default"
"""Names of groups."""

IN_A_RUN = ("start_run", "resume_run", "leave_run")
"""Tools without which no other can name a run."""

TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
"""What clients read: groups of tools, descriptions of parameters, the server's own prompts."""

GROUPS: dict[str, list[str]] = TEXTS["groups"]
"""Groups by name. Each of `PREFIXED` is a group of the tools with that prefix."""

PREFIXED = ("board", "team", "memory", "experiences")

OF_RECORD = {
    **dict.fromkeys(("why", "egress"), True),
    **dict.fromkeys(("experiences.list", "experiences.find", "experiences.get"), True),
}
"""Operations of a record that are tools, and whether each changes nothing."""

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")


def chosen(selection: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the tools of some groups and names, in the order that they are known in.

    Raises BadValue for what is neither a group nor a tool.
    """
    tools = [*known]
    prefixes = (*PREFIXED, *nouns_of_slices())
    selected: set[str] = set()
    for name in selection:
        if name == ALL:
            selected.update(tools)
        elif name in GROUPS:
            selected.update(GROUPS[name])
        elif name in prefixes:
            selected.update(each for each in tools if each.startswith(f"{name}_"))
        elif name in tools:
            selected.add(name)
        else:
            groups = [ALL, *GROUPS, *prefixes]
            remedy = f"{nearest(name, [*groups, *tools])}groups are {', '.join(groups)}"
            raise BadValue("--tools", f"{name!r:.80} is neither a group nor a tool", remedy)
    return [each for each in tools if each in selected]


def prefixed(prefix: str, name: str) -> str:
    """Return a tool's name under a prefix. Raises BadValue for a prefix that is no name."""
    if prefix and not _PREFIX.fullmatch(prefix):
        fact = f"{prefix!r:.80} is not a valid prefix"
        raise BadValue("--prefix", fact, "give lower-case letters, digits and _")
    return f"{prefix}_{name}" if prefix else name


REWORDED: dict[str, str] = TEXTS["reworded"]
"""Methods and commands in errors, and the tools that do the same."""


def for_client(text: str, names: Mapping[str, str]) -> str:
    """Return an error's text with the tools that a client can call, by their own names."""
    for pattern, tool in REWORDED.items():
        text = re.sub(pattern, partial(_offered, tool, names), text)
    return text


def _offered(tool: str, names: Mapping[str, str], match: re.Match[str]) -> str:
    name = match.expand(tool)
    return names.get(name, name)


MESSAGE_ROLES = ("system", "developer", "user", "assistant", "tool")


def described(tool: str, takes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's input schema with a description of each parameter."""
    texts = TEXTS["parameters"]
    properties = {
        name: {"description": texts.get(f"{tool}.{name}") or texts.get(name, ""), **each}
        for name, each in takes["properties"].items()
    }
    if tool == "message":
        properties["role"]["enum"] = [*MESSAGE_ROLES]
    return {**takes, "properties": properties}


# The runs that a client of the server works in: one session each, while the server runs.
#
# An MCP client is not a program that restarts from its beginning, so no call is answered from the
# record: each session makes its calls in a scope of its own, also one that replaces a lost session.
# When the server ends, its sessions are left open: the run is resumed by its id.

WORKFLOW = "mcp"
"""Default workflow of a client's runs, and that of its own run, for calls that name no run."""


ENDED = {RunStatus.COMPLETED.value, RunStatus.FAILED.value, RunStatus.CANCELLED.value}
"""Statuses of runs that a read does not join."""


def not_joined(run: str) -> Refused:
    """Return the refusal of a read of a run that it does not join: it has ended, or, which a role
    that is not shown the run's life cannot tell, this client cannot join it.
    """
    message = (
        f"run {run!r:.80} is not joined by a read, and a read does not reopen it: read it with "
        f"view_run, or run://{run:.80}/state where that is offered; resume_run reopens it"
    )
    return Refused(message)


class Work(msgspec.Struct):
    """A session, the scope of its calls, and the tasks that it claimed."""

    session: Any
    scope: Scope
    claims: Claims

    @property
    def point(self) -> str | None:
        """The session's present point, as `hansard run show --at` takes it.

        None for a restricted agent, whose client does not know it.
        """
        state = getattr(self.session.engine.ledger, "state", None)
        return None if state is None else f"{self.session.agent}@{state.version}"


class Sessions:
    """The sessions of one client, which is one agent in one role, and the tools that it is offered.

    Tools are groups and names (`hansard.service.mcp.offers`), under a prefix.
    """

    def __init__(
        self,
        record: Any,
        agent: str | None,
        role: str | None,
        *,
        tools: Sequence[str] = (DEFAULT,),
        prefix: str = "",
    ) -> None:
        self.record = record
        self.tools, self.prefix = tools, prefix
        self._who = {"agent": agent, "role": role}
        self._works: dict[str, Work] = {}
        self._lock = asyncio.Lock()
        self._own: str | None = None

    @property
    def author(self) -> str:
        """The client's agent, as the author of what it changes outside a run."""
        return self._who["agent"] or AGENT

    @property
    def workspace(self) -> Any:
        """The record's workspace; None for a restricted client."""
        with contextlib.suppress(NotOffered):
            return self.record.workspace
        return None

    async def permitted(self, offers: Mapping[str, Offer]) -> list[str]:
        """Return the tools that a restricted client's role permits with some arguments, by name.

        All for a trusted client, or if the service does not answer: each call is checked anyway.
        """
        if self.workspace is None:
            with contextlib.suppress(HansardError):
                known = {"", *await self.record.roles.permitted()}
                return [name for name, each in offers.items() if each.operation in known]
        return [*offers]

    async def demand(self, need: Need) -> None:
        """Raise RoleRefused for an operation that the client's role does not allow.

        For a restricted client the service checks it.
        """
        if self.workspace is not None:
            permit = await permits.read(self.workspace, (await self.own()).session.role)
            permit.demand(need)

    async def shown(self, label: Label | None) -> None:
        """Join a label into the client's own; later data gets it.

        For a restricted client the service does that.
        """
        if self.workspace is not None:
            (await self.own()).session.engine.ledger.shown(label)

    async def begin(self, workflow: str | None, **options: Any) -> Work:
        """Begin a run, or join one with `run=`. Raises as `record.run`."""
        session = await self.record.open(workflow, **self._who, **options)
        drop(session)  # it outlives the record object: the run continues after this process
        ledger = session.engine.ledger
        scope = ledger.root.item(f"mcp-{secrets.token_hex(4)}")
        work = self._works[session.run] = Work(session, scope, set())
        return work

    async def of(self, run: str) -> Work:
        """Return the session in a run. Raises as `record.run`, and NotFound."""
        async with self._lock:
            if not await self._is_there(run):
                await self._status(run)
                await self.begin(None, run=run)
            return self._works[run]

    async def to_read(self, run: str) -> Work | None:
        """Return the session for a read of a run; None if the run has ended without one, as to join
        it would reopen it. Raises as `of`.
        """
        async with self._lock:
            if not await self._is_there(run):
                status = await self._status(run)
                if status is None:  # the service knows it, and refuses in the words for any run
                    with contextlib.suppress(Refused):
                        await self.begin(None, run=run, reopens=False)
                elif status not in ENDED:
                    await self.begin(None, run=run)
            return self._works.get(run)

    async def _is_there(self, run: str) -> bool:
        """Return whether there is a session in a run.

        A restricted client's session that the service no longer knows, as after a change of its
        role's rules, is forgotten.
        """
        work = self._works.get(run)
        link = None if work is None else getattr(work.session.engine, "link", None)
        if link is not None and not await link.is_known():
            self._works.pop(run, None)
        return run in self._works

    async def _status(self, run: str) -> str | None:
        """Return a run's status; None if a restricted client's role does not see it. Raises
        NotFound for a run that does not exist, so that a mistyped id begins none.
        """
        try:
            return str((await self.record.state(run)).life.status)
        except NotOffered:
            status: str | None = (await self.record.roles.view(run)).state.run.get("status")
            return status

    async def own(self) -> Work:
        """Return the session of the client's own run, for calls that name no run."""
        async with self._lock:
            if self._own is None:
                work = await self.begin(WORKFLOW)
                self._own = work.session.run
                return work
            if not await self._is_there(self._own):  # the session was lost
                return await self.begin(None, run=self._own)
            return self._works[self._own]

    async def leave(self, run: str, error: BaseException | None = None) -> Work:
        """End this agent's session in a run and return it; the last agent's end ends the run."""
        work = await self.to_read(run)
        if work is None:
            raise not_joined(run)
        del self._works[run]
        await work.session.close(error)
        return work

    @property
    def runs(self) -> list[str]:
        """The runs that the client works in, the newest first."""
        return [*reversed(self._works)]

    def under_way(self, run: object, *, in_run: bool) -> Work | None:
        """Return the open session for a call that names this run, or none."""
        name = run if in_run else self._own
        return self._works.get(name) if isinstance(name, str) else None

    @contextlib.asynccontextmanager
    async def at_work(self, work: Work) -> AsyncGenerator[Work]:
        """Make calls in the block this session's; forget a session that was fenced or lost."""
        token = enter(work.scope)
        try:
            yield work
        except (Fenced, SessionEnded, ServiceGone, AccessRefused):
            self._works.pop(work.session.run, None)
            raise
        finally:
            leave(token)

    async def close(self) -> None:
        """End the client's own run; leave the others open."""
        if self._own is not None and self._own in self._works:
            await self.leave(self._own)


# ------------------------------------------------------------ tools

_log = logger(__name__)

IN_RUN = ("facts", "board", "memory", "team")
"""Groups of session operations, each of which is a tool."""

BLOCKS = {"board.transaction", "team.claimed"}
"""Operations that begin a block, which an MCP client does not have."""

READS = {
    "facts.checkpoint_data",
    "facts.latest_checkpoint",
    "facts.context",
    "board.entry",
    "board.keys",
    *(f"memory.{each}" for each in ("entry", "ls", "glob", "grep", "search")),
    *(f"memory.{each}" for each in ("prompt", "news", "history")),
    "team.tasks",
    "team.wait_for",
}
"""Operations of a session that change nothing; those of facts record nothing themselves."""

DESTROYS = ("board.remove", "board.discard", "memory.delete")
"""Operations of a session that remove something that others may need."""


class Answer(msgspec.Struct, frozen=True):
    """An answer: JSON, and its place on record.

    Attributes:
        result: The JSON.
        work: The session in whose run it is recorded.
        replayable: True if it is recorded or follows from that run alone, so that a replay of the
            run returns it again; else it was read, as of a position.
        position: The position of the read, if any: of the log, or for a restricted agent the number
            of the newest event that its role is shown.
        run: The run in whose record it is, if no session is.
    """

    result: Any
    work: Work | None = None
    replayable: bool = True
    position: int | None = None
    run: str | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """Its place on record, and whether a replay returns it again, for `_meta`."""
        work = self.work
        places = {
            "hansard/run": self.run if work is None else work.session.run,
            "hansard/at": None if work is None else work.point,
            "hansard/position": self.position,
        }
        known = {name: value for name, value in places.items() if value is not None}
        return {**known, "hansard/replayable": self.replayable}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool.

    Attributes:
        name: The tool's own name.
        does: The description.
        takes: The JSON Schema of the arguments.
        gives: The JSON Schema of `result`.
        reads: True if it changes nothing.
        destroys: True if it ends or removes something that others may need.
        in_run: True if it names a run; else it is called in the client's own.
        operation: The operation that it calls, in each case; empty for several or none.
        answer: Answers a call. Raises CallerError and the operation's errors.
    """

    name: str
    does: str
    takes: dict[str, Any]
    gives: dict[str, Any]
    reads: bool = False
    destroys: bool = False
    in_run: bool = True
    operation: str = ""
    answer: Callable[[Sessions, dict[str, Any]], Awaitable[Answer]]


# ------------------------------------------------------------ session operations

RUN_ID = {"type": "string", "description": "The run, as returned by start_run."}

TASK = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["id", "number"],
    "description": "A task as returned by team_claim.",
}

OBJECT, ARRAY, NULL = {"type": "object"}, {"type": "array"}, {"type": "null"}

_OF_VALUES: dict[Kind, dict[str, Any]] = {Kind.VALUE: {}, Kind.VALUES: ARRAY, Kind.DATA: OBJECT}
"""JSON Schemas of fields that hold values of programs."""


def registered() -> Iterator[Offer]:
    """Yield a tool for each operation of a session."""
    for each in operations.OPERATIONS.values():
        if each.group in IN_RUN and each.name not in BLOCKS:
            yield _offer(each)


def _offer(each: Operation) -> Offer:
    hints = get_type_hints(each.request)
    required = {field.name for field in msgspec.structs.fields(each.request) if field.required}
    optional = [
        field
        for field, kind in each.fields.items()
        if field in required and (kind is Kind.DATA or type(None) in typing.get_args(hints[field]))
    ]
    """Fields that only a program must give: a client's are null, or values by name."""

    async def answer(sessions: Sessions, arguments: dict[str, Any]) -> Answer:
        inputs = dict(arguments)
        run_id = inputs.pop("run_id", None)
        if not isinstance(run_id, str) or not run_id:
            where = f"{each.called}(run_id)"
            raise BadValue(where, f"{run_id!r:.80}", "give a run_id of start_run")
        if each.name in READS:
            at_work = await sessions.to_read(run_id)
            if at_work is None and each.group != "memory":
                raise not_joined(run_id)
            work = at_work or await sessions.own()
        else:
            work = await sessions.of(run_id)
        if each.name in READS and each.group == "facts":
            reads = partial(in_run, sessions, work, inputs)
            return await as_step(sessions, work, name, inputs, reads)
        return await in_run(sessions, work, inputs)

    async def in_run(sessions: Sessions, work: Work, inputs: dict[str, Any]) -> Answer:
        wired = _wired(each, inputs)
        for field in optional:
            wired.setdefault(field, {} if each.fields[field] is Kind.DATA else None)
        request = operations.read(msgspec.Raw(msgspec.json.encode(wired)))[1]
        async with sessions.at_work(work):
            fields = decode_arguments(each, request, work.claims, _no_functions)
            result = await run(work.session, each, fields, work.claims)
        plain = wire.dump(_lists(wire.load(await wire.encode_result(result))))
        return Answer(msgspec.json.decode(plain), work)

    def schema(field: str, kind: Kind) -> dict[str, Any]:
        if kind in _OF_VALUES:
            return _OF_VALUES[kind]
        hint = _without(hints[field])
        return TASK if hint is Claim else _whole(msgspec.json.schema(hint))

    name = each.called.replace(".", "_")
    takes = {
        "type": "object",
        "properties": {"run_id": RUN_ID}
        | {_shown(field): schema(field, kind) for field, kind in each.fields.items()},
        "required": [
            "run_id",
            *(_shown(field) for field in each.fields if field in required.difference(optional)),
        ],
        "additionalProperties": False,
    }
    return Offer(
        name=name,
        does=" ".join(documented(each)[0].split()),
        takes=described(name, takes),
        gives=_gives(each),
        reads=each.name in READS,
        destroys=each.name in DESTROYS,
        operation=each.name,
        answer=answer,
    )


def _gives(each: Operation) -> dict[str, Any]:
    """Return the schema of an operation's result; that of any value if its type has none."""
    try:
        return _whole(msgspec.json.schema(each.result))
    except (TypeError, ValueError):
        return {}


def _lists(value: Any) -> Any:
    """Return a value as JSON has it: tuples of a program are lists."""
    if isinstance(value, dict):
        return {name: _lists(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(each) for each in value]
    return value


def _shown(field: str) -> str:
    return field.rstrip("_")


def _wired(each: Operation, inputs: dict[str, Any]) -> dict[str, Any]:
    """Convert arguments to the registry's form: values of programs are encoded."""
    fields = {_shown(name): (name, kind) for name, kind in each.fields.items()}
    wired: dict[str, Any] = {"op": each.name}
    for name, value in inputs.items():
        field, kind = fields.get(name, (name, Kind.PLAIN))
        if kind in (Kind.VALUE, Kind.DATA):
            wired[field] = wire.dump(value, f"{each.called}({name})")
        elif kind is Kind.VALUES and isinstance(value, list):
            wired[field] = [wire.dump(one, f"{each.called}({name})") for one in value]
        elif field == "task" and isinstance(value, dict):
            wired[field] = {"is": "claim"} | {key: value.get(key) for key in ("id", "number")}
        else:
            wired[field] = value
    return wired


def _no_functions(name: str) -> Callable[..., Any]:
    raise BadValue("resolve", f"{name!r:.80} is a function", "an MCP client has none")


def _without(hint: Any) -> Any:
    """Return a type without the alternatives that only a program can give."""
    if hint is not Claim and typing.get_origin(hint) in (Union, types.UnionType):
        alternatives = typing.get_args(hint)
        kept = [_without(one) for one in alternatives if one not in (SecretName, Function, Raised)]
        return Union[tuple(kept)]  # noqa: UP007 -- of a variable number
    return dict[str, str] if typing.get_origin(hint) is dict else hint


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its references resolved, to become a part of another."""
    defined = schema.get("$defs", {})

    def filled(part: Any) -> Any:
        if isinstance(part, list):
            return [filled(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return filled(defined[part["$ref"].rpartition("/")[2]])
        return {name: filled(each) for name, each in part.items() if name != "$defs"}

    whole: dict[str, Any] = filled(schema)
    return whole


# ------------------------------------------------------------ record operations
#
# Each tool is a function: its parameters are the tool's, its docstring the description.

VERSION = {"type": "object", "properties": {"version": {"type": "integer"}}}
RUN = {"type": "object", "properties": {"run_id": {"type": "string"}}, "required": ["run_id"]}

RUNS_MAX = 100

F = TypeVar("F", bound=Callable[..., Awaitable[Answer]])

TOOLS: dict[str, Offer] = {}
"""Tools for operations of a record, which are not in the registry of a session."""


def tool(
    gives: dict[str, Any],
    *,
    reads: bool = False,
    destroys: bool = False,
    in_run: bool = False,
    is_step: bool = True,
    operation: str = "",
) -> Callable[[F], F]:
    """Declare a function as the tool of its name.

    Args:
        gives: The JSON Schema of `result`.
        reads: True if it changes nothing.
        destroys: True if it ends something that others may need.
        in_run: True if it works in the run that it names; else in the client's own.
        is_step: True if the call is recorded as a step there; else the function records it.
        operation: The operation that it calls, in each case.
    """

    def declare(function: F) -> F:
        name, hints = function.__name__, get_type_hints(function)
        request = msgspec.defstruct(
            name,
            [
                (each.name, hints[each.name], _default(each.default))
                for each in [*inspect.signature(function).parameters.values()][1:]
            ],
            forbid_unknown_fields=True,
        )

        async def answer(sessions: Sessions, arguments: dict[str, Any]) -> Answer:
            try:
                inputs = msgspec.structs.asdict(msgspec.convert(arguments, request))
            except msgspec.ValidationError as error:
                raise BadValue(name, str(error), "see the tool's input schema") from None
            call = partial(function, sessions, **inputs)
            if not is_step:
                return await call()
            if in_run:
                return await as_step(sessions, await sessions.of(inputs["run_id"]), name, {}, call)
            return await in_own_run(sessions, name, inputs, call)

        schema = _whole(msgspec.json.schema(request))
        takes = {key: schema[key] for key in ("type", "properties", "required") if key in schema}
        TOOLS[name] = Offer(
            name=name,
            does=" ".join((function.__doc__ or "").split()),
            takes=described(name, takes | {"additionalProperties": False}),
            gives=gives,
            reads=reads,
            destroys=destroys,
            in_run=in_run,
            operation=operation,
            answer=answer,
        )
        return function

    return declare


def _default(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    return {} if default is NOTHING else default


@tool(RUN, in_run=True, is_step=False)
async def start_run(
    sessions: Sessions,
    workflow: str = WORKFLOW,
    labels: Mapping[str, str] = NOTHING,
    conversation: str | None = None,
    experiment: str | None = None,
    arm: str | None = None,
    task: str | None = None,
    trial: int | None = None,
) -> Answer:
    """Begin a run, as this client's agent; returns its id, which every other tool takes."""
    options: Any = {"labels": labels or None, "conversation": conversation}
    options |= {"experiment": experiment, "arm": arm, "task": task, "trial": trial}
    stated = {name: value for name, value in options.items() if value is not None}
    work = await sessions.begin(workflow, **stated)
    session = work.session
    return Answer({"run_id": session.run, "agent": session.agent, "role": session.role}, work)


@tool(RUN, in_run=True)
async def resume_run(sessions: Sessions, run_id: str) -> Answer:
    """Resume a run; returns this agent's newest checkpoint.

    If the role is not restricted it returns also the run's status, its agents, and their steps in
    doubt.
    """
    work = await sessions.of(run_id)
    newest = await work.session.latest_checkpoint()
    checkpoint = None if newest is None else await _encoded(newest)
    content: dict[str, Any] = {"run_id": work.session.run, "checkpoint": checkpoint}
    with contextlib.suppress(NotOffered):  # a restricted agent learns only of its own work
        view = await sessions.record.state(run_id)
        content["status"] = view.life.status.value
        content["agents"] = {
            name: {"steps": len(state.steps), "in_doubt": [step.number for step in state.in_doubt]}
            for name, state in view.agents.items()
        }
    return Answer(content, work, replayable=False)


@tool(NULL, destroys=True, in_run=True, is_step=False)
async def leave_run(sessions: Sessions, run_id: str, error: str = "") -> Answer:
    """End this agent's work in a run; the end of its last agent ends the run.

    `error` marks it as failed, with the reason.
    """
    return Answer(None, await sessions.leave(run_id, CallerError(error) if error else None))


@tool(RUN, in_run=True, is_step=False, operation="record.fork")
async def fork_run(
    sessions: Sessions,
    run_id: str,
    at: str | None = None,
    effects: Literal["shadow", "models", "live"] | None = None,
    edits: tuple[Replacement, ...] = (),
    reason: str = "",
) -> Answer:
    """Begin a new run at a point of another; returns its id.

    `at` is a point of it: agent@version, a time. `edits` replace values (agent#number)
    instead: the fork begins before the first of them; `reason` is recorded with them. `effects`
    is shadow by default, and models with edits.
    """
    how = None if effects is None else ForkEffects(effects)
    child = await sessions.record.fork(
        run_id, at=at, effects=how, edits=edits, by=sessions.author, reason=reason
    )
    return Answer({"run_id": child}, replayable=False, run=child)


@tool(NULL, in_run=True, is_step=False)
async def record_step(
    sessions: Sessions,
    run_id: str,
    tool: str,
    arguments: Mapping[str, Any] = NOTHING,
    result: Any = None,
) -> Answer:
    """Record what this agent did elsewhere: a tool that it called, and the result."""

    def reported(_: Any) -> Any:
        return result

    work = await sessions.of(run_id)
    spec = operation(tool, "arguments", kind="tool")
    async with sessions.at_work(work):
        bound = msgspec.structs.replace(spec, function=reported)
        await work.session.call(bound, (arguments,), {})
    return Answer(None, work)


@tool(OBJECT, reads=True, in_run=True, is_step=False)
async def view_run(sessions: Sessions, run_id: str) -> Answer:
    """View the part of a run that this agent's role may see; the view is recorded."""
    return await view_of(sessions, run_id, "view_run", {"run_id": run_id})


async def view_of(sessions: Sessions, run_id: str, method: str, request: dict[str, Any]) -> Answer:
    """View a run in its session; in the client's own run if it has ended without one."""
    work = await sessions.to_read(run_id)
    if work is not None:
        async with sessions.at_work(work):
            return Answer(await _encoded(await work.session.view()), work)

    async def reads() -> Answer:
        if sessions.workspace is None:
            return Answer(await _encoded(await sessions.record.roles.view(run_id)))
        session = (await sessions.own()).session
        served = await roles.serve(sessions.workspace, session.role, run_id, by=session.agent)
        await sessions.shown(served.label)
        return Answer(await _encoded(served.view))

    answer = await in_own_run(sessions, method, request, reads)
    return msgspec.structs.replace(answer, replayable=False)


@tool(ARRAY, reads=True, operation="record.runs")
async def list_runs(
    sessions: Sessions, status: str | None = None, workflow: str | None = None
) -> Answer:
    """List the runs, newest first, at most 100."""
    filters: Any = {"status": status, "workflow": workflow}
    runs = await sessions.record.runs(**{name: each for name, each in filters.items() if each})
    listed = [
        {"run_id": run_id, "workflow": life.workflow, "status": life.status.value}
        for run_id, life in runs[:RUNS_MAX]
    ]
    return Answer(listed, replayable=False)


@tool(OBJECT, reads=True, operation="record.sql")
async def sql(
    sessions: Sessions, query: str, parameters: Sequence[str | float | int | bool | None] = ()
) -> Answer:
    """Query the record in SQL (DuckDB), read-only, up to 10,000 rows; `FROM catalog` lists it."""
    answer = await sessions.record.sql(query, *parameters)
    rows = plain([list(row) for row in answer.rows])
    content = {"columns": list(answer.columns), "rows": rows, "position": answer.position}
    return Answer(content | {"cut": answer.cut}, replayable=False, position=answer.position)


@tool(ARRAY, reads=True, operation="record.experiments.compare")
async def compare(  # noqa: PLR0913 -- a tool's arguments
    sessions: Sessions,
    experiment: str,
    *,
    metric: str | None = None,
    baseline: str | None = None,
    by: str | None = None,
    lower_is_better: list[str] | None = None,
    higher_is_better: list[str] | None = None,
    missing: Literal["failure", "excluded", "worst-case"] | None = None,
    all_pairs: bool | None = None,
) -> Answer:
    """Compare the arms of an experiment: verdict, differences, intervals, failures."""
    options: Any = {"metric": metric, "baseline": baseline, "by": by, "missing": missing}
    options |= {"lower_is_better": lower_is_better, "higher_is_better": higher_is_better}
    options |= {"all_pairs": all_pairs}
    stated = {name: value for name, value in options.items() if value is not None}
    report = await sessions.record.experiments.compare(experiment, **stated)
    return Answer(lines(report), replayable=False, position=report.report.position)


def lines(report: Any) -> list[Any]:
    """Return the lines that `--json` prints of an answer."""
    return [plain(line) for line in report.lines()]


def plain(value: Any) -> Any:
    """Convert a value to JSON types; others become texts."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))


async def _encoded(value: Any) -> Any:
    """Return a value of the session in the form of `shapes`."""
    return msgspec.json.decode(await wire.encode_result(value))


# ------------------------------------------------------------ context of other harnesses
#
# A harness with a copy of its own passes the `timestamp` of that copy: later changes by others are
# not overwritten. Changes go to the agent's own space, as one change.

FILES_MAX = 200
"""Files whose texts are fetched, the first by path; of others only the paths."""

CHARACTERS_MAX = 64 * 1024
"""Most characters of all fetched texts together."""

TASKS_MAX = 20
"""Past tasks that are returned, the newest first."""

THEIRS_MAX = 2_000
"""Characters of the present text in a conflict's message."""

TASKS = """
SELECT a.run, r.workflow, r.status, a.began_at FROM agents AS a JOIN runs AS r ON r.run = a.run
WHERE a.agent = $1 ORDER BY a.began_at DESC, a.run LIMIT $2
"""


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The context from now on.

    `files`: texts by path, null to delete a file; `user_preferences`: lines to add to the agent's
    own instructions.
    """

    files: dict[str, str | None] = {}
    user_preferences: list[str] = []


@tool(OBJECT, reads=True, is_step=False)
async def fetch_context(sessions: Sessions, agent_id: str) -> Answer:
    """Fetch this agent's context: its instructions, past runs and files of memory.

    `user_preferences` are the instructions, the nearest last; `past_tasks` the runs that it took
    part in. Pass `timestamp` back to update_context.
    """
    work = await _work_of(sessions, agent_id)
    now = datetime.now(UTC).isoformat()
    tasks = await _past_tasks(sessions, agent_id)
    async with sessions.at_work(work):
        paths = [each for each in await work.session.memory.ls() if not _happened(each)]
        files: list[dict[str, Any]] = []
        left = CHARACTERS_MAX
        for number, path in enumerate(paths):
            file = {"path": path}
            if number < FILES_MAX and left:
                entry: MemoryEntry = await work.session.memory.entry(path)
                file |= {name: getattr(entry, name) for name in ("space", "author", "digest")}
                file["kind"] = entry.kind.value
                if len(entry.text) <= left:
                    file["text"] = entry.text
                    left -= len(entry.text)
            files.append(file)
    instructions = [each for each in files if each["path"].rpartition("/")[2] == AGENTS]
    content = {"agent_id": agent_id, "timestamp": now, "user_preferences": instructions}
    return Answer(content | {"past_tasks": tasks, "files": files}, work, replayable=False)


@tool(OBJECT, is_step=False, operation="memory.create")
async def update_context(
    sessions: Sessions,
    agent_id: str,
    context: Context,
    timestamp: str,
    sync_type: Literal["incremental", "full"] = "incremental",
) -> Answer:
    """Write to this agent's own memory, as one change.

    `timestamp` is that of the fetch_context that `context` is based on: if a file changed since,
    that is a conflict, and nothing is written. incremental: files that are not named stay; full:
    the agent's own ones are deleted.
    """
    work = await _work_of(sessions, agent_id)
    since = _time(timestamp)
    own = f"agent/{work.session.agent}"
    target = dict(context.files)
    async with sessions.at_work(work):
        memory = work.session.memory
        if sync_type == "full":
            for path in await memory.ls():
                if path not in target and not _happened(path) and await _current(memory, path, own):
                    target[path] = None
        changed: dict[str, str | None] = {}
        for path, text in target.items():
            current = await _current(memory, path, own)
            if text != (None if current is None else current.text):
                await _demand_older(memory, path, own, since, current)
                changed[path] = text
        instructions = await _current(memory, AGENTS, own)
        text = changed.get(AGENTS, None if instructions is None else instructions.text) or ""
        new_lines = _new_lines(text, context.user_preferences)
        if changed or new_lines:
            async with memory.change("update_context", space=own) as change:
                for path, text_ in changed.items():
                    if text_ is None:
                        change.delete(path)
                    else:
                        change.create(path, text_)
                for line in new_lines:
                    change.append(AGENTS, line)
    content = {
        "written": sorted({path for path, text_ in changed.items() if text_ is not None}),
        "deleted": sorted(path for path, text_ in changed.items() if text_ is None),
        "unchanged": sorted(path for path in target if path not in changed),
        "remembered": new_lines,
        "timestamp": datetime.now(UTC).isoformat(),
    }
    return Answer(content, work, replayable=False)


async def _work_of(sessions: Sessions, agent: str) -> Work:
    """Return the client's own run, if it is that agent's. Raises NotOffered."""
    work = await sessions.own()
    mine = work.session.agent
    if agent != mine:
        raise NotOffered(f"the context of {agent!r:.80}", f"this client is {mine!r}")
    return work


async def _past_tasks(sessions: Sessions, agent: str) -> list[dict[str, Any]]:
    """Return the agent's runs; those of this connection if its role may not query."""
    try:
        rows = (await sessions.record.sql(TASKS, agent, TASKS_MAX)).rows
    except (NotOffered, RoleRefused):
        return [{"run_id": each} for each in sessions.runs][:TASKS_MAX]
    names = ("run_id", "workflow", "status", "began_at")
    return [
        dict(zip(names, map(str, row), strict=True)) | {"summary": f"{RUNS}/{row[0]}/summary.md"}
        for row in rows
    ]


def _happened(path: str) -> bool:
    """Return whether a file is generated from runs, and never written."""
    return path.partition("/")[0] == RUNS


async def _current(memory: Any, path: str, space: str) -> MemoryEntry | None:
    try:
        entry: MemoryEntry = await memory.entry(path, space=space)
    except NotFound:
        return None
    return entry


async def _demand_older(
    memory: Any, path: str, space: str, since: datetime, current: MemoryEntry | None
) -> None:
    """Raise HansardError if a file was changed or deleted since."""
    try:
        versions = await memory.history(path, space=space)
    except NotFound:
        return
    if versions and datetime.fromisoformat(versions[-1].at) > since:
        newest = versions[-1]
        theirs = "" if current is None else current.text[:THEIRS_MAX]
        message = (
            f"file {path!r} was changed by {newest.author!r} at {newest.at}, after this context "
            "was fetched; nothing was written: call fetch_context again and decide. "
            f"It holds now: {theirs!r}"
        )
        raise HansardError(message)


def _new_lines(text: str, added: Sequence[str]) -> list[str]:
    """Return the lines that the instructions do not contain yet."""
    existing = {each.removeprefix("- ").strip() for each in text.splitlines()}
    new = dict.fromkeys(" ".join(each.split()).removeprefix("- ") for each in added)
    return [f"- {each}" for each in new if each and each not in existing]


def _time(text: str) -> datetime:
    """Parse a timestamp. Raises BadValue."""
    try:
        time_ = datetime.fromisoformat(text)
    except ValueError:
        time_ = None
    if time_ is None or time_.tzinfo is None:
        fact, remedy = f"{text!r:.80}", "give the timestamp of fetch_context"
        raise BadValue("update_context(timestamp)", fact, remedy)
    return time_


# ------------------------------------------------------------ calls on record


async def in_own_run(
    sessions: Sessions, name: str, request: dict[str, Any], reads: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Record a read that names no run as a step of the client's own run."""
    return await as_step(sessions, await sessions.own(), name, request, reads)


async def as_step(
    sessions: Sessions,
    work: Work,
    name: str,
    request: dict[str, Any],
    reads: Callable[[], Awaitable[Answer]],
) -> Answer:
    """Record a read as a step: the request, and the number of bytes of the answer."""
    answers: list[Answer] = []

    async def answered(_: Any) -> int:
        answers.append(await reads())
        return len(msgspec.json.encode(answers[0].result))

    await _call(sessions, work, name, answered, request)
    return msgspec.structs.replace(answers[0], work=work)


async def _call(
    sessions: Sessions, work: Work, method: str, function: Callable[..., Any], request: Any
) -> None:
    spec = operation(f"mcp:{method}", "asked", kind="resource")
    async with sessions.at_work(work):
        bound = msgspec.structs.replace(spec, function=function)
        await work.session.call(bound, (request,), {})


class NotAnswered(Exception):
    """A request that was refused before anything of it was recorded, and why."""


async def refused(
    sessions: Sessions, method: str, request: dict[str, Any], reason: str
) -> Work | None:
    """Record a refused request as a failed step; return the session.

    It is in the run that it names if the client works there, else in the client's own. None if the
    role does not allow even that, or it cannot be recorded.
    """

    def fails(_: Any) -> None:
        raise NotAnswered(reason)

    arguments = request.get("arguments")
    run_id = arguments.get("run_id") if isinstance(arguments, dict) else None
    work: Work | None = None
    try:
        work = sessions.under_way(run_id, in_run=True) or await sessions.own()
        await _call(sessions, work, method, fails, request)
    except NotAnswered:
        return work
    except HansardError as error:
        _log.info("a refused request is not on record", method=method, why=str(error))
    return None


def nouns_of_slices() -> list[str]:
    """Return the names of the installed slices' nouns: each is a group of tools."""
    return sorted({name.split(".")[1] for name in operations.of_slices()})


def of_slices() -> Iterator[Offer]:
    """Yield a tool for each operation of an installed slice, such as `tickets_open`."""
    for each in operations.of_slices().values():
        yield _of_record(each, reads=False)


def of_record() -> Iterator[Offer]:
    """Yield a tool for each of some operations of a record, such as `actions_list`."""
    for name, reads in OF_RECORD.items():
        yield _of_record(operations.OPERATIONS[f"record.{name}"], reads=reads)


def _of_record(each: Operation, *, reads: bool) -> Offer:
    name = each.verb.replace(".", "_")
    does, texts = documented(each)
    wire_types = get_type_hints(each.request, include_extras=True)
    required = [field.name for field in msgspec.structs.fields(each.request) if field.required]
    properties = {
        field: (
            _OF_VALUES[kind]
            if kind in _OF_VALUES
            else _whole(msgspec.json.schema(wire_types[field]))
        )
        | ({"description": texts[field]} if field in texts else {})
        for field, kind in each.fields.items()
    }

    async def answer(sessions: Sessions, arguments: dict[str, Any]) -> Answer:
        request = operations.read(msgspec.Raw(msgspec.json.encode(_wired(each, arguments))))[1]

        async def call() -> Answer:
            record, author = sessions.record, None
            if sessions.workspace is not None:  # else the service checks and labels it
                record, author = await _demanded(sessions, each, request)
            result = await each.answer(record, request, author)
            position = getattr(result, "position", None)
            return Answer(plain(result), replayable=False, position=position)

        return await in_own_run(sessions, name, arguments, call)

    takes = {"type": "object", "properties": properties, "required": required}
    return Offer(
        name=name,
        does=" ".join(does.split()),
        takes=described(name, takes | {"additionalProperties": False}),
        gives=_gives(each),
        reads=reads,
        in_run=False,
        operation=each.name,
        answer=answer,
    )


async def _demanded(sessions: Sessions, each: Operation, request: Any) -> tuple[Any, str]:
    """Check a trusted client's permissions, and count an artifact as shown; return the record that
    writes under its label, and its name. Raises RoleRefused.
    """
    for need in each.needs(request):
        await sessions.demand(need)
    if each.shows is not None:
        artifact = await artifacts.find(sessions.workspace, each.shows, request.name)
        await sessions.shown(artifact.label)
    session = (await sessions.own()).session
    context = copy.copy(sessions.record._context)  # noqa: SLF001 -- of the record, a noun
    log = LabelledLog(context.workspace.log, session.engine.ledger.label)
    context.workspace = context.workspace.through(log)
    return RecordOperations[Async](context), session.agent


def offers(selection: Sequence[str] = (ALL,), prefix: str = "") -> dict[str, Offer]:
    """Return the tools of some groups and names, by their names under a prefix, in a fixed order.

    Tools that take a `run_id` bring those that begin and end a run. Raises BadValue.
    """
    known = TOOLS | {each.name: each for each in (*registered(), *of_record(), *of_slices())}
    names = chosen(selection, known)
    if any("run_id" in known[name].takes["properties"] for name in names):
        names = [name for name in known if name in {*names, *IN_A_RUN}]
    return {prefixed(prefix, name): known[name] for name in names}
