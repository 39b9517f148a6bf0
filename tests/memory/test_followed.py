"""A followed space is as current as the log, even if the log changes during a read."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from hansard.agents.memory.drafts import Op
from hansard.agents.memory.store import MemoryStore
from hansard.bus.errors import Unreachable
from hansard.bus.log import EventLog, Stored
from hansard.domain.memory.space import MemoryState
from hansard.state.memories import SPACES_MAX, Memories
from hansard.testing.programs import Memory, workspace_of

SPACE = "org"
WITHIN_S = 30.0


class Passing:
    """A log that reports how far its follower has read."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.passed = 0
        self.out_of_reach = 0
        self.happens: Callable[[], Awaitable[object]] | None = None
        """Called once, between a read and its answer."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, *args: Any, **kwargs: Any) -> list[Stored]:
        """Read like the log; fail as often as it is set to be unreachable."""
        if self.out_of_reach:
            self.out_of_reach -= 1
            raise Unreachable("nats://nowhere", "no answer")
        commits = list(await self._log.read(*args, **kwargs))
        happens, self.happens = self.happens, None
        if happens is not None:
            await happens()
        return commits

    async def head(self) -> int:
        """Return the log's head after other tasks had their turn."""
        await asyncio.sleep(0)
        return await self._log.head()

    async def follow(self, *asked: Any, **wanted: Any) -> AsyncIterator[Stored]:
        """Follow the log unchanged."""
        async for stored in self._log.follow(*asked, **wanted):
            yield stored
            self.passed = stored.position

    async def all_passed(self) -> None:
        """Wait until the follower has applied all events of the log."""
        async with asyncio.timeout(WITHIN_S):
            while self.passed < await self._log.head():  # noqa: ASYNC110 -- the log does not say
                await asyncio.sleep(0.001)


class Pair:
    """A space with another process that writes and this process that reads."""

    def __init__(self) -> None:
        memory = Memory()
        self._writer = workspace_of(memory)
        self.log = Passing(memory.log)
        self.memories = Memories(self.log, memory.blobs)

    async def write(self, path: str, text: str = "x\n") -> None:
        """Create a file as another process."""
        store = MemoryStore(self._writer, SPACE)
        await store.change([Op(op="create", path=path, text=text)], "eve")

    async def write_and_pass(self) -> None:
        """Write during this client's read, and pass the event to its follower."""
        await self.write("b.md")
        await self.log.all_passed()

    def files(self) -> set[str] | None:
        """Return the files of the space that this process knows."""
        known = self.memories.known(SPACE)
        return set(known.files) if known is not None else None


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Return a pair with one file."""
    made = Pair()
    await made.write("a.md")
    yield made
    await made.memories.close()


async def test_what_passes_by_while_a_space_is_first_read_is_not_missed(pair: Pair):
    """An event during the first read of a space is not missed."""
    pair.log.happens = pair.write_and_pass
    await pair.memories.follow([SPACE])
    assert pair.files() == {"a.md", "b.md"}


async def test_a_read_that_fails_after_something_passed_by_keeps_nothing(pair: Pair):
    """A failed read discards its state, since it is older than events that have already passed."""

    async def passes_and_breaks() -> None:
        await pair.write_and_pass()
        pair.log.out_of_reach = 1

    pair.log.happens = passes_and_breaks
    with pytest.raises(Unreachable):
        await pair.memories.follow([SPACE])
    assert pair.files() is None
    await pair.memories.follow([SPACE])
    assert pair.files() == {"a.md", "b.md"}


async def test_a_space_that_changes_during_every_read_of_it_is_read_and_not_kept(pair: Pair):
    """Reading a space that changes during every read ends, without keeping the state."""
    count = 0

    async def again() -> None:
        nonlocal count
        count += 1
        await pair.write(f"{count}.md")
        await pair.log.all_passed()
        pair.log.happens = again

    pair.log.happens = again
    await pair.memories.follow()
    state = await pair.memories.state(SPACE)
    assert set(state.files) >= {"a.md", "1.md"}
    assert pair.files() is None
    pair.log.happens = None
    await pair.memories.state(SPACE)
    assert pair.files() == {"a.md", *(f"{number}.md" for number in range(1, count + 1))}


async def test_what_was_read_before_the_log_is_followed_is_read_again(pair: Pair):
    """A state read before following begins is read again: changes in between go unreported."""
    await pair.memories.state(SPACE)
    await pair.write("b.md")
    await pair.memories.follow(["agent/ada"])
    assert pair.files() is None
    await pair.memories.state(SPACE)
    assert pair.files() == {"a.md", "b.md"}


async def test_what_is_read_while_following_begins_is_as_new_as_it(pair: Pair):
    """A read that overlaps the begin of following gives the newest state."""

    async def begins() -> None:
        await pair.write("b.md")
        await pair.memories.follow()

    pair.log.happens = begins
    await pair.memories.state(SPACE)
    assert pair.files() == {"a.md", "b.md"}


async def test_a_space_that_is_dropped_while_it_is_read_is_as_new_as_the_log(pair: Pair):
    """A space dropped from the cache during a read is as new as the log."""

    async def drops() -> None:
        await pair.memories.state(SPACE)
        await pair.write_and_pass()
        assert pair.files() == {"a.md", "b.md"}
        for number in range(SPACES_MAX):
            pair.memories.keep(f"agent/{number}", MemoryState())
        assert pair.files() is None

    pair.log.happens = drops
    await pair.memories.follow([SPACE])
    assert pair.files() == {"a.md", "b.md"}


async def test_two_that_begin_to_follow_at_once_follow_once(pair: Pair):
    """Two concurrent first reads start one follower, which ends at the close."""
    before = asyncio.all_tasks()
    await asyncio.gather(pair.memories.follow(), pair.memories.follow())
    await pair.memories.close()
    assert asyncio.all_tasks() == before
