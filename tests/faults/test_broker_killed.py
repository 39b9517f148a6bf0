"""The broker is SIGKILLed again and again while processes append, and started on the same store.

This is a process kill, not a power cut: what the server had handed to the operating system
survives it, synced or not. It shows that no acknowledgement precedes the write, that a resend
stores nothing twice and that a restart reads back what was written. `test_power_cuts.py` shows what
`strict` adds: that an acknowledgement also survives a power cut.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hansard.domain.steps import StepStatus
from tests.faults._broker import NatsServer
from tests.faults._whole import holes, repeats, torn, whole_log
from tests.faults.support import Report, Stage, all_go_on, missing, read_acks

pytestmark = pytest.mark.slow

ROUNDS_QUICK, ROUNDS_FULL = 2, 60
APPENDERS, STREAMS = 2, 40
"""Processes that append straight to the log, and each one's streams: enough to group commits."""

WORKERS = 2
"""Processes that append through a session."""


@pytest.fixture(params=["strict", "relaxed"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NatsServer]:
    """Yield a server of this test alone, to be killed."""
    server = NatsServer(tmp_path / "mortal", request.param)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.slow(cases=1)
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(mortal, tmp_path, evidence, rounds):
    """No acknowledged event is lost, stored twice or stored in part."""
    number, chance = rounds(ROUNDS_QUICK, ROUNDS_FULL), random.Random(random.getrandbits(32))
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
            all_go_on(children)
            time.sleep(chance.uniform(0.0, 0.4))
            mortal.kill()
            time.sleep(chance.uniform(0.0, 0.1))
            mortal.start()
        all_go_on(children)
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
    """Check that each result of an agent is on record once, under its number."""
    view = stage.view()
    for index, report in enumerate(reports):
        name = f"worker{index}"
        handed = stage.world.read("results", agent=name)
        assert [line["number"] for line in handed] == list(range(report.results))
        steps = list(view.agent(name).steps.values())
        assert [msgspec.json.decode(step.result) for step in steps] == [
            line["result"] for line in handed
        ]
        assert {step.status for step in steps} == {StepStatus.COMPLETED}
