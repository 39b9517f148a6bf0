"""What a scope's head was before a call: found from the results before it.

A head is the digest of the last result of its scope, or that of a join of child scopes
(`hansard.agents.scope`). Of a join, only the calls of its children are on record; children that
made no call are tried. What fits no order of joins within the bounds is told as not derivable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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

JOINS_DEPTH_MAX = 3
ATTEMPTS_MAX = 20_000
"""Digests per call that fits nothing simple: about 40 ms."""

_SPAWNED = re.compile(r"(?P<group>\d+)\.(?P<index>\d+)")
_LOOPED = re.compile(r"(?P<group>progress:.*)\.(?P<index>\d+)", re.DOTALL)


class _Scope(msgspec.Struct):
    """A scope as far as the record shows it: its heads in order, and its groups of children."""

    heads: list[str] = []
    groups: dict[str, _Group] = {}


class _Group(msgspec.Struct):
    """Children of one spawn by index, or the items of one loop by number.

    `joined` is how many of a loop's items were joined, or 1 for a spawn that was.
    """

    loops: bool
    children: dict[int, str] = {}
    head: str | None = None
    joined: int = 0


class Heads:
    """The heads of one agent's scopes."""

    def __init__(self) -> None:
        self._scopes: dict[str, _Scope] = {"": _Scope([""])}
        self._digests: dict[int, list[str]] = {}

    def derive(self, step: Step, parent: Step | None) -> bool:
        """Whether a call's fingerprint follows from what was before it; takes its place over."""
        scope = self._enter(step.scope, parent)
        for head in self._candidates(scope, step):
            if fingerprint(step.call, head) == step.fingerprint:
                if head not in scope.heads[-1:]:
                    scope.heads.append(head)
                self._spawned_at(step.scope, head)
                return True
        return False

    def outcome(self, step: Step) -> None:
        """Let a step's scope go on after its outcome."""
        self._digests.setdefault(step.number, []).append(step.digest)
        if not step.unordered and step.scope in self._scopes:
            self._scopes[step.scope].heads.append(step.digest)

    # ------------------------------------------------------------ scopes

    def _enter(self, path: str, parent: Step | None) -> _Scope:
        """The scope of a path, begun where its parent's scope or the call around it stands."""
        known = self._scopes.get(path)
        if known is not None:
            if parent is not None and path == parent.call:
                known.heads.insert(0, parent.fingerprint)
            return known
        made = self._scopes[path] = _Scope()
        if parent is not None and path == parent.call:
            made.heads.append(parent.fingerprint)
            return made
        for above, group, index in _splits(path):
            if above and above not in self._scopes and not self._plausible(above, parent):
                continue
            outer = self._enter(above, parent)
            loops = group.startswith("progress:")
            outer.groups.setdefault(group, _Group(loops)).children[index] = path
            made.heads += outer.heads[-HEADS_MAX:]
        return made

    @staticmethod
    def _plausible(path: str, parent: Step | None) -> bool:
        return any(True for _ in _splits(path)) or (parent is not None and path == parent.call)

    def _spawned_at(self, path: str, head: str) -> None:
        """Remember where a child began, once its first call has told."""
        for above, name, _ in _splits(path):
            outer = self._scopes.get(above)
            group = outer.groups.get(name) if outer is not None else None
            if group is not None and group.head is None:
                group.head = head

    # ------------------------------------------------------------ candidates

    def _candidates(self, scope: _Scope, step: Step) -> Iterator[str]:
        seen: list[str] = []
        told = [d for number in step.after for d in self._digests.get(number, ())]
        for head in (*reversed(scope.heads[-HEADS_MAX:]), *reversed(told), *scope.heads[:1]):
            if head not in seen:
                seen.append(head)
                yield head
        yield from self._in_order(scope, seen)
        budget = ATTEMPTS_MAX
        for head in seen[:8]:
            for found in self._search(scope, head, tuple(scope.groups), 1):
                yield found
                budget -= 1
                if budget <= 0:
                    return

    def _in_order(self, scope: _Scope, heads: list[str]) -> Iterator[str]:
        """What a run without surprises gives: groups joined in the order they were spawned."""
        for start in heads[:4]:
            head = start
            for name in scope.groups:
                group = scope.groups[name]
                if group.loops:
                    for head in self._loop(group, head):  # noqa: B020 -- each item goes on from there
                        yield head
                else:
                    head = self._join(group, head, 0)
                    yield head

    def _loop(self, group: _Group, head: str) -> Iterator[str]:
        """A loop's items joined one by one; those without a call add themselves."""
        last = max(group.children, default=0)
        for number in range(1, last + EMPTY_CHILDREN_MAX):
            child = group.children.get(number)
            head = joined(head, [self._end(child, head) if child is not None else head])
            yield head

    def _search(
        self, scope: _Scope, head: str, names: tuple[str, ...], depth: int
    ) -> Iterator[str]:
        """Joins in any order, with children that made no call."""
        most = EMPTY_CHILDREN_MAX if depth == 1 else 4
        made: list[tuple[str, tuple[str, ...]]] = []
        for name in names:
            group = scope.groups[name]
            rest = tuple(other for other in names if other != name)
            if group.loops:
                made += [(found, rest) for found in list(self._loop(group, head))[:256]]
            else:
                made += [
                    (self._join(group, head, more), rest) for more in range(MORE_CHILDREN_MAX)
                ]
        made += [(joined(head, [head] * count), names) for count in range(1, most + 1)]
        yield from (found for found, _ in made)
        if depth < JOINS_DEPTH_MAX:
            for found, rest in made:
                yield from self._search(scope, found, rest, depth + 1)

    def _join(self, group: _Group, head: str, more: int) -> str:
        """The head after a group's children, `more` of them without a call at the end."""
        count = max(group.children) + 1 + more
        begun = group.head if group.head is not None else head
        ends = [
            self._end(group.children[index], begun) if index in group.children else begun
            for index in range(count)
        ]
        return joined(head, ends)

    def _end(self, path: str, begun: str) -> str:
        """A child's head at its end: after its last call, its own children joined."""
        scope = self._scopes[path]
        head = scope.heads[-1] if scope.heads else begun
        for name in _unjoined(scope):
            group = scope.groups[name]
            if group.loops:
                last = max(group.children)
                for number, found in enumerate(self._loop(group, head), 1):
                    head = found
                    if number == last:
                        break
            else:
                head = self._join(group, head, 0)
        return head


def _unjoined(scope: _Scope) -> Iterable[str]:
    return [name for name, group in scope.groups.items() if not group.joined]


def _splits(path: str) -> Iterator[tuple[str, str, int]]:
    """The ways to read a path as a scope and its child: (scope, group, index)."""
    for at in range(len(path) - 1, -1, -1):
        if path[at] != "/":
            continue
        found = _SPAWNED.fullmatch(path, at + 1) or _LOOPED.fullmatch(path, at + 1)
        if found is not None:
            yield path[:at], found["group"], int(found["index"])
