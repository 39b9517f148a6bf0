"""Shared state in SQL is the shared state that the log folds to, at every position."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hansard
from hansard.bus import subjects
from hansard.bus.log import AtPosition, RawMessage
from hansard.bus.portal import portal
from hansard.domain.board import BoardConflict, BoardState, ValueMerged, decide
from hansard.domain.decider import By, fold
from hansard.domain.ids import KeyStream
from hansard.domain.values import dump
from hansard.projections.store import Store
from tests.board.test_laws import numbers, writes
from tests.conftest import THOROUGH
from tests.domain.strategies import text
from tests.projections.support import Messages, fill, new_store, selected

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Empty tables."""
    made = Store(tmp_path / "t.duckdb")
    yield made
    made.close()


def _everything(record: hansard.Record) -> None:
    with record.run("w", run="r", agent="ada", role="writer") as session:
        board = session.board
        board.put("v", {"a": (1, 2)}, labels={"topic": "x"})
        board.put("v", None)
        board.put("large", "x" * 70_000)
        for item in ("x", {"y": [1.5, None]}, "x"):
            board.append("l", item)
        board.add("n", 2**53 - 1)
        board.add("n", 5)
        for member in ("b", "a", 1.0, ("t", 2)):
            board.include("s", member)
        board.discard("s", "b")
        board.discard("s", 1)
        for amount in (3, 9.5, -4):
            board.merge("most", "max", amount)
            board.merge("least", "min", amount)
        for text in ("b", "ä", "a"):
            board.merge("last", "max", text)
        board.merge("u", "union", {"a": 1})
        board.put("gone", 1)
        board.remove("gone")
        board.add("gone", 7)
        board.put("lease", 1, ttl_s=0.1)
        with board.transaction() as tx:
            tx.put("t1", tx.get("n") > 0)
            tx.put("t2", 2)
            tx.append("l", "last")
        with pytest.raises(BoardConflict):
            board.put("v", 3, expected=1)
    child = record.fork("r")
    with record.run(run=child, agent="ada", role="writer") as session:
        session.board.add("n", 1)
        session.board.remove("t1", expected="any")
        session.board.append("l", "of the fork")
        grandchild = record.fork(child)
    with record.run(run=grandchild, agent="ada", role="writer") as session:
        session.board.append("l", "of its fork")


def _messages(record: hansard.Record) -> list[RawMessage]:
    async def read() -> list[RawMessage]:
        log = record.workspace.log
        messages = []
        for position in range(1, await log.head() + 1):
            stored = await log.at(position)
            subject = subjects.subject(log.workspace, stored.stream, stored.commit.version)
            messages.append(RawMessage(position, stored.stamp, subject, stored.body))
        return messages

    return portal().run(read())


def _row(state: Any) -> tuple[Any, ...]:
    value = None if state.kind == "union" else state.plain
    return state.kind, state.changed, state.author, state.role, value, state.labels, state.event


def _plain_row(row: dict[str, Any]) -> tuple[Any, ...]:
    value = None if row["value"] is None else msgspec.json.decode(row["value"])
    names = ("kind", "version", "author", "role")
    return (*(row[name] for name in names), value, msgspec.json.decode(row["labels"]), row["event"])


@pytest.mark.thorough
def test_sql_equals_the_fold_at_every_position(record, store):
    """`board_at` equals the run's state at every position, and `board` that of now."""
    _everything(record)
    fill(store, _messages(record))
    assert selected(store, "problems") == []
    positions = portal().run(record.workspace.log.head())
    compared = 0
    shown: dict[str, Any] = {}
    for run, _ in record.runs():
        for position in range(1, positions + 1):
            at = portal().run(record.workspace.states.boards(run, AtPosition(position)))
            rows = store.rows("SELECT * FROM board_at($1, $2)", [run, position])
            shown = {row["key"]: _plain_row(row) for row in rows}
            assert shown == {key: _row(state) for key, state in at.items()}, (run, position)
            compared += len(shown)
        now = {row["key"] for row in store.rows("SELECT key FROM board WHERE run = $1", [run])}
        assert now == set(shown)
    assert compared > 300


@pytest.mark.thorough(quick="test_sql_folds_any_history_as_the_domain_does")
def test_each_write_is_a_row(record, store):
    """A row has author, role, version, labels and expiry; large values are references."""
    _everything(record)
    fill(store, _messages(record))
    writes = store.rows("SELECT * FROM board_writes WHERE run = 'r' ORDER BY position, version")
    assert {row["operation"] for row in writes} == {
        *("put", "append", "add", "include", "discard", "max", "min", "union", "remove", "check")
    }
    [lease] = [row for row in writes if row["key"] == "lease"]
    assert (lease["expires_at"] - lease["logged_at"]).total_seconds() == 0.1
    [first, second] = [row for row in writes if row["key"] == "v"]
    assert (first["expected"], second["expected"]) == (0, 1)
    assert msgspec.json.decode(first["labels"]) == {"topic": "x"}
    assert second["value"] == "null"
    [large] = [row for row in writes if row["key"] == "large"]
    assert msgspec.json.decode(large["value"])["$blob"]["size"] == 70_002
    assert {(row["author"], row["role"]) for row in writes} == {("ada", "writer")}
    together = [row for row in writes if row["key"] in ("t1", "t2")]
    assert len({row["counts_from"] for row in together}) == 1
    assert all(row["counts_from"] >= row["position"] for row in writes)


def _history(commands: list[tuple[str, Any]]) -> tuple[Messages, list[dict[str, Any]]]:
    """Return writes to keys of a run as a log, and each key's value after each message."""
    messages, states, after = Messages(), {key: BoardState() for key in "ab"}, []
    for key, write in commands:
        now = messages.all[-1].stamp if messages.all else 0
        try:
            events = decide(key, states[key], write, now)
        except (BoardConflict, hansard.errors.Refused, hansard.BadValue):
            continue
        if not events:
            continue
        made = messages.add(KeyStream("r", key), states[key].version + 1, events)
        for index, event in enumerate(events):
            by = By("somebody", made.stamp, f"event {messages.position}.{index}")
            states[key] = fold(states[key], [event], by)
        after.append(
            {name: _row(each) for name, each in states.items() if not each.absent(made.stamp)}
        )
    return messages, after


largest = st.sampled_from(["max", "min"]).flatmap(
    lambda name: (numbers | text).map(
        lambda value: ValueMerged(merge=name, value=dump(value), role="writer")
    )
)


@settings(max_examples=30 if THOROUGH else 6, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), writes | largest), max_size=30), st.data())
def test_sql_folds_any_history_as_the_domain_does(commands, data):
    """For any history and batch sizes `board_at` equals the fold at each position."""
    messages, after = _history(commands)
    places = st.integers(1, max(1, messages.position))
    borders = data.draw(st.sets(places, max_size=3))
    looked_at = sorted({*data.draw(st.sets(places, max_size=4)), max(1, messages.position)})
    with tempfile.TemporaryDirectory() as folder:
        store = new_store(Path(folder) / "t.duckdb")
        try:
            fill(store, messages.all, borders)
            assert selected(store, "problems") == []
            for position in looked_at[: len(after)]:
                expected = after[position - 1]
                rows = store.rows("SELECT * FROM board_at('r', $1)", [position])
                assert {row["key"]: _plain_row(row) for row in rows} == expected, position
        finally:
            store.close()
