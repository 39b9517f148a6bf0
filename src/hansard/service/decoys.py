"""What is read in place of a run that is not there.

Whoever asks for a run of which its role is shown nothing is answered as if there were none. To find
that nothing is shown, the run has to be read whole; that there is none takes no time. So for a run
that is not there another one is read, judged and put aside: one that the role is shown nothing of,
the same each time for the same name, so that it takes what some hidden run takes.
"""

from __future__ import annotations

import bisect
import hashlib
import os
import time

from cachetools import FIFOCache

from hansard.bus.log import EventLog

LISTED_S = 60.0
"""So long a list of the runs is gone by, in seconds."""

TRIES_MAX = 8
"""Most runs that are looked at for one that the role is shown nothing of."""

LOOKED_AT_MAX = 1_000
"""Most runs that are passed over since it is known that the role is shown something of them."""

SEEN_MAX = 10_000
"""Of so many runs is known that a role is shown something of them."""


class Decoys:
    """Which run is read for a name. On the service's loop."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._key = os.urandom(32)
        self._runs: set[str] = set()
        self._ring: list[tuple[bytes, str]] = []
        self._listed: float | None = None
        self._seen: FIFOCache[tuple[str, int, str], None] = FIFOCache(SEEN_MAX)

    async def refresh(self) -> None:
        """Know which runs there are: asked before it is known whether the wanted one is there."""
        now = time.monotonic()
        if self._listed is not None and now - self._listed < LISTED_S:
            return
        self._listed = now
        news = set(await self._log.runs()) - self._runs
        self._runs |= news
        if news:
            self._ring = sorted([*self._ring, *((self._place(run), run) for run in news)])

    def of(self, name: str, role: str, rules: int) -> list[str]:
        """The runs to read for a name, one after the other until the role is shown nothing of one.
        rules: the version of the role's rules.
        """
        begin = bisect.bisect(self._ring, (self._place(name), ""))
        found: list[str] = []
        for offset in range(min(len(self._ring), LOOKED_AT_MAX)):
            _, run = self._ring[(begin + offset) % len(self._ring)]
            if (role, rules, run) not in self._seen:
                found.append(run)
            if len(found) == TRIES_MAX:
                break
        return found or [run for _, run in self._ring[:1]]

    def shows(self, run: str, role: str, rules: int) -> None:
        """A role is shown something of a run: it is read for no other name."""
        self._seen[role, rules, run] = None

    def _place(self, name: str) -> bytes:
        return hashlib.blake2b(name.encode(), key=self._key, digest_size=16).digest()
