"""Memory searched and kept short, for people and programs that are trusted with a space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hansard.agents.memory.compaction import DROP_MAX, Changes, Compacted, Probe
from hansard.agents.memory.compaction import compact as compacted
from hansard.agents.memory.search import (
    HITS_MAX,
    LINES_MAX,
    PATHS_MAX,
    Embedder,
    Line,
    Ranked,
    Rankers,
    paths_matching,
)
from hansard.agents.memory.search import grep as lines_matching
from hansard.agents.memory.search import search as files_fitting
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.domain.memory.paths import AGENTS
from hansard.domain.memory.space import MemoryState
from hansard.inspect.answer import Answer
from hansard.projections.reader import Reader
from hansard.projections.search.files import FileVectors, FileWords

_READS = """
SELECT path, count(*) FROM (
    SELECT result ->> '$.path' AS path FROM steps
    WHERE tool = 'memory.view' AND status = 'completed' AND result ->> '$.space' = $1
    UNION ALL
    SELECT substr(file, length($1) + 2) FROM (
        SELECT unnest(json_keys(result, '$.files')) AS file FROM steps
        WHERE tool = 'memory.prompt' AND status = 'completed'
    ) WHERE starts_with(file, $1 || '/') AND ends_with(file, $2)
) WHERE path IS NOT NULL GROUP BY 1
"""


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
    return texts_of(await MemoryStore(workspace, space).whole(at))


def texts_of(state: MemoryState) -> dict[str, str]:
    """The texts of a space as it stood, by path; links and binary files left out."""
    files = state.files.items()
    return {path: file.text for path, file in files if not file.link and not file.binary}


async def glob(
    workspace: Workspace, space: str, pattern: str, *, limit: int = PATHS_MAX
) -> MemoryPaths:
    """The paths that match. Raises BadValue, ExtraMissing."""
    files = (await MemoryStore(workspace, space).state()).files.items()
    shown = [path for path, file in files if not file.link and not file.binary]
    found = paths_matching(shown, pattern, limit=limit)
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
    kind: str = "",
    limit: int = HITS_MAX,
) -> MemoryHits:
    """The files that fit a question: by words, and where there is an embedder by meaning, too.

    Raises BadQuery, BadValue, ExtraMissing.
    """
    tree = await tree_of(workspace, space)
    meaning = FileVectors(embedder) if embedder is not None else None
    rankers = Rankers(FileWords(), meaning)
    found = files_fitting(tree, question, rankers, glob=glob, kind=kind, limit=limit)
    return MemoryHits(space=space, hits=found.hits, by=found.by, more=found.more)


class MemoryCompaction(msgspec.Struct, kw_only=True):
    """What a compaction of a space comes to, and whether it was made, or waits as a proposal."""

    space: str
    compacted: Compacted
    version: int | None = None
    proposed: bool = False


def compact(
    space: str,
    state: MemoryState,
    changes: Changes | None = None,
    *,
    reads: Mapping[str, int] | None = None,
    keep: Iterable[Probe] = (),
    drop_max: float = DROP_MAX,
) -> MemoryCompaction:
    """Judge what is proposed for a space as it stood when it was read, or what is found without a
    model. Nothing is changed. `reads` says how often each file was read. Raises BadValue.
    """
    rankers = Rankers(FileWords())
    found = compacted(texts_of(state), rankers, changes, reads=reads, keep=keep, drop_max=drop_max)
    return MemoryCompaction(space=space, compacted=found)


def reads(reader: Reader, space: str) -> dict[str, int]:
    """How often agents have read each file of a space on record: viewed it, or had it in their
    prompt, where instructions stand whole.
    """
    return {str(path): int(count) for path, count in reader.all(_READS, [space, f"/{AGENTS}"])}
