"""Render a run's state and its differences for people: a line for each thing, grouped by kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.text import Text

from hansard.cli import output
from hansard.inspect.answer import plain_text
from hansard.inspect.state import Change, Data, Edit

ENTRIES_MAX = 200
"""Most entries shown of one kind and agent; the rest are counted. `--json` has all."""

FIELDS_SHOWN_MAX = 4
"""Most changed parts of one thing in its line."""

_DERIVED = {"digest", "outcome_version", "key", "fingerprint"}
"""Fields of a step that are not shown to people."""

_SIGNS = {Edit.ADDED: ("+", "green"), Edit.REMOVED: ("-", "red"), Edit.CHANGED: ("~", "yellow")}


def _step(step: dict[str, Any]) -> str:
    given = output.arguments_preview(step.get("arguments"))
    error = step.get("error") or {}
    outcome = f"{error.get('type')}: {error.get('message')}" if error else ""
    if not outcome and step.get("status") == "completed":
        items = step.get("items") if step.get("streamed") else step.get("result")
        outcome = f"→ {output.preview(items)}"
    return (
        f"{output.cut(str(step.get('tool')))}({given})  {step.get('status')}  {output.cut(outcome)}"
    )


def _message(message: dict[str, Any]) -> str:
    fields = message.get("fields")
    more = f"  {output.preview(fields)}" if fields else ""
    text = output.preview(message.get("content"))
    return f"{output.cut(str(message.get('role')))}: {text}{more}"


def _parts(*names: str) -> Callable[[dict[str, Any]], str]:
    """Return a renderer of some fields of a thing that skips empty ones."""

    def render(thing: dict[str, Any]) -> str:
        found = [thing.get(name) for name in names]
        return "  ".join(
            output.cut(value) if isinstance(value, str) else output.preview(value)
            for value in found
            if value not in (None, "", [], {})
        )

    return render


KINDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "tools": _parts("effects", "version"),
    "steps": _step,
    "checkpoints": _parts("data"),
    "messages": _message,
    "decisions": _parts("question", "selected", "because"),
    "resources": _parts("operation", "uri"),
    "hand_offs": _parts("to", "because", "payload"),
    "judged": _parts("by", "metrics", "because"),
    "board": _parts("kind", "value", "author"),
}
"""Renderers of a thing in one line, by kind."""


def state(data: Data) -> Iterator[Text]:
    """Yield the whole state."""
    yield Text("run", style="bold")
    yield from _whole(data.life)
    for name, item in data.agents.items():
        yield Text()
        yield from agent(name, item)


def agent(name: str, fields: dict[str, Any]) -> Iterator[Text]:
    """Yield an agent's state."""
    yield output.cell(f"agent {name}", "bold")
    yield from _whole(fields)


def _whole(fields: dict[str, Any]) -> Iterator[Text]:
    for name, value in fields.items():
        if name not in KINDS:
            if value not in (None, "", [], {}):
                yield _line(1, f"{name}: {value if isinstance(value, str) else _all(value)}")
        elif value:
            yield _line(1, f"{name}: {len(value):,}")
            shown = ((f"{key}  {KINDS[name](thing)}", "") for key, thing in value.items())
            yield from _entries(shown, len(value))


def _all(value: Any) -> str:
    """Render a value without parts of its own: labels, a roster, versions."""
    if isinstance(value, dict):
        return output.arguments_preview(value, output.LINE_COLUMNS)
    return output.preview(value, output.LINE_COLUMNS)


def _entries(entries: Iterable[tuple[str, str]], count: int) -> Iterator[Text]:
    for text, style in itertools.islice(entries, ENTRIES_MAX):
        yield _line(2, text, style)
    if count > ENTRIES_MAX:
        yield _line(2, f"… and {count - ENTRIES_MAX:,} more: --json has them")


def _line(depth: int, text: str, style: str = "") -> Text:
    return Text("  " * depth + plain_text(text), style=style)


# ---------------------------------------------------------------- differences


def differences(found: list[Change]) -> Iterator[Text]:
    """Yield differences by agent, kind and thing."""
    for agent, changes in itertools.groupby(found, key=lambda change: change.agent):
        yield Text()
        yield output.cell("run" if agent is None else f"agent {agent}", "bold")
        for kind, group in itertools.groupby(changes, key=lambda change: change.path[0]):
            yield from _kind(str(kind), list(group))


def _kind(kind: str, found: list[Change]) -> Iterator[Text]:
    """Yield the differences of one kind of thing, or of one field."""
    if kind not in KINDS or len(found[0].path) == 1:
        for change in found:
            yield _line(
                1, f"{_sign(change)} {_path(change.path)}: {_sides(change)}", _style(change)
            )
        return
    things = [list(group) for _, group in itertools.groupby(found, key=lambda c: c.path[1])]
    counts = ", ".join(
        f"{count:,} {what.value}"
        for what in Edit
        if (count := sum(_what(thing) is what for thing in things))
    )
    yield _line(1, f"{kind}: {counts}")
    entries = ((_thing(kind, thing), _SIGNS[_what(thing)][1]) for thing in things)
    yield from _entries(entries, len(things))


def _what(thing: list[Change]) -> Edit:
    """Return whether a thing was added, removed or changed; changed if only parts of it differ."""
    return thing[0].change if len(thing[0].path) == 2 else Edit.CHANGED  # noqa: PLR2004 -- kind and key


def _thing(kind: str, thing: list[Change]) -> str:
    """Render a thing that was added or removed, else its changes, in one line."""
    change, what = thing[0], _what(thing)
    head = f"{_SIGNS[what][0]} {change.path[1]}  "
    if what is not Edit.CHANGED:
        return head + KINDS[kind](change.after if what is Edit.ADDED else change.before)
    items = [each for each in thing if each.path[2] not in _DERIVED] or thing
    parts = [f"{_path(each.path[2:])}: {_sides(each)}" for each in items[:FIELDS_SHOWN_MAX]]
    more = len(thing) - len(parts)
    return head + "; ".join(parts) + (f"; and {more:,} more" if more else "")


def _sign(change: Change) -> str:
    return _SIGNS[change.change][0]


def _style(change: Change) -> str:
    return _SIGNS[change.change][1]


def _path(path: Iterable[str | int]) -> str:
    """Render a path with dots; a name that has a dot is quoted."""
    return ".".join(
        output.cut(repr(part) if isinstance(part, str) and "." in part else str(part))
        for part in path
    )


def _sides(change: Change) -> str:
    match change.change:
        case Edit.ADDED:
            return output.preview(change.after)
        case Edit.REMOVED:
            return output.preview(change.before)
        case Edit.CHANGED:
            return f"{output.preview(change.before)} → {output.preview(change.after)}"
