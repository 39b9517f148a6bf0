"""Printing in a thread of its own, for what serves: whoever reads a terminal or a pipe may stop
reading (a pager, Ctrl-S, a program that hangs), and the event loop must not stop with them.
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

from hansard.cli.exit_codes import PIPE_CLOSED

WAITING_MAX = 10_000
"""Lines that wait to be printed while nobody waits for them: a few MB. Further ones are left out
and counted."""

END_S = 2.0
"""How long a reader that has stopped reading is waited for at the end."""

Show = Callable[[], None]


class BackgroundPrinter:
    """Prints what one thread hands in, in order. End it with `end()`.

    What printing raises (the reader of a pipe has left) ends it: `failed` is called in its thread,
    nothing more is printed, and `print` and `end` raise it.
    """

    def __init__(self, missed: Callable[[int], None], failed: Show) -> None:
        """`missed` prints how many lines were left out, in their place."""
        self._missed = missed
        self._failed = failed
        self._left_out = 0
        self._error: Exception | None = None
        self._waiting: queue.SimpleQueue[Show | asyncio.Future[None] | None] = queue.SimpleQueue()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="printer", daemon=True)
        self._thread.start()

    def print_later(self, show: Show) -> None:
        """Have something printed, and wait for nobody. Where too much waits, it is left out."""
        if self._ended:
            show()
        elif self._waiting.qsize() >= WAITING_MAX:
            self._left_out += 1
        else:
            self._tell_missed()
            self._waiting.put(show)

    async def print(self, show: Show) -> None:
        """Print something and wait until it is printed, for as long as nobody reads. Cancelling it
        leaves open whether it will be. Raises what printing raised.
        """
        printed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tell_missed()
        self._waiting.put(show)
        self._waiting.put(printed)
        await printed
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Wait until all is printed; what comes later is printed where it is handed in. Raises what
        printing raised.

        Where nobody reads within END_S, the process ends here: the thread holds the stream, which
        Python's own end would wait for.
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
                with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
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
    """What a handler of the log takes for a stream: it never waits for whoever reads it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printer = BackgroundPrinter(self._missed, lambda: None)

    def write(self, text: str) -> None:
        """Have a line written."""
        self._printer.print_later(lambda: self._write(text))

    def flush(self) -> None:
        """Each line is flushed when it is written."""

    def isatty(self) -> bool:
        """Whether people read it at a terminal."""
        return self._stream.isatty()

    def end(self) -> None:
        """Wait until all is written, for a while: see `BackgroundPrinter.end`."""
        with contextlib.suppress(OSError, ValueError):  # where nobody hears, nothing can be said
            self._printer.end()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _missed(self, many: int) -> None:
        text = "lines of the log were left out: nobody read them"
        self._write(f'{{"event": "{text}", "level": "warning", "lines": {many}}}\n')


@contextlib.contextmanager
def log_stream(stream: TextIO) -> Generator[LogStream]:
    """A stream for the log of what serves."""
    made = LogStream(stream)
    try:
        yield made
    finally:
        made.end()
