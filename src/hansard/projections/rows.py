"""Rows from messages of the log: one per event, in the order of the log.

A message that is no commit, or does not fit its place (`hansard.bus.reads`), becomes a
problem; an event whose data does not fit its type becomes a row and a problem; an event of a type
unknown to this version becomes a row. None of them stops the projector.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import msgspec

from hansard.bus.commits import TRANSACTION_COMMITS_MAX, decode, record, revive
from hansard.bus.log import Origin, RawMessage
from hansard.bus.marks import link
from hansard.bus.reads import Fault, InFull
from hansard.domain.choices import claimed_time
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import Commit, Recorded
from hansard.domain.ids import AgentStream, StreamId, WorkspaceStream, run_of
from hansard.domain.integrity import Fold, may_hold

# Rows as Arrow, which DuckDB reads at once. nanoarrow is slow to import, so it is imported for the
# first rows: most processes only read tables.


class Shape:
    """The kind of each column of the rows."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns

    @cached_property
    def schema(self) -> Any:
        """The schema in Arrow."""
        import nanoarrow as na  # noqa: PLC0415 -- it takes a while

        return na.struct({name: _kind(na, kind) for name, kind in self._columns.items()})

    def chunk(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        """Build one Arrow record batch of rows, at least one."""
        import nanoarrow as na  # noqa: PLC0415 -- it takes a while

        columns = zip(*rows, strict=True)
        arrays = [
            _array(na, kind, values)
            for kind, values in zip(self._columns.values(), columns, strict=True)
        ]
        return na.c_array_from_buffers(self.schema, len(rows), [None], children=arrays)

    def table(self, chunks: Sequence[Any]) -> Any:
        """Join record batches to one table."""
        import nanoarrow as na  # noqa: PLC0415 -- it takes a while

        return na.Array.from_chunks(chunks)


def _kind(na: Any, kind: str) -> Any:
    match kind:
        case "integer":
            return na.int64()
        case "time":
            return na.timestamp("us")
        case "text":
            return na.string()
        case _:
            return na.list_(na.string())


def _array(na: Any, kind: str, values: tuple[Any, ...]) -> Any:
    """Build a column."""
    if kind == "text":
        return na.c_array(values, _kind(na, kind))
    if kind == "texts":
        texts = na.c_array(chain.from_iterable(each or () for each in values), _kind(na, "text"))
        ends = accumulate((len(each or ()) for each in values), initial=0)
        items = [_validity(na, values), na.c_buffer(ends, na.int32())]
        return na.c_array_from_buffers(_kind(na, kind), len(values), items, children=[texts])
    numbers = array("q", (each or 0 for each in values) if None in values else values)
    buffers = [_validity(na, values), numbers]
    return na.c_array_from_buffers(_kind(na, kind), len(values), buffers)


def _validity(na: Any, values: tuple[Any, ...]) -> Any:
    """Build the validity bitmap; None if there is no NULL."""
    if None not in values:
        return None
    return na.c_buffer([each is not None for each in values], na.bool_())


EVENT_BITS = 16
"""Factor between a position and an event's ordinal: a message of a megabyte holds fewer than 65,536
events.
"""

INTEGER_MAX = 2**63 - 1
"""The largest number that a column holds."""

COLUMNS = {
    "position": "integer",
    "event_index": "integer",
    "id": "text",
    "type": "text",
    "stream": "text",
    "run": "text",
    "agent": "text",
    "role": "text",
    "version": "integer",
    "happened_at": "time",
    "logged_at": "time",
    "written_at": "time",
    "occurred_at": "text",
    "actor": "text",
    "on_behalf_of": "texts",
    "epoch": "integer",
    "commit_id": "text",
    "causation": "text",
    "correlation": "text",
    "traceparent": "text",
    "tx": "text",
    "origin_log": "text",
    "origin_position": "integer",
    "data": "text",
    "known_as": "text",
    "lifted": "text",
    "lasting": "text",
    "label": "text",
    "ordinal": "integer",
}
"""A row's values, in the order of the columns (a time is in us since 1970).

`known_as` is the tag under which tables take the event, None if they do not; `lifted` its data
upcast from an old version; `lasting` the id of a stream that outlives runs; `label` its commit's;
`ordinal` its number in the whole log.
"""

POSITION = list(COLUMNS).index("position")
KNOWN_AS = list(COLUMNS).index("known_as")
RUN = list(COLUMNS).index("run")
LABEL = list(COLUMNS).index("label")
SHAPE = Shape(COLUMNS)

CHUNK_ROWS = 4_096
"""Number of rows converted to Arrow at once, while DuckDB writes the previous batch."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

PART_ROWS = 128
"""Number of rows after which a part of a batch ends; parts are retried if a row is bad."""

Row = tuple[Any, ...]


class End(msgspec.Struct, frozen=True):
    """The end of a range of messages; `messages` and `chain` are the number of messages up to it
    and their rolling digest.
    """

    last: RawMessage
    messages: int = 0
    chain: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """A message or event that is malformed; `event_index` is None if the message is no commit."""

    position: int
    event_index: int | None
    subject: str
    reason: str


class Batch(msgspec.Struct):
    """The rows and problems of some messages, whole transactions only, and their end.

    `chunks` are the rows as Arrow; `messages` and `chain` as in End. `ends` are the places where it
    may be split to find bad rows: about PART_ROWS apart, and never inside a transaction.
    """

    rows: list[Row]
    chunks: list[Any]
    problems: list[Problem]
    last: RawMessage
    messages: int = 0
    chain: str | None = None
    ends: list[End] = []

    @property
    def position(self) -> int:
        """The last position of the batch."""
        return self.last.position


class Rows:
    """Takes messages in order. Those of a transaction are held until it is complete."""

    def __init__(
        self,
        after: int = 0,
        integrity: Fold | None = None,
        messages: int = 0,
        chain: str | None = None,
        *,
        in_full: InFull | None = None,
    ) -> None:
        """Create a reader of messages.

        `integrity` decides which commits do not fit; without it, all do that can be decoded.
        `messages` and `chain` are those up to `after`; without a chain none is computed. `in_full`
        expands values that refer to earlier ones, and must have read each message before.
        """
        self._after = after
        self._messages = messages
        self._linked = chain
        self._integrity = integrity
        self._in_full = in_full
        self._grown = 0
        self._held: list[tuple[RawMessage, StreamId, Commit]] = []
        self._clear()

    def __len__(self) -> int:
        return len(self._rows) + len(self._problems)

    @property
    def position(self) -> int:
        """The newest position taken."""
        return self._after

    def _clear(self) -> None:
        self._rows: list[Row] = []
        self._problems: list[Problem] = []
        self._chunks: list[Any] = []
        self._chunked = 0
        self._last: RawMessage | None = None
        self._ends: list[End] = []
        self._cut_at = PART_ROWS

    def add(self, message: RawMessage) -> None:
        """Take one message. One taken before is skipped."""
        if message.position <= self._after:
            return
        self._after = message.position
        if len(self._rows) >= self._cut_at and self._last is not None:
            self._ends.append(End(self._last, self._messages, self._linked))
            self._cut_at = len(self._rows) + PART_ROWS
        decoded: tuple[StreamId, Commit] | None = None
        reason = ""
        try:
            if message.fault is not None:
                raise message.fault
            decoded = decode(message.subject, message.body)
        except Corrupt as error:
            reason = error.fact
        tx = decoded[1].tx if decoded is not None else None
        if self._held:
            open_ = self._held[0][2].tx
            if tx is None or open_ is None or tx.id != open_.id:
                self._release()  # the rest of it is lost
        if decoded is None:
            self._refuse(message, reason)
            return
        if tx is None:
            self._place(message, *decoded)
            return
        self._held.append((message, *decoded))
        if tx.index + 1 >= tx.count or len(self._held) >= TRANSACTION_COMMITS_MAX:
            self._release()

    def take(self) -> Batch | None:
        """Take the complete commits as a batch; None if there are none."""
        if self._last is None:
            return None
        self._chunk()
        batch = Batch(
            self._rows,
            self._chunks,
            self._problems,
            self._last,
            self._messages,
            self._linked,
            self._ends,
        )
        self._clear()
        return batch

    def grown(self) -> int:
        """Return the bytes by which expanded values exceed what was added since the last call."""
        grown, self._grown = self._grown, 0
        return grown

    def _chunk(self) -> None:
        if len(self._rows) > self._chunked:
            self._chunks.append(SHAPE.chunk(self._rows[self._chunked :]))
            self._chunked = len(self._rows)

    def _release(self) -> None:
        held, self._held = self._held, []
        for each in held:
            self._place(*each)

    def _place(self, message: RawMessage, stream: StreamId, commit: Commit) -> None:
        """Add a commit to the rows, unless it does not fit its place."""
        why = self._integrity.misfit(stream, commit) if self._integrity is not None else ""
        if why:
            self._refuse(message, why)
            return
        if self._in_full is not None:
            whole, faults = self._in_full.commit(stream, commit)
            if whole is not commit:
                self._grown += _size(whole) - _size(commit)
                commit = whole
            for fault in faults:
                self._damaged(message, fault)
        self._put(message, stream, commit)

    def _damaged(self, message: RawMessage, fault: Fault) -> None:
        """Report that a value cannot be expanded; its row keeps the references."""
        problem = Problem(message.position, fault.index, message.subject, fault.reason)
        self._problems.append(problem)

    def _end(self, message: RawMessage) -> None:
        """Note a message as the last one."""
        self._last = message
        if self._linked is not None:
            self._messages += 1
            self._linked = link(self._linked, message.position, message.subject, message.body)

    def _refuse(self, message: RawMessage, reason: str) -> None:
        self._end(message)
        self._problems.append(Problem(message.position, None, message.subject, reason))

    def _put(self, message: RawMessage, stream: StreamId, commit: Commit) -> None:
        try:
            items = [str(recorded.data, "utf-8") for recorded in commit.events]
        except UnicodeDecodeError as error:
            self._refuse(message, f"its data is not UTF-8 ({error})")
            return
        origin = message.origin
        numbers = (commit.last_version, abs(commit.epoch), origin.position if origin else 0)
        if max(numbers) > INTEGER_MAX:
            self._refuse(message, f"a number of it is too large: {max(numbers)}")
            return
        self._end(message)
        position, actor, logged_at = message.position, commit.actor, message.stamp // 1_000
        name, run = str(stream), run_of(stream)
        lasting = stream.id if type(stream) is WorkspaceStream else None
        label = str(commit.label) if commit.label is not None else None
        agent_, role = (stream.agent, stream.role) if type(stream) is AgentStream else (None, None)
        written_at = _micros(commit.at)
        copied_at = _time(origin.at) if origin is not None else None
        from_log, from_position = self._copied_from(origin)
        tx = commit.tx.id if commit.tx is not None else None
        for index, (recorded, (known_as, lifted)) in enumerate(
            zip(commit.events, self._all_known_as(message, stream, commit), strict=True)
        ):
            occurred_at = recorded.occurred_at
            claimed = _time(occurred_at) if occurred_at is not None else None
            self._rows.append(
                (
                    position,
                    index,
                    recorded.id,
                    recorded.type,
                    name,
                    run,
                    agent_,
                    role,
                    commit.version + index,
                    claimed or copied_at or logged_at,
                    logged_at,
                    written_at,
                    occurred_at,
                    actor.agent,
                    actor.on_behalf_of or None,
                    commit.epoch,
                    commit.id,
                    commit.causation,
                    commit.correlation,
                    commit.traceparent,
                    tx,
                    from_log,
                    from_position,
                    items[index],
                    known_as,
                    lifted,
                    lasting,
                    label,
                    position << EVENT_BITS | index,
                )
            )
        if len(self._rows) - self._chunked >= CHUNK_ROWS:
            self._chunk()

    def _copied_from(self, origin: Origin | None) -> tuple[str | None, int | None]:
        """Return the log that a commit was copied from, and its position there."""
        return (origin.log, origin.position) if origin is not None else (None, None)

    def _all_known_as(
        self, message: RawMessage, stream: StreamId, commit: Commit
    ) -> list[tuple[str | None, str | None]]:
        """Return `_known_as` for each event; if an event does not fit its type, no table takes any
        of the commit, as states skip it whole, too.
        """
        before = len(self._problems)
        known = [
            self._known_as(message, stream, index, recorded)
            for index, recorded in enumerate(commit.events)
        ]
        return known if len(self._problems) == before else [(None, None)] * len(known)

    def _known_as(
        self, message: RawMessage, stream: StreamId, index: int, recorded: Recorded
    ) -> tuple[str | None, str | None]:
        """Return the tag under which tables take an event, and its data if that was upcast."""
        try:
            event = revive(recorded)
        except UnknownEvent:
            return None, None
        except Corrupt as error:
            reason = error.fact
        else:
            if may_hold(stream, type(event)):
                if event.tag == recorded.type:
                    return event.tag, None
                return event.tag, str(record(event, "").data, "utf-8")
            reason = f"a {recorded.type} does not belong into stream {stream}"
        self._problems.append(Problem(message.position, index, message.subject, reason))
        return None, None


def _size(commit: Commit) -> int:
    return sum(len(bytes(recorded.data)) for recorded in commit.events)


def digest(message: RawMessage) -> str:
    """Return the digest that identifies a message."""
    return hashlib.sha256(message.subject.encode() + b"\n" + message.body).hexdigest()


def _micros(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _time(text: str) -> int | None:
    """Parse a time that a source claims to us since 1970; None if it is none."""
    moment = claimed_time(text)
    try:
        return None if moment is None else _micros(moment.astimezone(UTC))
    except OverflowError:
        return None
