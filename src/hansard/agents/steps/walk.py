"""Values made again with some of what is in them replaced; what does not change stays the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from hansard.domain.values import fields_of_record

Path = tuple[Any, ...]
"""Keys, places and names of fields, from the outside in; of a key itself, with None at the end."""

Leaf = Callable[[Any, Path], Any]
"""Is given each value with the path to it, and gives another one, or the same: then what is in it
is looked at.
"""


def rebuilt(value: Any, leaf: Leaf, path: Path = ()) -> Any:
    """A value with what `leaf` gives for each part of it, keys of dicts that are texts included."""
    told = leaf(value, path)
    if told is not value:
        return told
    if type(value) is dict:
        made = {
            leaf(key, (*path, key, None)) if isinstance(key, str) else key: rebuilt(
                item, leaf, (*path, key)
            )
            for key, item in value.items()
        }
        same = all(
            new is old and made[new] is value[old] for new, old in zip(made, value, strict=False)
        )
        return value if same and len(made) == len(value) else made
    if type(value) in (list, tuple, set, frozenset):
        items = [rebuilt(item, leaf, (*path, place)) for place, item in enumerate(value)]
        changed = any(item is not before for item, before in zip(items, value, strict=True))
        return type(value)(items) if changed else value
    return _record(value, leaf, path)


def _record(value: Any, leaf: Leaf, path: Path) -> Any:
    """A record with its fields made again: a copy, where one changed."""
    if isinstance(value, msgspec.Struct):
        names: Iterable[str] = value.__struct_fields__
        put = msgspec.structs.force_setattr
    else:
        names, put = fields_of_record(value) or (), object.__setattr__
    made = value
    for name in names:
        before = getattr(value, name)
        after = rebuilt(before, leaf, (*path, name))
        if after is not before:
            made = copy.copy(value) if made is value else made
            put(made, name, after)
    return made
