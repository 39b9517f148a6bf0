"""A client's `resumable` loop: how far it has come, the session knows."""

from __future__ import annotations

from typing import Any

from hansard.agents.facts import Progress
from hansard.agents.flow import drive_async
from hansard.agents.scope import Scope, current
from hansard.agents.session import AsyncSession
from hansard.domain.errors import BadValue
from hansard.service import wire


class Loop:
    """One loop, and the scope of the item that it is at."""

    def __init__(self, session: AsyncSession, progress: Progress) -> None:
        self._ledger = session.core.ledger
        self._progress = progress
        self._child: Scope | None = None

    @classmethod
    async def begin(cls, session: AsyncSession, args: list[Any]) -> Loop:
        """Find what was done before. Raises BadValue."""
        match args:
            case [str(name), int(every)]:
                loop = cls(session, Progress(session.facts, name, every))
            case _:
                raise BadValue("resumable", f"{args!r:.80}", "give a name and a whole number")
        await drive_async(loop._progress.begin())
        return loop

    async def step(self, name: str, args: list[Any], scopes: dict[str, Scope]) -> wire.Value:
        """The next word of the client's loop; the path of an item's scope where it is to be done.
        `scopes` are those that the client knows. Raises BadValue.
        """
        match name, args:
            case "loop.skips", [item]:
                child = None if self._progress.skips(item) else current(self._ledger)
                if child is None:
                    return wire.Value()
                scopes[child.path] = self._child = child
                return wire.Value(wire.dump(child.path))
            case "loop.done", []:
                await drive_async(self._progress.done())
                self._ended(scopes)
            case "loop.leave", []:
                self._progress.leave()
                self._ended(scopes)
            case "loop.end", []:
                await drive_async(self._progress.end())
            case _:
                raise BadValue("request", f"{name!r:.40} is no word of a loop", "use the client")
        return wire.Value()

    def _ended(self, scopes: dict[str, Scope]) -> None:
        """An item's scope is no one's any more."""
        if self._child is not None:
            scopes.pop(self._child.path, None)
            self._child = None
