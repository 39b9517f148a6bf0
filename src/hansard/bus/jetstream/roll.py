"""Rolling a log: seal its open generation and open the next; archive sealed ones and delete them.

Each step may be repeated, and is finished by whichever process finds it half done: any writer with
the rights of an administrator, `hansard up`, or 'hansard tiers roll'. The order is close, seal,
notice, create; and for each sealed generation, oldest first: store, verify, list, delete.
"""

from __future__ import annotations

import datetime as dt
import time

import msgspec

from hansard.bus import subjects
from hansard.bus.archive import archive_at
from hansard.bus.errors import BrokerError, NotFound
from hansard.bus.jetstream import streams
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import (
    LEASE_S,
    STREAM_NOT_FOUND,
    Direct,
    api,
    replicas_of,
    silent_of,
)
from hansard.bus.jetstream.generations import Generation, SealedStream, Survey, survey
from hansard.bus.loggers import logger
from hansard.bus.marks import Extent, Witness
from hansard.bus.sources import Archive, Archived
from hansard.domain.errors import Corrupt

KEEP_S = 600.0
"""Least age of the next generation when a sealed one is deleted, in seconds. A server closes the
connection of a suspended process within 6 minutes (its `ping_interval` and `ping_max`), so that no
request to create a generation is older than that.
"""

_log = logger(__name__)


class Roll(msgspec.Struct, frozen=True):
    """The open generation after a roll: its number and first position. `sealed`: one was sealed for
    it, which accepted no commit for `waited_s` seconds.
    """

    workspace: str
    generation: int
    first: int
    sealed: bool
    waited_s: float = 0.0


class Policy(msgspec.Struct, frozen=True):
    """When the open generation is rolled: once it has so many commits, or is so old while it has
    any; None for never.
    """

    commits: int | None = None
    age_s: float | None = None

    def is_due(self, generation: Generation) -> bool:
        """Return whether the open generation is to be rolled now."""
        messages = int(generation.info["state"]["messages"])
        if not messages:
            return False
        age_s = _now(generation) - _time(generation.info["created"])
        return (self.commits is not None and messages >= self.commits) or (
            self.age_s is not None and age_s >= self.age_s
        )


async def roll(admin: Broker, workspace: str, policy: Policy | None = None) -> Roll:
    """Seal the open generation and open the next, or finish a roll that was interrupted; return
    the open generation. An empty one is not sealed, nor one that is not due by the policy.

    Raises NotFound, BrokerError, NoAnswer, Unreachable.
    """
    at = await survey(Direct(admin), workspace)
    if (at.archived or at.missing) and not at.streams:
        at = await streams.ensure(admin, workspace)
    if not at.streams:
        raise NotFound(f"workspace {workspace!r}", "'hansard status' lists the workspaces")
    streams.demand_home(workspace, at)
    newest, began, sealed = at.streams[-1], time.monotonic(), False
    if not newest.is_sealed and newest.last >= newest.first:
        sealed = newest.is_closed or policy is None or policy.is_due(newest)
        if sealed:
            late = [] if newest.is_closed else silent_of(newest.info, LEASE_S)
            if late or not await streams.seal(admin, workspace, newest):
                servers = f"server {', '.join(late)}" if late else "a server"
                fact = f"{servers} does not follow it: start it, or remove it from the stream"
                raise BrokerError(f"rolling {newest.stream!r}", 0, fact)
    if sealed or newest.is_closed:
        at = await streams.open_next(admin, workspace)
    waited_s = time.monotonic() - began if sealed else 0.0
    if sealed:
        _log.info("log rolled", workspace=workspace, generation=at.streams[-1].number)
    newest = at.streams[-1]
    return Roll(workspace, newest.number, newest.first, sealed, waited_s)


async def store_sealed(admin: Broker, workspace: str, archive: Archive) -> list[Archived]:
    """Store the sealed generations that the archive does not have, and list them; return those.

    Raises ArchiveUnavailable and Corrupt, also if the archive lacks what the list has there, and
    then keeps the streams.
    """
    direct, new = Direct(admin), list[Archived]()
    at = await survey(direct, workspace)
    known = {each.generation for each in at.archived}
    for generation in _closed(at):
        if generation.number in known:
            continue
        if not new:
            await archive.demand_stored(at.archived)
        source = SealedStream(direct, generation)
        entry = await archive.store(generation.number, source)
        _compare(generation, entry)
        await list_archived(admin, workspace, entry, replicas_of(generation.info))
        new.append(entry)
        _log.info("generation archived", workspace=workspace, generation=generation.number)
    return new


async def delete_archived(
    admin: Broker, workspace: str, *, keep_s: float = KEEP_S, witness: Witness | None = None
) -> list[int]:
    """Delete the streams of generations that the archive has verified; return their numbers.

    A stream is kept until the next generation is `keep_s` old, and until the embedded broker's mark
    has digested it, since that reads the server alone. Raises ArchiveUnavailable and Corrupt, and
    keeps it, if the archive does not have all objects now that the list has there.
    """
    at = await survey(Direct(admin), workspace)
    known = {each.generation: each for each in at.archived}
    kept = witness.kept(workspace) if witness is not None else None
    deleted: list[int] = []
    for generation, following in zip(at.streams, at.streams[1:], strict=False):
        entry = known.get(generation.number)
        if entry is None or not generation.is_sealed:
            break  # oldest first, so that the archive has the log up to one position
        if _now(following) - _time(following.info["created"]) < keep_s:
            break
        if witness is not None and (
            kept is None or generation.first - 1 <= kept.mark.chained < generation.last
        ):
            break
        _compare(generation, entry)
        await archive_at(workspace, entry.place).demand_stored(at.archived)
        if not generation.number:
            await _guard(admin, workspace, generation)
        try:
            await api(admin, f"STREAM.DELETE.{generation.stream}")
        except BrokerError as error:
            if error.code != STREAM_NOT_FOUND:  # another process deleted it
                raise
        deleted.append(generation.number)
        _log.info("generation deleted", workspace=workspace, generation=generation.number)
    return deleted


async def _guard(admin: Broker, workspace: str, generation: Generation) -> None:
    """Keep the subjects of generation 0 by a stream that is empty and sealed, before it is deleted:
    at no moment may a program of an earlier version make an empty log there.
    """
    name, config = subjects.guard_stream(workspace), streams.guard_config(workspace)
    existing = await streams.config_of(admin, name)
    if existing is None:
        aside = streams.aside_config(workspace, generation.info["config"])
        await api(admin, f"STREAM.UPDATE.{generation.stream}", aside)
        await streams.create(admin, config, replicas_of(generation.info))
    if existing is None or not existing.get("sealed"):
        await api(admin, f"STREAM.UPDATE.{name}", config | {"sealed": True})


def _closed(at: Survey) -> list[Generation]:
    """Return the sealed generations that have a successor."""
    return [each for each in at.streams[:-1] if each.is_sealed]


def _compare(generation: Generation, entry: Archived) -> None:
    """Raise Corrupt unless the archive has what the stream has."""
    extent = Extent.of(generation.info)
    has = (generation.first, extent.last, extent.messages)
    stored = (entry.first, entry.last, entry.messages)
    if has != stored:
        raise Corrupt(
            f"generation {generation.number} in {entry.place}",
            f"the archive has {stored[2]:,} messages at {stored[0]:,} to {stored[1]:,}, and the "
            f"stream {generation.stream!r} has {has[2]:,} at {has[0]:,} to {has[1]:,}; the stream "
            "is kept",
        )


async def list_archived(admin: Broker, workspace: str, entry: Archived, replicas: int) -> None:
    """List a generation as archived, once; the list has as many replicas as the log."""
    await streams.ensure_tiers(admin, workspace, replicas)
    subject = subjects.tiers_subject(workspace, entry.generation)
    body = await streams.list_once(admin, workspace, subject, msgspec.json.encode(entry))
    other = msgspec.json.decode(body, type=Archived)
    if other.chain != entry.chain:
        fact = f"two processes stored it with digests {other.chain} and {entry.chain}"
        raise Corrupt(f"generation {entry.generation} in {entry.place}", fact)


def _now(generation: Generation) -> float:
    """Return the server's time when it reported a generation, in seconds since 1970."""
    return _time(generation.info["ts"]) if "ts" in generation.info else time.time()


def _time(text: str) -> float:
    return dt.datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()


class Tended(msgspec.Struct, frozen=True):
    """Result of one check of a log: the open generation, the generations that were archived, and
    the numbers of those whose streams were deleted; `waiting` are sealed and still on the server.
    """

    roll: Roll
    archived: list[Archived]
    deleted: list[int]
    waiting: list[int]

    def lines(self) -> list[str]:
        """Describe what was done, for people."""
        lines: list[str] = []
        if self.roll.sealed:
            lines.append(
                f"generation {self.roll.generation} begins at position {self.roll.first:,}; no "
                f"commit was accepted for {1000 * self.roll.waited_s:.0f} ms"
            )
        lines += [
            f"generation {each.generation} (positions {each.first:,} to {each.last:,}) is in the "
            f"archive {each.place}"
            for each in self.archived
        ]
        if self.deleted:
            numbers = ", ".join(map(str, self.deleted))
            lines.append(f"generation {numbers} is deleted from the broker")
        return lines


async def tend(
    admin: Broker,
    workspace: str,
    policy: Policy | None,
    archive: Archive | None,
    *,
    keep_s: float = KEEP_S,
    witness: Witness | None = None,
) -> Tended:
    """Roll if it is due, archive what is sealed, and delete the streams that the archive has."""
    rolled = await roll(admin, workspace, policy)
    new = await store_sealed(admin, workspace, archive) if archive is not None else []
    deleted = await delete_archived(admin, workspace, keep_s=keep_s, witness=witness)
    at = await survey(Direct(admin), workspace)
    return Tended(rolled, new, deleted, [each.number for each in _closed(at)])
