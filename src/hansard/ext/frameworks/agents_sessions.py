"""Sessions of the OpenAI Agents SDK on the record: a stream for each session.

A change names the call that made it, so that a call that is repeated after a kill changes nothing.
Items that were removed are no longer part of the session, but stay on record until they are erased.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from hansard.agents.steps import scope
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive_all
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, Label, join, parse
from hansard.domain.steps import Effects
from hansard.ext.frameworks._sessions import execute, io, store_items
from hansard.ext.frameworks.sdk_sessions import AGENTS_KIND, ALL, ItemsAdded, ItemsRemoved
from hansard.ext.steps import AnySession, step
from hansard.extending import C_co, Event, Name, NotFound, Noun, operation, queries
from hansard.inspect.trace import Payloads


class Items(msgspec.Struct, frozen=True):
    """Items of a session, oldest first, and their label."""

    items: list[Any]
    label: str


def _left(events: Sequence[Event]) -> list[tuple[msgspec.Raw, int]]:
    """Return the additions that are left, each with the number of its items that are."""
    left: list[tuple[msgspec.Raw, int]] = []
    for each in events:
        if isinstance(each, ItemsAdded):
            left.append((each.items, each.count))
        elif isinstance(each, ItemsRemoved) and each.count == ALL:
            left.clear()
        elif isinstance(each, ItemsRemoved) and left:
            items, count = left.pop()
            left += [(items, count - 1)] if count > 1 else []
    return left


async def read(workspace: Workspace, name: str, before: str = "") -> Items:
    """Return a session's items, and their label; `before`: those before the change of a call."""
    stored = await workspace.log.read(WorkspaceStream(AGENTS_KIND, name))
    events = revive_all(each.commit for each in stored)
    keys = [getattr(each, "key", "") for each in events]
    if before in keys:
        events = events[: keys.index(before)]
    reader, items = Payloads(workspace), list[Any]()
    for raw, count in _left(events):
        items += (await reader.value(raw))[:count]
    label = join(LOWEST, *(each.commit.label or LOWEST for each in stored))
    return Items(items=items, label=str(label))


async def add(
    workspace: Workspace, name: str, items: list[Any], key: str, by: Actor, label: Label | None
) -> None:
    """Add items, unless the call has done so."""
    raw = await store_items(workspace, items, "items")
    await _once(workspace, name, ItemsAdded(key=key, items=raw, count=len(items)), by, label)


async def remove(
    workspace: Workspace, name: str, count: int, key: str, by: Actor, label: Label | None
) -> None:
    """Remove the newest item, or all of them, unless the call has done so."""
    await _once(workspace, name, ItemsRemoved(key=key, count=count), by, label)


async def _once(
    workspace: Workspace,
    name: str,
    change: ItemsAdded | ItemsRemoved,
    by: Actor,
    label: Label | None,
) -> None:
    def decide(stored: list[Any]) -> list[Event]:
        events = revive_all(each.commit for each in stored)
        is_known = any(getattr(each, "key", "") == change.key for each in events)
        idle = isinstance(change, ItemsRemoved) and not _left(events)
        return [] if is_known or idle else [change]

    await workspace.repository.record(WorkspaceStream(AGENTS_KIND, name), by, decide, label)


class AgentsSessions(Noun[C_co], noun="agents_sessions"):
    """Sessions of the OpenAI Agents SDK."""

    @operation(needs=queries("agents_sessions.items"))
    async def items(self, session: Name) -> list[Any]:
        """Return the items of a session, oldest first; none if there is no such session.

        Args:
            session: The session's id.
        """
        present = await read(self._workspace, session)
        if not await self._context.shows(parse(present.label)):
            raise NotFound(f"{AGENTS_KIND} {session!r:.80}", "have the role cleared for it")
        return present.items


class RecordedSession:
    """Session of the SDK whose items are on the record, also for later runs.

    Each of its methods is a step of the current session of Hansard. Not for restricted agents.
    """

    def __init__(self, session_id: str, session_settings: Any = None) -> None:
        """Open a session by its id; nothing is read yet."""
        self.session_id = session_id
        self.session_settings = session_settings

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first; with a limit the newest."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        get = partial(self._read, limit=limit)
        items: list[Any] = await self._step("get_items", get, Effects.PURE, limit=limit)
        return items

    async def add_items(self, items: list[Any]) -> None:
        """Add items."""
        added = msgspec.to_builtins(items)
        if added:
            await self._step("add_items", partial(self._write, add, added), items=added)

    async def pop_item(self) -> Any:
        """Remove and return the newest item; None if there is none."""

        async def pop(session: AnySession, key: str) -> Any:
            newest = await self._read(session, 1, key)
            await self._write(remove, 1, session, key)
            return newest

        items = await self._step("pop_item", pop)
        return items[0] if items else None

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._step("clear_session", partial(self._write, remove, ALL))

    async def _step(
        self, method: str, body: Any, effects: Effects = Effects.IDEMPOTENT, **arguments: Any
    ) -> Any:
        """Execute a method as a step; the agent has then seen the items that it returns."""
        name, key = f"agents_session.{method}", None if effects is Effects.PURE else "key"
        session = scope.ambient(name)
        work = partial(body, session)
        tool = step(name, work, effects=effects, kind="memory", key_argument=key)
        result = await execute(session, tool, {"session": self.session_id, **arguments})
        if result is None:
            return None
        if result["label"]:
            session.engine.ledger.shown(parse(result["label"]))
        return result["items"]

    async def _read(self, session: AnySession, limit: int | None, before: str = "") -> Any:
        present = await io(session, read, session.engine.workspace, self.session_id, before)
        items = present.items
        if limit is not None:
            items = items[-limit:] if limit > 0 else []
        return {"items": items, "label": present.label}

    async def _write(self, change: Any, value: Any, session: AnySession, key: str) -> None:
        ledger = session.engine.ledger
        about = (session.engine.workspace, self.session_id, value, key, ledger.actor)
        await io(session, change, *about, ledger.label.stored)
