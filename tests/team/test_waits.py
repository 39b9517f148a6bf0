"""Incremental waits of tasks equal a complete recomputation."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.domain import team
from hansard.domain.decider import By, evolve
from hansard.domain.errors import HansardError
from hansard.domain.steps import Failure
from hansard.domain.team import (
    Claim,
    Reopen,
    TaskAdded,
    TaskCommand,
    TaskCompleted,
    TaskFailed,
    TaskHandedOff,
    TaskReleased,
    TeamState,
    Unmet,
    decide,
    waits,
)
from tests.conftest import THOROUGH

ROLES = ("", "x", "y", "z")
PLACES = st.integers(0, 11)


def _command(state: TeamState, what: str, place: int, other: set[int], role: str) -> TaskCommand:
    """Return a command about one of the existing tasks."""
    names = list(state.tasks)
    after = tuple(names[each % len(names)] for each in sorted(other)) if names else ()
    roles = tuple(ROLES[each % 4] for each in sorted(other) if each % 4)[:2]
    if what == "add" or not names:
        return TaskAdded(task="", title="t", role=role, waits_for=after, waits_for_roles=roles)
    if what == "claim":
        return Claim(agent="a", role=role, lease_ms=1_000)
    name = names[place % len(names)]
    number = state.tasks[name].number
    match what:
        case "complete":
            return TaskCompleted(task=name, number=number)
        case "fail":
            return TaskFailed(task=name, number=number, error=Failure("E", "e"))
        case "release":
            return TaskReleased(task=name, number=number)
        case "hand off":
            return TaskHandedOff(task=name, number=number, role=role or "x")
        case _:
            return Reopen(task=name)


KINDS = ("add", "add", "claim", "claim", "complete", "fail", "fail", "release", "hand off", "re")


@settings(max_examples=settings().max_examples if THOROUGH else 15)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS), PLACES, st.sets(PLACES, max_size=2), st.sampled_from(ROLES)
        ),
        min_size=30,
        max_size=60,
    )
)
def test_incremental_waits_equal_those_of_the_whole_state(
    commands: list[tuple[str, int, set[int], str]],
):
    """Incremental waits equal those of the whole state after each event."""
    state = team.TeamState()
    kept = Unmet(state)
    before = waits(state)
    for number, command in enumerate(commands):
        try:
            events = decide(state, _command(state, *command), number)
        except HansardError:
            continue
        for event in events:
            stood = state.tasks.get(event.task)
            evolve(state, event, By("a", number, "e"))
            moved = kept.moved(stood, state.tasks[event.task])
            unmet = waits(state)
            assert {name: kept.of(state.tasks[name]) for name in unmet} == unmet
            assert event.task in moved
            others = unmet.keys() - moved
            assert {name: unmet[name] for name in others} == {name: before[name] for name in others}
            before = unmet
