"""An agent's snapshots from its commits, with the log's own times and large values in full."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored
from hansard.domain import agent as agents
from hansard.domain import values
from hansard.domain.agent import AgentState, Fact, MessageAdded, Moment
from hansard.domain.choices import counted
from hansard.domain.conversation import ContextCompacted
from hansard.domain.ids import AgentStream
from hansard.domain.payload import references
from hansard.domain.snapshot import Snapshot, snapshot, snapshot_id
from hansard.inspect.payloads import Fetcher, jsonable
from hansard.inspect.trace import commits_by_agent
from hansard.state.replay import snapshot_version


class _Fold:
    """An agent's state, with the time and the stream of each of its versions."""

    def __init__(self, workspace: Workspace) -> None:
        self.fetch = Fetcher(workspace)
        self.state = agents.initial()
        self.times: dict[int, datetime] = {}
        self.streams: dict[int, AgentStream] = {}
        self.reader = payloads.Reader(lambda: self.state)

    def take(self, stored: Stored, event: agents.AgentEvent) -> None:
        """Fold one event."""
        agents.evolve(self.state, event)
        self.times[self.state.version] = stored.time
        if isinstance(stored.stream, AgentStream):
            self.streams[self.state.version] = stored.stream

    async def snapshot(self) -> Snapshot:
        """The snapshot of the state as it stands."""
        state = await self._whole()
        version = state.version
        made = snapshot(self.streams[version], state, self.times, self.times[version])
        before = state.moment_before if made.moment is state.moment else state.moment_version
        if before:  # a fork's versions before its cut are its parent's, and so are their ids
            above = snapshot_id(self.streams[before], before)
            made = msgspec.structs.replace(made, parent_snapshot=above)
        return made

    async def _whole(self) -> AgentState:
        """The state with what is kept elsewhere put in its place."""
        state = self.state.copy()
        state.facts = [
            msgspec.structs.replace(noted, fact=await self._said(noted.fact))
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

    async def _said(self, message: Fact) -> Fact:
        if isinstance(message, ContextCompacted):
            whole = values.dump(await self.fetch(references.unpack(message.summary)))
            return msgspec.structs.replace(message, summary=whole)
        if not isinstance(message, MessageAdded):
            return message
        if b'"$blob"' not in bytes(message.content) + bytes(message.fields):
            return message
        return msgspec.structs.replace(
            message,
            content=values.dump(await self.fetch(references.unpack(message.content))),
            fields=values.dump(await self.fetch(references.unpack(message.fields))),
        )


async def chain(workspace: Workspace, commits: Sequence[Stored]) -> AsyncIterator[Snapshot]:
    """The chain of an agent's snapshots, in order; `commits` are all of its stream."""
    fold = _Fold(workspace)
    ahead: Snapshot | None = None
    for stored in commits:
        for recorded in stored.commit.events:
            event: Any = revive(recorded)
            fold.take(stored, event)
            if fold.state.moment_version != fold.state.version:
                continue
            if ahead is not None and fold.state.moment is not Moment.REQUEST:
                yield ahead
            ahead = await fold.snapshot()
    if ahead is not None:
        yield ahead


async def at_end(workspace: Workspace, commits: Sequence[Stored]) -> Snapshot:
    """The snapshot of an agent's state after all of these commits."""
    return await _at_version(workspace, commits, commits[-1].commit.last_version)


async def of_run(
    workspace: Workspace, run: str, agent: str | None = None, at: object = None
) -> list[Snapshot]:
    """The chain of snapshots of each agent of a run, or of one of them, up to a point.

    Raises NotFound.
    """
    up_to = await workspace.points.up_to(run, at)
    view = await workspace.states.run(run, up_to)
    named = [agent] if agent is not None else [*view.agents]
    for each in named:
        view.agent(each)
    commits = commits_by_agent(await workspace.states.history(run, AtPosition(view.position)))
    return [made for each in named async for made in chain(workspace, commits.get(each, []))]


async def one(workspace: Workspace, wanted: str, run: str | None = None) -> Snapshot:
    """The snapshot of an id; without a run it is looked for in all of them, the newest first.

    Raises NotFound.
    """
    runs = [run] if run is not None else [each for each, _ in await workspace.runs()]
    for each in runs:
        for commits in commits_by_agent(await workspace.states.history(each)).values():
            for number, stored in enumerate(commits):
                version = snapshot_version(stored, wanted)
                if version is not None:
                    return await _at_version(workspace, commits[: number + 1], version)
    where = f"in run {run}" if run is not None else f"in any of {counted(len(runs), 'run')}"
    raise NotFound(
        f"a snapshot {wanted!r:.80} {where}", "'hansard run show RUN --snapshots' has them"
    )


async def now(workspace: Workspace, stream: AgentStream) -> Snapshot:
    """The snapshot of an agent as it stands. Raises NotFound."""
    commits = await workspace.states.commits(stream)
    if not commits:
        raise NotFound(f"{stream.agent!r} in run {stream.run}", "it has not begun")
    return await at_end(workspace, commits)


async def is_newest(workspace: Workspace, made: Snapshot) -> bool:
    """Whether no call of the agent began or ended after it, nor did the agent leave."""
    state = await workspace.states.agent(AgentStream(made.run, made.role, made.agent))
    return state.moment_version <= made.version


async def _at_version(workspace: Workspace, commits: Sequence[Stored], version: int) -> Snapshot:
    """The snapshot at a version inside the last of an agent's commits."""
    fold = _Fold(workspace)
    for stored in commits:
        for recorded in stored.commit.events:
            event: Any = revive(recorded)
            fold.take(stored, event)
            if fold.state.version == version:
                return await fold.snapshot()
    message = f"version {version} is not in the commits that were read for it"
    raise AssertionError(message)


def as_json(made: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON can say it; values that JSON has no word for stay tagged."""
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
