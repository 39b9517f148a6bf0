"""Resources and prompts of the record.

run://RUN/trace             its steps, as `hansard run trace --json` prints them
run://RUN/state[?at=POINT]  its whole state, now or at a point run://RUN/view[?role=ROLE]  the view
of this client's role, or of another that it may see board://RUN/KEY             an entry of its
shared state task://RUN/ID               a task of its team decision://ID               the
explanation of a decision memory://PATH               a file of memory, as this client's agent sees
it

Long because what can be read can also be watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import mcp_types as types
import msgspec

from hansard.agents.access import roles
from hansard.agents.errors import RoleRefused
from hansard.agents.policy import permits
from hansard.agents.team.tasks import TaskEntry
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import AtPosition, Stored
from hansard.bus.loggers import logger, unexpected
from hansard.domain.access import is_views
from hansard.domain.choices import nearest
from hansard.domain.errors import BadName, BadValue, HansardError, Refused
from hansard.domain.ids import AgentStream, KeyStream, WorkspaceStream, run_of
from hansard.domain.label import Label
from hansard.domain.memory.files import KIND as MEMORY
from hansard.domain.roles.model import KIND as ROLE
from hansard.domain.roles.view import Line
from hansard.inspect.state import state
from hansard.inspect.trace import trace
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import NotOffered
from hansard.service.mcp.offers import (
    TEXTS,
    Answer,
    Sessions,
    in_own_run,
    lines,
    not_joined,
    view_of,
)

# ------------------------------------------------------------ prompts
#
# The server's own prompts name the tools that answer, and hold no text of the record. Prompts on
# record are listed by name, as their newest version; `rag@production` and `rag@3` are accepted.


class Own(msgspec.Struct, frozen=True):
    """A prompt of the server itself: its text has its arguments in braces."""

    name: str
    does: str
    arguments: dict[str, str]
    text: str


def _prompt(name: str, does: str, arguments: Mapping[str, str]) -> types.Prompt:
    required = [
        types.PromptArgument(name=argument, description=each, required=True)
        for argument, each in arguments.items()
    ]
    return types.Prompt(name=name, description=does, arguments=required)


PROMPTS = {name: Own(name=name, **each) for name, each in TEXTS["prompts"].items()}


async def list_prompts(sessions: Sessions) -> list[types.Prompt]:
    """List the server's own prompts, and those on record that the client's role may see."""

    async def reads() -> Answer:
        await sessions.demand(permits.prompts())
        prompts = await sessions.record.prompts.list()
        for each in prompts:
            await sessions.shown(each.label)
        content = [[each.name, each.version, each.because, each.variables] for each in prompts]
        return Answer(content, replayable=False)

    try:
        content = (await in_own_run(sessions, "prompts/list", {}, reads)).result
    except (NotOffered, RoleRefused):  # its role may not see prompts, or not even request them
        content = []
    return [
        *(_prompt(each.name, each.does, each.arguments) for each in PROMPTS.values()),
        *(
            _on_record(name, version, because, variables)
            for name, version, because, variables in content
        ),
    ]


def _on_record(name: str, version: int, reason: str, variables: tuple[str, ...]) -> types.Prompt:
    does = f"Version {version} of prompt {name}" + (f": {reason}" if reason else ", on record.")
    arguments = {each: f"The value of {{{each}}}." for each in variables}
    return _prompt(f"{name}@{version}" if name in PROMPTS else name, does, arguments)


async def get_prompt(
    sessions: Sessions, name: str, arguments: Mapping[str, str]
) -> types.GetPromptResult:
    """Return a prompt's text with its arguments; the request for one on record is recorded.

    Raises BadValue, Refused.
    """
    if name in PROMPTS:
        return _own(PROMPTS[name], arguments)

    async def reads() -> Answer:
        await sessions.demand(permits.prompts())
        prompt = await sessions.record.prompts.get(name)
        await sessions.shown(prompt.label)
        content = {"text": str(prompt.format(**arguments)), "reference": prompt.reference}
        return Answer(content, replayable=False)

    try:
        answer = await in_own_run(
            sessions, "prompts/get", {"name": name, "arguments": {**arguments}}, reads
        )
    except (NotFound, BadName, NotOffered, RoleRefused):  # a hidden prompt does not exist for it
        remedy = f"{nearest(name, PROMPTS)}there are {', '.join(PROMPTS)}, and those on record"
        raise BadValue("prompt", f"there is no {name!r:.80}", remedy) from None
    content: dict[str, Any] = answer.result
    does = f"Prompt {content['reference']} of the record."
    meta = answer.meta | {"hansard/prompt": content["reference"]}
    return _filled(does, content["text"], meta)


def _own(own: Own, values: Mapping[str, str]) -> types.GetPromptResult:
    names = own.arguments
    for each in [*names, *values]:
        if each not in names or not values.get(each):
            fact = f"{each!r:.80} is " + ("missing" if each in names else "not an argument")
            raise BadValue(f"prompt {own.name}", fact, f"give {', '.join(names)}")
    return _filled(own.does, own.text.format(**values))


def _filled(does: str, text: str, meta: dict[str, Any] | None = None) -> types.GetPromptResult:
    content = types.TextContent(type="text", text=text)
    messages = [types.PromptMessage(role="user", content=content)]
    return types.GetPromptResult(description=does, messages=messages, _meta=meta)


LISTED_MAX = 50
"""Newest runs whose traces are listed; others are read by address."""


FILES_MAX = 200
"""Files of memory that are listed, by path; others are read by address."""


JSON = "application/json"

FIXED = ("task", "decision")
"""Kinds without change notifications."""

TEMPLATES = [
    types.ResourceTemplate(uri_template=uri, name=name, description=does, mime_type=JSON)
    for uri, name, does in (
        ("run://{run}/trace", "trace", "The steps of a run, with arguments and results."),
        ("run://{run}/state{?at}", "state", "The whole state of a run, now or at a point."),
        ("run://{run}/view{?role}", "view", "The view of its role, or of another that it may see."),
        ("board://{run}/{+key}", "board", "An entry of a run's shared state."),
        ("task://{run}/{task}", "task", "A task of a run's team."),
        ("memory://{+path}", "memory", "A file of this agent's memory."),
        (
            "decision://{id}",
            "decision",
            "The explanation of a decision: its inputs, reasons and author.",
        ),
    )
]


class Address(msgspec.Struct, frozen=True):
    """The parts of a resource's URI.

    `kind` is the name of one of `TEMPLATES`, `of` a run or decision, `key` a key (of a task its id,
    of memory its path), `at` a point, `role` a role that is not the client's own.
    """

    kind: str
    of: str
    key: str | None = None
    at: str | None = None
    role: str | None = None

    @property
    def changes(self) -> bool:
        """True if changes are notified.

        Not so for the state at a point, an answer, or the view of another role.
        """
        return self.kind not in FIXED and self.at is None and self.role is None

    @classmethod
    def read(cls, uri: str) -> Address:
        """Parse a URI. Raises BadValue for one that is not a resource's."""
        parts = urlsplit(uri)
        where, path = unquote(parts.netloc), unquote(parts.path.removeprefix("/"))
        if where and parts.scheme == "memory":
            return cls("memory", "", f"{where}/{path}" if path else where)
        if where and parts.scheme in ("board", "task") and path:
            return cls(parts.scheme, where, path)
        if where and parts.scheme == "run" and path in ("trace", "state", "view"):
            request = {name: values[0] for name, values in parse_qs(parts.query).items()}
            at = request.get("at") if path == "state" else None
            return cls(path, where, at=at, role=request.get("role") if path == "view" else None)
        if where and parts.scheme == "decision" and not path:
            return cls("decision", where)
        known = ", ".join(each.uri_template for each in TEMPLATES)
        raise BadValue(f"{uri!r:.200}", "is no address of a resource", f"there are {known}")


async def read(
    sessions: Sessions, uri: str, address: Address, request: str = "resources/read"
) -> Answer:
    """Read an address; return the content and the session in whose run the request is recorded.

    Raises NotOffered, and as the session's operations.
    """
    if address.kind == "view" and address.role is None:
        return await view_of(sessions, address.of, request, {"uri": uri})
    if address.kind in ("board", "task"):
        work = await sessions.to_read(address.of)
        if work is None:
            raise not_joined(address.of)
        async with sessions.at_work(work):
            if address.kind == "task":
                value = _task(address, await work.session.team.tasks())
            else:
                value = await work.session.board.entry(address.key)
        return Answer(msgspec.json.decode(await wire.encode_result(value)), work)
    if address.kind == "memory":
        work = await sessions.own()
        async with sessions.at_work(work):
            return Answer((await work.session.memory.entry(address.key)).text, work)
    reads = {"trace": _steps, "state": _state, "decision": _reason, "view": _seen_by}[address.kind]
    return await in_own_run(sessions, request, {"uri": uri}, lambda: reads(sessions, address))


def _task(address: Address, tasks: Sequence[TaskEntry]) -> TaskEntry:
    for each in tasks:
        if each.id == address.key:
            return each
    raise NotFound(f"task {address.key!r:.80}", "give the id of one that team_tasks lists")


async def _steps(sessions: Sessions, address: Address) -> Answer:
    workspace, run = _workspace(sessions), address.of
    position = await workspace.states.log.end(await workspace.points.up_to(run, None))
    history = await workspace.states.history(run, AtPosition(position))
    return Answer(lines(trace(run, history)), replayable=False, position=position)


async def _state(sessions: Sessions, address: Address) -> Answer:
    report = await state(_workspace(sessions), address.of, address.at, None)
    return Answer(lines(report), replayable=False, position=report.position)


async def _reason(sessions: Sessions, address: Address) -> Answer:
    report = await sessions.record.why(address.of)
    return Answer(lines(report), replayable=False, position=report.position)


async def _seen_by(sessions: Sessions, address: Address) -> Answer:
    await sessions.demand(permits.views(address.role or ""))
    shown = await sessions.record.roles.view(address.of, role=address.role)
    content = msgspec.json.decode(await wire.encode_result(shown))
    return Answer(content, replayable=False)


def _workspace(sessions: Sessions) -> Any:
    """Return the record's workspace. Raises NotOffered for a restricted agent."""
    if sessions.workspace is None:
        raise NotOffered("the whole of a run", "read run://RUN/view")
    return sessions.workspace


def mime_of(uri: str) -> str:
    """Return the MIME type of an address: JSON, or that of a file of memory."""
    if urlsplit(uri).scheme != "memory":
        return JSON
    return {"md": "text/markdown", "json": "application/json"}.get(
        uri.rpartition(".")[2], "text/plain"
    )


def _resource(uri: str, name: str, does: str) -> types.Resource:
    return types.Resource(uri=uri, name=name, description=does, mime_type=mime_of(uri))


async def list_files(sessions: Sessions) -> list[types.Resource]:
    """List the first files of the agent's memory, by path. Raises RoleRefused."""
    work = await sessions.own()
    async with sessions.at_work(work):
        paths = await work.session.memory.ls()
    return [
        _resource(f"memory://{quote(path)}", path, f"The file of memory {path}.")
        for path in paths[:FILES_MAX]
    ]


async def list_traces(sessions: Sessions) -> list[types.Resource]:
    """List the newest runs' traces.

    Raises NotOffered for a restricted agent, and RoleRefused if its role may not even request it.
    """

    async def reads() -> Answer:
        newest = (await sessions.record.runs())[:LISTED_MAX]
        content = [[run, life.workflow, life.status.value] for run, life in newest]
        return Answer(content, replayable=False)

    return [
        _resource(
            f"run://{quote(run, safe='')}/trace",
            f"{workflow} {run}",
            f"The steps of run {run} ({status}).",
        )
        for run, workflow, status in (
            await in_own_run(sessions, "resources/list", {}, reads)
        ).result
    ]


# Change notifications for watched addresses.
#
# For a trusted client the log is followed: each commit that concerns a watched address is a cue.
# For a restricted client its service is polled for the run as its role sees it, and a difference
# is a cue. A cue says only that an address changed; cues close together are merged. Nothing is
# sent about data that the client may not read, nor about reads by its own agent.

WATCHED_MAX = 100
"""Most subscriptions of one client, over all its connections."""

QUIET_S = 0.25
"""Pause after a cue, in seconds: changes in it become the next cue."""

REST = 4
"""Pause after a check as a multiple of its duration: checks take a fifth of the time."""

POLL_S_MIN, POLL_S_MAX, POLL_GROWTH = 2.0, 30.0, 1.5
"""Seconds between two polls: shortest, after a change; longest; and the growth."""

AGAIN_S = 5.0
"""Seconds after which following a log or checking an address is retried."""

LOOKED_AT = ("memory", "view")
"""Kinds of addresses that must be read to find out whether they changed."""

READING = frozenset({"board", "resource", "team", "view"})
"""Kinds of steps in which an agent reads the record, if their effects are `pure`."""

_log = logger(__name__)


class _Watched(msgspec.Struct):
    """A watched address: its session, number of holders, first position, and last state."""

    uri: str
    address: Address
    work: Any = None
    holders: int = 1
    since: int = 0
    seen: Any = None

    def concerns(self, stored: Stored) -> bool:
        """Return whether a commit may have changed the address."""
        run, stream = self.address.of, stored.stream
        if stored.position <= self.since:
            return False
        if self.address.kind == "memory":
            return isinstance(stream, WorkspaceStream) and stream.kind == MEMORY
        if self.address.key is not None:
            return stream == KeyStream(run, self.address.key)
        if isinstance(stream, WorkspaceStream):
            mine = self.work.session.engine.stream.role
            return self.address.kind == "view" and stream == WorkspaceStream(ROLE, mine)
        if run_of(stream) != run:
            return False
        if is_views(stream):
            return False
        own = isinstance(stream, AgentStream) and stream.agent == self.work.session.agent
        return not own or not all(_reads((e.type, e.data) for e in stored.commit.events))


class _Shown(msgspec.Struct, frozen=True):
    """The part of a run that a role is shown, and its label."""

    lines: list[Line]
    label: Label | None = None


def _reads(events: Iterable[tuple[str, msgspec.Raw]]) -> list[bool]:
    """Return for each of an agent's events whether it only records a read by the agent."""
    are_reads: list[bool] = []
    steps: set[object] = set()
    for tag, data in events:
        kind = tag.rpartition(".v")[0]
        reads = kind in ("tool.declared", "agent.session_began")
        if kind in ("step.requested", "step.completed", "step.failed"):
            event = msgspec.json.decode(data)
            if kind == "step.requested":
                reads = event.get("effects") == "pure" and event.get("kind") in READING
                steps |= {event.get("step")} if reads else set()
            else:
                reads = event.get("step") in steps
        are_reads.append(reads)
    return are_reads


class Updates:
    """Addresses that one client watches, over all its connections.

    The log is followed, or a restricted client's service is polled. `notify` is called with an
    address that should be read again.
    """

    def __init__(self, sessions: Sessions, notify: Callable[[str], Awaitable[None]]) -> None:
        self._sessions = sessions
        self._notify = notify
        self._watched: dict[str, _Watched] = {}
        self._changed: dict[str, None] = {}
        self._beginning = asyncio.Lock()
        self._cue = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def close(self) -> None:
        """Stop watching."""
        await asyncio.gather(*self._end(), return_exceptions=True)

    async def hold(self, uri: str) -> None:
        """Watch an address from now on.

        It is read once, so that a client that may not read it is refused in the same words. Raises
        BadValue, Refused, and as `resources.read`.
        """
        address = Address.read(uri)
        if not address.changes:
            known = ", ".join(each.uri_template for each in TEMPLATES if each.name not in FIXED)
            raise BadValue(f"{uri!r:.200}", "does not change", f"watch one of {known}")
        async with self._beginning:
            held = sum(each.holders for each in self._watched.values())
            if held >= WATCHED_MAX:
                message = (
                    f"this client holds {held} subscriptions, the most that one may: unsubscribe "
                    "from some, or from the keys of a run and watch run://RUN/trace"
                )
                raise Refused(message)
            if uri in self._watched:
                self._watched[uri].holders += 1
                return
            answer = await read(self._sessions, uri, address, "resources/subscribe")
            work = answer.work or await self._sessions.own()
            await self._watch(_Watched(uri, address, work))

    async def _watch(self, new: _Watched) -> None:
        workspace, uri = self._sessions.workspace, new.uri
        if workspace is not None:
            new.since = await workspace.log.head()
        if new.address.kind in LOOKED_AT or workspace is None:
            new.seen = await self._sight(new, {})
        self._watched[uri] = new
        if self._tasks:
            return
        works: list[Coroutine[Any, Any, None]] = (
            [self._asking()] if workspace is None else [self._following(new.since), self._telling()]
        )
        self._tasks = [asyncio.create_task(each) for each in works]

    def _end(self) -> list[asyncio.Task[None]]:
        ended, self._tasks = self._tasks, []
        for task in ended:
            task.cancel()
        return ended

    async def _following(self, after: int) -> None:
        """Note the commits of the log, until cancelled."""
        while True:
            try:
                following = self._sessions.workspace.log.follow(after)
                async with contextlib.aclosing(following) as commits:
                    async for stored in commits:
                        after = stored.position
                        self._note(stored)
            except Exception as error:  # noqa: BLE001 -- keep following after any error
                _log.warning("cannot follow the log", again_s=AGAIN_S, **unexpected(error))
            await asyncio.sleep(AGAIN_S)

    async def _telling(self) -> None:
        """Send changes, with pauses, until cancelled."""
        while True:
            await self._cue.wait()
            self._cue.clear()
            began_s = time.monotonic()
            await self._tell()
            await asyncio.sleep(max(QUIET_S, REST * (time.monotonic() - began_s)))

    def release(self, uri: str) -> None:
        """Stop watching an address for one holder."""
        each = self._watched.get(uri)
        if each is None:
            return
        each.holders -= 1
        if not each.holders:
            del self._watched[uri]
            self._changed.pop(uri, None)
        if not self._watched:
            self._end()

    # ------------------------------------------------------------ watching

    def _again(self) -> None:
        """Schedule another check, after a request without an answer."""
        asyncio.get_running_loop().call_later(AGAIN_S, self._cue.set)

    def _note(self, stored: Stored) -> None:
        self._changes(each for each in self._watched.values() if each.concerns(stored))

    def _changes(self, changed: Iterable[_Watched]) -> None:
        for each in changed:
            self._changed[each.uri] = None
            self._cue.set()

    async def _asking(self) -> None:
        """Poll a restricted client's service, until cancelled."""
        pause_s = POLL_S_MIN
        while True:
            before = len(self._watched)
            await asyncio.sleep(pause_s)
            self._changes(self._watched.values())
            changed = await self._tell()
            quiet = not changed and len(self._watched) <= before
            pause_s = min(pause_s * POLL_GROWTH, POLL_S_MAX) if quiet else POLL_S_MIN

    async def _tell(self) -> int:
        """Notify of each address that changed and may be read; return how many."""
        changed, self._changed = self._changed, {}
        known: dict[str, _Shown] = {}
        count = 0
        for each in [self._watched[uri] for uri in changed if uri in self._watched]:
            try:
                news = await self._is_news(each, known)
            except HansardError as error:  # refused or unreachable: no notification
                _log.debug("cannot check a watched address", **unexpected(error))
                if isinstance(error, BusError) and not isinstance(error, NotFound):
                    self._changed[each.uri] = None  # the broker has not answered: retry
                    self._again()
                continue
            except Exception as error:  # noqa: BLE001 -- the other addresses are still checked
                _log.warning("cannot check a watched address", **unexpected(error))
                continue
            if news and each.uri in self._watched:
                count += 1
                await self._notify(each.uri)
        return count

    async def _is_news(self, each: _Watched, known: dict[str, _Shown]) -> bool:
        """Return whether an address changed in a way that the client may know."""
        if each.address.kind in LOOKED_AT or self._sessions.workspace is None:
            before, each.seen = each.seen, await self._sight(each, known)
            is_mine = each.address.kind == "view" and self._sessions.workspace is not None
            if is_mine and each.seen != before:
                each.work.session.engine.ledger.shown(known[each.address.of].label)
            return bool(each.seen != before)
        if each.address.key is None:
            return True
        engine = each.work.session.engine
        permit = await permits.read(self._sessions.workspace, engine.stream.role)
        permit.demand(permits.reads(each.address.key))
        state = await engine.boards.state(KeyStream(each.address.of, each.address.key))
        cleared = state.label is None or state.label.flows_to(await engine.clearances.own())
        if cleared:
            engine.ledger.shown(state.label)  # the notification itself reveals it
        return cleared

    async def _sight(self, each: _Watched, known: dict[str, _Shown]) -> Any:
        """Return what the role sees at an address, without reads of its own agent."""
        if each.address.kind == "memory":
            return await self._file(each)
        run = each.address.of
        if run not in known:
            known[run] = await self._shown(each)
        lines = known[run].lines
        digest = hashlib.sha256()
        mine = [one for _, one in lines if one.agent == each.work.session.agent]
        reads = _reads((one.type, one.data) for one in mine)
        passed = {one.id for one, is_reading in zip(mine, reads, strict=True) if is_reading}
        for _, one in lines:
            concerned = each.address.key is None or each.address.key == one.key
            if concerned and one.id not in passed and not one.type.startswith("view."):
                digest.update(one.id.encode() + b"\0" + bytes(one.data) + b"\0")
        return digest.digest()

    async def _file(self, each: _Watched) -> bytes:
        """Return the space and digest of a file of memory; empty if it does not exist."""
        each.work = await self._sessions.of(each.work.session.run)
        async with self._sessions.at_work(each.work):
            try:
                file = await each.work.session.memory.entry(each.address.key)
            except NotFound:
                return b""
        return f"{file.space} {file.digest}".encode()

    async def _shown(self, each: _Watched) -> _Shown:
        """Return the part of a run that the role is shown."""
        if self._sessions.workspace is None:
            return _Shown((await self._sessions.record.roles.view(each.address.of)).events)
        role = each.work.session.engine.stream.role
        derived = await roles.derive(self._sessions.workspace.states, role, each.address.of)
        return _Shown(derived.view.events, derived.label)
