"""Scopes: linear chains of calls, and the lookup of the chain that a call belongs to.

A run, a tool's body, a spawned task or thread is a scope. Each call's fingerprint includes the
digest of the result before it in its scope, so an edit is detected exactly where its results
differ.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar, Token
from typing import Any, TypeVar

from hansard.agents.errors import NoScope, SessionEnded, ToolError
from hansard.bus.loggers import logger
from hansard.domain import fingerprint
from hansard.domain.ids import AgentStream
from hansard.domain.redaction import Redaction, check_names
from hansard.domain.steps import JOIN_TIMES_MAX, Join

# Reject secrets in the names that public methods take, and keep them out of their errors.
#
# A text is recorded with the secret replaced; a name is part of an address, and is rejected. Every
# argument of a method is a name unless it is one of `TEXTS`, so that a new argument is checked as a
# name by default.

TEXTS = frozenset(
    {
        *("feedback", "feedback_applied", "program", "question", "reason", "source", "text"),
        *("evaluator", "parameters", "plan", "reflect", "result", "rules", "tables", "variables"),
        *("failed", "new", "old", "ops", "redact", "secrets"),
    }
)
"""Arguments that are not names: texts and values, whose secrets are replaced when they are
recorded, and those that are checked elsewhere."""

C = TypeVar("C")


def guard_secrets(called: str) -> Callable[[type[C]], type[C]]:
    """Return a class decorator that guards each public method.

    A guarded method rejects a secret in a name before it does anything, and removes secrets from
    the errors that it raises. The class has a `_redaction`; errors name it as `called`.
    """

    def guard(cls: type[C]) -> type[C]:
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_") and not hasattr(method, "guards_secrets"):
                setattr(cls, name, guarded(f"{called}.{name}", method))
        return cls

    return guard


def errors_without_secrets(guarded: Any) -> contextlib.AbstractContextManager[None]:
    """Remove the secrets of a guarded object from the errors that are raised inside."""
    redaction: Redaction | None = guarded._redaction  # noqa: SLF001 -- an attribute of the guarded class
    return contextlib.nullcontext() if redaction is None else redaction.in_errors()


def guarded(
    name: str, method: Callable[..., Any], texts: frozenset[str] = TEXTS
) -> Callable[..., Any]:
    """Return a method of a class that has a `_redaction`, guarded; see `guard_secrets`. `texts` are
    its arguments that are not names.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def guarded_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        redaction = self._redaction
        if redaction is None:
            return method(self, *args, **kwargs)
        with redaction.in_errors():
            _check(name, signature, texts, redaction, (self, *args), kwargs)
            return method(self, *args, **kwargs)

    @functools.wraps(method)
    async def guarded_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        redaction = self._redaction
        if redaction is None:
            return await method(self, *args, **kwargs)
        with redaction.in_errors():
            _check(name, signature, texts, redaction, (self, *args), kwargs)
            return await method(self, *args, **kwargs)

    made: Any = guarded_async if inspect.iscoroutinefunction(method) else guarded_sync
    made.guards_secrets = True  # a subclass does not guard it again
    guarding: Callable[..., Any] = made
    return guarding


def _check(
    method: str,
    signature: inspect.Signature,
    texts: frozenset[str],
    redaction: Redaction,
    args: Any,
    kwargs: Any,
) -> None:
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the method itself raises it
        return
    named: dict[str, object] = {}
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    names = {
        name: list(value) if isinstance(value, Mapping) else value
        for name, value in named.items()
        if name not in texts
    }
    check_names(method, names, redaction)


_log = logger(__name__)


JOIN_ENDS_MAX = 2_000
"""Ends of child scopes that one step records, about 54 KB; beyond it, only the head."""


class Junction:
    """A join and its resulting `head`; `is_recorded` is true once a recorded step holds it. `parts`
    are the joins behind its own heads that are not recorded yet.
    """

    __slots__ = ("head", "is_recorded", "join", "parts")

    def __init__(self, head: str, join: Join, parts: tuple[Junction, ...]) -> None:
        self.head = head
        self.join = join
        self.parts = parts
        self.is_recorded = False

    def mark_recorded(self) -> None:
        """Mark the join as recorded with a step."""
        self.is_recorded, self.parts = True, ()


def unrecorded_joins(junction: Junction | None) -> list[tuple[Junction, Join]]:
    """Return the unrecorded joins behind a head, each after those that it depends on."""
    joins: dict[str, tuple[Junction, Join]] = {}
    waiting = [] if junction is None else [(junction, False)]
    ends = 0
    while waiting:
        each, ready = waiting.pop()
        if each.is_recorded or each.head in joins:
            continue
        if ready:
            joins[each.head] = each, each.join
            continue
        ends += len(each.join.ends)
        if ends > JOIN_ENDS_MAX and junction is not None:
            return [(junction, Join(junction.head))]
        waiting.append((each, True))
        waiting += [(part, False) for part in each.parts]
    return list(joins.values())


class Scope:
    """One chain.

    Attributes:
        head: Digest of its last result (with the full chain, its last fingerprint), or the head of
            `junction`.
        other: The head by the other chain; None if unknown.
        after: The steps that the head represents.
        step: The call whose body it is.
        usage: Usage that this call has reported.
        open: Number of its calls that are running.
        noting: Number of its facts that are being written.
        nests: True if calls may be made in it.
        beside: Its steps that overlapped others and so are in no chain, preceded by those of the
            enclosing scope at its start (`begun` of them).
        apart: True if it started while a call of its parent was open: then the parent's chain
            neither leads into it nor continues from it, since the end of that call is not
            determined.
        blocked: The scope that makes no call before this one ends, if known.
        forgets: True if the session drops its completed calls and facts from memory: nothing in it
            is called again, as it would be in the body of a composite or a loop.
    """

    __slots__ = (
        "after",
        "apart",
        "begun",
        "beside",
        "blocked",
        "children",
        "forgets",
        "head",
        "junction",
        "nests",
        "noting",
        "occurrences",
        "open",
        "other",
        "path",
        "session",
        "step",
        "usage",
    )

    def __init__(
        self,
        session: Any,
        path: str,
        head: str,
        after: tuple[int, ...],
        step: int | None,
        other: str | None = None,
    ) -> None:
        self.session = session
        self.path = path
        self.head = head
        self.other = other
        self.junction: Junction | None = None
        self.after = after
        self.step = step
        self.nests = True
        self.apart = False
        self.blocked: Scope | None = None
        self.forgets = False
        self.usage: dict[str, float] = {}
        self.open = 0
        self.noting = 0
        self.children = 0
        self.beside: list[int] = []
        self.begun = 0
        self.occurrences: dict[str, int] = {}

    @property
    def overlaps(self) -> bool:
        """True if a call or fact made now has no predecessor: something else of the scope is in
        progress, whose end a replay will not wait for.
        """
        return self.open > 0 or self.noting > 0

    def spawn(self, count: int, *, waits: bool = False) -> list[Scope]:
        """Return child scopes for tasks or threads that start now, in spawn order. `waits`: this
        scope makes no call before they have ended.
        """
        number = self.children
        self.children += 1
        children = [self.item(f"{number}.{i}") for i in range(count)]
        if waits:
            for child in children:
                child.blocked = self
        return children

    def item(self, name: str) -> Scope:
        """Return a child scope of a given name that starts now."""
        path = f"{self.path}/{name}"
        child = Scope(self.session, path, self.head, self.after, self.step, self.other)
        child.nests = self.nests
        if self.open:
            child.apart = True
            child.head = child.other = fingerprint.UNORDERED
        else:
            child.junction = self.junction
        child.usage = self.usage
        child.inherit(self.beside)
        self.session.live.add(path)
        return child

    def inherit(self, beside: list[int]) -> None:
        """Start after the steps that overlapped others in the enclosing scope."""
        self.beside, self.begun = list(beside), len(beside)

    def join(self, children: list[Scope]) -> None:
        """Continue after child scopes: their heads count, in spawn order."""
        for child in children:
            self.session.live.discard(child.path)
            self.beside += child.beside[child.begun :]
            if child.apart:  # its chain does not continue here, but its results exist
                self.beside += [step for step in child.after if step not in self.after]
        chained = [child for child in children if not child.apart]
        if children and not chained:
            return
        heads = tuple(child.head for child in chained)
        head = fingerprint.joined(self.head, list(heads))
        self.junction = self._joined(head, heads, chained)
        self.head = head
        others = [child.other for child in chained if child.other is not None]
        if self.other is not None and len(others) == len(chained):
            self.other = fingerprint.joined(self.other, others)
        else:
            self.other = None
        ends = [step for child in chained for step in child.after]
        self.after = tuple(dict.fromkeys(ends)) or self.after

    def _joined(self, head: str, heads: tuple[str, ...], children: list[Scope]) -> Junction:
        """Return the join of children that results in a head; consecutive idle ones are merged."""
        last = self.junction
        if last is not None and not last.is_recorded and last.join.times < JOIN_TIMES_MAX:
            before = last.join
            idle = before.ends == (before.head,) * len(heads)
            if idle and heads == (self.head,) * len(heads):
                join = Join(before.head, before.ends, before.times + 1)
                return Junction(head, join, last.parts)
        parts = [last, *(child.junction for child in children)]
        kept = tuple(part for part in parts if part is not None and not part.is_recorded)
        return Junction(head, Join(self.head, heads), kept)

    def go_on(self, head: str, after: tuple[int, ...], other: str | None = None) -> None:
        """Continue after a call, by its contribution to the chain, or from a checkpoint."""
        self.head, self.after, self.junction, self.other = head, after, None, other

    def uncount(self, base: str, occurrence: int) -> None:
        """Uncount a call, if it is the last of its equals."""
        if self.occurrences.get(base) == occurrence + 1:
            self.occurrences[base] = occurrence

    def occurrence(self, base: str) -> int:
        """Return the occurrence index of a call: the number of equal calls its scope made before
        it.
        """
        number = self.occurrences.get(base, 0)
        self.occurrences[base] = number + 1
        return number


_current: ContextVar[tuple[Scope, ...]] = ContextVar("hansard_scopes", default=())


def enter(scope: Scope) -> Token[tuple[Scope, ...]]:
    """Make a scope current in this context; `leave` with the token."""
    rest = tuple(other for other in _current.get() if other.session is not scope.session)
    return _current.set((scope, *rest))


def leave(token: Token[tuple[Scope, ...]]) -> None:
    """Restore the previous scopes. In another context (that of a notebook's next cell, or of a
    fixture's end) the scope was never current, and there is nothing to restore.
    """
    with contextlib.suppress(ValueError):
        _current.reset(token)


def around() -> tuple[Scope, ...]:
    """Return the current scopes of this context, for `back`."""
    return _current.get()


def back(scopes: tuple[Scope, ...]) -> None:
    """Restore scopes returned by `around`, except those of sessions that have ended since."""
    _current.set(tuple(scope for scope in scopes if not scope.session.ended))


def log_context(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Any:
    """Add the current run, agent and step to a log line, as a structlog processor. Existing fields
    are kept; outside a session it changes nothing.
    """
    for scope in _current.get()[:1]:
        stream: AgentStream = scope.session.stream
        where = {"run": stream.run, "agent": stream.agent, "step": scope.step}
        for name, value in where.items():
            if value is not None:
                event.setdefault(name, value)
    return event


def current(session: Any) -> Scope | None:
    """Return a session's current scope in this context. In the thread that opened the session
    without a block, its root is current if no other scope is.
    """
    for scope in _current.get():
        if scope.session is session:
            return scope
    if session.home is not None and session.home == threading.get_ident():
        root: Scope = session.root
        return root
    return None


class OpenCalls:
    """Open calls of a session, and their scopes."""

    def __init__(self, stream: AgentStream, scopes: type[Scope] = Scope) -> None:
        self.stream = stream
        self.lock = threading.RLock()
        self.root = scopes(self, "", "", (), None)
        self.root.other = ""
        self.home: int | None = None
        """The thread that opened the session without a block: there its root is current."""
        self.live: set[str] = set()
        """Paths of the child scopes that have started and were not joined."""
        self.declared: set[str] = set()
        """Names of the tools that the program declared for this session."""
        self.client: Any = None
        """The session that module-level tools find through the current scope."""
        self.busy = 0
        """Number of calls and child scopes that are open in any scope."""
        self.ended = False
        """True once the session's block was left: only late outcomes are recorded from then on."""

    def demand_open(self) -> None:
        """Raise SessionEnded if the session has ended; every new operation calls this."""
        if self.ended:
            raise SessionEnded(self.stream.run, self.stream.agent)

    @property
    def here(self) -> Scope:
        """The current scope, or the run's."""
        return current(self) or self.root

    def scope(self, tool: str) -> Scope:
        """Return the scope of a call made here. Raises SessionEnded, NoScope, ToolError."""
        self.demand_open()
        scope = current(self)
        if scope is None:
            if self.busy:
                raise NoScope(tool)
            scope = self.root
        if not scope.nests:
            message = (
                f"{tool} was called inside a tool that is not composite: "
                "declare the outer tool with effects='composite'"
            )
            raise ToolError(message)
        return scope

    def enter_call(self, scope: Scope) -> bool:
        """Mark a call of this scope as open; return whether another one is."""
        with self.lock:
            busy = scope.open > 0
            scope.open += 1
            self.busy += 1
            return busy

    def leave_call(self, scope: Scope) -> None:
        """Mark a call of this scope as ended."""
        with self.lock:
            scope.open -= 1
            self.busy -= 1


# Sessions that are open without a block

_opened: list[tuple[Any, str, Any]] = []
"""Record, if any, and session, oldest first."""
_lock = threading.Lock()


_unclosed: weakref.WeakSet[Any] = weakref.WeakSet()
"""Sessions of this process that have not been closed, in a block or without."""


_entered: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Records whose block is open, each with the process that entered it."""


def enters(record: Any) -> None:
    """Register a record, so that a program that ends before `leaves` gets a warning."""
    _entered[record] = os.getpid()


def leaves(record: Any) -> None:
    """Unregister a record whose block ends."""
    _entered.pop(record, None)


def opens(session: Any) -> None:
    """Register a session, so that a program that ends before `drop` gets a warning."""
    _unclosed.add(session)


def keep(session: Any, record: Any, where: str) -> list[Any]:
    """Register a session that is open without a block, so that calls find it until `drop`. Return
    the sessions that it replaces, to be closed: those of the same agent and run, opened in this
    thread.
    """
    thread = threading.get_ident()
    same = (type(session), where, session.run, session.agent, thread)
    with _lock:
        old = [
            each
            for _, place, each in _opened
            if (type(each), place, each.run, each.agent, each.engine.ledger.home) == same
            and each.is_within_reach
            and (each.mode.reads_only or not session.mode.reads_only)
        ]
        session.engine.ledger.home = thread
        _opened.append((record, where, session))
    return old


def drop(session: Any) -> None:
    """Unregister a session that is being closed."""
    _unclosed.discard(session)
    with _lock:
        _opened[:] = [each for each in _opened if each[2] is not session]


def kept(record: Any = None) -> list[Any]:
    """Return the sessions that are open without a block, of one record or of all."""
    with _lock:
        _opened[:] = [each for each in _opened if each[2].is_within_reach]
        return [session for owner, _, session in _opened if record in (None, owner)]


def ambient(tool: str) -> Any:
    """Return the session of a call: the innermost current one in this context, else the only one
    that is open without a block. Raises ToolError.
    """
    scopes = _current.get()
    if scopes:
        return scopes[0].session.client
    sessions = kept()
    if len(sessions) == 1:
        return sessions[0]
    if not sessions:
        message = (
            f"{tool} was called where no session is current: call it inside 'with "
            "hansard.Session()' or 'with record.run(...)' (in a thread of your own: start it with "
            "session.thread), or open a session that stays current without a block: "
            "record.open(...)"
        )
        raise ToolError(message)
    names = "; ".join(f"agent {each.agent!r} in run {each.run}" for each in sessions)
    message = (
        f"{tool} was called where {len(sessions)} sessions are open and none is current ({names}): "
        "say which with 'with session.use():', or close those that are done "
        "(session.close(); hansard.sessions() has them all)"
    )
    raise ToolError(message)


@atexit.register
def _warn_left_open() -> None:
    sessions = [each for each in _unclosed if each.is_left_open]
    for session in sessions:
        _log.warning(
            "a session was never closed: its run stays open on record until it is resumed, or "
            "finished with 'hansard run finish'",
            run=session.run,
            agent=session.agent,
        )
    if not sessions and os.getpid() in _entered.values():
        _log.warning("a record was never closed: leave its 'with' block, or call record.close()")
