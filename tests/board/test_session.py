"""Results of `session.board` for both clients, live and on resume."""

import asyncio
import time

import pytest

import hansard
from hansard.bus import reads
from hansard.domain.board import BoardConflict
from hansard.domain.ids import KeyStream
from tests.agents.twins import Lab
from tests.board.support import board_of, tags_of

pytestmark = pytest.mark.fast(cases=99, slow=0)


async def test_each_kind_holds_what_was_written(lab: Lab):
    """Values, lists, counters, sets and merges are read as written, with author and role."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        assert await board.get("v") is None
        assert await board.get("v", 7) == 7
        assert await board.entry("v") is None
        assert await board.put("v", {"a": (1, 2.5)}, labels={"topic": "seeds"}) == 1
        assert await board.get("v") == {"a": (1, 2.5)}
        entry = await board.entry("v")
        assert (entry.kind, entry.version, entry.author) == ("value", 1, "ada")
        assert entry.role == "writer"
        assert entry.labels == {"topic": "seeds"}
        assert [await board.append("l", item) for item in ("x", {"y": 1})] == [1, 2]
        assert await board.get("l") == ["x", {"y": 1}]
        assert [await board.add("n", amount) for amount in (3, -1)] == [3, 2]
        assert [await board.include("s", item) for item in ("a", "b", "a")] == [1, 2, 2]
        assert await board.discard("s", "a") == 1
        assert await board.get("s") == {"b"}
        assert [await board.merge("m", "max", value) for value in (3, 9, 4)] == [3, 9, 9]
        assert await board.merge("u", "union", {"a": {"b": 1}}) is None
        assert await board.merge("u", "union", {"a": {"c": 2}}) is None
        assert await board.get("u") == {"a": {"b": 1, "c": 2}}
        assert await board.keys() == ["l", "m", "n", "s", "u", "v"]
        assert await board.remove("v") is True
        assert await board.remove("v") is False
        assert await board.discard("never", 1) == 0
        assert await board.keys() == ["l", "m", "n", "s", "u"]


async def _everything(record, **options):
    """Do one of everything in a session; return the results."""
    results = []
    async with record.run(run="r", **options) as session:
        board = board_of(session)
        results.append(await board.get("v"))
        results.append(await board.put("v", "x" * 100_000, expected=0))
        results.append(await board.put("v", ["small"]))
        results.append(await board.add("n", 5))
        results.append(await board.add("n", 5))
        try:
            await board.put("v", "late", expected=1)
        except BoardConflict as conflict:
            results.append(str(conflict))
            results.append((conflict.key, conflict.expected, conflict.found, conflict.event))
        results.append(await board.get("v"))
        results.append(await board.append("l", "x" * 100_000))
        results.append((await board.entry("l")).value)
        results.append(await board.keys())
        results.append(await board.remove("n", expected="any"))
    return results


async def test_a_resumed_session_gets_the_same_results_and_writes_nothing_again(lab: Lab):
    """Replayed in every mode, each operation returns the recorded result and writes nothing."""
    async with lab.connect() as record:
        first = await _everything(record)
        async with record.run(run="r", agent="bob", role="reader") as other:
            await board_of(other).put("v", "bob's", expected="any")
            await board_of(other).add("n", 100)
        before = await tags_of(record, "r", KeyStream)
        for mode in ("strict", "offline", None):
            assert await _everything(record, mode=mode) == first
        assert await tags_of(record, "r", KeyStream) == before
        steps = await record.steps("r")
        assert {step.kind for step in steps} == {"board"}
        assert all(step.outcome_version for step in steps)


async def test_a_lone_write_is_the_commit_that_names_its_intent(lab: Lab):
    """Intent, commit and outcome follow each other untransacted; state equals the log's fold."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            await board_of(session).add("n", 2)
            state = session.raw.state
        commits = await record.commits("r")
        [key] = [stored for stored in commits if stored.stream == KeyStream("r", "n")]
        intent, outcome = (
            next(stored for stored in commits if stored.position == key.position + by)
            for by in (-1, 1)
        )
        assert [stored.commit.tx for stored in (intent, key, outcome)] == [None] * 3
        tags = [
            [recorded.type for recorded in stored.commit.events] for stored in (intent, outcome)
        ]
        assert tags == [["tool.declared.v1", "step.requested.v1"], ["step.completed.v1"]]
        assert key.commit.causation == intent.commit.events[-1].id
        assert (key.commit.actor.agent, key.commit.epoch) == ("ada", 0)
        view = await record.state("r", outcome.position)
        assert view.agent("ada") == state
        assert view.boards["n"].total == 2
        between = await record.state("r", key.position)
        assert between.boards["n"].total == 2
        assert between.agent("ada").steps[1].is_open
        assert "n" not in (await record.state("r", intent.position)).boards


async def test_several_keys_are_one_commit_with_their_step(lab: Lab):
    """A transaction's keys and the step's intent and outcome have one transaction id."""
    async with lab.connect() as record:
        async with record.run(run="r") as session, board_of(session).transaction() as tx:
            tx.add("n", 2)
            tx.add("m", 3)
        commits = await record.commits("r")
        keys = [stored for stored in commits if isinstance(stored.stream, KeyStream)]
        [mine] = [stored for stored in commits if stored.position == keys[0].position - 1]
        tags = [recorded.type for recorded in mine.commit.events]
        assert tags[-2:] == ["step.requested.v1", "step.completed.v1"]
        ids = {stored.commit.tx.id for stored in (mine, *keys) if stored.commit.tx}
        assert (len(keys), len(ids)) == (2, 1)
        assert [stored.commit.tx.index for stored in (mine, *keys) if stored.commit.tx] == [0, 1, 2]


async def test_what_is_recorded_beside_a_write_keeps_its_order(lab: Lab):
    """With concurrent branches the session's state is the one that the log folds to."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)

        async def branch(number):
            for count in range(4):
                await board.add("n", 1)
                await session.checkpoint(f"b{number}", count=count)
                await board.append("l", number)

        await session.gather(*(lambda n=n: branch(n) for n in range(4)))
        assert await board.get("n") == 16
        assert sorted(await board.get("l")) == sorted([0, 1, 2, 3] * 4)
        state = session.raw.state
        assert (await record.state("r")).agent("ada") == state


async def test_an_expected_version_is_the_one_seen_last(lab: Lab):
    """A put expects the version seen last, or 0; a conflict names key, values and event."""
    async with (
        lab.connect() as record,
        record.run(run="r") as ada,
        record.run(run="r", agent="bob") as bob,
    ):
        mine, other = board_of(ada), board_of(bob)
        assert await mine.put("k", "first") == 1
        with pytest.raises(BoardConflict, match="key 'k' is at version 1, not 0") as conflict:
            await other.put("k", "second")
        assert (conflict.value.mine, conflict.value.theirs) == ('"second"', '"first"')
        [won] = [
            recorded
            for stored in await record.commits("r")
            if stored.stream == KeyStream("r", "k")
            for recorded in stored.commit.events
        ]
        assert (conflict.value.author, conflict.value.event) == ("ada", won.id)
        assert await other.get("k") == "first"
        assert await other.put("k", "third") == 2
        assert await mine.put("k", "whatever stands", expected="any") == 3
        with pytest.raises(BoardConflict):
            await other.remove("k")
        assert await other.remove("k", expected=3)
        assert await other.put("k", "new", expected=0) == 5


async def test_a_resolver_settles_a_lost_put(lab: Lab):
    """`last writer`, `merge` and a function get the current value; an exception is raised."""
    async with (
        lab.connect() as record,
        record.run(run="r") as ada,
        record.run(run="r", agent="bob") as bob,
    ):
        mine, other = board_of(ada), board_of(bob)
        await mine.put("k", {"a": 1})
        assert await other.put("k", {"b": 2}, resolve="merge") == 2
        assert await mine.get("k") == {"a": 1, "b": 2}
        await other.put("k", {"c": "x" * 70_000}, resolve="last writer")
        assert await mine.put("k", {"d": 1}, resolve=_longer) == 4
        assert await other.get("k") == {"c": "x" * 70_000, "d": 1}
        await mine.put("k", "text", expected="any")
        with pytest.raises(hansard.BadValue, match="merge 'union'"):
            await other.put("k", {}, resolve="merge")
        with pytest.raises(ZeroDivisionError):
            await other.put("k", {}, resolve=lambda mine, theirs: 1 / 0)
        with pytest.raises(hansard.BadValue, match="last writer"):
            await other.put("k", {}, resolve="coin")
        assert await mine.get("k") == "text"


def _longer(mine, theirs):
    return {**theirs, **mine}


async def test_a_resolver_may_call_nothing_of_the_session(lab: Lab):
    """A call inside a resolver is refused, from another event loop too."""
    async with (
        lab.connect() as record,
        record.run(run="r") as ada,
        record.run(run="r", agent="bob") as bob,
    ):
        await board_of(ada).put("k", 1)
        raw = bob.raw

        def ask(mine, theirs):
            value = raw.board.get("k")
            return asyncio.run(value) if asyncio.iscoroutine(value) else value

        with pytest.raises(hansard.HansardError, match=r"not composite|in one event loop"):
            await board_of(bob).put("k", 2, resolve=ask)


async def test_what_has_expired_is_absent_by_the_log_s_time(lab: Lab):
    """An expired key is absent to reads, writes and later states, not to earlier ones."""
    async with lab.connect() as record, record.run(run="r") as session:
        board = board_of(session)
        await board.put("lease", "mine", ttl_s=1.0)
        position = (await record.state("r")).position
        entry = await board.entry("lease")
        assert entry.value == "mine"
        assert entry.expires is not None
        with pytest.raises(BoardConflict):
            await board.put("lease", "other", expected=0)
        await _pass(lab)
        assert await board.get("lease") is None
        assert "lease" not in await board.keys()
        assert (await record.state("r", position)).boards["lease"].author == "ada"
        assert await board.add("lease", 2) == 2
        assert await board.get("lease") == 2
        await board.put("other", 1, ttl_s=0.2)
        await _pass(lab)
        assert await board.put("other", 2, expected=0) == 2


async def _pass(lab):
    """Let more time pass than the keys above have to live."""
    if lab.is_async:
        await asyncio.sleep(1.05)
    else:
        time.sleep(1.05)  # noqa: ASYNC251 -- a scenario of the sync client has no loop


async def test_a_gate_guards_the_board(lab: Lab):
    """A rule sees each operation with its key; a blocked one is recorded and writes nothing."""
    rule = hansard.deny("board.put", where={"key": hansard.one_of("secret")}, name="not yours")
    async with lab.connect() as record, record.run(run="r", gate=[rule]) as session:
        board = board_of(session)
        await board.put("open", 1)
        with pytest.raises(hansard.Blocked, match="not yours"):
            await board.put("secret", 1)
        assert await board.keys() == ["open"]


async def test_an_edit_before_a_write_does_not_make_it_twice(lab: Lab):
    """After an edit a resume adopts the recorded write and makes only new ones."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            await board_of(session).put("k", "one")
            await board_of(session).add("n", 5)
        async with record.run(run="r") as session:
            await board_of(session).put("k", "other", expected="any")
            assert await board_of(session).add("n", 5) == 5
            assert await board_of(session).add("n", 7) == 12
        [step] = [step for step in await record.steps("r") if step.reused is not None]
        assert step.tool == "board.add"


async def test_a_fork_has_a_board_of_its_own(lab: Lab):
    """A fork's board begins as its parent's at the cut and then differs, shadows too."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            await board_of(session).add("n", 1)
            cut = (await record.state("r")).position
            await board_of(session).add("n", 10)
        child = await record.fork("r", at=cut)
        async with record.run(run=child) as session:
            board = board_of(session)
            assert await board.add("n", 1) == 1
            assert await board.add("n", 100) == 101
            assert await board.keys() == ["n"]
        assert (await record.state("r")).boards["n"].total == 11
        assert (await record.state(child)).boards["n"].total == 101


async def test_the_state_of_each_key_at_every_position(lab: Lab):
    """`state(at)` has the boards as a fold of the commits up to it; absent keys are not there."""
    async with lab.connect() as record:
        async with record.run(run="r") as session:
            board = board_of(session)
            expected: dict[str, int] = {}
            totals = {}
            for count in range(6):
                await board.add("n", 2)
                totals[(await record.state("r")).position] = dict(expected, n=2 * (count + 1))
                if count % 2:
                    await board.remove("k", expected="any")
                    expected.pop("k", None)
                else:
                    await board.put("k", count, expected="any")
                    expected["k"] = count
                totals[(await record.state("r")).position] = dict(expected, n=2 * (count + 1))
        for position, values in totals.items():
            boards = (await record.state("r", position)).boards
            assert {key: state.plain for key, state in boards.items()} == values


async def test_what_is_foreign_to_a_key_does_not_count(lab: Lab):
    """Foreign events in a key's stream are quarantined and named, and the key works."""
    async with lab.connect() as record, record.run(run="r") as session:
        workspace = record.raw.workspace
        foreign = workspace.commit(
            1, "ada", [hansard.domain.approval.Reserved(call="c", amount=1.0)]
        )
        await record.io(workspace.log.append(hansard.bus.log.Append(KeyStream("r", "k"), foreign)))
        assert await board_of(session).get("k", "nothing") == "nothing"
        await board_of(session).put("k", 2)
        assert await board_of(session).get("k") == 2
        first, second = await record.io(workspace.log.read(KeyStream("r", "k")))
        assert "budget.reserved.v1" in reads.reason(first.commit)
        assert reads.reason(second.commit) == ""
