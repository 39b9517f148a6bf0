"""JSON Schemas (2020-12) of exported data, generated from the types that write and read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from inspect import cleandoc
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from hansard.agents.exchange.writer import BlobLine, CommitLine, End, Header, SeenLine
from hansard.domain import integrity as _all_types  # noqa: F401 # pyright: ignore[reportUnusedImport] -- registers all
from hansard.domain.events import REGISTRY, Commit
from hansard.domain.snapshot import Snapshot

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REF = "#/$defs/{name}"


class Schema(StrEnum):
    """Kinds of data with a schema.

    Attributes:
        SNAPSHOT: An agent's state: `record.snapshots`, `hansard run show --snapshots --json`.
        EVENTS: A commit with its events: the body of a message, as it is stored.
        EXPORT: A line written by `hansard export`.
    """

    SNAPSHOT = "snapshot"
    EVENTS = "events"
    EXPORT = "export"


def schema(which: Schema) -> dict[str, Any]:
    """Return a JSON Schema; it allows unknown fields, since later versions add some."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(_MADE[which]()))
    return made


def _snapshot() -> dict[str, Any]:
    return _document("A snapshot of an agent's state", *_of([Snapshot]))


def _export() -> dict[str, Any]:
    lines = [Header, BlobLine, CommitLine, SeenLine, End]
    schemas, parts = _of(lines)
    for line in lines:
        shape = parts[line.__name__]
        shape["properties"]["digest"] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
        shape["required"].append("digest")
        shape.pop("additionalProperties", None)
    return _document("A line of exported runs", schemas, parts)


def _events() -> dict[str, Any]:
    tags = sorted(tag for tag, cls in REGISTRY.items() if cls.__module__.startswith("hansard."))
    [commit, *data], parts = _of([Commit, *(REGISTRY[tag] for tag in tags)])
    event = parts.pop("Recorded")
    for tag, shape in zip(tags, data, strict=True):
        fields = {**event["properties"], "type": {"const": tag}, "data": shape}
        parts[tag] = {**event, "title": tag, "properties": fields}
    parts["Recorded"] = {"oneOf": [{"$ref": _REF.format(name=tag)} for tag in tags]}
    return _document("A commit with its events", [commit], parts)


_MADE: dict[Schema, Callable[[], dict[str, Any]]] = {
    Schema.SNAPSHOT: _snapshot,
    Schema.EVENTS: _events,
    Schema.EXPORT: _export,
}


def _of(types: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    items = [_schema_type(each) for each in types]
    schemas, parts = msgspec.json.schema_components(items, ref_template=_REF)
    return list(schemas), parts


def _schema_type(kind: Any) -> Any:
    """Return a type that msgspec can describe: a struct without its raw JSON defaults."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    parts = get_args(kind)
    items = tuple(_schema_type(each) for each in parts)
    if all(new is old for new, old in zip(items, parts, strict=True)):
        return kind
    origin: Any = get_origin(kind)
    return Union[items] if origin in {Union, UnionType} else origin[items]  # noqa: UP007 -- made at run time


_open: set[type[msgspec.Struct]] = set()
"""Structs being described; one nested in itself is described as any object."""


def _struct(cls: type[msgspec.Struct]) -> Any:
    return dict[str, Any] if cls in _open else _rebuilt(cls)


@cache
def _rebuilt(cls: type[msgspec.Struct]) -> type[msgspec.Struct]:
    fields = msgspec.structs.fields(cls)
    _open.add(cls)
    try:
        items = [_schema_type(field.type) for field in fields]
    finally:
        _open.remove(cls)
    raw = [isinstance(field.default, msgspec.Raw) for field in fields]
    same = all(new is field.type for new, field in zip(items, fields, strict=True))
    if same and not any(raw):
        return cls
    shapes: list[Any] = []
    for field, kind, is_raw in zip(fields, items, raw, strict=True):
        default_options: dict[str, Any] = {"default": None if is_raw else field.default}
        if field.default_factory is not msgspec.NODEFAULT:
            default_options = {"default_factory": field.default_factory}
        default = msgspec.field(name=field.encode_name, **default_options)
        shapes.append((field.name, kind) if field.required else (field.name, kind, default))
    config = cls.__struct_config__
    return msgspec.defstruct(
        cls.__name__,
        shapes,
        kw_only=True,
        tag=config.tag,
        tag_field=config.tag_field,
        namespace={"__doc__": cls.__doc__},
    )


def _document(
    title: str, schemas: Sequence[dict[str, Any]], parts: dict[str, Any]
) -> dict[str, Any]:
    whole = schemas[0] if len(schemas) == 1 else {"oneOf": list(schemas)}
    for part in parts.values():
        if "description" in part:
            part["description"] = cleandoc(part["description"])
    return {"$schema": DIALECT, "title": title, **whole, "$defs": dict(sorted(parts.items()))}
