"""An answer of the SQL door, and the formats it is given in. pyarrow has no types.

What only one format needs of pyarrow is imported with it: a table on the screen needs none of it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import ipc

from hansard.projections.sql_sandbox.errors import QueryFailed

POSITION_KEY = b"hansard.position"
CUT_KEY = b"hansard.cut"
"""Of the schema's metadata in Arrow and Parquet."""

ROWS_AT_ONCE = 1_000

FORMULA = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
"""With what a spreadsheet begins a formula, full width forms included (OWASP, CSV injection)."""


class Answer(msgspec.Struct, frozen=True):
    """The rows, as of a position.

    `cut` is `rows` or `bytes` where there were more than the limits allow. `engine_ms` is DuckDB's
    own time, `open_ms` the time to open the generation, 0 where it was open already.
    """

    position: int
    ipc: bytes
    rows: int
    cut: str | None = None
    engine_ms: float = 0.0
    open_ms: float = 0.0

    def table(self) -> Any:
        """As a pyarrow.Table, the position in its metadata; no two columns have one name.

        Raises QueryFailed for what Arrow cannot hold (a number of more than 38 digits).
        """
        try:
            found = ipc.open_stream(self.ipc).read_all()
            found.validate(full=True)  # it comes from a process that ran whatever was asked
        except pa.ArrowInvalid as error:
            raise QueryFailed(f"the answer does not fit into Arrow ({error}): cast it") from error
        told = {POSITION_KEY: str(self.position).encode(), CUT_KEY: (self.cut or "no").encode()}
        names = _distinct(found.column_names)
        return found.rename_columns(names).replace_schema_metadata(told)

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return _distinct(ipc.open_stream(self.ipc).schema.names)

    @property
    def numeric(self) -> set[str]:
        """Those of them that hold numbers."""
        schema = ipc.open_stream(self.ipc).schema
        pairs = zip(self.columns, schema.types, strict=True)
        return {name for name, kind in pairs if _is_number(kind)}

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Each row by the names of its columns, as plain values."""
        names = self.columns
        for row in self.tuples():
            yield dict(zip(names, row, strict=True))

    def tuples(self) -> Iterator[tuple[Any, ...]]:
        """Each row."""
        return tuples(self.table())

    def arrow(self) -> bytes:
        """As an Arrow IPC stream."""
        table, sink = self.table(), io.BytesIO()
        with ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()


def tuples(table: Any) -> Iterator[tuple[Any, ...]]:
    """Each row of a table, as plain values."""
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        columns = [_plain(column) for column in batch.columns]
        yield from zip(*columns, strict=True)


def flat(table: Any, *, formulas: bool) -> Any:
    """A table as CSV has it: what is nested stands as JSON.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, which those take
    for the mark of a text; with `formulas` all stands as it is.
    """
    arrays, names = [_flat(column) for column in table.columns], pa.array(table.column_names)
    if not formulas:
        arrays, names = [_no_formula(column) for column in arrays], _no_formula(names)
    return pa.Table.from_arrays(arrays, names=names.to_pylist())


def _distinct(names: list[str]) -> list[str]:
    """Names of which a later one that is there already has a number: a, a_1, a_2."""
    found: list[str] = []
    taken = set(names)
    for name in names:
        new, number = name, 0
        while new in found:
            number += 1
            new = f"{name}_{number}"
            while new in taken:
                number += 1
                new = f"{name}_{number}"
        found.append(new)
    return found


def _is_number(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _storage(column: Any) -> Any:
    """A column without extension types (JSON, UUID ...)."""
    if isinstance(column.type, pa.BaseExtensionType):
        if isinstance(column, pa.ChunkedArray):
            chunks = [chunk.storage for chunk in column.chunks]
            return pa.chunked_array(chunks, type=column.type.storage_type)
        return column.storage
    return column


def _plain(column: Any) -> list[Any]:
    """A column's values: of times no more than a microsecond, the rest as Python has it."""
    column = _storage(column)
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def _flat(column: Any) -> Any:
    """A column as CSV has it."""
    column = _storage(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_interval(kind):
        texts = [None if each is None else as_json(each) for each in _plain(column)]
        return pa.array(texts, pa.string())
    return column


def _no_formula(column: Any) -> Any:
    """A column without texts that begin a formula."""
    from pyarrow import compute  # noqa: PLC0415 -- for one format alone

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    return compute.call_function(
        "replace_substring_regex",
        [column],
        compute.ReplaceSubstringOptions(FORMULA, r"'\0"),
    )


def storable(table: Any) -> Any:
    """A table that Parquet can hold: intervals and what it does not know as text."""
    arrays = []
    for column in table.columns:
        kept = _storage(column)
        if pa.types.is_interval(kept.type):
            kept = pa.array([None if v is None else str(v) for v in kept.to_pylist()], pa.string())
        arrays.append(kept)
    made = pa.Table.from_arrays(arrays, names=table.column_names)
    return made.replace_schema_metadata(table.schema.metadata)


def as_json(value: Any) -> str:
    """A value as JSON; what JSON does not have, as text."""
    return msgspec.json.encode(jsonable(value), enc_hook=str).decode()


def jsonable(value: Any) -> Any:
    """A value that JSON has: bytes as hexadecimal; a map as its pairs, since a key may be anything;
    what is no number (NaN, infinity) and what has no other form as text.
    """
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case tuple():
            return [jsonable(each) for each in value] if type(value) is tuple else str(value)
        case bytes():
            return value.hex()
        case list():
            return [jsonable(each) for each in value]
        case dict():
            return {str(key): jsonable(each) for key, each in value.items()}
        case _:
            return value
