"""Regions: one home of a workspace, and copies of its log behind leaf connections.

Each region is a server or cluster with a JetStream domain of its own. A copy of a generation is a
mirror, which keeps the positions; what is published in a region without the stream's subjects goes
over the leaf connection to the home. A promotion seals the copy of the open generation and opens
the next one, whose first position is one after the cut. What the former home accepted beyond the
cut stays in its own sealed generation, where no reader takes it for a part of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, BusError, NotFound, Unreachable
from hansard.bus.jetstream import streams
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct, api, replicas_of
from hansard.bus.jetstream.generations import HOME, PROMOTED, Survey, survey
from hansard.bus.jetstream.roll import list_archived
from hansard.bus.reads import is_stream
from hansard.domain.errors import CallerError
from hansard.domain.ids import run_of

HOME_S = 2.0
"""Longest wait for the home's answer when its position is looked up, in seconds."""

ROLLS_MAX = 5
"""Most rolls of a home while it is sealed."""

CAUGHT_UP_S = 30.0
CAUGHT_UP_POLL_S = 0.05
"""Longest wait until a copy has all that its sealed home accepted, and its interval, in seconds."""

LOST_NAME_MAX = 24
"""Most characters of a workspace's name before "-lost-" and a position of up to ten digits."""

LOST_PAGE = 1_000
"""Commits beyond the cut that are read at once."""

_NS = 1_000_000_000


class Lag(msgspec.Struct, frozen=True):
    """How far a copy is: `position`, and the newest one of its home, None if that does not answer.

    `heard_s` is the time since it heard from the home, in seconds, None if it never did;
    `announced` counts commits that the home announced and that have not arrived. `promoting` is the
    region whose promotion was interrupted: until it is promoted again, no region accepts commits.
    """

    home: str
    position: int
    newest: int | None
    heard_s: float | None
    announced: int
    promoting: str = ""

    def __str__(self) -> str:
        if self.promoting:
            return f"position {self.position:,}, {_interrupted(self.promoting)}"
        heard = f"last heard {self.heard_s:.1f} s ago" if self.heard_s is not None else "not copied"
        ahead = f"{max(0, self.newest - self.position):,} ahead" if self.newest is not None else ""
        return f"position {self.position:,}, home {self.home!r} {ahead or 'not answering'}, {heard}"


class Lost(msgspec.Struct, frozen=True):
    """What a former home accepted beyond position `cut`: the numbers of commits by run, and by
    stream for those that outlive runs. `workspace` is the one that receives the runs.
    """

    region: str
    workspace: str
    cut: int
    runs: dict[str, int]
    streams: dict[str, int]


async def find_domain(broker: Broker) -> str:
    """Return the JetStream domain of a server; "" if it has none."""
    return broker.options.domain or str((await api(broker, "INFO")).get("domain") or "")


async def domain_of(broker: Broker) -> str:
    """Return the JetStream domain of a server. Raises CallerError if it has none."""
    domain = await find_domain(broker)
    if not domain:
        raise CallerError(
            f"the server at {broker.url} has no JetStream domain: set 'domain' in its block "
            "'jetstream', another one in each region, and connect the regions as leaf nodes"
        )
    return domain


async def lag(here: Broker, workspace: str) -> Lag | None:
    """Return how far a region's copy of a workspace is; None if it is no copy."""
    at, newest, promoting = await survey(Direct(here), workspace), None, ""
    if not at.home:
        return None
    with contextlib.suppress(BusError, TimeoutError):
        async with asyncio.timeout(HOME_S):
            there = await Broker.open(here.options.in_region(at.home))
            try:
                other = await survey(Direct(there), workspace)
                newest = other.whole.extent.last
                promoting = _promoting(at, await domain_of(here), other, at.home)
            finally:
                await there.close()
    mirror = at.streams[-1].info.get("mirror") or {}
    heard_s = mirror["active"] / _NS if mirror.get("active", -1) >= 0 else None
    return Lag(at.home, at.whole.extent.last, newest, heard_s, mirror.get("lag", 0), promoting)


def _promoting(at: Survey, mine: str, other: Survey, theirs: str) -> str:
    """Return the region that was being promoted if each of two names the other one as the home."""
    if at.home != theirs or other.home != mine:
        return ""
    return mine if at.streams[-1].is_copy else theirs


def _interrupted(region: str) -> str:
    return (
        f"the promotion of region {region!r} was interrupted, and no region accepts commits: run "
        "'hansard region promote' there again"
    )


async def follow(
    here: Broker, there: Broker, workspace: str, replicas: int | None = None
) -> Lost | None:
    """Do the next step of following the region `there`; it may be repeated at any time.

    A copy gets the generations that it lacks. A former home is sealed, which may be either region;
    then return what the other one lacks. It becomes a copy by `copy`.

    Raises NotFound, CallerError (two logs that are not one), BrokerError, NoAnswer, Unreachable.
    """
    mine, theirs = await domain_of(here), await domain_of(there)
    at, other = await survey(Direct(here), workspace), await survey(Direct(there), workspace)
    if at.missing is not None and not at.streams:
        name = subjects.tiers_stream(workspace)
        raise CallerError(
            f"region {mine!r} lists generation {at.missing.number} of its own log of workspace "
            f"{workspace!r}, and has no stream of it: restore it with 'hansard tiers roll', or if "
            f"its streams were deleted, delete the list too: nats stream rm {name}"
        )
    if not other.streams:
        raise NotFound(f"workspace {workspace!r} in region {theirs!r}", "name its home")
    promoting = _promoting(at, mine, other, theirs)
    if promoting:
        raise BrokerError(f"following {theirs!r}", 0, _interrupted(promoting))
    if not at.streams or at.streams[-1].is_copy:
        await copy(here, there, workspace, replicas)
        return None
    if other.streams[-1].is_copy:
        return None
    first, its_first = _promoted(at, theirs), _promoted(other, mine)
    if first == its_first:
        raise CallerError(
            f"workspace {workspace!r} has a log of its own in region {mine!r} and in {theirs!r}, "
            "and neither was promoted over the other: choose another workspace"
        )
    if first > its_first:
        await _set(here, streams.blob_config(workspace))  # a step during the promotion may undo it
        return await _lost(there, here, workspace, other, at, first)
    return await _lost(here, there, workspace, at, other, its_first)


def _promoted(at: Survey, over: str) -> int:
    """Return the number of the first generation of a promotion over another region; 0 if none."""
    region, _, number = at.streams[-1].metadata.get(PROMOTED, "").rpartition(" ")
    return int(number) if region == over else 0


async def copy(here: Broker, there: Broker, workspace: str, replicas: int | None = None) -> None:
    """Copy the generations of a home that this region lacks, each once the one before it is whole.
    Raises CallerError if it follows another region.
    """
    direct, home = Direct(here), await domain_of(there)
    at, other = await survey(direct, workspace), await survey(Direct(there), workspace)
    if at.home not in ("", home):
        raise CallerError(f"workspace {workspace!r} follows region {at.home!r}: name that one")
    if at.streams and replicas is None:
        replicas = replicas_of(at.streams[-1].info)
    blobs, snapshots = streams.copied_configs(workspace, home, await domain_of(here))
    await _set(here, blobs, replicas)
    await _set(here, snapshots, replicas, emptied=True)
    for each in at.streams[:-1]:
        if each.is_copy:
            await here.send(subjects.rolled(workspace), b"")
            await streams.seal_copy(here, workspace, each, {})
    known = {each.number for each in at.streams} | {each.generation for each in at.archived}
    on_server = {each.number for each in other.streams}
    for entry in other.archived:
        if entry.generation not in known | on_server:
            await list_archived(here, workspace, entry, replicas or 1)
    end = (await survey(direct, workspace)).whole.extent.last
    for each in other.streams:
        is_due = end >= each.first - 1 and (each.last >= each.first or end == 0)
        if is_due and each.number not in known:
            config = streams.generation_config(workspace, each.number, each.first)
            await streams.create(here, streams.copied_config(config, home), replicas)


async def _set(
    broker: Broker, config: dict[str, Any], replicas: int | None = None, *, emptied: bool = False
) -> None:
    """Create a stream, or give it other subjects and sources. Snapshots are `emptied`, since those
    of commits beyond a cut would be wrong.
    """
    name, keys = config["name"], ("subjects", "sources")
    existing = await streams.config_of(broker, name)
    if existing is not None and all(existing.get(key) == config.get(key) for key in keys):
        return
    if existing is not None and emptied:
        replicas = replicas or existing.get("num_replicas")
        await api(broker, f"STREAM.DELETE.{name}")
    if existing is None or emptied:
        await streams.create(broker, config, replicas)
    else:
        rest = {key: value for key, value in existing.items() if key not in keys}
        await api(broker, f"STREAM.UPDATE.{name}", rest | config)


async def _lost(
    former: Broker, home: Broker, workspace: str, at: Survey, other: Survey, first: int
) -> Lost:
    """Seal a former home, and return what it holds beyond the cut; `other` are the generations of
    the home, `first` is that of its promotion.
    """
    region, new = await domain_of(former), await domain_of(home)
    firsts = {each.generation: each.first for each in other.archived}
    cut = (firsts | {each.number: each.first for each in other.streams})[first] - 1
    newest = (await _sealed(former, workspace, at, new)).streams[-1]
    if newest.number != first - 1 or newest.last < cut:
        raise CallerError(
            f"region {region!r} is sealed in generation {newest.number} at {newest.last:,}, and no "
            f"copy of {new!r}, promoted in generation {first} after {cut:,}: export its runs, "
            f"delete its streams of workspace {workspace!r}, {subjects.tiers_stream(workspace)!r} "
            "among them, and follow again"
        )
    runs, others, position, direct = Counter[str](), Counter[str](), cut, Direct(former)
    while position < newest.last:
        messages = await direct.following(newest.stream, position + 1, LOST_PAGE)
        for stream in (each.screened().stream for each in messages if is_stream(each.subject)):
            run = run_of(stream)
            (others if run is None else runs)[run or str(stream)] += 1
        position = messages[-1].position if messages else newest.last
    name = f"{workspace[:LOST_NAME_MAX]}-lost-{cut}"
    return Lost(region, name, cut, runs, others)


async def _sealed(former: Broker, workspace: str, at: Survey, home: str) -> Survey:
    """Seal a former home for another one, and return its generations."""
    for _ in range(ROLLS_MAX):
        newest = at.streams[-1]
        if newest.is_sealed and newest.home == home:
            return at
        if not await streams.seal(former, workspace, newest, {HOME: home}):
            raise BrokerError(f"sealing {newest.stream!r}", 0, "a server of it is away: start it")
        at = await survey(Direct(former), workspace)
    raise BrokerError(f"sealing {workspace!r}", 0, "it was rolled each time: try again")


async def promote(here: Broker, workspace: str, there: Broker | None) -> int:
    """Make a region the home; return the cut: the last position of the log so far.

    `there` is the home so far, which is sealed first, and nothing is lost; None if it does not
    answer. May be repeated after any kill. Raises CallerError, BrokerError, NoAnswer, Unreachable.
    """
    mine = await domain_of(here)
    at = await survey(Direct(here), workspace)
    newest = at.streams[-1] if at.streams else None
    if newest is None or not (newest.is_copy or (newest.is_sealed and not newest.home)):
        raise CallerError(f"region {mine!r} has no copy of workspace {workspace!r} to promote")
    if newest.is_copy:
        number = newest.number + 1
        if there is not None:
            other = await survey(Direct(there), workspace)
            if not other.home:  # finish a roll, whose process would open another generation there
                other = await streams.open_next(there, workspace)
            former = (await _sealed(there, workspace, other, mine)).streams[-1]
            number = former.number + 1  # an empty one is not copied, and keeps its number
            until_s = time.monotonic() + CAUGHT_UP_S
            while newest.last < former.last:
                if time.monotonic() >= until_s:
                    why = f"position {former.last:,} did not arrive in {CAUGHT_UP_S:.0f} s"
                    raise Unreachable(there.url, f"{why}: promote again")
                await asyncio.sleep(CAUGHT_UP_POLL_S)
                await copy(here, there, workspace)
                newest = (await survey(Direct(here), workspace)).streams[-1]
        await _set(here, streams.blob_config(workspace))
        await _set(here, streams.snapshot_config(workspace), emptied=True)
        promoted = f"{newest.home} {number}"
        await streams.seal_copy(here, workspace, newest, {PROMOTED: promoted})
    await here.send(subjects.rolled(workspace), mine.encode())
    return (await streams.open_next(here, workspace)).streams[-1].first - 1
