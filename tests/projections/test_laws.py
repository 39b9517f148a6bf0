"""Laws: the tables equal the domain's fold, for any events and any batches."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hansard.domain import agent, run
from hansard.domain.decider import fold
from hansard.domain.ids import AgentStream, RunStream
from hansard.projections.store import Store
from tests.conftest import ROUNDS
from tests.domain.strategies import (
    agent_commands,
    agent_histories,
    happened,
    run_commands,
    run_histories,
)
from tests.projections.support import (
    Messages,
    check_agent,
    check_facts,
    check_life,
    check_steps,
    fill,
    new_store,
    some_borders,
)

pytestmark = pytest.mark.slow

EXAMPLES = max(6, min(ROUNDS * 2, 400))
"""Each example is some ten batches, of some 60 ms."""

_numbers = itertools.count(1)


class Shared:
    """One store for all examples: each writes runs of its own at its end."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.messages = Messages()

    def news(self, since: int, borders: list[int]) -> None:
        """Write the events added since a position."""
        fill(self.store, self.messages.all[since:], borders)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Yield a store that stays open for a module's examples."""
    store = new_store(tmp_path_factory.mktemp("laws") / "t.duckdb")
    yield Shared(store)
    store.close()


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=8)
"""Events a commit, in turn."""


def _append(messages: Messages, stream, after, events, counts) -> None:
    """Append a history as commits of some events each."""
    rest, turn = list(events), itertools.cycle(counts)
    while rest:
        count = next(turn)
        messages.add(stream, after + 1, rest[:count])
        after += len(rest[:count])
        rest = rest[count:]


@given(events=agent_histories, life=run_histories, counts=sizes, seed=st.integers(0, 2**32))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_tables_are_what_the_domain_folds(shared, events, life, counts, seed):
    """Rows equal the fold, for any history, commits and batches."""
    name, since = f"run {next(_numbers)}", shared.messages.position
    _append(shared.messages, RunStream(name), 0, life, counts)
    _append(shared.messages, AgentStream(name, "writer", "ada"), 0, events, counts)
    shared.news(since, some_borders(shared.messages.all[since:], seed))
    state = fold(agent.AgentState(), events)
    check_agent(shared.store, name, state)
    check_steps(shared.store, name, state)
    check_facts(shared.store, name, state)
    check_life(shared.store, name, fold(run.RunState(), life))


@pytest.mark.thorough
@given(
    events=agent_histories,
    life=run_histories,
    more=st.lists(st.lists(agent_commands, min_size=1, max_size=12), min_size=1, max_size=3),
    lives=st.lists(st.lists(run_commands, max_size=4), min_size=3, max_size=3),
    cuts=st.lists(st.floats(0, 1), min_size=6, max_size=6),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_forks_of_forks_are_what_the_domain_folds(shared, events, life, more, lives, cuts, seed):
    """A fork's rows are its own history on top of its parents' at any cut."""
    since, name = shared.messages.position, f"run {next(_numbers)}"
    messages = shared.messages
    _append(messages, RunStream(name), 0, life, [2])
    _append(messages, AgentStream(name, "writer", "ada"), 0, events, [2])
    checks = []
    for depth, commands in enumerate(more):
        parent, name = name, f"run {next(_numbers)}"
        cut = max(1, round(cuts[2 * depth] * len(events)))
        life_cut = max(1, round(cuts[2 * depth + 1] * len(life)))
        at = {"life": life_cut, "agent/writer/ada": cut}
        forked = run.RunForked(parent=parent, at=at, labels={"depth": str(depth)})
        before, lived = events[:cut], life[:life_cut]
        state = fold(agent.AgentState(), before)
        went_on = happened(commands, state, fold, agent.decide)
        other = happened(
            [agent.Leave("cancelled")], fold(agent.AgentState(), events), fold, agent.decide
        )
        messages.add(RunStream(name), life_cut + 1, [forked])
        _append(messages, AgentStream(parent, "writer", "ada"), len(events), other, [1])
        _append(messages, AgentStream(name, "writer", "ada"), cut, went_on, [1])
        lived = [*lived, forked]
        ended = happened(lives[depth], fold(run.RunState(), lived), fold, run.decide)
        ended = [event for event in ended if not isinstance(event, run.RunForked)]
        _append(messages, RunStream(name), len(lived), ended, [1])
        life = [*lived, *ended]
        events = [*before, *went_on]
        checks.append((name, cut, life_cut, events, life))
    shared.news(since, some_borders(messages.all[since:], seed))
    for run_name, cut, life_cut, history, lived in checks:
        state = fold(agent.AgentState(), history)
        last = run_name == checks[-1][0]
        if len(history) > cut:
            if last:
                check_agent(shared.store, run_name, state)
            check_steps(shared.store, run_name, state, cut)
        check_facts(shared.store, run_name, state, cut)
        check_life(shared.store, run_name, fold(run.RunState(), lived), life_cut)
