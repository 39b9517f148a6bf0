"""One writer of one stream: at most one commit in flight, what waits is merged into the next.

This is also the speed of an agent with parallel tools: while one commit is on its way, whatever
else the agent has to say becomes one commit after it.

Where nothing is on its way and a thread waits for what it has to say, that thread sends it itself,
if the log can (`AppendsHere`): two changes of thread and a turn of the loop less. Whatever comes of
that but an acknowledgement is the loop's again: the same commit, by its id.

A decision over several streams takes a turn in the same queue (`take_turn`): while it has it, it
alone sends what is for this stream.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from hansard.bus.atomic_sender import Ticket
from hansard.bus.clock import Clock
from hansard.bus.commits import record, revive
from hansard.bus.errors import AppendUnknown, Conflict, Fenced, TooLarge
from hansard.bus.log import Append, EventLog, NotYet, Stored, appends_here
from hansard.bus.loggers import logger
from hansard.bus.portal import Arrival, own_task
from hansard.domain.errors import BadValue, Corrupt, HansardError
from hansard.domain.events import Actor, Commit, Event, Recorded
from hansard.domain.ids import StreamId
from hansard.domain.label import Label, join

_log = logger(__name__)

MERGE_BYTES_MAX = 192 * 1024
"""Most event data merged into one commit, in bytes: under the log's 256 KiB with its envelope."""

MERGE_EVENTS_MAX = 500
"""Most events merged into one commit: a reader folds a commit in one go."""

NOTIFIED_AT_ONCE = 8
"""So many of those who wait for one commit are told in one turn of the loop: where one loop serves
many, others go on in between."""


class Pending(Protocol):
    """A future of either kind: the loop resolves it, whoever asked waits for it."""

    def set_result(self, result: Any, /) -> None:
        """Give the answer."""

    def set_exception(self, exception: Any, /) -> None:
        """Give the error."""

    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        ...


Post = Callable[[Callable[[], None]], None]
"""Has something called on the loop, in the order of posting."""


class _Entry(msgspec.Struct):
    events: tuple[Recorded, ...]
    size: int
    done: Pending | None
    turn: asyncio.Future[None] | None = None
    """Done when the decision that waits for it may send; then there are no events."""
    label: Label | None = None
    sent: Append | None = None
    """The commit as it was tried already: it goes as it is, and alone."""
    tried_s: float | None = None
    """When that attempt began which may have stored it, by the monotonic clock."""
    merged: Sequence[_Entry] = ()
    """The other entries whose events are in that commit, too."""


def _size(recorded: Recorded) -> int:
    """The bytes that an event adds to a commit's body, at most."""
    return len(bytes(recorded.data)) + len(recorded.type) + 80


def _sum(recorded: Sequence[Recorded]) -> int:
    return sum(map(_size, recorded))


class Identity(msgspec.Struct, frozen=True):
    """What a writer puts on each commit besides its events."""

    actor: Actor
    epoch: int = 0
    correlation: str | None = None
    traceparent: str | None = None


PUT_IDS_MAX = 64
"""Decisions that are remembered as queued: one may be handed over again after an interruption."""


class HandOver:
    """A lock that a signal handler cannot enter while its own thread holds it: it gets an error, in
    place of waiting for itself.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def alone(self) -> threading.RLock:
        """Return the lock, to be entered by `with`: no exception of a signal handler can come
        between that and the block, as it could in a method of ours. Raises RuntimeError.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 -- as Condition asks
            message = (
                "a signal handler used a session that its thread is handing events over for: "
                "set a flag in the handler, and use the session after it"
            )
            raise RuntimeError(message)
        return self._lock


class Held:
    """The events of one decision that whoever waits for them is to send. Its `result` is that of a
    future, but that the wait does the work.
    """

    def __init__(self, writer: StreamWriter, entry: _Entry, done: Arrival) -> None:
        self.entry = entry
        self.done = done
        self.thread = 0
        """Who sends it."""
        self.sent: Append | None = None
        self.tried_s: float | None = None
        """As of an entry, which is given them when it is left to the loop and not before: once it
        is the loop's, they are not to change."""
        self._writer = writer

    def result(self) -> Any:
        """The Stored commit. Raises as the log's `append`. Whoever is interrupted here has it
        written all the same, as with what is written by the loop.
        """
        if not self.done.done():
            self._writer.send_held(self)
        return self.done.result()


class StreamWriter:
    """Appends to one stream in the order of `put`. `recorded`, `hold`, `post` and `send_held` are
    for any thread, the rest is for the loop's.

    After an error (fenced, unknown, unreachable, or one that nobody foresaw) the writer is over:
    `lost` says why, and every later `put` fails with it, because the versions it would claim are
    no longer its own. Whoever waits is told in every case. `label` is that of the newest commit:
    no commit has a lower one than those before it.
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
        """`written` is given each commit once it is acknowledged, in order, in any thread: it must
        be quick. `post` is for a writer that other threads use, too.
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
        """That of the decision which sends now."""
        self._sending: Append | None = None
        self._sent_s = 0.0
        self._here = appends_here(log)
        self._lock = HandOver()
        self._coming = 0
        """How much was posted to the loop and has not arrived there."""
        self._held: Held | None = None
        self._held_id = ""
        self._put_ids: deque[str] = deque(maxlen=PUT_IDS_MAX)
        """The first event of each of the last decisions that were left to a thread, or queued."""
        """What is to be sent by whoever waits for it, and is not yet."""
        self._holder: Held | None = None
        """What is being sent so."""

    def demand_free(self) -> None:
        """Raise RuntimeError in a signal handler that came while its thread hands something over:
        nothing may be decided that cannot be written.
        """
        with self._lock.alone():
            pass

    def recorded(self, event: Event) -> Recorded:
        """An event as it is stored, for `put`. From any thread.

        Raises BadValue for one that could not be read back, TooLarge for one that no commit holds.
        """
        try:
            made = record(event, self._clock.new_id())
            revive(made)
        except (Corrupt, TypeError, ValueError) as error:
            raise BadValue(event.tag, str(error), "give fields of the right type") from error
        if _size(made) > MERGE_BYTES_MAX:
            raise TooLarge(f"a {event.tag}", _size(made), MERGE_BYTES_MAX)
        return made

    def put(
        self,
        recorded: Sequence[Recorded],
        done: Pending | None,
        label: Label | None = None,
    ) -> None:
        """Queue the events of one decision; `done` gets the Stored commit or the error.

        A decision that no commit holds becomes several, in order; `done` is for the last.
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
        """Queue the events of a decision whose hand-over an exception of a signal handler cut off,
        unless they arrived.
        """
        if recorded[0].id != self._held_id and recorded[0].id not in self._put_ids:
            self.put(recorded, None, label=label)

    def hold(self, recorded: Sequence[Recorded], done: Arrival, label: Label | None) -> Held | None:
        """Leave the events of one decision to whoever waits for them; None where something else is
        to be written first, or the log cannot do that.
        """
        size = _sum(recorded)
        if self._here is None or size > MERGE_BYTES_MAX:
            return None
        with self._lock.alone():
            going = self._pump or self._turn or self._held or self._holder
            if self._coming or self._queue or going or self.lost is not None:
                return None
            held = Held(self, _Entry(tuple(recorded), size, done, label=label), done)
            # Two stores without a call: no signal handler runs between them.
            self._held_id = recorded[0].id
            self._held = held
            return held

    def post(self, put: Callable[[], None]) -> None:
        """Have `put` called on the loop, after what is held: the loop sends that, too."""
        with self._lock.alone():
            held, self._held = self._held, None
            # A thread that says something new sends nothing any more: it was interrupted.
            stopped = self._holder
            if stopped is not None and stopped.thread == threading.get_ident():
                self._holder = None
                self._leave(stopped)
            self._coming += 1

        def arrived() -> None:
            if held is not None and self.lost is None:
                self._enqueue(held.entry)
            elif held is not None and self.lost is not None:
                held.done.set_exception(self.lost)
            put()
            with self._lock.alone():
                self._coming -= 1

        self._post(arrived)

    def send_held(self, held: Held) -> None:
        """Send what is held, in this thread; or leave it to the loop, if it is the loop's by now,
        or the log cannot tell what came of it.
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
            # A signal handler may have said something in between: then the loop has the events, and
            # another commit of them, unless it was given this one.
            if self._holder is not held:
                return
            stored = self._here.append_here(sent)
            if stored is None:
                held.tried_s = None
        except AppendUnknown:
            pass
        except HansardError as error:
            lost = error
        finally:  # of anything else, as what a signal handler raises, the loop has the commit
            self._give_back(held, stored, lost)

    def _give_back(self, held: Held, stored: Stored | None, lost: Exception | None) -> None:
        """The loop may write again; also what was sent in vain, if it was."""
        with self._lock.alone():
            if self._holder is not held:
                return
            self._holder = None
            if stored is not None:
                self.label = stored.commit.label
                self._went_on(stored)
            elif lost is not None:
                self.lost = lost
            else:
                self._leave(held)
            waiting = bool(self._queue)
        if stored is not None:
            held.done.set_result(stored)
        elif lost is not None:
            self._log_lost(lost)
            held.done.set_exception(lost)
        if waiting:
            self._post(self._start)

    def _leave(self, held: Held) -> None:
        """Leave what was held to the loop, with the commit that may have been sent."""
        held.entry.sent, held.entry.tried_s = held.sent, held.tried_s
        self._queue.appendleft(held.entry)

    # ------------------------------------------------------------ decisions over several streams

    def take_turn(self) -> asyncio.Future[None]:
        """Queue a decision over several streams: the future is done when its turn has come, and
        fails with what the writer was lost to. From then on until `end_turn` it alone writes to
        this stream, by the methods below. Its last commit of the stream must have been stored.
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
        """Go on with what is queued, and give `done` the decision's result. A decision that failed
        or was cut off ends the writer.
        """
        if self._turn is turn:
            self._turn = None
        error = None if decision.cancelled() else decision.exception()
        if decision.cancelled() or not isinstance(error, Exception | None):
            error = self.lost = self._unknown()  # the loop ends, or a signal handler raised
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
        `stored` takes the ticket that sends it. After a lost race make another one.
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
        """Append a commit to another stream, provided that nobody goes on in this one until it is
        stored: a writer that was fenced cannot, however late what it sent arrives.

        Raises Fenced, and as the log's `append`: a Conflict over the other stream may be met with
        another commit.
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
                return  # who sends has the rest sent after it
        self._start()

    def _start(self) -> None:
        """Have what is queued sent."""
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
        """A loop that ends may cancel the pump before its first step: its `finally` never ran. An
        exception of a signal handler, which runs in whatever the loop does, ends the pump alone.
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
                except Exception as error:  # noqa: BLE001 -- told to whoever waits
                    self.lost = error
                    self._log_lost(error)
                    self._fail(batch)
                except asyncio.CancelledError:  # the loop ends
                    self.lost = self._unknown()
                    self._fail(batch)
                    raise
                except BaseException:  # of a signal handler
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
        """Have the next pump send what an exception cut off: the same commit, if there is one."""
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
        """The commit that is to be sent now. It changes nothing, so that it may be made in vain."""
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
        """Append a commit of this stream alone; `tried_s` as of its entry."""
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
        """A commit of the stream is stored. One that was sent again may be known to be."""
        if stored.commit.last_version <= self.version:
            return
        self.version = stored.commit.last_version
        if self._written is not None:
            self._written(stored)

    def _demand_mine(self, conflict: Conflict) -> None:
        """Raise Fenced where a race was lost to a later session of the agent, and Conflict over
        this stream where somebody else has gone on in it.
        """
        winner = conflict.winner
        if winner is None or winner.stream != self.stream:
            return
        if winner.commit.epoch > self.identity.epoch:
            raise Fenced(self.stream, self.identity.epoch, winner.commit.epoch) from conflict
        if conflict.stream != self.stream:
            raise Conflict(self.stream, self.version + 1, winner) from conflict

    def _log_lost(self, error: Exception) -> None:
        """Say that this writer writes no more, and whose stream it was."""
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
    """Tell those who wait for a commit; all of them, also where the loop ends."""
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
