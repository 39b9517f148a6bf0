"""Which requests of a client are steps of the record, and what a step of one comes to.

A call of a tool is a step of that tool, with its arguments by their names. What else is answered
from the server's state (lists, resources, prompts, completions, the handshake) is a step that does
nothing to the world, named `mcp:` and its method. `_meta` belongs to the transport (progress
tokens, trace context, the client's version and capabilities): it is passed on, and is no part of
what a call is found again by.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from hansard.domain import ids
from hansard.domain.steps import Effects
from hansard.integrations.forwarded import ForwardedTool
from hansard.integrations.mcp.frames import NOT_CALLED, Answer, Request

CALL = "tools/call"
INITIALIZE = "initialize"
LIST_TOOLS = "tools/list"
DISCOVER = "server/discover"
READ_RESOURCE = "resources/read"

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Of a request's `_meta`, since 2026-07-28."""

ASKED = (
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
"""Requests besides calls of tools that are steps."""

BY_VERSION = (INITIALIZE, DISCOVER)
"""Of these only the protocol's version counts: who asks is another program in a replay."""

ASKED_BACK = {"elicitation/create": "resource", "sampling/createMessage": "model"}
"""What a server may ask of its client while it works, and the kinds of those steps: what a person
or a model answered is on record.
"""

PREFIX = "mcp:"
"""Before a method, or before a field of a call that is none of the tool's arguments."""

ANY_ARGUMENTS = inspect.Signature()
"""Of tools that are declared elsewhere: nothing is bound by it."""

ERROR_CHARACTERS_MAX = 7_000
"""Of a result that is an error: a longer one is recorded whole, as a result that says `isError`."""

SHOWN_CHARACTERS_MAX = 300
"""Of an error's text."""


class ToolErrorResult(Exception):
    """A server answered that its tool failed: `isError`. Its argument is the whole result."""

    def __str__(self) -> str:
        """The text that the server gives a model."""
        return _text(self.args[0])


class ErrorAnswer(Exception):
    """A server answered with an error of JSON-RPC: its argument is that error."""

    def __str__(self) -> str:
        """The code and the message."""
        told = self.args[0]
        return f"{told.get('code')}: {told.get('message')}"[:SHOWN_CHARACTERS_MAX]


class NotCalled(ErrorAnswer):
    """An error by which the server says that it did nothing: no such tool, no such arguments."""


class HttpRefused(NotCalled):
    """An error whose HTTP status says that nothing was done: the call may be made again."""


class Asked(msgspec.Struct, frozen=True):
    """A request as a step.

    Attributes:
        tool: The name of the step's tool.
        kind: `tool` or `resource`.
        arguments: By name.
    """

    tool: str
    kind: str
    arguments: dict[str, Any]


def asked(request: Request) -> Asked | None:
    """A request as a step; None for one that is none. Raises BadName for a tool's name."""
    method, params = request.method, request.params
    if method == CALL:
        given = params.get("arguments") or {}
        more = {
            f"{PREFIX}{name}": value
            for name, value in params.items()
            if name not in ("name", "arguments", "_meta")
        }
        if not isinstance(given, dict):
            given = {f"{PREFIX}arguments": given}
        return Asked(ids.name("tool", params.get("name")), "tool", given | more)
    if method not in ASKED:
        return None
    told = {name: value for name, value in params.items() if name != "_meta"}
    if method in BY_VERSION:
        told = {"protocolVersion": _version(params)}
    return Asked(f"{PREFIX}{method}", "resource", told)


def asked_back(request: Request) -> Asked | None:
    """A request of a server as a step; None for one that is none."""
    kind = ASKED_BACK.get(request.method)
    if kind is None:
        return None
    told = {name: value for name, value in request.params.items() if name != "_meta"}
    return Asked(f"{PREFIX}{request.method}", kind, told)


def _version(params: dict[str, Any]) -> Any:
    meta = params.get("_meta")
    found = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    return params.get("protocolVersion", found)


def forwarded(
    step: Asked, effects: Effects, timeout_s: float, forward: Callable[..., Any]
) -> ForwardedTool:
    """The tool of a step, which a function runs."""
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


def came(answer: Answer) -> Any:
    """Return the result of an answer. Raises ToolErrorResult, ErrorAnswer."""
    if answer.error is not None:
        if answer.is_refused:
            raise HttpRefused(answer.error)
        raise (NotCalled if answer.error.get("code") in NOT_CALLED else ErrorAnswer)(answer.error)
    told = answer.result
    is_error = isinstance(told, dict) and told.get("isError") is True
    if is_error and len(answer.raw) <= ERROR_CHARACTERS_MAX:
        raise ToolErrorResult(told)
    return told


def refusal(request: Request, why: str) -> dict[str, Any]:
    """The result of a call that was not made, as a model reads it. From 2026-07-28 on, whose
    requests say their version, a result says that it is one.
    """
    told: dict[str, Any] = {"content": [{"type": "text", "text": why}], "isError": True}
    meta = request.params.get("_meta")
    if isinstance(meta, dict) and VERSION_KEY in meta:
        told["resultType"] = "complete"
    return told


def _text(told: Any) -> str:
    content = told.get("content") if isinstance(told, dict) else None
    texts = [
        each["text"]
        for each in (content if isinstance(content, list) else [])
        if isinstance(each, dict) and isinstance(each.get("text"), str)
    ]
    return ("\n".join(texts) or "the tool said that it failed, and no more")[:SHOWN_CHARACTERS_MAX]
