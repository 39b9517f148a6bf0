"""A role's own numbers: an agent's steps count from 1 as they come into sight, and references to
what was not seen are left out.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec

REFERENCES = ("step", "parent", "reused", "after", "inputs")
"""The fields of agents' events that name steps and other events."""

_value = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def renumber(
    told: dict[str, msgspec.Raw], steps: dict[int, int], seen: Container[str]
) -> dict[str, msgspec.Raw]:
    """The fields of an agent's event that is seen, by the role's own numbers.

    `steps` maps the agent's numbers to the role's and takes in a step that comes into sight; `seen`
    holds the ids of the events and commits that were seen by then, this one's own among them.
    """
    out = dict(told)
    for name in REFERENCES:
        if name in out:
            value = _own(name, _plain(out[name]), steps, seen)
            if value is None:
                del out[name]
            else:
                out[name] = msgspec.Raw(_encoder.encode(value))
    return out


def _own(name: str, value: Any, steps: dict[int, int], seen: Container[str]) -> Any:
    match name, value:
        case "step", int():
            return steps.setdefault(value, len(steps) + 1)
        case (("parent" | "reused"), int()):
            return steps.get(value)
        # An empty list is left out, as where there never was one.
        case "after", list():
            return [steps[each] for each in value if type(each) is int and each in steps] or None
        case "inputs", list():
            return [each for each in value if type(each) is str and each in seen] or None
        case _:
            return None


def _plain(raw: msgspec.Raw) -> Any:
    try:
        return _value.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
