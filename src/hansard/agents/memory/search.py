"""Search in a tree of files: by path, by regular expression, by words and by meaning.

The rankers of a tree are passed in (`Ranker`): the indexes of words and of vectors are in
`hansard.projections.file_search`. They get only the files that the reader may see, so that not
even a rank depends on any other file.

Rankings are combined by reciprocal rank fusion (G. Cormack, C. Clarke and S. Buettcher, "Reciprocal
rank fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009).
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypedDict

import msgspec

from hansard.domain.errors import BadValue, import_extra
from hansard.domain.memory.files import MemoryKind, kind_of

# Paths by a glob: `skills/*/SKILL.md`, `**/*.md`, `{a,b}/notes.md`.
#
# `*` and `?` match within a folder, `**` across folders, `{a,b}` either text. Names that begin with
# a dot are treated as any other. The cost of a pattern is bounded before matching: each `**`
# multiplies the attempts by the depth of a path.

GLOB_CHARACTERS_MAX = 500
"""Most characters of a glob."""

FOLDERS_MAX = 2
"""Most `**` in one glob: three take seconds on a deep path that does not match."""

BRANCHES_MAX = 100
"""Most alternatives that braces may expand to."""

PATHS_MAX = 1_000
"""Default limit of listed paths."""

ALL_PATHS = 10_000_000
"""No limit but the size of the tree, for callers that limit the result themselves."""


class Paths(msgspec.Struct, frozen=True):
    """Matching paths.

    Attributes:
        paths: Sorted by their characters.
        more: True if the limit cut off further paths.
    """

    paths: list[str]
    more: bool = False


@lru_cache(maxsize=128)
def _matcher(pattern: str) -> Any:
    glob = import_extra("wcmatch.glob", "a glob", "wcmatch", "memory")
    flags = glob.FORCEUNIX | glob.GLOBSTAR | glob.DOTGLOB | glob.BRACE
    try:
        return glob.compile(pattern, flags=flags, limit=BRANCHES_MAX)
    except Exception as error:  # brace expansion raises errors of its own package
        remedy = f"braces may come to {BRANCHES_MAX} patterns; see 'hansard memory glob --help'"
        raise BadValue("glob", f"{pattern!r:.80} ({error})", remedy) from error


def check_glob(pattern: str) -> str:
    """Return a glob after a check that bounds its cost. Raises BadValue."""
    if not pattern or "\0" in pattern:
        raise BadValue("glob", f"{pattern!r:.80}", "give a pattern such as 'skills/**'")
    if len(pattern) > GLOB_CHARACTERS_MAX:
        fact = f"a pattern of {len(pattern):,} characters"
        raise BadValue("glob", fact, f"give at most {GLOB_CHARACTERS_MAX}")
    if pattern.count("**") > FOLDERS_MAX:
        remedy = f"give '**' at most {FOLDERS_MAX} times: it goes through any number of folders"
        raise BadValue("glob", f"{pattern!r:.80}", remedy)
    return pattern


def matches(path: str, pattern: str) -> bool:
    """Return whether a path matches a glob. Raises BadValue, ExtraMissing."""
    return bool(_matcher(check_glob(pattern)).match(path))


def paths_matching(paths: Iterable[str], pattern: str, *, limit: int = PATHS_MAX) -> Paths:
    """Return the paths that match a glob, in order, at most `limit`. Raises BadValue,
    ExtraMissing.
    """
    if limit < 1:
        raise BadValue("limit", f"{limit}", "give 1 or more")
    matcher = _matcher(check_glob(pattern))
    matching: list[str] = []
    for path in sorted(paths):
        if matcher.match(path):
            if len(matching) == limit:
                return Paths(matching, more=True)
            matching.append(path)
    return Paths(matching)


# Lines by a regular expression, in time linear in the text: RE2's syntax, without look-around and
# backreferences. The result is bounded and marks each cut.

PATTERN_CHARACTERS_MAX = 1_000
"""Most characters of a regular expression."""

MEMORY_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes that a pattern may use to be compiled and matched."""

LINES_MAX = 200
"""Default limit of returned lines."""

LINES_LIMIT_MAX = 10_000
"""Largest limit of returned lines."""

LINE_CHARACTERS_MAX = 500
"""Most characters shown of a line; the cut is made around the match."""


class Line(msgspec.Struct, frozen=True):
    """A matching line.

    Attributes:
        path: Path of the file.
        line: Number of the line, from 1.
        text: The line; of a long one the part around the match, with `…` at each cut.
        begin: Index of the first match in `text`.
        end: Index after it.
    """

    path: str
    line: int
    text: str
    begin: int
    end: int


class Lines(msgspec.Struct, frozen=True):
    """Matching lines, ordered by path and number.

    Attributes:
        lines: At most `limit` lines.
        files: Number of files with a match among them.
        more: True if the limit cut off further lines.
    """

    lines: list[Line]
    files: int
    more: bool = False


@lru_cache(maxsize=64)
def _compiled(pattern: str, *, ignore_case: bool, literal: bool) -> Any:
    re2 = import_extra("re2", "grep", "google-re2", "memory")
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.never_nl = False
    options.never_capture = True
    whole = re2.escape(pattern) if literal else pattern
    try:
        return re2.compile(f"(?m:{whole})", options)
    except re2.error as error:
        text = error.args[0] if error.args else ""
        why = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        remedy = (
            "give RE2's syntax, which has no look-around and no backreferences, or search for the "
            "text as it is (literal)"
        )
        raise BadValue("pattern", f"{pattern!r:.80} ({why})", remedy) from error


def grep(
    tree: Mapping[str, str],
    pattern: str,
    *,
    glob: str = "",
    ignore_case: bool = False,
    literal: bool = False,
    limit: int = LINES_MAX,
) -> Lines:
    """Return the lines that match a pattern, ordered by path and number.

    Args:
        tree: Files that the reader may see: path and text.
        pattern: In RE2's syntax; `^` and `$` match at the begin and end of a line.
        glob: Search only files whose path matches; all files if empty.
        ignore_case: Ignore case.
        literal: Take the pattern as plain text.
        limit: Most lines to return.

    Raises:
        BadValue: The pattern, the glob or the limit is invalid.
        ExtraMissing: The extra `memory` is not installed.
    """
    _check(pattern, limit)
    regexp = _compiled(pattern, ignore_case=ignore_case, literal=literal)
    paths = paths_matching(tree, glob, limit=ALL_PATHS).paths if glob else sorted(tree)
    lines_found: list[Line] = []
    files = 0
    for path in paths:
        before = len(lines_found)
        for line in _matching(path, tree[path], regexp):
            if len(lines_found) == limit:
                return Lines(lines_found, files + (len(lines_found) > before), more=True)
            lines_found.append(line)
        files += len(lines_found) > before
    return Lines(lines_found, files)


def _check(pattern: str, limit: int) -> None:
    if not pattern:
        raise BadValue("pattern", f"{pattern!r:.80}", "give a regular expression in RE2's syntax")
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        fact = f"a pattern of {len(pattern):,} characters"
        raise BadValue("pattern", fact, f"give at most {PATTERN_CHARACTERS_MAX:,}")
    if not 1 <= limit <= LINES_LIMIT_MAX:
        raise BadValue("limit", f"{limit}", f"give 1 to {LINES_LIMIT_MAX:,}")


def _matching(path: str, text: str, regexp: Any) -> Iterator[Line]:
    """Yield the matching lines of a file, each once.

    Searches bytes: in a text, the package would count characters up to each match again.
    """
    data = text.encode("utf-8", "replace")
    at = line = 0  # start of the line after the last match, and its number less 1
    while at <= len(data):
        match = regexp.search(data, at)
        if match is None or (match.start() == len(data) and data[-1:] in (b"", b"\n")):
            return  # there is no line after the last line's end
        start, stop = match.start(), match.end()
        begin = data.rfind(b"\n", 0, start) + 1
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line += data.count(b"\n", at, begin) + 1
        yield _line(path, line, data[begin:end], start - begin, min(stop, end) - begin)
        at = end + 1


def _line(path: str, number: int, raw: bytes, begin: int, end: int) -> Line:
    raw = raw.removesuffix(b"\r")
    before, hit, after = raw[:begin], raw[begin:end], raw[end:]
    left, match, right = (part.decode(errors="replace") for part in (before, hit, after))
    room = LINE_CHARACTERS_MAX
    match, right = (match[:room] + "…", "") if len(match) > room else (match, right)
    beside = max(0, room - len(match)) // 2
    if len(left) > beside and len(left) + len(match) + len(right) > room:
        left = "…" + left[len(left) - beside :]
    rest = max(0, room - len(left) - len(match))
    if len(right) > rest:
        right = right[:rest] + "…"
    return Line(path, number, left + match + right, len(left), len(left) + len(match))


# Vectors of words, averaged: the embedder that needs no model server, by the package wordllama.
#
# Its weights (16 MB) are part of its wheel; nothing is downloaded. It knows words, not sentences:
# it helps if a question shares no word with a file; otherwise the index of words ranks better.

DIMS = 256
"""Length of its vectors."""

_CONFIG = "l2_supercat"
_loading = threading.Lock()


class StaticVectors:
    """Embedder of word vectors (`hansard[semantic]`). Loads its weights on first use.

    Raises:
        ExtraMissing: The extra `semantic` is not installed; raised on first use.
    """

    name = "wordllama"
    """Name of the embedder."""

    dims = DIMS
    """Length of each vector."""

    @property
    def digest(self) -> str:
        """Digest of the weights and of the package's version."""
        return _loaded()[1]

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return a vector of length 1 per text; zeros for a text without a known word."""
        targets = {number: text for number, text in enumerate(texts) if text.strip()}
        made = [[0.0] * DIMS for _ in texts]
        if targets:
            model, _ = _loaded()
            means = model.embed(list(targets.values()), norm=False).tolist()
            for number, mean in zip(targets, means, strict=True):
                made[number] = _unit(mean)
        return made


def _unit(vector: list[float]) -> list[float]:
    length = sum(each * each for each in vector) ** 0.5
    if not 0 < length < float("inf"):
        return [0.0] * len(vector)
    return [each / length for each in vector]


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, str]:
    """Load the model; return it with the digest of its sources."""
    with _loading, _LoggingKept():
        package = import_extra("wordllama", "search by meaning", "wordllama", "semantic")
        folder = Path(package.__file__).parent
        # It finds its tokenizer without a download only if the cache is its own folder.
        model = package.WordLlama.load(_CONFIG, cache_dir=folder, dim=DIMS, disable_download=True)
        weights = (folder / "weights" / f"{_CONFIG}_{DIMS}.safetensors").read_bytes()
        made = hashlib.sha256(weights + str(package.__version__).encode()).hexdigest()
        return model, made[:32]


class _LoggingKept:
    """Restores the configuration of the root logger, which the package changes on import."""

    def __enter__(self) -> None:
        root = logging.getLogger()
        self._before = (list(root.handlers), root.level)

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.handlers[:], level = self._before
        root.setLevel(level)


RANK_CONSTANT = 60
"""Constant k of the fusion, as in the paper: the larger, the less the first ranks dominate."""

HITS_MAX = 10
"""Default limit of returned files."""

HITS_LIMIT_MAX = 1_000
"""Largest limit of returned files."""

DEPTH = 100
"""Ranks of each order that a fusion uses, or the limit if that is larger."""

QUESTION_CHARACTERS_MAX = 10_000
"""Most characters of a question."""


class By(StrEnum):
    """Ranking of files.

    Attributes:
        WORDS: By the words they share with the question, rarer words first (bm25).
        MEANING: By the nearness of their vectors to the question's.
        BOTH: By both orders, fused.
    """

    WORDS = "words"
    MEANING = "meaning"
    BOTH = "both"


class Ranked(msgspec.Struct, frozen=True):
    """A matching file with its score.

    Attributes:
        path: Path of the file.
        score: Higher is better; comparable within one result only.
        excerpt: A matching part of it, if the ranker provides one.
    """

    path: str
    score: float
    excerpt: str = ""


class SearchResult(msgspec.Struct, frozen=True):
    """Result of a search.

    Attributes:
        hits: Matching files, best first, at most `limit`.
        by: Ranking used: `words`, `meaning` or `both`.
        more: True if there are further matches.
    """

    hits: list[Ranked]
    by: str = By.WORDS.value
    more: bool = False


class Embedder(Protocol):
    """Maps texts to vectors that are near each other if the texts are similar in meaning.

    `digest` identifies the vectors: if it changes, all are computed again.
    """

    @property
    def name(self) -> str:
        """Name of the embedder."""
        ...

    @property
    def digest(self) -> str:
        """Digest of everything the vectors depend on, above all the weights."""
        ...

    @property
    def dims(self) -> int:
        """Length of each vector."""
        ...

    def embed(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """Return a vector of `dims` finite numbers per text, in the same order."""
        ...


class Ranker(Protocol):
    """Ranks the files of a tree by a question."""

    def ranked(
        self, tree: Mapping[str, str], question: str, limit: int, /
    ) -> list[tuple[str, float, str]]:
        """Return path, score and excerpt of the matching files, best first, at most `limit`."""
        ...


class Rankers(msgspec.Struct, frozen=True):
    """Rankers of a search; no ranking by meaning without `meaning`."""

    words: Ranker
    meaning: Ranker | None = None


class SearchOptions(TypedDict, total=False):
    """Options of a search of memory.

    Attributes:
        by: `words`, `meaning` or `both`; default: `both` if there is an embedder, else `words`.
        glob: Only files whose path matches; in a session a glob that begins with `runs/` finds past
            runs.
        kind: Only files of this kind: `procedural` or `semantic`; default: both.
        limit: Most files to return; default 10.
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
) -> SearchResult:
    """Return the files of a tree that match a question, best first.

    Args:
        tree: Files that the reader may see: path and text.
        question: Words in any order, or a sentence.
        rankers: Rankers to use.
        by: `words`, `meaning` or `both`; default: `both` if there is an embedder, else `words`.
        glob: Only files whose path matches.
        kind: Only files of this kind: `procedural` or `semantic`; default: both.
        limit: Most files to return.

    Raises:
        BadValue: The question has no word, there is no embedder to rank by meaning, or no tree has
            files of that kind.
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
        target = _kind(kind)
        tree = {path: text for path, text in tree.items() if kind_of(path) is target}
    orders = [
        [Ranked(*each) for each in ranker.ranked(tree, question, max(limit + 1, DEPTH))]
        for ranker in _rankers_for(way, rankers)
    ]
    hits = orders[0] if len(orders) == 1 else fuse(orders)
    return SearchResult(hits[:limit], way.value, more=len(hits) > limit)


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


def _rankers_for(way: By, rankers: Rankers) -> list[Ranker]:
    targets = {By.WORDS: [rankers.words], By.MEANING: [], By.BOTH: [rankers.words]}[way]
    if way is not By.WORDS and rankers.meaning is not None:
        targets.append(rankers.meaning)
    return targets


def fuse(orders: Sequence[Sequence[Ranked]]) -> list[Ranked]:
    """Fuse several orders: each file scores 1 / (60 + rank) in each; ties are ordered by path."""
    scores: dict[str, float] = {}
    excerpts: dict[str, str] = {}
    for order in orders:
        for rank, each in enumerate(order, 1):
            scores[each.path] = scores.get(each.path, 0.0) + 1 / (RANK_CONSTANT + rank)
            if each.excerpt:
                excerpts.setdefault(each.path, each.excerpt)
    best = sorted(scores, key=lambda path: (-scores[path], path))
    return [Ranked(path, scores[path], excerpts.get(path, "")) for path in best]
