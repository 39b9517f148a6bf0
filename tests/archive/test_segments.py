"""Sealed generations in an archive: stored, verified, read as from the stream, and faults."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import random
import re
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from hansard.bus import archive as archiving
from hansard.bus import marks, subjects
from hansard.bus.archive import archive_at, archived, segment
from hansard.bus.archive import tiers as tiering
from hansard.bus.archive.archived import WorkspaceArchive
from hansard.bus.archive.store import ObjectStore
from hansard.bus.errors import ArchiveUnavailable, BadArchive
from hansard.bus.log import Origin
from hansard.bus.sources import Archived, End, Message, Source, end_of
from hansard.domain.errors import Corrupt
from tests.archive.stores import S3, START_S, Fault, s3_server

WORKSPACE = "w"
RUNS = 300
T = TypeVar("T")


def opened(url: str | ObjectStore, cache: Path, workspace: str = WORKSPACE) -> WorkspaceArchive:
    """Open an archive with caches of its own, as another process would."""
    store = ObjectStore(url) if isinstance(url, str) else url
    return WorkspaceArchive(tiering.Tiers(store, cache, 1 << 26, 1 << 28), workspace)


class Listed:
    """A source that reads a list: the plainest implementation of the port."""

    def __init__(self, messages: Sequence[Message], first: int, last: int) -> None:
        self.first, self.last = first, last
        self.messages = [each for each in messages if first <= each.position <= last]

    def matching(self, *filters: str) -> list[Message]:
        """Return the messages that match any filter."""
        return [m for m in self.messages if any(subjects.matches(f, m.subject) for f in filters)]

    async def many(self, filters: Sequence[str]) -> list[Message]:
        """See `Source.many`."""
        return self.matching(*filters)

    async def named(self, names: Sequence[str]) -> list[Message]:
        """See `Source.named`."""
        distinct = {*names}
        return [message for message in self.messages if message.subject in distinct]

    async def names(self, pattern: str) -> list[str]:
        """See `Source.names`."""
        return [message.subject for message in self.matching(pattern)]

    async def newest(self, pattern: str) -> Message | None:
        """See `Source.newest`."""
        return max(self.matching(pattern), key=lambda m: m.position, default=None)

    async def end(self, pattern: str) -> End | None:
        """See `Source.end`."""
        newest = await self.newest(pattern)
        return end_of(newest) if newest is not None else None

    async def at(self, position: int) -> Message | None:
        """See `Source.at`."""
        return next((each for each in self.messages if each.position == position), None)

    async def since(self, stamp: int) -> Message | None:
        """See `Source.since`."""
        return next((each for each in self.messages if each.stamp > stamp), None)

    async def chunks(
        self, after: int, until: int, pattern: str
    ) -> AsyncGenerator[list[Message], None]:
        """See `Source.chunks`."""
        messages = [m for m in self.matching(pattern) if after < m.position <= until]
        for start in range(0, len(messages), 100):
            yield messages[start : start + 100]


def log(count: int) -> list[Message]:
    """Return messages of many streams, with two positions missing, foreign subjects, origins, and
    a clock that goes back once.
    """
    rng = random.Random(47)
    versions: dict[str, int] = {}
    messages: list[Message] = []
    for position in range(1, count + 1):
        run = f"hansard.{WORKSPACE}.run.r{rng.randrange(RUNS)}"
        prefix = rng.choice(
            [
                *[f"{run}.agent.worker.a{rng.randrange(3)}"] * 6,
                f"{run}.life",
                f"{run}.board.k{rng.randrange(3)}",
                f"hansard.{WORKSPACE}.price.p{rng.randrange(4)}",
            ]
        )
        versions[prefix] = versions.get(prefix, 0) + rng.randrange(1, 3)
        body = rng.randbytes(rng.randrange(60)) * rng.randrange(1, 20)
        origin = Origin("other", position, "2026-01-01T00:00:00Z") if position % 50 == 0 else None
        fault = Corrupt("header", "unreadable") if position == 70 else None
        subject = f"{prefix}.{versions[prefix]}" if position != 90 else f"{prefix}.x01"
        stamp = 1_000 * (position if not 5_200 < position <= 6_000 else position - 2_000)
        messages.append(Message(position, stamp, subject, body, origin, fault))
    return [message for message in messages if message.position not in (40, 41)]


def plain(*messages: Message | None) -> list[tuple]:
    """Return all of messages in a form that can be compared: an error equals only itself."""
    return [(*msgspec.structs.astuple(m)[:-1], str(m.fault)) for m in messages if m is not None]


COUNT = 9_000
MESSAGES = log(COUNT)
WHOLE = Listed(MESSAGES, 1, COUNT)


@pytest.fixture
def small_segments() -> Iterator[None]:
    """Let a generation take several segments, and a segment several blocks and pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archived, "SEGMENT_BYTES_MAX", 100_000)
        patch.setattr(archived, "WRITE_MESSAGES", 256)
        patch.setattr(segment, "BLOCK_MESSAGES_MAX", 700)
        patch.setattr(segment, "PAGE_STREAMS_MAX", 90)
        yield


async def filled(url: str, cache: Path) -> tuple[WorkspaceArchive, list[Archived]]:
    """Archive two generations, the second once more by another process's archive."""
    archive = opened(url, cache)
    one, two = Listed(MESSAGES, 1, 5_000), Listed(MESSAGES, 5_001, COUNT)
    generations = [await archive.store(0, one), await archive.store(1, two)]
    again = await opened(url, cache / "b").store(1, two)
    assert again == generations[1]
    return archive, generations


@pytest.mark.usefixtures("small_segments")
async def test_an_archived_log_answers_each_read_as_before(place: str, tmp_path: Path) -> None:
    """Every read of the port, over several segments, equals that of a plain list."""
    archive, generations = await filled(place, tmp_path)
    assert [each.messages for each in generations] == [4_998, 4_000]
    assert len(await archive.segments(1, COUNT)) >= 4
    source: Source = archive.source(generations)
    assert (source.first, source.last) == (1, COUNT)
    rng = random.Random(1)
    run = f"hansard.{WORKSPACE}.run.r7"
    filters = [
        f"{run}.agent.worker.a1.*",
        f"{run}.>",
        f"{run}.board.>",
        f"{run}.agent.*.a2.>",
        f"hansard.{WORKSPACE}.price.>",
        f"hansard.{WORKSPACE}.run.*.life.*",
        f"hansard.{WORKSPACE}.run.*.board.k1.*",
        f"hansard.{WORKSPACE}.run.*.life.5",
        f"hansard.{WORKSPACE}.run.none.>",
        f"hansard.{WORKSPACE}.>",
        rng.choice(MESSAGES).subject,
    ]
    for each in filters:
        assert plain(*await source.many([each])) == plain(*WHOLE.matching(each)), each
        assert sorted(await source.names(each)) == sorted(await WHOLE.names(each)), each
        assert plain(await source.newest(each)) == plain(await WHOLE.newest(each)), each
        assert await source.end(each) == await WHOLE.end(each), each
    assert plain(*await source.many(filters[:6])) == plain(*WHOLE.matching(*filters[:6]))
    names = [message.subject for message in rng.sample(MESSAGES, 300)]
    names += [f"{run}.life.99999", f"hansard.{WORKSPACE}.run.none.life.1"]
    assert plain(*await source.named(names)) == plain(*await WHOLE.named(names))
    for position in [
        1,
        39,
        40,
        41,
        42,
        3_500,
        5_000,
        5_001,
        5_200,
        5_500,
        COUNT,
        COUNT + 1,
        0,
        70,
        90,
    ]:
        assert plain(await source.at(position)) == plain(await WHOLE.at(position)), position
        later = await WHOLE.since(position * 1_000)
        assert plain(await source.since(position * 1_000)) == plain(later), position
    for after, until, pattern in [
        (0, COUNT, filters[9]),
        (4_990, 5_020, filters[9]),
        (0, COUNT, filters[1]),
        (300, 8_000, filters[5]),
    ]:
        chunks = [chunk async for chunk in source.chunks(after, until, pattern)]
        expected = [c async for c in WHOLE.chunks(after, until, pattern)]
        assert plain(*chain.from_iterable(chunks)) == plain(*chain.from_iterable(expected))
        assert all(len(chunk) <= 256 for chunk in chunks)


@pytest.mark.usefixtures("small_segments")
async def test_two_processes_may_archive_one_generation(place: str, tmp_path: Path) -> None:
    """Both end with the same generation, and each position is in one segment only."""
    both = [opened(place, tmp_path, "v") for _ in range(2)]
    messages = [
        msgspec.structs.replace(m, subject=m.subject.replace(".w.", ".v.", 1))
        for m in MESSAGES[:3_000]
    ]
    source = Listed(messages, 1, 3_002)
    one, two = await asyncio.gather(*(each.store(0, source) for each in both))
    assert one == two
    segments = await opened(place, tmp_path, "v").segments(1, 3_002)
    assert sum(each.count for each in segments) == len(messages)
    assert segments[-1].last == 3_002


async def test_the_tiers_are_bounded_and_used_in_their_order(tmp_path: Path) -> None:
    """Memory first, then disk, then the store; each within its bytes, and counted."""
    store = ObjectStore(str(tmp_path / "archive"))
    tiers = tiering.Tiers(store, tmp_path / "cache", memory_bytes=400_000, disk_bytes=300_000)
    archive = WorkspaceArchive(tiers, WORKSPACE)
    source = archive.source([await archive.store(0, WHOLE)])
    pattern = f"hansard.{WORKSPACE}.run.r7.>"
    assert await source.many([pattern]) == WHOLE.matching(pattern)
    requests = tiers.fetched.hits
    await source.many([pattern])
    assert tiers.figures()["L1"].hits > 0
    other = opened(store, tmp_path / "cache")
    again = other.source([await other.store(0, WHOLE)])
    assert await again.many([pattern]) == WHOLE.matching(pattern)
    assert other.tiers.fetched.hits == 0, "all of it was on the disk"
    assert tiers.fetched.hits == requests
    of_run: dict[str, list[Message]] = {}
    for message in MESSAGES:
        of_run.setdefault(segment.run_of(message.subject), []).append(message)
    for run, messages in of_run.items():
        assert plain(*await source.many([f"{run}.>"])) == plain(*messages)
        assert tiers.figures()["L1"].bytes <= 400_000
        assert tiers.figures()["L2"].bytes <= 300_000 + 8 * 128 * 1024
    assert tiers.figures()["L1"].evictions > 0
    assert tiers.figures()["L2"].evictions > 0


async def test_a_reader_keeps_the_segments_that_another_reader_makes_the_archive_forget(
    tmp_path: Path,
):
    """One reader relies on a segment that a second loaded; a third, of another generation, replaces
    what is known in between.
    """
    store = ObjectStore(str(tmp_path / "archive"))
    writer = opened(store, tmp_path / "c")
    stored = [await writer.store(n, Listed(MESSAGES, 1 + n * 100, n * 100 + 100)) for n in range(3)]
    archive = opened(store, tmp_path / "other")
    reader = contextvars.ContextVar[str]("reader")
    reached = {place: asyncio.Event() for place in ("b manifest", "a names", "a manifest")}
    passed = {place: asyncio.Event() for place in reached}

    async def stop(place: str) -> None:
        if place in reached:
            reached[place].set()
            await passed[place].wait()

    manifest, names = archive.tiers.manifest, store.names

    async def stopped_manifest(name: str) -> segment.Manifest:
        await stop(f"{reader.get()} manifest")
        return await manifest(name)

    async def stopped_names(prefix: str, **options: str) -> dict[str, int]:
        found = await names(prefix, **options)
        await stop(f"{reader.get()} names")
        return found

    async def read(name: str, *numbers: int) -> int:
        reader.set(name)
        return len(await archive.segments_of([stored[number] for number in numbers]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive.tiers, "manifest", stopped_manifest)
        patch.setattr(store, "names", stopped_names)
        b = asyncio.create_task(read("b", 0))
        await asyncio.wait_for(reached["b manifest"].wait(), 30)
        a = asyncio.create_task(read("a", 0, 1))
        await asyncio.wait_for(reached["a names"].wait(), 30)
        passed["b manifest"].set()
        assert await b == 1
        passed["a names"].set()
        await asyncio.wait_for(reached["a manifest"].wait(), 30)
        c = asyncio.create_task(read("c", 2))
        assert await c == 1
        passed["a manifest"].set()
        assert await a == 2


async def archive_of(tmp_path: Path) -> tuple[WorkspaceArchive, Archived, Path]:
    """Archive the whole log in a folder; return its only segment, too."""
    archive = opened(str(tmp_path / "archive"), tmp_path / "c")
    generation = await archive.store(0, WHOLE)
    (path,) = (tmp_path / "archive" / "w" / "segments").iterdir()
    return archive, generation, path


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100_000])


def _changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100_000] ^= 1
    path.write_bytes(data)


def _gone(path: Path) -> None:
    path.unlink()


def _no_manifest(path: Path) -> None:
    shutil.rmtree(path.parent.parent / "log")


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (_truncated, "it has 100,000 bytes, not"),
        (_changed, "are not those written: restore the object"),
        (_gone, "it does not exist; it was deleted from the store"),
        (_no_manifest, "it does not have the 8,998 messages at positions 1 to 9,000"),
    ],
)
async def test_a_damaged_archive_is_named_and_never_read(
    tmp_path: Path, damage: Callable[[Path], None], fact: str
) -> None:
    """A reader gets the object, the fault and the remedy, and no message of it."""
    archive, generation, path = await archive_of(tmp_path)
    damage(path)
    fresh = opened(archive.tiers.store, tmp_path / "fresh")
    with pytest.raises(Corrupt, match=re.escape(fact)):
        await fresh.source([generation]).many([f"hansard.{WORKSPACE}.>"])


async def test_a_store_that_hangs_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked for the object's size after that: the wait of a read has one bound."""
    archive, generation, path = await archive_of(tmp_path)
    monkeypatch.setattr("hansard.bus.archive.store.CALL_S", 0.5)
    monkeypatch.setattr(tiering, "REQUEST_S", 0.4)
    path.unlink()
    os.mkfifo(path)  # it is opened once somebody writes to it
    try:
        with pytest.raises(ArchiveUnavailable, match=r"no answer within"):
            await archive.source([generation]).many([f"hansard.{WORKSPACE}.run.r7.>"])
    finally:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


async def test_a_damaged_cache_is_read_again_from_the_store(tmp_path: Path) -> None:
    """A file of the disk cache with wrong bytes costs a request, and never an answer."""
    archive, generation, _ = await archive_of(tmp_path)
    pattern = f"hansard.{WORKSPACE}.run.r7.>"
    await archive.source([generation]).many([pattern])
    (cached,) = (tmp_path / "c").glob("*.segment")
    cached.write_bytes(bytes(cached.stat().st_size))
    other = opened(archive.tiers.store, tmp_path / "c")
    source = other.source([generation])
    assert await source.many([pattern]) == WHOLE.matching(pattern)
    assert other.tiers.fetched.hits > 0


async def test_an_archive_that_was_continued_leaves_its_index_too(tmp_path: Path) -> None:
    """A process that finds a segment stored, as after a kill, needs the store no more than one that
    stored it, to learn where a stream ends.
    """
    place, pattern = tmp_path / "archive", f"hansard.{WORKSPACE}.run.r7.agent.worker.a1.*"
    await opened(str(place), tmp_path / "a").store(0, WHOLE)
    archive = opened(str(place), tmp_path / "b")
    stored = await archive.store(0, WHOLE)
    place.rename(tmp_path / "away")
    assert await archive.source([stored]).end(pattern) == await WHOLE.end(pattern)


async def test_the_archive_of_another_log_is_refused(tmp_path: Path) -> None:
    """A log made anew under the same name is not taken for the one that was archived."""
    archive, _, _ = await archive_of(tmp_path)
    other = [msgspec.structs.replace(m, body=b"other") for m in MESSAGES]
    with pytest.raises(Corrupt, match="archive of another log of the name 'w'"):
        await archive.store(0, Listed(other, 1, COUNT))


def test_an_archive_is_opened_once_by_each_form_of_its_address(tmp_path: Path) -> None:
    """A folder and its URL, as the log lists it, share the caches of a process."""
    one = archive_at(WORKSPACE, str(tmp_path / "a b"))
    other = archive_at("another", one.place)
    assert one.tiers is other.tiers
    assert archiving.opened()[one.place] is one.tiers


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "nonsense://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """The message names the setting and the accepted forms."""
    with pytest.raises(BadArchive, match="HANSARD_ARCHIVE is"):
        ObjectStore(url)


@pytest.mark.later
async def test_a_store_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the address, the object and the remedy, in bounded time."""
    for name, text in {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "r",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("hansard.bus.archive.store.RETRIES_MAX", 0)
    generation = Archived(0, 1, 10, 10, marks.link("", 1, "s", b""), "s3://bucket/x")
    source = archive_at(WORKSPACE, "s3://bucket/x").source([generation])
    with pytest.raises(ArchiveUnavailable, match=r"archive at s3://bucket/x could not list 'w/log"):
        await source.at(3)


@pytest.mark.later
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(("503", "flip"), id="quick"),
        pytest.param(
            ("503", "slow", "flip", "cut", "killed"),
            id="all",
            marks=pytest.mark.thorough(
                quick="archive/test_segments.py::test_a_faulty_s3_never_gives_wrong_answers[quick]"
            ),
        ),
    ],
)
async def test_a_faulty_s3_never_gives_wrong_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3, faults: tuple[str, ...]
) -> None:
    """While the server is killed, slow, answers 503, cuts or flips bytes: storing and reading fail
    with an error of the archive in bounded time, and succeed once it is well again.
    """
    monkeypatch.setattr("hansard.bus.archive.store.RETRIES_MAX", 1)
    monkeypatch.setattr("hansard.bus.archive.store.REQUEST_S", 1.0)
    monkeypatch.setattr("hansard.bus.archive.store.RETRY_S", 2.0)
    pattern = f"hansard.{WORKSPACE}.run.r7.>"
    own = s3_server(tmp_path) if "killed" in faults else contextlib.nullcontext(s3)
    with own as server:
        async with Fault(server.port) as fault:
            server.lead(monkeypatch, fault.port)
            store = ObjectStore(f"{server.url}-faulty")
            for mode in faults:
                fault.mode, fault.slow_s = mode, 3.0
                if mode == "killed":
                    server.kill()
                with pytest.raises((ArchiveUnavailable, Corrupt)):
                    await opened(store, tmp_path / f"write-{mode}").store(0, WHOLE)
            if "killed" in faults:
                server.start()
            fault.mode = ""
            generation = await _patient(opened(store, tmp_path / "written").store, 0, WHOLE)
            for mode in faults:
                reader = opened(store, tmp_path / f"read-{mode}")
                await reader.tiers.footer((await reader.segments(1, COUNT))[0])
                fault.mode = mode
                if mode == "killed":
                    server.kill()
                began = asyncio.get_running_loop().time()
                with pytest.raises((ArchiveUnavailable, Corrupt)):
                    await reader.source([generation]).many([pattern])
                assert asyncio.get_running_loop().time() - began < 10
                if mode == "killed":
                    server.start()
                fault.mode = ""
                messages = await _patient(reader.source([generation]).many, [pattern])
                assert plain(*messages) == plain(*WHOLE.matching(pattern))


async def _patient(call: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Return the result of a call, repeated while a server that was killed loads its volumes."""
    until = asyncio.get_running_loop().time() + START_S
    while True:
        try:
            return await call(*arguments)
        except ArchiveUnavailable:
            if asyncio.get_running_loop().time() > until:
                raise
            await asyncio.sleep(0.5)
