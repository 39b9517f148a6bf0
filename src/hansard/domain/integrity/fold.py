"""The one fold over a log's commits, in order: who is in which run, and which commits do not fit.

Who reads a log from its begin learns all of it as it passes by. Who goes on from somewhere, or
reads some streams alone, says what told of a run before (`Past`), and asks about the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hansard.domain.events import Commit
from hansard.domain.ids import RunStream, StreamId
from hansard.domain.integrity import authorship, membership
from hansard.domain.integrity.content import broken
from hansard.domain.integrity.membership import Members, Told, telling
from hansard.domain.run import FORK_DEPTH_MAX

RUNS_MAX = 65_536
"""Most runs whose members are kept in memory, some 50 MB. The others are loaded again, and as what
was read last may not be loaded yet, less of them is judged then: neither epochs nor who is missing.
"""

Past = Callable[[str], Iterable[Told]]
"""What told of who is in a run, its own events alone, from what was read before; in order."""


def _nothing(_run: str) -> Iterable[Told]:
    return ()


class Fold:
    """Says which commits do not fit; they are given in the order of the log, every one."""

    def __init__(self, past: Past = _nothing, known: dict[str, Members] | None = None) -> None:
        """`known` are the members to go on from; it is kept up to date, whole."""
        self._past = past
        self._known = {} if known is None else known
        self._bounded = known is None
        self._full = False

    def misfit(self, stream: StreamId, commit: Commit) -> str:
        """Why a commit does not fit; nothing where it does, and then it is learnt from."""
        run = authorship.run_by_which(stream, commit)
        if run is None:
            return authorship.misfit(stream, commit)
        members = self._known.get(run)
        if members is None:
            members = self._begun(run, new=type(stream) is RunStream and commit.version == 1)
        if authorship.goes_on(stream, commit, members):
            return ""
        why = authorship.misfit(stream, commit, members)
        if not why:
            self.learn(run, stream, commit)
        return why

    def learn(self, run: str, stream: StreamId, commit: Commit) -> None:
        """Take in what a commit that fits says of who is in its run: nothing where an event of it
        is not what its type says, since then none of it counts.
        """
        told = list(telling(stream, commit))
        if told and not broken(stream, commit):
            self._learn(self.members(run), told, 0)

    def members(self, run: str) -> Members:
        """Who is in a run, by what has been read."""
        found = self._known.get(run)
        return self._begun(run) if found is None else found

    def _begun(self, run: str, *, new: bool = False, depth: int = 0) -> Members:
        members = self._known[run] = Members()
        if not new and depth <= FORK_DEPTH_MAX:
            self._learn(members, self._past(run), depth)
            if self._full:
                members.epochs, members.whole = {}, False
        if self._bounded and len(self._known) > RUNS_MAX:
            self._full = True
            del self._known[next(iter(self._known))]
        return members

    def _learn(self, members: Members, told: Iterable[Told], depth: int) -> None:
        for each in told:
            fork = membership.learn(members, each)
            if fork is not None:
                parent = self._known.get(fork.parent)
                if parent is None:
                    parent = self._begun(fork.parent, depth=depth + 1)
                members.take_over(parent, fork.cut)
