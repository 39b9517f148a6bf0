"""Routes: a path, its function, and how a request becomes a call of it."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from http import HTTPStatus
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect, Request

from hansard.agents.access.principals import Principal
from hansard.client.record import AsyncRecord
from hansard.domain.errors import BadOption, BadValue
from hansard.operations.declare import Async, described
from hansard.operations.protocol.faults import NotOffered
from hansard.operations.record import RecordOperations
from hansard.service.http.problems import CallerRefused
from hansard.service.http.records import OpenWorkspace
from hansard.service.workspace_requests import RoleContext

MODULES: tuple[str, ...] = (
    "hansard.service.http.server",
    "hansard.service.http.openapi",
    "hansard.service.http.data",
    "hansard.service.http.site",
    "hansard.service.http.answers",
    "hansard.service.http.reads",
    "hansard.service.http.live",
    "hansard.service.http.sessions",
    "hansard.service.http.operations",
)
"""Modules of reads and writes. Add one here."""

LEFT = "the client has left"
"""Fact of the refusal of a request whose client has disconnected."""

SMALL_BODY_BYTES = 64 * 1024
"""Largest body that is read without a place."""

BASE = "/api/v1/{workspace}"
"""Prefix of the routes of a workspace."""

SLICE_ROUTES: Mapping[str, str] = {
    "/hooks/claude": "hansard.ext.frameworks.claude:handle",
    "/v1/traces": "hansard.ext.otel.receiver:traces",
    "/v1/logs": "hansard.ext.otel.receiver:logs",
}
"""Paths of the slices, which take posts of trusted programs, and their handlers.

Paths below `/workspaces/NAME` belong to that workspace, others to the one of the settings.
"""

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request.

    Attributes:
        principal: The principal with its role; None for the operator, who is trusted.
        valid: Returns False once the access ended. Streams are then cut off.
        way: Proof of the identity; `machine` for programs of this machine without any.
        workspace: The principal's workspace; empty for the operator.
        csrf: The token that changes must carry; empty if each request proves its sender.
        secret: The secret of the cookie; empty without one.
    """

    principal: Principal | None = None
    valid: Callable[[], bool] = lambda: True
    way: Literal["machine", "token", "cookie", "proxy"] = "machine"
    workspace: str = ""
    csrf: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        who = "operator" if self.principal is None else f"{self.principal!r}"
        return f"Caller({who}, {self.way}, workspace={self.workspace!r})"

    @property
    def is_operator(self) -> bool:
        """True for the operator of the service."""
        return self.principal is None

    @property
    def owner(self) -> tuple[str, str]:
        """Workspace and name of the principal; empty for the operator."""
        return self.workspace, "" if self.principal is None else self.principal.name


class Context(msgspec.Struct):
    """The context of a request.

    Attributes:
        caller: The caller.
        workspace: The open workspace. Its record is the trusted one: answer from `record`.
        record: The record as the caller sees it. For a role each operation is checked, and the
            methods of trusted programs raise NotOffered, as for a restricted agent.
        request: The request.
        role: What the caller's role sees, without checks of operations; None for the operator.
        position: The position as of which the answer holds, if the result has none itself; None
            for a role, which learns no position of the log.
    """

    caller: Caller
    workspace: OpenWorkspace
    record: RecordOperations[Async]
    request: Request
    role: RoleContext | None = None
    position: int | None = None

    @property
    def tables(self) -> Any:
        """Tables that the caller may `read`; what a role is answered is recorded as shown."""
        return self.record._context  # noqa: SLF001 -- the record's own

    def trusted(self, what: str = "this") -> AsyncRecord:
        """Return the trusted record. Raises NotOffered for a principal."""
        if not self.caller.is_operator:
            raise NotOffered(what, "have the operator of the service do it")
        return self.workspace.record


class Place(Enum):
    """The place of a parameter in a request."""

    PATH = "path"
    QUERY = "query"
    FIELD = "field"
    """A field of the JSON object that is the body."""
    BODY = "body"
    """The whole body."""


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a route.

    Attributes:
        name: The name.
        place: Its place in the request.
        type: The type that it is converted to; `Any` for any JSON.
        required: True if it has no default.
        doc: The description.
        default: The default, if it has a JSON form.
    """

    name: str
    place: Place
    type: Any
    required: bool
    doc: str = ""
    default: Any = None

    @property
    def is_list(self) -> bool:
        """True for a list of texts or numbers, which a query repeats."""
        kind = without_none(self.type)
        return get_origin(kind) in (list, tuple) and is_scalar(get_args(kind)[0])

    @property
    def is_json(self) -> bool:
        """True if it is JSON in a query, too."""
        return not self.is_list and not is_scalar(self.type)

    def convert(self, value: Any) -> Any:
        """Convert a value to the parameter's type. Raises BadValue."""
        strict = self.place in (Place.FIELD, Place.BODY)
        try:
            if self.is_json and not strict and isinstance(value, str):
                value, strict = msgspec.json.decode(value), True
            return msgspec.convert(value, self.type, strict=strict)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            remedy = str(error).replace("Expected", "give")
            raise BadValue(self.name, f"{value!r:.80}", remedy) from error


def without_none(kind: Any) -> Any:
    """Return a type without None."""
    if get_origin(kind) is Annotated:
        return without_none(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        rest = tuple(each for each in get_args(kind) if each is not type(None))
        return rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007 -- of a variable number
    return kind


def is_scalar(kind: Any) -> bool:
    """Return whether values of a type are one word in a query."""
    kind = without_none(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return all(map(is_scalar, get_args(kind)))
    if get_origin(kind) is Literal:
        return True
    scalars = (str, int, float, bool, bytes, datetime, Enum)
    return isinstance(kind, type) and issubclass(kind, scalars)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A path with parameters in braces, its method, and the function that answers.

    A path that begins with `BASE` has the context of its workspace; another gets the application.

    Attributes:
        method: The method.
        path: The path.
        function: Answers: a function of the context, with the parameters by name.
        parameters: The parameters.
        result: The type of the result.
        doc: The docstring, without parameters.
        effects: True if it changes the record: such a post needs an `Idempotency-Key`.
        trusted: True if only the operator may call it.
        stream: The media type of an answer that is sent as it is; empty for JSON.
        cancels: True if the work ends when the client leaves.
        waits: True if it passes requests on and waits, for a bounded time: its context has no
            record, and with a small body it takes no place.
    """

    method: str
    path: str
    function: Callable[..., Awaitable[Any]]
    parameters: tuple[Parameter, ...] = ()
    result: Any = Any
    doc: str = ""
    effects: bool = False
    trusted: bool = False
    stream: str = ""
    cancels: bool = False
    waits: bool = False

    @classmethod
    def of(cls, function: Callable[..., Awaitable[Any]], **fields: Any) -> Route:
        """Return the route of a function, from its signature and docstring."""
        hints = get_type_hints(function, include_extras=True, localns={"App": Any})
        doc, about = described(inspect.getdoc(function) or "")
        parameters: list[Parameter] = []
        for each in [*inspect.signature(function).parameters.values()][1:]:
            place = Place.BODY if each.name == "body" else Place.QUERY
            if f"{{{each.name}}}" in fields["path"]:
                place = Place.PATH
            required = each.default is each.empty
            default = None if required else each.default
            kind, text = hints[each.name], about.get(each.name, "")
            parameters.append(Parameter(each.name, place, kind, required, text, default))
        stream = "" if not _is_response(hints["return"]) else "application/octet-stream"
        known = {"parameters": tuple(parameters), "result": hints["return"], "doc": doc}
        return cls(**known | {"stream": stream} | fields, function=function)

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the path."""
        return tuple(self.path.strip("/").split("/"))

    @property
    def in_workspace(self) -> bool:
        """True if it belongs to a workspace."""
        return self.path.startswith(BASE)

    def arguments(self, request: Request, path: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """Return the arguments of a request. Raises BadOption, BadValue."""
        query = request.query_params
        at = f"{self.method} {self.path}"
        _refuse_unknown(at, query, [*self._names(Place.QUERY), *COMMON])
        fields: dict[str, Any] = {}
        if self._names(Place.FIELD):
            fields = decoded(body or b"{}", dict[str, Any])
            _refuse_unknown(at, fields, self._names(Place.FIELD))
        arguments: dict[str, Any] = {}
        for each in self.parameters:
            name = each.name
            if each.place is Place.PATH:
                arguments[name] = each.convert(path[name])
            elif each.place is Place.QUERY and name in query:
                arguments[name] = each.convert(query.getlist(name) if each.is_list else query[name])
            elif each.place is Place.FIELD and name in fields:
                arguments[name] = each.convert(fields[name])
            elif each.place is Place.BODY:
                arguments[name] = decoded(body, each.type)
            elif each.required:
                where = "to the body" if each.place is Place.FIELD else "to the query"
                raise BadValue(name, f"{at} needs it", f"add {name!r} {where}")
        return arguments

    def _names(self, place: Place) -> list[str]:
        return [each.name for each in self.parameters if each.place is place]


COMMON = ("wait_for",)
"""Parameters of the query of every route of a workspace."""


def _is_response(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__module__.startswith("starlette.")


def _refuse_unknown(where: str, names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise BadOption(where, name, f"it has: {', '.join(sorted(known))}")


def decoded(body: bytes, kind: Any) -> Any:
    """Decode the JSON of a body. Raises BadValue."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        remedy = "see /api/v1/openapi.json"
        raise BadValue("the body", f"it does not fit: {error}", remedy) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("the body", f"it is no JSON: {error}", "send a JSON object") from error


async def body_of(request: Request, most: int) -> bytes:
    """Return a request's body of at most so many bytes. Raises CallerRefused."""
    stated = request.headers.get("content-length", "")
    taken = bytearray()
    try:
        if not (stated.isdigit() and int(stated) > most):
            async for chunk in request.stream():
                taken += chunk
                if len(taken) > most:
                    break
            else:
                return bytes(taken)
    except ClientDisconnect:
        raise CallerRefused(HTTPStatus.BAD_REQUEST, LEFT) from None
    fact = f"a body of more than {most:,} bytes: send less at a time"
    raise CallerRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, fact)


def read(path: str, *, method: str = "GET", **options: Any) -> Callable[[F], F]:
    """Declare a function as a read at a path of a workspace, such as `/runs/{run}`.

    Options are those of `Route`: `trusted=True`, `stream="text/event-stream"`.
    """
    return at_server(method, BASE + path, **options)


def write(path: str, **options: Any) -> Callable[[F], F]:
    """Declare a function as a write, the answer to `POST` of a path of a workspace."""
    return at_server("POST", BASE + path, effects=True, **options)


def at_server(method: str, path: str, **options: Any) -> Callable[[F], F]:
    """Declare a function as the answer to a path of the server itself, such as `/healthz`."""

    def declare(function: F) -> F:
        fields = {"method": method, "path": path, **options}
        vars(function).setdefault("routes", []).append(fields)
        return function

    return declare


class RouteTable:
    """Routes by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_form: dict[tuple[int, str], list[tuple[Route, tuple[str, ...]]]] = {}
        for route in self.routes:
            form = route.segments
            self._by_form.setdefault(_form(form), []).append((route, form))
        for each in self._by_form.values():
            each.sort(key=lambda pair: [segment.startswith("{") for segment in pair[1]])

    @classmethod
    @cache
    def of_modules(cls, modules: Iterable[str] = MODULES) -> RouteTable:
        """Return the routes that modules declare, and those of their function `derived`.

        They are made once per process, which takes 40 ms.
        """
        loaded = [importlib.import_module(name) for name in modules]
        declared = [
            Route.of(function, **fields)
            for module in loaded
            for function in vars(module).values()
            if inspect.isfunction(function) and function.__module__ == module.__name__
            for fields in vars(function).get("routes", ())
        ]
        return cls(declared + [each for m in loaded for each in getattr(m, "derived", list)()])

    def at(self, path: str) -> dict[str, tuple[Route, dict[str, str]]]:
        """Return the routes of a path by method, each with the parameters in the path.

        A literal segment is preferred to a parameter.
        """
        segments = [unquote(each) for each in path.strip("/").split("/")]
        methods: dict[str, tuple[Route, dict[str, str]]] = {}
        size, name = _form(segments)
        known = (self._by_form.get((size, each), ()) for each in (name, "{"))
        for route, forms in chain.from_iterable(known):
            pairs = [*zip(forms, segments, strict=True)]
            if all(form.startswith("{") or form == text for form, text in pairs):
                parameters = {form[1:-1]: text for form, text in pairs if form.startswith("{")}
                methods.setdefault(route.method, (route, parameters))
        return methods


_NAMED = len(BASE.strip("/").split("/"))
"""Place of the segment after those of `BASE`, by which routes are looked up."""


def _form(segments: Sequence[str]) -> tuple[int, str]:
    """Return the key under which the routes of a path are listed."""
    name = segments[_NAMED] if len(segments) > _NAMED else ""
    return len(segments), "{" if name.startswith("{") else name


class RequestCounts:
    """Counts of the requests that were answered, and their seconds, by route, method and status."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str], tuple[int, float]] = {}

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request. `route` is a path with the names of parameters, not their values."""
        of = (route, method, f"{status}")
        count, sum_s = self.counts.get(of, (0, 0.0))
        self.counts[of] = (count + 1, sum_s + seconds)
