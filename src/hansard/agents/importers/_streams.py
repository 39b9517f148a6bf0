"""Commits of one stream, with ids that derive from the run's id and their place."""

from __future__ import annotations

from datetime import datetime

import msgspec

from hansard.agents.steps.payloads import EVENT_BYTES_MAX
from hansard.bus.log import Append
from hansard.domain.errors import BadValue
from hansard.domain.events import Actor, Commit, Event, Recorded
from hansard.domain.ids import StreamId, uuid8

COMMIT_EVENTS_BYTES_MAX = 192 * 1024
"""Events of one commit, in bytes; more go into the next. A commit may have 256 KiB: the rest is
for its envelope, in which a name of 1,000 characters may stand several times."""

ENVELOPE_BYTES = 200
"""Counted for each event beside its data: its tag, its id, and their names."""

TIMESTAMP_LENGTH_MAX = 200
"""Longest timestamp, in characters: it is kept as it is beside each event of its message."""

_encoder = msgspec.json.Encoder()


class Stream:
    """Makes one stream's commits in order; each goes to `out` when it is complete.

    `version` is that of the newest event, `bytes` about what all of it takes.
    """

    def __init__(
        self, run: str, stream: StreamId, actor: Actor, epoch: int, at: datetime, out: list[Append]
    ) -> None:
        self.version = 0
        self.bytes = 0
        self._run = run
        self._stream = stream
        self._name = str(stream)
        self._actor = actor
        self._epoch = epoch
        self._at = at
        self._out = out
        self._events: list[Recorded] = []
        self._bytes = 0
        self._first = 1

    def add(self, event: Event, occurred_at: str | None = None) -> None:
        """Add an event to the commit that is being made. Raises BadValue."""
        data = _encoder.encode(event)
        if len(data) > EVENT_BYTES_MAX:
            remedy = f"keep them under {EVENT_BYTES_MAX:,} in all"
            raise BadValue(event.tag, f"{len(data):,} bytes of texts", remedy)
        size = len(data) + ENVELOPE_BYTES
        if occurred_at is not None:
            if len(occurred_at) > TIMESTAMP_LENGTH_MAX:
                remedy = f"use at most {TIMESTAMP_LENGTH_MAX}"
                raise BadValue("timestamp", f"{len(occurred_at):,} characters", remedy)
            size += len(_encoder.encode(occurred_at))
        if self._events and self._bytes + size > COMMIT_EVENTS_BYTES_MAX:
            self.commit()
        self.version += 1
        index = str(len(self._events))
        event_id = uuid8(self._run, self._name, str(self._first), index)
        self._events.append(Recorded(event.tag, event_id, msgspec.Raw(data), None, occurred_at))
        self._bytes += size
        self.bytes += size

    def commit(self) -> None:
        """What was added since the last one is a commit."""
        if not self._events:
            return
        commit = Commit(
            id=uuid8(self._run, self._name, str(self._first)),
            version=self._first,
            at=self._at,
            actor=self._actor,
            epoch=self._epoch,
            events=tuple(self._events),
        )
        self._out.append(Append(self._stream, commit))
        self._first = self.version + 1
        self._events = []
        self._bytes = 0
