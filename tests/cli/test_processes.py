"""Background printing of servers: into real pipes, read late, or without a reader."""

import asyncio
import contextlib
import json
import os
import pty
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from hansard.cli import output
from hansard.cli import processes as cli_processes
from hansard.cli.processes import BackgroundPrinter, LogStream

FULL = 64 * 1024
"""Capacity of a pipe, in bytes."""


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """Yield a pipe's two ends: to read, to write."""
    ours, theirs = os.pipe()
    with contextlib.suppress(BrokenPipeError), open(ours) as read, open(theirs, "w") as written:  # noqa: PTH123 -- descriptors
        yield read, written


def write(stream: TextIO, text: str) -> None:
    """Write and flush."""
    stream.write(text)
    stream.flush()


@pytest.mark.timeout(60)
def test_nobody_waits_for_a_reader_and_what_is_left_out_is_counted(pipe, monkeypatch):
    """A pipe without a reader holds up to a bound; lines left out are counted in their place."""
    monkeypatch.setattr(cli_processes, "WAITING_MAX", 3)
    read, written = pipe
    stream = LogStream(written)
    stream.write("x" * FULL + "\n")
    while stream._printer._begun < stream._printer._queued:  # until the thread writes that line
        time.sleep(0.001)
    for number in range(5):
        stream.write(f"{number}\n")
    assert len(read.readline()) == FULL + 1
    assert [read.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
    stream.write("next\n")
    missed = read.readline()
    assert json.loads(missed)["lines"] == 2
    assert read.readline() == "next\n"
    stream.write("last\n")
    stream.end()
    stream.write("after\n")
    assert [read.readline() for _ in range(2)] == ["last\n", "after\n"]


@pytest.mark.timeout(60)
async def test_what_is_waited_for_is_printed_in_order_and_a_reader_that_left_is_reported(pipe):
    """A waiting caller gets the error, others get it at the end; nothing is printed after it."""
    read, written = pipe
    left = threading.Event()
    printer = BackgroundPrinter(print, left.set)
    printer.print_later(lambda: write(written, "one\n"))
    await printer.print(lambda: write(written, "two\n"))
    assert [read.readline(), read.readline()] == ["one\n", "two\n"]
    read.close()
    printer.print_later(lambda: write(written, "three\n"))
    assert await asyncio.to_thread(left.wait, 60)
    with pytest.raises(BrokenPipeError):
        await printer.print(lambda: pytest.fail("nobody reads it"))
    with pytest.raises(BrokenPipeError):
        printer.end()


def shown_of(monkeypatch: pytest.MonkeyPatch, *reports: tuple[int, int]) -> str:
    """Return a terminal's output for progress reports of (done, total)."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as stderr, contextlib.ExitStack() as stack:
        monkeypatch.setattr(sys, "stderr", stderr)
        stack.callback(monkeypatch.undo)
        with output.positions() as report:
            for done, total in reports:
                report(done, total)
        text = b""
        while select.select([ours], [], [], 0)[0]:
            text += os.read(ours, 4_096)
    os.close(ours)
    return text.decode()


def test_a_bar_shows_how_far_the_work_is(monkeypatch: pytest.MonkeyPatch):
    """The bar has a name, the amount done and the total."""
    text = shown_of(monkeypatch, (3, 10))
    assert "positions" in text
    assert "3/10" in text


def test_work_that_is_done_at_once_shows_no_bar(monkeypatch: pytest.MonkeyPatch):
    """Nothing is written, so nothing flickers."""
    assert not shown_of(monkeypatch, (10, 10))
