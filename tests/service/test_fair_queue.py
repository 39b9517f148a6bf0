"""A fair queue: places in turn, bounded shares, nothing lost when a waiter is cancelled."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hansard.operations.protocol.faults import ServiceBusy
from hansard.service.fair_queue import Bounds, FairQueue

BOUNDS = Bounds(
    what="tests", places=3, places_each=2, waiting_each=4, wait_s=60.0, retry_after_s=7.0
)
STEPS_MAX = 20
"""Loop turns within which every unblocked waiter has run."""


class Bench:
    """Holders and waiters of places, as their tasks see them."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self.queue = FairQueue(bounds)
        self.served: list[str] = []
        self.holding: list[tuple[str, asyncio.Event, asyncio.Task[None]]] = []
        self.tasks: list[tuple[str, asyncio.Task[None]]] = []

    async def ask(self, name: str) -> asyncio.Task[None]:
        """Request a place in a task."""
        leave = asyncio.Event()

        async def work() -> None:
            async with self.queue.place(name):
                self.served.append(name)
                self.holding.append((name, leave, task))
                await leave.wait()

        task = asyncio.get_running_loop().create_task(work())
        self.tasks.append((name, task))
        await settle()
        return task

    async def leave(self, index: int = 0) -> str:
        """Release one of the held places."""
        name, event, task = self.holding.pop(index)
        event.set()
        await task
        await settle()
        return name

    def waiting(self) -> list[str]:
        """Return the waiters."""
        held = {task for *_, task in self.holding}
        return [name for name, task in self.tasks if not task.done() and task not in held]

    async def close(self) -> None:
        """End them all."""
        for _, task in self.tasks:
            task.cancel()
        await asyncio.gather(*(task for _, task in self.tasks), return_exceptions=True)


async def settle() -> None:
    """Let every runnable task continue."""
    for _ in range(STEPS_MAX):
        await asyncio.sleep(0)


async def test_places_go_in_turn():
    """A principal with many waiting requests is served once for each turn of the others."""
    bench = Bench(replace(BOUNDS, places=2, places_each=1))
    for name in ("ada", "ada", "ada", "bob", "bob", "carl"):
        await bench.ask(name)
    while bench.holding:
        await bench.leave()
    assert bench.served == ["ada", "bob", "carl", "ada", "bob", "ada"]
    await bench.close()


async def test_one_too_many_is_refused_with_a_retry_time():
    """The one past the bound is refused at once, with the seconds; others are not."""
    bench = Bench()
    for _ in range(BOUNDS.places_each + BOUNDS.waiting_each):
        await bench.ask("ada")
    with pytest.raises(ServiceBusy, match="retry in 7 s") as refusal:
        await (await bench.ask("ada"))
    assert refusal.value.retry_after_s == BOUNDS.retry_after_s
    await bench.ask("bob")
    assert bench.served[-1] == "bob"
    await bench.close()


async def test_a_wait_in_vain_is_refused():
    """The wait has an end; the place in the line is given up."""
    bench = Bench(replace(BOUNDS, places_each=1, wait_s=0.01))
    await bench.ask("ada")
    with pytest.raises(ServiceBusy):
        await (await bench.ask("ada"))
    await bench.leave()
    await bench.ask("ada")
    assert len(bench.holding) == 1
    await bench.close()


moves = st.lists(
    st.tuples(st.sampled_from(["ask", "leave", "cancel"]), st.integers(0, 20)), max_size=60
)


@given(moves)
def test_whatever_happens_shares_hold(steps: list[tuple[str, int]]) -> None:
    """Shares are never exceeded, and no free place is kept from a waiter."""

    async def play() -> None:
        bench = Bench()
        for what, number in steps:
            if what == "ask":
                await bench.ask("abcd"[number % 4])
            elif what == "leave" and bench.holding:
                await bench.leave(number % len(bench.holding))
            elif what == "cancel" and bench.tasks:
                await cancel(bench, number)
            held = Counter(name for name, *_ in bench.holding)
            assert held.total() <= BOUNDS.places
            assert all(count <= BOUNDS.places_each for count in held.values())
            if held.total() < BOUNDS.places:
                assert all(held[name] == BOUNDS.places_each for name in bench.waiting())
        await bench.close()
        assert not bench.queue._taken
        assert not bench.queue._waiting

    asyncio.run(play())


async def cancel(bench: Bench, number: int) -> None:
    """Cancel a task, whether it waits or holds a place."""
    _, task = bench.tasks[number % len(bench.tasks)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    bench.holding = [each for each in bench.holding if each[2] is not task]
    await settle()
