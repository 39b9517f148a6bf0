"""Scopes: the linear chains that calls stand in, and how a call finds the one it belongs to.

A run, a tool's body, a spawned task or thread is a scope. Each call's fingerprint holds the digest
of the result before it in its scope, so an edit is noticed exactly where its results differ.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

from hansard.agents.errors import ToolError
from hansard.domain import fingerprint


class Scope:
    """One chain.

    `head` is the digest of its last result, `after` the steps it stands for, `step` the call whose
    body it is (`usage` is what that call has reported), `open` how many calls of it run, `noting`
    how many of its facts are being written, `nests` whether calls may stand in it, `beside` the
    steps of it that overlapped others and so are in no chain, with those that were so around it
    when it began (`begun` of them),
    `apart` whether it began while a call of its parent was open: then the parent's chain does not
    lead into it, nor on from it, since when that call ends is left to chance.
    """

    __slots__ = (
        "after",
        "apart",
        "begun",
        "beside",
        "children",
        "head",
        "nests",
        "noting",
        "occurrences",
        "open",
        "path",
        "session",
        "step",
        "usage",
    )

    def __init__(
        self, session: Any, path: str, head: str, after: tuple[int, ...], step: int | None
    ) -> None:
        self.session = session
        self.path = path
        self.head = head
        self.after = after
        self.step = step
        self.nests = True
        self.apart = False
        self.usage: dict[str, float] = {}
        self.open = 0
        self.noting = 0
        self.children = 0
        self.beside: list[int] = []
        self.begun = 0
        self.occurrences: dict[str, int] = {}

    @property
    def overlaps(self) -> bool:
        """Whether what is called or stated now has no predecessor: something else of it goes on, of
        which a replay will not wait for the end.
        """
        return self.open > 0 or self.noting > 0

    def spawn(self, count: int) -> list[Scope]:
        """Child scopes for tasks or threads that begin now, in spawn order."""
        number = self.children
        self.children += 1
        return [self.item(f"{number}.{i}") for i in range(count)]

    def item(self, name: str) -> Scope:
        """A child scope of a given name that begins now."""
        child = Scope(self.session, f"{self.path}/{name}", self.head, self.after, self.step)
        child.nests = self.nests
        if self.open:
            child.apart, child.head = True, fingerprint.UNORDERED
        child.usage = self.usage
        child.inherit(self.beside)
        return child

    def inherit(self, beside: list[int]) -> None:
        """Begin after what overlapped others in the scope around this one."""
        self.beside, self.begun = list(beside), len(beside)

    def join(self, children: list[Scope]) -> None:
        """Go on after child scopes: their heads count, in their spawn order."""
        for child in children:
            self.beside += child.beside[child.begun :]
            if child.apart:  # its chain does not lead on, and yet its results are there
                self.beside += [step for step in child.after if step not in self.after]
        chained = [child for child in children if not child.apart]
        if children and not chained:
            return
        self.head = fingerprint.joined(self.head, [child.head for child in chained])
        ends = [step for child in chained for step in child.after]
        self.after = tuple(dict.fromkeys(ends)) or self.after

    def occurrence(self, base: str) -> int:
        """The how-manieth of its equals a call is, from 0."""
        number = self.occurrences.get(base, 0)
        self.occurrences[base] = number + 1
        return number


_current: ContextVar[tuple[Scope, ...]] = ContextVar("hansard_scopes", default=())


def enter(scope: Scope) -> Token[tuple[Scope, ...]]:
    """Make a scope current in this context; `leave` with the token."""
    rest = tuple(other for other in _current.get() if other.session is not scope.session)
    return _current.set((scope, *rest))


def leave(token: Token[tuple[Scope, ...]]) -> None:
    """Make what was current before current again."""
    _current.reset(token)


def current(session: Any) -> Scope | None:
    """The scope of a session that is current in this context."""
    for scope in _current.get():
        if scope.session is session:
            return scope
    return None


def ambient(tool: str) -> Any:
    """The session that is current in this context. Raises ToolError."""
    scopes = _current.get()
    if not scopes:
        message = (
            f"{tool} was called where no session is current: call it inside 'with record.run(...)' "
            "(in a thread of your own: start it with session.thread)"
        )
        raise ToolError(message)
    return scopes[0].session
