"""Trees of files, what is shown of a value in one, and the libraries that read them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from hansard.domain.errors import CallerError
from hansard.domain.memory.space import MemoryFile

STOOD_CHARS_MAX = 80
"""Of what stood there, so much is shown: enough to find it, too little to fill a context window."""


class Link(msgspec.Struct, frozen=True):
    """A symbolic link, as a folder has it: where it points, relative to where it stands."""

    target: str


Tree = Mapping[str, bytes | Link]
"""A folder: relative paths with `/` between their parts, and what stands at each."""


def of_space(files: Mapping[str, MemoryFile]) -> dict[str, bytes | Link]:
    """The tree of a space's files."""
    return {
        path: Link(file.text) if file.link else file.text.encode() for path, file in files.items()
    }


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
