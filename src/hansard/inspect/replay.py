"""A run derived again from its record: no tool runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.log import Stored
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.run import Chain, RunStarted
from hansard.domain.steps import Failure
from hansard.inspect.answer import Answer
from hansard.inspect.payloads import Fetcher
from hansard.inspect.rederive import Checked, Rederiver
from hansard.inspect.trace import Line, steps_of


class Call(msgspec.Struct, tag_field="kind", tag="call", kw_only=True):
    """A call, its values whole, and what came of deriving it again."""

    run: str
    agent: str
    step: int
    tool: str
    arguments: Any
    status: str
    result: Any
    error: Failure | None
    differs: list[str]
    unproven: list[str]


class Summary(msgspec.Struct, tag_field="kind", tag="summary", kw_only=True):
    """How many calls there are, and how they came out."""

    run: str
    tools_run: int = 0
    calls: int = 0
    differ: int = 0
    unproven: int = 0


class Replayed(Answer):
    """A run's calls in the order of their intents, each with what came of it."""

    run: str
    calls: list[tuple[Line, Checked]]

    def lines(self) -> Iterator[Call | Summary]:
        """Each call, then the summary."""
        for line, checked in self.calls:
            yield Call(
                run=self.run,
                agent=line.agent,
                step=line.step.number,
                tool=line.step.tool,
                arguments=checked.arguments,
                status=line.step.status.value,
                result=checked.result,
                error=line.step.error,
                differs=checked.differs,
                unproven=checked.unproven,
            )
        yield self.summary

    @property
    def summary(self) -> Summary:
        """All calls in figures; one that differs is not counted as unproven."""
        found = [checked for _, checked in self.calls]
        return Summary(
            run=self.run,
            calls=len(found),
            differ=sum(bool(checked.differs) for checked in found),
            unproven=sum(bool(checked.unproven and not checked.differs) for checked in found),
        )


async def replay(workspace: Workspace, run: str) -> Replayed:
    """Every call of a run derived again from what it was given and what it returned.

    Raises NotFound, UnknownEvent, Corrupt.
    """
    history = await workspace.states.history(run)
    fetch = Fetcher(workspace)
    full = _is_full(history)
    agents: dict[str, Rederiver] = {}
    for stored in history:
        if isinstance(stored.stream, AgentStream):
            name = stored.stream.agent
            if name not in agents:
                agents[name] = Rederiver(name, fetch, full=full)
            await agents[name].take([stored])
    lines = [(line, agents[line.agent].checked[line.step.number]) for line in steps_of(history)]
    return Replayed(run, lines)


def _is_full(history: list[Stored]) -> bool:
    """Whether the run began with the full chain, or what it was forked from. By that event alone:
    what else its life says may be of a newer version.
    """
    begun = (
        revive(recorded)
        for stored in history
        if isinstance(stored.stream, RunStream)
        for recorded in stored.commit.events
        if recorded.type == RunStarted.tag
    )
    return any(isinstance(each, RunStarted) and each.chain is Chain.FULL for each in begun)
