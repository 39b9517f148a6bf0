"""Changes of a space: by a step of a session (`MemoryWrite`), and without one (`MemoryStore`).

The first is appended together with the outcome of its step. The second reads, changes and undoes as
`hansard memory` does: no approval is requested; all checks apply. An untrusted caller has a
`VisibilityFilter`: it reads what its role may see, and makes the changes that its role may make
without approval.

Long because both writers share the checks of a change.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.errors import Blocked
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, apply_ops, problems_of_change
from hansard.agents.memory.reading import (
    EVERYTHING,
    MemoryEntry,
    MemoryVersion,
    VisibilityFilter,
    entry_of,
    files_of,
    patch_of,
    undo_of,
)
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.payloads import Reader
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import guard_secrets
from hansard.agents.workspace import Workspace
from hansard.bus.commits import drive_fetch, record
from hansard.bus.errors import BusError, NotFound, TooLarge
from hansard.bus.log import Append, Blobs, Stored
from hansard.bus.loggers import logger
from hansard.domain import ids
from hansard.domain.agent import AgentState
from hansard.domain.choices import Brief, counted
from hansard.domain.decider import fold
from hansard.domain.errors import BadValue, HansardError, Refused
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label, join
from hansard.domain.memory import files as paths
from hansard.domain.memory import space as spaces
from hansard.domain.memory.files import (
    FileChange,
    MemoryChanged,
    MemoryEvent,
    MemoryPolicySet,
    MemoryReflected,
    MemoryRejected,
    Problem,
    space_name,
    stream_of,
)
from hansard.domain.memory.lines import blame
from hansard.domain.memory.space import (
    PROBLEMS_MAX,
    MemoryConflict,
    MemoryFile,
    MemoryInvalid,
    MemoryState,
)
from hansard.domain.payload import Fetch
from hansard.domain.redaction import check_names
from hansard.domain.steps import StepCompleted, StepStatus
from hansard.domain.values import Scrub
from hansard.state.memories import Memories, MemoryEventAt
from hansard.state.repository import retry

# Recorded tools of the MCP servers that a `tools.json` names: the newest list that the proxy, or an
# agent defined by a folder, received from a server of that address.

FILE = "tools.json"
"""Name of the file that lists tools."""

LABEL = "mcp_server"
"""Name of the label of runs that called an MCP server; its value is the host and port of the
address.
"""

LISTED = "mcp:tools/list"
"""Tool of the step that lists a server's tools."""

RUNS_MAX = 20
"""Most runs of a server that are searched for a list, newest first; older lists are ignored."""

_URL = re.compile(r"https?://(?:[^/@]*@)?(?P<host>[^/?#]+)")
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")


def host_of(url: str) -> str:
    """Return the host and port of a server's address; empty if it has none."""
    match = _URL.match(url)
    return match["host"] if match is not None else ""


async def tools_on_record(workspace: Workspace, texts: Iterable[str]) -> dict[str, set[str]]:
    """Return the recorded tools of each server named in some `tools.json`, by its address. Servers
    without a complete record are omitted.
    """
    tools_by_url: dict[str, set[str]] = {}
    for url in dict.fromkeys(url for text in texts for url in _urls(text)):
        names = await _recorded_tools(workspace, url)
        if names:
            tools_by_url[url] = names
    return tools_by_url


def _urls(text: str) -> list[str]:
    """Return the addresses that a file names; none for an invalid file, which is reported
    elsewhere.
    """
    try:
        tools = json.loads(text)["tools"]
        return [str(tool["mcp_server_url"]) for tool in tools]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []


async def _recorded_tools(workspace: Workspace, url: str) -> set[str]:
    host = host_of(url)
    runs = await workspace.runs() if host else []
    question = [run for run, life in runs if host in str(life.labels.get(LABEL, "")).split()]
    for run in question[:RUNS_MAX]:
        view = await workspace.states.run(run)
        for state in view.agents.values():
            if names := await _newest_tools(workspace.blobs, state, url):
                return names
    return set()


async def _newest_tools(blobs: Blobs, state: AgentState, url: str) -> set[str]:
    """Return the tools of the newest list recorded by an agent, all pages together; none if that
    list is incomplete.
    """
    reader = Reader(lambda: state)
    tools: set[str] = set()
    is_last = True
    for step in sorted(state.steps.values(), key=lambda each: -each.number):
        if step.tool != LISTED or step.status is not StepStatus.COMPLETED:
            continue
        request = await _fetched(blobs, reader.arguments(step))
        if request.get("url", url) != url:
            continue
        reply = await _fetched(blobs, reader.result(step))
        if is_last and isinstance(reply, Mapping) and reply.get("nextCursor"):
            return set()
        is_last = False
        tools |= _names(reply)
        if not request.get("cursor"):
            return tools
    return set()


def _names(plain: Any) -> set[str]:
    tools = plain.get("tools", []) if isinstance(plain, Mapping) else plain
    names = [each.get("name") for each in tools if isinstance(each, Mapping)]
    return {name for name in names if isinstance(name, str) and _NAME.fullmatch(name)}


async def _fetched(blobs: Blobs, fetch: Fetch) -> Any:
    try:
        return await drive_fetch(fetch, blobs.get)
    except NotFound:  # the blob was erased
        return {}


FOR_THE_MODEL = (BadValue, Blocked, MemoryConflict, MemoryInvalid, NotFound)
"""Errors that a model using memory can act on. Any other error ends its run."""

RULE = "memory"
"""Rule recorded for a change that is refused without a request for approval."""


class ChangeRequest(msgspec.Struct, frozen=True):
    """A requested change.

    Attributes:
        space: Name of the space.
        ops: Operations, in order (`hansard.agents.memory.drafts`).
        because: Reason.
        sources: Ids of the events that it rests on.
        seen: Digests of the files as their writer read them, by path; None skips the check.
    """

    space: str
    ops: Sequence[Op]
    because: str = ""
    sources: tuple[str, ...] = ()
    seen: Mapping[str, str] | None = None


Validate = Callable[[MemoryState, Sequence[str]], list[Problem]]
"""Return the problems of the changed files in the state after a change."""


def pack(changes: Sequence[FileChange]) -> tuple[tuple[FileChange, ...], list[bytes]]:
    """Return the files of a change as recorded, and their blobs: large edits, and the largest ones
    of a change that is large in total.
    """
    raws = {change.path: msgspec.json.decode(change.edit) for change in changes}
    made = payloads.pack_arguments(raws)
    edits = msgspec.json.decode(made.raw, type=dict[str, msgspec.Raw])
    files = tuple(msgspec.structs.replace(each, edit=edits[each.path]) for each in changes)
    return files, made.blobs


async def with_stored_blobs(blobs: Blobs, change: MemoryChanged) -> MemoryChanged:
    """Return a change as it is recorded, after storing its blobs."""
    files, parts = pack(change.files)
    for part in parts:
        await blobs.put(part)
    return msgspec.structs.replace(change, files=files)


async def validator(
    workspace: Workspace, state: MemoryState, changes: Sequence[FileChange]
) -> Validate:
    """Return the check of the files after a change; a `tools.json` is also checked against the
    record of the servers that it names.
    """
    named = [
        (each, state.files.get(each.was or each.path) if each.before else None)
        for each in changes
        if each.after and not each.link and each.path.rpartition("/")[2] == FILE
    ]
    await workspace.memories.load(previous for _, previous in named)
    texts = [spaces.text_after(*each) for each in named]
    offered = await tools_on_record(workspace, texts) if texts else None
    return functools.partial(problems_of_change, offered=offered)


async def check_change(
    workspace: Workspace,
    sight: VisibilityFilter,
    name: str,
    whole: MemoryState,
    command: MemoryChanged,
    refusals: int,
    scrub: Scrub | None = None,
    validate: Validate | None = problems_of_change,
) -> Sequence[MemoryEvent]:
    """Return the events of a change, after every check; none if it changes nothing.

    An agent, or another writer of limited sight, may write no settings of a harness.

    For a conflict with a file that a limited writer does not see, the error reveals only that there
    is one.

    Args:
        workspace: The workspace, for the recorded tools of MCP servers.
        sight: Filter of what the writer sees of the space.
        name: Name of the space.
        whole: State of the space.
        command: The change.
        refusals: Number of preceding refusals in a row of this writer.
        scrub: Redaction of the workspace: a file with a secret is refused.
        validate: Check of the files; None for no check.

    Raises MemoryConflict, BadValue; MemoryInvalid for a file that is invalid or holds a secret.
    """
    state = await sight.of(name, whole)
    using = workspace.memories.using
    await workspace.memories.load(
        state.files.get(each.was or each.path) for each in command.files if each.after
    )
    if validate is problems_of_change and not sight.is_limited:
        # A list of all recorded tools would reveal the calls of other runs to a limited role.
        validate = await validator(workspace, state, command.files)
    named = [path for each in command.files for path in (each.path, each.was)]
    check_names("memory", {"path": named}, scrub)
    changed = [each.path for each in command.files if each.after]
    if (command.run or sight.is_limited) and (bad := list(_settings(changed))):
        raise MemoryInvalid(name, bad, refusals + 1)
    events = await using(functools.partial(spaces.decide, name, state, command))
    if events and validate is not None:
        after = fold(state, events)
        hidden = [
            each for path in changed for each in secrets(path, _legible(after.files[path]), scrub)
        ]
        bad = [*hidden, *await using(functools.partial(validate, after, changed))]
        if bad:
            raise MemoryInvalid(name, bad[:PROBLEMS_MAX], refusals + 1)
    if events and whole is not state:
        try:
            await using(functools.partial(spaces.decide, name, whole, command))
        except (BadValue, MemoryConflict):
            fact = "its files cannot stand there so"
            raise BadValue(f"change of {name}", fact, "use other paths, or less text") from None
    return events


def _settings(changed: Iterable[str]) -> Iterator[Problem]:
    """Yield the files that configure a harness, which no agent may write."""
    allowed = "another path: a person writes what configures a harness ('hansard memory import')"
    return (
        Problem(path, 0, "path.settings", "", allowed)
        for path in changed
        if paths.configures_harness(path)
    )


def _legible(file: MemoryFile) -> str:
    """Return a file's text; of a binary file each byte as a character."""
    return file.content.decode("latin-1") if file.binary else file.text


def secrets(path: str, text: str, scrub: Scrub | None) -> list[Problem]:
    """Return the places where a text would hold a secret; the secret itself is never returned."""
    if scrub is None or scrub(text) == text:
        return []
    hits = [number for number, line in enumerate(text.split("\n"), 1) if scrub(line) != line]
    allowed = "no secret: memory outlives the run; have a tool ask for it"
    return [Problem(path, line, "memory.secret", "", allowed) for line in hits[:1] or [0]]


class MemoryWrite(JointWrite):
    """Joint write of a change of a space, or of its refusal. `frozen`: the approved change, which
    is made exactly as approved or not at all. `trouble`: an error that already prevents the change.
    """

    is_caused = True

    def __init__(
        self,
        engine: StepEngine,
        call: Call,
        request: ChangeRequest,
        sight: VisibilityFilter,
        frozen: tuple[FileChange, ...] | None,
        trouble: Exception | None = None,
        now: int | None = None,
    ) -> None:
        super().__init__(engine, call)
        self._policy_at = now
        self._engine = engine
        self._memories = engine.workspace.memories
        self._request = request
        self._sight = sight
        self._frozen = frozen
        self._trouble = trouble
        self._stream = stream_of(request.space)

    def _streams(self) -> list[WorkspaceStream]:
        return [self._stream]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        state = await self._memories.state(self._request.space)
        if self._trouble is not None:
            return await self._failed_outcome(state, self._trouble)
        try:
            outcome, event = await self._change_and_step(state)
        except HansardError as error:
            return await self._failed_outcome(state, error)
        events = [record(event, self._clock.new_id())] if event is not None else []
        return outcome, [Draft(self._stream, state.version, events)]

    async def _change_and_step(
        self, state: MemoryState
    ) -> tuple[StepCompleted, MemoryChanged | None]:
        """Return the change on the current space as the agent's role sees it, with its step."""
        plan = self._request
        seen = await self._sight.of(plan.space, state)
        changes = self._frozen
        if changes is None:
            first = [seen.file_or_none(path) for path in drafts.touched_paths(plan.ops)]
            work = functools.partial(apply_ops, plan.space, seen, plan.ops, plan.seen)
            changes = await self._memories.using(work, first)
            self._demand_no_approval(state, changes)
        self._sight.demand_changes(plan.space, changes)
        change = MemoryChanged(
            files=changes,
            because=plan.because,
            sources=plan.sources,
            role=self._agent.role,
            run=self._agent.run,
            step=self._call.number,
        )
        events = await check_change(
            self._engine.workspace,
            self._sight,
            plan.space,
            state,
            change,
            state.refusals(self._agent.agent, self._agent.run),
            self._scrub,
        )
        made = change if events else None
        value = _outcome_of(plan.space, state, made)
        if self._sight.is_limited:  # hides how much others wrote
            value["version"] = 0
        outcome = await self._completed(value)
        return outcome, await with_stored_blobs(self._blobs, change) if made is not None else None

    async def _failed_outcome(
        self, state: MemoryState, error: Exception
    ) -> tuple[Outcome, list[Draft]]:
        """Return the outcome of a step whose change failed; a refusal is also recorded in the
        space.
        """
        if isinstance(error, MemoryConflict):
            return await self._conflict_outcome(state, error), []
        if not isinstance(error, MemoryInvalid):
            return self._failed(error), []
        event = MemoryRejected(
            problems=tuple(error.problems),
            because=self._request.because,
            role=self._agent.role,
            run=self._agent.run,
            step=self._call.number,
        )
        draft = Draft(self._stream, state.version, [record(event, self._clock.new_id())])
        return self._failed(error), [draft]

    def _demand_no_approval(self, state: MemoryState, changes: Sequence[FileChange]) -> None:
        """Raise Blocked if the space's policy has just begun to require approval of the change."""
        changed = [path for each in changes for path in (each.path, each.was) if path]
        if changes and state.asks(self._policy_at, self.label, changed):
            reason = f"changes of {self._request.space} need approval since a moment ago"
            raise Blocked(RULE, f"{reason}; try again", self._call.spec.name)

    async def _conflict_outcome(self, state: MemoryState, error: MemoryConflict) -> Outcome:
        """Return the outcome of a conflict; the text of other writers is included only for a
        cleared role.
        """
        previous = state.files.get(str(error.path))
        label = previous.label if previous is not None else None
        try:
            what = f"file {error.path!r:.200} of {self._request.space}"
            await self._clearances.demand(label, what, self._call.spec.name)
        except Blocked as blocked:
            return self._failed(blocked)
        self.shown = join(self.shown, label)
        if previous is not None and self._sight.is_limited:  # hides how much others wrote
            previous = msgspec.structs.replace(previous, version=0)
            fields = (str(error.path), str(error.expected), str(error.mine))
            error = MemoryConflict(self._request.space, *fields, previous)
        return self._failed(error)


def _outcome_of(name: str, state: MemoryState, change: MemoryChanged | None) -> dict[str, object]:
    """Return the outcome of a write, as recorded in its step."""
    files = [
        {"path": each.path, "op": each.op.value, "before": each.before, "digest": each.after}
        for each in (change.files if change is not None else ())
    ]
    version = state.version + 1 if change is not None else state.version
    return {"space": name, "version": version, "files": files}


FLUSH_S = 60.0
"""Default timeout of `flush`, in seconds."""

QUEUED_MAX = 1_000
"""Most queued changes of a space."""

RETRY_S = 1.0
"""Wait between two attempts to send a queued change while the log is unreachable, in seconds."""

TRIES_MAX = 1_000
"""Most lost races of one change; each one means that another writer succeeded."""

_log = logger(__name__)

Decide = Callable[[MemoryState], Awaitable[Commit | None]]


class BlamedLine(Brief, msgspec.Struct, frozen=True):
    """A line of a file, and the change that added it.

    Attributes:
        line: Number, from 1.
        text: The line, without its end.
        version: Version of the space that added it.
        author: Author; of an imported change the author that its source claims.
        at: Time by the log, or as the source of an imported change claims: ISO 8601.
        event: Id of the change.
        because: Reason.
    """

    line: int
    text: str
    version: int
    author: str
    at: str
    event: str
    because: str


@guard_secrets("memory")
class MemoryStore:
    """One space of a workspace. All methods except `cached` and `known` run on the bus's loop."""

    def __init__(
        self,
        workspace: Workspace,
        space: str,
        *,
        validate: Validate | None = problems_of_change,
        sight: VisibilityFilter = EVERYTHING,
    ) -> None:
        self._sight = sight
        self.space = space_name(space)
        self._workspace = workspace
        self._memories: Memories = workspace.memories
        self._validate = validate
        self._redaction = workspace.redaction

    # ------------------------------------------------------------ reads

    def cached(self, path: str) -> MemoryEntry | None:
        """Return a file of a followed space from memory, in any thread; None if only the log has
        it.
        """
        state = self.known()
        file = state.files.get(path) if state is not None else None
        return entry_of(self.space, file) if file is not None and not file.link else None

    def known(self) -> MemoryState | None:
        """Return the state of a followed space as read from the log; None if it is not followed. In
        any thread.
        """
        return self._memories.known(self.space)

    def queued(self) -> QueuedStore:
        """Return the same space with a queue: changes are sent in the background until the
        workspace is closed.
        """
        made = QueuedStore(self._workspace, self.space, validate=self._validate, sight=self._sight)
        self._workspace.closing.append(made.close)
        return made

    @property
    def pending(self) -> int:
        """Number of changes not yet in the log: always 0."""
        return 0

    async def flush(self, timeout_s: float = 0.0) -> None:
        """Return at once: each change is in the log when its call returns."""

    async def _history(self) -> list[MemoryEventAt]:
        return await self._memories.history(self.space)

    async def follow(self) -> None:
        """Keep the space's state in memory up to date with the log."""
        await self._memories.follow([self.space])

    async def state(self, at: object = None) -> MemoryState:
        """Return the space now or at a point; the caller loads the texts. Raises BadName,
        NotFound.
        """
        return await self._sight.at(self._memories, self.space, at)

    async def whole(self, at: object = None) -> MemoryState:
        """Return the state with the texts of all files; otherwise as `state`."""
        state = await self.state(at)
        await self._memories.load(state.files.values())
        return state

    async def entry(self, path: str, at: object = None) -> MemoryEntry:
        """Return a file. Raises NotFound, BadValue."""
        named = paths.normal(path)
        file = (await self.state(at)).file(named)
        if file is None:
            where = f"file {named!r} of {self.space}{f' at {at}' if at is not None else ''}"
            raise NotFound(where, "see 'hansard memory ls'")
        await self._memories.load([file])
        return self._entry(file)

    def _entry(self, file: MemoryFile) -> MemoryEntry:
        entry = entry_of(self.space, file)
        return msgspec.structs.replace(entry, version=0) if self._sight.is_limited else entry

    async def entries(self, at: object = None) -> list[MemoryEntry]:
        """Return all files, by path; a link's text is its target."""
        files = (await self.whole(at)).files
        return [self._entry(files[path]) for path in sorted(files)]

    async def paths(self) -> list[str]:
        """Return the paths of all files, sorted; reads no text."""
        return sorted((await self.state()).files)

    async def versions(self, path: str | None = None) -> list[MemoryVersion]:
        """Return the versions of a file, or the changes of all files, oldest first."""
        named = paths.normal(path) if path is not None else None
        history = await self._history()
        return (await self._sight.versions(self.space, history, named))[0]

    async def diff(
        self, path: str | None, before: object, after: object = None, *, binary: bool = False
    ) -> str:
        """Return the difference of a file, or of all files, between two points as `git apply` reads
        it; of binary files only that there is one, unless `binary` is set.
        """
        old, new = await self.state(before), await self.state(after)
        targets = [paths.normal(path)] if path else sorted({*old.files, *new.files})
        parts: list[str] = []
        for each in targets:
            one, other = old.files.get(each), new.files.get(each)
            if (one and one.digest) != (other and other.digest):
                await self._memories.load([one, other])
                parts.append(patch_of(each, one, other, binary=binary))
        return "".join(parts)

    async def label(self) -> Label | None:
        """Return the label of all that this reader may see of the space's changes."""
        history = await self._history()
        shown = await self._sight.history(self.space, history)
        return join(*(each.stored.commit.label for each in shown)).stored

    async def blame(self, path: str, at: object = None) -> list[BlamedLine]:
        """Return each line of a file with the change that added it, now or at a point; of a binary
        file one line with its size and the newest change. Raises NotFound.
        """
        entry, end = await self.entry(path, at), (await self.state(at)).version
        history = [each for each in await self._history() if each.version <= end]
        shown = await self._sight.history(self.space, history)
        versions = files_of(history, entry.path, shown)
        await self._memories.load(file for _, file in versions)
        if entry.binary:
            versions = versions[-1:]
        texts = [(change, file.shown if file is not None else "") for change, file in versions]
        blamed: list[BlamedLine] = []
        for number, (change, line) in enumerate(blame(texts), 1):
            event = change.event
            blamed.append(
                BlamedLine(
                    line=number,
                    text=line.removesuffix("\n"),
                    version=0 if self._sight.is_limited else change.version,
                    author=change.author,
                    at=change.at,
                    event=change.id,
                    because=event.because if isinstance(event, MemoryChanged) else "",
                )
            )
        return blamed

    # ------------------------------------------------------------ changes

    async def change(
        self,
        ops: Sequence[Op],
        by: str | Actor,
        reason: str = "",
        sources: Sequence[str] = (),
        *,
        seen: dict[str, str] | None = None,
        label: Label | None = None,
        commit: str = "",
    ) -> int:
        """Make a change; return the resulting version of the space. commit: id of its commit, if
        given.

        Raises NotFound, BadValue, MemoryConflict; MemoryInvalid, after recording the refusal.
        """

        def changes(state: MemoryState) -> Sequence[FileChange]:
            return apply_ops(self.space, state, ops, seen)

        touched = drafts.touched_paths(ops)
        return await self.change_files(
            changes, touched, by, reason, sources, label=label, commit=commit
        )

    async def has(self, commit: str) -> bool:
        """Return whether the space holds a commit with this id."""
        stored = await self._workspace.log.read(stream_of(self.space))
        return any(each.commit.id == commit for each in stored)

    async def change_files(
        self,
        changes: Callable[[MemoryState], Sequence[FileChange]],
        touched: Iterable[str],
        by: str | Actor,
        reason: str = "",
        sources: Sequence[str] = (),
        *,
        label: Label | None = None,
        occurred_at: str | None = None,
        commit: str = "",
    ) -> int:
        """Make the change computed from the current space, computed again after each lost race;
        return the resulting version of the space. `touched`: paths whose texts are needed.
        `occurred_at`: time of the original change as claimed (ISO 8601). `commit`: id of its
        commit, if given.

        Raises the errors of `changes`, BadValue, MemoryConflict; MemoryInvalid, after recording the
        refusal.
        """
        actor = Actor.of(by)
        ids.name("by", actor.agent)
        paths_touched = list(touched)

        async def decide(state: MemoryState) -> Commit | None:
            seen = await self._sight.of(self.space, state)
            first = [seen.file_or_none(path) for path in paths_touched]
            files = tuple(await self._memories.using(lambda: changes(seen), first))
            self._sight.demand_changes(self.space, files)
            command = MemoryChanged(files=files, because=reason, sources=tuple(sources))
            events = await check_change(
                self._workspace,
                self._sight,
                self.space,
                state,
                command,
                state.refusals(actor.agent, ""),
                self._redaction,
                self._validate,
            )
            if not events:
                return None
            await self._demand_no_approval(state, files, label)
            made = await with_stored_blobs(self._workspace.blobs, command)
            built = self._commit(state, actor, made, label)
            events_at = tuple(
                msgspec.structs.replace(each, occurred_at=occurred_at) for each in built.events
            )
            return msgspec.structs.replace(built, id=commit or built.id, events=events_at)

        try:
            await self._append_decided(decide)
        except MemoryInvalid as error:
            event = MemoryRejected(problems=tuple(error.problems), because=reason)

            async def refuse(state: MemoryState) -> Commit:
                return self._commit(state, actor, event, label)

            await self._append_decided(refuse)
            raise
        return (await self._memories.state(self.space)).version

    async def revert(self, change: str, by: str | Actor, reason: str = "") -> int:
        """Undo a change, named by its version ('@3') or the id of its event or commit, under the
        label of the restored texts; return the resulting version of the space. Raises NotFound, and
        MemoryConflict if a file was changed since or meanwhile.
        """
        history = await self._history()
        await self._sight.demand_whole(self.space, history, change)
        undo = undo_of(self.space, history, change)
        await self._sight.demand_returned(self.space, change, undo.label)
        state = await self.state()
        return await self.change(
            await self._memories.using(lambda: undo.ops(state), undo.read),
            by,
            reason or f"revert of {change}",
            seen={path: file.digest for path, file in state.files.items()},
            label=undo.label,
        )

    async def remember(self, text: str, by: str, path: str, sources: Sequence[str] = ()) -> int:
        """Append an item to a file's list; return the resulting version of the space."""
        return await self.change([drafts.remember(path, text)], by, "to be remembered", sources)

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool:
        """Set whether changes need approval; return False if that was already set. Raises
        BadValue.
        """
        return await self.record(policy, by)

    async def record(
        self, event: MemoryPolicySet | MemoryReflected, by: str, label: Label | None = None
    ) -> bool:
        """Append an event that changes no file; return False if it says nothing new. Raises
        BadValue, Refused.
        """
        ids.name("by", by)

        async def decide(state: MemoryState) -> Commit | None:
            events = spaces.decide(self.space, state, event)
            return self._commit(state, Actor(by), event, label) if events else None

        return await self._append_decided(decide) is not None

    async def _demand_no_approval(
        self, state: MemoryState, files: Sequence[FileChange], label: Label | None
    ) -> None:
        """Raise Blocked if an untrusted caller's change needs approval."""
        if not self._sight.is_limited:
            return
        head = await self._workspace.log.at(await self._workspace.log.head())
        changed = [path for each in files for path in (each.path, each.was) if path]
        if state.asks(head.stamp, join(self._sight.label(), label), changed):
            reason = (
                f"changes of {self.space} need approval: make it in a session, which requests it"
            )
            raise Blocked("memory", reason, "record.memory")

    def _commit(
        self, state: MemoryState, actor: Actor, event: MemoryEvent, label: Label | None
    ) -> Commit:
        return self._workspace.commit(state.version + 1, actor, [event], label=label)

    async def _append_decided(self, decide: Decide) -> Stored | None:
        """Append the decision on the current space; decide again after each lost race."""

        async def attempt() -> Stored | None:
            commit = await decide(await self._memories.state(self.space))
            if commit is None:
                return None
            return await self._workspace.log.append(Append(stream_of(self.space), commit))

        return await retry(attempt, TRIES_MAX)


class _Queued(msgspec.Struct, frozen=True):
    """A queued change: the arguments of `change`, and the id of its commit."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]


class QueuedStore(MemoryStore):
    """A space whose changes are sent in the background, in order, one commit each. `flush` waits
    for their acks; changes not sent when the process is killed are lost. A read waits for the
    changes queued before it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._queue: deque[_Queued] = deque()
        self._failures: list[HansardError] = []
        self._news, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._send_all())

    @property
    def pending(self) -> int:
        """Number of changes not yet in the log."""
        return len(self._queue)

    def known(self) -> MemoryState | None:
        """Return the state as the base class does; None while changes are pending."""
        return None if self._queue else super().known()

    async def state(self, at: object = None) -> MemoryState:
        """Return the space after all queued changes are sent."""
        await self._idle.wait()
        return await super().state(at)

    async def _history(self) -> list[MemoryEventAt]:
        await self._idle.wait()
        return await super()._history()

    async def change(self, ops: Sequence[Op], by: str | Actor, *args: Any, **options: Any) -> int:
        """Queue a change; return 0, since its version is not known yet. Raises BadName, and
        BadValue if QUEUED_MAX changes are pending.
        """
        ids.name("by", Actor.of(by).agent)
        if len(self._queue) >= QUEUED_MAX:
            fact = f"{counted(len(self._queue), 'change')} wait for the log"
            raise BadValue(f"change of {self.space}", fact, "flush() first")
        options = {"commit": self._workspace.clock.new_id(), **options}
        self._queue.append(_Queued((list(ops), by, *args), options))
        self._idle.clear()
        self._news.set()
        return 0

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool:
        """Set the policy after all queued changes are sent."""
        await self._idle.wait()
        return await super().set_policy(policy, by)

    async def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until the log has every change that could be made. Raises BusError after `timeout_s`
        seconds; Refused for each change that could not be made, once.
        """
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            waits = f"{counted(self.pending, 'change')} of {self.space} not in the log"
            message = f"{waits} after {timeout_s:g} s; try again"
            raise BusError(message) from None
        failures, self._failures = self._failures, []
        if failures:
            fact = f"{counted(len(failures), 'queued change')} of {self.space} could not be made"
            message = f"{fact}: view the files and decide again; the first: {failures[0]}"
            raise Refused(message) from failures[0]

    async def close(self) -> None:
        """Send all queued changes and stop; those that could not be sent are logged."""
        try:
            await self.flush()
        except HansardError as error:
            _log.error("changes of memory are lost", space=self.space, why=str(error))
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _send_all(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue:
                try:
                    await self._send(self._queue[0])
                except HansardError as error:
                    self._failures.append(error)
                self._queue.popleft()
            self._idle.set()

    async def _send(self, queued: _Queued) -> None:
        """Retry until the log has the change or it cannot be made. Raises the reason why it
        cannot.
        """
        in_doubt = False
        while True:
            try:
                if not (in_doubt and await self.has(queued.options["commit"])):
                    await super().change(*queued.arguments, **queued.options)
            except (NotFound, TooLarge):
                raise
            except BusError:  # unreachable, or in doubt whether it was stored
                in_doubt = True
                await asyncio.sleep(RETRY_S)
            else:
                return
