"""Writing commits: conditions, conflicts, and retries after a missing answer.

A resend is safe because a subject accepts one message forever, and a condition that no longer holds
never holds again: whatever happens to an earlier attempt, the commit is stored at most once, and
the message on its subject shows whose it is.

Long because one loop of attempts, over conflicts, unknown outcomes and generations, is one concept.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import assert_never

import msgspec

from hansard.bus import subjects
from hansard.bus.acknowledged import acknowledged as log_acknowledged
from hansard.bus.commits import TRANSACTION_BYTES_MAX, enveloped, transactions, wholes
from hansard.bus.errors import (
    AppendUnknown,
    BrokerError,
    BusError,
    Conflict,
    NotWritable,
    ReadOnly,
    TooLarge,
    Unreachable,
)
from hansard.bus.jetstream.blocking import Blocking
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import (
    BATCH_MESSAGES_MAX,
    STREAM_NOT_FOUND,
    Direct,
    RetryBudget,
    publish,
    publish_all,
)
from hansard.bus.jetstream.generations import Messages, Open, View, newest_end, newest_of
from hansard.bus.jetstream.wire import (
    EXPECTED_SEQUENCE,
    EXPECTED_SUBJECT,
    FIRST,
    HEADER_LINE,
    ORIGIN,
    NoAnswer,
    NoResponders,
    NotSent,
    Rejected,
    Sealed,
    acknowledged,
    block,
)
from hansard.bus.log import (
    Append,
    Expected,
    LivesAt,
    NothingUnder,
    NotYet,
    Stored,
    StreamAt,
    VersionFree,
)
from hansard.bus.portal import own_task
from hansard.bus.sources import Message
from hansard.domain.ids import StreamId

# ---------------------------------------------------------------- sending
#
# On a server that syncs every message, each ack costs an fsync; an atomic batch costs about 4 ms
# and one fsync whatever its size. So a few callers publish in parallel, and many share a batch.

SEALED_ENDS_MAX = 10_000
"""Most streams of which the newest version in sealed generations is remembered; then all are
looked up again.
"""

FINISH_AFTER_S = 1.0
"""Time that a writer waits for the next generation before it opens it itself, in seconds."""

EXPECT_NOTHING = 0
"""Condition in the open generation for what is in a sealed one."""

SINGLES_MAX = 8
"""Most single publishes in flight in strict mode: the server syncs them one after the other anyway.
"""

GROUP_MIN = 16
"""Fewest waiting commits sent as a batch: 16 fsyncs against one plus the batch's own cost."""

GROUP_WHOLE_MAX = 128
"""Up to this many waiting commits go together, of more only half: while the server commits those,
the next ones are encoded here (256 callers: 27,000 commits/s instead of 19,000).
"""

GROUP_MAX = 512
GROUP_BYTES_MAX = 4 * 1024 * 1024
"""Largest batch, in bytes: about 12 ms, and half of what the connection buffers."""


class _Waiting(msgspec.Struct):
    open: Open
    subject: str
    body: bytes
    future: asyncio.Future[int | None]


class Committer:
    """Publishes commits of one process to a log. Callers outside use only `send`."""

    def __init__(self, broker: Broker, *, group: bool) -> None:
        self._broker = broker
        self._group = group
        self._waiting: deque[_Waiting] = deque()
        self._singles = 0
        self._batch: asyncio.Task[None] | None = None
        self._scheduled = False
        self._crowded = False

    async def send(self, open_: Open, subject: str, body: bytes, headers: bytes) -> int:
        """Publish one commit once to a generation, under the subject there; return its position.

        Raises Rejected (nothing stored), NoAnswer (unknown), NoResponders. Cancelling it leaves the
        outcome unknown; other commits are not affected.
        """
        if not self._group or headers is not FIRST:
            return (await publish(self._broker, subject, body, headers, open_.known)).seq
        if self._singles >= SINGLES_MAX or self._waiting or self._crowded:
            position = await self._queue(open_, subject, body)
            if position is not None:
                return position
        else:
            self._singles += 1
        try:
            return (await publish(self._broker, subject, body, headers, open_.known)).seq
        finally:
            self._singles -= 1
            if self._waiting:
                self._schedule()

    async def _queue(self, open_: Open, subject: str, body: bytes) -> int | None:
        """Wait for a place in a batch (returns a position) or a turn to send alone (None: one of
        `_singles`).
        """
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(open_, subject, body, future))
        self._schedule()
        try:
            return await future
        except asyncio.CancelledError:
            value = future.done() and not future.cancelled() and future.exception() is None
            if value and future.result() is None:  # return the turn that was granted
                self._singles -= 1
                self._schedule()
            raise

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Assign the waiting commits to batches or single turns. Runs one turn of the loop after
        the first one arrived, since the callers of a finished batch return together.
        """
        self._scheduled = False
        while self._waiting and self._waiting[0].future.done():
            self._waiting.popleft()
        if self._batch is not None:
            return
        if len(self._waiting) >= GROUP_MIN:
            self._crowded = True
            self._batch = own_task(self._send_groups())
            return
        self._crowded = False
        while self._waiting and self._singles < SINGLES_MAX:
            self._grant_turn(self._waiting.popleft())

    def _grant_turn(self, entry: _Waiting) -> None:
        if not entry.future.done():
            self._singles += 1
            entry.future.set_result(None)

    def _take(self) -> list[_Waiting]:
        """Take the commits for the next batch, all for one generation of the log: at most one per
        stream, or the batch would fail.
        """
        most = min(GROUP_MAX, max(GROUP_WHOLE_MAX, len(self._waiting) // 2))
        group: list[_Waiting] = []
        later: list[_Waiting] = []
        streams: set[str] = set()
        size = 0
        while self._waiting and len(group) < most and size < GROUP_BYTES_MAX:
            entry = self._waiting.popleft()
            if entry.future.done():
                continue
            stream = entry.subject.rpartition(".")[0]
            if stream in streams or (group and entry.open is not group[0].open):
                later.append(entry)
                continue
            streams.add(stream)
            size += len(entry.body)
            group.append(entry)
        self._waiting.extendleft(reversed(later))
        return group

    async def _send_groups(self) -> None:
        """Send groups one after the other while enough commits wait. The next group is handed to
        the socket before the callers of the last one wake, since their next step takes time.
        """
        group = self._take()
        settle: Callable[[], None] | None = None
        try:
            while group:
                messages = [(entry.subject, entry.body, FIRST) for entry in group]
                known = group[0].open.known
                sending = own_task(publish_all(self._broker, messages, known))
                await asyncio.sleep(0)
                if settle is not None:
                    settle()
                await asyncio.wait({sending})
                settle = partial(self._settle, group, sending)
                group = self._take() if len(self._waiting) >= GROUP_MIN else []
        finally:
            if settle is not None:
                settle()
            self._batch = None
            self._schedule()

    def _settle(self, group: list[_Waiting], sent: asyncio.Task[int]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or (error is not None and not isinstance(error, Rejected)):
            for entry in group:
                if not entry.future.done():
                    entry.future.set_exception(NoAnswer(f"a batch of commits: {error!r}"))
        elif error is not None:  # one of them lost a race: send each alone
            for entry in group:
                self._grant_turn(entry)
        else:
            for position, entry in enumerate(group, sent.result()):
                if not entry.future.done():
                    entry.future.set_result(position)

    async def close(self) -> None:
        """Wait for the batch in flight."""
        if self._batch is not None:
            await asyncio.wait({self._batch})


class AppendTimes:
    """How long the appends of this process took until their acknowledgement."""

    BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
    """Upper bounds of the counted ranges, in seconds; one more range has no bound."""

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count an append; those of one batch count once."""
        self.counts[bisect_left(self.BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


APPEND_TIMES = AppendTimes()

_MOVED = (Sealed, NoResponders)
"""Errors of a publish to a generation that is not the open one, or of a server that starts."""


class _Entry(msgspec.Struct):
    append: Append
    subject: str
    body: bytes
    headers: bytes


_Refusal = Rejected | BrokerError
"""An attempt that stored nothing; an earlier attempt may have. A BrokerError means that the login
may not write there.
"""


class _Attempts:
    """Decides how long a write is retried, and which error ends it."""

    def __init__(self, broker: Broker, entry: _Entry, began: float | None = None) -> None:
        self._budget = RetryBudget(broker, began)
        self._entry = entry
        self.unknown = False

    @property
    def waited_s(self) -> float:
        """Time since the first attempt, in seconds."""
        return self._budget.waited_s

    async def again(self, error: NoAnswer | _Refusal) -> None:
        """Return when it is time to send again. Raises AppendUnknown, Unreachable, BrokerError,
        StoreGone.
        """
        self.unknown = self.unknown or not isinstance(error, (NotSent, Rejected, BrokerError))
        try:
            await self._budget.again(error)
        except Unreachable as unreachable:
            raise self._final_error(error, unreachable) from error

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Turn errors of a look at what earlier attempts stored into AppendUnknown, if the outcome
        of one of them is unknown.
        """
        try:
            yield
        except (BrokerError, Unreachable) as error:
            if not self.unknown:
                raise
            raise self._in_doubt(str(error)) from error

    def _in_doubt(self, why: str = "") -> AppendUnknown:
        append, waited_s = self._entry.append, self._budget.waited_s
        commit = append.commit
        return AppendUnknown(append.stream, commit.version, commit.id, waited_s, why)

    def _final_error(self, error: NoAnswer | _Refusal, unreachable: Unreachable) -> BusError:
        if self.unknown:
            return self._in_doubt(str(unreachable) if isinstance(unreachable, NotWritable) else "")
        if isinstance(error, _Refusal) and not isinstance(unreachable, NotWritable):
            return _refused(self._entry, error)
        return unreachable


class Appender:
    """The writing half of a `JetStreamLog`."""

    _decode: Callable[[Message], Stored]
    """Decodes a message as readers get it; defined by the reading half."""

    def __init__(self, workspace: str, writes: Broker, messages: Messages, *, group: bool) -> None:
        """`group`: waiting commits share batches (see `Committer`)."""
        self._workspace = workspace
        self._writes = writes
        self._generations = messages.generations
        self._points = Direct(writes, messages.direct.known)
        self._direct = messages.direct
        self._committer = Committer(writes, group=group)
        self._finishing: asyncio.Task[None] | None = None
        self._held = ""
        """The stream whose files the embedded server's host watches."""
        self._sealed_ends: dict[tuple[int, StreamId], int] = {}  # read by any thread
        self._blocking = Blocking(writes)

    async def _sound(self) -> None:
        """Wait until the log is known to be undamaged. Raises Corrupt, BusError."""

    def append_here(self, append: Append) -> Stored | None:
        """See `AppendsHere.append_here`."""
        entry, view = self._entry(append), self._generations.view
        opened = view.open
        if entry.headers is not FIRST or opened is None or view.home:
            return None
        if view.older:
            end = self._sealed_ends.get((opened.number, append.stream))
            if end is None or append.commit.version <= end:
                return None
        began = time.monotonic()
        above = opened.known.position
        subject = opened.subject(entry.subject)
        try:
            answer = self._blocking.publish(subject, entry.body, entry.headers)
            if answer is None:
                return None
            position = acknowledged(answer, above, opened.known.domain).seq
            opened.known.claim(position)
        except (Rejected, NotSent):
            return None  # the loop gets the same error, and handles it
        except NoAnswer as error:
            commit, waited_s = append.commit, time.monotonic() - began
            raise AppendUnknown(append.stream, commit.version, commit.id, waited_s) from error
        APPEND_TIMES.add(time.monotonic() - began)
        return self._logged(self._stored(position, [entry], opened))[0]

    async def append(self, append: Append) -> Stored:
        """Append one commit. The returned `stamp` is 0: an acknowledgement does not carry it."""
        await self._sound()
        return (await self._store([self._entry(append)]))[0]

    async def append_again(self, append: Append, tried_s: float) -> Stored:
        """See `AppendsHere.append_again`."""
        await self._sound()
        return (await self._store([self._entry(append)], tried_s))[0]

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append to several streams, all or none. About 4 ms, whatever the number."""
        return list(chain.from_iterable(await self.append_groups([appends])))

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """See `EventLog.append_groups`: one atomic batch."""
        await self._sound()
        entries = self._batch(transactions(groups))
        stored = iter(await self._store(entries) if entries else ())
        return [list(islice(stored, len(group))) for group in groups]

    async def _store(self, entries: list[_Entry], tried_s: float | None = None) -> list[Stored]:
        """Store one commit, or several in one batch; `tried_s` is the start of an earlier attempt
        that may have stored them.
        """
        began = tried_s if tried_s is not None else time.monotonic()
        attempts: _Attempts | None = None
        if tried_s is not None:
            attempts = _Attempts(self._writes, entries[0], began)
            attempts.unknown = True
        opened: Open | None = None
        while True:
            try:
                opened, sealed = await self._cleared(entries, attempts)
                if sealed:
                    return self._logged(_settled(entries, sealed))
                first = await self._send(entries, opened)
            except _MOVED as error:
                attempts = attempts or _Attempts(self._writes, entries[0], began)
                await attempts.again(await self._moved(error, attempts))
            except (Rejected, BrokerError) as error:
                attempts = attempts or _Attempts(self._writes, entries[0], began)
                if opened is None:
                    raise
                with attempts.looking():
                    existing = await self._judge(entries, error, opened, unknown=attempts.unknown)
                if existing is not None:
                    return self._logged(existing)
                await attempts.again(error)
            except NoAnswer as error:
                attempts = attempts or _Attempts(self._writes, entries[0], began)
                await attempts.again(error)
            else:
                APPEND_TIMES.add(time.monotonic() - began)
                return self._logged(self._stored(first, entries, opened))

    async def _send(self, entries: list[_Entry], opened: Open) -> int:
        """Send one commit, or several in one batch; return the first position."""
        messages = [
            (opened.subject(entry.subject), entry.body, self._headers_in(opened, entry))
            for entry in entries
        ]
        if len(messages) == 1:
            return await self._committer.send(opened, *messages[0])
        return await publish_all(self._writes, messages, opened.known)

    # ------------------------------------------------------------ generations

    async def _cleared(
        self, entries: Sequence[_Entry], attempts: _Attempts | None
    ) -> tuple[Open, dict[str, Stored]]:
        """Return the open generation, and what sealed ones hold on the subjects of some commits.

        A sealed generation is final: what it does not hold was never written there. So after this
        the open one alone decides. Raises Conflict for a condition that does not hold, Sealed if no
        generation is open now.
        """
        view = self._generations.view
        if view.open is not None and not view.older and not view.home:
            return view.open, {}
        sealed: dict[str, Stored] = {}
        with attempts.looking() if attempts is not None else contextlib.nullcontext():
            view = view if view.home else await self._generations.current()
            opened = view.open
            if view.home:
                fact = f"its home is region {view.home!r} now: open the record again to write there"
                raise BrokerError(f"appending to {self._workspace!r}", 0, fact)
            if opened is None:
                raise Sealed
            try:
                for entry in entries:
                    stored = await self._in_sealed(view, opened, entry)
                    if stored is not None:
                        sealed[entry.subject] = stored
                    else:
                        await self._check(entry, view, opened)
            except BrokerError as error:
                if error.code != STREAM_NOT_FOUND:
                    raise
                raise NoResponders(opened.stream) from error  # one was deleted: look again
        return opened, sealed

    async def _in_sealed(self, view: View, opened: Open, entry: _Entry) -> Stored | None:
        """Return the commit of sealed generations at the version of another, if there is one. The
        newest version there is looked up once a stream.
        """
        append, key = entry.append, (opened.number, entry.append.stream)
        pattern = f"{subjects.prefix(self._workspace, append.stream)}.*"
        end = self._sealed_ends.get(key)
        if end is None:
            newest = await newest_end(view.older, pattern)
            end = newest.version if newest is not None else 0
            if len(self._sealed_ends) >= SEALED_ENDS_MAX:
                self._sealed_ends = {}
            self._sealed_ends[key] = end
        if append.commit.version > end:
            return None
        message = await newest_of(view.older, entry.subject)
        if message is None:  # inside a commit of several events: its newest is the winner
            message = await newest_of(view.older, pattern)
        return self._decode(message) if message is not None else None

    async def _moved(self, error: NoAnswer | Rejected, attempts: _Attempts) -> NoAnswer | Rejected:
        """Look for the next generation, and return the error to report if there is none in time. A
        roll that was interrupted is finished after a moment.
        """
        self._generations.suspect()
        with contextlib.suppress(BusError):
            view = await self._generations.current()
            if view.open is not None and view.open.stream != self._held:
                self._release()  # a client that never read had no notice of the roll
            closed = view.open is None or isinstance(error, NoResponders)
            late = closed and attempts.waited_s >= FINISH_AFTER_S
            if late and (self._finishing is None or self._finishing.done()):
                self._finishing = own_task(self._finish_roll())
        return error if isinstance(error, NoResponders) else Sealed()

    async def _finish_roll(self) -> None:
        """Open the next generation, if this client may. Raises nothing."""

    def _release(self) -> None:
        """Stop watching the files of a generation that was sealed: they are deleted in time."""
        host, held = self._writes.options.host, self._held
        if host is not None and held:
            self._held = ""
            host.release(held)

    def _headers_in(self, opened: Open, entry: _Entry) -> bytes:
        """Return an entry's headers in a generation: of what is in sealed ones it holds nothing."""
        expected = entry.append.expected
        if isinstance(expected, StreamAt | LivesAt) and 0 < expected.position < opened.first:
            return self._rendered(entry.append, EXPECT_NOTHING)
        return entry.headers

    def _stored(self, first: int, entries: list[_Entry], opened: Open) -> list[Stored]:
        """Return the acknowledged commits, without a time: an acknowledgement carries none. From
        now on every read reaches them. Raises StoreGone if the server's files are gone.
        """
        host = self._writes.options.host
        if host is not None:
            if self._held != opened.stream:
                self._release()
                host.hold(opened.stream)
                self._held = opened.stream
            host.check(opened.stream)
        last = entries[-1]
        opened.known.reach(first + len(entries) - 1, last.subject, len(last.body))
        return [
            Stored(
                position,
                0,
                entry.append.stream,
                entry.append.commit,
                entry.body,
                entry.append.copied.origin if entry.append.copied is not None else None,
            )
            for position, entry in enumerate(entries, first)
        ]

    def _logged(self, commits: list[Stored]) -> list[Stored]:
        for stored in commits:
            log_acknowledged(self._workspace, stored)
        return commits

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """See `EventLog.append_bulk`. A batch is encoded while the previous one is in flight."""
        await self._sound()
        new = 0
        sending: asyncio.Task[int] | None = None
        try:
            for batch in self._batches(appends):
                if sending is not None:
                    new += await sending
                sending = asyncio.get_running_loop().create_task(self._bulk(batch))
                await asyncio.sleep(0)
        finally:
            # Also if the next batch could not be encoded: the one in flight has an outcome.
            if sending is not None:
                new += await sending
        return new

    # ------------------------------------------------------------ one message

    def _entry(self, append: Append) -> _Entry:
        if self._writes.options.copy_of is not None:
            raise ReadOnly(self._writes.options.copy_of)
        append, body = enveloped(append)
        subject = f"{subjects.prefix(self._workspace, append.stream)}.{append.commit.version}"
        return _Entry(append, subject, body, self._rendered(append))

    def _rendered(self, append: Append, position: int | None = None) -> bytes:
        """Return the headers of an append; `position` replaces that of its condition."""
        headers = self._headers(append.expected, position)
        if append.copied is not None:
            fields = msgspec.json.encode(append.copied.origin).decode()
            headers = headers[:-2] + block({ORIGIN: fields})[len(HEADER_LINE) :]
        return headers

    def _headers(self, expected: Expected, instead: int | None) -> bytes:
        match expected:
            case VersionFree():
                return FIRST
            case NothingUnder() | NotYet():
                return block({EXPECTED_SEQUENCE: "0", EXPECTED_SUBJECT: self._watched(expected)})
            case StreamAt(_, position) | LivesAt(position):
                target = str(position if instead is None else instead)
                watched = self._watched(expected)
                return block({EXPECTED_SEQUENCE: target, EXPECTED_SUBJECT: watched})
            case _:
                assert_never(expected)

    def _watched(self, expected: NothingUnder | StreamAt | NotYet | LivesAt) -> str:
        """Return the subjects that a condition refers to."""
        match expected:
            case NothingUnder(run, agent):
                return subjects.any_role(self._workspace, run, agent)
            case StreamAt(stream, _):
                return f"{subjects.prefix(self._workspace, stream)}.*"
            case NotYet(stream, version):
                return f"{subjects.prefix(self._workspace, stream)}.{version}"
            case LivesAt():
                return subjects.all_lives(self._workspace)
            case _:
                assert_never(expected)

    async def _check(
        self, entry: _Entry, view: View, opened: Open, error: _Refusal | None = None
    ) -> None:
        """Raise Conflict if an append's condition does not hold: in all generations after the
        `error` of an attempt, else in the sealed ones.
        """
        expected = entry.append.expected
        if isinstance(expected, VersionFree):
            return
        target = expected.position if isinstance(expected, StreamAt | LivesAt) else 0
        pattern, newest = self._watched(expected), None
        if error is not None:
            try:
                newest = await self._points.last(opened.stream, pattern)
            except NoResponders:
                return  # it was archived meanwhile: the next attempt finds out
        elif target >= opened.first:
            return
        end = newest or await newest_end(view.older, pattern)
        if (end.position if end else 0) != target:
            newest = newest or await newest_of(view.older, pattern)
            winner = self._decode(newest) if newest else None
            raise _conflict(entry.append, winner) from error

    # ------------------------------------------------------------ several messages

    def _batch(self, appends: Sequence[Append]) -> list[_Entry]:
        entries = [self._entry(each) for each in _with_single_conditions(appends)]
        size = sum(len(entry.body) for entry in entries)
        if size > TRANSACTION_BYTES_MAX:
            raise TooLarge("a transaction", size, TRANSACTION_BYTES_MAX)
        return entries

    async def _existing(
        self, entries: list[_Entry], error: _Refusal, opened: Open, *, unknown: bool
    ) -> dict[str, Stored]:
        """Return the commits on the subjects of rejected ones. Raises BrokerError for a final
        rejection, unless an earlier attempt may have stored them (`unknown`).
        """
        if _is_final(error) and not unknown:
            raise _refused(entries[0], error) from error
        names = [entry.subject for entry in entries]
        try:
            if len(names) == 1:
                message = await self._points.last(opened.stream, names[0])
                messages = [message] if message is not None else []
            else:
                messages = await self._direct.named(opened.stream, names)
        except NoResponders:
            return {}  # it was archived meanwhile: the next attempt finds out
        return {message.subject: self._decode(message) for message in messages}

    async def _judge(
        self, entries: list[_Entry], error: _Refusal, opened: Open, *, unknown: bool
    ) -> list[Stored] | None:
        """Return the same stored of an earlier attempt; None if nothing explains the rejection
        (yet). `unknown`: an earlier attempt may have stored them.

        Raises Conflict for the first that lost, or BrokerError for a final rejection.
        """
        stored = await self._existing(entries, error, opened, unknown=unknown)
        own = [
            stored[entry.subject]
            for entry in entries
            if entry.subject in stored and stored[entry.subject].commit.id == entry.append.commit.id
        ]
        if len(own) == len(entries):
            return own
        for entry in entries:
            if entry.subject in stored:
                raise _conflict(entry.append, stored[entry.subject]) from error
            if not _is_final(error):
                await self._check(entry, self._generations.view, opened, error)
        if _is_final(error):
            raise _refused(entries[0], error) from error
        return None

    def _batches(self, appends: Iterable[Append]) -> Iterable[list[_Entry]]:
        batch: list[_Entry] = []
        size = 0
        for whole in wholes(appends):
            entries = [self._entry(append) for append in whole]
            more = sum(len(entry.body) for entry in entries)
            full = len(batch) + len(entries) > BATCH_MESSAGES_MAX
            if batch and (full or size + more > TRANSACTION_BYTES_MAX):
                yield batch
                batch, size = [], 0
            batch += entries
            size += more
        if batch:
            yield batch

    async def _bulk(self, entries: list[_Entry]) -> int:
        """Store those commits of a batch that are not stored yet; return how many were new."""
        attempts = _Attempts(self._writes, entries[0])
        opened: Open | None = None
        lost: Conflict | None = None
        missing, new = entries, len(entries)
        while missing:
            try:
                opened, sealed = await self._cleared(missing, attempts)
                if sealed:
                    missing, lost = await self._missing(missing, sealed, lost)
                    new = new if attempts.unknown else len(missing)
                    continue
                first = await self._send(missing, opened)
            except Conflict as conflict:  # a condition on what sealed generations hold
                of = (conflict.stream, conflict.version)
                keys = [(each.append.stream, each.append.commit.version) for each in missing]
                index, lost = keys.index(of), conflict
                missing = _before(missing[:index], missing[index])
                new = new if attempts.unknown else len(missing)
            except _MOVED as error:
                await attempts.again(await self._moved(error, attempts))
            except (Rejected, BrokerError) as error:
                if opened is None:
                    raise
                with attempts.looking():
                    commits = await self._existing(missing, error, opened, unknown=attempts.unknown)
                    missing, lost = await self._missing(missing, commits, lost, error, opened)
                if not attempts.unknown:
                    new = len(missing)
                if missing:
                    await attempts.again(error)
            except NoAnswer as error:
                await attempts.again(error)
            else:
                self._stored(first, missing, opened)
                break
        if lost is not None:
            raise lost
        return new

    async def _missing(
        self,
        entries: list[_Entry],
        commits: dict[str, Stored],
        lost: Conflict | None,
        error: _Refusal | None = None,
        opened: Open | None = None,
    ) -> tuple[list[_Entry], Conflict | None]:
        """Return the commits still to be stored, given those on their subjects, up to the first
        that cannot be, and its Conflict. `error` is that of an attempt, in a generation.

        Raises BrokerError if some are missing and the rejection is final.
        """
        missing: list[_Entry] = []
        for entry in entries:
            existing = commits.get(entry.subject)
            if existing is None:
                if error is not None and _is_final(error):
                    raise _refused(entries[0], error) from error
                try:
                    if error is not None and opened is not None:
                        await self._check(entry, self._generations.view, opened, error)
                except Conflict as conflict:
                    return _before(missing, entry), conflict
                missing.append(entry)
            elif existing.commit.id != entry.append.commit.id:
                return _before(missing, entry), _conflict(entry.append, existing)
        return missing, lost


def _settled(entries: Sequence[_Entry], sealed: dict[str, Stored]) -> list[Stored]:
    """Return commits that an earlier attempt stored. Raises Conflict for the first that lost."""
    for entry in entries:
        stored = sealed.get(entry.subject)
        if stored is not None and stored.commit.id != entry.append.commit.id:
            raise _conflict(entry.append, stored)
    if len(sealed) < len(entries):  # a transaction is in one generation, so it is not this one
        entry = next(each for each in entries if each.subject in sealed)
        raise _conflict(entry.append, sealed[entry.subject])
    return [sealed[entry.subject] for entry in entries]


def _with_single_conditions(appends: Sequence[Append]) -> list[Append]:
    """Return appends that share a batch, with each `NotYet` only once: the server takes no second
    condition on a subject, and one holds for the whole batch.
    """
    names: set[NotYet] = set()
    single: list[Append] = []
    for each in appends:
        expected = each.expected
        if isinstance(expected, NotYet) and expected in names:
            single.append(msgspec.structs.replace(each, expected=VersionFree()))
            continue
        if isinstance(expected, NotYet):
            names.add(expected)
        single.append(each)
    return single


def _before(entries: list[_Entry], lost: _Entry) -> list[_Entry]:
    """Return the entries before a commit that lost, without those of its own transaction."""
    tx = lost.append.commit.tx
    while entries and tx is not None:
        before = entries[-1].append.commit.tx
        if before is None or before.id != tx.id:
            break
        entries = entries[:-1]
    return entries


def _is_final(error: _Refusal) -> bool:
    """Return whether the same message would be rejected again."""
    return not (isinstance(error, Rejected) and error.passing)


def _conflict(append: Append, winner: Stored | None) -> Conflict:
    return Conflict(append.stream, append.commit.version, winner)


def _refused(entry: _Entry, error: _Refusal) -> BrokerError:
    return BrokerError(f"appending to {entry.append.stream}", error.code, error.description)
