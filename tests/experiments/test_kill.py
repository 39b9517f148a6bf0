"""A kill around plan, assignment or begin leaves each whole or absent; concurrent ones are one."""

import contextlib
import random
import time
from pathlib import Path

import pytest

import hansard
from hansard.bus.portal import portal
from hansard.domain.experiment import arm_of
from hansard.domain.ids import RunStream, WorkspaceStream
from hansard.domain.run import RunStatus

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("programs")
ASSIGNER, REGISTRAR = PROGRAMS / "assigner.py", PROGRAMS / "registrar.py"

RUNS = 60
"""Runs of one program that is killed at a random moment; they take about 0.5 s."""

BEGIN = ["run.started.v1", "run.assigned.v1", "run.agent_joined.v1"]


def arms_on_record(stage):
    """Return each run's assigned arm; check that each run was assigned as it began."""
    log = stage.record.workspace.log
    plan = stage.record.experiments.get("greeting").plan
    arms: dict[str, str] = {}
    for run, life in stage.record.runs():
        first, *_ = portal().run(log.read(RunStream(run)))
        assert [event.type for event in first.commit.events] == BEGIN
        assert first.commit.tx is not None
        view = stage.record.state(run)
        assert view.agents, "the life began without its agent"
        assignment = life.assigned
        assert (assignment.chosen, assignment.unit) == ("hash", assignment.task)
        assert assignment.arm == arm_of("greeting", plan, assignment.task).name
        arms[run] = assignment.arm
    return arms


def exposed(stage):
    """Return the arm that each run's code noted outside."""
    arms: dict[str, str] = {}
    for line in stage.world.read("exposed"):
        assert arms.setdefault(line["run"], line["arm"]) == line["arm"]
    return arms


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("when", "tag", "registered", "runs"),
    [
        ("before", "experiment.registered.v1", False, 0),
        ("after", "experiment.registered.v1", True, 0),
        ("before", "run.assigned.v1", True, 0),
        ("after", "run.assigned.v1", True, 1),
        ("before", "run.completed.v1", True, 1),
    ],
)
def test_a_kill_leaves_a_whole_assignment_or_none(stage, when, tag, registered, runs):
    """After SIGKILL around plan, assignment or end each run has one assignment, as it saw."""
    child = stage.start(ASSIGNER, when=when, tag=tag, runs=3)
    child.reach()
    child.kill()
    with contextlib.nullcontext() if registered else pytest.raises(hansard.NotFound):
        stage.record.experiments.get("greeting")
    before = arms_on_record(stage) if registered else {}
    assert len(before) == runs
    assert len(exposed(stage)) == (tag == "run.completed.v1")
    report = stage.go_on(ASSIGNER, runs=3)
    assert report.error == ""
    after = arms_on_record(stage)
    assert list(after.items())[::-1] == [(f"run-{n}", arm) for n, arm in enumerate(report.results)]
    assert before.items() <= after.items()
    assert exposed(stage) == after
    assert stage.record.experiments.get("greeting").version == 1
    for run in after:
        life = stage.record.state(run).life
        assert life.status is RunStatus.COMPLETED
        tags = [
            event.type
            for stored in portal().run(stage.record.workspace.log.read(RunStream(run)))
            for event in stored.commit.events
        ]
        assert tags.count("run.assigned.v1") == 1


@pytest.mark.thorough(quick="test_a_kill_leaves_a_whole_assignment_or_none")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_kills_at_any_moment_leave_whole_assignments(stage, rounds, evidence):
    """After random SIGKILLs nobody saw an arm other than the one on record."""
    count, halves = rounds(2, 40), 0
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(count):
        seen = len(stage.world.read("registered"))
        child = stage.start(ASSIGNER, runs=RUNS)
        deadline = time.monotonic() + 30
        while len(stage.world.read("registered")) == seen and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.4))
        child.kill()
        arms = arms_on_record(stage)
        assert exposed(stage).items() <= arms.items(), seed
        halves += child.process.returncode != 0
    assert halves > 0, f"no kill of seed {seed} came before the end"
    report = stage.go_on(ASSIGNER, runs=RUNS)
    assert report.error == ""
    assert exposed(stage) == arms_on_record(stage)
    assert stage.record.experiments.get("greeting").version == 1
    evidence.record("experiment.killed", rounds=count, in_the_middle=halves, runs=RUNS, lost=0)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("alphas", [(0.05, 0.05), (0.05, 0.01)])
def test_two_processes_register_at_once(stage, tmp_path, alphas):
    """One plan is registered under a name; another process finds it or is refused."""
    count, go = 40, tmp_path / "go"
    children = [
        stage.start(REGISTRAR, name=f"p-{n}", alpha=alpha, count=count, go=str(go))
        for n, alpha in enumerate(alphas)
    ]
    for child in children:
        child.reach()
    go.touch()
    reports = [child.end() for child in children]
    assert [report.error for report in reports] == ["", ""]
    lost = "stood" if len(set(alphas)) == 1 else "refused"
    for n in range(count):
        name = f"e-{n}"
        outcomes = [report.results[name] for report in reports]
        assert sorted(outcomes) == sorted(["registered", lost]), name
        winner = outcomes.index("registered")
        [stored] = portal().run(
            stage.record.workspace.log.read(WorkspaceStream("experiment", name))
        )
        assert stored.commit.actor.agent == f"p-{winner}"
        assert stage.record.experiments.get(name).plan.alpha == alphas[winner]
