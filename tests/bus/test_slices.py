"""Slices of long work on the loop: other tasks continue in between."""

import asyncio
import math
import time

import pytest

from hansard.bus import clock
from hansard.bus.clock import IDLE_S, REST_S, YIELDED_MAX, Slices

TURNS = 3 * YIELDED_MAX
BUSY_S = 3 * IDLE_S


def busy(seconds: float) -> None:
    """Keep the loop."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def other(turns: list[int], done: list[int]) -> None:
    """Do some work in each turn; note the progress of the long work so far."""
    for _ in range(TURNS):
        busy(BUSY_S)
        turns.append(len(done))
        await asyncio.sleep(0)


async def slices_meanwhile() -> int:
    """Return the number of slices between the first and the last turn of another task."""
    done: list[int] = []
    turns: list[int] = []
    going_on = asyncio.ensure_future(other(turns, done))
    async with Slices() as work:
        while not going_on.done():
            done.append(1)
            await work.pause()
    return turns[-1] - turns[0]


async def test_others_go_on_for_many_turns_between_two_slices(monkeypatch: pytest.MonkeyPatch):
    """Beside other work one slice runs every `YIELDED_MAX` turns, so both sides progress."""
    monkeypatch.setattr(clock, "YIELDED_S", math.inf)
    meanwhile = await slices_meanwhile()
    assert TURNS // YIELDED_MAX - 1 <= meanwhile <= TURNS // YIELDED_MAX + 1


async def test_the_next_slice_comes_after_a_turn_that_nobody_needed(monkeypatch):
    """A turn of the loop that counts as idle is followed by the next slice."""
    monkeypatch.setattr(clock, "IDLE_S", math.inf)
    turns: list[int] = []
    going_on = asyncio.ensure_future(other(turns, []))
    paused = 0
    async with Slices() as work:
        while not going_on.done():
            await work.pause()
            paused += 1
    assert TURNS <= paused <= TURNS + 1


async def test_the_next_slice_comes_when_others_had_their_time(monkeypatch):
    """Whatever others want of the loop, long work has its part: here a slice after each turn."""
    monkeypatch.setattr(clock, "YIELDED_S", BUSY_S / 2)
    assert TURNS - 2 <= await slices_meanwhile() <= TURNS + 1


async def test_work_that_rests_leaves_the_loop_alone():
    """After each slice it waits for a timer, during which other work continues at once."""
    token = clock.rests.set(True)
    try:
        began = time.perf_counter()
        async with Slices() as work:
            for _ in range(TURNS):
                await work.pause()
        assert time.perf_counter() - began >= TURNS * REST_S / 2
    finally:
        clock.rests.reset(token)
