"""A2A's messages as values of the record: their JSON, as the protocol itself writes it."""

from __future__ import annotations

from typing import Any, TypeVar

from a2a.types import Message
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as Proto

RUN, KEY = "hansard/run", "hansard/key"
"""In the metadata of a message: the run of who sent it, and the key of that call."""

P = TypeVar("P", bound=Proto)


def plain(message: Proto) -> dict[str, Any]:
    """A message as JSON has it; fields that are not set are left out."""
    found: dict[str, Any] = MessageToDict(message)
    return found


def proto(told: Any, kind: type[P]) -> P:
    """The message of a kind that JSON tells of. A field that this SDK does not know is left out."""
    message: P = kind()
    ParseDict(told, message, ignore_unknown_fields=True)
    return message


def marked(message: Message, run: str, key: str) -> None:
    """Say in a message of which call it is."""
    message.metadata.update({RUN: run, KEY: key})


def mark(message: Message, name: str) -> str:
    """What a message says of the call that it is of; empty for nothing."""
    said = plain(message).get("metadata", {}).get(name)
    return said if isinstance(said, str) else ""
