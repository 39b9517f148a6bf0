"""examples/meeting_assistant over three months, with hand-written answers of a local server."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.portal import portal
from hansard.client.record import Record
from hansard.domain.memory.files import MemoryChanged, stream_of

pytestmark = pytest.mark.slow

MINUTES = Path(__file__).parents[2] / "examples" / "meeting_assistant" / "minutes.py"
SPACE = "agent/secretary"
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


@pytest.fixture
def provider() -> Iterator[Any]:
    """Run the server that plays the hand-written answers."""
    server = minutes().Provider().start()
    yield server
    server.stop()


def minutes() -> Any:
    """Import the example's program."""
    spec = importlib.util.spec_from_file_location("meeting_assistant", MINUTES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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
def test_a_correction_holds_from_its_week_on(record: Record, provider: Any):
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
        correction
        for each in program.meetings()
        for correction in each["corrections"]
        if not correction.startswith("When we decide")
    ]
    assert [each.path for each in record.memory(SPACE).entries()] == [
        "AGENTS.md",
        "skills/decisions/SKILL.md",
    ]
    assert provider.counts().total() == len(provider.counts()) == ASKED
    assert program.work(record, provider.url) == {}
    assert provider.counts().total() == ASKED
