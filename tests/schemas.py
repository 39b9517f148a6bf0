"""Validation of written data against the published schemas."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import msgspec

from hansard.cli.exchange import Schema, schema


@cache
def validator(which: Schema, name: str = "") -> Any:
    """Return the validator of a schema or of one of its parts; `tests/golden` checks the schema
    itself.
    """
    made = _made(which)
    part = {"$ref": f"#/$defs/{name}", "$defs": made["$defs"]}
    return jsonschema.Draft202012Validator(part if name else made)


def check_commit(body: bytes | str, *, unknown: bool = False) -> int:
    """Check a commit against the schema, event by event; return the number of events."""
    commit = msgspec.json.decode(body)
    parts = schema_parts()
    for each in commit["events"]:
        if unknown and each["type"] not in parts:
            continue
        validator(Schema.EVENTS, each["type"]).validate(each)
    validator(Schema.EVENTS).validate({**commit, "events": []})
    return len(commit["events"])


@cache
def schema_parts() -> frozenset[str]:
    """Return the names of the parts of the events' schema."""
    return frozenset(_made(Schema.EVENTS)["$defs"])


_made = cache(schema)  # making one takes 34 ms
