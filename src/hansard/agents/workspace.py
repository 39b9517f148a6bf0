"""An open workspace: its log, its blobs, caches of what is read from them, and the lives of its
runs.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, Self, TypedDict, TypeVar

import msgspec

from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive, revive_all
from hansard.bus.log import AtPosition, Blobs, EventLog, Snapshots, Stored
from hansard.bus.reads import EventTime, began, is_imported
from hansard.bus.redacted_log import RedactedBlobs, RedactedLog
from hansard.domain import run as runs
from hansard.domain.checkpoints import Session
from hansard.domain.choices import check_options, chosen, claimed_time, moment, nearest
from hansard.domain.decider import fold
from hansard.domain.errors import BadValue, Corrupt, HansardError, RecordError
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.label import Label
from hansard.domain.redaction import Redaction
from hansard.domain.run import (
    FORK_DEPTH_MAX,
    AgentJoined,
    RunAgentLeft,
    RunAssigned,
    RunEvent,
    RunForked,
    RunResumed,
    RunStarted,
    RunState,
    RunStatus,
)
from hansard.domain.values import recordable
from hansard.state.boards import Boards
from hansard.state.memories import Memories
from hansard.state.replay import Points, States, fold_life
from hansard.state.repository import Repository

# Lives of all runs, read in few requests, and filters over them.

LIVES_AT_ONCE_MAX = 200
"""Lives in one request; damage in one of them leaves the others to be read together."""

NAMES_MAX = 10
"""Largest number of known names that are listed for an unknown one."""


class RunLife(msgspec.Struct):
    """A run's life. If it could not be read, `error` is the reason and the state is empty.

    `began` is the time of the run's start and its clock, as far as the life states them; None if
    the life could not be read. An import whose source gives no time has none (`is_known`).
    `experiment` is the one that the run itself is a trial of: for a fork, only its own assignment
    counts.
    """

    run: str
    state: RunState
    began: EventTime | None
    position: int
    error: HansardError | None = None
    experiment: str = ""
    is_import: bool = False
    """True if an importer wrote it and no session opened it since, so that no agent works on it."""

    @property
    def at_work(self) -> list[str]:
        """Agents that the run is open for: at work, or killed."""
        return [] if self.is_import else self.state.missing

    @property
    def began_at(self) -> datetime | None:
        """Time of the run's start; None if unknown. A time without a zone is UTC."""
        return (
            claimed_time(self.began.at) if self.began is not None and self.began.is_known else None
        )

    @property
    def problem(self) -> str | None:
        """The reason that the life could not be read, or None."""
        return str(self.error) if self.error is not None else None

    @property
    def probe(self) -> str | None:
        """The probe whose fork it is; None for a real run."""
        swap = self.state.forked.swap if self.state.forked is not None else None
        return swap.probe if swap is not None else None


class RunQuery(TypedDict, total=False):
    """Filters of `record.runs`: see `RunFilter`. Times may be texts (ISO 8601)."""

    status: RunStatus | str | None
    workflow: str | None
    agent: str | None
    role: str | None
    experiment: str | None
    since: datetime | str | None
    until: datetime | str | None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of runs; all given conditions must hold. `agent` and `role` mean an agent that ever
    joined the run, both together one that joined it in that role. `since` and `until` bound the
    run's start, as an import's source states it, else by the log's time; a run whose source gives
    no time is never within them.
    """

    status: RunStatus | None = None
    workflow: str | None = None
    agent: str | None = None
    role: str | None = None
    experiment: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], named: str = "record.runs({})") -> Self:
        """Build a filter from the given options; None counts as not given. `named` formats an
        option's name in errors.

        Raises BadOption, and BadValue for an unknown status, a time without a zone, and a value
        that is not a text.
        """
        check_options("record.runs", options, cls.__struct_fields__)
        targets: dict[str, Any] = {name: each for name, each in options.items() if each is not None}
        for name, value in targets.items():
            what = named.format(name)
            if name == "status":
                targets[name] = chosen(RunStatus, value, what)
            elif name in ("since", "until"):
                targets[name] = moment(what, value)
            elif type(value) is not str:
                raise BadValue(what, f"{value!r:.80}", "give a text")
        return cls(**targets)

    def takes(self, life: RunLife) -> bool:
        """Return whether a run matches; of an unreadable run only the time is known, so that it
        does not match if anything else is required.
        """
        state = life.state
        began_at = life.began_at
        members = [
            agent
            for agent, role in state.roster.items()
            if self.agent in (None, agent) and self.role in (None, role)
        ]
        target = (self.status, self.workflow, self.experiment, self.agent, self.role)
        return (
            (life.error is None or not any(target))
            and self.status in (None, state.status)
            and self.workflow in (None, state.workflow)
            and self.experiment in (None, life.experiment)
            and (bool(members) or (self.agent is None and self.role is None))
            and (self.since is None or (began_at is not None and began_at >= self.since))
            and (self.until is None or (began_at is not None and began_at <= self.until))
        )

    def leaves_out_undated(self, life: RunLife) -> bool:
        """Return whether a run is left out only because its source gives no time."""
        if life.began_at is not None or (self.since is None and self.until is None):
            return False
        return msgspec.structs.replace(self, since=None, until=None).takes(life)

    def __str__(self) -> str:
        """Describe the filter in words; empty if it matches all runs."""
        items = [f"status {self.status.value}"] if self.status is not None else []
        for name in ("workflow", "agent", "role", "experiment"):
            value = getattr(self, name)
            if value is not None:
                items.append(f"{name} {value!r}")
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None:
                items.append(f"begun {name} {value.astimezone(UTC).isoformat()}")
        return ", ".join(items)

    def unknown(self, lives: Iterable[RunLife]) -> Iterator[str]:
        """Yield a message for each name that no run has, with the known names."""
        known = list(lives)
        names = {
            "workflow": {life.state.workflow for life in known},
            "agent": {agent for life in known for agent in life.state.roster},
            "role": {role for life in known for role in life.state.roster.values()},
            "experiment": {life.experiment for life in known},
        }
        for name, each in names.items():
            value, there = getattr(self, name), sorted(each - {""})
            if value is not None and value not in there:
                shown = ", ".join(there[:NAMES_MAX]) or "none yet"
                more = f" and {len(there) - NAMES_MAX} more" if len(there) > NAMES_MAX else ""
                like = nearest(value, there)
                yield f"no run has {name} {value!r}: {like}there are: {shown}{more}"


async def read_lives(log: EventLog) -> list[RunLife]:
    """Read every run's life, newest first, in one request for 200 runs and for each 1,000 of their
    commits. Unreadable ones are last.
    """
    runs = await log.runs()
    own: dict[str, list[Stored]] = {}
    damaged: list[RunLife] = []
    for start in range(0, len(runs), LIVES_AT_ONCE_MAX):
        chunk = runs[start : start + LIVES_AT_ONCE_MAX]
        try:
            commits = await log.read_streams([RunStream(run) for run in chunk])
        except RecordError:
            commits = []
            for run in chunk:
                try:
                    commits += await log.read_streams([RunStream(run)])
                except RecordError as error:
                    damaged.append(RunLife(run, RunState(), None, 0, error))
        for stored in commits:
            if isinstance(stored.stream, RunStream):
                own.setdefault(stored.stream.run, []).append(stored)
    lives = [_life(run, own) for run in own]
    lives.sort(key=lambda life: -life.position)
    return lives + damaged


async def assigned_runs(log: EventLog, experiment: str) -> tuple[list[str], int]:
    """Return the runs assigned to an experiment, and the position of the newest commit of all runs'
    lives (0 if there is no run), both at one position. Reads every life. Raises RecordError if one
    cannot be read, since it might be such a run.
    """
    end = AtPosition(await log.end(None))
    trials, newest = [], 0
    runs = await log.runs()
    for start in range(0, len(runs), LIVES_AT_ONCE_MAX):
        streams = [RunStream(run) for run in runs[start : start + LIVES_AT_ONCE_MAX]]
        for stored in await log.read_streams(streams, end):
            newest = max(newest, stored.position)
            if isinstance(stored.stream, RunStream) and _assigned([stored]) == experiment:
                trials.append(stored.stream.run)
    return trials, newest


def _life(run: str, own: dict[str, list[Stored]]) -> RunLife:
    first = own[run][0]
    life = RunLife(run, RunState(), began(own[run]), first.position)
    life.is_import = is_import(own[run])
    try:
        life.state = fold_life(_through_parents(run, own))
        if life.state.assigned is not None:
            life.experiment = _assigned(own[run])
    except HansardError as error:
        life.error = error
    return life


def is_import(commits: Sequence[Stored]) -> bool:
    """Return whether the importer wrote a run's life, and no session opened the run since."""
    opened = (AgentJoined.tag, RunResumed.tag)
    return is_imported(commits[0]) and not any(
        recorded.type in opened
        for stored in commits
        if not is_imported(stored)
        for recorded in stored.commit.events
    )


def _assigned(commits: Iterable[Stored]) -> str:
    """Return the last experiment that a life's commits assign the run to."""
    experiment = ""
    for stored in commits:
        for recorded in stored.commit.events:
            if recorded.type == RunAssigned.tag:
                event = revive(recorded)
                experiment = event.experiment if isinstance(event, RunAssigned) else experiment
    return experiment


def _through_parents(run: str, own: dict[str, list[Stored]]) -> list[Stored]:
    """Return a life's commits from version 1, including the parents' up to each cut. Raises
    Corrupt.
    """
    line: list[list[Stored]] = []
    name, cut = run, None
    for _ in range(FORK_DEPTH_MAX + 1):
        commits = own.get(name, [])
        line.append([each for each in commits if cut is None or each.commit.version <= cut])
        first = commits[0].commit if commits else None
        if first is None or first.version == 1:
            return [stored for each in reversed(line) for stored in each]
        forked = revive(first.events[0])
        if not isinstance(forked, RunForked):
            raise Corrupt(f"run {name}", f"its life begins at version {first.version}")
        limit = forked.at.get("life", 0)
        name, cut = forked.parent, limit if cut is None else min(cut, limit)
    raise Corrupt(f"run {run}", f"it has more than {FORK_DEPTH_MAX} parents")


SESSION_RUNS_MAX = 50
"""Runs whose lives are read for the sessions of a workflow: those that were continued last."""

SESSIONS_MAX = 20
"""Newest of these sessions that are returned; each that was killed costs two small reads."""


async def ended_sessions(log: EventLog, run: str, *, alone: bool) -> tuple[list[Session], str]:
    """Return the ended sessions of a run's workflow, newest first, and `workflow`; with `alone`
    those of the run, and `run`.

    A session has failed if its agent left other than completed, or was resumed without having left:
    then it lasted until its last commit. Imports and copies are left out: this log has the times of
    the import.
    """
    runs = {run} if alone else {run, *await log.newest_runs(SESSION_RUNS_MAX)}
    try:
        lives = await log.read_streams([RunStream(each) for each in runs])
    except RecordError:  # of another run: `hansard check` reports it
        return await ended_sessions(log, run, alone=True)
    workflows: dict[str, str] = {}
    began: dict[tuple[str, str], Stored] = {}
    ended: list[tuple[str, Stored, Stored, str | None]] = []
    for stored in lives:
        is_own = stored.origin is None and not is_imported(stored)
        name = stored.stream.run  # type: ignore[union-attr] # lives alone are read
        for event in revive_all([stored.commit]):
            if isinstance(event, RunStarted):
                workflows[name] = event.workflow
            elif isinstance(event, RunForked):  # of an unread parent: its forks alone
                workflows[name] = workflows.get(event.parent, event.parent)
            elif is_own and isinstance(event, AgentJoined | RunResumed):
                before = began.get((name, event.agent), stored)
                if before is not stored:
                    ended.append((name, before, stored, None))
                began[name, event.agent] = stored
            elif isinstance(event, RunAgentLeft) and (name, event.agent) in began:
                ended.append((name, began.pop((name, event.agent)), stored, event.outcome))
    sessions: list[Session] = []
    for name, before, stored, outcome in reversed(ended):
        if len(sessions) < SESSIONS_MAX and workflows.get(name) == workflows.get(run):
            last = stored if outcome is not None else await _last_before(log, stored) or before
            seconds = (last.time - before.time).total_seconds()
            sessions.append((seconds, outcome != RunStatus.COMPLETED))
    return sessions, "run" if alone else "workflow"


async def _last_before(log: EventLog, resumed: Stored) -> Stored | None:
    """Return an agent's last commit before the one that resumed it; None for none in this run."""
    began = await log.at(resumed.position + 1)  # the next of its transaction
    version = began.commit.version
    commits = await log.read(began.stream, after=version - 2, to=version - 1, inside=True)
    return commits[-1] if commits else None


E = TypeVar("E")


class Held(Protocol):
    """The note that an agent is at work in this process."""

    def begun(self) -> None:
        """Note that the session is on record."""

    def close(self, *, is_done: bool, is_left: bool = False) -> None:
        """End the note; `is_done` if nothing of the session is left to resume, `is_left` if its
        end is on record.
        """


class Hold(Protocol):
    """Function that marks an agent as at work in this process."""

    async def __call__(self, stream: AgentStream, *, is_hosted: bool) -> Held | None:
        """Return the note; None if it cannot be made here.

        `is_hosted`: a service hosts the session. Raises Refused if another process has one of the
        agent, and neither is hosted.
        """


class Workspace:
    """A workspace's log and blobs, and its close callbacks; `command` reaches it from a shell."""

    def __init__(
        self,
        log: EventLog,
        blobs: Blobs,
        clock: Clock,
        close: Callable[[], Awaitable[None]],
        snapshots: Snapshots | None = None,
        command: str = "hansard",
        hold: Hold | None = None,
        open_other: Callable[[str], Awaitable[Workspace]] | None = None,
    ) -> None:
        self.open_other = open_other
        """Opens another existing workspace of the same record, by its name."""
        self.log = log
        self.blobs = blobs
        self.clock = clock
        self.snapshots = snapshots
        self.command = command
        self.hold = hold
        """Notes that an agent is at work in this process; None where no other process can be."""
        self.redaction: Redaction | None = None
        """Secrets that are removed from everything written here."""
        self.states = States(log, snapshots)
        self.points = Points(self.states)
        self.boards = Boards(self.states)
        self.memories = Memories(log, blobs, snapshots)
        self.closing: list[Callable[[], Awaitable[None]]] = []
        """Callbacks that run first on close."""
        self._close = close

    async def close(self) -> None:
        """Close the connection to the broker."""
        while self.closing:
            await self.closing.pop()()
        await self.states.close()
        await self.memories.close()
        await self._close()

    def through(self, log: EventLog) -> Self:
        """Return the same workspace, writing through another log of the same record; caches and
        locks are shared.
        """
        made = copy.copy(self)
        made.log = log
        made.states = self.states.through(log)
        made.points = Points(made.states)
        made.boards = self.boards.through(made.states)
        made.memories = self.memories.through(log)
        return made

    def redacting(self, redact: Mapping[str, Any]) -> Self:
        """Return the same workspace, with these secrets removed from what is written, in addition
        to those already removed. Raises BadName, BadValue.
        """
        more = Redaction.of(redact)
        if more is None:
            return self
        redaction = more.joined(self.redaction)
        if self.redaction is not None and self.redaction.joined(redaction) is self.redaction:
            return self
        log = self.log.base if isinstance(self.log, RedactedLog) else self.log
        blobs = self.blobs.base if isinstance(self.blobs, RedactedBlobs) else self.blobs
        made = self.through(RedactedLog(log, redaction))
        made.blobs = RedactedBlobs(blobs, redaction)
        made.redaction = redaction
        return made

    def clean(self, event: E) -> E:
        """Return an event, or a part of one, as it will be stored, for values derived from it
        before the write, such as a digest.
        """
        return self.redaction.fields(event) if self.redaction is not None else event

    def text(self, text: str) -> str:
        """Return an external text as it may be recorded: without secrets, then truncated."""
        return recordable(text, self.redaction)

    def commit(
        self,
        version: int,
        agent: str | Actor,
        events: Sequence[Event],
        epoch: int = 0,
        label: Label | None = None,
    ) -> Commit:
        """Build a commit of an agent's events, with ids and time; `label` is the agent's."""
        return new_commit(self.clock, version, Actor.of(agent), events, epoch=epoch, label=label)

    @property
    def repository(self) -> Repository:
        """The aggregates of the workspace that outlive runs."""
        return Repository(self.log, self.clock)

    async def runs(self, filters: RunFilter | None = None) -> list[tuple[str, RunState]]:
        """Return every run, or those that match, with its life, newest first, in one pass.

        Raises Corrupt and UnknownEvent if a run's life cannot be read.
        """
        runs: list[tuple[str, RunState]] = []
        for life in await read_lives(self.log):
            if life.error is not None:
                raise life.error
            if filters is None or filters.takes(life):
                runs.append((life.run, life.state))
        return runs


def decided(state: RunState, events: Sequence[RunEvent]) -> list[RunEvent]:
    """Return the events that change a run's life, in order."""
    items: list[RunEvent] = []
    for event in events:
        news = runs.decide(state, event)
        state = fold(state, news)
        items.extend(news)
    return items
