"""Every wrong claim about stored data is noticed, and a true one never is, whatever the names."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.bus.log import RawMessage
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId
from hansard.domain.integrity import Fold
from hansard.domain.run import AgentJoined, RunStarted
from hansard.domain.team import MAIL_KEY as MAIL
from hansard.domain.team import TASKS_KEY as TASKS
from hansard.domain.team import TaskClaimed
from hansard.projections.rows import Rows
from tests.team.forging import began, forged, message_added, put, sent, served

pytestmark = pytest.mark.slow

RUN = "r"
names = st.text("ab.*/ >=é-", min_size=1, max_size=4)
worlds = st.dictionaries(names, names, min_size=2, max_size=4)
"""Agents and their roles: some look alike, some agents are called as a role."""

Made = tuple[StreamId, Commit]


def beginning(world: dict[str, str]) -> list[Made]:
    """Return a run whose agents have all begun."""
    joins = [AgentJoined(agent=agent, role=role) for agent, role in world.items()]
    life = forged(1, RunStarted(workflow="w"), *joins, actor=Actor("import", ("x",)))
    return [
        (RunStream(RUN), life),
        *(
            (AgentStream(RUN, role, agent), forged(1, began(agent, role, 1), by=agent, epoch=1))
            for agent, role in world.items()
        ),
    ]


def truths(agent: str, role: str) -> dict[str, Made]:
    """Return the events that an agent writes."""
    mine = AgentStream(RUN, role, agent)
    claim = TaskClaimed(task="t", number=1, agent=agent, role=role, lease_ms=1)
    by: dict[str, Any] = {"by": agent}
    return {
        "message_added": (mine, forged(2, message_added(), epoch=1, **by)),
        "resumed": (mine, forged(2, began(agent, role, 2), epoch=2, **by)),
        "put": (KeyStream(RUN, "k"), forged(2, put(role), **by)),
        "claimed": (KeyStream(RUN, TASKS), forged(2, claim, **by)),
        "sent": (KeyStream(RUN, MAIL), forged(2, sent(role), **by)),
        "served": (KeyStream(RUN, f"view {role}"), forged(2, served(role, agent), **by)),
    }


def _by(made: Made, other: str, _role: str) -> Made:
    return made[0], msgspec.structs.replace(made[1], actor=Actor(other))


def _epoch(made: Made, _other: str, _role: str) -> Made:
    return made[0], msgspec.structs.replace(made[1], epoch=made[1].epoch + 1)


def _moved(made: Made, other: str, role: str) -> Made:
    stream = made[0]
    if isinstance(stream, AgentStream):
        return AgentStream(RUN, role, other), made[1]
    return KeyStream(RUN, f"view {role}+"), made[1]


LIES: dict[str, Callable[[Made, str, str], Made]] = {"by": _by, "epoch": _epoch, "moved": _moved}


@st.composite
def stories(draw: st.DrawFn) -> tuple[dict[str, str], list[tuple[Made, bool]]]:
    """Draw agents and their writes, each with whether it is true."""
    world = draw(worlds)
    commits: list[tuple[Made, bool]] = []
    for _ in range(draw(st.integers(1, 8))):
        agent = draw(st.sampled_from(sorted(world)))
        kinds = truths(agent, world[agent])
        kind = draw(st.sampled_from(sorted(kinds.keys() - {"resumed"})))
        if draw(st.booleans()):
            commits.append((kinds[kind], True))
            continue
        lie = draw(st.sampled_from(sorted(LIES) if kind == "message_added" else ["by", "moved"]))
        others = sorted(name for name in (*world, "x y") if name != agent)
        other = draw(st.sampled_from(others))
        forgery = LIES[lie](kinds[kind], other, world.get(other, "x"))
        if lie == "by" and isinstance(forgery[0], KeyStream):
            same = world.get(other) == world[agent] and kind in {"put", "sent"}
            if same:  # of the same role: it could have written that itself
                continue
        commits.append((forgery, False))
    return world, commits


@given(stories())
def test_every_lie_is_noticed_and_no_truth_is(story):
    """In any order, a false write does not change the verdict on later ones."""
    world, written = story
    integrity = Fold()
    for stream, commit in beginning(world):
        assert not integrity.misfit(stream, commit)
    for (stream, commit), true in written:
        why = integrity.misfit(stream, commit)
        assert bool(why) is not true, (stream, commit, why)
    for agent, role in world.items():  # false writes about others had no effect
        resumed = truths(agent, role)["resumed"]
        assert not integrity.misfit(*resumed)


@given(stories())
def test_tables_take_the_truths_alone(story):
    """Each false write is one problem, each other event one row, though in the same streams."""
    world, written = story
    rows, count = Rows(0, Fold()), 0
    commits = [*((made, True) for made in beginning(world)), *written]
    for number, ((stream, commit), true) in enumerate(commits, 1):
        count += len(commit.events) * true
        subject = subjects.subject("lab", stream, commit.version)
        rows.add(RawMessage(number, number, subject, encode(stream, commit)))
    batch = rows.take()
    assert batch is not None
    assert len(batch.rows) == count
    assert len(batch.problems) == sum(not true for _, true in written)
    assert {problem.event_index for problem in batch.problems} <= {None}
