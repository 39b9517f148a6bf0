"""Folds: a state equals its events at every version; earlier states never change."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.bus.commits import record, revive
from hansard.domain import (
    actions,
    agent,
    approval,
    board,
    decider,
    experiment,
    principal,
    prompt,
    reuse,
    run,
    team,
)
from hansard.domain.conversation import RunJoined
from hansard.domain.decider import Quarantined, fold
from hansard.domain.errors import Refused
from hansard.domain.events import REGISTRY
from hansard.domain.experience import experience
from hansard.domain.memory import space
from hansard.domain.roles import check
from hansard.domain.run import RunForked, RunStarted
from tests.domain import kept_strategies, strategies
from tests.reach import not_reached

AGGREGATES: dict[str, tuple[Any, Any, Any]] = {
    "actions": (actions.initial, actions.fold, kept_strategies.action_histories),
    "agent": (agent.AgentState, fold, strategies.lowered(strategies.agent_histories)),
    "run": (run.RunState, fold, strategies.run_histories),
    "approval": (approval.initial, decider.fold, strategies.approval_histories),
    "board": (board.BoardState, decider.fold, strategies.lowered(strategies.board_histories)),
    "budget": (approval.BudgetState, decider.fold, strategies.budget_histories),
    "experience": (experience.initial, experience.fold, kept_strategies.experience_histories),
    "experiment": (experiment.ExperimentState, decider.fold, strategies.experiment_histories),
    "import": (run.ImportState, decider.fold, strategies.import_histories),
    "memory": (space.MemoryState, fold, strategies.memory_histories),
    "prompt": (prompt.initial, prompt.fold, strategies.prompt_histories),
    "price": (experiment.PriceState, decider.fold, strategies.price_histories),
    "principal": (principal.PrincipalState, decider.fold, strategies.principal_histories),
    "role": (check.RoleState, decider.fold, strategies.role_histories),
    "stale": (reuse.Stale, decider.fold, kept_strategies.stale_histories),
    "task": (team.TeamState, decider.fold, strategies.task_histories),
}
histories = st.sampled_from(sorted(AGGREGATES)).flatmap(
    lambda name: st.tuples(st.just(name), AGGREGATES[name][2])
)


@given(histories)
def test_the_state_at_every_k_is_a_fresh_fold_of_the_first_k_events(history):
    """Folding event by event equals a fresh fold at each k, and no later event changes it."""
    name, events = history
    initial, fold, _ = AGGREGATES[name]
    states = [initial()]
    for event in events:
        states.append(fold(states[-1], [event]))
    for k, state in enumerate(states):
        assert state == fold(initial(), events[:k])
        assert state.version == k


@given(histories, st.data())
def test_folding_leaves_its_argument_unchanged(history, data):
    """`fold` returns a new state; its argument does not change, at any depth."""
    name, events = history
    initial, fold, _ = AGGREGATES[name]
    cut = data.draw(st.integers(0, len(events)))
    before = fold(initial(), events[:cut])
    kept = copy.deepcopy(before)
    fold(before, events[cut:])
    assert before == kept


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_an_event_of_another_aggregate_is_refused(name):
    """An event that does not belong to a stream stops the fold and is named."""
    initial, fold, _ = AGGREGATES[name]
    with pytest.raises(Refused, match=r"conversation\.run_joined\.v1"):
        fold(initial(), [RunJoined(run="r")])


@pytest.mark.thorough  # it draws until all were seen, which takes 12 s
def test_the_generated_histories_reach_every_event_that_is_folded():
    """A law checked on histories without failures and settlements would prove little."""
    of_others = {
        "aggregate.changed.v1",  # by the program's own classes
        "aggregate.followed.v1",
        "reuse.offered.v1",  # its newest alone counts
        "conversation.run_joined.v1",
        "mail.sent.v1",
        "query.answered.v1",
        "view.served.v1",
    }
    folded = {tag for tag in REGISTRY if REGISTRY[tag].__module__.startswith("hansard.domain")}
    histories = st.tuples(*(made for _, _, made in AGGREGATES.values()))
    assert not not_reached(
        histories,
        folded - of_others,
        lambda histories: (event.tag for events in histories for event in events),
    )


def _once(state, command, fold, decide):
    """Return the events of a command, and those of the same command right after it."""
    try:
        first = tuple(decide(state, command))
    except Refused:
        return (), ()
    return first, tuple(decide(fold(state, first), command))


@given(strategies.agent_histories, strategies.agent_commands)
def test_an_agent_s_command_yields_its_events_once(events, command):
    """A repeated statement, note, declaration or leave adds nothing; `Begin` takes a new epoch."""
    state = fold(agent.AgentState(), events)
    first, second = _once(state, command, fold, agent.decide)
    if isinstance(command, agent.Begin):
        assert [event.epoch for event in (*first, *second)] == [
            state.epoch + 1 + i for i in range(len(first) + len(second))
        ]
    else:
        assert second == ()


@given(strategies.run_histories, strategies.run_commands)
def test_a_run_s_command_yields_its_events_once(events, command):
    """Repeating a fact about a run adds nothing; beginning it twice is refused."""
    state = fold(run.RunState(), events)
    try:
        _, second = _once(state, command, fold, run.decide)
    except Refused:
        assert isinstance(command, RunStarted | RunForked)
    else:
        assert second == ()


@given(strategies.budget_histories, strategies.budget_commands)
def test_a_budget_s_command_yields_its_events_once(events, command):
    """A share reserved or spent twice counts once."""
    state = decider.fold(approval.BudgetState(), events)
    _, second = _once(state, command, decider.fold, strategies.budget_decide)
    assert second == ()


@given(strategies.agent_histories, strategies.agent_commands)
def test_what_is_decided_can_be_folded(events, command):
    """No decision leads to an event that the fold cannot take, and each one counts one version."""
    state = fold(agent.AgentState(), events)
    try:
        news = agent.decide(state, command)
    except Refused:
        news = ()
    assert fold(state, news).version == state.version + len(news)


@given(strategies.agent_command_lists)
def test_an_outcome_is_final(commands):
    """No command to an agent replaces the result of a completed step."""
    state = agent.AgentState()
    results: dict[int, bytes] = {}
    for command in commands:
        for event in strategies.happened([command], state, fold, agent.decide):
            state = fold(state, [event])
        for number, step in state.steps.items():
            if step.status == "completed":
                results.setdefault(number, bytes(step.result))
    now = {number: bytes(state.steps[number].result) for number in results}
    assert now == results
    assert all(state.steps[number].status == "completed" for number in results)


@given(histories, st.data())
def test_a_quarantined_event_changes_the_version_alone(history, data):
    """At every point of every history; an agent's state counts them, too."""
    name, events = history
    initial, fold, _ = AGGREGATES[name]
    cut = data.draw(st.integers(0, len(events)))
    count = data.draw(st.integers(1, 3))
    before = fold(initial(), events[:cut])
    after = fold(before, [Quarantined(reason="x")] * count)
    assert after.version == before.version + count
    if name == "agent":
        assert after.quarantined == before.quarantined + count
        after.quarantined = before.quarantined
    assert msgspec.structs.replace(after, version=before.version) == before


def test_no_log_can_hold_one():
    """Its maker can read it back, and it is registered under no tag."""
    made = Quarantined(reason="x")
    assert revive(record(made, "e")) == made
    assert Quarantined.tag not in REGISTRY
