"""Read, decide, append: how whatever is stated in a stream goes by what stands there, however many
write at once.

An append expects a version. Who loses the race for it (`Conflict`) has written nothing: it reads
again, decides again and appends again, a bounded number of times. An append whose outcome is not
known is no lost race: the log sends the same commit again, and its id tells whether it is stored;
what cannot be told even so (`AppendUnknown`) is raised, since another try might state it twice.

Coroutines of the bus's loop, as reading and appending are: both twins' flows run them as one `Io`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hansard.bus.errors import Conflict

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")

TRIES_MAX = 50
"""Most tries where nothing else is said; each one lost means that somebody else got through."""


async def transact(
    read: Callable[[], Awaitable[S]],
    decide: Callable[[S], A | None],
    append: Callable[[A], Awaitable[R]],
    tries_max: int = TRIES_MAX,
) -> R | None:
    """Append what is decided by what is read, from the read on again after each lost race; what
    `append` gives, or None where there is nothing to append.

    Costs what the read and the append cost, once a try. Raises what these three raise, and Conflict
    with the number of `tries` where all were lost.
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
    """What an attempt gives that reads, decides and appends by itself, made again after each lost
    race. For who holds something the while, or reads on as it decides; else take `transact`.

    ours: whether a lost race is for this attempt to make good; any other is raised, and so is one
    that was lost again and again below. Raises as `transact`.
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
