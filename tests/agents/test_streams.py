"""Streaming tools: each item is recorded before the reader gets it, and is replayed."""

import contextlib

import pytest

import hansard
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)


async def _all(items):
    return [item async for item in items]


async def _take(items, count):
    taken = []
    try:
        async for item in items:
            taken.append(item)
            if len(taken) == count:
                break
    finally:
        await items.aclose()
    return taken


@pytest.mark.parametrize("mode", ["strict", "offline", "resume"])
async def test_items_come_back_in_order(record: TwinRecord, mode):
    """A replayed stream yields the live one's items, with no body run."""
    ran = []
    items = ["a", {"b": (1, 2)}, None, b"x"]
    for options in ({}, {"mode": mode}):
        async with record.run(run="r", **options) as session:

            @session.tool(effects="pure")
            async def read(name: str):
                ran.append(name)
                for item in items:
                    yield item

            @session.tool(effects="pure")
            async def after() -> int:
                ran.append("after")
                return 1

            assert await _all(read("x")) == items
            assert await after() == 1
    assert ran == ["x", "after"]
    [step, _] = await record.steps("r")
    assert (step.status, len(step.items), step.closed) == ("completed", 4, False)
    assert (await record.tags("r")).count("step.yielded.v1") == 4


async def test_an_item_is_on_record_before_it_is_handed_on(lab: Lab):
    """The holder of an item can rely on its being in the log."""
    async with lab.connect() as record, record.run(run="r") as session:

        @session.tool(effects="once")
        async def read():
            yield 1
            yield 2

        seen = []
        async for _ in read():
            seen.append((await record.tags("r")).count("step.yielded.v1"))
        assert seen == [1, 2]


async def test_a_stream_closed_early_is_a_whole_result(record: TwinRecord):
    """A reader that stops ends generator and step; a replay that wants more is a miss."""
    closed = []
    more = pytest.raises(hansard.errors.Miss, match="who stopped after 3 items")
    for mode, expected in ((None, None), ("strict", None), ("strict", more)):
        with expected or contextlib.nullcontext():
            async with record.run(run="r", mode=mode) as session:

                @session.tool(effects="pure")
                async def read():
                    try:
                        for i in range(10):
                            yield i
                    finally:
                        closed.append(mode)

                @session.tool(effects="pure")
                async def after() -> int:
                    assert mode is None
                    return 1

                assert await _take(read(), 4 if expected else 3) == [0, 1, 2]
                assert await after() == 1
    assert closed == [None]
    [step, _] = await record.steps("r")
    assert (step.status, step.closed, len(step.items)) == ("completed", True, 3)


class Torn(Exception):
    """An error of a program's own."""


@pytest.mark.parametrize("effects", ["pure", "once"])
async def test_a_stream_that_fails_midway_fails_so_again(record: TwinRecord, effects):
    """The items before the error are replayed, then the error, in the tool's own class."""
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects=effects, raises=[Torn])
            async def read():
                yield 1
                raise Torn("torn")

            taken = []
            with pytest.raises(Torn, match="torn"):
                async for item in read():
                    taken.append(item)
            assert taken == [1]
    [step] = await record.steps("r")
    assert (step.status, len(step.items)) == ("failed", 1)


async def test_a_stream_cut_off_is_in_doubt_with_its_items_shown(record: TwinRecord):
    """A cut stream with effects is a doubt that shows its items; replay yields the settled ones."""

    async def work(record):
        async with record.run(run="r") as session:

            @session.tool(effects="once")
            async def read():
                yield 1
                raise ConnectionResetError

            return await _all(read())

    with pytest.raises(ConnectionError):
        await work(record)
    with pytest.raises(hansard.InDoubt, match="after 1 item"):
        await work(record)
    await record.settle("r", "1", "happened", result=[1, 2, 3])
    assert await work(record) == [1, 2, 3]


@pytest.mark.parametrize("effects", ["pure", "once"])
async def test_an_item_that_cannot_be_recorded_is_recorded_in_part(lab: Lab, effects):
    """The reader has the item; a replay gives its recordable part; both get a warning."""
    opened = []
    async with lab.connect() as record:
        for again in (False, True):
            async with record.run(run="r") as session:

                @session.tool(effects=effects)
                async def read():
                    opened.append(1)
                    yield 1
                    yield object()

                with pytest.warns(hansard.errors.ResultInexact, match="item 2: result: a builtins"):
                    taken = [item async for item in read()]
                assert (taken[0], type(taken[1])) == (1, str if again else object)
        [step] = await record.steps("r")
    assert (step.status, opened) == ("completed", [1])


async def test_two_streams_may_be_read_by_turns(record: TwinRecord):
    """Overlapping streams are distinguished, and replay the same."""
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="pure")
            async def count(start: int):
                assert mode is None
                for i in range(3):
                    yield start + i

            one, two = count(0), count(10)
            taken = []
            for _ in range(3):
                taken += [await anext(one), await anext(two)]
            assert taken == [0, 10, 1, 11, 2, 12]
            await one.aclose()
            await two.aclose()


def test_an_async_generator_is_refused_by_the_sync_client(record):
    """The sync client cannot iterate an async generator, and refuses it before anything runs."""
    with record.run("w") as session:

        @session.tool(effects="once")
        async def read():
            yield 1

        with pytest.raises(hansard.ToolError, match="async"):
            list(read())
        assert session.state.steps == {}
