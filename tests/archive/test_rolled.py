"""A real record whose log is rolled, archived and deleted: everything is read as before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.bus import recheck, subjects
from hansard.bus.archive import archive_at
from hansard.bus.errors import ArchiveUnavailable
from hansard.bus.jetstream import open_log
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.roll import tend
from hansard.bus.log import AtPosition, AtTime
from hansard.domain.errors import Corrupt
from tests.cli.planting import options
from tests.cli.support import Runs, make_runs, team

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


def _check(home: Path) -> list[str]:
    async def check() -> list[str]:
        findings: list[str] = []
        raw = await RawWorkspace.open(options(home), WORKSPACE, damaged=True)
        try:
            await recheck.check(raw, lambda each: findings.append(each.fact))
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
        with pytest.raises(
            (Corrupt, ArchiveUnavailable), match=r"archive object .* does not exist"
        ):
            record.state(old)
        (tmp_path / "away").rename(place)
        assert record.state(old).life.status == "completed"
