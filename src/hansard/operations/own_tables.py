"""An analyst's own tables, as Arrow, for use in one SQL query.

They are read and converted in the caller's process; the worker that answers gets the bytes, and
opens nothing. They need pyarrow, which has no type annotations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.choices import listed
from hansard.domain.errors import BadValue
from hansard.operations.sql_answer import NotInstalled, SqlAnswer
from hansard.projections.sql_sandbox import answer
from hansard.projections.sql_sandbox.answer import ARROW

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
