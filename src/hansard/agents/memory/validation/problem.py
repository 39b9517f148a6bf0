"""Trees of files, and what can be wrong with one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from hansard.domain.errors import CallerError

STOOD_CHARS_MAX = 80
"""Of what stood there, so much is shown: enough to find it, too little to fill a context window."""


class Link(msgspec.Struct, frozen=True):
    """A symbolic link, as a folder has it: where it points, relative to where it stands."""

    target: str


Tree = Mapping[str, bytes | Link]
"""A folder: relative paths with `/` between their parts, and what stands at each."""


class Problem(msgspec.Struct, frozen=True, order=True):
    """What is wrong at one place.

    Attributes:
        path: The file.
        line: The line, from 1.
        rule: The rule's name, as `skill.name.case`.
        stood: What stood there, shortened.
        allowed: What may stand there instead.
    """

    path: str
    line: int
    rule: str
    stood: str
    allowed: str

    def __str__(self) -> str:
        """In one line, as it is told to people and models."""
        return f"{self.path}:{self.line}: {self.rule}: {self.stood!r} stands there; {self.allowed}"


class LibraryMissing(CallerError):
    """A library of the extra `hansard[memory]` is not installed; nothing was checked or written.

    Attributes:
        library: Its name as it is imported.
    """

    def __init__(self, library: str) -> None:
        super().__init__(
            f"checking memory files takes {library}, which is not installed: "
            "pip install 'hansard[memory]'"
        )
        self.library = library


def library(name: str) -> Any:
    """A module of the extra. Raises LibraryMissing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LibraryMissing(name.partition(".")[0]) from error


def shown(value: str) -> str:
    """What stood there, shortened to a line."""
    line = " ".join(value.split())
    return line if len(line) <= STOOD_CHARS_MAX else f"{line[: STOOD_CHARS_MAX - 3]}..."
