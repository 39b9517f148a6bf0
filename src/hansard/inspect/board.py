"""The shared state of a run at a point, and what was written to one of its keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive, until
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, UpTo
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
from hansard.domain.events import Event
from hansard.domain.ids import KeyStream
from hansard.domain.payload import references
from hansard.inspect import state
from hansard.inspect.answer import Answer
from hansard.inspect.payloads import Payloads


class Key(msgspec.Struct, kw_only=True):
    """A key and what it holds; `value` as recorded, and whole where one key is asked for."""

    run: str
    key: str
    kind: str | None
    version: int
    author: str
    role: str
    labels: dict[str, str]
    expires: str | None
    event: str
    value: Any
    position: int


class NoKey(msgspec.Struct, kw_only=True):
    """A key that holds nothing: removed or expired."""

    run: str
    key: str
    kind: None = None
    version: int = 0
    value: None = None
    position: int


class Write(msgspec.Struct, kw_only=True):
    """A write to a key: what it did, and with what. `value` is as recorded, `expected` the version
    that it was for.
    """

    run: str
    key: str
    version: int
    operation: str
    value: Any = UNSET
    expected: int | UnsetType | None = UNSET
    author: str
    role: str
    event: str
    position: int
    time: str


class Keys(Answer, kw_only=True):
    """The keys of a run that are there at a position."""

    run: str
    position: int
    keys: list[Key]

    def lines(self) -> Iterable[Key]:
        """Each key."""
        return self.keys


class KeyHistory(Answer, kw_only=True):
    """What a key holds, and all of its writes, the oldest first."""

    now: Key | NoKey
    writes: list[Write]

    def lines(self) -> Iterable[Key | NoKey | Write]:
        """What it holds, then each write."""
        return (self.now, *self.writes)


async def keys(workspace: Workspace, run: str, up_to: UpTo) -> Keys:
    """The keys that are there at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view = await workspace.states.run(run, up_to)
    found = [
        Key(run=run, key=name, **state.key(each), position=view.position)
        for name, each in sorted(view.boards.items())
    ]
    return Keys(run=run, position=view.position, keys=found)


async def key_history(
    workspace: Workspace, run: str, key: str, up_to: UpTo, fetch: Payloads
) -> KeyHistory:
    """A key at a point. Raises NotFound (nothing was ever written to it by then), UnknownEvent,
    Corrupt.
    """
    view = await workspace.states.run(run, up_to)
    writes = await _writes(workspace, KeyStream(run, key), view.position)
    if not writes:
        where = f"key {key!r} of run {run} at position {view.position}"
        raise NotFound(where, f"see 'hansard board {run}'")
    found = view.boards.get(key)
    now: Key | NoKey = NoKey(run=run, key=key, position=view.position)
    if found is not None:
        now = Key(run=run, key=key, **state.key(found), position=view.position)
        raw = msgspec.Raw(msgspec.json.encode(found.plain))
        now.value = await fetch.get(references.resolve(found.plain), raw)
    return KeyHistory(now=now, writes=writes)


async def _writes(workspace: Workspace, stream: KeyStream, position: int) -> list[Write]:
    """What was written to a key up to a position, the oldest first; of a budget nothing."""
    if stream.key.startswith(RESERVED):
        return []
    commits = await workspace.states.commits(stream, up_to=AtPosition(position))
    found: list[Write] = []
    for stored in until(commits, position):
        for index, recorded in enumerate(stored.commit.events):
            event = revive(recorded)
            made = Write(
                run=stream.run,
                key=stream.key,
                version=stored.commit.version + index,
                **_operation(event),
                author=stored.commit.actor.agent,
                role=getattr(event, "role", ""),
                event=recorded.id,
                position=stored.position,
                time=stored.time.isoformat(),
            )
            found.append(made)
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
