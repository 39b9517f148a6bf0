"""A principal's accumulated label is decided in the log, for all its writers."""

import inspect
from typing import Any

import pytest

from hansard.agents.access.carried import AccumulatedLabel, LabelledLog, Lowered
from hansard.agents.workspace import Workspace
from hansard.bus.clock import Clock
from hansard.bus.commits import revive_all
from hansard.bus.log import Append, AppendsHere, EventLog, NothingUnder
from hansard.bus.redacted_log import ChangedLog
from hansard.domain import decider, principal
from hansard.domain.decider import LabelDeclassified
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import AgentStream, KeyStream, StreamId, WorkspaceStream
from hansard.domain.label import Label, parse
from hansard.domain.principal import PrincipalKind, PrincipalRegistered, PrincipalState
from hansard.state.memory_log import MemoryLog

ADA = WorkspaceStream(principal.KIND, "ada")
ACTOR = Actor("ada", ("ada",))
_clock = Clock()
_registered = PrincipalRegistered(kind=PrincipalKind.AGENT)


def lowered(to: str = "") -> LabelDeclassified:
    """Return the event of a declassification."""
    return LabelDeclassified(to=to, approver="eve", because="law", before="")


# ------------------------------------------------------------ in the log


class Desk:
    """A log with one principal and its writers."""

    def __init__(self) -> None:
        self.log = MemoryLog("w")
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
