"""Arguments of a call that go beside it in headers, where the tool's input schema says so
(`x-mcp-header`, since 2026-07-28): who routes requests need not read their bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

HEADER = "x-mcp-header"
PREFIX = "mcp-param-"
TYPES = ("string", "integer", "boolean", "number")
"""Of what can be a header. The revision names the first three; its suite has the last, too."""

DEPTH_MAX = 16
"""So deep in a schema a header is looked for."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

Declared = Mapping[tuple[str, ...], str]
"""Where an argument stands, by the names that lead there; the header that says it."""


def declared(schema: object) -> Declared:
    """Which arguments of a tool go in headers. What is declared as it may not be goes in none."""
    found = list(_within(schema, ()))
    names = [header for _, header in found]
    return {path: header for path, header in found if names.count(header) == 1}


def _within(schema: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= DEPTH_MAX:
        return
    for name, each in properties.items():
        if not isinstance(each, dict):
            continue
        said = each.get(HEADER)
        if isinstance(said, str) and _TOKEN.fullmatch(said) and each.get("type") in TYPES:
            yield (*path, name), PREFIX + said.lower()
        yield from _within(each, (*path, name))


def said(headers: Declared, arguments: object) -> Iterator[tuple[str, str]]:
    """The headers of a call's arguments; none of one that is not given."""
    for path, header in headers.items():
        value: Any = arguments
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            yield header, "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield header, str(value)
