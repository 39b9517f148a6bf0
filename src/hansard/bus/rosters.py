"""Who is in which run, for whoever reads a log in its order: what its commits are compared with.

A run's members are learnt from its life as it passes by; those of a run that began before the
reading did are loaded from what it goes on from.
"""

from __future__ import annotations

from collections.abc import Callable

from hansard.bus import quarantine
from hansard.bus.quarantine import Members
from hansard.domain.events import Commit
from hansard.domain.ids import Lasting, Life, StreamId, run_of

RUNS_MAX = 65_536
"""Most runs whose members are kept in memory, some 40 MB. The others are loaded again, and as what
was read last may not be loaded yet, less of them is judged then: neither epochs nor who is missing.
"""

Load = Callable[[str], Members | None]
"""Who is in a run, from what was read before; None where that does not say."""


class Rosters:
    """Says which commits do not fit; they are given in the order of the log, every one."""

    def __init__(self, load: Load | None = None, known: dict[str, Members] | None = None) -> None:
        """`known` are the members to go on from; it is kept up to date, whole."""
        self._load = load
        self._known = {} if known is None else known
        self._bounded = known is None
        self._full = False

    def misfit(self, stream: StreamId, commit: Commit) -> str:
        """Why a commit does not fit; nothing where it does, and then it is learnt from."""
        if type(stream) is Lasting:
            return ""
        run = run_of(stream) or ""
        members = self._known.get(run)
        if members is None:
            members = self._begun(run, new=type(stream) is Life and commit.version == 1)
        if quarantine.goes_on(stream, commit, members):
            return ""
        why = quarantine.misfit(stream, commit, members)
        if not why:
            parent = quarantine.learn(members, stream, commit)
            if parent:
                quarantine.inherit(members, self._known.get(parent) or self._begun(parent))
        return why

    def _begun(self, run: str, *, new: bool = False) -> Members:
        found = self._load(run) if self._load is not None and not new else None
        if found is not None and self._full:
            found = Members(found.roles)
        members = self._known[run] = found or Members()
        if self._bounded and len(self._known) > RUNS_MAX:
            self._full = True
            del self._known[next(iter(self._known))]
        return members
