"""Points: the many ways to say up to where a run is to be rebuilt.

None                 the newest
1234                 a position
1234.2               an event's address: the end of the commit at its position
researcher_1@12      a version of an agent's stream (or life@3)
researcher_1#8       a step: where its outcome was recorded, or its intent while it has none
2026-11-21T10:00Z    a time; the log's own time of each commit decides
a UUID               a commit, event or snapshot of the run
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from typing import Any

from hansard.bus.codec import revive
from hansard.bus.commits import whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.bus.states.replay import RunView, States
from hansard.domain.errors import BadName
from hansard.domain.ids import AgentStream, run_of
from hansard.domain.run import RunState
from hansard.domain.snapshot import snapshot_id

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")
_STEP = re.compile(r"(.+)#([0-9]{1,18})")

_REMEDY = (
    "give a position (1234), an event's address (1234.2), a step (researcher_1#8), agent@version "
    "(researcher_1@12), life@version, a time (2026-11-21T10:00:00Z), or the id of a commit, event "
    "or snapshot"
)


class Points:
    """Turns points into reads."""

    def __init__(self, states: States) -> None:
        self._states = states

    async def view(self, run: str, at: object = None) -> RunView:
        """A run at a point. Raises NotFound, BadName."""
        return await self._states.run(run, await self.up_to(run, at))

    async def vector(self, run: str, at: object = None) -> tuple[RunState, dict[str, int]]:
        """A run's life and its streams' versions at a point. Raises NotFound, BadName."""
        return await self._states.vector(run, await self.up_to(run, at))

    async def up_to(self, run: str, at: object) -> UpTo:
        """Where a read of a run ends. Raises NotFound, BadName."""
        match at:
            case None:
                return None
            case bool():
                raise BadName("point", at, _REMEDY)
            case int():
                return AtPosition(at)
            case datetime():
                return at_time(at)
            case AtPosition() | AtTime():
                return at
            case str():
                return await self._text(run, at.strip())
            case _:
                raise BadName("point", at, _REMEDY)

    async def _text(self, run: str, text: str) -> UpTo:
        if text.isascii() and text.isdigit():
            return AtPosition(int(text))
        if _ADDRESS.fullmatch(text):
            return AtPosition(whole_at((await self._event(run, text))[0]))
        if step := _STEP.fullmatch(text):
            return await self._step(run, step[1], int(step[2]))
        if _UUID.fullmatch(text.lower()):
            return await self._id(run, text.lower())
        stream, at, version = text.rpartition("@")
        if at and version.isascii() and version.isdigit():
            return await self._version(run, stream, int(version))
        try:
            return at_time(datetime.fromisoformat(text))
        except ValueError:
            raise BadName("point", text, _REMEDY) from None

    async def step_name(self, run: str, text: str) -> str:
        """Return `agent#number` for the address of one of a step's events; any other text as it is.
        Raises NotFound.
        """
        if not _ADDRESS.fullmatch(text):
            return text
        stored, version = await self._event(run, text)
        recorded = stored.commit.events[version - stored.commit.version]
        if isinstance(stored.stream, AgentStream) and recorded.type.startswith("step."):
            event: Any = revive(recorded)
            return f"{stored.stream.agent}#{event.step}"
        raise NotFound(f"a step at {text} ({recorded.type})", "see 'hansard run trace'")

    async def _event(self, run: str, address: str) -> tuple[Stored, int]:
        """The commit of the event at `position.index`, and the event's version in its stream. Reads
        that commit alone, unless it is of another run: a fork has commits of its parents.
        """
        position, index = (int(part) for part in address.split("."))
        remedy = "see 'hansard trail'"
        commits: list[Stored] = []
        with contextlib.suppress(NotFound):
            commits = [await self._states.log.at(position)]
        other = run_of(commits[0].stream) if commits else None
        if other != run:
            remedy = f"{address} is in run {other}" if other else remedy
            commits = await self._states.history(run)
        for stored in commits:
            if stored.position == position and index < len(stored.commit.events):
                return stored, stored.commit.version + index
        raise NotFound(f"an event at {address} in run {run}", remedy)

    async def _step(self, run: str, agent: str, number: int) -> AtPosition:
        life = await self._states.life(run)
        if agent in life.roster:
            state = await self._states.agent(AgentStream(run, life.roster[agent], agent))
            if number in state.steps:
                step = state.steps[number]
                return await self._version(run, agent, step.outcome_version or step.version)
        raise NotFound(f"step {number} of {agent!r} in run {run}", "see 'hansard run trace'")

    async def _version(self, run: str, name: str, version: int) -> AtPosition:
        life = await self._states.life(run)
        if name in life.roster:
            stream = AgentStream(run, life.roster[name], name)
            position = await self._states.position_of(stream, version) if version else None
            if position is not None:
                return AtPosition(position)
        else:
            for stored in await self._states.history(run):
                last = stored.commit.last_version
                if str(stored.stream) == name and stored.commit.version <= version <= last:
                    return AtPosition(whole_at(stored))
        raise NotFound(f"version {version} of {name!r} in run {run}", _REMEDY)

    async def history(self, run: str, at: object) -> tuple[UpTo, list[Stored] | None]:
        """Where a read of a run ends, and its commits up to there where these had to be read to
        find it: an id stands in no index. Raises NotFound, BadName.
        """
        wanted = at.strip().lower() if isinstance(at, str) else ""
        if not _UUID.fullmatch(wanted):
            return await self.up_to(run, at), None
        commits = await self._states.history(run)
        up_to = _of_id(run, wanted, commits)
        return up_to, [stored for stored in commits if stored.position <= up_to.position]

    async def _id(self, run: str, wanted: str) -> AtPosition:
        return _of_id(run, wanted, await self._states.history(run))


def _of_id(run: str, wanted: str, commits: list[Stored]) -> AtPosition:
    for stored in commits:
        if wanted in (stored.commit.id, *(event.id for event in stored.commit.events)):
            return AtPosition(whole_at(stored))
    for stored in commits:
        if snapshot_version(stored, wanted) is not None:
            return AtPosition(whole_at(stored))
    raise NotFound(f"a commit, event or snapshot {wanted} in run {run}", _REMEDY)


def snapshot_version(stored: Stored, wanted: str) -> int | None:
    """The version in an agent's commit whose snapshot has this id; None where none has."""
    stream = stored.stream
    if not isinstance(stream, AgentStream):
        return None
    versions = range(stored.commit.version, stored.commit.last_version + 1)
    return next((each for each in versions if snapshot_id(stream, each) == wanted), None)


def at_time(moment: datetime) -> AtTime:
    """To the end of the microsecond: the log counts ns, and shows its times cut to microseconds."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = delta.days * 86_400 + delta.seconds
    return AtTime(seconds * 1_000_000_000 + delta.microseconds * 1_000 + 999)
