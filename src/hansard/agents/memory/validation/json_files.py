"""JSON files with the line of each value: `tools.json` and `agent.json`, checked by their JSON
Schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from hansard.agents.memory.validation.texts import library, shorten
from hansard.domain.memory.events import Problem

DEPTH_MAX = 32
"""Most levels of nesting; these files have four."""

_TEXT = {"type": "string", "minLength": 1}
_URL = {"type": "string", "pattern": r"^https?://[^\s/]+\S*$"}

TOOLS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["tools"],
    "additionalProperties": False,
    "properties": {
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "mcp_server_url"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string", "pattern": r"^[A-Za-z0-9_.-]{1,128}$"},
                    "mcp_server_url": _URL,
                    "mcp_server_name": _TEXT,
                    "display_name": _TEXT,
                },
            },
        },
        "interrupt_config": {
            "type": "object",
            "additionalProperties": {"type": ["boolean", "object"]},
        },
    },
}

AGENT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "description": {"type": "string"},
        "model": _TEXT,
        "model_id": _TEXT,
        "runtime": {"type": "object"},
        "backend": {"type": "object"},
        "permissions": {"type": "object"},
    },
    "not": {"required": ["model", "model_id"]},
}

_ALLOWED = {
    "type": "a value of type {0}",
    "required": "all of {0}",
    "additionalProperties": "no other names",
    "pattern": "what matches {0}",
    "minLength": "at least {0} character",
    "not": "one of 'model' and 'model_id'",
}

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')

Place = tuple[str | int, ...]


class Tool(msgspec.Struct, frozen=True):
    """A tool of an MCP server that an agent may have.

    Attributes:
        name: Name on its server.
        mcp_server_url: Address of the server.
        mcp_server_name: Name of the server; empty if not set.
        display_name: Name shown to people; empty if not set.
        interrupt: True if each call needs a person's approval.
    """

    name: str
    mcp_server_url: str
    mcp_server_name: str = ""
    display_name: str = ""
    interrupt: bool = False

    @property
    def key(self) -> str:
        """Key of the tool in `interrupt_config`."""
        return interrupt_key(self.mcp_server_url, self.name, self.mcp_server_name)


def interrupt_key(url: str, name: str, server: str) -> str:
    """Return the key of a tool in `interrupt_config`."""
    return "::".join(part for part in (url, name, server) if part)


class Read(msgspec.Struct, frozen=True):
    """Value of a JSON file, and the line at which each part of it begins."""

    value: Any
    lines: Mapping[Place, int]


class _Twice(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def tools_of(text: str) -> list[Tool]:
    """Return the tools named in a valid `tools.json`."""
    value = json.loads(text)
    question = value.get("interrupt_config", {})
    tools = [msgspec.convert(tool, Tool) for tool in value["tools"]]
    return [
        msgspec.structs.replace(tool, interrupt=bool(question.get(tool.key, False)))
        for tool in tools
    ]


def tools_problems(
    path: str, text: str, offered: Mapping[str, Collection[str]] | None
) -> list[Problem]:
    """Return the problems of a `tools.json`. `offered`: the recorded tools of each server, by its
    address or name; tools of other servers are not checked.
    """
    read = _read(path, text, TOOLS_SCHEMA, "tools")
    if not isinstance(read, Read):
        return read
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for at, tool in enumerate(read.value["tools"]):
        line = read.lines["tools", at, "name"]
        url, name = tool["mcp_server_url"], tool["name"]
        key = interrupt_key(url, name, tool.get("mcp_server_name", ""))
        if key in seen:
            problems.append(
                Problem(path, line, "tools.twice", name, f"once; it is in line {seen[key]}, too")
            )
        seen.setdefault(key, line)
        has = (
            None if offered is None else offered.get(url, offered.get(tool.get("mcp_server_name")))
        )
        if has is not None and name not in has:
            some = ", ".join(sorted(has)[:10]) or "it has none"
            problems.append(
                Problem(path, line, "tools.offered", name, f"a tool that {url} has: {some}")
            )
    for key in read.value.get("interrupt_config", {}):
        if key not in seen:
            line = read.lines["interrupt_config", key]
            some = shorten(", ".join(seen)) or "there are none"
            problems.append(
                Problem(path, line, "tools.interrupt", shorten(key), f"a tool named above: {some}")
            )
    return problems


def agent_problems(path: str, text: str, *, named: bool) -> list[Problem]:
    """Return the problems of an `agent.json`; `named`: it must have a name."""
    schema = {**AGENT_SCHEMA, "required": ["name"]} if named else AGENT_SCHEMA
    read = _read(path, text, schema, "agent")
    return [] if isinstance(read, Read) else read


def _read(path: str, text: str, schema: Mapping[str, Any], kind: str) -> Read | list[Problem]:
    try:
        lines = dict(_places(text))
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except _TooDeep as error:
        return [Problem(path, error.line, "json.depth", "deeper", f"at most {DEPTH_MAX} levels")]
    except _Twice as error:
        line = _second(text, error.key)
        return [Problem(path, line, "json.duplicate-key", shorten(error.key), "each name once")]
    except json.JSONDecodeError as error:
        actual = text.split("\n")[error.lineno - 1]
        return [Problem(path, error.lineno, "json.syntax", shorten(actual), f"JSON: {error.msg}")]
    except ValueError as error:
        return [Problem(path, 1, "json.number", shorten(str(error)), "a number of JSON")]
    checker = library("jsonschema").Draft202012Validator(schema)
    found = [_problem_of(path, kind, lines, error) for error in checker.iter_errors(value)]
    return sorted(found) if found else Read(value, lines)


def _problem_of(path: str, kind: str, lines: Mapping[Place, int], error: Any) -> Problem:
    place: Place = tuple(error.absolute_path)
    rule, target, actual = error.validator, error.validator_value, json.dumps(error.instance)
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        actual = next(name for name in error.instance if name not in known)
        place = (*place, actual)
        allowed = f"one of {', '.join(known)}"
    else:
        text = " or ".join(target) if isinstance(target, list) else str(target)
        if rule == "required":
            text = ", ".join(target)
        allowed = _ALLOWED[rule].format(text)
    return Problem(path, lines.get(place, 1), f"{kind}.{rule}", shorten(actual), allowed)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for at, name in enumerate(names) if name in names[:at]))
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _second(text: str, key: str) -> int:
    """Return the position of the second occurrence of a key within its object."""
    seen: set[Place] = set()
    for place, line in _places(text):
        if place and place[-1] == key and place in seen:
            return line
        seen.add(place)
    return 1


class _TooDeep(ValueError):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def _places(text: str) -> Iterator[tuple[Place, int]]:
    """Yield the path and line of each value of a JSON text; a member's line is that of its name.

    Accepts invalid JSON too; the result is then meaningless.
    """
    path: list[str | int] = []
    kinds: list[str] = []
    expects_key = False
    line, last = 1, 0
    yield (), 1
    for token in _TOKEN.finditer(text):
        line, last = line + text.count("\n", last, token.start()), token.start()
        word = token[0]
        if word in "}]":
            if kinds:
                kinds.pop()
                path.pop()
            expects_key = False
        elif word == ",":
            expects_key = bool(kinds) and kinds[-1] == "{"
            if kinds and kinds[-1] == "[":
                path[-1] = int(path[-1]) + 1
        elif word == ":":
            expects_key = False
        elif expects_key and word.startswith('"'):
            path[-1] = _unquoted(word)
            yield tuple(path), line
        else:
            if kinds and kinds[-1] == "[":
                yield tuple(path), line
            if word in "{[":
                kinds.append(word)
                path.append(0 if word == "[" else "")
                expects_key = word == "{"
                if len(kinds) > DEPTH_MAX:
                    raise _TooDeep(line)


def _unquoted(word: str) -> str:
    try:
        return str(json.loads(word))
    except ValueError:
        return word
