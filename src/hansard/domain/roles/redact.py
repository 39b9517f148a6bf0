"""Paths through a recorded value: what they show, what they mask; the tags of values seen through.

A path goes through lists, tuples, sets and maps (`hansard.domain.values`) into every item, and
through the tag of a registered type into its data. Where a
path that masks comes upon a value it cannot go into, such as a text or a blob, and the masked one
may be inside, it masks that value whole; where a path that shows does, it shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hansard.domain.roles.model import Mask, Masking
from hansard.domain.roles.patterns import segment_matches

Remaining = tuple[tuple[str, ...], ...]
"""The segments of a path that are still to go; () has arrived."""

MISSING: Any = object()
"""In place of a value that is not shown."""

_LISTS = frozenset({"$tuple", "$set", "$frozenset"})


class Masked(msgspec.Struct, frozen=True):
    """A value that masks arrived at."""

    value: Any
    masks: tuple[Mask, ...]


Masks = list[tuple[Remaining, Mask]]
Apply = Callable[[Masked], Any]
"""What becomes of a masked value; it may be MISSING."""


def walk(value: Any, shows: list[Remaining], masks: Masks, apply: Apply) -> Any:
    """What is shown of a plain value. What is masked inside goes first, then what is around it."""
    here = tuple(mask for rest, mask in masks if not rest)
    deeper = [(rest, mask) for rest, mask in masks if rest]
    if () in shows:
        shows = [()]
    match value:
        case {"$append": dict() as told} if len(value) == 1:
            # Which step's list it grew from, its count and its digest tell of another event.
            items = walk(told.get("items"), shows, deeper, apply)
            out = items if items is MISSING else {"$append": {"items": items}}
        case {"$value": {"tag": str(), "data": data} as told} if len(value) == 1:
            into, whole = _through(data, deeper)
            kept = walk(data, shows, into, apply)
            out = kept if kept is MISSING else {"$value": {**told, "data": kept}}
            if whole and out is not MISSING:
                out = apply(Masked(out, whole))
        case {"$parts": dict() as told} if len(value) == 1:
            # Too large to be put in full, damaged, or in a blob: no path goes into it, and what it
            # refers to stands in other events.
            of = told.get("of")
            own = [it for it in of if isinstance(it, str | dict)] if isinstance(of, list) else []
            shown = {"$parts": {"size": told.get("size"), "of": own}}
            out = _leaf(shown, shows, deeper, apply)
        case {"$map": list() as pairs} if len(value) == 1:
            found = [_pair(pair, shows, deeper, apply) for pair in pairs]
            out = _or_missing({"$map": _there(found)}, shows, empty=not _there(found))
        case dict() if len(value) == 1 and next(iter(value))[:1] == "$":
            [(tag, inner)] = value.items()
            if tag in _LISTS and isinstance(inner, list):
                kept = _there([walk(item, shows, deeper, apply) for item in inner])
                out = _or_missing({tag: kept}, shows, empty=not kept)
            else:
                out = _leaf(value, shows, deeper, apply)
        case dict():
            entries = {name: _entry(name, it, shows, deeper, apply) for name, it in value.items()}
            shown = {name: it for name, it in entries.items() if it is not MISSING}
            out = _or_missing(shown, shows, empty=not shown)
        case list():
            kept = _there([walk(item, shows, deeper, apply) for item in value])
            out = _or_missing(kept, shows, empty=not kept)
        case _:
            out = _leaf(value, shows, deeper, apply)
    if out is MISSING or not here:
        return out
    return apply(Masked(out, here))


def _through(data: Any, masks: Masks) -> tuple[Masks, tuple[Mask, ...]]:
    """The masks that go on into a registered type's data, and those that mask the value whole: what
    they mean has no name in the data, and may be anywhere in it (a frame's column in its bytes).
    """
    names = list(data) if isinstance(data, dict) else []
    into: Masks = []
    whole: list[Mask] = []
    for rest, mask in masks:
        if any(segment_matches(rest[0], name) for name in names):
            into.append((rest, mask))
        else:
            whole.append(mask)
    return into, tuple(whole)


def _there(items: list[Any]) -> list[Any]:
    return [item for item in items if item is not MISSING]


def _or_missing(value: Any, shows: list[Remaining], *, empty: bool) -> Any:
    """A container; where only some of it is asked for and nothing of that is there, nothing."""
    return MISSING if empty and shows != [()] else value


def _leaf(value: Any, shows: list[Remaining], deeper: Masks, apply: Apply) -> Any:
    if shows != [()]:
        return MISSING
    if not deeper or value is None or isinstance(value, bool | int | float):
        return value
    masks = tuple(mask for _, mask in deeper)
    if any(mask.how is Masking.TRUNCATE for mask in masks) and isinstance(value, str):
        return MISSING  # what a cut would leave is of another text than was meant
    return apply(Masked(value, masks))


def _entry(name: str, value: Any, shows: list[Remaining], masks: Masks, apply: Apply) -> Any:
    below = shows if shows == [()] else [s[1:] for s in shows if segment_matches(s[0], name)]
    if not below:
        return MISSING
    inside = [(rest[1:], mask) for rest, mask in masks if segment_matches(rest[0], name)]
    return walk(value, below, inside, apply)


def _pair(pair: Any, shows: list[Remaining], masks: Masks, apply: Apply) -> Any:
    """A map's key and value. A key that is no text or integer may be what any mask means."""
    match pair:
        case [str() | int() as key, value] if not isinstance(key, bool):
            kept = _entry(str(key), value, shows, masks, apply)
        case [_, value] if shows == [()] and all(it.how is not Masking.TRUNCATE for _, it in masks):
            kept = walk(value, shows, [((), mask) for _, mask in masks], apply)
        case _:
            return MISSING
    return MISSING if kept is MISSING else [pair[0], kept]
