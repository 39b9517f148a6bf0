"""Roles on record: applied, withdrawn, read at any point; and the events of a run that a role may
see.

The rules at a point decide what is visible at that point.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus import slices
from hansard.bus.clock import OS_USER, Slices
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.file_lock import read_text
from hansard.bus.log import Append, AtPosition, Stored, UpTo
from hansard.bus.reads import RunInFull
from hansard.domain import ids
from hansard.domain import run as runs
from hansard.domain.access import QUERY_KIND, QueryAnswered, ViewServed, key_of, ranges
from hansard.domain.choices import NOTHING, Brief
from hansard.domain.decider import TAG as QUARANTINED
from hansard.domain.decider import evolve
from hansard.domain.errors import Corrupt, Refused, UnknownEvent
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import KeyStream, RunStream, StreamId, WorkspaceStream, run_of
from hansard.domain.label import Label, join, parse
from hansard.domain.payload import MARK
from hansard.domain.roles import check as role_file
from hansard.domain.roles.check import ROLES, RoleState
from hansard.domain.roles.model import KIND, RoleDefined, RoleWithdrawn
from hansard.domain.roles.view import (
    Facts,
    Folding,
    Line,
    Serving,
    ShownState,
    UnjudgedEvent,
    aggregate_of,
    each_judged,
    facts,
    files_of,
    hashes,
)
from hansard.domain.run import RunState
from hansard.state.replay import Points, States
from hansard.state.repository import transact

FILE_BYTES_MAX = 1024 * 1024
"""Most bytes of a file of roles: far more than the largest needs."""


async def read(workspace: Workspace, name: str, up_to: UpTo = None) -> RoleState:
    """Return a role at a point; one not defined at that point has no rules.

    Raises BadName, and UnknownEvent for an event of a newer version: nothing is then allowed.
    """
    return await workspace.repository.read(ROLES, name, up_to)


async def defined(workspace: Workspace) -> dict[str, RoleDefined]:
    """Return the roles that have rules, by name, with their rules. Raises UnknownEvent."""
    known = await workspace.repository.read_all(ROLES)
    rules = ((name, known[name].rules) for name in sorted(known))
    return {name: each for name, each in rules if each is not None}


async def apply(workspace: Workspace, name: str, rules: RoleDefined, *, by: str = OS_USER) -> bool:
    """Set the rules of a role; return False if it already has them.

    Raises BadValue and BadName for invalid rules, and Conflict after 50 lost races.
    """
    slices.load()  # a rule may name their events
    about = workspace.text(rules.about)
    command = msgspec.structs.replace(rules, about=about)
    return await workspace.repository.decide(ROLES, name, command, by)


def read_file(path: str | os.PathLike[str]) -> dict[str, RoleDefined]:
    """Read and check a file of roles (`hansard.domain.roles.check`). Raises BadValue, BadName."""
    slices.load()  # a rule may name their events
    remedy = "give a TOML file of roles, see docs/roles.md"
    return role_file.parse(read_text(Path(path), FILE_BYTES_MAX, remedy), str(path))


def uncovered(rules: RoleDefined) -> list[str]:
    """Return the fields in which masks do not hold (`hansard.domain.roles.check.uncovered`)."""
    slices.load()  # a rule may show their events
    return role_file.uncovered(rules)


async def apply_all(
    workspace: Workspace, rules_by_role: Mapping[str, RoleDefined], *, by: str = OS_USER
) -> dict[str, bool]:
    """Set the rules of several roles, one after another; return for each whether they changed.

    Raises as `apply`.
    """
    return {
        name: await apply(workspace, name, rules, by=by) for name, rules in rules_by_role.items()
    }


async def withdraw(workspace: Workspace, name: str, *, reason: str = "", by: str = OS_USER) -> bool:
    """Withdraw a role's rules; return False if already withdrawn. Raises Refused, BadName."""
    command = RoleWithdrawn(because=workspace.text(reason))
    return await workspace.repository.decide(ROLES, name, command, by)


def refers(stored: Stored) -> bool:
    """Return whether a commit may have values that refer to earlier ones."""
    return any(MARK in bytes(each.data) for each in stored.commit.events)


def facts_of_run(
    run: str, history: Sequence[Stored], *, shares: bool | None = None
) -> Iterator[UnjudgedEvent]:
    """Yield a run's events from the first, each with the facts for its rules: roster and labels at
    that point.

    References to earlier values are resolved, so that rules see the agent's full value. shares:
    whether any commit `refers`, if known.
    """
    life = runs.RunState()
    if shares is None:
        shares = any(map(refers, history))
    in_full = RunInFull() if shares else None
    for stored in history:
        if isinstance(stored.stream, RunStream):
            _live(life, stored.commit)
        commit = stored.commit
        if in_full is not None:
            commit = in_full.commit(stored.stream, commit)
        for recorded in commit.events:
            yield UnjudgedEvent(
                facts=facts_of(stored, recorded, life),
                id=recorded.id,
                commit=stored.commit.id,
                at=stored.commit.at,
                data=recorded.data,
                run=run,
                occurred_at=recorded.occurred_at,
                sealed=recorded.enc is not None,
            )


def _live(life: RunState, commit: Commit) -> None:
    """Fold the known events of a run's life; an event of a newer version names no author."""
    for recorded in commit.events:
        try:
            event = revive(recorded)
            runs.begun_under(life, [event], commit.label)
            evolve(life, event)
        except (UnknownEvent, Refused):
            continue


def facts_of(
    stored: Stored, recorded: Recorded, life: RunState, fields: tuple[str, ...] = ()
) -> Facts:
    """Return the facts that rules evaluate for an event. `life`: the state of its run at its
    commit.
    """
    actor, label = stored.commit.actor.agent, stored.commit.label
    if life.label:
        label = join(label, parse(life.label)).stored
    event_facts = facts(
        recorded.type, stored.stream, actor, life.roster, life.labels, fields, label
    )
    data = bytes(recorded.data)
    about, files = aggregate_of(stored.stream, data), files_of(stored.stream, data)
    if not about and not files:
        return event_facts
    return msgspec.structs.replace(event_facts, aggregate=about, paths=files)


# Views: the part of a run that a role may see at a point, and the record that it was served.
#
# Deriving a view reads the whole run. Serving one records a summary event in a separate stream
# (`hansard.domain.access`): for an agent in one commit with its step's outcome, for a person in one
# of its own. A served view can be derived again from the fields of that event.


class View(Brief, msgspec.Struct, frozen=True):
    """Part of a run that a role may see: events in order, numbered for the role from 1, and the
    state that follows from them.

    Attributes:
        run: Id of the run.
        role: Name of the role.
        events: Visible events, numbered from 1.
        state: State that follows from them.
        digest: Digest of the served lines (`hansard.domain.roles.view.served`).
    """

    run: str
    role: str
    events: list[Line]
    state: ShownState
    digest: str


class DerivedView(msgspec.Struct, frozen=True):
    """A view and the fields of its event, except its reader. `position`: position of this log at
    which the read ended; not recorded. `label`: join of the labels of the visible events.
    """

    view: View
    position: int
    at: str
    rules: str
    places: list[tuple[str, int]]
    label: Label | None = None

    def event(self, agent: str = "") -> ViewServed:
        """Return the event that records that the view was served. Raises BadValue if it names too
        many events.
        """
        return ViewServed(
            role=self.view.role,
            agent=agent,
            at=self.at,
            rules=self.rules,
            events=len(self.view.events),
            seen=ranges(self.places),
            digest=self.view.digest,
        )


def hash_key(
    states: States, name: str, rules: RoleDefined | None, given: bytes | None
) -> bytes | None:
    """Return a role's key of hashed values: the given one, else the one that is kept with the
    role's tables, if a mask hashes.
    """
    if given is None and states.hash_key is not None and hashes(rules):
        return states.hash_key(name)
    return given


async def derive(
    states: States, name: str, run: str, at: object = None, key: bytes | None = None
) -> DerivedView:
    """Derive the part of a run at a point that a role may see by its rules at that point.

    key: key of hashed values, in place of the one that is kept for the role. Raises NotFound,
    BadName, UnknownEvent, and BadValue if the key is too short.
    """
    position = await states.log.end(await Points(states).up_to(run, at))
    end = AtPosition(position)
    (rules, rules_event), history = await asyncio.gather(
        rules_at(states, name, end), states.history(run, end)
    )
    key = hash_key(states, name, rules, key)
    steps = _shown(name, run, history, rules, rules_event, position, key)
    async with Slices() as slices:
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                made: DerivedView = ended.value
                return made
            if slices.over:
                await slices.pause()


def derive_from(
    name: str,
    run: str,
    history: Sequence[Stored],
    rules: RoleDefined | None,
    rules_event: str,
    position: int,
    key: bytes | None,
) -> DerivedView:
    """Return the part of a run's history, from its first commit, that a role with these rules may
    see. `rules_event`: id of the event that set the rules.
    """
    steps = _shown(name, run, history, rules, rules_event, position, key)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            made: DerivedView = ended.value
            return made


def _shown(
    name: str,
    run: str,
    history: Sequence[Stored],
    rules: RoleDefined | None,
    rules_event: str,
    position: int,
    key: bytes | None,
) -> Generator[None, None, DerivedView]:
    """Derive as `shown`, in small steps."""
    places: list[tuple[str, int]] = []
    here: list[tuple[tuple[str, int], Label | None]] = [(("", 0), None)]
    labels: set[Label | None] = set()
    shares = False
    for stored in history:
        shares = shares or refers(stored)
        yield

    def placed() -> Iterator[UnjudgedEvent]:
        events = facts_of_run(run, history, shares=shares)
        for place, event in zip(_places(history), events, strict=True):
            here[0] = place, event.facts.label
            yield event

    lines: list[Line] = []
    serving, folding = Serving(), Folding()
    for line in each_judged(rules, placed(), key):  # one by one: a line belongs to the newest event
        if line is not None:
            lines.append(line)
            serving.add(*line)
            folding.add(line[1])
            place, label = here[0]
            places.append(place)
            labels.add(label)
        yield
    view = View(run, name, lines, folding.state(), serving.served.digest)
    at, shown_label = history[-1].commit.id, join(*labels).stored
    return DerivedView(view, position, at, rules_event, places, shown_label)


def _places(history: Sequence[Stored]) -> Iterator[tuple[str, int]]:
    """Yield the stream's name and the version of each event."""
    for stored in history:
        name, version = str(stored.stream), stored.commit.version
        for index in range(len(stored.commit.events)):
            yield name, version + index


async def rules_at(states: States, name: str, up_to: UpTo) -> tuple[RoleDefined | None, str]:
    """Return a role's rules at a point, and the id of the event that set them; None and an empty id
    if it had none. Raises BadName, UnknownEvent.
    """
    return _rules(await states.log.read(_rules_of(name), up_to=up_to))


def _rules_of(name: str) -> WorkspaceStream:
    return WorkspaceStream(KIND, ids.name("role", name))


def _rules(
    commits: Sequence[Stored], of_event: str | None = None
) -> tuple[RoleDefined | None, str]:
    """Return a role's rules, the newest or those of a given event, and the id of the event. Raises
    NotFound.
    """
    state, rules_event = RoleState(), ""
    for stored in commits:
        for recorded in stored.commit.events:
            event = revive(recorded)
            evolve(state, event)
            rules_event = "" if isinstance(event, RoleWithdrawn) else recorded.id
            if of_event == recorded.id:
                return state.rules, rules_event
    if of_event:
        raise NotFound(
            f"event {of_event}, the rules of a view",
            "a copy of a run has none: ask the log that it was copied from",
        )
    return state.rules, rules_event


# ---------------------------------------------------------------- served views


def stream_of(run: str, name: str) -> KeyStream:
    """Return the stream that records the views of a run served to a role."""
    return KeyStream(run, key_of(name))


class OnRecord(msgspec.Struct, frozen=True):
    """A served view: its event, the event's id, and the commit that holds it."""

    id: str
    event: ViewServed
    stored: Stored


async def on_record(states: States, run: str, name: str, up_to: UpTo = None) -> list[OnRecord]:
    """Return the views of a run served to a role, in order; those of a fork's parent first."""
    return [
        OnRecord(recorded.id, _served(stored.stream, revive(recorded)), stored)
        for stored in await states.commits(stream_of(run, name), up_to=up_to)
        for recorded in stored.commit.events
        if recorded.type != QUARANTINED
    ]


def _served(stream: StreamId, event: object) -> ViewServed:
    if not isinstance(event, ViewServed):
        raise Corrupt(f"stream {stream}", f"it holds a {type(event).__name__}")
    return event


async def derive_again(states: States, one: OnRecord, key: bytes | None = None) -> DerivedView:
    """Derive a served view again from the log; the caller compares the results. Raises NotFound if
    its rules or its run are not in this log.
    """
    run = run_of(one.stored.stream) or ""
    report = await states.log.read(_rules_of(one.event.role))
    rules, rules_event = _rules(report, one.event.rules)
    if not one.event.rules:
        rules, rules_event = None, ""
    history = await states.history(run)
    ends = [index for index, each in enumerate(history) if each.commit.id == one.event.at]
    if not ends:
        raise Corrupt(f"view {one.id}", f"run {run} has no commit {one.event.at}")
    key = hash_key(states, one.event.role, rules, key)
    return derive_from(one.event.role, run, history[: ends[0] + 1], rules, rules_event, 0, key)


async def next_version(states: States, stream: KeyStream) -> int:
    """Return the version of the next event of a stream of views."""
    last = await states.log.last(stream)
    if last is not None:
        return last.commit.last_version + 1
    forked = await states.forked(stream.run)
    return 1 + (forked.at.get(str(stream), 0) if forked is not None else 0)


async def serve(
    workspace: Workspace,
    name: str,
    run: str,
    at: object = None,
    *,
    by: str = OS_USER,
    key: bytes | None = None,
) -> DerivedView:
    """Serve a role's view of a run to a person, and record that.

    Raises as `derive`, and Conflict after 50 lost races.
    """
    ids.name("by", by)
    made = await derive(workspace.states, name, run, at, key)
    await record(workspace, made, by)
    return made


async def record(workspace: Workspace, made: DerivedView, by: str | Actor) -> None:
    """Record that a view was served to a person. Raises Conflict after 50 lost races."""
    stream = stream_of(made.view.run, made.view.role)

    def served(version: int) -> Append:
        commit = workspace.commit(version, by, [made.event()], label=made.label)
        return Append(stream, commit)

    read = functools.partial(next_version, workspace.states, stream)
    await transact(read, served, workspace.log.append)


# Records the SQL queries answered for a role.


async def record_query(
    workspace: Workspace,
    role: str,
    question: str,
    *,
    head: int,
    position: int,
    rows: int,
    cut: bool,
    by: str | Actor = OS_USER,
) -> None:
    """Record that a query was answered from a role's tables, before the result is returned.

    question: digest of the query (`digest_of`); head: position of the log up to which the tables
    were built; position: the role's own position there. Raises BadName, Unreachable, and Conflict
    after 50 lost races.
    """
    ids.name("by", Actor.of(by).agent)
    stream = WorkspaceStream(QUERY_KIND, ids.name("role", role))
    _, rules = await rules_at(workspace.states, role, AtPosition(head))
    at = (await workspace.log.at(head)).commit.id if head else ""
    event = QueryAnswered(
        role=role, at=at, rules=rules, statement=question, position=position, rows=rows, cut=cut
    )
    await workspace.repository.append(stream, by, event)


def digest_of(
    statement: str, parameters: Sequence[object], tables: Mapping[str, bytes] = NOTHING
) -> str:
    """Return the digest of a query: of the SQL alone if it has no parameters and no tables."""
    text = msgspec.json.encode(list(parameters)) if parameters else b""
    for name, data in tables.items():
        text += f"\n{name} {hashlib.sha256(data).hexdigest()}".encode()
    return hashlib.sha256(statement.encode() + text).hexdigest()
