"""Hostile providers and clients: an exact record, the same replay, no hang, no key on record."""

import asyncio
import contextlib
import gzip
import itertools
import json
import random
import string
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.ext.models.exchange import (
    BROKEN,
    CLOSED,
    COMPLETE,
    JOINED_BYTES_MAX,
    chunk,
    data_of,
    pieces_of,
    secrets_of,
)
from tests.models.hostile import Answer, HostileProvider, Script, Workspace, asking, hostile

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'


def piece(data: bytes) -> bytes:
    """Return data as a chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def sized(size: int, body: bytes, more: bytes = b"") -> bytes:
    """Return a response that says it has a size."""
    return HEAD + b"content-length: %d\r\n%s\r\n" % (size, more) + body


CASES = {
    "malformed events": (
        Script((CHUNKED, piece(b"data: {]\n\n\xff\xfe: \r\r"), piece(EVENT), b"0\r\n\r\n")),
        COMPLETE, "1 events are not JSON objects"),
    "an event cut short": (Script((CHUNKED, piece(EVENT + EVENT[:9]), b"0\r\n\r\n")), COMPLETE, ""),
    "a body shorter than its length": (Script((sized(90, EVENT),)), BROKEN, ""),
    "a body longer than its length": (Script((sized(9, EVENT),)), COMPLETE, ""),
    "a length that is no number": (Script((sized(0, b"").replace(b": 0", b": x"),)), BROKEN, None),
    "a chunk that has no size": (Script((CHUNKED, piece(EVENT), b"zz\r\n")), BROKEN, ""),
    "a chunk that ends early": (Script((CHUNKED, piece(EVENT)[:-9])), BROKEN, ""),
    "no end of the chunks": (Script((CHUNKED, piece(EVENT))), BROKEN, ""),
    "no answer": (Script(), BROKEN, None),
    "a reset before the answer": (Script(end="reset"), BROKEN, None),
    "a reset in the middle": (
        Script((CHUNKED, piece(EVENT)), end="reset", wait_s=0.05), BROKEN, ""),
    "no HTTP": (Script((b"SSH-2.0-OpenSSH_9.6\r\n",)), BROKEN, None),
    "a head without end": (Script((HEAD + b"x: " + b"y" * 200_000,)), BROKEN, None),
    "gzip that is none": (
        Script((sized(len(EVENT), EVENT, b"content-encoding: gzip\r\n"),)), COMPLETE,
        "damaged gzip data"),
    "gzip cut short": (
        Script((sized(20, gzip.compress(EVENT)[:20], b"content-encoding: gzip\r\n"),)), COMPLETE,
        "gzip data end early"),
    "an unknown coding": (
        Script((sized(len(EVENT), EVENT, b"content-encoding: x\r\n"),)), COMPLETE,
        "unknown content coding"),
    "no body": (Script((b"HTTP/1.1 204 No Content\r\n\r\n",)), COMPLETE, ""),
}  # fmt: skip
"""Scripts, how their exchanges end on record, and the problem of the facts; None: no response."""


async def test_each_malformed_answer_is_recorded_and_replayed_as_it_was(data_dir, workspace):
    """Status, bytes and end reach the client as they came; the record has them all, and a replay
    without the provider gives them again.
    """
    answers: dict[str, Answer] = {}
    async with hostile(data_dir, workspace) as at:
        async with at.proxied("r") as url:
            for name, (script, _, _) in CASES.items():
                at.provider.script = script
                answers[name] = await asking(url, json.dumps({"model": name}).encode())
        assert len(at.provider.requests) == len(CASES)
        items = await at.items("r")
        for (name, (_, how, problem)), recorded in zip(CASES.items(), items, strict=True):
            end = recorded[-1]["end"]
            assert end["how"] == how, name
            received = answers[name]
            assert received.broke is (how == BROKEN and problem is not None), name
            if problem is None:
                assert "head" not in recorded[0]
                assert received.status == 502, name
                assert b"without an answer" in received.body
                assert end["error"]
            else:
                body = b"".join(data_of(each["chunk"]) for each in recorded[1:-1])
                assert body == received.body, name
                assert (end.get("facts", {}).get("problem") or "").startswith(problem), name
        async with at.proxied("r", "offline") as url:
            for name in reversed(CASES):
                assert await asking(url, json.dumps({"model": name}).encode()) == answers[name]
        assert len(at.provider.requests) == len(CASES)


async def pieces_at(url: str) -> list[bytes]:
    """Return the pieces of an answer as they are framed in its transfer, to its clean end."""
    host, port = url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /{url.split('/', 3)[3]} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}"
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    writer.close()
    return pieces


def fast_stream() -> tuple[bytes, bytes]:
    """Return a body, and its 2,001 pieces as they are transferred."""
    drawn = random.Random(45)
    sent = b"".join(EVENT + "ü".encode() * drawn.randrange(4000) for _ in range(800))
    cuts = [0, *sorted(drawn.sample(range(1, len(sent)), 2000)), len(sent)]
    return sent, b"".join(piece(sent[a:b]) for a, b in itertools.pairwise(cuts))


async def test_a_fast_stream_of_a_sync_client_takes_few_commits(data_dir, workspace, monkeypatch):
    """Pieces that are there already join one chunk; a replay has all boundaries."""
    sent, whole = fast_stream()

    def pieces() -> list[bytes]:
        with (
            hansard.record_http(),
            httpx2.Client(timeout=60) as client,
            client.stream("POST", f"{url}/chat/completions", json={"model": "m"}) as response,
        ):
            return [*response.iter_raw()]

    def program() -> None:
        with hansard.connect(workspace, data_dir=data_dir) as record:
            with record.run("w", run="r") as session:
                received = pieces()
                [step] = session.state.steps.values()
            assert b"".join(received) == sent
            assert len(received) > 2000
            assert len(step.items) < 200
            with record.run(run="r", mode="offline"):
                assert pieces() == received

    async with HostileProvider() as provider:
        url = f"{provider.url}/v1"
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        provider.script = Script((CHUNKED, whole, b"0\r\n\r\n"))
        await asyncio.to_thread(program)


async def test_a_fast_stream_is_recorded_in_few_chunks_and_replayed_in_all_pieces(
    data_dir, workspace
):
    """Pieces that arrive while earlier ones are being recorded join one chunk of limited size; a
    replay has all boundaries, also those within a character.
    """
    sent, whole = fast_stream()
    async with hostile(data_dir, workspace) as at:
        at.provider.script = Script((CHUNKED, whole, b"0\r\n\r\n"))
        async with at.proxied("r") as url:
            received = await pieces_at(url)
        [[_, *chunks, end]] = await at.items("r")
        async with at.proxied("r", "offline") as url:
            assert await pieces_at(url) == received
    assert b"".join(received) == sent
    assert end["end"]["pieces"] == len(received) > 2000
    assert 2 <= len(chunks) <= 200
    assert max(each["$blob"]["size"] for each in chunks if "$blob" in each) < 2 * JOINED_BYTES_MAX


def test_a_chunk_keeps_each_piece_and_its_time():
    """Of text, of text cut within a character, and of other bytes."""
    others = [(b"\xff", 3), (b"", 3), (b"b", 4)]
    for pieces in ([(b"a", 1)], [(b"a\xc3", 1), (b"\xbcb", 2)], others):
        recorded = chunk(b"".join(data for data, _ in pieces), pieces)
        assert [*pieces_of(json.loads(json.dumps(recorded)))] == pieces
        assert ("base64" in recorded) is (pieces is others)


@pytest.mark.parametrize("end", ["endless", "hang"])
async def test_a_client_that_leaves_ends_a_stream_that_has_no_end(data_dir, workspace, end):
    """The provider's connection is closed, and the step ends with the pieces so far."""
    async with hostile(data_dir, workspace) as at:
        at.provider.script = Script((CHUNKED, piece(EVENT), piece(EVENT)), end)
        async with at.proxied("r") as url:
            assert len((await asking(url, most=2 * len(EVENT))).body) >= 2 * len(EVENT)
            async with asyncio.timeout(10):
                await at.provider.left.wait()
        [items] = await at.items("r")
        assert items[-1]["end"]["how"] == CLOSED
        assert items[-1]["end"]["facts"]["model"] == "m"


async def test_a_client_that_cancels_before_the_head_is_on_record(data_dir, workspace):
    """A request whose client left before any answer ended so, and the provider is left, too."""
    async with hostile(data_dir, workspace) as at:
        at.provider.script = Script(end="hang")
        async with at.proxied("r") as url:
            request = asyncio.ensure_future(asking(url))
            await at.provider.arrived.wait()
            request.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await request
            async with asyncio.timeout(10):
                await at.provider.left.wait()
        [items] = await at.items("r")
        assert [*items[0]] == ["end"]
        assert items[0]["end"]["how"] == CLOSED


async def test_hundreds_of_connections_at_once_are_all_answered(data_dir, workspace):
    """Of 150 clients that connect before any of them sends, each gets its answer."""
    count = 150
    async with hostile(data_dir, workspace) as at:
        at.provider.script = Script((sized(len(EVENT), EVENT, b"connection: close\r\n"),))
        async with at.proxied("r") as url:
            host, port = url.split("/")[2].split(":")
            head = f"POST /{url.split('/', 3)[3]} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            streams = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
            for number, (_, writer) in enumerate(streams):
                body = b'{"model": "%03d"}' % number
                writer.write(b"%scontent-length: %d\r\n\r\n%s" % (head.encode(), len(body), body))
            async with asyncio.timeout(60):
                answers = await asyncio.gather(*(reader.read() for reader, _ in streams))
            for _, writer in streams:
                writer.close()
        assert [answer.endswith(EVENT) for answer in answers] == [True] * count
        assert len(await at.items("r")) == count


async def test_a_request_that_is_cut_short_is_not_sent(data_dir, workspace):
    """A client that leaves within its body made no call: nothing is sent or recorded."""
    async with hostile(data_dir, workspace) as at:
        async with at.proxied("r") as url:
            host, port = url.split("/")[2].split(":")
            path = "/" + url.split("/", 3)[3]
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{{".encode()
            )
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            assert (await asking(url, b"")).status == 502  # a whole one reaches the provider
        assert len(at.provider.requests) == 1
        assert len(await at.items("r")) == 1


BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=4)


@st.composite
def scripts(draw) -> Script:
    """Draw a response whose framing may lie."""
    pieces = draw(BODIES)
    whole = b"".join(pieces)
    extra = draw(st.sampled_from([b"", b"content-encoding: gzip\r\n", b"x-ratelimit-a: 1\r\n"]))
    framing = draw(st.sampled_from(["chunked", "cut", "exact", "short", "long", "until close"]))
    end = draw(st.sampled_from(["close", "reset"]))
    if framing in ("chunked", "cut"):
        rest = () if framing == "cut" else (b"0\r\n\r\n",)
        head = HEAD + extra + b"transfer-encoding: chunked\r\n\r\n"
        return Script((head, *map(piece, pieces), *rest), end, 0.002)
    if framing == "until close":
        return Script((HEAD + extra + b"\r\n", *pieces), "close", 0.002)
    size = len(whole) + {"exact": 0, "short": -1, "long": 7}[framing]
    return Script((sized(max(size, 0), b"", extra), *pieces), end, 0.002)


def test_any_answer_replays_as_it_was_received(data_dir, workspace):
    """Of responses with any framing, length and end, the replay is equal to what the client got."""
    drawn: list[Script] = []

    @given(scripts())
    def collect(script):
        drawn.append(script)

    collect()

    async def check() -> None:
        async with hostile(data_dir, workspace) as at:
            received = []
            async with at.proxied("r") as url:
                for number, script in enumerate(drawn):
                    at.provider.script = script
                    received.append(await asking(url, b'{"model": "%d"}' % number))
            async with at.proxied("r", "offline") as url:
                for number, answer in enumerate(received):
                    assert await asking(url, b'{"model": "%d"}' % number) == answer, drawn[number]

    asyncio.run(check())


# ---------------------------------------------------------------- keys

PLACES = ("authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "query")


def keyed(place: str, key: str) -> tuple[dict[str, str], str]:
    """Return the headers and the query of a request that has its key in a place."""
    if place == "query":
        return {}, f"?key={key}&alt=json"
    value = {"authorization": f"Bearer {key}", "cookie": f"a=b; session={key}"}.get(place, key)
    return {place: value}, ""


def stored(folder: Path) -> bytes:
    """Return all stored bytes."""
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


def test_no_key_is_in_any_stored_byte(tmp_path):
    """Whatever the place of a key, and wherever the provider repeats it (a header, a body in any
    framing, an event, a compressed error), the client gets its answer and the record has no key.
    """
    drawn = random.Random(45)
    letters = string.ascii_letters + string.digits + "-_"
    keys = [
        (place, "sk-" + "".join(drawn.choices(letters, k=size)))
        for place in PLACES
        for size in (16, 60)
    ]

    async def check() -> None:
        async with hostile(tmp_path, "w") as at:
            await _with_keys(at, keys)

    asyncio.run(check())
    everything = stored(tmp_path)
    assert b"wrong key" in everything
    for place, key in keys:
        assert key.encode() not in everything, place
        assert key[:16].encode() not in everything, place


async def _with_keys(at: Workspace, keys: list[tuple[str, str]]) -> None:
    async with at.proxied("r") as url:
        for place, key in keys:
            headers, query = keyed(place, key)
            error = json.dumps({"error": {"message": f"wrong key: {key}"}}).encode()
            more = f"set-cookie: k={key}\r\nx-request-id: {key}\r\nx-key: {key}\r\n".encode()
            packed = gzip.compress(error)
            coded = more + b"content-encoding: gzip\r\n"
            for script, expected in (
                (Script((sized(len(error), error, more),)), error),
                (Script((CHUNKED, piece(b"data: " + error + b"\n\n"), b"0\r\n\r\n")),
                 b"data: " + error + b"\n\n"),
                (Script((sized(len(packed), packed, coded),)), packed),
            ):  # fmt: skip
                at.provider.script = script
                body = json.dumps({"model": "m", "messages": [], "user": key}).encode()
                assert (await asking(url + query, body, headers)).body == expected
    assert all(secret.encode() in b"".join(at.provider.requests) for _, secret in keys)


def test_short_words_are_no_keys():
    """A key that may be an ordinary word is not searched in bodies; headers are never recorded."""
    assert secrets_of([("authorization", "Bearer none"), ("cookie", "a=b")], "key=test") == ()
