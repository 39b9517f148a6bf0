"""Read, decide, append: optimistic concurrency for statements in a stream, with any number of
writers.

An append expects a version. A writer that loses the race (`Conflict`) has written nothing: it
reads, decides and appends again, a bounded number of times. An append whose outcome is unknown is
not a lost race: the log sends the same commit again, whose id shows whether it is stored. If that
is still unknown (`AppendUnknown`), the error is raised, since another attempt might state it twice.

Coroutines of the bus's loop, like reading and appending: the flows of both clients run them as one
`Io`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hansard.bus.errors import Conflict

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")

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
