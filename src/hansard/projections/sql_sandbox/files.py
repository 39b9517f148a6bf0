"""Answers as files: written in parts as they arrive, so that memory does not grow with them. Arrow
and Parquet are written by pyarrow, which has no types.
"""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, BinaryIO, Literal, Self

from hansard.projections.sql_sandbox import answer as forms
from hansard.projections.sql_sandbox.answer import Answer

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

        table = forms.storable(part.table())
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
                return self._quoted(forms.as_json(value))
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
            self._file.write(f"{forms.as_json(row)}\n".encode())


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
