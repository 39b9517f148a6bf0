"""Calls in a chat: which message answers which, and what a call's arguments are."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from hansard.agents.importers.chat import TOOL, Message, ToolCall
from hansard.domain import values
from hansard.domain.errors import BadValue

CallIndex = tuple[int, int]
"""Where a call stands: the number of its message, and its own in there; both from 0."""

USER = "user"

ARGUMENTS = "arguments"
"""The one argument of a call whose arguments are no JSON object."""

_decode = msgspec.json.Decoder().decode


class Answers(msgspec.Struct):
    """`of` is the call that a message answers, `answered` are all such calls; `unasked` are the
    messages of a tool that nobody asked, `matched` those of `of` that say no id and follow their
    call, which has none either.
    """

    of: dict[int, CallIndex] = {}
    answered: set[CallIndex] = set()
    unasked: set[int] = set()
    matched: set[int] = set()


def answers(messages: list[Message]) -> Answers:
    """Each tool's message with its call: of equal ids the newest that has no answer yet.

    Equal ids in one message are answered in their order, and so are calls without an id by the
    results without one that follow them directly. The calls of a user, who has tools of his own in
    tau2-bench, are no steps; what answers them answers none.
    """
    found = Answers()
    waiting: dict[str, list[deque[CallIndex | None]]] = {}
    nameless = deque[CallIndex]()
    for number, message in enumerate(messages):
        if message.role != TOOL:
            asked = message.tool_calls if message.role != USER else None
            nameless = deque((number, n) for n, call in enumerate(asked or ()) if call.id is None)
        elif message.answers is None and nameless:
            found.of[number] = nameless.popleft()
            found.answered.add(found.of[number])
            found.matched.add(number)
            continue
        if message.tool_calls:
            fresh: dict[str, deque[CallIndex | None]] = {}
            for index, call in enumerate(message.tool_calls):
                if call.id is not None:
                    place = None if message.role == USER else (number, index)
                    fresh.setdefault(call.id, deque()).append(place)
            for call_id, places in fresh.items():
                waiting.setdefault(call_id, []).append(places)
        if message.role == TOOL:
            groups = waiting.get(message.answers or "")
            if not groups:
                found.unasked.add(number)
                continue
            answered = groups[-1].popleft()
            if not groups[-1]:
                groups.pop()
            if answered is not None:
                found.of[number] = answered
                found.answered.add(answered)
    return found


def is_object(given: Any) -> bool:
    """Whether a call's arguments are a JSON object, or a text that holds one."""
    if isinstance(given, str):
        try:
            given = _decode(given)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
    return isinstance(given, dict)


def arguments(call: ToolCall) -> dict[str, Any]:
    """A call's arguments by name, in plain values.

    A JSON object, or a text that holds one; all else is the one argument `arguments`, as it is.
    """
    given = call.given
    if given is msgspec.UNSET:
        return {}
    if isinstance(given, str):
        try:
            found = _decode(given)
            plain = values.plain(found, "arguments")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadValue):
            return {ARGUMENTS: given}
    else:
        found, plain = given, values.plain(given, "arguments")
    return plain if isinstance(found, dict) else {ARGUMENTS: plain}
