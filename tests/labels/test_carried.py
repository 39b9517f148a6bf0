"""A principal's accumulated label is decided in the log, for all its writers."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.agents.access.carried import AccumulatedLabel, LabelledLog, Lowered
from hansard.agents.workspace import Workspace
from hansard.bus.clock import Clock
from hansard.bus.commits import revive_all
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, AppendsHere, EventLog, NothingUnder, Stored
from hansard.bus.redacted_log import ChangedLog
from hansard.domain import decider, principal
from hansard.domain.decider import LabelDeclassified
from hansard.domain.errors import Refused
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import AgentStream, KeyStream, StreamId, WorkspaceStream
from hansard.domain.label import LOWEST, Label, join, parse, text
from hansard.domain.principal import (
    PrincipalKind,
    PrincipalRegistered,
    PrincipalShown,
    PrincipalState,
)
from hansard.state.memory_log import MemoryLog

GIVEN = ("internal", "secret", "confidential untrusted", "untrusted", "confidential")
ADA = WorkspaceStream(principal.KIND, "ada")
ACTOR = Actor("ada", ("ada",))
_clock = Clock()
_registered = PrincipalRegistered(kind=PrincipalKind.AGENT)


def lowered(to: str = "") -> LabelDeclassified:
    """Return the event of a declassification."""
    return LabelDeclassified(to=to, approver="eve", because="law", before="")


# ------------------------------------------------------------ what is decided


@given(st.lists(st.sampled_from([*GIVEN, None])))
def test_it_is_the_join_of_what_was_shown_since_it_was_lowered(labels: list[str | None]) -> None:
    """The label is the join of all input since it was lowered; no label is stated twice."""
    state, expected = decider.fold(principal.PrincipalState(), [_registered]), LOWEST
    for each in labels:
        event: Any = lowered() if each is None else PrincipalShown(label=each, role="r")
        if each is None and expected == LOWEST:
            with pytest.raises(Refused, match="would not lower"):
                principal.decide(state, event)
            continue
        expected = LOWEST if each is None else join(expected, parse(each))
        news = principal.decide(state, event)
        assert bool(news) == (state.carries != expected)
        state = decider.fold(state, news)
        assert state.carries == expected
        assert principal.decide(state, PrincipalShown(label=text(expected), role="r")) == ()


@pytest.mark.parametrize("event", [PrincipalShown(label="secret", role="r"), lowered()])
def test_who_is_not_registered_carries_nothing(event: Any) -> None:
    """An unregistered principal is refused, with the remedy."""
    with pytest.raises(Refused, match="not registered"):
        principal.decide(principal.PrincipalState(), event)


# ------------------------------------------------------------ in the log


class Far(MemoryLog):
    """A log that answers late, so that other tasks run meanwhile."""

    async def read(self, *arguments: Any, **more: Any) -> list[Stored]:
        """Read the log, one turn of the loop later."""
        commits = await super().read(*arguments, **more)
        await asyncio.sleep(0)
        return commits


class Desk:
    """A log with one principal and its writers."""

    def __init__(self) -> None:
        self.log = Far("w")
        self.versions: dict[StreamId, int] = {}

    async def begin(self) -> None:
        """Register the principal."""
        await self.tell(_registered)

    async def tell(self, *events: Any) -> None:
        """State something in the principal's stream."""
        version = (await self.state()).version + 1
        await self.log.append(Append(ADA, self.commit(version, *events)))

    def commit(self, version: int, *events: Any, label: Label | None = None) -> Commit:
        """Return a commit."""

        async def nothing() -> None: ...

        blobs: Any = None
        workspace = Workspace(self.log, blobs, _clock, nothing)
        return workspace.commit(version, ACTOR, events or [_registered], label=label)

    async def state(self) -> PrincipalState:
        """Return the current state of the principal."""
        stored = await self.log.read(ADA)
        return decider.fold(principal.PrincipalState(), revive_all(each.commit for each in stored))

    async def carried(self) -> AccumulatedLabel:
        """Return a new writer for the principal."""
        return AccumulatedLabel(self.log, await self.state(), ACTOR, "r")

    def append(self, stream: StreamId, label: Label | None = None) -> Append:
        """Return an append of the next commit on a stream."""
        version = self.versions[stream] = self.versions.get(stream, 0) + 1
        return Append(stream, self.commit(version, label=label))


@pytest.fixture
async def desk() -> Desk:
    """Return a log with one principal."""
    made = Desk()
    await made.begin()
    return made


def test_a_log_that_changes_commits_changes_those_of_every_writing_method() -> None:
    """No method that takes commits reaches the log behind it unchanged."""
    writing = {
        name
        for port in (EventLog, AppendsHere)
        for name, method in inspect.getmembers(port, inspect.isfunction)
        if any(
            "Append" in str(each.annotation)
            for each in inspect.signature(method).parameters.values()
        )
    }
    assert len(writing) == 6
    assert writing <= set(vars(ChangedLog))


async def test_a_labelled_log_labels_what_each_method_writes(desk: Desk) -> None:
    """A commit gets the label, or keeps a higher one, one by one, together and in bulk."""
    log = LabelledLog(desk.log, parse("confidential"))
    await log.append(desk.append(KEY, parse("secret")))
    await log.append_all([desk.append(KEY), desk.append(MINE)])
    await log.append_groups([[desk.append(KEY)], [desk.append(MINE)]])
    await log.append_bulk([desk.append(KEY)])
    stored = [each.commit.label for each in desk.log.after(1)]
    assert stored == [parse("secret"), *[parse("confidential")] * 5]


KEY = KeyStream("b", "k")
MINE = AgentStream("b", "r", "ada")


async def test_what_is_written_together_is_decided_again(desk: Desk) -> None:
    """A transaction under an outdated label conflicts, and its caller has to decide it again."""
    one, other = await desk.carried(), await desk.carried()
    await one.shown(parse("secret"))
    appends = [desk.append(MINE), desk.append(KEY)]
    with pytest.raises(Conflict):
        await other.log.append_all(appends)
    assert await desk.log.read(KEY) == []
    with pytest.raises(Conflict):  # decided under what it knew before
        await other.log.append_all(appends)
    desk.versions.clear()
    secret = other.label
    stored = await other.log.append_all([desk.append(MINE, secret), desk.append(KEY, secret)])
    assert [each.commit.label for each in stored] == [parse("secret")] * 2


async def test_who_was_at_work_when_it_was_lowered_writes_nothing_more(desk: Desk) -> None:
    """Once a label is lowered, earlier writers can neither write nor get input; new ones can."""
    one = await desk.carried()
    await one.shown(parse("secret"))
    await desk.tell(lowered())
    with pytest.raises(Lowered, match="open the run again"):
        await one.log.append(desk.append(MINE))
    with pytest.raises(Lowered):
        await one.shown(parse("internal"))
    assert await desk.log.read(MINE) == []
    desk.versions.clear()
    new = await desk.carried()
    assert (await new.log.append(desk.append(MINE))).commit.label is None


async def test_what_has_a_condition_of_its_own_leaves_none_for_ours(desk: Desk) -> None:
    """An append with another condition is refused, and nothing is written."""
    one = await desk.carried()
    append = desk.append(MINE)
    held = Append(append.stream, append.commit, NothingUnder("b", "ada"))
    with pytest.raises(TypeError, match="fits none"):
        await one.log.append(held)
    assert await desk.log.read(MINE) == []


# ------------------------------------------------------------ any order

WRITERS = 3
steps = st.lists(
    st.one_of(
        st.tuples(st.just("shown"), st.integers(0, WRITERS - 1), st.sampled_from(GIVEN)),
        st.tuples(st.sampled_from(["write", "both"]), st.integers(0, WRITERS - 1), st.just("")),
        st.tuples(st.just("tool"), st.integers(0, WRITERS - 1), st.sampled_from(GIVEN)),
        st.tuples(st.sampled_from(["lower", "token"]), st.just(0), st.just("")),
    ),
    max_size=25,
)


class Play:
    """Several writers for one principal, each with the label that it read last."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.writers: dict[int, AccumulatedLabel] = {}
        self.turns = 0

    async def writer(self, number: int) -> AccumulatedLabel:
        """Return a writer, created on first use."""
        if number not in self.writers:
            self.writers[number] = await self.desk.carried()
        return self.writers[number]

    async def step(self, kind: str, number: int, label: str) -> None:
        """Do the next act; a writer that was lowered begins again."""
        one = await self.writer(number)
        try:
            match kind:
                case "shown":
                    await one.shown(parse(label))
                    assert join((await self.desk.state()).carries, parse(label)) == one.label
                case "write" | "tool":
                    lowest = parse(label) if label else None
                    await one.log.append(
                        await self.next(AgentStream("b", "r", str(number)), lowest)
                    )
                case "both":
                    await self._both(one, number)
                case "token":
                    await self.desk.tell(_registered)  # whatever else comes into its stream
                case _:
                    if (await self.desk.state()).label:
                        await self.desk.tell(lowered())
        except Lowered:
            del self.writers[number]

    async def next(self, stream: StreamId, label: Label | None = None) -> Append:
        """Return the next commit of a stream."""
        last = await self.desk.log.last(stream)
        version = last.commit.last_version + 1 if last is not None else 1
        return Append(stream, self.desk.commit(version, label=label))

    async def _both(self, one: AccumulatedLabel, number: int) -> None:
        for _ in range(10):
            label = one.label.stored
            streams = (AgentStream("b", "r", str(number)), KEY)
            try:
                await one.log.append_all([await self.next(each, label) for each in streams])
            except Conflict:
                continue
            return
        pytest.fail("it never got through")

    async def check(self) -> int:
        """Check that each commit has the label that the principal had at that position."""
        head = await self.desk.log.head()
        commits: list[Stored] = [each async for each in self.desk.log.follow(until=head)]
        state, labelled = principal.PrincipalState(), 0
        for stored in commits:
            if stored.stream == ADA:
                state = decider.fold(state, revive_all([stored.commit]))
                continue
            assert (stored.commit.label or LOWEST) == state.carries, stored
            labelled += stored.commit.label is not None
        return labelled


@given(steps)
@settings(deadline=None)
def test_any_order_of_any_writers(operations: Sequence[tuple[str, int, str]]) -> None:
    """Whatever the order, each commit has the label that its principal carries there."""

    async def play() -> None:
        desk = Desk()
        await desk.begin()
        world = Play(desk)
        for kind, number, label in operations:
            await world.step(kind, number, label)
        await world.check()

    asyncio.run(play())


async def test_operations_of_one_session_at_once(desk: Desk) -> None:
    """Concurrent operations of one session apply each new event once, and notice later ones."""
    one, other = await desk.carried(), await desk.carried()
    await other.shown(parse("internal"))
    await asyncio.gather(*(one.refresh() for _ in range(5)))
    await other.shown(parse("secret"))
    assert (await one.log.append(desk.append(MINE))).commit.label == parse("secret")
