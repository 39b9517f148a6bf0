"""Foreign messages in the log's stream, written by something else."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.bus.jetstream import JetStreamLog
from hansard.domain.errors import Corrupt
from hansard.domain.ids import KeyStream, StreamId
from tests.bus.brokers import append, commit

KEY = KeyStream("r1", "plan")

Opener = Callable[[], Awaitable[JetStreamLog]]


async def write(log: JetStreamLog, stream: StreamId, version: int, body: bytes) -> None:
    """Publish to a stream's subject without the log."""
    subject = subjects.subject(log.workspace, stream, version)
    await log._writes.request(subject, body)


async def test_a_hole(jetstream: Opener):
    """A missing version is noticed by every read that meets it."""
    log = await jetstream()
    await log.append(append(KEY, 1))
    await write(log, KEY, 3, encode(KEY, commit(3)))
    for reading in (
        log.read(KEY),
        log.read(KEY, after=1),
        log.read_streams([KEY]),
        log.read_run("r1"),
    ):
        with pytest.raises(Corrupt, match="version 2 is missing"):
            await reading


async def test_a_stream_that_begins_late(jetstream: Opener):
    """Only a fork's stream begins after 1, and its reader gives the first version."""
    log = await jetstream()
    await write(log, KEY, 5, encode(KEY, commit(5)))
    with pytest.raises(Corrupt, match="version 1 is missing"):
        await log.read(KEY)
    assert len(await log.read(KEY, after=4)) == 1


async def test_an_overlap(jetstream: Opener):
    """A version inside another commit is noticed."""
    log = await jetstream()
    await log.append(append(KEY, 1, events=3))
    await write(log, KEY, 2, encode(KEY, commit(2)))
    with pytest.raises(Corrupt, match="version 4 is missing"):
        await log.read(KEY)


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        (b"", "not a commit"),
        (b"\xff\xfe", "not a commit"),
        (b"[" * 100_000, "not a commit"),
        (encode(KEY, commit(2)), "says version 2"),
        (encode(KEY, msgspec.structs.replace(commit(1), events=())), "no events"),
        (
            encode(KEY, msgspec.structs.replace(commit(1), stream=KeyStream("r1", "other"))),
            "says stream",
        ),
    ],
)
async def test_a_body_that_is_none(jetstream: Opener, body: bytes, fact: str):
    """A message whose body is no commit of its subject is Corrupt, wherever it is met."""
    log = await jetstream()
    await write(log, KEY, 1, body)
    for reading in (log.read(KEY), log.last(KEY), log.at(1), log.append(append(KEY, 1))):
        with pytest.raises(Corrupt, match=fact):
            await reading
    with pytest.raises(Corrupt, match=fact):
        _ = [stored async for stored in log.follow(until=1)]


async def test_spoofed_headers(jetstream: Opener):
    """Headers that a writer put on its message do not pass for the server's."""
    log = await jetstream()
    stored = append(KEY, 1)
    lie = b"NATS/1.0\r\nNats-Stream: x\r\nNats-Subject: a.b\r\nNats-Sequence: 9\r\n"
    lie += b"Nats-Time-Stamp: 2001-01-01T00:00:00Z\r\n\r\n"
    subject = subjects.subject(log.workspace, KEY, 1)
    await log._writes.request(subject, encode(KEY, stored.commit), lie)
    (read,) = await log.read(KEY)
    assert (read.position, read.time.year > 2001, read.stream) == (1, True, KEY)
