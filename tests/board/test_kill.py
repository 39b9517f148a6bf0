"""Many processes at one key lose nothing; a kill leaves a transaction whole or not there."""

import contextlib
import itertools
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.bus.commits import whole_at
from hansard.bus.portal import portal
from hansard.domain.ids import KeyStream

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("programs")
COUNTING, MOVING = PROGRAMS / "counting.py", PROGRAMS / "moving.py"
CROWDING = PROGRAMS / "crowding.py"
PROCESSES = 8
FULL = 200
"""From so many rounds on each process makes its 1,000 updates."""

WAITS_S = 1_200.0
"""Time for 8 processes with 1,000 updates each of one key, on a busy disk."""

SUM = 300


def writes_to(stage, key) -> list[Any]:
    """(agent, event as data) of each write to a key, by version; read again from the log."""
    with hansard.connect(workspace=stage.workspace, **stage.server.login) as record:
        commits = portal().run(record.workspace.log.read(KeyStream(stage.run, key)))
    return [
        (stored.commit.actor.agent, recorded.type, msgspec.json.decode(recorded.data))
        for stored in commits
        for recorded in stored.commit.events
    ]


def all_at_once(stage, tmp_path, count, ways) -> tuple[dict[str, list[int]], float]:
    """Return the results of each of 8 processes, and the seconds from common start to end."""
    go = tmp_path / "go"
    children = {
        f"p{n}": stage.start(COUNTING, agent=f"p{n}", how=how, count=count, go=str(go))
        for n, how in zip(range(PROCESSES), itertools.cycle(ways), strict=False)
    }
    for child in children.values():
        child.reach()
    go.touch()
    begin = time.perf_counter()
    reports = {name: child.end(WAITS_S) for name, child in children.items()}
    took_s = time.perf_counter() - begin
    assert {name: report.error for name, report in reports.items()} == dict.fromkeys(reports, "")
    return {name: report.results for name, report in reports.items()}, took_s


@pytest.mark.long
@pytest.mark.timeout(1_500)
def test_8_processes_put_by_version_and_lose_nothing(stage, tmp_path, rounds, evidence):
    """Resolvers and re-reads lose no update; readers and states between agree."""
    count = 1_000 if rounds(1, FULL) == FULL else 6
    with stage.record.run("team", run=stage.run, agent="starter"):
        versions_of, took_s = all_at_once(stage, tmp_path, count, ["resolver", "again"])
    written = writes_to(stage, "value")
    assert written == writes_to(stage, "value")
    assert [data["value"]["n"] for _, _, data in written] == list(range(1, len(written) + 1))
    assert len(written) == PROCESSES * count
    for name, versions in versions_of.items():
        mine = [data["value"]["by"] for by, _, data in written if by == name]
        assert mine == [[name, number] for number in range(count)]
        assert versions == [n for n, (by, *_) in enumerate(written, 1) if by == name]
    commits = portal().run(stage.record.workspace.log.read(KeyStream(stage.run, "value")))
    for stored in commits[:: max(1, len(commits) // 10)]:
        view = stage.record.state(stage.run, whole_at(stored))
        assert view.boards["value"].plain["n"] == stored.commit.last_version
    evidence.record(
        "board.cas_of_8_processes",
        updates=PROCESSES * count,
        lost=0,
        updates_s=round(PROCESSES * count / took_s),
    )


# ---------------------------------------------------------------- transfers


@contextlib.contextmanager
def bank(stage):
    """Yield three accounts that sum up to 300, in a run that stays open."""
    with stage.record.run("team", run=stage.run, agent="bank") as session:
        with session.board.transaction() as tx:
            for key in ("a", "b", "c"):
                tx.put(key, SUM // 3)
        yield session


def check_every_position(stage):
    """Fold whole transactions, check each position, and count transfers by agent."""
    values: dict[str, Any] = {}
    made: list[tuple[str, int]] = []
    commits = [stored for stored in stage.commits() if isinstance(stored.stream, KeyStream)]
    for _, whole in itertools.groupby(commits, key=lambda stored: stored.commit.tx.id):
        for stored in whole:
            for recorded in stored.commit.events:
                data = msgspec.json.decode(recorded.data)
                if recorded.type == "board.put.v1":
                    values[stored.stream.key] = data["value"]
                elif recorded.type == "board.appended.v1":
                    made.append(tuple(data["item"]))
        assert sum(values.values()) == SUM, f"position {stored.position}"
    assert len(made) == len(set(made)), "a transfer was made twice"
    return made


@pytest.mark.parametrize(("when", "made"), [("before", 0), ("after", 1)])
def test_a_killed_transaction_is_all_or_none(stage, when, made):
    """SIGKILL around the acknowledgement leaves none or all keys; resumed, it is made once."""
    with bank(stage):
        child = stage.start(MOVING, when=when, agent="m", count=3)
        child.reach()
        child.kill()
        assert len(check_every_position(stage)) == made
        boards = stage.view().boards
        assert sum(boards[key].plain for key in "abc") == SUM
        assert ("ledger" in boards) is bool(made)
        report = stage.go_on(MOVING, agent="m", count=3)
    assert (report.error, report.results) == ("", 3)
    assert check_every_position(stage) == [("m", 0), ("m", 1), ("m", 2)]


@pytest.mark.thorough(quick="test_a_killed_transaction_is_all_or_none")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_transfers_keep_their_sum_under_kills(stage, rounds, evidence):
    """Under random kills of two processes the sum never changes and nothing is doubled."""
    count, seed = rounds(2, 40), random.randrange(2**32)
    chance = random.Random(seed)
    agents, transfers = ("m1", "m2"), 24 * count
    in_the_middle = 0
    with bank(stage):
        for _ in range(count):
            began = len(stage.world.read("began"))
            children = [stage.start(MOVING, agent=name, count=transfers) for name in agents]
            deadline = time.monotonic() + 60
            while len(stage.world.read("began")) < began + 2 and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.5))
            for child in chance.sample(children, len(children)):
                child.kill()
                in_the_middle += child.process.returncode != 0
            made = check_every_position(stage)
            done = {(line["agent"], line["number"]) for line in stage.world.read("done")}
            assert done <= set(made), seed
        assert in_the_middle > 0, f"no kill of seed {seed} came before the end"
        children = [stage.start(MOVING, agent=name, count=transfers) for name in agents]
        assert [child.end(WAITS_S).error for child in children] == ["", ""]
    made = check_every_position(stage)
    assert Counter(name for name, _ in made) == dict.fromkeys(agents, transfers)
    for name in agents:
        assert [n for by, n in made if by == name] == list(range(transfers)), seed
    evidence.record(
        "board.transfers_killed",
        rounds=count,
        in_the_middle=in_the_middle,
        transfers=len(made),
        lost=0,
        doubled=0,
    )


@pytest.mark.thorough(
    quick="tests/board/test_lone_writes.py::test_a_write_is_made_once_wherever_a_kill_falls"
)
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_crowd_is_killed_and_loses_and_doubles_nothing(stage, rounds, evidence):
    """Under random kills of two processes of six agents replies equal the log."""
    count, seed = rounds(2, 40), random.randrange(2**32)
    chance = random.Random(seed)
    agents, adds = ("l", "r"), 12 * count
    settings = {"agents": 6, "count": adds}
    in_the_middle = 0
    with stage.record.run("team", run=stage.run, agent="starter"):
        for _ in range(count):
            began = len(stage.world.read("done"))
            children = [stage.start(CROWDING, agent=name, **settings) for name in agents]
            deadline = time.monotonic() + 60
            while len(stage.world.read("done")) == began and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.5))
            for child in chance.sample(children, len(children)):
                child.kill()
                in_the_middle += child.process.returncode != 0
        last = [stage.start(CROWDING, agent=name, **settings) for name in agents]
        reports = [child.end(WAITS_S) for child in last]
    assert [report.error for report in reports] == ["", ""], seed
    results = {name: totals for report in reports for name, totals in report.results.items()}
    by = [name for name, *_ in writes_to(stage, "hits")]
    assert Counter(by) == dict.fromkeys(results, adds), seed
    for name, totals in results.items():
        assert totals == [n for n, agent in enumerate(by, 1) if agent == name], (name, seed)
    for line in stage.world.read("done"):
        assert results[line["agent"]][line["number"]] == line["told"], seed
    log = stage.view().boards["log"].plain
    for name, totals in results.items():
        logged = [tuple(each) for each in log if each[0] == name]
        assert logged == [(name, number, total) for number, total in enumerate(totals)], seed
    assert in_the_middle > 0, f"no kill of seed {seed} came before the end"
    evidence.record(
        "board.crowds_killed",
        rounds=count,
        in_the_middle=in_the_middle,
        writes=2 * len(by),
        lost=0,
        doubled=0,
    )


@pytest.mark.thorough(quick="test_8_processes_put_by_version_and_lose_nothing")
@pytest.mark.long
@pytest.mark.timeout(1_500)
def test_8_processes_count_to_the_last_one(stage, tmp_path, rounds, evidence):
    """Each gets its own total, all totals are in stream order, and none retries."""
    count = 1_000 if rounds(1, FULL) == FULL else 10
    with stage.record.run("team", run=stage.run, agent="starter"):
        totals_of, took_s = all_at_once(stage, tmp_path, count, ["counter"])
    assert sorted(itertools.chain(*totals_of.values())) == list(range(1, PROCESSES * count + 1))
    written = writes_to(stage, "hits")
    assert len(written) == PROCESSES * count
    for name, totals in totals_of.items():
        assert totals == [n for n, (by, *_) in enumerate(written, 1) if by == name], name
    assert stage.view().boards["hits"].plain == PROCESSES * count
    evidence.record(
        "board.counter_of_8_processes",
        updates=PROCESSES * count,
        lost=0,
        updates_s=round(PROCESSES * count / took_s),
    )
