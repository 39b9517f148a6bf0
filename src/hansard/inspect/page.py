"""The run page: a run's events, agents, board and team as one document."""

from __future__ import annotations

import secrets
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import msgspec

from hansard.agents.team.tasks import task_record
from hansard.agents.workspace import Workspace
from hansard.bus.commits import position_of, revive, whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.bus.reads import EventTime, is_imported, time_of
from hansard.domain import agent as agents
from hansard.domain import aggregate_types
from hansard.domain import run as runs
from hansard.domain import team as task
from hansard.domain.agent import AgentState
from hansard.domain.board import (
    RESERVED,
    BoardState,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyKind,
    ValueMerged,
    ValuePut,
    form,
)
from hansard.domain.choices import counted
from hansard.domain.decider import By, Quarantined, evolve
from hansard.domain.errors import Corrupt, Refused
from hansard.domain.events import Event, Recorded
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream, run_of
from hansard.domain.memory import files as memory_events
from hansard.domain.payload import PartsLine, as_blob
from hansard.domain.run import AgentJoined, RunState
from hansard.domain.steps import StepCompleted, StepRequested, StepStatus
from hansard.domain.team import TaskState, TaskStatus, TeamState, Unmet
from hansard.inspect.state import key_head
from hansard.inspect.trace import Fetcher
from hansard.state.aggregates import commits_of_steps

FORMAT = 2
"""Version of the page's data; its script reads only this one."""

BLOB_BYTES_MAX = 8 * 1024 * 1024
"""Largest blob in a page, in bytes; a larger one is shown by its size and hash."""

BLOBS_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of all blobs of a page, in the order of the events: a browser still opens it."""

PARTS_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of all values with references to earlier ones, each in full."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_AGENT_FIELDS = (
    "role",
    "epoch",
    "left",
    "conversation_id",
    "turns_before",
    "server_version",
    "protocol_version",
)
_agent_values = attrgetter(*_AGENT_FIELDS)
"""Fields of an agent whose values are immutable."""

_LIFE_FIELDS = (
    "workflow",
    "status",
    "missing",
    "conversation_id",
    "program",
    "labels",
    "forked",
    "error",
    "assigned",
    "scores",
)


class Stream(msgspec.Struct, omit_defaults=True):
    """Stream: its name within its run, and its agent and role if it is an agent's."""

    name: str
    run: int
    agent: str | None = None
    role: str | None = None


class Commits(msgspec.Struct):
    """Commits: one column per field, one row per commit.

    `position` and `time` (us) are differences to the row before; `clock` is the writer's clock
    less the log's time (us); `whole` is the number of positions until the end of the commit's
    transaction. `more` holds rare fields by row.
    """

    position: list[int] = []
    time: list[int] = []
    stream: list[int] = []
    version: list[int] = []
    events: list[int] = []
    id: list[str] = []
    clock: list[int] = []
    actor: list[int] = []
    epoch: list[int] = []
    whole: list[int] = []
    more: dict[str, dict[str, Any]] = {}


class Events(msgspec.Struct):
    """Events: one column per field, one row per event.

    `data` are the values of the type's fields in order, without trailing nulls. `status` is the
    number of the status of its step or run after it; -1 for other events. `when` is the time
    (us since 1970) of events whose time is not the log's: the time of the log that they were
    copied from, or the claim of their source, taken as UTC if it has no zone; None if unknown.
    """

    type: list[int] = []
    id: list[str] = []
    data: list[list[Any]] = []
    status: list[int] = []
    occurred_at: dict[str, str] = {}
    when: dict[str, int | None] = {}


Change = tuple[int, int, dict[str, Any]]
"""Change: the event; the key or task by number; the changed fields (for a new one the non-empty
ones), or `gone`: the reason of its removal.
"""


class Shared(msgspec.Struct):
    """Names of keys, sorted, and of tasks, in the order of adding; and their changes.

    In a key's change, `value` is its new value: `["of"]` the event's own (`["of", N]` that of event
    N), `["is", VALUE]`, `["push"]` the event's item at the end, `["in", I]` the event's item at I,
    `["out", I]` without the one at I, `["set", OBJECT]` these keys in addition.
    """

    keys: list[str] = []
    board: list[Change] = []
    names: list[str] = []
    tasks: list[Change] = []


class Page(msgspec.Struct):
    """Data of a page.

    `life` and `agents` list the changes of fields by event, `shared` those of the run's board
    and tasks; `blobs` are values by hash, and `absent` the reasons for missing ones.
    """

    format: int
    run: str
    log: str
    runs: list[str] = []
    streams: list[Stream] = []
    types: dict[str, tuple[str, ...]] = {}
    statuses: list[str] = []
    actors: list[str] = []
    commits: Commits = msgspec.field(default_factory=Commits)
    events: Events = msgspec.field(default_factory=Events)
    life: list[tuple[int, dict[str, Any]]] = []
    agents: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    shared: Shared = msgspec.field(default_factory=Shared)
    blobs: dict[str, Any] = {}
    absent: dict[str, str] = {}


async def gather(workspace: Workspace, run: str, *, redacted: bool = False) -> Page:
    """Read a run, including a fork's parents; `redacted`: without its texts.

    Raises NotFound, UnknownEvent, Corrupt.
    """
    history = await workspace.states.history(run)
    history = sorted([*history, *await commits_of_steps(workspace.log, history)], key=position_of)
    builder = _Builder(run, workspace.log.workspace)
    if redacted:
        without_texts = _WithoutTexts()
        for stored in history:
            try:
                builder.take(without_texts(stored))
            except (Corrupt, KeyError) as error:
                message = (
                    f"commit {stored.position} of run {run} is not understood without its texts "
                    f"({error}): write the run with them, and report this"
                )
                raise Refused(message) from error
        return builder.finished()
    for stored in history:
        builder.take(stored)
    page = builder.finished()
    await _add_blobs(workspace, history, page)
    await _add_parts(workspace, history, page)
    return page


_STRUCTURE = frozenset((
    "actor", "agent", "aggregate", "approval", "arm", "by", "call_id", "chain", "claimed",
    "confidentiality", "decision", "effects", "experiment", "gives", "holder", "how", "id",
    "key", "kind", "label", "merge", "metric", "module", "name", "operation", "parent",
    "purpose", "role", "roles", "rule", "run", "scope", "sender_role", "space", "stands_for",
    "status", "step", "takes", "task", "to", "tool", "type", "unit", "verdict", "version",
    "waits_for", "waits_for_roles", "workflow",
))  # fmt: skip
"""Fields whose texts name parts of a run: they stay in a redacted page."""

_CONTENT = frozenset((
    "after_value", "alternatives", "arguments", "attributes", "content", "data", "details",
    "fields", "given", "item", "items", "labels", "payload", "result", "results", "text",
    "value", "what", "would",
))  # fmt: skip
"""Fields of a program's own values: every text in them is redacted."""


class _WithoutTexts:
    """Replaces the texts of events by their length, and a mark that equal texts share.

    Names, numbers, times and the structure of values stay. The marks are made with a key of this
    page, so that they cannot be compared with guesses.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        kinds = (
            each for each in StrEnum.__subclasses__() if each.__module__.startswith("hansard.")
        )
        self._words = frozenset(member.value for each in kinds for member in each)

    def __call__(self, stored: Stored) -> Stored:
        events = tuple(
            msgspec.structs.replace(each, data=msgspec.Raw(msgspec.json.encode(self._of(each))))
            for each in stored.commit.events
        )
        commit = msgspec.structs.replace(stored.commit, events=events)
        return msgspec.structs.replace(stored, commit=commit)

    def _of(self, recorded: Recorded) -> Any:
        return self._value(msgspec.json.decode(recorded.data), is_content=False, name="")

    def _value(self, value: Any, *, is_content: bool, name: str) -> Any:
        match value:
            case str():
                is_word = not is_content and (name in _STRUCTURE or value in self._words)
                return value if is_word else self._mark(value)
            case {"$blob": {"size": int() as size}} | {"$parts": {"size": int() as size}}:
                return f"[redacted, {counted(size, 'byte')}]"
            case {"$append": _}:
                return []
            case dict():
                return {
                    key: self._value(each, is_content=is_content or key in _CONTENT, name=key)
                    for key, each in value.items()
                }
            case list():
                return [self._value(each, is_content=is_content, name=name) for each in value]
            case _:
                return value

    def _mark(self, text: str) -> str:
        if not text:
            return text
        made = blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=3)
        return f"[redacted {made.hexdigest()}, {counted(len(text), 'character')}]"


class _Builder:
    """Folds commits in order, and records how each event changed the state."""

    def __init__(self, run: str, log: str) -> None:
        self._page = Page(FORMAT, run, log)
        self._runs = {run: 0}
        self._streams: dict[StreamId, int] = {}
        self._types: dict[str, int] = {}
        self._statuses: dict[str, int] = {}
        self._actors: dict[str, int] = {}
        self._newest: dict[tuple[str, int], int] = {}
        """Number of the newest event of each step, by its agent's stream."""
        self._life_state = runs.RunState()
        self._life_written: dict[str, Any] = {}
        self._agent_states: dict[str, AgentState] = {}
        self._agent_written: dict[str, tuple[str | int | None, ...]] = {}
        self._shared = SharedBuilder()
        self._position = 0
        self._time = 0

    def finished(self) -> Page:
        """Return the page of the commits taken, without its blobs."""
        page = self._page
        for name, state in self._agent_states.items():
            for step in state.in_doubt:  # killed, or failed and not handled
                number = self._newest[name, step.number]
                page.events.status[number] = _number(self._statuses, StepStatus.IN_DOUBT.value)
        page.runs, page.statuses = list(self._runs), list(self._statuses)
        page.actors, page.shared = list(self._actors), self._shared.shared()
        return page

    def take(self, stored: Stored) -> None:
        """Add a commit and its events."""
        rows, commit, events = self._page.commits, stored.commit, self._page.events
        time = stored.stamp // 1_000
        row = len(rows.position)
        rows.position.append(stored.position - self._position)
        rows.time.append(time - self._time)
        rows.stream.append(self._stream(stored.stream))
        rows.version.append(commit.version)
        rows.events.append(len(commit.events))
        rows.id.append(commit.id)
        rows.clock.append((commit.at - _EPOCH) // _MICROSECOND - time)
        rows.actor.append(_number(self._actors, commit.actor.agent))
        rows.epoch.append(commit.epoch)
        rows.whole.append(whole_at(stored) - stored.position)
        more = _more(stored)
        if more:
            rows.more[str(row)] = more
        self._position, self._time = stored.position, time
        self._shared.now(stored.stamp, len(events.id))
        has_log_time = stored.origin is None and not is_imported(stored)
        for recorded in commit.events:
            event = revive(recorded)
            number = len(events.id)
            events.id.append(recorded.id)
            events.type.append(self._type(event))
            events.data.append(_data(event))
            events.status.append(self._fold(stored.stream, event, number))
            self._shared.take(stored, recorded, event, number)
            if not has_log_time or recorded.occurred_at is not None:
                events.when[str(number)] = _us(time_of(stored, recorded))
            if recorded.occurred_at is not None:
                events.occurred_at[str(number)] = recorded.occurred_at

    def _stream(self, stream: StreamId) -> int:
        if stream not in self._streams:
            self._streams[stream] = len(self._streams)
            run = _number(self._runs, run_of(stream) or self._page.run)
            shape = Stream(str(stream), run)
            if isinstance(stream, AgentStream):
                shape.agent, shape.role = stream.agent, stream.role
            self._page.streams.append(shape)
        return self._streams[stream]

    def _type(self, event: Event) -> int:
        self._page.types.setdefault(event.tag, type(event).__struct_encode_fields__)
        return _number(self._types, event.tag)

    def _fold(self, stream: StreamId, event: Any, number: int) -> int:
        """Fold an event, record its changes, and return the status that it left."""
        match stream:
            case RunStream():
                return self._fold_life(event, number)
            case AgentStream():
                return self._fold_agent(stream, event, number)
            case KeyStream():
                return -1
            case WorkspaceStream(kind=aggregate_types.KIND | memory_events.KIND):
                return -1
            case _:
                raise Corrupt(f"run {self._page.run}", f"it has a stream {stream}")

    def _fold_life(self, event: Any, number: int) -> int:
        state = self._life_state
        evolve(state, event)
        before, self._life_written = self._life_written, _plain_fields(state, _LIFE_FIELDS)
        changed = _changes(before, self._life_written)
        if isinstance(event, AgentJoined):
            changed["joined"] = [event.agent, event.role]
        self._page.life.append((number, changed))
        return _number(self._statuses, state.status.value)

    def _fold_agent(self, stream: AgentStream, event: Any, number: int) -> int:
        name = str(stream)
        state = self._agent_states.get(name)
        if state is None:
            state = self._agent_states[name] = agents.AgentState()
        evolve(state, event)
        before, record = self._agent_written.get(name), _agent_values(state)
        if record != before:
            self._agent_written[name] = record
            pairs = zip(_AGENT_FIELDS, record, strict=True)
            changed = {
                field: value
                for at, (field, value) in enumerate(pairs)
                if before is None or before[at] != value
            }
            self._page.agents.setdefault(name, []).append((number, changed))
        if not event.tag.startswith("step."):
            return -1
        self._newest[name, event.step] = number
        return _number(self._statuses, state.steps[event.step].status.value)


def _number(names: dict[str, int], name: str) -> int:
    """Return the number of a text that many rows share, from 0."""
    return names.setdefault(name, len(names))


def _plain_fields(state: RunState, fields: Sequence[str]) -> dict[str, Any]:
    """Return fields as plain values that later events do not change."""
    return {name: _plain(getattr(state, name)) for name in fields}


def _plain(value: Any) -> Any:
    """Return a value as plain values.

    A payload that some readers refuse (a number out of bounds, a text that is not UTF-8) is
    returned as its recorded text.
    """
    if value is None or isinstance(value, str | int):
        return value
    raw = msgspec.json.encode(value)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return raw.decode(errors="backslashreplace")


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in after.items() if name not in before or before[name] != value
    }


def _data(event: Event) -> list[Any]:
    """Return an event's values in the order of its fields; values that JSON readers read
    differently become text.
    """
    data = msgspec.json.encode(event)
    try:
        whole = msgspec.json.decode(data)
        row = [whole.get(name) for name in event.__struct_encode_fields__]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        fields = _fields.decode(data)
        row = [_plain(fields.get(name)) for name in event.__struct_encode_fields__]
    if isinstance(event, StepRequested):
        at = event.__struct_encode_fields__.index("arguments")
        if isinstance(row[at], dict):
            row[at] = {name: as_blob(value) for name, value in row[at].items()}
    elif isinstance(event, StepCompleted):
        at = event.__struct_encode_fields__.index("result")
        row[at] = as_blob(row[at])
    while row and row[-1] is None:
        row.pop()
    return row


def _us(event_time: EventTime) -> int | None:
    """Return a time in us since 1970, as UTC if it has no zone; None if unknown."""
    moment = event_time.moment if event_time.is_known else None
    return None if moment is None else (moment.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def _more(stored: Stored) -> dict[str, Any]:
    """Return a commit's rare fields."""
    commit = stored.commit
    details = {
        "on_behalf_of": list(commit.actor.on_behalf_of),
        "causation": commit.causation,
        "correlation": commit.correlation,
        "traceparent": commit.traceparent,
        "transaction": commit.tx and f"{commit.tx.index + 1} of {commit.tx.count}: {commit.tx.id}",
        "origin": stored.origin and msgspec.to_builtins(stored.origin),
    }
    return {name: value for name, value in details.items() if value}


# ---------------------------------------------------------------- blobs


async def _add_blobs(workspace: Workspace, history: Sequence[Stored], page: Page) -> None:
    """Add the blobs that events reference, within the bounds; of others, the reason."""
    left = BLOBS_BYTES_MAX
    for stored in history:
        for sha256, size in _references(stored) if b'"$blob"' in stored.body else ():
            read = workspace.blobs.get
            left -= await _add_value(page, sha256, size, left, "it was erased", read, sha256, size)


async def _add_value(
    page: Page,
    sha256: str,
    size: int,
    left: int,
    erased: str,
    read: Callable[..., Awaitable[bytes]],
    *arguments: Any,
) -> int:
    """Add a value by its hash, or why it is absent; return the bytes that it takes of the bound."""
    if sha256 in page.blobs or sha256 in page.absent:
        return 0
    if size > min(BLOB_BYTES_MAX, left):
        page.absent[sha256] = "it is larger than what a page holds"
        return 0
    try:
        page.blobs[sha256] = msgspec.json.decode(await read(*arguments))
    except NotFound:
        page.absent[sha256] = erased
    except (Corrupt, msgspec.DecodeError, RecursionError) as error:
        page.absent[sha256] = f"it cannot be read ({error})"
    return size if sha256 in page.blobs else 0


def _references(stored: Stored) -> list[tuple[str, int]]:
    """Return the blobs that a commit references, in order."""
    named: list[tuple[str, int]] = []
    for recorded in stored.commit.events:
        try:
            waiting: list[Any] = [msgspec.json.decode(recorded.data)]
        except (msgspec.DecodeError, RecursionError):
            continue
        while waiting:
            match waiting.pop():
                case {"$blob": {"sha256": str(sha256), "size": int(size)}}:
                    named.append((sha256, size))
                case {"$parts": dict()} as inner if len(inner) == 1:
                    pass  # the page has its text
                case dict() as inner:
                    waiting += reversed(inner.values())
                case list() as inner:
                    waiting += reversed(inner)
                case _:
                    pass
    return named


async def _add_parts(workspace: Workspace, history: Sequence[Stored], page: Page) -> None:
    """Add the values with references to earlier ones, in full, within the bounds."""
    lines: dict[str, PartsLine] = {}
    fetch = Fetcher(workspace)
    left = PARTS_BYTES_MAX
    for stored in history:
        if not isinstance(stored.stream, AgentStream):
            continue
        line = lines.setdefault(stored.stream.agent, PartsLine())
        for version, recorded in enumerate(stored.commit.events, stored.commit.version):
            data = bytes(recorded.data)
            line.note(recorded.type, version, data)
            for parts, question in line.by_parts(recorded.type, version, data):
                erased = "a part of it was erased"
                left -= await _add_value(
                    page, parts.sha256, parts.size, left, erased, fetch, question
                )


WAITS_SHOWN = 20
"""Most names listed of what a task waits for; the rest are counted."""

PAYLOADS = ("what", "given", "result")
"""Fields of a task that may be marked in a change as equal to the event's field of that name."""

_field_values = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Expiries:
    """End times of things in ns; reports what ends, or resumes if the time moves back."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []
        self._now = 0

    def set(self, name: str, end: int | None) -> None:
        """Set the time at which something ends; None: never."""
        stood = self._ends.pop(name, None)
        if stood is not None:
            del self._order[bisect_left(self._order, (stood, name))]
        if end is not None:
            self._ends[name] = end
            insort(self._order, (end, name))

    def move(self, now: int) -> list[str]:
        """Move the time and return the things that ended or resumed."""
        first, last = sorted((self._now, now))
        self._now = now
        if not self._order:
            return []
        span = slice(bisect_left(self._order, (first + 1,)), bisect_left(self._order, (last + 1,)))
        return [name for _, name in self._order[span]]


class SharedBuilder:
    """Folds the commits of boards in order, and records changes."""

    def __init__(self) -> None:
        self._boards = _Boards()
        self._team = _Team()

    def now(self, stamp: int, number: int) -> None:
        """Set the log's time to that of a commit that begins with this event."""
        self._boards.now(stamp, number)
        self._team.now(stamp, number)

    def take(self, stored: Stored, recorded: Recorded, event: Event, number: int) -> None:
        """Fold an event; events of streams other than boards are skipped."""
        if not isinstance(stored.stream, KeyStream):
            return
        by = By(stored.commit.actor.agent, stored.stamp, recorded.id, stored.commit.label)
        key = stored.stream.key
        if key == task.TASKS_KEY:
            self._team.take(event, by, number)
        elif not key.startswith(RESERVED):
            self._boards.take(key, event, by, number)

    def shared(self) -> Shared:
        """Return the changes of the commits taken."""
        keys, team = self._boards, self._team
        names = sorted(keys.names)
        places = {keys.names[name]: place for place, name in enumerate(names)}
        items = [(number, places[key], change) for number, key, change in keys.changes]
        return Shared(names, items, list(team.names), team.changes)


class _Boards:
    """Keys of a run's shared state."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.changes: list[Change] = []
        self._states: dict[str, BoardState] = {}
        self._written: dict[str, dict[str, Any]] = {}
        """Last written fields of each existing key."""
        self._members: dict[str, list[str]] = {}
        """Items of each key that holds a set, in order."""
        self._puts: dict[str, int] = {}
        """Number of the event that last put each key."""
        self._lapses = Expiries()
        self._now = 0

    def now(self, stamp: int, number: int) -> None:
        """Record the keys that expired, or that exist again if the time moved back."""
        self._now = stamp
        for key in self._lapses.move(stamp):
            self._write(key, number, ["of", self._puts[key]], "expired")

    def take(self, key: str, event: Event, by: By, number: int) -> None:
        """Fold an event and record its changes."""
        state = self._states.setdefault(key, BoardState())
        version, kind, value = state.changed, state.kind, state.value
        evolve(state, event, by)
        self._lapses.set(key, state.expires)
        if state.changed == version:  # it does not change the value
            return
        if state.kind is KeyKind.VALUE:
            self._puts[key] = number
        self._write(key, number, self._value(key, kind, value, event), "removed")

    def _write(self, key: str, number: int, value: list[Any], gone: str) -> None:
        """Record a key's new state.

        `value` is the change of its value, `gone` the reason if it no longer exists.
        """
        state, facts = self._states[key], self._written.pop(key, None)
        if state.absent(self._now):
            change: dict[str, Any] = {"gone": gone}
            if facts is None:
                return
        else:
            self._written[key] = head = key_head(state)
            change = {
                name: each
                for name, each in head.items()
                if name != "event" and (each if facts is None else facts[name] != each)
            }
            change["value"] = value
        self.changes.append((number, self.names.setdefault(key, len(self.names)), change))

    def _value(self, key: str, kind: KeyKind | None, value: msgspec.Raw, event: Event) -> list[Any]:
        """Return the change of a key's value by an event; kind and value are those before it."""
        state = self._states[key]
        goes_on = kind is state.kind and not getattr(event, "anew", False)
        match event:
            case ValuePut():
                return ["of"]
            case ItemAppended() if len(state.items) > 1 or kind is not KeyKind.LIST:
                return ["push"]
            case ItemIncluded() | ItemDiscarded():
                stood = self._members.get(key, []) if goes_on else []
                return self._set_change(key, stood, form(event.item))
            case ValueMerged() if goes_on and kind is KeyKind.UNION:
                old, new = _field_values.decode(value), _field_values.decode(state.value)
                names = [name for name in new if old.get(name) != new[name]]
                return ["set", {name: msgspec.json.decode(new[name]) for name in names}]
            case _:
                return ["is", state.plain]

    def _set_change(self, key: str, members: list[str], item: str) -> list[Any]:
        """Return the change of a set by an item; `members` are the items before."""
        state, at = self._states[key], bisect_left(members, item)
        self._members[key] = members
        if len(state.members) == len(members) + 1:
            members.insert(at, item)
            return ["in", at]
        if len(state.members) == len(members) - 1:
            del members[at]
            return ["out", at]
        self._members[key] = sorted(state.members)
        return ["is", state.plain["$set"]]


class _Team:
    """Tasks of a run."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.changes: list[Change] = []
        self._state = TeamState()
        self._unmet = Unmet(self._state)
        self._written: dict[str, dict[str, Any]] = {}
        self._lapses = Expiries()
        self._now = 0

    def now(self, stamp: int, number: int) -> None:
        """Record the leases that ran out."""
        self._now = stamp
        for name in self._lapses.move(stamp):
            self._write(self._state.tasks[name], number, {})

    def take(self, event: Event, by: By, number: int) -> None:
        """Fold an event and record the tasks that it changed."""
        name = getattr(event, "task", "")
        stood = self._state.tasks.get(name)
        evolve(self._state, event, by)
        if isinstance(event, Quarantined):
            return
        now = self._state.tasks[name]
        self._lapses.set(name, now.expires if now.status is TaskStatus.CLAIMED else None)
        for moved in sorted(self._unmet.moved(stood, now), key=self._place):
            each = self._state.tasks[moved]
            self._write(each, number, _payloads(stood, now) if moved == name else {})

    def _place(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _write(self, each: TaskState, number: int, payloads: dict[str, Any]) -> None:
        unmet = None if each.is_over else self._unmet.of(each)
        row = task_record(each, unmet, self._now)
        row["expires"] = _stamp_us(each.expires) if each.status is TaskStatus.CLAIMED else None
        for name in ("id", "lease_left_s", *PAYLOADS):
            del row[name]
        for name in ("waits_for", "blocked_by"):
            row[name] = _short(row[name])
        facts = self._written.get(each.id)
        change = {
            name: value
            for name, value in row.items()
            if (value if facts is None else facts[name] != value)
        }
        if change or payloads:
            self._written[each.id] = row
            self.changes.append((number, self._place(each.id), {**change, **payloads}))


def _payloads(stood: TaskState | None, now: TaskState) -> dict[str, Any]:
    """Return the task's values that are equal to the event's."""
    payloads: dict[str, Any] = {}
    if stood is None:
        return {"what": True} if bytes(now.added.what) != b"null" else {}
    for name in ("given", "result"):
        if getattr(stood, name) is not getattr(now, name):
            payloads[name] = True
    return payloads


def _short(names: list[str]) -> list[Any]:
    """Return a list's first names, and the number of the others."""
    more = len(names) - WAITS_SHOWN
    return [*names[:WAITS_SHOWN], more] if more > 0 else names


def _stamp_us(stamp: int) -> int:
    """Return a log time in whole microseconds."""
    return stamp // 1_000
