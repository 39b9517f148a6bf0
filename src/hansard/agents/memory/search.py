"""Search in a tree of files: by path, by regular expression, by words and by meaning.

What ranks a tree is passed in (`Ranker`): the index of words and that of vectors stand in
`hansard.projections.search.files`. They are given the files that the reader may see and nothing
else, so that not even a rank depends on what else there is.

Both together are fused by reciprocal rank (G. Cormack, C. Clarke and S. Buettcher, "Reciprocal rank
fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009).
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypedDict

import msgspec

from hansard.domain.errors import BadValue, CallerError
from hansard.domain.memory.paths import MemoryKind, kind_of

# Packages of an extra: brought in where they are first needed, with the remedy where they lack.


class ExtraMissing(CallerError):
    """A feature needs a package that is not installed.

    State: nothing was read.
    Remedy: install the extra that the message names.

    Attributes:
        package: Its name.
        extra: Of which extra of Hansard it is.
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} takes {package}, which is not installed: pip install 'hansard[{extra}]'"
        )
        self.package = package
        self.extra = extra


def imported(module: str, what: str, package: str, extra: str) -> Any:
    """A module of an extra. Raises ExtraMissing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ExtraMissing(what, package, extra) from error


# Paths by a glob: `skills/*/SKILL.md`, `**/*.md`, `{a,b}/notes.md`.
#
# `*` and `?` stay within a folder, `**` goes through folders, `{a,b}` is either. Names that begin
# with a dot are names like others. What a pattern may cost is bounded before it is tried: each `**`
# multiplies what is tried by the depth of a path.

GLOB_CHARACTERS_MAX = 500
"""Of a glob."""

FOLDERS_MAX = 2
"""`**` in one glob: three take seconds on a deep path that does not match."""

BRANCHES_MAX = 100
"""What braces may come to."""

PATHS_MAX = 1_000
"""Paths that are listed if nothing else is asked for."""

ALL_PATHS = 10_000_000
"""No bound but that of the tree, for who bounds what comes of them."""


class Paths(msgspec.Struct, frozen=True):
    """The paths that match, in order; `more` where a limit cut them off.

    Attributes:
        paths: In the order of their characters.
        more: Whether others match, too.
    """

    paths: list[str]
    more: bool = False


@lru_cache(maxsize=128)
def _matcher(pattern: str) -> Any:
    glob = imported("wcmatch.glob", "a glob", "wcmatch", "memory")
    flags = glob.FORCEUNIX | glob.GLOBSTAR | glob.DOTGLOB | glob.BRACE
    try:
        return glob.compile(pattern, flags=flags, limit=BRANCHES_MAX)
    except Exception as error:  # its expansion of braces has errors of its own package
        remedy = f"braces may come to {BRANCHES_MAX} patterns; see 'hansard memory glob --help'"
        raise BadValue("glob", f"{pattern!r:.80} ({error})", remedy) from error


def checked(pattern: str) -> str:
    """A glob whose cost is bounded. Raises BadValue."""
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
    """Whether a path matches a glob. Raises BadValue, ExtraMissing."""
    return bool(_matcher(checked(pattern)).match(path))


def paths_matching(paths: Iterable[str], pattern: str, *, limit: int = PATHS_MAX) -> Paths:
    """The paths that match a glob, in order, at most `limit`. Raises BadValue, ExtraMissing."""
    if limit < 1:
        raise BadValue("limit", f"{limit}", "give 1 or more")
    matcher = _matcher(checked(pattern))
    found: list[str] = []
    for path in sorted(paths):
        if matcher.match(path):
            if len(found) == limit:
                return Paths(found, more=True)
            found.append(path)
    return Paths(found)


# Lines by a regular expression, in time linear in the text: RE2's syntax, without look-around and
# backreferences. What is given back is bounded, and says where it was cut.

PATTERN_CHARACTERS_MAX = 1_000
"""Of a regular expression."""

MEMORY_BYTES_MAX = 8 * 1024 * 1024
"""What a pattern may take when it is compiled and matched."""

LINES_MAX = 200
"""Lines that are given back if nothing else is asked for."""

LINES_LIMIT_MAX = 10_000
"""Most that can be asked for."""

LINE_CHARACTERS_MAX = 500
"""Shown of a line; what is cut is around the match."""


class Line(msgspec.Struct, frozen=True):
    """A line that matches.

    Attributes:
        path: The file's.
        line: Its number, from 1.
        text: The line; of a long one the part around the match, with `…` where it was cut.
        begin: Where the first match begins in `text`.
        end: Where it ends.
    """

    path: str
    line: int
    text: str
    begin: int
    end: int


class Lines(msgspec.Struct, frozen=True):
    """The lines that match, by path and number.

    Attributes:
        lines: At most as many as were asked for.
        files: In how many files they stand.
        more: Whether there are others: the limit cut them off.
    """

    lines: list[Line]
    files: int
    more: bool = False


@lru_cache(maxsize=64)
def _compiled(pattern: str, *, ignore_case: bool, literal: bool) -> Any:
    re2 = imported("re2", "grep", "google-re2", "memory")
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
    """The lines of a tree's files that match a pattern, by path and number.

    Args:
        tree: The files that the reader may see: path and text.
        pattern: In RE2's syntax; `^` and `$` are a line's begin and end.
        glob: Only in files whose path matches it; in all if empty.
        ignore_case: Whether large and small letters are the same.
        literal: Whether the pattern is a text, nothing in which has a meaning of its own.
        limit: So many lines at most.

    Raises:
        BadValue: The pattern, the glob or the limit cannot be taken.
        ExtraMissing: The extra `memory` is not installed.
    """
    _check(pattern, limit)
    regexp = _compiled(pattern, ignore_case=ignore_case, literal=literal)
    paths = paths_matching(tree, glob, limit=ALL_PATHS).paths if glob else sorted(tree)
    found: list[Line] = []
    files = 0
    for path in paths:
        before = len(found)
        for line in _matching(path, tree[path], regexp):
            if len(found) == limit:
                return Lines(found, files + (len(found) > before), more=True)
            found.append(line)
        files += len(found) > before
    return Lines(found, files)


def _check(pattern: str, limit: int) -> None:
    if not pattern:
        raise BadValue("pattern", f"{pattern!r:.80}", "give a regular expression in RE2's syntax")
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        fact = f"a pattern of {len(pattern):,} characters"
        raise BadValue("pattern", fact, f"give at most {PATTERN_CHARACTERS_MAX:,}")
    if not 1 <= limit <= LINES_LIMIT_MAX:
        raise BadValue("limit", f"{limit}", f"give 1 to {LINES_LIMIT_MAX:,}")


def _matching(path: str, text: str, regexp: Any) -> Iterator[Line]:
    """The lines of one file with a match, each once.

    Bytes are searched: of a text, the package would count characters up to each match again.
    """
    data = text.encode("utf-8", "replace")
    at = line = 0  # where the line after the last one found begins, and its number less 1
    while at <= len(data):
        found = regexp.search(data, at)
        if found is None or (found.start() == len(data) and data[-1:] in (b"", b"\n")):
            return  # what follows the last line's end is no line
        start, stop = found.start(), found.end()
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
        target = _kind(kind)
        tree = {path: text for path, text in tree.items() if kind_of(path) is target}
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
    targets = {By.WORDS: [rankers.words], By.MEANING: [], By.BOTH: [rankers.words]}[way]
    if way is not By.WORDS and rankers.meaning is not None:
        targets.append(rankers.meaning)
    return targets


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
