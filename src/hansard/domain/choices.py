"""Options and values chosen from a fixed list, with errors that name the list; texts for people."""

from __future__ import annotations

import difflib
import math
import reprlib
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from hansard.domain.errors import BadOption, BadValue

# Times from people: a zone is required, so that no machine's local clock decides the meaning.

SECONDS_MIN, SECONDS_MAX = 1e8, 1e11
"""Range of plausible seconds since 1970: 1973 to the year 5138; ms, us and ns scale it by 1,000
each. Smaller numbers cannot be distinguished from a count."""

PER_SECOND = (1, 1_000, 1_000_000, 1_000_000_000)
"""Units a second: seconds, milliseconds, microseconds, nanoseconds."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def claimed_time(text: str) -> datetime | None:
    """Return a time, in UTC where it names no zone; None for a text that is no time.

    ISO 8601 as `datetime.fromisoformat` reads it, or seconds, ms, us or ns since 1970.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _of_number(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _of_number(text: str) -> datetime | None:
    try:
        number = float(text)
    except ValueError:
        return None
    for unit in PER_SECOND:
        if math.isfinite(number) and SECONDS_MIN * unit <= number < SECONDS_MAX * unit:
            return EPOCH + timedelta(seconds=number / unit)
    return None


def moment(where: str, value: object) -> datetime:
    """Return a time with its zone, from a `datetime` or from ISO 8601. Raises BadValue."""
    result = value
    if isinstance(value, str):
        try:
            result = datetime.fromisoformat(value)
        except ValueError:
            result = None
    if not isinstance(result, datetime) or result.utcoffset() is None:
        remedy = "give a time with a zone: 2024-10-01T00:00:00Z"
        raise BadValue(where, f"{value!r:.80}", remedy)
    return result


# Numbers and lists in sentences: 1 decision, 2 decisions; one, another and a third.

_IRREGULAR = {"branch": "branches", "entry": "entries"}


def counted(number: int, one: str) -> str:
    """Return a number with its noun: `1 decision`, `2 decisions`. `one` is the singular."""
    return f"{number:,} {one if number == 1 else _IRREGULAR.get(one, f'{one}s')}"


def listed(things: Iterable[str]) -> str:
    """Join texts as a sentence lists them: `a, b and c`."""
    *most, last = things
    return f"{', '.join(most)} and {last}" if most else last


def shortened(things: Sequence[str], most: int = 3) -> str:
    """Join the first texts as a sentence lists them, with the number of the rest."""
    more = len(things) - most
    return listed([*things[:most], f"{more:,} more"] if more > 0 else things)


# Texts and keys in TOML (v1.0.0), for lines that people paste into a file.

_BARE = frozenset(string.ascii_letters + string.digits + "_-")


def text(value: str) -> str:
    """Write a text as a TOML basic string: its escapes are JSON's, except for DEL."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")


def key(name: str) -> str:
    """Write a name as a TOML key, bare where possible."""
    return name if name and set(name) <= _BARE else text(name)


# The display of a value at a prompt and in a notebook: a line, or a small table.
#
# Anybody may have written the value: it is escaped and shortened, so that the display stays small.
# The display makes no request.

TEXT_MAX = 80
"""Most characters of a text that are shown."""

ITEMS_MAX = 10
"""Most items of a list that a table shows."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = TEXT_MAX
_short.maxlevel = 2
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 4

_EMPTY: tuple[Any, ...] = (None, "", [], {}, (), set(), b"null")


T = TypeVar("T")


class First(msgspec.Struct, frozen=True):
    """The first of some items as texts, and the number of all."""

    items: list[str]
    total: int


def first(items: Collection[T], text: Callable[[T], str]) -> First:
    """Return the first of some items, each as a text."""
    return First([text(each) for each in islice(items, ITEMS_MAX)], len(items))


class Brief:
    """Mixin with a short repr and an HTML table for notebooks.

    `_brief` gives the facts; the line shows the size of a list or mapping, the table its first
    items.
    """

    __slots__ = ()

    def _brief(self) -> Mapping[str, Any]:
        """Return facts by name; empty ones are left out. The default for a Struct is its fields."""
        names: Sequence[str] = getattr(self, "__struct_fields__", ())
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_line(value)}" for name, value in _filled(self._brief()))
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{_escaped(name)}</th>"
            f"<td style='text-align:left'>{_cell(value)}</td></tr>"
            for name, value in _filled(self._brief())
        )
        return f"<table><caption><b>{type(self).__name__}</b></caption>{rows}</table>"


def _filled(facts: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
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
    """Write a value of another type in one line, whatever its own repr returns."""
    return _cut(repr(value) if isinstance(value, Brief) else _short.repr(value), 2 * TEXT_MAX)


def _cell(value: Any) -> str:
    total = 0
    match value:
        case First():
            items, total = [_item(each) for each in value.items], value.total
        case Mapping():
            items = [f"{_escaped(str(key))}: {_item(each)}" for key, each in _first(value.items())]
            total = len(value)
        case list() | tuple() | AbstractSet():
            items, total = [_item(each) for each in _first(value)], len(value)
        case _:
            return _item(value)
    more = total - len(items)
    return "<br>".join([*items, f"and {more:,} more"] if more else items)


def _first(values: Iterable[Any]) -> Iterable[Any]:
    return islice(values, ITEMS_MAX)


def _item(value: Any) -> str:
    return _escaped(str(value) if isinstance(value, str) else _line(value))


def _cut(text: str, letters: int = TEXT_MAX) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _escaped(text: str) -> str:
    """Return a text for HTML: shortened, unprintable characters written out, markup escaped."""
    import html  # noqa: PLC0415 -- its table of entities takes longer than all of this module

    short = _cut(text)
    return html.escape(short if short.isprintable() else _cut(repr(short)[1:-1]))


E = TypeVar("E", bound=Enum)
V = TypeVar("V")

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""Data by name, where there is none."""

LIKENESS_MIN = 0.6
"""Least similarity of two words for one to be suggested for the other (difflib's ratio)."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean ...? ` for a word that resembles a known one, else an empty text."""
    choices = list(known)
    same = [each for each in choices if each.startswith(word) or word.startswith(each)]
    like = [*same, *difflib.get_close_matches(word, choices, n=1, cutoff=LIKENESS_MIN)]
    return f"did you mean {like[0]!r}? " if like else ""


def check_options(where: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Check that every option is known. Raises BadOption for the first that is not."""
    there = list(known)
    for name in options:
        if name not in there:
            raise BadOption(where, name, f"{nearest(name, there)}It has: {', '.join(there)}")


_SHOWN = frozenset({str, int, float, bool, type(None)})
"""Types whose values an error repeats: a value of another type might hold a secret."""


def chosen(kind: type[E], value: object, where: str, besides: Iterable[str] = ()) -> E:
    """Return the member of an enum that a value names; `besides` are extra choices of the caller.

    Raises BadValue.
    """
    try:
        return kind(value)
    except ValueError:
        known = [*(str(each.value) for each in kind), *besides]
        like = nearest(value, known) if isinstance(value, str) else ""
        fact = f"{value!r:.80}" if type(value) in _SHOWN else f"a {type(value).__name__}"
        raise BadValue(where, fact, f"{like}give one of {', '.join(known)}") from None


def by_name(where: str, data: Mapping[str, V]) -> dict[str, V]:
    """Return data by name as a dict. Raises BadValue for a value that is no mapping."""
    if not isinstance(data, Mapping):
        raise BadValue(where, f"{data!r:.80}", "give a mapping, by name")
    return dict(data)
