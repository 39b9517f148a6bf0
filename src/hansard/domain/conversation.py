"""A conversation: what continues over several runs. A run belongs to at most one."""

from __future__ import annotations

from hansard.domain.events import Event, event

KIND = "conversation"
"""The kind of its stream."""


@event("conversation.run_joined.v1")
class RunJoined(Event, frozen=True, kw_only=True):
    """A run is part of the conversation from here on."""

    run: str
