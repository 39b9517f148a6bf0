"""Snapshots: an agent's state at the points of its work, each naming the one before."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given

from hansard.domain import agent, steps
from hansard.domain.agent import Moment
from hansard.domain.decider import fold
from hansard.domain.ids import AgentStream
from hansard.domain.snapshot import Outcome, Snapshot, snapshot, snapshot_id
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
question = agent.MessageAdded(
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


left = agent.AgentLeft(outcome="completed")


def shot(*events: Any) -> Snapshot:
    """Return the snapshot after some events of the agent."""
    state = fold(agent.AgentState(), events)
    return snapshot(STREAM, state, {3: NOW}, NOW)


def test_the_request_is_the_first_message_of_a_user_before_any_call():
    """A system message comes before it; without a message it is the first event."""
    system = msgspec.structs.replace(question, role="system")
    assert shot(began).moment is Moment.REQUEST
    assert shot(began, system).parent_snapshot == shot(began).snapshot_id
    assert shot(began, system, question).moment is Moment.REQUEST
    assert shot(began, system, question).parent_snapshot is None
    assert shot(began, system, question, question).moment is Moment.NOW
    assert shot(began, requested, question).moment is Moment.NOW
    assert shot(began, requested).parent_snapshot == shot(began).snapshot_id


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (completed, Outcome.SUCCESS),
        (failed, Outcome.ERROR),
        (steps.StepBlocked(step=1, rule="r", reason="no"), Outcome.BLOCKED),
        (steps.StepInDoubt(step=1, error=Failure("TimeoutError", "slow")), Outcome.IN_DOUBT),
    ],
)
def test_an_outcome_is_one_of_four_words(event: Any, outcome: Outcome):
    """The words are outcomes of a call, independent of internal step names."""
    execution = shot(began, requested, event).tool_execution
    assert execution is not None
    assert execution.result is not None
    assert execution.result.status is outcome


def test_a_failure_is_a_result_too():
    """The exception of a call is its result, with type and text."""
    execution = shot(began, requested, failed).tool_execution
    assert execution is not None
    assert execution.result is not None
    assert execution.result.data == {"error": "ValueError", "message": "no"}


def test_what_the_agent_had_in_mind():
    """Conversation, turns over all runs, messages in the provider's form and their tokens."""
    mind = shot(began, question, requested).agent_state
    assert (mind.conversation_id, mind.turn_number) == ("c", 3)
    assert mind.context_window.messages == [{"role": "user", "content": "hi", "name": "bob"}]
    assert mind.context_window.total_tokens == 3


def test_tokens_that_nobody_counted_are_absent():
    """A partly known sum is left out; the number of uncounted messages is shown."""
    window = shot(began, question, msgspec.structs.replace(question, tokens=None)).agent_state
    assert window.context_window.total_tokens is None
    fields = msgspec.to_builtins(window.context_window)
    assert "total_tokens" not in fields
    assert fields["uncounted"] == 1
    assert shot(began).agent_state.context_window.total_tokens == 0


def test_versions_and_times_come_from_the_record():
    """Versions are those of the writer's events, and times those of the log or None."""
    made = shot(began, question, used, used, requested)
    assert (made.metadata.server_version, made.metadata.protocol_version) == ("9.9", "7")
    assert [item.access_time for item in made.resources_accessed] == [NOW.isoformat(), None]


def test_a_later_fact_is_a_state_of_its_own_outside_of_the_chain():
    """Between two calls each version has its id, and names the last of the chain before it."""
    between = shot(began, requested, question)
    assert between.snapshot_id == snapshot_id(STREAM, 3)
    assert between.parent_snapshot == shot(began, requested).snapshot_id
    assert between.moment is Moment.NOW


@given(strategies.agent_histories)
def test_the_chain_has_every_intent_and_outcome_once(events):
    """Any history has one writable snapshot per begin and end, each naming the one before."""
    state = agent.AgentState()
    chain: list[Snapshot] = []
    for event in events:
        state = fold(state, [event])
        made = snapshot(STREAM, state, {}, NOW)
        assert msgspec.json.encode(made)
        if state.moment_version == state.version:
            if made.moment is Moment.REQUEST:
                chain.clear()
            chain.append(made)
    assert [made.parent_snapshot for made in chain] == [
        None,
        *(made.snapshot_id for made in chain[:-1]),
    ][: len(chain)]
    calls = (
        "step.requested", "step.completed", "step.failed", "step.blocked", "step.in_doubt",
        "step.settled", "agent.left",
    )  # fmt: skip
    assert len(chain) == bool(events) + sum(event.tag.startswith(calls) for event in events)
    assert len({made.snapshot_id for made in chain}) == len(chain)
