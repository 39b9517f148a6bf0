"""`run show --at` with every kind of point, against a fold of the stored bytes made here."""

import random
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.jetstream.log import JetStreamLog
from hansard.state.histories import CHUNK_VERSIONS
from tests.cli.folding import Line, at_position, folded, lines_of, shown_state
from tests.cli.support import WORKSPACE, Call, Ran, Runs

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORKED = "run.forked.v1"
NAMES = ("team", "settled", "grown")
SAMPLED = 5
"""Commits of a run at which each other kind of point is tried."""


@pytest.fixture(scope="module")
def grown(record: hansard.Record, runs: Runs) -> str:
    """Record a fork that continued."""
    fork = record.fork(runs.team, at="researcher_1@20")
    with record.run(run=fork, agent="researcher_1", role="researcher") as session:

        @session.tool(effects="pure")
        def look(place: str) -> str:
            return place

        look("here")
        session.message("user", "and there?")
        look("there")
        session.checkpoint("gathered", papers=4)
    return fork


@pytest.fixture
def run(runs: Runs, grown: str, name: str) -> str:
    """Return the run that a test reads."""
    return grown if name == "grown" else str(getattr(runs, name))


@pytest.fixture
def lines(home: Path, run: str) -> list[Line]:
    """Return its commits."""
    return lines_of(home, WORKSPACE, run)


def began(lines: list[Line], before: list[Line]) -> bool:
    """Return whether a run has begun with its first lines; a fork, with its own life."""
    forks = [n for n, line in enumerate(lines) if line.body["events"][0]["type"] == FORKED]
    return len(before) > max(forks, default=0)


def sampled(lines: list[Line], name: str) -> list[Line]:
    """Return the first commits (a transaction), the last, and some between, the same each time."""
    some = random.Random(name).sample(lines[2:-1], min(SAMPLED - 3, len(lines[2:-1])))
    return [*lines[:2], *some, lines[-1]]


def assert_not_begun(shown: Ran) -> None:
    """Check that a point before a run gives an error that says so, and no answer."""
    assert (shown.code, shown.out) == (2, "")
    assert "at an early point it may not have begun" in shown.err


def test_an_id_reads_the_run_once(call, runs, home, monkeypatch):
    """The commits searched for an event's id are also the ones shown."""
    reads: list[str] = []
    read_run = JetStreamLog.read_run

    async def counted(log: JetStreamLog, run: str, *rest: Any) -> Any:
        reads.append(run)
        return await read_run(log, run, *rest)

    monkeypatch.setattr(JetStreamLog, "read_run", counted)
    line = lines_of(home, WORKSPACE, runs.team)[-3]
    reads.clear()
    [event, *_] = line.body["events"]
    assert call("run", "show", runs.team, "--at", event["id"], "--json").code == 0
    assert reads == [runs.team]


@pytest.mark.later
def test_other_points_read_chunks_instead_of_the_run(call, home, record, monkeypatch):
    """A position, a step and the newest state of a long run cost a chunk's commits at most."""
    with record.run("long", run="long", agent="walker", role="walker") as session:
        step = session.tool(effects="pure")(abs)
        for number in range(4 * CHUNK_VERSIONS):
            step(number)
    assert call("run", "show", "long", "--json").code == 0  # makes the chunks that are missing
    commits: list[int] = []

    def count(name: str) -> None:
        original = getattr(JetStreamLog, name)

        async def counted(log: JetStreamLog, *arguments: Any, **options: Any) -> Any:
            commit = await original(log, *arguments, **options)
            commits.append(len(commit))
            return commit

        monkeypatch.setattr(JetStreamLog, name, counted)

    for name in ("read", "read_run", "read_streams", "read_boards"):
        count(name)
    middle = lines_of(home, WORKSPACE, "long")[2 * CHUNK_VERSIONS]
    for point in ((), ("--at", f"{middle.position}"), ("--at", f"walker#{2 * CHUNK_VERSIONS}")):
        commits.clear()
        [*_, agent] = call("run", "show", "long", *point, "--json").lines
        assert agent["version"] > 2 * CHUNK_VERSIONS
        assert sum(commits) <= 2 * CHUNK_VERSIONS, (point, commits)


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("name", NAMES)
def test_an_id_of_a_commit_or_an_event(call: Call, run: str, name: str, lines: list[Line]):
    """The point is the position of the commit with that id, including its whole transaction."""
    for line in sampled(lines, name):
        before = at_position(lines, line.counts_from)
        for event_id in (line.body["id"], line.body["events"][-1]["id"].upper()):
            shown = call("run", "show", run, "--at", event_id, "--json")
            if began(lines, before):
                assert shown_state(shown.lines) == folded(before), event_id
            else:
                assert_not_begun(shown)


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("name", NAMES)
def test_a_version_of_a_stream(call: Call, run: str, name: str, lines: list[Line]):
    """`agent@version` and `life@version`: the commit that holds that version, whole."""
    for line in sampled(lines, name):
        stream = line.stream.rpartition("/")[2]
        before = at_position(lines, line.counts_from)
        for version in {line.body["version"], line.last_version}:
            shown = call("run", "show", run, "--at", f"{stream}@{version}", "--json")
            if began(lines, before):
                assert shown_state(shown.lines) == folded(before), f"{stream}@{version}"
            else:
                assert_not_begun(shown)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", NAMES)
def test_a_time(call: Call, run: str, name: str, lines: list[Line]):
    """The log's time decides, to the displayed microsecond, including all earlier commits."""
    seen = 0
    for line in sampled(lines, name):
        before = [other for other in lines if other.since_us <= line.since_us]
        for zone in (UTC, timezone(timedelta(hours=-7))):
            moment = EPOCH + timedelta(microseconds=line.since_us)
            shown = call("run", "show", run, "--at", moment.astimezone(zone).isoformat(), "--json")
            if began(lines, before):
                seen += 1
                assert shown_state(shown.lines) == folded(before)
            else:
                assert_not_begun(shown)
    assert seen
    assert_not_begun(call("run", "show", run, "--at", "2001-01-01T00:00:00Z", "--json"))


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot(call: Call, run: str, name: str, lines: list[Line]):
    """A snapshot's id leads to the version that it is of."""
    agent = "sender" if name == "settled" else "researcher_1"
    chain = call("run", "show", run, "--snapshots", "--agent", agent, "--json").lines
    states = [folded(at_position(lines, line.counts_from)) for line in lines]
    matching = [
        shown_state(call("run", "show", run, "--at", each["snapshot_id"], "--json").lines)
        for each in (chain[-4:][0], chain[-1])
    ]
    assert [states.index(each) for each in matching] == sorted(
        states.index(each) for each in matching
    )
    assert matching[0]["agents"][agent]["version"] < matching[1]["agents"][agent]["version"]


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize(
    "command", [("show",), ("trace",), ("context",), ("state",)], ids=lambda command: command[0]
)
def test_every_look_takes_the_same_points(call: Call, runs: Runs, command: tuple[str, ...]):
    """A commit's id and its position show the same: a point has one meaning everywhere."""
    steps = call("run", "trace", runs.team, "--json").lines
    position = steps[4]["position"]
    version = call("run", "show", runs.team, "--at", str(position), "--json").lines[1]["version"]
    outputs = {
        call("run", *command, runs.team, "--at", point, "--json").out.replace(f"{position}", "#")
        for point in (str(position), f"researcher_1@{version}")
    }
    assert len(outputs) == 1
    assert outputs != {""}


@pytest.mark.fast(cases=6, slow=0)
@pytest.mark.parametrize("command", ["trace", "context", "state"])
@pytest.mark.parametrize("point", ["yesterday", "researcher_1@9999", "0", "life@0", "-5", ""])
def test_what_is_no_point_is_reported(call: Call, runs: Runs, command: str, point: str):
    """Exit code 2, nothing on stdout, fact and remedy on stderr."""
    shown = call("run", command, runs.team, "--at", point, "--json")
    assert (shown.code, shown.out) == (2, "")
    assert "Traceback" not in shown.err
    assert ":" in shown.err
