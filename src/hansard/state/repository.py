"""Aggregates of a workspace that outlive runs: read, decided and appended in one place.

Optimistic concurrency, with any number of writers. An append expects a version. A writer that loses
the race (`Conflict`) has written nothing: it reads, decides and appends again, a bounded number of
times. An append whose outcome is unknown is not a lost race: the log sends the same commit again,
whose id shows whether it is stored. If that is still unknown (`AppendUnknown`), the error is
raised, since another attempt might state it twice.

Coroutines of the bus's loop, like reading and appending: the flows of both clients run them as one
`Io`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive, revive_all
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, EventLog, Stored, UpTo
from hansard.domain import ids
from hansard.domain.decider import By, Decider, State, evolve, fold
from hansard.domain.errors import Refused
from hansard.domain.events import Actor, Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")
C = TypeVar("C")
F = TypeVar("F", bound=State)

TRIES_MAX = 50
"""Default number of attempts; each lost race means that another writer succeeded."""


async def transact(
    read: Callable[[], Awaitable[S]],
    decide: Callable[[S], A | None],
    append: Callable[[A], Awaitable[R]],
    tries_max: int = TRIES_MAX,
) -> R | None:
    """Append what `decide` makes of the read state, reading again after each lost race. Return the
    result of `append`, or None if there is nothing to append.

    Each attempt costs one read and one append. Raises the errors of these three functions, and
    Conflict with the number of `tries` if all were lost.
    """

    async def attempt() -> R | None:
        target = decide(await read())
        return await append(target) if target is not None else None

    return await retry(attempt, tries_max)


async def retry(
    attempt: Callable[[], Awaitable[R]],
    tries_max: int = TRIES_MAX,
    ours: Callable[[Conflict], bool] = lambda _: True,
) -> R:
    """Run an attempt that reads, decides and appends, and repeat it after each lost race. For
    callers that hold a resource meanwhile, or read while deciding; others use `transact`.

    ours: Returns whether this attempt handles a lost race; any other is raised, and so is one whose
    retries are already exhausted. Raises as `transact`.
    """
    tries = 0
    while True:
        try:
            return await attempt()
        except Conflict as lost:
            tries += 1
            if lost.tries > 1 or not ours(lost):
                raise
            if tries >= tries_max:
                raise Conflict(lost.stream, lost.version, lost.winner, tries) from lost


def follow(state: State, stored: Stored) -> None:
    """Fold a commit into a state that the caller owns."""
    commit = stored.commit
    for recorded in commit.events:
        by = By(commit.actor.agent, stored.stamp, recorded.id, commit.label)
        evolve(state, revive(recorded), by)


def followed(state: F, commits: Sequence[Stored]) -> F:
    """Return the state after more commits; the given state is not changed."""
    if not commits:
        return state
    state = state.copy()
    for stored in commits:
        follow(state, stored)
    return state


def folded(decider: Decider[F, Any], commits: Iterable[Stored]) -> F:
    """Return the state after the commits of an aggregate's stream, from its first."""
    return fold(decider.initial(), revive_all(each.commit for each in commits))


class Repository:
    """The aggregates of a log that outlive runs."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def read(self, decider: Decider[F, Any], name: str, up_to: UpTo = None) -> F:
        """Return an aggregate at a point. Raises BadName, and UnknownEvent for an event of a newer
        version.
        """
        return folded(decider, await self._log.read(decider.stream(name), up_to=up_to))

    async def read_all(self, decider: Decider[F, Any]) -> dict[str, F]:
        """Return all aggregates of a kind by name, in order of their first event."""
        by_name: dict[str, list[Stored]] = {}
        for stored in await self._log.read_kind(decider.kind):
            if isinstance(stored.stream, WorkspaceStream):
                by_name.setdefault(stored.stream.id, []).append(stored)
        return {name: folded(decider, commits) for name, commits in by_name.items()}

    async def decide(self, decider: Decider[F, C], name: str, command: C, by: str | Actor) -> bool:
        """Append the events of a command; return False if it already holds. Raises as `record`."""
        return await self.record(
            decider.stream(name),
            by,
            lambda commits: decider.decide(folded(decider, commits), command),
        )

    async def record(
        self,
        stream: WorkspaceStream,
        by: str | Actor,
        decide: Callable[[list[Stored]], Sequence[Event]],
        label: Label | None = None,
    ) -> bool:
        """Append the events that `decide` derives from a stream's commits; return False for none.

        Raises BadName, Refused with the stream's name, the other errors of `decide`, and Conflict
        after 50 lost races.
        """
        ids.name("by", Actor.of(by).agent)

        def next_append(commits: list[Stored]) -> Append | None:
            events = decide(commits)
            last = commits[-1] if commits else None
            return self._after(last, stream, by, events, label) if events else None

        try:
            read = functools.partial(self._log.read, stream)
            return await transact(read, next_append, self._log.append) is not None
        except Refused as error:
            message = f"{stream.kind} {stream.id!r}: {error}"
            raise Refused(message) from error

    async def append(
        self, stream: WorkspaceStream, by: str | Actor, event: Event, label: Label | None = None
    ) -> None:
        """Append an event to a stream, whatever its state. Costs a read of the newest commit.
        Raises Conflict after 50 lost races.
        """

        def next_append(last: Stored | None) -> Append:
            return self._after(last, stream, by, [event], label)

        await transact(functools.partial(self._log.last, stream), next_append, self._log.append)

    def _after(
        self,
        last: Stored | None,
        stream: WorkspaceStream,
        by: str | Actor,
        events: Sequence[Event],
        label: Label | None = None,
    ) -> Append:
        version = last.commit.last_version + 1 if last is not None else 1
        return Append(stream, new_commit(self._clock, version, Actor.of(by), events, label=label))
