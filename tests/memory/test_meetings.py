"""examples/meeting_assistant over three months, with hand-written answers of a local server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.portal import portal
from hansard.client.record import Record
from hansard.domain.memory.events import MemoryChanged, stream_of
from tests.integrations.packages import forked_with
from tests.memory.programs.meetings import minutes

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("programs") / "meetings.py"
SPACE = "agent/secretary"
BEGUN_S_MAX = 90.0
KILLS_MAX = 300
PRINTED = "- All is packed\n- Ann, 2026-12-11: lock the old office"

BULLETS, SHORT = (
    "- Use bullets, one a point.\n",
    "- Use bullets of at most twelve words, one a point.\n",
)
LAST, OWNER = "- Action items come last.\n", "- Action items come last, each with its owner.\n"
DATE = "- Action items come last, each with its owner and a date.\n"
TEXTS = [
    f"# Minutes\n\n{text}"
    for text in (BULLETS, BULLETS + LAST, BULLETS + OWNER, SHORT + OWNER, SHORT + DATE)
]
"""AGENTS.md after each correction of it."""
IN_WEEK = {1: "", 2: TEXTS[1], 4: TEXTS[1], 5: TEXTS[2], 9: TEXTS[2], 10: TEXTS[3], 13: TEXTS[4]}
"""AGENTS.md at the begin of some weeks."""
ASKED = 29


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """Programs find the SDK imported."""
    with forked_with("anthropic", "anthropic.lib.tools"):
        yield


@pytest.fixture
def provider() -> Iterator[Any]:
    """Run the server that plays the hand-written answers."""
    found = minutes().Provider().start()
    yield found
    found.stop()


def changes(record: Record) -> list[tuple[int, MemoryChanged]]:
    """Return the changes of AGENTS.md on record, each with its position."""
    from hansard.bus.commits import revive_all  # noqa: PLC0415 -- beside its one use

    stored = portal().run(record.workspace.log.read(stream_of(SPACE)))
    return [
        (each.position, event)
        for each in stored
        for event in revive_all([each.commit])
        if isinstance(event, MemoryChanged) and event.files[0].path == "AGENTS.md"
    ]


def demand_as_expected(record: Record) -> int:
    """AGENTS.md is at each position of the log what the corrections until then make of it."""
    made = [position for position, _ in changes(record)]
    assert len(made) == len(TEXTS)
    newest = portal().run(record.workspace.log.head())
    memory = record.memory(SPACE)
    for position in range(1, newest + 1):
        count = sum(at <= position for at in made)
        if count:
            assert memory.view("AGENTS.md", at=position) == TEXTS[count - 1], position
        else:
            with pytest.raises(hansard.NotFound):
                memory.view("AGENTS.md", at=position)
    return int(newest)


@pytest.mark.thorough(
    quick="memory/test_kill.py::test_killed_at_each_append_no_correction_is_lost_or_doubled"
)
def test_what_it_was_told_once_holds_from_then_on(record: Record, provider: Any):
    """Each correction holds from its week on; a second start sends no request."""
    program = minutes()
    assert program.work(record, provider.url)["week-13"] == PRINTED
    assert demand_as_expected(record) > 100
    first = {int(each["week"].split()[1]): each["system"] for each in provider.asked[::-1]}
    for week, text in IN_WEEK.items():
        block = f"## AGENTS.md (agent/secretary)\n\n{text}"
        assert (block in first[week]) if text else "AGENTS.md" not in first[week], week
        assert ("skills/decisions/SKILL.md" in first[week]) == (week > 6)
    results = [each["messages"][-1]["content"] for each in provider.asked]
    refused = [each[0] for each in results if isinstance(each, list) and each[0].get("is_error")]
    assert [json.dumps(each).count("skill.name") for each in refused] == [2, 0]
    assert "occurs not at all" in refused[1]["content"]
    reasons = [change.because for _, change in changes(record)]
    assert reasons == [
        said
        for each in program.meetings()
        for said in each["corrections"]
        if not said.startswith("When we decide")
    ]
    assert [each.path for each in record.memory(SPACE).entries()] == [
        "AGENTS.md",
        "skills/decisions/SKILL.md",
    ]
    assert provider.counts().total() == len(provider.counts()) == ASKED
    assert program.work(record, provider.url) == {}
    assert provider.counts().total() == ASKED


# Three appends bring a session that goes on to where a call of a tool had failed, and no further.
@pytest.mark.thorough(
    quick="memory/test_kill.py::test_killed_at_each_append_no_correction_is_lost_or_doubled"
)
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("when", "step"), [("after", 30), ("before", 5), ("after", 4)])
def test_killed_anywhere_no_correction_is_lost_or_doubled(stage, provider, evidence, when, step):
    """Killed anywhere, each correction is made once and no recorded answer is requested again."""
    kills = 0
    while True:
        child = stage.start(PROGRAM, number=step, when=when, url=provider.url)
        deadline = time.monotonic() + BEGUN_S_MAX
        while not Path(child.job.marker).exists() and child.process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if child.process.poll() is not None:
            break
        child.kill()
        kills += 1
        assert kills < KILLS_MAX, "it comes to no end"
    report = child.end()
    assert report.error == "", report.message
    assert report.results[-1] == PRINTED
    demand_as_expected(stage.record)
    steps = [(change.run, change.step) for _, change in changes(stage.record)]
    assert len(set(steps)) == len(TEXTS)
    asked = provider.counts()
    again = asked.total() - ASKED
    assert len(asked) == ASKED
    assert again <= kills
    assert kills >= 3
    evidence.record(f"memory.meetings.kills.{when}.{step}", kills=kills, lost=0, twice=0)
