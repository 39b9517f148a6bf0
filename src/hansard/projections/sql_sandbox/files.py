"""Answers as files: written table by table, as they come, so that memory does not grow with them.
pyarrow has no types.

What only one format needs of pyarrow is imported with it: a table on the screen needs none of it.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import Any, BinaryIO, Literal, Self

import pyarrow as pa

from hansard.projections.sql_sandbox import answer as forms

Form = Literal["ndjson", "csv", "parquet", "arrow"]

GROUP_ROWS = 122_880
"""Of a row group in Parquet, at least: as many as DuckDB writes."""

GROUP_BYTES = 64 * 2**20
"""From this size on one is written, however few rows it has: what is held in memory."""


class AnswerFile:
    """Writes tables, all of the same columns, one after the other. Use it in `with`; the file stays
    open. Raises OSError.
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
    def take(self, table: Any) -> None:
        """Write a table, or keep it until there is enough to write."""

    def _close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()

    def _let_go(self) -> None:
        """The file is of no use: nothing is written there any more."""
        self._writer = None


class _Arrow(AnswerFile):
    """An IPC stream."""

    def take(self, table: Any) -> None:
        from pyarrow import ipc  # noqa: PLC0415 -- for this format alone

        if self._writer is None:
            self._writer = ipc.new_stream(self._file, table.schema)
        self._writer.write_table(table)


class _Parquet(AnswerFile):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._kept: list[Any] = []

    def take(self, table: Any) -> None:
        from pyarrow import parquet  # noqa: PLC0415 -- for this format alone

        storable = forms.storable(table)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, storable.schema)
        self._kept.append(storable)
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
            self._writer.is_open = False  # else it is closed once more when it is collected
        super()._let_go()

    def _write(self) -> None:
        self._writer.write_table(pa.concat_tables(self._kept))
        self._kept = []


class _Csv(AnswerFile):
    """RFC 4180 with a header; what is nested stands as JSON."""

    def __init__(self, file: BinaryIO, *, formulas: bool) -> None:
        super().__init__(file)
        self._formulas = formulas

    def take(self, table: Any) -> None:
        from pyarrow import csv  # noqa: PLC0415 -- for this format alone

        flat = forms.flat(table, formulas=self._formulas)
        if self._writer is None:
            self._writer = csv.CSVWriter(self._file, flat.schema)
        self._writer.write_table(flat)


class _Ndjson(AnswerFile):
    def take(self, table: Any) -> None:
        names = table.column_names
        for row in forms.tuples(table):
            line = forms.as_json(dict(zip(names, row, strict=True)))
            self._file.write(f"{line}\n".encode())


def answer_file(file: BinaryIO, form: Form, *, formulas: bool = False) -> AnswerFile:
    """What writes an answer in a format. formulas: in CSV, texts that a spreadsheet would run as a
    formula stand as they are; else an apostrophe is before them.
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
