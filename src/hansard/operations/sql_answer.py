"""Results of SQL queries for programs, in the forms that analysts use.

pyarrow has no type annotations, and is imported only when needed.
"""

from __future__ import annotations

import html
import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from hansard.agents.errors import warn
from hansard.domain.choices import NOTHING, Brief, counted, listed
from hansard.domain.errors import BadValue, CallerError, install
from hansard.inspect.answer import plain_text
from hansard.projections.snapshots import Reader
from hansard.projections.sql_sandbox import answer
from hansard.projections.sql_sandbox.answer import ARROW

SHOWN_ROWS = 20
"""Rows of an answer that a notebook and a terminal show."""

SHOWN_CHARACTERS = 200
"""Characters of a value that they show."""


class AnswerCut(UserWarning):
    """A table was made from a result that holds only the first rows.

    State: the answer is incomplete; nothing was written.
    Remedy: sum up in SQL, use LIMIT and OFFSET, or write all of it with 'hansard sql -o FILE'.
    """


EXTRAS = {"pyarrow": "arrow", "matplotlib": "plots"}
"""Extras of hansard by the package that they install."""


class NotInstalled(CallerError):
    """The form of a result, or a table for a query, needs a package that is not installed.

    State: no query was run.
    Remedy: install the extra that the message names.

    Attributes:
        package: The package's name.
    """

    def __init__(self, package: str, form: str, instead: str = "take arrow() or rows") -> None:
        remedy = install(EXTRAS[package]) if package in EXTRAS else f"pip install {package}"
        super().__init__(f"{form} takes {package}, which is not installed: {remedy}, or {instead}")
        self.package = package


class SqlAnswer(Brief, msgspec.Struct, frozen=True):
    """The result of an SQL query, as plain values.

    Values are numbers, texts, booleans, times, None, lists and dicts; bytes are hexadecimal.
    `arrow()`, `df()` and `pl()` have DuckDB's types. A notebook and `rich.print` show it as a
    table.

    Attributes:
        columns: The columns' names, which are unique.
        rows: A tuple per row, in the order of the columns.
        position: The position of the tables: in the workspace's log, or for a restricted agent the
            number of the newest event that its role is shown.
        cut: `rows` or `bytes` if that limit cut the result; else None.
        ipc: The same as an Arrow IPC stream; empty for a restricted agent, which gets the values,
            and without pyarrow.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]
    position: int
    cut: str | None = None
    ipc: bytes = b""

    def dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def arrow(self) -> Any:
        """Return a `pyarrow.Table`, with position and cut in its metadata.

        For a restricted agent the types are derived from the values. Warns with AnswerCut, as `df`
        and `pl` do. Raises NotInstalled.
        """
        self._warn()
        return self._table("arrow()")

    def df(self) -> Any:
        """Return a `pandas.DataFrame`. Raises NotInstalled."""
        package("pandas", "df()")
        self._warn()
        return self._table("df()").to_pandas()

    def pl(self) -> Any:
        """Return a `polars.DataFrame`. Raises NotInstalled."""
        polars = package("polars", "pl()")
        self._warn()
        return polars.from_arrow(self._table("pl()"))

    def _table(self, form: str) -> Any:
        pa = package("pyarrow", form, "take rows")
        if self.ipc:
            from pyarrow import ipc  # noqa: PLC0415 -- only when needed

            return ipc.open_stream(self.ipc).read_all()
        values = zip(*self.rows, strict=True) if self.rows else [[] for _ in self.columns]
        arrays = [pa.array(list(column)) for column in values]
        fields = {"hansard.position": str(self.position), "hansard.cut": self.cut or "no"}
        return pa.Table.from_arrays(arrays, names=self.columns).replace_schema_metadata(fields)

    def _warn(self) -> None:
        """Warn that a table is incomplete."""
        if self.cut is not None:
            warn(
                f"the table has the first {counted(len(self.rows), 'row')}, and there are more "
                "than an answer holds: sum up in SQL, use LIMIT and OFFSET, or write all of "
                "it with 'hansard sql -o FILE'",
                AnswerCut,
            )

    def _brief(self) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "rows": self.rows,
            "position": self.position,
            "cut": self.cut,
        }

    def _caption(self) -> str:
        """Return the caption: number of rows, position, and whether the result was cut."""
        shown = f", the first {SHOWN_ROWS:,} shown" if len(self.rows) > SHOWN_ROWS else ""
        more = ", and there are more than an answer holds" if self.cut is not None else ""
        return f"{counted(len(self.rows), 'row')}{shown}, as of position {self.position}{more}"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row) + "</tr>"
            for row in self.rows[:SHOWN_ROWS]
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
            f"<p>{html.escape(self._caption())}</p>"
        )

    def __rich__(self) -> Any:
        """Return a table of rich."""
        from rich.table import Table  # noqa: PLC0415 -- only when needed
        from rich.text import Text  # noqa: PLC0415 -- only when needed

        made = Table(caption=self._caption())
        for name in self.columns:
            made.add_column(Text(plain_text(name)))
        for row in self.rows[:SHOWN_ROWS]:
            made.add_row(*(Text(plain_text(_shown(value))) for value in row))
        return made


def package(name: str, form: str, instead: str = "take arrow() or rows") -> Any:
    """Import an optional package. Raises NotInstalled."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise NotInstalled(name, form, instead) from error


def _shown(value: Any) -> str:
    """Return a value as text for people."""
    text = "" if value is None else str(value)
    return f"{text[:SHOWN_CHARACTERS]}…" if len(text) > SHOWN_CHARACTERS else text


# The interface of a record's SQL tables, and the type of the function that opens them.
#
# Separate from the implementation, which takes long to import.

T = TypeVar("T")


class Tables(Protocol):
    """SQL queries on a record. `hansard.client.tables`, which implements it, is slow to import."""

    async def ask(
        self, question: str, parameters: tuple[object, ...], tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """Answer a question in SQL; `tables` are tables of the caller's own, by name."""
        ...

    async def read(self, reads: Callable[[Reader], T]) -> T:
        """Run a read of our own and return its result."""
        ...

    async def close(self) -> None:
        """Release what answers queries."""
        ...


OpenTables = Callable[[], Tables]
"""Opens the tables, at the first query."""


# An analyst's own tables, as Arrow, for use in one SQL query.
#
# They are read and converted in the caller's process; the worker that answers gets the bytes, and
# opens nothing. They need pyarrow, which has no type annotations.

FORMS = (
    "a pandas or polars data frame, a pyarrow table, a list of dicts, a dict of lists, an answer "
    "in SQL, or the path of a file"
)


def as_arrow(tables: Mapping[str, Any], bytes_max: int = answer.BYTES_MAX) -> dict[str, bytes]:
    """Convert tables to Arrow IPC streams, by name; a text or a path names a file.

    Raises BadValue for an invalid table or name, or more than `bytes_max` bytes in all, and
    NotInstalled.
    """
    if not ARROW:
        raise NotInstalled("pyarrow", "a table of your own", "omit tables=")
    if not isinstance(tables, Mapping):
        raise BadValue(answer.WHERE, f"{tables!r:.80} has no names", 'give tables={"name": frame}')
    answer.check(dict.fromkeys(tables, b""))
    made = {name: _bytes(name, frame) for name, frame in tables.items()}
    answer.check(made, bytes_max)
    return made


def _bytes(name: str, frame: Any) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 -- only for own tables
    from pyarrow import ipc  # noqa: PLC0415 -- only for own tables

    try:
        table = _table(frame)
        names = [each.lower() for each in table.column_names]
        if not names or len(set(names)) < len(names):
            shown = ", ".join(table.column_names) or "none"
            remedy = "give at least one, with unique names"
            raise BadValue(answer.WHERE, f"the columns of {name!r} are {shown:.200}", remedy)
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    except (pa.ArrowException, OSError, UnicodeError, TypeError, ValueError) as error:
        if isinstance(error, BadValue):
            raise
        fact = f"{name!r} is not a table ({error!s:.300})"
        raise BadValue(answer.WHERE, fact, f"give {FORMS}") from error
    return bytes(sink.getvalue())


def _table(frame: Any) -> Any:
    """Convert a frame to a pyarrow.Table."""
    import pyarrow as pa  # noqa: PLC0415 -- only for own tables

    match frame:
        case str() | os.PathLike():
            return _read(Path(frame))
        case SqlAnswer():
            return frame.arrow()
        case list():
            return _of_rows(frame)
        case dict():
            return pa.table(frame)
        case _ if type(frame).__module__.partition(".")[0] == "pandas":
            keeps_index = any(each is not None for each in frame.index.names)
            return pa.Table.from_pandas(frame, preserve_index=keeps_index)
        case _ if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
        case _:
            message = f"it is {type(frame).__name__}"
            raise TypeError(message)


def _of_rows(rows: list[Any]) -> Any:
    """Build a table of dicts; missing keys are NULL."""
    import pyarrow as pa  # noqa: PLC0415 -- only for own tables

    if not all(isinstance(row, Mapping) for row in rows):
        message = "not every row is a dict"
        raise TypeError(message)
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


# ------------------------------------------------------------ files


def _parquet(path: Path) -> Any:
    from pyarrow import parquet  # noqa: PLC0415 -- only for this format

    return parquet.read_table(path)


def _csv(path: Path) -> Any:
    from pyarrow import csv  # noqa: PLC0415 -- only for this format

    return csv.read_csv(path)


def _json(path: Path) -> Any:
    """Read one list of objects, or one object a line."""
    data = path.read_bytes()
    try:
        content = msgspec.json.decode(data)
    except msgspec.DecodeError:
        content = msgspec.json.Decoder().decode_lines(data)
    return _of_rows(content if isinstance(content, list) else [content])


def _arrow(path: Path) -> Any:
    """Read an IPC stream, or an IPC file (Feather)."""
    from pyarrow import ipc  # noqa: PLC0415 -- only for this format

    data = path.read_bytes()
    opened = ipc.open_file if data.startswith(b"ARROW1") else ipc.open_stream
    return opened(data).read_all()


READERS: dict[str, Callable[[Path], Any]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".ndjson": _json,
    ".jsonl": _json,
    ".arrow": _arrow,
    ".feather": _arrow,
}
"""Readers of files, by extension."""


def _read(path: Path) -> Any:
    reads = READERS.get(path.suffix.lower())
    if reads is None:
        fact = f"the format of {path.name!r} is unknown"
        raise BadValue(answer.WHERE, fact, f"give a file with extension {listed(READERS)}")
    size = path.stat().st_size
    if size > answer.BYTES_MAX:
        fact = f"{path.name!r} has {size:,} bytes, the most is {answer.BYTES_MAX:,}"
        raise BadValue(answer.WHERE, fact, "leave out columns and rows, or aggregate first")
    return reads(path)
