"""A log of several generations reads, follows and decides as one that was never rolled."""

import asyncio
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.bus import archive as archiving
from hansard.bus import marks, subjects
from hansard.bus.archive import archive_at
from hansard.bus.errors import (
    ArchiveUnavailable,
    BrokerError,
    Conflict,
    GenerationMissing,
    NotFound,
)
from hansard.bus.jetstream import JetStreamLog, generations, open_log, regions, roll, streams
from hansard.bus.jetstream import log as jetstream_log
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct, api
from hansard.bus.jetstream.generations import GIVEN_UP, Generations, SealedStream, listed, survey
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.log import COMMIT_BYTES_MAX, LivesAt, NothingUnder, NotYet, StreamAt
from hansard.bus.marks import ACCEPTED, Extent, Kept, Mark, Witness
from hansard.domain.errors import CallerError, Corrupt
from hansard.domain.ids import AgentStream, KeyStream, RunStream
from tests.bus.brokers import Nats, append, running, until

ONE, TWO, LIFE = KeyStream("r1", "one"), KeyStream("r1", "two"), RunStream("r1")


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """Yield one server for these tests, each of which has a workspace of its own."""
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


async def rolled(nats: Nats, workspace: str, place: Path | None = None) -> roll.Tended:
    """Roll, and with a place archive and delete what was sealed."""
    admin = await Broker.open(nats.options("admin"))
    try:
        archive = archive_at(workspace, str(place)) if place is not None else None
        return await roll.tend(admin, workspace, None, archive, keep_s=0)
    finally:
        await admin.close()


async def everything(log: JetStreamLog) -> list[Any]:
    """Return the answers of all reads of a log."""
    head = await log.head()
    return [
        head,
        [await log.at(position) for position in range(1, head + 1)],
        await log.read(ONE),
        await log.read(ONE, after=1, to=3),
        await log.read_streams([TWO, ONE]),
        await log.read_run("r1"),
        await log.read_boards("r1"),
        await log.last(ONE),
        await log.last(LIFE),
        sorted(await log.runs()),
        await log.newest_runs(9),
        [stored async for stored in log.follow(0, until=head)],
        [stored async for stored in log.follow(1, until=head, of=ONE)],
    ]


async def test_reads_are_equal_before_and_after_a_roll(nats: Nats, tmp_path: Path):
    """From sealed streams and from the archive, by a client that is open and by a new one."""
    log, other = await nats.log("equal"), await nats.log("equal")
    await log.append(append(LIFE))
    for version in (1, 2):
        await log.append(append(ONE, version))
    await log.append(append(TWO, events=3))
    before = await everything(log)
    assert (await rolled(nats, "equal")).roll.first == 5
    assert await everything(other) == before
    done = await rolled(nats, "equal", tmp_path)
    assert done.deleted == [0]
    assert (await log.append(append(ONE, 3))).position == 5
    after = await everything(other)
    assert after[1][:4] == before[1]
    fresh = await nats.log("equal")
    assert await everything(fresh) == after
    raw = await RawWorkspace.open(nats.options(), "equal")
    assert (await raw.extent()).missing == 0
    assert [each.position async for each in raw.follow(0, until=5)] == [1, 2, 3, 4, 5]
    workspaces = await raw.workspaces()
    assert "equal" in workspaces
    assert not any("_" in name for name in workspaces)
    for each in (log, other, fresh, raw):
        await each.close()


async def test_a_writer_meets_the_true_version(nats: Nats, tmp_path: Path):
    """A version and a condition in a sealed generation count, also once the archive has it."""
    log, behind = await nats.log("true"), await nats.log("true")
    await log.append(append(LIFE))
    await log.append_all([append(ONE), append(TWO, events=2)])
    await log.append(append(AgentStream("r1", "role", "a1")))
    for place in (None, tmp_path):
        await rolled(nats, "true", place)
        for wrong in (
            append(ONE, 1),
            append(TWO, 2),  # inside a commit of two events
            append(ONE, 2, expected=StreamAt(TWO, 1)),
            append(ONE, 2, expected=NotYet(TWO, 1)),
            append(ONE, 2, expected=LivesAt(0)),
            append(AgentStream("r1", "other", "a1"), expected=NothingUnder("r1", "a1")),
        ):
            with pytest.raises(Conflict):
                await behind.append(wrong)
    right = append(ONE, 2, expected=StreamAt(TWO, 3))
    await behind.append(right)
    again = await behind.append_again(right, 0.0)
    assert again.commit.id == right.commit.id
    await log.append(append(TWO, 3, expected=LivesAt(1)))
    await rolled(nats, "true")
    assert await log.append_bulk([right, append(ONE, 3)]) == 1
    with pytest.raises(Conflict):  # all before it are stored
        await log.append_bulk([append(ONE, 4), append(TWO, 4, expected=LivesAt(0))])
    with pytest.raises(Conflict):
        await log.append_bulk([append(ONE, 3)])
    assert [each.commit.version for each in await behind.read(ONE)] == [1, 2, 3, 4]
    await log.close()
    await behind.close()


async def test_an_idle_writer_needs_no_store(
    nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its streams' newest commits are in the archive alone, and that is away: it continues with the
    index that the process that archived them left on the disk, and repeats the append without it.
    """
    caches, place = archiving.Caches(tmp_path / "cache"), tmp_path / "archive"
    monkeypatch.setattr(archiving, "_configured", [caches])
    log, agent = await nats.log("idle"), AgentStream("r1", "role", "a1")
    await log.append_all([append(LIFE), append(ONE), append(TWO, events=3), append(agent)])
    assert (await rolled(nats, "idle", place)).deleted == [0]
    for cached in (archiving._archive, archiving._tiers):
        cached.cache_clear()  # the writer is another process
    place.rename(tmp_path / "away")
    await log.append(append(ONE, 2, expected=StreamAt(TWO, 3)))
    await log.append(append(TWO, 4, expected=LivesAt(1)))
    await log.append(append(ONE, 3, expected=NotYet(TWO, 5)))
    other = append(AgentStream("r1", "role", "a2"), expected=NothingUnder("r1", "a2"))
    assert await log.append_bulk([append(agent, 2), other, append(LIFE, 2)]) == 3
    with pytest.raises((ArchiveUnavailable, Corrupt), match="archive at"):
        await log.append(append(KeyStream("r1", "new"), expected=StreamAt(TWO, 2)))
    shutil.rmtree(tmp_path / "cache")
    fresh = await nats.log("idle")
    for cached in (archiving._archive, archiving._tiers):
        cached.cache_clear()
    with pytest.raises((ArchiveUnavailable, Corrupt), match="archive at"):
        await fresh.append(append(ONE, 4))
    (tmp_path / "away").rename(place)
    assert (await fresh.append(append(ONE, 4))).position == 11
    assert [each.commit.version for each in await log.read(ONE)] == [1, 2, 3, 4]
    await log.close()
    await fresh.close()


async def test_followers_go_on_over_rolls(nats: Nats, tmp_path: Path):
    """Each commit once and in order, also of one stream, while generations are deleted."""
    log, other = await nats.log("follows"), await nats.log("follows")
    all_, one = list[int](), list[int]()

    async def follow(of: KeyStream | None, into: list[int]) -> None:
        async for stored in other.follow(0, of=of):
            into.append(stored.position)  # noqa: PERF401 -- it never ends

    following = [asyncio.create_task(follow(None, all_)), asyncio.create_task(follow(ONE, one))]
    for version in range(1, 7):
        await log.append(append(ONE, version))
        await log.append(append(TWO, version))
        await rolled(nats, "follows", tmp_path)

    async def arrived() -> bool:
        return len(all_) >= 12 and len(one) >= 6

    await until(arrived)
    assert (all_, one) == ([*range(1, 13)], [*range(1, 12, 2)])
    for task in following:
        task.cancel()
    await log.close()
    await other.close()


@pytest.mark.later
async def test_a_slow_follower_reads_the_rest_from_the_archive(nats: Nats, tmp_path: Path):
    """Its generation is sealed, archived and deleted before the server sent it all of that."""
    log, other = await nats.log("slow"), await nats.log("slow")
    await log.append_bulk([append(ONE, version) for version in range(1, 6_001)])
    following = other.follow(0, until=6_001)
    positions = [(await anext(following)).position]
    assert (await rolled(nats, "slow", tmp_path)).deleted == [0]
    await log.append(append(ONE, 6_001))
    positions += [stored.position async for stored in following]
    assert positions == [*range(1, 6_002)]
    await log.close()
    await other.close()


async def test_generations_deleted_during_a_look_up_are_not_skipped(nats: Nats, tmp_path: Path):
    """The first was still on the server when it was looked up, the second not any more."""
    log = await nats.log("during")
    for version in (1, 2, 3):
        await log.append(append(ONE, version))
        if version < 3:
            await rolled(nats, "during")
    admin = await Broker.open(nats.options("admin"))
    direct = Direct(admin)
    await roll.store_sealed(admin, "during", archive_at("during", str(tmp_path)))

    async def inform(name: str) -> Any:
        if name == "hansard_log-during_1":
            await roll.delete_archived(admin, "during", keep_s=0)
        return await direct.info_of(name)

    at = await survey(direct, "during", inform)
    assert [each.number for each in at.streams] == [0, 2]
    generations = Generations("during", direct)
    generations.prime(at)
    second = generations.view.covering(1)
    assert second is not None
    assert [m.position async for c in second.chunks(1, 2, "hansard.during.>") for m in c] == [2]
    await admin.close()
    await log.close()


async def test_a_follower_may_begin_while_the_broker_is_away(tmp_path: Path):
    """It waits for it, also if it is the first read of its client."""
    with running(tmp_path) as server:
        log = await server.log("away")
        await log.append(append(ONE))
        server.kill()
        following = log.follow(0)
        first = asyncio.ensure_future(anext(following))
        assert not (await asyncio.wait({first}, timeout=0.5))[0]
        server.start()
        assert (await first).position == 1
        await log.close()


@pytest.mark.later
async def test_a_login_without_the_notice_reads_the_newest_state(tmp_path: Path):
    """An outside broker's login may listen to few subjects: its reads look first."""
    server = Nats(tmp_path)
    server.forbid("hansard_rolled.>")
    server.start()
    try:
        log, reader = await server.log("deaf"), await server.log("deaf")
        await log.append(append(ONE))
        assert len(await reader.read(ONE)) == 1
        following = reader.follow(0)
        positions = [(await anext(following)).position]
        for version in (2, 3):
            await rolled(server, "deaf")
            await log.append(append(ONE, version))
            assert len(await reader.read(ONE)) == version
            positions.append((await asyncio.wait_for(anext(following), 20)).position)
        assert positions == [1, 2, 3]
        await log.close()
        await reader.close()
    finally:
        server.kill()


async def test_a_log_that_was_never_rolled_costs_no_request_more(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
):
    """One request a read and a write; its streams are those of earlier versions."""
    log = await nats.log("plain")
    await log.append(append(ONE))
    await log.read(ONE)
    sent: list[str] = []
    send = Broker.send

    async def counted(broker: Broker, subject: str, *rest: Any) -> None:
        sent.append(subject)
        await send(broker, subject, *rest)

    monkeypatch.setattr(Broker, "send", counted)
    for ask in (log.read(ONE), log.last(ONE), log.at(1), log.head(), log.append(append(ONE, 2))):
        before = len(sent)
        await ask
        assert len(sent) == before + 1
    assert sent[-1] == "hansard.plain.run.r1.board.one.2"
    names = (await api(log._reads, "STREAM.NAMES", {"subject": ">"}))["streams"]
    assert sorted(name for name in names if name.endswith("plain")) == [
        f"hansard_{kind}-plain" for kind in ("blob", "log", "snap")
    ]
    await log.close()


@pytest.mark.later
async def test_an_interrupted_roll_is_finished_by_a_writer(nats: Nats):
    """After a second the writer opens the next generation itself."""
    log = await nats.log("half")
    await log.append(append(ONE))
    admin = await Broker.open(nats.options("admin"))
    config = streams.log_config("half") | {"sealed": True}
    await api(admin, "STREAM.UPDATE.hansard_log-half", config)
    assert (await log.append(append(ONE, 2))).position == 2
    assert (await streams.config_of(admin, "hansard_log-half_1")) is not None
    await admin.close()
    await log.close()


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_create_without_an_answer_is_repeated(
    nats: Nats, monkeypatch: pytest.MonkeyPatch, is_done: bool
):
    """Whether it was done before the next look, or is done once the generation accepts commits."""
    log, admin = await nats.log(f"silent-{int(is_done)}"), await Broker.open(nats.options("admin"))
    await log.append(append(ONE))
    request, late = admin.request, list[Any]()

    async def silent(subject: str, *arguments: Any) -> Any:
        if ".STREAM.CREATE.hansard_log" not in subject or late:
            return await request(subject, *arguments)
        late.append((subject, *arguments))
        if is_done:
            await request(*late[0])
        raise NoAnswer("no answer")

    monkeypatch.setattr(admin, "request", silent)
    rolled = await roll.roll(admin, log.workspace)
    assert (rolled.generation, rolled.first, rolled.sealed) == (1, 2, True)
    assert (await log.append(append(ONE, 2))).position == 2
    await request(*late[0])
    assert (await log.append(append(ONE, 3))).position == 3
    assert [each.number for each in (await survey(Direct(admin), log.workspace)).streams] == [0, 1]
    await log.close()
    await admin.close()


async def test_no_old_generation_is_used_again(nats: Nats, tmp_path: Path):
    """Its subjects stay taken; one that is made again is reported."""
    log = await nats.log("again")
    await log.append(append(ONE))
    await rolled(nats, "again", tmp_path)
    await log.append(append(ONE, 2))
    await rolled(nats, "again", tmp_path)
    admin = await Broker.open(nats.options("admin"))
    with pytest.raises(BrokerError, match="overlap"):
        await api(admin, "STREAM.CREATE.hansard_log-again", streams.log_config("again"))
    await api(admin, "STREAM.CREATE.hansard_log-again_1", streams.generation_config("again", 1, 2))
    with pytest.raises(Corrupt, match="generation 1 accepts commits"):
        await nats.log("again")
    await admin.close()
    await log.close()


async def test_a_late_writer_passes_a_guard_that_is_not_sealed_yet(nats: Nats, tmp_path: Path):
    """The process that made the guard was killed before it sealed it."""
    log, late = await nats.log("guarded"), await nats.log("guarded")
    await log.append(append(ONE))
    await rolled(nats, "guarded", tmp_path)
    admin = await Broker.open(nats.options("admin"))
    await api(admin, "STREAM.DELETE.hansard_guard-guarded")
    await streams.create(admin, streams.guard_config("guarded"), None)
    assert (await late.append(append(ONE, 2))).position == 2
    for each in (admin, log, late):
        await each.close()


async def test_generation_0_can_at_no_moment_be_made_again(
    nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As by a program of an earlier version, for which the log would begin then."""
    log, late = await nats.log("moment"), await nats.log("moment")
    await log.append(append(ONE))
    subjects: list[str] = []
    rolling = asyncio.current_task()

    async def interrupted(admin: Broker, subject: str, body: dict[str, Any] | None = None) -> Any:
        answer = await api(admin, subject, body)
        is_step = (
            subject.startswith(("STREAM.UPDATE.", "STREAM.DELETE.")) and "tiers" not in subject
        )
        if asyncio.current_task() is not rolling or not is_step:
            return answer  # the writer below finishes what was interrupted
        subjects.append(subject)
        with pytest.raises(BrokerError, match=r"overlap|in use"):
            await api(admin, "STREAM.CREATE.hansard_log-moment", streams.log_config("moment"))
        version = len(subjects) + 1
        assert (await late.append(append(ONE, version))).position == version
        assert len(await log.read(ONE)) == version
        return answer

    for module in (roll, streams):
        monkeypatch.setattr(module, "api", interrupted)
    await rolled(nats, "moment", tmp_path)
    assert [each.rpartition(".")[0] for each in subjects] == [
        *["STREAM.UPDATE"] * 3,  # the writer seals
        "STREAM.DELETE",
    ]
    await log.close()
    await late.close()


async def test_accepted_losses_stay_accepted_after_a_roll(nats: Nats):
    """They are noted at the stream, and count over all generations."""
    log = await nats.log("accepted")
    await log.append(append(ONE))
    admin = await Broker.open(nats.options("admin"))
    config = streams.log_config("accepted") | {"metadata": {ACCEPTED: "2"}}
    await api(admin, "STREAM.UPDATE.hansard_log-accepted", config)
    await rolled(nats, "accepted")
    at = await survey(Direct(admin), "accepted")
    assert Extent.of(at.streams[-1].info).accepted == 2
    await admin.close()
    await log.close()


@pytest.mark.later
async def test_a_loss_accepted_after_the_opening_is_listed(nats: Nats):
    """A generation that is created again has the settings that it had when it was closed."""
    log, name = await nats.log("noted"), "hansard_log-noted_1"
    await log.append(append(ONE))
    await rolled(nats, "noted")
    await log.append(append(ONE, 2))
    admin = await Broker.open(nats.options("admin"))
    config = await streams.config_of(admin, name)
    assert config is not None
    await api(admin, f"STREAM.UPDATE.{name}", config | {"metadata": {ACCEPTED: "2"}})
    assert await streams.seal(admin, "noted", (await survey(Direct(admin), "noted")).streams[-1])
    _, opened = await listed(Direct(admin), "noted")
    assert opened is not None
    assert (opened.number, opened.metadata[ACCEPTED]) == (1, "2")
    await admin.close()
    await log.close()


@pytest.mark.later
@pytest.mark.parametrize("generation", [0, 1])
async def test_a_generation_that_lost_all_its_commits_is_refused(nats: Nats, generation: int):
    """Its stream was deleted: positions would be given out again, unless an operator agrees."""
    workspace = f"emptied-{generation}"
    log, name = await nats.log(workspace), subjects.generation_stream(workspace, generation)
    await log.blobs.put(b"x")
    await log.append(append(ONE))
    if generation:
        await rolled(nats, workspace)
        await log.append(append(ONE, 2))
    admin = await Broker.open(nats.options("admin"))
    await api(admin, f"STREAM.DELETE.{name}")
    raw = await RawWorkspace.open(nats.options(), workspace)
    with pytest.raises(GenerationMissing, match=name):
        await raw.extent()
    for read in (nats.log(workspace), nats.log(workspace), raw.extent(), raw.page(0, 9)):
        with pytest.raises(Corrupt, match=f"from position {generation + 1} on, and is empty"):
            await read
    config = await streams.config_of(admin, name)
    assert config is not None
    await api(admin, f"STREAM.UPDATE.{name}", config | {"metadata": {GIVEN_UP: "yes"}})
    again = await nats.log(workspace)
    assert (await again.append(append(ONE, generation + 1))).position == generation + 1
    for each in (admin, raw, log, again):
        await each.close()


async def test_a_list_whose_log_was_deleted_is_named(tmp_path: Path):
    """A former home whose streams were deleted follows its successor once the list is, too."""
    server = Nats(tmp_path)
    server.configure("jetstream { store_dir", "jetstream { domain: B, store_dir")
    server.start()
    try:
        log = await server.log("former")
        await log.append(append(ONE))
        await rolled(server, "former")
        await log.close()
        admin = await Broker.open(server.options("admin"))
        for number in (0, 1):
            name = subjects.generation_stream("former", number)
            await api(admin, f"STREAM.DELETE.{name}")
        with pytest.raises(CallerError, match=r"lists generation 1 .* rm hansard_tiers-former"):
            await regions.follow(admin, admin, "former")
        for kind in ("tiers", "blob", "snap"):
            await api(admin, f"STREAM.DELETE.hansard_{kind}-former")
        with pytest.raises(NotFound):  # here that is the home, too
            await regions.follow(admin, admin, "former")
        await admin.close()
    finally:
        server.kill()


@pytest.mark.later
async def test_the_newest_runs_are_found_among_large_ones(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
):
    """An answer of the server ends after 8 MB, and begins with the oldest; older runs are not read
    beyond a bound.
    """
    log, text = await nats.log("large"), "x" * (COMMIT_BYTES_MAX - 1_000)
    runs = [f"r{number}" for number in range(40)]
    await log.append_bulk([append(RunStream(run), text=text) for run in runs])
    assert await log.newest_runs(1) == ["r39"]
    assert await log.newest_runs(40) == runs[::-1]
    monkeypatch.setattr(jetstream_log, "RECENT_POSITIONS_MAX", 20)
    assert await log.newest_runs(40) == runs[:19:-1]
    await log.close()


@pytest.mark.parametrize("is_listed", [False, True])
async def test_no_stream_is_deleted_whose_archive_is_incomplete(
    nats: Nats, tmp_path: Path, is_listed: bool
):
    """The store lost an object after it was read back, by this process or an earlier one."""
    workspace = f"lost-{is_listed}".lower()
    log = await nats.log(workspace)
    await log.append(append(ONE))
    await rolled(nats, workspace)
    admin = await Broker.open(nats.options("admin"))
    direct, archive = Direct(admin), archive_at(workspace, str(tmp_path))
    if is_listed:
        await roll.store_sealed(admin, workspace, archive)
    else:
        at = await survey(direct, workspace)
        await archive.store(0, SealedStream(direct, at.streams[0]))
    (segment,) = await archive.tiers.store.names(f"{workspace}/segments")
    await archive.tiers.store.delete(segment)
    with pytest.raises(Corrupt, match="restore"):
        await rolled(nats, workspace, tmp_path)
    assert await streams.config_of(admin, f"hansard_log-{workspace}") is not None
    await admin.close()
    await log.close()


async def test_a_policy_is_due_by_commits_and_age(nats: Nats):
    """An empty generation is never due."""
    log = await nats.log("due")
    admin = await Broker.open(nats.options("admin"))

    async def rolls(policy: roll.Policy) -> bool:
        return (await roll.roll(admin, "due", policy)).sealed

    assert not await rolls(roll.Policy(commits=0, age_s=0))
    for version in (1, 2):
        await log.append(append(ONE, version))
    assert not await rolls(roll.Policy(commits=3, age_s=3_600))
    assert not await rolls(roll.Policy())
    assert await rolls(roll.Policy(commits=2))
    await log.append(append(ONE, 3))
    assert await rolls(roll.Policy(age_s=0))
    await admin.close()
    await log.close()


@pytest.mark.later
async def test_a_batch_on_its_way_is_whole_in_one_generation(nats: Nats):
    """The server stores what it received before the generation is sealed."""
    log = await nats.log("batch")
    await log.append(append(ONE))
    batches = [
        [append(KeyStream("r1", f"{name}{number}")) for number in range(1_000)] for name in "abc"
    ]
    writing, number = asyncio.gather(*map(log.append_all, batches)), 1
    while not writing.done():
        await rolled(nats, "batch")
        await log.append(append(TWO, number))
        number += 1
    stored = await writing
    fresh = await nats.log("batch")
    whole = {
        each.commit.id: each.position async for each in fresh.follow(0, until=await fresh.head())
    }
    assert sorted(whole.values()) == [*range(1, len(whole) + 1)]
    for batch, commits in zip(batches, stored, strict=True):
        positions = [whole[each.commit.id] for each in batch]
        assert positions == [each.position for each in commits]
    await log.close()
    await fresh.close()


@pytest.mark.later
async def test_a_client_without_rights_waits_for_a_roll(nats: Nats):
    """It begins between the steps of a roll, and may not finish it."""
    log = await nats.log("waits")
    await log.append(append(ONE))
    admin = await Broker.open(nats.options("admin"))
    config = streams.log_config("waits") | {"subjects": ["w.0-closed.hansard.waits.>"]}
    await api(admin, "STREAM.UPDATE.hansard_log-waits", config)
    opening = asyncio.create_task(open_log(nats.options(), "waits", "strict"))
    assert not (await asyncio.wait({opening}, timeout=0.2))[0]
    await rolled(nats, "waits")
    late = await opening
    assert (await late.append(append(ONE, 2))).position == 2
    for each in (admin, log, late):
        await each.close()


async def test_a_roller_that_continues_late_seals_nothing(nats: Nats, tmp_path: Path):
    """Others sealed the generation meanwhile, and then deleted it."""
    log = await nats.log("late")
    await log.append(append(ONE))
    admin = await Broker.open(nats.options("admin"))
    newest = (await survey(Direct(admin), "late")).streams[-1]
    for place in (None, tmp_path):
        await rolled(nats, "late", place)
        await streams.seal(admin, "late", newest)
    at = await survey(Direct(admin), "late")
    assert [each.number for each in at.streams] == [1]
    assert not at.streams[0].is_closed
    await admin.close()
    await log.close()


async def test_no_stream_is_deleted_before_the_mark_has_digested_it(nats: Nats, tmp_path: Path):
    """Also where there is no mark yet: its digest begins with the first message."""
    log = await nats.log("marked")
    await log.append(append(ONE))
    admin = await Broker.open(nats.options("admin"))
    witness, archive = Witness.of(tmp_path), archive_at("marked", str(tmp_path / "archive"))
    name, now = "hansard_log-marked", datetime.now(UTC)

    async def deleted() -> list[int]:
        done = await roll.tend(admin, "marked", None, archive, keep_s=0, witness=witness)
        return done.deleted

    assert await deleted() == []
    mark = Mark(name)
    marks.write(tmp_path, "marked", Kept(mark, now, "strict", now))
    assert await deleted() == []
    marks.write(tmp_path, "marked", Kept(mark.then(1, "x", b""), now, "strict", now))
    assert await deleted() == [0]
    await admin.close()
    await log.close()


@pytest.mark.later
@pytest.mark.fast(cases=2)
@pytest.mark.parametrize(
    ("generation", "state"), [(0, "sealed"), (1, "open"), (1, "sealed"), (1, "alone")]
)
async def test_no_read_lacks_a_generation_that_the_server_omits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: int, state: str
):
    """The server was killed between the two files that it writes when it updates a stream. Reads
    fail until it is restored, also those of new clients, and then return all commits.

    It was open, or sealed without a successor, or `alone`: and the one before it was deleted.
    """
    monkeypatch.setattr(generations, "READ_WAIT_S", 0.1)
    with running(tmp_path) as server:
        runtime = msgspec.structs.replace(server.options(), append_timeout_s=0.1)
        log = await server.log("torn")
        await log.append(append(ONE))
        if generation:
            place = tmp_path / "archive" if state == "alone" else None
            await rolled(server, "torn", place)
        await log.append(append(ONE, 2))
        if state != "open":
            admin = await Broker.open(server.options("admin"))
            newest = (await survey(Direct(admin), "torn")).streams[-1]
            assert await streams.seal(admin, "torn", newest)
            await admin.close()
        name = subjects.generation_stream("torn", generation)
        for version in (3, 4):
            server.kill()
            (tmp_path / f"store/jetstream/A/streams/{name}/meta.sum").unlink()
            server.start()
            raw = await RawWorkspace.open(server.options(), "torn")
            opening = open_log(runtime, "torn", "strict")
            reads: list[Any] = [raw.extent(), raw.page(0, 9), raw.figures(), log.read(ONE), opening]
            for read in reads:
                with pytest.raises(GenerationMissing, match=name):
                    await read
            await raw.close()
            again = await server.log("torn")
            assert (await again.append(append(ONE, version))).position == version
            for reader in (log, again):
                commits = await reader.read(ONE)
                assert [each.commit.version for each in commits] == [*range(1, version + 1)]
            await again.close()
            opened = again._generations.view.open
            assert opened is not None
            name = opened.stream
        await log.close()


async def test_a_look_up_without_the_newest_generation_is_repeated(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
):
    """A server of a cluster that leads no more answers it for a while, with the streams it had."""
    log = await nats.log("old")
    for version in (1, 2, 3):
        await log.append(append(ONE, version))
        if version < 3:
            await rolled(nats, "old")
    later, stale = generations._later, [True] * (generations.SURVEYS_MAX + 1)

    async def deposed(*arguments: Any) -> list[int]:
        numbers = await later(*arguments)
        return numbers[:-1] if stale and stale.pop() else numbers

    monkeypatch.setattr(generations, "_later", deposed)
    log._generations.suspect()
    assert [each.commit.version for each in await log.read(ONE)] == [1, 2, 3]
    assert not stale
    await log.close()


async def test_a_generation_that_does_not_become_quiet_is_opened_again(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
):
    """Its leader has given out a position and does not store it: a seal could lose that commit."""
    log = await nats.log("unquiet")
    await log.append(append(ONE))
    admin = await Broker.open(nats.options("admin"))
    proposed = streams._proposed

    async def ahead(*arguments: Any) -> int:
        return await proposed(*arguments) + 1

    monkeypatch.setattr(streams, "_proposed", ahead)
    monkeypatch.setattr(streams, "QUIET_S", 0.0)
    with pytest.raises(BrokerError, match="does not follow"):
        await roll.roll(admin, "unquiet")
    monkeypatch.undo()
    assert (await log.append(append(ONE, 2))).position == 2
    assert (await roll.roll(admin, "unquiet")).first == 3
    await admin.close()
    await log.close()
