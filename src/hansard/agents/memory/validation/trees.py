"""Trees of files, what is shown of a value in one, and the libraries that read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hansard.agents.memory.search.extras import imported
from hansard.domain.memory.space import MemoryFile

STOOD_CHARS_MAX = 80
"""Of what stood there, so much is shown: enough to find it, too little to fill a context window."""


class Executable(bytes):
    """The content of a file that its owner may execute; equal to no other file's."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Executable) and bytes.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = bytes.__hash__


class Link(msgspec.Struct, frozen=True):
    """A symbolic link, as a folder has it: where it points, relative to where it stands."""

    target: str


Tree = Mapping[str, bytes | Link]
"""A folder: relative paths with `/` between their parts, and what stands at each."""


class SpaceTree(Mapping[str, bytes | Link]):
    """The tree of a space's files, each encoded when it is asked for."""

    def __init__(self, files: Mapping[str, MemoryFile]) -> None:
        self._files = files

    def __getitem__(self, path: str) -> bytes | Link:
        file = self._files[path]
        if file.link:
            return Link(file.text)
        return Executable(file.content) if file.executable else file.content

    def __contains__(self, path: object) -> bool:
        return path in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def of_space(files: Mapping[str, MemoryFile]) -> dict[str, bytes | Link]:
    """The tree of a space's files, in memory."""
    return dict(SpaceTree(files))


_PACKAGES = {"yaml": "PyYAML", "frontmatter": "python-frontmatter", "markdown_it": "markdown-it-py"}


def library(name: str) -> Any:
    """A module of the extra. Raises ExtraMissing."""
    top = name.partition(".")[0]
    return imported(name, "checking memory files", _PACKAGES.get(top, top), "memory")


def shown(value: str) -> str:
    """What stood there, shortened to a line."""
    line = " ".join(value.split())
    return line if len(line) <= STOOD_CHARS_MAX else f"{line[: STOOD_CHARS_MAX - 3]}..."
