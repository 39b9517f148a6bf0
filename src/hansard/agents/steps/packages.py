"""Values of packages that a program may use: numpy, pandas, pyarrow, pydantic, httpx.

Hansard imports none of them for this: their values are restored if the program has loaded the
package. Like any other type (`hansard.domain.value_types`), each of their types has a tag:

    numpy.array.v1    dtype, shape, and the bytes in the dtype's byte order
    numpy.scalar.v1   dtype and value
    pandas.frame.v1   Arrow's stream format, with columns, dtypes and index; also pandas.series.v1
    pandas.timestamp.v1  pandas.timedelta.v1  pandas.nat.v1  pandas.na.v1
    arrow.table.v1    Arrow's stream format
    httpx.request.v1  httpx.response.v1 (httpx2.): as held by errors, without parts that may hold
        keys

A pydantic model is a record, like a dataclass: recorded as its fields, and restored by the tool's
annotation, or by its own tag (`hansard.value_type`).
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from hansard.domain import value_types
from hansard.domain.errors import BadValue
from hansard.domain.value_types import ValueType

PACKAGES = {
    "numpy": "numpy",
    "pandas": "pandas",
    "arrow": "pyarrow",
    "httpx": "httpx",
    "httpx2": "httpx2",
}
"""Package of a tag, by the tag's first word."""

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


def _of_numpy(cls: type, numpy: Any) -> ValueType | None:
    if cls is numpy.ndarray:
        return ValueType(
            cls=cls,
            tag="numpy.array.v1",
            encode=_encode_array,
            decode=_decode_array,
            same=_same_array,
            opaque=True,
        )
    if issubclass(cls, numpy.generic):
        return ValueType(
            cls=cls,
            tag="numpy.scalar.v1",
            encode=_encode_scalar,
            decode=_decode_scalar,
            same=_same_scalar,
            plainly=issubclass(cls, float | str | bytes),
        )
    return None


# ---------------------------------------------------------------- Arrow and pandas


def _arrow() -> Any:
    """Return pyarrow, by which frames and tables are recorded. Raises BadValue."""
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        fact = "a frame or table is recorded by pyarrow, which is not installed"
        raise BadValue("a value", fact, "pip install 'hansard[arrow]'") from error


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


def _of_arrow(cls: type, pyarrow: Any) -> ValueType | None:
    if cls is not pyarrow.Table:
        return None
    return ValueType(
        cls=cls,
        tag="arrow.table.v1",
        encode=_to_stream,
        decode=_from_stream,
        same=_same_table,
        opaque=True,
    )


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


def _of_pandas(cls: type, pandas: Any) -> ValueType | None:
    fields: dict[str, Any]
    if cls is pandas.DataFrame:
        fields = {
            "tag": "pandas.frame.v1",
            "encode": _encode_frame,
            "decode": _decode_frame,
            "same": lambda back, value: _alike("assert_frame_equal", back, value),
            "opaque": True,
        }
    elif cls is pandas.Series:
        fields = {
            "tag": "pandas.series.v1",
            "encode": _encode_series,
            "decode": _decode_series,
            "same": lambda back, value: _alike("assert_series_equal", back, value),
            "opaque": True,
        }
    elif cls is pandas.Timestamp:
        fields = {
            "tag": "pandas.timestamp.v1",
            "encode": _encode_timestamp,
            "decode": _decode_timestamp,
            "same": _same_timestamp,
            "plainly": True,
        }
    elif cls is pandas.Timedelta:
        fields = {
            "tag": "pandas.timedelta.v1",
            "encode": _encode_timedelta,
            "decode": _decode_timedelta,
            "same": _same_timedelta,
            "plainly": True,
        }
    elif cls in (type(pandas.NaT), type(pandas.NA)):
        only = pandas.NaT if cls is type(pandas.NaT) else pandas.NA
        fields = {
            "tag": "pandas.nat.v1" if only is pandas.NaT else "pandas.na.v1",
            "encode": lambda _: None,
            "decode": lambda _: only,
            "same": lambda back, value: back is value,
        }
    else:
        return None
    return ValueType(cls=cls, **fields)


# ---------------------------------------------------------------- lookups

_OF: dict[str, Callable[[type, Any], ValueType | None]] = {
    "numpy": _of_numpy,
    "pandas": _of_pandas,
    "pyarrow": _of_arrow,
}


def of_class(cls: type) -> ValueType | None:
    """Return how a class of a package is recorded; None for any other class."""
    package = cls.__module__.partition(".")[0]
    find, module = _OF.get(package), _loaded(package)
    return find(cls, module) if find is not None and module is not None else None


def of_tag(tag: str) -> ValueType | None:
    """Return the type of a package's tag. Raises BadValue if the package is not loaded."""
    package = PACKAGES.get(tag.partition(".")[0])
    if package is None:
        return None
    module = _loaded(package)
    if module is None:
        fact = f"it is a {tag!r:.80}, and {package} is not loaded in this process"
        raise BadValue("recorded value", fact, f"import {package} before it is replayed")
    types = (_OF[package](cls, module) for cls in _classes(package, module))
    return next((made for made in types if made is not None and made.tag == tag), None)


def _classes(package: str, module: Any) -> list[type]:
    match package:
        case "numpy":
            return [module.ndarray, module.generic]
        case "pandas":
            classes = [module.DataFrame, module.Series, module.Timestamp, module.Timedelta]
            return [*classes, type(module.NaT), type(module.NA)]
        case "httpx" | "httpx2":
            return [module.Request, module.Response]
        case _:
            return [module.Table]


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


def make_model(
    cls: Any,
    data: dict[str, Any],
    more: dict[str, Any],
    check: Callable[[dict[str, Any], set[str], set[str]], None],
) -> Any:
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
    check(data, known, missing)
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


def _of_httpx(cls: type, httpx: Any) -> ValueType | None:
    """Return how requests and responses held by errors are recorded. A request's headers and
    content are not recorded: they hold keys.
    """
    if cls is httpx.Request:
        return ValueType(
            cls=cls,
            tag=f"{httpx.__name__}.request.v1",
            encode=lambda request: {"method": request.method, "url": str(request.url)},
            decode=lambda record: httpx.Request(record["method"], record["url"]),
            same=lambda back, value: (back.method, back.url) == (value.method, value.url),
        )
    if cls is httpx.Response:
        return ValueType(
            cls=cls,
            tag=f"{httpx.__name__}.response.v1",
            encode=_encode_response,
            decode=lambda record: _decode_response(record, httpx),
            same=_same_response,
        )
    return None


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


_OF.update(httpx=_of_httpx, httpx2=_of_httpx)

value_types.find_class.append(of_class)
value_types.find_tag.append(of_tag)
value_types.find_fields.append(fields_of)
value_types.find_same.append(same_model)
