"""Files by what is asked: by their words, by their meaning, or by both.

What ranks a tree is passed in (`Ranker`): the index of words and that of vectors stand in
`hansard.projections.search.files`. They are given the files that the reader may see and nothing
else, so that not even a rank depends on what else there is.

Both together are fused by reciprocal rank (G. Cormack, C. Clarke and S. Buettcher, "Reciprocal rank
fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009).
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypedDict

import msgspec

from hansard.agents.memory.search.extras import imported
from hansard.agents.memory.search.paths import ALL_PATHS, paths_matching
from hansard.domain.errors import BadValue
from hansard.domain.memory.paths import MemoryKind, kind_of

# Vectors of words, averaged: the embedder that needs no model server, by the package wordllama.
#
# Its weights (16 MB) come in its wheel; nothing is downloaded. It knows words, not sentences: it
# helps where a question has none of a file's words, and is beaten by the index of words where it
# has.

DIMS = 256
"""The length of its vectors."""

_CONFIG = "l2_supercat"
_loading = threading.Lock()


class StaticVectors:
    """An embedder of vectors of words (`hansard[semantic]`). Loads its weights when first asked.

    Raises:
        ExtraMissing: The extra `semantic` is not installed; when first asked.
    """

    name = "wordllama"
    """What it is called."""

    dims = DIMS
    """The length of each vector."""

    @property
    def digest(self) -> str:
        """Of the weights and of the package's version."""
        return _loaded()[1]

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """A vector of length 1 a text; of a text without a known word, zeros."""
        wanted = {number: text for number, text in enumerate(texts) if text.strip()}
        made = [[0.0] * DIMS for _ in texts]
        if wanted:
            model, _ = _loaded()
            means = model.embed(list(wanted.values()), norm=False).tolist()
            for number, mean in zip(wanted, means, strict=True):
                made[number] = _unit(mean)
        return made


def _unit(vector: list[float]) -> list[float]:
    length = sum(each * each for each in vector) ** 0.5
    if not 0 < length < float("inf"):
        return [0.0] * len(vector)
    return [each / length for each in vector]


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, str]:
    """The model, and the digest of what it was made of."""
    with _loading, _LoggingKept():
        package = imported("wordllama", "search by meaning", "wordllama", "semantic")
        folder = Path(package.__file__).parent
        # Only where its cache is its own folder does it find its tokenizer without a download.
        model = package.WordLlama.load(_CONFIG, cache_dir=folder, dim=DIMS, disable_download=True)
        weights = (folder / "weights" / f"{_CONFIG}_{DIMS}.safetensors").read_bytes()
        made = hashlib.sha256(weights + str(package.__version__).encode()).hexdigest()
        return model, made[:32]


class _LoggingKept:
    """Keeps the root logger as it is: the package sets it up when it is imported."""

    def __enter__(self) -> None:
        root = logging.getLogger()
        self._before = (list(root.handlers), root.level)

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.handlers[:], level = self._before
        root.setLevel(level)


RANK_CONSTANT = 60
"""k of the fusion: how little the first ranks count over those that follow; as in the paper."""

HITS_MAX = 10
"""Files that are given back if nothing else is asked for."""

HITS_LIMIT_MAX = 1_000
"""Most that can be asked for."""

DEPTH = 100
"""Ranks of each order that a fusion takes into account, or the limit where that is more."""

QUESTION_CHARACTERS_MAX = 10_000
"""Of a question."""


class By(StrEnum):
    """What files are ranked by.

    Attributes:
        WORDS: The words of the question that they have, the rarer the better (bm25).
        MEANING: How near their vectors are to the question's.
        BOTH: The two orders fused.
    """

    WORDS = "words"
    MEANING = "meaning"
    BOTH = "both"


class Ranked(msgspec.Struct, frozen=True):
    """A file that was found, and how well it fits: the higher the better, by whatever ranked it.

    Attributes:
        path: The file's.
        score: Comparable within one answer only.
        excerpt: A part of it that fits, where what ranked it can tell.
    """

    path: str
    score: float
    excerpt: str = ""


class Found(msgspec.Struct, frozen=True):
    """What a search came to.

    Attributes:
        hits: The best first, at most as many as were asked for.
        by: What they were ranked by: `words`, `meaning` or `both`.
        more: Whether others were found, too.
    """

    hits: list[Ranked]
    by: str = By.WORDS.value
    more: bool = False


class Embedder(Protocol):
    """Gives vectors whose nearness stands for nearness of meaning.

    `digest` says which vectors these are: with another one, all are made again.
    """

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def digest(self) -> str:
        """Of all that the vectors depend on: the weights, above all."""
        ...

    @property
    def dims(self) -> int:
        """The length of each vector."""
        ...

    def embed(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """A vector of `dims` finite numbers a text, in the same order."""
        ...


class Ranker(Protocol):
    """Ranks the files of a tree by a question."""

    def ranked(
        self, tree: Mapping[str, str], question: str, limit: int, /
    ) -> list[tuple[str, float, str]]:
        """Path, score and excerpt of the files that fit, the best first, at most `limit`."""
        ...


class Rankers(msgspec.Struct, frozen=True):
    """What a search can rank by; without `meaning` there is none by meaning."""

    words: Ranker
    meaning: Ranker | None = None


class SearchOptions(TypedDict, total=False):
    """What a search of memory may be given beside its question and an embedder.

    Attributes:
        by: `words`, `meaning` or `both`; if not given both where there is an embedder.
        glob: Only files whose path matches it; in a session one that begins with `runs/` finds past
            runs.
        kind: Only files of that kind: `procedural` or `semantic`; if not given, of both.
        limit: So many at most; 10 if not given.
    """

    by: str | None
    glob: str
    kind: str
    limit: int


def search(
    tree: Mapping[str, str],
    question: str,
    rankers: Rankers,
    *,
    by: By | str | None = None,
    glob: str = "",
    kind: MemoryKind | str = "",
    limit: int = HITS_MAX,
) -> Found:
    """The files of a tree that fit a question, the best first.

    Args:
        tree: The files that the reader may see: path and text.
        question: Words in any order, or a sentence.
        rankers: What ranks them.
        by: `words`, `meaning` or `both`; if not said, both where there is an embedder.
        glob: Only files whose path matches it.
        kind: Only files of that kind: `procedural` or `semantic`; if not said, of both.
        limit: So many at most.

    Raises:
        BadValue: There is no word in the question, no embedder to rank by meaning, or no file of
            that kind in any tree.
        BadQuery: As BadValue, of words.
    """
    way = _way(by, rankers)
    if not question.strip() or len(question) > QUESTION_CHARACTERS_MAX:
        remedy = f"give a question of 1 to {QUESTION_CHARACTERS_MAX:,} characters"
        raise BadValue("question", f"{question!r:.80}", remedy)
    if not 1 <= limit <= HITS_LIMIT_MAX:
        raise BadValue("limit", f"{limit}", f"give 1 to {HITS_LIMIT_MAX:,}")
    if glob:
        tree = {path: tree[path] for path in paths_matching(tree, glob, limit=ALL_PATHS).paths}
    if kind:
        wanted = _kind(kind)
        tree = {path: text for path, text in tree.items() if kind_of(path) is wanted}
    orders = [
        [Ranked(*each) for each in ranker.ranked(tree, question, max(limit + 1, DEPTH))]
        for ranker in _asked(way, rankers)
    ]
    hits = orders[0] if len(orders) == 1 else fused(orders)
    return Found(hits[:limit], way.value, more=len(hits) > limit)


def _kind(name: MemoryKind | str) -> MemoryKind:
    kinds = (MemoryKind.PROCEDURAL, MemoryKind.SEMANTIC)
    for each in kinds:
        if each == name:
            return each
    remedy = f"give one of {', '.join(each.value for each in kinds)}"
    if name == MemoryKind.EPISODIC:
        remedy += "; what happened in runs is found by 'hansard search'"
    raise BadValue("kind", f"{name!r:.80}", remedy)


def _way(by: By | str | None, rankers: Rankers) -> By:
    if by is None:
        return By.WORDS if rankers.meaning is None else By.BOTH
    try:
        way = By(by)
    except ValueError:
        known = ", ".join(each.value for each in By)
        raise BadValue("by", f"{by!r:.80}", f"give one of {known}") from None
    if way is not By.WORDS and rankers.meaning is None:
        remedy = "give embedder=, such as hansard.memory.StaticVectors(), or search by words"
        raise BadValue("by", f"{way.value!r} without an embedder", remedy)
    return way


def _asked(way: By, rankers: Rankers) -> list[Ranker]:
    wanted = {By.WORDS: [rankers.words], By.MEANING: [], By.BOTH: [rankers.words]}[way]
    if way is not By.WORDS and rankers.meaning is not None:
        wanted.append(rankers.meaning)
    return wanted


def fused(orders: Sequence[Sequence[Ranked]]) -> list[Ranked]:
    """Several orders as one: each file counts 1 / (60 + rank) in each, and of equals the path."""
    scores: dict[str, float] = {}
    excerpts: dict[str, str] = {}
    for order in orders:
        for rank, each in enumerate(order, 1):
            scores[each.path] = scores.get(each.path, 0.0) + 1 / (RANK_CONSTANT + rank)
            if each.excerpt:
                excerpts.setdefault(each.path, each.excerpt)
    best = sorted(scores, key=lambda path: (-scores[path], path))
    return [Ranked(path, scores[path], excerpts.get(path, "")) for path in best]
