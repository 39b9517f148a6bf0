"""Aggregates of a program's own in the log: their changes up to a point.

Only the program's own classes can fold them: see `hansard.domain.aggregate_types`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from hansard.bus.commits import drive_fetch, revive, whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import Blobs, EventLog, Stored, UpTo
from hansard.domain import payload
from hansard.domain.aggregate_types import KIND, AggregateChanged, Change, stream_of
from hansard.domain.errors import BadName, Corrupt
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label, join
from hansard.domain.memory.files import KIND as MEMORY
from hansard.domain.values import Plain
from hansard.state.replay import check_reached, parsed_point

OTHERS_EVERY = 50
"""Changes after which other tasks of the loop get to run."""

_VERSION = re.compile(r"@\d{1,15}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REMEDY = (
    "give a version ('@3'), a position (1234), a time (2026-11-21T10:00:00Z), or the id of a "
    "commit or event of it"
)


class History(msgspec.Struct, frozen=True):
    """History of an aggregate up to a point: its changes, its version after them, the join of their
    labels, and the author of the newest.
    """

    changes: list[Change]
    version: int
    label: Label | None
    author: str


async def history(
    log: EventLog, blobs: Blobs, aggregate_id: UUID | str, *, after: int = 0, at: object = None
) -> History:
    """Return the changes of an aggregate after a version, up to a point or now. Costs one read, and
    one for each large payload. Raises BadName, NotFound for a missing point, Corrupt.
    """
    stream = stream_of(aggregate_id)
    to, up_to, point_id = point_in(at)
    await check_reached(log, up_to)
    commits = await log.read(stream, after=after, to=to, up_to=up_to)
    if point_id:
        commits = commits_until(commits, point_id, f"aggregate {aggregate_id}")
    changes = [
        await _change(blobs, stored, version, index)
        for index, (stored, version) in enumerate(_versions(commits, to))
    ]
    return History(
        changes,
        changes[-1].version if changes else after,
        join(*(stored.commit.label for stored in commits)).stored,
        commits[-1].commit.actor.agent if commits else "",
    )


async def since(
    log: EventLog, blobs: Blobs, aggregate_id: UUID | str, after: int, to: int | None
) -> list[Change]:
    """Return the changes of an aggregate after any version, up to another. Reads only what follows
    it if it is the end of a commit, or if the newest commit has all of it; else the whole stream.
    """
    commits = await _since(log, stream_of(aggregate_id), after, to)
    return [
        await _change(blobs, stored, version, index)
        for index, (stored, version) in enumerate(_versions(commits, to))
        if version > after
    ]


async def _since(
    log: EventLog, stream: WorkspaceStream, after: int, to: int | None
) -> list[Stored]:
    if not after:
        return await log.read(stream, to=to)
    last = await log.last(stream)
    if last is None or last.commit.last_version <= after:
        return []
    if last.commit.version <= after + 1:
        return [last]
    try:
        commits = await log.read(stream, after=after, to=to)
    except Corrupt:  # the version is inside a commit
        commits = []
    return commits or await log.read(stream, to=to)


async def commits_of_steps(log: EventLog, history: Sequence[Stored]) -> list[Stored]:
    """Return the commits that a run's steps made to aggregates and memory: those outside of runs in
    one transaction with a commit of the run's history. Costs one read each.
    """
    known = {stored.position for stored in history}
    targets: set[int] = set()
    for stored in history:
        tx = stored.commit.tx
        if tx is not None:
            first = stored.position - tx.index
            targets.update(range(first, first + tx.count))
    commits: list[Stored] = []
    for position in sorted(targets - known):
        other = await log.at(position)
        if isinstance(other.stream, WorkspaceStream) and other.stream.kind in (KIND, MEMORY):
            commits.append(other)
    return commits


def _versions(commits: list[Stored], to: int | None) -> list[tuple[Stored, int]]:
    return [
        (stored, version)
        for stored in commits
        for version in range(stored.commit.version, stored.commit.last_version + 1)
        if to is None or version <= to
    ]


async def _change(blobs: Blobs, stored: Stored, version: int, index: int) -> Change:
    if index % OTHERS_EVERY == OTHERS_EVERY - 1:
        await asyncio.sleep(0)
    event = revive(stored.commit.events[version - stored.commit.version])
    if not isinstance(event, AggregateChanged):
        return Change(stored.position, version, None)
    return Change(stored.position, version, event, await in_full(blobs, event.state))


async def in_full(blobs: Blobs, raw: msgspec.Raw) -> Plain:
    """Return a recorded payload, with large ones fetched."""
    whole: Plain = await drive_fetch(payload.unpack(raw), blobs.get)
    return whole


def point_in(at: object) -> tuple[int | None, UpTo, str]:
    """Parse a point of one stream: a version, the end of a read of the log, or an id to search for.

    Raises BadName.
    """
    point = parsed_point(at, _REMEDY)
    if not isinstance(point, str):
        return None, point, ""
    if _VERSION.fullmatch(point):
        return int(point[1:]), None, ""
    if _UUID.fullmatch(point.lower()):
        return None, None, point.lower()
    raise BadName("point", point, _REMEDY)


def commits_until(commits: list[Stored], target: str, what: str) -> list[Stored]:
    """Return the commits of a stream up to the one with this id, or with this event. Raises
    NotFound.
    """
    for stored in commits:
        if target in (stored.commit.id, *(event.id for event in stored.commit.events)):
            end = whole_at(stored)
            return [each for each in commits if each.position <= end]
    raise NotFound(f"a commit or event {target} of {what}", _REMEDY)


def changes_in_short(changes: list[Change]) -> list[Any]:
    """Return the changes in short: each tag with its state, without the time."""
    return [
        [change.event.event, without_time(change.state)]
        for change in changes
        if change.event is not None
    ]


def without_time(state: Plain) -> Plain:
    """Return a state without the time at which its program made the event."""
    return {name: value for name, value in state.items() if name != "timestamp"}
