"""Progress bars on stderr, where that is a terminal."""

import contextlib
import os
import pty
import select
import sys

import pytest

from hansard.cli import output


def shown_of(monkeypatch: pytest.MonkeyPatch, *reports: tuple[int, int]) -> str:
    """What a terminal shows of reports of how much is done, and of how much."""
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
    """Its name, how much is done and of how much."""
    text = shown_of(monkeypatch, (3, 10))
    assert "positions" in text
    assert "3/10" in text


def test_work_that_is_done_at_once_shows_no_bar(monkeypatch: pytest.MonkeyPatch):
    """Nothing is written, so nothing flickers."""
    assert not shown_of(monkeypatch, (10, 10))
