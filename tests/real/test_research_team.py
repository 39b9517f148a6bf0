"""The research team on real input: messages of 61 failed teams of agents, a paper each.

The texts are the recorded runs of Who&When, not written for Hansard. The analyzer is killed in the
middle of its task; plain code recounts the team's findings from the files.
"""

import json
import re
import signal
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.bus.portal import portal
from hansard.domain.agent import MessageAdded
from hansard.domain.team import TaskStatus
from hansard.state.replay import tasks_of
from tests.examples.support import Desk, UseCase, new_desk
from tests.faults._warm import python
from tests.team import shown
from tests.team.test_races import holders

pytestmark = pytest.mark.real

WORD = "evidence"
RUN = f"team-{WORD}"
PAPERS_MAX = 5


def reports(folder: Path):
    """Return the published reports."""
    return sorted(path.name for path in folder.glob("report-*.md"))


TEAM = UseCase(
    "research_team",
    "team.py",
    (WORD,),
    RUN,
    (),
    ("titles_by_count", "sentences_of", "by_share", "write_report"),
    "write_report",
    reports,
)


@pytest.fixture(scope="module")
def texts(real_data):
    """Each recorded run as one text, by a title that names its file."""
    folder = real_data / "who-and-when" / "dev"
    by_title = {}
    for file in sorted(folder.rglob("*.json")):
        run = json.loads(file.read_bytes())
        parts = [run["question"], *(str(each["content"]) for each in run["history"])]
        by_title[f"{file.parent.name}-{file.stem}"] = "\n\n".join(parts)
    return by_title


@pytest.fixture(scope="module")
def place(texts, tmp_path_factory):
    """Return the team's folder with the papers, after a kill of the analyzer and a complete run."""
    (documents := tmp_path_factory.mktemp("texts") / "docs").mkdir()
    data = tmp_path_factory.mktemp("data")
    with hansard.connect(data_dir=data):
        made = new_desk(TEAM, tmp_path_factory.mktemp("desk"), documents, data, "real")
        (papers := made.folder / "papers").mkdir()
        for title, text in texts.items():
            (papers / f"{title}.txt").write_text(text, "utf-8")
        made.command("hansard", "roles", "apply", "roles.toml")
        others = [_beside(made, role) for role in ("researcher", "writer")]
        assert made.start("analyzer", kill_at="return by_share").returncode == -signal.SIGKILL
        other = made.start("analyzer", "analyzer_2")
        assert other.returncode == 0, other.stderr
        assert [process.wait(60) for process in others] == [0, 0]
        yield made


def _beside(made: Desk, role: str):
    case = msgspec.structs.replace(made.case, arguments=(WORD, role))
    return msgspec.structs.replace(made, case=case).popen(python())


def test_no_task_is_done_twice_and_none_is_lost(place):
    """Five papers, the analysis, the report: each once, the analysis by the second analyzer."""
    with place.connect() as record:
        team = record.state(RUN).team
        stored = portal().run(record.workspace.log.read(tasks_of(RUN)))
    assert {each.status for each in team.tasks.values()} == {TaskStatus.DONE}
    done, takeovers = holders(stored)
    assert (len(done), takeovers) == (PAPERS_MAX + 2, 1)
    assert done["compare"] == "analyzer_2"
    assert done.keys() == team.tasks.keys()


@pytest.mark.thorough
def test_every_view_is_what_its_role_allowed_then(place):
    """Each view that was served, of the killed analyzer's too, held against plain code."""
    with place.connect() as record:
        served = shown.check(record, RUN)
    assert served.keys() == {"researcher_1", "analyzer_1", "analyzer_2", "writer_1"}
    assert served["researcher_1"] == PAPERS_MAX


def test_findings_are_in_the_papers(place, texts):
    """The papers chosen mention the word most, and each quote is in its paper."""
    with place.connect() as record:
        boards = record.state(RUN).boards
    counts = {title: text.lower().count(WORD) for title, text in texts.items()}
    best = sorted(counts.values(), reverse=True)[:PAPERS_MAX]
    findings = {key.removeprefix("findings/") for key in boards if key.startswith("findings/")}
    assert sorted((counts[title] for title in findings), reverse=True) == best
    order = boards["analysis"].plain
    mentions = {
        title: sum(quote.lower().count(WORD) for quote in boards[f"findings/{title}"].plain)
        for title in findings
    }
    assert order == sorted(
        (t for t in mentions if mentions[t]), key=lambda title: (-mentions[title], title)
    )
    report = (place.folder / f"report-{WORD}.md").read_text("utf-8")
    parts = re.split(r"^## ", report, flags=re.MULTILINE)
    assert len(parts) == len(order) + 1
    flat = {title: " ".join(texts[title].split()) for title in order}
    quotes = 0
    for title, part in zip(order, parts[1:], strict=True):
        name, _, *lines = part.splitlines()
        assert name == title
        for line in filter(None, lines):
            assert line.removeprefix("- ") in flat[title]
            assert WORD in line.lower()
            quotes += 1
    assert quotes >= len(order)


@pytest.mark.thorough
def test_the_moment_at_which_the_analyzer_decided(place):
    """`hansard knew` shows the second analyzer's decisions in view, and no private message."""
    with place.connect() as record:
        [decision] = [
            recorded.id
            for stored in portal().run(record.workspace.states.history(RUN))
            for recorded in stored.commit.events
            if recorded.type == "decision.made.v1" and b"begin with?" in bytes(recorded.data)
        ]
        facts = record.state(RUN).agents["researcher_1"].facts
    notes = [noted.fact for noted in facts if isinstance(noted.fact, MessageAdded)]
    assert len(notes) == PAPERS_MAX
    output = place.command("hansard", "knew", decision, "--json")
    events = [line for line in map(json.loads, output.splitlines()) if line["kind"] == "event"]
    decided = [line["data"] for line in events if line["type"] == "decision.made.v1"]
    assert len(decided) == PAPERS_MAX
    assert all(data.keys() == shown.DECISION_FIELDS for data in decided)
    assert "sentences say it" in bytes(notes[0].content).decode()
    assert "sentences say it" not in output
