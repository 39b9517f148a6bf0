"""A terminal with somebody at it, in the tests' own process."""

from __future__ import annotations

import os
import pty
import select
import sys
import threading
import time
from typing import Self

WAIT_S_MAX = 60.0
"""Seconds until a question must have come."""


class Terminal:
    """stdin and stderr of this process inside its block, and a person who answers.

    `answers` are what is waited for on the screen, and what is typed then; `shown` is what stood
    there in all, once the block is left.
    """

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.shown = ""
        self._answers = [*answers]
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        self._before = sys.stdin, sys.stderr
        sys.stdin, sys.stderr = os.fdopen(os.dup(slave)), os.fdopen(slave, "w", buffering=1)
        self._person = threading.Thread(target=self._sit, daemon=True)
        self._person.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._person.join(WAIT_S_MAX)
        sys.stdin.close()
        sys.stderr.close()
        sys.stdin, sys.stderr = self._before
        os.close(self._master)
        if kind is None:
            assert not self._answers, f"it was never asked for {self._answers}: {self.shown}"

    def _sit(self) -> None:
        seen, until = 0, time.monotonic() + WAIT_S_MAX
        while time.monotonic() < until:
            if not select.select([self._master], [], [], 0.02)[0]:
                if self._over.is_set():
                    return
                continue
            self.shown += os.read(self._master, 65536).decode(errors="replace")
            while self._answers and self._answers[0][0] in self.shown[seen:]:
                seen = len(self.shown)
                time.sleep(0.05)  # what is typed before the question was read is thrown away
                os.write(self._master, self._answers.pop(0)[1].encode())
                if self._answers and self._answers[0][0]:
                    break
