"""Whether a call's fingerprint follows from what is recorded before it.

A scope's head before a call is the digest of its last result, or what came of joins of child scopes
(`hansard.agents.steps.scope`). A step tells of the joins that led to its head and that no earlier
step has told; each must be of heads that are on record, so that a result which was changed is
noticed behind any join. Only for steps that do not tell, those of old records, is there something
to guess: see `hansard.inspect.old_joins`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hansard.domain.fingerprint import UNORDERED, fingerprint
from hansard.domain.steps import JOIN_TIMES_MAX, Join, Step
from hansard.inspect.old_joins import Derived, GuessedHeads


class Heads:
    """The heads of one agent's scopes. `full`: a call's chain goes on from its fingerprint."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._guessed = GuessedHeads(full=full)
        self._known = {"", UNORDERED}
        """Every head on record: digests of results, and what came of joins."""

    def session(self) -> None:
        """Another session begins: it spawns and joins anew."""
        self._guessed.session()

    def checkpoint(self, head: str, joins: Sequence[Join]) -> None:
        """A checkpoint holds a head that a later session may go on from: what comes of the joins
        that it tells of, where it does.
        """
        if joins:
            self._after(joins)
        else:
            self._known.add(head)

    def outcome(self, step: Step) -> None:
        """Let a step's scope go on after its outcome."""
        if not self._full:  # else its fingerprint is known since it began
            self._known.add(step.digest)
        self._guessed.outcome(step)

    def derive(self, step: Step, steps: Mapping[int, Step], joins: Sequence[Join]) -> Derived:
        """Whether a call's fingerprint follows from what was before it, and from the joins that it
        tells of; takes its place over.
        """
        self._known.add(step.fingerprint)  # its body begins there
        if not joins:
            return self._guessed.derive(step, steps)
        head = self._after(joins)
        if head is None or fingerprint(step.call, head) != step.fingerprint:
            return Derived.NO
        if not all(join.ends for join in joins):
            return self._guessed.derive(step, steps)
        self._guessed.follows(step, steps, head)
        return Derived.YES

    def _after(self, joins: Sequence[Join]) -> str | None:
        """The head that comes of joins; None where one is of a head that is not on record."""
        head = None
        for join in joins:
            if join.times > JOIN_TIMES_MAX or (join.ends and not self._stands(join)):
                return None
            head = join.result()
            self._known.add(head)
            self._guessed.told.pop(head, None)
            self._guessed.told[head] = None
        return head

    def _stands(self, join: Join) -> bool:
        if join.times > 1:
            return join.head in self._known and {*join.ends} == {join.head}
        return self._known.issuperset((join.head, *join.ends))
