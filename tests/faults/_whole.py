"""The whole log of a workspace, read again, and the laws that it must keep."""

from __future__ import annotations

import asyncio
import collections

import hansard
from hansard.bus.log import Stored
from tests.faults._broker import Reachable


def whole_log(server: Reachable, workspace: str) -> list[Stored]:
    """Return every commit of a workspace in order, over a separate connection."""
    return asyncio.run(_read(server, workspace))


async def _read(server: Reachable, workspace: str) -> list[Stored]:
    async with hansard.connect_async(workspace=workspace, **server.login) as record:
        log = record.workspace.log
        return [stored async for stored in log.follow(0, until=await log.head())]


def holes(commits: list[Stored]) -> list[str]:
    """Streams whose versions are not 1, 2, 3 ... in the order of positions."""
    following: collections.Counter[str] = collections.Counter()
    gaps = []
    for stored in commits:
        name = repr(stored.stream)
        if stored.commit.version != following[name] + 1:
            gaps.append(f"{name}: {stored.commit.version} follows {following[name]}")
        following[name] = stored.commit.last_version
    return gaps


def repeats(commits: list[Stored]) -> list[str]:
    """Ids of commits and events that stand in the log more than once."""
    ids = collections.Counter(stored.commit.id for stored in commits)
    ids.update(event.id for stored in commits for event in stored.commit.events)
    return [name for name, count in ids.items() if count > 1]


def torn(commits: list[Stored]) -> list[str]:
    """Transactions of which not every commit is there, in order and at neighbouring positions."""
    parts: dict[str, list[tuple[int, int, int]]] = {}
    for stored in commits:
        if stored.commit.tx is not None:
            tx = stored.commit.tx
            parts.setdefault(tx.id, []).append((tx.index, stored.position, tx.count))
    return [
        name
        for name, places in parts.items()
        if places != [(i, places[0][1] + i, places[0][2]) for i in range(places[0][2])]
    ]
