"""Options and values that are chosen from a few: who gives another one is told which there are."""

from __future__ import annotations

import difflib
import reprlib
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from hansard.domain.errors import BadOption, BadValue

# How a number of things is said: 1 decision, 2 decisions; one, another and a third.

_IRREGULAR = {"branch": "branches", "entry": "entries"}


def counted(number: int, one: str) -> str:
    """A number and what it counts, which is given as it is called where there is one."""
    return f"{number:,} {one if number == 1 else _IRREGULAR.get(one, f'{one}s')}"


def listed(things: Iterable[str]) -> str:
    """Things one after the other, as a sentence has them."""
    *most, last = things
    return f"{', '.join(most)} and {last}" if most else last


def shortened(things: Sequence[str], most: int = 3) -> str:
    """The first of some things as a sentence has them, and how many more there are."""
    more = len(things) - most
    return listed([*things[:most], f"{more:,} more"] if more > 0 else things)


# Texts and keys as TOML (v1.0.0) has them, for what people are to paste into a file.

_BARE = frozenset(string.ascii_letters + string.digits + "_-")


def text(value: str) -> str:
    """A text as a basic string: JSON's escapes are TOML's, but for DEL."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")


def key(name: str) -> str:
    """A name as a key: bare where it may be."""
    return name if name and set(name) <= _BARE else text(name)


# How a value shows itself at a prompt and in a notebook: a line, or a small table.
#
# What is shown may have been written by anybody: it is escaped, and cut, so that it stays small
# whatever the value. Nothing is asked of anyone for it.

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
        facts = ", ".join(f"{name}={_line(value)}" for name, value in _refusal_text(self._brief()))
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{_escaped(name)}</th>"
            f"<td style='text-align:left'>{_cell(value)}</td></tr>"
            for name, value in _refusal_text(self._brief())
        )
        return f"<table><caption><b>{type(self).__name__}</b></caption>{rows}</table>"


def _refusal_text(facts: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
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


E = TypeVar("E", bound=Enum)
V = TypeVar("V")

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""Data by name, where none is given."""

LIKENESS_MIN = 0.6
"""How alike two words are of which one may be meant by the other (difflib's ratio)."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...? ` for a word that is like a known one, else nothing."""
    choices = list(known)
    same = [each for each in choices if each.startswith(word) or word.startswith(each)]
    like = [*same, *difflib.get_close_matches(word, choices, n=1, cutoff=LIKENESS_MIN)]
    return f"did you mean {like[0]!r}? " if like else ""


def check_options(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises BadOption for the first option that there is not."""
    there = list(known)
    for name in given:
        if name not in there:
            raise BadOption(where, name, f"{nearest(name, there)}It has: {', '.join(there)}")


_SHOWN = frozenset({str, int, float, bool, type(None)})
"""Types of which an error repeats the value: of others it might be a secret's."""


def chosen(kind: type[E], value: object, where: str, besides: Iterable[str] = ()) -> E:
    """The choice of an enum that a value names; `besides` are choices of the caller's own.

    Raises BadValue.
    """
    try:
        return kind(value)
    except ValueError:
        known = [*(str(each.value) for each in kind), *besides]
        like = nearest(value, known) if isinstance(value, str) else ""
        fact = f"{value!r:.80}" if type(value) in _SHOWN else f"a {type(value).__name__}"
        raise BadValue(where, fact, f"{like}give one of {', '.join(known)}") from None


def by_name(where: str, given: Mapping[str, V]) -> dict[str, V]:
    """Data that is given by name. Raises BadValue for what is no mapping."""
    if not isinstance(given, Mapping):
        raise BadValue(where, f"{given!r:.80}", "give a mapping, by name")
    return dict(given)
