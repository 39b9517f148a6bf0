"""Transcripts of the Claude Agent SDK on the record: its `SessionStore`.

    options = ClaudeAgentOptions(session_store=SessionStore(record))

Each session is a stream of the workspace; a subagent's transcript is part of its session's stream.
An entry with a `uuid` that is stored already is not stored again. A deleted transcript is no longer
listed nor loaded, but its events stay on record until they are erased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from cachetools import FIFOCache

from hansard.bus.commits import revive_all
from hansard.bus.log import Append, Stored
from hansard.client.record import AsyncRecord
from hansard.domain import values
from hansard.domain.errors import BadValue, import_extra
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, join
from hansard.ext.frameworks._sessions import store_items
from hansard.ext.frameworks.sdk_sessions import CLAUDE_KIND, TranscriptAppended, TranscriptDeleted
from hansard.extending import (
    OS_USER,
    By,
    C_co,
    Content,
    Event,
    Name,
    NotFound,
    Noun,
    operation,
    queries,
    states,
)
from hansard.inspect.trace import Payloads
from hansard.state.repository import retry

SESSIONS_MAX = 256
"""Sessions of which the ids of entries are kept in memory."""


class ClaudeSession(msgspec.Struct, frozen=True):
    """A session as `ClaudeSessions.list` returns it; `changed_ms` is in Unix milliseconds."""

    session: str
    changed_ms: int
    entries: int


def _present(events: Sequence[Event]) -> list[TranscriptAppended]:
    """Return what is left of a session's appends after its deletions."""
    kept: list[TranscriptAppended] = []
    for each in events:
        if isinstance(each, TranscriptAppended):
            kept.append(each)
        elif isinstance(each, TranscriptDeleted):
            kept = [one for one in kept if each.subpath not in ("", one.subpath)]
    return kept


class _Stored:
    """What a session's stream holds, without the entries: read once, and then only its new end."""

    def __init__(self) -> None:
        self.version = 0
        self.label = LOWEST
        self.uuids: dict[str, set[str]] = {}
        """The ids of entries, by the subpath of their transcript."""

    def take(self, stored: Stored) -> None:
        """Add a commit."""
        self.version = stored.commit.last_version
        self.label = join(self.label, stored.commit.label or LOWEST)
        for each in revive_all([stored.commit]):
            if isinstance(each, TranscriptAppended):
                self.uuids.setdefault(each.subpath, set()).update(each.uuids)
            elif isinstance(each, TranscriptDeleted) and each.subpath:
                self.uuids.pop(each.subpath, None)
            else:
                self.uuids.clear()

    def without(self, entries: list[Any], subpath: str) -> list[Any]:
        """Return the entries that are not stored in a transcript yet."""
        known = self.uuids.get(subpath, ())
        return [each for each in entries if each.get("uuid") not in known]


class ClaudeSessions(Noun[C_co], noun="claude"):
    """Transcripts of Claude sessions."""

    def __init__(self, record: Any) -> None:
        super().__init__(record)
        self._sessions = FIFOCache[str, _Stored](SESSIONS_MAX)

    @operation(needs=states(TranscriptAppended))
    async def append(
        self, project: Name, session: Name, entries: Content, *, subpath: str = "", by: By = OS_USER
    ) -> bool:
        """Add entries to a transcript; return False if all of them are stored already.

        Args:
            project: The project's key.
            session: The session's id.
            entries: The entries, a list of objects.
            subpath: The subagent's transcript; by default the session's own.
            by: The author on record.
        """
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise BadValue("entries", f"{entries!r:.80}", "give a list of objects")
        stream, workspace = WorkspaceStream(CLAUDE_KIND, f"{project}/{session}"), self._workspace

        async def attempt() -> bool:
            stored = await self._stored(stream)
            new, version = stored.without(entries, subpath), stored.version + 1
            if not new:
                return False
            label = stored.label.stored
            addition = TranscriptAppended(
                project=project,
                session=session,
                entries=await store_items(workspace, new, "entries"),
                count=len(new),
                subpath=subpath,
                uuids=tuple(each["uuid"] for each in new if isinstance(each.get("uuid"), str)),
            )
            commit = workspace.commit(version, by, [addition], label=label)
            await workspace.log.append(Append(stream, commit))
            return True

        return await retry(attempt)

    @operation(needs=queries("claude.load"))
    async def load(self, project: Name, session: Name, *, subpath: str = "") -> list[Any]:
        """Return the entries of a transcript, in order; none if there is no such transcript.

        Args:
            project: The project's key.
            session: The session's id.
            subpath: The subagent's transcript; by default the session's own.
        """
        stream = WorkspaceStream(CLAUDE_KIND, f"{project}/{session}")
        await self._stored(stream)
        commits = (each.commit for each in await self._workspace.log.read(stream))
        reader, loaded = Payloads(self._workspace), []
        for each in _present(revive_all(commits)):
            if each.subpath == subpath:
                loaded += values.revive(await reader.value(each.entries))
        return loaded

    @operation(needs=queries("claude.subkeys"))
    async def subkeys(self, project: Name, session: Name) -> list[str]:
        """Return the subpaths of a session's transcripts.

        Args:
            project: The project's key.
            session: The session's id.
        """
        stored = await self._stored(WorkspaceStream(CLAUDE_KIND, f"{project}/{session}"))
        return sorted({*stored.uuids} - {""})

    @operation(needs=queries("claude.list"))
    async def list(self, project: Name) -> list[ClaudeSession]:
        """Return the sessions of a project.

        Args:
            project: The project's key.
        """
        answer = await self.query(
            "SELECT session, epoch_ms(changed_at), entries FROM claude_transcripts "
            "WHERE project = $1 AND subpath = ''",
            project,
        )
        return [ClaudeSession(*row) for row in answer.rows]

    @operation(needs=states(TranscriptDeleted))
    async def delete(
        self, project: Name, session: Name, *, subpath: str = "", by: By = OS_USER
    ) -> bool:
        """Delete a session, or the transcript at a subpath; return False if there is none.

        Args:
            project: The project's key.
            session: The session's id.
            subpath: The subagent's transcript; by default the whole session.
            by: The author on record.
        """

        def decide(events: Sequence[Event]) -> list[Event]:
            present = [each for each in _present(events) if subpath in ("", each.subpath)]
            return [TranscriptDeleted(subpath=subpath)] if present else []

        return await self.decided(CLAUDE_KIND, f"{project}/{session}", decide, by)

    async def _stored(self, stream: WorkspaceStream) -> _Stored:
        """Read the new end of a session. Raises NotFound if the caller is not cleared for it."""
        stored = self._sessions.setdefault(stream.id, _Stored())
        for each in await self._workspace.log.read(stream, after=stored.version):
            if each.commit.version > stored.version:  # not taken by another call meanwhile
                stored.take(each)
        if not await self._context.shows(stored.label):
            raise NotFound(f"{CLAUDE_KIND} {stream.id!r:.80}", "have the role cleared for it")
        return stored


class SessionStore:
    """Session store of the Claude Agent SDK (0.2.189) on a record."""

    def __init__(self, record: AsyncRecord, prefix: str = "") -> None:
        """Store transcripts on a record.

        Args:
            record: The record; it must stay open as long as the store is used.
            prefix: A text before each project's key, such as the name of a tenant.
        """
        self._sessions: ClaudeSessions[Any] = record.noun(ClaudeSessions)
        self._prefix = prefix

    def _names(self, key: Any) -> tuple[str, str]:
        return self._prefix + key["project_key"], key["session_id"]

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Add entries to a transcript."""
        if entries:
            subpath = key.get("subpath", "")
            await self._sessions.append(*self._names(key), entries, subpath=subpath)

    async def load(self, key: Any) -> list[Any] | None:
        """Return a transcript; None if there is none."""
        return await self._sessions.load(*self._names(key), subpath=key.get("subpath", "")) or None

    async def list_sessions(self, project_key: str) -> list[Any]:
        """Return the sessions of a project with the times of their last change."""
        listed = await self._sessions.list(self._prefix + project_key)
        return [{"session_id": each.session, "mtime": each.changed_ms} for each in listed]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """Return the SDK's summaries of a project's sessions, made from their transcripts."""
        sdk = import_extra(
            "claude_agent_sdk", "a summary of sessions", "claude-agent-sdk", "claude"
        )
        summaries = []
        for each in await self.list_sessions(project_key):
            key = {"project_key": project_key, "session_id": each["session_id"]}
            folded = sdk.fold_session_summary(None, key, await self.load(key) or [])
            summaries.append({**folded, "mtime": each["mtime"]})
        return summaries

    async def delete(self, key: Any) -> None:
        """Delete a session with its subagents, or the transcript at a subpath."""
        await self._sessions.delete(*self._names(key), subpath=key.get("subpath", ""))

    async def list_subkeys(self, key: Any) -> list[str]:
        """Return the subpaths of a session's transcripts."""
        return [*await self._sessions.subkeys(*self._names(key))]
