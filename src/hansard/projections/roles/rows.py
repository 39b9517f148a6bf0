"""From messages of the log to the rows of a role: one an event that it sees, by its own positions.

A role that sees the whole record gets the rows that everybody's tables have. What is no commit has
no author and no kind that a rule could name: only such a role sees that it is there.
"""

from __future__ import annotations

import msgspec

from hansard.bus.in_full import Fault, InFull
from hansard.bus.log import Origin
from hansard.bus.validation.check import RawMessage
from hansard.domain.events import REGISTRY, UPCASTERS, Commit, Recorded
from hansard.domain.ids import StreamId
from hansard.domain.integrity.fold import Fold
from hansard.domain.streams import may_hold
from hansard.projections.roles.feed import Feed
from hansard.projections.rows import KNOWN_AS, Batch, Rows
from hansard.projections.runner import BATCH_BYTES_MAX, BATCH_EVENTS_MAX


class RoleRows(Rows):
    """Takes every message in order; what a role sees of it goes into batches whose borders depend
    on what it sees alone, so that not even how the file is laid out tells of more.
    """

    def __init__(self, feed: Feed, after: int, local: int, batch_max: int, in_full: InFull) -> None:
        """`after` is the position of the log that was taken before, `local` the role's own there;
        `batch_max` the events of a batch.
        """
        super().__init__(after, Fold(known=feed.seen.members), in_full=in_full)
        self.local = local
        self.passed: RawMessage | None = None
        """The newest message that is whole: what was held of a transaction is asked for again."""
        self.ready: list[Batch] = []
        self._feed = feed
        self._batch_max = min(batch_max, BATCH_EVENTS_MAX)
        self._bytes = 0
        self._placed: RawMessage | None = None

    def take(self) -> Batch | None:
        """What is whole. By its end the tables are known again, and it tells what they hold."""
        batch = super().take()
        if batch is not None:
            told = batch.rows[-1][:KNOWN_AS] if batch.rows else batch.problems[-1]
            body = msgspec.json.encode(told)
            batch.last = msgspec.structs.replace(batch.last, subject="", body=body)
        self._bytes = 0
        return batch

    def _put(self, message: RawMessage, stream: StreamId, commit: Commit) -> None:
        self.passed = message
        shown = self._feed.shown(stream, commit)
        if shown is None:
            return
        super()._put(self._own(message), stream, shown)
        self._bytes += sum(len(bytes(recorded.data)) for recorded in shown.events)
        if len(self) >= self._batch_max or self._bytes >= BATCH_BYTES_MAX:
            batch = self.take()
            if batch is not None:
                self.ready.append(batch)

    def _refuse(self, message: RawMessage, reason: str) -> None:
        if message is self._placed:
            super()._refuse(message, reason)
            return
        self.passed = message
        if self._feed.whole:
            super()._refuse(self._own(message), reason)

    def _damaged(self, message: RawMessage, fault: Fault) -> None:
        """Nothing: the references are not shown either, and that they are damaged is not for it."""

    def _own(self, message: RawMessage) -> RawMessage:
        """A message at the role's next position."""
        self.local += 1
        subject = message.subject if self._feed.whole else ""
        self._placed = RawMessage(self.local, message.stamp, subject, b"", message.origin)
        return self._placed

    def _copied_from(self, origin: Origin | None) -> tuple[str | None, int | None]:
        return super()._copied_from(origin) if self._feed.whole else (None, None)

    def _known_as(
        self, message: RawMessage, stream: StreamId, index: int, recorded: Recorded
    ) -> tuple[str | None, str | None]:
        if self._feed.whole:
            return super()._known_as(message, stream, index, recorded)
        kind = REGISTRY.get(recorded.type)
        if kind is None or recorded.type in UPCASTERS or not may_hold(stream, kind):
            return None, None
        return recorded.type, None
