"""How a number of things is said: 1 decision, 2 decisions."""

from __future__ import annotations

_IRREGULAR = {"branch": "branches", "entry": "entries"}


def counted(number: int, one: str) -> str:
    """A number and what it counts, which is given as it is called where there is one."""
    return f"{number:,} {one if number == 1 else _IRREGULAR.get(one, f'{one}s')}"
