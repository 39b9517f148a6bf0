"""Requests are examined in turn: a principal with many delays another's by one of theirs."""

import asyncio
from typing import Any

import pytest

from hansard.bus.portal import portal
from hansard.domain.errors import BadValue
from hansard.operations.protocol import wire
from hansard.operations.protocol.wire import Request
from hansard.service import fair_queue
from hansard.service.fair_queue import (
    AT_ONCE,
    PACED_AT_ONCE,
    PACED_FROM,
    WAITING_EACH_MAX,
    Arrivals,
)

PACKET = 64


async def test_others_are_looked_at_in_turn():
    """With 64 requests of two heavy principals before another's, two are examined before it."""
    seen: list[tuple[str, int]] = []
    coming = Arrivals(seen.append)
    for number in range(PACKET):
        for name in ("ada", "eve"):
            coming.put(name, (name, number))
    coming.put("bob", ("bob", 0))
    await asyncio.sleep(0)
    assert seen.index(("bob", 0)) == 2
    while len(seen) < 2 * PACKET + 1:  # noqa: ASYNC110 -- it counts turns of the loop
        await asyncio.sleep(0)
    for name in ("ada", "eve"):
        assert [number for each, number in seen if each == name] == [*range(PACKET)]


async def test_a_turn_of_the_loop_has_few():
    """However many have come at once, so many are looked at before others on the loop go on."""
    seen: list[int] = []
    coming = Arrivals(seen.append)
    for number in range(PACKET):
        coming.put("ada", number)
    assert not seen
    for turn in range(1, PACKET // AT_ONCE + 1):
        await asyncio.sleep(0)
        assert len(seen) == turn * AT_ONCE
    await asyncio.sleep(0)
    assert seen == [*range(PACKET)]


async def test_who_waits_is_bounded():
    """One more than may wait, and the oldest is looked at: order holds, and memory does."""
    seen: list[int] = []
    coming = Arrivals(seen.append)
    for number in range(WAITING_EACH_MAX + 3):
        coming.put("ada", number)
    assert seen == [0, 1, 2]
    while len(seen) < WAITING_EACH_MAX + 3:  # noqa: ASYNC110 -- it counts turns of the loop
        await asyncio.sleep(0)
    assert seen == [*range(WAITING_EACH_MAX + 3)]


async def test_one_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch):
    """An unforeseen error is reported to the loop, and waiting requests are examined all the
    same.
    """
    contexts: list[Any] = []
    monkeypatch.setattr(fair_queue, "AT_ONCE", 1)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    seen: list[int] = []

    def take(number: int) -> None:
        if not number:
            raise BadValue("number", "0", "give another")
        seen.append(number)

    coming = Arrivals(take)
    for number in range(3):
        coming.put("ada", number)
    for _ in range(4):
        await asyncio.sleep(0)
    assert seen == [1, 2]
    assert [type(each["exception"]) for each in contexts] == [BadValue]


@pytest.fixture
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pace so slowly that a paced principal has one turn within the test."""
    monkeypatch.setattr(fair_queue, "SHARE", 1e-9)
    monkeypatch.setattr(fair_queue, "PACE_S_MAX", 3_600.0)


async def turns() -> None:
    """Run the loop as many times as unpaced requests need."""
    for _ in range(2 * PACKET):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("for_ever")
async def test_who_has_many_waiting_is_paced_beside_another():
    """After a few of its requests a heavy principal pauses, while the other continues."""
    seen: list[str] = []
    coming = Arrivals(seen.append)
    coming.put("bob", "bob")
    await turns()
    for _ in range(PACKET):
        coming.put("ada", "ada")
    for _ in range(PACED_FROM):
        await turns()
        coming.put("bob", "bob")
    await turns()
    assert seen.count("ada") == PACED_AT_ONCE
    assert seen.count("bob") == 1 + PACED_FROM
    coming.close()


@pytest.mark.usefixtures("for_ever")
async def test_who_is_alone_is_not_paced():
    """A single principal is not paced, however many requests wait."""
    seen: list[int] = []
    coming = Arrivals(seen.append)
    for number in range(PACKET):
        coming.put("ada", number)
    await turns()
    assert seen == [*range(PACKET)]


async def test_who_was_there_long_ago_is_there_no_more(monkeypatch: pytest.MonkeyPatch):
    """A principal without recent requests causes no pacing."""
    monkeypatch.setattr(fair_queue, "THERE_S", 0.0)
    seen: list[int] = []
    coming = Arrivals(seen.append)
    coming.put("bob", 0)
    assert not coming.crowded
    coming.put("ada", 0)
    assert not coming.crowded


@pytest.mark.usefixtures("for_ever")
async def test_who_has_few_waiting_is_not_paced():
    """A program that does some things at once is no burden."""
    seen: list[str] = []
    coming = Arrivals(seen.append)
    for _ in range(PACED_FROM):
        for name in ("ada", "bob"):
            coming.put(name, name)
    await turns()
    assert seen.count("ada") == seen.count("bob") == PACED_FROM


async def test_who_is_paced_is_looked_at_in_the_end(monkeypatch: pytest.MonkeyPatch):
    """However busy the loop is, within a bound; in order, and whole."""
    monkeypatch.setattr(fair_queue, "SHARE", 1e-9)
    monkeypatch.setattr(fair_queue, "PACE_S_MAX", 0.001)
    seen: list[int] = []
    coming = Arrivals(seen.append)
    coming.put("bob", -1)
    for number in range(PACKET):
        coming.put("ada", number)
    async with asyncio.timeout(60):
        while len(seen) <= PACKET:  # noqa: ASYNC110 -- it waits for what timers do
            await asyncio.sleep(0.001)
    assert seen == [-1, *range(PACKET)]


def test_a_packet_of_one_holds_up_another_by_one(house, monkeypatch):
    """The service reads one request's token of the heavy principal, and then the other's."""
    for name in ("ada", "bob"):
        house.login(name)
    service = house.service
    assert service is not None
    check = service._authenticator.check
    seen: list[str] = []

    def checked(token: str, name: str, role: str) -> Any:
        seen.append(name)
        return check(token, name, role)

    monkeypatch.setattr(service._authenticator, "check", checked)

    async def arrive() -> None:
        for name in ("ada",) * PACKET + ("bob",):
            mine = house.known(name)
            where = wire.within(mine.workspace, mine.role, name, service.instance, "beat")
            request = wire.encode(Request(token=mine.token, session="none"))
            service._take(where, f"{mine.inbox}.1", request)
        while len(seen) <= PACKET:  # noqa: ASYNC110 -- it counts turns of the loop
            await asyncio.sleep(0)

    portal().run(arrive())
    assert seen[:2] == ["ada", "bob"]
    assert len(seen) == PACKET + 1
