"""The context windows of a run's agents as they stood at a point."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.log import UpTo
from hansard.inspect.agent_histories import AgentHistory, agents_at
from hansard.inspect.answer import Answer
from hansard.inspect.messages import Message, message, total, window
from hansard.inspect.payloads import Payloads
from hansard.inspect.times import EventTime, imported


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
    their messages were.
    """

    run: str
    position: int
    imported: EventTime | None
    agents: list[AgentHistory]

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
            **msgspec.structs.asdict(total(agent.state.messages)),
        )

    async def messages(self, agent: AgentHistory, fetch: Payloads) -> AsyncIterator[Message]:
        """An agent's messages one by one, so that one large content at a time is held."""
        for index, (version, added) in enumerate(window(agent.state), 1):
            stored = agent.events[version]
            yield await message(self.run, agent.name, index, version, stored, added, fetch)


async def contexts(workspace: Workspace, run: str, up_to: UpTo, agent: str | None) -> Contexts:
    """The agents of a run, or one, at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view, agents = await agents_at(workspace, run, up_to, agent)
    times = (each.events[version].time for each in agents for version, _ in window(each.state))
    return Contexts(run=run, position=view.position, imported=imported(times), agents=agents)
