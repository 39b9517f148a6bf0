"""Rows that DuckDB cannot take: each is found and shown, and finding them costs little."""

from collections.abc import Sequence
from math import log2
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.domain.events import Recorded, Tx
from hansard.domain.ids import AgentStream
from hansard.projections.rows import PART_ROWS, Batch, Problem, Row, Rows
from hansard.projections.store import Store
from tests.projections.support import Messages, digests, new_store, selected

DATA = b'{"step":%d,"rule":"r","reason":"x"}'
BAD = 2**70
"""A step's number that the record holds and no column does."""


class Counted(Store):
    """Counts the tries to put rows into the tables, and the rows of them."""

    tries = 0
    rows_tried = 0

    def _fill(
        self, rows: Sequence[Row], problems: Sequence[Problem], chunks: Sequence[Any]
    ) -> None:
        self.tries += 1
        self.rows_tried += len(rows)
        super()._fill(rows, problems, chunks)


def counted(folder: Path) -> Counted:
    """Return an empty store that counts."""
    path = folder / "counted.duckdb"
    new_store(path).close()
    return Counted(path)


def blocked(step: int) -> Recorded:
    """Return an event with a step's number."""
    return Recorded("step.blocked.v1", "", msgspec.Raw(DATA % step))


def log_with(many: int, bad: Sequence[int]) -> Messages:
    """Return a log of commits with one event each, some of which cannot be taken."""
    messages = Messages()
    for number in range(many):
        step = BAD if number in bad else number
        messages.add(AgentStream(f"run {number}", "r", "a"), 1, [blocked(step)])
    return messages


def batch_of(messages: Messages) -> Batch:
    """All of it at once."""
    rows = Rows(chain="")
    for message in messages.all:
        rows.add(message)
    batch = rows.take()
    assert batch is not None
    return batch


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("many", "bad"),
    [(300, range(0)), (300, [222]), (300, [9, 10, 250]), (4, range(4))],
    ids=["none", "one", "many", "all"],
)
def test_bad_rows_cost_no_more_than_a_few_tries_each(tmp_path: Path, many: int, bad: Sequence[int]):
    """Each bad row costs about 3 log2(batch) tries, and all other rows are written."""
    messages = log_with(many, bad)
    store = counted(tmp_path)
    try:
        batch = batch_of(messages)
        store.write(batch, many)
        deep, bad_rows = log2(many) + 1, len(bad)
        assert store.tries <= 2 + 3 * bad_rows * (deep + 1)
        part = 2 * PART_ROWS
        assert store.rows_tried <= many * (2 * min(bad_rows, deep) + 1) + 3 * bad_rows * deep * part
        assert [row["position"] for row in selected(store, "problems")] == [n + 1 for n in bad]
        assert store.all("SELECT count(*) FROM events") == [(many,)]
        assert store.all("SELECT count(*) FROM policies") == [(many - bad_rows,)]
        assert store.progress.position == many
        assert (store.progress.messages, store.progress.chain) == (many, batch.chain)
        intact = {name: digest for name, digest in store.digests().items() if name != "problems"}
    finally:
        store.close()
    other = digests(tmp_path / "o.duckdb", messages.all, [many // 3])
    assert {n: d for n, d in other.items() if n not in {"problems", "progress"}} == {
        n: d for n, d in intact.items() if n != "progress"
    }


@pytest.mark.thorough(
    quick="projections/test_store.py::test_a_batch_is_written_whole_or_not_at_all"
)
def test_what_was_good_is_kept_where_the_rest_fails(tmp_path, monkeypatch):
    """A batch with bad rows is written in parts that a killed writer resumes from."""
    messages = log_with(400, [300])
    store = counted(tmp_path)
    batch = batch_of(messages)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Store, "_sifted", killed)
        with pytest.raises(KeyboardInterrupt):
            store.write(batch, 400)
    store.close()
    again = Counted(tmp_path / "counted.duckdb")
    try:
        reached = again.progress.position
        assert 300 - 2 * PART_ROWS < reached <= 300
        assert again.all("SELECT max(position) FROM events") == [(reached,)]
        again.write(batch, 400)
        assert again.progress.position == 400
        assert again.all("SELECT count(*) FROM policies") == [(399,)]
        assert (again.progress.messages, again.progress.chain) == (400, batch.chain)
    finally:
        again.close()


def test_a_transaction_is_in_one_part(tmp_path: Path):
    """A batch is never cut between the commits of one transaction."""
    messages = Messages()
    many = 3 * PART_ROWS
    for index in range(many):
        stream = AgentStream(f"run {index}", "r", "a")
        messages.add(stream, 1, [blocked(index)], tx=Tx("t", index, many))
    messages.add(AgentStream("after", "r", "a"), 1, [blocked(1)])
    batch = batch_of(messages)
    assert [end.last.position for end in batch.ends] == [many]
