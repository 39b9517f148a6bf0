"""How a value shows itself at a prompt and in a notebook: a line, or a small table.

What is shown may have been written by anybody: it is escaped, and cut, so that it stays small
whatever the value. Nothing is asked of anyone for it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, TypeVar

import msgspec

TEXT_MAX = 80
"""Letters of a text that are shown."""

ITEMS_MAX = 10
"""Items of a list that a table shows."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = TEXT_MAX
_short.maxlevel = 2
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 4

_EMPTY: tuple[Any, ...] = (None, "", [], {}, (), set(), b"null")


T = TypeVar("T")


class First(msgspec.Struct, frozen=True):
    """The first of some items as texts, and how many there are."""

    items: list[str]
    total: int


def first(items: Collection[T], text: Callable[[T], str]) -> First:
    """The first of some items, each as a text."""
    return First([text(each) for each in islice(items, ITEMS_MAX)], len(items))


class Brief:
    """What has a short repr and a notebook's. `_brief` gives its facts; a list or mapping is
    counted in the line, and its first items stand in the table.
    """

    __slots__ = ()

    def _brief(self) -> Mapping[str, Any]:
        """Facts by name; empty ones are left out. A Struct's are its fields."""
        names: Sequence[str] = getattr(self, "__struct_fields__", ())
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_line(value)}" for name, value in _told(self._brief()))
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{_escaped(name)}</th>"
            f"<td style='text-align:left'>{_cell(value)}</td></tr>"
            for name, value in _told(self._brief())
        )
        return f"<table><caption><b>{type(self).__name__}</b></caption>{rows}</table>"


def _told(facts: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in facts.items():
        if not any(type(value) is type(empty) and value == empty for empty in _EMPTY):
            yield name, value


def _line(value: Any) -> str:
    match value:
        case str():
            return repr(_cut(str(value)))
        case First():
            return f"<{value.total:,}>"
        case msgspec.Raw() | bytes():
            return f"<{len(bytes(value)):,} bytes>"
        case Mapping() | AbstractSet() | list() | tuple():
            return f"<{len(value):,}>"
        case _:
            return _plain(value)


def _plain(value: Any) -> str:
    """A value of another kind in one line, whatever its own repr says."""
    return _cut(repr(value) if isinstance(value, Brief) else _short.repr(value), 2 * TEXT_MAX)


def _cell(value: Any) -> str:
    total = 0
    match value:
        case First():
            found, total = [_item(each) for each in value.items], value.total
        case Mapping():
            found = [f"{_escaped(str(key))}: {_item(each)}" for key, each in _first(value.items())]
            total = len(value)
        case list() | tuple() | AbstractSet():
            found, total = [_item(each) for each in _first(value)], len(value)
        case _:
            return _item(value)
    more = total - len(found)
    return "<br>".join([*found, f"and {more:,} more"] if more else found)


def _first(values: Iterable[Any]) -> Iterable[Any]:
    return islice(values, ITEMS_MAX)


def _item(value: Any) -> str:
    return _escaped(str(value) if isinstance(value, str) else _line(value))


def _cut(text: str, letters: int = TEXT_MAX) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _escaped(text: str) -> str:
    """A text for a page: cut, what cannot be seen written out, and no markup."""
    import html  # noqa: PLC0415 -- its table of entities takes longer than all of this module

    short = _cut(text)
    return html.escape(short if short.isprintable() else _cut(repr(short)[1:-1]))
