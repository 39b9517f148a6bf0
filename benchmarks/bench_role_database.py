"""How fast are a role's tables made, against the workspace's own from the same log?

The log of `bench_project` (about 2 events a commit, 0.4 KB an event) is projected from the broker
into the workspace's tables, and in turn filtered, rewritten and projected into those of three
roles, from nothing to published: one sees all, one sees all but what masks hide (each event is
rewritten), one sees a tenth of the events. Rows are counted over all tables. Beside them the raw
read, which each of them begins with: every message once, undecoded. Then each is brought up by a
hundred commits more. Goals: 1,000,000 rows/s; as fast as the workspace's own tables but for a
fifth, where as much is shown; half as fast where each event is rewritten.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from statistics import median

from benchmarks import _world
from benchmarks._report import Findings, say, sized, summary
from benchmarks._runs import log_of, plans
from benchmarks._world import WORKSPACE
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.log import RawWorkspace
from hansard.domain.roles.model import Mask, Masking, RoleDefined, RoleRule
from hansard.projections.role_tables import bring_up, forget
from hansard.projections.runner import project
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles, role_place

ROWS_S = 1_000_000

ROLES = {
    "sees all": RoleDefined(sees=(RoleRule("all", ("**",)),)),
    "sees all, masked": RoleDefined(
        sees=(RoleRule("all", ("**",)),),
        masks=(
            Mask("texts", ("message.added",), ("content",), Masking.DROP),
            Mask("queries", ("step.requested",), ("arguments.query",), Masking.HASH),
        ),
    ),
    "sees a tenth": RoleDefined(sees=(RoleRule("some", ("decision.made", "run.*", "agent.*")),)),
}


def rows_of(store: Store) -> tuple[int, int]:
    """Return the number of rows of all tables, and of `events`."""
    counts = {name: store.all(f"SELECT count(*) FROM {name}")[0][0] for name in store.tables()}
    return sum(counts.values()), counts["events"]


async def made(raw: RawWorkspace, place: TableFiles, rules: RoleDefined) -> None:
    """Bring a role's tables up."""

    async def rules_at(_position: int) -> RoleDefined:
        return rules

    assert await bring_up(raw, place, rules_at)


async def measure(found: Findings, folder: Path) -> None:
    """Fill the log, make each of the tables in turn, then go on with them."""
    async with _world.world("relaxed") as world:
        log = await world.log()
        await log.append_bulk(chain(plans(), log_of(sized(150_000, 2_000))))
        raw = await RawWorkspace.open(world.broker.runtime, WORKSPACE)
        last = (await raw.extent()).last
        own = folder / "own.duckdb"
        places = {name: role_place(folder, WORKSPACE, name) for name in ROLES}
        counts: dict[str, tuple[int, int]] = {}

        async def workspace() -> None:
            own.unlink(missing_ok=True)
            store = Store(own)
            await project(raw, store, until=last)
            counts["workspace"] = rows_of(store)
            store.close()

        async def read() -> None:
            async for _ in raw.chunks(0, until=last):
                pass

        async def of_role(name: str) -> None:
            forget(places[name])
            await made(raw, places[name], ROLES[name])

        names = list(ROLES)
        reading, *times = await _world.turns(
            sized(5, 2),
            read,
            workspace,
            *((lambda n=name: of_role(n)) for name in names),
            warm_up=1,
        )
        found.results[f"raw read of {last:,} messages"] = summary(reading)
        for name in names:
            store = Store(places[name].path, read_only=True)
            counts[name] = rows_of(store)
            store.close()
        rates: dict[str, float] = {}
        for name, taken in zip(["workspace", *names], times, strict=True):
            rows, events = counts[name]
            rates[name] = rows / median(taken) * 1_000
            found.results[f"{name}: {rows:,} rows of {events:,} events"] = summary(taken)
            found.results[f"{name}: rows/s"] = round(rates[name])
            found.results[f"{name}: events of the log/s"] = round(
                counts["workspace"][1] / median(taken) * 1_000
            )
        for name in names:
            found.ratios[f"{name} / workspace, rows/s"] = rates[name] / rates["workspace"]
        for name, taken in zip(["workspace", *names], times, strict=True):
            found.ratios[f"{name}: time / raw read"] = median(taken) / median(reading)
        found.goals["a role's tables >= 1,000,000 rows/s"] = rates[names[1]] >= ROWS_S
        await gone_on(found, raw, places, log)
        await raw.close()
        await log.close()


async def gone_on(
    found: Findings, raw: RawWorkspace, places: dict[str, TableFiles], log: JetStreamLog
) -> None:
    """Time of bringing tables up by some commits more, and by none."""
    for name, place in places.items():
        some: list[float] = []
        none: list[float] = []
        for _ in range(sized(5, 2)):
            for number, each in enumerate(log_of(200)):
                if number < 100:
                    await log.append(each)
            for times_ms in (some, none):
                began_s = time.perf_counter()
                await made(raw, place, ROLES[name])
                times_ms.append((time.perf_counter() - began_s) * 1e3)
        found.results[f"{name}: 100 commits more"] = summary(some)
        found.results[f"{name}: nothing new"] = summary(none)


def main() -> int:
    """Measure and report."""
    found, folder = Findings(), Path(tempfile.mkdtemp(prefix="hansard-bench-"))
    try:
        say("making tables in turns")
        asyncio.run(measure(found, folder))
    finally:
        shutil.rmtree(folder)
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
