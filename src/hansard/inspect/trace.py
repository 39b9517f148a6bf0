"""Steps of a run, as a list and as a tree; their payloads, doubts, and the data that they sent out.

Long because all of them are read from the same folded agents with their events.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from hansard.agents.aggregates import SAVE
from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored, UpTo
from hansard.bus.reads import Beginning, Clock, EventTime, earlier, time_of
from hansard.domain import agent as agents
from hansard.domain import payload, values
from hansard.domain.agent import AgentState
from hansard.domain.choices import counted
from hansard.domain.decider import evolve
from hansard.domain.errors import BadValue
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream, run_of
from hansard.domain.label import raised
from hansard.domain.payload import Fetch, in_full
from hansard.domain.run import RunForked
from hansard.domain.steps import (
    AnswerSource,
    Effects,
    Failure,
    Step,
    StepAttempted,
    StepRequested,
    StepSettled,
    StepStatus,
    Verdict,
    Withheld,
)
from hansard.inspect.answer import Answer, by_name
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements
from hansard.state.replay import RunView

_SQL = statements(__file__)


# Recorded payloads as plain values, with or without their blobs fetched.


def recorded(raw: msgspec.Raw) -> Any:
    """Return the plain values of a recorded payload as stored, including references.

    A value nested too deep for this process is replaced by its size.
    """
    try:
        return msgspec.json.decode(bytes(raw))
    except RecursionError:
        return {"$blob": {"size": len(bytes(raw))}}


def jsonable(value: Any) -> Any:
    """Return a revived value in JSON's types; other values stay tagged."""
    try:
        return values.plain(value)
    except BadValue:
        return str(value)


class Fetcher:
    """Runs a payload's fetch: gets each requested blob once."""

    def __init__(self, workspace: Workspace) -> None:
        self._blobs = workspace.blobs
        self._kept: dict[str, bytes] = {}

    async def __call__(self, fetch: Fetch) -> Any:
        """Return the plain values. Raises NotFound, Corrupt."""
        try:
            sha256, size = next(fetch)
            while True:
                if sha256 not in self._kept:
                    self._kept[sha256] = await self._blobs.get(sha256, size)
                sha256, size = fetch.send(self._kept[sha256])
        except StopIteration as stop:
            return stop.value


class Payloads:
    """Reader of payloads with their blobs; an erased blob stays a reference, and is listed in
    `erased`. With `bytes_max` a payload whose blobs are larger stays as recorded.
    """

    def __init__(self, workspace: Workspace, bytes_max: int | None = None) -> None:
        self._workspace = workspace
        self._bytes_max = bytes_max
        self.erased: list[str] = []

    async def value(self, raw: msgspec.Raw) -> Any:
        """Return the plain values. Raises Corrupt."""
        if b'"$blob"' not in bytes(raw):
            return recorded(raw)
        size = sum(blob.size for blob in payload.blobs_in(raw))
        if self._bytes_max is not None and size > self._bytes_max:
            return recorded(raw)
        return await self.get(payload.unpack(raw), raw)

    async def get(self, fetch: Fetch, raw: msgspec.Raw) -> Any:
        """Return a fetch's result, or the recorded payload if it was erased. Raises Corrupt."""
        try:
            return await Fetcher(self._workspace)(fetch)
        except NotFound as error:
            self.erased.append(str(error))
            return recorded(raw)


# A run's agents with the events that their states were folded from.


class StoredEvent(msgspec.Struct, frozen=True):
    """Event of a stream, with the commit that holds it."""

    stored: Stored
    event: Recorded

    @property
    def time(self) -> EventTime:
        """Time of the event."""
        return time_of(self.stored, self.event)


class AgentHistory(msgspec.Struct):
    """Agent's state, and the events it was folded from by version.

    `attempted` are the versions of a step's failed attempts, by step; `settled` its settlements
    with their versions.
    """

    name: str
    state: AgentState
    events: dict[int, StoredEvent] = {}
    attempted: dict[int, list[int]] = {}
    settled: dict[int, list[tuple[int, StepSettled]]] = {}

    @property
    def steps(self) -> list[Step]:
        """Steps of the agent, in order."""
        return list(self.state.steps.values())


def folded(name: str, commits: Iterable[Stored]) -> AgentHistory:
    """Fold an agent from its stream's commits, from the first. Raises UnknownEvent, Corrupt."""
    made = AgentHistory(name, agents.AgentState())
    for stored in commits:
        made.state.label = raised(made.state.label, stored.commit.label)
        for recorded in stored.commit.events:
            event = revive(recorded)
            evolve(made.state, event)
            version = made.state.version
            made.events[version] = StoredEvent(stored, recorded)
            if isinstance(event, StepRequested):
                made.attempted[event.step] = []
            elif isinstance(event, StepAttempted):
                made.attempted[event.step].append(version)
            elif isinstance(event, StepSettled):
                made.settled.setdefault(event.step, []).append((version, event))
    in_full(made.state.steps)
    return made


def by_agent(history: Iterable[Stored]) -> dict[str, AgentHistory]:
    """Return every agent of a run, in the order of joining. Raises UnknownEvent, Corrupt."""
    return {name: folded(name, commits) for name, commits in commits_by_agent(history).items()}


def commits_by_agent(history: Iterable[Stored]) -> dict[str, list[Stored]]:
    """Group commits by agent."""
    commits: dict[str, list[Stored]] = {}
    for stored in history:
        if isinstance(stored.stream, AgentStream):
            commits.setdefault(stored.stream.agent, []).append(stored)
    return commits


async def agents_at(
    workspace: Workspace, run: str, up_to: UpTo, only: str | None
) -> tuple[RunView, list[AgentHistory]]:
    """Return a run at a point, and its agents (or one) with their events.

    Reads only the streams of these agents. Raises NotFound, UnknownEvent, Corrupt.
    """
    view = await workspace.states.run(run, up_to)
    end = AtPosition(view.position)
    histories: list[AgentHistory] = []
    for name in view.agents if only is None else [only]:
        commits = await workspace.states.commits(view.stream_of(name), up_to=end)
        histories.append(folded(name, commits))
    return view, histories


class StepTime(msgspec.Struct):
    """Time of a step: `at` is None if unknown, `offset_ms` counts from the run's start."""

    at: str | None
    clock: Clock
    offset_ms: float | None


class FailedAttempt(msgspec.Struct, kw_only=True):
    """Failed attempt, and what followed it."""

    attempt: int
    error: Failure
    duration_ms: float | None
    retry_in_ms: float | None
    ended: StepTime | None


class Settlement(msgspec.Struct, kw_only=True):
    """Decision on a step's outcome; `is_edit`: the result was edited for a fork."""

    verdict: Verdict
    by: str
    reason: str
    is_edit: bool
    ended: StepTime | None


class TracedStep(msgspec.Struct, kw_only=True):
    """Step with its place, as programs get it. `in_doubt`: its effect may or may not have happened,
    and no process of its agent is known to be at work on it.
    """

    run: str
    recorded_in: str | None
    agent: str
    role: str
    step: int
    parent: int | None
    depth: int
    branch: str | None
    unordered: bool
    position: int
    time: str
    began: StepTime | None
    ended: StepTime | None
    kind: str
    tool: str
    call_id: str | None
    effects: str
    arguments: Any
    status: str
    in_doubt: bool
    late: bool
    result: Any
    error: Failure | None
    rule: str | None
    attempts: list[FailedAttempt]
    settlements: list[Settlement]
    duration_ms: float | None
    usage: dict[str, float]
    after: tuple[int, ...]
    scope: str
    reused: int | None
    reused_from: AnswerSource | None
    verdict: Verdict | None
    settled_by: str | None
    withheld: Withheld | None
    would: str | None
    key: str | None
    fingerprint: str


class Line(msgspec.Struct):
    """Step with its depth, and the commit of its intent."""

    agent: str
    state: AgentState
    step: Step
    depth: int
    stored: Stored


class WholeStep(Answer):
    """Step with its values in full."""

    _lines: ClassVar[tuple[str, ...]] = ("traced",)

    line: Line
    traced: TracedStep


class Doubts(msgspec.Struct):
    """Calls of a run in doubt, by agent.

    `alive` states of agents that have not left whether their processes are at work, None if that is
    not known; without it nothing is known.
    """

    steps: Mapping[str, frozenset[int]]
    alive: Mapping[str, bool | None] | None = None

    def is_under_way(self, agent: str, step: Step) -> bool:
        """Return whether a call has no outcome yet, and its agent is at work."""
        return step.is_open and bool((self.alive or {}).get(agent))

    def has(self, agent: str, step: Step) -> bool:
        """Return whether a call is in doubt, and not under way."""
        is_doubtful = step.number in self.steps.get(agent, ())
        return is_doubtful and not self.is_under_way(agent, step)

    def status(self, agent: str, step: Step) -> str:
        """Return a step's status, and whether its effect is in doubt or the call under way."""
        if self.is_under_way(agent, step):
            return f"{step.status.value}, under way"
        if not self.has(agent, step) or step.status is StepStatus.IN_DOUBT:
            return step.status.value
        is_unknown = self.alive is None or self.alive.get(agent, False) is None
        either = " or under way" if is_unknown and step.is_open else ""
        return f"{step.status.value}, in doubt{either}"


def doubts(agents: Mapping[str, AgentState]) -> Doubts:
    """Return the calls in doubt of agents, by name."""
    return Doubts(
        {name: frozenset(step.number for step in state.in_doubt) for name, state in agents.items()}
    )


class Trace(Answer):
    """Traced run."""

    run: str
    agents: dict[str, AgentHistory]
    beginning: Beginning
    steps: list[Line]
    doubts: Doubts
    edits: frozenset[tuple[str, str]] = frozenset()
    """Call keys and digests of the results that a fork's author edited."""

    def lines(self) -> Iterator[TracedStep]:
        """Yield each step with its values as recorded."""
        for line in self.steps:
            step = line.step
            yield self._traced(line, step.arguments, step.items if step.streamed else step.result)

    async def whole(self, fetch: Payloads) -> AsyncIterator[WholeStep]:
        """Yield each step with its blobs fetched. Raises Corrupt."""
        values = _Whole(fetch)
        for line in self.steps:
            yield WholeStep(line, self._traced(line, *await values.of(line)))

    def began(self, agent: str, step: Step) -> EventTime:
        """Return when a step began: its measured duration before the time of its outcome if both
        were recorded together.
        """
        events = self.agents[agent].events
        intent, outcome = events[step.version], events.get(step.outcome_version or 0)
        if outcome is None or outcome.stored is not intent.stored:
            return intent.time
        return earlier(intent.time, step.duration_ms)

    def attempts(self, agent: str, step: Step) -> Iterator[tuple[StepAttempted, int]]:
        """Yield a step's failed attempts with their versions."""
        versions = self.agents[agent].attempted.get(step.number, ())
        return zip(step.attempts, versions, strict=True)

    def settlements(self, agent: str, step: Step) -> Iterator[tuple[int, Settlement]]:
        """Yield a step's settlements with their versions."""
        for version, event in self.agents[agent].settled.get(step.number, ()):
            yield (
                version,
                Settlement(
                    verdict=event.verdict,
                    by=event.by,
                    reason=event.because,
                    is_edit=(step.call, event.digest) in self.edits,
                    ended=self._ended(agent, version),
                ),
            )

    def _ended(self, agent: str, version: int | None) -> StepTime | None:
        """Return the time of an agent's version; None for no version."""
        return self._time(self.agents[agent].events[version].time) if version is not None else None

    def _time(self, event_time: EventTime) -> StepTime:
        time = event_time.time
        return StepTime(time.at, time.clock, self.beginning.offset_ms(event_time))

    def _traced(self, line: Line, arguments: Any, result: Any) -> TracedStep:
        step = line.step
        return by_name(
            TracedStep,
            step,
            line,
            run=self.run,
            recorded_in=run_of(line.stored.stream),
            role=line.state.role,
            step=step.number,
            branch=branch(step) or None,
            position=line.stored.position,
            time=line.stored.time.isoformat(),
            began=self._time(self.began(line.agent, step)),
            ended=self._ended(line.agent, step.outcome_version),
            effects=step.effects.value,
            arguments=arguments,
            status=step.status.value,
            in_doubt=self.doubts.has(line.agent, step),
            result=result,
            rule=step.rule or None,
            attempts=[
                by_name(
                    FailedAttempt,
                    tried,
                    duration_ms=tried.duration_ms or None,
                    ended=self._ended(line.agent, version),
                )
                for tried, version in self.attempts(line.agent, step)
            ],
            settlements=[each for _, each in self.settlements(line.agent, step)],
            duration_ms=step.duration_ms or None,
            settled_by=step.settled_by or None,
            would=step.would or None,
        )


class Change(msgspec.Struct, frozen=True):
    """Change of an aggregate by a save: declared name, id, new version, event tag, state."""

    aggregate: str
    id: str
    version: int
    event: str
    state: Any


def changes_of(step: Step) -> list[Change]:
    """Return the changes made by a save; none for other steps, or if they are stored as a blob."""
    if step.tool != SAVE.name or step.kind != SAVE.kind or step.status is not StepStatus.COMPLETED:
        return []
    try:
        before = msgspec.json.decode(step.arguments, type=_GivenState).aggregates
        came_to = msgspec.json.decode(step.result, type=_Saves).saved
    except (msgspec.DecodeError, RecursionError):
        return []
    ids = {one.id: saved.id for one, saved in zip(before, came_to, strict=False)}
    return [
        Change(one.aggregate, saved.id, one.version + number, event.event, _remap(event.state, ids))
        for one, saved in zip(before, came_to, strict=False)
        for number, event in enumerate(one.events, 1)
    ]


def _remap(state: Any, ids: Mapping[str, str]) -> Any:
    """Return a state with the ids that new aggregates got."""
    match state:
        case str():
            return ids.get(state, state)
        case list():
            return [_remap(item, ids) for item in state]
        case dict():
            return {name: _remap(item, ids) for name, item in state.items()}
        case _:
            return state


class _Event(msgspec.Struct):
    event: str
    state: Any = None


class _Aggregate(msgspec.Struct):
    aggregate: str
    id: str
    version: int
    events: list[_Event]


class _GivenState(msgspec.Struct):
    aggregates: list[_Aggregate]


class _Saved(msgspec.Struct):
    id: str


class _Saves(msgspec.Struct):
    saved: list[_Saved]


def trace(run: str, history: list[Stored]) -> Trace:
    """Trace a run from its commits. Raises UnknownEvent, Corrupt."""
    agents = by_agent(history)
    doubtful = doubts({name: agent.state for name, agent in agents.items()})
    edits = frozenset(
        (edit.call, edit.digest)
        for stored in history
        for recorded in stored.commit.events
        if recorded.type == RunForked.tag and isinstance(event := revive(recorded), RunForked)
        for edit in event.edits
    )
    return Trace(run, agents, Beginning(history), _lines(agents), doubtful, edits)


def steps_of(history: list[Stored]) -> list[Line]:
    """Return all agents' steps in the order of their intents, children after their parents."""
    return _lines(by_agent(history))


def _lines(agents: dict[str, AgentHistory]) -> list[Line]:
    lines = [
        Line(agent.name, agent.state, step, 0, agent.events[step.version].stored)
        for agent in agents.values()
        for step in agent.steps
    ]
    lines.sort(key=lambda line: (line.stored.position, line.step.version))
    return list(_nested(lines))


def _nested(lines: list[Line]) -> Iterator[Line]:
    children: dict[tuple[str, int | None], list[Line]] = {}
    for line in lines:
        parent = line.step.parent if line.step.parent in line.state.steps else None
        children.setdefault((line.agent, parent), []).append(line)
    roots = [
        line for (_, parent), siblings in children.items() if parent is None for line in siblings
    ]
    roots.sort(key=lambda line: (line.stored.position, line.step.version))
    waiting = list(reversed(roots))
    while waiting:
        line = waiting.pop()
        yield line
        for child in reversed(children.get((line.agent, line.step.number), ())):
            child.depth = line.depth + 1
            waiting.append(child)


class _Whole:
    """Reader of steps' values with their blobs fetched."""

    def __init__(self, fetch: Payloads) -> None:
        self._fetch = fetch
        self._readers: dict[str, payloads.Reader] = {}

    async def of(self, line: Line) -> tuple[Any, Any]:
        """Return a step's arguments and its result or items. Raises Corrupt."""
        step, state = line.step, line.state
        reader = self._readers.get(line.agent)
        if reader is None:
            reader = self._readers[line.agent] = payloads.Reader(lambda: state)
        arguments = await self._fetch.get(reader.arguments(step), step.arguments)
        if step.streamed:
            return arguments, [await self._fetch.value(item) for item in step.items]
        return arguments, await self._fetch.get(reader.result(step), step.result)


GUIDES_MAX = 40
"""Most levels drawn; a deeper step shows its depth as a number."""

_PART = re.compile(
    r"(?P<group>\d+)\.(?P<index>\d+)(?=/|\Z)|progress:(?P<name>.*?)\.(?P<item>\d+)(?=/|\Z)",
    re.DOTALL,
)


def branch(step: Step) -> str:
    """Return a step's place in the body around it: `0.1/2.0`; empty in the body itself."""
    return step.scope.partition("/")[2]


class Node(msgspec.Struct):
    """Node of the tree: a step, or with `step` None a node that holds steps.

    `group` and `index` are a branch's spawn, `after` the steps that a node began after;
    `places` are the scopes inside a node, by name.
    """

    label: str = ""
    step: Step | None = None
    group: int | None = None
    index: int = 0
    after: tuple[int, ...] = ()
    children: list[Node] = []
    places: dict[str, Node] = {}


class Row(msgspec.Struct, frozen=True):
    """Line of the tree: its guides and those of its children, the names of enclosing nodes that
    hold only its step, and the step.
    """

    guides: str
    under: str
    label: str
    step: Step | None
    holds: bool


def tree(steps: Iterable[Step]) -> list[Node]:
    """Build the tree of an agent's steps; they are given in order, parents first."""
    root = Node()
    bodies: dict[int, Node] = {}
    for step in steps:
        body = bodies.get(step.parent, root) if step.parent is not None else root
        place = body
        for name in _parts(branch(step)):
            place = _enter(place, name, step)
        node = bodies[step.number] = Node(step=step)
        place.children.append(node)
    for node in (root, *bodies.values()):
        _join(node)
    return root.children


def _parts(path: str) -> Iterator[str]:
    """Yield the scopes of a path from the outermost; a part that is not such a scope is its own."""
    at = 0
    while at < len(path):
        match = _PART.match(path, at)
        end = match.end() if match is not None else len(path)
        yield path[at:end]
        at = end + 1


def _enter(place: Node, name: str, step: Step) -> Node:
    """Return the scope of a name inside a node; its first step creates it."""
    known = place.places.get(name)
    if known is not None:
        return known
    made = Node(label=name, after=step.after)
    match = _PART.fullmatch(name)
    if match is not None and match["group"] is not None:
        made.label, made.group, made.index = "branch", int(match["group"]), int(match["index"])
    elif match is not None:
        made.label = f"{match['name']} {match['item']}"
    place.places[name] = made
    place.children.append(made)
    return made


def _join(place: Node) -> None:
    """Group parallel branches under one node, at the place of the first."""
    waiting = [place]
    while waiting:
        node = waiting.pop()
        waiting += node.places.values()
        sizes = Counter(scope.group for scope in node.places.values())
        beside: dict[object, list[Node]] = {}
        kept: list[Node] = []
        parallel: list[Node] = []
        for child in node.children:
            if child.group is None:
                kept.append(child)
                continue
            is_single = sizes[child.group] == 1 and child.index == 0
            spawn = child.after if is_single else child.group
            if spawn not in beside:
                made = Node(children=beside.setdefault(spawn, []))
                kept.append(made)
                parallel.append(made)
            beside[spawn].append(child)
        for made in parallel:
            _name(made)
        node.children = kept


def _name(parallel: Node) -> None:
    """Name a branch with its index and the number of parallel branches."""
    branches = sorted(parallel.children, key=lambda node: (node.group or 0, node.index))
    is_group = len({node.group for node in branches}) == 1
    for number, node in enumerate(branches):
        node.label = f"branch {(node.index if is_group else number) + 1}"
    parallel.label = f"∥ {counted(len(branches), 'branch')}"
    parallel.children = branches
    if len(branches) == 1:
        parallel.label = f"∥ {branches[0].label}"
        parallel.children = branches[0].children


def rows(nodes: list[Node]) -> Iterator[Row]:
    """Yield the tree's lines, from the top."""
    waiting: list[tuple[Node, str, int, bool]] = []
    _wait(waiting, nodes, "", 0)
    while waiting:
        node, before, depth, is_last = waiting.pop()
        labels = [node.label] if node.label else []
        while node.step is None and len(node.children) == 1:
            node = node.children[0]
            labels += [node.label] if node.label else []
        is_far = depth >= GUIDES_MAX
        guides = before + ("└─ " if is_last else "├─ ") + (f"({depth} deep) " if is_far else "")
        under = before if is_far else before + ("   " if is_last else "│  ")
        yield Row(guides, under, " · ".join(labels), node.step, bool(node.children))
        _wait(waiting, node.children, under, depth + 1)


def _wait(
    waiting: list[tuple[Node, str, int, bool]], nodes: list[Node], before: str, depth: int
) -> None:
    last = len(nodes) - 1
    waiting.extend((nodes[index], before, depth, index == last) for index in range(last, -1, -1))


# Data that left a run for models, pages and tools, as recorded.

_INSIDE = ("browser.find", "browser.look", "browser.choose", "browser.extract", "experience.checks")
"""Steps that only inspect a page, or run a check: they send nothing."""

_NOT_SENT = "blocked"
_NO_ADDRESS = "an address that is none"


class SentOut(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="sent"):
    """Call that sent data out of a run.

    Attributes:
        destination: For a page its host, `a file` or `an address that is none`; else the tool's
            name.
        kind: `model`, `page` or `tool`.
        agent: The agent of the call.
        step: Its step.
        tool: The tool that was called.
        status: Its recorded status; of one that is `requested` or `in_doubt` it is unknown
            whether it was made.
        arguments: Its recorded arguments; a secret is replaced by its name.
        secrets: The names of the secrets in its arguments. Where one is inside of a text, the
            program may have passed its name and not its value.
    """

    destination: str
    kind: Literal["model", "page", "tool"]
    agent: str
    step: int
    tool: str
    status: str
    arguments: Any
    secrets: tuple[str, ...] = ()


class Egress(Answer):
    """Calls that sent data out of a run.

    Attributes:
        run: The run.
        sent: The calls, in order.
    """

    run: str
    sent: list[SentOut]

    def lines(self) -> Iterator[object]:
        """Yield each call, then their number."""
        yield from self.sent
        yield {"type": "left", "run": self.run, "count": len(self.sent)}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded call as in the tables; the `result` of a page's step names the page's address."""

    agent: str
    step: int
    tool: str
    kind: str
    effects: str
    status: str
    arguments: Any = None
    result: Any = None


async def what_left(workspace: Workspace, run: str, fetch: Payloads) -> list[SentOut]:
    """Return the calls of a run to models, pages and tools that were or may have been made.

    In order. Raises NotFound, Corrupt.
    """
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    calls: list[TracedStep] = []
    async for step in trace(run, history).whole(fetch):
        detail = step.traced
        # A reused or withheld call of a fork was made only in the original run.
        elsewhere = (
            detail.reused or detail.reused_from or detail.withheld or detail.recorded_in != run
        )
        if not elsewhere:
            calls.append(detail)
    return list(_sent_calls(calls))


def by_tables(reader: Reader, run: str) -> Egress:
    """Return the calls of a run from its steps in the tables; of a role, those it is shown.

    Raises NotFound.
    """
    if not reader.rows("FROM runs WHERE run = $1 LIMIT 1", [run]):
        raise NotFound(f"run {run!r:.80}", "give a run of which the role is shown an event")
    rows = [dict(each) for each in reader.rows(_SQL["calls"], [run])]
    for row in rows:
        for name in ("arguments", "result"):
            row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    return Egress(run=run, sent=list(_sent_calls(msgspec.convert(rows, list[Call]))))


def _sent_calls(calls: Iterable[Call | TracedStep]) -> Iterator[SentOut]:
    """Yield the calls that sent data out of a run, in order."""
    hosts: dict[str, str] = {}  # by agent: each has its own page
    for call in calls:
        if not _is_sent(call):
            continue
        at_page = call.tool.startswith("browser.") and call.kind == "tool"
        host = _host(call) or hosts.get(call.agent, "")
        if at_page and host != _NO_ADDRESS:
            hosts[call.agent] = host
        yield by_name(
            SentOut,
            call,
            destination=(host or "a file") if at_page else call.tool,
            kind="model" if call.kind == "model" else "page" if at_page else "tool",
            secrets=tuple(dict.fromkeys(_secrets(call.arguments))),
        )


def _is_sent(call: Call | TracedStep) -> bool:
    composite = call.effects == Effects.COMPOSITE.value
    inside = call.tool in _INSIDE or call.kind not in ("tool", "model")
    return not (composite or inside or call.status == _NOT_SENT)


def _host(call: Call | TracedStep) -> str:
    """Return the host of a step's page; empty if it is known to have none."""
    result = call.result
    page = result.get("page") if isinstance(result, dict) else None
    address = page.get("address", "") if isinstance(page, dict) else ""
    if call.tool == "browser.goto" and isinstance(call.arguments, dict):
        address = call.arguments.get("url", "")
    try:
        return urlsplit(str(address)).hostname or ""
    except ValueError:
        return _NO_ADDRESS


_SECRET_INSIDE = re.compile(r"<secret:([^<>]+)>")
"""A secret inside of another text, as it is recorded."""


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _SECRET_INSIDE.findall(value)
    elif isinstance(value, dict):
        if set(value) == {"$secret"}:
            yield str(value["$secret"])
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list):
        for each in value:
            yield from _secrets(each)
