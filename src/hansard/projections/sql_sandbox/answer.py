"""Answers of the SQL door, and their formats. pyarrow has no types, and is needed only for Arrow or
Parquet.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, BinaryIO, Literal, Self

import msgspec

from hansard.domain.errors import BadValue
from hansard.projections.errors import QueryFailed
from hansard.projections.sql_sandbox import rows as plain

# Parameters and tables that a caller passes with a query. Tables are sent to the worker as Arrow,
# since it opens no file. They exist for one query, and shadow none of the record's.

INTEGER_MAX = 2**63 - 1
"""Largest integer parameter: DuckDB's BIGINT."""

TABLES_MAX = 16
"""Most tables of one query."""

BYTES_MAX = 256 * 2**20
"""Most bytes of all of them, as Arrow: the worker holds them in memory in addition to DuckDB's."""

WHERE = "a table for SQL"
"""Prefix of an error's text."""

NAME = re.compile(r"[^\W\d]\w{0,62}")


def check(tables: Mapping[str, bytes], bytes_max: int = BYTES_MAX) -> None:
    """Raise BadValue for an invalid table name, for too many tables, and for ones too large."""
    for name in tables:
        if NAME.fullmatch(name) is None:
            remedy = "give letters, digits and _, 63 at most, and no digit first"
            raise BadValue(WHERE, f"{name!r:.80} is no name", remedy)
    if len({name.lower() for name in tables}) < len(tables):
        remedy = "name each otherwise: SQL takes A and a as one"
        raise BadValue(WHERE, f"two have the same name ({', '.join(tables)})", remedy)
    if len(tables) > TABLES_MAX:
        raise BadValue(WHERE, f"there are {len(tables)}", f"give {TABLES_MAX} at most")
    size = sum(map(len, tables.values()))
    if size > bytes_max:
        fact = f"{', '.join(tables)} come to {size:,} bytes as Arrow, the most is {bytes_max:,}"
        raise BadValue(WHERE, fact, "leave out columns and rows, or sum them up before")


def parameter(value: object) -> object:
    """Return a parameter as sent: a scalar of numpy or pandas as Python's own, an array as a list.
    Raises BadValue.
    """
    value = _as_python(value)
    if isinstance(value, list | tuple):
        return [parameter(each) for each in value]
    fits = value is None or isinstance(value, str | int | float | date | datetime)
    unfit = isinstance(value, float) and not math.isfinite(value)
    unfit |= isinstance(value, int) and not -INTEGER_MAX <= value <= INTEGER_MAX
    if not fits or unfit:
        remedy = "give a text, a finite number, true or false, None, a date, a time or a list"
        raise BadValue("a parameter of SQL", f"{value!r:.80}", remedy)
    return value


def _as_python(value: Any) -> object:
    """Return a value of numpy or pandas as Python's own; no package is imported for it."""
    cls = type(value)
    package = cls.__module__.partition(".")[0]
    if package == "numpy":
        if cls.__name__ == "datetime64":
            value = value.astype("datetime64[us]")
        return value.tolist()
    if package != "pandas":
        return value
    if cls.__name__ in ("NaTType", "NAType"):
        return None
    if cls.__name__ == "Timestamp":
        with warnings.catch_warnings():  # about nanoseconds, which Python's times do not have
            warnings.simplefilter("ignore")
            return value.to_pydatetime()
    return value.tolist() if hasattr(value, "tolist") else value


POSITION_KEY = b"hansard.position"
CUT_KEY = b"hansard.cut"
"""Key in the schema metadata of Arrow and Parquet."""

ROWS_AT_ONCE = 1_000

ARROW = find_spec("pyarrow") is not None
"""True if answers can be requested as Arrow: `pip install 'hansard[arrow]'`."""


class Answer(msgspec.Struct, frozen=True):
    """The rows, as of a position.

    `body` is an Arrow IPC stream if `is_arrow`, else rows (`hansard.projections.sql_sandbox.rows`).
    `cut` is `rows` or `bytes` if there were more than the limits allow. `engine_ms` is DuckDB's own
    time, `open_ms` the time to open the generation, 0 if it was open already.
    """

    position: int
    body: bytes
    rows: int
    cut: str | None = None
    engine_ms: float = 0.0
    open_ms: float = 0.0
    is_arrow: bool = False

    def table(self) -> Any:
        """Return a pyarrow.Table with the position in its metadata and unique column names.

        Raises QueryFailed for what Arrow cannot hold (a number of more than 38 digits).
        """
        import pyarrow as pa  # noqa: PLC0415 -- on request only
        from pyarrow import ipc  # noqa: PLC0415 -- on request only

        try:
            arrow = ipc.open_stream(self.body).read_all()
            arrow.validate(full=True)  # from a process that ran untrusted SQL
        except pa.ArrowInvalid as error:
            raise QueryFailed(f"the answer does not fit into Arrow ({error}): cast it") from error
        fields = {POSITION_KEY: str(self.position).encode(), CUT_KEY: (self.cut or "no").encode()}
        names = _distinct(arrow.column_names)
        return arrow.rename_columns(names).replace_schema_metadata(fields)

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        if self.is_arrow:
            names: list[str] = self.table().column_names
            return names
        return _distinct([each.name for each in self._columns()])

    @property
    def numeric(self) -> list[bool]:
        """True for each column of numbers; of rows, not of Arrow."""
        return [each.is_number for each in self._columns()]

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Return each row as a dict of plain values by column name."""
        names = self.columns
        for row in self.tuples():
            yield dict(zip(names, row, strict=True))

    def tuples(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row. Raises QueryFailed."""
        if self.is_arrow:
            yield from tuples(self.table())
            return
        try:
            yield from plain.rows(self.body)
        except (ValueError, msgspec.MsgspecError) as error:
            raise _no_answer(error) from error

    def arrow(self) -> bytes:
        """Return the answer as an Arrow IPC stream."""
        from pyarrow import ipc  # noqa: PLC0415 -- on request only

        table, sink = self.table(), io.BytesIO()
        with ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    def _columns(self) -> list[plain.Column]:
        try:
            return plain.columns(self.body)
        except (ValueError, msgspec.MsgspecError) as error:
            raise _no_answer(error) from error


def _no_answer(error: Exception) -> QueryFailed:
    """Return the error for an undecodable answer: it is from a process that ran untrusted SQL."""
    return QueryFailed(f"the worker's answer is invalid ({error}): try again")


def tuples(table: Any) -> Iterator[tuple[Any, ...]]:
    """Yield each row of a table, as plain values."""
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        columns = [_plain(column) for column in batch.columns]
        yield from zip(*columns, strict=True)


def _distinct(names: list[str]) -> list[str]:
    """Return unique names, with a number added to repeated ones: a, a_1, a_2."""
    unique: list[str] = []
    taken = set(names)
    for name in names:
        new, number = name, 0
        while new in unique:
            number += 1
            new = f"{name}_{number}"
            while new in taken:
                number += 1
                new = f"{name}_{number}"
        unique.append(new)
    return unique


def _storage(column: Any) -> Any:
    """Return a column without extension types (JSON, UUID ...)."""
    import pyarrow as pa  # noqa: PLC0415 -- on request only

    if isinstance(column.type, pa.BaseExtensionType):
        if isinstance(column, pa.ChunkedArray):
            chunks = [chunk.storage for chunk in column.chunks]
            return pa.chunked_array(chunks, type=column.type.storage_type)
        return column.storage
    return column


def _plain(column: Any) -> list[Any]:
    """Return a column's values as Python's own, times cut to the microsecond."""
    import pyarrow as pa  # noqa: PLC0415 -- on request only

    column = _storage(column)
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def storable(table: Any) -> Any:
    """Return a table that Parquet can hold: without extension types."""
    import pyarrow as pa  # noqa: PLC0415 -- on request only

    kept = [_storage(column) for column in table.columns]
    stored = pa.Table.from_arrays(kept, names=table.column_names)
    return stored.replace_schema_metadata(table.schema.metadata)


def as_json(value: Any) -> str:
    """Return a value as JSON, with text for types that JSON does not have."""
    return msgspec.json.encode(jsonable(value), enc_hook=str).decode()


def jsonable(value: Any) -> Any:
    """Return a value that JSON has: as `simple`, but NaN and infinities as texts."""
    return simple(value, finite=True)


def simple(value: Any, *, finite: bool = False) -> Any:
    """Return a value of simple types: bytes as hexadecimal; a map as its pairs, since a key may be
    of any type; all else as text.
    """
    match value:
        case float() if finite and not math.isfinite(value):
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case tuple() if type(value) is not tuple:
            return str(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return [simple(each, finite=finite) for each in value]
        case dict():
            return {str(key): simple(each, finite=finite) for key, each in value.items()}
        case _:
            return value


# Answers as files: written in parts as they arrive, so that memory does not grow with them. Arrow
# and Parquet are written by pyarrow, which has no types.

Form = Literal["ndjson", "csv", "parquet", "arrow"]

ARROW_FORMS: frozenset[str] = frozenset({"parquet", "arrow"})
"""Formats whose answers must be requested as Arrow."""

FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""First characters of a spreadsheet formula, full width forms included (OWASP, CSV injection)."""

GROUP_ROWS = 122_880
"""Fewest rows of a row group in Parquet: as many as DuckDB writes."""

GROUP_BYTES = 64 * 2**20
"""Size in bytes from which a row group is written, however few rows it has, which bounds memory."""


class AnswerFile:
    """Writes the parts of an answer, all of the same columns, in order. Use it in `with`; the file
    stays open. Raises OSError.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if error is None:
            self._close()
        else:
            self._let_go()

    @abstractmethod
    def take(self, part: Answer) -> None:
        """Write a part, or buffer it until there is enough to write."""

    def _close(self) -> None:
        """Write the rest."""
        if self._writer is not None:
            self._writer.close()

    def _let_go(self) -> None:
        """Stop writing, since the file is unusable."""
        self._writer = None


class _Arrow(AnswerFile):
    """Writes an Arrow IPC stream."""

    def take(self, part: Answer) -> None:
        from pyarrow import ipc  # noqa: PLC0415 -- for this format alone

        table = part.table()
        if self._writer is None:
            self._writer = ipc.new_stream(self._file, table.schema)
        self._writer.write_table(table)


class _Parquet(AnswerFile):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._kept: list[Any] = []

    def take(self, part: Answer) -> None:
        from pyarrow import parquet  # noqa: PLC0415 -- for this format alone

        table = storable(part.table())
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, table.schema)
        self._kept.append(table)
        rows = sum(each.num_rows for each in self._kept)
        if rows >= GROUP_ROWS or sum(each.nbytes for each in self._kept) >= GROUP_BYTES:
            self._write()

    def _close(self) -> None:
        if self._kept:
            self._write()
        super()._close()

    def _let_go(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
            self._writer.is_open = False  # otherwise it is closed again when it is collected
        super()._let_go()

    def _write(self) -> None:
        import pyarrow as pa  # noqa: PLC0415 -- for this format alone

        self._writer.write_table(pa.concat_tables(self._kept))
        self._kept = []


class _Csv(AnswerFile):
    """Writes RFC 4180 CSV with a header; nested values as JSON, texts in quotes, NULL as nothing,
    so that it differs from an empty text, which Python's csv does not support.
    """

    def __init__(self, file: BinaryIO, *, formulas: bool) -> None:
        super().__init__(file)
        self._formulas = formulas
        self._begun = False

    def take(self, part: Answer) -> None:
        if not self._begun:
            self._write(part.columns)
            self._begun = True
        for row in part.tuples():
            self._write(row)

    def _write(self, values: Iterable[Any]) -> None:
        self._file.write(f"{','.join(map(self._field, values))}\n".encode())

    def _field(self, value: Any) -> str:
        match value:
            case None:
                return ""
            case bool():
                return str(value).lower()
            case str():
                return self._quoted(value)
            case list() | dict() | tuple() | bytes():
                return self._quoted(as_json(value))
            case _:
                return str(value).replace("+00:00", "Z")

    def _quoted(self, text: str) -> str:
        """Return a quoted text; one that a spreadsheet would run as a formula gets an apostrophe
        before it, which marks a text there.
        """
        mark = "'" if not self._formulas and FORMULA.match(text) else ""
        return '"' + mark + text.replace('"', '""') + '"'


class _Ndjson(AnswerFile):
    def take(self, part: Answer) -> None:
        for row in part.dicts():
            self._file.write(f"{as_json(row)}\n".encode())


def answer_file(file: BinaryIO, form: Form, *, formulas: bool = False) -> AnswerFile:
    """Return the writer of an answer in a format. `formulas`: in CSV, leave texts that a
    spreadsheet would run as a formula unchanged; otherwise they get an apostrophe.
    """
    match form:
        case "arrow":
            return _Arrow(file)
        case "parquet":
            return _Parquet(file)
        case "csv":
            return _Csv(file, formulas=formulas)
        case "ndjson":
            return _Ndjson(file)
