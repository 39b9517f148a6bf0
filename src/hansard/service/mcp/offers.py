"""The tools: one for each operation of a session, and a few for operations of a record.

Each has a schema of its arguments and of its result.

Long because the tools are one list, each with its request and its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
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
from typing import Any, Literal, Union, get_type_hints

import msgspec

from hansard.agents.artifacts import caches as kept_caches
from hansard.agents.artifacts import versions as artifacts
from hansard.agents.artifacts.versions import ArtifactChange
from hansard.agents.errors import RoleRefused, SessionEnded
from hansard.agents.memory.reading import MemoryEntry
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Need
from hansard.agents.steps.scope import Scope, drop, enter, leave
from hansard.agents.steps.tools import ToolSpec, operation
from hansard.bus.errors import Fenced, NotFound
from hansard.bus.loggers import logger
from hansard.domain import ids
from hansard.domain.actions.cache import decode, encode
from hansard.domain.actions.kept import ACTIONS, ActionsLookedAt, ActionsReverted, ActionsSaved
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue, CallerError, HansardError
from hansard.domain.experience.kept import EXPERIENCES, content_of
from hansard.domain.label import Label
from hansard.domain.memory.paths import AGENTS, RUNS
from hansard.domain.run import ForkEffects
from hansard.inspect.experience import HITS_MAX as EXPERIENCES_MAX
from hansard.operations import session as operations
from hansard.operations.declare import Kind, Operation, SecretName
from hansard.operations.protocol import shapes, wire
from hansard.operations.protocol.errors import AccessRefused, NotOffered, ServiceGone
from hansard.operations.session import Claim, Function, Raised
from hansard.service.operations import Claims, given, run

# The tools that a client is offered, their names, and descriptions of their parameters.

ALL, DEFAULT = "all", "default"
"""Names of groups."""

IN_A_RUN = ("start_run", "resume_run", "leave_run")
"""Tools without which no other can name a run."""

GROUPS: dict[str, tuple[str, ...]] = {
    DEFAULT: (
        *IN_A_RUN,
        *("record_step", "message", "decide", "checkpoint", "why"),
        *("board_put", "board_entry", "board_keys"),
        *("team_add", "team_claim", "team_complete", "team_tasks", "team_send", "team_inbox"),
        *("memory_search", "memory_entry", "memory_remember"),
    ),
    "run": (
        *IN_A_RUN,
        *("fork_run", "view_run", "list_runs", "record_step", "message", "context", "decide"),
        *("checkpoint", "checkpoint_data", "latest_checkpoint", "resource", "hand_off"),
    ),
    "ask": ("list_runs", "view_run", "sql", "why", "compare", "egress"),
    "actions": (
        *("list_action_caches", "action_cache_log", "action_cache"),
        *("keep_actions", "revert_actions", "review_actions"),
    ),
    "experiences": ("list_experiences", "find_experience", "experience"),
    "harness": ("fetch_context", "update_context"),
}
"""Groups by name. `board`, `team` and `memory` are groups of the tools with that prefix."""

PREFIXED = ("board", "team", "memory")

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")


def chosen(selection: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the tools of some groups and names, in the order that they are known in.

    Raises BadValue for what is neither a group nor a tool.
    """
    tools = [*known]
    found: set[str] = set()
    for name in selection:
        if name == ALL:
            found.update(tools)
        elif name in GROUPS:
            found.update(GROUPS[name])
        elif name in PREFIXED:
            found.update(each for each in tools if each.startswith(f"{name}_"))
        elif name in tools:
            found.add(name)
        else:
            groups = [ALL, *GROUPS, *PREFIXED]
            remedy = f"{nearest(name, [*groups, *tools])}groups are {', '.join(groups)}"
            raise BadValue("--tools", f"{name!r:.80} is neither a group nor a tool", remedy)
    return [each for each in tools if each in found]


def prefixed(prefix: str, name: str) -> str:
    """Return a tool's name under a prefix. Raises BadValue for a prefix that is no name."""
    if prefix and not _PREFIX.fullmatch(prefix):
        fact = f"{prefix!r:.80} is not a valid prefix"
        raise BadValue("--prefix", fact, "give lower-case letters, digits and _")
    return f"{prefix}_{name}" if prefix else name


REWORDED = {
    r"\bls\(\)": "memory_ls",
    r"\bentry\(\)": "memory_entry",
    r"'hansard memory (ls|glob|grep|search|history)[^']*'": r"memory_\1",
    r"'hansard memory log[^']*'": "memory_history",
    r"'hansard memory (?:show|cat)[^']*'": "memory_entry",
    r"'hansard runs[^']*'": "list_runs",
    r"'hansard sql[^']*'": "sql",
    r"'hansard actions[^']*'": "list_action_caches",
    r"'hansard experience[^']*'": "list_experiences",
    r"\bsession\.(board|team|memory)\.(\w+)(?:\(\))?": r"\1_\2",
    r"\b(board|team|memory)\.(?=(\w+)\()(\w+)": r"\1_\3",
}
"""Methods and commands in errors, and the tools that do the same."""


def for_client(text: str, names: Mapping[str, str]) -> str:
    """Return an error's text with the tools that a client can call, by their own names."""
    for pattern, tool in REWORDED.items():
        text = re.sub(pattern, partial(_offered, tool, names), text)
    return text


def _offered(tool: str, names: Mapping[str, str], found: re.Match[str]) -> str:
    name = found.expand(tool)
    return names.get(name, name)


PARAMETERS: dict[str, str] = {
    "action_cache.name": "Name of the action cache, as in list_action_caches.",
    "agent": "Name of the agent; omit it to address any agent of the role.",
    "agent_id": "Name of this client's own agent, as returned by start_run.",
    "all_pairs": "Compare every pair of arms, not only each with the baseline.",
    "alternatives": "The options that were considered and not selected.",
    "amount": "Whole number to add; negative to subtract.",
    "arguments": "Arguments of the call, by name.",
    "arm": "Arm of the experiment that this run belongs to.",
    "at": "A point in time: agent@version or an ISO 8601 time. Omit it for now.",
    "baseline": "Arm that the others are compared with.",
    "budget": "Most characters of the returned text.",
    "by": "Label or column by which the results are split.",
    "cache": "The cache, an object of the format hansard.actions.v1.",
    "change": "Id of the change, as in memory_history.",
    "checkpoint.name": "Name of the stage, such as 'drafted'.",
    "checkpoint_data.name": "Name of the checkpoint.",
    "confidence": "Confidence in the decision, from 0 to 1.",
    "content": "Content of the message: a text, or any JSON value.",
    "context": "The new context: files by path, and lines of preferences.",
    "conversation": "Id of the conversation that the run continues.",
    "data": "Values of this stage, by name; checkpoint_data returns them.",
    "decision": "Id or decision:// address of a decision; a run's id for all of its decisions.",
    "effects": "shadow: effects of the fork are withheld; live: they happen.",
    "error": "The reason of the failure; empty if there was none.",
    "expected": "Version that the key must be at, or 'any'. By default the one last seen.",
    "experience.name": "Name of the experience, as in list_experiences.",
    "experiment": "Name of the experiment.",
    "fields": "Further fields of the message in the provider's form, by name.",
    "find_experience.address": "URL or host of the task.",
    "find_experience.task": "The task, in words.",
    "find_experience.tools": "Names of the available tools.",
    "folder": "Folder whose files are listed; empty for all.",
    "glob": "Pattern of paths that are searched, such as skills/**.",
    "higher_is_better": "Metrics of which more is better.",
    "inputs": "What the decision was based on: addresses, ids or facts.",
    "item": "The item, any JSON value.",
    "key": "Key of the shared state, such as findings/1.",
    "kind": "procedural, semantic or episodic; omit it for all.",
    "labels": "Labels by name.",
    "lease_s": "Seconds that the task stays claimed unless it is extended.",
    "limit": "Most results.",
    "line": "Number of the line after which the text is inserted; 0 for the start.",
    "link": "Path that the file links to, instead of a text.",
    "lower_is_better": "Metrics of which less is better.",
    "merge": "max, min (numbers or texts), or union (objects).",
    "metric": "Metric to compare; omit it for all.",
    "missing": "How trials without a result count.",
    "name": "Name of the action cache, as in list_action_caches.",
    "new": "Text that replaces the old one.",
    "old": "Text to replace, exactly; it must occur once in the file.",
    "operation": "The kind of use, such as read or write.",
    "ops": "The changes, in order.",
    "parameters": "Values for $1, $2 and so on, in order.",
    "path": "Path of the file, such as skills/review/SKILL.md.",
    "memory_glob.pattern": "Glob pattern of paths, such as skills/**.",
    "memory_grep.pattern": "Regular expression (RE2).",
    "memory_search.question": "Search text, in words.",
    "payload": "Data that the receiver needs to continue, any JSON value.",
    "query": "A DuckDB SELECT statement.",
    "question": "The question that was decided.",
    "reason": "Reason, for readers of the record.",
    "resolve": "On a conflict: 'last writer' replaces, 'merge' unites objects.",
    "result": "The result, any JSON value.",
    "retired": "Include experiences that were retired.",
    "role": "Name of the role; omit it for any.",
    "message.role": "Role of the author.",
    "run_id": "The run, as returned by start_run.",
    "selected": "The option that was selected.",
    "sources": "Addresses of the sources of the text.",
    "space": "Memory space, such as org or agent/NAME; omit it for the agent's own.",
    "status": "Only runs with this status, such as running, completed or failed.",
    "sync_type": "incremental: files that are not named stay; full: the agent's own are deleted.",
    "task": "Name of the task that the run is a trial of.",
    "team_add.task": "Id for the new task; omit it to have one made.",
    "team_reopen.task": "Id of the failed task.",
    "team_wait_for.task": "Id of the task to wait for.",
    "team_wait_for.key": "Key of the shared state to wait for.",
    "text": "The text.",
    "threshold": "Least confidence required.",
    "timeout_s": "Most seconds to wait.",
    "timestamp": "The timestamp returned by fetch_context.",
    "title": "The task, in one line.",
    "to": "Name of the agent or role.",
    "memory_rename.to": "New path of the file.",
    "revert_actions.to": "Version that becomes the newest again.",
    "tokens": "Number of tokens of the message, if known.",
    "tool": "Name of the tool that was called.",
    "trial": "Number of the trial, from 0.",
    "ttl_s": "Seconds after which the key expires.",
    "uri": "Address of the resource.",
    "value": "The value, any JSON.",
    "version": "Version; omit it for the newest.",
    "waits_for": "Ids of tasks that must be completed first.",
    "waits_for_roles": "Roles whose tasks must all be completed first.",
    "what": "Details of the task, any JSON value.",
    "with": "Data that the next agent needs, any JSON value.",
    "workflow": "Name of the workflow.",
}
"""Descriptions by `tool.parameter`, or by the parameter where all tools mean the same."""

MESSAGE_ROLES = ("system", "developer", "user", "assistant", "tool")


def described(tool: str, takes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's input schema with a description of each parameter."""
    properties = {
        name: {"description": PARAMETERS.get(f"{tool}.{name}") or PARAMETERS.get(name, ""), **each}
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


REFUSED_S = 5.0
"""Seconds after a refusal of credentials in which the service is not asked again."""

NO_RUN = ids.uuid8("no run is called so")
"""A run that never exists, requested to check a client's credentials."""


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
        self._refused_s: float | None = None
        self._is_unsure = False

    def note(self, error: BaseException) -> None:
        """Remember a refusal of the client's credentials, or that the service did not answer."""
        if isinstance(error, AccessRefused):
            self._refused_s = time.monotonic()
        self._is_unsure = self._is_unsure or isinstance(error, AccessRefused | ServiceGone)

    @property
    def refused(self) -> bool:
        """True if the service has just refused the client's credentials."""
        return self._refused_s is not None and time.monotonic() - self._refused_s < REFUSED_S

    async def are_refused(self) -> bool:
        """Return whether the service refuses the client's credentials.

        It is asked if it refused them before or did not answer. If it cannot answer now, the last
        known state holds.
        """
        if self.refused or not self._is_unsure:
            return self.refused
        try:
            await self.record.view(NO_RUN)
        except NotFound:
            self._is_unsure, self._refused_s = False, None
        except HansardError as error:
            self.note(error)
        return self._refused_s is not None

    @property
    def workspace(self) -> Any:
        """The record's workspace; None for a restricted client."""
        with contextlib.suppress(NotOffered):
            return self.record.workspace
        return None

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
                await self._demand(run)
                await self.begin(None, run=run)
            return self._works[run]

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

    async def _demand(self, run: str) -> None:
        """Raise NotFound for a run that does not exist, so that a mistyped id begins none."""
        try:
            await self.record.state(run)
        except NotOffered:
            await self.record.view(run)

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
        work = await self.of(run)
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


class Fetch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fetch this agent's context: its instructions, past runs and files of memory.

    `user_preferences` are the instructions, the nearest last; `past_tasks` the runs that it took
    part in. Pass `timestamp` back to update_context.
    """

    agent_id: str


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The context from now on.

    `files`: texts by path, null to delete a file; `user_preferences`: lines to add to the agent's
    own instructions.
    """

    files: dict[str, str | None] = {}
    user_preferences: list[str] = []


class Update(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write to this agent's own memory, as one change.

    `timestamp` is that of the fetch_context that `context` is based on: if a file changed since,
    that is a conflict, and nothing is written. incremental: files that are not named stay; full:
    the agent's own ones are deleted.
    """

    agent_id: str
    context: Context
    timestamp: str
    sync_type: Literal["incremental", "full"] = "incremental"


class ContextConflict(HansardError):
    """A file was changed after the context was fetched.

    State: nothing was written.
    Remedy: call fetch_context again and decide.
    """

    def __init__(self, path: str, author: str, at: str, theirs: str) -> None:
        super().__init__(
            f"file {path!r} was changed by {author!r} at {at}, after this context was fetched; "
            f"nothing was written: call fetch_context again and decide. It holds now: {theirs!r}"
        )


async def fetched(sessions: Sessions, request: Fetch) -> tuple[Any, Work]:
    """Return the context of the client's agent. Raises NotOffered for another's."""
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
    """Write the context; return the result for each file.

    Raises NotOffered, BadValue, ContextConflict, and as a change of memory.
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
    """Return the client's own run, if it is that agent's. Raises NotOffered."""
    work = await sessions.own()
    mine = work.session.agent
    if agent != mine:
        raise NotOffered(f"the context of {agent!r:.80}", f"this client is {mine!r}")
    return work


async def _tasks(sessions: Sessions, agent: str) -> list[dict[str, Any]]:
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


async def _standing(memory: Any, path: str, space: str) -> MemoryEntry | None:
    try:
        found: MemoryEntry = await memory.entry(path, space=space)
    except NotFound:
        return None
    return found


async def _demand_older(
    memory: Any, path: str, space: str, since: datetime, current: MemoryEntry | None
) -> None:
    """Raise ContextConflict if a file was changed or deleted since."""
    try:
        versions = await memory.history(path, space=space)
    except NotFound:
        return
    if versions and datetime.fromisoformat(versions[-1].at) > since:
        newest = versions[-1]
        theirs = "" if current is None else current.text[:THEIRS_MAX]
        raise ContextConflict(path, newest.author, newest.at, theirs)


def _new_lines(text: str, lines: Sequence[str]) -> list[str]:
    """Return the lines that the instructions do not contain yet."""
    existing = {each.removeprefix("- ").strip() for each in text.splitlines()}
    new = dict.fromkeys(" ".join(each.split()).removeprefix("- ") for each in lines)
    return [f"- {each}" for each in new if each and each not in existing]


def _time(text: str) -> datetime:
    """Parse a timestamp. Raises BadValue."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        fact, remedy = f"{text!r:.80}", "give the timestamp of fetch_context"
        raise BadValue("update_context(timestamp)", fact, remedy)
    return found


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
"""Operations of a session that change nothing."""

UNRECORDED = {each for each in READS if each.startswith("facts.")}
"""Those of them that record nothing themselves, since they read the agent's own data."""

ANYTHING: dict[str, Any] = {}


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
        answer: Answers a call. Raises CallerError and the operation's errors.
    """

    name: str
    does: str
    takes: dict[str, Any]
    gives: dict[str, Any]
    reads: bool = False
    destroys: bool = False
    in_run: bool = True
    answer: Callable[[Sessions, dict[str, Any]], Awaitable[Answer]]


# ------------------------------------------------------------ session operations


def registered() -> Iterator[Offer]:
    """Yield a tool for each operation of a session."""
    for each in operations.OPERATIONS.values():
        if each.group in IN_RUN and each.name not in BLOCKS:
            yield _offer(each)


def _offer(each: Operation) -> Offer:
    async def answer(sessions: Sessions, arguments: dict[str, Any]) -> Answer:
        inputs = dict(arguments)
        work = await sessions.of(_run_of(each.called, inputs))
        if each.name in UNRECORDED:
            return await as_step(
                sessions, work, name, inputs, partial(in_run, sessions, work, inputs)
            )
        return await in_run(sessions, work, inputs)

    async def in_run(sessions: Sessions, work: Work, inputs: dict[str, Any]) -> Answer:
        request = operations.read(msgspec.Raw(msgspec.json.encode(_wired(each, inputs))))[1]
        async with sessions.at_work(work):
            fields = given(each, request, work.claims, _no_functions)
            found = await run(work.session, each, fields, work.claims)
        plain = wire.dump(_lists(wire.load(await shapes.encode_result(found))))
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
    """Return a value as JSON has it: tuples of a program are lists."""
    if isinstance(value, dict):
        return {name: _lists(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(each) for each in value]
    return value


def _demanded(each: Operation, name: str) -> bool:
    """Return whether a field is required of a client; values by name are optional."""
    demanded = {field.name for field in msgspec.structs.fields(each.request) if field.required}
    hint = get_type_hints(each.request)[name]
    return name in demanded and each.fields[name] is not Kind.DATA and not _may_be_none(hint)


def _may_be_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


RUN_ID = {"type": "string", "description": "The run, as returned by start_run."}


def _run_of(where: str, inputs: dict[str, Any]) -> str:
    found = inputs.pop("run_id", None)
    if not isinstance(found, str) or not found:
        raise BadValue(f"{where}(run_id)", f"{found!r:.80}", "give a run_id of start_run")
    return found


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
            claimed = {key: value.get(key) for key in ("id", "number")}
            wired[field] = {"is": "claim"} | claimed
        else:
            wired[field] = value
    hints = get_type_hints(each.request)
    for name, kind in each.fields.items():  # some have no default in a program's request
        if name not in wired and kind is Kind.DATA:
            wired[name] = {}
        elif name not in wired and kind is Kind.PLAIN and _may_be_none(hints[name]):
            wired[name] = None
    return wired


def _no_functions(name: str) -> Callable[..., Any]:
    raise BadValue("resolve", f"{name!r:.80} is a function", "an MCP client has none")


def _schema(each: Operation, name: str) -> dict[str, Any]:
    """Return a field's JSON Schema."""
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
    "description": "A task as returned by team_claim.",
}


def _without(hint: Any) -> Any:
    """Return a type without the alternatives that only a program can give."""
    if hint is Claim:
        return hint
    if typing.get_origin(hint) in (Union, types.UnionType):
        kept = [
            _without(one)
            for one in typing.get_args(hint)
            if one not in (SecretName, Function, Raised)
        ]
        return Union[tuple(kept)]  # noqa: UP007 -- of a variable number
    if typing.get_origin(hint) is dict:
        return dict[str, str]
    return hint


def _plain(hint: Any) -> dict[str, Any]:
    return dict(TASK) if hint is Claim else _whole(msgspec.json.schema(hint))


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

    found: dict[str, Any] = filled(schema)
    return found


def _given_schema(result: Any) -> dict[str, Any]:
    """Return the JSON Schema of a result, in the form of `shapes`."""
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


# ------------------------------------------------------------ record operations


class Begin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a run, as this client's agent; returns its id, which every other tool takes."""

    workflow: str = WORKFLOW
    labels: dict[str, str] = {}
    conversation: str | None = None
    experiment: str | None = None
    arm: str | None = None
    task: str | None = None
    trial: int | None = None


class Resume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Resume a run; returns this agent's newest checkpoint.

    If the role is not restricted it returns also the run's status, its agents, and their steps in
    doubt.
    """

    run_id: str


class Leave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """End this agent's work in a run; the end of its last agent ends the run.

    `error` marks it as failed, with the reason.
    """

    run_id: str
    error: str = ""


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a new run at a point of another; returns its id.

    `at` is a point of it: agent@version, a time.
    """

    run_id: str
    at: str | None = None
    effects: typing.Literal["shadow", "live"] = "shadow"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Record what this agent did elsewhere: a tool that it called, and the result."""

    run_id: str
    tool: str
    arguments: dict[str, Any] = {}
    result: Any = None


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """View the part of a run that this agent's role may see; the view is recorded."""

    run_id: str


class Runs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the runs, newest first, at most 100."""

    status: str | None = None
    workflow: str | None = None


class Sql(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Query the record in SQL (DuckDB), read-only, up to 10,000 rows; `FROM catalog` lists it."""

    query: str
    parameters: list[str | float | int | bool | None] = []


class Why(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Explain a decision, by its id or address; of a run, its only one, or list several."""

    decision: str


class Compare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Compare the arms of an experiment: verdict, differences, intervals, failures."""

    experiment: str
    metric: str | None = None
    baseline: str | None = None
    by: str | None = None
    lower_is_better: list[str] | None = None
    higher_is_better: list[str] | None = None
    missing: typing.Literal["failure", "excluded", "worst-case"] | None = None
    all_pairs: bool | None = None


class Caches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the kept action caches: versions, and heals that nobody has reviewed."""


class CacheLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the versions of an action cache: who changed what, when and why."""

    name: str


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read a kept action cache, by default its newest version: its entries, to be replayed."""

    name: str
    version: int | None = None


class KeepCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep an action cache (`hansard.actions.v1`) as a name's next version; returns its number."""

    name: str
    cache: dict[str, Any]
    reason: str = ""


class RevertCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Add an earlier version of an action cache as the next one; returns the number."""

    name: str
    to: int
    reason: str = ""


class Egress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the egress of a run: each executed call of a model, a page or a tool, in order.

    Calls have their arguments; those that your role is not shown are omitted.
    """

    run_id: str


class ListExperiences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the kept experiences, each learned from runs of a kind of task.

    Each has its permitted use, and how its replays ended.
    """


class FindExperience(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Find the experiences that fit a task, the best first, each with the reasons.

    `address`: the place of the task, or a host.
    """

    task: str = ""
    tools: list[str] = []
    address: str = ""
    limit: int = EXPERIENCES_MAX
    retired: bool = False


class ReadExperience(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read the files of an experience, by default of its newest version.

    SKILL.md has its plan in words, checks.json its check functions.
    """

    name: str
    version: int | None = None


class ReviewCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Record that the versions of an action cache up to one were reviewed."""

    name: str
    version: int | None = None
    reason: str = ""


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
    checkpoint = None if newest is None else msgspec.json.decode(await shapes.encode_result(newest))
    content: dict[str, Any] = {"run_id": work.session.run, "checkpoint": checkpoint}
    with contextlib.suppress(NotOffered):  # a restricted agent learns only of its own work
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
    return Answer(msgspec.json.decode(await shapes.encode_result(found)), work)


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
    """Count a cache as shown; for a restricted client the service does that."""
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
    reason: str,
) -> Answer:
    """Record a statement about an action cache; return the version that it is at then.

    A trusted client states it as its own session, with its label; a restricted one's service knows
    both.
    """
    for need in (permits.actions(), permits.states(tag)):
        await sessions.demand(need)
    if sessions.workspace is None:
        version = await by_record(*arguments, reason=reason)
    else:
        session = (await sessions.own()).session
        engine = session.engine
        label = engine.ledger.label.stored
        changed = await by_session(
            engine.workspace, *arguments, reason=reason, by=session.agent, label=label
        )
        version = changed.version
    return Answer({"version": version}, replayable=False)


async def _keep(sessions: Sessions, request: KeepCache) -> Answer:
    cache = decode(msgspec.json.encode(request.cache), "keep_actions(cache)")
    ways = (sessions.record.keep_actions, kept_caches.save)
    return await _state(
        sessions, ActionsSaved.tag, *ways, request.name, cache, reason=request.reason
    )


async def _revert(sessions: Sessions, request: RevertCache) -> Answer:
    ways = (sessions.record.revert_actions, kept_caches.revert)
    arguments = (request.name, request.to)
    return await _state(sessions, ActionsReverted.tag, *ways, *arguments, reason=request.reason)


async def _review(sessions: Sessions, request: ReviewCache) -> Answer:
    ways = (sessions.record.review_actions, kept_caches.review)
    arguments = (request.name, request.version)
    return await _state(sessions, ActionsLookedAt.tag, *ways, *arguments, reason=request.reason)


async def _egress(sessions: Sessions, request: Egress) -> Answer:
    found = await sessions.record.egress(request.run_id)
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
    """Check the permission of a trusted client, whose tables are the record's own."""
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
    """Return the lines that `--json` prints of an answer."""
    return [_json(line) for line in found.lines()]


def _json(found: Any) -> Any:
    """Convert a value to JSON types; others become texts."""
    return msgspec.json.decode(msgspec.json.encode(found, enc_hook=str))


class _Own(msgspec.Struct, frozen=True):
    request: type[msgspec.Struct]
    answer: Callable[[Sessions, Any], Awaitable[Answer]]
    gives: dict[str, Any]
    reads: bool = False
    destroys: bool = False
    in_run: bool = True
    unrecorded: bool = False
    steps: bool = False  # its actions are steps themselves


OBJECT, ARRAY = {"type": "object"}, {"type": "array"}
VERSION = {"type": "object", "properties": {"version": {"type": "integer"}}}
RUN = {"type": "object", "properties": {"run_id": {"type": "string"}}, "required": ["run_id"]}

OWN: dict[str, _Own] = {
    "start_run": _Own(Begin, _begin, RUN),
    "resume_run": _Own(Resume, _resume, RUN, unrecorded=True),
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
    "review_actions": _Own(ReviewCache, _review, VERSION, in_run=False),
    "egress": _Own(Egress, _egress, ARRAY, reads=True, in_run=False),
    "list_experiences": _Own(ListExperiences, _experiences, ARRAY, reads=True, in_run=False),
    "find_experience": _Own(FindExperience, _find_experience, ARRAY, reads=True, in_run=False),
    "experience": _Own(ReadExperience, _experience, OBJECT, reads=True, in_run=False),
    "fetch_context": _Own(Fetch, _fetch, OBJECT, reads=True, in_run=False, steps=True),
    "update_context": _Own(Update, _update, OBJECT, in_run=False, steps=True),
}
"""Tools for operations of a record, which are not in the registry of a session."""


def own() -> Iterator[Offer]:
    """Yield the tools of `OWN`."""
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
        if each.unrecorded:
            work = await sessions.of(arguments["run_id"])
            return await as_step(sessions, work, name, {}, reads)
        if each.in_run or each.steps:
            return await reads()
        return await in_own_run(sessions, name, msgspec.structs.asdict(request), reads)

    return answer


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
    """A request that was refused before anything of it was recorded, and why."""


async def refused(
    sessions: Sessions, method: str, request: dict[str, Any], why: str
) -> Work | None:
    """Record a refused request as a failed step; return the session.

    It is in the run that it names if the client works there, else in the client's own. None if the
    role does not allow even that, or it cannot be recorded.
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
