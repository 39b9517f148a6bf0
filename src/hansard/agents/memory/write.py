"""A change of memory: the space's commit, appended together with the step's outcome."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.errors import Blocked
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, apply_ops
from hansard.agents.memory.sight import VisibilityFilter
from hansard.agents.memory.validation.tree import problems_of_change
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.payloads import Reader
from hansard.agents.steps.recorder import Call
from hansard.agents.workspace import Workspace
from hansard.bus.commits import drive_fetch, record
from hansard.bus.errors import NotFound
from hansard.bus.log import Blobs
from hansard.domain.agent import AgentState
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import join
from hansard.domain.memory import paths
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import (
    FileChange,
    MemoryChanged,
    MemoryEvent,
    MemoryRejected,
    Problem,
    stream_of,
)
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
    found = _URL.match(url)
    return found["host"] if found is not None else ""


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


def find_problems(
    state: MemoryState,
    changed: Sequence[str],
    offered: Mapping[str, Collection[str]] | None = None,
) -> list[Problem]:
    """Return the problems of the files after a change: see `hansard.agents.memory.validation`.
    `offered`: the recorded tools of MCP servers.
    """
    return problems_of_change(state, changed, offered)


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
    return functools.partial(find_problems, offered=offered)


async def check_change(
    workspace: Workspace,
    sight: VisibilityFilter,
    name: str,
    whole: MemoryState,
    command: MemoryChanged,
    refusals: int,
    scrub: Scrub | None = None,
    validate: Validate | None = find_problems,
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
    if validate is find_problems and not sight.is_limited:
        # A list of all recorded tools would reveal the calls of other runs to a limited role.
        validate = await validator(workspace, state, command.files)
    named = [path for each in command.files for path in (each.path, each.was)]
    check_names("memory", {"path": named}, scrub)
    changed = [each.path for each in command.files if each.after]
    if (command.run or sight.is_limited) and (bad := list(_settings(changed))):
        raise MemoryInvalid(name, bad, refusals + 1)
    events = await using(functools.partial(spaces.decide, name, state, command))
    if events and validate is not None:
        after = spaces.fold(state, events)
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
        return outcome, await self._with_stored_blobs(change) if made is not None else None

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

    async def _with_stored_blobs(self, change: MemoryChanged) -> MemoryChanged:
        """Return a change as it is recorded, after storing its blobs."""
        files, blobs = pack(change.files)
        for blob in blobs:
            await self._blobs.put(blob)
        return msgspec.structs.replace(change, files=files)

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
