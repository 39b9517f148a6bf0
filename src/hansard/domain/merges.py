"""Merges that commute: whatever order their values come in, the same value stands in the end.

Each is the join of a semilattice (commutative, associative, and a value joined twice counts once),
over plain JSON values:

    max, min    of two numbers, or of two texts by code points
    union       of two objects: every key of both; two objects under one key are joined in turn; an
                object stands before what is none; of two others the later in RFC 8785 form stands
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical


class Merge(StrEnum):
    """How a value is merged into what stands."""

    MAX = "max"
    MIN = "min"
    UNION = "union"


NAMES = tuple(each.value for each in Merge)


def check(name: str, value: Any) -> None:
    """Raise BadValue unless a merge of this name takes the value."""
    if name not in NAMES:
        raise BadValue("merge", f"{name!r:.80} is no merge", f"use {', '.join(NAMES)}")
    if name == "union":
        if not _is_object(value):
            raise BadValue("merge 'union'", f"{value!r:.80}", "give a dict with texts as keys")
    elif type(value) not in (int, float, str):
        raise BadValue(f"merge {name!r}", f"{value!r:.80}", "give a number up to 2**53, or a text")


def check_pair(name: str, stands: Any, value: Any) -> None:
    """Raise BadValue unless two values that `check` passed can be merged: numbers do not compare
    with texts.
    """
    if name != "union" and (type(stands) is str) != (type(value) is str):
        fact = f"{value!r:.80} cannot be compared with {stands!r:.80}"
        raise BadValue(f"merge {name!r}", fact, "merge numbers with numbers, texts with texts")


def join(name: str, one: Any, other: Any) -> Any:
    """The two values merged."""
    if name == "union":
        return _union(one, other)
    return max(one, other) if name == "max" else min(one, other)


def _is_object(value: Any) -> bool:
    """Whether a plain value is an object of the caller's, and not the tagged form of another."""
    return type(value) is dict and not any(key[:1] == "$" for key in value)


def _union(one: Any, other: Any) -> Any:
    match _is_object(one), _is_object(other):
        case True, True:
            both = dict(one)
            for key, item in other.items():
                both[key] = _union(both[key], item) if key in both else item
            return both
        case True, False:
            return one
        case False, True:
            return other
        case _:
            return max(one, other, key=canonical)
