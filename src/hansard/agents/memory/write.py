"""A change of memory: the space's commit, made together with the step's outcome."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.errors import Blocked
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, worked_out
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
from hansard.domain.payload.references import Fetch
from hansard.domain.redaction import check_names
from hansard.domain.steps import StepCompleted, StepStatus
from hansard.domain.values import Scrub

# Which tools the MCP servers have that a `tools.json` names, as the record knows it: the newest
# list that the proxy, or an agent that is a folder, was given by a server of that address.

FILE = "tools.json"
"""The file that names tools."""

LABEL = "mcp_server"
"""The label of runs that asked an MCP server: the host and port of its address."""

LISTED = "mcp:tools/list"
"""The step by which a server's tools were listed."""

RUNS_MAX = 20
"""Runs of a server that are looked at, the newest first: a list that is older is not known."""

_URL = re.compile(r"https?://(?:[^/@]*@)?(?P<host>[^/?#]+)")
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")


def host_of(url: str) -> str:
    """The host and port of a server's address; empty where it is none."""
    found = _URL.match(url)
    return found["host"] if found is not None else ""


async def tools_on_record(workspace: Workspace, texts: Iterable[str]) -> dict[str, set[str]]:
    """The tools of each server that some `tools.json` name, by its address; of a server of which
    nothing is on record, or whose list broke off, nothing is said.
    """
    found: dict[str, set[str]] = {}
    for url in dict.fromkeys(url for text in texts for url in _urls(text)):
        names = await _listed(workspace, url)
        if names:
            found[url] = names
    return found


def _urls(text: str) -> list[str]:
    """The addresses that a file names; none of one that is not valid, which is told elsewhere."""
    try:
        tools = json.loads(text)["tools"]
        return [str(tool["mcp_server_url"]) for tool in tools]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []


async def _listed(workspace: Workspace, url: str) -> set[str]:
    host = host_of(url)
    runs = await workspace.runs() if host else []
    question = [run for run, life in runs if host in str(life.labels.get(LABEL, "")).split()]
    for run in question[:RUNS_MAX]:
        view = await workspace.states.run(run)
        for state in view.agents.values():
            if names := await _in(workspace.blobs, state, url):
                return names
    return set()


async def _in(blobs: Blobs, state: AgentState, url: str) -> set[str]:
    """The newest list of an agent's, its pages together; none where its newest page is not the
    last one, as the list broke off then.
    """
    reader = Reader(lambda: state)
    found: set[str] = set()
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
        found |= _names(reply)
        if not request.get("cursor"):
            return found
    return set()


def _names(plain: Any) -> set[str]:
    tools = plain.get("tools", []) if isinstance(plain, Mapping) else plain
    names = [each.get("name") for each in tools if isinstance(each, Mapping)]
    return {name for name in names if isinstance(name, str) and _NAME.fullmatch(name)}


async def _fetched(blobs: Blobs, fetch: Fetch) -> Any:
    try:
        return await drive_fetch(fetch, blobs.get)
    except NotFound:  # it was erased
        return {}


FOR_THE_MODEL = (BadValue, Blocked, MemoryConflict, MemoryInvalid, NotFound)
"""What a model that uses memory can do something about. All else ends its run."""

RULE = "memory"
"""What a change is refused by that nobody was asked about."""


class ChangeRequest(msgspec.Struct, frozen=True):
    """A change that is asked for.

    Attributes:
        space: Of which space.
        ops: What it does, in order (`hansard.agents.memory.drafts`).
        because: Why.
        sources: The ids of the events that it rests on.
        seen: The digests of the files as their writer saw them, by path; None: whatever stands.
    """

    space: str
    ops: Sequence[Op]
    because: str = ""
    sources: tuple[str, ...] = ()
    seen: Mapping[str, str] | None = None


Validate = Callable[[MemoryState, Sequence[str]], list[Problem]]
"""What is wrong with files as a change leaves them, of those that it changed."""


def packed(changes: Sequence[FileChange]) -> tuple[tuple[FileChange, ...], list[bytes]]:
    """The files of a change as they are recorded, and the blobs that they name: edits that are
    large, and the largest ones of a change that would be.
    """
    raws = {change.path: msgspec.json.decode(change.edit) for change in changes}
    made = payloads.pack_arguments(raws)
    edits = msgspec.json.decode(made.raw, type=dict[str, msgspec.Raw])
    files = tuple(msgspec.structs.replace(each, edit=edits[each.path]) for each in changes)
    return files, made.blobs


def validated(
    state: MemoryState,
    changed: Sequence[str],
    offered: Mapping[str, Collection[str]] | None = None,
) -> list[Problem]:
    """What is wrong with the files that a change leaves: see `hansard.agents.memory.validation`.
    `offered`: the tools of MCP servers, as they are on record.
    """
    return problems_of_change(state, changed, offered)


async def validating(
    workspace: Workspace, state: MemoryState, changes: Sequence[FileChange]
) -> Validate:
    """What checks the files that changes leave, a `tools.json` also against what is on record of
    the servers that it names.
    """
    named = [
        (each, state.files.get(each.was or each.path) if each.before else None)
        for each in changes
        if each.after and not each.link and each.path.rpartition("/")[2] == FILE
    ]
    await workspace.memories.load(stood for _, stood in named)
    texts = [spaces.text_after(*each) for each in named]
    offered = await tools_on_record(workspace, texts) if texts else None
    return functools.partial(validated, offered=offered)


async def checked(
    workspace: Workspace,
    sight: VisibilityFilter,
    name: str,
    whole: MemoryState,
    command: MemoryChanged,
    refusals: int,
    scrub: Scrub | None = None,
    validate: Validate | None = validated,
) -> Sequence[MemoryEvent]:
    """Return the events of a change, after every check; none where it changes nothing.

    An agent, or another writer of limited sight, may write no settings of a harness.

    A writer of limited sight is told of a conflict with a file that it does not see only that
    there is one.

    Args:
        workspace: The workspace, for the tools of MCP servers that are on record.
        sight: What the writer sees of the space.
        name: The space.
        whole: The state of the space.
        command: The change.
        refusals: How often the writer was refused in a row before.
        scrub: The redaction of the workspace: a file with a secret is refused.
        validate: The check of the files; None for no check.

    Raises MemoryConflict, BadValue; MemoryInvalid for a file that is invalid or holds a secret.
    """
    state = await sight.of(name, whole)
    using = workspace.memories.using
    await workspace.memories.load(
        state.files.get(each.was or each.path) for each in command.files if each.after
    )
    if validate is validated and not sight.is_limited:
        # A list of all tools on record would tell a limited role what other runs asked.
        validate = await validating(workspace, state, command.files)
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
    """The files that configure a harness, which no agent may write."""
    allowed = "another path: a person writes what configures a harness ('hansard memory import')"
    return (
        Problem(path, 0, "path.settings", "", allowed)
        for path in changed
        if paths.configures_harness(path)
    )


def _legible(file: MemoryFile) -> str:
    """A file's text; of a binary file each byte as a character."""
    return file.content.decode("latin-1") if file.binary else file.text


def secrets(path: str, text: str, scrub: Scrub | None) -> list[Problem]:
    """Where a text would hold a secret; what it is is told nowhere."""
    if scrub is None or scrub(text) == text:
        return []
    hits = [number for number, line in enumerate(text.split("\n"), 1) if scrub(line) != line]
    allowed = "no secret: memory outlives the run; have a tool ask for it"
    return [Problem(path, line, "memory.secret", "", allowed) for line in hits[:1] or [0]]


class MemoryWrite(JointWrite):
    """Changes a space, or has on record why not. `frozen` is the change that somebody granted: it
    is made as it was shown, or not at all. `trouble` is what is in its way already.
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
        self._wanted = request
        self._sight = sight
        self._frozen = frozen
        self._trouble = trouble
        self._stream = stream_of(request.space)

    def _streams(self) -> list[WorkspaceStream]:
        return [self._stream]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        state = await self._memories.state(self._wanted.space)
        if self._trouble is not None:
            return await self._troubled(state, self._trouble)
        try:
            outcome, event = await self._made(state)
        except HansardError as error:
            return await self._troubled(state, error)
        events = [record(event, self._clock.new_id())] if event is not None else []
        return outcome, [Draft(self._stream, state.version, events)]

    async def _made(self, state: MemoryState) -> tuple[StepCompleted, MemoryChanged | None]:
        """What the change comes to on the space as it stands, and as the agent's role sees it."""
        plan = self._wanted
        seen = await self._sight.of(plan.space, state)
        changes = self._frozen
        if changes is None:
            first = [seen.file_or_none(path) for path in drafts.touched(plan.ops)]
            work = functools.partial(worked_out, plan.space, seen, plan.ops, plan.seen)
            changes = await self._memories.using(work, first)
            self._demand_unasked(state, changes)
        self._sight.demand_changes(plan.space, changes)
        change = MemoryChanged(
            files=changes,
            because=plan.because,
            sources=plan.sources,
            role=self._agent.role,
            run=self._agent.run,
            step=self._call.number,
        )
        events = await checked(
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
        if self._sight.is_limited:  # what others wrote is not counted
            value["version"] = 0
        outcome = await self._completed(value)
        return outcome, await self._stored(change) if made is not None else None

    async def _troubled(self, state: MemoryState, error: Exception) -> tuple[Outcome, list[Draft]]:
        """What is in the way of the change, as its step's outcome; a refusal is on record of the
        space, too.
        """
        if isinstance(error, MemoryConflict):
            return await self._lost_to(state, error), []
        if not isinstance(error, MemoryInvalid):
            return self._failed(error), []
        event = MemoryRejected(
            problems=tuple(error.problems),
            because=self._wanted.because,
            role=self._agent.role,
            run=self._agent.run,
            step=self._call.number,
        )
        draft = Draft(self._stream, state.version, [record(event, self._clock.new_id())])
        return self._failed(error), [draft]

    async def _stored(self, change: MemoryChanged) -> MemoryChanged:
        """A change as it is recorded; its blobs are stored."""
        files, blobs = packed(change.files)
        for blob in blobs:
            await self._blobs.put(blob)
        return msgspec.structs.replace(change, files=files)

    def _demand_unasked(self, state: MemoryState, changes: Sequence[FileChange]) -> None:
        """Raise Blocked where the space asks about changes from a moment ago on."""
        changed = [path for each in changes for path in (each.path, each.was) if path]
        if changes and state.asks(self._policy_at, self.label, changed):
            reason = f"changes of {self._wanted.space} are asked about since a moment ago"
            raise Blocked(RULE, f"{reason}; try again", self._call.spec.name)

    async def _lost_to(self, state: MemoryState, error: MemoryConflict) -> Outcome:
        """A conflict tells what others wrote: to whom may be told alone."""
        stood = state.files.get(str(error.path))
        label = stood.label if stood is not None else None
        try:
            what = f"file {error.path!r:.200} of {self._wanted.space}"
            await self._clearances.demand(label, what, self._call.spec.name)
        except Blocked as blocked:
            return self._failed(blocked)
        self.shown = join(self.shown, label)
        if stood is not None and self._sight.is_limited:  # what others wrote is not counted
            stood = msgspec.structs.replace(stood, version=0)
            given = (str(error.path), str(error.expected), str(error.mine))
            error = MemoryConflict(self._wanted.space, *given, stood)
        return self._failed(error)


def _outcome_of(name: str, state: MemoryState, change: MemoryChanged | None) -> dict[str, object]:
    """What a write comes to, as its step has it."""
    files = [
        {"path": each.path, "op": each.op.value, "before": each.before, "digest": each.after}
        for each in (change.files if change is not None else ())
    ]
    version = state.version + 1 if change is not None else state.version
    return {"space": name, "version": version, "files": files}
