"""Differences of two requests, field by field: the nearest recorded request, and volatile fields.

Requests are compared by their identities (`hansard.ext.models.providers`). Nothing here decides
that two requests are the same: a person reads it, and states a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.flow import Flow
from hansard.agents.steps.engine import StepEngine
from hansard.domain import values
from hansard.domain.errors import BadValue
from hansard.ext.models.providers import Operation, identity_of

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

    def __str__(self) -> str:
        if self.taken:
            return (
                f"step {self.step} recorded the same request, and answered an earlier one: the "
                "program sends it more often than it did"
            )
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


def nearest(now: Any, recorded: Iterable[tuple[int, Any]]) -> Nearest | None:
    """Return the nearest of some recorded requests, or None if there are none.

    It has the fewest different fields, then the longest equal beginnings of their texts; of several
    the earliest counts.

    Args:
        now: The identity of the request that is not on record.
        recorded: Steps and identities of the recorded requests of its operation.
    """
    candidates = (Nearest(step, tuple(differences(each, now))) for step, each in recorded)
    return min(candidates, key=_distance, default=None)


def _distance(each: Nearest) -> tuple[int, int]:
    return len(each.fields), -sum(field.shared for field in each.fields)


def nearest_recorded(
    engine: StepEngine, operation: Operation, body: Any, volatile: Sequence[str] = ()
) -> Flow[Nearest | None]:
    """Find the request on record in a session that is nearest to one that is not.

    Secrets are removed from the request before it is compared, as they are from recorded ones.

    Args:
        engine: The session's engine.
        operation: The request's operation.
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
        recorded.append((number, identity_of(operation, arguments.get("body"), volatile)))
    now = values.plain(body, "body", engine.settings.scrub)
    return nearest(identity_of(operation, now, volatile), recorded)


# ---------------------------------------------------------------- rules


class Proposal(msgspec.Struct, frozen=True):
    """A field that two equal starts of a program filled differently.

    Attributes:
        rule: The rule that would leave it out.
        calls: The calls in which it differed.
        first: A value of it in the first run.
        second: Its value in the second one.
        looks: Its form, where that is known: `a UUID`, `a time` ...; empty for a text of a prompt,
            which a rule would hide from replay.
    """

    rule: str
    calls: int
    first: str
    second: str
    looks: str = ""


_FORMS = (
    ("a UUID", re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)),
    ("a time", re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d)?|\b\d\d:\d\d:\d\d\b")),
    ("a number", re.compile(r"\A-?\d+(?:\.\d+)?\Z")),
    ("a random id", re.compile(r"\b(?=\w*\d)[0-9A-Za-z_-]{12,}\b")),
)


def proposals(pairs: Iterable[tuple[Operation, Any, Any]]) -> list[Proposal]:
    """Return the fields that differ between pairs of requests, as rules, most frequent first.

    Args:
        pairs: The operation, and the identities of the same call in two runs.
    """
    fields: dict[str, list[Difference]] = {}
    for operation, one, other in pairs:
        rules: dict[str, Difference] = {}
        for each in differences(one, other):
            rules.setdefault(operation.name + re.sub(r"/\d+(?=/|\Z)", "/*", each.field), each)
        for rule, each in rules.items():
            fields.setdefault(rule, []).append(each)
    listed = [
        Proposal(rule, len(each), each[0].recorded, each[0].now, _form(each))
        for rule, each in fields.items()
    ]
    return sorted(listed, key=lambda each: (-each.calls, each.rule))


def _form(each: Sequence[Difference]) -> str:
    """Return the form that all values have, or nothing."""
    texts = [text.strip('"') for one in each for text in (one.recorded, one.now)]
    return next((name for name, form in _FORMS if all(map(form.search, texts))), "")


def read_rules(file: Path) -> tuple[str, ...]:
    """Return the rules of a file: one a line, `#` begins a comment. Raises BadValue, OSError."""
    lines = (line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines())
    return tuple(checked_rule(line) for line in lines if line)


def checked_rule(rule: str) -> str:
    """Return a rule: `/metadata/run`, or `openai.responses/metadata/run`. Raises BadValue."""
    operation, slash, field = rule.partition("/")
    if not slash or not field.strip("/") or " " in operation:
        remedy = "write a JSON pointer such as /metadata/run, after an operation or none"
        raise BadValue("rule", f"{rule!r:.80}", remedy)
    return rule
