"""`hansard board`: the shared state of a run at a point, and the history of one of its keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from hansard.agents import payloads
from hansard.agents.workspace import Workspace
from hansard.bus._commits import until
from hansard.bus.codec import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition
from hansard.commands import _diff, _show
from hansard.commands._look import Payloads
from hansard.commands._open import Options, find_run, reading
from hansard.domain.board import (
    RESERVED,
    AmountAdded,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyChecked,
    KeyRemoved,
    ValueMerged,
    ValuePut,
)
from hansard.domain.counted import counted
from hansard.domain.events import Event
from hansard.domain.ids import Board

HISTORY_SHOWN_MAX = 50
"""Writes of a key that people are shown, the newest; `--json` has all."""


async def board(options: Options, run: str, key: str | None, at: str | None, *, json: bool) -> int:
    """Print the keys that are there at a point; of one key, what it holds and all of its writes.

    Raises NotFound (no such run by then; nothing was ever written to the key by then), BadName,
    UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        view = await workspace.states.run(run, await workspace.points.up_to(run, at))
        found = {
            name: {"run": run, "key": name, **_diff.key(state)}
            for name, state in sorted(view.boards.items())
        }
        if key is None:
            _list(run, found, view.position, json=json)
            return 0
        writes = await _writes(workspace, Board(run, key), view.position)
        if not writes:
            where = f"key {key!r} of run {run} at position {view.position}"
            raise NotFound(where, f"see 'hansard board {run}'")
        whole: Any = None
        state = view.boards.get(key)
        if state is not None:
            raw = msgspec.Raw(msgspec.json.encode(state.plain))
            whole = await Payloads(workspace).get(payloads.resolve(state.plain), raw)
        _key(run, key, found.get(key), whole, writes, view.position, json=json)
    return 0


async def _writes(workspace: Workspace, stream: Board, position: int) -> list[dict[str, Any]]:
    """What was written to a key up to a position, the oldest first; of a budget nothing."""
    if stream.key.startswith(RESERVED):
        return []
    commits = await workspace.states.commits(stream, up_to=AtPosition(position))
    found: list[dict[str, Any]] = []
    for stored in until(commits, position):
        for index, recorded in enumerate(stored.commit.events):
            event = revive(recorded)
            told = {
                "run": stream.run,
                "key": stream.key,
                "version": stored.commit.version + index,
                **_operation(event),
                "author": stored.commit.actor.agent,
                "role": getattr(event, "role", ""),
                "event": recorded.id,
                "position": stored.position,
                "time": stored.time.isoformat(),
            }
            found.append(told)
    return found


def _operation(event: Event) -> dict[str, Any]:
    """What a write did, and with what: its value as recorded."""
    match event:
        case ValuePut():
            return {"operation": "put", "value": event.value, "expected": event.expected}
        case ItemAppended():
            return {"operation": "append", "value": event.item}
        case AmountAdded():
            return {"operation": "add", "value": event.amount}
        case ItemIncluded():
            return {"operation": "include", "value": event.item}
        case ItemDiscarded():
            return {"operation": "discard", "value": event.item}
        case ValueMerged():
            return {"operation": event.merge, "value": event.value}
        case KeyRemoved():
            return {"operation": "remove", "expected": event.expected}
        case KeyChecked():
            return {"operation": "check", "expected": event.expected}
        case _:
            return {"operation": event.tag}


# ---------------------------------------------------------------- printing


def _list(run: str, found: dict[str, dict[str, Any]], position: int, *, json: bool) -> None:
    if json:
        for told in found.values():
            _show.emit({**told, "position": position})
        return
    if found:
        columns = [_show.Column("key", whole=True), _show.Column("kind")]
        columns += [_show.Column("version", right=True), _show.Column("author")]
        columns += [_show.Column(name) for name in ("role", "value", "expires")]
        rows = [
            [
                told["key"],
                told["kind"],
                f"{told['version']:,}",
                _show.cut(told["author"]),
                _show.cut(told["role"]),
                _show.preview(told["value"]),
                _expiry(told),
            ]
            for told in found.values()
        ]
        _show.write(_show.table(columns, rows))
    _show.hint(f"{counted(len(found), 'key')} of run {run} as of position {position}")


def _expiry(told: dict[str, Any]) -> str:
    return _show.moment(datetime.fromisoformat(told["expires"])) if told["expires"] else ""


def _key(
    run: str,
    key: str,
    told: dict[str, Any] | None,
    whole: Any,
    writes: list[dict[str, Any]],
    position: int,
    *,
    json: bool,
) -> None:
    if json:
        absent = {"run": run, "key": key, "kind": None, "version": 0, "value": None}
        _show.emit({**(told or absent), "value": whole, "position": position})
        for write in writes:
            _show.emit(write)
        return
    rows: list[tuple[str, object]] = [("key", key), ("run", run)]
    if told is None:
        rows.append(("holds", "nothing: removed or expired"))
    else:
        labels = ", ".join(f"{name}={text}" for name, text in told["labels"].items())
        rows += [("holds", told["kind"]), ("version", told["version"])]
        rows += [("written by", f"{told['author']} ({told['role']})"), ("labels", labels)]
        rows += [("expires", _expiry(told))]
    _show.write(_show.pairs([*rows, ("as of", f"position {position}")]))
    if told is not None:
        _show.write("", msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
    _show.write("", _history(writes))
    if len(writes) > HISTORY_SHOWN_MAX:
        _show.hint(
            f"the newest {HISTORY_SHOWN_MAX} of {counted(len(writes), 'write')}: --json has all"
        )


def _history(writes: list[dict[str, Any]]) -> _show.Lines:
    columns = [_show.Column("version", right=True), _show.Column("operation", whole=True)]
    columns += [_show.Column(name) for name in ("author", "role", "value")]
    columns += [_show.Column("position", right=True), _show.Column("time", whole=True)]
    rows = [
        [
            f"{write['version']:,}",
            write["operation"],
            _show.cut(write["author"]),
            _show.cut(write["role"]),
            _value(write),
            f"{write['position']:,}",
            _show.moment(datetime.fromisoformat(write["time"])),
        ]
        for write in writes[-HISTORY_SHOWN_MAX:]
    ]
    return _show.table(columns, rows)


def _value(write: dict[str, Any]) -> str:
    """What was written, in short."""
    value = write.get("value")
    if isinstance(value, msgspec.Raw):
        return _show.preview(_show.recorded(value))
    return "" if value is None else str(value)
