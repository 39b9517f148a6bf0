"""Messages without a broker, stores filled with them, and the domain's fold of them."""

import contextlib
import functools
import random
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.bus.commits import decode, encode, record, revive
from hansard.bus.log import Origin, RawMessage, Stored
from hansard.bus.reads import InFull
from hansard.domain import agent, run
from hansard.domain.agent import AgentState
from hansard.domain.conversation import ContextCompacted
from hansard.domain.errors import Corrupt
from hansard.domain.events import Actor, Commit, Event, Recorded, Tx
from hansard.domain.ids import StreamId
from hansard.domain.run import RunState
from hansard.domain.steps import Step
from hansard.projections.rows import Rows
from hansard.projections.store import Digest, Store

WORKSPACE = "lab"
BEGAN_NS = 1_795_000_000_000_000_000


class Messages:
    """A log in memory: each call appends one message."""

    def __init__(self) -> None:
        self.all: list[RawMessage] = []

    @property
    def position(self) -> int:
        """The newest."""
        return len(self.all)

    def add(
        self,
        stream: StreamId,
        version: int,
        events: Iterable[Event | Recorded],
        *,
        origin: Origin | None = None,
        tx: Tx | None = None,
        **fields: Any,
    ) -> RawMessage:
        """Return a commit of some events."""
        number = self.position + 1
        recorded = tuple(
            each if isinstance(each, Recorded) else record(each, f"event {number}.{index}")
            for index, each in enumerate(events)
        )
        commit = Commit(
            id=f"commit {number}",
            version=version,
            at=datetime(2026, 1, 1, tzinfo=UTC),
            actor=Actor("somebody"),
            epoch=1,
            tx=tx,
            events=recorded,
            **fields,
        )
        subject = subjects.subject(WORKSPACE, stream, version)
        return self.raw(subject, encode(stream, commit), origin=origin)

    def raw(self, subject: str, body: bytes, **fields: Any) -> RawMessage:
        """Whatever."""
        number = self.position + 1
        made = RawMessage(number, BEGAN_NS + number * 1_000_000, subject, body, **fields)
        self.all.append(made)
        return made


class Past:
    """Past commits of streams, from messages at hand."""

    def __init__(self, messages: Iterable[RawMessage]) -> None:
        self._stored: dict[StreamId, list[Stored]] = {}
        for each in messages:
            if each.fault is None:
                with contextlib.suppress(Corrupt):
                    of, commit = decode(each.subject, each.body)
                    stored = Stored(each.position, each.stamp, of, commit, each.body)
                    self._stored.setdefault(of, []).append(stored)

    async def past(self, stream: StreamId) -> list[Stored]:
        """Return a stream's own commits."""
        return self._stored.get(stream, [])


def ready(in_full: InFull, message: RawMessage) -> None:
    """Load the values that a message may refer to, without waiting."""
    with contextlib.suppress(StopIteration):
        in_full.ready(message).send(None)


def fill(store: Store, messages: Sequence[RawMessage], borders: Iterable[int] = ()) -> None:
    """Write messages, a batch ending at each border and at the end."""
    in_full, ends = InFull(Past(messages)), set(borders)
    rows = Rows(store.progress.position, in_full=in_full)
    for message in messages:
        ready(in_full, message)
        rows.add(message)
        if message.position in ends:
            write(store, rows, len(messages))
    write(store, rows, len(messages))


def write(store: Store, rows: Rows, head: int = 0) -> None:
    """Write complete rows."""
    batch = rows.take()
    if batch is not None:
        store.write(batch, head)


def some_borders(messages: Sequence[RawMessage], seed: int) -> list[int]:
    """Random borders: now few, now after nearly every message."""
    chance = random.Random(seed)
    share = chance.choice([0.02, 0.1, 0.4, 0.9])
    return [message.position for message in messages if chance.random() < share]


@functools.cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.duckdb"
        Store(path).close()
        return path.read_bytes()


def new_store(path: Path) -> Store:
    """Return an empty store; its template file is made once a process, in 0.3 s."""
    path.write_bytes(_template())
    return Store(path)


def digests(
    path: Path, messages: Sequence[RawMessage], borders: Iterable[int]
) -> dict[str, Digest]:
    """Return the digests of a new store that messages were written into."""
    store = new_store(path)
    try:
        fill(store, messages, borders)
        return store.digests()
    finally:
        store.close()


def selected(store: Store, table: str, where: str = "true", *given: object) -> list[dict[str, Any]]:
    """Rows as dicts."""
    names = [
        name
        for (name,) in store.all(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = $1 ORDER BY column_index",
            [table],
        )
    ]
    rows = store.all(f"SELECT * FROM {table} WHERE {where}", given)
    return [dict(zip(names, row, strict=True)) for row in rows]


# ---------------------------------------------------------------- what tables must say


def _plain(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def check_steps(store: Store, name: str, state: AgentState, cut: int = 0) -> int:
    """Check the rows of an agent's steps after the cut of a fork; return their number."""
    rows = selected(store, "steps", "run = $1 AND agent = $2", name, state.agent)
    by_number = {row["step"]: row for row in rows}
    assert len(by_number) == len(rows)
    touched = {
        row[0]
        for row in store.all(
            "SELECT DISTINCT (data->>'step')::BIGINT FROM events WHERE run = $1 AND agent = $2 "
            "AND type LIKE 'step.%' AND type <> 'step.yielded.v1'",
            [name, state.agent],
        )
    }
    assert by_number.keys() == touched
    for number, row in by_number.items():
        check_step(row, state.steps[number], cut)
    return len(rows)


def check_step(row: dict[str, Any], step: Step, cut: int) -> None:
    """Check that a row equals the fold."""
    error = step.error
    expected = {
        "tool": step.tool,
        "kind": step.kind,
        "effects": step.effects,
        "status": step.status,
        "attempts": step.attempt,
        "duration_ms": step.duration_ms or None,
        "usage": step.usage,
        "input_tokens": step.usage.get("input_tokens"),
        "output_tokens": step.usage.get("output_tokens"),
        "cost": step.usage.get("cost"),
        "arguments": _plain(step.arguments),
        "result": _plain(step.result),
        "error_type": error.type if error else None,
        "error": error.message if error else None,
        "rule": step.rule or None,
        "call_id": step.call_id,
        "key": step.key,
        "parent_step": step.parent,
        "scope": step.scope,
        "after": list(step.after),
        "reused_step": step.reused,
        "verdict": step.verdict,
        "settled_by": step.settled_by or None,
        "inherited": step.version <= cut,
        "requested_version": step.version,
        "outcome_version": step.outcome_version,
    }
    shown = {name: row[name] for name in expected}
    for name in ("arguments", "result"):
        shown[name] = _json(row[name])
    shown["usage"] = _json(row["usage"]) or {}
    assert shown == expected
    assert (row["ended_at"] is None) == (step.status == "requested" or step.outcome_version is None)


def check_facts(store: Store, name: str, state: AgentState, cut: int = 0) -> None:
    """Check that the rows of messages, decisions ... are the facts stated after the cut."""
    own = [noted for noted in state.facts if noted.version > cut]
    shown: dict[str, list[Any]] = {}
    for table in ("messages", "checkpoints", "resources", "decisions", "handoffs", "compactions"):
        rows = selected(store, table, "run = $1 AND agent = $2", name, state.agent)
        shown[table] = sorted(rows, key=lambda row: row["version"])
    expected: dict[str, list[Any]] = {table: [] for table in shown}
    for noted in own:
        match noted.fact:
            case agent.MessageAdded() as fact:
                expected["messages"].append(_message(noted.version, fact))
            case agent.CheckpointSaved() as fact:
                expected["checkpoints"].append((noted.version, fact.name, _plain(fact.data)))
            case agent.ResourceAccessed() as fact:
                expected["resources"].append((noted.version, fact.uri, fact.operation, fact.step))
            case agent.DecisionMade() as fact:
                expected["decisions"].append(_decision(noted.version, fact))
            case agent.HandedOff() as fact:
                payload = _plain(fact.payload)
                expected["handoffs"].append((noted.version, fact.to, fact.because or None, payload))
            case ContextCompacted() as fact:
                summary = (fact.role, _plain(fact.summary), list(fact.stands_for), list(fact.kept))
                expected["compactions"].append(
                    (noted.version, *summary, fact.tokens_before, fact.step)
                )
    assert [
        (
            row["version"],
            row["message_role"],
            row["text"] if row["text"] is not None else _json(row["content"]),
            row["stands_for"],
            row["remaining"],
            row["tokens_before"],
            row["step"],
        )
        for row in shown["compactions"]
    ] == expected["compactions"]
    assert [_message_row(row) for row in shown["messages"]] == expected["messages"]
    assert [
        (row["version"], row["name"], _json(row["data"])) for row in shown["checkpoints"]
    ] == expected["checkpoints"]
    assert [
        (row["version"], row["uri"], row["operation"], row["step"]) for row in shown["resources"]
    ] == expected["resources"]
    assert [_decision_row(store, row) for row in shown["decisions"]] == expected["decisions"]
    assert [
        (row["version"], row["receiver"], row["because"], _json(row["payload"]))
        for row in shown["handoffs"]
    ] == expected["handoffs"]


def _message(version: int, fact: agent.MessageAdded) -> tuple[Any, ...]:
    fields = _plain(fact.fields) or {}
    calls = fields.get("tool_calls")
    return (
        version,
        fact.role,
        _plain(fact.content),
        fact.tokens,
        fact.step,
        fact.usage,
        fields,
        fields.get("name"),
        fields.get("tool_call_id"),
        len(calls) if isinstance(calls, list) else None,
    )


def _message_row(row: dict[str, Any]) -> tuple[Any, ...]:
    content = row["text"] if row["text"] is not None else _json(row["content"])
    return (
        row["version"],
        row["message_role"],
        content,
        row["tokens"],
        row["step"],
        _json(row["usage"]) or {},
        _json(row["fields"]) or {},
        row["name"],
        row["tool_call_id"],
        row["tool_calls"],
    )


def _decision(version: int, fact: agent.DecisionMade) -> tuple[Any, ...]:
    chosen = next((each for each in fact.alternatives if each.id == fact.selected), None)
    score = chosen.score if chosen else None
    others = [
        each.score
        for each in fact.alternatives
        if each.id != fact.selected and each.score is not None
    ]
    margin = score - fact.threshold if score is not None and fact.threshold is not None else None
    return (
        version,
        fact.question,
        fact.selected,
        [
            (each.id, each.score, each.reason or None, each.rejected_because or None)
            for each in fact.alternatives
        ],
        score,
        max(others, default=None),
        fact.threshold,
        margin,
        fact.confidence,
        fact.because or None,
        list(fact.inputs),
        list(fact.after),
    )


def _decision_row(store: Store, row: dict[str, Any]) -> tuple[Any, ...]:
    alternatives = store.all(
        "SELECT id, score, reason, rejected_because FROM alternatives WHERE decision = $1 "
        "ORDER BY number",
        [row["decision"]],
    )
    assert len(alternatives) == row["alternatives"]
    names = ("score", "runner_up", "threshold", "margin", "confidence", "because")
    return (
        row["version"],
        row["question"],
        row["selected"],
        alternatives,
        *(row[name] for name in names),
        row["inputs"],
        row["after"],
    )


def check_agent(store: Store, name: str, state: AgentState) -> None:
    """Check that an agent's row equals its state."""
    [row] = selected(store, "agents", "run = $1 AND agent = $2", name, state.agent)
    assert row["role"] == state.role
    assert row["epoch"] == state.epoch
    assert row["outcome"] == state.left
    assert row["written_by"] == state.server_version
    assert row["version"] == state.version
    assert (row["left_at"] is None) == (state.left is None)


def check_life(store: Store, name: str, state: RunState, cut: int = 0) -> None:
    """Check that a run's row equals its lifecycle, including runs that a fork took over."""
    [row] = selected(store, "runs", "run = $1", name)
    assigned = state.assigned or run.RunAssigned()
    failed = state.error if state.status == "failed" else None
    assert row["status"] == state.status
    assert row["workflow"] == (state.workflow or None)
    assert row["conversation"] == state.conversation_id
    assert row["program"] == (state.program or None)
    assert (_json(row["labels"]) or {}) == state.labels
    assert row["experiment"] == (assigned.experiment or None)
    assert row["arm"] == (assigned.arm or None)
    assert row["task"] == (assigned.task or None)
    assert row["trial"] == assigned.trial
    assert row["error_type"] == (failed.type if failed else None)
    assert row["error"] == (failed.message if failed else None)
    if row["started_at"] is not None:  # an import without times gives neither
        assert (row["ended_at"] is None) == (state.status == "open")
    else:
        assert row["ended_at"] is None
    if cut:
        assert state.forked is not None
        assert (row["parent"], row["effects"]) == (state.forked.parent, state.forked.effects)
    else:
        assert row["parent"] is None
        scores = store.all(
            "SELECT metric, arg_max(value, version) FROM outcomes WHERE run = $1 GROUP BY metric",
            [name],
        )
        assert dict(scores) == state.scores
        assert len(selected(store, "outcomes", "run = $1", name)) == sum(
            len(each.metrics) for each in state.judged
        )


def folded(recorded: Iterable[Recorded]) -> list[Event]:
    """Return recorded events as domain events."""
    return [revive(each) for each in recorded]
