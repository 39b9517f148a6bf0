"""A run's members are one fold, equal to the run's own state after any joins, resumes and forks."""

from hypothesis import given
from hypothesis import strategies as st

from hansard.bus import subjects
from hansard.bus.commits import encode, revive
from hansard.bus.recheck import Recheck
from hansard.domain import run as runs
from hansard.domain.decider import fold
from hansard.domain.events import Commit, Event
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.integrity import Fold, Members
from hansard.domain.run import AgentJoined, RunForked, RunScored, RunStarted
from tests.team.forging import began, forged, misplaced

names = st.sampled_from("abcd")
joins = st.lists(st.builds(AgentJoined, agent=names, role=names), max_size=5)
"""Joins, also of one agent twice in another role, which our clients never write."""


def by_itself(version: int, event: Event) -> Commit:
    """A commit by whom an event of a life is about."""
    return forged(version, event, by=getattr(event, "agent", "a"))


@given(joins, st.lists(st.tuples(st.integers(1, 6), joins), max_size=3))
def test_a_run_has_the_agents_that_its_state_has(first, forks):
    """In a fork of a fork, too: those that had joined before its cut, in their first role."""
    story: list[tuple[str, list[Event]]] = [("r0", [RunStarted(workflow="w"), *first])]
    for cut, own in forks:
        story.append((f"r{len(story)}", [RunForked(parent=story[-1][0], at={"life": cut}), *own]))
    integrity, lives = Fold(), dict[str, list[Event]]()
    for run, events in story:
        head, version = events[0], 1
        before: list[Event] = []
        if isinstance(head, RunForked):
            cut = min(head.at["life"], len(lives[head.parent]))
            before = lives[head.parent][:cut]
            version = cut + 1
        for number, event in enumerate(events, version):
            assert not integrity.misfit(RunStream(run), by_itself(number, event))
        lives[run] = [*before, *events]
        state = fold(runs.RunState(), lives[run])
        assert integrity.members(run).roles == state.roster


def test_joining_again_in_another_role_keeps_the_first_and_is_reported():
    """The run's state shows it to readers, and `hansard check` reports it."""
    life = [RunStarted(workflow="w"), AgentJoined(agent="a", role="reader")]
    again = AgentJoined(agent="a", role="approver")
    assert fold(runs.RunState(), [*life, again]).roster == {"a": "reader"}
    problems: list[str] = []
    recheck = Recheck(lambda kind, fact, where, *, wrong=True: problems.append(f"{kind}: {fact}"))
    for number, event in enumerate([*life, again], 1):
        subject = subjects.subject("lab", RunStream("r"), number)
        recheck.message(number, subject, encode(RunStream("r"), by_itself(number, event)))
    assert problems == ["reference: version 3: agent 'a' joined as 'approver', and is a 'reader'"]
    mine = AgentStream("r", "approver", "a")
    assert "is a 'reader'" in recheck.integrity.misfit(
        mine, forged(1, began("a", "approver", 1), by="a")
    )


def test_a_commit_that_counts_for_nobody_teaches_nothing():
    """If one event of a commit does not fit its type, none of them counts."""
    integrity = Fold()
    score = misplaced(RunScored.tag, b'{"metrics": 1}')
    join = AgentJoined(agent="a", role="reader")
    commit = forged(1, RunStarted(workflow="w"), join, score)
    assert [revive(each) for each in commit.events[:2]] == [RunStarted(workflow="w"), join]
    integrity.misfit(RunStream("r"), commit)
    assert integrity.members("r") == Members()
