"""Messages of an agent, and the prompts among them, from the requests of its model calls.

A request repeats the conversation. Each message of it is stated once, as a message of the agent:
by role, text and calls, and by its number among equal ones in the same request.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.domain.prompt import PROMPTS, USES_MAX, filled_in, variables
from hansard.domain.steps import PromptUse
from hansard.ext.models.providers import Facts, Message

LITERAL_MIN = 20
"""Fewest literal characters of a text with variables that is recognised in a message."""

_INCIDENTAL = frozenset({"annotations", "audio", "id", "logprobs", "refusal", "status"})
"""Fields of a message that clients drop or add when they send it back."""


class Conversation:
    """The messages that were stated in a session. Thread-safe.

    A resumed run may state all of them again: the record has each once.
    """

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def new(self, facts: Facts) -> list[Message]:
        """Return the messages of a call that were not stated, and count them as stated.

        They have the form that an answer and its copy in a later request share.
        """
        fresh: list[Message] = []
        present: Counter[bytes] = Counter()
        with self._lock:
            for message in (*facts.messages_in, *facts.messages_out):
                stated = _stated(message)
                key = hashlib.sha256(msgspec.json.encode(stated, order="sorted")).digest()
                present[key] += 1
                if present[key] > self._counts[key]:
                    self._counts[key] = present[key]
                    fresh.append(stated)
        return fresh


def _stated(message: Message) -> Message:
    """Return a message without what clients drop or add when they send it back."""
    fields = {
        name: value
        for name, value in message.fields.items()
        if name not in _INCIDENTAL and value not in (None, "", [])
    }
    content = message.content
    if isinstance(content, list):
        content = [_part(each) for each in content]
    return Message(message.role, content or "", fields)


def _part(part: Any) -> Any:
    """Return a part of a content without its nulls and its marks for caches."""
    if not isinstance(part, dict):
        return part
    return {k: v for k, v in part.items() if v is not None and k not in ("cache_control", "caller")}


class PromptMatcher:
    """Versions of prompts by their texts: those that are a message of a request, word for word.

    A text with variables is recognised by all that surrounds them, if that is `LITERAL_MIN`
    characters or more. The values of the variables are not compared.
    """

    def __init__(self, versions: Iterable[tuple[str, int, str]]) -> None:
        """Index versions, each as name, number and text; of equal texts the last counts."""
        self._exact: dict[str, PromptUse] = {}
        self._around: dict[tuple[str, ...], PromptUse] = {}
        for name, number, text in versions:
            use = PromptUse(prompt=name, version=number)
            pieces = tuple(filled_in(text, dict.fromkeys(variables(text), "\0")).split("\0"))
            if len(pieces) == 1:
                self._exact[pieces[0]] = use
            elif sum(map(len, pieces)) >= LITERAL_MIN:
                self._around[pieces] = use

    def __bool__(self) -> bool:
        return bool(self._exact or self._around)

    @classmethod
    async def of(cls, workspace: Workspace) -> PromptMatcher:
        """Index all versions of all prompts of a workspace."""
        states = await workspace.repository.read_all(PROMPTS)
        return cls(
            (name, number, event.text)
            for name, state in sorted(states.items())
            for number, event in sorted(state.versions.items())
            if event.text
        )

    def uses(self, messages: Sequence[Message]) -> tuple[PromptUse, ...]:
        """Return the versions among the messages of a request, each once."""
        uses: dict[PromptUse, None] = {}
        for message in messages:
            text = message.content
            if not isinstance(text, str) or message.role == "assistant":
                continue
            if text in self._exact:
                uses[self._exact[text]] = None
                continue
            for pieces, use in self._around.items():
                if _surround(pieces, text):
                    uses[use] = None
        return tuple(uses)[:USES_MAX]


def _surround(pieces: Sequence[str], text: str) -> bool:
    """Return whether a text is these pieces in order, with any text between two of them."""
    first, *middle, last = pieces
    at, end = len(first), len(text) - len(last)
    if end < at or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
