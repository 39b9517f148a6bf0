"""Results of SQL queries for programs, in the forms that analysts use.

pyarrow has no type annotations, and is imported only when needed.
"""

from __future__ import annotations

import html
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from hansard.domain.choices import NOTHING, Brief, counted
from hansard.domain.errors import CallerError
from hansard.inspect.answer import plain_text
from hansard.projections.snapshots import Reader

SHOWN_ROWS = 20
"""Rows of an answer that a notebook and a terminal show."""

SHOWN_CHARACTERS = 200
"""Characters of a value that they show."""


class AnswerCut(UserWarning):
    """A table was made from a result that holds only the first rows.

    State: the answer is incomplete; nothing was written.
    Remedy: sum up in SQL, use LIMIT and OFFSET, or write all of it with 'hansard sql -o FILE'.
    """


EXTRAS = {"pyarrow": "'hansard[arrow]'", "matplotlib": "'hansard[plots]'"}
"""Extras of hansard by the package that they install."""


class NotInstalled(CallerError):
    """The form of a result, or a table for a query, needs a package that is not installed.

    State: no query was run.
    Remedy: install the extra that the message names.

    Attributes:
        package: The package's name.
    """

    def __init__(self, package: str, form: str, instead: str = "take arrow() or rows") -> None:
        extra = EXTRAS.get(package, package)
        super().__init__(
            f"{form} takes {package}, which is not installed: pip install {extra}, or {instead}"
        )
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
            warnings.warn(
                f"the table has the first {counted(len(self.rows), 'row')}, and there are more "
                "than an answer holds: sum up in SQL, use LIMIT and OFFSET, or write all of "
                "it with 'hansard sql -o FILE'",
                AnswerCut,
                stacklevel=3,
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
        self,
        question: str,
        parameters: tuple[object, ...],
        tables: Mapping[str, Any] = NOTHING,
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
