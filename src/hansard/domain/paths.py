"""Paths into recorded values: keys of objects and indices of lists, from the outside in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hansard.domain.values import Plain

DOT = "."


def leaves(plain: Plain, within: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Plain]]:
    """Yield every value inside a value that is neither an object nor a list, with its path."""
    if type(plain) is dict:
        for key, each in plain.items():
            yield from leaves(each, (*within, key))
    elif type(plain) is list:
        for index, each in enumerate(plain):
            yield from leaves(each, (*within, str(index)))
    else:
        yield within, plain


def replaced(plain: Plain, within: Sequence[str], value: Plain) -> Plain:
    """Return a value with the value at a path replaced. Raises KeyError where the path does not
    exist.
    """
    if not within:
        return value
    first, rest = within[0], within[1:]
    if type(plain) is dict and first in plain:
        return {**plain, first: replaced(plain[first], rest, value)}
    if type(plain) is list and first.isascii() and first.isdigit() and int(first) < len(plain):
        items = list(plain)
        items[int(first)] = replaced(plain[int(first)], rest, value)
        return items
    raise KeyError(first)
