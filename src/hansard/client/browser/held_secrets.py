"""The secrets that were filled in on a page, which may show them to whoever reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hansard.domain.redaction import SECRET_LENGTH_MIN

_WHERE = frozenset(("selector", "xpath", "css", "path", "elementId"))
"""What says where an element is: a short secret is not looked for in it."""


class HeldSecrets:
    """The secrets that were filled in on a page, which may show them: what is read there goes to
    the record and to models with `<secret:name>` in their place.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._any: re.Pattern[str] | None = None
        self._long: re.Pattern[str] | None = None

    def add(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Remember values by their names; an empty name is of no secret."""
        for name, value in zip(names, values, strict=True):
            if name and isinstance(value, str) and value.strip():
                self._names[" ".join(value.split())] = name
        self._any = self._pattern(1)
        self._long = self._pattern(SECRET_LENGTH_MIN)

    @property
    def held(self) -> bool:
        """Whether there are any."""
        return self._any is not None

    def without(self, told: Any) -> Any:
        """A value without them."""
        return told if self._any is None else self._without(told, self._any)

    def _pattern(self, least: int) -> re.Pattern[str] | None:
        values = sorted((v for v in self._names if len(v) >= least), key=len, reverse=True)
        some = "|".join(map(_anywhere, values))
        return re.compile(some) if values else None

    def _without(self, told: Any, pattern: re.Pattern[str] | None) -> Any:
        if isinstance(told, str) and pattern is not None:
            return pattern.sub(lambda found: f"<secret:{self._name(found.group())}>", told)
        if isinstance(told, list):
            return [self._without(each, pattern) for each in told]
        if isinstance(told, dict):
            return {
                key: self._without(each, self._long if key in _WHERE else pattern)
                for key, each in told.items()
            }
        return told

    def _name(self, found: str) -> str:
        return self._names[" ".join(found.split())]


def _anywhere(value: str) -> str:
    """A pattern of a value, however it is spaced; a short one stands as a whole word alone."""
    words = r"\s+".join(map(re.escape, value.split()))
    return words if len(value) >= SECRET_LENGTH_MIN else rf"(?<!\w){words}(?!\w)"
