"""Contract of every adapter of the log (`hansard.bus.log`)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.bus.errors import Conflict, NotFound, TooLarge
from hansard.bus.log import (
    COMMIT_BYTES_MAX,
    Append,
    AtPosition,
    AtTime,
    Copied,
    EventLog,
    Kind,
    LivesAt,
    NothingUnder,
    NotYet,
    Origin,
    RunStreams,
    Stored,
    StreamAt,
)
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.events import Commit, Tx
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from tests.bus.brokers import CLOCK, append, commit, until
from tests.contract.conftest import Opener

THOROUGHLY = partial(pytest.param, marks=pytest.mark.thorough)
"""A case of the full tier."""

ALICE = AgentStream("r1", "researcher", "alice")
KEY = KeyStream("r1", "plan")
ORIGIN = Origin("elsewhere", 17, "2026-11-21T10:00:00.123456789Z")
LIFE = RunStream("r1")
OTHER = WorkspaceStream("prompt", "p1")

HOSTILE = [
    "a b", "a.b", "*", ">", "a.*.>", "$JS.API", "==", "=2E", "naïve café", "日本語", "\u202eabc",
    "life", "run", " ", "x" * 129, "é" * 200, "y" * 1_000,
]  # fmt: skip


def versions(commits: list[Stored]) -> list[int]:
    """Return the first versions of commits."""
    return [stored.commit.version for stored in commits]


def together(*appends: Append) -> list[Append]:
    """Return the commits of one transaction, as a log that holds it has them."""
    name = CLOCK.new_id()
    return [
        replace(each, commit=replace(each.commit, tx=Tx(name, i, len(appends))))
        for i, each in enumerate(appends)
    ]


async def fill(log: EventLog, stream: StreamId, number: int, first: int = 1) -> list[Stored]:
    """Append commits of one event each."""
    return [await log.append(append(stream, first + i)) for i in range(number)]


class TestAppend:
    async def test_what_was_appended_is_read(self, log: EventLog):
        """A commit is read back as it was appended, with the exact bytes and a time."""
        appended = await log.append(append(ALICE, 1, events=3))
        (read,) = await log.read(ALICE)
        assert read.commit == appended.commit
        assert (read.position, read.stream, read.body) == (1, ALICE, appended.body)
        assert abs((read.time - read.commit.at).total_seconds()) < 60
        assert appended.stamp in (0, read.stamp)

    async def test_positions_grow_by_one(self, log: EventLog):
        """Positions order the workspace, whatever the stream."""
        positions = [
            (await log.append(append(stream))).position for stream in (ALICE, KEY, LIFE, OTHER)
        ]
        assert positions == [1, 2, 3, 4]
        assert await log.head() == 4

    async def test_a_version_is_written_once(self, log: EventLog):
        """The second commit with a version is a conflict that carries the first one, whole."""
        first = await log.append(append(ALICE, 1, events=2))
        with pytest.raises(Conflict) as conflict:
            await log.append(append(ALICE, 1))
        winner = conflict.value.winner
        assert winner is not None
        assert (winner.commit, winner.position, winner.body) == (first.commit, 1, first.body)
        assert winner.stamp > 0
        assert (conflict.value.stream, conflict.value.version) == (ALICE, 1)
        assert await log.head() == 1

    async def test_the_same_commit_again_is_success(self, log: EventLog):
        """Sending a commit again changes nothing and returns its position."""
        once = append(ALICE)
        first = await log.append(once)
        await log.append(append(ALICE, 2))
        again = await log.append(once)
        assert (again.position, again.commit) == (first.position, first.commit)
        assert await log.head() == 2

    async def test_one_of_many_wins(self, opener: Opener):
        """One of the concurrent commits with one version is stored, and the others name it."""
        logs = [await opener() for _ in range(3)]
        results = await asyncio.gather(
            *(logs[i % 3].append(append(ALICE)) for i in range(24)), return_exceptions=True
        )
        stored = [each for each in results if isinstance(each, Stored)]
        lost = [each.winner for each in results if isinstance(each, Conflict)]
        assert (len(stored), len(lost)) == (1, 23)
        assert {winner.commit.id for winner in lost if winner} == {stored[0].commit.id}

    async def test_concurrent_streams(self, log: EventLog):
        """Many writers, a stream each: all is stored, every stream without a hole."""
        streams = [KeyStream("r1", f"k{i}") for i in range(40)]
        await asyncio.gather(*(fill(log, stream, 5) for stream in streams))
        for stream in streams:
            assert versions(await log.read(stream)) == [1, 2, 3, 4, 5]
        assert await log.head() == 200

    async def test_two_appends_of_one_stream_at_once(self, log: EventLog):
        """Incorrect use is stored correctly, too: versions 1 to 30 sent together."""
        await asyncio.gather(*(log.append(append(ALICE, 1 + i)) for i in range(30)))
        commits = [stored async for stored in log.follow(until=30)]
        assert sorted(versions(commits)) == list(range(1, 31))

    async def test_too_large(self, log: EventLog):
        """A commit over the limit is refused before anything is sent; the log stays usable."""
        text = "x" * COMMIT_BYTES_MAX
        with pytest.raises(TooLarge) as error:
            await log.append(append(ALICE, text=text))
        assert error.value.limit == COMMIT_BYTES_MAX
        with pytest.raises(TooLarge):
            await log.append_all([append(KEY), append(ALICE, text=text)])
        assert await log.head() == 0
        await log.append(append(ALICE, text="x" * (COMMIT_BYTES_MAX - 1_000)))

    async def test_cancelled_append(self, log: EventLog):
        """A cancelled append is stored or not; others and later ones are not affected."""
        tasks = [asyncio.ensure_future(fill(log, KeyStream("r1", f"k{i}"), 3)) for i in range(40)]
        await asyncio.sleep(0.002)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for i in range(40):
            stream = KeyStream("r1", f"k{i}")
            numbers = versions(await log.read(stream))
            assert numbers == list(range(1, len(numbers) + 1))
            assert i % 2 == 0 or len(numbers) == 3
            await log.append(append(stream, len(numbers) + 1))


class TestConditions:
    async def test_nothing_under(self, log: EventLog):
        """An agent's first commit can exclude every other role of the same agent in the run."""
        expected = NothingUnder("r1", "alice")
        first = await log.append(append(ALICE, expected=expected))
        second_role = AgentStream("r1", "critic", "alice")
        with pytest.raises(Conflict) as conflict:
            await log.append(append(second_role, expected=expected))
        assert conflict.value.winner is not None
        assert conflict.value.winner.stream == ALICE
        assert conflict.value.winner.position == first.position
        other_run = AgentStream("r2", "critic", "alice")
        await log.append(append(other_run, expected=NothingUnder("r2", "alice")))
        bob = AgentStream("r1", "critic", "bob")
        await log.append(append(bob, expected=NothingUnder("r1", "bob")))

    async def test_one_role_of_many_wins(self, opener: Opener):
        """Exactly one of the roles that begin at the same time does."""
        logs = [await opener() for _ in range(2)]
        expected = NothingUnder("r1", "alice")
        results = await asyncio.gather(
            *(
                logs[i % 2].append(append(AgentStream("r1", f"role{i}", "alice"), 1, 1, expected))
                for i in range(12)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(each, Stored) for each in results) == 1
        assert sum(isinstance(each, Conflict) for each in results) == 11

    async def test_stream_at(self, log: EventLog):
        """A commit can demand that another stream's newest commit is the one that was read."""
        await log.append(append(ALICE, expected=StreamAt(KEY, 0)))
        seen = await log.append(append(KEY))
        await log.append(append(ALICE, 2, expected=StreamAt(KEY, seen.position)))
        newer = await log.append(append(KEY, 2))
        for position in (0, seen.position, newer.position + 1):
            with pytest.raises(Conflict) as conflict:
                await log.append(append(ALICE, 3, expected=StreamAt(KEY, position)))
            assert conflict.value.winner is not None
            assert conflict.value.winner.position == newer.position
        assert versions(await log.read(ALICE)) == [1, 2]

    async def test_an_empty_stream_is_not_at_a_position(self, log: EventLog):
        """Requiring a position of an empty stream is a conflict without a winner."""
        with pytest.raises(Conflict) as conflict:
            await log.append(append(ALICE, expected=StreamAt(KEY, 5)))
        assert conflict.value.winner is None

    async def test_not_yet(self, log: EventLog):
        """A commit can require that another stream is still at a version."""
        await log.append(append(ALICE, expected=NotYet(KEY, 1)))
        await log.append(append(KEY))
        await log.append(append(ALICE, 2, expected=NotYet(KEY, 2)))
        newer = await log.append(append(KEY, 2))
        with pytest.raises(Conflict) as conflict:
            await log.append(append(ALICE, 3, expected=NotYet(KEY, 2)))
        assert conflict.value.winner is not None
        assert conflict.value.winner.position == newer.position
        assert versions(await log.read(ALICE)) == [1, 2]

    async def test_lives_at(self, log: EventLog):
        """A commit can require that no run began or continued since all lives were read."""
        await log.append(append(KEY, expected=LivesAt(0)))
        life = await log.append(append(RunStream("r1")))
        await log.append(append(ALICE))  # no life
        await log.append(append(KEY, 2, expected=LivesAt(life.position)))
        newer = await log.append(append(RunStream("r2")))
        for position in (0, life.position, newer.position + 1):
            with pytest.raises(Conflict) as conflict:
                await log.append(append(KEY, 3, expected=LivesAt(position)))
            assert conflict.value.winner is not None
            assert conflict.value.winner.position == newer.position
        await log.append(append(KEY, 3, expected=LivesAt(newer.position)))

    async def test_condition_and_version(self, log: EventLog):
        """A condition that holds does not set the uniqueness of versions aside."""
        await log.append(append(ALICE))
        with pytest.raises(Conflict) as conflict:
            await log.append(append(ALICE, expected=StreamAt(KEY, 0)))
        assert conflict.value.winner is not None
        assert conflict.value.winner.stream == ALICE

    async def test_same_conditional_commit_again(self, log: EventLog):
        """A commit that broke its own condition by being stored is success when sent again."""
        once = append(ALICE, expected=NothingUnder("r1", "alice"))
        first = await log.append(once)
        assert (await log.append(once)).position == first.position
        demanding = append(ALICE, 2, expected=StreamAt(KEY, 0))
        await log.append(demanding)
        await log.append(append(KEY))
        assert (await log.append(demanding)).position == 2


class TestTransactions:
    async def test_all(self, log: EventLog):
        """Commits of one transaction have consecutive positions and state their place in it."""
        await log.append(append(ALICE))
        stored = await log.append_all([append(KEY), append(ALICE, 2), append(LIFE)])
        assert [each.position for each in stored] == [2, 3, 4]
        places = [each.commit.tx for each in stored]
        assert [(tx.index, tx.count) for tx in places if tx] == [(0, 3), (1, 3), (2, 3)]
        assert len({tx.id for tx in places if tx}) == 1
        read = await log.read_streams([KEY, LIFE, ALICE])
        assert [each.commit for each in read[1:]] == [each.commit for each in stored]

    async def test_none(self, log: EventLog):
        """If one stream has moved on, nothing is stored, and the conflict names it."""
        await log.append(append(KEY))
        with pytest.raises(Conflict) as conflict:
            await log.append_all([append(ALICE), append(KEY), append(LIFE)])
        assert conflict.value.stream == KEY
        assert conflict.value.winner is not None
        assert conflict.value.winner.position == 1
        assert await log.head() == 1

    async def test_a_condition_in_a_transaction(self, log: EventLog):
        """One broken condition stops the whole."""
        seen = await log.append(append(KEY))
        holding = StreamAt(KEY, seen.position)
        await log.append_all([append(ALICE, expected=holding), append(LIFE)])
        with pytest.raises(Conflict) as conflict:
            await log.append_all([append(OTHER), append(ALICE, 2, expected=StreamAt(KEY, 0))])
        assert (conflict.value.stream, conflict.value.version) == (ALICE, 2)
        assert await log.head() == 3
        second_role = AgentStream("r1", "critic", "alice")
        with pytest.raises(Conflict):
            await log.append_all(
                [append(second_role, expected=NothingUnder("r1", "alice")), append(OTHER)]
            )
        assert await log.head() == 3

    async def test_several_conditions_on_one_stream(self, log: EventLog):
        """Conditions on one stream hold for all commits of a batch or stop it."""
        await log.append(append(KEY))
        fresh, over = NotYet(KEY, 2), NotYet(KEY, 1)
        await log.append_all([append(ALICE, expected=fresh), append(OTHER, expected=fresh)])
        assert await log.head() == 3
        with pytest.raises(Conflict) as conflict:
            await log.append_groups(
                [
                    [append(ALICE, 2, expected=fresh), append(LIFE)],
                    [append(OTHER, 2, expected=over), append(LIFE, 2)],
                ]
            )
        assert (conflict.value.stream, conflict.value.version) == (OTHER, 2)
        assert await log.head() == 3

    async def test_the_same_transaction_again(self, log: EventLog):
        """Sending a transaction again changes nothing."""
        appends = [append(KEY), append(ALICE), append(LIFE)]
        first = await log.append_all(appends)
        again = await log.append_all(appends)
        assert [each.position for each in again] == [each.position for each in first]
        assert await log.head() == 3

    async def test_one_stream_twice(self, log: EventLog):
        """A stream has one commit in a transaction."""
        with pytest.raises(BadValue):
            await log.append_all([append(KEY, 1), append(KEY, 2)])

    async def test_concurrent_transactions(self, opener: Opener):
        """Exactly one of the overlapping transactions is stored, in full."""
        logs = [await opener() for _ in range(2)]
        results = await asyncio.gather(
            *(
                logs[i % 2].append_all([append(KeyStream("r1", f"own{i}")), append(KEY)])
                for i in range(6)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(each, list) for each in results) == 1
        assert sum(isinstance(each, Conflict) for each in results) == 5
        assert await logs[0].head() == 2


class TestGroups:
    async def test_several_transactions(self, log: EventLog):
        """Each is a transaction of its own; a later one may continue an earlier one's stream."""
        groups = [
            [append(ALICE), append(KEY)],
            [append(OTHER), append(KEY, 2)],
            [append(LIFE)],
            [append(ALICE, 2), append(KEY, 3)],
        ]
        stored = await log.append_groups(groups)
        assert [[each.position for each in group] for group in stored] == [
            [1, 2],
            [3, 4],
            [5],
            [6, 7],
        ]
        assert [[each.stream for each in group] for group in stored] == [
            [each.stream for each in group] for group in groups
        ]
        places = [[each.commit.tx for each in group] for group in stored]
        counts = [[tx.count if tx else 0 for tx in group] for group in places]
        assert counts == [[2, 2], [2, 2], [0], [2, 2]]
        ids = [{tx.id for tx in group if tx} for group in places]
        assert [len(each) for each in ids] == [1, 1, 0, 1]
        assert len(set().union(*ids)) == 3
        assert [each.commit for each in await log.read(KEY)] == [
            stored[index][1].commit for index in (0, 1, 3)
        ]

    async def test_all_or_none(self, log: EventLog):
        """If one commit lost a race, none is stored, and the conflict names it."""
        await log.append(append(KEY))
        with pytest.raises(Conflict) as conflict:
            await log.append_groups(
                [[append(ALICE), append(LIFE)], [append(OTHER), append(KEY)], [append(ALICE, 2)]]
            )
        assert (conflict.value.stream, conflict.value.version) == (KEY, 1)
        assert await log.head() == 1

    async def test_again(self, log: EventLog):
        """Sending them again changes nothing."""
        groups = [[append(ALICE), append(KEY)], [append(OTHER), append(KEY, 2)]]
        first = await log.append_groups(groups)
        again = await log.append_groups(groups)
        positions = [[each.position for each in group] for group in first]
        assert [[each.position for each in group] for group in again] == positions
        assert await log.head() == 4

    async def test_a_stream_twice_in_one(self, log: EventLog):
        """Within a transaction a stream has one commit, as ever."""
        with pytest.raises(BadValue):
            await log.append_groups([[append(ALICE)], [append(KEY), append(KEY, 2)]])
        assert await log.head() == 0


class TestBulk:
    async def test_many(self, log: EventLog):
        """Bulk appends keep their order over batches, and return how many were new."""
        streams = [WorkspaceStream("kind", str(i)) for i in range(7)]
        appends = [append(streams[i % 7], 1 + i // 7) for i in range(2_345)]
        assert await log.append_bulk(appends) == 2_345
        followed = [stored async for stored in log.follow(until=2_345)]
        assert [each.commit.id for each in followed] == [each.commit.id for each in appends]

    async def test_again(self, log: EventLog):
        """A killed import continues: stored commits with the same id are skipped."""
        appends = [append(WorkspaceStream("kind", str(i))) for i in range(1_500)]
        for each in appends[:700:3]:
            await log.append(each)
        assert await log.append_bulk(appends) == 1_500 - 234
        assert await log.append_bulk(appends) == 0
        assert await log.head() == 1_500

    async def test_conflict(self, log: EventLog):
        """Up to the first commit that lost all is stored, after it nothing."""
        appends = [append(WorkspaceStream("kind", str(i))) for i in range(1_500)]
        winner = await log.append(append(WorkspaceStream("kind", "1200")))
        await log.append(append(WorkspaceStream("kind", "1300")))
        with pytest.raises(Conflict) as conflict:
            await log.append_bulk(iter(appends))
        assert conflict.value.stream == WorkspaceStream("kind", "1200")
        assert conflict.value.winner is not None
        assert conflict.value.winner.position == winner.position
        assert await log.head() == 2 + 1_200
        assert await log.last(WorkspaceStream("kind", "1199")) is not None
        assert await log.last(WorkspaceStream("kind", "1201")) is None

    async def test_nothing(self, log: EventLog):
        """An empty import is one."""
        assert await log.append_bulk([]) == 0

    @pytest.mark.parametrize("before", [0, 999, *map(THOROUGHLY, (998, 1_000, 1_997))])
    @pytest.mark.parametrize("lost", [0, 2, THOROUGHLY(1)])
    async def test_a_transaction_goes_whole_or_not_at_all(self, log: EventLog, before, lost):
        """A transaction that loses anywhere is not stored; all before it are."""
        singles = [append(WorkspaceStream("kind", str(i))) for i in range(before)]
        whole = together(*(append(WorkspaceStream("tx", str(i))) for i in range(3)))
        await log.append(append(WorkspaceStream("tx", str(lost))))
        with pytest.raises(Conflict) as conflict:
            await log.append_bulk([*singles, *whole, append(WorkspaceStream("kind", "after"))])
        assert conflict.value.stream == WorkspaceStream("tx", str(lost))
        assert await log.head() == 1 + before
        for i in range(3):
            assert (await log.last(WorkspaceStream("tx", str(i))) is None) == (i != lost)

    @pytest.mark.parametrize("before", [0, 999, *map(THOROUGHLY, (998, 1_000))])
    async def test_a_transaction_stays_together(self, log: EventLog, before):
        """Its commits have consecutive positions, and a point inside it excludes all of them."""
        singles = [append(WorkspaceStream("kind", str(i))) for i in range(before)]
        whole = together(*(append(KeyStream("r1", str(i))) for i in range(3)))
        assert await log.append_bulk([*singles, *whole]) == before + 3
        for end, count in ((before + 1, 0), (before + 2, 0), (before + 3, 3)):
            assert len(await log.read_run("r1", AtPosition(end))) == count
        assert await log.append_bulk([*singles, *whole]) == 0

    async def test_a_transaction_too_large_for_a_log(self, log: EventLog):
        """More than 1,000 commits of one transaction are refused before any is sent."""
        whole = together(*(append(WorkspaceStream("tx", str(i))) for i in range(1_001)))
        with pytest.raises(TooLarge):
            await log.append_bulk(whole)
        assert await log.head() == 0


class TestCopied:
    async def test_the_bytes_and_their_origin_are_kept(self, log: EventLog):
        """A copied commit is read everywhere in its original bytes, with its origin."""
        made = append(ALICE)
        body = encode(ALICE, made.commit).replace(b"{", b"{ ") + b"\n"
        made = replace(made, commit=msgspec.json.decode(body, type=Commit))
        one = replace(made, copied=Copied(body, ORIGIN))
        two = append(KEY)
        two = replace(two, copied=Copied(encode(KEY, two.commit), ORIGIN))
        first = await log.append(one)
        assert await log.append_bulk([one, two, append(LIFE)]) == 2
        assert (first.body, first.origin) == (body, ORIGIN)
        with pytest.raises(Conflict) as lost:
            await log.append(append(ALICE))
        followed = [stored async for stored in log.follow(until=3)]
        copies = [
            *(await log.read(ALICE)),
            *(await log.read_streams([ALICE])),
            (await log.read_run("r1"))[0],
            await log.last(ALICE),
            await log.at(1),
            followed[0],
            lost.value.winner,
        ]
        assert len(copies) == 7
        for stored in copies:
            assert stored is not None
            assert (stored.body, stored.origin, stored.position) == (body, ORIGIN, 1)
            assert stored.commit == made.commit
        assert [stored.origin for stored in followed] == [ORIGIN, ORIGIN, None]
        assert [stored.origin for stored in await log.read_boards("r1")] == [ORIGIN]

    async def test_it_lives_in_another_log_by_its_own_time(self, log: EventLog):
        """Position and stamp are this log's; only the origin refers to the other one."""
        made = append(ALICE)
        await log.append(append(LIFE))
        copy = replace(made, copied=Copied(encode(ALICE, made.commit), ORIGIN))
        await log.append(copy)
        [stored] = await log.read(ALICE)
        assert stored.position == 2
        assert abs((stored.time - made.commit.at).total_seconds()) < 60

    async def test_the_same_again_is_passed_over(self, log: EventLog):
        """With another origin, too, the stored commit is returned."""
        made = append(ALICE)
        copy = replace(made, copied=Copied(encode(ALICE, made.commit), ORIGIN))
        assert await log.append_bulk([copy]) == 1
        elsewhere = Copied(encode(ALICE, made.commit), Origin("other", 9, ORIGIN.at))
        assert await log.append_bulk([replace(made, copied=elsewhere)]) == 0
        [stored] = await log.read(ALICE)
        assert stored.origin == ORIGIN

    async def test_a_copied_transaction_is_one(self, log: EventLog):
        """Its commits state it in their bytes: a point inside it excludes all of them."""
        whole = [
            replace(each, copied=Copied(encode(each.stream, each.commit), ORIGIN))
            for each in together(append(LIFE), append(ALICE), append(KEY))
        ]
        assert await log.append_bulk(whole) == 3
        assert await log.read_run("r1", AtPosition(2)) == []
        assert len(await log.read_run("r1", AtPosition(3))) == 3

    async def test_a_digested_name(self, log: EventLog):
        """A stream whose name no subject holds: the name is in the bytes already."""
        stream = WorkspaceStream("kind", "y" * 1_000)
        made = append(stream)
        body = encode(stream, made.commit)
        decoded = msgspec.json.decode(body, type=Commit)
        await log.append_bulk([replace(made, commit=decoded, copied=Copied(body, ORIGIN))])
        [stored] = await log.read(stream)
        assert (stored.stream, stored.body, stored.origin) == (stream, body, ORIGIN)

    async def test_what_is_too_large_is_refused(self, log: EventLog):
        """The size of the original bytes counts, not that of a new encoding."""
        made = append(ALICE)
        body = encode(ALICE, made.commit) + b" " * COMMIT_BYTES_MAX
        with pytest.raises(TooLarge):
            await log.append(replace(made, copied=Copied(body, ORIGIN)))
        assert await log.head() == 0


class TestRead:
    async def test_unknown(self, log: EventLog):
        """An unknown stream is empty; a single missing thing is NotFound."""
        assert await log.read(ALICE) == []
        assert await log.read_streams([ALICE, KEY]) == []
        assert await log.read_streams([]) == []
        assert await log.read_run("r1") == []
        assert await log.last(ALICE) is None
        assert await log.runs() == []
        assert await log.head() == 0
        for position in (0, 1, -1):
            with pytest.raises(NotFound):
                await log.at(position)

    async def test_versions(self, log: EventLog):
        """`after` and `to` select by version; a commit that contains `to` is read in full."""
        version = 1
        for events in (1, 3, 1, 2):  # versions 1, 2-4, 5, 6-7
            await log.append(append(ALICE, version, events))
            version += events
        expectations = {
            (0, None): [1, 2, 5, 6],
            (1, None): [2, 5, 6],
            (4, None): [5, 6],
            (7, None): [],
            (0, 1): [1],
            (0, 3): [1, 2],
            (1, 3): [2],
            (4, 6): [5, 6],
            (4, 4): [],
            (4, 100): [5, 6],
            (0, 0): [],
        }
        for (after, to), expected in expectations.items():
            assert versions(await log.read(ALICE, after=after, to=to)) == expected, (after, to)

    async def test_up_to_a_position(self, log: EventLog):
        """A read up to a position is the read that would have been made then."""
        seen: list[list[Stored]] = [[]]
        for i in range(1, 7):
            await log.append(append(ALICE, i))
            seen.append(await log.read(ALICE))
            await log.append(append(KEY, i))
        for i in range(7):
            for position in (2 * i - 1, 2 * i):
                assert await log.read(ALICE, up_to=AtPosition(position)) == seen[i]
        assert await log.read(ALICE, up_to=AtPosition(1_000)) == seen[6]
        assert versions(await log.read(ALICE, after=2, to=4, up_to=AtPosition(5))) == [3]

    async def test_up_to_a_time(self, log: EventLog):
        """A read up to a commit's own time ends with it; a nanosecond less, before it."""
        for i in range(1, 5):
            await log.append(append(ALICE, i))
            await asyncio.sleep(0.002)
        commits = await log.read(ALICE)
        for stored in commits:
            up_to = versions(await log.read(ALICE, up_to=AtTime(stored.stamp)))
            assert up_to[-1] == stored.commit.version
            before = versions(await log.read(ALICE, up_to=AtTime(stored.stamp - 1)))
            assert before == up_to[:-1]
        assert await log.read(ALICE, up_to=AtTime(0)) == []
        assert await log.read_run("r1", AtTime(commits[-1].stamp + 10**15)) == commits

    async def test_a_cut_transaction_is_left_out(self, log: EventLog):
        """A point inside a transaction excludes all of it, by position and by time."""
        await log.append(append(LIFE))
        stored = await log.append_all([append(KEY), append(ALICE), append(OTHER)])
        whole = await log.read_streams([LIFE, KEY, ALICE, OTHER])
        for each in whole[1:-1]:
            for up_to in (AtPosition(each.position), AtTime(each.stamp)):
                assert versions(await log.read_streams([LIFE, KEY, ALICE], up_to)) == [1]
                assert await log.read(KEY, up_to=up_to) == []
                assert [s.stream for s in await log.read_run("r1", up_to)] == [LIFE]
        last = stored[-1].position
        assert len(await log.read_streams([LIFE, KEY, ALICE], AtPosition(last))) == 3
        assert len(await log.read_run("r1", AtTime(whole[-1].stamp))) == 3

    async def test_run(self, log: EventLog):
        """A run is all its streams by position, and nothing of another run or outside."""
        mine: list[StreamId] = [
            ALICE,
            KEY,
            LIFE,
            KeyStream("r1", "other"),
            AgentStream("r1", "critic", "bob"),
        ]
        for version in (1, 2):
            for stream in mine:
                await log.append(append(stream, version))
                await log.append(append(KeyStream("r10", "plan" + str(stream)), version))
                await log.append(append(WorkspaceStream("r1", "r1" + str(stream)), version))
        commits = await log.read_run("r1")
        assert [stored.stream for stored in commits] == mine * 2
        assert [stored.position for stored in commits] == sorted(s.position for s in commits)
        cut = await log.read_run("r1", AtPosition(commits[6].position))
        assert cut == commits[:7]

    async def test_a_fork_begins_later(self, log: EventLog):
        """A forked run's streams begin after their parent's version: read from there."""
        forked = AgentStream("r2", "researcher", "alice")
        await fill(log, forked, 3, first=8)
        assert versions(await log.read(forked, after=7)) == [8, 9, 10]
        assert versions(await log.read_run("r2")) == [8, 9, 10]
        assert versions(await log.read_streams([forked])) == [8, 9, 10]

    async def test_last_and_at(self, log: EventLog):
        """The newest commit of a stream, and the commit at a position."""
        for i in range(1, 13):
            await log.append(append(ALICE, i))
        last = await log.last(ALICE)
        assert last is not None
        assert (last.commit.version, last.position) == (12, 12)
        assert await log.at(12) == last
        assert (await log.at(3)).commit.version == 3

    async def test_runs(self, log: EventLog):
        """Every run with a life is listed once."""
        for run in ("r1", "r2", "a run. with > odd * name", "z" * 300):
            await fill(log, RunStream(run), 2)
        await log.append(append(KeyStream("no-life", "k")))
        runs = await log.runs()
        await log.append(append(RunStream("r2"), 3))
        assert await log.newest_runs(2) == ["r2", "z" * 300]
        assert sorted(await log.newest_runs(1_000)) == sorted(runs)
        assert sorted(runs) == sorted(["r1", "r2", "a run. with > odd * name", "z" * 300])

    @pytest.mark.parametrize("key", ["k", "team approvals", "k" * 300])
    async def test_runs_that_have_a_key(self, log: EventLog, key: str):
        """Every run whose board has had the key is listed once, whether it has a life or not."""
        names = ("r1", "a run. with > odd * name", "z" * 300)
        for run in names:
            await fill(log, KeyStream(run, key), 2)
        await log.append(append(KeyStream("other", "k2")))
        await log.append(append(AgentStream("other", "board", key)))
        await fill(log, RunStream("other"), 2)
        assert sorted(await log.runs(key)) == sorted(names)
        assert await log.runs("k3") == []

    async def test_consistent_under_writes(self, opener: Opener):
        """A read of several streams never shows a part of a transaction, nor a hole."""
        writer, reader = await opener(), await opener()
        streams: list[StreamId] = [ALICE, KEY, LIFE]

        async def write() -> None:
            for version in range(1, 41):
                await writer.append_all([append(stream, version) for stream in streams])

        writing = asyncio.ensure_future(write())
        reads = 0
        while not writing.done():
            for commits in (await reader.read_streams(streams), await reader.read_run("r1")):
                assert len(commits) % 3 == 0
                assert versions(commits) == sorted(versions(commits))
            reads += 1
            await asyncio.sleep(0)
        await writing
        assert reads > 0
        assert len(await reader.read_run("r1")) == 120


class TestNames:
    @pytest.mark.fast(cases=12)
    @pytest.mark.slow(cases=0)
    @pytest.mark.parametrize("name", HOSTILE)
    async def test_hostile_names(self, log: EventLog, name: str):
        """Any name is a name: no wildcard, no separator, no other stream's."""
        streams: list[StreamId] = [
            RunStream(name),
            AgentStream("r1", name, "alice"),
            AgentStream("r1", "researcher", name),
            KeyStream("r1", name),
            KeyStream(name, "plan"),
            WorkspaceStream("kind", name),
            KeyStream("r1", "innocent"),
        ]
        for stream in streams:
            await log.append(append(stream))
        for stream in streams:
            (stored,) = await log.read(stream)
            assert stored.stream == stream
            with pytest.raises(Conflict) as conflict:
                await log.append(append(stream))
            assert conflict.value.winner == stored
        commits = await log.read_streams(streams)
        assert [stored.stream for stored in commits] == streams
        followed = [stored async for stored in log.follow(until=len(streams))]
        assert followed == commits
        in_run = [stored.stream for stored in await log.read_run(name)]
        assert in_run == [s for s in streams if getattr(s, "run", None) == name]

    @given(names=st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=4, unique=True))
    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_names_do_not_meet(self, names: list[str]):
        """Different names never share a subject (without a server: the subjects decide)."""
        names = [name for name in names if max(name) < "\ud800" or min(name) > "\udfff"]
        assert len({subjects.token(name) for name in names}) == len(names)
        for name in names:
            token = subjects.token(name)
            assert not set(token) & set(" .*>\t\r\n")
            assert token.startswith("==") or subjects.untoken(token) == name


class TestFollow:
    async def test_from_any_position(self, log: EventLog):
        """Following gives every commit after a position, in order."""
        await fill(log, ALICE, 20)
        everything = await log.read(ALICE)
        for after in (0, 1, 10, 19, 20):
            followed = [stored async for stored in log.follow(after, until=20)]
            assert followed == everything[after:]
        assert [stored async for stored in log.follow(5, until=7)] == everything[5:7]
        assert [stored async for stored in log.follow(5, until=5)] == []

    async def test_while_writing(self, opener: Opener):
        """Followers that start at different times see one order without gap or repeat."""
        writer, first, second = await opener(), await opener(), await opener()

        async def write(number: int) -> None:
            await fill(writer, KeyStream("r1", f"k{number}"), 25)

        async def follow(log: EventLog, after: int) -> list[Stored]:
            return [stored async for stored in log.follow(after, until=250)]

        following = [asyncio.ensure_future(follow(first, 0))]
        writing = asyncio.gather(*(write(i) for i in range(10)))
        await asyncio.sleep(0.01)
        following.append(asyncio.ensure_future(follow(second, 0)))

        async def hundred() -> bool:
            return await second.head() >= 100

        await until(hundred)
        following.append(asyncio.ensure_future(follow(second, 100)))
        await writing
        one, two, three = await asyncio.gather(*following)
        assert [stored.position for stored in one] == list(range(1, 251))
        assert one == two
        assert three == one[100:]

    async def test_waits_for_what_is_new(self, log: EventLog):
        """A follower at the end waits, and gets the next commit."""
        await fill(log, ALICE, 3)
        async with aclosing(cast("AsyncGenerator[Stored, None]", log.follow(3))) as following:
            waiting = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            appended = await log.append(append(ALICE, 4))
            assert (await asyncio.wait_for(waiting, 60)).commit == appended.commit

    async def test_one_run_alone(self, log: EventLog):
        """A follower of a run gets the commits of all of its streams, and of no other run."""
        mine: list[StreamId] = [ALICE, KeyStream(ALICE.run, "k"), RunStream(ALICE.run)]
        others: list[StreamId] = [KeyStream(f"{ALICE.run}x", "k"), RunStream(f"{ALICE.run}x")]
        for version in range(1, 4):
            for stream in (*mine, *others):
                await log.append(append(stream, version))
        run = RunStreams(ALICE.run)
        newest = await log.last(run)
        assert newest is not None
        assert newest == await log.last(mine[-1])
        followed = [each async for each in log.follow(of=run, until=newest.position)]
        assert followed == await log.read_run(ALICE.run)
        assert await log.last(RunStreams("none")) is None

    async def test_one_stream_alone(self, log: EventLog):
        """A follower of one stream gets its commits alone, new ones too."""
        other, longer = KeyStream("r1", "k"), KeyStream("r1", "k2")
        for version in range(1, 6):
            for stream in (ALICE, other, longer):
                await log.append(append(stream, version))
        mine = await log.read(other)
        last = mine[-1].position
        assert [stored async for stored in log.follow(of=other, until=last)] == mine
        after = mine[1].position
        following = cast("AsyncGenerator[Stored, None]", log.follow(after, of=other))
        async with aclosing(following):
            assert [await anext(following) for _ in range(3)] == mine[2:]
            waiting = asyncio.ensure_future(anext(following))
            await log.append(append(longer, 6))
            await log.append(append(ALICE, 6))
            appended = await log.append(append(other, 6))
            assert (await asyncio.wait_for(waiting, 60)).commit == appended.commit

    async def test_after_the_end(self, log: EventLog):
        """A position that the log does not have was read from another log, or this one lost it."""
        await fill(log, ALICE, 3)
        with pytest.raises(Corrupt, match="ends at 3"):
            _ = [stored async for stored in log.follow(5, until=9)]

    async def test_slow_reader(self, log: EventLog):
        """A reader may take its time; writers are not held up."""
        await log.append_bulk(append(WorkspaceStream("k", str(i))) for i in range(1_200))
        positions = []
        async for stored in log.follow(until=1_200):
            positions.append(stored.position)
            if stored.position % 400 == 0:
                await asyncio.sleep(0.05)
                await log.append(append(ALICE, stored.position // 400))
        assert positions == list(range(1, 1_201))


class TestKinds:
    async def test_all_streams_of_a_kind_are_read_at_once(self, log: EventLog):
        """By position, at any point, whatever their names; no other kind's, and no run's."""
        long = "x" * 300
        names = ["ada", "a.b", ">", "ü", long]
        for name in names:
            await log.append(append(WorkspaceStream("principal", name)))
            await log.append(append(WorkspaceStream("principals", name)))
        await log.append(append(WorkspaceStream("price", "principal")))
        await log.append(append(KeyStream("principal", "plan")))
        await log.append(append(WorkspaceStream("principal", "ada"), 2))
        stored = await log.read_kind("principal")
        assert [each.stream for each in stored] == [
            WorkspaceStream("principal", name) for name in [*names, "ada"]
        ]
        assert await log.read_kind("principal", AtPosition(stored[1].position)) == stored[:2]
        assert await log.read_kind("nothing") == []

    async def test_following_a_kind_gives_what_comes_of_it(self, log: EventLog):
        """A follower gets existing and new events of that kind alone."""
        await log.append(append(WorkspaceStream("principal", "ada")))
        await log.append(append(LIFE))
        following = cast("AsyncGenerator[Stored, None]", log.follow(of=Kind("principal")))
        async with aclosing(following) as commits, asyncio.timeout(10):
            assert (await anext(commits)).stream == WorkspaceStream("principal", "ada")
            await log.append(append(WorkspaceStream("role", "ada")))
            await log.append(append(WorkspaceStream("principal", "bob")))
            assert (await anext(commits)).stream == WorkspaceStream("principal", "bob")


class TestCommitBytes:
    async def test_body_is_the_record(self, log: EventLog):
        """A stored body decodes to the commit and encodes to the same bytes."""
        original = commit(1, 2, text='ünïcode \u2028 \\ "')
        await log.append(Append(ALICE, original))
        (stored,) = await log.read(ALICE)
        assert encode(ALICE, stored.commit) == stored.body == encode(ALICE, original)
