"""Two sides beside each other, so that a failed test says at once what is different."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

SHOWN_LETTERS_MAX = 120
"""Most letters of one value in a message."""


class Row(msgspec.Struct, frozen=True):
    """A line of a comparison: `mark` is `-` for what was expected and is not there, `+` for what is
    there and was not expected, and a blank for both.
    """

    mark: str
    text: str


def rows(
    expected: Sequence[Any],
    found: Sequence[Any],
    fits: Callable[[Any, Any], bool],
    text: Callable[[Any], str],
) -> list[Row]:
    """The two sides in order, with as many pairs that fit as there can be."""
    longest = [[0] * (len(found) + 1) for _ in range(len(expected) + 1)]
    for i in reversed(range(len(expected))):
        for j in reversed(range(len(found))):
            beside = max(longest[i + 1][j], longest[i][j + 1])
            pair = fits(expected[i], found[j])
            longest[i][j] = max(beside, longest[i + 1][j + 1] + 1) if pair else beside
    made: list[Row] = []
    i = j = 0
    while i < len(expected) or j < len(found):
        both = i < len(expected) and j < len(found)
        if both and fits(expected[i], found[j]):
            made.append(Row(" ", text(found[j])))
            i, j = i + 1, j + 1
        elif i < len(expected) and (not both or longest[i + 1][j] >= longest[i][j + 1]):
            made.append(Row("-", text(expected[i])))
            i += 1
        else:
            made.append(Row("+", text(found[j])))
            j += 1
    return made


def check(
    what: str,
    expected: Sequence[Any],
    found: Sequence[Any],
    *,
    fits: Callable[[Any, Any], bool],
    text: Callable[[Any], str] = str,
) -> None:
    """Raise AssertionError, with both sides, unless each fits its counterpart, in order."""
    __tracebackhide__ = True
    lines = rows(expected, found, fits, text)
    if any(row.mark != " " for row in lines):
        told = "\n".join(f"  {row.mark} {row.text}" for row in lines)
        message = f"{what} are not as expected (- expected, + found):\n{told}"
        raise AssertionError(message)


def brief(value: object) -> str:
    """A value's repr on one line, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= SHOWN_LETTERS_MAX else f"{shown[:SHOWN_LETTERS_MAX]}..."
