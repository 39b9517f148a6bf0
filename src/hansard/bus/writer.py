"""One writer of one stream: at most one commit in flight; waiting events are merged into the next.

This gives parallel tools of an agent their speed: while one commit is in flight, all further events
of the agent become one commit after it. If nothing is in flight and a thread waits for its events,
that thread sends them itself, if the log can (`AppendsHere`): this saves two thread switches and a
turn of the loop. Any outcome but an acknowledgement is handled by the loop: the same commit, by its
id.

A decision over several streams takes a turn in the same queue (`take_turn`): during it, only that
decision writes to this stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from hansard.bus.clock import Clock
from hansard.bus.commits import record, revive
from hansard.bus.errors import AppendUnknown, Conflict, Fenced, TooLarge, Unreachable
from hansard.bus.log import Append, EventLog, NotYet, Stored, appends_here
from hansard.bus.loggers import logger
from hansard.bus.portal import Arrival, own_task
from hansard.domain.errors import BadValue, Corrupt, HansardError
from hansard.domain.events import Actor, Commit, Event, Recorded
from hansard.domain.ids import StreamId
from hansard.domain.label import Label, join

# Sends the joint writes of one process in shared atomic batches.
#
# An atomic batch costs the broker about the same whatever its number of commits, and the broker
# takes one at a time. So writes that wait while a batch is in flight go together in the next one,
# each transaction still atomic on its own. A write may follow another that is not acknowledged yet:
# it is stored behind it or not at all. Everything here runs on the bus's loop.

COMMITS_MAX = 512
"""Most commits sent at once: half of a batch's limit, which bounds the wait for it. A larger
transaction is sent alone.
"""

BYTES_MAX = 2 * 1024 * 1024
"""Most event data sent at once: a quarter of a batch's limit. A larger transaction is sent alone.
"""

GATHER_SHARE_MAX = 0.5
"""Longest wait for more writes from callers of the last batch, as a share of the time it took. 8
writers then share one batch; as two alternating batches they take twice as long.
"""

GATHER_MAX = 16
"""Number of waiting writes worth a batch of their own; while it is sent, other callers decide."""


class Ticket(msgspec.Struct, eq=False):
    """A joint write in flight.

    `after` are the writes that it follows; `stored` resolves to its commits or its error. `took_s`
    is the duration of the attempt that lost a race, 0.0 if it was not sent.
    """

    log: EventLog
    appends: Sequence[Append]
    after: Sequence[Ticket]
    stored: asyncio.Future[list[Stored]]
    alone: bool = False
    took_s: float = 0.0

    @property
    def failed(self) -> bool:
        """True if it ended without an acknowledgement."""
        future = self.stored
        return future.done() and (future.cancelled() or future.exception() is not None)

    @property
    def size(self) -> int:
        """The size of its events' data, in bytes."""
        return sum(len(bytes(it.data)) for each in self.appends for it in each.commit.events)

    def succeed(self, commits: list[Stored]) -> None:
        """Resolve the future, if a caller still waits."""
        self.after = ()  # else a busy key would hold all its earlier writes in memory
        if not self.stored.done():
            self.stored.set_result(commits)

    def fail(self, error: Exception) -> None:
        """Fail the future, if a caller still waits."""
        self.after = ()
        if not self.stored.done():
            self.stored.set_exception(error)
            self.stored.exception()


class JointSender:
    """Groups joint writes into batches, in the order of submission."""

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        self._batch_target = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing waits and nothing is in flight."""
        return self._sending is None

    def put(self, log: EventLog, appends: Sequence[Append], after: Sequence[Ticket]) -> Ticket:
        """Send a transaction.

        If one that it follows fails, it fails with Conflict; otherwise as `EventLog.append_all`.
        The ones that it follows must have been submitted before.
        """
        ticket = Ticket(log, appends, after, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        if len(self._waiting) >= self._batch_target:
            self._enough.set()
        if self._sending is None:
            self._sending = own_task(self._drain())
        return ticket

    async def _drain(self) -> None:
        group: list[Ticket] = []
        try:
            while self._waiting:
                group = self._take()
                if group:
                    began_s = time.perf_counter()
                    await self._send(group)
                    await self._gather(len(group), time.perf_counter() - began_s)
        finally:
            self._sending = None
            for ticket in (*group, *self._waiting):  # unresolved when the loop ends
                ticket.stored.cancel()
            self._waiting.clear()

    async def _gather(self, sent: int, took_s: float) -> None:
        """Wait briefly until as many writers wait as in the last batch."""
        self._batch_target = min(GATHER_MAX, sent + len(self._waiting))
        if 1 < self._batch_target > len(self._waiting):
            self._enough.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), took_s * GATHER_SHARE_MAX)

    def _take(self) -> list[Ticket]:
        """Take the writes of the next batch, and fail those that can no longer be stored."""
        group: list[Ticket] = []
        commits = size = 0
        while self._waiting:
            ticket = self._waiting[0]
            if any(each.failed for each in ticket.after):
                last = self._waiting.popleft().appends[-1]
                ticket.fail(Conflict(last.stream, last.commit.version, None))
                continue
            commits += len(ticket.appends)
            size += ticket.size
            apart = group and (ticket.alone or ticket.log is not group[0].log)
            if apart or (group and (commits > COMMITS_MAX or size > BYTES_MAX)):
                break
            group.append(self._waiting.popleft())
            if ticket.alone:
                break
        return group

    async def _send(self, group: list[Ticket]) -> None:
        log, began_s = group[0].log, time.perf_counter()
        try:
            if len(group) == 1:
                stored = [await log.append_all(group[0].appends)]
            else:
                stored = await log.append_groups([each.appends for each in group])
        except Exception as error:  # noqa: BLE001 -- passed to the waiters
            self._failed(group, error, time.perf_counter() - began_s)
        else:
            for ticket, commits in zip(group, stored, strict=True):
                ticket.succeed(commits)

    def _failed(self, group: list[Ticket], error: Exception, took_s: float) -> None:
        """Fail the writes of a group that certainly failed, and queue the others again. A write
        that follows a failed one is failed when its turn comes.
        """
        again: list[Ticket] = []
        for ticket in group:
            first = ticket.appends[0]
            if len(group) == 1 or _lost(ticket, error) or isinstance(error, Unreachable):
                ticket.took_s = took_s
                ticket.fail(error)
            elif isinstance(error, AppendUnknown):
                unknown = (first.stream, first.commit.version, first.commit.id, took_s)
                ticket.fail(AppendUnknown(*unknown, error.why))
            else:
                again.append(ticket)
        if len(again) == len(group):  # no culprit is known: send each alone
            for ticket in again:
                ticket.alone = True
        self._waiting.extendleft(reversed(again))


def _lost(ticket: Ticket, error: Exception) -> bool:
    """Return whether this write is the one that lost a race."""
    return isinstance(error, Conflict) and any(
        (each.stream, each.commit.version) == (error.stream, error.version)
        for each in ticket.appends
    )


_log = logger(__name__)

MERGE_BYTES_MAX = 192 * 1024
"""Most event data merged into one commit, in bytes: under the log's 256 KiB with its envelope."""

MERGE_EVENTS_MAX = 500
"""Most events merged into one commit: a reader folds a commit in one go."""

NOTIFIED_AT_ONCE = 8
"""Most waiters of one commit notified in one turn of the loop, so that a loop that serves many can
run other tasks in between.
"""


class Pending(Protocol):
    """A future of either kind: the loop resolves it, and the caller waits for it."""

    def set_result(self, result: Any, /) -> None:
        """Set the result."""

    def set_exception(self, exception: Any, /) -> None:
        """Set the error."""

    def cancelled(self) -> bool:
        """Return whether the caller no longer waits."""
        ...


Post = Callable[[Callable[[], None]], None]
"""Schedules a call on the loop, in the order of posting."""


class _Entry(msgspec.Struct):
    events: tuple[Recorded, ...]
    size: int
    done: Pending | None
    turn: asyncio.Future[None] | None = None
    """Resolved when the decision that waits for it may write; then there are no events."""
    label: Label | None = None
    sent: Append | None = None
    """The commit of an earlier attempt: it is sent unchanged, and alone."""
    tried_s: float | None = None
    """Start of the attempt that may have stored it, by the monotonic clock."""
    merged: Sequence[_Entry] = ()
    """The other entries whose events are in that commit."""


def _size(recorded: Recorded) -> int:
    """Return the bytes that an event adds to a commit's body, at most."""
    return len(bytes(recorded.data)) + len(recorded.type) + 80


def _sum(recorded: Sequence[Recorded]) -> int:
    return sum(map(_size, recorded))


class Identity(msgspec.Struct, frozen=True):
    """Metadata that a writer puts on each commit."""

    actor: Actor
    epoch: int = 0
    correlation: str | None = None
    traceparent: str | None = None


PUT_IDS_MAX = 64
"""Most decisions remembered as queued, since one may be handed over again after an interruption."""


class HandOver:
    """A lock that a signal handler cannot enter while its own thread holds it: it raises instead of
    waiting for itself.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def alone(self) -> threading.RLock:
        """Return the lock, to be entered by `with`: unlike a method of ours, a signal handler
        cannot raise between that and the block. Raises RuntimeError.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 -- as Condition asks
            message = (
                "a signal handler used a session that it interrupted while handing over events: "
                "set a flag in the handler, and use the session after it"
            )
            raise RuntimeError(message)
        return self._lock


class Held:
    """The events of one decision, sent by the thread that waits for them. `result` is that of a
    future, except that waiting does the work.
    """

    def __init__(self, writer: StreamWriter, entry: _Entry, done: Arrival) -> None:
        self.entry = entry
        self.done = done
        self.ended = False
        """True once its thread knows the result."""
        self.thread = 0
        """Id of the sending thread."""
        self.sent: Append | None = None
        self.tried_s: float | None = None
        """See `_Entry.tried_s`; set only when the events are left to the loop: once the loop owns
        them, they do not change.
        """
        self._writer = writer

    def result(self) -> Any:
        """Return the Stored commit. Raises as the log's `append`. If the caller is interrupted
        here, the events are still written, as those sent by the loop.
        """
        if not self.done.done():
            self._writer.send_held(self)
        return self.done.result()


class StreamWriter:
    """Appends to one stream in the order of `put`.

    `recorded`, `hold`, `post` and `send_held` may be called from any thread, the rest from the
    loop's.

    After an error (fenced, unknown, unreachable or unexpected) the writer is closed: `lost` holds
    the error, and every later `put` fails with it, because the versions it would claim are no
    longer its own. Every waiter is notified. `label` is that of the newest commit: no commit has a
    lower label than an earlier one.
    """

    def __init__(
        self,
        log: EventLog,
        stream: StreamId,
        version: int,
        identity: Identity,
        clock: Clock,
        label: Label | None = None,
        written: Callable[[Stored], None] | None = None,
        post: Post = lambda call: call(),
    ) -> None:
        """`written` is called with each acknowledged commit, in order, in any thread: it must be
        quick. `post` is for a writer that other threads use, too.
        """
        self.stream = stream
        self.version = version
        self.identity = identity
        self.lost: Exception | None = None
        self.label = label
        self.log = log
        self._clock = clock
        self._written = written
        self._post = post
        self._queue: deque[_Entry] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._turn: asyncio.Future[None] | None = None
        """Resolved when the decision that writes now ends its turn."""
        self._sending: Append | None = None
        self._sent_s = 0.0
        self._here = appends_here(log)
        self._lock = HandOver()
        self._inbox: deque[Callable[[], None]] = deque()
        """Calls posted to the loop, in order; each is removed once it has run."""
        self._arriving = False
        self._held: Held | None = None
        """The events left to a waiting thread and not sent yet."""
        self._held_id = ""
        self._put_ids: deque[str] = deque(maxlen=PUT_IDS_MAX)
        """The first event of each of the last decisions left to a thread, or queued."""
        self._holder: Held | None = None
        """The events that a thread is sending."""

    def demand_free(self) -> None:
        """Raise RuntimeError in a signal handler that interrupted its thread's hand-over: nothing
        may be decided that cannot be written.
        """
        with self._lock.alone():
            pass

    def recorded(self, event: Event) -> Recorded:
        """Encode an event for `put`. May be called from any thread.

        Raises BadValue for one that could not be read back, TooLarge for one that does not fit a
        commit.
        """
        try:
            encoded = record(event, self._clock.new_id())
            revive(encoded)
        except (Corrupt, TypeError, ValueError) as error:
            raise BadValue(event.tag, str(error), "give fields of the right type") from error
        if _size(encoded) > MERGE_BYTES_MAX:
            raise TooLarge(f"a {event.tag}", _size(encoded), MERGE_BYTES_MAX)
        return encoded

    def put(
        self, recorded: Sequence[Recorded], done: Pending | None, label: Label | None = None
    ) -> None:
        """Queue the events of one decision; `done` gets the Stored commit or the error. A decision
        too large for one commit becomes several, in order; `done` is for the last.
        """
        if self.lost is not None:
            if done is not None and not done.cancelled():
                done.set_exception(self.lost)
            return
        if recorded:
            self._put_ids.append(recorded[0].id)
        held: list[Recorded] = []
        for item in recorded:
            if held and _sum([*held, item]) > MERGE_BYTES_MAX:
                self._queue.append(_Entry(tuple(held), _sum(held), None, label=label))
                held = []
            held.append(item)
        self._enqueue(_Entry(tuple(held), _sum(held), done, label=label))

    def put_again(self, recorded: Sequence[Recorded], label: Label | None) -> None:
        """Queue the events of a decision whose hand-over was interrupted by a signal handler's
        exception, unless they arrived.
        """
        if recorded[0].id != self._held_id and recorded[0].id not in self._put_ids:
            self.put(recorded, None, label=label)

    def hold(self, recorded: Sequence[Recorded], done: Arrival, label: Label | None) -> Held | None:
        """Leave the events of one decision to the thread that waits for them; return None if other
        events must be written first, or the log cannot do it.
        """
        size = _sum(recorded)
        if self._here is None or size > MERGE_BYTES_MAX:
            return None
        with self._lock.alone():
            going = self._pump or self._turn or self._held or self._holder
            if self._inbox or self._queue or going or self.lost is not None:
                return None
            held = Held(self, _Entry(tuple(recorded), size, done, label=label), done)
            # Two assignments without a call: no signal handler runs between them.
            self._held_id = recorded[0].id
            self._held = held
            return held

    def post(self, put: Callable[[], None]) -> None:
        """Schedule `put` on the loop, after held events, which the loop sends, too."""
        with self._lock.alone():
            # A thread that hands over new events was interrupted while it sent the held ones.
            stopped = self._holder
            if stopped is not None and stopped.thread == threading.get_ident():
                self._leave(stopped)
            self._inbox.append(put)
        self._post(self._arrive)

    def _arrive(self) -> None:
        """Queue the held events, then run the posted calls in order."""
        if self._arriving or not self._inbox:
            return
        self._arriving = True
        try:
            with self._lock.alone():
                held, self._held = self._held, None
            if held is not None and self.lost is None:
                self._enqueue(held.entry)
            elif held is not None and self.lost is not None:
                held.done.set_exception(self.lost)
            while self._inbox:
                try:
                    self._inbox[0]()
                finally:
                    self._inbox.popleft()
        finally:
            self._arriving = False

    def send_held(self, held: Held) -> None:
        """Send held events in this thread; or leave them to the loop, if it has taken them over or
        the log cannot determine the outcome.
        """
        entry, stored, lost = held.entry, None, None
        try:
            with self._lock.alone():
                if self._held is not held or self._here is None:
                    return
                held.thread = threading.get_ident()
                self._held, self._holder = None, held
            sent = self._next(entry.events, entry.label)
            held.tried_s = time.monotonic()
            held.sent = sent
            # A signal handler may have recorded events in between: then the loop has the events,
            # and builds another commit of them unless it gets this one.
            if self._holder is not held:
                return
            stored = self._here.append_here(sent)
            if stored is None:
                held.tried_s = None
        except AppendUnknown:
            pass
        except HansardError as error:
            lost = error
        finally:  # after any other exception, such as a signal handler's, the loop gets the commit
            try:
                self._give_back(held, stored, lost)
            except BaseException:  # of a signal handler: a second call completes the first
                self._give_back(held, stored, lost)
                raise

    def _give_back(self, held: Held, stored: Stored | None, lost: Exception | None) -> None:
        """Let the loop write again, and give it the events whose sending failed, if any."""
        with self._lock.alone():
            if self._holder is held and stored is not None:
                self.label = stored.commit.label
                self._went_on(stored)
                self._holder, held.ended = None, True
            elif self._holder is held and lost is not None:
                self.lost, self._holder, held.ended = lost, None, True
            elif self._holder is held:
                self._leave(held)
        if held.ended and not held.done.done():
            if lost is not None:
                self._log_lost(lost)
                held.done.set_exception(lost)
            else:
                held.done.set_result(stored)
        if self._queue:
            self._post(self._start)

    def _leave(self, held: Held) -> None:
        """Leave held events to the loop, with the commit that may have been sent."""
        held.entry.sent, held.entry.tried_s = held.sent, held.tried_s
        if not self._queue or self._queue[0] is not held.entry:
            self._queue.appendleft(held.entry)
        self._holder = None

    # ------------------------------------------------------------ decisions over several streams

    def take_turn(self) -> asyncio.Future[None]:
        """Queue a decision over several streams.

        The future resolves when its turn begins, and fails with the error that closed the writer.
        Until `end_turn` only that decision writes to this stream, by the methods below. Its last
        commit of the stream must have been stored.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.lost is None:
            self._enqueue(_Entry((), 0, turn, turn))
        else:
            turn.set_exception(self.lost)
        return turn

    def end_turn(
        self, turn: asyncio.Future[None], decision: asyncio.Task[Stored], done: Pending
    ) -> None:
        """Continue with the queue, and give `done` the decision's result. A decision that failed or
        was interrupted closes the writer.
        """
        if self._turn is turn:
            self._turn = None
        error = None if decision.cancelled() else decision.exception()
        if decision.cancelled() or not isinstance(error, Exception | None):
            error = self.lost = self._unknown()  # the loop ended, or a signal handler raised
        elif error is not None and error is not self.lost:
            self.lost = error
            self._log_lost(error)
        if self.lost is not None:
            self._fail(list(self._queue))
            self._queue.clear()
        elif self._queue:
            self._start()
        if error is not None and not done.cancelled():
            done.set_exception(error)
        elif not done.cancelled():
            done.set_result(decision.result())

    def next_commit(self, events: Sequence[Recorded], label: Label | None = None) -> Append:
        """Return this stream's next commit, which has at least this label, to be sent with others;
        `stored` takes the ticket that sends it. After a lost race request another one.
        """
        mine = self._next(events, label)
        self.label, self._sending = mine.commit.label, mine
        return mine

    async def stored(self, ticket: Ticket) -> list[Stored]:
        """Return a ticket's commits as stored, this stream's first. Raises Fenced, and as the log's
        `append_all`: with a Conflict over another stream, nothing was written.
        """
        try:
            stored = await ticket.stored
        except Conflict as conflict:
            self._demand_mine(conflict)
            raise
        self._went_on(stored[0])
        return stored

    async def append(self, events: Sequence[Recorded], label: Label | None = None) -> Stored:
        """Append events to this stream alone."""
        return await self._append_one(self._next(events, label))

    async def append_beside(self, append: Append) -> Stored:
        """Append a commit to another stream, provided that this stream is not continued until it is
        stored.

        A fenced writer cannot do so, however late its message arrives. Raises Fenced, and as the
        log's `append`: a Conflict over the other stream may be retried with another commit.
        """
        expected = NotYet(self.stream, self.version + 1)
        try:
            return await self.log.append(msgspec.structs.replace(append, expected=expected))
        except Conflict as conflict:
            self._demand_mine(conflict)
            raise

    # ------------------------------------------------------------ the queue

    def _enqueue(self, entry: _Entry) -> None:
        with self._lock.alone():
            self._queue.append(entry)
            if self._holder is not None:
                return  # the sender starts the pump afterwards
        self._start()

    def _start(self) -> None:
        """Start sending the queue."""
        if self._holder is not None or self._pump is not None or self._turn is not None:
            return
        if self._queue and self._queue[0].turn is not None:
            self._sending, self._turn = None, self._queue.popleft().turn
            if self._turn is not None and not self._turn.done():
                self._turn.set_result(None)
        else:
            self._pump = own_task(self._drain())
            self._pump.add_done_callback(self._ended)

    def _ended(self, pump: asyncio.Task[None]) -> None:
        """Handle the end of the pump. A loop that ends may cancel it before its first step, so that
        its `finally` never runs; an exception of a signal handler, which runs in any code on the
        loop, ends the pump alone.
        """
        if pump is self._pump:
            self._pump = None
            self.lost = self._unknown()
            self._fail(list(self._queue))
            self._queue.clear()
        elif self._queue:
            self._start()

    def _unknown(self) -> AppendUnknown:
        commit_id = self._sending.commit.id if self._sending is not None else ""
        return AppendUnknown(self.stream, self.version + 1, commit_id, 0.0)

    async def _drain(self) -> None:
        try:
            while self._queue and self._queue[0].turn is None and self.lost is None:
                batch = self._take()
                try:
                    stored = await self._append(batch)
                except Exception as error:  # noqa: BLE001 -- passed to the waiters
                    self.lost = error
                    self._log_lost(error)
                    self._fail(batch)
                except asyncio.CancelledError:  # the loop ends
                    self.lost = self._unknown()
                    self._fail(batch)
                    raise
                except BaseException:  # raised by a signal handler
                    self._put_back(batch)
                    raise
                else:
                    await _tell(batch, stored)
        finally:
            self._pump = None
            if self.lost is not None:
                self._fail(list(self._queue))
                self._queue.clear()

    def _put_back(self, batch: list[_Entry]) -> None:
        """Let the next pump send what an exception interrupted: the same commit, if any."""
        first, *merged = batch
        if self._sending is None:
            self._queue.extendleft(reversed(batch))
        else:
            first.sent, first.tried_s, first.merged = self._sending, self._sent_s, merged
            self._queue.appendleft(first)

    def _take(self) -> list[_Entry]:
        batch = [self._queue.popleft()]
        if batch[0].sent is not None:
            return [*batch, *batch[0].merged]
        size, count = batch[0].size, len(batch[0].events)
        while self._queue:
            entry = self._queue[0]
            if entry.turn is not None:
                break
            size += entry.size
            count += len(entry.events)
            if size > MERGE_BYTES_MAX or count > MERGE_EVENTS_MAX:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _append(self, batch: list[_Entry]) -> Stored:
        self._sending = None
        if batch[0].sent is not None:
            return await self._append_one(batch[0].sent, batch[0].tried_s)
        events = tuple(recorded for entry in batch for recorded in entry.events)
        label = join(*(entry.label for entry in batch)).stored
        return await self._append_one(self._next(events, label))

    def _next(self, events: Sequence[Recorded], label: Label | None) -> Append:
        """Return the next commit to send. Changes nothing, so that it may be discarded."""
        commit = Commit(
            id=self._clock.new_id(),
            version=self.version + 1,
            at=self._clock.now(),
            actor=self.identity.actor,
            epoch=self.identity.epoch,
            correlation=self.identity.correlation,
            traceparent=self.identity.traceparent,
            label=self.label if label is None else label.join(self.label),
            events=tuple(events),
        )
        return Append(self.stream, commit)

    async def _append_one(self, mine: Append, tried_s: float | None = None) -> Stored:
        """Append a commit of this stream alone; `tried_s` as in its entry."""
        self.label, self._sending = mine.commit.label, mine
        self._sent_s = tried_s if tried_s is not None else time.monotonic()
        try:
            if tried_s is not None and self._here is not None:
                stored = await self._here.append_again(mine, tried_s)
            else:
                stored = await self.log.append(mine)
        except Conflict as conflict:
            self._demand_mine(conflict)
            raise
        self._went_on(stored)
        return stored

    def _went_on(self, stored: Stored) -> None:
        """Take in that a commit of the stream is stored. One that was sent again may be known
        already.
        """
        if stored.commit.last_version <= self.version:
            return
        self.version = stored.commit.last_version
        if self._written is not None:
            self._written(stored)

    def _demand_mine(self, conflict: Conflict) -> None:
        """Raise Fenced if a race was lost to a later session of the agent, and Conflict over this
        stream if another writer continued it.
        """
        winner = conflict.winner
        if winner is None or winner.stream != self.stream:
            return
        if winner.commit.epoch > self.identity.epoch:
            raise Fenced(self.stream, self.identity.epoch, winner.commit.epoch) from conflict
        if conflict.stream != self.stream:
            raise Conflict(self.stream, self.version + 1, winner) from conflict

    def _log_lost(self, error: Exception) -> None:
        """Close the writer, naming the stream's new owner."""
        _log.info(
            "fenced" if isinstance(error, Fenced) else "writer stopped",
            workspace=self.log.workspace,
            stream=str(self.stream),
            agent=self.identity.actor.agent,
            epoch=self.identity.epoch,
            version=self.version,
            error=type(error).__name__,
        )

    def _fail(self, entries: list[_Entry]) -> None:
        for entry in entries:
            if entry.done is not None and not entry.done.cancelled():
                entry.done.set_exception(self.lost)


async def _tell(batch: list[_Entry], stored: Stored) -> None:
    """Notify all waiters of a commit, also when the loop ends."""
    waiting = [entry.done for entry in batch if entry.done is not None]
    left = iter(waiting)
    try:
        for item, done in enumerate(left, 1):
            if not done.cancelled():
                done.set_result(stored)
            if item % NOTIFIED_AT_ONCE == 0 and item < len(waiting):
                await asyncio.sleep(0)
    finally:
        for done in left:
            if not done.cancelled():
                done.set_result(stored)
