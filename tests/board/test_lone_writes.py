"""Single-key writes as own commits: made once despite kills and fences, never in doubt."""

import asyncio
import contextlib
import signal

import msgspec
import pytest

import hansard
from hansard.bus import subjects
from hansard.bus.portal import portal
from hansard.bus.recheck import Recheck
from hansard.domain.board import BoardConflict
from hansard.domain.errors import Refused
from hansard.domain.ids import AgentStream, KeyStream
from tests.board.test_kill import PROGRAMS
from tests.faults._inside import Point
from tests.faults.support import Stage

WRITING = PROGRAMS / "writing.py"
RESULTS = [1, 3, 1, 1, 1, 7, True]
"""Results of the program, however often it is killed."""

WRITES = [
    "hits board.added.v1", "hits board.added.v1", "log board.appended.v1", "most board.merged.v1",
    "names board.included.v1", "value board.put.v1", "value board.removed.v1",
]  # fmt: skip
"""Resulting writes in the keys' streams, sorted."""

STREAM = AgentStream("r1", "clerk", "m")


def writes(stage: Stage, run: str = "r1") -> list[str]:
    """Key and type of each write of a run, sorted."""
    commits = portal().run(stage.record.workspace.log.read_run(run))
    return sorted(
        f"{stored.stream.key} {recorded.type}"
        for stored in commits
        if isinstance(stored.stream, KeyStream)
        for recorded in stored.commit.events
    )


def steps_by_tool(stage: Stage) -> dict[str, str]:
    """Return the outcome of the first step of each tool."""
    statuses: dict[str, str] = {}
    for step in stage.view().agent("m").steps.values():
        statuses.setdefault(step.tool, step.status.value)
    return statuses


def check_whole(stage: Stage) -> None:
    """Check that every write is stored once, with its step, and that the log is sound."""
    assert writes(stage) == WRITES
    assert stage.lost() == []
    assert {step.status.value for step in stage.view().agent("m").steps.values()} == {"completed"}
    commits, faults = stage.commits(), list[str]()
    recheck = Recheck(lambda kind, fact, where, *, wrong=True: faults.append(f"{kind}: {fact}"))
    for number, stored in enumerate(commits, 1):
        subject = f"{subjects.prefix(stage.workspace, stored.stream)}.{stored.commit.version}"
        recheck.message(number, subject, stored.body, copied=False)
    recheck.end()
    assert faults == []
    known = {recorded.id for stored in commits for recorded in stored.commit.events}
    assert set(recheck.causations) <= known


POINTS = pytest.mark.parametrize(
    ("point", "there"),
    [
        (Point.BEFORE_INTENT, 0),
        (Point.AFTER_INTENT, 0),
        (Point.BEFORE_RECEIPT, 1),
        (Point.AFTER_RECEIPT, 1),
    ],
)


@pytest.mark.slow
@POINTS
def test_a_write_is_made_once_wherever_a_kill_falls(stage, point, there):
    """After SIGKILL anywhere around a write, it is made once, without a person's decision."""
    check_killed(stage, point, "board.add", there)


@pytest.mark.thorough(quick="test_a_write_is_made_once_wherever_a_kill_falls")
@pytest.mark.parametrize("tool", ["board.put", "board.append", "board.merge"])
@POINTS
def test_so_is_a_write_of_another_kind(stage, tool, point, there):
    """The same of a put, of an item of a list, and of a merge."""
    check_killed(stage, point, tool, there)


def check_killed(stage: Stage, point: Point, tool: str, there: int) -> None:
    """Kill a program at the first call of a tool, check the record, and resume it."""
    stage.killed_at(WRITING, point, tool)
    assert len(writes(stage)) == WRITES_BEFORE[tool] + there
    status = {Point.BEFORE_INTENT: None, Point.AFTER_RECEIPT: "completed"}.get(point, "requested")
    assert steps_by_tool(stage).get(tool) == status
    report = stage.go_on(WRITING)
    assert (report.error, report.results) == ("", RESULTS)
    check_whole(stage)
    assert not stage.settlements()


WRITES_BEFORE = {"board.add": 0, "board.put": 2, "board.append": 3, "board.merge": 5}
"""Number of writes before each tool's first."""


def test_a_late_commit_of_one_who_was_fenced_is_refused(stage):
    """Paused before its write and fenced, the old session gets Fenced, the new one writes."""
    old = stage.frozen_at(WRITING, Point.AFTER_INTENT, "board.add")
    report = stage.go_on(WRITING)
    assert (report.error, report.results) == ("", RESULTS)
    old.signal(signal.SIGCONT)
    assert old.end().error == "Fenced"
    check_whole(stage)


@pytest.mark.thorough(quick="test_a_late_commit_of_one_who_was_fenced_is_refused")
def test_a_write_of_a_fenced_session_is_adopted_by_the_new_one(stage):
    """Paused after its write and fenced, the new session adopts the write."""
    old = stage.frozen_at(WRITING, Point.BEFORE_RECEIPT, "board.add")
    report = stage.go_on(WRITING)
    assert (report.error, report.results) == ("", RESULTS)
    old.signal(signal.SIGCONT)
    assert old.end().error == "Fenced"
    check_whole(stage)


@pytest.mark.thorough(quick="test_a_write_is_made_once_wherever_a_kill_falls")
def test_a_fork_and_a_replay_go_by_what_was_written(stage):
    """Killed before the outcome, replay and fork take the key's write; an earlier fork writes."""
    stage.killed_at(WRITING, Point.BEFORE_RECEIPT, "board.add")
    with stage.record.run(run="r1", agent="m", role="clerk", mode="strict") as session:
        assert session.board.add("hits") == 1
    [key] = [stored for stored in stage.commits() if isinstance(stored.stream, KeyStream)]
    for at, inherited in ((key.position, 1), (key.position - 1, 0)):
        child = stage.record.fork("r1", at=at)
        report = stage.go_on(WRITING, run=child)
        assert (report.error, report.results) == ("", RESULTS)
        assert len(writes(stage, child)) == len(WRITES) - inherited
        assert stage.record.state(child).boards["hits"].plain == 3
    assert len(writes(stage)) == 1


def test_nobody_says_that_a_write_which_is_there_is_not(stage):
    """A step without an outcome whose write is stored is not in doubt: settling it is refused."""
    stage.killed_at(WRITING, Point.BEFORE_RECEIPT, "board.add")
    for verdict in ("did_not_happen", "happened"):
        with pytest.raises(Refused, match="version 1 of key 'hits'"):
            stage.record.settle("r1", "m#1", verdict)
    assert stage.go_on(WRITING).results == RESULTS


@pytest.mark.slow
def test_a_write_that_comes_while_somebody_says_it_did_not_happen_is_made_once(stage, monkeypatch):
    """A write that lands during a settlement is still the outcome on resume."""

    async def looked_before(*_: object) -> None:
        return None

    stage.killed_at(WRITING, Point.BEFORE_RECEIPT, "board.add")
    with monkeypatch.context() as patched:
        patched.setattr("hansard.agents.runs.find_write", looked_before)
        stage.record.settle("r1", "m#1", "did_not_happen")
    report = stage.go_on(WRITING)
    assert (report.error, report.results) == ("", RESULTS)
    check_whole(stage)


@pytest.mark.thorough(quick="test_a_write_is_made_once_wherever_a_kill_falls")
def test_the_audit_takes_a_write_for_the_outcome(stage):
    """In SQL an intent is an orphan only without its write, whose cause names the step."""
    stage.killed_at(WRITING, Point.BEFORE_RECEIPT, "board.add")
    query = "SELECT step FROM orphan_intents WHERE run = 'r1'"
    assert stage.record.sql(query).rows == []
    wrote = stage.record.sql(
        "SELECT s.agent, s.step, w.key, w.version FROM causes AS l "
        "JOIN board_writes AS w ON w.event = l.event "
        "JOIN events AS e ON e.id = l.cause "
        "JOIN steps AS s ON s.run = e.run AND s.requested_version = e.version AND s.agent = e.agent"
    )
    assert [tuple(row) for row in wrote.rows] == [("m", 1, "hits", 1)]
    stage.begin("r2")
    stage.killed_at(WRITING, Point.AFTER_INTENT, "board.add")
    assert len(stage.record.sql("SELECT step FROM orphan_intents WHERE run = 'r2'").rows) == 1


def test_a_lost_race_is_decided_again_and_a_refusal_is_recorded(server, workspace):
    """A put by version fails with the new value and its step; a counter is added again."""
    with (
        hansard.connect(workspace=workspace, **server.login) as mine,
        hansard.connect(workspace=workspace, **server.login) as theirs,
        mine.run("team", run="r1", agent="a", role="clerk") as a,
        theirs.run(run="r1", agent="b", role="clerk") as b,
    ):
        a.board.put("value", 1)
        assert b.board.get("value") == 1
        assert [a.board.add("n"), b.board.add("n"), a.board.add("n"), b.board.add("n")] == [
            1,
            2,
            3,
            4,
        ]
        a.board.put("value", 2)
        with pytest.raises(BoardConflict, match="at version 2, not 1"):
            b.board.put("value", 3)
        commits = portal().run(mine.workspace.log.read_run("r1"))
    keys = [stored for stored in commits if isinstance(stored.stream, KeyStream)]
    ids = {recorded.id: stored for stored in commits for recorded in stored.commit.events}
    for stored in keys:
        cause = ids[stored.commit.causation]
        assert cause.commit.actor == stored.commit.actor
        assert cause.position < stored.position
    failed = [
        msgspec.json.decode(recorded.data)
        for stored in commits
        for recorded in stored.commit.events
        if recorded.type == "step.failed.v1"
    ]
    assert [each["error"]["type"] for each in failed] == ["BoardConflict"]


async def test_those_who_write_at_once_share_a_batch(data_dir, workspace):
    """Concurrent writes of one process are stored once each, and share a transaction."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with contextlib.AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(
                    record.run("team", run="r1", agent=f"a{number}", role="clerk")
                )
                for number in range(4)
            ]
            totals = await asyncio.gather(*(each.board.add("n") for each in opened))
            assert sorted(totals) == [1, 2, 3, 4]
            await asyncio.gather(*(each.board.add(each.agent) for each in opened))
        commits = await record.workspace.log.read_run("r1")
    keys = [stored.commit for stored in commits if isinstance(stored.stream, KeyStream)]
    assert len(keys) == 8
    assert all((commit.tx is None) == (commit.causation is not None) for commit in keys)
    assert sum(commit.tx is not None for commit in keys) >= 4
