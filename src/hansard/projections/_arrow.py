"""Rows as Arrow: what DuckDB takes at once. pyarrow has no types, and takes long to import: that
waits for the first rows, since most who read tables write none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any


class Shape:
    """The columns of rows, by their kinds."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns

    @cached_property
    def schema(self) -> Any:
        """As Arrow has it."""
        import pyarrow as pa  # noqa: PLC0415 -- it takes long

        kinds: dict[str, Any] = {
            "integer": pa.int64(),
            "text": pa.string(),
            "texts": pa.list_(pa.string()),
            "time": pa.timestamp("us"),
        }
        return pa.schema([(name, kinds[kind]) for name, kind in self._columns.items()])

    def chunk(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        """Rows as one Arrow record batch; there must be some."""
        import pyarrow as pa  # noqa: PLC0415 -- it takes long

        arrays = [
            pa.array(values, field.type)
            for values, field in zip(zip(*rows, strict=True), self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def table(self, chunks: Sequence[Any]) -> Any:
        """Record batches as one table."""
        import pyarrow as pa  # noqa: PLC0415 -- it takes long

        return pa.Table.from_batches(chunks, schema=self.schema)
