"""How a number of things is said: 1 decision, 2 decisions; one, another and a third."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
