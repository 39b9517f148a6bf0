"""Lineage: calls, decisions, their inputs, and forks."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import hansard
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles
from tests.audit.support import decided_of_old
from tests.projections.test_paths import _shell

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str, str]]:
    """Yield a run of two calls and two decisions, and a fork of it that decides again."""
    home = tmp_path_factory.mktemp("lineage") / "data"
    workspace = f"l{uuid4().hex[:8]}"
    with hansard.connect(workspace, data_dir=home) as record:

        def work(session: hansard.Session, last: str) -> None:
            look = session.tool(effects="pure", name="look")(lambda thing: thing.upper())
            first = look("a")
            session.decide("Go on?", selected="yes")
            look(first)
            inputs = [session.run, "a note of somebody"]
            session._drive(decided_of_old(session, inputs, question=last, selected="stop"))

        with record.run("w", agent="ada", role="r") as session:
            work(session, "Stop?")
            run = session.run
        fork = record.fork(run, at="ada@4")
        with record.run(run=fork, agent="ada", role="r") as session:
            work(session, "Stop now?")
        _shell(home, workspace, "rebuild")
        copied = shutil.copy(TableFiles.of(home, workspace).path, home / "t.duckdb")
        store = Store(Path(copied), read_only=True)
        yield store, run, fork
        store.close()


def _decision(store: Store, run: str, question: str) -> str:
    [[decision]] = store.all(
        "SELECT decision FROM decisions WHERE run = $1 AND question = $2", [run, question]
    )
    return str(decision)


def test_a_decision_leads_back_to_every_call_before_it(story: tuple[Store, str, str]):
    """A decision leads back to its inputs, the outcomes seen, and their calls, nearest first."""
    store, run, _ = story
    rows = store.rows("FROM caused_by($1) ORDER BY depth, type", [_decision(store, run, "Stop?")])
    steps = [(row["depth"], row["how"], row["type"]) for row in rows]
    assert steps == [
        (1, "after", "step.completed.v1"),
        (1, "input", None),
        (1, "input", None),
        (2, "request", "step.requested.v1"),
        (3, "after", "step.completed.v1"),
        (4, "request", "step.requested.v1"),
    ]
    assert {row["cause"] for row in rows if row["type"] is None} == {run, "a note of somebody"}


@pytest.mark.thorough
def test_a_call_leads_to_its_consequences(story: tuple[Store, str, str]):
    """The way on from the first request reaches both decisions; both ways have the same links."""
    store, run, _ = story
    [[first]] = store.all(
        "SELECT e.id FROM events AS e JOIN steps AS s ON e.position = s.requested_position AND "
        "e.version = s.requested_version WHERE s.run = $1 ORDER BY s.step LIMIT 1",
        [run],
    )
    ahead = store.rows("FROM led_to($1)", [first])
    decided = {row["event"] for row in ahead if row["type"] == "decision.made.v1"}
    assert decided >= {_decision(store, run, "Go on?"), _decision(store, run, "Stop?")}
    for row in ahead:
        back = store.all("SELECT cause FROM caused_by($1)", [row["event"]])
        assert (first,) in back


def test_a_fork_leads_back_into_its_parent(story: tuple[Store, str, str]):
    """A decision of a fork refers to a call that only its parent made."""
    store, run, fork = story
    rows = store.rows("FROM caused_by($1)", [_decision(store, fork, "Stop now?")])
    assert {row["run"] for row in rows if row["type"] is not None} == {run, fork}
