"""The tools: one for each operation of a session in the registry, and few of their own for what a
program does with a record. Each has a schema of what it takes and of what it gives.

Long because the tools are one list, each with its request and its answer.
"""

from __future__ import annotations

import contextlib
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Union, get_type_hints

import msgspec

from hansard.agents.artifacts import caches as kept_caches
from hansard.agents.artifacts import versions as artifacts
from hansard.agents.artifacts.versions import ArtifactChange
from hansard.agents.errors import RoleRefused
from hansard.agents.memory.reading import MemoryEntry
from hansard.agents.policy import permits
from hansard.agents.steps.tools import ToolSpec, operation
from hansard.bus.errors import NotFound
from hansard.bus.loggers import logger
from hansard.domain.actions.cache import decode, encode
from hansard.domain.actions.kept import ACTIONS, ActionsLookedAt, ActionsReverted, ActionsSaved
from hansard.domain.errors import BadValue, CallerError, HansardError
from hansard.domain.experience.kept import EXPERIENCES, content_of
from hansard.domain.memory.paths import AGENTS, RUNS
from hansard.domain.run import ForkEffects
from hansard.inspect.kept_experiences import HITS_MAX as EXPERIENCES_MAX
from hansard.operations import session as operations
from hansard.operations.declare import Kind, Operation, SecretName
from hansard.operations.protocol import shapes, wire
from hansard.operations.protocol.errors import NotOffered
from hansard.operations.session import Claim, Function, Raised
from hansard.service.mcp.sessions import WORKFLOW, Sessions, Work
from hansard.service.mcp.tools import ALL, IN_A_RUN, chosen, described, prefixed
from hansard.service.operations import given, run

# ------------------------------------------------------------ context of other harnesses
#
# A harness that keeps its own copy gives the `timestamp` of that copy: later changes by others are
# not overwritten. Changes go to the agent's own space, as one change.

FILES_MAX = 200
"""Files whose texts are fetched, the first by their paths; of others the paths alone."""

CHARACTERS_MAX = 64 * 1024
"""Of all texts that are fetched together."""

TASKS_MAX = 20
"""Past tasks, the newest first."""

THEIRS_MAX = 2_000
"""Characters of a text that stands there, in an error."""

TASKS = """
SELECT a.run, r.workflow, r.status, a.began_at FROM agents AS a JOIN runs AS r ON r.run = a.run
WHERE a.agent = $1 ORDER BY a.began_at DESC, a.run LIMIT $2
"""


class Fetch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this agent is to know: its instructions (`user_preferences`, the nearest last), the runs
    that it took part in (`past_tasks`), its files of memory. `timestamp` goes back with
    update_context.
    """

    agent_id: str


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to hold from now on. `files`: texts by their paths, null for a file that goes;
    `user_preferences`: lines for the agent's own instructions, which stay what they are besides.
    """

    files: dict[str, str | None] = {}
    user_preferences: list[str] = []


class Update(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write to this agent's own memory, as one change. `timestamp` is that of the fetch_context
    that `context` goes by: a file that somebody changed since is a conflict, and nothing is
    written. incremental: files that are not named stay; full: of the agent's own they go.
    """

    agent_id: str
    context: Context
    timestamp: str
    sync_type: Literal["incremental", "full"] = "incremental"


class ContextConflict(HansardError):
    """A file was changed after the context was fetched; nothing was written."""

    def __init__(self, path: str, author: str, at: str, theirs: str) -> None:
        super().__init__(
            f"file {path!r} was changed by {author!r} at {at}, after this context was fetched; "
            f"nothing was written: call fetch_context again and decide. It holds now: {theirs!r}"
        )


async def fetched(sessions: Sessions, request: Fetch) -> tuple[Any, Work]:
    """The context of the client's agent. Raises NotOffered for another's."""
    work = await _work_of(sessions, request.agent_id)
    now = datetime.now(UTC).isoformat()
    tasks = await _tasks(sessions, request.agent_id)
    async with sessions.at_work(work):
        paths = [each for each in await work.session.memory.ls() if not _happened(each)]
        files: list[dict[str, Any]] = []
        left = CHARACTERS_MAX
        for number, path in enumerate(paths):
            found = {"path": path}
            if number < FILES_MAX and left:
                entry: MemoryEntry = await work.session.memory.entry(path)
                found |= {name: getattr(entry, name) for name in ("space", "author", "digest")}
                found["kind"] = entry.kind.value
                if len(entry.text) <= left:
                    found["text"] = entry.text
                    left -= len(entry.text)
            files.append(found)
    instructions = [each for each in files if each["path"].rpartition("/")[2] == AGENTS]
    content = {"agent_id": request.agent_id, "timestamp": now, "user_preferences": instructions}
    return content | {"past_tasks": tasks, "files": files}, work


async def updated(sessions: Sessions, request: Update) -> tuple[Any, Work]:
    """Write the context: what became of each file. Raises NotOffered, BadValue, ContextConflict,
    and as a change of memory.
    """
    work = await _work_of(sessions, request.agent_id)
    since = _time(request.timestamp)
    own = f"agent/{work.session.agent}"
    target = dict(request.context.files)
    async with sessions.at_work(work):
        memory = work.session.memory
        if request.sync_type == "full":
            for path in await memory.ls():
                if (
                    path not in target
                    and not _happened(path)
                    and await _standing(memory, path, own)
                ):
                    target[path] = None
        standing = {path: await _standing(memory, path, own) for path in target}
        changed: dict[str, str | None] = {}
        for path, text in target.items():
            current = standing[path]
            if text != (None if current is None else current.text):
                await _demand_older(memory, path, own, since, current)
                changed[path] = text
        instructions = await _standing(memory, AGENTS, own)
        text = changed.get(AGENTS, None if instructions is None else instructions.text) or ""
        lines = _new_lines(text, request.context.user_preferences)
        if changed or lines:
            async with memory.change("update_context", space=own) as change:
                for path, text_ in changed.items():
                    if text_ is None:
                        change.delete(path)
                    else:
                        change.create(path, text_)
                for line in lines:
                    change.append(AGENTS, line)
    content = {
        "written": sorted({path for path, text_ in changed.items() if text_ is not None}),
        "deleted": sorted(path for path, text_ in changed.items() if text_ is None),
        "unchanged": sorted(path for path in target if path not in changed),
        "remembered": lines,
    }
    return content | {"timestamp": datetime.now(UTC).isoformat()}, work


async def _work_of(sessions: Sessions, agent: str) -> Work:
    """The client's own run, where it is that agent. Raises NotOffered."""
    work = await sessions.own()
    mine = work.session.agent
    if agent != mine:
        raise NotOffered(f"the context of {agent!r:.80}", f"this client is {mine!r}")
    return work


async def _tasks(sessions: Sessions, agent: str) -> list[dict[str, Any]]:
    """The runs that it took part in; those of this connection where its role may not query."""
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
    """Whether it is made of what happened: nobody writes it."""
    return path.partition("/")[0] == RUNS


async def _standing(memory: Any, path: str, space: str) -> MemoryEntry | None:
    try:
        found: MemoryEntry = await memory.entry(path, space=space)
    except NotFound:
        return None
    return found


async def _demand_older(
    memory: Any, path: str, space: str, since: datetime, current: MemoryEntry | None
) -> None:
    """Raise ContextConflict where somebody changed a file since, or it is gone since."""
    try:
        versions = await memory.history(path, space=space)
    except NotFound:
        return
    if versions and datetime.fromisoformat(versions[-1].at) > since:
        newest = versions[-1]
        theirs = "" if current is None else current.text[:THEIRS_MAX]
        raise ContextConflict(path, newest.author, newest.at, theirs)


def _new_lines(text: str, lines: Sequence[str]) -> list[str]:
    """What is to be remembered that the instructions do not say in these words yet."""
    existing = {each.removeprefix("- ").strip() for each in text.splitlines()}
    new = dict.fromkeys(" ".join(each.split()).removeprefix("- ") for each in lines)
    return [f"- {each}" for each in new if each and each not in existing]


def _time(text: str) -> datetime:
    """Raises BadValue."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        fact, remedy = f"{text!r:.80}", "give the timestamp that fetch_context gave"
        raise BadValue("update_context(timestamp)", fact, remedy)
    return found


_log = logger(__name__)

IN_RUN = ("facts", "board", "memory", "team")
"""Groups of the registry that are asked of a session, and of which each operation is a tool."""

BLOCKS = {"board.transaction", "team.claimed"}
"""Operations that begin a block, which a client of MCP has not."""

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
"""Operations of a session that change nothing."""

UNTOLD = {each for each in READS if each.startswith("facts.")}
"""Of these the ones that leave nothing on record by themselves: they read what the agent itself
said. That a client of MCP asked is a step.
"""

ANYTHING: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True):
    """What is given: JSON, and where it stands.

    Attributes:
        result: The JSON.
        work: The session in whose run it is on record.
        replayable: Whether it stands on record or follows from that run alone, so that a replay of
            the run gives it again; else it was read, as of a position.
        position: What it was read as of, where the operation has one: a position of the log, for a
            restricted agent the number of the newest event that its role is shown.
        run: The run in whose record it stands, where no session does.
    """

    result: Any
    work: Work | None = None
    replayable: bool = True
    position: int | None = None
    run: str | None = None


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool.

    Attributes:
        name: Its own.
        does: What it says of itself.
        takes: The JSON Schema of its arguments.
        gives: That of `result`.
        reads: Whether it changes nothing.
        destroys: Whether it ends or removes what others may need.
        in_run: Whether it is asked in a run that it names; else in the client's own.
        answer: Answers a call. Raises CallerError and what the operation raises.
    """

    name: str
    does: str
    takes: dict[str, Any]
    gives: dict[str, Any]
    reads: bool = False
    destroys: bool = False
    in_run: bool = True
    answer: Callable[[Sessions, dict[str, Any]], Awaitable[Answer]]


# ------------------------------------------------------------ of the registry


def registered() -> Iterator[Offer]:
    """A tool for each operation of a session."""
    for each in operations.OPERATIONS.values():
        if each.group in IN_RUN and each.name not in BLOCKS:
            yield _offer(each)


def _offer(each: Operation) -> Offer:
    async def answer(sessions: Sessions, arguments: dict[str, Any]) -> Answer:
        inputs = dict(arguments)
        work = await sessions.of(_run_of(each.called, inputs))
        if each.name in UNTOLD:
            return await as_step(
                sessions, work, name, inputs, partial(in_run, sessions, work, inputs)
            )
        return await in_run(sessions, work, inputs)

    async def in_run(sessions: Sessions, work: Work, inputs: dict[str, Any]) -> Answer:
        request = operations.read(msgspec.Raw(msgspec.json.encode(_wired(each, inputs))))[1]
        async with sessions.at_work(work):
            fields = given(each, request, work.claims, _no_functions)
            found = await run(work.session, each, fields, work.claims)
        plain = wire.dump(_lists(wire.load(await shapes.told(found))))
        return Answer(msgspec.json.decode(plain), work)

    name = each.called.replace(".", "_")
    fields = {_shown(name): _schema(each, name) for name in each.fields}
    required = [_shown(name) for name in each.fields if _demanded(each, name)]
    return Offer(
        name=name,
        does=" ".join((each.request.__doc__ or "").split()),
        takes=described(name, _object({"run_id": RUN_ID, **fields}, ["run_id", *required])),
        gives=_given_schema(each.result),
        reads=each.name in READS,
        destroys=each.name in ("board.remove", "board.discard", "memory.delete"),
        answer=answer,
    )


def _lists(value: Any) -> Any:
    """A value as JSON has it: what is a tuple for a program of ours is a list for any other."""
    if isinstance(value, dict):
        return {name: _lists(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(each) for each in value]
    return value


def _demanded(each: Operation, name: str) -> bool:
    """Whether a client must give a field: of values by name none is none at all."""
    demanded = {field.name for field in msgspec.structs.fields(each.request) if field.required}
    hint = get_type_hints(each.request)[name]
    return name in demanded and each.fields[name] is not Kind.DATA and not _may_be_none(hint)


def _may_be_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


RUN_ID = {"type": "string", "description": "The run, as start_run gave it."}


def _run_of(where: str, inputs: dict[str, Any]) -> str:
    found = inputs.pop("run_id", None)
    if not isinstance(found, str) or not found:
        raise BadValue(f"{where}(run_id)", f"{found!r:.80}", "give a run that start_run gave")
    return found


def _shown(field: str) -> str:
    return field.rstrip("_")


def _wired(each: Operation, inputs: dict[str, Any]) -> dict[str, Any]:
    """Arguments as the registry reads them: a program's values in their own form."""
    fields = {_shown(name): (name, kind) for name, kind in each.fields.items()}
    wired: dict[str, Any] = {"op": each.name}
    for name, value in inputs.items():
        field, kind = fields.get(name, (name, Kind.PLAIN))
        if kind in (Kind.VALUE, Kind.DATA):
            wired[field] = wire.dump(value, f"{each.called}({name})")
        elif kind is Kind.VALUES and isinstance(value, list):
            wired[field] = [wire.dump(one, f"{each.called}({name})") for one in value]
        elif field == "task" and isinstance(value, dict):
            claimed = {key: value.get(key) for key in ("id", "number")}
            wired[field] = {"is": "claim"} | claimed
        else:
            wired[field] = value
    hints = get_type_hints(each.request)
    for name, kind in each.fields.items():  # some have no default in a request of a program
        if name not in wired and kind is Kind.DATA:
            wired[name] = {}
        elif name not in wired and kind is Kind.PLAIN and _may_be_none(hints[name]):
            wired[name] = None
    return wired


def _no_functions(name: str) -> Callable[..., Any]:
    raise BadValue("resolve", f"{name!r:.80} is a function", "a client of MCP has none")


def _schema(each: Operation, name: str) -> dict[str, Any]:
    """A field's JSON Schema."""
    match each.fields[name]:
        case Kind.VALUE:
            return ANYTHING
        case Kind.VALUES:
            return {"type": "array"}
        case Kind.DATA:
            return {"type": "object"}
        case _:
            return _plain(_without(get_type_hints(each.request)[name]))


TASK = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["id", "number"],
    "description": "A task as team_claim gave it.",
}


def _without(hint: Any) -> Any:
    """A type without what only a program of ours can give."""
    if hint is Claim:
        return hint
    if typing.get_origin(hint) in (Union, types.UnionType):
        kept = [
            _without(one)
            for one in typing.get_args(hint)
            if one not in (SecretName, Function, Raised)
        ]
        return Union[tuple(kept)]  # noqa: UP007 -- of as many as there are
    if typing.get_origin(hint) is dict:
        return dict[str, str]
    return hint


def _plain(hint: Any) -> dict[str, Any]:
    return dict(TASK) if hint is Claim else _whole(msgspec.json.schema(hint))


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with what it refers to in its place: it becomes a part of another."""
    defined = schema.get("$defs", {})

    def filled(part: Any) -> Any:
        if isinstance(part, list):
            return [filled(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return filled(defined[part["$ref"].rpartition("/")[2]])
        return {name: filled(each) for name, each in part.items() if name != "$defs"}

    found: dict[str, Any] = filled(schema)
    return found


def _given_schema(result: Any) -> dict[str, Any]:
    """The JSON Schema of a result, as `shapes.told` writes it and `shapes.back` reads it."""
    try:
        return _whole(msgspec.json.schema(result))
    except (TypeError, ValueError):
        return ANYTHING


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


# ------------------------------------------------------------ of their own


class Begin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a run of the record, as this client's agent; its id. Every other tool takes it."""

    workflow: str = WORKFLOW
    labels: dict[str, str] = {}
    conversation: str | None = None
    experiment: str | None = None
    arm: str | None = None
    task: str | None = None
    trial: int | None = None


class Resume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Go on with a run: this agent's newest checkpoint; where the role is not restricted also how
    the run stands, its agents, and their steps in doubt.
    """

    run_id: str


class Leave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """End this agent's work in a run; with the last of its agents the run has ended. `error` says
    that it failed, and why.
    """

    run_id: str
    error: str = ""


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a new run where another stood; its id. `at` is a point of it: agent@version, a time."""

    run_id: str
    at: str | None = None
    effects: typing.Literal["shadow", "live"] = "shadow"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Put on record what this agent did elsewhere: a tool that it called, and what came of it."""

    run_id: str
    tool: str
    arguments: dict[str, Any] = {}
    result: Any = None


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this agent's role may see of a run; that it was served is on record."""

    run_id: str


class Runs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The runs, the newest first, at most 100."""

    status: str | None = None
    workflow: str | None = None


class Sql(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask the record in SQL (DuckDB), read-only; at most 10,000 rows. `FROM catalog` lists the
    tables.
    """

    query: str
    parameters: list[str | float | int | bool | None] = []


class Why(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Explain a decision, by its id or address, or the one of a run; list those of a run with
    several.
    """

    decision: str


class Compare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arms of an experiment beside each other: verdict, differences, intervals, failures."""

    experiment: str
    metric: str | None = None
    baseline: str | None = None
    by: str | None = None
    lower_is_better: list[str] | None = None
    higher_is_better: list[str] | None = None
    missing: typing.Literal["failure", "excluded", "worst-case"] | None = None
    all_pairs: bool | None = None


class Caches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the action caches that the record keeps: versions, heals that nobody has looked at."""


class CacheLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The versions of an action cache: who changed what, when and why."""

    name: str


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action cache that the record keeps, at a version, the newest without one: its entries, to
    be done again.
    """

    name: str
    version: int | None = None


class KeepCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep an action cache (`hansard.actions.v1`) by a name, as its next version: the number."""

    name: str
    cache: dict[str, Any]
    because: str = ""


class RevertCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Have an earlier version of an action cache be the next one: the number."""

    name: str
    to: int
    because: str = ""


class Left(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What went out of a run: each call of a model, a page or a tool that was made, in order, with
    what it was given. Calls that your role is not shown are not among them.
    """

    run_id: str


class ListExperiences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the experiences that the record keeps: what runs of a kind of task taught, what each may
    be used for, how its replays ended.
    """


class FindExperience(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The experiences that fit a task, the best first, each with why. `address`: where it is done,
    or a host.
    """

    task: str = ""
    tools: list[str] = []
    address: str = ""
    limit: int = EXPERIENCES_MAX
    retired: bool = False


class ReadExperience(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of an experience, at a version, the newest without one: SKILL.md has its plan in
    words, checks.json its check functions.
    """

    name: str
    version: int | None = None


class LookAtCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State that the versions of an action cache up to one were looked at, and may stand."""

    name: str
    version: int | None = None
    because: str = ""


async def _fetch(sessions: Sessions, request: Fetch) -> Answer:
    content, work = await fetched(sessions, request)
    return Answer(content, work, replayable=False)


async def _update(sessions: Sessions, request: Update) -> Answer:
    content, work = await updated(sessions, request)
    return Answer(content, work, replayable=False)


RUNS_MAX = 100


async def _begin(sessions: Sessions, request: Begin) -> Answer:
    fields = msgspec.structs.asdict(request)
    workflow = fields.pop("workflow")
    options = {name: value for name, value in fields.items() if value not in (None, {})}
    work = await sessions.begin(workflow, **options)
    session = work.session
    return Answer({"run_id": session.run, "agent": session.agent, "role": session.role}, work)


async def _resume(sessions: Sessions, request: Resume) -> Answer:
    work = await sessions.of(request.run_id)
    newest = await work.session.latest_checkpoint()
    checkpoint = None if newest is None else msgspec.json.decode(await shapes.told(newest))
    content: dict[str, Any] = {"run_id": work.session.run, "checkpoint": checkpoint}
    with contextlib.suppress(NotOffered):  # a restricted agent is told of its own work alone
        view = await sessions.record.state(request.run_id)
        content["status"] = view.life.status.value
        content["agents"] = {
            name: {
                "steps": len(state.steps),
                "in_doubt": [step.number for step in state.in_doubt],
            }
            for name, state in view.agents.items()
        }
    return Answer(content, work, replayable=False)


async def _leave(sessions: Sessions, request: Leave) -> Answer:
    work = await sessions.leave(
        request.run_id, CallerError(request.error) if request.error else None
    )
    return Answer(None, work)


async def _fork(sessions: Sessions, request: Fork) -> Answer:
    effects = ForkEffects(request.effects)
    child = await sessions.record.fork(request.run_id, at=request.at, effects=effects)
    return Answer({"run_id": child}, replayable=False, run=child)


async def _step(sessions: Sessions, request: Step) -> Answer:
    work = await sessions.of(request.run_id)
    spec = operation(request.tool, "arguments", kind="tool")
    async with sessions.at_work(work):
        await work.session.call(_returning(spec, request.result), (request.arguments,), {})
    return Answer(None, work)


def _returning(spec: ToolSpec, result: Any) -> ToolSpec:
    def reported(arguments: Any) -> Any:
        del arguments
        return result

    return msgspec.structs.replace(spec, function=reported)


async def _seen(sessions: Sessions, request: Seen) -> Answer:
    work = await sessions.of(request.run_id)
    async with sessions.at_work(work):
        found = await work.session.view()
    return Answer(msgspec.json.decode(await shapes.told(found)), work)


async def _runs(sessions: Sessions, request: Runs) -> Answer:
    filters: Any = {name: each for name, each in msgspec.structs.asdict(request).items() if each}
    found = await sessions.record.runs(**filters)
    listed = [
        {"run_id": run_id, "workflow": life.workflow, "status": life.status.value}
        for run_id, life in found[:RUNS_MAX]
    ]
    return Answer(listed, replayable=False)


async def _sql(sessions: Sessions, request: Sql) -> Answer:
    found = await sessions.record.sql(request.query, *request.parameters)
    rows = _json([list(row) for row in found.rows])
    content = {"columns": list(found.columns), "rows": rows, "position": found.position}
    return Answer(content | {"cut": found.cut}, replayable=False, position=found.position)


async def _why(sessions: Sessions, request: Why) -> Answer:
    found = await sessions.record.why(request.decision)
    return Answer(lines(found), replayable=False, position=found.position)


async def _compare(sessions: Sessions, request: Compare) -> Answer:
    fields = msgspec.structs.asdict(request)
    experiment = fields.pop("experiment")
    options: Any = {name: value for name, value in fields.items() if value is not None}
    found = await sessions.record.compare(experiment, **options)
    return Answer(lines(found), replayable=False, position=found.report.position)


async def _caches(sessions: Sessions, request: Caches) -> Answer:
    del request
    await sessions.demand(permits.actions())
    found = await sessions.record.action_caches()
    return Answer(lines(found), replayable=False, position=found.position)


async def _cache_log(sessions: Sessions, request: CacheLog) -> Answer:
    await _demand_cache(sessions, request.name)
    found = await sessions.record.actions_log(request.name)
    return Answer(lines(found), replayable=False, position=found.position)


async def _cache(sessions: Sessions, request: Cache) -> Answer:
    await _demand_cache(sessions, request.name)
    found = await sessions.record.kept_actions(request.name, request.version)
    return Answer(msgspec.json.decode(encode(found)), replayable=False)


async def _demand_cache(sessions: Sessions, name: str) -> None:
    """Have a cache count as shown; a restricted client's service does that itself."""
    await sessions.demand(permits.actions())
    if sessions.workspace is not None:
        found = await artifacts.read(sessions.workspace, ACTIONS, name)
        await sessions.shown(found.label)


async def _state(
    sessions: Sessions,
    tag: str,
    by_record: Callable[..., Awaitable[int]],
    by_session: Callable[..., Awaitable[ArtifactChange]],
    *arguments: object,
    because: str,
) -> Answer:
    """State something of an action cache: the version that it is at then. A trusted client states
    it as its own session, with the label of that; a restricted one's service knows both.
    """
    for need in (permits.actions(), permits.states(tag)):
        await sessions.demand(need)
    if sessions.workspace is None:
        version = await by_record(*arguments, because=because)
    else:
        session = (await sessions.own()).session
        engine = session.engine
        label = engine.ledger.label.stored
        changed = await by_session(
            engine.workspace, *arguments, because=because, by=session.agent, label=label
        )
        version = changed.version
    return Answer({"version": version}, replayable=False)


async def _keep(sessions: Sessions, request: KeepCache) -> Answer:
    cache = decode(msgspec.json.encode(request.cache), "keep_actions(cache)")
    ways = (sessions.record.keep_actions, kept_caches.save)
    return await _state(
        sessions, ActionsSaved.tag, *ways, request.name, cache, because=request.because
    )


async def _revert(sessions: Sessions, request: RevertCache) -> Answer:
    ways = (sessions.record.revert_actions, kept_caches.revert)
    arguments = (request.name, request.to)
    return await _state(sessions, ActionsReverted.tag, *ways, *arguments, because=request.because)


async def _look_at(sessions: Sessions, request: LookAtCache) -> Answer:
    ways = (sessions.record.look_at_actions, kept_caches.look_at)
    arguments = (request.name, request.version)
    return await _state(sessions, ActionsLookedAt.tag, *ways, *arguments, because=request.because)


async def _left(sessions: Sessions, request: Left) -> Answer:
    found = await sessions.record.what_left(request.run_id)
    return Answer([_json(each) for each in found], replayable=False)


async def _experiences(sessions: Sessions, request: ListExperiences) -> Answer:
    del request
    await _demand_all_experiences(sessions)
    found = await sessions.record.experiences()
    return Answer(lines(found), replayable=False, position=found.position)


async def _find_experience(sessions: Sessions, request: FindExperience) -> Answer:
    await _demand_all_experiences(sessions)
    found = await sessions.record.find_experience(**msgspec.structs.asdict(request))
    return Answer(lines(found), replayable=False, position=found.position)


async def _demand_all_experiences(sessions: Sessions) -> None:
    """Of a trusted client, whose tables are the record's own; a restricted one has its role's."""
    await sessions.demand(permits.experiences())


async def _experience(sessions: Sessions, request: ReadExperience) -> Answer:
    await _demand_all_experiences(sessions)
    if sessions.workspace is not None:
        shown = await artifacts.read(sessions.workspace, EXPERIENCES, request.name)
        await sessions.shown(shown.label)
    found = await sessions.record.kept_experience(request.name, request.version)
    content = {"name": found.name, "version": found.version, "files": content_of(found)}
    return Answer(content, replayable=False)


def lines(found: Any) -> list[Any]:
    """The lines that `--json` prints of an answer."""
    return [_json(line) for line in found.lines()]


def _json(found: Any) -> Any:
    """As JSON says it; what it cannot say, as a text."""
    return msgspec.json.decode(msgspec.json.encode(found, enc_hook=str))


class _Own(msgspec.Struct, frozen=True):
    request: type[msgspec.Struct]
    answer: Callable[[Sessions, Any], Awaitable[Answer]]
    gives: dict[str, Any]
    reads: bool = False
    destroys: bool = False
    in_run: bool = True
    untold: bool = False
    steps: bool = False  # what it does are steps by themselves


OBJECT, ARRAY = {"type": "object"}, {"type": "array"}
VERSION = {"type": "object", "properties": {"version": {"type": "integer"}}}
RUN = {"type": "object", "properties": {"run_id": {"type": "string"}}, "required": ["run_id"]}

OWN: dict[str, _Own] = {
    "start_run": _Own(Begin, _begin, RUN),
    "resume_run": _Own(Resume, _resume, RUN, untold=True),
    "leave_run": _Own(Leave, _leave, {"type": "null"}, destroys=True),
    "fork_run": _Own(Fork, _fork, RUN),
    "record_step": _Own(Step, _step, {"type": "null"}),
    "view_run": _Own(Seen, _seen, OBJECT, reads=True),
    "list_runs": _Own(Runs, _runs, ARRAY, reads=True, in_run=False),
    "sql": _Own(Sql, _sql, OBJECT, reads=True, in_run=False),
    "why": _Own(Why, _why, ARRAY, reads=True, in_run=False),
    "compare": _Own(Compare, _compare, ARRAY, reads=True, in_run=False),
    "list_action_caches": _Own(Caches, _caches, ARRAY, reads=True, in_run=False),
    "action_cache_log": _Own(CacheLog, _cache_log, ARRAY, reads=True, in_run=False),
    "action_cache": _Own(Cache, _cache, OBJECT, reads=True, in_run=False),
    "keep_actions": _Own(KeepCache, _keep, VERSION, in_run=False),
    "revert_actions": _Own(RevertCache, _revert, VERSION, in_run=False),
    "look_at_actions": _Own(LookAtCache, _look_at, VERSION, in_run=False),
    "what_left": _Own(Left, _left, ARRAY, reads=True, in_run=False),
    "list_experiences": _Own(ListExperiences, _experiences, ARRAY, reads=True, in_run=False),
    "find_experience": _Own(FindExperience, _find_experience, ARRAY, reads=True, in_run=False),
    "experience": _Own(ReadExperience, _experience, OBJECT, reads=True, in_run=False),
    "fetch_context": _Own(Fetch, _fetch, OBJECT, reads=True, in_run=False, steps=True),
    "update_context": _Own(Update, _update, OBJECT, in_run=False, steps=True),
}
"""Tools that the registry has not for a session: what a program does with a record."""


def own() -> Iterator[Offer]:
    """The tools of their own."""
    for name, each in OWN.items():
        found = _whole(msgspec.json.schema(each.request))
        does = " ".join((each.request.__doc__ or "").split())
        takes = {key: found[key] for key in ("type", "properties", "required") if key in found}
        yield Offer(
            name=name,
            does=does,
            takes=described(name, takes | {"additionalProperties": False}),
            gives=each.gives,
            reads=each.reads,
            destroys=each.destroys,
            in_run=each.in_run,
            answer=_answering(name, each),
        )


def _answering(name: str, each: _Own) -> Callable[[Sessions, dict[str, Any]], Awaitable[Answer]]:
    async def answer(sessions: Sessions, arguments: dict[str, Any]) -> Answer:
        try:
            request = msgspec.convert(arguments, each.request)
        except msgspec.ValidationError as error:
            raise BadValue(name, str(error), "see the tool's input schema") from None
        reads = partial(each.answer, sessions, request)
        if each.untold:
            work = await sessions.of(arguments["run_id"])
            return await as_step(sessions, work, name, {}, reads)
        if each.in_run or each.steps:
            return await reads()
        return await in_own_run(sessions, name, msgspec.structs.asdict(request), reads)

    return answer


async def in_own_run(
    sessions: Sessions, name: str, request: dict[str, Any], reads: Callable[[], Awaitable[Answer]]
) -> Answer:
    """What is read and names no run of this client's, as a step of its own run."""
    return await as_step(sessions, await sessions.own(), name, request, reads)


async def as_step(
    sessions: Sessions,
    work: Work,
    name: str,
    request: dict[str, Any],
    reads: Callable[[], Awaitable[Answer]],
) -> Answer:
    """What is read, as a step: on record are what was asked, and how many bytes it was answered
    with.
    """
    spec = operation(f"mcp:{name}", "asked", kind="resource")
    answers: list[Answer] = []

    async def answered(request_: Any) -> int:
        del request_
        answers.append(await reads())
        return len(msgspec.json.encode(answers[0].result))

    async with sessions.at_work(work):
        bound = msgspec.structs.replace(spec, function=answered)
        await work.session.call(bound, (request,), {})
    return msgspec.structs.replace(answers[0], work=work)


class NotAnswered(Exception):
    """A request that was refused before anything of it was on record, and why."""


async def refused(
    sessions: Sessions, method: str, request: dict[str, Any], why: str
) -> Work | None:
    """A request that was refused, as a failed step: in the run that it names where the client is at
    work there, else in the client's own, which is given; None where the role does not allow even
    that, or it cannot be recorded.
    """

    def fails(request_: Any) -> None:
        del request_
        raise NotAnswered(why)

    spec = msgspec.structs.replace(
        operation(f"mcp:{method}", "asked", kind="resource"), function=fails
    )
    arguments = request.get("arguments")
    run_id = arguments.get("run_id") if isinstance(arguments, dict) else None
    work: Work | None = None
    try:
        work = sessions.under_way(run_id, in_run=True) or await sessions.own()
        async with sessions.at_work(work):
            await work.session.call(spec, (request,), {})
    except NotAnswered:
        return work
    except HansardError as error:
        _log.info("a refused request is not on record", method=method, why=str(error))
    return None


def offers(selection: Sequence[str] = (ALL,), prefix: str = "") -> dict[str, Offer]:
    """Return the tools of some groups and names, by their names under a prefix, in a fixed order.

    Tools that take a `run_id` bring those that begin and end a run. Raises BadValue.
    """
    known = {each.name: each for each in (*own(), *registered())}
    names = chosen(selection, known)
    if any("run_id" in known[name].takes["properties"] for name in names):
        names = [name for name in known if name in {*names, *IN_A_RUN}]
    return {prefixed(prefix, name): known[name] for name in names}
