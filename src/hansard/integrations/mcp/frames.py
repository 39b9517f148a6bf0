"""JSON-RPC 2.0 as MCP's transports carry it: one object a line of stdio, or a body of HTTP, UTF-8.

A frame keeps its bytes: what is passed on is what came, and only a copy is read.
"""

from __future__ import annotations

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


class BadFrame(CallerError):
    """A line that is no JSON-RPC frame.

    Attributes:
        fact: What is wrong with it.
        id: Of which request it is, where that can be read.
    """

    def __init__(self, fact: str, line: bytes, request: Id | None = None) -> None:
        shown = line[:SHOWN_CHARACTERS_MAX].decode(errors="replace")
        super().__init__(
            f"{fact}: {shown!r}; send one JSON-RPC 2.0 object, as MCP says: a line of stdio, "
            "or a body of HTTP"
        )
        self.fact = fact
        self.id = request


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


Frame = Request | Notification | Answer


def read(line: bytes) -> Frame:
    """A line as a frame. Raises BadFrame."""
    raw = line.strip()
    told = _object(raw)
    request, method, params = told.get("id"), told.get("method"), told.get("params", {})
    if isinstance(request, bool) or not isinstance(request, int | str | None):
        raise BadFrame(f"id is {request!r:.40}, neither a text nor a whole number", raw)
    if told.get("jsonrpc") != "2.0":
        raise BadFrame(f"jsonrpc is {told.get('jsonrpc')!r:.40}, not '2.0'", raw, request)
    if not isinstance(method, str | None):
        raise BadFrame(f"method is {method!r:.40}, no text", raw, request)
    if not isinstance(params, dict):
        raise BadFrame(f"params is a {type(params).__name__}, no object", raw, request)
    if method is not None:
        return (
            Notification(raw, method, params)
            if request is None
            else Request(raw, request, method, params)
        )
    failed = told.get("error")
    if ("result" in told) == isinstance(failed, dict):
        raise BadFrame("neither a request nor an answer with a result or an error", raw, request)
    return Answer(raw, request, told.get("result"), failed)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadFrame(f"no JSON ({bad})", raw) from None
    except RecursionError:
        raise BadFrame("JSON that is nested too deeply", raw) from None
    if isinstance(told, list):
        raise BadFrame("a batch, which MCP has no more since 2025-06-18", raw)
    if not isinstance(told, dict):
        raise BadFrame(f"JSON, but a {type(told).__name__} and no object", raw)
    return told


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


def _written(told: dict[str, Any]) -> bytes:
    return msgspec.json.encode(told)
