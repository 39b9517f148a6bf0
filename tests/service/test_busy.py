"""A principal at its limit: refusals lose nothing, and ends are not refused."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import hansard
from hansard.bus.portal import portal
from hansard.client.restricted.link import Link, SessionLink
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import ServiceBusy
from hansard.operations.protocol.wire import (
    BlockExit,
    Call,
    Declared,
    Do,
    Failed,
    Next,
    Open,
    Run,
    Value,
)
from hansard.service import hosted, server
from tests.service._exchange import do, request
from tests.service.support import House

pytestmark = pytest.mark.later

SOON_S = 20.0
"""Seconds within which every expected event arrives, on a busy machine too."""

TURNS = 4
"""The limit in most of these tests."""

NEVER = do("team.wait_for", "never", None, None)


def service_of(house: House) -> server.Service:
    """Return the service of this process."""
    assert house.service is not None
    return house.service


def under_way(house: House) -> int:
    """Return how many requests the service has in flight for ada."""
    return service_of(house)._under_way["ada"]


async def until(done: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(SOON_S):
        while not done():  # noqa: ASYNC110 -- of another part of the program, without an event
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def opened(house: House, **fields: Any) -> AsyncGenerator[SessionLink, None]:
    """Yield a bare session of ada's."""
    link = await Link.open(house.known())
    try:
        session = await link.open_session(Open(**{"workflow": "w", "agent": "ada", **fields}))
        yield session
        await session.end()
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def full(house: House, session: SessionLink, count: int) -> AsyncIterator[list[int]]:
    """So many waits without an end are under way; the numbers of their requests."""
    numbers: list[int] = []
    waits = [
        asyncio.ensure_future(session.ask(*NEVER, busy=True, began=numbers)) for _ in range(count)
    ]
    try:
        await until(lambda: under_way(house) == count)
        yield numbers
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def is_busy(answer: Any) -> bool:
    """Return whether a request was refused as one too many."""
    return isinstance(answer, Failed) and isinstance(faults.ours(answer.fault), ServiceBusy)


def run(house: House, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run work on the bus's loop, with ada's credentials there."""
    house.login()
    return portal().run(work())


def test_a_client_at_its_limit_can_cancel_and_close(house: House) -> None:
    """300 waits, 256 of them in flight, are all cancelled: then the session goes on and closes."""
    login = house.login()

    async def work() -> tuple[int, int]:
        async with (
            hansard.connect_async(credentials=login) as record,
            record.run("w", run="r1") as session,
        ):
            waits = [
                asyncio.ensure_future(session.team.wait_for(key=f"never/{each}"))
                for each in range(300)
            ]
            await until(lambda: sum(each.done() for each in waits) == 300 - server.TURNS_MAX)
            for each in waits:
                each.cancel()
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
            left = under_way(house)
            await session.message("user", "goes on")
        return sum(isinstance(each, ServiceBusy) for each in outcomes), left

    refused, left = asyncio.run(work())
    assert (refused, left) == (300 - server.TURNS_MAX, 0)
    with house.trusted() as record:
        assert record.state("r1").agent("ada").left is not None


def test_what_frees_places_is_never_one_too_many(house, monkeypatch):
    """At its limits a client can still leave, cancel and close, and begin nothing."""
    monkeypatch.setattr(server, "TURNS_MAX", TURNS)
    monkeypatch.setattr(hosted, "TURNS_MAX", TURNS)

    async def work() -> list[Any]:
        async with opened(house, run="r1") as session:
            blocks: list[int] = []
            enter = Do(operation=request("board.transaction"))
            await session.ask("enter", enter, began=blocks)
            put = request("transaction.put", "k", 1, None, {}, None)
            await session.ask("do", Do(operation=put, context=blocks[0]))
            tool = Declared(name="count", effects="pure")
            call = await session.ask("stream", Call(tool=tool, arguments=wire.dump({})))
            assert isinstance(call, Run)
            result = wire.BodyResult(result=wire.dump(1))
            item = await session.ask("done", result, turn=call.turn)
            assert isinstance(item, Value)
            async with full(house, session, TURNS) as numbers:
                beginning = await session.ask(*do("facts.context"))
                left = await session.ask("exit", BlockExit(context=blocks[0]))
                shutting = await session.ask("shut", Next(item.context))
                assert isinstance(shutting, Run)
                shut = await session.ask("done", wire.BodyResult(), turn=shutting.turn)
                before = under_way(house)
                cancelled = await session.ask("cancel", None, turn=numbers[0])
                after = under_way(house)
                closed = await session.ask("close", BlockExit())
            return [is_busy(beginning), left, shut, before - after, cancelled, closed]

    busy, *ends, freed, cancelled, closed = run(house, work)
    assert busy
    assert [type(each) for each in (*ends, cancelled, closed)] == [Value] * 4
    assert freed == 1
    with house.trusted() as record:
        assert record.state("r1").agent("ada").left is not None
        with record.run(run="r1", agent="eve", role="writer") as eve:
            assert eve.board.get("k") == 1


def test_who_frees_places_holds_no_more_of_them(house, monkeypatch):
    """Repeated cancels, exits and closes count once each; the others are refused."""
    going = Counter[str]()
    ends = {name: asyncio.Event() for name in ("cancel", "exit", "close")}

    def slowly(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        async def slow(*args: Any) -> Any:
            going[name] += 1
            await ends[name].wait()
            return await work(*args)

        return slow

    async def held(*_: Any, **__: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            going["cancel"] += 1
            await ends["cancel"].wait()

    async def work() -> list[list[Any]]:
        async with opened(house, run="r1") as session:
            [(_, host)] = service_of(house).sessions.values()
            blocks: list[int] = []
            await session.ask("enter", Do(operation=request("board.transaction")), began=blocks)
            manager = host._open[blocks[0]].manager  # type: ignore[union-attr] # it is a block
            monkeypatch.setattr(
                manager, "__aexit__", slowly("exit", manager.__aexit__), raising=False
            )
            monkeypatch.setattr(host, "close", slowly("close", host.close))
            monkeypatch.setattr(hosted, "run", held)
            async with full(house, session, 1) as numbers:
                batches: list[list[asyncio.Future[Any]]] = []
                for verb, data, turn in (
                    ("cancel", None, numbers[0]),
                    ("exit", BlockExit(context=blocks[0]), 0),
                    ("close", BlockExit(), 0),
                ):
                    asks = [session.ask(verb, data, turn=turn) for _ in range(50)]
                    batches.append([asyncio.ensure_future(each) for each in asks])
                    await until(lambda: sum(each.done() for each in batches[-1]) == 49)
                held_now = under_way(house)
                answers = []
                for each, asking in zip(ends.values(), batches, strict=True):
                    each.set()
                    answers.append(await asyncio.gather(*asking))
                return [[held_now], *answers]

    [held_now], *answers = run(house, work)
    assert held_now == 4  # the wait, and one of each
    assert going == {"cancel": 1, "exit": 1, "close": 1}
    for each in answers:
        failed = [one for one in each if isinstance(one, Failed)]
        assert [one.fault.type for one in failed] == ["BadValue"] * 49


def test_a_refused_request_loses_no_scope(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused request still counts for scopes, so the retry is in its scope."""
    monkeypatch.setattr(server, "TURNS_MAX", TURNS)
    login = house.login()

    async def work(mode: str | None) -> int:
        refused = 0
        ran: list[int] = []
        async with (
            hansard.connect_async(credentials=login) as record,
            record.run("w", run="r2") as other,
            record.run("w", run="r1", mode=mode) as session,
        ):

            @session.tool(effects="once")
            async def look(number: int) -> int:
                ran.append(number)
                return number

            waits = []
            if mode is None:
                waits = [
                    asyncio.ensure_future(other.team.wait_for(key="never")) for _ in range(TURNS)
                ]
                await until(lambda: under_way(house) == TURNS)

            async def asks() -> int:
                nonlocal refused
                try:
                    return await look(1)
                except ServiceBusy:
                    refused += 1
                for each in waits:
                    each.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
                return await look(1)

            assert await session.gather(asks()) == [1]
            assert await look(2) == 2
        assert ran == ([1, 2] if mode is None else [])
        return refused

    assert asyncio.run(work(None)) == 1
    assert asyncio.run(work("offline")) == 0
    with house.trusted() as record:
        first, second = record.state("r1").agent("ada").steps.values()
        assert (first.tool, second.tool) == ("look", "look")
        assert (first.scope, second.scope, second.after) == ("/0.0", "", (first.number,))


def test_refused_requests_do_not_wear_a_session_out(house, monkeypatch):
    """A session of which many requests were refused as too many is answered still."""
    monkeypatch.setattr(server, "TURNS_MAX", TURNS)
    monkeypatch.setattr(hosted, "OPEN_MAX", 20)

    async def work() -> list[Any]:
        async with opened(house) as session:
            async with full(house, session, TURNS):
                refusals = [is_busy(await session.ask(*do("facts.context"))) for _ in range(30)]
                for number in range(1, TURNS + 1):
                    await session.ask("cancel", None, turn=number)
            async with asyncio.timeout(SOON_S):
                answer = await session.ask(*do("facts.context"))
                await session.ask("close", BlockExit())
            return [all(refusals), type(answer)]

    assert run(house, work) == [True, Value]


def test_a_request_cancelled_before_it_is_sent_loses_no_scope(house: House) -> None:
    """Scope changes of a request that was never sent go with the next one."""
    login = house.login()

    async def work() -> None:
        async with (
            hansard.connect_async(credentials=login) as record,
            record.run("w", run="r1") as session,
        ):

            async def asks() -> None:
                asking = asyncio.ensure_future(session.board.get("k"))
                await asyncio.sleep(0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await session.message("user", "in its scope")

            await session.gather(asks())

    asyncio.run(work())
    with house.trusted() as record:
        assert record.state("r1").agent("ada").left is not None
