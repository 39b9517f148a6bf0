"""Views: what a role may see of a run at a point, and that it was served.

Deriving a view reads the whole run. What is served is put on record as one summary event in a
stream of its own (`hansard.domain.access`): to an agent in one commit with its step's outcome, to a
person in one of its own. A view that was served is derived again from what that event names.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence

import msgspec

from hansard.agents.access.roles import happened, refers
from hansard.agents.transact import transact
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER, Slices
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Append, AtPosition, Stored, UpTo
from hansard.domain import ids
from hansard.domain.access import ViewServed, key_of, ranges
from hansard.domain.board import VIEWS
from hansard.domain.choices import NOTHING, Brief
from hansard.domain.errors import Corrupt
from hansard.domain.events import Actor
from hansard.domain.ids import KeyStream, StreamId, WorkspaceStream, run_of
from hansard.domain.label import Label, join
from hansard.domain.quarantined import TAG as QUARANTINED
from hansard.domain.query import KIND as QUERY_KIND
from hansard.domain.query import QueryAnswered
from hansard.domain.roles import check
from hansard.domain.roles.model import KIND, RoleDefined, RoleWithdrawn
from hansard.domain.roles.view import Folding, Happened, Line, Serving, ShownState, each_judged
from hansard.state.replay import Points, States


class View(Brief, msgspec.Struct, frozen=True):
    """What a role is shown of a run: events in their order with the role's own numbers from 1, and
    what follows from them. `digest` is that of the lines (`hansard.domain.roles.view.served`).

    Attributes:
        run: The run's id.
        role: The role.
        events: What it is shown, numbered from 1.
        state: What follows from them.
        digest: Of what was served.
    """

    run: str
    role: str
    events: list[Line]
    state: ShownState
    digest: str


class Derived(msgspec.Struct, frozen=True):
    """A view, and what is put on record of it but by whom it was read. `position` is where the read
    ended; it is this log's, and on no record. `label` is the join of those of what is shown.
    """

    view: View
    position: int
    at: str
    rules: str
    places: list[tuple[str, int]]
    label: Label | None = None

    def event(self, agent: str = "") -> ViewServed:
        """That it was served. Raises BadValue where it names too many events."""
        return ViewServed(
            role=self.view.role,
            agent=agent,
            at=self.at,
            rules=self.rules,
            events=len(self.view.events),
            seen=ranges(self.places),
            digest=self.view.digest,
        )


async def derive(
    states: States, name: str, run: str, at: object = None, key: bytes | None = None
) -> Derived:
    """What a role is shown of a run at a point, by its rules as they stood then.

    key: of hashed values (`hansard.domain.roles.view`). Raises NotFound, BadName, UnknownEvent, and
    BadValue where a mask needs the key.
    """
    position = await states.log.end(await Points(states).up_to(run, at))
    end = AtPosition(position)
    (rules, said_by), history = await asyncio.gather(
        rules_at(states, name, end), states.history(run, end)
    )
    steps = _shown(name, run, history, rules, said_by, position, key)
    async with Slices() as slices:
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                made: Derived = ended.value
                return made
            if slices.over:
                await slices.pause()


def shown(
    name: str,
    run: str,
    history: Sequence[Stored],
    rules: RoleDefined | None,
    said_by: str,
    position: int,
    key: bytes | None,
) -> Derived:
    """What a role with these rules is shown of a run's history, from its first commit on.
    `said_by` is the id of the event that gave it the rules.
    """
    steps = _shown(name, run, history, rules, said_by, position, key)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            made: Derived = ended.value
            return made


def _shown(
    name: str,
    run: str,
    history: Sequence[Stored],
    rules: RoleDefined | None,
    said_by: str,
    position: int,
    key: bytes | None,
) -> Generator[None, None, Derived]:
    """As `shown`, in small steps."""
    places: list[tuple[str, int]] = []
    here: list[tuple[tuple[str, int], Label | None]] = [(("", 0), None)]
    labels: set[Label | None] = set()
    shares = False
    for stored in history:
        shares = shares or refers(stored)
        yield

    def placed() -> Iterator[Happened]:
        events = happened(run, history, shares=shares)
        for place, event in zip(_places(history), events, strict=True):
            here[0] = place, event.facts.label
            yield event

    lines: list[Line] = []
    serving, folding = Serving(), Folding()
    for line in each_judged(rules, placed(), key):  # one by one: a line is of the newest event
        if line is not None:
            lines.append(line)
            serving.add(*line)
            folding.add(line[1])
            place, label = here[0]
            places.append(place)
            labels.add(label)
        yield
    found = View(run, name, lines, folding.state(), serving.served.digest)
    at, shown_label = history[-1].commit.id, join(*labels).stored
    return Derived(found, position, at, said_by, places, shown_label)


def _places(history: Sequence[Stored]) -> Iterator[tuple[str, int]]:
    """The stream's name and the version of each event."""
    for stored in history:
        name, version = str(stored.stream), stored.commit.version
        for index in range(len(stored.commit.events)):
            yield name, version + index


async def rules_at(states: States, name: str, up_to: UpTo) -> tuple[RoleDefined | None, str]:
    """A role's rules at a point, and the id of the event that gave them; None and nothing where it
    had none. Raises BadName, UnknownEvent.
    """
    return _rules(await states.log.read(_rules_of(name), up_to=up_to))


def _rules_of(name: str) -> WorkspaceStream:
    return WorkspaceStream(KIND, ids.name("role", name))


def _rules(
    commits: Sequence[Stored], of_event: str | None = None
) -> tuple[RoleDefined | None, str]:
    """A role's rules and the id of the event that gave them: the newest, or a certain one. Raises
    NotFound.
    """
    state, said_by = check.initial(), ""
    for stored in commits:
        for recorded in stored.commit.events:
            event = revive(recorded)
            state = check.fold(state, [event])
            said_by = "" if isinstance(event, RoleWithdrawn) else recorded.id
            if of_event == recorded.id:
                return state.rules, said_by
    if of_event:
        raise NotFound(
            f"event {of_event}, the rules of a view",
            "a copy of a run has none: ask the log that it was copied from",
        )
    return state.rules, said_by


# ---------------------------------------------------------------- what was served


def stream_of(run: str, name: str) -> KeyStream:
    """Where it stands what was served to a role of a run."""
    return KeyStream(run, key_of(name))


class OnRecord(msgspec.Struct, frozen=True):
    """A view that was served: its event, the event's id, and the commit that holds it."""

    id: str
    event: ViewServed
    stored: Stored


async def on_record(states: States, run: str, name: str, up_to: UpTo = None) -> list[OnRecord]:
    """The views of a run that were served to a role, in their order; a fork's parent's first."""
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


async def again(states: States, one: OnRecord, key: bytes | None = None) -> Derived:
    """A view that was served, derived from the log again; whether it is the same is the caller's to
    see. Raises NotFound where its rules or its run are not in this log.
    """
    run = run_of(one.stored.stream) or ""
    report = await states.log.read(_rules_of(one.event.role))
    rules, said_by = _rules(report, one.event.rules)
    if not one.event.rules:
        rules, said_by = None, ""
    history = await states.history(run)
    ends = [index for index, each in enumerate(history) if each.commit.id == one.event.at]
    if not ends:
        raise Corrupt(f"view {one.id}", f"run {run} has no commit {one.event.at}")
    return shown(one.event.role, run, history[: ends[0] + 1], rules, said_by, 0, key)


async def next_version(states: States, stream: KeyStream) -> int:
    """The version of the next event of a stream of views."""
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
) -> Derived:
    """Serve a role's view of a run to a person, and put that on record.

    Raises as `derive`, and Conflict after 50 lost races.
    """
    ids.name("by", by)
    made = await derive(workspace.states, name, run, at, key)
    await record(workspace, made, by)
    return made


async def record(workspace: Workspace, made: Derived, by: str | Actor) -> None:
    """Put on record that a view was served to a person. Raises Conflict after 50 lost races."""
    stream = stream_of(made.view.run, made.view.role)

    def served(version: int) -> Append:
        commit = workspace.commit(version, by, [made.event()], label=made.label)
        return Append(stream, commit)

    read = functools.partial(next_version, workspace.states, stream)
    await transact(read, served, workspace.log.append)


async def follow(
    workspace: Workspace, name: str, run: str, *, by: str = OS_USER, key: bytes | None = None
) -> AsyncGenerator[Derived, None]:
    """Serve a role's view of a run to a person now, and again whenever it has changed, until it is
    closed; each change is put on record once. What happens while a view is derived is of the next.

    Costs a read of the run for each of its events that come one by one. Raises as `serve`.
    """
    made = await serve(workspace, name, run, by=by, key=key)
    yield made
    head, rules = made.position, _rules_of(name)
    async with contextlib.aclosing(workspace.log.follow(after=head)) as commits:  # type: ignore[type-var]  # the port says iterator, each log gives a generator
        async for stored in commits:
            views = isinstance(stored.stream, KeyStream) and stored.stream.key.startswith(VIEWS)
            concerns = stored.stream == rules or (run_of(stored.stream) == run and not views)
            if stored.position <= head or not concerns:
                continue
            now = await derive(workspace.states, name, run, None, key)
            head = now.position
            if (now.view.digest, now.rules) != (made.view.digest, made.rules):
                made = now
                await record(workspace, made, by)
                yield made


# Puts on record what was answered in SQL to whoever asked as a role.


async def answered(
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
    """State that a question was answered from a role's tables, before the answer is given.

    asked: its digest (`digest_of`); head: the log's position that the tables were made up to;
    position: the role's own there.
    Raises BadName, Unreachable, and Conflict after 50 lost races.
    """
    ids.name("by", Actor.of(by).agent)
    stream = WorkspaceStream(QUERY_KIND, ids.name("role", role))
    _, rules = await rules_at(workspace.states, role, AtPosition(head))
    at = (await workspace.log.at(head)).commit.id if head else ""
    event = QueryAnswered(
        role=role,
        at=at,
        rules=rules,
        statement=question,
        position=position,
        rows=rows,
        cut=cut,
    )
    await workspace.add_lasting(stream, by, event)


def digest_of(
    statement: str, parameters: Sequence[object], tables: Mapping[str, bytes] = NOTHING
) -> str:
    """Of what was asked: of the SQL alone where it has no parameters and came with no tables."""
    text = msgspec.json.encode(list(parameters)) if parameters else b""
    for name, data in tables.items():
        text += f"\n{name} {hashlib.sha256(data).hexdigest()}".encode()
    return hashlib.sha256(statement.encode() + text).hexdigest()
