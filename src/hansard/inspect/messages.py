"""Messages, context windows and conversations of agents."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.annotations.windows import earlier_commits
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.bus.times import Clock, EventTime, Time, began, imported, own
from hansard.domain.agent import AgentState, MessageAdded, StatedFact
from hansard.domain.conversation import ContextCompacted, RunJoined
from hansard.domain.errors import BadName
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.inspect.answer import Answer
from hansard.inspect.payloads import Payloads
from hansard.inspect.trace import AgentHistory, StoredEvent, agents_at


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


async def message(
    run: str,
    agent: str,
    index: int,
    version: int,
    stored: StoredEvent,
    added: MessageAdded,
    fetch: Payloads,
) -> Message:
    """Read a recorded message. Raises Corrupt."""
    time = stored.time.time
    return Message(
        run=run,
        agent=agent,
        index=index,
        role=added.role,
        message=await provider_form(added, fetch),
        tokens=added.tokens,
        usage=added.usage,
        occurred_at=stored.event.occurred_at,
        at=time.at,
        clock=time.clock,
        version=version,
        position=stored.stored.position,
        step=added.step,
    )


class MessageFact(msgspec.Struct, frozen=True):
    """Message or summary, with its place."""

    run: str
    agent: str
    version: int
    address: str
    stored: StoredEvent
    fact: MessageAdded | ContextCompacted


def message_facts(commits: Iterable[Stored]) -> dict[str, MessageFact]:
    """Return the messages and summaries of commits, by the ids of their events."""
    found: dict[str, MessageFact] = {}
    for stored in commits:
        stream = stored.stream
        for index, recorded in enumerate(stored.commit.events):
            if recorded.type in (MessageAdded.tag, ContextCompacted.tag):
                event = revive(recorded)
                if isinstance(stream, AgentStream) and isinstance(
                    event, MessageAdded | ContextCompacted
                ):
                    found[recorded.id] = MessageFact(
                        stream.run,
                        stream.agent,
                        stored.commit.version + index,
                        f"{stored.position}.{index}",
                        StoredEvent(stored, recorded),
                        event,
                    )
    return found


async def summary(
    report: MessageFact,
    fact: ContextCompacted,
    index: int,
    known: Mapping[str, MessageFact],
    fetch: Payloads,
) -> Summary:
    """Read a recorded summary; `known` are the facts that it may have replaced. Raises Corrupt."""
    time = report.stored.time.time
    places = [known[each].address for each in fact.stands_for if each in known]
    return Summary(
        run=report.run,
        agent=report.agent,
        index=index,
        role=fact.role,
        message={"role": fact.role, "content": await fetch.value(fact.summary)},
        messages=len(fact.stands_for),
        first=places[0] if places else None,
        last=places[-1] if places else None,
        tokens=fact.tokens,
        tokens_before=fact.tokens_before,
        tokens_after=fact.tokens_after,
        at=time.at,
        clock=time.clock,
        version=report.version,
        position=report.stored.stored.position,
        step=fact.step,
    )


async def recorded_message(
    report: MessageFact, index: int, known: Mapping[str, MessageFact], fetch: Payloads
) -> Message | Summary:
    """Read a recorded message or summary. Raises Corrupt."""
    if isinstance(report.fact, ContextCompacted):
        return await summary(report, report.fact, index, known, fetch)
    return await message(
        report.run, report.agent, index, report.version, report.stored, report.fact, fetch
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


def total(messages: Iterable[MessageAdded]) -> Totals:
    """Return the totals of messages."""
    found = list(messages)
    tokens = [message.tokens for message in found if message.tokens is not None]
    usage = summed([message.usage for message in found])
    return Totals(len(found), sum(tokens) if tokens else None, usage)


def window_total(state: AgentState) -> Totals:
    """Return the totals of an agent's window; a summary counts as a message."""
    facts = [noted.fact for noted in state.window]
    found = total(fact for fact in facts if isinstance(fact, MessageAdded))
    for fact in facts:
        if isinstance(fact, ContextCompacted):
            found.messages += 1
            if fact.tokens is not None:
                found.tokens = (found.tokens or 0) + fact.tokens
    return found


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
        return AgentContext(
            run=self.run,
            agent=agent.name,
            role=agent.state.role,
            version=agent.state.version,
            position=self.position,
            **msgspec.structs.asdict(window_total(agent.state)),
        )

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
        found = [
            (agent.events[noted.version].stored.position, noted.version, index, agent, noted)
            for agent in self.agents
            for index, noted in enumerate(agent.state.window, 1)
        ]
        for *_, index, agent, noted in sorted(found, key=lambda each: each[:2]):
            async for each in self._expanded(agent, index, noted, fetch, every=every):
                yield each

    async def _expanded(
        self, agent: AgentHistory, index: int, noted: StatedFact, fetch: Payloads, *, every: bool
    ) -> AsyncIterator[Message | Summary | Compacted]:
        """Yield a message, or a summary and, with `every`, all that it replaced."""
        stored = agent.events[noted.version]
        if isinstance(noted.fact, MessageAdded):
            yield await message(
                self.run, agent.name, index, noted.version, stored, noted.fact, fetch
            )
        elif isinstance(noted.fact, ContextCompacted):
            answer = msgspec.structs.replace(self.known[stored.event.id], run=self.run)
            yield await summary(answer, noted.fact, index, self.known, fetch)
            if every:
                async for each in self._replaced_messages(noted.version, noted.fact, fetch):
                    yield each

    async def _replaced_messages(
        self, version: int, event: ContextCompacted, fetch: Payloads
    ) -> AsyncIterator[Compacted]:
        """Yield what a summary replaced, and what summaries among that replaced."""
        for index, gone in enumerate(event.stands_for, 1):
            found = self.known.get(gone)
            if found is None:
                continue
            whole = await recorded_message(found, index, self.known, fetch)
            yield Compacted(summary=version, original=whole)
            if isinstance(found.fact, ContextCompacted):
                async for each in self._replaced_messages(found.version, found.fact, fetch):
                    yield each


async def _known_facts(
    workspace: Workspace, run: str, agents: Iterable[AgentHistory]
) -> dict[str, MessageFact]:
    """Return messages and summaries if an agent has a summary; otherwise they are not needed."""
    found: dict[str, MessageFact] = {}
    for agent in agents:
        facts = [each.fact for each in agent.state.facts]
        summaries = [each for each in facts if isinstance(each, ContextCompacted)]
        if not summaries:
            continue
        commits = {event.stored.position: event.stored for event in agent.events.values()}
        found |= message_facts(commits.values())
        conversation = agent.state.conversation_id
        away = {each for summary in summaries for each in summary.stands_for} - found.keys()
        if away and conversation is not None:
            found |= message_facts(await earlier_commits(workspace, conversation, run))
    return found


async def contexts(workspace: Workspace, run: str, up_to: UpTo, agent: str | None) -> Contexts:
    """Return the agents of a run, or one, at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view, agents = await agents_at(workspace, run, up_to, agent)
    times = (each.events[version].time for each in agents for version, _ in window(each.state))
    known = await _known_facts(workspace, run, agents)
    return Contexts(
        run=run, position=view.position, imported=imported(times), agents=agents, known=known
    )


REMEDY = "see the conversations of 'hansard runs --json'"

LocatedMessage = tuple[AgentStream, int, StoredEvent, MessageAdded]
"""Message with its agent and version."""


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
    messages: list[LocatedMessage]

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
        for index, (stream, version, stored, added) in enumerate(part.messages, first):
            yield await message(part.line.run, stream.agent, index, version, stored, added, fetch)


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
    messages = [added for part in parts for _, _, _, added in part.messages]
    figures = ConversationFigures(
        conversation=name,
        position=end,
        runs=[part.line.run for part in parts],
        turns=sum(added.role == "user" for added in messages),
        **msgspec.structs.asdict(total(messages)),
    )
    times = [part.began for part in parts]
    times += [stored.time for part in parts for _, _, stored, _ in part.messages]
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
    found: list[AtPosition | AtTime | None] = []
    absent: NotFound | None = None
    for run in runs:
        try:
            found.append(await workspace.points.up_to(run, at))
        except NotFound as error:
            absent = error
    places = list(dict.fromkeys(found))
    if not places:
        raise absent or NotFound(f"conversation {conversation!r}", REMEDY)
    if len(places) > 1:
        remedy = "several of its runs have it: give a position, a time or an id"
        raise BadName("point", at, remedy)
    return places[0]


async def _part(workspace: Workspace, run: str, end: int) -> RunPart:
    """Return a run's messages up to a position. Raises NotFound, Corrupt."""
    view = await workspace.states.run(run, AtPosition(end))
    history = await workspace.states.history(run, AtPosition(end))
    parts = [found for stored in history for found in _messages_of(stored)]
    first = began(own(run, history))
    line = ConversationRun(
        run=run,
        workflow=view.life.workflow,
        status=view.life.status.value,
        began=first.time,
        **msgspec.structs.asdict(total(added for _, _, _, added in parts)),
    )
    return RunPart(line=line, began=first, messages=parts)


def _messages_of(stored: Stored) -> list[LocatedMessage]:
    """Return a commit's messages."""
    found: list[LocatedMessage] = []
    for version, recorded in enumerate(stored.commit.events, stored.commit.version):
        if recorded.type == MessageAdded.tag and isinstance(stored.stream, AgentStream):
            event = revive(recorded)
            if isinstance(event, MessageAdded):
                found.append((stored.stream, version, StoredEvent(stored, recorded), event))
    return found
