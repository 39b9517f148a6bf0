"""Conversion of values by annotations: whether they can be recorded, and how records are restored.

Plain values are restored without an annotation, and those of a registered type by their tag. A
record (a dataclass, Struct, named tuple, enum or pydantic model) is recorded as its fields, so the
tool's annotation determines the restored class.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import functools
import inspect
import io
import operator
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec

from hansard.agents.errors import ToolError
from hansard.agents.steps import packages
from hansard.domain import value_types, values
from hansard.domain.errors import BadValue
from hansard.domain.value_types import RECORD_TAG, Tagged, ValueType
from hansard.domain.values import Plain, Secret, fields_of_record, plain

# ------------------------------ records by the names of their classes
#
# For results whose annotation does not say their type, such as the reply of a model's SDK. Classes
# are found among the loaded modules: nothing is imported, no constructor is called. A Struct with
# `__post_init__` is left out, since it cannot be made without running that.

MISSING = msgspec.UNSET


# ---------------------------------------------------------------- classes by their names


def loaded(module: str, qualname: str) -> Any:
    """Return the object at a qualified name of a loaded module, or None."""
    target: Any = sys.modules.get(module)
    for part in qualname.split("."):
        target = getattr(target, "__dict__", {}).get(part)
    return target


def class_name(cls: type) -> str | None:
    """Return the name by which `class_named` finds a class, or None."""
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
    """Return the class of a name if it is loaded, else None."""
    whole, _, inner = name.partition("[")
    module, _, qualname = whole.partition(":")
    cls = getattr(builtins, qualname, None) if module == "builtins" else loaded(module, qualname)
    if not isinstance(cls, type):
        return None
    if not inner:
        return cls
    of = [class_named(each) for each in _split(inner.removesuffix("]"))]
    if not packages.is_model(cls) or None in of:
        return None
    try:
        made = cls[tuple(of)]  # type: ignore[index] # a generic model
    except TypeError:
        return None
    return made if isinstance(made, type) else None


def _split(names: str) -> list[str]:
    """Split names at commas outside brackets."""
    parts, depth = [""], 0
    for each in names:
        depth += (each == "[") - (each == "]")
        if each == "," and not depth:
            parts.append("")
        else:
            parts[-1] += each
    return [each.strip() for each in parts]


# ---------------------------------------------------------------- to what is recorded


def record_of(value: object) -> Tagged | None:
    """Return a record as its fields and its class's name; None if it is not a record, or cannot be
    found by its name.
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
"""Fields by name, and the names of those that are missing, not set, or no fields."""


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


def make(tagged: Tagged) -> Any:
    """Restore a recorded record. Raises BadValue if its class has changed."""
    name = tagged.more.get("class")
    cls = class_named(name) if isinstance(name, str) else None
    if cls is None or not _makes(cls):
        raise BadValue(
            "recorded value",
            f"it is a {name!r:.200}, a record that no loaded module has",
            "import its module before the call; where it was moved or renamed, keep its old name",
        )
    try:
        return _MAKERS[_kind(cls)](cls, tagged.data, tagged.more)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadValue("recorded value", f"{name}: {error}", CHANGED) from error


CHANGED = "restore what the class had then (a new field may have a default)"
"""Remedy for a class whose fields have changed."""


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
    members = [each for each in cls.__members__.values() if _equals(each.value, data)]
    if not members:
        message = f"it has no value {data!r:.80}"
        raise ValueError(message)
    return members[0]


def _equals(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _struct(cls: Any, data: dict[str, Any], _: dict[str, Any]) -> Any:
    check_fields(data, set(cls.__struct_fields__), set())
    return cls(**data)


def _named_tuple(cls: Any, data: dict[str, Any], _: dict[str, Any]) -> Any:
    fields = {**cls._field_defaults, **data}
    check_fields(data, set(cls._fields), set(cls._fields) - set(fields))
    return tuple.__new__(cls, [fields[name] for name in cls._fields])


def _dataclass(cls: Any, data: dict[str, Any], more: dict[str, Any]) -> Any:
    besides, lacks = more.get("besides", []), more.get("lacks", [])
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values_by_name = dict(data)
    for name, field in fields.items():
        if name in values_by_name or name in lacks:
            continue
        if field.default is not dataclasses.MISSING:
            values_by_name[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values_by_name[name] = field.default_factory()
    missing = set(fields) - set(values_by_name) - set(lacks)
    check_fields(data, {*fields, *besides}, missing)
    made = object.__new__(cls)
    for name, value in values_by_name.items():
        object.__setattr__(made, name, value)
    return made


def _model(cls: Any, data: dict[str, Any], more: dict[str, Any]) -> Any:
    return packages.make_model(cls, data, more, check_fields)


def check_fields(data: dict[str, Any], known: set[str], missing: set[str]) -> None:
    """Raise ValueError for a recorded field that a class lacks, or a required field that was not
    recorded.
    """
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
    """Return whether any record in recorded values has its class's name."""
    if type(plain) is dict:
        inner = plain.get(value_types.TAG)
        if type(inner) is dict and inner.get("tag") == RECORD_TAG:
            return True
        return any(is_named(each) for each in plain.values())
    return type(plain) is list and any(is_named(each) for each in plain)


value_types.find_record.append(record_of)
value_types.make_record.append(make)


REMEDY = (
    "give plain values, or a record of them; or register the class with "
    "hansard.value_type(cls, tag=..., encode=..., decode=...) before the tool is declared"
)

_PLAIN = (
    NoneType, str, int, float, list, dict, tuple, set, frozenset, bytes, bytearray, Decimal,
    datetime, date, time, timedelta, UUID, PurePath, Enum, Secret,
)  # fmt: skip
_ITERATORS = (
    collections.abc.Iterator, collections.abc.AsyncIterator, collections.abc.AsyncIterable,
)  # fmt: skip
_SPECIAL = {
    typing.Required, typing.NotRequired, typing.Final, typing.ClassVar, typing.Annotated,
}  # fmt: skip


def is_record(cls: Any) -> bool:
    """Return whether a class is recorded as its fields, and restored from them."""
    return isinstance(cls, type) and (
        is_dataclass(cls)
        or issubclass(cls, (msgspec.Struct, Enum))
        or hasattr(cls, "_fields")
        or packages.is_model(cls)
    )


def is_rich(annotation: Any) -> bool:
    """Return whether an annotation names records that JSON values must be converted to; a
    registered type is restored by its tag.
    """
    if isinstance(annotation, type) and annotation in value_types.BY_CLASS:
        return False
    if typing.is_typeddict(annotation):
        return any(is_rich(simplified(inner)) for inner in _annotated(annotation).values())
    return is_record(annotation) or any(is_rich(inner) for inner in get_args(annotation))


def simplified(annotation: Any) -> Any:
    """Return an annotation as used for conversion: literals become their types, new types their
    base types.
    """
    while hasattr(annotation, "__supertype__"):
        annotation = annotation.__supertype__
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in _SPECIAL:
        return simplified(inner[0])
    if origin is Literal:
        kinds = {type(each) for each in inner}
        return _union(kinds) if any(issubclass(kind, Enum) for kind in kinds) else annotation
    if origin in (Union, UnionType):
        return _union(simplified(each) for each in inner)
    if not inner or origin is collections.abc.Callable:
        return annotation
    simple = tuple(simplified(each) if each is not ... else each for each in inner)
    return origin[simple] if simple != inner and origin is not None else annotation


def _union(kinds: Iterable[Any]) -> Any:
    return functools.reduce(operator.or_, kinds)


def result_of(annotation: Any) -> Any:
    """Return the result type of an annotated function; an awaitable's is that of its result."""
    if get_origin(annotation) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return get_args(annotation)[-1]
    return annotation


def item_of(annotation: Any) -> Any:
    """Return the item type of an annotated generator."""
    inner = get_args(annotation)
    return inner[0] if inner else Any


def of_returns(annotation: Any) -> Any:
    """Return the type that a tool's results are converted to; None if there is nothing to convert,
    or if the annotation does not determine the class, such as a union: then each record is recorded
    with its class's name.
    """
    simple = simplified(annotation)
    if not is_rich(simple):
        return None
    try:
        msgspec.json.Decoder(simple, dec_hook=_made)
    except (TypeError, ValueError):
        return None
    except NameError:
        return simple  # a forward reference of a record
    return simple


def of_plain(annotation: Any) -> Any:
    """Return the type that a settled result of a tool without records must have, or None if
    unknown.
    """
    simple = simplified(annotation)
    if simple is Any or is_rich(simple):
        return None
    try:
        msgspec.json.Decoder(simple, dec_hook=_made)
    except (TypeError, ValueError, NameError):
        return None
    return simple


def check_settled(value: Any, annotation: Any) -> None:
    """Raise BadValue for a settled result that does not match its tool's annotation."""
    try:
        msgspec.convert(value, annotation, dec_hook=_instance)
    except TypeError:  # a class that isinstance() rejects
        return
    except msgspec.ValidationError as error:
        fact, _, path = str(error).partition(" - at `$")
        raise BadValue(f"result{path.rstrip('`')}", fact, "give another") from error


def _instance(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    message = f"Expected `{kind.__name__}`, got `{type(value).__name__}`"
    raise msgspec.ValidationError(message)


def check(tool: str, where: str, annotation: Any) -> None:
    """Raise ToolError for an annotation whose values can never be recorded."""
    why = _cannot(annotation, result=where == "result", seen=())
    if why:
        message = f"{tool}({where}): {_shown(annotation)} can never be recorded: {why}; {REMEDY}"
        raise ToolError(message)


def check_parameters(tool: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> None:
    """Raise ToolError for a parameter whose values can never be recorded; one with a recordable
    default may be left out by callers.
    """
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is not parameter.empty and _is_recordable(parameter.default):
            continue
        if name in hints:
            check(tool, name, hints[name])


def _is_recordable(value: object) -> bool:
    try:
        plain(value)
    except BadValue:
        return False
    return True


def _shown(annotation: Any) -> str:
    name = getattr(annotation, "__name__", None) if not get_args(annotation) else None
    return f"{name or annotation!s:.200}"


def _cannot(annotation: Any, *, result: bool, seen: tuple[Any, ...]) -> str:
    """Return the reason that no value of an annotation can be recorded; empty if one can, or if
    unknown.
    """
    if hasattr(annotation, "__supertype__"):
        return _cannot(annotation.__supertype__, result=result, seen=seen)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in _SPECIAL:
        return _cannot(inner[0], result=result, seen=seen)
    if origin in (Union, UnionType):
        whys = [_cannot(each, result=result, seen=seen) for each in inner]
        return "; ".join(dict.fromkeys(whys)) if all(whys) else ""
    if origin is not None:
        return _cannot_generic(origin, inner, result=result, seen=seen)
    if not isinstance(annotation, type) or annotation in (Any, object) or annotation in seen:
        return ""
    return _cannot_class(annotation, result=result, seen=(*seen, annotation))


def _cannot_generic(
    origin: Any, inner: tuple[Any, ...], *, result: bool, seen: tuple[Any, ...]
) -> str:
    if origin in (collections.abc.Callable, type) or origin is Literal:
        return "" if origin is Literal else f"a {origin.__name__.lower()} is code"
    if not isinstance(origin, type):
        return ""
    why = _cannot_class(origin, result=result, seen=seen)
    whys = (_cannot(each, result=result, seen=seen) for each in inner)
    return why or next(filter(None, whys), "")


def _cannot_class(cls: type, *, result: bool, seen: tuple[Any, ...]) -> str:
    if cls.__name__ == "Callable":
        return "a callable is code"
    if value_types.of_class(cls) is not None:
        return ""
    if issubclass(cls, (io.IOBase, typing.IO)):
        return "an open file is no value: give its path or what it holds"
    if issubclass(cls, _ITERATORS) and not is_record(cls):
        return "an iterator is used up by being read: make the tool a generator function (yield)"
    if not typing.is_typeddict(cls) and _is_open(cls):
        return ""
    if is_record(cls) or typing.is_typeddict(cls):
        fields = _annotated(cls)
        whys = ((name, _cannot(each, result=result, seen=seen)) for name, each in fields.items())
        return next((f"its field {name!r}: {why}" for name, why in whys if why), "")
    if cls in _PLAIN or issubclass(cls, _PLAIN if not result else PurePath | Enum | bool):
        return ""
    return f"{cls.__module__}.{cls.__qualname__} is not a recordable type"


def _is_open(cls: type) -> bool:
    """Return whether some value of a class is, or may be, of a recordable type."""
    if cls.__module__.partition(".")[0] == "numpy":  # np.floating: of some of its subclasses
        return True
    if getattr(cls, "_is_protocol", False) or inspect.isabstract(cls):
        return True
    return any(issubclass(each, cls) for each in value_types.BY_CLASS)


def _annotated(cls: Any) -> dict[str, Any]:
    """Return the annotations of a record's fields, as far as they can be determined."""
    if packages.is_model(cls):
        return packages.model_fields(cls)
    if not typing.is_typeddict(cls) and issubclass(cls, Enum):
        return {}
    try:
        annotations = typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001 -- an annotation is an expression, which may raise anything
        return {}
    if is_dataclass(cls):
        names = {field.name for field in dataclass_fields(cls)}
        return {name: each for name, each in annotations.items() if name in names}
    return annotations


# ---------------------------------------------------------------- records from their fields


def from_plain(plain: Plain, annotation: Any) -> Any:
    """Restore a recorded value as its annotation requires. Raises BadValue if its classes have
    changed: a field is missing, removed or of another type.
    """
    value = values.revive(plain)
    if annotation is None or is_named(plain):
        return value
    try:
        made = converted(value, annotation)
    except msgspec.ValidationError as error:
        fact, _, path = str(error).partition(" - at `$")
        raise BadValue(f"result{path.rstrip('`')}", fact, CHANGED) from error
    except (TypeError, AttributeError) as error:  # raised by the classes' own code
        fact = f"restoring it raised {type(error).__name__}: {error}"
        raise BadValue("result", fact[:500], CHANGED) from error
    for where, name in _missing_fields(value, made, "result"):
        fact = f"its class has no field {name!r}, which was recorded"
        raise BadValue(where, fact, CHANGED)
    return made


def _missing_fields(value: Any, made: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield recorded fields that the restored record lacks, with the record's place."""
    if type(value) is dict:
        fields = made if isinstance(made, dict) else fields_of_record(made)
        if fields is None:
            return
        aliases = packages.aliases(type(made))
        for name, item in value.items():
            if name in fields:
                yield from _missing_fields(item, fields[name], f"{where}.{name}")
            elif name not in aliases:
                yield where, name
    elif type(value) in (list, tuple) and isinstance(made, list | tuple):
        for index, (item, each) in enumerate(zip(value, made, strict=False)):
            yield from _missing_fields(item, each, f"{where}[{index}]")


def converted(value: Any, annotation: Any) -> Any:
    """Convert a value as its annotation requires; None leaves it unchanged. Raises
    msgspec.ValidationError.

    A redacted secret in a text field becomes its `<secret:name>`.
    """
    if annotation is None:
        return value
    try:
        return msgspec.convert(value, annotation, dec_hook=_made)
    except msgspec.ValidationError:
        record = _with_masks(value)
        if record is value:
            raise
        return msgspec.convert(record, annotation, dec_hook=_made)


def _with_masks(value: Any) -> Any:
    """Return a value with each secret in it as a text; the same object if there is none."""
    if isinstance(value, Secret):
        return f"<secret:{value.name}>"
    if type(value) is dict:
        fields = {key: _with_masks(item) for key, item in value.items()}
        return fields if any(fields[key] is not value[key] for key in value) else value
    if type(value) in (list, tuple):
        items = [_with_masks(item) for item in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value)) else value  # noqa: B905 -- of one length
    return value


def _made(cls: Any, value: Any) -> Any:
    """Build a value of a class that msgspec does not support. Raises ValidationError."""
    origin = get_origin(cls) or cls
    if isinstance(origin, type) and isinstance(value, origin):
        return value
    if packages.is_model(cls) and isinstance(value, dict):
        hints = packages.model_fields(cls)
        fields = {}
        for name, item in value.items():
            try:
                fields[name] = converted(item, simplified(hints[name]) if name in hints else None)
            except msgspec.ValidationError as error:
                message = f"its field {name!r}: {error}"
                raise msgspec.ValidationError(message) from error
        made = cls.model_construct(**fields)
        for name in hints:
            if name not in made.__dict__:
                message = f"its field {name!r} has no default and was not recorded"
                raise msgspec.ValidationError(message)
        return made
    message = f"a {type(value).__name__} is not a {_shown(cls)}"
    raise msgspec.ValidationError(message)


# ---------------------------------------------------------------- `hansard.value_type`
#
# What is stored is the tag and plain values, never the class: nothing is imported, and no code
# runs, for a tag that the program did not register.

RESERVED = ("hansard.", "numpy.", "pandas.", "arrow.", "pydantic.", "httpx.", "httpx2.")
"""Reserved prefixes of tags, which a program may not use."""


def value_type(
    cls: Any,
    *,
    tag: Any,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    same: Callable[[Any, Any], bool] | None = None,
    older: Mapping[str, Callable[[Any], Any]] | None = None,
) -> None:
    """Record values of exactly this class (not of its subclasses) under a tag.

    tag: Words with dots and a version, `acme.money.v1`. Change it when the output of `encode`
    changes, and keep the old one in `older={"acme.money.v1": decode_v1}`.

    encode: Returns what can be recorded: plain values, records, values of other registered types.

    decode: Restores an equal value from that. Neither is needed for a record (a dataclass, Struct
    or pydantic model), whose fields are recorded.

    same: Compares two values if `==` does not. Each value is encoded, decoded and compared before
    it is recorded.

    Register the class before declaring tools that take or return such values. Calls recorded with
    such an argument before count as other calls, as after a change of `version=`. Raises BadValue.
    """
    if not isinstance(cls, type):
        raise BadValue("value_type", f"{cls!r:.80} is not a class", "give the class of the values")
    if not isinstance(tag, str) or tag.startswith(RESERVED):
        remedy = f"give a text that does not begin with {', '.join(RESERVED)}"
        raise BadValue("value_type", f"tag={tag!r:.80}", remedy)
    if (encode is None) != (decode is None):
        raise BadValue("value_type", f"one of encode= and decode= of {tag!r}", "give both, or none")
    if encode is None or decode is None:
        if not is_record(cls) or not _has_fields(cls):
            fact = f"{cls.__qualname__} is not a dataclass, Struct or pydantic model"
            raise BadValue("value_type", fact, "give encode= and decode=")
        encode, decode = _fields, lambda data: converted(data, cls)
    if same is None and vars(object)["__eq__"] is cls.__eq__:
        fact = f"{cls.__qualname__} has no __eq__: the restored value cannot be compared"
        raise BadValue("value_type", fact, "give the class one, or same=")
    value_types.register(
        ValueType(cls=cls, tag=tag, encode=encode, decode=decode, same=same, older=older or {})
    )


def _has_fields(cls: type) -> bool:
    return not issubclass(cls, tuple) and not hasattr(cls, "__members__")


def _fields(value: Any) -> dict[str, Any]:
    fields = fields_of_record(value)
    if fields is None:
        raise BadValue("value_type", f"{value!r:.80} has no fields", "give encode= and decode=")
    return fields
