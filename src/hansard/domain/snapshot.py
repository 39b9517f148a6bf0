"""The state of an agent at a point, in one self-contained shape.

Snapshots form a chain: it begins with the initial request, has one for each call's intent and one
for its outcome, ends with the final state, and each names its predecessor (`Moment`). Their ids
derive from stream and version, so the same point always has the same id, and any version has one.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from hansard.domain import value_types, values
from hansard.domain.agent import AgentState, MessageAdded, Moment, ResourceAccessed
from hansard.domain.choices import Brief
from hansard.domain.conversation import ContextCompacted, total
from hansard.domain.ids import AgentStream, uuid8
from hansard.domain.steps import Step, StepStatus


class Outcome(StrEnum):
    """The outcome of a call in a snapshot.

    Attributes:
        SUCCESS: It returned.
        ERROR: It raised; or it was settled as not done.
        BLOCKED: The gate refused it.
        IN_DOUBT: It is unknown whether it happened.
    """

    SUCCESS = "success"
    ERROR = "error"
    BLOCKED = "blocked"
    IN_DOUBT = "in_doubt"


_OUTCOMES = {
    StepStatus.COMPLETED: Outcome.SUCCESS,
    StepStatus.FAILED: Outcome.ERROR,
    StepStatus.NOT_DONE: Outcome.ERROR,
    StepStatus.BLOCKED: Outcome.BLOCKED,
    StepStatus.IN_DOUBT: Outcome.IN_DOUBT,
}


class ContextWindow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The messages in the provider's form, and the sum of their recorded token counts.

    Attributes:
        messages: In the provider's form.
        total_tokens: The sum of their tokens; None, and absent in JSON, where some are unknown.
        uncounted: The number of messages whose tokens were not counted.
    """

    messages: list[dict[str, Any]]
    total_tokens: int | None = None
    uncounted: int = 0


class SnapshotState(msgspec.Struct, frozen=True):
    """The agent's conversation, turn and context window.

    Attributes:
        conversation_id: The conversation that it continues.
        turn_number: Turns of a user so far, those of earlier runs included.
        context_window: The messages of its next model call.
    """

    conversation_id: str | None
    turn_number: int
    context_window: ContextWindow


class SnapshotResult(msgspec.Struct, frozen=True):
    """The outcome of the call; `data` is the result, or the error's type and message.

    Attributes:
        status: The outcome.
        execution_time_ms: The call's duration; None if it was not measured.
    """

    status: Outcome
    data: Any
    execution_time_ms: float | None


class ToolExecution(msgspec.Struct, frozen=True):
    """The call; `result` is None before it ended.

    Attributes:
        tool_name: The called tool.
        parameters: Its arguments, by name.
    """

    tool_name: str
    parameters: dict[str, Any]
    result: SnapshotResult | None


class ResourceAccess(msgspec.Struct, frozen=True):
    """A resource that the agent had used at that point.

    Attributes:
        uri: The resource.
        access_time: The time of access, by the log's clock; None if it is unknown.
        operation: The kind of access.
    """

    uri: str
    access_time: str | None
    operation: str


class SnapshotMetadata(msgspec.Struct, frozen=True):
    """The versions of the writer of the events, not of their reader.

    Attributes:
        server_version: The version of Hansard.
        protocol_version: The version of the record's format.
    """

    server_version: str
    protocol_version: str


class Snapshot(Brief, msgspec.Struct, frozen=True, kw_only=True):
    """An agent's state at a point of its work."""

    snapshot_id: str
    """A UUID derived from the agent's stream and the version: equal for equal points."""

    moment: Moment
    """The place in the agent's work."""

    run: str
    """The run."""

    agent: str
    """The agent."""

    role: str
    """The agent's role."""

    version: int
    """The version of the agent's stream: `agent@version` is the same point."""

    parent_snapshot: str | None
    """The id of the previous snapshot; None: it is the agent's first."""

    timestamp: datetime
    """The time of the event, UTC."""

    agent_state: SnapshotState
    """The agent's conversation, turn and context window."""

    tool_execution: ToolExecution | None
    """The call before or after which the snapshot was taken; None for another `moment`."""

    resources_accessed: list[ResourceAccess]
    """The resources in the order of use."""

    metadata: SnapshotMetadata
    """The versions of the writer of the events."""


def snapshot_id(stream: AgentStream, version: int) -> str:
    """Return the id of the snapshot at a version of a stream."""
    return uuid8("snapshot", stream.run, stream.role, stream.agent, str(version))


def snapshot(
    stream: AgentStream, state: AgentState, times: dict[int, datetime], timestamp: datetime
) -> Snapshot:
    """Build the snapshot of a state. `times` are the log's times of versions, as far as known."""
    with value_types.reading():
        return _snapshot(stream, state, times, timestamp)


def _snapshot(
    stream: AgentStream, state: AgentState, times: dict[int, datetime], timestamp: datetime
) -> Snapshot:
    step = state.steps.get(state.call_step) if state.call_step is not None else None
    window = [
        noted.fact
        for noted in state.window
        if isinstance(noted.fact, MessageAdded | ContextCompacted)
    ]
    messages = [_message(each) for each in window]
    chained = state.moment_version == state.version
    before = state.moment_before if chained else state.moment_version
    moment = state.moment if chained else Moment.NOW
    tokens = [each.tokens for each in window]
    of_call = moment in {Moment.BEFORE, Moment.AFTER}
    return Snapshot(
        snapshot_id=snapshot_id(stream, state.version),
        moment=moment,
        run=stream.run,
        agent=stream.agent,
        role=stream.role,
        version=state.version,
        parent_snapshot=snapshot_id(stream, before) if before else None,
        timestamp=timestamp,
        agent_state=SnapshotState(
            state.conversation_id,
            state.turns_before + sum(message.role == "user" for message in state.messages),
            ContextWindow(
                messages=messages, total_tokens=total(tokens), uncounted=tokens.count(None)
            ),
        ),
        tool_execution=_execution(step, state.version) if step and of_call else None,
        resources_accessed=[
            ResourceAccess(
                noted.fact.uri,
                times[noted.version].isoformat() if noted.version in times else None,
                noted.fact.operation,
            )
            for noted in state.facts
            if isinstance(noted.fact, ResourceAccessed)
        ],
        metadata=SnapshotMetadata(state.server_version, state.protocol_version),
    )


def _message(fact: MessageAdded | ContextCompacted) -> dict[str, Any]:
    if isinstance(fact, ContextCompacted):
        return {"role": fact.role, "content": values.load(fact.summary)}
    fields = values.load(fact.fields) or {}
    return {"role": fact.role, "content": values.load(fact.content), **fields}


def _execution(step: Step, version: int) -> ToolExecution:
    result: SnapshotResult | None = None
    if step.status is not StepStatus.REQUESTED and step.version != version:
        data: Any = values.load(step.result)
        if step.error is not None:
            data = {"error": step.error.type, "message": step.error.message}
        result = SnapshotResult(_OUTCOMES[step.status], data, step.duration_ms)
    arguments = values.load(step.arguments)
    return ToolExecution(step.tool, arguments, result)
