"""The research team: three processes on real text, one killed in the middle of a task."""

import json
import signal
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.bus.codec import revive
from hansard.bus.portal import portal
from hansard.bus.teams import tasks_of
from hansard.domain.task import TaskClaimed, TaskCompleted, TaskStatus
from tests.examples.support import ROOT, UseCase, new_desk
from tests.team.test_races import holders

RUN = "team-iterator"


def reports(folder: Path):
    """What was published."""
    return sorted(path.name for path in folder.glob("report-*.md"))


TEAM = UseCase(
    "research_team",
    "team.py",
    ("iterator",),
    RUN,
    (),
    ("titles_by_count", "sentences_of", "by_share", "write_report"),
    "write_report",
    reports,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A broker's folder that outlives the processes."""
    folder = tmp_path_factory.mktemp("data")
    with hansard.connect(data_dir=folder):
        yield folder


@pytest.fixture(scope="module")
def desk(data, tmp_path_factory):
    """Makes places to run the team in: an empty folder and an empty workspace."""
    (texts := tmp_path_factory.mktemp("texts") / "docs").mkdir()

    def make(workspace):
        return new_desk(TEAM, tmp_path_factory.mktemp("desk"), texts, data, workspace)

    return make


@pytest.fixture(scope="module")
def undisturbed(desk):
    """Where nobody is killed: the report, what the tasks came to, the researcher's places."""
    quiet = desk("quiet")
    for role in ("researcher", "analyzer", "writer"):
        done = quiet.start(role)
        assert done.returncode == 0, done.stderr
    with quiet.connect() as record:
        return _report(quiet), _results(record.state(RUN)), quiet.started[0]


def _report(desk):
    return (desk.folder / "report-iterator.md").read_text("utf-8")


def _results(view):
    return {name: bytes(each.result) for name, each in view.team.tasks.items()}


def test_a_killed_agent_is_replaced_and_nothing_is_lost_or_done_twice(desk, undisturbed):
    """The analyzer and the writer wait; the researcher is killed while it reads its second paper
    (its work is done, and not on record); another takes its place. The report is byte for byte
    that of a team that nobody disturbed; every task was completed once, by who then had it.
    """
    place = desk("killed")
    report, results, places = undisturbed
    _, second, *_ = [n for n, each in enumerate(places) if each == "return sentences_of"]
    first = place.start("researcher", kill_at=str(second + 1))
    assert first.returncode == -signal.SIGKILL
    later = [_popen(place, role) for role in ("analyzer", "writer")]
    other = place.start("researcher", "researcher_2")
    assert other.returncode == 0, other.stderr
    assert [process.wait(60) for process in later] == [0, 0]
    assert _report(place) == report
    assert report.count("## ") == 5
    with place.connect() as record:
        view = record.state(RUN)
        stored = portal().run(record.workspace.log.read(tasks_of(RUN)))
    assert _results(view) == results
    assert {each.status for each in view.team.tasks.values()} == {TaskStatus.DONE}
    done, takeovers = holders(stored)
    assert takeovers == 1
    assert done.keys() == view.team.tasks.keys()
    assert sorted(done.values()) == [
        "analyzer_1",
        "researcher_1",
        *["researcher_2"] * 4,
        "writer_1",
    ]
    claims = [
        event.task
        for each in stored
        for event in map(revive, each.commit.events)
        if isinstance(event, TaskClaimed)
    ]
    assert len(claims) == len(done) + 1


def test_the_team_as_it_stood_when_the_analyzer_finished(desk, undisturbed):
    """Put back to that moment: all papers are read, the analysis is there, the report is not even
    begun; a moment before, the analyzer still had its task.
    """
    place = desk("again")
    for role in ("researcher", "analyzer", "writer"):
        assert place.start(role).returncode == 0
    with place.connect() as record:
        [finished] = [
            stored.position
            for stored in portal().run(record.workspace.log.read(tasks_of(RUN)))
            for event in map(revive, stored.commit.events)
            if isinstance(event, TaskCompleted) and event.task == "compare"
        ]
        then, before = record.state(RUN, finished), record.state(RUN, finished - 2)
        now = record.state(RUN)
    shown = [json.loads(line) for line in _command(place, "team", RUN, "--at", str(finished))]
    tasks = then.team.tasks
    assert _results(now) == undisturbed[1]
    assert tasks["compare"].status is TaskStatus.DONE
    assert bytes(tasks["compare"].result) == undisturbed[1]["compare"]
    assert tasks["report"].status is TaskStatus.OPEN
    assert (before.team.tasks["compare"].status, before.team.tasks["compare"].holder) == (
        TaskStatus.CLAIMED,
        "analyzer_1",
    )
    assert "writer_1" not in then.agents
    assert sorted(then.boards) == sorted(
        ["analysis", *(f"findings/{each.removeprefix('read ')}" for each in tasks if " " in each)]
    )
    assert {row["id"]: row["status"] for row in shown if row["kind"] == "task"} == {
        name: "done" if each.is_over else "open" for name, each in tasks.items()
    }


def _popen(place, role):
    arguments = (*place.case.arguments, role)
    case = msgspec.structs.replace(place.case, arguments=arguments)
    return msgspec.structs.replace(place, case=case).popen()


def _command(place, *words):
    return place.command("hansard", *words, "--json").splitlines()


def test_the_page_says_what_the_program_is_called():
    """Its README's commands name the program and the roles that it has."""
    text = (ROOT / "examples" / "research_team" / "README.md").read_text("utf-8")
    for role in ("researcher", "analyzer", "writer"):
        assert f"python team.py iterator {role}" in text
