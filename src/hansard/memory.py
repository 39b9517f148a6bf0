"""Memory: spaces, files, versions, search."""

from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search import (
    Embedder,
    Ranked,
    SearchOptions,
    SearchResult,
    StaticVectors,
)
from hansard.agents.memory.store import BlamedLine
from hansard.agents.memory.twins import (
    AsyncMemory,
    AsyncMemorySpace,
    Memory,
    MemoryChange,
    MemorySpace,
)
from hansard.domain.memory.events import MemoryApproval
from hansard.domain.memory.paths import MemoryKind

__all__ = [
    "AsyncMemory",
    "AsyncMemorySpace",
    "BlamedLine",
    "Embedder",
    "Memory",
    "MemoryApproval",
    "MemoryChange",
    "MemoryEntry",
    "MemoryKind",
    "MemoryNews",
    "MemorySpace",
    "MemoryVersion",
    "Ranked",
    "SearchOptions",
    "SearchResult",
    "StaticVectors",
]
