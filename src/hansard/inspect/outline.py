"""The outline of a run: one row for each event, with the first words of what it holds.

A row follows from its event alone, so that a page of a long run costs as much as one of a short
run, and a row that is streamed equals the row that is read later.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, RunStreams, Stored
from hansard.bus.reads import RunInFull, is_imported, reason, time_of
from hansard.domain.board import VIEWS
from hansard.domain.choices import counted
from hansard.domain.ids import AgentStream, KeyStream, run_of
from hansard.domain.payload import MARK
from hansard.domain.roles.view import Line, ShownEvent
from hansard.inspect.answer import EVENT_REMEDY, RUN_REMEDY, Answer, address

TEXT_CHARACTERS_MAX = 120
"""Most characters of the first words of an event."""

VALUE_BYTES_MAX = 64 * 1024
"""Data of an event above this size, in bytes, is not decoded in full for its first words."""

ROWS, ROWS_MAX = 5_000, 50_000
"""Rows of a page by default, and at most: about 0.2 and 2 MB of JSON."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_STATUSES = {
    "step.requested": "requested",
    "step.attempted": "requested",
    "step.yielded": "requested",
    "step.completed": "completed",
    "step.failed": "failed",
    "step.blocked": "blocked",
    "step.in_doubt": "in_doubt",
    "run.started": "open",
    "run.forked": "open",
    "run.resumed": "open",
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "approval.requested": "requested",
    "approval.granted": "granted",
    "approval.denied": "denied",
    "approval.expired": "expired",
    "task.added": "open",
    "task.claimed": "claimed",
    "task.completed": "completed",
    "task.failed": "failed",
    "task.reopened": "open",
}
"""Status that an event leaves its step, run, approval or task in."""


class Rows(msgspec.Struct, kw_only=True):
    """Rows of events in order: one column a field.

    `agent`, `type`, `status` and `name` are numbers of names in `agents`, `types`, `statuses` and
    `names`. By the number of a row, `to` has the receiver of a hand-off, task or mail, `parent` the
    step around a step, `took` the duration (ms) that an outcome states, and `when` the stated time
    (us) of an event whose time is not the log's; None if its source states none.

    Attributes:
        position: Position of the commit; for a role the event's own number.
        index: Index in the commit; `position.index` is the event's address.
        time: Time in us since 1970: the log's; for a role the writer's.
        agent: Author; the actor of a change from outside.
        type: Tag.
        step: Number of the step; None for other events.
        status: Status that the event leaves its step, run, approval or task in; else empty.
        name: Tool, role, question or checkpoint that the first words begin with.
        text: First words.
    """

    position: list[int] = []
    index: list[int] = []
    time: list[int] = []
    agent: list[int] = []
    type: list[int] = []
    step: list[int | None] = []
    status: list[int] = []
    name: list[int] = []
    text: list[str] = []
    to: dict[str, str] = {}
    parent: dict[str, int] = {}
    took: dict[str, float] = {}
    when: dict[str, int | None] = {}
    agents: list[str] = []
    types: list[str] = []
    statuses: list[str] = []
    names: list[str] = []


class _TypeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of a type of event have in common."""

    number: int
    kind: str
    status: str
    named: str
    sends: bool
    settles: bool


class RowsBuilder:
    """Collects rows; without words `text` stays empty, and a row costs a third."""

    def __init__(self, *, has_words: bool = True) -> None:
        self.rows = Rows()
        self._has_words = has_words
        self._agents: dict[str, int] = {}
        self._facts: dict[str, _TypeFacts] = {}
        self._statuses: dict[str, int] = {}
        self._names: dict[str, int] = {"": 0}
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.rows.type)

    def take(self, stored: Stored) -> None:
        """Add a commit's events; served views are left out."""
        stream = stored.stream
        key = stream.key if isinstance(stream, KeyStream) else ""
        if key.startswith(VIEWS):
            return
        agent = stream.agent if isinstance(stream, AgentStream) else stored.commit.actor.agent
        time = stored.stamp // 1_000
        broken = reason(stored.commit)
        is_copied = stored.origin is not None or is_imported(stored)
        for recorded in stored.commit.events:
            if is_copied or recorded.occurred_at is not None:
                stated = time_of(stored, recorded)
                moment = stated.moment if stated.is_known else None
                self._state(None if moment is None else moment.replace(tzinfo=UTC))
            self._add(recorded.type, key, recorded.data, broken)
        self._place(stored.position, time, agent, len(stored.commit.events))

    def show(self, number: int, event: ShownEvent) -> None:
        """Add an event as a role sees it."""
        self._add(event.type, event.key, event.data, "")
        time = (event.at.astimezone(UTC) - _EPOCH) // _MICROSECOND
        self._place(number, time, event.agent, 1)

    def _state(self, moment: datetime | None) -> None:
        """Note the stated time of the next row."""
        us = None if moment is None else (moment - _EPOCH) // _MICROSECOND
        self.rows.when[str(len(self))] = us

    def _place(self, position: int, time: int, agent: str, events: int) -> None:
        """Add what the last rows have in common."""
        rows = self.rows
        rows.position += [position] * events
        rows.index += range(events)
        rows.time += [time] * events
        rows.agent += [self._agents.setdefault(agent, len(self._agents))] * events

    def _add(self, tag: str, key: str, data: msgspec.Raw, broken: str) -> None:
        facts = self._facts.get(tag) or self._facts_of(tag)
        head = _head_of(data)
        rows = self.rows
        number = len(rows.type)
        if facts.sends and isinstance(to := head.to or head.agent, str):
            rows.to[str(number)] = to
        if type(head.parent) is int:
            rows.parent[str(number)] = head.parent
        if isinstance(took := head.duration_ms, int | float) and took:
            rows.took[str(number)] = took
        rows.type.append(facts.number)
        rows.step.append(head.step if type(head.step) is int else None)
        status = head.verdict if facts.settles and isinstance(head.verdict, str) else facts.status
        rows.status.append(self._statuses.setdefault(status, len(self._statuses)))
        name = getattr(head, facts.named) if facts.named else ""
        rows.name.append(self._named(name) if isinstance(name, str) and name else 0)
        if self._has_words:
            rows.text.append(broken or _words_of(facts.kind, key, data, head))

    def _named(self, name: str) -> int:
        """Return the number of a name."""
        number = self._numbers.get(name)
        if number is None:
            number = self._names.setdefault(cut(name), len(self._names))
            self._numbers[name] = number
        return number

    def _facts_of(self, tag: str) -> _TypeFacts:
        kind = tag.rpartition(".")[0]
        facts = self._facts[tag] = _TypeFacts(
            number=len(self._facts),
            kind=kind,
            status=_STATUSES.get(kind, ""),
            named=_NAMES.get(kind, ""),
            sends=kind in _SENDS,
            settles=kind == "step.settled",
        )
        return facts

    def made(self) -> Rows:
        """Return the rows."""
        rows = self.rows
        rows.agents, rows.types = list(self._agents), list(self._facts)
        rows.statuses, rows.names = list(self._statuses), list(self._names)
        return rows


_SENDS = {"agent.handed_off", "task.handed_off", "task.added", "mail.sent"}
"""Events with a receiver."""


class _Head(msgspec.Struct, frozen=True, gc=False):
    """Fields of an event that its row needs besides its words."""

    step: Any = None
    parent: Any = None
    tool: Any = None
    role: Any = None
    duration_ms: Any = None
    question: Any = None
    name: Any = None
    to: Any = None
    agent: Any = None
    verdict: Any = None


_decode_head = msgspec.json.Decoder(_Head).decode
_NOTHING = _Head()

_NAMES = {
    "step.requested": "tool",
    "message.added": "role",
    "context.compacted": "role",
    "decision.made": "question",
    "checkpoint.saved": "name",
}
"""Field with the name of what an event is about."""


def _head_of(data: msgspec.Raw) -> _Head:
    """Return an event's fields; none if they are not readable as JSON."""
    try:
        return _decode_head(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _NOTHING


def _words_of(kind: str, key: str, data: msgspec.Raw, head: _Head) -> str:
    """Return the first words of an event; its size if it has none."""
    size = len(bytes(data))
    fields: Any = {}
    if size > VALUE_BYTES_MAX:
        fields = msgspec.structs.asdict(head)
    else:
        with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            fields = msgspec.json.decode(data)
    is_plain = isinstance(fields, dict) and fields
    text = words(kind, key, fields if is_plain else {})
    if text or (is_plain and size <= VALUE_BYTES_MAX) or bytes(data) == b"{}":
        return text
    return counted(size, "byte")


def words(kind: str, key: str, fields: dict[str, Any]) -> str:
    """Return the first words of an event: those that tell it from its neighbours."""
    of_kind = _WORDS.get(kind)
    if of_kind is not None:
        text = of_kind(fields)
    elif key:
        value = next((fields[name] for name in _OPERANDS if name in fields), None)
        text = f"{key} = {preview(value)}" if value is not None else key
    else:
        text = "  ".join(
            preview(fields[name]) for name in _NAMING if fields.get(name) not in (None, "")
        )
    return cut(text)


def cut(text: str) -> str:
    """Return a text on one line, cut to its first words."""
    text = " ".join(text[: 4 * TEXT_CHARACTERS_MAX].split())
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 1] + "…"


def preview(value: Any) -> str:
    """Return the beginning of a recorded value as text; a large payload is named by its size."""
    match value:
        case str():
            return value
        case {"$blob": {"size": int(size)}} | {"$parts": {"size": int(size)}}:
            return f"({counted(size, 'byte')})"
        case {"type": str(), "text": str(text)}:
            return text
        case [first, *_] if isinstance(first, dict) and isinstance(first.get("text"), str):
            return str(first["text"])
        case None:
            return ""
        case _:
            return msgspec.json.encode(value)[: 4 * TEXT_CHARACTERS_MAX].decode(errors="ignore")


def _call(fields: dict[str, Any]) -> str:
    arguments = fields.get("arguments")
    if isinstance(arguments, dict):
        present = [pair for pair in arguments.items() if pair[1] not in (None, {}, [])]
        pairs = (f"{name}={preview(each)}" for name, each in present[:8])
        return f"{fields.get('tool', '')}({', '.join(cut(pair) for pair in pairs)})"
    return f"{fields.get('tool', '')}({preview(arguments)})"


def _message(fields: dict[str, Any]) -> str:
    text = preview(fields.get("content"))
    calls = fields.get("fields")
    if not text and isinstance(calls, dict) and calls.get("tool_calls"):
        text = preview(calls["tool_calls"])
    return f"{fields.get('role', '')}: {text}"


def _error(fields: dict[str, Any]) -> str:
    error = fields.get("error")
    if not isinstance(error, dict):
        return preview(error)
    return f"{error.get('type', '')}: {error.get('message', '')}"


def _of(*names: str) -> Callable[[dict[str, Any]], str]:
    return lambda fields: "  ".join(preview(fields[name]) for name in names if fields.get(name))


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "step.requested": _call,
    "step.attempted": _error,
    "step.yielded": _of("items"),
    "step.completed": lambda fields: preview(fields.get("result")),
    "step.failed": _error,
    "step.in_doubt": _error,
    "step.blocked": _of("rule", "reason"),
    "step.settled": _of("by", "because"),
    "message.added": _message,
    "context.compacted": lambda fields: preview(fields.get("summary")),
    "decision.made": lambda fields: f"{fields.get('question', '')} → {fields.get('selected', '')}",
    "agent.handed_off": _of("to", "because", "payload"),
    "agent.session_began": _of("agent", "role"),
    "agent.left": lambda fields: f"{fields.get('outcome', '')} {_error(fields)}".rstrip(": "),
    "run.failed": _error,
    "run.agent_left": _of("agent", "outcome"),
    "checkpoint.saved": _of("name", "data"),
    "resource.accessed": _of("operation", "uri"),
    "task.added": _of("title", "task"),
    "task.failed": _error,
    "task.completed": _of("task", "result"),
    "mail.sent": _of("agent", "role", "content"),
    "run.scored": _of("metrics", "by"),
}
"""First words by kind of event."""

_OPERANDS = ("value", "item", "amount")
"""Fields with the operand of a write to a key."""

_NAMING = ("workflow", "name", "agent", "role", "task", "tool", "parent", "because", "reason", "by")
"""Fields that name what any other event is about, in order."""


class Outline(Answer):
    """A page of a run's outline.

    Attributes:
        run: The run.
        position: Position up to which the run was read; it is streamed from there on.
        next: Position after which the next page begins; None at the end.
        rows: The rows of the page.
    """

    run: str
    position: int
    next: int | None
    rows: Rows


async def outline(
    workspace: Workspace,
    run: str,
    after: int = 0,
    limit: int = ROWS,
    end: int | None = None,
    *,
    has_words: bool = True,
) -> Outline:
    """Return the rows of a run's events after a position; before a fork's cut, its parents'.

    A page ends with a whole commit, and may hold a few rows more than `limit`. With `end`, later
    commits are left out. Raises NotFound, Corrupt.
    """
    log, builder = workspace.log, RowsBuilder(has_words=has_words)
    until = await _end_of(workspace, run)
    until = until if end is None else min(end, until)
    if await workspace.states.forked(run) is not None:
        history = await workspace.states.history(run, AtPosition(until))
        for stored in history:
            if run_of(stored.stream) != run and stored.position > after:
                builder.take(stored)
                if len(builder) >= limit:
                    return Outline(run, until, stored.position, builder.made())
    async with contextlib.aclosing(  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
        log.follow(after, until=until, of=RunStreams(run))
    ) as commits:
        async for stored in commits:
            builder.take(stored)
            if len(builder) >= limit and stored.position < until:
                return Outline(run, until, stored.position, builder.made())
    return Outline(run, until, None, builder.made())


async def _end_of(workspace: Workspace, run: str) -> int:
    """Return the position of a run's newest commit. Raises NotFound."""
    newest = await workspace.log.last(RunStreams(run))
    if newest is None:
        raise NotFound(f"run {run!r:.80}", RUN_REMEDY)
    return newest.position


async def outline_end(workspace: Workspace, run: str, least: int) -> Outline:
    """Return the last rows of a run, from the beginning of a commit on: at least so many.

    The commits of a few positions are read, and of four times as many while these have too few
    rows. Raises NotFound, Corrupt.
    """
    until, span = await _end_of(workspace, run), max(1, least // 16)
    while True:
        page = await outline(workspace, run, max(0, until - span), sys.maxsize, until)
        if len(page.rows.position) >= least or span >= until:
            return page
        span *= 4


async def outline_at(workspace: Workspace, run: str, positions: Sequence[int]) -> Outline:
    """Return the rows of a run's commits at some positions. Raises NotFound, Corrupt."""
    until = await _end_of(workspace, run)
    is_fork = await workspace.states.forked(run) is not None
    builder = RowsBuilder()
    for stored in await asyncio.gather(*map(workspace.log.at, positions)):
        if is_fork or run_of(stored.stream) == run:
            builder.take(stored)
    return Outline(run, until, None, builder.made())


def shown_outline(run: str, lines: Sequence[Line], after: int = 0, limit: int = ROWS) -> Outline:
    """Return the rows of what a role sees of a run, after the number of an event."""
    builder = RowsBuilder()
    page = lines[after : after + limit]
    for number, event in page:
        builder.show(number, event)
    ends = after + len(page)
    return Outline(run, len(lines), ends if ends < len(lines) else None, builder.made())


class EventInFull(msgspec.Struct, kw_only=True):
    """An event with its place and its data.

    Attributes:
        run: The run that was read.
        address: `position.index`.
        id: Id of the event.
        type: Tag.
        time: The log's time (ISO 8601).
        written: The writer's time.
        occurred_at: Time that the source of an import states.
        recorded_in: Run that recorded it: a fork begins with events of its parents.
        stream: Stream, and `version` in it.
        agent: Author; the actor of a change from outside.
        on_behalf_of: Those for whom the author acted.
        epoch: Epoch of the agent's session.
        commit: Id of the commit, and number of its `events`.
        transaction: Id of the transaction, if it spans streams.
        quarantined: Why the commit is invalid and ignored; empty if it is valid.
        data: The data; values that refer to earlier ones are in full, large payloads by reference.
    """

    run: str
    address: str
    id: str
    type: str
    time: str
    written: str
    occurred_at: str | None
    recorded_in: str | None
    stream: str
    version: int
    agent: str
    on_behalf_of: tuple[str, ...]
    epoch: int
    commit: str
    events: int
    transaction: str | None
    quarantined: str
    data: msgspec.Raw


async def event_in_full(workspace: Workspace, run: str, text: str) -> EventInFull:
    """Return an event of a run by its address or id. Raises NotFound, Corrupt."""
    stored, index = await find_event_of(workspace, run, text)
    commit, stream = stored.commit, stored.stream
    recorded = commit.events[index]
    if MARK in bytes(recorded.data) and isinstance(stream, AgentStream):
        in_full = RunInFull()
        for each in await workspace.states.commits(stream, to=commit.last_version):
            whole = in_full.commit(each.stream, each.commit)
            if each.commit.id == commit.id:
                recorded = whole.events[index]
    return EventInFull(
        run=run,
        address=f"{stored.position}.{index}",
        id=recorded.id,
        type=recorded.type,
        time=stored.time.isoformat(),
        written=commit.at.isoformat(),
        occurred_at=recorded.occurred_at,
        recorded_in=run_of(stream),
        stream=str(stream),
        version=commit.version + index,
        agent=stream.agent if isinstance(stream, AgentStream) else commit.actor.agent,
        on_behalf_of=tuple(commit.actor.on_behalf_of),
        epoch=commit.epoch,
        commit=commit.id,
        events=len(commit.events),
        transaction=commit.tx.id if commit.tx is not None else None,
        quarantined=reason(commit),
        data=recorded.data,
    )


async def find_event_of(workspace: Workspace, run: str, text: str) -> tuple[Stored, int]:
    """Return the commit and the index of an event of a run or of its fork's parents. Raises
    NotFound.
    """
    place = address(text)
    if place is None:
        for stored in await workspace.states.history(run):
            for index, recorded in enumerate(stored.commit.events):
                if recorded.id == text:
                    return stored, index
        raise NotFound(f"event {text!r:.80} of run {run!r:.80}", EVENT_REMEDY)
    position, index = place
    stored = await workspace.log.at(position)
    if index < len(stored.commit.events):
        if run_of(stored.stream) == run:
            return stored, index
        if await workspace.states.forked(run) is not None:
            history = await workspace.states.history(run, AtPosition(position))
            if any(each.position == position for each in history):
                return stored, index
    raise NotFound(f"event {text!r:.80} of run {run!r:.80}", EVENT_REMEDY)
