"""Payloads: of any size, kept once, read back whole."""

import hashlib
import re

import msgspec
import pytest

import hansard
from hansard.agents.steps import payloads
from hansard.agents.steps.payloads import INLINE_BYTES_MAX
from tests.agents.test_shared_texts import arguments_of
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.fast(cases=99, slow=0)
"""Client-independent tests: a single sync-client case is in the quick run."""

SIZES = [INLINE_BYTES_MAX - 2, INLINE_BYTES_MAX - 1, INLINE_BYTES_MAX, 200_000, 2_000_000]


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize("size", SIZES)
async def test_large_values_are_blobs(record: TwinRecord, size):
    """A value over 64 KiB is a blob named by its hash, a smaller one is inline."""
    text = "x" * (size - 2) + "é"[: size % 1] + ""
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="once")
            async def echo(text: str) -> str:
                assert mode is None
                return text

            @session.tool(effects="pure")
            async def items(text: str):
                assert mode is None
                yield text
                yield 1

            assert await echo(text) == text
            assert [item async for item in items(text)] == [text, 1]
    step = (await record.steps("r"))[0]
    is_blob = len(msgspec.json.encode(text)) > INLINE_BYTES_MAX
    for raw in (bytes(step.arguments), bytes(step.result)):
        assert (b'"$blob"' in raw) is is_blob
    assert await arguments_of(record, "r", 1) == {"text": text}
    if is_blob:
        [digest] = set(re.findall(rb"[0-9a-f]{64}", bytes(step.result)))
        assert digest.decode() == hashlib.sha256(msgspec.json.encode(text)).hexdigest()


async def test_many_values_that_are_large_together_fit(record: TwinRecord):
    """Arguments that each fit but together do not move to blobs until the event fits."""
    many = {f"a{i}": str(i) * 60_000 for i in range(8)}
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="once")
            async def echo(a0, a1, a2, a3, a4, a5, a6, a7) -> dict:
                assert mode is None
                return {"a0": a0, "a7": a7}

            assert await echo(**many) == {"a0": many["a0"], "a7": many["a7"]}
    assert await arguments_of(record, "r", 1) == many
    assert max(len(stored.body) for stored in await record.commits("r")) < 256 * 1024


async def test_parallel_large_results_fit_their_commits(lab: Lab):
    """Results that would be merged into one commit are split where they would not fit."""
    async with lab.connect() as record, record.run(run="r") as session:

        @session.tool(effects="pure")
        async def make(i: int) -> str:
            return str(i) * 60_000

        results = await session.gather(*(lambda i=i: make(i) for i in range(9)))
        assert results == [str(i) * 60_000 for i in range(9)]


async def test_a_prompt_of_tagged_values_grows_too(record: TwinRecord):
    """Lists with tuples, sets and `$` keys are no other lists for having been shortened."""
    first = [{"$append": {"to": 1, "count": 1, "items": []}}, ("t",) * 300, {"$blob": 1}]
    for mode in (None, "strict"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="pure")
            async def think(messages: list) -> list:
                return messages

            assert await think(first) == first
            assert await think([*first, {1, 2}]) == [*first, {1, 2}]


async def test_a_value_beyond_every_bound_is_refused_before_the_call(lab: Lab, monkeypatch):
    """An argument larger than the largest value is refused, and nothing runs or is written."""
    monkeypatch.setattr(payloads, "VALUE_BYTES_MAX", 300_000)
    async with lab.connect() as record, record.run(run="r") as session:

        @session.tool(effects="once")
        async def echo(text: str) -> str:
            return "x" * 400_000 if text == "big" else text

        with pytest.raises(hansard.BadValue, match="bytes of JSON"):
            await echo("x" * 400_000)
        assert session.state.steps == {}
        with pytest.warns(hansard.errors.ResultInexact, match="bytes of JSON"):
            assert await echo("big") == "x" * 400_000
