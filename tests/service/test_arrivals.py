"""What comes is looked at in turn: whoever burns holds up another's request by one of theirs."""

import asyncio
from typing import Any

import pytest

from hansard.bus.portal import portal
from hansard.domain.errors import BadValue
from hansard.service import arrivals, wire
from hansard.service.arrivals import AT_ONCE, WAITING_EACH_MAX, Arrivals
from hansard.service.wire import Request
from tests.service.support import House

PACKET = 64


async def test_others_are_looked_at_in_turn():
    """64 requests of two who burn, then one of another: two are looked at before it."""
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
    """What nobody foresaw is told to the loop; who waits is looked at all the same."""
    told: list[Any] = []
    monkeypatch.setattr(arrivals, "AT_ONCE", 1)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
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
    assert [type(each["exception"]) for each in told] == [BadValue]


def test_a_packet_of_one_holds_up_another_by_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service looks at the token of one request of who burns, and then at the other's."""
    for name in ("ada", "bob"):
        house.login(name)
    service = house.service
    assert service is not None
    check = service._gatekeeper.check
    seen: list[str] = []

    def checked(token: str, name: str, role: str) -> Any:
        seen.append(name)
        return check(token, name, role)

    monkeypatch.setattr(service._gatekeeper, "check", checked)

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
