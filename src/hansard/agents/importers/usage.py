"""What a message used up, as numbers by name."""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents.importers.chat import Message
from hansard.domain.values import SAFE_INT

NAMES = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
"""What some sources call what is recorded under one name."""

NUMBERS_MAX = 200
"""Most numbers of one message: they stand in its event. What has more is kept as it is."""


class Used(msgspec.Struct, frozen=True):
    """Numbers by name, and whether they are all that the source says of usage."""

    numbers: dict[str, float]
    whole: bool


def of(message: Message) -> Used:
    """What a message used up: nested numbers under names with dots, and its cost (US dollars).

    What is null is missing.
    """
    found: dict[str, float] = {}
    whole = message.usage is None or _flatten(message.usage, "", found)
    if len(found) > NUMBERS_MAX:
        found, whole = {}, False
    if message.cost is not None:
        whole = whole and found.get("cost", message.cost) == message.cost
        found["cost"] = message.cost
    return Used(found, whole)


def _flatten(said: dict[str, Any], prefix: str, found: dict[str, float]) -> bool:
    whole = True
    for key, value in said.items():
        name = prefix + (NAMES.get(key, key) if not prefix else key)
        if isinstance(value, dict):
            whole = _flatten(value, f"{name}.", found) and whole
        elif type(value) in (int, float) and abs(value) <= SAFE_INT:
            whole = found.setdefault(name, value) == value and whole
        elif value is not None:
            whole = False
    return whole
