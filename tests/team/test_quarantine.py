"""A commit that does not fit its subject and user is quarantined on read, and listed.

Trusted agents write to the broker themselves. Here a bare client with their login publishes bodies
that no agent of ours would: none of them counts, and the agents they target continue.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.bus.errors import Conflict, Fenced
from hansard.client.record import Record
from hansard.domain import team
from hansard.domain.ids import KeyStream
from hansard.domain.integrity import Fold
from hansard.projections.rows import Rows
from hansard.projections.store import Store
from tests.cli.planting import raw_log
from tests.conftest import THOROUGH
from tests.fixtures import together
from tests.projections.support import new_store, write
from tests.team.forging import (
    ADA,
    FORGERIES,
    PLANTED,
    RUN,
    claimed,
    forged,
    message,
    message_added,
    publish,
    put,
)

pytestmark = pytest.mark.later


def tell(record: Record, run: str = RUN) -> None:
    """Two agents, a key, a task, a message, a view."""
    with together(record, run=run, ada="writer", bob="reader") as (ada, bob):
        ada.message("user", "hello")
        ada.board.put("plan", {"x": 1})
        ada.team.add("Read", role="reader", task="t")
        ada.team.send("please", role="reader")
        bob.team.inbox()
        ada.view()


def facts(record: Record, run: str = RUN) -> dict[str, Any]:
    """Return a run's state without the number of versions of its streams."""
    view = record.state(run)
    zero = msgspec.structs.replace
    return {
        "life": zero(view.life, version=0),
        "agents": {
            name: zero(state, version=0, quarantined=0) for name, state in view.agents.items()
        },
        "boards": {key: zero(state, version=0) for key, state in view.boards.items()},
        "tasks": view.team.tasks,
    }


def next_version(record: Record, stream: Any) -> int:
    """Return the version of a stream's next event."""
    return record.state(stream.run).vector.get(str(stream), 0) + 1


@pytest.fixture
def two_runs(record: Record) -> Record:
    """Return a record with a run to forge in, and another one."""
    tell(record)
    tell(record, "r-2")
    return record


def rows(home: Path, workspace: str, store: Store) -> Store:
    """Tables of the log as a projector makes them."""
    made = Rows(store.progress.position, Fold(store.past))
    for each in raw_log(home, workspace):
        made.add(each)
    write(store, made)
    return store


def texts(store: Store) -> dict[str, str]:
    """Return all contents of each table."""
    return {table: repr(store.all(f'SELECT * FROM "{table}"')) for table in store.tables()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Empty tables."""
    made = new_store(tmp_path / "t.duckdb")
    yield made
    made.close()


@pytest.mark.thorough(quick="cli/test_check.py::test_a_sound_workspace_has_no_finding")
def test_what_is_true_fits(two_runs: Record, call, data_dir, workspace, store):
    """Events of sessions, a settlement, a fork, an import and people are never quarantined."""
    with two_runs.run("w", run=RUN, agent="ada", role="writer") as ada:
        assert ada.board.get("plan") == {"x": 1}
        with pytest.raises(TimeoutError):
            ada.tool(effects="once")(_fails)()
    [doubtful] = two_runs.state(RUN).agent("ada").open_steps
    two_runs.settle(RUN, f"ada#{doubtful.number}", "did_not_happen", by="eve")
    with two_runs.run("w", run=RUN, agent="ada", role="writer") as ada:
        ada.message("user", "who knows", label="untrusted")
        ada.board.put("doubtful", 1)
    two_runs.roles.declassify(RUN, agent="ada", to="public", approver="eve", reason="looked")
    two_runs.roles.declassify(RUN, key="doubtful", to="public", approver="eve", reason="looked")
    assert call("roles", "view", "writer", RUN, "--json").code == 0
    with two_runs.run("w", run=RUN, agent="ada", role="writer") as ada:
        assert ada.board.get("doubtful") == 1
    child = two_runs.fork(RUN)
    with two_runs.run(run=child, agent="ada", role="writer") as ada:
        ada.board.get("plan")
        ada.board.put("plan", 2)
        ada.message("user", "forked")
    assert call("check", "--json").code == 0
    rows(data_dir, workspace, store)
    assert store.all("SELECT * FROM problems") == []


def _fails() -> None:
    raise TimeoutError


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("case", sorted(FORGERIES))
def test_nothing_of_a_forgery_counts(case, two_runs, call, data_dir, workspace, store):
    """A forgery counts in no state or table, and is reported; the run goes on."""
    before, other = facts(two_runs), facts(two_runs, "r-2")
    stream, forge = FORGERIES[case]
    version = next_version(two_runs, stream)
    publish(data_dir, message(workspace, version, forge(version)))

    with hansard.connect(workspace, data_dir=data_dir) as fresh:
        for each in (two_runs, fresh):
            assert facts(each) == before
            assert facts(each, "r-2") == other
            assert [name for name, _ in each.runs()] == ["r-2", RUN]
        goes_on(fresh)
        after = facts(fresh)
        assert after["boards"]["plan"].plain == {"x": 2}
        assert [each.status.value for each in after["tasks"].values()] == ["done"]
        assert len(after["agents"]["ada"].messages) == 2
        assert PLANTED not in repr(after)

    checked = [json.loads(line) for line in call("check", "--json").out.splitlines()]
    assert {"quarantine", "body", "event"} & {line.get("finding") for line in checked}
    rows(data_dir, workspace, store)
    subject, _ = message(workspace, version, forge(version))
    assert store.all("SELECT subject FROM problems") == [(subject,)]
    for table, held in texts(store).items():
        assert table in ("problems", "events") or PLANTED not in held
    assert store.all(
        "SELECT count(*) FROM events WHERE data LIKE '%planted%' AND known_as IS NOT NULL"
    ) == [(0,)]


def goes_on(record: Record) -> None:
    """Both agents come back and do some more."""
    with together(record, run=RUN, ada="writer", bob="reader") as (ada, bob):
        ada.message("user", "hello")
        ada.message("user", "hello again")
        ada.board.put("plan", {"x": 1})
        ada.board.get("plan")
        ada.board.put("plan", {"x": 2})
        mine = bob.team.claim()
        assert mine is not None
        bob.team.complete(mine)
        assert [each.content for each in bob.team.inbox()] in ([], ["please"])
        ada.view()


@pytest.mark.slow
def test_what_holds_after_a_restart_of_the_projector(
    two_runs: Record, data_dir, workspace, tmp_path
):
    """Membership is read from the tables: the same commits are quarantined wherever a batch
    ends.
    """
    _, forge = FORGERIES["a put as another role"]
    late = next_version(two_runs, ADA)
    publish(data_dir, message(workspace, 2, forge(2)))
    publish(data_dir, message(workspace, late, (ADA, forged(late, message_added(), epoch=5))))
    goes_on(two_runs)
    log = raw_log(data_dir, workspace)
    whole, stopped = new_store(tmp_path / "a.duckdb"), new_store(tmp_path / "b.duckdb")
    for made, step in ((whole, len(log)), (stopped, 1 if THOROUGH else len(log) // 3)):
        for begin in range(0, len(log), step):
            taken = Rows(made.progress.position, Fold(made.past))
            for each in log:
                if each.position <= begin + step:
                    taken.add(each)
            write(made, taken)
    assert len(whole.all("SELECT * FROM problems")) == 2
    assert stopped.digests() == whole.digests()
    whole.close()
    stopped.close()


@pytest.mark.thorough(quick="test_nothing_of_a_forgery_counts")
def test_it_is_shown(two_runs: Record, call, data_dir, workspace):
    """`hansard run show` and `hansard status` list quarantined commits with place and reason."""
    late = next_version(two_runs, ADA)
    publish(
        data_dir, message(workspace, late, (ADA, forged(late, message_added(), by="bob", epoch=1)))
    )
    shown = [json.loads(line) for line in call("run", "show", RUN, "--json").out.splitlines()]
    [line] = [each for each in shown if each["kind"] == "quarantined"]
    assert (line["stream"], line["version"]) == ("agent/writer/ada", late)
    assert line["reason"] == "'bob' wrote it, in the stream of agent 'ada'"
    ran = call("run", "show", RUN)
    assert "quarantined" in ran.out
    assert "in the stream of agent" in ran.out
    assert "quarantined" not in call("run", "show", "r-2").out
    assert call("rebuild").code == 0
    call("sql", "SELECT reason FROM problems")
    [status] = [
        each
        for each in map(json.loads, call("status", "--json").out.splitlines())
        if each.get("kind") == "workspace"
    ]
    assert status["quarantined"] == 1
    assert "quarantined" in call("status").out


def test_an_export_is_the_record_as_it_is(two_runs: Record, call, data_dir, workspace, tmp_path):
    """A forged commit is exported verbatim; an invalid one is named."""
    before = facts(two_runs)
    late = next_version(two_runs, ADA)
    made = (ADA, forged(late, message_added(), by="bob", epoch=1))
    publish(data_dir, message(workspace, late, made))
    assert call("export", RUN, "-o", tmp_path / "x.ndjson").code == 0
    assert PLANTED in (tmp_path / "x.ndjson").read_text(encoding="utf-8")
    elsewhere = f"{workspace}-2"
    with hansard.connect(elsewhere, data_dir=data_dir) as copied:
        ran = call("-w", elsewhere, "import", "events", tmp_path / "x.ndjson")
        assert (ran.code, facts(copied)) == (0, before)
    publish(data_dir, message(workspace, late + 1, (ADA, b"\x00")))
    ran = call("export", RUN, "-o", tmp_path / "y.ndjson")
    assert ran.code != 0
    assert "not a commit" in ran.err


@pytest.mark.parametrize("epoch", [1, 9])
def test_a_session_at_work_stops_and_goes_on_when_opened_again(
    epoch: int, two_runs: Record, call, data_dir, workspace
):
    """A session whose next version is taken stops with an error, and loses nothing when
    reopened.
    """

    def disturbed() -> None:
        with two_runs.run("w", run=RUN, agent="ada", role="writer") as ada:
            ada.message("user", "before")
            late = next_version(two_runs, ADA)
            made = (ADA, forged(late, message_added(), by="bob", epoch=epoch))
            publish(data_dir, message(workspace, late, made))
            ada.message("user", "after")

    with pytest.raises((Conflict, Fenced)):
        disturbed()
    goes_on(two_runs)
    contents = [
        json.loads(bytes(each.content)) for each in two_runs.state(RUN).agent("ada").messages
    ]
    assert contents == ["hello", "before", "hello again"]


def test_keys_are_written_on_behind_a_forgery(two_runs: Record, data_dir, workspace):
    """Writers of shared state decide again and never notice."""
    with two_runs.run("w", run=RUN, agent="ada", role="writer") as ada:
        ada.board.add("n", 1)
        made = (KeyStream(RUN, "n"), forged(2, put("boss")))
        publish(data_dir, message(workspace, 2, made))
        assert ada.board.add("n", 2) == 3
        ada.team.add("More", task="more")
        tasks = KeyStream(RUN, team.TASKS_KEY)
        late = next_version(two_runs, tasks)
        publish(data_dir, message(workspace, late, (tasks, forged(late, claimed("bob", "boss")))))
        claim = ada.team.claim()
        assert claim is not None
        ada.team.complete(claim)
    assert two_runs.state(RUN).boards["n"].plain == 3
