"""Published tables, for our own SQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol


class _Reached(Protocol):
    @property
    def position(self) -> int: ...
    @property
    def digest(self) -> str: ...


class ReadSource(Protocol):
    """A `Store` or `Reader`, without importing the store, which takes a tenth of a second."""

    @property
    def progress(self) -> _Reached:
        """The position of the tables."""
        ...

    @property
    def path(self) -> Path:
        """The file."""
        ...

    def all(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        ...

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return all rows as dicts by column name."""
        ...

    def scratch(self) -> AbstractContextManager[None]:
        """Run queries with temporary tables and macros, which are dropped at the end."""
        ...

    def interrupt(self) -> None:
        """Interrupt the current query."""
        ...


class Reader:
    """Tables that do not change while they are read. For our own SQL: the cost of a query is not
    bounded.
    """

    def __init__(self, store: ReadSource) -> None:
        self._store = store

    @property
    def position(self) -> int:
        """The position of the tables."""
        return self._store.progress.position

    @property
    def digest(self) -> str:
        """SHA-256 of the message there."""
        return self._store.progress.digest

    @property
    def path(self) -> Path:
        """The database file."""
        return self._store.path

    def scratch(self) -> AbstractContextManager[None]:
        """Run queries with temporary tables and macros, which are dropped at the end. A temporary
        macro shadows the stored one of the same name, also for stored macros that call it.
        """
        return self._store.scratch()

    def interrupt(self) -> None:
        """Interrupt the current query, in whichever thread."""
        self._store.interrupt()

    def all(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self._store.all(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return all rows of a query as dicts by column name."""
        return self._store.rows(sql, parameters)
