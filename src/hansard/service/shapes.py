"""What operations give back, over the wire and back: our own records, which no value can say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hansard.agents.board import Entry
from hansard.agents.experiments import Arm
from hansard.agents.team import Task, TaskEntry
from hansard.agents.team_mail import Mail
from hansard.agents.views import View
from hansard.bus.slices import Slices
from hansard.domain.board import Kind
from hansard.service import wire

_json = msgspec.json

LINES_AT_ONCE = 50
"""So many lines of a view are encoded between two looks at the clock."""


def _fields(record: Any) -> dict[str, Any]:
    return {
        name: value.value if isinstance(value, Kind) else value
        for name, value in msgspec.structs.asdict(record).items()
    }


def _record(given: Any) -> msgspec.Raw:
    return wire.dump(None if given is None else _fields(given))


def _records(given: Any) -> msgspec.Raw:
    return wire.dump([_fields(each) for each in given])


def _entry(raw: msgspec.Raw) -> Entry | None:
    told: dict[str, Any] | None = wire.load(raw)
    if told is None:
        return None
    told["kind"] = Kind(told["kind"])
    return Entry(**told)


def _task(raw: msgspec.Raw) -> Task | None:
    told = wire.load(raw)
    return None if told is None else Task(**told)


def told_arm(arm: Arm | None) -> msgspec.Raw:
    """A run's arm over the wire."""
    return wire.dump(None if arm is None else msgspec.structs.asdict(arm), "arm")


def arm_of(raw: msgspec.Raw) -> Arm | None:
    """A run's arm, told."""
    told = wire.load(raw)
    return None if told is None else Arm(**told)


Shape = tuple[Callable[[Any], msgspec.Raw], Callable[[msgspec.Raw], Any]]

PLAIN: Shape = (wire.dump, wire.load)
SHAPES: dict[str, Shape] = {
    "board.entry": (_record, _entry),
    "team.claim": (lambda found: _record(found[0]), lambda raw: (_task(raw), False)),
    "team.claimed": (_record, _task),
    "team.tasks": (_records, lambda raw: [TaskEntry(**each) for each in wire.load(raw)]),
    "mail.inbox": (_records, lambda raw: [Mail(**each) for each in wire.load(raw)]),
    "views.view": (
        lambda given: msgspec.Raw(wire.encode(given)),
        lambda raw: _json.decode(raw, type=View),
    ),
}


def shape(name: str) -> Shape:
    """How the result of an operation goes there and comes back."""
    return SHAPES.get(name, PLAIN)


async def told(name: str, given: Any) -> msgspec.Raw:
    """The result of an operation as it goes there; a view, which may be long, in slices."""
    return await _view(given) if name == "views.view" else shape(name)[0](given)


async def _view(given: View) -> msgspec.Raw:
    """The same bytes as in one go."""
    lines: list[bytes] = []
    async with Slices() as slices:
        for start in range(0, len(given.events), LINES_AT_ONCE):
            lines.append(wire.encode(given.events[start : start + LINES_AT_ONCE])[1:-1])
            if slices.over:
                await slices.pause()
    fields = {name: getattr(given, name) for name in given.__struct_fields__}
    fields["events"] = msgspec.Raw(b"[" + b",".join(lines) + b"]")
    return msgspec.Raw(wire.encode(fields))
