"""What stands outside the record: the report, the ledger, and who saw which body run.

The demo proves its claims here. A record that says "this ran once" is compared with files that
the tools' bodies themselves wrote.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
R = TypeVar("R")

REPORT = "report.md"
BODIES = "bodies.log"
LEDGER = "ledger.tsv"

Announce = Callable[[str], None]
"""Told of each body that begins, once the list of bodies has it on disk."""


class Saved(msgspec.Struct, frozen=True):
    """A report in the world: its name, digest and size in bytes."""

    name: str
    sha256: str
    size: int


class World:
    """The outside of one run: a folder of its own, and a ledger that it shares with all others."""

    def __init__(self, root: Path, run: str, announce: Announce | None = None) -> None:
        self.run = run
        self.folder = root / run
        self.folder.mkdir(parents=True, exist_ok=True)
        self.report = self.folder / REPORT
        self.ledger = root / LEDGER
        self._announce = announce

    def witnessed(self, body: Callable[P, R]) -> Callable[P, R]:
        """A tool's body that puts itself on the list of bodies that ran, before it does anything.

        The list is a file outside the record, on disk line by line.
        """

        @functools.wraps(body)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            name = call_name(body.__name__, (*args, *kwargs.values()))
            _append(self.folder / BODIES, name)
            if self._announce is not None:
                self._announce(name)
            return body(*args, **kwargs)

        return run

    def bodies(self) -> list[str]:
        """The calls whose bodies began, as often as they did, in order."""
        return _lines(self.folder / BODIES)

    def save(self, name: str, text: str) -> Saved:
        """Write a report whole: a reader sees the old one or the new one. Again changes nothing."""
        draft = self.folder / f"{name}.draft"
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / name)
        return described(name, text)

    def post(self, line: str) -> int:
        """Append a line to the ledger; how many lines it has then. Again is seen: two lines."""
        _append(self.ledger, line)
        return len(self.entries())

    def entries(self, run: str = "") -> list[str]:
        """The ledger's lines, of one run or of all."""
        return [line for line in _lines(self.ledger) if line.startswith(run)]


def call_name(tool: str, arguments: Iterable[object]) -> str:
    """What a call is known by outside the record: its tool, and its first argument if a text.

    The team makes no two calls of one name.
    """
    first = next(iter(arguments), None)
    return f"{tool} {first}" if isinstance(first, str) else tool


def described(name: str, text: str) -> Saved:
    """A report's name, digest and size."""
    data = text.encode()
    return Saved(name, hashlib.sha256(data).hexdigest(), len(data))


def _append(path: Path, line: str) -> None:
    """One line in one write, on disk before this returns; a SIGKILL leaves all of it or nothing."""
    target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(target, f"{line}\n".encode())
        os.fsync(target)
    finally:
        os.close(target)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
