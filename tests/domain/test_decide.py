"""Deciding twice: a command that is so already leads to nothing more."""

from hypothesis import given

from hansard.domain import agent, budget, run
from hansard.domain.errors import Refused
from hansard.domain.run import RunForked, RunStarted
from tests.domain import strategies


def _once(state, command, fold, decide):
    """The events of a command, and those of the same command right after it."""
    try:
        first = tuple(decide(state, command))
    except Refused:
        return (), ()
    return first, tuple(decide(fold(state, first), command))


@given(strategies.agent_histories, strategies.agent_commands)
def test_an_agent_s_command_yields_its_events_once(events, command):
    """Told, noted, declared or left twice is once; only `Begin` takes a new epoch each time."""
    state = agent.fold(agent.initial(), events)
    first, second = _once(state, command, agent.fold, agent.decide)
    if isinstance(command, agent.Begin):
        assert [event.epoch for event in (*first, *second)] == [
            state.epoch + 1 + i for i in range(len(first) + len(second))
        ]
    else:
        assert second == ()


@given(strategies.run_histories, strategies.run_commands)
def test_a_run_s_command_yields_its_events_once(events, command):
    """Stating of a run what is so already states nothing; beginning it twice is refused."""
    state = run.fold(run.initial(), events)
    try:
        _, second = _once(state, command, run.fold, run.decide)
    except Refused:
        assert isinstance(command, RunStarted | RunForked)
    else:
        assert second == ()


@given(strategies.budget_histories, strategies.budget_commands)
def test_a_budget_s_command_yields_its_events_once(events, command):
    """A share reserved or spent twice counts once."""
    state = budget.fold(budget.BudgetState(), events)
    _, second = _once(state, command, budget.fold, strategies.budget_decide)
    assert second == ()


@given(strategies.agent_histories, strategies.agent_commands)
def test_what_is_decided_can_be_folded(events, command):
    """No decision leads to an event that the fold cannot take, and each one counts one version."""
    state = agent.fold(agent.initial(), events)
    try:
        news = agent.decide(state, command)
    except Refused:
        news = ()
    assert agent.fold(state, news).version == state.version + len(news)


@given(strategies.agent_command_lists)
def test_an_outcome_stands(commands):
    """Whatever is told to an agent, the result of a completed step is never replaced."""
    state = agent.initial()
    results: dict[int, bytes] = {}
    for command in commands:
        for event in strategies.happened([command], state, agent.fold, agent.decide):
            state = agent.fold(state, [event])
        for number, step in state.steps.items():
            if step.status == "completed":
                results.setdefault(number, bytes(step.result))
    now = {number: bytes(state.steps[number].result) for number in results}
    assert now == results
    assert all(state.steps[number].status == "completed" for number in results)
