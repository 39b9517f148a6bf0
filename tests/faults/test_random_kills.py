"""Kills at seeded random moments of a run of every kind of step, resumed until it is done."""

import collections
import random
import time

import msgspec
import pytest

from hansard.bus.clock import OS_USER
from hansard.domain.ids import AgentStream
from tests.faults.support import Child, Report, Stage, read_acks

pytestmark = pytest.mark.slow

KILLS_QUICK, KILLS_FULL = 4, 200
COMMITS_MAX, LATER_S_MAX = 9, 0.03
"""A kill comes up to this many acknowledged commits after a (re)start, and up to so much later: a
commit takes about 2 ms and an effect 15 ms, so it hits each of their phases. Counted in commits
and not in time alone, so that a busy machine moves no kill past the end of the run."""

RESUMES_MAX = 60
"""Resumes of one run before it counts as stuck: on average one gets four commits further."""

ONCE = [
    ("file", "form"),
    ("send", "leaflet 1"),
    ("send", "leaflet 2"),
    ("send", "left"),
    ("send", "letter"),
    ("send", "parcel"),
    ("send", "summary of 2"),
]
"""Effects that must be in the world exactly once in the end."""


class Tally:
    """Counts over all rounds."""

    def __init__(self) -> None:
        self.kills = 0
        self.runs = 0
        self.acks = 0
        self.lost = 0
        self.repeated = 0
        self.doubts: collections.Counter[str] = collections.Counter()


def _settle_with_the_truth(stage: Stage, step: int, tally: Tally) -> None:
    """Settle as a person does: by a look into the world."""
    unsettled = stage.view().agent("worker").steps[step]
    word = msgspec.json.decode(unsettled.arguments)["word"]
    happened = bool(stage.world.read(tool="send", word=word))
    tally.doubts["happened" if happened else "did_not_happen"] += 1
    name = f"worker#{step}"
    if happened:
        late = " at last" if unsettled.tool == "moody" else ""
        stage.record.settle(stage.run, name, "happened", result=f"sent {word}{late}")
    else:
        stage.record.settle(stage.run, name, "did_not_happen")


def _killed(child: Child, chance: random.Random) -> bool:
    """Kill a program at a random moment; False if it ended before."""
    commits, later_s = chance.randint(1, COMMITS_MAX), chance.uniform(0.0, LATER_S_MAX)
    while len(read_acks(child.job.acks)) < commits:
        if child.process.poll() is not None:
            return False
        time.sleep(0.001)
    time.sleep(later_s)
    if child.process.poll() is not None:
        return False
    child.kill()
    return True


def _until_done(stage: Stage, chance: random.Random, tally: Tally, kills: int) -> Report:
    """Start, kill and resume until the program ends by itself; return its report."""
    for _ in range(RESUMES_MAX):
        child = stage.start("mixed")
        if tally.kills < kills and _killed(child, chance):
            tally.kills += 1
            continue
        report = child.end()
        if report.error == "InDoubt":
            _settle_with_the_truth(stage, report.step, tally)
            continue
        return report
    raise AssertionError(f"run {stage.run} was resumed {RESUMES_MAX} times and did not end")


def _check(stage: Stage, tally: Tally) -> None:
    effects = stage.world.read()
    once = sorted((line["tool"], line["word"]) for line in effects if line["tool"] != "put")
    tally.repeated += len(once) - len(set(once))
    assert once == ONCE
    keys = collections.defaultdict(set)
    for line in effects:
        keys[line["tool"], line["word"]].add(line["key"])
    assert len(keys["put", "note"]) == len(keys["put", "right"]) == 1
    assert keys["put", "note"] != keys["put", "right"]
    lost = stage.lost()
    tally.lost += len(lost)
    assert lost == []
    tally.acks += len(stage.acks())
    assert stage.view().life.status == "completed"
    stream = AgentStream(stage.run, "worker", "worker")
    epochs = [stored.commit.epoch for stored in stage.commits() if stored.stream == stream]
    assert epochs == sorted(epochs)


@pytest.mark.thorough(
    quick="faults/test_kill_matrix.py::test_what_a_kill_leaves_and_what_resuming_does_about_it"
)
@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_a_run_killed_at_any_moment_ends_as_if_it_had_not_been(stage, evidence, rounds):
    """A run killed at random ends with the results of an undisturbed one, each effect once."""
    kills, chance, tally = (
        rounds(KILLS_QUICK, KILLS_FULL),
        random.Random(random.getrandbits(32)),
        Tally(),
    )
    undisturbed = stage.go_on("mixed")
    assert undisturbed.error == ""
    _check(stage, tally)
    while tally.kills < kills:
        tally.runs += 1
        settled = tally.doubts.total()
        stage.begin(f"killed-{tally.runs}")
        report = _until_done(stage, chance, tally, kills)
        assert (report.error, report.results) == ("", undisturbed.results)
        _check(stage, tally)
        by_hand = [settlement for settlement in stage.settlements() if settlement.by == OS_USER]
        assert len(by_hand) == tally.doubts.total() - settled
    evidence.record(
        "kill.random",
        kills=tally.kills,
        runs=tally.runs,
        acknowledged=tally.acks,
        lost=tally.lost,
        repeated=tally.repeated,
        settled_as_happened=tally.doubts["happened"],
        settled_as_not_happened=tally.doubts["did_not_happen"],
    )
