"""Slices: features in packages of their own, which the core does not import.

A package makes a `Slice` and names it as an entry point of the group `hansard.slices`. It is loaded
where it is first needed: for an event or a request that the core does not know, for the tables, and
for the command line. docs/extending.md has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

import msgspec

from hansard.bus.loggers import logger
from hansard.domain import ids, integrity
from hansard.domain.errors import BadValue
from hansard.domain.events import Event
from hansard.domain.steps import Step

GROUP = "hansard.slices"
"""The group of entry points."""

_log = logger(__name__)

_slices: dict[str, Slice] = {}


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A feature: making one registers it in this process.

    Raises BadName, and BadValue if another slice has its name, or one of its streams is taken.

    Attributes:
        name: Its name, which is also its group of commands: `hansard NAME ...`.
        streams: By kind of stream, the types of the events that such a stream may hold.
        nouns: Classes of operations (`hansard.extending.Noun`), or texts such as "package:Tickets",
            which are imported where operations are first needed.
        schema: SQL statements that create its views, run after those of the core.
        check_edit: Raises BadValue for a result that a step of the slice cannot return, by which
            it is edited in a fork or settled as happened.
            Called with the step's name, the step, and the result as plain data.
    """

    name: str
    streams: Mapping[str, tuple[type[Event], ...]] = {}
    nouns: tuple[type[Any] | str, ...] = ()
    schema: str = ""
    check_edit: Callable[[str, Step, Any], None] | None = None

    def __post_init__(self) -> None:
        ids.name("slice", self.name)
        if self.name in _slices:
            raise BadValue("slice", f"{self.name!r} is registered already", "choose another name")
        for kind, events in self.streams.items():
            integrity.register(kind, events)
        _slices[self.name] = self

    def operations(self) -> list[type[Any]]:
        """Import and return the nouns; one that cannot be imported is left out with a warning."""
        imported: list[type[Any]] = []
        for each in self.nouns:
            try:
                imported.append(resolve_name(each) if isinstance(each, str) else each)
            except Exception as error:  # noqa: BLE001 -- a package of others may raise anything
                _log.warning("operations of a slice are missing", noun=each, error=repr(error))
        return imported


@cache
def load() -> None:
    """Import the slices of the installed packages; one that fails is left out with a warning."""
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        before = {*_slices}
        try:
            loaded = entry.load()
            why = "" if isinstance(loaded, Slice) else f"it is a {type(loaded).__name__}, no Slice"
        except Exception as error:  # noqa: BLE001 -- a package of others may raise anything
            why = repr(error)
        if why:
            for name in {*_slices} - before:
                del _slices[name]
            _log.warning("a slice cannot be loaded", slice=entry.value, error=why)


def installed() -> list[Slice]:
    """Return the slices of the installed packages, and those made in this process, by name."""
    load()
    return [_slices[name] for name in sorted(_slices)]
