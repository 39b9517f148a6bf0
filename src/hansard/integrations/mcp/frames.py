"""JSON-RPC 2.0 as MCP's transports carry it: one object a line of stdio, or a body of HTTP, UTF-8.

A frame keeps its bytes: what is passed on is what came, and only a copy is read.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from hansard.domain.errors import CallerError

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of a line; a longer one is refused."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
"""Codes of JSON-RPC 2.0."""

HEADER_MISMATCH, CAPABILITY_MISSING, VERSION_NOT_SUPPORTED = -32020, -32021, -32022
"""Codes of MCP since 2026-07-28."""

NOT_CALLED = {
    PARSE_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    INVALID_PARAMS,
    HEADER_MISMATCH,
    CAPABILITY_MISSING,
    VERSION_NOT_SUPPORTED,
}
"""Errors by which a server says that it did nothing."""

SHOWN_CHARACTERS_MAX = 120
"""Of a line that an error shows."""

Id = int | str
"""What a request is answered by."""


ID_HEAD_BYTES, ID_TAIL_BYTES = 64 * 1024, 1024
"""Bytes at the start and at the end of an unreadable line in which its id is looked for."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_ID = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*[,}]')
_LAST_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*}\s*\Z')


class BadFrame(CallerError):
    """A line that is no JSON-RPC frame.

    Attributes:
        fact: What is wrong with it.
        id: The id of its request, where it can be read.
        is_answer: Whether it has an id and no method.
        code: The JSON-RPC error code.
    """

    def __init__(self, fact: str, line: bytes, code: int = INVALID_REQUEST) -> None:
        shown = line[:SHOWN_CHARACTERS_MAX].decode(errors="replace")
        super().__init__(
            f"{fact}: {shown!r}; send one JSON-RPC 2.0 object, as MCP says: a line of stdio, "
            "or a body of HTTP"
        )
        self.fact = fact
        self.code = code
        self.id, has_method = _identify(line)
        self.is_answer = self.id is not None and not has_method


class Request(msgspec.Struct, frozen=True):
    """What is to be answered. `raw` are its bytes, without the line's end."""

    raw: bytes
    id: Id
    method: str
    params: dict[str, Any] = {}


class Notification(msgspec.Struct, frozen=True):
    """What nobody answers."""

    raw: bytes
    method: str
    params: dict[str, Any] = {}

    @property
    def calls_off(self) -> Id:
        """The request that it says is not wanted any more; empty where it names none."""
        named = self.params.get("requestId")
        return named if isinstance(named, int | str) and not isinstance(named, bool) else ""


class Answer(msgspec.Struct, frozen=True):
    """What a request came to: a result, or an error. `id` is None where the request had none that
    could be read; `is_refused` where HTTP's status, too, says that nothing was done.
    """

    raw: bytes
    id: Id | None
    result: Any = None
    error: dict[str, Any] | None = None
    is_refused: bool = False

    def under(self, id_: Id) -> Answer:
        """Return the same answer under the id of another request."""
        if self.id == id_:
            return self
        raw = result(id_, self.result) if self.error is None else error(id_, self.error)
        return msgspec.structs.replace(self, raw=raw, id=id_)


Frame = Request | Notification | Answer


def read(line: bytes, *, from_server: bool = False) -> Frame:
    """Parse a line as a frame. Raises BadFrame.

    `NaN` and `Infinity`, which are not JSON, are refused in a client's line. In a server's line
    the call has been made: they stay in the parsed copy, and are `null` in `raw`.
    """
    message, raw = _parse(line.strip(), from_server=from_server)
    request, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if isinstance(request, bool) or not isinstance(request, int | str | None):
        raise BadFrame(f"id is {request!r:.40}, neither a text nor a whole number", raw)
    if message.get("jsonrpc") != "2.0":
        raise BadFrame(f"jsonrpc is {message.get('jsonrpc')!r:.40}, not '2.0'", raw)
    if not isinstance(method, str | None):
        raise BadFrame(f"method is {method!r:.40}, no text", raw)
    if not isinstance(params, dict):
        raise BadFrame(f"params is a {type(params).__name__}, no object", raw)
    if method is not None:
        return (
            Notification(raw, method, params)
            if request is None
            else Request(raw, request, method, params)
        )
    failed = message.get("error")
    if ("result" in message) == isinstance(failed, dict):
        raise BadFrame("neither a request nor an answer with a result or an error", raw)
    return Answer(raw, request, message.get("result"), failed)


def _parse(raw: bytes, *, from_server: bool) -> tuple[dict[str, Any], bytes]:
    """Parse an object; its bytes, too, which change only where they hold NaN or Infinity."""
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        message, constant = _parse_leniently(raw, str(bad))
        if constant and not from_server:
            fact = f"no JSON ({constant} is no JSON number)"
            raise BadFrame(fact, raw, PARSE_ERROR) from None
        raw = _written(message) if constant and isinstance(message, dict) else raw
    except RecursionError:
        raise BadFrame("JSON that is nested too deeply", raw, PARSE_ERROR) from None
    if isinstance(message, list):
        raise BadFrame("a batch, which MCP has no more since 2025-06-18", raw)
    if not isinstance(message, dict):
        raise BadFrame(f"JSON, but a {type(message).__name__} and no object", raw)
    return message, raw


def _parse_leniently(raw: bytes, why: str) -> tuple[Any, str]:
    """Parse what msgspec refuses but other JSON libraries write: lone surrogates, numbers beyond
    a double, NaN and Infinity; the last of these two constants that was found. Raises BadFrame.
    """
    constants = [""]

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    def number(text: str) -> float | Decimal:
        return found if isfinite(found := float(text)) else Decimal(text)

    try:
        message = json.loads(raw.decode(), parse_float=number, parse_constant=constant)
    except (ValueError, ArithmeticError):
        raise BadFrame(f"no JSON ({why})", raw, PARSE_ERROR) from None
    except RecursionError:
        raise BadFrame("JSON that is nested too deeply", raw, PARSE_ERROR) from None
    return message, constants[-1]


def _identify(line: bytes) -> tuple[Id | None, bool]:
    """Find the id in a line that may be no JSON, and whether the line names a method. Only the
    first ID_HEAD_BYTES and the last ID_TAIL_BYTES are searched.
    """
    depth, found, has_method = 0, None, False
    for token in _TOKEN.finditer(line[:ID_HEAD_BYTES]):
        text = token[0]
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and line[token.end() : token.end() + 8].lstrip()[:1] == b":":
            has_method = has_method or text == b'"method"'
            if text == b'"id"' and found is None:
                found = _ID.match(line, token.end())
    if found is None and len(line) > ID_HEAD_BYTES:
        found = _LAST_ID.search(line[-ID_TAIL_BYTES:])
    try:
        id_ = None if found is None else json.loads(found[1])
    except ValueError:
        id_ = None
    return id_, has_method


def request(id_: Id, method: str, params: dict[str, Any]) -> bytes:
    """A request's bytes."""
    return _written({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> bytes:
    """A notification's bytes."""
    return _written({"jsonrpc": "2.0", "method": method, "params": params})


def result(id_: Id | None, told: Any) -> bytes:
    """An answer's bytes."""
    return _written({"jsonrpc": "2.0", "id": id_, "result": told})


def error(id_: Id | None, told: dict[str, Any]) -> bytes:
    """The bytes of an answer that is an error."""
    return _written({"jsonrpc": "2.0", "id": id_, "error": told})


_encoder = msgspec.json.Encoder(decimal_format="number")


def _written(message: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _escaped(message)


def _escaped(value: Any) -> bytes:
    r"""JSON of a value with lone surrogates, each written as `\ud83d`."""
    if isinstance(value, str):
        return json.dumps(value).encode()
    if isinstance(value, dict):
        entries = (_escaped(key) + b":" + _escaped(each) for key, each in value.items())
        return b"{" + b",".join(entries) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_escaped, value)) + b"]"
    return _encoder.encode(value)
