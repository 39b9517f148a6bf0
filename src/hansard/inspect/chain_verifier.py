"""Whether a call's fingerprint follows from what is recorded before it.

A scope's head before a call is the digest of its last result, or the result of joins of child
scopes (`hansard.agents.steps.scope`). A step tells of the joins that led to its head and that no
earlier step has told; each must be of heads that are on record, so that a result which was changed
is noticed behind any join.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from hansard.domain.fingerprint import UNORDERED, fingerprint
from hansard.domain.steps import JOIN_TIMES_MAX, Join, Step

HEADS_MAX = 64
"""Newest heads of a scope, and of joins, that a call may follow: more than an edited run leaves."""


class Derived(Enum):
    """Whether a fingerprint follows from what is recorded before it."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Heads:
    """The heads of one agent's scopes. `full`: a call's chain goes on from its fingerprint."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._known = {"", UNORDERED}
        """Every head on record: digests of results, and results of joins."""
        self._joined: dict[str, None] = {}
        """Results of joins, in order."""
        self._own: dict[str, list[str]] = {}
        """The heads of each scope, in order."""
        self._marks: dict[int, list[str]] = {}
        """The heads that each step left, one an outcome."""

    def checkpoint(self, head: str, joins: Sequence[Join]) -> None:
        """A checkpoint holds a head that a later session may go on from: the result of the joins
        that it tells of, if any.
        """
        if joins:
            self._after(joins)
        else:
            self._known.add(head)

    def outcome(self, step: Step) -> None:
        """Let a step's scope go on after its outcome."""
        mark = step.fingerprint if self._full else step.digest
        self._known.add(mark)
        self._marks.setdefault(step.number, []).append(mark)
        if not step.unordered:
            self._own.setdefault(step.scope, []).append(mark)

    def derive(self, step: Step, steps: Mapping[int, Step], joins: Sequence[Join]) -> Derived:
        """Return whether a call's fingerprint follows from what was before it, and from the joins
        that it tells of. UNKNOWN: it follows joins of which too little is on record.
        """
        self._known.add(step.fingerprint)  # its body begins there
        if joins:
            head = self._after(joins)
            if head is None or fingerprint(step.call, head) != step.fingerprint:
                return Derived.NO
            return Derived.YES if all(join.ends for join in joins) else Derived.UNKNOWN
        heads = dict.fromkeys(self._before(step, steps))
        if any(fingerprint(step.call, head) == step.fingerprint for head in heads):
            return Derived.YES
        before = [steps[number] for number in step.after if number in steps]
        is_linear = all(f"{step.scope}/".startswith(f"{other.scope}/") for other in before)
        return Derived.NO if is_linear else Derived.UNKNOWN

    def _before(self, step: Step, steps: Mapping[int, Step]) -> Iterator[str]:
        """Yield the heads that a call without joins of its own may follow, likely ones first."""
        for number in step.after:
            yield from reversed(self._marks.get(number, ()))
        if step.parent is not None and step.parent in steps:
            yield steps[step.parent].fingerprint
        yield from self._own.get(step.scope, [])[: -HEADS_MAX - 1 : -1]
        yield from itertools.islice(reversed(self._joined), HEADS_MAX)
        yield ""

    def _after(self, joins: Sequence[Join]) -> str | None:
        """The head that comes of joins; None where one is of a head that is not on record."""
        head = None
        for join in joins:
            if join.times > JOIN_TIMES_MAX or (join.ends and not self._stands(join)):
                return None
            head = join.result()
            self._known.add(head)
            self._joined.pop(head, None)
            self._joined[head] = None
        return head

    def _stands(self, join: Join) -> bool:
        if join.times > 1:
            return join.head in self._known and {*join.ends} == {join.head}
        return self._known.issuperset((join.head, *join.ends))
