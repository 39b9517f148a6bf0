"""Full-text search over events, in a file beside the tables.

    <data dir>/projections/<workspace>.search.sqlite      the index (and SQLite's -wal and -shm)
    <data dir>/projections/<workspace>.search.sqlite.new  output of a rebuild, then the index
    <data dir>/projections/<workspace>.search.lock        flock, held by the one process that writes
    <data dir>/projections/<workspace>.search.reading     flock, shared by the readers

The file is derived from the log and may be deleted at any time. A reader holds the last lock,
because a file must not be replaced under SQLite, which finds the files beside it by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import msgspec

from hansard.bus.file_lock import PRIVATE_FILE, take_by
from hansard.domain.ids import workspace_name
from hansard.domain.integrity import MEMBERSHIP_TAGS, MembershipEvent
from hansard.projections.errors import BadQuery, ProjectionError, Unusable, unusable, unwritten
from hansard.projections.rows import COLUMNS, EVENT_BITS, KNOWN_AS, Batch, Row, digest
from hansard.projections.runner import Source, project, to_its_end
from hansard.projections.store import Progress, Store
from hansard.projections.table_files import (
    ProjectorStatus,
    TableFiles,
    WriteLock,
    new_folder,
    private,
    sync_folder,
)

# Texts for the full-text index: of an event, of a question, and of a match.
#
# The index takes letters and digits of any script as words, ignoring case and accents. Han, kana
# and hangul are written without spaces between words: each character is a word there, so that a
# part of a sentence is found. They are separated in the index by U+200B, which has no width and is
# removed from what is shown.

WORDS_MAX = 200
"""Most words or quoted phrases of one question; each is looked up on its own."""

QUERY_CHARACTERS_MAX = 10_000
"""Longest question, in characters."""

BESIDE_CHARACTERS_MAX = 200
"""Most characters shown of a text beside or in a match: a snippet counts words, and a word may be
long.
"""

BEGIN, END = "\ufdd0", "\ufdd1"
"""Marks around a match in the index's output: noncharacters, which no indexed text contains."""

COMMON = frozenset(
    re.findall(
        r"\S+",
        """
        a about above after all also am an and any are as at be because been before being below
        but by can could did do does doing down during each every for from further had has have
        having he her here hers him his how i if in into is it its just may me might more most
        must my no nor not now of off on once one only or other our out over own same she should
        so some such than that the their them then there these they this those through to too
        under until up us use very was we were what when where which while who whom whose why
        will with within without would you your
        """,
    )
)
"""English words without meaning for a search: they are looked up only if a question has no others.
Nearly every one of many files has them, and among few files they would rank at random.
"""

_GAP = "\u200b"
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?', re.DOTALL)
_UNSPACED = (
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_BETWEEN = re.compile(f"(?<={_UNSPACED})(?=\\w)|(?<=\\w)(?={_UNSPACED})")
_LETTERS = re.compile(r"[^\W_]+")
_WORD = re.compile(r'"([^"]+)"|(\S+)')
_OUT = {0: "\ufffd", ord(BEGIN): "\ufffd", ord(END): "\ufffd", ord(_GAP): " "}


class Snippet(msgspec.Struct, frozen=True):
    """Some words around matches; `marks` are the begin and end of each match in `text`."""

    text: str
    marks: list[tuple[int, int]]


def text_of(data: str) -> str:
    """Return the texts and keys in an event's data (JSON), in their order, as `key: text; text`.

    Numbers are left out: nearly every event counts something. The data is not decoded as a whole,
    so that no depth of nesting matters.
    """
    return cleaned("".join(_parts(data)))


def _parts(data: str) -> Iterator[str]:
    for match in _STRING.finditer(data):
        text = match[1]
        if "\\" in text:
            text = _unescaped(text)
        yield text
        yield ": " if match[2] else "; "


def _unescaped(text: str) -> str:
    try:
        fields = json.loads(f'"{text}"', strict=False)
    except json.JSONDecodeError:
        return text  # no valid escape of JSON
    return fields if isinstance(fields, str) else text


def cleaned(text: str) -> str:
    """Return a text for the index: without NUL, unpaired surrogates and our own marks."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    whole = text.encode("utf-8", "replace").decode()
    return _BETWEEN.sub(_GAP, whole.translate(_OUT))


def quoted(words: str) -> str:
    """Return an FTS5 query for all of these words; a text in double quotes is one phrase.

    No operator has a meaning in it. Raises BadQuery.
    """
    _bound(words)
    phrases = [
        phrase or word for phrase, word in _WORD.findall(cleaned(words).replace("\ufffd", " "))
    ]
    if len(phrases) > WORDS_MAX:
        raise BadQuery(f"the question has {len(phrases):,} words", f"give at most {WORDS_MAX}")
    if not any(char.isalnum() for word in phrases for char in word):
        raise BadQuery(f"there is no word in {words[:60]!r}", "give letters or digits")
    return " ".join('"' + word.replace('"', '""') + '"' for word in phrases)


def any_of(words: str) -> str:
    """Return an FTS5 query for any of these words, each once; rare words rank highest.

    Only the first words of a long text count. No operator has a meaning in it. Raises BadQuery.
    """
    _bound(words)
    distinct = dict.fromkeys(_LETTERS.findall(cleaned(words).replace("\ufffd", " ").lower()))
    if not distinct:
        raise BadQuery(f"there is no word in {words[:60]!r}", "give letters or digits")
    telling = [word for word in distinct if word not in COMMON] or list(distinct)
    return " OR ".join(f'"{word}"' for word in telling[:WORDS_MAX])


def raw(query: str) -> str:
    """Return a question in FTS5's own syntax for the index. Raises BadQuery."""
    _bound(query)
    value = cleaned(query).replace("\ufffd", " ").strip()
    if not value or value.startswith("*"):  # an asterisk begins the index's own commands
        raise BadQuery(f"the query {query[:60]!r} has no terms", 'give a word, or "a phrase"')
    return value


def _bound(text: str) -> None:
    if len(text) > QUERY_CHARACTERS_MAX:
        remedy = f"give at most {QUERY_CHARACTERS_MAX:,}"
        raise BadQuery(f"the question has {len(text):,} characters", remedy)


def snippet(marked: str) -> Snippet:
    """Return a snippet without the index's marks, and with long parts shortened."""
    shown, marks, at = "", [], 0
    parts = re.split(f"[{BEGIN}{END}]", marked.replace(_GAP, ""))
    for number, part in enumerate(parts):
        if number % 2:
            value = part[:BESIDE_CHARACTERS_MAX]
            marks.append((at, at + len(value)))
        else:
            value = _beside(part, first=not number, last=number + 1 == len(parts))
        shown += value
        at += len(value)
    return Snippet(shown, marks)


def _beside(text: str, *, first: bool, last: bool) -> str:
    """Return a text beside matches, cut if it is far from them."""
    most = BESIDE_CHARACTERS_MAX
    before = "" if first else text[:most]
    after = "" if last else text[-most:]
    if len(text) <= len(before) + len(after):
        return text
    return f"{before}…{after}"


# The full-text index, in SQLite: one row per event, whose text is searched.
#
# One transaction writes the rows of a batch and its end position; a process killed at any point
# leaves a consistent state, and continues from it. Readers do not wait for the writer (write-ahead
# log). It has the attributes that `project()` needs of a store: `path`, `progress` and `write`.

REMEDY = "make it again with 'hansard search --rebuild'"
"""Remedy for an index that cannot be used."""
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

_SCHEMA = Path(__file__).with_suffix(".sql").read_text("utf-8")
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
_of_event = itemgetter(*(list(COLUMNS).index(n) for n in ("id", "type", "run", "agent", "role")))
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

    remedy = REMEDY

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file; a writer creates it if it is missing. A reader sees its current state
        until it is closed; the file may not exist yet. Raises Unusable.
        """
        self.path = path
        try:
            if not read_only:
                _private(path)
            self._con = _connect(path, read_only=read_only)
        except sqlite3.Error as error:
            raise unusable(path, error, self.remedy) from error
        try:
            self.made = self._begin(read_only=read_only)
            self.progress = self._progress() if self.made else Progress()
        except sqlite3.Error as error:
            self._con.close()
            raise unusable(path, error, self.remedy) from error
        except BaseException:
            self._con.close()
            raise

    def _begin(self, *, read_only: bool) -> bool:
        """Return whether the file holds an index."""
        if read_only:
            self._con.execute("BEGIN")
        [[version]] = self._con.execute("PRAGMA user_version").fetchall()
        if version not in {0, VERSION}:
            raise Unusable(
                self.path, f"it has schema {version}, this version has {VERSION}", self.remedy
            )
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
        Unusable.
        """
        request = question.words
        match = raw(request) if question.is_query else quoted(request)
        run, agent, tag = question.run, question.agent, question.type
        where = [run, run, agent, agent, tag, tag, tag, tag]
        try:
            rows = self._con.execute(_FIND, [BEGIN, END, match, *where, question.limit]).fetchall()
        except sqlite3.Error as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # not caused by the query
                raise Unusable(self.path, str(error), self.remedy) from error
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
    return (row[_position] << EVENT_BITS | row[_event_index], text_of(row[_data]), *_of_event(row))


def _hit(row: Sequence[Any]) -> Hit:
    ordinal, event, tag, run, agent, role, marked, rank = row
    index = ordinal & ((1 << EVENT_BITS) - 1)
    return Hit(ordinal >> EVENT_BITS, index, event, tag, run, agent, role, snippet(marked), rank)


READERS_WAIT_S = 30.0
"""Longest time that a rebuild waits for readers, and they for it, in seconds."""

TRY_S = 0.01
"""Pause between two attempts to replace the file, in seconds."""

Moved = Callable[[int, int], None]
"""Called with the current and the target position."""


class Answer(msgspec.Struct, frozen=True):
    """The hits, as of a position of the log; `more` if a limit cut them off."""

    position: int
    hits: list[Hit]
    more: bool


class IndexPlace(TableFiles, frozen=True):
    """The files of one workspace's index."""

    @property
    def remedy(self) -> str:
        """Remedy for an index that cannot be used."""
        return REMEDY

    @classmethod
    def of(cls, data_dir: Path, workspace: str) -> IndexPlace:
        """Return those in a data directory. Raises BadName."""
        return cls(data_dir / "projections" / f"{workspace_name(workspace)}.search.sqlite")

    def remove(self, path: Path) -> None:
        """Remove a file and SQLite's files beside it."""
        for end in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + end).unlink(missing_ok=True)

    def replace(self) -> None:
        """Replace the index by a rebuilt one, atomically.

        Waits for readers. If killed in between, the old one is kept. Raises ProjectionError.
        """
        with self._alone():
            with contextlib.suppress(sqlite3.Error):  # a damaged file has nothing to keep
                if self.path.exists():
                    settle(self.path)
            for end in ("-wal", "-shm"):
                self.path.with_name(self.path.name + end).unlink(missing_ok=True)
            self.fresh.replace(self.path)
            sync_folder(self.path.parent)

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Prevent the file from being replaced meanwhile. Raises Unusable."""
        replaced = f"another process has been replacing it for {READERS_WAIT_S:g} s"
        with self._locked(Unusable(self.path, replaced, self.remedy), shared=True):
            yield

    def _alone(self) -> AbstractContextManager[None]:
        """Wait until there is no reader, and let none begin."""
        fact = f"was read without a pause for {READERS_WAIT_S:g} s and was not replaced"
        remedy = "end the searches in it, then rebuild again"
        return self._locked(ProjectionError(f"{str(self.path)!r} {fact}: {remedy}"))

    @contextlib.contextmanager
    def _locked(self, late: ProjectionError, *, shared: bool = False) -> Generator[None]:
        fd = self._reading_lock()
        try:
            if not take_by(time.monotonic() + READERS_WAIT_S, fd, TRY_S, shared=shared):
                raise late
            yield
        finally:
            os.close(fd)

    def _reading_lock(self) -> int:
        try:
            new_folder(self.path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            return os.open(self.path.with_suffix(".reading"), flags, PRIVATE_FILE)
        except OSError as error:
            raise unusable(self.path, error, self.remedy) from error


async def bring_up(source: Source, place: IndexPlace, moved: Moved) -> int:
    """Index new messages up to the log's newest position; return the position. If killed at any
    point, the next call continues. Raises Held, OtherLog, Unusable, BrokerError.
    """
    hold = WriteLock(place)
    try:
        async with _opened(place.path) as index:
            last = (await source.extent()).last
            await _project(source, index, last, _telling(hold, moved))
            hold.record_status(ProjectorStatus(os.getpid(), index.progress.position, last))
            return index.progress.position
    finally:
        hold.close()


async def rebuild(source: Source, place: IndexPlace, moved: Moved) -> int:
    """Rebuild the index up to the newest position, and replace the old one; return the position. If
    killed before that, the old one is kept. Raises as `bring_up`, and ProjectionError if readers
    do not end.
    """
    hold = WriteLock(place)
    try:
        place.remove(place.fresh)  # left by a killed rebuild
        last = (await source.extent()).last
        async with _opened(place.fresh) as index:
            await _project(source, index, last, lambda batch, _: moved(batch.position, last))
            reached = index.progress.position
        await to_its_end(lambda: settle(place.fresh))
        await to_its_end(place.replace)
        hold.record_status(ProjectorStatus(os.getpid(), reached, last))
        return reached
    finally:
        place.remove(place.fresh)
        hold.close()


def ask(place: IndexPlace, question: Question) -> Answer | None:
    """Search the current index; return None if there is none yet.

    Raises BadQuery, Unusable.
    """
    more = question.limit + 1 if question.limit >= 0 else ALL
    with place.reading():
        if not place.path.exists():
            return None
        index = Index(place.path, read_only=True)
        try:
            if not index.made:
                return None
            hits = index.find(msgspec.structs.replace(question, limit=more))
            cut = question.limit if question.limit >= 0 else len(hits)
            return Answer(index.progress.position, hits[:cut], len(hits) > cut)
        finally:
            index.close()


@contextlib.asynccontextmanager
async def _opened(path: Path) -> AsyncGenerator[Index]:
    """Open an index, and close it, in threads that are waited for: the caller holds the write lock
    until they have finished. Raises Unusable.
    """
    indexes: list[Index] = []
    try:
        await to_its_end(lambda: indexes.append(Index(path)))
        yield indexes[0]
    finally:
        for index in indexes:
            await to_its_end(index.close)


def _telling(hold: WriteLock, moved: Moved) -> Callable[[Batch, int], None]:
    def record_status(batch: Batch, head: int) -> None:
        known = max(head, batch.position)
        hold.record_status(ProjectorStatus(os.getpid(), batch.position, known))
        moved(batch.position, known)

    return record_status


async def _project(
    source: Source, index: Index, until: int, moved: Callable[[Batch, int], None]
) -> None:
    # project() needs only path, remedy, progress, past and write of a store.
    await project(source, cast("Store", index), until=until, moved=moved)
