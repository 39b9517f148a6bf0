"""Snapshots: an agent's state before and after each call, each naming the one before."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given

from hansard.domain import agent, steps
from hansard.domain.ids import AgentStream
from hansard.domain.snapshot import Snapshot, SnapshotResult, snapshot, snapshot_id
from hansard.domain.steps import Effects, Failure
from tests.domain import strategies

STREAM = AgentStream("r", "writer", "ada")
NOW = datetime(2026, 11, 21, tzinfo=UTC)

began = agent.SessionBegan(
    epoch=1,
    agent="ada",
    role="writer",
    server_version="9.9",
    protocol_version="7",
    conversation_id="c",
    turns_before=2,
)
asked = agent.MessageAdded(
    role="user",
    content=msgspec.Raw(b'"hi"'),
    fingerprint="m",
    tokens=3,
    fields=msgspec.Raw(b'{"name":"bob"}'),
)
used = agent.ResourceAccessed(uri="file:x", operation="read", fingerprint="r")
requested = steps.StepRequested(
    step=1,
    tool="send",
    effects=Effects.ONCE,
    arguments=msgspec.Raw(b'{"to":{"$tuple":["a"]}}'),
    call="c",
    fingerprint="f",
)
completed = steps.StepCompleted(
    step=1, result=msgspec.Raw(b'{"$set":[1]}'), digest="d", duration_ms=1.5
)
failed = steps.StepFailed(step=1, error=Failure("ValueError", "no"), digest="d")


def shot(*events: Any) -> Snapshot:
    """The snapshot after some events of the agent."""
    state = agent.fold(agent.initial(), events)
    return snapshot(STREAM, state, {3: NOW}, NOW)


def test_before_and_after_a_call_are_two_snapshots_of_one_chain():
    """The snapshot of the intent has no result; that of the outcome has it and names the first."""
    before = shot(began, asked, used, requested)
    after = shot(began, asked, used, requested, completed)
    assert before.snapshot_id == snapshot_id(STREAM, 4)
    assert before.parent_snapshot is None
    assert after.parent_snapshot == before.snapshot_id
    assert before.tool_execution is not None
    assert before.tool_execution.result is None
    assert before.tool_execution.parameters == {"to": ("a",)}
    assert after.tool_execution is not None
    assert after.tool_execution.tool_name == "send"
    assert after.tool_execution.result == SnapshotResult("completed", {1}, 1.5)


def test_a_failure_is_a_result_too():
    """What a call raised stands as its result, with its type and text."""
    execution = shot(began, requested, failed).tool_execution
    assert execution is not None
    assert execution.result is not None
    assert execution.result.status == "failed"
    assert execution.result.data == {"error": "ValueError", "message": "no"}


def test_what_the_agent_had_in_mind():
    """Conversation, turns over all runs, messages in the provider's form and their tokens."""
    mind = shot(began, asked, requested).agent_state
    assert (mind.conversation_id, mind.turn_number) == ("c", 3)
    assert mind.context_window.messages == [{"role": "user", "content": "hi", "name": "bob"}]
    assert mind.context_window.total_tokens == 3


def test_versions_and_times_come_from_the_record():
    """The versions are those of the writer's event, the access times those of the log, None where
    the log's time is not at hand.
    """
    made = shot(began, asked, used, used, requested)
    assert (made.metadata.server_version, made.metadata.protocol_version) == ("9.9", "7")
    assert [item.access_time for item in made.resources_accessed] == [NOW.isoformat(), None]


def test_a_later_fact_is_not_another_snapshot():
    """Between two calls the id stays: it is that of the last event of a call."""
    assert shot(began, requested).snapshot_id == shot(began, requested, asked).snapshot_id


@given(strategies.agent_histories)
def test_the_chain_has_every_intent_and_outcome_once(events):
    """Going along any history, each begin and end of a call makes one snapshot, whose parent is
    the one before; every snapshot can be written down.
    """
    state = agent.initial()
    chain: list[Snapshot] = []
    for event in events:
        state = agent.fold(state, [event])
        made = snapshot(STREAM, state, {}, NOW)
        assert msgspec.json.encode(made)
        if state.call_version == state.version:
            chain.append(made)
    assert [made.parent_snapshot for made in chain] == [
        None,
        *(made.snapshot_id for made in chain[:-1]),
    ][: len(chain)]
    calls = (
        "step.requested",
        "step.completed",
        "step.failed",
        "step.blocked",
        "step.in_doubt",
        "step.settled",
    )
    assert len(chain) == sum(event.tag.startswith(calls) for event in events)
    assert len({made.snapshot_id for made in chain}) == len(chain)
