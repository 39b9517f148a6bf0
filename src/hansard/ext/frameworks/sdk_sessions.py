"""Events of sessions of the OpenAI Agents SDK and the Claude Agent SDK, and their slices.

Their operations are named and not imported, so that SQL starts without them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hansard.bus.slices import Slice
from hansard.domain.events import Event, event

AGENTS_KIND = "agents_session"
"""Kind of stream of the OpenAI Agents SDK, by the session's id."""

ALL = 0
"""As a count of removed items: all of them."""


@event("agents_session.added.v1")
class ItemsAdded(Event, frozen=True, kw_only=True):
    """Items were added to a session."""

    key: str
    items: msgspec.Raw
    count: int


@event("agents_session.removed.v1")
class ItemsRemoved(Event, frozen=True, kw_only=True):
    """The newest items were taken from a session; all, if the count is 0."""

    key: str
    count: int = ALL


AGENTS = Slice(
    name="agents-sessions",
    streams={AGENTS_KIND: (ItemsAdded, ItemsRemoved)},
    nouns=("hansard.ext.frameworks.agents_sessions:AgentsSessions",),
    schema=Path(__file__).with_name("agents_session_changes.sql").read_text("utf-8"),
)


CLAUDE_KIND = "claude_session"
"""Kind of stream of the Claude Agent SDK: one stream a session, by its project and id."""


@event("claude_session.appended.v1")
class TranscriptAppended(Event, frozen=True, kw_only=True):
    """Entries were added to a transcript: the session's own, or the one at `subpath`."""

    project: str
    session: str
    entries: msgspec.Raw
    count: int
    subpath: str = ""
    uuids: tuple[str, ...] = ()


@event("claude_session.deleted.v1")
class TranscriptDeleted(Event, frozen=True, kw_only=True):
    """A session was deleted with its subagents', or only the transcript at `subpath`."""

    subpath: str = ""


CLAUDE = Slice(
    name="claude",
    streams={CLAUDE_KIND: (TranscriptAppended, TranscriptDeleted)},
    nouns=("hansard.ext.frameworks.claude_sessions:ClaudeSessions",),
    schema=Path(__file__).with_name("claude_transcripts.sql").read_text("utf-8"),
)
