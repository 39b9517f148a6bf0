"""JSON-RPC 2.0 frames of MCP, and which requests are steps of the record.

A frame is one JSON object: a line over stdio, a body over HTTP, in UTF-8. It keeps its bytes: the
proxy passes on the bytes it received, and parses only a copy.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from hansard.agents.steps.tools import ForwardedTool
from hansard.domain import ids
from hansard.domain.errors import CallerError
from hansard.domain.steps import Effects

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""Longest line in bytes; a longer one is refused."""

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
"""Error codes by which a server reports that it did nothing."""

SHOWN_CHARACTERS_MAX = 120
"""Most characters of a line in an error."""

Id = int | str
"""Id of a request."""


ID_HEAD_BYTES, ID_TAIL_BYTES = 64 * 1024, 1024
"""Bytes at the start and at the end of an unreadable line that are searched for its id."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_ID = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*[,}]')
_LAST_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*}\s*\Z')


class BadFrame(CallerError):
    """Error: a line is not a JSON-RPC frame.

    Attributes:
        fact: The reason.
        id: The id of its request, if it can be read.
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
    """Request. `raw` are its bytes without the line's end."""

    raw: bytes
    id: Id
    method: str
    params: dict[str, Any] = {}


class Notification(msgspec.Struct, frozen=True):
    """Notification."""

    raw: bytes
    method: str
    params: dict[str, Any] = {}

    @property
    def calls_off(self) -> Id:
        """Id of the request that it cancels; empty if it names none."""
        named = self.params.get("requestId")
        return named if isinstance(named, int | str) and not isinstance(named, bool) else ""


class Answer(msgspec.Struct, frozen=True):
    """Answer to a request: a result, or an error.

    `id` is None if the request's id could not be read; `is_refused` is true if also the HTTP
    status reports that nothing was done.
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
        same = result(id_, self.result) if self.error is None else error(id_, self.error)
        return msgspec.structs.replace(same, is_refused=self.is_refused)


Frame = Request | Notification | Answer


def read(line: bytes, *, from_server: bool = False) -> Frame:
    """Parse a line as a frame. Raises BadFrame.

    `NaN` and `Infinity`, which are not JSON, are refused in a client's line. In a server's line
    the call has already been made: they stay in the parsed copy, and are `null` in `raw`.
    """
    message, raw = _parse(line.strip(), from_server=from_server)
    request, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if isinstance(request, bool) or not isinstance(request, int | str | None):
        raise BadFrame(f"id is {request!r:.40}, neither a string nor an integer", raw)
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
    """Parse an object, and return its bytes, which change only if they hold NaN or Infinity."""
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        message, constant = _parse_leniently(raw, str(bad))
        if constant and not from_server:
            fact = f"not JSON ({constant} is no JSON number)"
            raise BadFrame(fact, raw, PARSE_ERROR) from None
        raw = _written(message) if constant and isinstance(message, dict) else raw
    except RecursionError:
        raise BadFrame("JSON that is nested too deeply", raw, PARSE_ERROR) from None
    if isinstance(message, list):
        raise BadFrame("a batch, which MCP dropped in 2025-06-18", raw)
    if not isinstance(message, dict):
        raise BadFrame(f"JSON, but a {type(message).__name__} and no object", raw)
    return message, raw


def _parse_leniently(raw: bytes, why: str) -> tuple[Any, str]:
    """Parse JSON that msgspec refuses but other libraries write.

    Lone surrogates, numbers beyond a double, NaN and Infinity; also returns the last of these two
    constants found. Raises BadFrame.
    """
    constants = [""]

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    def number(text: str) -> float | Decimal:
        return value if isfinite(value := float(text)) else Decimal(text)

    try:
        message = json.loads(raw.decode(), parse_float=number, parse_constant=constant)
    except (ValueError, ArithmeticError):
        raise BadFrame(f"no JSON ({why})", raw, PARSE_ERROR) from None
    except RecursionError:
        raise BadFrame("JSON that is nested too deeply", raw, PARSE_ERROR) from None
    return message, constants[-1]


def _identify(line: bytes) -> tuple[Id | None, bool]:
    """Find the id in an invalid line, and whether the line names a method.

    Only the first ID_HEAD_BYTES and the last ID_TAIL_BYTES are searched.
    """
    depth, id_match, has_method = 0, None, False
    for token in _TOKEN.finditer(line[:ID_HEAD_BYTES]):
        text = token[0]
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and line[token.end() : token.end() + 8].lstrip()[:1] == b":":
            has_method = has_method or text == b'"method"'
            if text == b'"id"' and id_match is None:
                id_match = _ID.match(line, token.end())
    if id_match is None and len(line) > ID_HEAD_BYTES:
        id_match = _LAST_ID.search(line[-ID_TAIL_BYTES:])
    try:
        id_ = None if id_match is None else json.loads(id_match[1])
    except ValueError:
        id_ = None
    return id_, has_method


def request(id_: Id, method: str, params: dict[str, Any]) -> Request:
    """Return a request with its bytes."""
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    return Request(_written(message), id_, method, params)


def notification(method: str, params: dict[str, Any]) -> Notification:
    """Return a notification with its bytes."""
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return Notification(_written(message), method, params)


def result(id_: Id | None, content: Any) -> Answer:
    """Return an answer with its bytes."""
    return Answer(_written({"jsonrpc": "2.0", "id": id_, "result": content}), id_, content)


def error(id_: Id | None, content: dict[str, Any]) -> Answer:
    """Return an answer by an error with its bytes."""
    return Answer(_written({"jsonrpc": "2.0", "id": id_, "error": content}), id_, None, content)


def failure(id_: Id | None, code: int, message: str) -> Answer:
    """Return the answer that a request failed."""
    return error(id_, {"code": code, "message": message})


def meta_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_meta` of parameters or a result; empty if it is missing or no object."""
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


_encoder = msgspec.json.Encoder(decimal_format="number")


def _written(message: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _escaped(message)


def _escaped(value: Any) -> bytes:
    r"""Encode a value as JSON, with each lone surrogate as `\ud83d`."""
    if isinstance(value, str):
        return json.dumps(value).encode()
    if isinstance(value, dict):
        entries = (_escaped(key) + b":" + _escaped(each) for key, each in value.items())
        return b"{" + b",".join(entries) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_escaped, value)) + b"]"
    return _encoder.encode(value)


# ------------------------------------------------------------ steps
#
# A tool call is a step of that tool, with its arguments by name. Lists, resources, prompts,
# completions and the handshake are steps without effects, named `mcp:` and their method. `_meta`
# belongs to the transport: it is passed on, and is not part of a call's key.

CALL = "tools/call"
INITIALIZE = "initialize"
LIST_TOOLS = "tools/list"
DISCOVER = "server/discover"
READ_RESOURCE = "resources/read"

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Key in a request's `_meta`, since 2026-07-28."""

STEP_METHODS = (
    INITIALIZE,
    DISCOVER,
    LIST_TOOLS,
    "resources/list",
    "resources/templates/list",
    READ_RESOURCE,
    "prompts/list",
    "prompts/get",
    "completion/complete",
)
"""Requests other than tool calls that are steps."""

BY_VERSION = (INITIALIZE, DISCOVER)
"""Methods keyed only by the protocol's version: a replay has another client program."""

REVERSE_METHODS = {"elicitation/create": "resource", "sampling/createMessage": "model"}
"""Requests of a server to its client, and the kinds of their steps; the answer of a person or a
model is recorded.
"""

PREFIX = "mcp:"
"""Prefix of a method, or of a field of a call that is not an argument of the tool."""

ANY_ARGUMENTS = inspect.Signature()
"""Signature of tools declared elsewhere; it binds nothing."""

ERROR_CHARACTERS_MAX = 7_000
"""Most characters of an error result; a longer one is recorded as a result with `isError`."""

ERROR_SHOWN_MAX = 300
"""Most characters of an error's text."""


class ToolErrorResult(Exception):
    """Error: the server reported a failed tool (`isError`). Its argument is the whole result."""

    def __str__(self) -> str:
        """Return the text that the server gives a model."""
        return _text(self.args[0])


class ErrorAnswer(Exception):
    """Error: the server answered with a JSON-RPC error, the argument."""

    def __str__(self) -> str:
        """Return the code and the message."""
        content = self.args[0]
        return f"{content.get('code')}: {content.get('message')}"[:ERROR_SHOWN_MAX]


class NotCalled(ErrorAnswer):
    """Error: the server reported that it did nothing: no such tool or arguments."""


class HttpRefused(NotCalled):
    """Error: the HTTP status reports that nothing was done; the call may be repeated."""


class StepRequest(msgspec.Struct, frozen=True):
    """Request as a step.

    Attributes:
        tool: The name of the step's tool.
        kind: `tool` or `resource`.
        arguments: The arguments by name.
    """

    tool: str
    kind: str
    arguments: dict[str, Any]


def step_of(request: Request) -> StepRequest | None:
    """Return a request as a step; None if it is none. Raises BadName for a tool's name."""
    method, params = request.method, request.params
    if method == CALL:
        arguments = params.get("arguments") or {}
        more = {
            f"{PREFIX}{name}": value
            for name, value in params.items()
            if name not in ("name", "arguments", "_meta")
        }
        if not isinstance(arguments, dict):
            arguments = {f"{PREFIX}arguments": arguments}
        return StepRequest(ids.name("tool", params.get("name")), "tool", arguments | more)
    if method not in STEP_METHODS:
        return None
    content = {name: value for name, value in params.items() if name != "_meta"}
    if method in BY_VERSION:
        content = {"protocolVersion": _version(params)}
    return StepRequest(f"{PREFIX}{method}", "resource", content)


def reverse_step_of(request: Request) -> StepRequest | None:
    """Return a request of a server as a step; None if it is none."""
    kind = REVERSE_METHODS.get(request.method)
    if kind is None:
        return None
    content = {name: value for name, value in request.params.items() if name != "_meta"}
    return StepRequest(f"{PREFIX}{request.method}", kind, content)


def _version(params: dict[str, Any]) -> Any:
    return params.get("protocolVersion", meta_of(params).get(VERSION_KEY))


def forwarded(
    step: StepRequest, effects: Effects, timeout_s: float, forward: Callable[..., Any]
) -> ForwardedTool:
    """Return the tool of a step, run by a function."""
    return ForwardedTool(
        function=forward,
        name=step.tool,
        kind=step.kind,
        effects=effects,
        timeout_s=timeout_s,
        safe_errors=(NotCalled,),
        raises=(ToolErrorResult, ErrorAnswer, NotCalled, HttpRefused),
        signature=ANY_ARGUMENTS,
    )


def result_of(answer: Answer) -> Any:
    """Return the result of an answer. Raises ToolErrorResult, ErrorAnswer."""
    if answer.error is not None:
        if answer.is_refused:
            raise HttpRefused(answer.error)
        raise (NotCalled if answer.error.get("code") in NOT_CALLED else ErrorAnswer)(answer.error)
    content = answer.result
    is_error = isinstance(content, dict) and content.get("isError") is True
    if is_error and len(answer.raw) <= ERROR_CHARACTERS_MAX:
        raise ToolErrorResult(content)
    return content


def refusal(request: Request, why: str) -> dict[str, Any]:
    """Return the result of a refused call, as a model reads it.

    Since 2026-07-28, whose requests state their version, it names its result type.
    """
    content: dict[str, Any] = {"content": [{"type": "text", "text": why}], "isError": True}
    if VERSION_KEY in meta_of(request.params):
        content["resultType"] = "complete"
    return content


def _text(content: Any) -> str:
    content = content.get("content") if isinstance(content, dict) else None
    texts = [
        each["text"]
        for each in (content if isinstance(content, list) else [])
        if isinstance(each, dict) and isinstance(each.get("text"), str)
    ]
    return ("\n".join(texts) or "the tool reported a failure without a text")[:ERROR_SHOWN_MAX]
