"""Events of sessions of the OpenAI Agents SDK and the Claude Agent SDK, and their slices.

Their operations are named and not imported, so that SQL starts without them.
"""

from __future__ import annotations

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


AGENTS_SCHEMA = """
CREATE VIEW agents_session_changes AS
SELECT url_decode(split_part(stream, '/', 2)) AS session, position, logged_at,
    CASE type WHEN 'agents_session.added.v1' THEN 'added' ELSE 'removed' END AS change,
    coalesce((data->>'count')::BIGINT, 0) AS count, data->'items' AS items
FROM events WHERE type IN ('agents_session.added.v1', 'agents_session.removed.v1');
COMMENT ON VIEW agents_session_changes IS
'One row per change of a session of the OpenAI Agents SDK: items added, or removed from its end.';
"""

AGENTS = Slice(
    name="agents-sessions",
    streams={AGENTS_KIND: (ItemsAdded, ItemsRemoved)},
    nouns=("hansard.ext.frameworks.agents_sessions:AgentsSessions",),
    schema=AGENTS_SCHEMA,
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


CLAUDE_SCHEMA = """
CREATE VIEW claude_transcripts AS
WITH appended AS (
    SELECT stream, position, logged_at, data->>'project' AS project, data->>'session' AS session,
        coalesce(data->>'subpath', '') AS subpath, (data->>'count')::BIGINT AS entries
    FROM events WHERE type = 'claude_session.appended.v1'
), deleted AS (
    SELECT stream, position, coalesce(data->>'subpath', '') AS subpath
    FROM events WHERE type = 'claude_session.deleted.v1'
)
SELECT project, session, subpath, sum(entries)::BIGINT AS entries, max(logged_at) AS changed_at
FROM appended WHERE NOT EXISTS (
    FROM deleted WHERE deleted.stream = appended.stream AND deleted.position > appended.position
        AND deleted.subpath IN ('', appended.subpath)
)
GROUP BY ALL;
COMMENT ON VIEW claude_transcripts IS
'One row per transcript of a Claude session. subpath: that of a subagent; empty for the session.';
"""

CLAUDE = Slice(
    name="claude",
    streams={CLAUDE_KIND: (TranscriptAppended, TranscriptDeleted)},
    nouns=("hansard.ext.frameworks.claude_sessions:ClaudeSessions",),
    schema=CLAUDE_SCHEMA,
)
