"""Which requests outside of a session were made before, and what the last openings came to."""

from __future__ import annotations

from cachetools import FIFOCache

NONCES_MAX = 4_096
"""So many of a principal's last requests outside of sessions are known again."""

NONCE_LETTERS_MAX = 64

OPENED_MAX = 256
"""So many answers to openings are kept, for whoever asks again with the same nonce."""


class Nonces:
    """What was asked, by the principal's name and the number that it used once."""

    def __init__(self) -> None:
        self._known: dict[str, FIFOCache[str, None]] = {}
        self._opened: FIFOCache[tuple[str, str], bytes] = FIFOCache(OPENED_MAX)

    def news(self, name: str, nonce: str) -> bool:
        """Whether a request was not made before."""
        known = self._known.setdefault(name, FIFOCache(NONCES_MAX))
        if not nonce or len(nonce) > NONCE_LETTERS_MAX or nonce in known:
            return False
        known[nonce] = None
        return True

    def opened(self, name: str, nonce: str, answer: bytes) -> None:
        """Keep what an opening was answered."""
        self._opened[name, nonce] = answer

    def answer(self, name: str, nonce: str) -> bytes | None:
        """What an opening was answered; None while it is under way, and for all else."""
        return self._opened.get((name, nonce))
