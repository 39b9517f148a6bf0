"""Many agents at the same tasks, and agents that are killed: each task is done once."""

import random
import time
from pathlib import Path

import pytest

from hansard.bus.commits import revive
from hansard.bus.portal import portal
from hansard.domain.team import (
    TaskClaimed,
    TaskCompleted,
    TaskExtended,
    TaskHandedOff,
    TaskReleased,
    TaskStatus,
)
from hansard.state.replay import tasks_of
from tests.faults.support import Child

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("programs") / "worker.py"
AGENTS, TASKS, CONNECTIONS = 20, 50, 4
LEASE_S = 1.5
WORK_S = 0.05


def holders(stored_commits):
    """Return the holders of each task with their times in the log; raise where two overlap.

    Independent of the code under test: a claim begins at its commit's time, and ends with its
    agent's last statement, or with the next claim, which must not precede the lease's end.
    """
    ends: dict[str, tuple[int, int]] = {}  # number, end of the lease
    done: dict[str, str] = {}
    takeovers = 0
    for stored in stored_commits:
        for recorded in stored.commit.events:
            event = revive(recorded)
            match event:
                case TaskClaimed():
                    assert event.agent == stored.commit.actor.agent
                    assert event.task not in done
                    if event.task in ends:
                        number, end = ends[event.task]
                        assert event.number == number + 1
                        assert stored.stamp >= end
                        takeovers += bool(end)
                    else:
                        assert event.number == 1
                    ends[event.task] = (event.number, stored.stamp + event.lease_ms * 1_000_000)
                case TaskExtended():
                    assert ends[event.task][0] == event.number
                    ends[event.task] = (event.number, stored.stamp + event.lease_ms * 1_000_000)
                case TaskReleased() | TaskHandedOff():
                    assert ends[event.task][0] == event.number
                    ends[event.task] = (event.number, 0)
                case TaskCompleted():
                    assert ends[event.task][0] == event.number
                    assert event.task not in done
                    done[event.task] = stored.commit.actor.agent
                case _:
                    pass
    return done, takeovers


@pytest.mark.long
@pytest.mark.timeout(900)
def test_agents_killed_at_any_moment_lose_and_double_no_task(stage, rounds, evidence):
    """Under random kills every task is done once, by its holder."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    count, per_round = rounds(2, 20), 12
    with stage.record.run("w", run=stage.run, agent="lead", role="lead") as lead:
        for number in range(per_round * count):
            lead.team.add(f"square {number}", what=number, role="worker")
        running: list[Child] = []
        begun = 0
        for _ in range(count):
            while len(running) < 3:
                running.append(_worker(stage, begun))
                begun += 1
            marks = len(stage.world.read("began"))
            deadline = time.monotonic() + 30
            while len(stage.world.read("began")) < marks + 2 and time.monotonic() < deadline:
                if all(child.process.poll() is not None for child in running):
                    break
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 2 * WORK_S))
            running.pop(chance.randrange(len(running))).kill()
        running.append(_worker(stage, begun))
        for child in running:
            assert child.end(120).error == ""
        view = stage.view()
    assert len(view.team.tasks) == per_round * count
    assert {each.status for each in view.team.tasks.values()} == {TaskStatus.DONE}, seed
    for number, each in enumerate(view.team.tasks.values()):
        assert bytes(each.result) == b'{"square":%d}' % number**2
    done, takeovers = holders(portal().run(stage.record.workspace.log.read(tasks_of(stage.run))))
    assert done.keys() == view.team.tasks.keys()
    noted = [(line["task"], line["number"]) for line in stage.world.read("done")]
    assert len(set(noted)) == len(noted)
    assert {name for name, _ in noted} <= done.keys()
    evidence.record(
        "team.killed", kills=count, tasks=per_round * count, taken_over=takeovers, lost=0, doubled=0
    )


def _worker(stage, number):
    return stage.start(WORKER, agent=f"w{number}", lease_s=LEASE_S, work_s=WORK_S)


def test_a_killed_agent_that_comes_back_goes_on_with_its_task(stage):
    """Resumed under its own name within its lease, an agent has the same claim and ends it."""
    with stage.record.run("w", run=stage.run, agent="lead", role="lead") as lead:
        lead.team.add("square", what=7, role="worker")
        child = stage.start(WORKER, agent="w0", lease_s=60.0, work_s=30.0)
        deadline = time.monotonic() + 30
        while not stage.world.read("began") and time.monotonic() < deadline:
            time.sleep(0.005)
        child.kill()
        report = stage.go_on(WORKER, agent="w0", lease_s=60.0, work_s=0.01)
        assert (report.error, report.results) == ("", ["t1"])
        [entry] = lead.team.tasks()
    assert (entry.number, entry.holder, entry.result) == (1, "w0", {"square": 49})
    assert stage.world.read("began") == [{"task": "t1", "number": 1}] * 2


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("operation", "status", "began"),
    [
        ("claim", {"before": TaskStatus.OPEN, "after": TaskStatus.CLAIMED}, 0),
        ("complete", {"before": TaskStatus.CLAIMED, "after": TaskStatus.DONE}, 1),
    ],
)
def test_a_kill_leaves_a_task_event_and_its_step_or_neither(stage, when, operation, status, began):
    """A kill leaves a task and its step agreeing, and the task is done once."""
    with stage.record.run("w", run=stage.run, agent="lead", role="lead") as lead:
        lead.team.add("square", what=9, role="worker")
        arguments = {"agent": "w0", "lease_s": 60.0, "work_s": 0.01}
        tag = {"claim": "task.claimed.v1", "complete": "task.completed.v1"}[operation]
        child = stage.start(WORKER, when=when, tag=tag, **arguments)
        child.reach()
        child.kill()
        view = stage.view()
        assert view.team.tasks["t1"].status is status[when]
        done = {step.tool for step in view.agents["w0"].steps.values() if not step.is_open}
        assert (f"team.{operation}" in done) is (when == "after")
        assert len(stage.world.read("began")) == began
        report = stage.go_on(WORKER, **arguments)
        assert (report.error, report.results) == ("", ["t1"])
        [entry] = lead.team.tasks()
    assert (entry.status, entry.number, entry.result) == ("done", 1, {"square": 81})
    tags = [
        recorded.type
        for stored in portal().run(stage.record.workspace.log.read(tasks_of(stage.run)))
        for recorded in stored.commit.events
        if recorded.type != "task.extended.v1"  # a claim that is taken up again lives on at once
    ]
    assert tags == ["task.added.v1", "task.claimed.v1", "task.completed.v1"]
