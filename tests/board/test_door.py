"""Invalid arguments of the board: refused with fact, value and remedy."""

import math
from typing import Any

import pytest

import hansard
from hansard.agents.board import KEYS_MAX
from hansard.domain.board import INLINE_BYTES_MAX
from hansard.domain.ids import KeyStream
from tests.agents.twins import Lab
from tests.board.support import board_of, tags_of

HUGE = 10**400

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("put", ("", 1), {}, "give a non-empty text"),
    ("put", (7, 1), {}, "give a non-empty text"),
    ("put", ("k\x00", 1), {}, "leave out control characters"),
    ("put", ("\ud800", 1), {}, "leave out control characters"),
    ("put", ("k" * 1_001, 1), {}, "at most 1000 characters"),
    ("put", ("k", object()), {}, "cannot be recorded"),
    ("put", ("k", 1), {"expected": True}, "for any"),
    ("put", ("k", 1), {"expected": -1}, "for any"),
    ("put", ("k", 1), {"expected": 1.0}, "for any"),
    ("put", ("k", 1), {"ttl_s": True}, "give seconds"),
    ("put", ("k", 1), {"ttl_s": math.nan}, "give seconds"),
    ("put", ("k", 1), {"ttl_s": math.inf}, "give seconds"),
    ("put", ("k", 1), {"ttl_s": HUGE}, "give seconds"),
    ("put", ("k", 1), {"ttl_s": -5}, r"0\.001 s to ten years"),
    ("put", ("k", 1), {"ttl_s": 0.0004}, r"0\.001 s to ten years"),
    ("put", ("k", 1), {"ttl_s": 1e300}, r"0\.001 s to ten years"),
    ("put", ("k", 1), {"labels": None}, "give texts by name"),
    ("put", ("k", 1), {"labels": "ab"}, "give texts by name"),
    ("put", ("k", 1), {"labels": {1: "a"}}, "give texts"),
    ("put", ("k", 1), {"labels": {"$secret": "a"}}, "give texts"),
    ("put", ("k", 1), {"labels": {"a": "x" * 201}}, "of at most 200 characters"),
    ("put", ("k", 1), {"resolve": "coin"}, "last writer"),
    ("put", ("k", 1), {"resolve": 3}, "last writer"),
    ("add", ("n", True), {}, "whole numbers"),
    ("add", ("n", 1.0), {}, "whole numbers"),
    ("add", ("n", HUGE), {}, "whole numbers"),
    ("add", ("n", math.nan), {}, "whole numbers"),
    ("include", ("s", [1]), {}, "give a hashable value"),
    ("include", ("s", {"a": 1}), {}, "give a hashable value"),
    ("include", ("s", "x" * 70_000), {}, "an item over 64 KiB"),
    ("merge", ("m", "max", math.nan), {}, "give a number"),
    ("merge", ("m", "max", HUGE), {}, "give a number"),
    ("merge", ("m", "min", True), {}, "give a number"),
    ("merge", ("m", "union", {1: 2}), {}, "give a dict with texts as keys"),
    ("merge", ("m", "sum", 1), {}, "use max, min, union"),
    ("merge", ("m", ["max"], 1), {}, "use max, min, union"),
    ("merge", ("m", "union", {"a": "x" * 70_000}), {}, "pass a reference"),
    ("remove", ("k",), {"expected": "first"}, "for any"),
]
"""Operations, their arguments, and text of the error."""


@pytest.mark.fast(cases=99, slow=0)
async def test_what_cannot_be_written_is_refused_and_nothing_is_written(lab: Lab):
    """Each bad value, name or bound is an error with a remedy, changes nothing, and repeats."""
    async with lab.connect() as record:
        for mode in ("live", None, "strict"):
            async with record.run(run="r", mode=mode) as session:
                board = board_of(session)
                for name, arguments, options, words in REFUSED:
                    with pytest.raises((hansard.BadValue, hansard.errors.BadName), match=words):
                        await getattr(board, name)(*arguments, **options)
                assert await board.add("after") == 1
        assert await tags_of(record, "r", KeyStream) == ["board.added.v1"]


@pytest.mark.fast(cases=99, slow=0)
async def test_the_same_is_refused_inside_a_transaction(lab: Lab):
    """It is refused at the write, not at the end; the transaction writes nothing at all."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        for name, arguments, options, words in REFUSED:
            if "resolve" in options:
                continue
            with pytest.raises((hansard.BadValue, hansard.errors.BadName), match=words):
                await _one(board, name, arguments, options)
        assert await tags_of(record, "r", KeyStream) == []


async def _one(board, name, arguments, options):
    async with board.transaction() as tx:
        tx.add("before")
        getattr(tx, name)(*arguments, **options)


KEYS = [
    "a/b/c", "../..", ".", "*", ">", "a.b", "%2F", " blank ", "ключ", "鍵🔑", "e\u0301", "é",
    "=" * 999,
]  # fmt: skip


@pytest.mark.fast(cases=99, slow=0)
async def test_any_name_is_a_key_of_its_own(lab: Lab):
    """Slashes, wildcards, scripts and look-alikes are keys with values of their own."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        for number, key in enumerate(KEYS):
            assert await board.put(key, number) == 1
        async with board.transaction() as tx:
            for key in KEYS:
                tx.put(key, await tx.get(key) + 100)
        assert await board.keys() == sorted(KEYS)
        boards = (await record.state("r")).boards
        assert {key: state.plain for key, state in boards.items()} == {
            key: number + 100 for number, key in enumerate(KEYS)
        }


@pytest.mark.thorough(quick="board/test_laws.py::test_what_is_too_much_is_refused_with_its_bound")
async def test_values_of_any_size_up_to_the_bounds(lab: Lab):
    """A value of megabytes goes by reference; a full list is kept and refuses more items."""
    big = "x" * (2 * INLINE_BYTES_MAX)
    item = "y" * 60_000
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        await board.put("big", big)
        assert await board.get("big") == big
        fit = INLINE_BYTES_MAX // (len(item) + 2)
        for number in range(fit):
            assert await board.append("list", item) == number + 1
        with pytest.raises(hansard.BadValue, match=r"bytes, the limit is 4,194,304.*several keys"):
            await board.append("list", item)
        assert len(await board.get("list")) == fit
        assert (await record.state("r")).boards["list"].version == fit


async def _many(board, count):
    async with board.transaction() as tx:
        for number in range(count):
            tx.add(f"k{number:03d}")


@pytest.mark.slow(cases=1)
async def test_a_transaction_of_too_many_keys_is_refused(lab: Lab):
    """The most keys fit in one commit; one more is refused, and the session continues."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        with pytest.raises(hansard.BadValue, match=r"one more than 500.*several transactions"):
            await _many(board, KEYS_MAX + 1)
        assert await tags_of(record, "r", KeyStream) == []
        await _many(board, KEYS_MAX)
        assert len(await board.keys()) == KEYS_MAX
        with pytest.raises(hansard.BadValue, match="in one commit, the limit"):
            await _long(board)
        assert await board.get("k000") == 1


async def _long(board):
    async with board.transaction() as tx:
        for _ in range(2_000):
            tx.add("k000")


@pytest.mark.thorough(quick="test_a_transaction_of_too_many_keys_is_refused")
async def test_a_transaction_of_too_many_bytes_is_refused(lab: Lab):
    """Each key's commit fits, but not all together: refused, and the session continues."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        with pytest.raises(hansard.BadValue, match="in one transaction, the limit is 6,291,456"):
            await _wide(board)
        assert await board.keys() == []
        assert await board.add("after") == 1


async def _wide(board):
    async with board.transaction() as tx:
        for number in range(110):
            tx.put(f"k{number}", "x" * 60_000)
