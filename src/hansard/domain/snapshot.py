"""The state of an agent before and after a call, in one self-contained shape.

Snapshots form a chain: every call has one for its intent and one for its outcome, and each names
the one before. Their ids derive from stream and version, so the same point always has the same id.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from hansard.domain import value_types, values
from hansard.domain.agent import AgentState, ResourceAccessed
from hansard.domain.brief import Brief
from hansard.domain.ids import AgentStream, uuid8
from hansard.domain.steps import Step, StepStatus


class ContextWindow(msgspec.Struct, frozen=True):
    """The messages in the provider's form, and their token counts as recorded, summed.

    Attributes:
        messages: In the provider's form.
        total_tokens: Their tokens, summed, as far as they were counted.
    """

    messages: list[dict[str, Any]]
    total_tokens: int


class SnapshotState(msgspec.Struct, frozen=True):
    """What the agent had in mind.

    Attributes:
        conversation_id: The conversation that it goes on with.
        turn_number: Turns of a user so far, those of earlier runs included.
        context_window: What it is given next.
    """

    conversation_id: str | None
    turn_number: int
    context_window: ContextWindow


class SnapshotResult(msgspec.Struct, frozen=True):
    """How the call ended; `data` is the result, or the error's type and message.

    Attributes:
        status: What has become of the step.
        execution_time_ms: How long it took; None where nobody measured.
    """

    status: str
    data: Any
    execution_time_ms: float | None


class ToolExecution(msgspec.Struct, frozen=True):
    """The call; `result` is None before it ended.

    Attributes:
        tool_name: What was called.
        parameters: With which arguments, by name.
    """

    tool_name: str
    parameters: dict[str, Any]
    result: SnapshotResult | None


class ResourceAccess(msgspec.Struct, frozen=True):
    """A resource the agent had used by then.

    Attributes:
        uri: Which resource.
        access_time: When, by the writer's clock.
        operation: What was done with it.
    """

    uri: str
    access_time: str | None
    operation: str


class SnapshotMetadata(msgspec.Struct, frozen=True):
    """The versions of what wrote the events, not of what reads them.

    Attributes:
        server_version: Of Hansard.
        protocol_version: Of the record's format.
    """

    server_version: str
    protocol_version: str


class Snapshot(Brief, msgspec.Struct, frozen=True):
    """An agent's state just before or after a call."""

    snapshot_id: str
    """A UUID, made of the agent's stream and the version: the same whenever it is asked for."""

    parent_snapshot: str | None
    """The id of the one before it; None: it is the agent's first."""

    timestamp: datetime
    """Of the event, UTC."""

    agent_state: SnapshotState
    """What the agent had before it: conversation, turn, context window."""

    tool_execution: ToolExecution | None
    """The call that it stands before or after."""

    resources_accessed: list[ResourceAccess]
    """In the order of use."""

    metadata: SnapshotMetadata
    """What wrote the events."""


def snapshot_id(stream: AgentStream, version: int) -> str:
    """The id of the snapshot at a version of a stream."""
    return uuid8("snapshot", stream.run, stream.role, stream.agent, str(version))


def snapshot(
    stream: AgentStream, state: AgentState, times: dict[int, datetime], timestamp: datetime
) -> Snapshot:
    """The snapshot of a state. `times` are the log's times of versions, as far as known."""
    with value_types.reading():
        return _snapshot(stream, state, times, timestamp)


def _snapshot(
    stream: AgentStream, state: AgentState, times: dict[int, datetime], timestamp: datetime
) -> Snapshot:
    step = state.steps.get(state.call_step) if state.call_step is not None else None
    messages = [
        {
            "role": message.role,
            "content": values.load(message.content),
            **(values.load(message.fields) or {}),
        }
        for message in state.messages
    ]
    return Snapshot(
        snapshot_id(stream, state.call_version),
        snapshot_id(stream, state.parent_version) if state.parent_version else None,
        timestamp,
        SnapshotState(
            state.conversation_id,
            state.turns_before + sum(message.role == "user" for message in state.messages),
            ContextWindow(messages, state.total_tokens),
        ),
        _execution(step, state.call_version) if step else None,
        [
            ResourceAccess(
                noted.fact.uri,
                times[noted.version].isoformat() if noted.version in times else None,
                noted.fact.operation,
            )
            for noted in state.facts
            if isinstance(noted.fact, ResourceAccessed)
        ],
        SnapshotMetadata(state.server_version, state.protocol_version),
    )


def _execution(step: Step, version: int) -> ToolExecution:
    result: SnapshotResult | None = None
    if step.status is not StepStatus.REQUESTED and step.version != version:
        data: Any = values.load(step.result)
        if step.error is not None:
            data = {"error": step.error.type, "message": step.error.message}
        result = SnapshotResult(step.status.value, data, step.duration_ms)
    arguments = values.load(step.arguments)
    return ToolExecution(step.tool, arguments, result)
