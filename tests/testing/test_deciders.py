"""Given, when, then for rules: messages of failing tests."""

import msgspec
import pytest

from hansard.testing import decider


class Full(Exception):
    """No capacity left."""


class State(msgspec.Struct):
    """A count."""

    count: int = 0


def _fold(state: State, events) -> State:
    return State(state.count + sum(events))


def _decide(state: State, command: int) -> list[int]:
    if state.count + command > 3:
        message = f"{state.count} are there"
        raise Full(message)
    return [1] * command


RULES = decider(State, _fold, _decide)


def test_rules_that_hold():
    """Events, the state after them, and refusals."""
    RULES.given(1).when(2).then(1, 1).then_state(count=3)
    RULES.given(1, 1).given(1).when(1).then_raises(Full, saying="3 are there")
    RULES.given(3).when(0).then()
    assert RULES.when(1).state.count == 1  # what is given to one example is not given to the next


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: RULES.when(2).then(1), "- expected, + found):\n    1\n  + 1"),
        (lambda: RULES.when(1).then_state(count=2), "- count = 2\n  + count = 1"),
        (lambda: RULES.when(4).then(1), "it was refused: Full: 0 are there"),
        (lambda: RULES.when(1).then_raises(Full), "- Full\n  + no error: decided [1]"),
        (
            lambda: RULES.when(4).then_raises(Full, saying="none"),
            "- Full: ... none ...\n  + Full: 0 are there",
        ),
        (lambda: RULES.when(4).then_raises(KeyError), "- KeyError\n  + Full: 0 are there"),
    ],
)
def test_rules_that_do_not_hold(check, message):
    """Both sides are shown."""
    with pytest.raises(AssertionError) as failed:
        check()
    assert message in str(failed.value)
