"""Options and values that are chosen from a few: who gives another one is told which there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from hansard.domain.errors import BadOption, BadValue

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
