"""The broker is SIGKILLed again and again while processes append, and started on the same store.

This is a process kill, not a power cut: what the server had handed to the operating system
survives it, synced or not. It shows that no acknowledgement precedes the write, that a resend
stores nothing twice and that a restart reads back what was written; what `strict` adds, that an
acknowledgement also survives a power cut, is not tested here.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hansard.domain.steps import Status
from tests.faults._broker import NatsServer
from tests.faults._whole import holes, repeats, torn, whole_log
from tests.faults.support import Child, Report, Stage, missing, read_acks

ROUNDS_QUICK, ROUNDS_FULL = 3, 50
SEED = 20_261_122

APPENDERS, STREAMS = 2, 40
"""Processes that append straight to the log, and each one's streams: enough to group commits."""

WORKERS = 2
"""Processes that append through a session."""

PROGRESS_S = 40.0
"""How long a writer may take to have its next acknowledgement: an append is tried for 30 s."""


@pytest.fixture(params=["strict", "relaxed"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this test alone, to be killed."""
    server = NatsServer(tmp_path / "mortal", request.param)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _count(child: Child) -> int:
    path = Path(child.job.acks)
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _all_go_on(children: list[Child]) -> None:
    """Wait until each writer has had one more acknowledgement."""
    before = [_count(child) for child in children]
    deadline = time.monotonic() + PROGRESS_S
    while any(_count(child) <= had for child, had in zip(children, before, strict=True)):
        assert time.monotonic() < deadline, "a writer got no acknowledgement any more"
        assert all(child.process.poll() is None for child in children), children[0].end()
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(mortal, tmp_path, evidence, rounds):
    """0 acknowledged events lost, 0 stored twice, no hole in versions, no transaction in part; and
    no writer notices more than a pause.
    """
    number, chance = rounds(ROUNDS_QUICK, ROUNDS_FULL), random.Random(SEED)
    stage, stop = Stage(mortal, tmp_path, "load"), tmp_path / "stop"
    try:
        children = [
            stage.start("appender", name=f"appender{n}", streams=STREAMS, stop=str(stop))
            for n in range(APPENDERS)
        ]
        stage.begin("r2")
        children += [
            stage.start("worker", name=f"worker{n}", stop=str(stop)) for n in range(WORKERS)
        ]
        for _ in range(number):
            _all_go_on(children)
            time.sleep(chance.uniform(0.0, 0.4))
            mortal.kill()
            time.sleep(chance.uniform(0.0, 0.1))
            mortal.start()
        _all_go_on(children)
        stop.touch()
        reports = [child.end() for child in children]
        assert [report.error for report in reports] == [""] * len(children)
        acks = [ack for child in children for ack in read_acks(child.job.acks)]
        commits = whole_log(mortal, stage.workspace)

        lost, repeated, gaps = missing(acks, commits), repeats(commits), holes(commits)
        assert (lost, repeated, gaps) == ([], [], [])
        assert torn(commits) == []
        assert len({ack.commit for ack in acks}) == len(acks)
        assert sum(report.results for report in reports[:APPENDERS]) == sum(
            len(read_acks(child.job.acks)) for child in children[:APPENDERS]
        )
        _check_results(stage, reports[APPENDERS:])
    finally:
        stage.close()
    evidence.record(
        f"broker.killed.{mortal.durability}",
        kills=number,
        acknowledged=len(acks),
        stored=len(commits),
        lost=len(lost),
        repeated=len(repeated),
        holes=len(gaps),
    )


def _check_results(stage: Stage, reports: list[Report]) -> None:
    """Each result that an agent was handed is on record, under its number, once."""
    view = stage.view()
    for index, report in enumerate(reports):
        name = f"worker{index}"
        handed = stage.world.read("results", agent=name)
        assert [line["number"] for line in handed] == list(range(report.results))
        steps = list(view.agent(name).steps.values())
        assert [msgspec.json.decode(step.result) for step in steps] == [
            line["result"] for line in handed
        ]
        assert {step.status for step in steps} == {Status.COMPLETED}
