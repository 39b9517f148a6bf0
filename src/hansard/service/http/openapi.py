"""The OpenAPI 3.1 document of the routes, made of their declarations."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from hansard._version import __version__
from hansard.service.http.data import MEDIA_TYPES, SqlRows
from hansard.service.http.problems import MEDIA_TYPE, Problem
from hansard.service.http.routes import COMMON, SLICE_ROUTES, Parameter, Place, Route, at_server

if TYPE_CHECKING:
    from hansard.service.http.app import App

REFERENCE = "#/components/schemas/{name}"

_DESCRIPTION = """The record of a workspace: its runs, events, and operations.

Each answer of the operator has `Hansard-Position`, the position of the log as of which it holds;
an answer of a role has it if its tables do. Errors are problems of RFC 9457 with `fact`, `value`
and `remedy`. A write needs an `Idempotency-Key`, and is made once for it within 24 hours."""

_POSITION = {
    "description": "The position as of which the answer holds",
    "schema": {"type": "integer"},
}

_COMMON: dict[str, dict[str, Any]] = {
    "wait_for": {
        "name": "wait_for",
        "in": "query",
        "description": "Answer once the log has reached this position (operator only)",
        "schema": {"type": "integer", "minimum": 0},
    }
}

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "A new text for each write; the same text again returns the first answer",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


@at_server("GET", "/api/v1/openapi.json")
async def openapi(app: App) -> Any:
    """Return this document."""
    if app.document is None:
        app.document = document(app.table.routes)
    return app.document


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the document of routes."""
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in sorted(routes, key=lambda each: (each.path, each.method)):
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    for path in SLICE_ROUTES:
        paths[path] = {"post": _of_slice(path)}
    schemes = {
        "token": {"type": "http", "scheme": "bearer"},
        "login": {"type": "apiKey", "in": "cookie", "name": "hansard"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hansard", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": schemes},
    }


class _Schemas:
    """The JSON schemas of all types of the routes; a type that has none is any JSON."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        kinds: list[Any] = [Problem]
        for route in routes:
            kinds += [each.type for each in route.parameters]
            if not route.stream:
                kinds.append(route.result)
        known = [kind for kind in kinds if _has_schema(kind)]
        schemas, self.components = msgspec.json.schema_components(
            known, ref_template=REFERENCE, schema_hook=_hook
        )
        self._schemas = [*zip(known, schemas, strict=True)]

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type."""
        return next((dict(schema) for known, schema in self._schemas if known == kind), {})


def _hook(kind: Any) -> dict[str, Any]:
    """Return the schema of a type that is encoded as its text."""
    if kind is msgspec.Raw:
        return {}
    raise NotImplementedError


def _has_schema(kind: Any) -> bool:
    try:
        msgspec.json.schema(kind, schema_hook=_hook)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    head, _, rest = route.doc.partition("\n")
    names = [each.strip("{}") for each in route.segments if each not in ("api", "v1")]
    result: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *names]).replace(".", "_"),
        "summary": head.removesuffix("."),
        "parameters": [],
        "responses": {
            "200": {"description": "The answer", "content": _content(route, schemas)},
            "default": {
                "description": "A problem",
                "content": {MEDIA_TYPE: {"schema": schemas.of(Problem)}},
            },
        },
    }
    if rest.strip():
        result["description"] = rest.strip()
    for name in route.segments:
        if name == "{workspace}":
            result["parameters"].append(
                {"name": "workspace", "in": "path", "required": True, "schema": {"type": "string"}}
            )
    for each in route.parameters:
        if each.place in (Place.PATH, Place.QUERY):
            result["parameters"].append(_parameter(each, schemas))
    body = _body(route, schemas)
    if body is not None:
        result["requestBody"] = {"required": True, "content": {"application/json": body}}
    if route.in_workspace:
        result["parameters"] += [_COMMON[name] for name in COMMON]
        result["responses"]["200"]["headers"] = {"Hansard-Position": _POSITION}
        result["security"] = [{"token": []}, {"login": []}]
    if route.effects or route.waits:
        result["parameters"].append(_KEY)
    if route.waits:
        later = "Not yet: request the answer again under the same key"
        result["responses"]["202"] = {"description": later}
    if route.trusted:
        result["x-hansard-operator"] = True
    return result


def _parameter(each: Parameter, schemas: _Schemas) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": each.name, "in": each.place.value}
    if each.required:
        fields["required"] = True
    if each.doc:
        fields["description"] = each.doc
    schema = schemas.of(each.type)
    if each.is_json:
        return fields | {"content": {"application/json": {"schema": schema}}}
    if not each.required and each.default is not None:
        schema["default"] = each.default
    return fields | {"schema": schema}


def _body(route: Route, schemas: _Schemas) -> dict[str, Any] | None:
    """Return the schema of the body, if there is one."""
    whole = [each for each in route.parameters if each.place is Place.BODY]
    if whole:
        return {"schema": schemas.of(whole[0].type)}
    fields = [each for each in route.parameters if each.place is Place.FIELD]
    if not fields:
        return None
    properties = {
        each.name: schemas.of(each.type) | ({"description": each.doc} if each.doc else {})
        for each in fields
    }
    required = [each.name for each in fields if each.required]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"schema": schema | ({"required": required} if required else {})}


def _content(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if route.stream:
        return {route.stream: {}}
    content: dict[str, Any] = {"application/json": {"schema": schemas.of(route.result)}}
    if route.result is SqlRows:
        content |= {kind: {} for form, kind in MEDIA_TYPES.items() if form != "json"}
    return content


def _of_slice(path: str) -> dict[str, Any]:
    """Return the operation of a slice's path, whose body is the format of another program."""
    return {
        "operationId": "post_" + path.strip("/").replace("/", "_"),
        "summary": "Receive what another program sends in its own format",
        "requestBody": {"required": True, "content": {"application/json": {}}},
        "responses": {
            f"{HTTPStatus.OK.value}": {"description": "The answer"},
            "default": {
                "description": "A problem",
                "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(name="Problem")}}},
            },
        },
        "security": [{"token": []}],
    }
