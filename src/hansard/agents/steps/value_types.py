"""`hansard.value_type`: how values of a class of the program's own are recorded.

What is stored is the tag and plain values, never the class: nothing is imported, and no code runs,
for a tag that the program did not register.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hansard.agents.steps import conversions
from hansard.domain import value_types
from hansard.domain.errors import BadValue
from hansard.domain.value_types import ValueType
from hansard.domain.values import fields_of_record

RESERVED = ("hansard.", "numpy.", "pandas.", "arrow.", "pydantic.", "httpx.", "httpx2.")
"""What no tag of a program's may begin with."""


def value_type(
    cls: Any,
    *,
    tag: Any,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    same: Callable[[Any, Any], bool] | None = None,
    older: Mapping[str, Callable[[Any], Any]] | None = None,
) -> None:
    """Have values of just this class (not of its subclasses) recorded under a tag.

    tag: words with dots and a version, `acme.money.v1`. Take another one when what `encode` gives
    changes, and keep the old one in `older={"acme.money.v1": decode_v1}`.
    encode: gives what can be recorded: plain values, records, values of other registered types.
    decode: makes an equal value of that again. Neither is needed for a record (a dataclass, Struct
    or pydantic model): its fields are what is recorded.
    same: compares two values where `==` does not. Each value is encoded, decoded and compared
    before it is recorded.

    Register it before the tools that give or take such values are declared; calls that were given
    one before are then other calls, as after a change of `version=`. Raises BadValue.
    """
    if not isinstance(cls, type):
        raise BadValue("value_type", f"{cls!r:.80} is no class", "give the class of the values")
    if not isinstance(tag, str) or tag.startswith(RESERVED):
        remedy = f"give a text that does not begin with {', '.join(RESERVED)}"
        raise BadValue("value_type", f"tag={tag!r:.80}", remedy)
    if (encode is None) != (decode is None):
        raise BadValue("value_type", f"one of encode= and decode= of {tag!r}", "give both, or none")
    if encode is None or decode is None:
        if not conversions.is_record(cls) or not _has_fields(cls):
            fact = f"{cls.__qualname__} is no dataclass, Struct or pydantic model"
            raise BadValue("value_type", fact, "give encode= and decode=")
        encode, decode = _fields, lambda data: conversions.converted(data, cls)
    if same is None and vars(object)["__eq__"] is cls.__eq__:
        fact = f"{cls.__qualname__} has no __eq__: what comes back cannot be compared"
        raise BadValue("value_type", fact, "give the class one, or same=")
    value_types.register(
        ValueType(cls=cls, tag=tag, encode=encode, decode=decode, same=same, older=older or {})
    )


def _has_fields(cls: type) -> bool:
    return not issubclass(cls, tuple) and not hasattr(cls, "__members__")


def _fields(value: Any) -> dict[str, Any]:
    found = fields_of_record(value)
    if found is None:
        raise BadValue("value_type", f"{value!r:.80} has no fields", "give encode= and decode=")
    return found
