"""The research team: three processes on real text, one killed in the middle of a task."""

import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.bus.commits import revive
from hansard.bus.portal import portal
from hansard.domain.roles.model import RoleDefined, RoleRule
from hansard.domain.team import TaskClaimed, TaskStatus
from hansard.state.replay import tasks_of
from tests.examples.support import ROOT, UseCase, new_desk
from tests.team import shown
from tests.team.test_races import holders

pytestmark = pytest.mark.slow

RUN = "team-iterator"
ROLES = ("researcher", "analyzer", "writer")


def reports(folder: Path):
    """Return the published reports."""
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
    """Return a broker's folder that outlives the processes."""
    folder = tmp_path_factory.mktemp("data")
    with hansard.connect(data_dir=folder):
        yield folder


@pytest.fixture(scope="module")
def desk(data, tmp_path_factory):
    """Yield a maker of places for the team: an empty folder and a workspace with its roles."""
    (texts := tmp_path_factory.mktemp("texts") / "docs").mkdir()

    def make(workspace):
        place = new_desk(TEAM, tmp_path_factory.mktemp("desk"), texts, data, workspace)
        place.command("hansard", "roles", "apply", "roles.toml")
        return place

    return make


@pytest.fixture(scope="module")
def undisturbed(desk):
    """Return the report, task results and the researcher's places of a run without kills."""
    quiet = desk("quiet")
    for role in ROLES:
        done = quiet.start(role)
        assert done.returncode == 0, done.stderr
    with quiet.connect() as record:
        return _report(quiet), _results(record.state(RUN)), quiet.started[0]


def _report(desk):
    return (desk.folder / "report-iterator.md").read_text("utf-8")


def _results(view):
    return {name: bytes(each.result) for name, each in view.team.tasks.items()}


def _second_paper(places):
    """Return the places where a researcher has read its second paper, and recorded nothing of
    it.
    """
    _, second, *_ = [n for n, each in enumerate(places) if each == "return sentences_of"]
    return str(second + 1)


KILLS = {"researcher": "", "analyzer": "return by_share", "writer": "return write_report"}
"""Kill points of each role: its work is done, but not recorded."""


@pytest.mark.thorough(
    quick="team/test_races.py::test_a_kill_leaves_a_task_event_and_its_step_or_neither"
)
@pytest.mark.parametrize("killed", ["writer", "researcher", "analyzer"])
def test_a_killed_agent_is_replaced_and_nothing_is_lost_or_done_twice(desk, undisturbed, killed):
    """A killed agent is replaced; report, tasks and views equal those of an undisturbed team."""
    place = desk(f"killed-{killed}")
    report, results, places = undisturbed
    others = [_popen(place, role) for role in ROLES if role != killed]
    first = place.start(killed, kill_at=KILLS[killed] or _second_paper(places))
    assert first.returncode == -signal.SIGKILL
    other = place.start(killed, f"{killed}_2")
    assert other.returncode == 0, other.stderr
    assert [process.wait(60) for process in others] == [0, 0]
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
        by_role = Counter(name.rpartition("_")[0] for name in done.values())
        assert by_role == {"researcher": 5, "analyzer": 1, "writer": 1}
        assert f"{killed}_2" in done.values()
        claims = [
            event.task
            for each in stored
            for event in map(revive, each.commit.events)
            if isinstance(event, TaskClaimed)
        ]
        assert len(claims) == len(done) + 1
        served = shown.check(record, RUN)
        assert served.keys() == view.agents.keys()
        assert served[f"{killed}_2"] >= 1
        before = _command(place, "roles", "view", killed, RUN)
        record.roles.apply(killed, RoleDefined(sees=(RoleRule("all", ("**",)),)))
        after = _command(place, "roles", "view", killed, RUN)
        assert len(after) > len(before)
        assert shown.check(record, RUN) == served


def _popen(place, role):
    arguments = (*place.case.arguments, role)
    case = msgspec.structs.replace(place.case, arguments=arguments)
    return msgspec.structs.replace(place, case=case).popen()


def _command(place, *words):
    return place.command("hansard", *map(str, words), "--json").splitlines()


def test_the_page_says_what_the_program_is_called():
    """The README's commands name the program and its roles."""
    text = (ROOT / "examples" / "research_team" / "README.md").read_text("utf-8")
    assert "hansard roles apply roles.toml" in text
    for role in ROLES:
        assert f"python team.py iterator {role}" in text
