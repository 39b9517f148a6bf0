"""Memory: spaces, files, versions, search."""

from hansard.agents.memory.reading import MemoryEntry as MemoryEntry
from hansard.agents.memory.reading import MemoryNews as MemoryNews
from hansard.agents.memory.reading import MemoryVersion as MemoryVersion
from hansard.agents.memory.search import Embedder as Embedder
from hansard.agents.memory.search import Ranked as Ranked
from hansard.agents.memory.search import SearchOptions as SearchOptions
from hansard.agents.memory.search import SearchResult as SearchResult
from hansard.agents.memory.search import StaticVectors as StaticVectors
from hansard.agents.memory.store import BlamedLine as BlamedLine
from hansard.agents.memory.twins import AsyncMemory as AsyncMemory
from hansard.agents.memory.twins import AsyncMemorySpace as AsyncMemorySpace
from hansard.agents.memory.twins import Memory as Memory
from hansard.agents.memory.twins import MemoryChange as MemoryChange
from hansard.agents.memory.twins import MemorySpace as MemorySpace
from hansard.domain.memory.files import MemoryApproval as MemoryApproval
from hansard.domain.memory.files import MemoryKind as MemoryKind
