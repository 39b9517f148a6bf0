"""A real record whose log is rolled, archived and deleted: everything is read as before."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.bus import archive as archiving
from hansard.bus import recheck, subjects
from hansard.bus.archive import archive_at
from hansard.bus.errors import ArchiveUnavailable
from hansard.bus.jetstream import open_log
from hansard.bus.jetstream import roll as jetstream_roll
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.roll import tend
from hansard.bus.log import AtPosition, AtTime
from hansard.client.opening import find_broker
from hansard.domain.errors import Corrupt
from hansard.inspect.status import Watched
from hansard.inspect.status import read as read_watch
from hansard.service import rolling, running
from hansard.settings import Settings
from tests.bus.brokers import until
from tests.cli.planting import options
from tests.cli.support import Runs, make_runs, ran, team

WORKSPACE = "rolled"


def roll(home: Path, place: str | None) -> tuple[int, list[int]]:
    """Roll, archive and delete; return the open generation and what was deleted."""

    async def work() -> tuple[int, list[int]]:
        broker = await Broker.open(options(home))
        archive = archive_at(WORKSPACE, place) if place is not None else None
        try:
            result = await tend(broker, WORKSPACE, None, archive, keep_s=0)
        finally:
            await broker.close()
        return result.roll.generation, result.deleted

    return asyncio.run(work())


async def _answers(home: Path, up_to: int) -> dict[str, Any]:
    """Return the answers of every read of a log up to a position."""
    log = await open_log(options(home), WORKSPACE, "unknown", screened=True)
    raw = await RawWorkspace.open(options(home), WORKSPACE)
    point = AtPosition(up_to)
    try:
        messages = [message async for message in raw.follow(until=up_to)]
        runs = sorted(await log.runs())
        streams = {subjects.parse(message.subject)[0] for message in messages}
        answers: dict[str, Any] = {
            "messages": messages,
            "runs": runs,
            "boards": {run: await log.read_boards(run, point) for run in runs},
            "whole": {run: await log.read_run(run, point) for run in runs},
            "streams": await log.read_streams(sorted(streams, key=str), point),
            "tails": {
                each: await log.read(each, after=2, up_to=point, inside=True) for each in streams
            },
            "at": [await log.at(position) for position in range(1, up_to + 1)],
            "ends": [await log.end(AtTime(message.stamp)) for message in messages],
            "newest": {each: await log.last(each) for each in streams},
            "roles": await log.read_kind("role", point),
            "raw page": await raw.page(up_to // 3, 10),
        }
    finally:
        await log.close()
        await raw.close()
    return answers


def _check(home: Path, progress: recheck.Progress = recheck._silent) -> list[str]:
    async def check() -> list[str]:
        findings: list[str] = []
        raw = await RawWorkspace.open(options(home), WORKSPACE, damaged=True)
        try:
            await recheck.check(raw, lambda each: findings.append(each.fact), progress)
        finally:
            await raw.close()
        return findings

    return asyncio.run(check())


class Archived(msgspec.Struct):
    """A record of which all but the newest commits are in the archive alone."""

    home: Path
    record: hansard.Record
    runs: Runs
    before: dict[str, Any]
    after: dict[str, Any]
    end: int


@pytest.fixture(scope="module")
def archived(place: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    """Make runs, roll in the middle of an open one, and archive everything before."""
    home = tmp_path_factory.mktemp("rolled") / "data"
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as record:
        runs = make_runs(record)
        with hansard.connect(workspace=WORKSPACE, data_dir=home) as other:
            roll(home, None)
            team(other)
        end = asyncio.run(_head(home))
        before = asyncio.run(_answers(home, end))
        assert roll(home, place) == (2, [0, 1])
        after = asyncio.run(_answers(home, end))
        yield Archived(home, record, runs, before, after, end)


async def _head(home: Path) -> int:
    raw = await RawWorkspace.open(options(home), WORKSPACE)
    try:
        return (await raw.extent()).last
    finally:
        await raw.close()


def test_every_read_is_the_same_from_the_archive(archived: Archived) -> None:
    """Reads of streams, runs, points and raw messages equal those before the roll."""
    for name, answer in archived.before.items():
        assert archived.after[name] == answer, name


def test_an_archived_run_goes_on_in_the_live_generation(archived: Archived) -> None:
    """A failed and a forked run are resumed from the archive; the record checks as sound."""
    forked = archived.record.fork(archived.runs.team, at="researcher_1@6")
    with archived.record.run(run=forked, agent="researcher_1", role="researcher") as session:

        @session.tool(effects="pure")
        def more(x: int) -> int:
            return x

        assert more(1) == 1
    assert _check(archived.home) == []
    assert asyncio.run(_head(archived.home)) > archived.end


@pytest.mark.later
def test_without_its_archive_writers_go_on_and_readers_are_refused(tmp_path: Path) -> None:
    """New runs and open ones are recorded; a reader of an archived run is refused with the address
    of the archive, the positions and the remedy, and reads it once the archive is back.
    """
    home, place = tmp_path / "data", tmp_path / "archive"
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as record:
        old = team(record)
        assert roll(home, str(place)) == (1, [0])
    place.rename(tmp_path / "away")
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as record:
        with record.run("w", agent="a", role="r") as session:
            session.message("assistant", "written without the archive")
        assert record.state(session.run).life.status == "completed"
        with pytest.raises(ArchiveUnavailable, match=r"no object of this workspace\): mount"):
            record.state(old)
        (tmp_path / "away").rename(place)
        assert record.state(old).life.status == "completed"


@pytest.mark.later
def test_a_roll_stores_and_deletes_nothing_while_the_archive_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a disk that is not mounted: no second archive is begun, and none is partial."""
    home, place, away = tmp_path / "data", tmp_path / "archive", tmp_path / "away"
    command = ["--data-dir", home, "-w", WORKSPACE, "tiers", "sql", "--only-archive"]
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as record:
        old = team(record)
        assert roll(home, str(place)) == (1, [0])
        new = team(record)
        place.rename(away)
        monkeypatch.setenv("HANSARD_ARCHIVE", str(place))
        for archive in (False, True):  # without a folder, and with an empty one
            with pytest.raises(ArchiveUnavailable, match="it has no object of this workspace"):
                roll(home, str(place))
            result = ran(capsys, monkeypatch, [*command, "SELECT count(*) FROM events"])
            assert (result.code, "no object of this workspace): mount" in result.err) == (2, True)
            assert place.exists() is archive
            place.mkdir(exist_ok=True)
        place.rmdir()
        (manifest,) = (away / WORKSPACE / "log").iterdir()
        kept = manifest.rename(tmp_path / "kept")
        away.rename(place)
        with pytest.raises(Corrupt, match="nothing is stored there or deleted from the broker"):
            roll(home, str(place))
        kept.rename(place / WORKSPACE / "log" / manifest.name)
        result = ran(capsys, monkeypatch, [*command, "SELECT count(*) FROM events"])
        assert "store them with 'hansard tiers roll'" in result.err
        assert roll(home, str(place)) == (2, [1])
        assert [record.state(each).life.status for each in (old, new)] == ["completed"] * 2


@pytest.mark.later
@pytest.mark.parametrize("cached", [True, False])
def test_an_archive_that_is_gone_is_reported_also_while_a_cache_has_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cached: bool,
) -> None:
    """By check, show and clean, with the positions; no read creates the folder again."""
    home, place = tmp_path / "data", tmp_path / "archive"
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as record:
        old = team(record)
        assert roll(home, str(place)) == (1, [0])

        def call(*arguments: str) -> Any:
            return ran(
                capsys, monkeypatch, ["--data-dir", home, "-w", WORKSPACE, *arguments, "--json"]
            )

        assert call("check").code == 0
        assert record.state(old).life.status == "completed"
        away = place.rename(tmp_path / "away")
        if not cached:
            archiving._archive.cache_clear()
            archiving._tiers.cache_clear()
            shutil.rmtree(home / "archive-cache")
        result = call("check")
        first = result.lines[0]
        assert (result.code, first["finding"], first["position"]) == (1, "archive", 1)
        assert "at positions 1 to " in first["fact"]
        assert "hansard check" not in result.out
        assert result.lines[-1]["wrong"] >= 1
        assert [each["tier"] for each in call("tiers", "show").lines[:-1]] == ["missing", "live"]
        assert "at positions 1 to " in call("tiers", "clean").err
        held = call("status")
        if not cached:
            reason = "no object of this workspace): mount"
            assert (held.code, reason in held.lines[1]["unavailable"]) == (1, True)
        assert held.lines[1]["damage"] == []
        assert not place.exists()
        away.rename(place)
        assert call("check").code == 0
        assert call("tiers", "show").lines[0]["tier"] == "archive"


def test_a_check_reads_the_archive_once_and_reports_its_progress(
    archived: Archived, place: str
) -> None:
    """On a machine without a cache: each segment in one request, then its parts from the disk. A
    manifest that was replaced is reported, and what the disk knows is kept.
    """
    shutil.rmtree(archived.home / "archive-cache")
    archiving._archive.cache_clear()
    archiving._tiers.cache_clear()
    archive, reports = archive_at(WORKSPACE, place), list[tuple[int, int]]()

    def take(what: str, done: int, total: int) -> None:
        if what == "archived segments":
            reports.append((done, total))

    assert _check(archived.home, take) == []
    assert reports == [(number, len(reports)) for number in range(1, len(reports) + 1)]
    segments = asyncio.run(archive.segments(1, sys.maxsize))  # other tests may roll the log again
    assert len(reports) >= len(segments) >= 2
    assert archive.tiers.fetched.bytes == sum(each.footer[1] for each in segments)
    store, name = archive.tiers.store, archive._manifest_name(1)
    body = asyncio.run(store.get(name))
    assert body is not None
    asyncio.run(store.delete(name))
    asyncio.run(store.create(name, body.replace(b'"count"', b'"version": 1, "count"', 1)))
    assert _check(archived.home) == []
    asyncio.run(store.delete(name))
    asyncio.run(store.create(name, body.replace(b'"chain": "', b'"chain": "0', 1)))
    assert "1 of 1 segment at positions 1 to " in _check(archived.home)[0]
    assert asyncio.run(archive.segments(1, 1))[0] in archive.tiers.known(WORKSPACE)
    asyncio.run(store.delete(name))
    asyncio.run(store.create(name, body))
    assert _check(archived.home) == []


@pytest.mark.slow
@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_changes_when_a_log_is_rolled_and_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """By a day ahead, a log is rolled and its stream deleted at once; by a day back, neither."""
    home, real = tmp_path / "data", jetstream_roll._now

    async def work() -> jetstream_roll.Tended:
        broker = await Broker.open(options(home))
        archive = archive_at(WORKSPACE, str(tmp_path / "archive"))
        try:
            policy = jetstream_roll.Policy(age_s=3_600)
            return await tend(broker, WORKSPACE, policy, archive)
        finally:
            await broker.close()

    with hansard.connect(workspace=WORKSPACE, data_dir=home) as record:
        team(record)
        end = asyncio.run(_head(home))
        before = asyncio.run(_answers(home, end))
        monkeypatch.setattr(jetstream_roll, "_now", lambda each: real(each) + jump_s)
        result = asyncio.run(work())
        assert (result.roll.sealed, result.deleted) == ((True, [0]) if jump_s > 0 else (False, []))
        assert asyncio.run(_answers(home, end)) == before


@pytest.mark.later
async def test_an_archive_that_is_gone_is_no_damage_that_the_watch_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The watch of `hansard up` finds nothing, and reads the log whole once the archive is back."""
    home, place, away = tmp_path / "data", tmp_path / "archive", tmp_path / "away"
    monkeypatch.setattr(running, "COMPARE_S", 0.05)
    async with hansard.connect_async(workspace=WORKSPACE, data_dir=home) as record:
        async with record.run("w", agent="a", role="r") as session:
            await session.message("assistant", "archived")
        assert await asyncio.to_thread(roll, home, str(place)) == (1, [0])
        place.rename(away)
        archiving._archive.cache_clear()
        archiving._tiers.cache_clear()
        shutil.rmtree(home / "archive-cache", ignore_errors=True)
        lines, broker = list[str](), await find_broker(Settings(workspace=WORKSPACE, data_dir=home))
        watcher = running.Watcher(broker, home, lines.append)

        def watched() -> Watched:
            report = read_watch(home)
            return report.workspaces[WORKSPACE] if report is not None else Watched()

        async def read_whole() -> bool:
            return watched().read_whole is not None

        async def reported() -> bool:
            return "log not read whole" in caplog.text

        async with watcher.keep():
            watcher.workspace(WORKSPACE)
            await until(reported)
            assert watched().read_whole is None
            away.rename(place)
            await until(read_whole)
            assert (watched().findings, lines) == ([], [])
        await broker.release()


@pytest.mark.later
async def test_a_full_disk_does_not_end_the_rolling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hansard up` reports that a segment cannot be written, and stores it once there is room."""
    settings = Settings(
        workspace="full", data_dir=tmp_path, archive=str(tmp_path / "a"), roll_commits=1
    )
    async with (
        hansard.connect_async(workspace="full", data_dir=tmp_path) as record,
        record.run("w", agent="a", role="r") as session,
    ):
        await session.message("assistant", "archived")
    monkeypatch.setattr(rolling, "RETRY_S", 0.05)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no such folder"))
    broker, lines = await find_broker(settings), list[str]()

    async def reports(text: str) -> bool:
        return any(text in line for line in lines)

    async with rolling.rolling(settings, broker, lines.append):
        await until(lambda: reports("older commits stay on the broker"))
        monkeypatch.setattr(tempfile, "tempdir", None)
        await until(lambda: reports("is in the archive"))
    await broker.release()
    assert (tmp_path / "a/full/log").is_dir()


@pytest.mark.later
def test_what_killed_processes_left_is_deleted_and_nothing_else(
    archived: Archived,
    place: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first call lists it. A segment of a generation that is not archived yet is kept."""
    store = archive_at(WORKSPACE, place).tiers.store
    before = asyncio.run(store.names(WORKSPACE))
    left, kept = (
        f"{WORKSPACE}/segments/{first:020d}-{first:020d}-0123456789abcdef.segment"
        for first in (1, 10**9)
    )
    for name in (left, kept):
        asyncio.run(store.create(name, b"left"))
    line = ("--data-dir", archived.home, "-w", WORKSPACE, "tiers")
    for arguments, deleted in (((), False), (("--yes",), True), ((), None)):
        answer = ran(capsys, monkeypatch, [*line, "clean", *arguments, "--json"])
        assert answer.code == 0, answer.err
        found = [(each["object"], each["bytes"], each["deleted"]) for each in answer.lines]
        assert found == ([(left, 4, deleted)] if deleted is not None else [])
    assert (
        "; 1 at positions not archived yet kept" in ran(capsys, monkeypatch, [*line, "clean"]).err
    )
    assert asyncio.run(store.names(WORKSPACE)) == before | {kept: 4}
    asyncio.run(store.delete(kept))


@pytest.mark.later
def test_the_sizes_of_a_log_over_time_are_in_sql(
    archived: Archived,
    place: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row for each archived generation, whose rows are stored, and one for the rest."""
    with monkeypatch.context() as patch:
        patch.setenv("HANSARD_ARCHIVE", place)
        line = ["--data-dir", archived.home, "-w", WORKSPACE, "tiers"]
        rolled = ran(capsys, patch, [*line, "roll"])
        assert rolled.code == 0, rolled.err
        answer = ran(capsys, patch, [*line, "sql", "FROM log_generations", "--json"])
        status = ran(capsys, patch, [*line[:-1], "status", "--json"])
        words = ran(capsys, patch, [*line[:-1], "status"]).out
    assert answer.code == 0, answer.err
    rows = answer.lines
    assert [row["first"] for row in rows[1:]] == [row["last"] + 1 for row in rows[:-1]]
    assert sum(row["commits"] for row in rows) == rows[-1]["last"]
    assert all(row["began"] <= row["ended"] for row in rows)
    log = status.lines[1]["streams"][0]
    kept = sum(row["commits"] for row in rows if row["last"] > archived.end)
    assert (log["messages"], log["archived"]) == (rows[-1]["last"], rows[-1]["last"] - kept)
    assert f"{log['name']} {kept}" in " ".join(words.split())
    for row in rows[:2]:
        assert row["commit_bytes"] > row["commits"]
        assert row["segment_bytes"] > 0
        assert row["table_bytes"] > 0
