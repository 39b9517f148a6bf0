"""Real runs, projected: each equals the domain's fold at the same point."""

from collections.abc import Iterator

import msgspec
import pytest

from hansard.domain.events import Commit
from hansard.projections.store import Store
from tests.projections.conftest import Story
from tests.projections.support import commits_in_full, fill, some_borders

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yield the story in tables, written in batches of random sizes."""
    made = Store(tmp_path_factory.mktemp("story") / "t.duckdb")
    fill(made, story.messages, some_borders(story.messages, 3))
    yield made
    made.close()


@pytest.mark.thorough(
    quick="projections/test_messages.py::test_golden_events_of_every_type_are_projected"
)
def test_events_are_the_log(story: Story, store: Store):
    """`events` has every event in order, in full, byte for byte."""
    expected = [
        (position, index, event.id, event.type, str(event.data, "utf-8"))
        for position, commit in commits_in_full(story.messages)
        for index, event in enumerate(commit.events)
    ]
    stored = [msgspec.json.decode(message.body, type=Commit).events for message in story.messages]
    whole = sum(
        str(event.data, "utf-8") == row[-1]
        for event, row in zip((each for one in stored for each in one), expected, strict=True)
    )
    assert len(expected) > whole > len(expected) * 0.9
    statement = "SELECT position, event_index, id, type, data FROM events ORDER BY ALL"
    assert store.all(statement) == expected
