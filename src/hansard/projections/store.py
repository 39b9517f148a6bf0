"""The tables, in DuckDB.

One transaction writes the rows of a batch and its end position, so a process killed at any point
leaves a consistent state, and continues from it. TIMESTAMP columns hold UTC.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import re
import tempfile
import threading
import time
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from hansard.bus import slices
from hansard.bus.file_lock import PRIVATE_DIR, replace_private
from hansard.bus.log import RawMessage
from hansard.bus.loggers import logger
from hansard.domain.integrity import MEMBERSHIP_TAGS, MembershipEvent
from hansard.projections._engine import engine as duckdb
from hansard.projections.errors import REBUILD, Newer, Older, Unusable, unusable, unwritten
from hansard.projections.rows import (
    KNOWN_AS,
    LABEL,
    POSITION,
    RUN,
    SHAPE,
    Batch,
    End,
    Problem,
    Row,
    Shape,
    digest,
)
from hansard.projections.table_files import VERSION, private, schema_digest, schema_sql, wal

# The statements that fill the tables from a batch: the files of `tables/`.

LABELLED = "labelled"
"""Pattern of loaders for events with a label, whatever their type."""

_log = logger(__name__)

_HERE = Path(__file__).parent


class Loader(msgspec.Struct, frozen=True):
    """A file of `tables/`: the event types it applies to (its first line), its condition (its
    second: only with forks, or only with partial events), and its statements.
    """

    patterns: tuple[str, ...]
    where: str
    statements: tuple[Any, ...]

    def fits(self, *, forks: bool, partial: bool) -> bool:
        """Return whether it applies under these conditions."""
        return {"forks": forks, "partial": partial}.get(self.where, True)

    def concerns(self, types: Iterable[str]) -> bool:
        """Return whether it has any work: a statement without any costs 1 to 5 ms."""
        return any(fnmatchcase(tag, pattern) for tag in types for pattern in self.patterns)


@cache
def fillers() -> tuple[Loader, ...]:
    """Load the statements that fill the tables from a batch, in order."""
    loaders: list[Loader] = []
    for path in sorted((_HERE / "tables").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        first, second, _ = text.split("\n", 2)
        patterns = first.removeprefix("-- On: ").split()
        statements = tuple(duckdb.extract_statements(text))
        _, _, where = second.partition("-- Where: ")
        loaders.append(Loader(tuple(patterns), where, statements))
    return tuple(loaders)


atexit.register(fillers.cache_clear)  # otherwise DuckDB reports its statements as leaked at exit


# A database file with empty tables, created once and kept in the user's cache folder.
#
# The statements that create one take half a second, and each new workspace, role and copy starts
# with one. The cache folder is `~/.cache/hansard`, or as the platform or XDG_CACHE_HOME defines;
# the file's name is derived from all that determines it, and its SHA-256 is at its end. If it is
# missing or damaged or cannot be stored there, it is created.

OLD_S = 30 * 24 * 3600.0
"""Age in seconds from which a file is removed when one of another version is stored."""

_DIGEST_BYTES = hashlib.sha256().digest_size


def empty_file(
    make: Callable[[], bytes], *of: object, keeps: Callable[[], bool] = lambda: True
) -> bytes:
    """Return the bytes of such a file, created by `make` from only these values.

    It is kept for the next process, unless `keeps` returns False afterwards.
    """
    folder = platformdirs.user_cache_path("hansard")
    if not folder.is_absolute():  # the user has no home folder
        return make()
    path = folder / f"tables-{_name(of)}"
    kept = _read(path)
    if kept is None:
        kept = make()
        if not keeps():
            return kept
        with contextlib.suppress(OSError):
            _keep(path, kept)
    return kept


def _name(of: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:32]


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    data, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == digest else None


def _keep(path: Path, data: bytes) -> None:
    """Store it atomically, and remove old ones of other versions. Raises OSError."""
    path.parent.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
    for other in path.parent.glob("tables-*"):
        if time.time() - other.stat().st_mtime > OLD_S:
            other.unlink(missing_ok=True)
    replace_private(path, data + hashlib.sha256(data).digest())


# The meaning of each column of the tables and views, stated once, in `schema/columns.toml`.

_FILE = Path(__file__).parent / "schema" / "columns.toml"
_ALIKE = "alike"
EVERYWHERE = "everywhere"


@cache
def dictionary() -> dict[str, dict[str, str]]:
    """Return the file: by table or view the columns described there, in `everywhere` the general
    columns, in `alike` which table or view has the same columns.
    """
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def section(relation: str, column: str) -> str | None:
    """Return the section of the file that describes a column of a table or view; None for none."""
    sections = dictionary()
    for name in (relation, sections[_ALIKE].get(relation, relation), EVERYWHERE):
        if column in sections.get(name, {}):
            return name
    return None


def meaning(relation: str, column: str) -> str | None:
    """Return the meaning of a column of a table or view; None if the file has none."""
    name = section(relation, column)
    return None if name is None else dictionary()[name][column]


MEMORY_MAX = "1GiB"
"""DuckDB's memory limit; beyond it, it spills to a temporary folder beside the file."""

THREADS_MAX = 2
"""Most cores used for a large batch; the machine also runs agents."""

LARGE_ROWS = 10_000
"""Number of rows from which a batch uses a second core. With a small one every statement would wait
for another thread to wake up: a sixth more work, and on a busy machine twice the time.
"""

WAL_MAX = "256MiB"
"""Size of DuckDB's log at which it is checkpointed: half a second in which no batch is written, at
1,000 events a second about every two minutes.
"""

FORKED = "run.forked.v1"
"""The event with which a run continues another one's streams."""

FAULTS = (duckdb.DataError, duckdb.IntegrityError, duckdb.InvalidInputException)
"""DuckDB's errors for values that it cannot store; others concern the file or the machine."""

_PROBLEMS = Shape(
    {"position": "integer", "event_index": "integer", "subject": "text", "reason": "text"}
)


class Progress(msgspec.Struct, frozen=True):
    """The position up to which the log is projected; `digest` is that of the message there.
    `messages` is the number of messages up to it, `chain` their rolling digest; None if none is
    kept.
    """

    position: int = 0
    digest: str = ""
    messages: int = 0
    chain: str | None = None


class Digest(msgspec.Struct, frozen=True):
    """Summary of a table's rows: their number, and an order-independent digest."""

    rows: int
    sum: str


class Store:
    """One workspace's tables, open for writing or only for reading. Not thread-safe."""

    remedy = REBUILD

    def __init__(self, path: Path, *, read_only: bool = False, partial: bool = False) -> None:
        """Open the file. For writing, it is created where it is missing, and emptied where another
        schema made it. `partial`: its events are not whole, so any column may lack its value.

        Raises:
            Newer: a newer version of Hansard made the file.
            Older: another schema made the file, and it is opened for reading only.
            Unusable: the file cannot be opened, or holds no tables of Hansard.
        """
        self.path = path
        self._partial = partial
        self._threads = THREADS_MAX
        self.restarted = False
        """True if the file was emptied because another schema made it."""
        self._looking = threading.Lock()
        if not read_only:
            import duckdb as _  # noqa: PLC0415, F401 -- has Arrow taken, which rows come in

            self._begin()
        self._con = _connect(self.path, read_only=read_only)
        try:
            if not self._is_current(read_only=read_only):
                self._restart()
            if not read_only:
                private(wal(self.path))
            self.progress = self._progress()
            self._forked: set[str] = set()
            if not read_only:
                self._forked |= {run for (run,) in self.all("SELECT DISTINCT run FROM lineage")}
        except BaseException as error:
            self._con.close()
            if isinstance(error, duckdb.Error) and not isinstance(error, duckdb.ProgrammingError):
                raise unusable(self.path, error) from error  # an error of the SQL is a bug of ours
            raise

    def _begin(self) -> None:
        """Create the file with empty tables, unless it exists. Raises Unusable."""
        if self.path.exists():
            for each in (self.path, wal(self.path)):
                private(each)
            return
        try:
            wal(self.path).unlink(missing_ok=True)
            replace_private(self.path, _blank(partial=self._partial))
        except OSError as error:
            raise unusable(self.path, error) from error

    @property
    def position(self) -> int:
        """The position of the tables."""
        return self.progress.position

    @property
    def digest(self) -> str:
        """SHA-256 of the message there."""
        return self.progress.digest

    def close(self) -> None:
        """Checkpoint DuckDB's log and close the file."""
        self._con.close()

    def interrupt(self) -> None:
        """Interrupt the current query, in whichever thread."""
        self._con.interrupt()

    # ------------------------------------------------------------ writing

    def write(self, batch: Batch, head: int) -> None:
        """Write a batch and its position, atomically.

        What was written before is skipped. Values that DuckDB cannot store become problems, and the
        rest is written: in parts, each with its position. Each bad row costs at most about 3
        log2(rows of the batch) attempts, most of them with few rows. Raises ProjectionError (the
        disk is full, the file is damaged).
        """
        done = self.progress.position
        if batch.position <= done:
            return
        rows, chunks, problems = batch.rows, batch.chunks, batch.problems
        if rows and rows[0][POSITION] <= done:
            rows = [row for row in rows if row[POSITION] > done]
            chunks = []
        problems = [each for each in problems if each.position > done]
        ends = [each for each in batch.ends if done < each.last.position < batch.position]
        ends.append(End(batch.last, batch.messages, batch.chain))
        whole = _Part(rows, problems, ends[-1])
        fault = self._write(whole, head, chunks)
        if fault is None:
            return
        if self._try([], []) is not None or not rows:
            raise unwritten(self.path, fault) from fault
        self._in_halves(_parts(whole, ends), head)

    def _write(self, part: _Part, head: int, chunks: Sequence[Any] = ()) -> duckdb.Error | None:
        """Write a part and its end; return the fault of its rows, if any."""
        fault = self._try(part.rows, part.problems, part.end, head, chunks)
        if fault is None:
            last = part.end.last
            self.progress = Progress(last.position, digest(last), part.end.messages, part.end.chain)
            self._reached(last, head)
        return fault

    def _reached(self, last: RawMessage, head: int) -> None:
        """Handle a finished transaction with its last message and the newest known position."""

    def _in_halves(self, parts: Sequence[_Part], head: int) -> None:
        """Write parts that cannot be written together: halve them until one is left, and write that
        without its bad rows.
        """
        if len(parts) == 1:
            self._sifted(parts[0], head)
            return
        middle = len(parts) // 2
        for half in (parts[:middle], parts[middle:]):
            if self._write(_joined(half), head) is not None:
                self._in_halves(half, head)

    def _sifted(self, part: _Part, head: int) -> None:
        """Write a part with bad rows.

        Try the rows after the good ones; on a fault halve them, until a single row is left, which
        is bad. Then continue from there with twice as many each time, starting with the distance
        between the last two bad rows: so few bad rows cost about log2 attempts each, and if all are
        bad two each.
        """
        rows, problems, good, mended = part.rows, list(part.problems), 0, -1
        step = max(1, len(rows) // 2)
        while True:
            reach = min(good + step, len(rows))
            if reach < len(rows):
                fault = self._try(rows[:reach], [])
            else:
                fault = self._write(_Part(rows, problems, part.end), head)
                if fault is None:
                    return
            if fault is None:
                good, step = reach, 1 if good == mended else 2 * step
            elif reach > good + 1:
                step = (reach - good) // 2
            elif reach == good:  # no row is the cause
                raise unwritten(self.path, fault) from fault
            else:
                rows, problem = _without(rows, good, fault)
                problems.append(problem)
                if problem.event_index is None:
                    good = min(good, _first(rows, problem.position))
                step, mended = max(1, good - mended), good

    def _try(
        self,
        rows: Sequence[Row],
        problems: Sequence[Problem],
        end: End | None = None,
        head: int = 0,
        chunks: Sequence[Any] = (),
    ) -> duckdb.Error | None:
        """Write rows, and commit them if they have an end; return the fault of a row, if any."""
        threads = THREADS_MAX if len(rows) >= LARGE_ROWS else 1
        if threads != self._threads:
            self._run(f"SET threads = {threads}")
            self._threads = threads
        self._run("BEGIN")
        ended = False
        try:
            self._fill(rows, problems, chunks)
            if end is not None:
                self._stand(end, head)
                self._run("COMMIT")
                ended = True
                private(wal(self.path))
        except FAULTS as error:
            return error
        except duckdb.Error as error:
            # A failed COMMIT, for example on a full disk, has ended the transaction itself.
            ended = isinstance(error, duckdb.FatalException | duckdb.TransactionException)
            raise unwritten(self.path, error) from error
        finally:
            if not ended:
                self._run("ROLLBACK")
        return None

    def _fill(
        self, rows: Sequence[Row], problems: Sequence[Problem], chunks: Sequence[Any]
    ) -> None:
        if problems:
            values = [msgspec.structs.astuple(each) for each in problems]
            self._con.register("problems_found", _PROBLEMS.table([_PROBLEMS.chunk(values)]))
            self._run("INSERT INTO problems SELECT * FROM problems_found")
        if rows:
            # Into a table first: the planner does not know the size of Arrow data, and assumes one.
            self._con.register("incoming_rows", SHAPE.table(chunks or [SHAPE.chunk(rows)]))
            self._run("CREATE OR REPLACE TEMP TABLE incoming AS SELECT * FROM incoming_rows")
            types = {row[KNOWN_AS] or "" for row in rows}
            if any(row[LABEL] for row in rows):
                types.add(LABELLED)
            if FORKED in types:
                self._forked |= {row[RUN] for row in rows if row[KNOWN_AS] == FORKED}
            forks = not self._forked.isdisjoint(row[RUN] for row in rows)
            for filler in fillers():
                if filler.concerns(types) and filler.fits(forks=forks, partial=self._partial):
                    for statement in filler.statements:
                        self._con.execute(statement).fetchall()

    def _stand(self, end: End, head: int) -> None:
        last = end.last
        self._con.execute(
            "UPDATE progress SET position = $1, logged_at = make_timestamp($2), head = $3, "
            "projected_at = make_timestamp($4), digest = $5, messages = $6, chain = $7",
            [
                last.position,
                last.stamp // 1_000,
                max(head, last.position),
                _now(),
                digest(last),
                end.messages,
                end.chain,
            ],
        ).fetchall()

    # ------------------------------------------------------------ schema

    def _is_current(self, *, read_only: bool) -> bool:
        """Return whether this version's schema made the file. Raises Newer, Older, Unusable."""
        try:
            version, made_by = self.all("SELECT version, digest FROM schema_version")[0]
        except duckdb.ProgrammingError:
            tables = {name for (name,) in self.all("SELECT table_name FROM duckdb_tables()")}
            if tables and not {"events", "progress"} <= tables:
                raise Unusable(self.path, "it holds other tables") from None
            version, made_by = 0, ""  # empty, or made before the file contained its schema
        if version > VERSION:
            raise Newer(self.path, version, VERSION)
        if made_by != schema_digest() and read_only:
            raise Older(self.path, "another version of Hansard made it")
        return bool(made_by == schema_digest())

    def _restart(self) -> None:
        """Replace the file by one with empty tables, to be filled from the log again. If killed in
        between, there is no file, which is a valid start, too.
        """
        self.restarted = True
        self._con.close()
        self.path.unlink()
        self._begin()
        self._con = _connect(self.path, read_only=False)

    # ------------------------------------------------------------ reading

    def all(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query. For our own SQL only: its cost is not bounded."""
        return self._con.execute(sql, _parameters(parameters)).fetchall()

    @contextlib.contextmanager
    def scratch(self) -> Generator[None]:
        """Use a separate connection meanwhile: its temporary tables and macros are dropped at the
        end, and a temporary macro shadows the stored one of the same name.
        """
        before, self._con = self._con, self._con.cursor()
        try:
            yield
        finally:
            cursor, self._con = self._con, before
            cursor.close()

    def all_committed(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows as `all` does, of committed data: another thread may be writing."""
        with self._looking, self._con.cursor() as con:
            return con.execute(sql, list(parameters)).fetchall()

    def past(self, run: str) -> Iterable[MembershipEvent]:
        """Return the membership events of a run, as committed."""
        return [
            MembershipEvent(*row)
            for row in self.all_committed(_TELLING, [run, sorted(MEMBERSHIP_TAGS)])
        ]

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return all rows as `all` does, as dicts by column name."""
        answer = self._con.execute(sql, _parameters(parameters))
        names = [column[0] for column in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def tables(self) -> list[str]:
        """Return the names of the tables that are derived from the log alone."""
        names = self.all("SELECT table_name FROM duckdb_tables() WHERE NOT temporary ORDER BY 1")
        return [name for (name,) in names if name not in {"progress", "schema_version"}]

    def digests(self) -> dict[str, Digest]:
        """Return a summary of each table: equal rows, however written, give equal digests. For
        `progress` it is the position.
        """
        known = self.progress
        current = Digest(1, f"{known.position:x}-{known.digest}-{known.chain or ''}")
        columns = dict(self.all(_COLUMNS))
        digests = {name: self._digest(name, columns[name]) for name in self.tables()}
        return {**digests, "progress": current}

    def read_all(self) -> None:
        """Read every row of every table, to verify that they are readable. Raises Unusable."""
        try:
            for name in self.tables():
                self.all(f'SELECT bit_xor(hash("{name}")) FROM "{name}"')  # noqa: S608 -- names of our own schema
        except duckdb.Error as error:
            raise Unusable(self.path, str(error)) from error

    def _digest(self, table: str, columns: Sequence[str]) -> Digest:
        row = ", ".join(f'"{name}"' for name in columns)
        halves = ("md5_number_lower", "md5_number_upper")
        sums = ", ".join(f"coalesce(sum({half}(row({row})::VARCHAR)), 0)" for half in halves)
        question = f'SELECT count(*), {sums} FROM "{table}"'  # noqa: S608 -- names of our own schema
        count, lower, upper = self.all(question)[0]
        return Digest(count, f"{int(lower):x}-{int(upper):x}")

    def _progress(self) -> Progress:
        try:
            rows = self.all("SELECT position, digest, coalesce(messages, 0), chain FROM progress")
        except duckdb.Error as error:
            raise Unusable(self.path, str(error)) from error
        if len(rows) != 1:
            raise Unusable(self.path, f"its table progress has {len(rows)} rows")
        position, digest_, messages, chain = rows[0]
        if not position and not self._partial:
            chain = ""
        return Progress(position, digest_, messages, chain)

    def _run(self, sql: str) -> None:
        self._con.execute(sql).fetchall()

    def checkpoint(self) -> None:
        """Checkpoint DuckDB's log: 40 ms and more. Raises ProjectionError."""
        try:
            with self._looking:  # DuckDB refuses while another thread reads
                self._run("CHECKPOINT")
        except duckdb.Error as error:
            raise unwritten(self.path, error) from error


class _Part(msgspec.Struct, frozen=True):
    """The rows and problems of some messages, whole transactions only, and their end."""

    rows: list[Row]
    problems: list[Problem]
    end: End


def _parts(whole: _Part, ends: Iterable[End]) -> list[_Part]:
    """Split a batch at each of these ends."""
    problems = sorted(whole.problems, key=_position)
    parts: list[_Part] = []
    row = problem = 0
    for end in ends:
        after = end.last.position + 1
        next_row = _first(whole.rows, after)
        next_problem = bisect_left(problems, after, key=_position)
        parts.append(_Part(whole.rows[row:next_row], problems[problem:next_problem], end))
        row, problem = next_row, next_problem
    return parts


def _joined(parts: Sequence[_Part]) -> _Part:
    """Join consecutive parts."""
    rows = [row for part in parts for row in part.rows]
    return _Part(rows, [each for part in parts for each in part.problems], parts[-1].end)


def _position(problem: Problem) -> int:
    return problem.position


def _first(rows: Sequence[Row], position: int) -> int:
    """Return the index of the first row at or after a position."""
    return bisect_left(rows, position, key=itemgetter(POSITION))


def _without(rows: list[Row], bad: int, fault: duckdb.Error) -> tuple[list[Row], Problem]:
    """Return the rows without a bad one, and its problem. First it is kept out of every table but
    `events`; if it already was, its whole commit is dropped.
    """
    row, reason = rows[bad], str(fault).partition("\n")[0]
    position, index, stream, known_as = row[POSITION], row[1], row[4], row[KNOWN_AS]
    if known_as is not None:
        rest = [*rows[:bad], (*row[:KNOWN_AS], None, *row[KNOWN_AS + 1 :]), *rows[bad + 1 :]]
        return rest, Problem(position, index, stream, reason)
    rest = [each for each in rows if each[POSITION] != position]
    return rest, Problem(position, None, stream, reason)


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB file. Raises Unusable, NoRoom."""
    config: dict[str, Any] = {
        "memory_limit": MEMORY_MAX,
        "threads": THREADS_MAX,
        "python_enable_replacements": "false",  # an unknown table is never a variable of ours
    }
    try:
        con = duckdb.connect(path, read_only=read_only, config=config)
    except duckdb.Error as error:
        raise unusable(path, error) from error
    con.execute("SET TimeZone = 'UTC'").fetchall()
    if not read_only:
        con.execute(f"SET checkpoint_threshold = '{WAL_MAX}'").fetchall()
    return con


_SURROGATES = re.compile("[\ud800-\udfff]")


def _parameters(parameters: Sequence[object]) -> list[object]:
    """Return parameters for DuckDB: a text that is no UTF-8 (bytes of a command line) gets
    replacement characters, and so matches nothing.
    """
    return [
        _SURROGATES.sub("\ufffd", each) if isinstance(each, str) else each for each in parameters
    ]


@cache
def _blank(*, partial: bool) -> bytes:
    """Return the bytes of a file with empty tables; read once per process.

    A file without the views of a faulty slice is made each time, so that each time it is warned of.
    """
    whole = True

    def make() -> bytes:
        nonlocal whole
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "blank.duckdb")
            con = _connect(path, read_only=False)
            try:
                whole = _create(con, partial=partial)
            finally:
                con.close()
            return path.read_bytes()

    from duckdb import __version__  # noqa: PLC0415 -- slow to import, and readers need none of it

    return empty_file(make, __version__, schema_digest(), partial, keeps=lambda: whole)


def _create_views(run: Callable[[Any], object], slice_: slices.Slice) -> bool:
    """Create the views of a slice: all, or none with a warning, so that it hurts no other; return
    whether they were created.
    """
    run("BEGIN")
    try:
        for statement in duckdb.extract_statements(slice_.schema):
            run(statement)
    except duckdb.Error as error:
        run("ROLLBACK")
        _log.warning("the views of a slice cannot be created", slice=slice_.name, error=str(error))
        return False
    run("COMMIT")
    return True


def _create(con: duckdb.DuckDBPyConnection, *, partial: bool) -> bool:
    """Create every table, view and macro, with the meaning of each column as its comment; return
    whether those of all slices were created.
    """

    def run(statement: Any, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return con.execute(statement, list(parameters)).fetchall()

    run("BEGIN")
    for statement in duckdb.extract_statements(schema_sql()):
        run(statement)
    run("COMMIT")
    whole = sum(not _create_views(run, each) for each in slices.installed()) == 0
    run("BEGIN")
    for relation, column in run(_NAMED):
        text = meaning(relation, column)
        if text is not None:
            quoted = text.replace("'", "''")
            run(f"""COMMENT ON COLUMN "{relation}"."{column}" IS '{quoted}'""")
    if partial:
        for table, column in run(_DEMANDED):
            run(f'ALTER TABLE "{table}" ALTER COLUMN "{column}" DROP NOT NULL')
    run("INSERT INTO schema_version VALUES ($1, $2)", [VERSION, schema_digest()])
    run("COMMIT")
    return whole


_TELLING = (
    "SELECT version, known_as, coalesce(lifted, data) FROM events "
    "WHERE run = $1 AND known_as = ANY($2) ORDER BY position, event_index"
)
_DEMANDED = (
    "SELECT c.table_name, c.column_name FROM duckdb_columns() AS c JOIN duckdb_tables() AS t "
    "ON t.table_oid = c.table_oid AND t.database_oid = c.database_oid "
    "WHERE NOT c.is_nullable AND NOT t.internal AND NOT t.temporary "
    "AND t.table_name NOT IN ('schema_version', 'progress', 'events', 'problems')"
)
_NAMED = (
    "SELECT table_name, column_name FROM duckdb_columns() "
    "WHERE NOT internal AND database_name = current_database()"
)
_COLUMNS = (
    "SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
    "WHERE NOT internal GROUP BY 1"
)
"""Read once and not per table: the catalog is scanned as a whole, views included."""


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000_000)
