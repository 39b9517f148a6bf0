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
from pathlib import Path

import msgspec

from hansard.bus.commits import revive
from hansard.bus.file_lock import replace_private
from hansard.bus.log import Origin, RawMessage
from hansard.bus.reads import Fault, InFull
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import REGISTRY, UPCASTERS, Actor, Commit, Recorded
from hansard.domain.fingerprint import digest
from hansard.domain.ids import AgentStream, RunStream, StreamId, run_of
from hansard.domain.integrity import Fold, Members, may_hold
from hansard.domain.label import join, parse, raised
from hansard.domain.roles.model import Mask, RoleDefined, RoleRule
from hansard.domain.roles.view import (
    Facts,
    FieldPlan,
    FieldWay,
    aggregate_of,
    check_key,
    data_fields,
    facts,
    files_of,
    hashes,
    judge,
    renumber,
    sees_all,
    shown_by_plan,
    ways,
)
from hansard.domain.run import RunForked, RunStarted
from hansard.projections.errors import Held, Newer, Unusable, unusable
from hansard.projections.rows import KNOWN_AS, Batch, Rows
from hansard.projections.rows import digest as rows_digest
from hansard.projections.runner import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Source, to_its_end
from hansard.projections.snapshots import Publisher, newest
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles, WriteLock, schema_digest, sync_folder

# A role's view of the log, commit by commit: filtered and rewritten before it is projected.
#
# A commit is reduced to the events that the role sees, with their data as
# `hansard.domain.roles.view` shows it, and with versions and steps in the role's own numbers. Its
# id and the writer's clock are kept; its writer is named if the role sees whose event it is. The
# epoch, the transaction, the caller's ids, and a causation that the role has not seen are left out.
#
# An event is judged by the state of the log when it was written: the run's roster and labels,
# including those inherited by a fork.

VERDICTS_MAX = 65_536
"""Most verdicts cached: one for each kind, author, key and set of labels."""


class Versions(msgspec.Struct):
    """The visible versions of a stream: their number and ranges."""

    count: int = 0
    ranges: list[tuple[int, int]] = []

    def add(self, version: int) -> int:
        """Add the next visible version; return its number for the role."""
        self.count += 1
        if self.ranges and self.ranges[-1][1] == version - 1:
            self.ranges[-1] = (self.ranges[-1][0], version)
        else:
            self.ranges.append((version, version))
        return self.count

    def cut(self, version: int) -> Versions:
        """Return the visible versions up to a version."""
        ranges = [(first, min(last, version)) for first, last in self.ranges if first <= version]
        return Versions(sum(last - first + 1 for first, last in ranges), ranges)


class Steps(msgspec.Struct):
    """An agent's steps in the role's numbers, and the version at which each became visible."""

    numbers: dict[int, int] = {}
    since: list[int] = []

    def cut(self, version: int) -> Steps:
        """Return the steps visible up to a version."""
        since = [each for each in self.since if each <= version]
        numbers = {step: own for step, own in self.numbers.items() if own <= len(since)}
        return Steps(numbers, since)


class LifeFact(msgspec.Struct, frozen=True):
    """The facts of a run's life by which other events are judged."""

    version: int
    labels: dict[str, str]


class RunSeen(msgspec.Struct):
    """A run: the facts by which its events are judged, and its visible versions and steps, by
    stream name. `label` is the one that it began with.
    """

    label: str = ""
    life: list[LifeFact] = []
    labels: dict[str, str] = {}
    versions: dict[str, Versions] = {}
    steps: dict[str, Steps] = {}

    def add(self, record: LifeFact) -> None:
        """Take in a fact of its life."""
        self.life.append(record)
        self.labels = record.labels


class FeedState(msgspec.Struct):
    """The state from which a feed continues. It names things that the role may not see.

    `members` are kept by the fold that decides which commits count: `hansard.domain.integrity`.
    `label` is the join of the labels of all visible events, as states keep it.
    """

    label: str = ""
    runs: dict[str, RunSeen] = {}
    lasting: dict[str, Versions] = {}
    members: dict[str, Members] = {}


class Ids:
    """The ids of visible events and commits; those of earlier feeds are loaded on first use."""

    def __init__(self, load: Callable[[], Iterable[str]]) -> None:
        self._new: set[str] = set()
        self._old: frozenset[str] | None = None
        self._load = load

    def add(self, event: str, commit: str) -> None:
        """Add a visible event and its commit."""
        self._new.add(event)
        self._new.add(commit)

    def __contains__(self, item: object) -> bool:
        if item in self._new:
            return True
        if self._old is None:
            self._old = frozenset(self._load())
        return item in self._old


class Feed:
    """The view of a role by one set of rules; `whole`: unfiltered."""

    def __init__(self, rules: RoleDefined, key: bytes | None, seen: FeedState, ids: Ids) -> None:
        """Create a feed. Raises BadValue if a mask hashes and there is no key."""
        check_key(rules, key)
        self.whole = sees_all(rules)
        self._rules = rules
        self._key = key
        self.seen = seen
        self._ids = ids
        rules_and_masks: tuple[RoleRule | Mask, ...] = (*rules.sees, *rules.masks)
        self._by_labels = any(each.labels is not None for each in rules_and_masks)
        self._ways: dict[tuple[object, ...], FieldPlan | None] = {}

    def shown(self, stream: StreamId, commit: Commit) -> Commit | None:
        """Return a commit as the role sees it; None if it sees nothing of it. Every commit must be
        passed, in the order of the log.
        """
        name, run = str(stream), run_of(stream)
        seen = RunSeen() if run is None else self._run(run)
        forked = run is not None and type(stream) is RunStream and self._live(seen, run, commit)
        label = join(commit.label, parse(seen.label)).stored if seen.label else commit.label
        members = self.seen.members.get(run or "")
        roles = members.roles if members is not None else {}
        claims = facts("", stream, commit.actor.agent, roles, seen.labels, label=label)
        versions = seen.versions if run is not None else self.seen.lasting
        labels = tuple(sorted(claims.labels.items())) if self._by_labels else ()
        if self.whole:
            return self._as_it_is(commit, claims, labels)
        events = commit.events
        if forked:
            events = tuple(self._located(each, claims, labels, versions) for each in events)
            forked = bool(versions)
        kept: list[Recorded] = []
        first = 0
        for version, recorded in enumerate(events, commit.version):
            plan = self._field_plan(claims, labels, recorded)
            if plan is None or recorded.enc is not None:
                continue
            if forked and recorded.type == RunForked.tag:
                plan = {**plan, "at": FieldWay()}
            self._ids.add(recorded.id, commit.id)
            number = versions.setdefault(name, Versions()).add(version)
            first = first or number
            data = self._data(seen, stream, name, version, plan, recorded)
            kept.append(
                Recorded(recorded.type, recorded.id, data, occurred_at=recorded.occurred_at)
            )
        if not kept:
            return None
        self.seen.label = raised(self.seen.label, label)
        cause = commit.causation
        if cause is not None and cause not in self._ids:
            cause = None
        return Commit(
            id=commit.id,
            version=first,
            at=commit.at,
            actor=Actor(claims.agent),
            causation=cause,
            label=label,
            events=tuple(kept),
        )

    def _located(
        self,
        recorded: Recorded,
        claims: Facts,
        labels: tuple[object, ...],
        versions: dict[str, Versions],
    ) -> Recorded:
        """Return the event that begins a fork with its place in the role's versions.

        Where this event or the parent's life is hidden, the fork's versions begin with 1.
        """
        if recorded.type != RunForked.tag:
            return recorded
        visible = recorded.enc is None and self._field_plan(claims, labels, recorded) is not None
        if not visible or not versions.get(str(claims.stream), Versions()).count:
            versions.clear()
            return recorded
        at = _encoder.encode({name: each.count for name, each in versions.items()})
        fields = data_fields(bytes(recorded.data)) | {"at": msgspec.Raw(at)}
        return msgspec.structs.replace(recorded, data=msgspec.Raw(_encoder.encode(fields)))

    def _as_it_is(self, commit: Commit, claims: Facts, labels: tuple[object, ...]) -> Commit | None:
        """Return a commit without events that only principals named by a rule may see."""
        kept = [
            (version, recorded)
            for version, recorded in enumerate(commit.events, commit.version)
            if self._field_plan(claims, labels, recorded) is not None
        ]
        if kept:
            self.seen.label = raised(self.seen.label, claims.label)
        if len(kept) == len(commit.events) or not kept:
            return commit if kept else None
        events = tuple(recorded for _, recorded in kept)
        return msgspec.structs.replace(commit, version=kept[0][0], events=events)

    def _field_plan(
        self, claims: Facts, labels: tuple[object, ...], recorded: Recorded
    ) -> FieldPlan | None:
        """Return how an event is shown; None if it is not visible. Aggregates and memory are judged
        by their subject.
        """
        tag, data = recorded.type, bytes(recorded.data)
        about, files = aggregate_of(claims.stream, data), files_of(claims.stream, data)
        known_by = (tag, claims.role, claims.agent, claims.key, about, files, claims.label, labels)
        if known_by not in self._ways:
            if len(self._ways) >= VERDICTS_MAX:
                self._ways.clear()
            whole = msgspec.structs.replace(claims, tag=tag, aggregate=about, paths=files)
            verdict = judge(self._rules, whole)
            self._ways[known_by] = ways(verdict) if verdict.visible else None
        return self._ways[known_by]

    def _data(
        self,
        seen: RunSeen,
        stream: StreamId,
        name: str,
        version: int,
        plan: FieldPlan,
        recorded: Recorded,
    ) -> msgspec.Raw:
        value = data_fields(bytes(recorded.data))
        if type(stream) is AgentStream:
            steps = seen.steps.setdefault(name, Steps())
            value = renumber(value, steps.numbers, self._ids)
            if len(steps.numbers) > len(steps.since):
                steps.since.append(version)
        data = shown_by_plan(plan, value, self._key)
        try:
            str(data, "utf-8")
        except UnicodeDecodeError:
            data = b"{}"
        return msgspec.Raw(data)

    # ------------------------------------------------------------ facts for verdicts

    def _run(self, run: str) -> RunSeen:
        seen = self.seen.runs.get(run)
        if seen is None:
            seen = self.seen.runs[run] = RunSeen()
        return seen

    def _live(self, seen: RunSeen, run: str, commit: Commit) -> bool:
        """Take in the facts of a life; return whether it begins as a fork.

        Events of a newer version and damaged ones are ignored.
        """
        began = False
        for version, recorded in enumerate(commit.events, commit.version):
            try:
                event = revive(recorded)
            except (UnknownEvent, Corrupt):
                continue
            match event:
                case RunStarted():
                    seen.label = raised(seen.label, commit.label)
                    seen.add(LifeFact(version, labels=dict(event.labels)))
                case RunForked():
                    if not seen.life:
                        began = True
                        seen = self._take_over(run, event)
                    seen.label = raised(seen.label, commit.label)
                    seen.add(LifeFact(version, labels={**seen.labels, **event.labels}))
                case _:
                    continue
        return began

    def _take_over(self, run: str, event: RunForked) -> RunSeen:
        """Begin a fork with the state of its parent's streams up to the cut."""
        parent, fork = self._run(event.parent), self._run(run)
        fork.label = parent.label
        for item in parent.life:
            if item.version <= event.at.get("life", 0):
                fork.add(item)
        for name, version in event.at.items():
            if name in parent.versions:
                fork.versions[name] = parent.versions[name].cut(version)
            if name in parent.steps:
                fork.steps[name] = parent.steps[name].cut(version)
        return fork


# The files of roles' tables.
#
#     <data dir>/projections/roles/<workspace>/<role>.duckdb   the tables
#     .../<role>.feed                                          the state to continue from: see Kept
#     .../<role>.key                                           key of hashed values
#     .../published/<role>/                                    generations for readers
#
# A role's name is one token as in subjects. The feed's state names things that the role may not
# see, so it is stored outside of the tables, and of the folder that queries are answered from.

FORMAT = "6"
"""Version of how events are shown and of the stored state; older tables are rebuilt."""

_encoder = msgspec.json.Encoder(order="deterministic")


class Kept(msgspec.Struct):
    """The stored state of a role's tables: a digest of rules, key and version, the newest message
    of the log that they include, their own position, and the feed's state.
    """

    under: str
    position: int
    digest: str
    local: int
    local_digest: str
    seen: FeedState


_decoder = msgspec.msgpack.Decoder(Kept)


def under(rules: RoleDefined, key: bytes | None) -> str:
    """Return a digest of what determines the tables besides the log: the rules, the key and the
    version of Hansard.
    """
    schema = schema_digest().encode()  # loads the slices, whose events are kinds, too
    kinds = "\n".join(sorted(REGISTRY))
    return digest(FORMAT.encode(), _encoder.encode(rules), key or b"", kinds.encode(), schema)


def load(place: TableFiles) -> Kept | None:
    """Read the stored state; None if there is none or it is damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return _decoder.decode(_feed(place).read_bytes())
    return None


def keep(place: TableFiles, kept: Kept) -> None:
    """Store the state, replacing an older one."""
    replace_private(_feed(place), msgspec.msgpack.encode(kept))


def drop(place: TableFiles) -> None:
    """Remove the stored state, also on disk: the next update rebuilds the tables."""
    _feed(place).unlink(missing_ok=True)
    sync_folder(place.path.parent)


def forget(place: TableFiles) -> None:
    """Remove the tables and everything derived from them, except the key."""
    _feed(place).unlink(missing_ok=True)
    place.withdraw()
    for path in (place.path, place.fresh):
        place.remove(path)


def _feed(place: TableFiles) -> Path:
    return place.path.with_suffix(".feed")


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
        self._key = place.hash_key() if hashes(rules) else None
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
        return message is not None and rows_digest(message) == kept.digest

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
            return [event_id for (event_id,) in store.all_committed(_IDS)]

        feed = Feed(self._rules, self._key, start.seen, Ids(ids))
        in_full = InFull(self._source)
        local = store.progress.position
        rows = RoleRows(feed, start.position, local, self._batch_max, in_full)
        await _write(self._source, store, rows, self._head, in_full)
        last = rows.passed
        return Kept(
            under=self._under,
            position=last.position if last is not None else start.position,
            digest=rows_digest(last) if last is not None else start.digest,
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
