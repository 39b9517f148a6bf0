"""Updates a role's tables to the log's newest position, and publishes them.

They are continued, or rebuilt beside the old ones if those were made by other rules or from another
log, or if the stored state does not match them: a process killed in between leaves the old tables
published, and the next one rebuilds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from hansard.bus.in_full import Fault, InFull
from hansard.bus.log import Origin, RawMessage
from hansard.domain.events import REGISTRY, UPCASTERS, Commit, Recorded
from hansard.domain.ids import StreamId
from hansard.domain.integrity.authorship import Fold
from hansard.domain.roles.judge import sees_all
from hansard.domain.roles.model import RoleDefined
from hansard.domain.streams import may_hold
from hansard.projections.errors import Held, Newer, Unusable, unusable
from hansard.projections.publish.publisher import to_its_end
from hansard.projections.publish.snapshots import Publisher, newest
from hansard.projections.roles.feed import Feed, FeedState, Ids
from hansard.projections.roles.table_files import Kept, drop, forget, keep, key_of, load, under
from hansard.projections.rows import KNOWN_AS, Batch, Rows, digest
from hansard.projections.runner import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Source
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles, WriteLock


class RoleRows(Rows):
    """Takes every message in order. What a role sees goes into batches whose boundaries depend only
    on that, so that not even a file's layout reveals more.
    """

    def __init__(self, feed: Feed, after: int, local: int, batch_max: int, in_full: InFull) -> None:
        """`after` is the last position taken from the log, `local` the role's own; `batch_max` is
        the number of events per batch.
        """
        super().__init__(after, Fold(known=feed.seen.members), in_full=in_full)
        self.local = local
        self.passed: RawMessage | None = None
        """The newest complete message; those held of an open transaction are requested again."""
        self.ready: list[Batch] = []
        self._feed = feed
        self._batch_max = min(batch_max, BATCH_EVENTS_MAX)
        self._bytes = 0
        self._placed: RawMessage | None = None

    def take(self) -> Batch | None:
        """Take the complete commits as a batch. Its end identifies the tables' state, so it is
        derived from the role's own rows.
        """
        batch = super().take()
        if batch is not None:
            value = batch.rows[-1][:KNOWN_AS] if batch.rows else batch.problems[-1]
            body = msgspec.json.encode(value)
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
        """Ignore it: the role sees neither the references nor that they are damaged."""

    def _own(self, message: RawMessage) -> RawMessage:
        """Return a message at the role's next position."""
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


HELD_S = 60.0
"""Longest wait for another process that updates the same role's tables, in seconds."""

POLL_S = 0.01

RulesAt = Callable[[int], Awaitable[RoleDefined | None]]
"""Returns a role's rules at a position of the log; None if it has none."""

_IDS = "SELECT id FROM events UNION ALL SELECT DISTINCT commit_id FROM events"


class _Start(msgspec.Struct):
    """The position of tables, and the state to continue from."""

    position: int = 0
    digest: str = ""
    seen: FeedState = msgspec.field(default_factory=FeedState)


async def bring_up(
    source: Source, place: TableFiles, rules_at: RulesAt, *, batch_max: int = BATCH_EVENTS_MAX
) -> bool:
    """Update and publish a role's tables by its current rules; return False if it has none, and
    remove its tables then.

    Only one process does it at a time, so that older rules never replace newer ones. Raises Held
    after a minute, the errors of `rules_at`, ProjectionError, BrokerError.
    """
    hold = await _locked(place)
    try:
        head = (await source.extent()).last
        rules = await rules_at(head)
        if rules is None:
            forget(place)
            return False
        await _Work(source, place, rules, head, batch_max).run()
    except OSError as error:
        raise unusable(place.path, error) from error
    finally:
        hold.close()
    return True


async def _locked(place: TableFiles) -> WriteLock:
    until_s = time.monotonic() + HELD_S
    while True:
        try:
            return WriteLock(place)
        except Held:
            if time.monotonic() >= until_s:
                raise
        await asyncio.sleep(POLL_S)


class _Work:
    """One update, by one set of rules, to one position."""

    def __init__(
        self, source: Source, place: TableFiles, rules: RoleDefined, head: int, batch_max: int
    ) -> None:
        self._source = source
        self._place = place
        self._rules = rules
        self._head = head
        self._batch_max = batch_max
        self._key = key_of(place, rules)
        self._under = under(rules, self._key)
        self._partial = not sees_all(rules)

    async def run(self) -> None:
        """Continue the existing tables, or rebuild them; publish."""
        kept = load(self._place)
        store = None
        if kept is not None and await self._is_of_now(kept):
            if kept.position == self._head and self._is_published(kept):
                return
            store = await to_its_end(lambda: self._opened(kept))
        if store is None or kept is None:
            await self._rebuild()
            store, start = await to_its_end(lambda: self._open(self._place)), None
        else:
            start = _Start(kept.position, kept.digest, kept.seen)
        publisher: Publisher | None = None
        try:
            publisher = Publisher(self._place, store)
            if start is not None:
                await self._follow(store, start)
            if publisher.stale:
                await to_its_end(lambda: _publish(publisher, store))
        finally:
            await to_its_end(store.close)
            if publisher is not None:
                publisher.close()

    async def _is_of_now(self, kept: Kept) -> bool:
        """Return whether the stored state was made by these rules and from this log."""
        if kept.under != self._under or kept.position > self._head:
            return False
        if not kept.position:
            return True
        message = await _message(self._source, kept.position)
        return message is not None and digest(message) == kept.digest

    def _is_published(self, kept: Kept) -> bool:
        current = newest(self._place)
        return current is not None and (current.position, current.digest) == (
            kept.local,
            kept.local_digest,
        )

    def _open(self, place: TableFiles) -> Store:
        return Store(place.path, partial=self._partial)

    def _opened(self, kept: Kept) -> Store | None:
        """Return the tables, if they match the stored state."""
        if not self._place.path.exists():
            return None
        try:
            store = self._open(self._place)
        except (Unusable, Newer):
            return None
        if (store.progress.position, store.progress.digest) == (kept.local, kept.local_digest):
            return store
        store.close()
        return None

    async def _rebuild(self) -> None:
        """Rebuild the tables beside the old ones, and replace those."""
        fresh = TableFiles(self._place.fresh)
        self._place.remove(fresh.path)
        try:
            store = await to_its_end(lambda: self._open(fresh))
            try:
                kept = await self._filled(store, _Start())
            finally:
                await to_its_end(store.close)
            drop(self._place)  # first: a kill leaves no state of other rules
            self._place.replace()
            keep(self._place, kept)
        finally:
            self._place.remove(fresh.path)

    async def _follow(self, store: Store, start: _Start) -> None:
        if start.position < self._head:
            keep(self._place, await self._filled(store, start))

    async def _filled(self, store: Store, start: _Start) -> Kept:
        """Write what the role sees of the log from the tables' position on; return the state to
        continue from.
        """

        def ids() -> Iterable[str]:
            return [found for (found,) in store.all_committed(_IDS)]

        feed = Feed(self._rules, self._key, start.seen, Ids(ids))
        in_full = InFull(self._source)
        local = store.progress.position
        rows = RoleRows(feed, start.position, local, self._batch_max, in_full)
        await _write(self._source, store, rows, self._head, in_full)
        last = rows.passed
        return Kept(
            under=self._under,
            position=last.position if last is not None else start.position,
            digest=digest(last) if last is not None else start.digest,
            local=store.progress.position,
            local_digest=store.progress.digest,
            seen=start.seen,
        )


async def _write(source: Source, store: Store, rows: RoleRows, until: int, in_full: InFull) -> None:
    """Read up to a position, while a thread writes the previous batch."""
    writing: asyncio.Future[None] | None = None

    async def write(batch: Batch) -> None:
        nonlocal writing
        if writing is not None:
            await writing
        work = asyncio.to_thread(store.write, batch, batch.position)
        writing = asyncio.ensure_future(work)

    try:
        async with contextlib.aclosing(source.chunks(rows.position, until=until)) as chunks:
            async for chunk in chunks:
                for message in chunk.messages:
                    await in_full.ready(message)
                    rows.add(message)
                while rows.ready:
                    await write(rows.ready.pop(0))
        rest = rows.take()
        if rest is not None:
            await write(rest)
        if writing is not None:
            await writing
    finally:
        while writing is not None and not writing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({writing})


def _publish(publisher: Publisher, store: Store) -> None:
    publisher.publish(store.progress.position)


async def _message(source: Source, position: int) -> RawMessage | None:
    async with contextlib.aclosing(source.chunks(position - 1, until=position)) as chunks:
        async for chunk in chunks:
            for message in chunk.messages:
                return message
    return None
