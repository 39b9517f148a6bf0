"""Transactions: several keys in one commit or none of them, on record from begin to end."""

import pytest

import hansard
from hansard.domain.board import BoardConflict
from hansard.domain.ids import KeyStream
from tests.agents.twins import Lab
from tests.board.support import board_of, tags_of

pytestmark = pytest.mark.fast(cases=99, slow=0)
"""Client-independent tests: a single sync-client case is in the quick run."""


async def _transfer(board, amount):
    async with board.transaction() as tx:
        tx.put("a", await tx.get("a") - amount)
        tx.put("b", await tx.get("b") + amount)


@pytest.mark.slow(cases=1)
async def test_all_keys_change_in_one_commit(lab: Lab):
    """Both keys and the outcome are one commit, and a resume transfers nothing again."""
    async with lab.connect() as record:
        for mode in ("live", None, "strict"):
            async with record.run(run="r", mode=mode) as session:
                board = board_of(session)
                async with board.transaction() as tx:
                    tx.put("a", 10)
                    tx.put("b", 0)
                for _ in range(3):
                    await _transfer(board, 2)
                assert (await board.get("a"), await board.get("b")) == (4, 6)
        sums = set()
        for stored in (await record.commits("r"))[2:]:
            boards = (await record.state("r", stored.position)).boards
            if boards:
                sums.add(boards["a"].plain + boards["b"].plain)
        assert sums == {10}
        assert len(await tags_of(record, "r", KeyStream)) == 8
        assert not [step for step in await record.steps("r") if step.tool == "board.roll_back"]


async def test_a_transaction_sees_its_own_writes(lab: Lab):
    """Reads inside see the transaction's own writes, others only its end; each is read once."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        await board.append("l", "x")
        await board.include("s", 1)
        await board.add("n", 2**53 - 1)
        async with board.transaction() as tx:
            tx.append("l", ("y", 2))
            assert await tx.get("l") == ["x", ("y", 2)]
            tx.include("s", 2)
            tx.discard("s", 1)
            assert await tx.get("s") == {2}
            tx.add("n", 2**53 - 1)
            assert await tx.get("n") == 2**54 - 2
            tx.merge("u", "union", {"a": 1})
            tx.merge("u", "union", {"b": 1})
            assert await tx.get("u", "none") == {"a": 1, "b": 1}
            tx.put("v", "w" * 100_000)
            assert await tx.get("v") == "w" * 100_000
            tx.remove("v")
            assert await tx.get("v", "gone") == "gone"
            async with record.run(run="r", agent="bob") as other:
                assert await board_of(other).get("l") == ["x"]
        assert await board.get("l") == ["x", ("y", 2)]
        assert await board.get("n") == 2**54 - 2
        assert await board.keys() == ["l", "n", "s", "u"]


async def _count_it(board, other):
    async with board.transaction() as tx:
        tx.add("n", await tx.get("a"))
        await other.put("a", 2, expected="any")


async def _raise_it(board, other):
    async with board.transaction() as tx:
        tx.put("a", await tx.get("a") + 1)
        await other.put("a", 5, expected="any")


async def test_what_changed_since_it_was_read_stops_the_commit(lab: Lab):
    """A key that was only read counts too: a BoardConflict that names it, and nothing written."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        await board.put("a", 1)
        async with record.run(run="r", agent="bob") as other:
            with pytest.raises(BoardConflict, match=r"key 'a' is at version 2, not 1.*bob"):
                await _count_it(board, board_of(other))
            with pytest.raises(BoardConflict, match="key 'a' is at version 3, not 2"):
                await _raise_it(board, board_of(other))
        assert await board.get("n") is None
        assert await board.get("a") == 5
        async with board.transaction() as tx:
            tx.add("n", await tx.get("a"))
        assert await board.get("n") == 5
        assert (await tags_of(record, "r", KeyStream))[-2:] == [
            "board.checked.v1",
            "board.added.v1",
        ]


async def _fail(board):
    async with board.transaction() as tx:
        tx.put("a", 1)
        tx.add("n", 1 // 0)


async def test_a_rolled_back_transaction_is_on_record_and_wrote_nothing(lab: Lab):
    """An error or `roll_back` leaves a step with the planned writes, and replays so."""
    async with lab.connect() as record:
        for mode in ("live", None, "strict"):
            async with record.run(run="r", mode=mode) as session:
                board = board_of(session)
                with pytest.raises(ZeroDivisionError):
                    await _fail(board)
                async with board.transaction() as tx:
                    tx.add("n", 1)
                    await tx.roll_back("not now")
                    with pytest.raises(hansard.errors.Refused, match="the transaction is over"):
                        tx.add("n", 1)
                assert await board.keys() == []
        assert await tags_of(record, "r", KeyStream) == []
        steps = [step for step in await record.steps("r") if step.tool != "board.keys"]
        tools = [step.tool.removeprefix("board.") for step in steps]
        assert tools == ["begin", "roll_back", "begin", "roll_back"]
        assert b"ZeroDivisionError" in bytes(steps[1].arguments)
        assert b'"operation":"add","key":"n","amount":1' in bytes(steps[3].arguments)


async def _read_and_append(board):
    async with board.transaction() as tx:
        await tx.get("n")
        tx.append("n", "x")


async def test_what_a_key_cannot_take_is_refused_at_once(lab: Lab):
    """A write of the wrong kind to a key that was read is refused where it is made."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        await board.add("n", 1)
        with pytest.raises(hansard.errors.Refused, match="holds a counter, not a list"):
            await _read_and_append(board)
        with pytest.raises(hansard.errors.Refused, match="holds a counter, not a list"):
            async with board.transaction() as tx:
                tx.append("n", "x")
        with pytest.raises(hansard.errors.BadName, match="budgets"):
            async with board.transaction() as tx:
                tx.add("budget calls", 1)
        assert await board.get("n") == 1
