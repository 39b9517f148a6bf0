"""What an import takes for granted that its source does not say, kind by kind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from hansard.agents.importers import calls
from hansard.agents.importers.chat import CHAT_JSONL, ChatRun, says_error

MATCHED = "results without an id"
NO_ZONE = "times without a zone"
UNITS = "numbers as times"
CONVENTION = "errors by convention"
UNPARSED = "arguments that are no object"
FILLED = "changes as texts filled in"
FRAMES = "frames by their place"
KEYS = "keys without an element"
NOT_DONE = "steps that no replay does"
MASKED = "values of fields called a password"

WORDS = {
    MATCHED: ("result without an id taken for the call before", "give it a tool_call_id"),
    NO_ZONE: ("time without a zone read as UTC", "give it one, such as Z or +01:00"),
    UNITS: ("number read as a time, its unit by its size", "give ISO 8601 with a zone"),
    CONVENTION: ("result read as failed by the source's convention", 'give it "error": true'),
    FILLED: (
        "change of an element whose role is not said, taken for a text filled in",
        "record it with aria selectors that name the role",
    ),
    FRAMES: ("frame taken by its place on the page", "record it in the page itself"),
    KEYS: ("key taken to go to the element of the step before", "click its element first"),
    NOT_DONE: ("step that no replay does, kept as a message", "take it out of the file"),
    MASKED: (
        "value of a field that is called a password left out, a secret by name",
        "take the value out of the file",
    ),
    UNPARSED: ("call with arguments that are no JSON object, kept as they are", "give one"),
}
"""What each kind is in words, and what to do where nothing is to be assumed."""


class Assumed(msgspec.Struct):
    """How often of one kind, and where first: a message's number from 0, None for the run."""

    count: int
    first: int | None


def of(chat: ChatRun, answers: calls.Answers) -> dict[str, Assumed]:
    """All that is assumed of a run, by kind."""
    found: dict[str, Assumed] = {}
    for kind, number in _each(chat, answers):
        told = found.setdefault(kind, Assumed(0, number))
        told.count += 1
    return found


def _each(chat: ChatRun, answers: calls.Answers) -> Iterator[tuple[str, int | None]]:
    if chat.format != CHAT_JSONL:  # whose runs begin and end with their messages
        for said in (chat.began_at, chat.ending.at if chat.ending is not None else None):
            if said is not None and (kind := _of_time(said)) is not None:
                yield kind, None
    yield from chat.assumed
    for number, (message, told) in enumerate(zip(chat.messages, chat.said, strict=True)):
        if number in answers.matched:
            yield MATCHED, number
        if message.occurred_at is not None and (kind := _of_time(message.occurred_at)) is not None:
            yield kind, number
        if message.error is True and not says_error(told):
            yield CONVENTION, number
        if message.role != calls.USER:
            for call in message.tool_calls or ():
                if _is_unparsed(call.given):
                    yield UNPARSED, number


def _of_time(said: str) -> str | None:
    try:
        return NO_ZONE if datetime.fromisoformat(said).tzinfo is None else None
    except ValueError:
        return UNITS


def _is_unparsed(given: Any) -> bool:
    return given is not msgspec.UNSET and not calls.is_object(given)
