"""Differences of two requests, field by field, and the nearest recorded request.

Requests are compared by their identities (`hansard.ext.models.providers`). Nothing here decides
that two requests are the same: a person reads it, and states a rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from hansard.agents.flow import Flow
from hansard.agents.steps.engine import StepEngine
from hansard.domain import values
from hansard.domain.choices import counted
from hansard.domain.fingerprint import canonical
from hansard.ext.models.providers import BY_NAME, Operation, identity_of

FIELDS_MAX = 8
"""Most fields that a miss names."""

SHOWN_MAX = 60
"""Most characters of a value that are shown."""

CANDIDATES_MAX = 2000
"""Most recorded requests that a miss is compared with: the newest ones of its operation."""

_ABSENT = object()


class Difference(msgspec.Struct, frozen=True):
    """A field that differs, as a JSON pointer, with both values as they are shown.

    `shared` is the number of equal characters at their beginning.
    """

    field: str
    recorded: str
    now: str
    shared: int = 0


def differences(recorded: Any, now: Any, at: str = "") -> Iterator[Difference]:
    """Yield the fields in which two JSON values differ, in the order of the recorded one."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in (*recorded, *(each for each in now if each not in recorded)):
            one, other = recorded.get(name, _ABSENT), now.get(name, _ABSENT)
            yield from differences(one, other, f"{at}/{_escaped(name)}")
    elif isinstance(recorded, list) and isinstance(now, list):
        for index in range(max(len(recorded), len(now))):
            one = recorded[index] if index < len(recorded) else _ABSENT
            other = now[index] if index < len(now) else _ABSENT
            yield from differences(one, other, f"{at}/{index}")
    elif type(recorded) is not type(now) or recorded != now:
        start = _common(recorded, now)
        yield Difference(at or "/", _shown(recorded, start), _shown(now, start), start)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _common(one: Any, other: Any) -> int:
    """Return where two texts begin to differ; 0 for other values."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return 0
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shown(value: Any, start: int = 0) -> str:
    """Return a value as it is shown: of a text, the part around its first difference."""
    if value is _ABSENT:
        return "(absent)"
    if isinstance(value, str):
        begin = max(0, start - SHOWN_MAX // 3) if len(value) > SHOWN_MAX else 0
        part = value[begin : begin + SHOWN_MAX]
        text = msgspec.json.encode(part).decode()
        return ("..." if begin else "") + text + ("..." if begin + SHOWN_MAX < len(value) else "")
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


# ---------------------------------------------------------------- a miss


class Nearest(msgspec.Struct, frozen=True):
    """The recorded request that differs least from one that is not on record.

    Attributes:
        step: Its step.
        fields: The fields that differ.
        taken: True if the requests are equal, and the recorded one answered another call before.
    """

    step: int
    fields: tuple[Difference, ...]

    @property
    def taken(self) -> bool:
        """True if nothing differs: the recorded request answered an earlier call."""
        return not self.fields

    @property
    def summary(self) -> str:
        """The difference in one line: the first field with both values, and the others' number."""
        if self.taken:
            return (
                f"step {self.step} recorded the same request, and answered an earlier one: the "
                "program sends it more often than it did"
            )
        first, *others = self.fields
        more = f", and {counted(len(others), 'more field')}" if others else ""
        return (
            f"the nearest recorded request, step {self.step}, differs in {first.field} (recorded "
            f"{first.recorded}, now {first.now}){more}"
        )

    def __str__(self) -> str:
        if self.taken:
            return self.summary
        lines = [f"nearest recorded request: step {self.step}"]
        for each in self.fields[:FIELDS_MAX]:
            lines += [
                f"  {each.field}",
                f"    recorded: {each.recorded}",
                f"    now:      {each.now}",
            ]
        if (more := len(self.fields) - FIELDS_MAX) > 0:
            lines.append(f"  and {more} more fields")
        return "\n".join(lines)


def nearest(
    now: Any, recorded: Iterable[tuple[int, Any]], answered: Collection[int] = ()
) -> Nearest | None:
    """Return the nearest of some recorded requests, or None if there are none.

    It has the fewest different fields, then the longest equal beginnings of their texts; of several
    the earliest counts that has not answered a call yet.

    Args:
        now: The identity of the request that is not on record.
        recorded: Steps and identities of the recorded requests of its operation.
        answered: Steps that answered an earlier call.
    """

    def distance(each: Nearest) -> tuple[int, int, bool]:
        shared = sum(field.shared for field in each.fields)
        return len(each.fields), -shared, each.step in answered

    candidates = (Nearest(step, tuple(differences(each, now))) for step, each in recorded)
    return min(candidates, key=distance, default=None)


def nearest_recorded(
    engine: StepEngine, operation: Operation, path: str, body: Any, volatile: Sequence[str] = ()
) -> Flow[Nearest | None]:
    """Find the request on record in a session that is nearest to one that is not.

    Args:
        engine: The session's engine.
        operation: The request's operation.
        path: Its path, as it would be recorded.
        body: Its body, as it would be recorded.
        volatile: The rules in force.
    """
    steps = engine.ledger.state.steps
    numbers = [number for number in sorted(steps) if steps[number].tool == operation.name]
    recorded: list[tuple[int, Any]] = []
    for number in numbers[-CANDIDATES_MAX:]:
        arguments = yield from engine.outcomes.fetch(
            engine.outcomes.reader.arguments(steps[number])
        )
        identity = identity_of(operation, arguments.get("body"), volatile)
        recorded.append((number, {"path": arguments.get("path"), "body": identity}))
    now = identity_as_recorded(engine, operation, body, volatile)
    near = nearest({"path": path, "body": now}, recorded, engine.ledger.requested)
    return near and Nearest(near.step, tuple(map(_of_body, near.fields)))


def _of_body(each: Difference) -> Difference:
    """Return a difference with its field as a rule names it."""
    return msgspec.structs.replace(each, field=each.field.removeprefix("/body") or "/")


Earlier = dict[tuple[str, str, str], list[str]]
"""Recorded identities by tool, path, and identity under other rules, in the order of the steps."""


def identities_under(engine: StepEngine, volatile: Sequence[str]) -> Flow[Earlier]:
    """Return the identities of the requests on record, by what they are under other rules.

    So rules that were stated after a recording apply to its replay.
    """
    earlier: Earlier = {}
    for _, step in sorted(engine.ledger.state.steps.items()):
        provider, _, kind = step.tool.partition(".")
        if step.kind == "model" and provider in BY_NAME:
            arguments = yield from engine.outcomes.fetch(engine.outcomes.reader.arguments(step))
            now = identity_of(Operation(provider, kind), arguments.get("body"), volatile)
            key = (step.tool, arguments.get("path", ""), digest_of(now))
            earlier.setdefault(key, []).append(arguments.get("identity", ""))
    return earlier


def digest_of(identity: Any) -> str:
    """Return the digest of an identity, as it is recorded."""
    return hashlib.sha256(canonical(identity)).hexdigest()


def identity_as_recorded(
    engine: StepEngine, operation: Operation, body: Any, volatile: Sequence[str]
) -> Any:
    """Return the identity of a request's body with its secrets removed, as from a recorded one."""
    plain = values.plain(body, "body", engine.settings.scrub)
    return identity_of(operation, plain, volatile)
