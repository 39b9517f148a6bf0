"""Published tables, to be asked in our own SQL."""

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
    """What is read: a `Store`, whose import takes a tenth of a second."""

    @property
    def progress(self) -> _Reached:
        """Up to where it was made."""
        ...

    @property
    def path(self) -> Path:
        """Its file."""
        ...

    def all(self, sql: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Every row of an answer."""
        ...

    def rows(self, sql: str, given: Sequence[object] = ()) -> list[dict[str, Any]]:
        """The same by the names of its columns."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Ask meanwhile beside temporary tables and macros, which go at its end."""
        ...

    def interrupt(self) -> None:
        """Have what is asked at this moment end."""
        ...


class Reader:
    """Tables that do not change while they are asked. For our own SQL: nothing bounds its cost."""

    def __init__(self, store: ReadSource) -> None:
        self._store = store

    @property
    def position(self) -> int:
        """Every answer holds as of this position."""
        return self._store.progress.position

    @property
    def digest(self) -> str:
        """SHA-256 of the message there."""
        return self._store.progress.digest

    @property
    def path(self) -> Path:
        """The file that is asked."""
        return self._store.path

    def aside(self) -> AbstractContextManager[None]:
        """Ask meanwhile beside temporary tables and macros, which go at its end. A macro hides that
        of the tables which has its name, also where another one of theirs asks for it.
        """
        return self._store.aside()

    def interrupt(self) -> None:
        """Have what is asked at this moment end, in whichever thread."""
        self._store.interrupt()

    def all(self, sql: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Every row of an answer."""
        return self._store.all(sql, given)

    def rows(self, sql: str, given: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Every row of an answer, by the names of its columns."""
        return self._store.rows(sql, given)
