"""An agent's snapshots from its commits, with the log's own times and large values in full."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.log import Stored
from hansard.domain import agent as agents
from hansard.domain import values
from hansard.domain.agent import AgentState, MessageAdded
from hansard.domain.ids import AgentStream
from hansard.domain.payload import references
from hansard.domain.snapshot import Snapshot, snapshot, snapshot_id
from hansard.inspect.payloads import Fetcher, jsonable


class _Fold:
    """An agent's state, with the time and the stream of each of its versions."""

    def __init__(self, workspace: Workspace) -> None:
        self.fetch = Fetcher(workspace)
        self.state = agents.initial()
        self.times: dict[int, datetime] = {}
        self.streams: dict[int, AgentStream] = {}
        self.reader = payloads.Reader(lambda: self.state)

    def take(self, stored: Stored, event: agents.AgentEvent) -> bool:
        """Fold one event; whether it begins or ends a call."""
        before = self.state.call_version
        agents.evolve(self.state, event)
        self.times[self.state.version] = stored.time
        if isinstance(stored.stream, AgentStream):
            self.streams[self.state.version] = stored.stream
        return self.state.call_version != before

    async def snapshot(self) -> dict[str, Any]:
        """The snapshot of the state as it stands."""
        state = await self._whole()
        version = state.call_version or state.version
        made = snapshot(self.streams[version], state, self.times, self.times[version])
        parent = state.parent_version
        if parent:  # a fork's versions before its cut are its parent's, and so are their ids
            above = snapshot_id(self.streams[parent], parent)
            made = msgspec.structs.replace(made, parent_snapshot=above)
        return as_json(made)

    async def _whole(self) -> AgentState:
        """The state with what is kept elsewhere put in its place."""
        state = self.state.copy()
        state.facts = [
            msgspec.structs.replace(noted, fact=await self._message(noted.fact))
            if isinstance(noted.fact, MessageAdded)
            else noted
            for noted in state.facts
        ]
        step = state.steps.get(state.call_step) if state.call_step is not None else None
        if step is not None:
            given = await self.fetch(self.reader.arguments(step))
            result = await self.fetch(self.reader.result(step))
            state.steps[step.number] = msgspec.structs.replace(
                step, arguments=values.dump(given), result=values.dump(result)
            )
        return state

    async def _message(self, message: MessageAdded) -> MessageAdded:
        if b'"$blob"' not in bytes(message.content) + bytes(message.fields):
            return message
        return msgspec.structs.replace(
            message,
            content=values.dump(await self.fetch(references.unpack(message.content))),
            fields=values.dump(await self.fetch(references.unpack(message.fields))),
        )


async def chain(workspace: Workspace, commits: Sequence[Stored]) -> AsyncIterator[dict[str, Any]]:
    """The snapshots before and after each call, in order."""
    fold = _Fold(workspace)
    for stored in commits:
        for recorded in stored.commit.events:
            event: Any = revive(recorded)
            if fold.take(stored, event):
                yield await fold.snapshot()


async def newest(workspace: Workspace, commits: Sequence[Stored]) -> AsyncIterator[dict[str, Any]]:
    """The snapshot of the state after all commits."""
    fold = _Fold(workspace)
    for stored in commits:
        for recorded in stored.commit.events:
            event: Any = revive(recorded)
            fold.take(stored, event)
    yield await fold.snapshot()


def as_json(made: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON can say it; values that JSON has no word for stay tagged."""
    shape: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(made, tool_execution=None, agent_state=None)
    )
    window = made.agent_state.context_window
    shape["agent_state"] = {
        "conversation_id": made.agent_state.conversation_id,
        "turn_number": made.agent_state.turn_number,
        "context_window": {
            "messages": [jsonable(message) for message in window.messages],
            "total_tokens": window.total_tokens,
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
                "status": result.status,
                "data": jsonable(result.data),
                "execution_time_ms": result.execution_time_ms,
            },
        }
    return shape
