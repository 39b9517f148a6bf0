"""Routes derived from the operations of a record and of the installed slices.

Those that read are `GET /record/{noun}/{method}`, and `GET /record/{method}` for the record's own:
`/prompts/{name}` is a read of the page, and a prompt may be named as a method. Those that have an
author (`by`) write: `POST /{noun}/{method}`. An operation with a parameter or result without a JSON
form, such as a function or a path, has no route.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Annotated, Any, Union, Unpack, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from hansard.bus import slices
from hansard.operations.declare import (
    By,
    Codec,
    Method,
    Noun,
    OperationMethod,
    Part,
    TrustedMethod,
    described,
)
from hansard.operations.record import RecordOperations
from hansard.service.http.routes import BASE, Context, Parameter, Place, Route

OWN = frozenset({"record.sql", "record.otel.settle"})
"""Operations without a derived route: SQL has one of its own, the receiver calls the other."""

RECORDED_READS = frozenset({"record.roles.view"})
"""Reads whose author is recorded."""

AUTHORS = frozenset({"by", "approver"})
"""Parameters that name the author on record: an operation that has one writes."""


class NoJson(Exception):
    """A type has no JSON form."""


def derived() -> list[Route]:
    """Return the routes of all operations."""
    routes = [*_of_noun(RecordOperations)]
    for each in slices.installed():
        for noun in each.operations():
            routes += _of_noun(noun)
    return routes


def _of_noun(noun: type[Noun[Any]]) -> Iterator[Route]:
    for name, member in inspect.getmembers_static(noun):
        if isinstance(member, Part):
            yield from _of_noun(member.kind)
        elif isinstance(member, OperationMethod | TrustedMethod) and member.full_name not in OWN:
            try:
                yield _route(noun, name, member)
            except NoJson:
                continue


def _route(noun: type[Noun[Any]], name: str, member: Method[Any, Any]) -> Route:
    hints = get_type_hints(member.method, include_extras=True)
    doc, about = described(inspect.getdoc(member.method) or "")
    fields = [
        (field, kind, each)
        for each in [*inspect.signature(member.method).parameters.values()][1:]
        for field, kind in _fields(each, hints[each.name])
    ]
    effects = member.full_name not in RECORDED_READS and any(
        hints[each] in (str, By) for each in AUTHORS.intersection(hints)
    )
    parameters = tuple(
        Parameter(
            field,
            Place.FIELD if effects else Place.QUERY,
            kind,
            each.default is each.empty and each.kind is not each.VAR_KEYWORD,
            about.get(field, ""),
            None if each.default is each.empty or field in AUTHORS else _plain(each.default),
        )
        for field, kind, each in fields
    )
    json_type(hints["return"])
    path = noun._path or "record"  # noqa: SLF001 -- the attribute that names a noun
    if not effects and path != "record":
        path = f"record/{path}"
    return Route(
        method="POST" if effects else "GET",
        path=f"{BASE}/{path}/{name.lstrip('_')}",
        function=partial(_call, noun, name),
        parameters=parameters,
        result=hints["return"],
        doc=doc,
        effects=effects,
        trusted=isinstance(member, TrustedMethod),
    )


async def _call(noun: type[Noun[Any]], name: str, context: Context, /, **arguments: Any) -> Any:
    """Call a method of a noun on the record as the caller sees it."""
    record = context.record
    path = noun._path  # noqa: SLF001 -- the attribute that names a noun
    target = getattr(record, path, None) if path else record
    if not isinstance(target, noun):
        target = record.noun(noun)
    method: Callable[..., Awaitable[Any]] = getattr(target, name)
    return await method(**arguments)


def _fields(parameter: inspect.Parameter, hint: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and types of a parameter; of options, one each. Raises NoJson."""
    if get_origin(hint) is Unpack:
        for name, kind in get_type_hints(get_args(hint)[0], include_extras=True).items():
            yield name, json_type(kind)
    elif parameter.kind is not parameter.VAR_POSITIONAL:
        at = parameter.name == "at"
        yield parameter.name, str | None if at else json_type(hint)


_PLAIN = (str, int, float, bool, bytes, datetime, type(None))


def json_type(hint: Any) -> Any:
    """Return the type of the JSON of a type. Raises NoJson."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        wires = [mark.wire for mark in arguments[1:] if isinstance(mark, Codec)]
        return next(filter(_is_enum, wires), None) or json_type(arguments[0])
    if hint in (Any, object, msgspec.Raw):
        return Any
    if origin in (Union, types.UnionType):
        kinds = [json_type(each) for each in arguments]
        if str in kinds:  # which the method takes for an enumeration or a time beside it, too
            kinds = [each for each in kinds if not (_is_enum(each) or each is datetime)]
        return Union[tuple(kinds)]  # noqa: UP007 -- of a variable number
    if origin in (list, Sequence, Iterable, frozenset, set):
        return list[json_type(arguments[0])]  # type: ignore[misc]  # made at run time
    if origin is tuple:
        several = tuple(json_type(each) for each in arguments if each is not Ellipsis)
        return list[several[0]] if Ellipsis in arguments else tuple.__class_getitem__(several)  # type: ignore[valid-type]  # made at run time
    if origin in (dict, Mapping):
        return dict[str, json_type(arguments[1])]  # type: ignore[misc]  # made at run time
    if isinstance(hint, type) and (
        issubclass(hint, (*_PLAIN, Enum, msgspec.Struct)) or is_typeddict(hint)
    ):
        return hint
    raise NoJson(f"{hint!r}")


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _plain(default: Any) -> Any:
    """Return a default as JSON; None if it has none."""
    if isinstance(default, Mapping):
        return dict(default) or None
    return default if isinstance(default, str | int | float | bool) else None
