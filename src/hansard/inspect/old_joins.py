"""What a scope's head was before a call that does not tell of the joins which it came of: guessed
from the results before it.

Steps tell of their joins (`joins` of `hansard.domain.steps.StepRequested`), and
`hansard.inspect.chain_verifier` goes by that. Older records do not: of a join, only the calls of
its children are on record. Children that made no call are tried, within bounds. So a call that
follows a result differs or does not, but one that follows a join and fits none of what was tried is
not proven either way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec

from hansard.domain.fingerprint import fingerprint, joined
from hansard.domain.steps import Step

HEADS_MAX = 64
"""Newest heads of a scope that a call may follow: more than an edited run leaves behind."""

EMPTY_CHILDREN_MAX = 1_000
"""Most children without a call that a join of nothing else is tried with; also most items without
a call at the end of a resumable loop."""

MORE_CHILDREN_MAX = 32
"""Most children without a call that are tried beside recorded ones."""

EMPTY_CHILDREN_DEEP_MAX = 4
LOOP_TRIES_MAX = 256
"""Items of a loop after which a call that fits nothing simple is looked for."""

BEGINS_MAX = 64
"""Places where a child scope may have begun that are tried."""

STARTS_MAX = 4
"""Newest heads from which joins are tried."""

JOINS_DEPTH_MAX = 2
ATTEMPTS_MAX = 5_000
"""Digests per call that fits nothing simple: about 20 ms."""

PROGRESS = "progress:"
"""What a loop's children are named, as `hansard.agents.annotations.statements` makes them."""

_SPAWNED = re.compile(r"(?P<group>\d+)\.(?P<index>\d+)")
_LOOPED = re.compile(r"(?P<group>progress:.*)\.(?P<index>\d+)", re.DOTALL)


class _Scope(msgspec.Struct):
    """A scope as far as the record shows it: its heads in order, and its groups of children."""

    heads: list[str] = []
    groups: dict[str, _Group] = {}
    outer: _Scope | None = None
    group: _Group | None = None
    index: int = 0

    def unjoined(self) -> list[str]:
        """The groups whose children, or later items, the scope has not gone on after."""
        return [name for name, group in self.groups.items() if group.joined < group.ends_at]


class _Group(msgspec.Struct):
    """Children of one spawn by index, or the items of one loop by number.

    `heads` is where it was spawned, once a session that told; `joined` is how many of a loop's
    items were joined, or 1 for a spawn that was.
    """

    loops: bool
    children: dict[int, str] = {}
    heads: list[str] = []
    joined: int = 0

    @property
    def last(self) -> int:
        """The highest index or number with a call."""
        return max(self.children)

    @property
    def ends_at(self) -> int:
        """What `joined` is when nothing of the group is left."""
        return self.last if self.loops else 1


class _Candidate(msgspec.Struct):
    """A head that a call may follow, and what is so if it does.

    `joins` are the groups joined on the way, with how many of a loop's items (1 for a spawn);
    `begun` the scopes around it that have begun with it, with their heads.
    """

    head: str
    joins: tuple[tuple[_Group, int], ...] = ()
    begun: tuple[tuple[_Scope, str], ...] = ()

    def joining(self, head: str, group: _Group, count: int) -> _Candidate:
        """The candidate after one more join."""
        return _Candidate(head, (*self.joins, (group, count)), self.begun)


class Derived(Enum):
    """Whether a fingerprint follows from what is recorded before it."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class GuessedHeads:
    """The heads of one agent's scopes; those of joins that were told are taken from there."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self.told: dict[str, None] = {}
        """Heads of joins that steps have told of, in order."""
        self._scopes: dict[str, _Scope] = {"": _Scope([""])}
        self._digests: dict[int, list[str]] = {}
        self._told: dict[str, str] = {}

    def session(self) -> None:
        """Another session begins: it spawns and joins anew."""
        for scope in self._scopes.values():
            for group in scope.groups.values():
                group.joined = 0

    def derive(self, step: Step, steps: Mapping[int, Step]) -> Derived:
        """Whether a call's fingerprint follows from what was before it; takes its place over."""
        parent = steps.get(step.parent) if step.parent is not None else None
        before = [steps[number] for number in step.after if number in steps]
        self._told = {other.scope: self._mark(other) for other in before}
        scope = self._enter(step.scope, parent)
        for found in self._candidates(scope, step):
            if fingerprint(step.call, found.head) == step.fingerprint:
                for group, count in found.joins:
                    group.joined = count
                for begun, head in found.begun:
                    if head not in begun.heads:
                        self._begin(begun, head)
                self._begin(scope, found.head)
                return Derived.YES
        if parent is not None and step.after == parent.after:
            return Derived.NO  # nothing was joined since the body began
        around = all(f"{step.scope}/".startswith(f"{other.scope}/") for other in before)
        return Derived.NO if around and not self._has_gaps(scope) else Derived.UNKNOWN

    def _has_gaps(self, scope: _Scope) -> bool:
        """Whether the numbers of groups show that some left no record."""
        for name, group in scope.groups.items():
            if name.isdecimal() and int(name) > 0 and str(int(name) - 1) not in scope.groups:
                return True
            if group.loops and len(group.children) < group.last:
                return True
        return scope.outer is not None and self._has_gaps(scope.outer)

    def follows(self, step: Step, steps: Mapping[int, Step], head: str) -> None:
        """A call is known to follow a head."""
        parent = steps.get(step.parent) if step.parent is not None else None
        self._begin(self._enter(step.scope, parent), head)

    def outcome(self, step: Step) -> None:
        """Let a step's scope go on after its outcome."""
        mark = self._mark(step)
        self._digests.setdefault(step.number, []).append(mark)
        if not step.unordered and step.scope in self._scopes:
            self._scopes[step.scope].heads.append(mark)

    def _mark(self, step: Step) -> str:
        """What the chain holds of a step."""
        return step.fingerprint if self._full else step.digest

    # ------------------------------------------------------------ scopes

    def _enter(self, path: str, parent: Step | None) -> _Scope:
        """The scope of a path, begun where its parent's scope or the call around it stands."""
        scope = self._scopes.get(path)
        is_new = scope is None
        if scope is None:
            scope = self._scopes[path] = _Scope()
        if parent is not None and path == parent.call:
            if parent.fingerprint not in scope.heads:
                scope.heads.insert(0, parent.fingerprint)
        elif is_new and (split := _split(path)) is not None:
            above, name, index = split
            scope.outer = self._enter(above, parent)
            scope.group = scope.outer.groups.setdefault(name, _Group(name.startswith(PROGRESS)))
            scope.group.children[index] = path
            scope.index = index
        return scope

    @staticmethod
    def _begin(scope: _Scope, head: str) -> None:
        """Take over where a scope stands, and, of a child's first call, where it was spawned."""
        group = scope.group
        if not scope.heads and group is not None and head not in group.heads:
            group.heads.append(head)
        if head not in scope.heads[-1:]:
            scope.heads.append(head)

    # ------------------------------------------------------------ candidates

    def _candidates(self, scope: _Scope, step: Step) -> Iterator[_Candidate]:
        told = [digest for number in step.after for digest in self._digests.get(number, ())]
        own = (*reversed(scope.heads[-HEADS_MAX:]), *reversed(told), *scope.heads[:1])
        near = [_Candidate(head) for head in dict.fromkeys(own)]
        yield from near
        yield from map(_Candidate, itertools.islice(reversed(self.told), HEADS_MAX))
        yield from self._as_told(scope)
        for start in near[:STARTS_MAX]:
            yield from self._in_order(scope, start)
        begins = list(itertools.islice(self._begins(scope), BEGINS_MAX))
        yield from begins
        if not scope.heads:
            for start in begins[:STARTS_MAX]:
                yield from self._in_order(scope, _within(scope, start))
        starts = [*near[:STARTS_MAX], *begins[:STARTS_MAX]]
        searches = [self._search(scope, start, 1) for start in starts]
        if scope.outer is not None:
            searches += [self._search(scope.outer, start, 1) for start in begins[:STARTS_MAX]]
        yield from itertools.islice(_in_turn(searches), ATTEMPTS_MAX)

    def _begins(self, scope: _Scope) -> Iterator[_Candidate]:
        """Where a child may have begun: where the scope around it stood, or after its joins."""
        outer = scope.outer
        if outer is None:
            return
        if outer.heads:
            near = [_Candidate(head) for head in reversed(outer.heads[-HEADS_MAX:])]
        else:
            above = itertools.islice(self._begins(outer), BEGINS_MAX)
            near = [_within(outer, begin) for begin in above]
        joins = [self._in_order(outer, start, scope) for start in near[:STARTS_MAX]]
        ways = [near, self._as_told(outer), *joins]
        if scope.group is not None and scope.group.loops:
            ways = [*joins, near]
        for way in ways:
            for found in way:
                yield _within(outer, found)

    def _as_told(self, scope: _Scope) -> Iterator[_Candidate]:
        """A join of the children whose last steps the call names as those before it."""
        for group in reversed(scope.groups.values()):
            if group.loops or not any(self._is_told(path) for path in group.children.values()):
                continue
            for start in reversed(group.heads or scope.heads[-1:]):
                for more in range(MORE_CHILDREN_MAX):
                    yield _Candidate(self._join(group, start, more), ((group, 1),))

    def _is_told(self, path: str) -> bool:
        return any(told == path or told.startswith(f"{path}/") for told in self._told)

    def _in_order(
        self, scope: _Scope, at: _Candidate, child: _Scope | None = None
    ) -> Iterator[_Candidate]:
        """What a run without surprises gives: groups joined in the order they were spawned.

        Ends before a child, where one is given.
        """
        for name in scope.unjoined():
            group = scope.groups[name]
            is_its = child is not None and group is child.group
            if group.loops:
                last = child.index - 1 if child is not None and is_its else group.last
                most = last if is_its else group.last + EMPTY_CHILDREN_MAX
                start = at
                for head, count in self._loop(group, start.head, most):
                    found = start.joining(head, group, count)
                    yield found
                    if count == last:
                        at = found
            elif not is_its:
                at = at.joining(self._join(group, at.head, 0), group, 1)
                yield at
            if is_its:
                return

    def _loop(self, group: _Group, head: str, most: int) -> Iterator[tuple[str, int]]:
        """A loop's items joined one by one; those without a call add themselves."""
        for number in range(group.joined + 1, most + 1):
            child = group.children.get(number)
            head = joined(head, [self._end(child, head) if child is not None else head])
            yield head, number

    def _search(self, scope: _Scope, at: _Candidate, depth: int) -> Iterator[_Candidate]:
        """Joins in any order, with children that made no call."""
        made: list[_Candidate] = []
        for name in scope.unjoined():
            group = scope.groups[name]
            if any(group is done for done, _ in at.joins):
                continue
            if group.loops:
                items = self._loop(group, at.head, group.joined + LOOP_TRIES_MAX)
                made += [at.joining(head, group, count) for head, count in items]
            else:
                ends = [self._join(group, at.head, more) for more in range(MORE_CHILDREN_MAX)]
                made += [at.joining(head, group, 1) for head in ends]
        most = EMPTY_CHILDREN_MAX if depth == 1 else EMPTY_CHILDREN_DEEP_MAX
        for count in range(1, most + 1):
            made.append(_Candidate(joined(at.head, [at.head] * count), at.joins, at.begun))
        yield from made
        if depth < JOINS_DEPTH_MAX:
            for found in made:
                yield from self._search(scope, found, depth + 1)

    def _join(self, group: _Group, head: str, more: int) -> str:
        """The head after a group's children, `more` of them without a call at the end."""
        begun = head if not group.heads or head in group.heads else group.heads[-1]
        ends = [
            self._end(group.children[index], begun) if index in group.children else begun
            for index in range(group.last + 1 + more)
        ]
        return joined(head, ends)

    def _end(self, path: str, begun: str) -> str:
        """A child's head at its end: after its last call, its own children joined."""
        if path in self._told:
            return self._told[path]
        scope = self._scopes[path]
        head = scope.heads[-1] if scope.heads else begun
        for name in scope.unjoined():
            group = scope.groups[name]
            if not group.loops:
                head = self._join(group, head, 0)
                continue
            for found, _ in self._loop(group, head, group.last):
                head = found
        return head


def _within(scope: _Scope, begin: _Candidate) -> _Candidate:
    """A candidate from inside a scope that begins with it."""
    return _Candidate(begin.head, begin.joins, (*begin.begun, (scope, begin.head)))


def _in_turn(
    searches: list[Iterator[_Candidate]],
) -> Iterator[_Candidate]:
    """One from each search in turn, so that a long one does not keep the others waiting."""
    for found in itertools.zip_longest(*searches):
        yield from (candidate for candidate in found if candidate is not None)


def _split(path: str) -> tuple[str, str, int] | None:
    """A child's path as the scope around it, its group and its index; None for root and bodies."""
    for at in range(len(path) - 1, -1, -1):
        if path[at] == "/":
            found = _SPAWNED.fullmatch(path, at + 1) or _LOOPED.fullmatch(path, at + 1)
            if found is not None:
                return path[:at], found["group"], int(found["index"])
    return None
