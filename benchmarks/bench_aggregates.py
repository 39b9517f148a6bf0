"""What does a save of a program's own aggregate cost against plain steps, and rebuilding one of
1,000 events, with the eventsourcing library's snapshots and without?

On a strict server, in turns, one agent: a step with an effect, a save of an aggregate with one
event, one after the other, and an update of shared state. A step with an effect is two commits, one
after the other; a save is two in one atomic batch, as an update of shared state is. Then
`session.get` of an aggregate of 1,000 events in as many commits (they are read and applied, and
that it was read is recorded), the same by an application's repository, and by its repository with a
snapshot at the newest version but ten; against SQLite's recorder of the library, in process.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

import hansard
from benchmarks import _world
from benchmarks._report import Findings, measure, sized, summary
from hansard.client.record import Record

EVENTS = 1_000
AFTER_SNAPSHOT = 10


class Account(Aggregate):
    """Aggregate that is measured."""

    @event("Opened")
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = Decimal(0)

    @event("Credited")
    def credit(self, amount: Decimal) -> None:
        """One event."""
        self.balance += amount


hansard.aggregate_type(
    Account,
    name="account",
    events={"account-opened.v1": "Opened", "account-credited.v1": "Credited"},
)


class Accounts(Application[UUID]):
    """The library's way to them."""

    is_snapshotting_enabled = True


def saves(record: Record, found: Findings) -> None:
    """Measure a step, a save, and both, in turns."""
    rounds = sized(400, 8)
    times: dict[str, list[float]] = {"step": [], "save": [], "step and save": [], "board": []}
    with record.run("bench", agent="a", role="r") as session:

        @session.tool(effects="idempotent")
        def act(number: int) -> int:
            return number

        account = Account("a")
        session.save(account)

        def save() -> None:
            account.credit(Decimal(1))
            session.save(account)

        def both(number: int) -> None:
            act(-number)
            save()

        works: dict[str, Callable[[int], object]] = {
            "step": act,
            "save": lambda _: save(),
            "step and save": both,
            "board": lambda number: session.board.put("key", number),
        }
        for number in range(1, rounds + 1):
            for name, work in works.items():
                begin = time.perf_counter()
                work(number)
                times[name].append((time.perf_counter() - begin) * 1_000)
    for name, taken in times.items():
        found.results[name] = summary(taken[rounds // 10 :])
    found.ratios["save / step"] = median(times["save"]) / median(times["step"])
    found.ratios["save / update of shared state"] = median(times["save"]) / median(times["board"])
    found.ratios["step and save / step"] = median(times["step and save"]) / median(times["step"])


def filled(app: Application[UUID], events: int) -> UUID:
    """Save an account of so many events, each alone, in as many commits; return its id."""
    account = Account("rebuilt")
    app.save(account)
    while account.version < events:
        account.credit(Decimal(1))
        app.save(account)
    return account.id


def rebuilds(record: Record, found: Findings) -> None:
    """One of 1,000 events, in each way."""
    events, rounds = sized(EVENTS, 50), sized(30, 2)
    with tempfile.TemporaryDirectory() as folder:
        env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": f"{folder}/db"}
        with record.application(Accounts) as native, Accounts(env=env) as sqlite:
            ours, theirs = filled(native, events), filled(sqlite, events)
            with record.run("bench", agent="a", role="r") as session:

                def get() -> None:
                    assert session.get(Account, ours).version == events

                def by(app: Application[UUID], named: UUID) -> Callable[[], None]:
                    def rebuild() -> None:
                        account: Any = app.repository.get(named)
                        assert account.version == events

                    return rebuild

                ways = {"session.get": get, "repository": by(native, ours)}
                ways["SQLite's repository"] = by(sqlite, theirs)
                for name, rebuild in ways.items():
                    found.results[f"{name}, {events:,} events"] = measure(rebuild, rounds)
                for app, named in ((native, ours), (sqlite, theirs)):
                    app.take_snapshot(named, version=events - AFTER_SNAPSHOT)
                for name in ("repository", "SQLite's repository"):
                    took = measure(ways[name], rounds)
                    found.results[f"{name}, from a snapshot"] = took
    told = {name: each.median_ms for name, each in found.results.items() if "," in name}
    whole = f", {events:,} events"
    found.ratios["session.get / SQLite's repository"] = (
        told[f"session.get{whole}"] / told[f"SQLite's repository{whole}"]
    )
    found.ratios["repository / SQLite's repository"] = (
        told[f"repository{whole}"] / told[f"SQLite's repository{whole}"]
    )
    found.ratios["repository: all events / from a snapshot"] = (
        told[f"repository{whole}"] / told["repository, from a snapshot"]
    )


def measured(folder: Path) -> Findings:
    """All of it on one server."""
    found = Findings()
    with hansard.connect("bench", data_dir=folder) as record:
        saves(record, found)
        rebuilds(record, found)
    return found


async def run() -> Findings:
    """On a server of its own."""
    async with _world.world("strict") as place:
        return await asyncio.to_thread(measured, place.folder)


def main() -> int:
    """Measure and report."""
    asyncio.run(run()).emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
