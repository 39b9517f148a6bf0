"""What do two commits to two streams cost as two publishes, and as one atomic batch?

A write of one key is an intent in its agent's stream and a change in the key's: publishes, one
after the other, where nobody else of the process writes, else one atomic batch
(docs/decisions/0014-writes.md). By the log alone, on a strict server: one append, then one on
condition that the first stream has no further version; against `append_all` of two commits of the
same size. Blocks of 20 take turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median

import msgspec

from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from hansard.bus.errors import Conflict
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.log import Append, NotYet

BLOCK = 20


class Pairs:
    """Two commits at a time, to two streams."""

    def __init__(self, log: JetStreamLog, name: str, rounds: int) -> None:
        self.log = log
        self._streams = [_world.agent_stream(f"{name}-{part}") for part in ("agent", "key")]
        self._commits = [_world.appends(stream, 1, rounds + 1) for stream in self._streams]

    def next(self) -> list[Append]:
        """Return the next two commits."""
        return [next(commits) for commits in self._commits]

    def after(self, append: Append) -> NotYet:
        """Return the condition that nothing follows a commit of the first stream."""
        return NotYet(self._streams[0], append.commit.version + 1)

    async def publishes(self) -> None:
        """One after the other."""
        first, second = self.next()
        await self.log.append(first)
        await self.log.append(msgspec.structs.replace(second, expected=self.after(first)))

    async def batch(self) -> None:
        """Both or none."""
        await self.log.append_all(self.next())

    async def late(self) -> None:
        """Check that the second is refused where the first stream has a further version."""
        first, second = self.next()
        condition = NotYet(self._streams[0], first.commit.version)
        await self.log.append(first)
        try:
            await self.log.append(msgspec.structs.replace(second, expected=condition))
        except Conflict:
            return
        message = "a commit was stored though its condition did not hold"
        raise AssertionError(message)


async def block(work: Callable[[], Awaitable[None]]) -> list[float]:
    """Milliseconds of each of some."""
    return [(await _world.timed(work))[0] for _ in range(BLOCK)]


async def measure(found: Findings) -> None:
    """Both ways, in turns."""
    blocks = sized(16, 2)
    async with _world.world("strict") as place:
        log = await place.log()
        two, one = (Pairs(log, name, blocks * BLOCK) for name in ("two", "one"))
        times: dict[str, list[list[float]]] = {"two publishes": [], "one batch": []}
        for _ in range(blocks):
            times["two publishes"].append(await block(two.publishes))
            times["one batch"].append(await block(one.batch))
        await two.late()
        await log.close()
    for name, taken in times.items():
        found.results[name] = summary([each for part in taken for each in part])
        by_block = [median(part) for part in taken]
        found.results[f"{name}, medians of blocks"] = summary(by_block)
    ratios = [
        median(batch) / median(publishes)
        for publishes, batch in zip(times["two publishes"], times["one batch"], strict=True)
    ]
    found.ratios["one batch / two publishes"] = median(ratios)


if __name__ == "__main__":
    benchmark(measure, __doc__)
