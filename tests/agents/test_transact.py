"""Read, decide, append: a lost race is read, decided and appended again, and not for ever."""

import asyncio
from typing import Any

import pytest

from hansard.bus.clock import Clock
from hansard.bus.commits import record
from hansard.bus.errors import AppendUnknown, Conflict
from hansard.bus.log import Append, Stored
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import WorkspaceStream
from hansard.domain.run import RunCompleted
from hansard.operations.protocol import faults
from hansard.state.memory_log import MemoryLog
from hansard.state.repository import TRIES_MAX, retry, transact
from tests.agents.rivals import RivalLog

STREAM = WorkspaceStream("kind", "one")
_clock = Clock()


class Counting(MemoryLog):
    """A log with slow answers, during which others continue. It counts its reads."""

    reads = 0

    async def last(self, stream: Any) -> Stored | None:
        """Return the newest commit, a turn of the loop later."""
        self.reads += 1
        stored = await super().last(stream)
        await asyncio.sleep(0)
        return stored


def following(by: str, last: Stored | None) -> Append:
    """Return the next commit."""
    version = last.commit.last_version + 1 if last is not None else 1
    event = record(RunCompleted(), _clock.new_id())
    commit = Commit(
        id=_clock.new_id(), version=version, at=_clock.now(), actor=Actor(by), events=(event,)
    )
    return Append(STREAM, commit)


async def append_statement(log: Any, by: str, tries_max: int = TRIES_MAX) -> Stored | None:
    """Append a statement, at any version."""

    async def read() -> Stored | None:
        stored: Stored | None = await log.last(STREAM)
        return stored

    return await transact(read, lambda last: following(by, last), log.append, tries_max)


async def test_it_reads_again_after_each_lost_race():
    """The final append follows the others' writes."""
    log = Counting("w")
    late = RivalLog(log, lambda: append_statement(log, "early"), times=3)
    stored = await append_statement(late, "late")
    assert stored is not None
    assert (stored.commit.version, late.lost, log.reads) == (4, 3, 3 + 4)
    authors = [each.commit.actor.agent for each in await log.read(STREAM)]
    assert authors == ["early"] * 3 + ["late"]


async def test_its_tries_are_bounded_and_the_error_says_so():
    """The error has the number of tries, the stream, the last winner and the remedy."""
    log = Counting("w")
    late = RivalLog(log, lambda: append_statement(log, "early"), times=1_000)
    with pytest.raises(Conflict) as lost:
        await append_statement(late, "late", tries_max=3)
    assert (lost.value.tries, lost.value.stream, lost.value.version) == (3, STREAM, 3)
    assert str(lost.value) == (
        f"3 tries in a row to write stream {STREAM} were lost to others: version 3 of stream "
        f"{STREAM} is already written by 'early' at position 3: nothing was written; try again, "
        "or let fewer write to it at once"
    )
    assert len(late.tries) == 3
    assert {each.commit.actor.agent for each in await log.read(STREAM)} == {"early"}


async def test_nothing_to_append_appends_nothing():
    """An empty decision costs one read."""
    log = Counting("w")

    async def never(_: Append) -> Stored:
        pytest.fail("there was nothing to append")

    def nothing(_: Stored | None) -> Append | None:
        return None

    assert await transact(lambda: log.last(STREAM), nothing, never) is None
    assert log.reads == 1


async def test_a_bound_that_was_reached_below_is_not_multiplied():
    """An inner transaction that used up its tries is not retried by the outer one."""
    log = Counting("w")
    late = RivalLog(log, lambda: append_statement(log, "early"), times=1_000)
    with pytest.raises(Conflict) as lost:
        await retry(lambda: append_statement(late, "late", tries_max=3), tries_max=3)
    assert (lost.value.tries, len(late.tries)) == (3, 3)


async def test_a_race_of_somebody_else_s_is_raised_at_once():
    """Another transaction's lost race is raised unchanged."""
    log = Counting("w")
    late = RivalLog(log, lambda: append_statement(log, "early"))

    async def attempt() -> Stored:
        return await late.append(following("late", await late.last(STREAM)))

    with pytest.raises(Conflict) as lost:
        await retry(attempt, ours=lambda lost: lost.stream != STREAM)
    assert (lost.value.tries, len(late.tries)) == (1, 1)


async def test_an_append_whose_outcome_is_unknown_is_not_made_again():
    """The commit may be stored: another append, with another id, could duplicate it."""
    log = Counting("w")

    async def lost_answer(append: Append) -> Stored:
        stored = await log.append(append)
        raise AppendUnknown(STREAM, stored.commit.version, stored.commit.id, 1.0)

    with pytest.raises(AppendUnknown):
        await transact(lambda: log.last(STREAM), lambda last: following("a", last), lost_answer)
    assert len(await log.read(STREAM)) == 1


def test_a_client_of_the_service_gets_the_number_of_tries():
    """The winner is not included."""
    fault = faults.of_service(Conflict(STREAM, 3, None, 50), {})
    restored = faults.ours(fault)
    assert isinstance(restored, Conflict)
    assert restored.tries == 50
    assert "50 tries in a row" in str(restored)
