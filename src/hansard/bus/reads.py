"""A log's commits as readers get them: those that do not fit replaced, values in full.

A commit is compared with its subject when it is decoded, and with the run's members once those are
known: they are read from the run's life once, and again if a commit names an unknown one. So a
reader of valid streams pays one small read per run. The lives of forks' parents are read together,
one read per generation of forks.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec
from cachetools import LRUCache

from hansard.bus import subjects
from hansard.bus.commits import decode, record, revive
from hansard.bus.log import RawMessage, Stored
from hansard.domain import integrity
from hansard.domain.access import ViewServed
from hansard.domain.agent import SessionBegan
from hansard.domain.decider import TAG, Quarantined
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import (
    AgentStream,
    KeyStream,
    RunStream,
    StreamId,
    WorkspaceStream,
    run_of,
    uuid8,
)
from hansard.domain.integrity import (
    Fold,
    Members,
    MembershipEvent,
    broken,
    fork_of,
    learn,
    membership,
)
from hansard.domain.payload import MARK, PartsLine
from hansard.domain.run import FORK_DEPTH_MAX, RunForked
from hansard.domain.steps import IMPORTER

# The times of events, each with the clock that gave it.
#
# There are three clocks: the log's own, that of the log a copied commit was read from, and the
# source of an imported event. A time is always reported with its clock; times of different clocks
# are never mixed. If the source of an imported event gives no time, only that of the import is
# known.


class Clock(StrEnum):
    """The clock that gave a time."""

    LOG = "log"
    ORIGIN = "origin"
    OCCURRED_AT = "occurred_at"
    IMPORT = "import"


class Time(msgspec.Struct, frozen=True):
    """A time for programs: `at` is None if it is unknown."""

    at: str | None
    clock: Clock


class EventTime(msgspec.Struct, frozen=True):
    """An event's time by its clock: ISO 8601; for `occurred_at` as the source wrote it (without a
    zone if the source gave none).
    """

    at: str
    clock: Clock

    @property
    def moment(self) -> datetime | None:
        """The datetime, in UTC if it has a zone; None if the source's text is no time."""
        try:
            moment = datetime.fromisoformat(self.at)
            return moment.astimezone(UTC) if moment.tzinfo else moment
        except (ValueError, OverflowError):
            return None

    @property
    def is_known(self) -> bool:
        """True if it is the time of the event, not only of its import."""
        return self.clock is not Clock.IMPORT

    @property
    def time(self) -> Time:
        """The time for programs."""
        return Time(self.at if self.is_known else None, self.clock)

    @property
    def kind(self) -> tuple[bool, bool] | None:
        """The kind of time, among kinds that cannot be compared; None if it is not the event's own
        time.
        """
        moment = self.moment if self.is_known else None
        return None if moment is None else (self.clock is Clock.OCCURRED_AT, moment.tzinfo is None)


def earlier(time: EventTime, ms: float) -> EventTime:
    """Return the time `ms` milliseconds before a log's time; a source's or an import's time is
    unchanged.
    """
    moment = time.moment
    if time.clock not in {Clock.LOG, Clock.ORIGIN} or moment is None or not ms:
        return time
    try:
        return EventTime((moment - timedelta(milliseconds=ms)).isoformat(), time.clock)
    except OverflowError:
        return time


def time_of(stored: Stored, recorded: Recorded) -> EventTime:
    """Return the time of an event: its source's, else as `time_stored`."""
    if recorded.occurred_at is not None:
        return EventTime(recorded.occurred_at, Clock.OCCURRED_AT)
    return time_stored(stored)


def time_stored(stored: Stored) -> EventTime:
    """Return the time a commit was stored: in the log it was copied from, else in this one."""
    at = stored.origin.at if stored.origin is not None else stored.time.isoformat()
    if is_imported(stored):
        return EventTime(at, Clock.IMPORT)
    return EventTime(at, Clock.ORIGIN if stored.origin is not None else Clock.LOG)


def is_imported(stored: Stored) -> bool:
    """Return whether an importer wrote a commit, so that log time and writer's clock are the
    import's.

    An importer writes on behalf of another principal; an agent of the same name does not.
    """
    actor = stored.commit.actor
    return actor.agent == IMPORTER and bool(actor.on_behalf_of)


def own(run: str, history: Sequence[Stored]) -> Sequence[Stored]:
    """Return a run's own commits, without those before a fork's cut; all if it has none yet."""
    return [stored for stored in history if run_of(stored.stream) == run] or history


def began(history: Sequence[Stored]) -> EventTime:
    """Return the time of the first commit; of an import the source's first time, if any."""
    return _first(times(history))


def last(history: Sequence[Stored]) -> EventTime:
    """Return the time of the newest commit but views that were served later; of an import the
    source's last time, if any.
    """
    work = (each for each in reversed(history) if each.commit.events[-1].type != ViewServed.tag)
    return _first(
        time_of(stored, recorded)
        for stored in itertools.chain(work, reversed(history))
        for recorded in reversed(stored.commit.events)
    )


def _first(moments: Iterator[EventTime]) -> EventTime:
    first = next(moments)
    if first.is_known:
        return first
    return next((each for each in moments if each.clock is Clock.OCCURRED_AT), first)


def times(history: Iterable[Stored]) -> Iterator[EventTime]:
    """Yield the time of each event, in order."""
    for stored in history:
        for recorded in stored.commit.events:
            yield time_of(stored, recorded)


def imported(moments: Iterable[EventTime]) -> EventTime | None:
    """Return the import time of events whose own times are unknown; None if all are known."""
    return next((each for each in moments if not each.is_known), None)


class Beginning:
    """The beginning of a run, by each kind of clock.

    Times of logs are one kind, a source's with a zone another, without a zone a third; each begins
    with the first event that has it. A fork begins with the run it was forked from.
    """

    def __init__(self, history: Iterable[Stored]) -> None:
        self.first: dict[tuple[bool, bool], EventTime] = {}
        for time in times(history):
            if time.kind is not None:
                self.first.setdefault(time.kind, time)

    def offset_ms(self, time: EventTime) -> float | None:
        """Return the offset from the beginning, in ms; None if the times cannot be compared."""
        key, moment = time.kind, time.moment
        first = self.first[key].moment if key in self.first else None
        if first is None or moment is None:
            return None
        return (moment - first).total_seconds() * 1_000


# The stand-in for a commit that does not fit (`hansard.domain.integrity`).
#
# It keeps the versions and drops the content: see `hansard.domain.decider`. A commit of a newer
# version of Hansard fits, and stops a fold as usual.

NOBODY = "quarantine"
"""Writer of a quarantined commit, as readers see it: the one that it names may not have written it.
"""


class StandIn(Commit, frozen=True, kw_only=True):
    """The replacement that readers get for a commit that does not fit. No body decodes to one."""


def stand_in(subject: str, version: int, count: int, stamp: int, reason: str) -> StandIn:
    """Create a commit of `count` events from `version` on that contains only the reason."""
    event = record(Quarantined(reason=reason), "")
    return StandIn(
        id=uuid8(TAG, subject),
        version=version,
        at=datetime.fromtimestamp(stamp // 1_000_000_000, UTC),
        actor=Actor(NOBODY),
        events=tuple(
            msgspec.structs.replace(event, id=uuid8(TAG, subject, str(index)))
            for index in range(count)
        ),
    )


def replaced(workspace: str, stored: Stored, why: str) -> Stored:
    """Return a commit as read, with a stand-in for its content."""
    commit = stored.commit
    subject = subjects.subject(workspace, stored.stream, commit.version)
    other = stand_in(subject, commit.version, len(commit.events), stored.stamp, why)
    return msgspec.structs.replace(stored, commit=other)


def unchecked(workspace: str, stored: Stored) -> Stored:
    """Return a commit as stored, valid or not, for a copy of the record, whose readers check it
    again. Raises Corrupt if it is no commit.
    """
    if not isinstance(stored.commit, StandIn):
        return stored
    subject = subjects.subject(workspace, stored.stream, stored.commit.version)
    _, commit = decode(subject, stored.body)
    return msgspec.structs.replace(stored, commit=commit)


def under(
    workspace: str, stream: AgentStream, commits: Sequence[Stored], epoch: int
) -> list[Stored]:
    """Return an agent's commits after a state of some epoch, with stand-ins for those of another
    epoch.
    """
    screened: list[Stored] = []
    for stored in commits:
        commit = stored.commit
        why = "" if isinstance(commit, StandIn) else integrity.of_epoch(stream, commit, epoch)
        if not why and any(recorded.type == SessionBegan.tag for recorded in commit.events):
            epoch = commit.epoch
        screened.append(replaced(workspace, stored, why) if why else stored)
    return screened


def read(subject: str, body: bytes, stamp: int) -> tuple[StreamId, Commit]:
    """Decode as `decode` does, with a stand-in for a body that is no commit of its subject. Raises
    Corrupt if the subject is no stream's.
    """
    try:
        stream, commit = decode(subject, body)
    except Corrupt as error:
        stream, version = subjects.parse(subject)
        return stream, stand_in(subject, version, 1, stamp, error.fact)
    return stream, commit


def reason(commit: Commit) -> str:
    """Return why a commit is a stand-in; empty if it is none."""
    if not isinstance(commit, StandIn):
        return ""
    event = revive(commit.events[0])
    return event.reason if isinstance(event, Quarantined) else ""


OTHERS_EVERY = 25
"""Number of commits after which other tasks on the loop run: see `hansard.bus.clock`."""

RUNS_MAX = 1_024
"""Most runs whose members are kept in memory; others are read again."""

LivesOf = Callable[[Sequence[str]], Awaitable[Sequence[Stored]]]
"""Return the commits of some runs' own lives, by position."""

Lives = dict[str, list[Stored]]
"""The commits of runs' own lives by run, each in order."""


def is_stream(subject: str) -> bool:
    """Return whether a subject is that of a stream's commit; others are never read."""
    try:
        subjects.parse(subject)
    except Corrupt:
        return False
    return True


class ReadValidator:
    """Screens what is read of one log."""

    def __init__(self, workspace: str, lives_of: LivesOf) -> None:
        self._workspace = workspace
        self._lives_of = lives_of
        self._members: LRUCache[str, Members] = LRUCache(RUNS_MAX)

    async def sift(self, commits: list[Stored]) -> list[Stored]:
        """Screen the commits of one read, in order: each as it is, or with a stand-in for its
        content.
        """
        named = _parents_of(commits) | (_runs_of_aggregates(commits) - set(self._members))
        reading = _Reading(await self._with_parents(named))
        looked: set[str] = set()  # once per read: an agent missing here is in no life
        sifted: list[Stored] = []
        for index, stored in enumerate(commits, 1):
            if index % OTHERS_EVERY == 0:
                await asyncio.sleep(0)
            stream, commit = stored.stream, stored.commit
            if isinstance(commit, StandIn):
                sifted.append(stored)
                continue
            run = integrity.run_of_commit(stream, commit)
            if run is None:
                why = integrity.misfit(stream, commit) or broken(stream, commit)
            else:
                members = reading.members.get(run)
                if members is None:
                    known = self._members.get(run)
                    members = Members() if known is None else known.anywhere()
                    reading.members[run] = members
                usual = integrity.is_ordinary(stream, commit, members)
                if not usual and run not in looked and _is_new(stored, members):
                    looked.add(run)
                    reading.lives |= await self._with_parents({run} - reading.lives.keys())
                    members.add(reading.past.members(run))
                misfit = "" if usual else integrity.misfit(stream, commit, members)
                why = misfit or broken(stream, commit)
                if not usual and not why:
                    reading.learn(members, stored)
            sifted.append(replaced(self._workspace, stored, why) if why else stored)
        for known_members in (reading.looked_up, reading.members):
            for run, members in known_members.items():
                if members.whole:
                    self._members[run] = members.anywhere()
        return sifted

    async def _with_parents(self, targets: set[str]) -> Lives:
        """Return the lives of some runs, of the runs they were forked from, and so on."""
        lives: Lives = {}
        for _ in range(FORK_DEPTH_MAX):
            if not targets:
                break
            read = await self._lives_of(sorted(targets))
            lives |= {run: [] for run in targets}
            for stored in read:
                lives[run_of(stored.stream) or ""].append(stored)
            targets = _parents_of(read) - lives.keys()
        return lives


class _Reading:
    """The knowledge of one read: `members` from the commits requested, `looked_up` from the lives
    read for it.
    """

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.members: dict[str, Members] = {}
        self.looked_up: dict[str, Members] = {}
        self.past = Fold(self._memberships, self.looked_up)

    def _memberships(self, run: str) -> Iterator[MembershipEvent]:
        for stored in self.lives.get(run, ()):
            stream, commit = stored.stream, stored.commit
            if not integrity.misfit(stream, commit) and not broken(stream, commit):
                yield from membership(stream, commit)

    def learn(self, members: Members, stored: Stored) -> None:
        """Take in the members named by a commit that fits."""
        for item in membership(stored.stream, stored.commit):
            fork = learn(members, item)
            if fork is not None:
                members.take_over(self.past.members(fork.parent), fork.cut)


def _is_new(stored: Stored, members: Members) -> bool:
    """Return whether a commit is of an agent not known to be in the run."""
    stream = stored.stream
    if type(stream) is AgentStream:
        return stream.agent not in members.roles
    unknown = stored.commit.actor.agent not in members.roles
    if type(stream) is WorkspaceStream:
        return unknown
    return type(stream) is KeyStream and unknown and integrity.is_of_agents(stored.commit)


def _runs_of_aggregates(commits: Sequence[Stored]) -> set[str]:
    """Return the runs whose steps changed the aggregates among the commits read."""
    named = (
        integrity.run_of_commit(stored.stream, stored.commit)
        for stored in commits
        if type(stored.stream) is WorkspaceStream and not isinstance(stored.commit, StandIn)
    )
    return {run for run in named if run is not None}


def _parents_of(commits: Sequence[Stored]) -> set[str]:
    """Return the runs that the lives among some commits were forked from."""
    lives = [stored.commit for stored in commits if type(stored.stream) is RunStream]
    return {fork.parent for commit in lives if (fork := fork_of(commit)) is not None}


LINES_MAX = 256
"""Most agents whose values are kept, each up to 256 Ki characters joined; others are read again."""

LINES_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes kept of them, as recorded; the newest agent's are kept whatever their size."""


class Past(Protocol):
    """A source of an agent's past commits."""

    async def past(self, stream: StreamId) -> list[Stored]:
        """Return a stream's own commits, by version; unreadable ones are stand-ins."""
        ...


class Fault(msgspec.Struct, frozen=True):
    """A value that refers to a missing one: the event's index in its commit, and the reason."""

    index: int
    reason: str


class InFull:
    """Expands values in commits that are passed in the order of the log."""

    def __init__(self, source: Past) -> None:
        self._source = source
        self._lines: OrderedDict[tuple[str, str], PartsLine] = OrderedDict()

    async def ready(self, message: RawMessage) -> None:
        """Read what a message's commit may refer to, before it is passed to `commit`."""
        if MARK not in message.body or message.fault is not None:
            return
        try:
            stream, commit = decode(message.subject, message.body)
        except Corrupt:
            return
        if type(stream) is not AgentStream or (stream.run, stream.agent) in self._lines:
            return
        line = PartsLine()
        with contextlib.suppress(Corrupt):  # a gap: values in it are reported as missing
            await self._read(line, stream, commit.version - 1, 0)
        self._lines[stream.run, stream.agent] = line
        self._bound()

    async def _read(self, line: PartsLine, stream: AgentStream, to: int, depth: int) -> None:
        if depth > FORK_DEPTH_MAX:
            return
        parent, cut = await self._begin(stream)
        if parent and cut:
            before = AgentStream(parent, stream.role, stream.agent)
            await self._read(line, before, min(cut, to), depth + 1)
        for stored in await self._source.past(stream):
            if stored.commit.version > to:
                return
            if not isinstance(stored.commit, StandIn):
                _note(line, stored.commit, to)

    async def _begin(self, stream: AgentStream) -> tuple[str, int]:
        """Return the run and version that a stream continues from; empty if it is no fork."""
        for stored in await self._source.past(RunStream(stream.run)):
            try:
                event = revive(stored.commit.events[0])
            except (UnknownEvent, Corrupt):
                return "", 0
            if isinstance(event, RunForked):
                return event.parent, event.at.get(str(stream), 0)
            return "", 0
        return "", 0

    def _bound(self) -> None:
        total = sum(line.bytes for line in self._lines.values())
        while len(self._lines) > 1 and (len(self._lines) > LINES_MAX or total > LINES_BYTES_MAX):
            _, gone = self._lines.popitem(last=False)
            total -= gone.bytes

    def commit(self, stream: StreamId, commit: Commit) -> tuple[Commit, list[Fault]]:
        """Return a commit with its values in full, and the values that cannot be: they stay as they
        are.
        """
        if type(stream) is not AgentStream:
            return commit, []
        line = self._lines.get((stream.run, stream.agent))
        if line is None:
            return commit, []
        self._lines.move_to_end((stream.run, stream.agent))
        _note(line, commit, commit.last_version)
        return commit_in_full(line, commit)


def _note(line: PartsLine, commit: Commit, to: int) -> None:
    for version, recorded in enumerate(commit.events, commit.version):
        if version <= to and recorded.enc is None:
            line.note(recorded.type, version, bytes(recorded.data))


def commit_in_full(line: PartsLine, commit: Commit) -> tuple[Commit, list[Fault]]:
    """Return a noted commit with its values in full, and the values that cannot be."""
    faults: list[Fault] = []
    events: list[Recorded] = []
    for index, recorded in enumerate(commit.events):
        data = bytes(recorded.data)
        if MARK in data and recorded.enc is None:
            try:
                data = line.whole(recorded.type, commit.version + index, data)
            except Corrupt as error:
                faults.append(Fault(index, f"{error.where}: {error.fact}"))
            else:
                recorded = msgspec.structs.replace(recorded, data=msgspec.Raw(data))  # noqa: PLW2901 -- the event with its values in full
        events.append(recorded)
    if all(new is old for new, old in zip(events, commit.events, strict=True)):
        return commit, faults
    return msgspec.structs.replace(commit, events=tuple(events)), faults


class RunInFull:
    """Expands values like `InFull`, in a run's history that is complete, with its parents'."""

    def __init__(self) -> None:
        self._lines: dict[str, PartsLine] = {}

    def commit(self, stream: StreamId, commit: Commit) -> Commit:
        """Return a commit with its values in full, apart from those that cannot be expanded."""
        if type(stream) is not AgentStream:
            return commit
        line = self._lines.setdefault(stream.agent, PartsLine())
        _note(line, commit, commit.last_version)
        return commit_in_full(line, commit)[0]
