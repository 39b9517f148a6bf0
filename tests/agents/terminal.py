"""A terminal, and a person at it who answers."""

import itertools
import os
import pty
import select
import sys
import threading
import time
from typing import Self

WAIT_S_MAX = 120.0
"""Largest wait for a question, in seconds."""

AGAIN_S = 0.5
"""Seconds after which an ignored key is pressed again."""

Answer = tuple[str, tuple[str, ...]]
"""Text to wait for on the screen, and texts to type then, in turn, until something is shown."""


class Person:
    """A person at the other end of a terminal; `shown` is all text shown so far."""

    def __init__(self, master: int, *answers: Answer) -> None:
        self.shown = ""
        self.unasked = [*answers]
        self._master = master
        self._gone = False
        self._until = time.monotonic() + WAIT_S_MAX

    def sit(self, over: threading.Event) -> None:
        """Answer all, then read on until the end, or until no process has the terminal open."""
        seen = 0
        while self.unasked:
            awaited, keys = self.unasked[0]
            while awaited not in self.shown[seen:]:
                if not self._read(0.05) and (self._late() or over.is_set()):
                    return
            self.unasked.pop(0)
            while self._read(0.05):
                pass
            seen = len(self.shown)
            echoed = seen
            for key in itertools.cycle(keys):
                os.write(self._master, key.encode())
                echoed += len(key)
                if key.endswith("\n") or self._shows_more_than(echoed) or self._late():
                    break
        while self._read(0.02) or not (over.is_set() or self._late()):
            pass

    def _shows_more_than(self, letters: int) -> bool:
        """Return True if the key was read: more is shown within a while than its echo."""
        until = time.monotonic() + AGAIN_S
        while len(self.shown) <= letters and time.monotonic() < until:
            self._read(0.05)
        return len(self.shown) > letters

    def _late(self) -> bool:
        return self._gone or time.monotonic() > self._until

    def _read(self, wait_s: float) -> bool:
        """Return whether something new is shown."""
        if self._gone or not select.select([self._master], [], [], wait_s)[0]:
            return False
        try:
            self.shown += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # no process has it open any more
            self._gone = True
        return not self._gone


class Terminal:
    """The stdin and stderr of this process inside its block, and a person who answers."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        self._before = sys.stdin, sys.stderr
        sys.stdin, sys.stderr = os.fdopen(os.dup(slave)), os.fdopen(slave, "w", buffering=1)
        self._over = threading.Event()
        self._person = Person(self._master, *self._answers)
        self._thread = threading.Thread(target=self._person.sit, args=(self._over,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join(WAIT_S_MAX)
        sys.stdin.close()
        sys.stderr.close()
        sys.stdin, sys.stderr = self._before
        os.close(self._master)
        if kind is None:
            assert not self._person.unasked, f"{self._person.unasked} not in {self.shown}"

    @property
    def shown(self) -> str:
        """Text on the screen."""
        return self._person.shown
