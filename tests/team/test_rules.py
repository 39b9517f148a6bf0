"""Laws of a team's tasks: one holder, dependencies first, no cycle."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hansard.domain import team
from hansard.domain.conversation import RunJoined
from hansard.domain.decider import By, evolve, fold
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.steps import Failure
from hansard.domain.team import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    TASKS_MAX,
    Claim,
    ClaimLost,
    Reopen,
    TaskAdded,
    TaskClaimed,
    TaskCompleted,
    TaskExtended,
    TaskFailed,
    TaskHandedOff,
    TaskReleased,
    TaskReopened,
    TaskStatus,
    TeamState,
    Waits,
    decide,
    may_become_claimable,
    shown_status,
    waits,
)
from hansard.domain.values import dump
from tests.conftest import THOROUGH

ROLES = ("researcher", "analyzer", "writer")
AGENTS = ("ada", "bob", "cyd")
LEASE_MS = 1_000
MS = 1_000_000


def after_commands(state, *commands, now=0, agent="ada"):
    """Return the state after commands at a log time."""
    for each in commands:
        state = fold(state, decide(state, each, now), By(agent, now, "e"))
    return state


def claim(agent="ada", role="researcher", lease_ms=LEASE_MS):
    """Return a claim."""
    return Claim(agent=agent, role=role, lease_ms=lease_ms)


class Team(RuleBasedStateMachine):
    """Agents with arbitrary task statements at any time, beside a model of the holders."""

    def __init__(self) -> None:
        super().__init__()
        self.state = TeamState()
        self.events: list[tuple[team.TaskEvent, By]] = []
        self.now = 1
        self.holds: dict[str, tuple[str, int, int]] = {}
        self.over: set[str] = set()

    def say(self, command, agent):
        """Decide a command and fold its events."""
        events = decide(self.state, command, self.now)
        by = By(agent, self.now, "e")
        self.events += [(event, by) for event in events]
        self.state = fold(self.state, events, by)
        return events

    @rule(ms=st.integers(1, 2 * LEASE_MS))
    def time_goes_on(self, ms):
        """Advance the log's time, which decides about leases."""
        self.now += ms * MS

    @rule(
        role=st.sampled_from(("", *ROLES)),
        roles=st.lists(st.sampled_from(ROLES), max_size=2),
        data=st.data(),
    )
    def add(self, role, roles, data):
        """Add a task that waits for existing ones; a cycle is refused with its name."""
        known = sorted(self.state.tasks)
        after = data.draw(st.lists(st.sampled_from(known), max_size=2)) if known else []
        command = TaskAdded(
            task="", title="t", role=role, waits_for=tuple(after), waits_for_roles=tuple(roles)
        )
        try:
            self.say(command, "ada")
        except Refused as refused:
            assert " -> " in str(refused)  # noqa: PT017 -- the rule is about the words of any refusal

    @rule(agent=st.sampled_from(AGENTS), role=st.sampled_from(ROLES))
    def claim(self, agent, role):
        """One that is given was free, of that role, and waited for nothing."""
        before = self.state
        events = self.say(claim(agent, role), agent)
        if not events:
            return
        [event] = events
        assert isinstance(event, TaskClaimed)
        held = before.tasks[event.task]
        assert held.role in ("", role)
        if event.task in self.holds:
            _, number, expires = self.holds[event.task]
            assert self.now >= expires
            assert event.number == number + 1
        assert event.task not in self.over
        for name in held.added.waits_for:
            assert before.tasks[name].status is TaskStatus.DONE
        for waited in held.added.waits_for_roles:
            of_role = [each for each in before.tasks.values() if each.role == waited]
            assert of_role
            assert all(each.status is TaskStatus.DONE for each in of_role)
        self.holds[event.task] = (agent, event.number, self.now + LEASE_MS * MS)

    @rule(
        agent=st.sampled_from(AGENTS),
        number=st.integers(1, 3),
        what=st.sampled_from(("extend", "release", "complete", "fail", "hand off")),
        role=st.sampled_from(ROLES),
        data=st.data(),
    )
    def say_of_a_task(self, agent, number, what, role, data):
        """State a task's outcome, which counts only while the claim is valid."""
        if not self.state.tasks:
            return
        name = data.draw(st.sampled_from(sorted(self.state.tasks)))
        command = {
            "extend": TaskExtended(task=name, number=number, lease_ms=LEASE_MS),
            "release": TaskReleased(task=name, number=number),
            "complete": TaskCompleted(task=name, number=number),
            "fail": TaskFailed(task=name, number=number, error=Failure("E", "e")),
            "hand off": TaskHandedOff(task=name, number=number, role=role),
        }[what]
        holder = self.holds.get(name)
        is_valid = bool(holder and holder[1] == number)
        try:
            self.say(command, agent)
        except ClaimLost:
            assert not is_valid
            return
        except Refused as refused:
            assert what == "hand off"
            assert " -> " in str(refused)  # noqa: PT017 -- the rule is about the words of any refusal
            return
        assert is_valid
        assert holder
        if what == "extend":
            self.holds[name] = (holder[0], number, self.now + LEASE_MS * MS)
        else:
            del self.holds[name]
        if what in ("complete", "fail"):
            self.over.add(name)

    @invariant()
    def each_is_held_by_who_claimed_it_last(self):
        """Check that the state agrees with the model."""
        for each in self.state.tasks.values():
            assert each.is_over == (each.id in self.over)
            held = self.holds.get(each.id)
            assert (each.status is TaskStatus.CLAIMED) == (held is not None)
            if held is not None:
                assert (each.holder, each.number, each.expires) == held

    @invariant()
    def the_state_is_what_the_events_say(self):
        """Folded at once or one by one."""
        again = TeamState()
        for event, by in self.events:
            evolve(again, event, by)
        assert again == self.state

    @invariant()
    def nothing_waits_for_itself(self):
        """Check that every open task can be finished in some order."""
        state = self.state
        open_ = {each.id for each in state.tasks.values() if not each.is_over}
        while True:
            ready = {name for name in open_ if not _waits_within(state, name, open_)}
            if not ready:
                break
            open_ -= ready
        assert not open_


def _waits_within(state, name, open_):
    added = state.tasks[name].added
    roles = {state.tasks[each].role for each in open_}
    return any(each in open_ for each in added.waits_for) or any(
        role in roles for role in added.waits_for_roles
    )


TestTeam = Team.TestCase
TestTeam.settings = settings(max_examples=settings().max_examples if THOROUGH else 15)


@given(st.lists(st.sampled_from(ROLES), min_size=1, max_size=3), st.sampled_from(ROLES))
def test_a_circle_over_roles_is_named(chain, last):
    """A task that closes a circle over roles is refused with the circle named."""
    state = after_commands(TeamState(), TaskAdded(task="first", title="t", role=last))
    roles = [*dict.fromkeys(chain)]
    if last in roles:
        roles.remove(last)
    previous = last
    for index, role in enumerate(roles):
        added = TaskAdded(task=f"n{index}", title="t", role=role, waits_for_roles=(previous,))
        state = after_commands(state, added)
        previous = role
    closing = TaskAdded(task="closing", title="t", role=last, waits_for_roles=(previous,))
    kept = copy.deepcopy(state)
    with pytest.raises(Refused) as refused:
        decide(state, closing, 0)
    words = str(refused.value)
    assert f"closing -> role {previous} -> " in words
    assert words.count("closing -> ") == 1
    assert "-> closing;" in words
    assert state == kept


def test_the_circle_of_a_task_a_role_and_a_task():
    """`a` waits for a role, a task of that role waits for `a`."""
    state = after_commands(
        TeamState(), TaskAdded(task="a", title="t", waits_for_roles=("analyzer",))
    )
    with pytest.raises(Refused, match="b -> a -> role analyzer -> b"):
        decide(state, TaskAdded(task="b", title="t", role="analyzer", waits_for=("a",)), 0)
    with pytest.raises(Refused, match="c -> role editor -> c"):
        decide(state, TaskAdded(task="c", title="t", role="editor", waits_for_roles=("editor",)), 0)


def test_a_hand_off_that_closes_a_circle_is_refused():
    """A hand-off to a role that the task waits for is refused; to another it works."""
    state = after_commands(
        TeamState(),
        TaskAdded(task="x", title="t", role="editor"),
        claim("eve", "editor"),
        TaskCompleted(task="x", number=1),
        TaskAdded(task="d", title="t", role="researcher", waits_for_roles=("editor",)),
        claim("ada", "researcher"),
    )
    with pytest.raises(Refused, match="d -> role editor -> d"):
        decide(state, TaskHandedOff(task="d", number=1, role="editor"), 0)
    handed = TaskHandedOff(task="d", number=1, role="writer", given=dump({"x": 1}))
    state = after_commands(state, handed)
    assert decide(state, claim("ada", "researcher"), 0) == ()
    state = after_commands(state, claim("bob", "writer"), agent="bob")
    assert (state.tasks["d"].number, bytes(state.tasks["d"].given)) == (2, b'{"x":1}')


def test_what_waits_for_a_failure_is_blocked_all_the_way():
    """A task whose dependency failed is blocked, and so are its dependents."""
    state = after_commands(
        TeamState(),
        TaskAdded(task="a", title="t", role="researcher"),
        TaskAdded(task="b", title="t", role="analyzer", waits_for_roles=("researcher",)),
        TaskAdded(task="c", title="t", role="writer", waits_for=("b",)),
    )
    assert [shown_status(each, waits(state)[each.id], 0) for each in state.tasks.values()] == [
        "open",
        "waiting",
        "waiting",
    ]
    assert may_become_claimable(state, claim("cyd", "writer"))
    state = after_commands(state, claim(), TaskFailed(task="a", number=1, error=Failure("E", "e")))
    assert waits(state) == {"b": Waits((), ("a",)), "c": Waits(("b",), ("b",))}
    assert not may_become_claimable(state, claim("cyd", "writer"))
    assert decide(state, claim("bob", "analyzer"), 0) == ()


def test_a_failed_task_is_reopened_unless_tasks_would_then_wait_for_each_other():
    """A failed task is reopened unless that would close a circle."""
    failed = TaskFailed(task="a", number=1, error=Failure("E", "e"))
    state = after_commands(
        TeamState(), TaskAdded(task="a", title="t", role="researcher"), claim(), failed
    )
    state = after_commands(state, TaskAdded(task="b", title="t", waits_for=("a",)))
    assert decide(state, Reopen(task="b"), 0) == ()
    [event] = decide(state, Reopen(task="a", because="why"), 0)
    assert event == TaskReopened(task="a", number=1, because="why")
    again = after_commands(state, Reopen(task="a"))
    assert waits(again)["b"] == Waits(("a",), ())
    assert (again.tasks["a"].error, again.tasks["a"].holder) == (None, "")
    assert decide(again, Reopen(task="a"), 0) == ()
    done = after_commands(again, claim(), TaskCompleted(task="a", number=2))
    with pytest.raises(Refused, match="is done: only one that has failed"):
        decide(done, Reopen(task="a"), 0)
    waiting = TaskAdded(task="a", title="t", role="writer", waits_for_roles=("analyzer",))
    state = after_commands(TeamState(), TaskAdded(task="x", title="t", role="analyzer"))
    state = after_commands(state, claim("bob", "analyzer"), TaskCompleted(task="x", number=1))
    state = after_commands(state, waiting, claim("cyd", "writer"), failed)
    state = after_commands(state, TaskAdded(task="y", title="t", role="analyzer", waits_for=("a",)))
    with pytest.raises(Refused, match=r"'a' would wait for itself: a -> role analyzer -> y -> a"):
        decide(state, Reopen(task="a"), 0)


def test_the_same_task_again_changes_nothing():
    """The same task added again changes nothing; a different one of its name is refused."""
    added = TaskAdded(task="a", title="t", what=dump({"x": 1}), role="writer")
    state = after_commands(TeamState(), added)
    assert decide(state, added, 0) == ()
    with pytest.raises(Refused, match="with other words"):
        decide(state, TaskAdded(task="a", title="u", role="writer"), 0)
    assert after_commands(state, TaskAdded(task="", title="t")).tasks.keys() == {"a", "t2"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (TaskAdded(task="x", title=""), "1 to 1,000"),
        (TaskAdded(task="x", title="t", role="a", agent="b"), "not both"),
        (TaskAdded(task="x", title="t", waits_for=("a",) * 1_001), "at most 1,000"),
        (claim(lease_ms=LEASE_MS_MIN - 1), "0.1 s to 604,800 s"),
        (claim(lease_ms=LEASE_MS_MAX + 1), "0.1 s to 604,800 s"),
        (TaskHandedOff(task="a", number=1), "no receiver"),
    ],
)
def test_an_invalid_command_is_refused_with_its_bound(command, words):
    """Each bound has an error with the fact and the limit."""
    state = after_commands(TeamState(), TaskAdded(task="a", title="t"), claim())
    with pytest.raises(BadValue, match=words):
        decide(state, command, 0)


@pytest.mark.slow
def test_a_run_has_a_most_of_tasks():
    """One more than the most is refused."""
    state = after_commands(TeamState(), TaskAdded(task="t", title="t"))
    state.tasks.update(dict.fromkeys(map(str, range(TASKS_MAX - 2)), state.tasks["t"]))
    state = after_commands(state, TaskAdded(task="last", title="t"))
    assert len(state.tasks) == TASKS_MAX
    with pytest.raises(BadValue, match="10,000 tasks"):
        decide(state, TaskAdded(task="", title="t"), 0)


def test_an_unknown_task_and_a_bad_name_are_refused():
    """A task that does not exist can neither be waited for nor changed."""
    with pytest.raises(Refused, match="no task 'b'"):
        decide(TeamState(), TaskAdded(task="a", title="t", waits_for=("b",)), 0)
    with pytest.raises(Refused, match="no task 'b'"):
        decide(TeamState(), TaskCompleted(task="b", number=1), 0)
    with pytest.raises(BadName):
        decide(TeamState(), TaskAdded(task="a\n", title="t"), 0)


def test_an_event_of_another_aggregate_is_refused():
    """An event that does not belong to a team's tasks stops the fold and is named."""
    with pytest.raises(Refused, match=r"conversation\.run_joined\.v1"):
        fold(TeamState(), [RunJoined(run="r")])
