"""What a search in memory ranks by: the indexes that the tables' package has."""

from __future__ import annotations

from hansard.agents.memory.search.ranked import Embedder, Rankers


class SessionRankers:
    """The indexes of one session or space: what was indexed once is not indexed again."""

    def __init__(self) -> None:
        self._words: Rankers | None = None
        self._by_embedder: dict[str, Rankers] = {}

    def __call__(self, embedder: Embedder | None) -> Rankers:
        """What ranks by words, and with an embedder by meaning."""
        from hansard.projections.search.files import FileVectors, FileWords  # noqa: PLC0415 -- it takes long, and not all search

        if self._words is None:
            self._words = Rankers(FileWords())
        if embedder is None:
            return self._words
        name = f"{embedder.name}@{embedder.digest}"
        if name not in self._by_embedder:
            self._by_embedder[name] = Rankers(self._words.words, FileVectors(embedder))
        return self._by_embedder[name]
