"""Conversion of values: whether they can be recorded, and how records and the values of packages
(numpy, pandas, pyarrow, pydantic, httpx) are restored.

Plain values are restored without an annotation, and those of a registered type by their tag. A
record (a dataclass, Struct, named tuple, enum or pydantic model) is recorded as its fields, so the
tool's annotation determines the restored class. Long because each kind of record and each package's
type has an exact form of its own.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import functools
import importlib
import inspect
import io
import json
import operator
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec

from hansard.agents.errors import ToolError
from hansard.agents.steps.placeholders import Path, rebuilt
from hansard.domain import value_types, values
from hansard.domain.errors import BadValue, install
from hansard.domain.value_types import RECORD_TAG, Tagged, ValueType
from hansard.domain.values import Plain, Secret, fields_of_record, plain

# Values of packages that a program may use: numpy, pandas, pyarrow, pydantic, httpx.
#
# Hansard imports none of them for this: their values are restored if the program has loaded the
# package. Like any other type (`hansard.domain.value_types`), each of their types has a tag:
#
# numpy.array.v1    dtype, shape, and the bytes in the dtype's byte order
# numpy.scalar.v1   dtype and value
# pandas.frame.v1   Arrow's stream format, with columns, dtypes and index; also pandas.series.v1
# pandas.timestamp.v1  pandas.timedelta.v1  pandas.nat.v1  pandas.na.v1
# arrow.table.v1    Arrow's stream format
# httpx.request.v1  httpx.response.v1 (httpx2.): as held by errors, without parts that may hold
# keys
#
# A pydantic model is a record, like a dataclass: recorded as its fields, and restored by the tool's
# annotation, or by its own tag (`hansard.value_type`).

ARRAY_KINDS = "biufcmMSU"
"""Kinds of dtype whose values are their bytes: bool, numbers, times and texts."""

FLOAT_BYTES_MAX = {"f": 8, "c": 16}
"""Largest item of a kind, in bytes: a longer float has padding bytes on some machines."""


def _loaded(name: str) -> Any:
    return sys.modules.get(name)


# ---------------------------------------------------------------- numpy


def _dtype(text: str) -> Any:
    dtype = _loaded("numpy").dtype(text)
    _check_dtype(dtype)
    return dtype


def _check_dtype(dtype: Any) -> None:
    longest = FLOAT_BYTES_MAX.get(dtype.kind)
    if dtype.kind not in ARRAY_KINDS or (longest is not None and dtype.itemsize > longest):
        remedy = "give it as a list, or as an array of numbers, times or texts"
        raise BadValue("numpy", f"dtype {str(dtype)!r:.80} cannot be recorded", remedy)


def _encode_array(array: Any) -> dict[str, Any]:
    _check_dtype(array.dtype)
    fields = {"dtype": array.dtype.str, "shape": list(array.shape)}
    if array.dtype.kind == "U":  # as texts, which can be read and searched for secrets
        return {**fields, "items": array.ravel().tolist()}
    return {**fields, "bytes": array.tobytes()}


def _decode_array(fields: dict[str, Any]) -> Any:
    numpy, dtype = _loaded("numpy"), _dtype(fields["dtype"])
    if "items" in fields:
        return numpy.array(fields["items"], dtype=dtype).reshape(fields["shape"])
    return numpy.frombuffer(fields["bytes"], dtype=dtype).reshape(fields["shape"]).copy()


def _same_array(back: Any, array: Any) -> bool:
    return (
        back.dtype == array.dtype
        and back.dtype.str == array.dtype.str
        and back.shape == array.shape
        and bool(back.tobytes() == array.tobytes())
    )


def _encode_scalar(scalar: Any) -> dict[str, Any]:
    _check_dtype(scalar.dtype)
    match scalar.dtype.kind:
        case "m" | "M":
            value: Any = scalar.tobytes()
        case "c":
            value = [float(scalar.real), float(scalar.imag)]
        case _:
            value = scalar.item()
    return {"dtype": scalar.dtype.str, "value": value}


def _decode_scalar(fields: dict[str, Any]) -> Any:
    numpy, dtype, value = _loaded("numpy"), _dtype(fields["dtype"]), fields["value"]
    match dtype.kind:
        case "m" | "M":
            return numpy.frombuffer(value, dtype=dtype)[0]
        case "c":
            return dtype.type(complex(*value))
        case _:
            return dtype.type(value)


def _same_scalar(back: Any, scalar: Any) -> bool:
    return bool(back.dtype == scalar.dtype and back.tobytes() == scalar.tobytes())


def _numpy_types(numpy: Any) -> list[ValueType]:
    scalar = (numpy.generic, "numpy.scalar.v1", _encode_scalar, _decode_scalar, _same_scalar)
    return [
        _packed(numpy.ndarray, "numpy.array.v1", _encode_array, _decode_array, _same_array),
        ValueType(*scalar),
    ]


# ---------------------------------------------------------------- Arrow and pandas


def _arrow() -> Any:
    """Return pyarrow, by which frames and tables are recorded. Raises BadValue."""
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        fact = "a frame or table is recorded by pyarrow, which is not installed"
        raise BadValue("a value", fact, install("arrow")) from error


def _to_stream(table: Any) -> bytes:
    """Return a table in Arrow's stream format. Every value is copied, so that equal tables give
    equal bytes, whatever their chunks and the bytes under null values.
    """
    pyarrow = _arrow()
    table = table.take(pyarrow.array(range(len(table)), pyarrow.int64())).combine_chunks()
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _from_stream(stream: bytes) -> Any:
    return _arrow().ipc.open_stream(stream).read_all()


def _same_table(back: Any, table: Any) -> bool:
    return bool(back.schema.equals(table.schema, check_metadata=True)) and (
        _to_stream(back) == _to_stream(table)
    )


def _arrow_types(pyarrow: Any) -> list[ValueType]:
    return [_packed(pyarrow.Table, "arrow.table.v1", _to_stream, _from_stream, _same_table)]


_packed = functools.partial(ValueType, opaque=True)


def _encode_frame(frame: Any) -> dict[str, Any]:
    if frame.attrs:
        fact = f"a frame with attrs ({', '.join(map(str, frame.attrs))[:80]})"
        raise BadValue("pandas", fact, "clear frame.attrs: they are not recorded")
    table = _arrow().Table.from_pandas(frame, nthreads=1)
    fields = json.loads(table.schema.metadata[b"pandas"])
    for name in ("creator", "pandas_version"):  # so that equal frames give equal bytes
        fields.pop(name, None)
    metadata = {b"pandas": json.dumps(fields, sort_keys=True).encode()}
    return {
        "shape": list(frame.shape),
        "objects": [i for i, dtype in enumerate(frame.dtypes) if str(dtype) == "object"],
        "arrow": _to_stream(table.replace_schema_metadata(metadata)),
    }


def _decode_frame(fields: dict[str, Any]) -> Any:
    frame = _from_stream(fields["arrow"]).to_pandas()
    return frame.astype({frame.columns[i]: object for i in fields["objects"]})


def _alike(compare: str, back: Any, value: Any) -> bool:
    """Return whether two are equal in every value, dtype, name and label; an index's freq is not
    recorded.
    """
    try:
        getattr(_loaded("pandas").testing, compare)(
            back, value, check_exact=True, check_freq=False, check_index_type="equiv"
        )
    except AssertionError:
        return False
    return True


def _encode_series(series: Any) -> dict[str, Any]:
    return {"name": series.name, **_encode_frame(series.to_frame("values"))}


def _decode_series(fields: dict[str, Any]) -> Any:
    return _decode_frame(fields)["values"].rename(fields["name"])


def _zone(stamp: Any) -> str | None:
    return None if stamp.tz is None else str(stamp.tz)


def _encode_timestamp(stamp: Any) -> dict[str, Any]:
    count = int(stamp.to_datetime64().astype("int64"))
    return {"count": count, "unit": stamp.unit, "zone": _zone(stamp), "text": stamp.isoformat()}


def _decode_timestamp(fields: dict[str, Any]) -> Any:
    moment = _loaded("numpy").datetime64(fields["count"], fields["unit"])
    timestamp = _loaded("pandas").Timestamp(moment)
    zone = fields["zone"]
    return timestamp if zone is None else timestamp.tz_localize("UTC").tz_convert(zone)


def _same_timestamp(back: Any, stamp: Any) -> bool:
    return bool(back == stamp and back.unit == stamp.unit and _zone(back) == _zone(stamp))


def _encode_timedelta(delta: Any) -> dict[str, Any]:
    return {"count": int(delta.to_timedelta64().astype("int64")), "unit": delta.unit}


def _decode_timedelta(fields: dict[str, Any]) -> Any:
    return _loaded("pandas").Timedelta(
        _loaded("numpy").timedelta64(fields["count"], fields["unit"])
    )


def _same_timedelta(back: Any, delta: Any) -> bool:
    return bool(back == delta and back.unit == delta.unit)


def _pandas_types(pandas: Any) -> list[ValueType]:
    same_frame = functools.partial(_alike, "assert_frame_equal")
    same_series = functools.partial(_alike, "assert_series_equal")
    stamp = (pandas.Timestamp, "pandas.timestamp.v1", _encode_timestamp, _decode_timestamp)
    delta = (pandas.Timedelta, "pandas.timedelta.v1", _encode_timedelta, _decode_timedelta)
    return [
        _packed(pandas.DataFrame, "pandas.frame.v1", _encode_frame, _decode_frame, same_frame),
        _packed(pandas.Series, "pandas.series.v1", _encode_series, _decode_series, same_series),
        ValueType(*stamp, _same_timestamp, plainly=True),
        ValueType(*delta, _same_timedelta, plainly=True),
        _singleton(pandas.NaT, "pandas.nat.v1"),
        _singleton(pandas.NA, "pandas.na.v1"),
    ]


def _singleton(only: Any, tag: str) -> ValueType:
    return ValueType(
        cls=type(only),
        tag=tag,
        encode=lambda _: None,
        decode=lambda _: only,
        same=lambda back, value: back is value,
    )


# ---------------------------------------------------------------- pydantic


def is_model(cls: object) -> bool:
    """Return whether a class is a pydantic model."""
    base = getattr(_loaded("pydantic"), "BaseModel", None)
    return isinstance(base, type) and isinstance(cls, type) and issubclass(cls, base)


def model_fields(cls: Any) -> dict[str, Any]:
    """Return the annotations of a pydantic model's fields, by name."""
    return {name: field.annotation for name, field in cls.model_fields.items()}


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return a pydantic model's fields and extra values by name; None for any other value."""
    if not is_model(type(value)):
        return None
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    return {**fields, **(value.__pydantic_extra__ or {})}


def aliases(cls: Any) -> set[str]:
    """Return the aliases by which a pydantic model can be built, besides its field names."""
    names: set[str] = set()
    for field in cls.model_fields.values() if is_model(cls) else ():
        for alias in (field.alias, field.validation_alias):
            choices = getattr(alias, "choices", [alias])
            names |= {each for each in choices if isinstance(each, str)}
    return names


def model_parts(value: Any) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return a pydantic model's values other than its defaults, by name; and the names of missing
    fields (SDKs build reply models that lack a required one), of fields with values that were not
    set, and of attributes that are not fields.
    """
    cls, held = type(value), value.__dict__
    private = _private_defaults(cls)
    data: dict[str, Any] = {}
    unset: list[str] = []
    for name, field in cls.model_fields.items():
        if name not in held:
            continue
        is_set = name in value.__pydantic_fields_set__
        has_default = not field.is_required() and field.default_factory is None
        if not is_set and has_default and _is_default(held[name], field.default):
            continue
        if not is_set:
            unset.append(name)
        data[name] = held[name]
    data |= {
        name: item
        for name, item in (value.__pydantic_private__ or {}).items()
        if name not in private or not _is_default(item, private[name])
    }
    lacks = [name for name in cls.model_fields if name not in held]
    besides = value_types.attributes_besides(value, cls.model_fields)
    data |= besides
    extra = value.__pydantic_extra__ or {}
    unset += [name for name in extra if name not in value.__pydantic_fields_set__]
    lists = {"lacks": lacks, "unset": unset, "besides": list(besides)}
    return {**data, **extra}, lists


def _is_default(item: Any, default: Any) -> bool:
    return type(item) is type(default) and bool(item is default or item == default)


def _private_defaults(cls: Any) -> dict[str, Any]:
    made = {name: each.get_default() for name, each in cls.__private_attributes__.items()}
    undefined = _loaded("pydantic_core").PydanticUndefined
    return {name: each for name, each in made.items() if each is not undefined}


def _model(cls: Any, data: dict[str, Any], more: dict[str, Any]) -> Any:
    """Build a pydantic model from `model_parts`, without validation: of the class's code, only
    factories of defaults run. Raises ValueError if its fields have changed.
    """
    lacks, unset = set(more.get("lacks", ())), set(more.get("unset", ()))
    besides = set(more.get("besides", ()))
    fields, private = cls.model_fields, cls.__private_attributes__
    held = {name: data[name] for name in fields if name in data}
    missing = set()
    for name, field in fields.items():
        if name not in data and name not in lacks:
            if field.is_required():
                missing.add(name)
            else:
                held[name] = field.get_default(call_default_factory=True, validated_data=held)
    own = {*fields, *private, *besides}
    extra = {name: item for name, item in data.items() if name not in own}
    takes_extra = cls.model_config.get("extra") == "allow"
    known = set(data) if takes_extra else own
    check_fields(data, known, missing)
    state = {
        "__dict__": {**held, **{name: data[name] for name in besides}},
        "__pydantic_fields_set__": (data.keys() & {*held, *extra}) - unset,
        "__pydantic_extra__": extra if takes_extra else None,
        "__pydantic_private__": {
            **_private_defaults(cls),
            **{name: data[name] for name in private if name in data},
        }
        if private
        else None,
    }
    made = cls.__new__(cls)
    _loaded("pydantic").BaseModel.__setstate__(made, state)
    return made


def _held(model: Any) -> dict[str, Any]:
    """Return a model's fields and other attributes, except cached properties."""
    fields = type(model).model_fields
    held = {name: item for name, item in model.__dict__.items() if name in fields}
    return held | value_types.attributes_besides(model, fields)


def same_model(back: Any, value: Any, same: value_types.Same) -> bool | None:
    """Return whether two pydantic models are equal, including which fields were set."""
    if not is_model(type(value)):
        return None
    return bool(
        back.__pydantic_fields_set__ == value.__pydantic_fields_set__
        and same(_held(back), _held(value))
        and same(back.__pydantic_extra__, value.__pydantic_extra__)
        and same(back.__pydantic_private__, value.__pydantic_private__)
    )


def is_validation_error(cls: type) -> bool:
    """Return whether a class is pydantic's ValidationError."""
    return cls is getattr(_loaded("pydantic_core"), "ValidationError", None)


def validation_parts(error: BaseException) -> dict[str, Any] | None:
    """Return the parts of pydantic's ValidationError; None for any other error."""
    if not is_validation_error(type(error)):
        return None
    value: Any = error
    items = []
    for each in value.errors(include_url=False):
        context = {
            name: str(item) if isinstance(item, Exception) else item
            for name, item in each.get("ctx", {}).items()
        }
        items.append({**each, "ctx": context})
    return {"title": value.title, "errors": items}


def make_validation_error(cls: Any, parts: dict[str, Any]) -> Any:
    """Build a ValidationError from its parts."""
    return cls.from_exception_data(parts["title"], [_detail(each) for each in parts["errors"]])


def _detail(fields: dict[str, Any]) -> dict[str, Any]:
    kind, context = fields["type"], dict(fields["ctx"])
    wrapped = {"value_error": ValueError, "assertion_error": AssertionError}.get(kind)
    if wrapped is not None:
        context["error"] = wrapped(context.get("error", fields["msg"]))
    elif not _is_known(kind, context):
        text = fields["msg"].replace("{", "{{").replace("}", "}}")
        kind = _loaded("pydantic_core").PydanticCustomError(kind, text, context or None)
    detail = {"type": kind, "loc": tuple(fields["loc"]), "input": fields["input"]}
    return {**detail, "ctx": context} if context and isinstance(kind, str) else detail


def _is_known(kind: str, context: dict[str, Any]) -> bool:
    try:
        _loaded("pydantic_core").PydanticKnownError(kind, context or None)
    except (KeyError, TypeError):
        return False
    return True


# ---------------------------------------------------------------- httpx


UNRECORDED_HEADERS = frozenset({"content-encoding", "set-cookie"})
"""Response headers that are not recorded: content is stored decoded; cookies are credentials."""


def _httpx_types(httpx: Any) -> list[ValueType]:
    """Return how requests and responses held by errors are recorded. A request's headers and
    content are not recorded: they hold keys.
    """
    request = ValueType(
        cls=httpx.Request,
        tag=f"{httpx.__name__}.request.v1",
        encode=lambda request: {"method": request.method, "url": str(request.url)},
        decode=lambda record: httpx.Request(record["method"], record["url"]),
        same=lambda back, value: (back.method, back.url) == (value.method, value.url),
    )
    response = ValueType(
        cls=httpx.Response,
        tag=f"{httpx.__name__}.response.v1",
        encode=_encode_response,
        decode=lambda record: _decode_response(record, httpx),
        same=_same_response,
    )
    return [request, response]


def _encode_response(response: Any) -> dict[str, Any]:
    headers = [
        [name, item]
        for name, item in response.headers.multi_items()
        if name.lower() not in UNRECORDED_HEADERS
    ]
    content = response.content if hasattr(response, "_content") else b""
    request = getattr(response, "_request", None)
    fields = {"status": response.status_code, "headers": headers, "content": content}
    return {**fields, "request": request}


def _decode_response(fields: dict[str, Any], httpx: Any) -> Any:
    stream = httpx.ByteStream(fields["content"])
    made = httpx.Response(
        fields["status"], headers=fields["headers"], stream=stream, request=fields["request"]
    )
    made.read()
    return made


def _same_response(back: Any, value: Any) -> bool:
    one, other = _encode_response(back), _encode_response(value)
    requests = [
        (request.method, request.url) if request is not None else None
        for request in (one.pop("request"), other.pop("request"))
    ]
    return one == other and requests[0] == requests[1]


# ---------------------------------------------------------------- lookups

PACKAGES: dict[str, tuple[str, Callable[[Any], list[ValueType]]]] = {
    "numpy": ("numpy", _numpy_types),
    "pandas": ("pandas", _pandas_types),
    "arrow": ("pyarrow", _arrow_types),
    "httpx": ("httpx", _httpx_types),
    "httpx2": ("httpx2", _httpx_types),
}
"""Package of a tag, and its types, by the tag's first word."""

_TYPES = dict(PACKAGES.values())


def of_class(cls: type) -> ValueType | None:
    """Return how a class of a package is recorded; None for any other class."""
    package = cls.__module__.partition(".")[0]
    types, module = _TYPES.get(package), _loaded(package)
    for each in types(module) if types is not None and module is not None else ():
        if each.cls is cls:
            return each
        if each.tag == "numpy.scalar.v1" and issubclass(cls, each.cls):
            plainly = issubclass(cls, float | str | bytes)
            return msgspec.structs.replace(each, cls=cls, plainly=plainly)
    return None


def of_tag(tag: str) -> ValueType | None:
    """Return the type of a package's tag. Raises BadValue if the package is not loaded."""
    package, types = PACKAGES.get(tag.partition(".")[0], ("", None))
    if types is None:
        return None
    module = _loaded(package)
    if module is None:
        fact = f"it is a {tag!r:.80}, and {package} is not loaded in this process"
        raise BadValue("recorded value", fact, f"import {package} before it is replayed")
    return next((each for each in types(module) if each.tag == tag), None)


value_types.find_class.append(of_class)
value_types.find_tag.append(of_tag)
value_types.find_fields.append(fields_of)
value_types.find_same.append(same_model)


# ------------------------------ records by the names of their classes
#
# For results whose annotation does not say their type, such as the reply of a model's SDK. Classes
# are found among the loaded modules: nothing is imported, no constructor is called. A Struct with
# `__post_init__` is left out, since it cannot be made without running that.

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
    if not is_model(cls) or None in of:
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
    if is_model(cls):
        return model_parts(value)
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
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "named tuple"
    if is_model(cls):
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
    return isinstance(cls, type) and bool(_kind(cls))


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
    return _decodable(simple, forward=simple) if is_rich(simple) else None


def of_plain(annotation: Any) -> Any:
    """Return the type that a settled result of a tool without records must have, or None if
    unknown.
    """
    simple = simplified(annotation)
    return None if simple is Any or is_rich(simple) else _decodable(simple, forward=None)


def _decodable(annotation: Any, forward: Any) -> Any:
    """Return an annotation that msgspec can decode, else None; `forward` for one that names a class
    that is defined later.
    """
    try:
        msgspec.json.Decoder(annotation, dec_hook=_made)
    except (TypeError, ValueError):
        return None
    except NameError:
        return forward
    return annotation


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
    if is_model(cls):
        return model_fields(cls)
    if not typing.is_typeddict(cls) and issubclass(cls, Enum):
        return {}
    try:
        annotations = typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001 -- an annotation is an expression, which may raise anything
        return {}
    if dataclasses.is_dataclass(cls):
        names = {field.name for field in dataclasses.fields(cls)}
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
        known_aliases = aliases(type(made))
        for name, item in value.items():
            if name in fields:
                yield from _missing_fields(item, fields[name], f"{where}.{name}")
            elif name not in known_aliases:
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
        record = rebuilt(value, _masked)
        if record is value:
            raise
        return msgspec.convert(record, annotation, dec_hook=_made)


def _masked(part: Any, _: Path) -> Any:
    return f"<secret:{part.name}>" if isinstance(part, Secret) else part


def _made(cls: Any, value: Any) -> Any:
    """Build a value of a class that msgspec does not support. Raises ValidationError."""
    origin = get_origin(cls) or cls
    if isinstance(origin, type) and isinstance(value, origin):
        return value
    if is_model(cls) and isinstance(value, dict):
        hints = model_fields(cls)
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
        if _kind(cls) not in ("model", "struct", "dataclass"):
            fact = f"{cls.__qualname__} is not a dataclass, Struct or pydantic model"
            raise BadValue("value_type", fact, "give encode= and decode=")
        encode, decode = _fields, lambda data: converted(data, cls)
    if same is None and vars(object)["__eq__"] is cls.__eq__:
        fact = f"{cls.__qualname__} has no __eq__: the restored value cannot be compared"
        raise BadValue("value_type", fact, "give the class one, or same=")
    value_types.register(
        ValueType(cls=cls, tag=tag, encode=encode, decode=decode, same=same, older=older or {})
    )


def _fields(value: Any) -> dict[str, Any]:
    fields = fields_of_record(value)
    if fields is None:
        raise BadValue("value_type", f"{value!r:.80} has no fields", "give encode= and decode=")
    return fields
