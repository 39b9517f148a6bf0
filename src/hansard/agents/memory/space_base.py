"""What the twins of `record.memory(space)` do their own way: how they wait."""

from __future__ import annotations

from hansard.agents.memory.store import MemoryStore
from hansard.bus.portal import Portal
from hansard.domain.brief import Brief


class SpaceOnLoop(Brief):
    """Of the async client."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.space = store.space
        """Its name."""

    def _brief(self) -> dict[str, str]:
        return {"space": self.space}


class SpaceOnPortal(Brief):
    """Of the sync one: it waits for the bus's loop in another thread."""

    def __init__(self, store: MemoryStore, portal: Portal) -> None:
        self._store = store
        self._portal = portal
        self.space = store.space
        """Its name."""

    def _brief(self) -> dict[str, str]:
        return {"space": self.space}
