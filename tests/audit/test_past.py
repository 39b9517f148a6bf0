"""Tables at a position equal the log's fold there; a trail lists the actual events."""

import random
from typing import Any

import pytest

import hansard
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.state.replay import RunView
from tests.audit.support import Audited
from tests.conftest import THOROUGH

pytestmark = pytest.mark.slow

POINTS = 7 if THOROUGH else 4
SEED = 11

TOUCHED = """
    SELECT run, agent, list(DISTINCT (data->>'step')::BIGINT) AS steps FROM as_of($1)
    WHERE type LIKE 'step.%' AND type <> 'step.yielded.v1' GROUP BY run, agent
"""
MATTERS = """
    SELECT id FROM events WHERE run = $1 AND (stream NOT LIKE 'board/%' OR type LIKE 'approval.%')
    AND type NOT IN ('step.yielded.v1', 'tool.declared.v1') ORDER BY position, event_index
"""


def test_the_past_is_what_a_fold_says(story: Audited):
    """At random positions: every run's status, every step; forks and their parents' steps."""
    head = story.value("SELECT position FROM progress")
    points = [1, *sorted(random.Random(SEED).sample(range(2, head), POINTS)), head]
    queries: list[tuple[str, list[object]]] = []
    for point in points:
        queries += [
            ("SELECT * FROM runs_as_of($1)", [point]),
            ("SELECT * FROM steps_as_of($1)", [point]),
            (TOUCHED, [point]),
        ]
    answers = iter(story.answers(*queries))
    compared = 0
    with hansard.connect("story", data_dir=story.home) as record:
        known = [run for run, _ in record.runs()]
        for point in points:
            runs = {row["run"]: row for row in next(answers)}
            steps = {(row["run"], row["agent"], row["step"]): row for row in next(answers)}
            touched = {(row["run"], row["agent"]): set(row["steps"]) for row in next(answers)}
            views = {run: view for run in known if (view := _at(record, run, point)) is not None}
            assert runs.keys() == views.keys()
            for run, view in views.items():
                _check_run(runs[run], view)
            assert steps.keys() == {(*of, step) for of, each in touched.items() for step in each}
            for (run, agent, number), row in steps.items():
                _check_step(row, views[run].agents[agent].steps[number])
                compared += 1
    assert compared > 100


def _at(record: hansard.Record, run: str, point: int) -> RunView | None:
    try:
        return record.state(run, at=point)
    except NotFound:
        return None


def _check_run(row: dict[str, Any], view: RunView) -> None:
    life = view.life
    failed = life.error if life.status == "failed" else None
    recorded = (life.status, life.workflow, life.version)
    assert (row["status"], row["workflow"], row["version"]) == recorded
    error = (failed.type, failed.message) if failed else (None, None)
    assert (row["error_type"], row["error"]) == error
    assert (row["ended_at"] is None) == (life.status == "open")


def _check_step(row: dict[str, Any], step: Any) -> None:
    error = step.error
    recorded = {
        "tool": step.tool,
        "kind": step.kind,
        "effects": step.effects,
        "status": step.status,
        "attempts": step.attempt,
        "duration_ms": step.duration_ms or None,
        "error_type": error.type if error else None,
        "error": error.message if error else None,
        "verdict": step.verdict,
        "outcome_version": step.outcome_version,
    }
    assert {name: row[name] for name in recorded} == recorded


def test_a_trail_tells_each_event_that_matters_once_and_in_order(story: Audited):
    """All of a run's events but items, declarations and budgets; in words."""
    runs = [row["run"] for row in story.rows("SELECT run FROM runs")]
    queries = [(sql, [run]) for run in runs for sql in ("SELECT * FROM trail($1)", MATTERS)]
    answers = story.answers(*queries)
    for trail, events in zip(answers[::2], answers[1::2], strict=True):
        assert [row["event"] for row in trail] == [row["id"] for row in events]
        assert all(row["who"] and row["what"] and "." in row["address"] for row in trail)
        calls = [row for row in trail if row["what"] in ("asked", "got", "failed", "blocked")]
        assert all(row["step"] is not None for row in calls)
        assert all(len(row["detail"] or "") <= 200 for row in trail)


@pytest.mark.thorough(quick="test_a_trail_tells_each_event_that_matters_once_and_in_order")
def test_a_trail_is_readable(story: Audited):
    """The trail shows a person's actions for an agent, the questions and their outcomes."""
    run = story.value("SELECT run FROM settlements WHERE because = 'the log of the server says so'")
    trail = story.rows("SELECT who, what, tool, step, detail FROM trail($1)", run)
    rows = [tuple(row.values()) for row in trail]
    assert rows[3] == ("sender", "asked", "send", 1, '{"to":"x@example.org"}')
    assert rows[4] == ("sender", "in doubt", "send", 1, "TimeoutError: slow")
    outcome = f"happened, says {OS_USER}: the log of the server says so"
    assert rows[-1] == (f"{OS_USER} for sender", "settled", "send", 1, outcome)
    done = story.call("trail", run)
    assert done.code == 0, done.err
    assert f"{OS_USER} for sender" in done.out
    lines = story.call("trail", run, "--json").lines
    assert len(lines) == len(trail) + 1
    assert lines[-1]["events"] == len(trail)


def test_what_touched_a_resource(story: Audited):
    """Uses by uri and pattern, and calls whose arguments name it."""
    rows = story.rows("SELECT * FROM touched('file:*')")
    assert [row["kind"] for row in rows] == ["read", "write", "write"]
    assert story.rows("SELECT * FROM touched('file:///5')") == rows[:1]
    mails = story.rows("SELECT * FROM touched('x@example.org')")
    assert len(mails) == 3
    assert {row["kind"] for row in mails} == {"argument"}
    assert story.rows("SELECT * FROM touched('x@*.org')") == mails
    assert story.rows("SELECT * FROM touched('not there')") == []
