"""How a number of things is said: 1 decision, 2 decisions; one, another and a third."""

from __future__ import annotations

from collections.abc import Iterable

_IRREGULAR = {"branch": "branches", "entry": "entries"}


def counted(number: int, one: str) -> str:
    """A number and what it counts, which is given as it is called where there is one."""
    return f"{number:,} {one if number == 1 else _IRREGULAR.get(one, f'{one}s')}"


def listed(things: Iterable[str]) -> str:
    """Things one after the other, as a sentence has them."""
    *most, last = things
    return f"{', '.join(most)} and {last}" if most else last
