"""A worker of the SQL door: `python -m hansard.projections.sql_sandbox.worker FOLDER [arrow]`.

It answers queries from stdin, one after the other, from the generations in a folder, and drops in
advance what it does not need: the network (its own, empty namespace), the file system (its root is
that folder), files of its own, and any memory, time and processes that a query may not have. What a
platform does not allow is left out and reported (see Hello); DuckDB's own locks, the kernel's
limits and the door, which kills the worker, remain everywhere.

DuckDB's settings are the second line of defence, not the first: a single function call evades its
time limit and its memory limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import signal
import sys
import time
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from hansard.projections.sql_sandbox.rows import (
    HEAD_BYTES_MAX,
    LENGTH,
    PREVIEW_CHARACTERS,
    AnswerHead,
    Batch,
    Column,
    Hello,
    Query,
    body,
    framed,
    makes,
    recast,
)

NEW_NETWORK, NEW_USER = 0x40000000, 0x10000000
"""Flags of unshare(2)."""

NO_NEW_PRIVILEGES = 38
"""Option of prctl(2)."""

CAPABILITIES_3 = 0x20080522
"""The version of capset(2) with 64 bits."""

TABLES = "tables.duckdb"
FILES_MAX = 64
PROCESSES_MAX = 64
"""Most processes and threads, which count alike: DuckDB creates eight for a file. Set only in a
user namespace of its own; elsewhere the user's other processes would count, too.
"""

SPARE_MIB = 768
"""Address space beyond DuckDB's memory, in MiB: its threads, its buffers, an answer."""

TABLE_COPIES = 2
"""Address space for the caller's tables, as a multiple of their size: the received bytes, and the
table built from them.
"""

GRACE_S = 1.0
"""Time after the door's timeout at which the worker ends itself, in case the door is gone, in
seconds.
"""

BATCH_ROWS = 2_048

CHUNK_BYTES = 4 * 2**20
"""Size from which a part of a streamed answer is sent, in bytes."""

Send = Callable[[bytes], None]
"""Sends a chunk of an answer."""

READING = frozenset({"SELECT", "EXPLAIN"})
"""Allowed types of statements. This only gives a clear error: a SELECT may write, too, and the
file's protection is what prevents it.
"""

_REFUSED = (
    "give one statement that reads (SELECT, WITH, FROM, VALUES, TABLE, DESCRIBE, SUMMARIZE, "
    "SHOW, EXPLAIN); "
)


_NAME_CONFLICT = """
    SELECT 'a word of SQL' FROM duckdb_keywords()
    WHERE keyword_name = lower($1) AND keyword_category = 'reserved'
    UNION ALL
    SELECT 'a table of the record' FROM duckdb_tables() WHERE lower(table_name) = lower($1)
    UNION ALL
    SELECT 'a view of the record' FROM duckdb_views() WHERE lower(view_name) = lower($1)
    LIMIT 1
"""
"""Query for what a name already denotes."""


def main(arguments: list[str]) -> None:
    """Serve until stdin ends."""
    questions, answers = _own_pipes()
    network = _leave_network()
    engine = _Engine(arrow=arguments[1:] == ["arrow"])
    folder = Path(arguments[0])
    root = _leave_files(folder)
    _leave_rights(alone=network)
    answers.write(framed(Hello(network, root)))
    answers.flush()
    where = Path("/") if root else folder
    while (query := _next(questions)) is not None:
        tables = {each.name: questions.read(each.size) for each in query.tables}
        sends = _sender(answers) if query.streamed else None
        answer, body = engine.answer(query, where / query.folder / TABLES, tables, sends)
        if query.streamed:
            answers.write(LENGTH.pack(0))
        answers.write(framed(answer))
        answers.write(body)
        answers.flush()


def _sender(answers: BinaryIO) -> Send:
    def send(chunk: bytes) -> None:
        answers.write(LENGTH.pack(len(chunk)))
        answers.write(chunk)

    return send


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the two pipes to other descriptors, to keep library output out of answers."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nothing, fd)
    os.close(nothing)
    return questions, answers


def _next(questions: BinaryIO) -> Query | None:
    head = questions.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    if length > HEAD_BYTES_MAX:
        return None
    return msgspec.json.decode(questions.read(length), type=Query)


# ---------------------------------------------------------------- dropped rights


def _leave_network() -> bool:
    """Enter new user and network namespaces, before any thread is created."""
    if sys.platform != "linux":
        return False
    return not _libc().unshare(NEW_USER | NEW_NETWORK)


def _leave_files(folder: Path) -> bool:
    """Restrict the file system to the generations."""
    if sys.platform != "linux" or _libc().chroot(os.fsencode(folder)):
        return False
    os.chdir("/")
    return True


def _leave_rights(*, alone: bool) -> None:
    """Drop all capabilities, and forbid new ones, files, core dumps and many processes."""
    if sys.platform == "linux":
        libc = _libc()
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        libc.capset((ctypes.c_uint32 * 2)(CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)())
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, most in (("NOFILE", FILES_MAX), *([("NPROC", PROCESSES_MAX)] if alone else [])):
        limit = _within_hard(getattr(resource, f"RLIMIT_{name}"), most)
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))


def _within_hard(limit: int, most: int) -> int:
    """Return a soft limit that the process may set: its parent may have lowered the hard one."""
    _, hard = resource.getrlimit(limit)
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class _TableRefused(Exception):
    """A table of the caller's is invalid."""


def _bound(query: Query, base_bytes: int) -> None:
    """Set the kernel's limits for one query: CPU, memory, and an alarm that ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(used.ru_utime + used.ru_stime) + 1 + query.limits.cpu_s
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, hard))
    table_bytes = TABLE_COPIES * sum(each.size for each in query.tables)
    allowed = base_bytes + table_bytes + (query.limits.memory_mib + SPARE_MIB) * 2**20
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_within_hard(resource.RLIMIT_AS, allowed), hard))
    signal.setitimer(signal.ITIMER_REAL, query.limits.wall_s + GRACE_S)


def _unbound() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


# ---------------------------------------------------------------- results

_TRIED = """
    SELECT now() AS a, '{"b": 1}'::JSON AS b, 1.5::DECIMAL AS c, [1] AS d, uuid() AS e,
        current_date AS f, MAP {'k': 1} AS g, INTERVAL 1 DAY AS h, '10:11'::TIME AS i,
        10::HUGEINT AS j
"""
"""Query answered once as Arrow before the file system is restricted, since it imports modules."""

VALUES = ("datetime", "decimal", "pathlib", "uuid")
"""Modules of DuckDB's value types, imported before the file system is restricted: a trial answer
would take as long as the rest of the start.
"""


class _StatementResult(Protocol):
    """The result of a statement, as it arrives."""

    def batches(self) -> Iterator[Any]:
        """Yield its rows in batches; each has `num_rows`, `nbytes` and `slice`."""

    def written(self, batches: list[Any]) -> bytes:
        """Encode some of its rows for sending."""


class _Rows:
    """A result as MessagePack."""

    def __init__(self, con: Any, statement: Any, parameters: list[Any]) -> None:
        self._con = con.execute(statement, parameters or None)
        described = [(name, kind) for name, kind, *_ in con.description or []]
        self.columns = [Column(name, str(kind)) for name, kind in described]
        self._pack = makes([kind for _, kind in described])
        recasted = recast(statement.query, described, zoned=False)
        if recasted is not None:
            self._con = con.execute(recasted, parameters or None)

    def batches(self) -> Iterator[Batch]:
        while rows := self._con.fetchmany(BATCH_ROWS):
            yield Batch(rows, self._pack)

    def written(self, batches: list[Batch]) -> bytes:
        return body(self.columns, batches)


class _Arrow:
    """pyarrow, and answers with it."""

    def __init__(self) -> None:
        import duckdb as _  # noqa: PLC0415, F401 -- has Arrow taken and given
        import pyarrow as pa  # noqa: PLC0415 -- its threads are made in the namespace, too
        from pyarrow import ipc  # noqa: PLC0415 -- its threads, too

        self._pa = pa
        self._ipc = ipc

    def try_out(self, duckdb: Any) -> None:
        """Import the modules that answers need."""
        with duckdb.connect(":memory:", config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            result = self.answer(con, con.extract_statements(_TRIED)[0], [])
            if result is not None:
                result.written(list(result.batches()))

    def table(self, data: bytes) -> Any:
        """Decode and validate a table of the caller's, whose content is untrusted."""
        table = self._ipc.open_stream(data).read_all()
        table.validate(full=True)
        return table

    def answer(self, con: Any, statement: Any, parameters: list[Any]) -> _ArrowResult | None:
        """Run a statement; return None if it has no rows."""
        relation = con.sql(statement, params=parameters or None)
        if relation is None:
            return None
        described = list(zip(relation.columns, relation.types, strict=True))
        recasted = recast(statement.query, described, zoned=True)
        if recasted is not None:
            relation = con.sql(recasted, params=parameters or None)
        return _ArrowResult(self._pa, self._ipc, relation.to_arrow_reader(BATCH_ROWS))


class _ArrowResult:
    """A result as Arrow."""

    def __init__(self, pa: Any, ipc: Any, reader: Any) -> None:
        self._pa = pa
        self._ipc = ipc
        self._reader = reader

    def batches(self) -> Iterator[Any]:
        return iter(self._reader)

    def written(self, batches: list[Any]) -> bytes:
        sink = self._pa.BufferOutputStream()
        with self._ipc.new_stream(sink, self._reader.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return bytes(sink.getvalue())


# ---------------------------------------------------------------- the engine


class _Engine:
    """DuckDB, loaded before the file system is restricted; one open generation at a time."""

    def __init__(self, *, arrow: bool) -> None:
        # pyarrow would import it, and no answer needs it: 91 against 179 ms of processor to load
        # engine and pyarrow, which each SQL worker does before its first answer.
        sys.modules["numpy"] = None  # type: ignore[assignment]  # blocks the import

        from hansard.projections import _engine  # noqa: PLC0415 -- its threads are made in there

        self._duckdb = duckdb = _engine.engine
        self._arrow = _Arrow() if arrow else None
        self._open: tuple[Path, int, Any] | None = None
        for key in ("UTC", "Etc/UTC"):
            zoneinfo.ZoneInfo(key)
        for name in VALUES:
            importlib.import_module(name)
        if self._arrow is not None:
            self._arrow.try_out(duckdb)
        self._base_bytes = _address_space()

    def answer(
        self, query: Query, path: Path, tables: dict[str, bytes], sends: Send | None
    ) -> tuple[AnswerHead, bytes]:
        """Answer a query, or return its error. With `sends` the rows are sent there."""
        began_s = time.perf_counter()
        try:
            root = self._database(path, query)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the generation cannot be read
            return AnswerHead(wrong="gone", text=self._error_text(error, path)), b""
        opened_s = time.perf_counter()
        _bound(query, self._base_bytes)
        try:
            with root.cursor() as con:
                self._take(con, tables)
                result, body = self._answer(con, query, sends)
        except MemoryError:
            return AnswerHead(wrong="memory"), b""
        except _TableRefused as error:
            return AnswerHead(wrong="table", text=str(error)[:PREVIEW_CHARACTERS]), b""
        except Exception as error:  # noqa: BLE001 -- untrusted: whatever comes of it is its answer
            wrong = "memory" if isinstance(error, self._duckdb.OutOfMemoryException) else "failed"
            return AnswerHead(wrong=wrong, text=self._error_text(error, path)), b""
        finally:
            _unbound()
        took_ms = (time.perf_counter() - opened_s) * 1e3
        report = msgspec.structs.replace(
            result, engine_ms=round(took_ms, 3), open_ms=round((opened_s - began_s) * 1e3, 3)
        )
        return report, body

    def _database(self, path: Path, query: Query) -> Any:
        """Return the generation's database, open and locked; kept for the next query."""
        target = (path, query.limits.memory_mib)
        if self._open is not None and self._open[:2] == target:
            return self._open[2]
        if self._open is not None:
            self._open[2].close()
            self._open = None
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "memory_limit": f"{query.limits.memory_mib}MiB",
            "python_enable_replacements": "false",
            "allow_community_extensions": "false",
            "temp_directory": "",
        }
        root = self._duckdb.connect(str(path), read_only=True, config=config)
        for name, value in (
            ("TimeZone", "UTC"),
            ("secret_directory", "/none"),
            ("extension_directory", "/none"),
            ("home_directory", "/none"),
            ("autoload_known_extensions", "false"),
            ("autoinstall_known_extensions", "false"),
            ("enable_external_access", "false"),
            ("lock_configuration", "true"),
        ):
            root.execute(f"SET {name} = '{value}'").fetchall()
        [(position,)] = root.execute("SELECT position FROM progress").fetchall()
        if position != query.position:
            message = f"its position is {position} and not {query.position}"
            raise ValueError(message)
        self._open = (*target, root)
        return root

    def _take(self, con: Any, tables: dict[str, bytes]) -> None:
        """Register the caller's tables beside those of the record, for this query."""
        for name, data in tables.items():
            conflict = con.execute(_NAME_CONFLICT, [name]).fetchone()
            if conflict is not None:
                raise _TableRefused(f"{name!r} is {conflict[0]}")
            if self._arrow is None:
                raise _TableRefused(f"{name!r} comes as Arrow, and pyarrow is not installed here")
            try:
                con.register(name, self._arrow.table(data))
                con.table(name).limit(0).fetchall()
            except MemoryError:
                raise
            except Exception as error:
                raise _TableRefused(f"{name!r} cannot be taken ({error})") from error

    def _answer(self, con: Any, query: Query, sends: Send | None) -> tuple[AnswerHead, bytes]:
        statements = con.extract_statements(query.sql)
        kinds = [statement.type.name for statement in statements]
        if len(kinds) != 1:
            return AnswerHead(wrong="not allowed", text=f"{_REFUSED}these are {len(kinds)}"), b""
        if kinds[0] not in READING:
            return AnswerHead(wrong="not allowed", text=f"{_REFUSED}{kinds[0]} is not allowed"), b""
        result = self._run(con, statements[0], query)
        if result is None:
            return AnswerHead(wrong="not allowed", text=f"{_REFUSED}this one has no rows"), b""
        batches: list[Any] = []
        rows, size, held, cut = 0, 0, 0, None
        for batch in result.batches():
            kept, left = batch, query.limits.rows_max - rows
            if batch.num_rows > left:
                kept, cut = batch.slice(0, left), "rows"
            if size + kept.nbytes > query.limits.bytes_max:
                kept, cut = _fitting(kept, query.limits.bytes_max - size), "bytes"
            if kept.num_rows:
                batches.append(kept)
                rows += kept.num_rows
                size += kept.nbytes
                held += kept.nbytes
            if cut is not None:
                break
            if sends is not None and held >= CHUNK_BYTES:
                sends(result.written(batches))
                batches, held = [], 0
        last = result.written(batches)
        if sends is not None:
            sends(last)
            last = b""
        return AnswerHead(size=len(last), rows=rows, cut=cut), last

    def _run(self, con: Any, statement: Any, query: Query) -> _StatementResult | None:
        """Run a statement; return None if it has no rows."""
        if query.arrow and self._arrow is not None:
            return self._arrow.answer(con, statement, query.parameters)
        result = _Rows(con, statement, query.parameters)
        return result if result.columns else None

    @staticmethod
    def _error_text(error: BaseException, path: Path) -> str:
        """Return an error's text without the file's path."""
        text = str(error)
        for each in (path, path.parent, path.parent.parent):
            if len(str(each)) > 1:
                text = text.replace(str(each), "<tables>")
        return text[:PREVIEW_CHARACTERS]


def _fitting(batch: Any, left: int) -> Any:
    """Return as many of the first rows as fit into so many bytes, by binary search."""
    good, bad = 0, batch.num_rows
    while bad - good > 1:
        middle = (good + bad) // 2
        if batch.slice(0, middle).nbytes <= left:
            good = middle
        else:
            bad = middle
    return batch.slice(0, good)


def _address_space() -> int:
    """Return the size of the process's address space, in bytes; an estimate if it is unknown."""
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 -- a number of the kernel's
        return int(file.read().split()[0]) * resource.getpagesize()
    return 2**31


if __name__ == "__main__":
    main(sys.argv[1:])
