"""The team in SQL equals the team that the log folds to, and a role's file holds its part."""

import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

import hansard
from hansard.agents.access import principals
from hansard.bus.clock import OS_USER
from hansard.bus.portal import portal
from hansard.client.record import Record
from hansard.domain import team
from hansard.domain.access import AccessRefused
from hansard.domain.decider import By, evolve
from hansard.domain.ids import WorkspaceStream
from hansard.domain.integrity import Fold
from hansard.domain.roles.model import May, RoleDefined, RoleRule
from hansard.projections.rows import Rows
from hansard.projections.store import Store
from hansard.projections.table_files import role_place
from hansard.state.replay import tasks_of
from tests.cli.planting import raw_log
from tests.domain.strategies import task_histories
from tests.fixtures import together
from tests.projections.support import Messages, fill, new_store, selected, write

pytestmark = pytest.mark.later

SECRET = "planted-and-not-for-everybody"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Empty tables."""
    made = new_store(tmp_path / "t.duckdb")
    yield made
    made.close()


def filled(store: Store, home: Path, workspace: str) -> Store:
    """Tables of a workspace's log."""
    rows = Rows(store.progress.position, Fold(store.past))
    for each in raw_log(home, workspace):
        rows.add(each)
    write(store, rows)
    assert selected(store, "problems") == []
    return store


STATUS = {"open": "open", "claimed": "claimed", "done": "done", "failed": "failed"}


def check_tasks(store: Store, run: str, state: team.TeamState) -> None:
    """Check that the rows of a run's tasks equal its fold."""
    rows = {row["task"]: row for row in selected(store, "tasks", "run = $1", run)}
    assert rows.keys() == state.tasks.keys()
    for name, task in state.tasks.items():
        row = rows[name]
        expected = {
            "title": task.added.title,
            "status": STATUS[task.status.value],
            "role": task.role or None,
            "agent": task.agent or None,
            "claims": task.number,
            "waits_for": list(task.added.waits_for),
            "waits_for_roles": list(task.added.waits_for_roles),
            "added_by": task.by,
            "version": task.changed,
            "error_type": task.error.type if task.error else None,
        }
        assert {column: row[column] for column in expected} == expected
        if task.holder:
            assert row["last_holder"] == task.holder
        if task.status is team.TaskStatus.DONE:
            result = json.loads(row["result"]) if row["result"] is not None else None
            assert result == json.loads(bytes(task.result))


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(task_histories)
def test_tasks_are_what_the_domain_folds(events):
    """The rows equal the fold for any task events in any order."""
    messages, state = Messages(), team.TeamState()
    for version, each in enumerate(events, 1):
        made = messages.add(tasks_of("r"), version, [each])
        evolve(state, each, By("somebody", made.stamp, ""))
    with tempfile.TemporaryDirectory() as folder:
        filled_store = new_store(Path(folder) / "t.duckdb")
        fill(filled_store, messages.all, range(1, len(events), 2))
        check_tasks(filled_store, "r", state)
        holds = selected(filled_store, "task_holds")
        assert len(holds) == sum(isinstance(each, team.TaskClaimed) for each in events)
        filled_store.close()


@pytest.mark.thorough(quick="test_refusals")
def test_who_held_what_and_who_waited(record: Record, data_dir, workspace, store):
    """Expired leases, hand-offs, failures, waits and a fork's tasks are in the tables."""
    with together(record, ada="reader", bob="reader", cyd="writer") as (ada, bob, cyd):
        ada.team.add("Read", what={"x": 1}, role="reader", task="read")
        ada.team.add("Write", role="writer", waits_for=["read"], task="write")
        ada.team.add("Print", waits_for=["read"], waits_for_roles=["writer"], task="print")
        ada.team.claim(lease_s=0.3)
        taken = bob.team.claim(timeout_s=10)
        assert taken is not None
        bob.team.hand_off(taken, role="writer", with_=["paper"], reason="found it")
        bob.team.send("please", role="writer")
        cyd.team.send({"y": 2}, agent="ada")
        last = cyd.team.claim()
        assert last is not None
        cyd.team.complete(last, {"pages": 3})
        cut = record.state("r").position
        last = cyd.team.claim()
        assert last is not None
        cyd.team.fail(last, "no ink")
    child = record.fork("r", at=cut)
    filled(store, data_dir, workspace)
    for run in ("r", child):
        check_tasks(store, run, record.state(run).team)
    holds = store.all(
        "SELECT number, agent, role, ended, next_agent, next_role, until >= since FROM task_holds "
        "WHERE run = 'r' AND task = 'read' ORDER BY number"
    )
    assert holds == [
        (1, "ada", "reader", "lease ran out", "bob", "reader", True),
        (2, "bob", "reader", "handed_off", None, "writer", True),
        (3, "cyd", "writer", "completed", None, None, True),
    ]
    waits = "SELECT task, kind, on_what, its_status FROM task_waits WHERE run = 'r' ORDER BY ALL"
    assert store.all(waits) == [
        ("print", "role", "writer", "failed"),
        ("print", "task", "read", "done"),
        ("write", "task", "read", "done"),
    ]
    assert store.all("SELECT error FROM tasks WHERE run = 'r' AND task = 'write'") == [("no ink",)]
    assert store.all("SELECT status FROM tasks WHERE run = $1 AND task = 'write'", [child]) == [
        ("open",)
    ]
    assert store.all("SELECT sender, to_agent, to_role, content FROM mail ORDER BY version") == [
        ("bob", None, "writer", '"please"'),
        ("cyd", "ada", None, '{"y":2}'),
    ]
    assert store.all("SELECT DISTINCT what FROM history WHERE what LIKE 'task%' ORDER BY ALL") == [
        (word,)
        for word in (
            "task added",
            "task claimed",
            "task completed",
            "task failed",
            "task handed on",
        )
    ]


def _send(_to: str) -> str:
    return "sent"


@pytest.mark.thorough(quick="test_refusals")
def test_approvals(record: Record, data_dir, workspace, store):
    """Granted and used, denied and expired approvals have the answer's author, reason and
    duration.
    """
    asks = [hansard.ask_first(tool="_send", timeout_s=30, name="mail")]
    late = [hansard.ask_first(tool="_send", timeout_s=0.2, name="late")]

    def answers() -> None:
        until = time.monotonic() + 20
        answered: list[str] = []
        while len(answered) < len(("granted", "denied")) and time.monotonic() < until:
            for question in record.approvals.list():
                if question.approval.id not in answered:
                    answer = record.approvals.deny if answered else record.approvals.grant
                    answer(question.approval.id, by="eve", reason="no" if answered else "fine")
                    answered.append(question.approval.id)
            time.sleep(0.02)

    helper = threading.Thread(target=answers)
    helper.start()
    with record.run("w", run="r", agent="ada", role="writer", gate=asks) as ada:
        send = ada.tool(effects="once")(_send)
        assert send("bob") == "sent"
        with pytest.raises(hansard.Blocked):
            send("cyd")
    helper.join()
    with (
        record.run("w", run="q", agent="ada", role="writer", gate=late) as ada,
        pytest.raises(hansard.Blocked),
    ):
        ada.tool(effects="once")(_send)("dan")
    filled(store, data_dir, workspace)
    columns = "run, agent, role, tool, rule, standing, answered_by, because, uses"
    assert store.all(f"SELECT {columns} FROM approvals ORDER BY position") == [
        ("r", "ada", "writer", "_send", "mail", "granted", "eve", "fine", 1),
        ("r", "ada", "writer", "_send", "mail", "denied", "eve", "no", None),
        ("q", "ada", "writer", "_send", "late", "expired", None, None, None),
    ]
    waited = store.all("SELECT waited_ms >= 0, asked_at <= answered_at FROM approvals LIMIT 1")
    assert waited == [(True, True)]


def test_refusals(record: Record, data_dir, workspace, store):
    """Refusals are listed: a call, a key, and a refused login."""
    sees = RoleRule(name="all of it", kinds=("**",))
    record.roles.apply("writer", RoleDefined(sees=(sees,), may=May(tools=("search",))))
    with record.run("w", run="r", agent="ada", role="writer") as ada:
        with pytest.raises(hansard.Blocked):
            ada.tool(effects="once")(_send)("bob")
        with pytest.raises(hansard.Blocked):
            ada.board.put("plan", 1)
    work = record.workspace
    refused = AccessRefused(
        principal="eve", role="boss", operation="view", because="revoked", count=4
    )
    portal().run(
        work.repository.record(WorkspaceStream("access", "eve"), "service", lambda _: [refused])
    )
    filled(store, data_dir, workspace)
    columns = "kind, run, agent, principal, role, what, name, rule, count"
    rows = store.all(f"SELECT {columns} FROM refusals ORDER BY position, event")
    assert ("access", None, None, "eve", "boss", "view", None, None, 4) in rows
    by_kind = {row[0]: row for row in rows}
    assert by_kind["call"][1:3] + by_kind["call"][5:8] == (
        "r", "ada", "call", "_send", "role writer",
    )  # fmt: skip
    assert by_kind["statement"][7] == "role writer"
    assert "plan" in by_kind["statement"][6]


def test_principals_and_their_tokens(record: Record, data_dir, workspace, store):
    """Principals and valid tokens are listed, without digests."""
    record.roles.apply("writer", RoleDefined(sees=(RoleRule(name="a", kinds=("message.*",)),)))
    work, run = record.workspace, portal().run
    run(principals.register(work, "ada", about="the first", by="eve"))
    kept = run(principals.issue(work, "ada", "writer", by="eve"))
    lost = run(principals.issue(work, "ada", "writer", by="eve"))
    short = run(principals.issue(work, "ada", "writer", expires_s=1.0, by="eve"))
    run(principals.revoke(work, "ada", lost.id, reason="lost", by="dan"))
    time.sleep(1.1)
    with record.run("w", run="r", agent="x", role="y"):
        pass
    filled(store, data_dir, workspace)
    assert store.all("SELECT principal, kind, about, registered_by FROM principals") == [
        ("ada", "agent", "the first", "eve")
    ]
    rows = store.all("SELECT token, role, standing, issued_by, revoked_by, because FROM tokens")
    assert sorted(rows) == sorted(
        [
            (kept.id, "writer", "valid", "eve", None, None),
            (lost.id, "writer", "revoked", "eve", "dan", "lost"),
            (short.id, "writer", "expired", "eve", None, None),
        ]
    )
    held = repr([store.all(f"SELECT * FROM {table}") for table in ("principals", "tokens")])
    assert kept.token not in held
    assert kept.digest not in held


@pytest.mark.slow
def test_no_byte_of_others_team_in_a_role_s_file(record: Record, call, data_dir, workspace):
    """A role's file has no byte of others' team events."""
    sees = RoleRule(name="reports", roles=("writer",))
    record.roles.apply("reader", RoleDefined(sees=(sees,), may=May(query=True)))
    none = RoleRule(name="nothing", kinds=("checkpoint.*",))
    record.roles.apply("boss", RoleDefined(sees=(none,), may=May(kinds=("message.*",))))
    work, run = record.workspace, portal().run
    run(principals.register(work, f"{SECRET}-principal", about=SECRET))
    run(principals.issue(work, f"{SECRET}-principal", "boss"))
    refused = AccessRefused(
        principal=SECRET, role=SECRET, operation=SECRET, because=SECRET, count=4
    )
    run(
        work.repository.record(
            WorkspaceStream("access", "stranger"), "service", lambda _: [refused]
        )
    )
    with together(record, ada="writer", bob="spy", cyd="boss") as (ada, bob, cyd):
        ada.team.add("Read", task="seen")
        bob.team.add(SECRET, what=SECRET, task=f"{SECRET}-task")
        bob.team.send(SECRET, role="boss")
        with pytest.raises(hansard.Blocked):
            cyd.board.put(SECRET, SECRET)
    call("sql", f"SELECT '{SECRET}'", "--role", "reader", "--by", SECRET)
    ran = call("sql", "SELECT task, title FROM tasks", "--role", "reader", "--json")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"task": "seen", "title": "Read"}
    ]
    place = role_place(data_dir, workspace, "reader")
    store = Store(place.path, read_only=True)
    for table in store.tables():
        assert SECRET not in repr(store.all(f'SELECT * FROM "{table}"')), table
    for table in ("principals", "tokens_issued", "queries", "mail", "refusals", "approval_events"):
        assert store.all(f"SELECT count(*) FROM {table}") == [(0,)], table
    store.close()
    for file in place.path.parent.rglob("reader*.duckdb"):
        assert SECRET.encode() not in file.read_bytes()


@pytest.mark.thorough(
    quick="sql_sandbox/test_written.py::test_a_role_is_written_what_it_sees_once_that_is_on_record"
)
def test_a_question_as_a_role_is_on_record(record: Record, call, data_dir, workspace, store):
    """A role's query is on record by digest, with rules, position, rows and whether it was cut."""
    sees = RoleRule(name="reports", kinds=("message.*",), roles=("writer",))
    record.roles.apply("reader", RoleDefined(sees=(sees,), may=May(query=True)))
    record.roles.apply("blind", RoleDefined(sees=(sees,)))
    with record.run("w", run="r", agent="ada", role="writer") as ada:
        ada.message("user", "hello")
        ada.message("user", "you")
    question = "SELECT count(*) FROM messages"
    ran = call("sql", question, "--role", "reader", "--by", "eve", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"count_star()": 2})
    assert call("sql", "SELECT nothing", "--role", "reader").code != 0
    assert call("sql", question, "--role", "blind").code != 0
    assert call("sql", question, "--json").code == 0
    again = call("sql", "SELECT * FROM messages", "--role", "reader", "--rows", "1", "--json")
    assert len(again.out.splitlines()) == 1
    filled(store, data_dir, workspace)
    rows = store.all(
        "SELECT role, asked_by, statement, rows, cut, role_position, rules, upto FROM queries "
        "ORDER BY version"
    )
    digest = hashlib.sha256(question.encode()).hexdigest()
    assert [row[:5] for row in rows] == [
        ("reader", "eve", digest, 1, False),
        ("reader", OS_USER, hashlib.sha256(b"SELECT * FROM messages").hexdigest(), 1, True),
    ]
    defined = store.all(
        "SELECT id FROM events WHERE type = 'role.defined.v1' AND stream LIKE '%reader'"
    )
    assert {row[6] for row in rows} == {defined[0][0]}
    ends = dict(store.all("SELECT commit_id, position FROM events"))
    assert all(row[7] in ends for row in rows)
    assert ends[rows[0][7]] < ends[rows[1][7]]
