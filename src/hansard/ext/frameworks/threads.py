"""Threads of LangGraph as streams of events: checkpoints, pending writes, and what was removed.

A thread outlives runs, and any run may continue it: one stream of kind `thread`. Removed
checkpoints leave the thread, not the log. This module needs no package of LangGraph, so that
tables, exports and audits read threads everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from hansard.extending import Event, Slice, event

Version = str | int | float
Key = tuple[str, str]
"""A checkpoint of a thread: its namespace and id."""


@event("thread.checkpointed.v1")
class ThreadCheckpointed(Event, frozen=True, kw_only=True):
    """A checkpoint of a thread was stored.

    Attributes:
        namespace: Empty for the graph itself; a subgraph's path otherwise.
        checkpoint: Its id; later ones are greater.
        parent: The id of the checkpoint before it.
        versions: The version of each channel.
        delta: Channels whose value follows from writes since an earlier checkpoint.
        graph_run: The `run_id` that LangGraph's metadata states.
        state: The rest of the checkpoint, and its metadata; large values by reference.
        values: New values by channel; large ones by reference.
        run: The run that stored it; the agent is the commit's actor.
    """

    namespace: str = ""
    checkpoint: str
    parent: str = ""
    versions: dict[str, Version] = {}
    delta: tuple[str, ...] = ()
    graph_run: str = ""
    state: msgspec.Raw
    values: msgspec.Raw
    run: str = ""


@event("thread.written.v1")
class ThreadWritten(Event, frozen=True, kw_only=True):
    """Writes of a task were stored, which the checkpoint after this one will contain.

    Attributes:
        namespace: As of the checkpoint.
        checkpoint: The checkpoint that the task ran on.
        task: The task's id.
        path: The task's path, which orders the writes of a checkpoint.
        channels: Index and channel of each write.
        values: The written values by their index; large ones by reference.
        run: The run that stored them.
    """

    namespace: str = ""
    checkpoint: str
    task: str
    path: str = ""
    channels: tuple[tuple[int, str], ...]
    values: msgspec.Raw
    run: str = ""


@event("thread.pruned.v1")
class ThreadPruned(Event, frozen=True, kw_only=True):
    """Checkpoints and their writes were removed from a thread; all of them if none is named."""

    checkpoints: tuple[Key, ...] = ()
    run: str = ""


ThreadEvent = ThreadCheckpointed | ThreadWritten | ThreadPruned


class Write(NamedTuple):
    """A pending write, in the order in which LangGraph applies writes."""

    path: str
    task: str
    at: int
    channel: str
    value: msgspec.Raw


class Thread:
    """A thread at a point.

    Attributes:
        checkpoints: Its checkpoints.
        values: The values of channels by namespace, channel and version.
    """

    def __init__(self, events: Iterable[ThreadEvent] = ()) -> None:
        self.checkpoints: dict[Key, ThreadCheckpointed] = {}
        self.values: dict[tuple[str, str, Version], msgspec.Raw] = {}
        self._writes: dict[Key, dict[tuple[str, int], Write]] = {}
        for each in events:
            self._evolve(each)

    def _evolve(self, event: ThreadEvent) -> None:
        match event:
            case ThreadCheckpointed():
                self.checkpoints[event.namespace, event.checkpoint] = event
                for channel, value in parts(event.values).items():
                    self.values[event.namespace, channel, event.versions[channel]] = value
            case ThreadWritten():
                writes = self._writes.setdefault((event.namespace, event.checkpoint), {})
                values = parts(event.values)
                for index, channel in event.channels:
                    write = Write(event.path, event.task, index, channel, values[str(index)])
                    if index < 0 or (event.task, index) not in writes:
                        writes[event.task, index] = write
            case ThreadPruned(checkpoints=()):
                self.__init__()  # type: ignore[misc] # begins anew, as a thread of that name does
            case ThreadPruned():
                for key in event.checkpoints:
                    self.checkpoints.pop(key, None)
                    self._writes.pop(key, None)

    def writes(self, key: Key) -> list[Write]:
        """Return the pending writes of a checkpoint, in the order in which they apply."""
        return sorted(self._writes.get(key, {}).values())

    def latest(self, namespace: str) -> Key | None:
        """Return the newest checkpoint of a namespace."""
        return max((key for key in self.checkpoints if key[0] == namespace), default=None)

    def ancestors(self, key: Key) -> Iterator[Key]:
        """Yield the checkpoints before one, the nearest first."""
        while key in self.checkpoints:
            key = (key[0], self.checkpoints[key].parent)
            if key in self.checkpoints:
                yield key

    def stored(self, key: Key, channel: str) -> msgspec.Raw | None:
        """Return the stored value of a channel at a checkpoint; None if there is none."""
        version = self.checkpoints[key].versions.get(channel)
        return None if version is None else self.values.get((key[0], channel, version))

    def removable(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        """Return those of some checkpoints that no other one needs for the value of a channel."""
        gone = set(keys)
        for key in self.checkpoints.keys() - gone:
            open_ = {ch for ch in self.checkpoints[key].delta if self.stored(key, ch) is None}
            for before in self.ancestors(key) if open_ else ():
                gone.discard(before)
                open_ = {channel for channel in open_ if self.stored(before, channel) is None}
                if not open_:
                    break
        return tuple(sorted(gone))


def parts(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the values of a recorded mapping, each still encoded."""
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])


SCHEMA = """
CREATE VIEW thread_checkpoints AS
SELECT
    url_decode(split_part(stream, '/', 2)) AS thread,
    coalesce(data->>'namespace', '') AS namespace,
    data->>'checkpoint' AS checkpoint,
    data->>'parent' AS parent,
    data->>'run' AS run,
    actor AS agent,
    data->'state'->'metadata'->'value'->>'source' AS source,
    CAST(data->'state'->'metadata'->'value'->>'step' AS BIGINT) AS step,
    json_keys(data->'values') AS channels,
    logged_at
FROM events WHERE type = 'thread.checkpointed.v1';
COMMENT ON VIEW thread_checkpoints IS
    'Checkpoints of LangGraph threads, also those that were removed from their thread.';
"""

SLICE = Slice(
    name="threads",
    streams={"thread": (ThreadCheckpointed, ThreadWritten, ThreadPruned)},
    schema=SCHEMA,
)
