"""Inputs of a decision, as a program states them, resolved to their source events.

An input is whatever the program has at hand: a value that a call returned, or a part of one; a
step; an entry of the run's shared state; a view; or the id of an event or commit. Ids of events are
recorded. Any other input is rejected before anything is recorded.

Values are matched by content: the digest of each result is recorded. So the same program states the
same inputs in every mode. The search covers first the results that the agent had received in the
decision's scope (see `Ledger.received_in`), then all other results of this session.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from hansard.agents.access import views
from hansard.agents.access.views import View
from hansard.agents.board.operations import BoardEntry
from hansard.agents.flow import Flow, Io
from hansard.agents.policy.permits import reads, rebuilds
from hansard.agents.steps import payloads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.scope import Scope
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtTime, EventLog, Stored
from hansard.domain import aggregate_types, values
from hansard.domain.aggregate_types import stream_of
from hansard.domain.board import key_name
from hansard.domain.errors import BadName, BadValue
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.payload import references
from hansard.domain.payload.parts import WholeSteps, as_blob
from hansard.domain.steps import (
    Step,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepSettled,
    StepStatus,
    Verdict,
)
from hansard.domain.values import Plain

PARTS_MAX = 20
"""Largest number of results that may contain a part; if more do, its source is ambiguous."""

SHOWN_MAX = 3
"""Number of candidates that an error lists."""

WORDS_MAX = 60
"""Longest text of a value in an error, in characters."""

LOOKED_MAX, LOOKED_BYTES_MAX = 200, 4_096
"""Newest steps that an error searches for candidates, and largest result searched, in bytes."""

BEFORE_MS, AFTER_MS = 2_000, 10_000
"""Search range around the time in an event's id, in milliseconds: ids are made just before a commit
is sent, by a clock that may differ from the log's."""

AROUND_MAX = 20_000
"""Largest number of commits that are searched around that time."""

NEWEST_MAX = 50_000
"""Newest commits that are searched for an id of another run, which takes about two seconds."""

UNUSED_KEY = bytes(32)
"""Key for hashed values where only the ids of the events that a role sees are read."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STEP = re.compile(r"(?P<agent>.+)#(?P<step>\d{1,9})", re.DOTALL)
_KEY = re.compile(r"(?P<key>.+)@(?P<version>\d{1,15})", re.DOTALL)
_REMEDY = (
    "give a value that a call returned, a step ('{agent}#1'), an entry of the board or "
    "'key@version', a view, an aggregate, or the id of an event or commit"
)
_encoder = msgspec.json.Encoder()


def stated(inputs: Iterable[Any]) -> list[Any]:
    """Return a decision's inputs in a portable form: texts unchanged, all else as its kind and
    identifying fields. Raises BadValue.
    """
    if isinstance(inputs, str | bytes | dict) or not isinstance(inputs, Iterable):
        fact = f"inputs={inputs!r:.80} is not a list of inputs"
        raise BadValue("decision", fact, "give a list, such as [profile, scores]")
    return [_stated(each, n) for n, each in enumerate(inputs, 1)]


def _where(number: int) -> str:
    return f"decision: input {number}"


def _stated(value: object, number: int) -> Any:
    match value:
        case str():
            return value
        case BoardEntry():
            return ["entry", value.key, value.version]
        case View():
            return ["view", value.run, value.role, len(value.events), value.digest]
        case Step():
            return ["step", value.number, value.fingerprint]
        case _ if aggregate_types.is_declared(type(value)):
            return _aggregate(value, number)
        case _:
            values.plain(value, _where(number))  # rejects values that cannot be recorded
            return ["value", value]


def _aggregate(aggregate: Any, number: int) -> Any:
    """Return an aggregate as an input, at its recorded version."""
    version = aggregate.version - len(aggregate.pending_events)
    if version < 1:
        fact = f"{aggregate_types.declared(type(aggregate)).name} {aggregate.id} was never saved"
        raise BadValue(_where(number), fact, "save it first, or give the values it was made from")
    return ["aggregate", aggregate_types.declared(type(aggregate)).name, str(aggregate.id), version]


class _AvailableInputs:
    """Results available to an agent at a decision: `near` in its scope, `received` anywhere."""

    def __init__(
        self, agent: str, steps: Mapping[int, Step], near: list[int], received: list[int]
    ) -> None:
        self._agent = agent
        self._steps = steps
        self._near = near
        scoped = set(near)
        self._all = (near, [number for number in received if number not in scoped])
        self._whole: tuple[dict[str, list[int]], ...] = tuple(map(self._by_digest, self._all))

    def _by_digest(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        steps: dict[str, list[int]] = {}
        for number in numbers:
            step = self._steps[number]
            if step.status is StepStatus.COMPLETED:
                steps.setdefault(step.digest, []).append(number)
        return steps

    def name(self, number: int) -> str:
        """Return a step's name for error messages."""
        return f"{self._agent}#{number} {self._steps[number].tool}"

    def returned(self, plain: Plain, where: str) -> list[int]:
        """Return the steps that returned a value.

        Prefers steps whose whole result is the value, then steps whose result contains it; in each
        case, the scope's before the session's. Raises BadValue if too many results contain it.
        """
        marks = [digest(canonical(plain))]
        if type(plain) is list:  # the items of a stream
            marks.append(references.rolling([digest(canonical(item)) for item in plain]))
        for whole in self._whole:
            steps = sorted({number for mark in marks for number in whole.get(mark, ())})
            if steps:
                return steps
        for numbers in self._all:
            steps = [number for number in numbers if self._holds(self._steps[number], plain)]
            if len(steps) > PARTS_MAX:
                fact = f"{_words(plain)} is part of the results of {len(steps)} steps"
                remedy = f"name the one that it comes from, as {self._agent}#{steps[-1]}"
                raise BadValue(where, fact, remedy)
            if steps:
                return steps
        return []

    @staticmethod
    def _holds(step: Step, plain: Plain) -> bool:
        """Return whether a result contains a value. A blob reference is not followed, but may
        itself be the part.
        """
        if step.status is not StepStatus.COMPLETED:
            return False
        packed = bytes(payloads.pack(plain).raw)
        targets = [plain] if len(packed) <= payloads.INLINE_BYTES_MAX else []
        if references.BLOB in packed:
            targets = [msgspec.json.decode(packed)]
        for raw in map(bytes, (step.result, *step.items)):
            if type(plain) in _SIMPLE and packed not in raw:
                continue
            for part in _parts(as_blob(msgspec.json.decode(raw))):
                if any(_same(part, each) for each in targets):
                    return True
        return False

    def versions(self, key: str) -> list[int]:
        """Return the versions of a key that the agent read or wrote."""
        steps = [self._steps[number] for number in self._near]
        items = [each for step in steps for each in _of_keys(step) if each.get("key") == key]
        return [each["version"] for each in items if each.get("version")]

    def served(self, mark: tuple[int, str]) -> list[str]:
        """Return the events that record the serving of a view with this content."""
        events: list[str] = []
        for number in (*self._all[0], *self._all[1]):
            step = self._steps[number]
            if step.kind == "view" and step.status is StepStatus.COMPLETED:
                fields = msgspec.json.decode(step.result)
                if (fields["events"], fields["digest"]) == mark:
                    events.append(fields["served"])
        return events

    def refuse(self, plain: Plain, where: str) -> NoReturn:
        """Raise BadValue for a value that no call returned, listing the nearest candidates."""
        fact = f"{_words(plain)} was returned by no call here"
        nearest = [
            f"{_words(part)} of {self.name(number)}" for number, part in self._nearest(plain)
        ]
        shown = f"the nearest: {', '.join(nearest)}; " if nearest else ""
        raise BadValue(where, fact, shown + _REMEDY.format(agent=self._agent))

    def _nearest(self, plain: Plain) -> list[tuple[int, Plain]]:
        leaves: list[tuple[int, Plain]] = []
        for number in reversed(self._near[-LOOKED_MAX:]):
            step = self._steps[number]
            if step.status is StepStatus.COMPLETED and len(bytes(step.result)) <= LOOKED_BYTES_MAX:
                leaves += [(number, part) for part in _parts(msgspec.json.decode(step.result))]
        if type(plain) in (int, float):
            numbers = [each for each in leaves if type(each[1]) in (int, float)]
            return sorted(numbers, key=lambda each: abs(each[1] - plain))[:SHOWN_MAX]
        if type(plain) is str:
            texts = {part: number for number, part in leaves if type(part) is str}
            close = difflib.get_close_matches(plain[:WORDS_MAX], texts, SHOWN_MAX)
            return [(texts[text], text) for text in close]
        return [each for each in leaves if type(each[1]) is type(plain)][:SHOWN_MAX]


_SIMPLE = (str, int, float, bool, type(None))


def _parts(plain: Plain) -> Iterator[Plain]:
    """Yield a value and all its nested values."""
    yield plain
    inside: Iterable[Plain] = ()
    if type(plain) is dict:
        inside = plain.values()
    elif type(plain) is list:
        inside = plain
    for each in inside:
        yield from _parts(each)


def _same(one: Plain, other: Plain) -> bool:
    if type(one) in (int, float) and type(other) in (int, float):
        return bool(one == other)
    if type(one) is not type(other):
        return False
    if type(one) in (dict, list):
        return len(one) == len(other) and canonical(one) == canonical(other)
    return bool(one == other)


def _of_keys(step: Step) -> list[dict[str, Any]]:
    """Return a board operation's result for each key; empty for any other step."""
    result = msgspec.json.decode(step.result) if step.kind == "board" else None
    if type(result) is not dict or "$blob" in result:
        return []
    items: list[dict[str, Any]] = result.get("keys", [result])
    return [{"key": msgspec.json.decode(step.arguments).get("key"), **each} for each in items]


def _words(plain: Plain) -> str:
    text = _encoder.encode(plain).decode()
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 3]}..."


class _One(msgspec.Struct, frozen=True):
    """An input to resolve: the candidates, and its name in error messages."""

    known: _AvailableInputs
    where: str

    def refuse(self, fact: str, remedy: str) -> NoReturn:
        """Raise BadValue for this input."""
        raise BadValue(self.where, fact, remedy)


class Inputs:
    """Resolves a session's inputs to their source events."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine
        self._ledger = engine.ledger
        self._outcomes: dict[str, dict[int, str]] = {}
        """Event ids of step outcomes, by agent and step number, as read."""
        self._there: set[str] = set()
        """Event ids that are known to be recorded."""

    def resolve(self, inputs: Sequence[Any], scope: Scope) -> Flow[list[str]]:
        """Return the ids of the inputs' source events, in order. Ids are not checked here: see
        `demand`. Raises BadValue.
        """
        with self._ledger.lock:  # results received while this waits do not count
            near = self._ledger.received_in(scope)
            received = sorted(self._ledger.received)
            known = _AvailableInputs(self._agent, WholeSteps(dict(self._steps)), near, received)
        events: list[str] = []
        for number, each in enumerate(inputs, 1):
            one = _One(known, _where(number))
            for event in (yield from self._of(one, each)):
                if event not in events:
                    events.append(event)
        return events

    def _of(self, one: _One, item: Any) -> Flow[list[str]]:
        match item:
            case str():
                return (yield from self._text(one, item))
            case ["value", value]:
                plain = self._plain(value, one.where)
                steps = one.known.returned(plain, one.where)
                if not steps:
                    one.known.refuse(plain, one.where)
                return (yield from self._ended(one, steps))
            case ["step", int(number), str(mark)]:
                step = self._steps.get(number)
                if step is None or step.fingerprint != mark:
                    fact = f"step {number} is not a step of {self._agent} in this run"
                    one.refuse(fact, "name the agent as well, as 'agent#number'")
                return (yield from self._ended(one, [number]))
            case ["entry", str(key), int(version)]:
                return (yield from self._entry(one, key, version))
            case ["view", str(run), str(role), int(events), str(mark)]:
                return self._view(one, run, role, (events, mark))
            case ["aggregate", str(name), str(aggregate_id), int(version)]:
                return (yield from self._changed(one, name, aggregate_id, version))
            case _:
                remedy = _REMEDY.format(agent=self._agent)
                return one.refuse(f"{item!r:.80} is not an input", remedy)

    # ------------------------------------------------------------ texts

    def _text(self, one: _One, text: str) -> Flow[list[str]]:
        plain = self._plain(text, one.where)
        steps = one.known.returned(plain, one.where)
        if steps:
            return (yield from self._ended(one, steps))
        if type(plain) is not str:
            one.known.refuse(plain, one.where)
        if _UUID.fullmatch(plain.lower()):
            return [plain.lower()]
        named = _STEP.fullmatch(plain)
        if named is not None and (yield from self._is_agent(named["agent"])):
            return (yield from self._step(one, named["agent"], int(named["step"])))
        named = _KEY.fullmatch(plain)
        if named is not None:
            return (yield from self._entry(one, named["key"], int(named["version"])))
        versions = one.known.versions(plain)
        if versions:
            return (yield from self._entry(one, plain, versions[-1]))
        return one.known.refuse(plain, one.where)

    def _is_agent(self, name: str) -> Flow[bool]:
        if name == self._agent or self._engine.settings.permit.is_limited:
            return True  # a limited role may not learn which agents exist
        life = yield Io(functools.partial(self._states.life, self._engine.stream.run))
        return name in life.roster

    def _step(self, one: _One, agent: str, number: int) -> Flow[list[str]]:
        if agent == self._agent:
            return (yield from self._ended(one, [number]))
        name = f"{agent}#{number}"
        if self._engine.settings.permit.is_limited:
            remedy = "give the id of an event that session.view() shows"
            one.refuse(
                f"{name} belongs to another agent, whose steps this role is not shown", remedy
            )
        read = functools.partial(self._read_outcomes, agent)
        outcomes = self._outcomes.get(agent, {})
        if number not in outcomes:
            outcomes = yield Io(read)
        if number not in outcomes:
            known = ", ".join(f"{agent}#{n}" for n in sorted(outcomes)[-SHOWN_MAX:]) or "none"
            fact = f"{name} has no outcome on record"
            one.refuse(fact, f"its newest steps with one: {known}")
        return [outcomes[number]]

    # ------------------------------------------------------------ steps

    def _ended(self, one: _One, numbers: Sequence[int]) -> Flow[list[str]]:
        """Return the event ids of the outcomes of this agent's own steps."""
        for number in numbers:
            step = self._steps.get(number)
            if step is None or step.outcome_version is None or step.is_open:
                name = f"{self._agent}#{number}"
                ended = [n for n, step in self._steps.items() if not step.is_open][-SHOWN_MAX:]
                known = ", ".join(map(one.known.name, ended)) or "none"
                fact = f"{name} is not a step" if step is None else f"{name} has no outcome"
                one.refuse(f"{fact} on record", f"its newest steps with one: {known}")
        with self._ledger.lock:
            events = [self._ledger.ids.get(number) for number in numbers]
        if None in events:
            mine = self._outcomes.get(self._agent, {})
            if any(number not in mine for number in numbers):
                mine = yield Io(functools.partial(self._read_outcomes, self._agent))
            events = [known or mine[n] for known, n in zip(events, numbers, strict=True)]
        ids = [event for event in events if event is not None]
        self._there.update(ids)
        return ids

    async def _read_outcomes(self, agent: str) -> dict[int, str]:
        """Return the event id of the newest outcome of each step of an agent. Reads its stream."""
        run = self._engine.stream.run
        life = await self._states.life(run)
        stream = AgentStream(run, life.roster[agent], agent)
        outcomes: dict[int, str] = {}
        for stored in await self._states.commits(stream):
            for recorded in stored.commit.events:
                if not recorded.type.startswith("step."):
                    continue
                event = revive(recorded)
                if isinstance(event, StepCompleted | StepFailed | StepBlocked) or (
                    isinstance(event, StepSettled) and event.verdict is Verdict.HAPPENED
                ):
                    outcomes[event.step] = recorded.id
        self._outcomes[agent] = outcomes
        self._there.update(outcomes.values())
        return outcomes

    # ------------------------------------------------------------ entries and views

    def _entry(self, one: _One, key: str, version: int) -> Flow[list[str]]:
        """Return the event that wrote a version of a key."""
        engine = self._engine
        try:
            key_name(key)
        except BadName as error:
            one.refuse(f"{key!r:.80} is not a key ({error})", _REMEDY.format(agent=self._agent))
        if not engine.settings.permit.ask(reads(key)).allowed:
            one.refuse(f"key {key!r:.80} is not readable by this role", "give another key")
        read = functools.partial(
            self._states.commits, KeyStream(engine.stream.run, key), to=version
        )
        commits: list[Stored] = yield Io(read)
        event = _event_at(commits, version)
        if event is not None:
            self._there.add(event)
            return [event]
        newest = commits[-1].commit.last_version if commits else 0
        text = f"it is at version {newest}" if newest else "it was never written"
        remedy = _REMEDY.format(agent=self._agent)
        return one.refuse(f"key {key!r:.80} has no version {version}: {text}", remedy)

    def _changed(self, one: _One, name: str, aggregate_id: str, version: int) -> Flow[list[str]]:
        """Return the event that brought an aggregate to a version."""
        if not self._engine.settings.permit.ask(rebuilds(name)).allowed:
            one.refuse(f"{name} {aggregate_id:.80} is not readable by this role", "give another")
        read = functools.partial(
            self._states.log.read, stream_of(aggregate_id), after=0, to=version
        )
        commits: list[Stored] = yield Io(read)
        event = _event_at(commits, version)
        if event is None:
            fact = f"{name} {aggregate_id} has no version {version} on record"
            one.refuse(fact, "get it again, and give the new one")
        self._there.add(event)
        return [event]

    def _view(self, one: _One, run: str, role: str, mark: tuple[int, str]) -> list[str]:
        """Return the events that record the serving of a view."""
        if (run, role) == (self._engine.stream.run, self._engine.stream.role):
            served = one.known.served(mark)
            if served:
                self._there.update(served)
                return served
        fact = f"a view of run {run} as {role} that this agent was not shown"
        return one.refuse(fact, "give what session.view() returned in this session")

    # ------------------------------------------------------------ ids

    def demand(self, events: Sequence[str]) -> Flow[None]:
        """Raise BadValue for an id that is not recorded, or not visible to the role.

        Usually costs two short reads of the log; for an imported id of another run, a search of the
        newest 50,000 commits.
        """
        with self._ledger.lock:
            self._there.update(self._ledger.ids.values())
        for number, event in enumerate(events, 1):
            if event in self._there:
                continue
            seen = yield Io(functools.partial(self._is_there, event))
            if not seen:
                limited = self._engine.settings.permit.is_limited
                fact = f"no event or commit {event} is " + (
                    "shown to this role" if limited else "on record"
                )
                where, remedy = _where(number), _REMEDY.format(agent=self._agent)
                raise BadValue(where, fact, remedy)
            self._there.add(event)

    async def _is_there(self, target: str) -> bool:
        run, log = self._engine.stream.run, self._states.log
        if self._engine.settings.permit.is_limited:
            role = self._engine.stream.role
            made = await views.derive(self._states, role, run, key=UNUSED_KEY)
            return any(shown.id == target for _, shown in made.view.events)
        if await _around(log, target):
            return True
        try:
            history = await self._states.history(run)
        except NotFound:
            history = []
        if any(_holds(stored, target) for stored in history):
            return True
        head = await log.head()
        return await _among(log, target, max(0, head - NEWEST_MAX), head)

    # ------------------------------------------------------------ session state

    @property
    def _agent(self) -> str:
        return self._engine.stream.agent

    @property
    def _states(self) -> Any:
        return self._engine.boards.states

    @property
    def _steps(self) -> dict[int, Step]:
        return self._ledger.state.steps

    def _plain(self, value: Any, where: str) -> Plain:
        return values.plain(value, where, self._engine.settings.scrub)


def _event_at(commits: Sequence[Stored], version: int) -> str | None:
    """Return the id of the event with a version of its stream."""
    for stored in reversed(commits):
        if stored.commit.version <= version <= stored.commit.last_version:
            return stored.commit.events[version - stored.commit.version].id
    return None


def _holds(stored: Stored, target: str) -> bool:
    """Return whether a commit or one of its events has this id."""
    if target.encode() not in stored.body:
        return False
    return target in (stored.commit.id, *(event.id for event in stored.commit.events))


async def _around(log: EventLog, target: str) -> bool:
    """Return whether an id is recorded around the time that it contains."""
    if target[14] != "7":
        return False
    made_ms = int(target[:8] + target[9:13], 16)
    begin = await log.end(AtTime((made_ms - BEFORE_MS) * 1_000_000))
    end = await log.end(AtTime((made_ms + AFTER_MS) * 1_000_000))
    return await _among(log, target, begin, min(end, begin + AROUND_MAX))


async def _among(log: EventLog, target: str, after: int, until: int) -> bool:
    if until <= after:
        return False
    commits: Any = log.follow(after, until=until)
    try:
        async for stored in commits:
            if _holds(stored, target):
                return True
    finally:
        await commits.aclose()
    return False
