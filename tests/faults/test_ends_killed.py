"""An agent killed as it leaves has left or not, alike in its stream and its run's."""

from pathlib import Path

import pytest

from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.run import RunStatus
from hansard.domain.team import TaskStatus
from tests.faults.support import Stage

pytestmark = pytest.mark.slow

REOPENS = Path(__file__).with_name("programs") / "reopens.py"
SAYS = Path(__file__).with_name("programs") / "says.py"
LEAVES = Path(__file__).with_name("programs") / "leaves.py"


def _ending(stage: Stage) -> tuple[str | None, list[str]]:
    """Return how the agent left, by its own stream, and the tags of the run's stream."""
    view = stage.view()
    tags = [
        recorded.type
        for stored in stage.commits()
        if stored.stream == RunStream(stage.run)
        for recorded in stored.commit.events
    ]
    return view.agents["w0"].left, tags


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("peer", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_where_an_agent_leaves_leaves_all_of_its_end_or_nothing(stage, when, peer):
    """A kill around an agent's leaving leaves all of the run's end on record, or none of it."""
    open_ = stage.record.run("w", run=stage.run, agent="lead", role="lead")
    if peer:
        open_.__enter__()
    child = stage.start(LEAVES, when=when, tag="run.agent_left.v1", agent="w0")
    child.reach()
    child.kill()
    left, tags = _ending(stage)
    assert (left, "run.agent_left.v1" in tags) == (
        ("completed", True) if when == "after" else (None, False)
    )
    assert ("run.completed.v1" in tags) is (when == "after" and not peer)
    if peer:
        open_.__exit__(None, None, None)
    life = stage.view().life
    if when == "after":
        assert (life.status, life.missing) == (RunStatus.COMPLETED, [])
    else:
        assert (life.status, life.missing) == (RunStatus.OPEN, ["w0"])
        report = stage.go_on(LEAVES, agent="w0")
        assert (report.error, report.results) == ("", ["sent to eve"])
        life = stage.view().life
        assert (life.status, life.missing) == (RunStatus.COMPLETED, [])
    assert stage.world.read("sent") == [{"to": "eve"}]
    assert AgentStream(stage.run, "worker", "w0") in {each.stream for each in stage.commits()}


def test_a_run_whose_agent_was_killed_is_open_until_somebody_ends_it(stage: Stage) -> None:
    """An open run names its missing agent; `finish` ends it, and a returning agent reopens it."""
    child = stage.start(LEAVES, when="before", tag="agent.left.v1", agent="w0")
    child.reach()
    child.kill()
    assert stage.view().life.missing == ["w0"]
    assert stage.record.finish(stage.run, reason="it is gone") is True
    assert stage.view().life.status is RunStatus.COMPLETED
    report = stage.go_on(LEAVES, agent="w0")
    assert (report.error, report.results) == ("", ["sent to eve"])
    life = stage.view().life
    assert (life.status, life.missing) == (RunStatus.COMPLETED, [])


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_where_a_task_is_reopened_leaves_it_and_its_step_or_neither(stage, when):
    """A kill around reopening a task leaves both the task and its step changed, or neither."""
    child = stage.start(REOPENS, when=when, tag="task.reopened.v1")
    child.reach()
    child.kill()
    view = stage.view()
    done = {step.tool for step in view.agents["w0"].steps.values() if not step.is_open}
    assert ("team.reopen" in done) is (when == "after")
    status = TaskStatus.OPEN if when == "after" else TaskStatus.FAILED
    assert view.team.tasks["t1"].status is status
    report = stage.go_on(REOPENS)
    assert (report.error, report.results) == ("", [True, 2])
    tags = [each.type for stored in stage.commits() for each in stored.commit.events]
    assert tags.count("task.reopened.v1") == 1


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("say", "tag"),
    [
        ("finish", "run.completed.v1"),
        ("cancel", "run.cancelled.v1"),
        ("reopen", "task.reopened.v1"),
    ],
)
def test_a_kill_leaves_an_outside_statement_once_or_not_at_all(stage, when, say, tag):
    """A kill around an outside statement leaves it on record once or not at all."""
    with stage.record.run("w", run=stage.run, agent="lead", role="lead") as lead:
        lead.team.add("one")
        task = lead.team.claim()
        assert task is not None
        lead.team.fail(task, "no")
        child = stage.start(SAYS, when=when, tag=tag, say=say)
        child.reach()
        child.kill()

        def tags() -> list[str]:
            return [each.type for stored in stage.commits() for each in stored.commit.events]

        assert tags().count(tag) == (when == "after")
        report = stage.go_on(SAYS, say=say)
        assert (report.error, report.results) == ("", when == "before")
        assert tags().count(tag) == 1
