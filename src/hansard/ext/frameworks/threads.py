"""Events of LangGraph's threads: checkpoints, pending writes, and what was removed.

A thread outlives runs, and any run may continue it: one stream of kind `thread`. Removed
checkpoints leave the thread, not the log. This module needs no package of LangGraph, so that
tables, exports and audits read threads everywhere. `hansard.ext.frameworks.langgraph` reads and
writes them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hansard.bus.slices import Slice
from hansard.domain.events import Event, event

KIND = "thread"


@event("thread.checkpointed.v1")
class ThreadCheckpointed(Event, frozen=True, kw_only=True):
    """A checkpoint of a thread was stored.

    Attributes:
        namespace: Empty for the graph itself; a subgraph's path otherwise.
        checkpoint: Its id; later ones are greater.
        parent: The id of the checkpoint before it.
        state: The checkpoint without values, and its metadata; large ones by reference.
        versions: The version of each new value, by channel.
        values: The new values by channel; large ones by reference.
        run: The run that stored it; the agent is the commit's actor.
    """

    namespace: str = ""
    checkpoint: str
    parent: str = ""
    state: msgspec.Raw
    versions: dict[str, str | int | float] = {}
    values: msgspec.Raw
    run: str = ""


@event("thread.written.v1")
class ThreadWritten(Event, frozen=True, kw_only=True):
    """Writes of a task were stored, which the next checkpoint will contain.

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
    """Checkpoints and their writes were removed from a thread; all of them if none is named.

    Attributes:
        checkpoints: Namespace and id of each.
        run: The run that removed them.
    """

    checkpoints: tuple[tuple[str, str], ...] = ()
    run: str = ""


SLICE = Slice(
    name="threads",
    streams={KIND: (ThreadCheckpointed, ThreadWritten, ThreadPruned)},
    schema=Path(__file__).with_name("thread_checkpoints.sql").read_text("utf-8"),
)
