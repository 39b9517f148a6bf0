"""A client's `resumable` loop: how far it has come, the session knows."""

from __future__ import annotations

from typing import Any

from hansard.agents.annotations.statements import Progress
from hansard.agents.flow import Flow, drive_async
from hansard.agents.steps.scope import Scope, current
from hansard.client.session import AsyncSession


class Loop:
    """One loop, and the scope of the item that it is at. `scopes` are those that the client knows.

    Its methods answer the operations of their names.
    """

    def __init__(self, session: AsyncSession, scopes: dict[str, Scope]) -> None:
        self._session = session
        self._scopes = scopes
        self._progress: Any = None
        self._child: Scope | None = None

    async def begin(self, name: str, every: int) -> list[Any]:
        """Find what was done before; its results. Raises BadValue."""
        self._progress = Progress(self._session.facts, name, every)
        found: list[Any] = await drive_async(self._progress.begin())
        return found

    def skips(self, item: object) -> Flow[str | None]:
        """The next item: the path of its scope; None where it was done before."""
        skipped = yield from self._progress.skips(item)
        child = None if skipped else current(self._session.engine.ledger)
        if child is None:
            return None
        self._scopes[child.path] = self._child = child
        return child.path

    async def done(self, results: list[Any]) -> None:
        """The item is done."""
        await drive_async(self._progress.done(results))
        self._ended()

    def leave(self) -> Flow[None]:
        """The loop is over, in whatever way."""
        yield from self._progress.leave()
        self._ended()

    def end(self, results: list[Any]) -> Flow[None]:
        """All items are done."""
        flow: Flow[None] = self._progress.end(results)
        return flow

    def _ended(self) -> None:
        """An item's scope is no one's any more."""
        if self._child is not None:
            self._scopes.pop(self._child.path, None)
            self._child = None
