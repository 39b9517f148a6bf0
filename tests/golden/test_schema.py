"""The published JSON Schemas equal the generated ones and accept all written events."""

from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from hansard.cli.exchange import Schema, schema
from hansard.domain.events import REGISTRY
from tests.schemas import validator

DOCS = Path(__file__).parents[2] / "docs" / "schema"
EVENTS = Path(__file__).parent / "events"


@pytest.mark.parametrize("which", Schema)
def test_what_is_published_is_what_the_types_say(which: Schema):
    """`docs/schema` is what `hansard schema` prints, and is a valid schema."""
    stored = msgspec.json.decode((DOCS / f"{which.value}.schema.json").read_bytes())
    assert stored == schema(which), f"hansard schema {which.value}"
    jsonschema.Draft202012Validator.check_schema(stored)


def test_every_event_of_the_golden_files_is_valid():
    """Every golden event, full or least, is valid by the part of the schema for its tag."""
    seen: set[str] = set()
    for path in sorted(EVENTS.iterdir()):
        tag = path.name.removesuffix(".json").rpartition(".")[0]
        data = msgspec.json.decode(path.read_bytes())
        recorded = data if "type" in data and "id" in data else None
        validator(Schema.EVENTS, tag).validate(recorded or {"type": tag, "id": "e", "data": data})
        seen.add(tag)
    parts = schema(Schema.EVENTS)["$defs"]
    assert seen <= {each["$ref"].rpartition("/")[2] for each in parts["Recorded"]["oneOf"]}
    assert all(parts[tag]["properties"]["type"] == {"const": tag} for tag in seen)
    core = {tag for tag, cls in REGISTRY.items() if cls.__module__.startswith("hansard.domain.")}
    assert core <= seen


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"type": "step.requested.v9"}, "not valid under any"),
        ({"data": {"step": "one"}}, "not valid under any"),
        ({"id": 7}, "not valid under any"),
    ],
)
def test_what_is_no_event_is_not(change: dict[str, Any], fault: str):
    """The schema refuses another tag, other data, and an id that is no text."""
    good = {"type": "agent.left.v1", "id": "e", "data": {"outcome": "completed"}}
    events = validator(Schema.EVENTS, "Recorded")
    events.validate(good)
    with pytest.raises(jsonschema.ValidationError, match=fault):
        events.validate(good | change)
