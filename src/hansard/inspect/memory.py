"""Memory files for people and trusted programs: listing, search, maintenance."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from hansard.agents.memory.search import (
    HITS_MAX,
    LINES_MAX,
    PATHS_MAX,
    Embedder,
    Lines,
    Paths,
    Rankers,
    SearchResult,
    paths_matching,
)
from hansard.agents.memory.search import grep as lines_matching
from hansard.agents.memory.search import search as files_fitting
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.domain.label import text as label_text
from hansard.domain.memory.space import MemoryFile, MemoryState
from hansard.inspect.answer import Answer, by_name
from hansard.projections.file_search import FileVectors, FileWords


async def tree_of(workspace: Workspace, space: str, at: object = None) -> dict[str, str]:
    """Return a space's texts by path, without links. Raises BadName, NotFound."""
    return texts_of(await MemoryStore(workspace, space).whole(at))


def texts_of(state: MemoryState) -> dict[str, str]:
    """Return the texts of a space's state by path, without links and binary files."""
    files = state.files.items()
    return {path: file.text for path, file in files if not file.link and not file.binary}


async def glob(workspace: Workspace, space: str, pattern: str, *, limit: int = PATHS_MAX) -> Paths:
    """Return the paths that match a glob. Raises BadValue, ExtraMissing."""
    files = (await MemoryStore(workspace, space).state()).files.items()
    shown = [path for path, file in files if not file.link and not file.binary]
    return paths_matching(shown, pattern, limit=limit)


async def grep(
    workspace: Workspace,
    space: str,
    pattern: str,
    *,
    glob: str = "",
    ignore_case: bool = False,
    limit: int = LINES_MAX,
) -> Lines:
    """Return the lines that match a pattern. Raises BadValue, ExtraMissing."""
    tree = await tree_of(workspace, space)
    return lines_matching(tree, pattern, glob=glob, ignore_case=ignore_case, limit=limit)


async def search(
    workspace: Workspace,
    space: str,
    question: str,
    *,
    embedder: Embedder | None = None,
    glob: str = "",
    kind: str = "",
    limit: int = HITS_MAX,
) -> SearchResult:
    """Return the files that match a query, by words and, with an embedder, also by meaning.

    Raises BadQuery, BadValue, ExtraMissing.
    """
    tree = await tree_of(workspace, space)
    meaning = FileVectors(embedder) if embedder is not None else None
    rankers = Rankers(FileWords(), meaning)
    return files_fitting(tree, question, rankers, glob=glob, kind=kind, limit=limit)


class ListedFile(msgspec.Struct, kw_only=True):
    """A file of a space, listed without reading its text.

    Attributes:
        space: Whose it is.
        path: From the root of the tree.
        kind: procedural, semantic or episodic.
        size: Characters of its text as it is recorded, at most; of a binary file bytes, at most.
        version: The version of the space that changed it last.
        author: Who changed it last.
        label: Of all that it comes from; empty for public and trusted.
        digest: Of its text.
    """

    space: str
    path: str
    kind: str
    size: int
    version: int
    author: str
    label: str
    digest: str


class MemoryListing(Answer, kw_only=True):
    """Files of spaces at a point."""

    _lines: ClassVar[tuple[str, ...]] = ("files",)

    files: list[ListedFile]
    spaces: list[str]


class MemoryDiff(msgspec.Struct, kw_only=True):
    """Changes of files between two points, in git's unified format.

    Attributes:
        space: The space.
        diff: The diff; empty if nothing changed.
    """

    space: str
    diff: str


async def listing(workspace: Workspace, space: str | None, at: object = None) -> MemoryListing:
    """List the files of a space at a point, or of all spaces. Raises BadName, NotFound."""
    names = [space] if space is not None else await workspace.memories.spaces()
    listed: list[ListedFile] = []
    for name in names:
        files = (await MemoryStore(workspace, name).state(at)).files
        listed += [_listed(name, files[path]) for path in sorted(files)]
    return MemoryListing(files=listed, spaces=names)


def _listed(space: str, file: MemoryFile) -> ListedFile:
    return by_name(
        ListedFile,
        file,
        space=space,
        kind=file.kind.value,
        size=file.size * 3 // 4 if file.binary else file.size,
        label=label_text(file.label) if file.label is not None else "",
    )
