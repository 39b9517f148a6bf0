"""Delegated sessions through a real service: every write names the accountable principals."""

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.broker.lease import join
from hansard.bus.portal import portal
from hansard.client.restricted.link import SessionLink, value_of
from hansard.domain.access import QUERY_KIND as QUERIES
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.operations.protocol import wire
from tests.access.support import called, eventually
from tests.faults._warm import run
from tests.service.support import ALL, House, credentials
from tests.service.test_doors import wait_for_question
from tests.service.test_kills import up

pytestmark = pytest.mark.slow

CHAIN = ("alice", "lead")
WHOLE = ("ada", "alice", "lead")
AT_ONCE_S = 1.0
"""Seconds within which a session ends after the revocation of a principal in its chain."""


@pytest.fixture
def house(data_dir: Path, workspace: str, tmp_path: Path) -> House:
    """Make a workspace whose `ada` acts for alice, who acts for lead. No service yet."""
    return _made(data_dir, workspace, tmp_path)


def _made(data_dir: Path, workspace: str, folder: Path) -> House:
    made = House(data_dir, workspace, folder)
    made.apply(ALL)
    for name in CHAIN:
        _called(made, "register", name)
    return made


def _called(house: House, *given: str) -> None:
    called("--workspace", house.workspace, "--data-dir", house.data_dir, "principals", *given)


def _login(house: House, *chain: str) -> Path:
    more = {"on_behalf_of": chain}
    return asyncio.run(
        credentials(house.data_dir, house.folder, "ada", "writer", house.workspace, **more)
    )


@pytest.fixture
def served(house: House) -> Iterator[House]:
    """Serve the workspace in this process, with ada logged in for both."""
    house.files["ada", "writer"] = _login(house, *CHAIN)
    house.login("bob")
    house.begin()
    yield house
    house.end()


def _write_everything(house: House, gate: list[Any]) -> None:
    """Make each kind of write that a session can make, in streams of all kinds."""
    with house.connect(gate=gate) as record, record.run("w", run="r1") as session:

        @session.tool(effects="once")
        def send(to: str) -> str:
            return f"sent to {to}"

        @session.tool(effects="once")
        def wait() -> None:
            pytest.fail("nobody agreed")

        session.message("user", "one")
        session.decide("which?", selected="this")
        session.checkpoint("here", at=1)
        session.board.put("findings/1", "x")
        session.board.add("count", 2)
        with session.board.transaction() as both:
            both.put("findings/2", "y")
            both.put("findings/3", "z")
        session.team.add("Work", task="t")
        with session.team.claimed(lease_s=0.5) as task:
            time.sleep(0.6)  # the heartbeat extends it
            task.result = "done"
        session.team.send("hello", agent="bob")
        session.view()
        send("eve")
        with pytest.raises(hansard.Blocked, match="no answer within"):
            wait()


@pytest.mark.thorough
def test_all_that_a_session_writes_names_the_whole_chain(served: House):
    """Every commit of ada's session names the chain, none is quarantined, and SQL shows it."""
    house = served
    gate = [hansard.ask_first("send", timeout_s=30), hansard.ask_first("wait", timeout_s=0.3)]
    worker = threading.Thread(target=_write_everything, args=(house, gate))
    worker.start()
    with house.connect("bob") as record:
        record.approvals.grant(wait_for_question(record))
    worker.join(20)
    assert not worker.is_alive()
    with house.trusted() as record:
        stored = portal().run(record.workspace.log.read_run("r1"))
        assert record.state("r1").life.status.value == "completed"
    by_ada = [each for each in stored if each.commit.actor.agent == "ada"]
    assert {each.commit.actor.on_behalf_of for each in by_ada} == {WHOLE}
    assert {each.commit.actor for each in stored if each not in by_ada} == {Actor("bob", ("bob",))}
    tags = {event.type.rpartition(".")[0] for each in by_ada for event in each.commit.events}
    assert tags >= {
        "agent.left",
        "agent.session_began",
        "approval.expired",
        "approval.requested",
        "board.added",
        "board.put",
        "checkpoint.saved",
        "decision.made",
        "mail.sent",
        "message.added",
        "run.agent_joined",
        "run.completed",
        "run.started",
        "step.completed",
        "step.requested",
        "task.added",
        "task.claimed",
        "task.completed",
        "task.extended",
        "view.served",
    }
    statement = (
        "SELECT on_behalf_of, count(*) AS events FROM events WHERE actor = 'ada' GROUP BY ALL"
    )
    [row] = _sql(house, statement)
    assert row["on_behalf_of"] == list(WHOLE)
    assert row["events"] == sum(len(each.commit.events) for each in by_ada)
    assert _sql(house, "SELECT * FROM problems") == []


def test_what_a_trusted_program_says_is_on_all_it_writes(house: House):
    """`on_behalf_of=` of a session: its conversation, budgets, beginning and end have it, too."""
    options = {"run": "r1", "agent": "ada", "on_behalf_of": CHAIN, "conversation": "c"}
    gate = [hansard.budget("calls", 5, tool="*")]
    with house.trusted(gate=gate) as record:
        with record.run("w", **options) as session:

            @session.tool(effects="once")
            def send() -> None:
                """Nothing."""

            send()
        log = record.workspace.log
        stored = portal().run(log.read_run("r1"))
        stored += portal().run(log.read(WorkspaceStream("conversation", "c")))
    tags = {event.type.rpartition(".")[0] for each in stored for event in each.commit.events}
    assert tags >= {"budget.reserved", "conversation.run_joined", "run.started", "run.completed"}
    assert {each.commit.actor for each in stored} == {Actor("ada", CHAIN)}


def _sql(house: House, statement: str) -> list[dict[str, Any]]:
    settings = ["--workspace", house.workspace, "--data-dir", str(house.data_dir), "--json"]
    command = ["-m", "hansard", "sql", statement, *settings]
    done = run(command, cwd=house.data_dir, env=os.environ, timeout=170)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _revoke(house: House, who: str) -> None:
    _called(house, "revoke", who, "--reason", "left")


def _of(house: House, stream: Any) -> list[Actor]:
    with house.trusted() as record:
        return [each.commit.actor for each in portal().run(record.workspace.log.read(stream))]


def test_what_is_done_outside_of_a_session_names_it_too(served: House):
    """A view, settlement, answer and refusal are by ada, with the chain beside her."""
    house = served

    @hansard.tool(effects="once")
    def send() -> object:
        raise TimeoutError

    with pytest.raises(TimeoutError), house.connect("bob") as record, record.run("w", run="r1"):
        send()
    with house.connect() as record:
        record.roles.view("r1")
        record.settle("r1", "bob#1", "did_not_happen", reason="looked")
    with house.trusted() as record:
        [step] = record.state("r1").agent("bob").steps.values()
        assert step.status.value == "not_done"
        stored = portal().run(record.workspace.log.read_run("r1"))
    by_ada = [each for each in stored if each.commit.actor.agent == "ada"]
    tags = {event.type for each in by_ada for event in each.commit.events}
    assert tags == {"view.served.v1", "agent.session_began.v1", "step.settled.v1"}
    assert {each.commit.actor for each in by_ada} == {Actor("ada", WHOLE)}


def test_who_acts_for_the_asker_does_not_answer_it(house: House):
    """An agent's own question is not granted by one that acts for it; by another it is."""
    house.login("cyd")
    house.files["ada", "writer"] = _login(house, "cyd", "alice")
    house.login("bob")
    house.begin()
    results: list[str] = []

    def ask() -> None:
        gate = [hansard.ask_first(tool="send", timeout_s=30)]
        with house.connect("cyd", gate=gate) as record, record.run("w", run="r1") as session:

            @session.tool(effects="once")
            def send() -> str:
                return "sent"

            results.append(send())

    worker = threading.Thread(target=ask)
    worker.start()
    try:
        with house.connect() as record:
            question = wait_for_question(record)
            with pytest.raises(hansard.HansardError, match="for whom 'ada' acts"):
                record.approvals.grant(question)
        with house.connect("bob") as record:
            record.approvals.grant(question, reason="looked at it")
        worker.join(20)
    finally:
        house.end()
    assert results == ["sent"]


# nats-py leaves a connection open that the server ended.
@pytest.mark.slow(cases=1)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("who", ["lead", "alice", "ada"])
def test_a_session_is_over_when_anybody_of_its_chain_is_out(served: House, who: str):
    """Within a second the session ends, its next call is refused, and other sessions continue."""
    house = served
    service = house.service
    assert service is not None
    begun, over = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            with house.connect() as record, record.run("w", run="r1") as session:

                @session.tool(effects="once")
                def send() -> str:
                    begun.set()
                    over.wait(20)
                    return "sent"

                try:
                    send()
                except hansard.errors.AccessRefused as error:
                    raised.append(error)
                session.message("user", "after all")
        except BaseException as error:  # noqa: BLE001 -- looked at below
            raised.append(error)

    with house.connect("bob") as other, other.run("w", run="r2") as stays:
        worker = threading.Thread(target=work)
        worker.start()
        assert begun.wait(20)
        assert {each.name for each, _ in service.sessions.values()} == {"ada", "bob"}
        _revoke(house, who)
        revoked_s = time.monotonic()
        asyncio.run(
            eventually(
                lambda: {each.name for each, _ in service.sessions.values()} == {"bob"}, AT_ONCE_S
            )
        )
        assert time.monotonic() - revoked_s < AT_ONCE_S
        over.set()
        worker.join(20)
        assert not worker.is_alive()
        assert [type(each) for each in raised] == [hansard.errors.AccessRefused] * 2, raised
        with (
            pytest.raises(hansard.errors.AccessRefused),
            house.connect() as record,
            record.run("w"),
        ):
            pass
        stays.message("user", "goes on")
    with house.trusted() as record:
        ada = record.state("r1").agent("ada")
        [step] = ada.steps.values()
        assert (step.status.value, ada.left) == ("in_doubt", None)
        bodies = b"".join(each.body for each in portal().run(record.workspace.log.read_run("r1")))
        assert b"after all" not in bodies
    gc.collect()  # here, where what it left is not an error


def test_a_login_for_others_does_not_go_on_with_a_session(served: House):
    """Ada's login without a chain may not use the session for alice, but may resume its run."""
    house = served
    plain = _login(house)
    with house.link() as mine:
        request = wire.Open(workflow="w", run="r1", agent="ada")
        opened: Any = portal().run(mine.outside("open", request))
        session = SessionLink(mine, opened)
        house.files["ada", "writer"] = plain
        with house.link() as other:
            stolen = SessionLink(other, opened)
            with pytest.raises(hansard.errors.ServiceGone, match="no such session"):
                value_of(portal().run(stolen.ask("close", wire.BlockExit())))
        value_of(portal().run(session.ask("close", wire.BlockExit())))
    with house.connect() as record, record.run(run="r1") as again:
        again.message("user", "by ada alone")
    with house.trusted() as record:
        stored = portal().run(record.workspace.log.read_run("r1"))
    assert {each.commit.actor.on_behalf_of for each in stored} == {WHOLE, ("ada",)}
    assert stored[-1].commit.actor.on_behalf_of == ("ada",)


@pytest.mark.thorough(quick="test_what_is_done_outside_of_a_session_names_it_too")
@pytest.mark.long
def test_what_was_answered_in_sql_names_it(workspace: str, tmp_path: Path):
    """An answer of `hansard up`, on a broker of its own, is recorded with the whole chain."""
    with join(tmp_path / "broker"):
        house = _made(tmp_path / "broker", workspace, tmp_path)
        house.files["ada", "writer"] = _login(house, *CHAIN)
        with up(house), house.connect() as record:
            with record.run("w", run="r1") as session:
                session.message("user", "one")
            [row] = record.sql("SELECT count(*) AS messages FROM messages").dicts()
            assert row == {"messages": 1}
        assert _of(house, WorkspaceStream(QUERIES, "writer")) == [Actor("ada", WHOLE)]
