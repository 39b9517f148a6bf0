"""What a search for words found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.inspect.answer import Answer
from hansard.projections.search import search as index


class Hit(msgspec.Struct, kw_only=True):
    """An event that was found; `marks` are where the words stand in the snippet."""

    position: int
    event_index: int
    event: str
    type: str
    run: str | None
    agent: str | None
    role: str | None
    snippet: str
    marks: Any
    rank: float
    as_of: int


class Hits(Answer):
    """What was found, the best first."""

    found: index.Answer

    def lines(self) -> Iterator[Hit]:
        """Each event."""
        for hit in self.found.hits:
            fields = msgspec.structs.asdict(hit)
            snippet = fields.pop("snippet")
            as_of = self.found.position
            yield Hit(**fields, snippet=snippet.text, marks=snippet.marks, as_of=as_of)
