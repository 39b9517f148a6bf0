"""Print in a separate thread, for commands that serve.

The reader of a terminal or a pipe may stop reading (a pager, Ctrl-S, a hanging program); the event
loop must not block with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TextIO

from hansard.cli.common import PIPE_CLOSED

WAITING_MAX = 10_000
"""Most queued lines of callers that do not wait, a few MB; further lines are dropped and counted.
"""

END_S = 2.0
"""Longest wait at exit for a reader that has stopped reading, in seconds."""

Show = Callable[[], None]


class BackgroundPrinter:
    """Prints lines of one thread in another, in order; end it with `end()`.

    An error of printing (the reader closed the pipe) stops the printer: `failed` is called in the
    printing thread, nothing more is printed, and `print` and `end` raise the error.
    """

    def __init__(self, missed: Callable[[int], None], failed: Show) -> None:
        """`missed` prints the number of dropped lines in their place."""
        self._missed = missed
        self._failed = failed
        self._left_out = 0
        self._error: Exception | None = None
        self._waiting: queue.SimpleQueue[Show | asyncio.Future[None] | None] = queue.SimpleQueue()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="printer", daemon=True)
        self._thread.start()

    def print_later(self, show: Show) -> None:
        """Queue a line without waiting; it is dropped if the queue is full."""
        if self._ended:
            show()
        elif self._waiting.qsize() >= WAITING_MAX:
            self._left_out += 1
        else:
            self._tell_missed()
            self._waiting.put(show)

    async def print(self, show: Show) -> None:
        """Print a line and wait until it is printed, however long the reader blocks.

        After a cancellation the line may or may not be printed. Raises the error of printing.
        """
        printed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tell_missed()
        self._waiting.put(show)
        self._waiting.put(printed)
        await printed
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Wait until all lines are printed; later lines are printed in the caller's thread.

        Raises the error of printing. If the reader blocks longer than END_S, the process exits
        here: the printing thread holds the stream, and the interpreter's shutdown would wait for
        it.
        """
        self._tell_missed()
        self._waiting.put(None)
        self._thread.join(END_S)
        if self._thread.is_alive():
            os._exit(PIPE_CLOSED)
        self._ended = True
        if self._error is not None:
            raise self._error

    def _tell_missed(self) -> None:
        missed, self._left_out = self._left_out, 0
        if missed:
            self._waiting.put(partial(self._missed, missed))

    def _work(self) -> None:
        while (given := self._waiting.get()) is not None:
            if isinstance(given, asyncio.Future):
                with contextlib.suppress(RuntimeError):  # its loop is closed: no caller waits
                    given.get_loop().call_soon_threadsafe(_settle, given)
            elif self._error is None:
                self._print(given)

    def _print(self, show: Show) -> None:
        try:
            show()
        except Exception as error:  # noqa: BLE001 -- `print` and `end` raise it
            self._error = error
            self._failed()


def _settle(printed: asyncio.Future[None]) -> None:
    if not printed.done():
        printed.set_result(None)


class LogStream:
    """Stream for a log handler that never blocks on its reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printer = BackgroundPrinter(self._missed, lambda: None)

    def write(self, text: str) -> None:
        """Queue a line."""
        self._printer.print_later(lambda: self._write(text))

    def flush(self) -> None:
        """Do nothing: each line is flushed when it is written."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def end(self) -> None:
        """Wait for queued lines, for a limited time: see `BackgroundPrinter.end`."""
        with contextlib.suppress(OSError, ValueError):  # the reader is gone: nothing to report to
            self._printer.end()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _missed(self, many: int) -> None:
        text = "lines of the log were dropped: the reader was blocked"
        self._write(f'{{"event": "{text}", "level": "warning", "lines": {many}}}\n')


@contextlib.contextmanager
def log_stream(stream: TextIO) -> Generator[LogStream]:
    """Open a non-blocking stream for the log of a serving command."""
    made = LogStream(stream)
    try:
        yield made
    finally:
        made.end()
