"""Records by the name of their class: how a result comes back whose annotation does not say what it
is made into again, such as a model SDK's reply.

A class is found by its name among the modules that the program has loaded. Nothing is imported, no
constructor is called, and only what is a record (a dataclass, Struct, named tuple, enum or pydantic
model) is ever made: what is recorded fills its fields. A Struct with `__post_init__` is left out,
since it cannot be made without running that.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys
from collections.abc import Callable
from enum import Enum, Flag
from typing import Any

import msgspec

from hansard.agents.steps import packages
from hansard.domain import value_types
from hansard.domain.errors import BadValue
from hansard.domain.value_types import RECORD_TAG, Tagged

MISSING = msgspec.UNSET


# ---------------------------------------------------------------- classes by their names


def loaded(module: str, qualname: str) -> Any:
    """What a loaded module has under a qualified name; None where there is nothing."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def class_name(cls: type) -> str | None:
    """The name that `class_named` finds a class by; None where it does not."""
    name = _name(cls)
    return name if name is not None and class_named(name) is cls else None


def _name(cls: Any) -> str | None:
    generic = getattr(cls, "__pydantic_generic_metadata__", None) or {}
    if generic.get("origin") is None:
        return f"{cls.__module__}:{cls.__qualname__}"
    names = [_name(each) if isinstance(each, type) else None for each in generic["args"]]
    if None in names:
        return None
    return f"{_name(generic['origin'])}[{', '.join(map(str, names))}]"


def class_named(name: str) -> Any:
    """The class of a name, if it is loaded; None where none is."""
    whole, _, inner = name.partition("[")
    module, _, qualname = whole.partition(":")
    found = getattr(builtins, qualname, None) if module == "builtins" else loaded(module, qualname)
    if not isinstance(found, type):
        return None
    if not inner:
        return found
    of = [class_named(each) for each in _split(inner.removesuffix("]"))]
    if not packages.is_model(found) or None in of:
        return None
    try:
        made = found[tuple(of)]  # type: ignore[index] # a generic model
    except TypeError:
        return None
    return made if isinstance(made, type) else None


def _split(names: str) -> list[str]:
    """Names between commas that stand in no brackets."""
    found, depth = [""], 0
    for each in names:
        depth += (each == "[") - (each == "]")
        if each == "," and not depth:
            found.append("")
        else:
            found[-1] += each
    return [each.strip() for each in found]


# ---------------------------------------------------------------- to what is recorded


def record_of(value: object) -> Tagged | None:
    """A record as its fields and the name of its class; None for what is none, or cannot be found
    by its name.
    """
    cls = type(value)
    parts = _parts(value, cls)
    name = class_name(cls) if parts is not None else None
    if parts is None or name is None:
        return None
    data, lists = parts
    more = {key: names for key, names in lists.items() if names}
    return Tagged(RECORD_TAG, data, {"class": name, **more})


Parts = tuple[Any, dict[str, list[str]]]
"""Fields by name, and the names of those that are not there, not set, or no fields."""


def _parts(value: Any, cls: type) -> Parts | None:
    if isinstance(value, Enum):
        return value.value, {}
    if isinstance(value, tuple):
        names = getattr(cls, "_fields", None)
        return (dict(zip(names, value, strict=True)), {}) if names is not None else None
    if packages.is_model(cls):
        return packages.model_parts(value)
    if isinstance(value, msgspec.Struct):
        if hasattr(cls, "__post_init__"):
            return None
        return {name: getattr(value, name) for name in value.__struct_fields__}, {}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        data = {name: getattr(value, name) for name in names if hasattr(value, name)}
        besides = value_types.attributes_besides(value, names)
        lacks = [name for name in names if name not in data]
        return {**data, **besides}, {"lacks": lacks, "besides": list(besides)}
    return None


# ---------------------------------------------------------------- and back


def make(told: Tagged) -> Any:
    """The record that was recorded. Raises BadValue where its class is another one now."""
    name = told.more.get("class")
    cls = class_named(name) if isinstance(name, str) else None
    if cls is None or not _makes(cls):
        raise BadValue(
            "recorded value",
            f"it is a {name!r:.200}, a record that no loaded module has",
            "import its module before the call; where it was moved or renamed, keep its old name",
        )
    try:
        return _MAKERS[_kind(cls)](cls, told.data, told.more)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadValue("recorded value", f"{name}: {error}", CHANGED) from error


CHANGED = "restore what the class had then (a new field may have a default)"
"""What to do where a class has other fields now."""


def _makes(cls: type) -> bool:
    return _kind(cls) in _MAKERS and not (
        issubclass(cls, msgspec.Struct) and hasattr(cls, "__post_init__")
    )


def _kind(cls: type) -> str:
    if issubclass(cls, Enum):
        return "enum"
    if issubclass(cls, tuple):
        return "named tuple" if hasattr(cls, "_fields") else ""
    if packages.is_model(cls):
        return "model"
    if issubclass(cls, msgspec.Struct):
        return "struct"
    return "dataclass" if dataclasses.is_dataclass(cls) else ""


def _enum(cls: Any, data: Any, _: dict[str, Any]) -> Any:
    if issubclass(cls, Flag) and type(data) is int:
        return cls(data)
    found = [each for each in cls.__members__.values() if _equals(each.value, data)]
    if not found:
        message = f"it has no value {data!r:.80}"
        raise ValueError(message)
    return found[0]


def _equals(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _struct(cls: Any, data: dict[str, Any], _: dict[str, Any]) -> Any:
    check_fields(data, set(cls.__struct_fields__), set())
    return cls(**data)


def _named_tuple(cls: Any, data: dict[str, Any], _: dict[str, Any]) -> Any:
    given = {**cls._field_defaults, **data}
    check_fields(data, set(cls._fields), set(cls._fields) - set(given))
    return tuple.__new__(cls, [given[name] for name in cls._fields])


def _dataclass(cls: Any, data: dict[str, Any], more: dict[str, Any]) -> Any:
    besides, lacks = more.get("besides", []), more.get("lacks", [])
    fields = {field.name: field for field in dataclasses.fields(cls)}
    given = dict(data)
    for name, field in fields.items():
        if name in given or name in lacks:
            continue
        if field.default is not dataclasses.MISSING:
            given[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            given[name] = field.default_factory()
    missing = set(fields) - set(given) - set(lacks)
    check_fields(data, {*fields, *besides}, missing)
    made = object.__new__(cls)
    for name, value in given.items():
        object.__setattr__(made, name, value)
    return made


def _model(cls: Any, data: dict[str, Any], more: dict[str, Any]) -> Any:
    return packages.make_model(cls, data, more, check_fields)


def check_fields(data: dict[str, Any], known: set[str], missing: set[str]) -> None:
    """Raise ValueError for a recorded field that a class does not have, or that it has besides."""
    for name in sorted(missing):
        message = f"its field {name!r} has no default and was not recorded"
        raise ValueError(message)
    for name in data:
        if name not in known:
            message = f"it has no field {name!r}, which was recorded"
            raise ValueError(message)


_MAKERS: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "enum": _enum,
    "named tuple": _named_tuple,
    "model": _model,
    "struct": _struct,
    "dataclass": _dataclass,
}


def is_named(plain: Any) -> bool:
    """Whether a record in recorded values has the name of its class."""
    if type(plain) is dict:
        inner = plain.get(value_types.TAG)
        if type(inner) is dict and inner.get("tag") == RECORD_TAG:
            return True
        return any(is_named(each) for each in plain.values())
    return type(plain) is list and any(is_named(each) for each in plain)


value_types.find_record.append(record_of)
value_types.make_record.append(make)
