"""Memory: spaces, files, versions, search."""

from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search.ranked import (
    Embedder,
    Found,
    Ranked,
    SearchOptions,
    StaticVectors,
)
from hansard.agents.memory.space_twins import AsyncMemorySpace, MemorySpace
from hansard.agents.memory.store import BlamedLine
from hansard.agents.memory.twins import AsyncMemory, Memory, MemoryChange
from hansard.domain.memory.events import MemoryApproval
from hansard.domain.memory.paths import MemoryKind

__all__ = [
    "AsyncMemory",
    "AsyncMemorySpace",
    "BlamedLine",
    "Embedder",
    "Found",
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
    "StaticVectors",
]
