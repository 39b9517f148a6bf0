"""What the twins of `record.memory(space)` do their own way: how they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from hansard.agents.memory.drafts import Op
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.search.ranked import Embedder, Rankers
from hansard.agents.memory.store import BlamedLine
from hansard.bus.portal import Portal
from hansard.domain.brief import Brief
from hansard.domain.memory.events import MemoryPolicySet

SpaceRankers = Callable[[Embedder | None], Rankers]
"""Gives what ranks files by words, and with an embedder by meaning, too."""


class SpaceStore(Protocol):
    """What a space is asked: the log, or the service. As `hansard.agents.memory.store` says."""

    space: str

    @property
    def pending(self) -> int: ...  # noqa: D102 -- said there
    async def flush(self, timeout_s: float = ...) -> None: ...  # noqa: D102 -- said there
    def cached(self, path: str) -> MemoryEntry | None: ...  # noqa: D102 -- said there
    async def follow(self) -> None: ...  # noqa: D102 -- said there
    async def entry(self, path: str, at: object = None) -> MemoryEntry: ...  # noqa: D102 -- said there
    async def entries(self, at: object = None) -> list[MemoryEntry]: ...  # noqa: D102 -- said there
    async def versions(self, path: str | None = None) -> list[MemoryVersion]: ...  # noqa: D102 -- said there
    async def diff(self, path: str | None, before: object, after: object = None) -> str: ...  # noqa: D102 -- said there
    async def blame(self, path: str) -> list[BlamedLine]: ...  # noqa: D102 -- said there
    async def change(  # noqa: D102 -- said there
        self, ops: Sequence[Op], by: Any, because: str = "", sources: Sequence[str] = ()
    ) -> int: ...
    async def remember(  # noqa: D102 -- said there
        self, text: str, by: str, path: str, sources: Sequence[str] = ()
    ) -> int: ...
    async def revert(self, change: str, by: Any, because: str = "") -> int: ...  # noqa: D102 -- said there
    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool: ...  # noqa: D102 -- said there


def texts_of(entries: Iterable[MemoryEntry]) -> dict[str, str]:
    """The texts of files by path, links left out."""
    return {each.path: each.text for each in entries if not each.link}


class SpaceOnLoop(Brief):
    """Of the async client."""

    def __init__(self, store: SpaceStore, rankers: SpaceRankers) -> None:
        self._store = store
        self._rankers = rankers
        self.space = store.space
        """Its name."""

    def _brief(self) -> dict[str, str]:
        return {"space": self.space}


class SpaceOnPortal(Brief):
    """Of the sync one: it waits for the bus's loop in another thread."""

    def __init__(self, store: SpaceStore, rankers: SpaceRankers, portal: Portal) -> None:
        self._store = store
        self._rankers = rankers
        self._portal = portal
        self.space = store.space
        """Its name."""

    def _brief(self) -> dict[str, str]:
        return {"space": self.space}
