"""State, snapshots, messages and conversations of agents at any point.

Long because all of them are read from an agent's folded state and share its parts.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from hansard.agents.annotations.windows import earlier_commits
from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.bus.reads import Clock, EventTime, Time, began, imported, own
from hansard.domain import agent as agents
from hansard.domain import payload, values
from hansard.domain.agent import (
    AgentState,
    CheckpointSaved,
    DecisionMade,
    Fact,
    HandedOff,
    MessageAdded,
    Moment,
    ResourceAccessed,
    StatedFact,
)
from hansard.domain.board import BoardState
from hansard.domain.choices import counted
from hansard.domain.conversation import ContextCompacted, RunJoined
from hansard.domain.decider import evolve
from hansard.domain.errors import BadName
from hansard.domain.ids import AgentStream, RunStream, WorkspaceStream
from hansard.domain.snapshot import Snapshot, snapshot, snapshot_id
from hansard.inspect.answer import Answer, by_name
from hansard.inspect.trace import (
    AgentHistory,
    Fetcher,
    Payloads,
    StoredEvent,
    agents_at,
    commits_by_agent,
    jsonable,
    recorded,
)
from hansard.state.replay import RunView, fold_life, snapshot_version

# Messages, context windows and conversations of agents.


class Message(msgspec.Struct, tag_field="kind", tag="message", kw_only=True):
    """Message in full, with its place.

    `index` counts the window from 1; `at` is None if the time is unknown.
    """

    run: str
    agent: str
    index: int
    role: str
    message: dict[str, Any]
    tokens: int | None
    usage: dict[str, float]
    occurred_at: str | None
    at: str | None
    clock: Clock
    version: int
    position: int
    step: int | None


class Summary(msgspec.Struct, tag_field="kind", tag="summary", kw_only=True):
    """Summary that replaces compacted messages.

    Their events are from the address `first` to `last`. `tokens` are its own, and those of the
    window before and after it if they are known.
    """

    run: str
    agent: str
    index: int
    role: str
    message: dict[str, Any]
    messages: int
    first: str | None
    last: str | None
    tokens: int | None
    tokens_before: int | None
    tokens_after: int | None
    at: str | None
    clock: Clock
    version: int
    position: int
    step: int | None


class Compacted(msgspec.Struct, tag_field="kind", tag="compacted", kw_only=True):
    """Message, or earlier summary, that a summary replaced.

    `summary` is the version of the summary, `index` counts what it replaced from 1.
    """

    summary: int
    original: Message | Summary


class Totals(msgspec.Struct):
    """Number of messages, their tokens (None if unknown) and their usage."""

    messages: int
    tokens: int | None
    usage: dict[str, float]


class MessageFact(msgspec.Struct, frozen=True):
    """Recorded message or summary, with its place."""

    run: str
    agent: str
    version: int
    event: StoredEvent
    fact: MessageAdded | ContextCompacted

    @property
    def position(self) -> int:
        """Position of its commit."""
        return self.event.stored.position

    @property
    def address(self) -> str:
        """Address of its event."""
        return f"{self.position}.{self.version - self.event.stored.commit.version}"


def message_facts(commits: Iterable[Stored]) -> dict[str, MessageFact]:
    """Return the messages and summaries of commits, by the ids of their events."""
    facts: dict[str, MessageFact] = {}
    for stored in commits:
        stream = stored.stream
        if not isinstance(stream, AgentStream):
            continue
        for version, each in enumerate(stored.commit.events, stored.commit.version):
            if each.type in (MessageAdded.tag, ContextCompacted.tag):
                fact: Any = revive(each)
                place = StoredEvent(stored, each)
                facts[each.id] = MessageFact(stream.run, stream.agent, version, place, fact)
    return facts


async def recorded_message(
    report: MessageFact, index: int, known: Mapping[str, MessageFact], fetch: Payloads
) -> Message | Summary:
    """Read a recorded message or summary; `known` are the facts that a summary may have replaced.

    Raises Corrupt.
    """
    fact, time = report.fact, report.event.time.time
    if isinstance(fact, MessageAdded):
        return by_name(
            Message,
            report,
            time,
            fact,
            index=index,
            message=await provider_form(fact, fetch),
            occurred_at=report.event.event.occurred_at,
        )
    places = [known[each].address for each in fact.stands_for if each in known]
    return by_name(
        Summary,
        report,
        time,
        fact,
        index=index,
        message={"role": fact.role, "content": await fetch.value(fact.summary)},
        messages=len(fact.stands_for),
        first=places[0] if places else None,
        last=places[-1] if places else None,
    )


def window(state: AgentState) -> list[tuple[int, MessageAdded]]:
    """Return an agent's messages with their versions in order, including compacted ones."""
    return [
        (noted.version, noted.fact) for noted in state.facts if isinstance(noted.fact, MessageAdded)
    ]


async def provider_form(added: MessageAdded, fetch: Payloads) -> dict[str, Any]:
    """Return a message in the form sent to a model, with large parts fetched.

    Values that JSON cannot express stay tagged. Raises Corrupt.
    """
    content, fields = await fetch.value(added.content), await fetch.value(added.fields)
    if fields is None:
        return {"role": added.role, "content": content}
    if isinstance(fields, dict) and not any(name.startswith("$") for name in fields):
        return {"role": added.role, "content": content, **fields}
    return {"role": added.role, "content": content, "fields": fields}


def total(messages: Iterable[MessageAdded | ContextCompacted]) -> Totals:
    """Return the totals of messages; a summary counts as one, and has no usage of its own."""
    items = list(messages)
    tokens = [each.tokens for each in items if each.tokens is not None]
    usage = summed([each.usage for each in items if isinstance(each, MessageAdded)])
    return Totals(len(items), sum(tokens) if tokens else None, usage)


def window_total(state: AgentState) -> Totals:
    """Return the totals of an agent's window."""
    facts = (noted.fact for noted in state.window)
    return total(each for each in facts if isinstance(each, MessageAdded | ContextCompacted))


def summed(usages: Sequence[dict[str, float]]) -> dict[str, float]:
    """Sum usage by name without intermediate rounding, sorted by name."""
    names = sorted({name for usage in usages for name in usage})
    return {name: _sum([usage.get(name, 0.0) for usage in usages]) for name in names}


def _sum(amounts: list[float]) -> float:
    try:
        return math.fsum(amounts)
    except OverflowError:
        return sum(amounts)


class AgentContext(msgspec.Struct, tag_field="kind", tag="context", kw_only=True):
    """Context window of an agent in figures."""

    run: str
    agent: str
    role: str
    version: int
    position: int
    messages: int
    tokens: int | None
    usage: dict[str, float]


class Contexts(Answer, kw_only=True):
    """Agents of a run at a position, with their context windows.

    `imported` if the times of their messages are unknown. `known` are messages and summaries by the
    ids of their events: those of the agents, and those of earlier runs that a summary replaced.
    """

    run: str
    position: int
    imported: EventTime | None
    agents: list[AgentHistory]
    known: dict[str, MessageFact] = {}

    def lines(self) -> Iterable[object]:
        """Return nothing: each agent is rendered separately."""
        return ()

    def context(self, agent: AgentHistory) -> AgentContext:
        """Return an agent's window in figures."""
        totals = window_total(agent.state)
        return by_name(AgentContext, totals, self, agent.state, agent=agent.name)

    async def messages(
        self, agent: AgentHistory, fetch: Payloads, *, every: bool = False
    ) -> AsyncIterator[Message | Summary | Compacted]:
        """Yield an agent's window one by one, so that only one large content is held at a time.

        With `every`, a summary is followed by all that it replaced.
        """
        for index, noted in enumerate(agent.state.window, 1):
            async for each in self._expanded(agent, index, noted, fetch, every=every):
                yield each

    async def team(
        self, fetch: Payloads, *, every: bool = False
    ) -> AsyncIterator[Message | Summary | Compacted]:
        """Yield the windows of all agents as one conversation, by position.

        Each message is as in its agent's own window, including `index`.
        """
        entries = [
            (agent.events[noted.version].stored.position, noted.version, index, agent, noted)
            for agent in self.agents
            for index, noted in enumerate(agent.state.window, 1)
        ]
        for *_, index, agent, noted in sorted(entries, key=lambda each: each[:2]):
            async for each in self._expanded(agent, index, noted, fetch, every=every):
                yield each

    async def _expanded(
        self, agent: AgentHistory, index: int, noted: StatedFact, fetch: Payloads, *, every: bool
    ) -> AsyncIterator[Message | Summary | Compacted]:
        """Yield a message, or a summary and, with `every`, all that it replaced."""
        fact = noted.fact
        if isinstance(fact, MessageAdded | ContextCompacted):
            event = agent.events[noted.version]
            report = MessageFact(self.run, agent.name, noted.version, event, fact)
            yield await recorded_message(report, index, self.known, fetch)
            if every and isinstance(fact, ContextCompacted):
                async for each in self._replaced_messages(noted.version, fact, fetch):
                    yield each

    async def _replaced_messages(
        self, version: int, event: ContextCompacted, fetch: Payloads
    ) -> AsyncIterator[Compacted]:
        """Yield what a summary replaced, and what summaries among that replaced."""
        for index, gone in enumerate(event.stands_for, 1):
            noted = self.known.get(gone)
            if noted is None:
                continue
            whole = await recorded_message(noted, index, self.known, fetch)
            yield Compacted(summary=version, original=whole)
            if isinstance(noted.fact, ContextCompacted):
                async for each in self._replaced_messages(noted.version, noted.fact, fetch):
                    yield each


async def _known_facts(
    workspace: Workspace, run: str, agents: Iterable[AgentHistory]
) -> dict[str, MessageFact]:
    """Return messages and summaries if an agent has a summary; otherwise they are not needed."""
    known: dict[str, MessageFact] = {}
    for agent in agents:
        facts = [each.fact for each in agent.state.facts]
        summaries = [each for each in facts if isinstance(each, ContextCompacted)]
        if not summaries:
            continue
        commits = {event.stored.position: event.stored for event in agent.events.values()}
        known |= message_facts(commits.values())
        conversation = agent.state.conversation_id
        away = {each for summary in summaries for each in summary.stands_for} - known.keys()
        if away and conversation is not None:
            known |= message_facts(await earlier_commits(workspace, conversation, run))
    return known


async def contexts(workspace: Workspace, run: str, up_to: UpTo, agent: str | None) -> Contexts:
    """Return the agents of a run, or one, at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view, agents = await agents_at(workspace, run, up_to, agent)
    times = (each.events[version].time for each in agents for version, _ in window(each.state))
    known = await _known_facts(workspace, run, agents)
    return Contexts(
        run=run, position=view.position, imported=imported(times), agents=agents, known=known
    )


REMEDY = "see the conversations of 'hansard runs --json'"


class ConversationFigures(msgspec.Struct, tag_field="kind", tag="conversation", kw_only=True):
    """Conversation in figures; `turns` are messages of the user."""

    conversation: str
    position: int
    runs: list[str]
    turns: int
    messages: int
    tokens: int | None
    usage: dict[str, float]


class ConversationRun(msgspec.Struct, tag_field="kind", tag="run", kw_only=True):
    """Run of a conversation, with the totals of its messages."""

    run: str
    workflow: str
    status: str
    began: Time
    messages: int
    tokens: int | None
    usage: dict[str, float]


class RunPart(Answer):
    """Messages of all agents of a run in the order of the record."""

    line: ConversationRun
    began: EventTime
    messages: list[MessageFact]

    def lines(self) -> Iterable[object]:
        """Return nothing: each message is rendered separately."""
        return ()


class Conversation(Answer, kw_only=True):
    """Conversation and its runs; the messages are read one by one.

    `imported` if their times are unknown; `left_out` are the reasons why runs are missing.
    """

    figures: ConversationFigures
    parts: list[RunPart]
    imported: EventTime | None
    left_out: list[str]

    def lines(self) -> Iterable[ConversationFigures | ConversationRun]:
        """Yield the conversation, then each run."""
        return (self.figures, *(part.line for part in self.parts))

    async def messages(self, part: RunPart, fetch: Payloads) -> AsyncIterator[Message]:
        """Yield a run's messages, large ones fetched, numbered over the whole conversation."""
        before = self.parts[: self.parts.index(part)]
        first = 1 + sum(len(each.messages) for each in before)
        for index, report in enumerate(part.messages, first):
            its = msgspec.structs.replace(report, run=part.line.run)
            message = await recorded_message(its, index, {}, fetch)
            if isinstance(message, Message):
                yield message


async def conversation(workspace: Workspace, name: str, at: str | None) -> Conversation:
    """Return a conversation at a point. Raises NotFound, BadName, UnknownEvent, Corrupt."""
    end = await workspace.log.end(await _point(workspace, name, at))
    joined = await _runs_of(workspace, name, AtPosition(end))
    if not joined:
        what = f"conversation {name!r} at this point"
        raise NotFound(what, "it began later: leave out --at to see it all")
    parts: list[RunPart] = []
    left_out: list[str] = []
    for run in joined:
        try:
            parts.append(await _part(workspace, run, end))
        except NotFound as error:
            left_out.append(str(error))
    messages = [each for part in parts for each in part.messages]
    figures = ConversationFigures(
        conversation=name,
        position=end,
        runs=[part.line.run for part in parts],
        turns=sum(each.fact.role == "user" for each in messages),
        **msgspec.structs.asdict(total(each.fact for each in messages)),
    )
    times = [part.began for part in parts]
    times += [each.event.time for each in messages]
    return Conversation(figures=figures, parts=parts, imported=imported(times), left_out=left_out)


async def _runs_of(workspace: Workspace, conversation: str, up_to: UpTo) -> list[str]:
    """Return the runs of a conversation in the order of joining."""
    stored = await workspace.log.read(WorkspaceStream("conversation", conversation), up_to=up_to)
    events = [revive(recorded) for commit in stored for recorded in commit.commit.events]
    return [event.run for event in events if isinstance(event, RunJoined)]


async def _point(workspace: Workspace, conversation: str, at: str | None) -> UpTo:
    """Return the position to read up to: the point in the conversation's run that has it.

    Raises NotFound, and BadName if several runs have it at different positions.
    """
    runs = await _runs_of(workspace, conversation, None)
    if not runs:
        raise NotFound(f"conversation {conversation!r}", REMEDY)
    points: list[AtPosition | AtTime | None] = []
    absent: NotFound | None = None
    for run in runs:
        try:
            points.append(await workspace.points.up_to(run, at))
        except NotFound as error:
            absent = error
    places = list(dict.fromkeys(points))
    if not places:
        raise absent or NotFound(f"conversation {conversation!r}", REMEDY)
    if len(places) > 1:
        remedy = "several of its runs have it: give a position, a time or an id"
        raise BadName("point", at, remedy)
    return places[0]


async def _part(workspace: Workspace, run: str, end: int) -> RunPart:
    """Return a run's messages up to a position. Raises NotFound, Corrupt."""
    history = await workspace.states.history(run, AtPosition(end))
    life = fold_life(each for each in history if isinstance(each.stream, RunStream))
    facts = message_facts(history).values()
    messages = [each for each in facts if isinstance(each.fact, MessageAdded)]
    first = began(own(run, history))
    line = ConversationRun(
        run=run,
        workflow=life.workflow,
        status=life.status.value,
        began=first.time,
        **msgspec.structs.asdict(total(each.fact for each in messages)),
    )
    return RunPart(line=line, began=first, messages=messages)


NOW = "now"
"""Name of the newest point."""

DEPTH_MAX = 200
"""Deepest nesting compared part by part; deeper values are compared as a whole."""

Path = tuple[str | int, ...]

_KINDS: dict[type[Any], str] = {
    MessageAdded: "messages",
    DecisionMade: "decisions",
    ResourceAccessed: "resources",
    HandedOff: "hand_offs",
}
SUMMARIES = "summaries"
"""Field of a compacted window; absent if the window never was."""


class Edit(StrEnum):
    """Kind of a difference between two points."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True):
    """Difference of an agent, or (None) of the run itself.

    `before` is None for an added value, `after` for a removed one.
    """

    run: str
    agent: str | None
    path: Path
    change: Edit
    before: Any
    after: Any


class Data(Answer):
    """State of a run at a position as plain data: its life, and its agents by name."""

    run: str
    position: int
    life: dict[str, Any]
    agents: dict[str, dict[str, Any]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the run, then each agent."""
        yield {"kind": "run", "run": self.run, "position": self.position, **self.life}
        for name, item in self.agents.items():
            yield {"kind": "agent", "run": self.run, "agent": name, **item}


class Difference(Answer):
    """Differences at a second position of a run, which may be an earlier one."""

    _lines: ClassVar[tuple[str, ...]] = ("changes",)

    run: str
    before: int
    after: int
    changes: list[Change]


async def state(workspace: Workspace, run: str, at: str | None, only: str | None) -> Data:
    """Return a run's state at a point, or one agent's.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    return data(await _view(workspace, run, at), only)


async def difference(
    workspace: Workspace, run: str, points: tuple[str, str], only: str | None
) -> Difference:
    """Return the differences at the second of two points, of one agent if it is named.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    before, after = [await _view(workspace, run, point) for point in points]
    if only is not None:
        if only not in before.agents:
            after.agent(only)  # an agent at neither point is an error
        for view in (before, after):
            view.agents = {name: item for name, item in view.agents.items() if name == only}
    changed = list(changes(data(before), data(after)))
    return Difference(run, before.position, after.position, changed)


async def _view(workspace: Workspace, run: str, at: str | None) -> RunView:
    point = None if at == NOW else at
    return await workspace.states.run(run, await workspace.points.up_to(run, point))


def data(view: RunView, only: str | None = None) -> Data:
    """Return a run's state, or one agent's. Raises NotFound."""
    names = view.agents if only is None else {only: view.agent(only)}
    agents = {name: agent(view.agents[name]) for name in names}
    return Data(view.run, view.position, life(view), agents)


def life(view: RunView) -> dict[str, Any]:
    """Return a run's life, with the versions of its streams and its shared state.

    Judgements are keyed by number, from 1.
    """
    plain = _plain(msgspec.structs.replace(view.life, judged=[]))
    plain["assigned"] = view.life.assigned and _plain(view.life.assigned)
    plain["judged"] = {str(n): _plain(each) for n, each in enumerate(view.life.judged, 1)}
    plain["scores"] = view.life.scores
    plain["streams"] = view.vector
    plain["board"] = {name: key(state) for name, state in sorted(view.boards.items())}
    return plain


def key(state: BoardState) -> dict[str, Any]:
    """Return a key of a run's shared state with its recorded value; `expires` is a log time."""
    return {**key_head(state), "value": state.plain}


def key_head(state: BoardState) -> dict[str, Any]:
    """Return a key of a run's shared state without its value."""
    expires = state.expiry
    return {
        "kind": state.kind.value if state.kind is not None else None,
        "version": state.changed,
        "author": state.author,
        "role": state.role,
        "labels": state.labels,
        "expires": expires.isoformat() if expires is not None else None,
        "event": state.event,
    }


def agent(state: AgentState) -> dict[str, Any]:
    """Return an agent's state: steps by number, facts by version, tools and checkpoints by name."""
    fields: dict[str, Any] = {
        "role": state.role,
        "version": state.version,
        "epoch": state.epoch,
        "left": state.left,
        "conversation_id": state.conversation_id,
        "turn_number": turn(state),
        "total_tokens": total(state.messages).tokens,
        "server_version": state.server_version,
        "protocol_version": state.protocol_version,
        "tools": {name: _plain(tool) for name, tool in state.tools.items()},
        "steps": {str(number): _plain(step) for number, step in state.steps.items()},
        "checkpoints": {},
        **{kind: {} for kind in _KINDS.values()},
    }
    for noted in state.facts:
        plain = {**_plain(noted.fact), "version": noted.version}
        if isinstance(noted.fact, CheckpointSaved):
            fields["checkpoints"][noted.fact.name] = plain
        elif isinstance(noted.fact, ContextCompacted):
            fields.setdefault(SUMMARIES, {})[str(noted.version)] = plain
        else:
            fields[_KINDS[type(noted.fact)]][str(noted.version)] = plain
    return fields


def turn(state: AgentState) -> int:
    """Return the number of the user's current turn, over the agent's whole conversation."""
    return state.turns_before + sum(message.role == "user" for message in state.messages)


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record as plain values, including fields with default values."""
    fields = msgspec.structs.asdict(record)
    decoded = recorded(msgspec.Raw(msgspec.json.encode(fields)))
    if decoded.keys() == fields.keys():
        return decoded  # type: ignore[no-any-return]  # an object of these keys
    return {name: recorded(values.dump(value)) for name, value in fields.items()}


# ---------------------------------------------------------------- differences


def changes(before: Data, after: Data) -> Iterator[Change]:
    """Yield the differences in the order of the data; an absent agent has no fields."""
    yield from _between(after.run, None, before.life, after.life)
    for name in {**before.agents, **after.agents}:
        sides = [side.agents.get(name, _NOBODY) for side in (before, after)]
        yield from _between(after.run, name, *sides)


_NOBODY: dict[str, Any] = {kind: {} for kind in ("tools", "steps", "checkpoints", *_KINDS.values())}


def _between(run: str, agent_name: str | None, before: Any, after: Any) -> Iterator[Change]:
    """Yield the differences of two values; iterative, since recorded values may be nested deep."""
    waiting: list[tuple[Any, Any, Path]] = [(before, after, ())]
    while waiting:
        old, new, at = waiting.pop()
        pairs = _pairs(old, new) if len(at) < DEPTH_MAX else None
        if pairs is None:
            if type(old) is not type(new) or old != new:
                yield Change(run, agent_name, at, *_change(old, new))
            continue
        waiting += [(a, b, (*at, key)) for key, a, b in reversed(pairs)]


_ABSENT = object()


def _pairs(old: Any, new: Any) -> list[tuple[str | int, Any, Any]] | None:
    """Return the parts of two values side by side; None if they have no comparable parts."""
    match old, new:
        case dict(), dict():
            return [(key, old.get(key, _ABSENT), new.get(key, _ABSENT)) for key in {**old, **new}]
        case list(), list():
            count = max(len(old), len(new))
            sides = [[*side, *[_ABSENT] * (count - len(side))] for side in (old, new)]
            return [(index, *pair) for index, pair in enumerate(zip(*sides, strict=True))]
        case _:
            return None


def _change(old: Any, new: Any) -> tuple[Edit, Any, Any]:
    """Return the kind of a value's difference, and the value before and after."""
    if old is _ABSENT:
        return Edit.ADDED, None, new
    if new is _ABSENT:
        return Edit.REMOVED, old, None
    return Edit.CHANGED, old, new


class _Fold:
    """State of an agent, with the time and the stream of each of its versions."""

    def __init__(self, workspace: Workspace) -> None:
        self.fetch = Fetcher(workspace)
        self.state = agents.AgentState()
        self.times: dict[int, datetime] = {}
        self.streams: dict[int, AgentStream] = {}
        self.reader = payloads.Reader(lambda: self.state)

    def take(self, stored: Stored, event: agents.AgentEvent) -> None:
        """Fold one event."""
        evolve(self.state, event)
        self.times[self.state.version] = stored.time
        if isinstance(stored.stream, AgentStream):
            self.streams[self.state.version] = stored.stream

    async def snapshot(self) -> Snapshot:
        """Return the snapshot of the current state."""
        state = await self._whole()
        version = state.version
        made = snapshot(self.streams[version], state, self.times, self.times[version])
        before = state.moment_before if made.moment is state.moment else state.moment_version
        if before:  # a fork's versions before its cut are its parent's, and so are their ids
            above = snapshot_id(self.streams[before], before)
            made = msgspec.structs.replace(made, parent_snapshot=above)
        return made

    async def _whole(self) -> AgentState:
        """Return the state with its blobs fetched."""
        state = self.state.copy()
        state.facts = [
            msgspec.structs.replace(noted, fact=await self._messages(noted.fact))
            for noted in state.facts
        ]
        step = state.steps.get(state.call_step) if state.call_step is not None else None
        if step is not None:
            arguments = await self.fetch(self.reader.arguments(step))
            result = await self.fetch(self.reader.result(step))
            state.steps[step.number] = msgspec.structs.replace(
                step, arguments=values.dump(arguments), result=values.dump(result)
            )
        return state

    async def _messages(self, message: Fact) -> Fact:
        if isinstance(message, ContextCompacted):
            whole = values.dump(await self.fetch(payload.unpack(message.summary)))
            return msgspec.structs.replace(message, summary=whole)
        if not isinstance(message, MessageAdded):
            return message
        if b'"$blob"' not in bytes(message.content) + bytes(message.fields):
            return message
        return msgspec.structs.replace(
            message,
            content=values.dump(await self.fetch(payload.unpack(message.content))),
            fields=values.dump(await self.fetch(payload.unpack(message.fields))),
        )


async def chain(workspace: Workspace, commits: Sequence[Stored]) -> AsyncIterator[Snapshot]:
    """Yield an agent's chain of snapshots in order; `commits` are all commits of its stream."""
    fold = _Fold(workspace)
    ahead: Snapshot | None = None
    for stored in commits:
        for each in stored.commit.events:
            event: Any = revive(each)
            fold.take(stored, event)
            if fold.state.moment_version != fold.state.version:
                continue
            if ahead is not None and fold.state.moment is not Moment.REQUEST:
                yield ahead
            ahead = await fold.snapshot()
    if ahead is not None:
        yield ahead


async def at_end(workspace: Workspace, commits: Sequence[Stored]) -> Snapshot:
    """Return the snapshot of an agent's state after these commits."""
    return await _at_version(workspace, commits, commits[-1].commit.last_version)


async def of_run(
    workspace: Workspace, run: str, agent: str | None = None, at: object = None
) -> list[Snapshot]:
    """Return the chain of snapshots of each agent of a run, or of one, up to a point.

    Raises NotFound.
    """
    up_to = await workspace.points.up_to(run, at)
    view = await workspace.states.run(run, up_to)
    named = [agent] if agent is not None else [*view.agents]
    for each in named:
        view.agent(each)
    commits = commits_by_agent(await workspace.states.history(run, AtPosition(view.position)))
    return [made for each in named async for made in chain(workspace, commits.get(each, []))]


async def one(workspace: Workspace, target: str, run: str | None = None) -> Snapshot:
    """Return the snapshot with an id; without a run, all runs are searched, newest first.

    Raises NotFound.
    """
    runs = [run] if run is not None else [each for each, _ in await workspace.runs()]
    for each in runs:
        for commits in commits_by_agent(await workspace.states.history(each)).values():
            for number, stored in enumerate(commits):
                version = snapshot_version(stored, target)
                if version is not None:
                    return await _at_version(workspace, commits[: number + 1], version)
    where = f"in run {run}" if run is not None else f"in any of {counted(len(runs), 'run')}"
    raise NotFound(
        f"a snapshot {target!r:.80} {where}", "'hansard run show RUN --snapshots' has them"
    )


async def now(workspace: Workspace, stream: AgentStream) -> Snapshot:
    """Return the snapshot of an agent's current state. Raises NotFound."""
    commits = await workspace.states.commits(stream)
    if not commits:
        raise NotFound(f"{stream.agent!r} in run {stream.run}", "it has not begun")
    return await at_end(workspace, commits)


async def is_newest(workspace: Workspace, made: Snapshot) -> bool:
    """Return whether the agent neither began nor ended a call after the snapshot, nor left."""
    state = await workspace.states.agent(AgentStream(made.run, made.role, made.agent))
    return state.moment_version <= made.version


async def _at_version(workspace: Workspace, commits: Sequence[Stored], version: int) -> Snapshot:
    """Return the snapshot at a version inside the last of an agent's commits."""
    fold = _Fold(workspace)
    for stored in commits:
        for each in stored.commit.events:
            event: Any = revive(each)
            fold.take(stored, event)
            if fold.state.version == version:
                return await fold.snapshot()
    message = f"version {version} is not in the commits that were read for it"
    raise AssertionError(message)


def as_json(made: Snapshot) -> dict[str, Any]:
    """Return a snapshot in JSON's types; other values stay tagged."""
    shape: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(made, tool_execution=None, agent_state=None)
    )
    mind = made.agent_state
    window = msgspec.structs.replace(mind.context_window, messages=[])
    shape["agent_state"] = {
        "conversation_id": mind.conversation_id,
        "turn_number": mind.turn_number,
        "context_window": {
            **msgspec.to_builtins(window),
            "messages": [jsonable(message) for message in mind.context_window.messages],
        },
    }
    execution = made.tool_execution
    if execution is not None:
        result = execution.result
        shape["tool_execution"] = {
            "tool_name": execution.tool_name,
            "parameters": jsonable(execution.parameters),
            "result": None
            if result is None
            else {
                "status": result.status.value,
                "data": jsonable(result.data),
                "execution_time_ms": result.execution_time_ms,
            },
        }
    return shape
