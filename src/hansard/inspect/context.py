"""The context windows of a run's agents as they stood at a point."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import msgspec

from hansard.agents.annotations.conversations import earlier_commits
from hansard.agents.workspace import Workspace
from hansard.bus.log import UpTo
from hansard.bus.times import EventTime, imported
from hansard.domain.agent import MessageAdded, StatedFact
from hansard.domain.conversation import ContextCompacted
from hansard.inspect.answer import Answer
from hansard.inspect.messages import (
    Compacted,
    Message,
    Summary,
    ToldFact,
    message,
    said,
    summary,
    told_facts,
    window,
    window_total,
)
from hansard.inspect.payloads import Payloads
from hansard.inspect.trace import AgentHistory, agents_at


class AgentContext(msgspec.Struct, tag_field="kind", tag="context", kw_only=True):
    """An agent's context window in figures."""

    run: str
    agent: str
    role: str
    version: int
    position: int
    messages: int
    tokens: int | None
    usage: dict[str, float]


class Contexts(Answer, kw_only=True):
    """A run's agents at a position, each to be told by itself; `imported` where nobody knows when
    their messages were. `known` are messages and summaries by the ids of their events: the agents'
    own, and those of earlier runs that a summary stands for.
    """

    run: str
    position: int
    imported: EventTime | None
    agents: list[AgentHistory]
    known: dict[str, ToldFact] = {}

    def lines(self) -> Iterable[object]:
        """Nothing but what is told of each agent."""
        return ()

    def context(self, agent: AgentHistory) -> AgentContext:
        """An agent's window in figures."""
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
        """An agent's window one by one, so that one large content at a time is held; `every`: after
        a summary all that it stands for.
        """
        for index, noted in enumerate(agent.state.window, 1):
            async for each in self._told(agent, index, noted, fetch, every=every):
                yield each

    async def team(
        self, fetch: Payloads, *, every: bool = False
    ) -> AsyncIterator[Message | Summary | Compacted]:
        """The windows of all agents as one conversation, in the order of the record: by position.
        Each is told as in its agent's own window, `index` included.
        """
        found = [
            (agent.events[noted.version].stored.position, noted.version, index, agent, noted)
            for agent in self.agents
            for index, noted in enumerate(agent.state.window, 1)
        ]
        for *_, index, agent, noted in sorted(found, key=lambda each: each[:2]):
            async for each in self._told(agent, index, noted, fetch, every=every):
                yield each

    async def _told(
        self, agent: AgentHistory, index: int, noted: StatedFact, fetch: Payloads, *, every: bool
    ) -> AsyncIterator[Message | Summary | Compacted]:
        """A message, or a summary and, with `every`, all that it stands for."""
        stored = agent.events[noted.version]
        if isinstance(noted.fact, MessageAdded):
            yield await message(
                self.run, agent.name, index, noted.version, stored, noted.fact, fetch
            )
        elif isinstance(noted.fact, ContextCompacted):
            told = msgspec.structs.replace(self.known[stored.event.id], run=self.run)
            yield await summary(told, noted.fact, index, self.known, fetch)
            if every:
                async for each in self._compacted(noted.version, noted.fact, fetch):
                    yield each

    async def _compacted(
        self, version: int, told: ContextCompacted, fetch: Payloads
    ) -> AsyncIterator[Compacted]:
        """What a summary stands for, and what a summary among that stands for."""
        for index, gone in enumerate(told.stands_for, 1):
            found = self.known.get(gone)
            if found is None:
                continue
            whole = await said(found, index, self.known, fetch)
            yield Compacted(summary=version, said=whole)
            if isinstance(found.fact, ContextCompacted):
                async for each in self._compacted(found.version, found.fact, fetch):
                    yield each


async def _known(
    workspace: Workspace, run: str, agents: Iterable[AgentHistory]
) -> dict[str, ToldFact]:
    """Messages and summaries, where an agent has a summary: nobody else needs them."""
    found: dict[str, ToldFact] = {}
    for agent in agents:
        facts = [each.fact for each in agent.state.facts]
        summaries = [each for each in facts if isinstance(each, ContextCompacted)]
        if not summaries:
            continue
        commits = {event.stored.position: event.stored for event in agent.events.values()}
        found |= told_facts(commits.values())
        conversation = agent.state.conversation_id
        away = {each for summary in summaries for each in summary.stands_for} - found.keys()
        if away and conversation is not None:
            found |= told_facts(await earlier_commits(workspace, conversation, run))
    return found


async def contexts(workspace: Workspace, run: str, up_to: UpTo, agent: str | None) -> Contexts:
    """The agents of a run, or one, at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view, agents = await agents_at(workspace, run, up_to, agent)
    times = (each.events[version].time for each in agents for version, _ in window(each.state))
    known = await _known(workspace, run, agents)
    return Contexts(
        run=run, position=view.position, imported=imported(times), agents=agents, known=known
    )
