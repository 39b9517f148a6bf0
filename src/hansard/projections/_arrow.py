"""Rows as Arrow: what DuckDB takes at once. nanoarrow takes a while to import: that waits for the
first rows, since most who read tables write none.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any


class Shape:
    """The columns of rows, by their kinds."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns

    @cached_property
    def schema(self) -> Any:
        """As Arrow has it."""
        import nanoarrow as na  # noqa: PLC0415 -- it takes a while

        return na.struct({name: _kind(na, kind) for name, kind in self._columns.items()})

    def chunk(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        """Rows as one Arrow record batch; there must be some."""
        import nanoarrow as na  # noqa: PLC0415 -- it takes a while

        columns = zip(*rows, strict=True)
        arrays = [
            _array(na, kind, values)
            for kind, values in zip(self._columns.values(), columns, strict=True)
        ]
        return na.c_array_from_buffers(self.schema, len(rows), [None], children=arrays)

    def table(self, chunks: Sequence[Any]) -> Any:
        """Record batches as one table."""
        import nanoarrow as na  # noqa: PLC0415 -- it takes a while

        return na.Array.from_chunks(chunks)


def _kind(na: Any, kind: str) -> Any:
    match kind:
        case "integer":
            return na.int64()
        case "time":
            return na.timestamp("us")
        case "text":
            return na.string()
        case _:
            return na.list_(na.string())


def _array(na: Any, kind: str, values: tuple[Any, ...]) -> Any:
    """A column."""
    if kind == "text":
        return na.c_array(values, _kind(na, kind))
    if kind == "texts":
        texts = na.c_array(chain.from_iterable(each or () for each in values), _kind(na, "text"))
        ends = accumulate((len(each or ()) for each in values), initial=0)
        told = [_validity(na, values), na.c_buffer(ends, na.int32())]
        return na.c_array_from_buffers(_kind(na, kind), len(values), told, children=[texts])
    numbers = array("q", (each or 0 for each in values) if None in values else values)
    buffers = [_validity(na, values), numbers]
    return na.c_array_from_buffers(_kind(na, kind), len(values), buffers)


def _validity(na: Any, values: tuple[Any, ...]) -> Any:
    """The bitmap of what is there, None where all is."""
    if None not in values:
        return None
    return na.c_buffer([each is not None for each in values], na.bool_())
