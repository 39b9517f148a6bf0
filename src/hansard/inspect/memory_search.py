"""Memory searched and kept short, for people and programs that are trusted with a space."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard.agents.memory.search.lines import LINES_MAX, Line
from hansard.agents.memory.search.lines import grep as lines_matching
from hansard.agents.memory.search.paths import PATHS_MAX, paths_matching
from hansard.agents.memory.search.ranked import HITS_MAX, Embedder, Ranked, Rankers
from hansard.agents.memory.search.ranked import search as files_fitting
from hansard.agents.memory.store import MemoryStore
from hansard.agents.memory.upkeep.compaction import DROP_MAX, Changes, Compacted, Probe
from hansard.agents.memory.upkeep.compaction import compact as compacted
from hansard.agents.workspace import Workspace
from hansard.inspect.answer import Answer
from hansard.projections.search.files import FileVectors, FileWords


class MemoryPaths(Answer, kw_only=True):
    """The paths of a space that match a glob; `more` where a limit cut them off."""

    space: str
    paths: list[str]
    more: bool = False

    def lines(self) -> Iterable[dict[str, str]]:
        """Each path."""
        return [{"path": path} for path in self.paths]


class MemoryLines(Answer, kw_only=True):
    """The lines of a space that match a pattern; `more` where a limit cut them off."""

    space: str
    hits: list[Line]
    files: int
    more: bool = False

    def lines(self) -> Iterable[Line]:
        """Each line."""
        return self.hits


class MemoryHits(Answer, kw_only=True):
    """The files of a space that fit a question, the best first."""

    space: str
    hits: list[Ranked]
    by: str
    more: bool = False

    def lines(self) -> Iterable[Ranked]:
        """Each file."""
        return self.hits


async def tree_of(workspace: Workspace, space: str, at: object = None) -> dict[str, str]:
    """A space's texts by path, links left out. Raises BadName, NotFound."""
    state = await MemoryStore(workspace, space).state(at)
    return {path: file.text for path, file in state.files.items() if not file.link}


async def glob(
    workspace: Workspace, space: str, pattern: str, *, limit: int = PATHS_MAX
) -> MemoryPaths:
    """The paths that match. Raises BadValue, ExtraMissing."""
    found = paths_matching(await tree_of(workspace, space), pattern, limit=limit)
    return MemoryPaths(space=space, paths=found.paths, more=found.more)


async def grep(
    workspace: Workspace,
    space: str,
    pattern: str,
    *,
    glob: str = "",
    ignore_case: bool = False,
    limit: int = LINES_MAX,
) -> MemoryLines:
    """The lines that match. Raises BadValue, ExtraMissing."""
    tree = await tree_of(workspace, space)
    found = lines_matching(tree, pattern, glob=glob, ignore_case=ignore_case, limit=limit)
    return MemoryLines(space=space, hits=found.lines, files=found.files, more=found.more)


async def search(
    workspace: Workspace,
    space: str,
    question: str,
    *,
    embedder: Embedder | None = None,
    glob: str = "",
    limit: int = HITS_MAX,
) -> MemoryHits:
    """The files that fit a question: by words, and where there is an embedder by meaning, too.

    Raises BadQuery, BadValue, ExtraMissing.
    """
    tree = await tree_of(workspace, space)
    meaning = FileVectors(embedder) if embedder is not None else None
    rankers = Rankers(FileWords(), meaning)
    found = files_fitting(tree, question, rankers, glob=glob, limit=limit)
    return MemoryHits(space=space, hits=found.hits, by=found.by, more=found.more)


class MemoryCompaction(msgspec.Struct, kw_only=True):
    """What a compaction of a space comes to, and whether it was made."""

    space: str
    compacted: Compacted
    version: int | None = None


async def compact(
    workspace: Workspace,
    space: str,
    changes: Changes | None = None,
    *,
    keep: Iterable[Probe] = (),
    drop_max: float = DROP_MAX,
) -> MemoryCompaction:
    """Judge what is proposed for a space, or what is found without a model. Nothing is changed.

    Raises BadValue, BadName.
    """
    tree = await tree_of(workspace, space)
    found = compacted(tree, Rankers(FileWords()), changes, keep=keep, drop_max=drop_max)
    return MemoryCompaction(space=space, compacted=found)
