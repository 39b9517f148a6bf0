"""An open workspace: its log, its blobs, and caches of what is read from them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from hansard.agents import run_index
from hansard.agents.run_index import RunFilter
from hansard.agents.transact import transact
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit
from hansard.bus.log import Append, Blobs, EventLog, Snapshots, Stored
from hansard.bus.redacted_log import RedactedBlobs, RedactedLog, redacted
from hansard.domain import ids
from hansard.domain import run as runs
from hansard.domain.errors import Refused
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label
from hansard.domain.redaction import Redaction
from hansard.domain.run import RunEvent, RunState
from hansard.domain.values import recordable
from hansard.state.boards import Boards
from hansard.state.memories import Memories
from hansard.state.replay import Points, States

E = TypeVar("E")


class Workspace:
    """A workspace's log and blobs, and its close callbacks; `command` reaches it from a shell."""

    def __init__(
        self,
        log: EventLog,
        blobs: Blobs,
        clock: Clock,
        close: Callable[[], Awaitable[None]],
        snapshots: Snapshots | None = None,
        command: str = "hansard",
    ) -> None:
        self.log = log
        self.blobs = blobs
        self.clock = clock
        self.snapshots = snapshots
        self.command = command
        self.redaction: Redaction | None = None
        """Secrets that are removed from everything written here."""
        self.states = States(log, snapshots)
        self.points = Points(self.states)
        self.boards = Boards(self.states)
        self.memories = Memories(log, blobs, snapshots)
        self.closing: list[Callable[[], Awaitable[None]]] = []
        """Callbacks that run first on close."""
        self._close = close

    async def close(self) -> None:
        """Close the connection to the broker."""
        while self.closing:
            await self.closing.pop()()
        await self.states.close()
        await self.memories.close()
        await self._close()

    def through(self, log: EventLog) -> Self:
        """Return the same workspace, writing through another log of the same record; caches and
        locks are shared.
        """
        made = copy.copy(self)
        made.log = log
        made.states = self.states.through(log)
        made.points = Points(made.states)
        made.boards = self.boards.through(made.states)
        made.memories = self.memories.through(log)
        return made

    def redacting(self, redact: Mapping[str, Any]) -> Self:
        """Return the same workspace, with these secrets removed from what is written, in addition
        to those already removed. Raises BadName, BadValue.
        """
        more = Redaction.of(redact)
        if more is None:
            return self
        redaction = more.joined(self.redaction)
        if self.redaction is not None and self.redaction.joined(redaction) is self.redaction:
            return self
        log = self.log.base if isinstance(self.log, RedactedLog) else self.log
        blobs = self.blobs.base if isinstance(self.blobs, RedactedBlobs) else self.blobs
        made = self.through(redacted(log, redaction))
        made.blobs = RedactedBlobs(blobs, redaction)
        made.redaction = redaction
        return made

    def clean(self, event: E) -> E:
        """Return an event, or a part of one, as it will be stored, for values derived from it
        before the write, such as a digest.
        """
        return self.redaction.fields(event) if self.redaction is not None else event

    def text(self, text: str) -> str:
        """Return an external text as it may be recorded: without secrets, then truncated."""
        return recordable(text, self.redaction)

    def commit(
        self,
        version: int,
        agent: str | Actor,
        events: Sequence[Event],
        epoch: int = 0,
        label: Label | None = None,
    ) -> Commit:
        """Build a commit of an agent's events, with ids and time; `label` is the agent's."""
        return new_commit(self.clock, version, Actor.of(agent), events, epoch=epoch, label=label)

    async def record_lasting(
        self,
        stream: WorkspaceStream,
        by: str | Actor,
        decide: Callable[[list[Stored]], Sequence[Event]],
        label: Label | None = None,
    ) -> bool:
        """Append the events that `decide` derives from a workspace stream's commits; return False
        for none.

        Raises BadName, Refused with the stream's name, the other errors of `decide`, and Conflict
        after 50 lost races.
        """
        ids.name("by", Actor.of(by).agent)

        def next_append(stored: list[Stored]) -> Append | None:
            events = decide(stored)
            version = stored[-1].commit.last_version if stored else 0
            commit = self.commit(version + 1, by, events, label=label) if events else None
            return Append(stream, commit) if commit is not None else None

        try:
            read = functools.partial(self.log.read, stream)
            return await transact(read, next_append, self.log.append) is not None
        except Refused as error:
            message = f"{stream.kind} {stream.id!r}: {error}"
            raise Refused(message) from error

    async def append_lasting(self, stream: WorkspaceStream, by: str | Actor, event: Event) -> None:
        """Append an event to a workspace stream, whatever its state. Costs a read of the newest
        commit. Raises Conflict after 50 lost races.
        """

        def next_append(last: Stored | None) -> Append:
            version = last.commit.last_version if last is not None else 0
            return Append(stream, self.commit(version + 1, by, [event]))

        await transact(functools.partial(self.log.last, stream), next_append, self.log.append)

    async def runs(self, filters: RunFilter | None = None) -> list[tuple[str, RunState]]:
        """Return every run, or those that match, with its life, newest first, in one pass.

        Raises Corrupt and UnknownEvent if a run's life cannot be read.
        """
        runs: list[tuple[str, RunState]] = []
        for life in await run_index.read(self.log):
            if life.error is not None:
                raise life.error
            if filters is None or filters.takes(life):
                runs.append((life.run, life.state))
        return runs


def decided(state: RunState, events: Sequence[RunEvent]) -> list[RunEvent]:
    """Return the events that change a run's life, in order."""
    items: list[RunEvent] = []
    for event in events:
        news = runs.decide(state, event)
        state = runs.fold(state, news)
        items.extend(news)
    return items
