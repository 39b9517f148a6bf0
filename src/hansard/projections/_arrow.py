"""Rows as Arrow: what DuckDB takes at once. pyarrow has no types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_KINDS: dict[str, Any] = {
    "integer": pa.int64(),
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "time": pa.timestamp("us"),
}


def schema(columns: dict[str, str]) -> Any:
    """The Arrow schema of columns, by their kinds."""
    return pa.schema([(name, _KINDS[kind]) for name, kind in columns.items()])


def chunk(rows: Sequence[tuple[Any, ...]], shape: Any) -> Any:
    """Rows as one Arrow record batch; there must be some."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, shape, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


def table(chunks: Sequence[Any], shape: Any) -> Any:
    """Record batches as one table."""
    return pa.Table.from_batches(chunks, schema=shape)
