"""A server that sends more than its client reads waits, within bounds and without loss."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.ext.mcp import frames, upstream
from hansard.ext.mcp.frames import BadFrame, Notification
from hansard.ext.mcp.upstream import INBOX_BYTES_MAX, INBOX_MAX, QUESTIONS_MAX, Inbox, Lines
from tests.integrations.mcp.support import WAIT_S, Commands, Setup, Wire
from tests.integrations.mcp.test_http import STREAM, _response

pytestmark = pytest.mark.later

FLOOD = Path(__file__).with_name("programs") / "flood.py"
LINE_BYTES = 1_000
"""Approximate size of a notification, in bytes."""

KEPT_BYTES_MAX = 8 * 1024 * 1024
"""Upper bound of the bytes in pipes, read-ahead and `INBOX_MAX` notifications together."""

STILL_S = 1.0
"""Seconds without output after which a server counts as waiting."""


# ------------------------------------------------------------ the parts


def note(number: int, size: int = 10) -> Notification:
    """Return a notification of so many bytes."""
    return Notification(b"x" * size, "note", {"number": number})


async def test_who_says_much_waits_and_nothing_is_lost_or_reordered():
    """Concurrent senders are bounded, and each one's order is kept."""
    heard, waiting, received = Inbox(), 0, list[tuple[int, int]]()

    async def tell(source: int) -> None:
        nonlocal waiting
        for number in range(3 * INBOX_MAX):
            await heard.put(Notification(b"x", str(source), {"number": number}))
            waiting += 1
            assert waiting <= INBOX_MAX

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as telling:
        for source in range(3):
            telling.create_task(tell(source))
        while len(received) < 9 * INBOX_MAX:
            frame = await heard.next()
            assert isinstance(frame, Notification)
            waiting -= 1
            received.append((int(frame.method), frame.params["number"]))
    for source in range(3):
        assert [n for of, n in received if of == source] == list(range(3 * INBOX_MAX))


async def test_few_that_are_large_are_many():
    """An inbox is bounded in bytes as well; a single frame always fits."""
    heard = Inbox()
    await heard.put(note(0, INBOX_BYTES_MAX + 1))
    second = asyncio.create_task(heard.put(note(1)))
    await asyncio.sleep(0)
    assert not second.done()
    assert await heard.next() == note(0, INBOX_BYTES_MAX + 1)
    await asyncio.wait_for(second, WAIT_S)


async def test_who_waits_for_room_can_be_cancelled_and_the_end_frees_it():
    """Frames that were queued are still read; those that waited for room are not."""
    heard = Inbox()
    for number in range(INBOX_MAX):
        await heard.put(note(number))
    cancelled, freed = (asyncio.create_task(heard.put(note(-1))) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    heard.end()
    await asyncio.wait_for(asyncio.wait([cancelled, freed]), WAIT_S)
    assert cancelled.cancelled()
    assert [await heard.next() for _ in range(INBOX_MAX)] == [note(n) for n in range(INBOX_MAX)]
    assert await heard.next() is None


@given(st.lists(st.binary(max_size=60), max_size=20), st.lists(st.integers(1, 40), max_size=60))
def test_lines_are_lines_however_they_come(lines: list[bytes], sizes: list[int]):
    """Lines are split rightly in any parts; of one too long only the beginning is reported."""
    sent_lines = [each.replace(b"\n", b"") for each in lines]
    wire = b"".join(each + b"\n" for each in sent_lines)

    async def read() -> list[bytes]:
        reader = asyncio.StreamReader(limit=8)
        read_lines, taken = list[bytes](), Lines(reader)
        parts = iter([*sizes, len(wire) + 1])

        async def feed() -> None:
            at = 0
            for size in parts:
                reader.feed_data(wire[at : at + size])
                at += size
                await asyncio.sleep(0)
            reader.feed_eof()

        feeding = asyncio.create_task(feed())
        while True:
            try:
                line = await taken.next()
            except BadFrame as bad:
                read_lines.append(str(bad).encode())
                continue
            if line is None:
                await feeding
                return read_lines
            read_lines.append(line)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(upstream, "FRAME_BYTES_MAX", 40)
        result = asyncio.run(read())
    expected = [each for each in sent_lines if each.strip() or len(each) >= 40]
    assert len(result) == len(expected)
    for line, sent in zip(result, expected, strict=True):
        if len(sent) >= 40:
            assert line.startswith(b"a line of more than 40 bytes: ")
        else:
            assert line == sent + b"\n"


# ------------------------------------------------------------ the proxy


class Kept(msgspec.Struct):
    """The server's file about itself."""

    file: Path

    def _at(self, which: int) -> int:
        raw = self.file.read_bytes() if self.file.exists() else b""
        return struct.unpack("4q", raw)[which] if raw else 0

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._at(0)

    @property
    def notifications(self) -> int:
        """Notifications it has written."""
        return self._at(1)

    @property
    def answered(self) -> int:
        """Questions of it that were answered."""
        return self._at(2)

    @property
    def refused(self) -> int:
        """Number of the server's questions that were refused."""
        return self._at(3)

    async def waits(self) -> int:
        """Wait until it has written nothing for a while; how much it has."""
        before = -1
        async with asyncio.timeout(WAIT_S):
            while (now := self.notifications) != before or not now:
                before = now
                await asyncio.sleep(STILL_S)
        return before

    async def is_gone(self) -> None:
        """Wait until its process has ended."""
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    os.kill(self.pid, 0)
                except ProcessLookupError:
                    return
                await asyncio.sleep(0.05)


class Late(Wire):
    """A client that reads on demand, without buffering."""

    def __init__(self, process: asyncio.subprocess.Process, out: int) -> None:
        super().__init__(process)
        self.out = os.fdopen(out, "rb")

    async def hear(self) -> dict[str, Any]:
        """Return the next line."""
        line = await asyncio.wait_for(asyncio.to_thread(self.out.readline), WAIT_S)
        frame: dict[str, Any] = json.loads(line)
        return frame

    async def until(self, number: int) -> list[dict[str, Any]]:
        """Return all lines up to an answer."""

        def read() -> list[dict[str, Any]]:
            frames_read = list[dict[str, Any]]()
            for line in self.out:
                frames_read.append(json.loads(line))
                if frames_read[-1].get("id") == number:
                    return frames_read
            raise AssertionError("it ended before the answer")

        return await asyncio.wait_for(asyncio.to_thread(read), WAIT_S)


@contextlib.asynccontextmanager
async def late(
    setup: Setup, *options: object, command: tuple[str, ...] = ()
) -> AsyncIterator[Late]:
    """Start the proxy with such a client."""
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *setup.proxy(*options, server=False),
        *(["--", *command] if command else []),
        env=setup.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(writing)
    client = Late(process, reading)
    try:
        await client.greet()
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        client.out.close()


def numbers(notifications: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of notifications."""
    return [each["params"]["data"]["number"] for each in notifications if "method" in each]


@pytest.mark.thorough(quick="test_who_says_much_waits_and_nothing_is_lost_or_reordered")
async def test_a_server_over_pipes_waits_for_its_client(setup: Setup, command: Commands):
    """A server over pipes waits for its reader; nothing is lost, and order is kept."""
    kept = Kept(setup.sent)
    async with late(setup, command=(sys.executable, str(FLOOD), str(setup.sent))) as client:
        many = 2 * INBOX_MAX
        number = await client.begin("tools/call", name="flood", arguments={"many": many})
        await kept.waits()
        assert numbers(await client.until(number)) == list(range(many))
        endless = await client.begin("tools/call", name="flood", arguments={})
        assert (await kept.waits() - many) * LINE_BYTES < KEPT_BYTES_MAX
        cancelled = {"requestId": endless, "reason": "no longer wanted"}
        notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
        await client.say(json.dumps(notification).encode())
        sound = await client.begin("tools/call", name="sound", arguments={})
        answers = await client.until(sound)
        assert numbers(answers) == list(range(len(answers) - 1))
        assert len(answers) > INBOX_MAX
        await kept.waits()
        await asyncio.sleep(2.5)  # the server's time to answer what was called off is over
        assert await client.leave() == 0
    await kept.is_gone()
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    assert (steps["flood"]["status"], steps["sound"]["status"]) == ("in_doubt", "completed")


@pytest.mark.thorough(quick="test_who_waits_for_room_can_be_cancelled_and_the_end_frees_it")
@pytest.mark.parametrize(
    "end",
    [
        "leaves",
        pytest.param("is killed", marks=pytest.mark.thorough),
        pytest.param("proxy is told to end", marks=pytest.mark.thorough),
    ],
)
async def test_an_end_is_an_end_where_nobody_reads(setup: Setup, end: str):
    """The proxy and its server end, even with unread frames between them."""
    kept = Kept(setup.sent)
    async with late(setup, command=(sys.executable, str(FLOOD), str(setup.sent))) as client:
        await client.begin("tools/call", name="flood", arguments={})
        await kept.waits()
        if end == "proxy is told to end":
            client.process.send_signal(signal.SIGTERM)
        else:
            assert client.process.stdin is not None
            client.process.stdin.close()
        if end == "is killed":
            client.out.close()
        await asyncio.wait_for(client.process.wait(), WAIT_S)
    await kept.is_gone()


@contextlib.asynccontextmanager
async def streaming(many: int) -> AsyncGenerator[tuple[str, list[int]]]:
    """Serve over HTTP a call with so many notifications; yield the address and the number sent."""
    sent = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            request = json.loads(await reader.readexactly(length) or b"{}")
            if request.get("method") == "initialize":
                greeting = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "stream", "version": "1"},
                }
                writer.write(_response(frames.result(request["id"], greeting).raw))
            elif request.get("method") == "tools/call":
                writer.write(STREAM)
                for number in range(many):
                    data = {"level": "info", "data": {"number": number, "pad": "x" * 900}}
                    raw = frames.notification("notifications/message", data).raw
                    writer.write(b"data: " + raw + b"\n\n")
                    await writer.drain()
                    sent[0] = number + 1
                result = {"content": [{"type": "text", "text": "done"}]}
                writer.write(b"data: " + frames.result(request["id"], result).raw + b"\n\n")
            else:
                writer.write(b"HTTP/1.1 405 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", sent


@pytest.mark.thorough
async def test_a_server_over_http_waits_for_its_client(setup: Setup):
    """The server's stream is read no faster than its client reads, and is passed on whole."""
    many = 20_000
    async with streaming(many) as (url, sent), late(setup, "--url", url) as client:
        number = await client.begin("tools/call", name="flood", arguments={})
        async with asyncio.timeout(WAIT_S):
            before = 0
            while sent[0] != before or not before:
                before = sent[0]
                await asyncio.sleep(STILL_S)
        assert before * LINE_BYTES < 2 * KEPT_BYTES_MAX < many * LINE_BYTES
        answers = await client.until(number)
        assert numbers(answers) == list(range(many))
        assert answers[-1]["result"]["content"][0]["text"] == "done"
        assert await client.leave() == 0


@pytest.mark.slow
async def test_questions_that_nobody_answers_are_bounded(setup: Setup):
    """Questions beyond the bound are refused; the others are answered when the client answers."""
    kept, more = Kept(setup.sent), 200
    async with late(setup, command=(sys.executable, str(FLOOD), str(setup.sent))) as client:
        number = await client.begin(
            "tools/call", name="ask", arguments={"many": QUESTIONS_MAX + more}
        )
        ids = [(await client.hear())["id"] for _ in range(QUESTIONS_MAX)]
        assert len(set(ids)) == QUESTIONS_MAX
        async with asyncio.timeout(WAIT_S):
            while kept.refused < more:  # noqa: ASYNC110 -- another process counts
                await asyncio.sleep(0.05)
        for each in ids:
            answer = {"jsonrpc": "2.0", "id": each, "result": {"action": "decline"}}
            await client.say(json.dumps(answer).encode())
        assert (await client.until(number))[-1]["result"]["content"][0]["text"] == "ask"
    assert (kept.answered, kept.refused) == (QUESTIONS_MAX, more)
