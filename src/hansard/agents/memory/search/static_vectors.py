"""Vectors of words, averaged: the embedder that needs no model server, by the package wordllama.

Its weights (16 MB) come in its wheel; nothing is downloaded. It knows words, not sentences: it
helps where a question has none of a file's words, and is beaten by the index of words where it has.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hansard.agents.memory.search.extras import imported

DIMS = 256
"""The length of its vectors."""

_CONFIG = "l2_supercat"
_loading = threading.Lock()


class StaticVectors:
    """An embedder of vectors of words (`hansard[semantic]`). Loads its weights when first asked.

    Raises:
        ExtraMissing: The extra `semantic` is not installed; when first asked.
    """

    name = "wordllama"
    """What it is called."""

    dims = DIMS
    """The length of each vector."""

    @property
    def digest(self) -> str:
        """Of the weights and of the package's version."""
        return _loaded()[1]

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """A vector of length 1 a text; of a text without a known word, zeros."""
        wanted = {number: text for number, text in enumerate(texts) if text.strip()}
        made = [[0.0] * DIMS for _ in texts]
        if wanted:
            model, _ = _loaded()
            means = model.embed(list(wanted.values()), norm=False).tolist()
            for number, mean in zip(wanted, means, strict=True):
                made[number] = _unit(mean)
        return made


def _unit(vector: list[float]) -> list[float]:
    length = sum(each * each for each in vector) ** 0.5
    if not 0 < length < float("inf"):
        return [0.0] * len(vector)
    return [each / length for each in vector]


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, str]:
    """The model, and the digest of what it was made of."""
    with _loading, _LoggingKept():
        package = imported("wordllama", "search by meaning", "wordllama", "semantic")
        folder = Path(package.__file__).parent
        # Only where its cache is its own folder does it find its tokenizer without a download.
        model = package.WordLlama.load(_CONFIG, cache_dir=folder, dim=DIMS, disable_download=True)
        weights = (folder / "weights" / f"{_CONFIG}_{DIMS}.safetensors").read_bytes()
        made = hashlib.sha256(weights + str(package.__version__).encode()).hexdigest()
        return model, made[:32]


class _LoggingKept:
    """Keeps the root logger as it is: the package sets it up when it is imported."""

    def __enter__(self) -> None:
        root = logging.getLogger()
        self._before = (list(root.handlers), root.level)

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.handlers[:], level = self._before
        root.setLevel(level)
