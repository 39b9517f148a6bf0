"""The rows of the tables in the archive, as Parquet: SQL over years, and for other engines.

    <workspace>/tables/<table>/<first>-<last>.parquet      rows of an archived generation
    <workspace>/tables/<last>.json                         their manifest, last of all

The rows of a generation are those of the runs whose last commit is in it, the events in it, and the
rows without a run whose position is in it. A run that goes on later is stored again with that
generation. So each row has `archived_to`, the last position of its generation: of a run, the rows
with the highest one count.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.bus.archive.archived import WorkspaceArchive
from hansard.bus.archive.segment import Manifest
from hansard.bus.errors import NotFound
from hansard.bus.sources import Archived
from hansard.domain.errors import CallerError, Corrupt
from hansard.projections._engine import engine as duckdb
from hansard.projections.errors import Behind
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import schema_digest, statements

_SQL = statements(__file__)

ARCHIVED_TO = "archived_to"
"""The column that the Parquet files have besides those of the tables."""

POSITION_MAX = 2**63 - 1
"""Largest position of a log."""

_OWN = frozenset({"schema_version", "progress"})
"""Tables about the file itself."""


_SIZES = "first, last, commits, commit_bytes, segment_bytes, table_bytes"
_PART_SIZES = ("count", "message_bytes", "size")


class ArchivedTables(msgspec.Struct, frozen=True):
    """The manifest of the rows of a generation: `tables` has the number of rows of each; they were
    read from tables at `position`, with a schema.
    """

    workspace: str
    first: int
    last: int
    position: int
    schema: str
    tables: dict[str, int]


class _Table(msgspec.Struct, frozen=True):
    """How the rows of a table belong to positions."""

    name: str
    columns: list[str]

    @property
    def by_run(self) -> bool:
        return "run" in self.columns and self.name != "events"

    @property
    def at(self) -> str | None:
        """SQL for the position that a row of `t` belongs to, `r` being its run; None for a table
        that is stored whole.
        """
        own = "t.position" if "position" in self.columns else "1"
        if self.name == "runs":
            return "t.last_position"
        if self.by_run:
            return f"coalesce(r.last_position, {own})"
        return own if "position" in self.columns else None

    def rows(self, database: str = "") -> str:
        """Return the beginning of a query for its rows."""
        join = f" LEFT JOIN {database}runs r ON r.run = t.run"
        return f"{database}{self.name} t{join if self.by_run and self.name != 'runs' else ''}"


def _tables(columns: Iterable[tuple[Any, ...]]) -> list[_Table]:
    return [_Table(name, names) for name, names in columns if name not in _OWN]


async def store_tables(
    archive: WorkspaceArchive, reader: Reader, generation: Archived
) -> ArchivedTables:
    """Store the rows of an archived generation as Parquet; what is stored already is kept.

    Raises Behind if the tables do not reach its end, ArchiveUnavailable, ProjectionError.
    """
    store, workspace = archive.tiers.store, archive.workspace
    folder, last = f"{workspace}/tables", generation.last
    known = await store.get(_manifest(archive, last))
    if known is not None:
        return msgspec.json.decode(known, type=ArchivedTables)
    if reader.position < last:
        raise Behind(last, reader.position, 0.0)
    rows: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.parquet"
        for table in _tables(await asyncio.to_thread(reader.all, _SQL["columns"])):
            condition = f"{table.at} BETWEEN {generation.first} AND {last}" if table.at else "true"
            query = (
                f"SELECT t.*, {last}::BIGINT AS {ARCHIVED_TO} FROM {table.rows()} WHERE {condition}"  # noqa: S608 -- of our own names and numbers
            )
            copy = f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
            [(count,)] = await asyncio.to_thread(reader.all, copy)
            rows[table.name] = count
            if count:
                name = f"{folder}/{table.name}/{generation.first:020d}-{last:020d}.parquet"
                await store.create(name, path.read_bytes())
    stored = ArchivedTables(
        workspace, generation.first, last, reader.position, schema_digest(), rows
    )
    body = msgspec.json.format(msgspec.json.encode(stored), indent=1)
    await store.create(_manifest(archive, last), body)
    return stored


async def store_all_tables(
    archive: WorkspaceArchive, reader: Reader, generations: Sequence[Archived]
) -> list[ArchivedTables]:
    """Store the rows of those generations that the tables have reached; return the new ones."""
    known = set(await _manifests(archive))
    new = [
        each
        for each in generations
        if _manifest(archive, each.last) not in known and each.last <= reader.position
    ]
    if new:
        await archive.demand_stored(generations)
    return [await store_tables(archive, reader, each) for each in new]


async def stored_tables(archive: WorkspaceArchive) -> list[ArchivedTables]:
    """Return the manifests of all stored rows, oldest first."""
    names = await _manifests(archive)
    bodies = await asyncio.gather(*(archive.tiers.store.get(name) for name in names))
    return [msgspec.json.decode(body or b"", type=ArchivedTables) for body in bodies]


async def _manifests(archive: WorkspaceArchive) -> list[str]:
    """Return the names of the manifests of all stored rows, oldest first."""
    names = await archive.tiers.store.names(f"{archive.workspace}/tables")
    return sorted(name for name in names if name.endswith(".json"))


def _manifest(archive: WorkspaceArchive, last: int) -> str:
    """Return the name of the manifest of the rows of a generation."""
    return f"{archive.workspace}/tables/{last:020d}.json"


@contextlib.asynccontextmanager
async def years(
    archive: WorkspaceArchive, live: Path | None
) -> AsyncGenerator[duckdb.DuckDBPyConnection, None]:
    """Open a database with a view for each table: the archive's rows, and those of the `live`
    tables after its end. The Parquet files are copied to a temporary folder first.

    Raises ArchiveUnavailable, Corrupt, and NotFound if neither has tables.
    """
    manifests = await stored_tables(archive)
    if live is None and not manifests:
        await archive.tiers.demand_any(archive.workspace)
        where = f"rows of workspace {archive.workspace!r} in the archive at {archive.place}"
        raise NotFound(where, "store them with 'hansard tiers roll'")
    end = manifests[-1].last if manifests else 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = await _fetched(archive, manifests, folder)
        con = duckdb.connect(":memory:")
        try:
            await asyncio.to_thread(_create_views, con, files, live, end)
            if files or live is not None:
                columns = _SIZES.replace(",", " BIGINT,")
                con.execute(f"CREATE TABLE archived_generations ({columns} BIGINT)").fetchall()
                insert = "INSERT INTO archived_generations VALUES (?, ?, ?, ?, ?, ?)"
                segments = await archive.segments(0, POSITION_MAX)
                for row in await _sizes(archive, manifests, segments):
                    con.execute(insert, row).fetchall()
                con.execute(_SQL["generations"]).fetchall()
                con.execute("CREATE TABLE archive_lacks (first BIGINT, last BIGINT)").fetchall()
                for gap in _lacks(manifests, segments if live is None else []):
                    con.execute("INSERT INTO archive_lacks VALUES (?, ?)", gap).fetchall()
            _confine(con, [folder, *([live.parent] if live is not None else [])])
            yield con
        finally:
            con.close()


async def query(
    archive: WorkspaceArchive, live: Path | None, statement: str
) -> tuple[list[str], list[tuple[Any, ...]], list[tuple[int, int]]]:
    """Return the columns and rows of a statement on the views of `years`, and the first and last
    positions of the stretches of the log whose rows the views lack. Raises CallerError.
    """
    async with years(archive, live) as con:
        try:
            answer = await asyncio.to_thread(con.execute, statement)
            names = [column[0] for column in answer.description or []]
            rows = await asyncio.to_thread(answer.fetchall)
        except duckdb.Error as error:
            raise CallerError(f"the statement failed: {error}") from error
        return names, rows, con.execute("FROM archive_lacks ORDER BY ALL").fetchall()


async def _fetched(
    archive: WorkspaceArchive, manifests: list[ArchivedTables], folder: Path
) -> dict[str, list[Path]]:
    """Copy all Parquet files to a folder; return them by table."""
    files: dict[str, list[Path]] = {}
    for each in manifests:
        for table, count in each.tables.items():
            files.setdefault(table, [])
            if not count:
                continue
            name = f"{each.workspace}/tables/{table}/{each.first:020d}-{each.last:020d}.parquet"
            data = await archive.tiers.store.get(name)
            if data is None:
                fact = f"it does not exist, and {count:,} rows of it were stored: restore it"
                raise Corrupt(f"archive object {name!r}", fact)
            path = folder / f"{table}-{each.last:020d}.parquet"
            path.write_bytes(data)
            files[table].append(path)
    return files


def _create_views(
    con: duckdb.DuckDBPyConnection, files: dict[str, list[Path]], live: Path | None, end: int
) -> None:
    con.execute("SET TimeZone = 'UTC'").fetchall()
    columns: list[tuple[Any, ...]] = []
    if live is not None:
        con.execute(f"ATTACH '{live}' AS live (READ_ONLY)").fetchall()
        con.execute("USE live").fetchall()
        columns = con.execute(_SQL["columns"]).fetchall()
        con.execute("USE memory").fetchall()
    for name, paths in files.items():
        if paths and live is None:
            described = con.execute(f"DESCRIBE FROM {_parquet(paths)}").fetchall()
            columns.append((name, [row[0] for row in described if row[0] != ARCHIVED_TO]))
    runs = files.get("runs")
    owners = f"SELECT NULL::VARCHAR AS run, 0 AS {ARCHIVED_TO} WHERE false"
    if runs:
        owners = f"SELECT run, max({ARCHIVED_TO}) AS {ARCHIVED_TO} FROM {_parquet(runs)} GROUP BY 1"  # noqa: S608 -- of our own names and numbers
    con.execute(f"CREATE TABLE archived_runs AS {owners}").fetchall()
    if live is not None:
        later = f"SELECT run FROM live.runs WHERE last_position > {end}"  # noqa: S608 -- of our own names and numbers
        con.execute(f"DELETE FROM archived_runs WHERE run IN ({later})").fetchall()  # noqa: S608 -- of our own names and numbers
        con.execute(f"INSERT INTO archived_runs SELECT run, 0 FROM ({later})").fetchall()  # noqa: S608 -- of our own names and numbers
    for table in _tables(columns):
        con.execute(_view(table, files.get(table.name, []), live, end)).fetchall()


def _lacks(
    manifests: Iterable[ArchivedTables], segments: Sequence[Manifest]
) -> Iterator[tuple[int, int]]:
    """Yield the stretches of the log before the end of these manifests and segments that have no
    manifest of rows: lost, or not stored yet.
    """
    end = 0
    for each in manifests:
        if each.first > end + 1:
            yield end + 1, each.first - 1
        end = each.last
    if segments and segments[-1].last > end:
        yield end + 1, segments[-1].last


async def _sizes(
    archive: WorkspaceArchive, manifests: list[ArchivedTables], segments: Sequence[Manifest]
) -> list[tuple[int, ...]]:
    """Return the rows of `archived_generations`."""
    objects = await archive.tiers.store.names(f"{archive.workspace}/tables")
    rows: list[tuple[int, ...]] = []
    for each in manifests:
        parts = [part for part in segments if each.first <= part.first <= each.last]
        end = f"-{each.last:020d}.parquet"
        sizes = [sum(getattr(part, name) for part in parts) for name in _PART_SIZES]
        tables = sum(size for name, size in objects.items() if name.endswith(end))
        rows.append((each.first, each.last, *sizes, tables))
    return rows


def _confine(con: duckdb.DuckDBPyConnection, folders: Iterable[Path]) -> None:
    """Let statements read the files of the views, and nothing else."""
    texts = ", ".join(f"'{folder}'" for folder in folders)
    con.execute(f"SET allowed_directories = [{texts}]").fetchall()
    con.execute("SET enable_external_access = false").fetchall()
    con.execute("SET lock_configuration = true").fetchall()


def _view(table: _Table, paths: list[Path], live: Path | None, end: int) -> str:
    """Return the statement that creates the view of a table."""
    parts: list[str] = []
    chosen = ", ".join(f't."{column}"' for column in table.columns)
    if table.at is None:  # stored whole: the newest counts
        newest = f"live.{table.name}" if live is not None else _parquet(paths[-1:])
        parts = [f"SELECT {chosen} FROM {newest} t"]  # noqa: S608 -- of our own names and numbers
    else:
        if paths:
            part = f"SELECT {chosen} FROM {_parquet(paths)} t"  # noqa: S608 -- of our own names and numbers
            if table.by_run:
                part += (
                    " LEFT JOIN archived_runs o ON o.run = t.run "
                    f"WHERE o.run IS NULL OR o.{ARCHIVED_TO} = t.{ARCHIVED_TO}"
                )
            parts.append(part)
        if live is not None:
            parts.append(
                f"SELECT {chosen} FROM {table.rows('live.')} WHERE {table.at} > {end}"  # noqa: S608 -- of our own names and numbers
            )
    return f"CREATE VIEW {table.name} AS {' UNION ALL BY NAME '.join(parts)}"


def _parquet(paths: list[Path]) -> str:
    texts = ", ".join(f"'{path}'" for path in paths)
    return f"read_parquet([{texts}], union_by_name = true)"
