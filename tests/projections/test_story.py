"""Real runs, projected: each is what the domain folds at the same point."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.domain.events import Commit
from hansard.domain.ids import AgentStream
from hansard.projections.store import Store
from tests.projections.conftest import Told
from tests.projections.support import (
    check_agent,
    check_facts,
    check_life,
    check_steps,
    commits_in_full,
    digests,
    fill,
    selected,
    some_borders,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(told: Told, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The story in tables, written in batches of random sizes."""
    made = Store(tmp_path_factory.mktemp("story") / "t.duckdb")
    fill(made, told.messages, some_borders(told.messages, 3))
    yield made
    made.close()


@pytest.mark.thorough(quick="tests/projections/test_laws.py::test_tables_are_what_the_domain_folds")
def test_every_run_is_what_its_fold_says(record: hansard.Record, told: Told, store: Store):
    """Status, roster, steps, attempts, results, messages, decisions, checkpoints ... of every run,
    forks of forks included, equal the state at the head.
    """
    steps = 0
    for run in told.runs:
        view = record.state(run)
        forked = view.life.forked
        cut = forked.at if forked is not None else {}
        check_life(store, run, view.life, cut.get("life", 0))
        own = {row["agent"]: row["role"] for row in selected(store, "agents", "run = $1", run)}
        assert own.items() <= view.life.roster.items()
        if forked is None:
            assert own == view.life.roster
        for name, state in view.agents.items():
            at = cut.get(str(AgentStream(run, state.role, name)), 0)
            check_facts(store, run, state, at)
            if state.version > at:
                check_agent(store, run, state)
                steps += check_steps(store, run, state, at)
    assert steps == store.all("SELECT count(*) FROM steps")[0][0]
    assert steps > 35
    assert len(told.runs) == store.all("SELECT count(*) FROM runs")[0][0]


@pytest.mark.thorough(quick="tests/projections/test_messages.py::test_a_fact_is_a_row")
def test_the_story_has_one_of_everything(store: Store):
    """No table of the story stands empty, but those of experiments, prices, imports, prompts,
    memory, experiences, the program's own aggregates and windows that were compacted.
    """
    empty = [name for name in store.tables() if not store.all(f"SELECT count(*) FROM {name}")[0][0]]
    assert empty == [
        "action_looks", "action_versions", "arms", "assignments", "compactions",
        "domain_events", "experience_bundles", "experience_replays",
        "experience_retirements", "experience_versions", "experiments", "imports",
        "invalidated_answers", "memory_changes", "memory_policies", "memory_rejections", "metrics",
        "offered_answers", "outcomes", "prices",
        "problems", "prompt_feedback", "prompt_moves", "prompt_versions",
    ]  # fmt: skip
    statuses = store.all("SELECT DISTINCT status FROM steps ORDER BY 1")
    assert [status for (status,) in statuses] == [
        "blocked", "completed", "failed", "in_doubt", "not_done",
    ]  # fmt: skip
    assert store.all("SELECT count(*) FROM steps WHERE inherited")[0][0] >= 2
    assert store.all("SELECT max(attempts) FROM steps")[0][0] >= 2


@pytest.mark.thorough(
    quick="tests/projections/test_messages.py::test_golden_events_of_every_type_are_projected"
)
def test_events_are_the_log(told: Told, store: Store):
    """Every event stands in `events`, in order, its data byte for byte; what refers to earlier
    events is in full.
    """
    wanted = [
        (position, index, event.id, event.type, str(event.data, "utf-8"))
        for position, commit in commits_in_full(told.messages)
        for index, event in enumerate(commit.events)
    ]
    stored = [msgspec.json.decode(message.body, type=Commit).events for message in told.messages]
    told_whole = sum(
        str(event.data, "utf-8") == row[-1]
        for event, row in zip((each for one in stored for each in one), wanted, strict=True)
    )
    assert len(wanted) > told_whole > len(wanted) * 0.9
    asked = "SELECT position, event_index, id, type, data FROM events ORDER BY ALL"
    assert store.all(asked) == wanted


@pytest.mark.thorough
@pytest.mark.long
def test_batch_borders_leave_no_trace(told: Told, tmp_path: Path, rounds):
    """Whatever the sizes of the batches: equal digests of every table."""
    one = digests(tmp_path / "one.duckdb", told.messages, [])
    assert sum(each.rows for each in one.values()) > 350
    for seed in range(rounds(1, 60)):
        path = tmp_path / f"{seed}.duckdb"
        assert digests(path, told.messages, some_borders(told.messages, seed)) == one, seed
        path.unlink()
