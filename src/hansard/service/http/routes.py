"""Routes: a path, its function, and how a request becomes a call of it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, TypeVar, get_type_hints
from urllib.parse import unquote

import msgspec
from starlette.requests import Request

from hansard.agents.access.principals import Principal
from hansard.client.record import AsyncRecord
from hansard.domain.errors import BadOption, BadValue
from hansard.operations.declare import Async
from hansard.operations.protocol.faults import NotOffered
from hansard.operations.record import RecordOperations
from hansard.service.http.records import Later, OpenWorkspace

MODULES: tuple[str, ...] = (
    "hansard.service.http.server",
    "hansard.service.http.site",
    "hansard.service.http.answers",
    "hansard.service.http.reads",
    "hansard.service.http.live",
)
"""Modules of reads and writes. Add one here."""

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
        record: The record as the caller sees it.
        request: The request.
        later: Does something after a delay, unless it is requested again before.
        position: The position as of which the answer holds, if the result has none itself.
    """

    caller: Caller
    workspace: OpenWorkspace
    record: RecordOperations[Async]
    request: Request
    later: Later
    position: int | None = None

    def trusted(self, what: str = "this") -> AsyncRecord:
        """Return the trusted record. Raises NotOffered for a principal."""
        if not self.caller.is_operator:
            raise NotOffered(what, "have the operator of the service do it")
        return self.workspace.record


class Route(msgspec.Struct, frozen=True, dict=True):
    """A path with parameters in braces, its method, and the function that answers.

    A path that begins with `BASE` has the context of its workspace; another has none.
    """

    method: str
    path: str
    function: Callable[..., Awaitable[Any]]

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The segments of the path."""
        return tuple(self.path.strip("/").split("/"))

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters of the function, without the context, with their types."""
        hints = get_type_hints(self.function, include_extras=True)
        signature = inspect.signature(self.function)
        return {
            each.name: each.replace(annotation=hints[each.name])
            for each in list(signature.parameters.values())[1:]
        }

    @property
    def in_workspace(self) -> bool:
        """True if it belongs to a workspace."""
        return self.path.startswith(BASE)

    def arguments(self, request: Request, path: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """Return the arguments of a request. Raises BadOption, BadValue."""
        query = request.query_params
        names = [name for name in self.parameters if name not in path and name != "body"]
        for name in query:
            if name not in names and name not in COMMON:
                known = ", ".join(sorted({*names, *COMMON}))
                raise BadOption(f"{self.method} {self.path}", name, f"it has: {known}")
        raw: dict[str, Any] = {name: path[name] for name in self.parameters if name in path}
        for name in names:
            if name in query:
                several = _is_list(self.parameters[name].annotation)
                raw[name] = query.getlist(name) if several else query[name]
        arguments: dict[str, Any] = {}
        for name, value in raw.items():
            try:
                arguments[name] = msgspec.convert(
                    value, self.parameters[name].annotation, strict=False
                )
            except msgspec.ValidationError as error:
                remedy = str(error).replace("Expected", "give")
                raise BadValue(name, f"{value!r:.80}", remedy) from error
        if "body" in self.parameters:
            arguments["body"] = _decoded(body, self.parameters["body"].annotation)
        for name, each in self.parameters.items():
            if each.default is each.empty and name not in arguments:
                raise BadValue(name, "it is missing", f"add ?{name}= to the address")
        return arguments


COMMON = ("wait_for",)
"""Parameters of the query of every route of a workspace."""


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", kind) in (list, tuple)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise BadValue("the body", f"it does not fit: {error}", "see the document") from error
    except msgspec.DecodeError as error:
        raise BadValue("the body", f"it is no JSON: {error}", "send an object") from error


def read(path: str) -> Callable[[F], F]:
    """Declare a function as the answer to `GET` of a path of a workspace, such as `/runs/{run}`."""
    return _declare("GET", BASE + path)


def write(path: str) -> Callable[[F], F]:
    """Declare a function as the answer to `POST` of a path of a workspace."""
    return _declare("POST", BASE + path)


def at_server(method: str, path: str) -> Callable[[F], F]:
    """Declare a function as the answer to a path of the server itself, such as `/healthz`."""
    return _declare(method, path)


def _declare(method: str, path: str) -> Callable[[F], F]:
    def declare(function: F) -> F:
        known: list[Route] = vars(function).setdefault("routes", [])
        known.append(Route(method, path, function))
        return function

    return declare


class RouteTable:
    """Routes by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_size: dict[int, list[Route]] = {}
        for route in self.routes:
            self._by_size.setdefault(len(route.segments), []).append(route)
        for each in self._by_size.values():
            each.sort(key=lambda route: [segment.startswith("{") for segment in route.segments])

    @classmethod
    def of_modules(cls, modules: Iterable[str] = MODULES) -> RouteTable:
        """Return the routes that modules declare."""
        loaded = [importlib.import_module(name) for name in modules]
        functions = (each for module in loaded for each in vars(module).values())
        return cls(
            route
            for each in functions
            if inspect.isfunction(each)
            for route in vars(each).get("routes", ())
        )

    def at(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """Return the routes of a path by method, and the parameters in the path.

        A literal segment is preferred to a parameter.
        """
        segments = [unquote(each) for each in path.strip("/").split("/")]
        methods: dict[str, Route] = {}
        parameters: dict[str, str] = {}
        for route in self._by_size.get(len(segments), ()):
            pairs = [*zip(route.segments, segments, strict=True)]
            if any(not form.startswith("{") and form != text for form, text in pairs):
                continue
            if not methods:
                parameters = {form[1:-1]: text for form, text in pairs if form.startswith("{")}
                methods[route.method] = route
            elif route.segments == next(iter(methods.values())).segments:
                methods[route.method] = route
        return methods, parameters
