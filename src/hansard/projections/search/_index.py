"""The full-text index, in SQLite: one row per event, whose text is searched.

One transaction writes the rows of a batch and its end position; a process killed at any point
leaves a consistent state, and continues from it. Readers do not wait for the writer (write-ahead
log). It has the attributes that `project()` needs of a store: `path`, `progress` and `write`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.integrity.content import MEMBERSHIP_TAGS, MembershipEvent
from hansard.projections.errors import BadQuery, IndexUnusable, unusable_index, unwritten
from hansard.projections.rows import COLUMNS, EVENT_BITS, KNOWN_AS, Batch, Row, digest
from hansard.projections.search._words import BEGIN, END, Snippet, quoted, raw, snippet, text_of
from hansard.projections.store import Progress
from hansard.projections.table_files import PRIVATE_FILE, private

VERSION = 3
"""Version of the file's schema. There are no migrations: the index is rebuilt in minutes."""

BUSY_S = 10.0
"""Longest wait for SQLite's own locks, in seconds; they are held for milliseconds."""

CACHE_KIB = 65_536
"""SQLite's cache of the file, in KiB."""

WAL_BYTES = 64 * 1024 * 1024
"""Size to which the write-ahead log is truncated after a checkpoint, in bytes."""

SNIPPET_WORDS = 24
"""Words of a snippet; SQLite takes at most 64."""

ALL = -1
"""Limit for all hits."""

_SCHEMA = """
CREATE TABLE progress (position INTEGER NOT NULL, digest TEXT NOT NULL);
INSERT INTO progress VALUES (0, '');
CREATE VIRTUAL TABLE events USING fts5 (
    text, id UNINDEXED, type UNINDEXED, run UNINDEXED, agent UNINDEXED, role UNINDEXED,
    tokenize = "unicode61 remove_diacritics 2"
);
CREATE TABLE told (run TEXT NOT NULL, version INTEGER NOT NULL, tag TEXT NOT NULL, data TEXT);
CREATE INDEX told_of ON told (run);
"""
_INSERT = (
    "INSERT INTO events (rowid, text, id, type, run, agent, role) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_MEMBERSHIP = "INSERT INTO told (run, version, tag, data) VALUES (?, ?, ?, ?)"
_MEMBERSHIP = "SELECT version, tag, data FROM told WHERE run = ? ORDER BY rowid"
_FIND = f"""
SELECT rowid, id, type, run, agent, role, snippet(events, 0, ?, ?, '…', {SNIPPET_WORDS}), rank
FROM events
WHERE events MATCH ?
    AND (? IS NULL OR run = ?) AND (? IS NULL OR agent = ?)
    AND (? IS NULL OR type = ? OR substr(type, 1, length(?) + 2) = ? || '.v')
ORDER BY rank, rowid DESC
LIMIT ?
"""  # noqa: S608 -- the only thing put in is a number of our own

_position, _event_index, _data = (
    list(COLUMNS).index(n) for n in ("position", "event_index", "data")
)
_told = itemgetter(*(list(COLUMNS).index(n) for n in ("id", "type", "run", "agent", "role")))
_membership = itemgetter(
    *(list(COLUMNS).index(n) for n in ("run", "version", "known_as", "lifted", "data"))
)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A search: all of these words, or FTS5's syntax if `is_query`; with filters. A type is a whole
    tag or one without its version. At most `limit` hits; ALL for all.
    """

    words: str
    is_query: bool = False
    run: str | None = None
    agent: str | None = None
    type: str | None = None
    limit: int = ALL


class Hit(msgspec.Struct, frozen=True):
    """A matching event. The lower the rank (bm25, negative), the better the match."""

    position: int
    event_index: int
    event: str
    type: str
    run: str | None
    agent: str | None
    role: str | None
    snippet: Snippet
    rank: float

    @property
    def address(self) -> str:
        """The event's address in the log."""
        return f"{self.position}.{self.event_index}"


class Index:
    """One workspace's index, open for writing or only for reading. Not thread-safe."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file; a writer creates it if it is missing. A reader sees its current state
        until it is closed; the file may not exist yet. Raises IndexUnusable.
        """
        self.path = path
        try:
            if not read_only:
                _private(path)
            self._con = _connect(path, read_only=read_only)
        except sqlite3.Error as error:
            raise unusable_index(path, error) from error
        try:
            self.made = self._begin(read_only=read_only)
            self.progress = self._progress() if self.made else Progress()
        except sqlite3.Error as error:
            self._con.close()
            raise unusable_index(path, error) from error
        except BaseException:
            self._con.close()
            raise

    def _begin(self, *, read_only: bool) -> bool:
        """Return whether the file holds an index."""
        if read_only:
            self._con.execute("BEGIN")
        [[version]] = self._con.execute("PRAGMA user_version").fetchall()
        if version not in {0, VERSION}:
            raise IndexUnusable(self.path, f"it has schema {version}, this version has {VERSION}")
        if read_only:
            return bool(version)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"cache_size = -{CACHE_KIB}",
            f"journal_size_limit = {WAL_BYTES}",
        ):
            self._con.execute(f"PRAGMA {pragma}").fetchall()
        if not version:
            self._con.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        return True

    def _progress(self) -> Progress:
        return Progress(*self._con.execute("SELECT position, digest FROM progress").fetchone())

    def close(self) -> None:
        """Checkpoint the write-ahead log and close the file."""
        self._con.close()

    def write(self, batch: Batch, _head: int) -> None:
        """Write a batch and its position, atomically; what was written before is skipped. Raises
        ProjectionError (the disk is full, the file is damaged).
        """
        done = self.progress.position
        if batch.position <= done:
            return
        end = Progress(batch.position, digest(batch.last))
        try:
            self._con.execute("BEGIN IMMEDIATE")
            rows = [row for row in batch.rows if row[_position] > done]
            self._con.executemany(_INSERT, map(_row, rows))
            telling = [_membership(row) for row in rows if row[KNOWN_AS] in MEMBERSHIP_TAGS]
            self._con.executemany(
                _INSERT_MEMBERSHIP, [(*item, lifted or data) for *item, lifted, data in telling]
            )
            self._con.execute(
                "UPDATE progress SET position = ?, digest = ?", [end.position, end.digest]
            )
            self._con.execute("COMMIT")
        except sqlite3.Error as error:
            raise unwritten(self.path, error) from error
        finally:
            if self._con.in_transaction:
                self._con.execute("ROLLBACK")
        self.progress = end

    def past(self, run: str) -> Iterable[MembershipEvent]:
        """Return the committed membership events of a run: another thread may be writing."""
        with contextlib.closing(_connect(self.path, read_only=True)) as con:
            return [MembershipEvent(*row) for row in con.execute(_MEMBERSHIP, [run])]

    def find(self, question: Question) -> list[Hit]:
        """Return the matching events, best first, of equals the newest. Raises BadQuery,
        IndexUnusable.
        """
        request = question.words
        match = raw(request) if question.is_query else quoted(request)
        run, agent, tag = question.run, question.agent, question.type
        where = [run, run, agent, agent, tag, tag, tag, tag]
        try:
            rows = self._con.execute(_FIND, [BEGIN, END, match, *where, question.limit]).fetchall()
        except sqlite3.Error as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # not caused by the query
                raise IndexUnusable(self.path, str(error)) from error
            remedy = "see FTS5's query syntax, or leave out --query to search for words as they are"
            raise BadQuery(f"the query {request[:60]!r} is malformed ({error})", remedy) from error
        return [_hit(row) for row in rows]


def _private(path: Path) -> None:
    """Make a file (created if missing) and SQLite's files beside it private to its owner."""
    with contextlib.suppress(OSError):  # SQLite reports the error
        path.touch(mode=PRIVATE_FILE)
        for end in ("", "-wal", "-shm"):
            private(path.with_name(path.name + end))


def settle(path: Path) -> None:
    """Checkpoint a file's write-ahead log. No other connection may be open."""
    con = _connect(path, read_only=False)
    try:
        con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        con.close()


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    mode = "ro" if read_only else "rwc"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )


def _row(row: Row) -> tuple[Any, ...]:
    return (row[_position] << EVENT_BITS | row[_event_index], text_of(row[_data]), *_told(row))


def _hit(row: Sequence[Any]) -> Hit:
    ordinal, event, tag, run, agent, role, marked, rank = row
    index = ordinal & ((1 << EVENT_BITS) - 1)
    return Hit(ordinal >> EVENT_BITS, index, event, tag, run, agent, role, snippet(marked), rank)
