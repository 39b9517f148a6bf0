"""Files ranked for a question: by their words in SQLite's FTS5, by their vectors in DuckDB.

Each index holds one tree, in memory: the files that one reader may see, so that neither a hit nor a
rank reveals another file. A query with another tree updates only the differences. Both have the
interface of `hansard.agents.memory.search.Ranker`.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import duckdb
from cachetools import LRUCache

from hansard.domain.errors import BadValue
from hansard.projections.full_text import BEGIN, END, any_of, cleaned, snippet

PIECE_CHARACTERS = 800
"""Size of a piece with one vector, in characters, by paragraphs: an average over a whole file says
little of it.
"""

PIECES_MAX = 200
"""Most pieces of one file with vectors; the rest is found by its words."""

VECTORS_MAX = 200_000
"""Most pieces whose vectors are cached for files that return: 256 of them a MB."""

BATCH = 512
"""Most pieces passed to an embedder at once."""

EXCERPT_WORDS = 24
"""Words of an excerpt; SQLite takes at most 64."""

EXCERPT_CHARACTERS = 200
"""Most characters shown of a piece."""

NAME_WEIGHT = 2.0
"""Weight of a word in a path; one in the text has 1."""

_FIND = f"""
SELECT path, -bm25(files, 0.0, {NAME_WEIGHT}, 1.0),
    snippet(files, 2, ?, ?, '…', {EXCERPT_WORDS})
FROM files WHERE files MATCH ? ORDER BY bm25(files, 0.0, {NAME_WEIGHT}, 1.0), path LIMIT ?
"""  # noqa: S608 -- the only things put in are numbers of our own


class Embedder(Protocol):
    """See `hansard.agents.memory.search.Embedder`."""

    @property
    def name(self) -> str: ...  # noqa: D102 -- see there
    @property
    def digest(self) -> str: ...  # noqa: D102 -- see there
    @property
    def dims(self) -> int: ...  # noqa: D102 -- see there
    def embed(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]: ...  # noqa: D102 -- see there


def _changes(held: Mapping[str, str], tree: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the paths to remove, and those to add: a changed file is in both."""
    gone = [path for path, text in held.items() if tree.get(path) != text]
    come = [path for path, text in tree.items() if held.get(path) != text]
    return gone, come


class FileWords:
    """Full-text index of one tree's files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, str] = {}
        self._con = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._con.execute(
            "CREATE VIRTUAL TABLE files USING fts5"
            "(path UNINDEXED, name, text, tokenize = 'unicode61 remove_diacritics 2')"
        )

    def ranked(
        self, tree: Mapping[str, str], question: str, limit: int, /
    ) -> list[tuple[str, float, str]]:
        """Return path, score and excerpt of the files that contain words of a question, best first,
        of equals by path; at most `limit`. Raises BadQuery.
        """
        match = any_of(question)
        with self._lock:
            self._take_in(tree)
            rows = self._con.execute(_FIND, [BEGIN, END, match, limit]).fetchall()
        return [(path, score, snippet(marked).text) for path, score, marked in rows]

    def _take_in(self, tree: Mapping[str, str]) -> None:
        gone, come = _changes(self._held, tree)
        if not gone and not come:
            return
        self._con.execute("BEGIN")
        try:
            # `path` is not indexed: each delete would scan all rows.
            numbers = dict(self._con.execute("SELECT path, rowid FROM files")) if gone else {}
            self._con.executemany(
                "DELETE FROM files WHERE rowid = ?", [[numbers[path]] for path in gone]
            )
            self._con.executemany(
                "INSERT INTO files VALUES (?, ?, ?)",
                [(path, cleaned(path), cleaned(tree[path])) for path in come],
            )
            self._con.execute("COMMIT")
        except BaseException:
            self._con.execute("ROLLBACK")
            raise
        self._held = dict(tree)

    def close(self) -> None:
        """Release the index."""
        self._con.close()


class FileVectors:
    """Vector index of one tree's files, with one vector per piece of some paragraphs."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        self._held: dict[str, str] = {}
        self._made: LRUCache[bytes, list[float]] = LRUCache(VECTORS_MAX)
        self._dims = int(embedder.dims)
        if self._dims < 1:
            raise _unfit(embedder, f"its dims are {embedder.dims!r}")
        self._digest = embedder.digest
        self._con = duckdb.connect(":memory:", config={"threads": 1})
        self._con.execute(
            f"CREATE TABLE pieces (path VARCHAR, text VARCHAR, vector FLOAT[{self._dims}])"
        )

    def ranked(
        self, tree: Mapping[str, str], question: str, limit: int, /
    ) -> list[tuple[str, float, str]]:
        """Return path, similarity (-1 to 1) and nearest piece of the files, nearest first, of
        equals by path; at most `limit`. Raises BadValue if the embedder returns something other
        than vectors.
        """
        with self._lock:
            self._take_in(tree)
            [request] = self._embedded([question])
            if not any(request):
                return []
            return self._con.execute(
                f"""
                SELECT path, max(near) AS best, arg_max(text, near) FROM (
                    SELECT path, text, array_cosine_similarity(vector, ?::FLOAT[{self._dims}])
                        AS near FROM pieces)
                WHERE near IS NOT NULL AND NOT isnan(near)
                GROUP BY path ORDER BY best DESC, path LIMIT ?
                """,  # noqa: S608 -- the only thing put in is a number of our own
                [request, limit],
            ).fetchall()

    def _take_in(self, tree: Mapping[str, str]) -> None:
        if self._embedder.digest != self._digest:
            self._made.clear()
            self._held, self._digest = {}, self._embedder.digest
            self._con.execute("DELETE FROM pieces")
        gone, come = _changes(self._held, tree)
        if not gone and not come:
            return
        rows = [(path, piece) for path in come for piece in pieces(tree[path])]
        vectors = self._vectors([piece for _, piece in rows])
        self._con.execute("BEGIN")
        try:
            if gone:
                self._con.execute("DELETE FROM pieces WHERE path IN (SELECT unnest(?))", [gone])
            for begin in range(0, len(rows), BATCH):
                part = slice(begin, begin + BATCH)
                paths = [path for path, _ in rows[part]]
                texts = [piece[:EXCERPT_CHARACTERS] for _, piece in rows[part]]
                self._con.execute(
                    "INSERT INTO pieces SELECT unnest(?), unnest(?), "
                    f"unnest(?::FLOAT[{self._dims}][])",
                    [paths, texts, vectors[part]],
                )
            self._con.execute("COMMIT")
        except BaseException:
            self._con.execute("ROLLBACK")
            raise
        self._held = dict(tree)

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of pieces; known ones are not computed again."""
        keys = [hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in texts]
        missing = {
            key: text for key, text in zip(keys, texts, strict=True) if key not in self._made
        }
        known = {key: self._made[key] for key in keys if key in self._made}
        vectors = self._embedded(list(missing.values()))
        for key, vector in zip(missing, vectors, strict=True):
            known[key] = self._made[key] = vector
        return [known[key] for key in keys]

    def _embedded(self, texts: Sequence[str]) -> list[list[float]]:
        embedded: list[list[float]] = []
        for begin in range(0, len(texts), BATCH):
            part = texts[begin : begin + BATCH]
            vectors = [[float(each) for each in vector] for vector in self._embedder.embed(part)]
            if len(vectors) != len(part):
                raise _unfit(self._embedder, f"of {len(part)} texts it made {len(vectors)} vectors")
            for vector in vectors:
                if len(vector) != self._dims or not all(map(math.isfinite, vector)):
                    fact = f"a vector has {len(vector)} numbers, or some that are not finite"
                    raise _unfit(self._embedder, fact)
            embedded += vectors
        return embedded

    def close(self) -> None:
        """Release the index."""
        self._con.close()


def _unfit(embedder: Any, fact: str) -> BadValue:
    remedy = "an embedder gives each text a vector of `dims` finite numbers, in the same order"
    return BadValue(f"the embedder {getattr(embedder, 'name', embedder)!r:.80}", fact, remedy)


def pieces(text: str) -> list[str]:
    """Split a text into pieces of whole paragraphs; an overlong paragraph is cut."""
    parts: list[str] = []
    now = ""
    for paragraph in _paragraphs(text):
        if now and len(now) + 2 + len(paragraph) > PIECE_CHARACTERS:
            parts.append(now)
            now = ""
            if len(parts) == PIECES_MAX:
                return parts
        now = f"{now}\n\n{paragraph}" if now else paragraph
    return [*parts, now] if now else parts


def _paragraphs(text: str) -> Iterator[str]:
    whole: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.strip():
            whole.append(line)
            continue
        paragraph = "\n".join(whole)
        whole = []
        yield from _cut(paragraph)


def _cut(paragraph: str) -> Iterable[str]:
    size = PIECE_CHARACTERS
    return (paragraph[begin : begin + size] for begin in range(0, len(paragraph), size))
