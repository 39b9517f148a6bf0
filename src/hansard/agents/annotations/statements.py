"""Facts that an agent states once: checkpoints, messages, decisions, resources, hand-offs.

A fact counts as recorded if one with the same fingerprint is: the same content at the same place in
its scope's chain. Stating it again on resume records nothing. The inputs of a decision are resolved
to their source events.

Long because an input may be any of six kinds of things, each with its search.
"""

from __future__ import annotations

import difflib
import functools
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec

from hansard.agents.access import roles
from hansard.agents.access.roles import View
from hansard.agents.board import BoardEntry
from hansard.agents.errors import Miss
from hansard.agents.flow import Flow, Io, Watch
from hansard.agents.policy.permits import reads, rebuilds, states
from hansard.agents.steps import payloads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import demand_hand_off
from hansard.agents.steps.scope import Scope, around, back, current, enter, unrecorded_joins
from hansard.agents.workspace import ended_sessions
from hansard.bus.commits import record, revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtTime, EventLog, Stored
from hansard.domain import aggregate_types, ids, values
from hansard.domain import payload as references
from hansard.domain.agent import (
    CheckpointSaved,
    DecisionMade,
    Fact,
    HandedOff,
    MessageAdded,
    Note,
    ResourceAccessed,
    StatedFact,
    window_of,
)
from hansard.domain.agent import alternatives as recorded_alternatives
from hansard.domain.aggregate_types import stream_of
from hansard.domain.board import key_name
from hansard.domain.checkpoints import Pace
from hansard.domain.conversation import ContextCompacted
from hansard.domain.errors import BadName, BadValue
from hansard.domain.fingerprint import UNORDERED, canonical, digest, fact_base, fact_fingerprint
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.label import parse
from hansard.domain.payload import WholeSteps, as_blob
from hansard.domain.redaction import check_names
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

# Inputs of a decision, as a program states them, resolved to their source events.
#
# An input is whatever the program has at hand: a value that a call returned, or a part of one; a
# step; an entry of the run's shared state; a view; or the id of an event or commit. Ids of events
# are recorded. Any other input is rejected before anything is recorded.
#
# Values are matched by content: the digest of each result is recorded. So the same program states
# the same inputs in every mode. The search covers first the results that the agent had received in
# the decision's scope (see `Ledger.received_in`), then all other results of this session.

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


class _Available:
    """Results available to an agent at a decision: `near` in its scope, `received` anywhere."""

    def __init__(
        self, agent: str, steps: Mapping[int, Step], near: list[int], received: list[int]
    ) -> None:
        self._agent = agent
        self.remedy = _REMEDY.format(agent=agent)
        self.where = ""
        """Name of the input that is resolved, for error messages."""
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

    def returned(self, plain: Plain) -> list[int]:
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
                self.refuse(fact, remedy)
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

    def refuse(self, fact: str, remedy: str = "") -> NoReturn:
        """Raise BadValue for the input that is resolved."""
        raise BadValue(self.where, fact, remedy or self.remedy)

    def refuse_value(self, plain: Plain) -> NoReturn:
        """Raise BadValue for a value that no call returned, listing the nearest candidates."""
        nearest = [
            f"{_words(part)} of {self.name(number)}" for number, part in self._nearest(plain)
        ]
        shown = f"the nearest: {', '.join(nearest)}; " if nearest else ""
        self.refuse(f"{_words(plain)} was returned by no call here", shown + self.remedy)

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


class Inputs:
    """Resolves a session's inputs to their source events."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine
        self._ledger = engine.ledger
        self._agent = engine.stream.agent
        self._states = engine.boards.states
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
            known = _Available(self._agent, WholeSteps(dict(self._steps)), near, received)
        events: list[str] = []
        for number, each in enumerate(inputs, 1):
            known.where = _where(number)
            for event in (yield from self._of(known, each)):
                if event not in events:
                    events.append(event)
        return events

    def _of(self, known: _Available, item: Any) -> Flow[list[str]]:
        match item:
            case str():
                return (yield from self._text(known, item))
            case ["value", value]:
                plain = self._plain(value, known.where)
                steps = known.returned(plain)
                if not steps:
                    known.refuse_value(plain)
                return (yield from self._ended(known, steps))
            case ["step", int(number), str(mark)]:
                step = self._steps.get(number)
                if step is None or step.fingerprint != mark:
                    fact = f"step {number} is not a step of {self._agent} in this run"
                    known.refuse(fact, "name the agent as well, as 'agent#number'")
                return (yield from self._ended(known, [number]))
            case ["entry", str(key), int(version)]:
                return (yield from self._entry(known, key, version))
            case ["view", str(run), str(role), int(events), str(mark)]:
                return self._view(known, run, role, (events, mark))
            case ["aggregate", str(name), str(aggregate_id), int(version)]:
                return (yield from self._changed(known, name, aggregate_id, version))
            case _:
                return known.refuse(f"{item!r:.80} is not an input")

    # ------------------------------------------------------------ texts

    def _text(self, known: _Available, text: str) -> Flow[list[str]]:
        plain = self._plain(text, known.where)
        steps = known.returned(plain)
        if steps:
            return (yield from self._ended(known, steps))
        if type(plain) is not str:
            known.refuse_value(plain)
        if _UUID.fullmatch(plain.lower()):
            return [plain.lower()]
        named = _STEP.fullmatch(plain)
        if named is not None and (yield from self._is_agent(named["agent"])):
            return (yield from self._step(known, named["agent"], int(named["step"])))
        named = _KEY.fullmatch(plain)
        if named is not None:
            return (yield from self._entry(known, named["key"], int(named["version"])))
        versions = known.versions(plain)
        if versions:
            return (yield from self._entry(known, plain, versions[-1]))
        return known.refuse_value(plain)

    def _is_agent(self, name: str) -> Flow[bool]:
        if name == self._agent or self._engine.settings.permit.is_limited:
            return True  # a limited role may not learn which agents exist
        life = yield Io(functools.partial(self._states.life, self._engine.stream.run))
        return name in life.roster

    def _step(self, known: _Available, agent: str, number: int) -> Flow[list[str]]:
        if agent == self._agent:
            return (yield from self._ended(known, [number]))
        name = f"{agent}#{number}"
        if self._engine.settings.permit.is_limited:
            remedy = "give the id of an event that session.view() shows"
            known.refuse(
                f"{name} belongs to another agent, whose steps this role is not shown", remedy
            )
        read = functools.partial(self._read_outcomes, agent)
        outcomes = self._outcomes.get(agent, {})
        if number not in outcomes:
            outcomes = yield Io(read)
        if number not in outcomes:
            newest = ", ".join(f"{agent}#{n}" for n in sorted(outcomes)[-SHOWN_MAX:]) or "none"
            fact = f"{name} has no outcome on record"
            known.refuse(fact, f"its newest steps with one: {newest}")
        return [outcomes[number]]

    # ------------------------------------------------------------ steps

    def _ended(self, known: _Available, numbers: Sequence[int]) -> Flow[list[str]]:
        """Return the event ids of the outcomes of this agent's own steps."""
        for number in numbers:
            step = self._steps.get(number)
            if step is None or step.outcome_version is None or step.is_open:
                name = f"{self._agent}#{number}"
                ended = [n for n, step in self._steps.items() if not step.is_open][-SHOWN_MAX:]
                newest = ", ".join(map(known.name, ended)) or "none"
                fact = f"{name} is not a step" if step is None else f"{name} has no outcome"
                known.refuse(f"{fact} on record", f"its newest steps with one: {newest}")
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

    def _entry(self, known: _Available, key: str, version: int) -> Flow[list[str]]:
        """Return the event that wrote a version of a key."""
        engine = self._engine
        try:
            key_name(key)
        except BadName as error:
            known.refuse(f"{key!r:.80} is not a key ({error})")
        if not engine.settings.permit.ask(reads(key)).allowed:
            known.refuse(f"key {key!r:.80} is not readable by this role", "give another key")
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
        return known.refuse(f"key {key!r:.80} has no version {version}: {text}")

    def _changed(
        self, known: _Available, name: str, aggregate_id: str, version: int
    ) -> Flow[list[str]]:
        """Return the event that brought an aggregate to a version."""
        if not self._engine.settings.permit.ask(rebuilds(name)).allowed:
            known.refuse(f"{name} {aggregate_id:.80} is not readable by this role", "give another")
        read = functools.partial(
            self._states.log.read, stream_of(aggregate_id), after=0, to=version
        )
        commits: list[Stored] = yield Io(read)
        event = _event_at(commits, version)
        if event is None:
            fact = f"{name} {aggregate_id} has no version {version} on record"
            known.refuse(fact, "get it again, and give the new one")
        self._there.add(event)
        return [event]

    def _view(self, known: _Available, run: str, role: str, mark: tuple[int, str]) -> list[str]:
        """Return the events that record the serving of a view."""
        if (run, role) == (self._engine.stream.run, self._engine.stream.role):
            served = known.served(mark)
            if served:
                self._there.update(served)
                return served
        fact = f"a view of run {run} as {role} that this agent was not shown"
        return known.refuse(fact, "give what session.view() returned in this session")

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
            made = await roles.derive(self._states, role, run, key=UNUSED_KEY)
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


PROGRESS = "progress:"
"""Prefix of the names of checkpoints that `resumable` records."""

Every = int | Literal["auto"]
"""Items between two of them, or `auto` for a choice from measurements."""

CHOICE = "auto"
"""That choice in a checkpoint's data."""

FOLLOWED = {"source": "record"}
"""The choice of a checkpoint that follows a recorded one whose choice is masked, or was none."""


class Annotations:
    """States a session's facts."""

    def __init__(self, engine: StepEngine) -> None:
        self.engine = engine
        self._inputs = Inputs(engine)
        self._stated: set[str] = set()
        """Fingerprints of the facts that this session has stated, or skipped as done."""

    def plain(self, value: Any, where: str) -> Any:
        """Return a value as it is recorded. Raises BadValue."""
        return values.plain(value, where, self.engine.settings.scrub)

    def _fields(self, what: str, **fields: Any) -> list[Any]:
        """Return a statement's fields as plain values. Raises BadValue, which names the field."""
        return [self.plain(value, f"{what}({name})") for name, value in fields.items()]

    def _mark(self, scope: Scope, kind: str, content: Any) -> tuple[str, bool]:
        """Return a fact's fingerprint, and whether it is recorded."""
        ledger = self.engine.ledger
        with ledger.lock:
            base = fact_base(kind, scope.path, canonical(content))
            number = scope.occurrence(base)
            marks = [fact_fingerprint(base, number, head) for head in (scope.head, UNORDERED)]
            known = next((mark for mark in marks if mark in ledger.state.known), None)
            mark = known or marks[1 if scope.overlaps else 0]
            self._stated.add(mark)
            return mark, known is not None

    def _is_known(self, scope: Scope, kind: str, content: Any) -> bool:
        """Return whether a fact is recorded, without stating it."""
        ledger = self.engine.ledger
        with ledger.lock:
            base = fact_base(kind, scope.path, canonical(content))
            number = scope.occurrences.get(base, 0)
            marks = (fact_fingerprint(base, number, head) for head in (scope.head, UNORDERED))
            return any(mark in ledger.state.known for mark in marks)

    def stated(self) -> list[StatedFact]:
        """Return this session's facts, in order; on resume the record may hold more."""
        with self.engine.ledger.lock:
            facts = self.engine.ledger.state.facts
            return [noted for noted in facts if noted.fact.fingerprint in self._stated]

    def compacted(self, fact: ContextCompacted, blobs: list[bytes]) -> Flow[None]:
        """State a summary of messages, at its step's place in the chain."""
        scope = self.engine.scope("compact")
        mark, known = self._mark(scope, "compaction", [fact.role, fact.digest])
        if not known:
            after = scope.after[-1] if scope.after else None
            made = msgspec.structs.replace(fact, fingerprint=mark, step=after)
            yield from self._note(scope, made, blobs)

    def skip_to(self, fact: Fact) -> None:
        """Count all recorded facts up to this one as stated; their statements are skipped."""
        with self.engine.ledger.lock:
            for noted in self.engine.ledger.state.facts:
                self._stated.add(noted.fact.fingerprint)
                if noted.fact is fact:
                    return

    def _note(self, scope: Scope, fact: Fact, blobs: list[bytes]) -> Flow[None]:
        with self.engine.ledger.noting(scope):
            size = len(bytes(record(fact, "").data))
            if size > payloads.EVENT_BYTES_MAX:
                limit = f"{payloads.EVENT_BYTES_MAX:,}"
                raise BadValue(
                    fact.tag, f"{size:,} bytes of texts", f"keep them under {limit} in total"
                )
            yield from self.engine.outcomes.demand(states(fact.tag))
            if self.engine.settings.mode.reads_only:
                mode = self.engine.settings.mode.value
                what = f"{type(fact).tag} {fact.fingerprint}"
                raise Miss(mode, what, "no such fact at this place")
            yield from self.engine.outcomes.put(blobs)
            yield from self.engine.outcomes.record(Note(fact))
            if scope.forgets:
                self.engine.ledger.forget_fact(fact)
                self._stated.discard(fact.fingerprint)

    def checkpoint(self, name: str, data: dict[str, Any]) -> Flow[None]:
        """Record that a named stage is reached, with data to resume from."""
        ids.name("checkpoint", name)
        name = self._checkpoint_name(name)
        plain = self.plain(data, f"checkpoint {name!r}")
        scope = self.engine.scope("checkpoint")
        mark, known = self._mark(scope, "checkpoint", [name, plain])
        if not known:
            packed = payloads.pack(plain, f"checkpoint {name!r}")
            joins = unrecorded_joins(scope.junction)
            fact = CheckpointSaved(
                name=name,
                data=packed.raw,
                fingerprint=mark,
                scope=scope.path,
                head=scope.head,
                after=scope.after,
                joins=tuple(join for _, join in joins),
            )
            yield from self._note(scope, fact, packed.blobs)
            for junction, _ in joins:
                junction.mark_recorded()

    def _checkpoint_name(self, name: str) -> str:
        return _text(self.plain(name, "checkpoint name"), "checkpoint name")

    def checkpoint_data(self, name: str) -> Flow[dict[str, Any] | None]:
        """Return the data of the newest checkpoint of a name, or None."""
        self.engine.ledger.demand_open()
        saved = self.engine.ledger.state.checkpoints.get(self._checkpoint_name(name))
        if saved is None:
            return None
        plain = yield from self.engine.outcomes.fetch(references.unpack(saved.data))
        data: dict[str, Any] = values.revive(plain)
        return data

    def latest_checkpoint(self) -> Flow[Checkpoint | None]:
        """Return the newest checkpoint of any name, or None."""
        self.engine.ledger.demand_open()
        with self.engine.ledger.lock:
            facts = [noted.fact for noted in self.engine.ledger.state.facts]
        named = (fact for fact in reversed(facts) if isinstance(fact, CheckpointSaved))
        saved = next((fact for fact in named if not fact.name.startswith(PROGRESS)), None)
        if saved is None:
            return None
        plain = yield from self.engine.outcomes.fetch(references.unpack(saved.data))
        return Checkpoint(saved.name, values.revive(plain))

    def decide(
        self,
        question: str,
        selected: str,
        *,
        alternatives: Iterable[object] = (),
        inputs: Iterable[Any] = (),
        threshold: float | None = None,
        confidence: float | None = None,
        reason: str = "",
    ) -> Flow[None]:
        """Record a decision: the selected alternative, the others, and the reason.

        Args:
            question: The question that was decided.
            selected: The option that was selected.
            alternatives: Dicts or texts: id, score, reason, rejected_because.
            inputs: As returned by `hansard.agents.annotations.statements.stated`.
            threshold: A finite number.
            confidence: A finite number.
            reason: The reason.
        """
        sources = list(inputs)
        fields = {
            "question": question,
            "selected": selected,
            "alternatives": [msgspec.to_builtins(a) for a in recorded_alternatives(alternatives)],
            "inputs": [each for each in sources if type(each) is str],
            "threshold": threshold,
            "confidence": confidence,
            "because": reason,
        }
        plain = _plain_text(self.plain(fields, "decision"))
        scope = self.engine.scope("decide")
        # Recorded unchanged, also for decisions of versions that accepted any text.
        is_old = len(plain["inputs"]) == len(sources) and self._is_known(scope, "decision", plain)
        if sources and not is_old:
            plain["inputs"] = yield from self._inputs.resolve(sources, scope)
            is_stated = self._is_known(scope, "decision", plain)
            if not is_stated and not self.engine.settings.mode.reads_only:
                yield from self._inputs.demand(plain["inputs"])
        mark, known = self._mark(scope, "decision", plain)
        if known:
            return
        where = {"fingerprint": mark, "scope": scope.path, "after": scope.after}
        try:
            fact = msgspec.convert({**plain, **where}, DecisionMade)
        except msgspec.ValidationError as error:
            raise BadValue("decision", str(error), "see the fields of Facts.decide") from error
        yield from self._note(scope, fact, [])

    def message(
        self, role: str, content: Any, tokens: int | None, fields: dict[str, Any]
    ) -> Flow[None]:
        """Add a message to the context window, with its `label` in `fields`. Raises BadValue."""
        label = parse(fields.pop("label", ""), "message label")
        if tokens is not None and (type(tokens) is not int or abs(tokens) > values.SAFE_INT):
            raise BadValue("message tokens", f"{tokens!r:.80}", "give a whole number or None")
        plain = self._fields("message", role=role, content=content, tokens=tokens, fields=fields)
        scope = self.engine.scope("message")
        mark, known = self._mark(scope, "message", plain)
        if known:
            return
        self.engine.ledger.shown(label.stored)
        if self.engine.settings.texts is not None:
            content = self.engine.settings.texts.value(content)
            plain[1] = self._fields("message", content=content)[0]
        packed = payloads.pack(plain[1], "message content")
        extra = payloads.pack(plain[3], "message fields")
        fact = MessageAdded(
            role=_text(plain[0], "message role"),
            content=packed.raw,
            fingerprint=mark,
            tokens=tokens,
            fields=extra.raw if fields else values.dump(None),
            step=scope.after[-1] if scope.after else None,
        )
        yield from self._note(scope, fact, packed.blobs + (extra.blobs if fields else []))

    def resource(self, uri: str, operation: str) -> Flow[None]:
        """Record the use of a resource."""
        plain = self._fields("resource", uri=uri, operation=operation)
        scope = self._inside("resource")
        mark, known = self._mark(scope, "resource", plain)
        if not known:
            fact = ResourceAccessed(
                uri=_text(plain[0], "resource uri"),
                operation=_text(plain[1], "resource operation"),
                fingerprint=mark,
                step=scope.step,
            )
            yield from self._note(scope, fact, [])

    def _inside(self, what: str) -> Scope:
        """Return the current scope, also inside a tool's body: facts about a call may be stated in
        it.
        """
        self.engine.ledger.demand_open()
        return current(self.engine.ledger) or self.engine.scope(what)

    def hand_off(self, to: str, reason: str, payload: dict[str, Any]) -> Flow[None]:
        """Hand the work over to an agent or a role."""
        ids.name("agent or role", to)
        check_names("hand_off", {"to": to}, self.engine.settings.scrub)
        plain = self._fields("hand_off", to=to, reason=reason, payload=payload)
        scope = self.engine.scope("hand_off")
        mark, known = self._mark(scope, "hand_off", plain)
        if not known:
            with self.engine.ledger.noting(scope):
                yield from demand_hand_off(self.engine, to)
            packed = payloads.pack(plain[2], "hand-off payload")
            fact = HandedOff(
                to=_text(plain[0], "hand-off to"),
                fingerprint=mark,
                payload=packed.raw,
                because=_text(plain[1], "hand-off reason"),
                after=scope.after,
            )
            yield from self._note(scope, fact, packed.blobs)

    def context(self) -> Flow[list[dict[str, Any]]]:
        """Return this run's part of the context window, as stated by this session, in the
        provider's form.

        Compacted messages are replaced by their summary. On resume the record holds later messages,
        too; they appear once they are stated again.
        """
        self.engine.ledger.demand_open()
        forms: list[Form] = []
        for noted in window_of(self.stated()):
            if isinstance(noted.fact, MessageAdded | ContextCompacted):
                content = yield from self.engine.outcomes.fetch(content_of(noted.fact))
                forms.append(form_of(content))
        return forms


def _plain_text(plain: Any) -> Any:
    """Return texts without their plain-value wrappers: a secret by its name, lone surrogates
    escaped.
    """
    match plain:
        case {"$secret": str(name)} if len(plain) == 1:
            return f"<secret:{name}>"
        case {"$text": str(escaped)} if len(plain) == 1:
            return escaped
        case dict():
            return {key: _plain_text(item) for key, item in plain.items()}
        case list():
            return [_plain_text(item) for item in plain]
        case _:
            return plain


def _text(plain: Any, where: str) -> str:
    text = _plain_text(plain)
    if type(text) is not str:
        raise BadValue(where, f"{plain!r:.80}", "give a text")
    return text


Form = dict[str, Any]
"""A message in the provider's form."""


def content_of(message: MessageAdded | ContextCompacted) -> references.Fetch:
    """Return a message's role, content and other fields as recorded; a summary as a message."""
    if isinstance(message, ContextCompacted):
        return [message.role, (yield from references.unpack(message.summary)), None]
    content = yield from references.unpack(message.content)
    fields = yield from references.unpack(message.fields)
    return [message.role, content, fields]


def form_of(content: list[Any]) -> Form:
    """Return what `content_of` returned as sent to a model: role, content, and other fields."""
    role, plain, fields = content
    return {"role": role, "content": values.revive(plain), **values.revive(fields or {})}


class Checkpoint(msgspec.Struct, frozen=True):
    """A named stage, as recorded.

    Attributes:
        name: The stage's name.
        data: The data recorded with it.
    """

    name: str
    data: dict[str, Any]


class Progress:
    """Progress of a loop, recorded as its own checkpoints.

    Each checkpoint has the number of items done, a digest of them, the results since the previous
    checkpoint, and the choice of the interval if it is `auto`. Each item is a scope; skipping items
    restores the surrounding chain as recorded, so that the calls after the skipped items find their
    records.

    Where recorded items are not skipped, as in a replay, checkpoints follow the record: their
    choices were made from times.
    """

    def __init__(self, facts: Annotations, name: str, every: Every) -> None:
        if every != CHOICE and (type(every) is not int or every < 1):
            raise BadValue("resumable", f"every={every!r:.80}", "give 1 or more, or 'auto'")
        check_names("resumable", {"name": name}, facts.engine.settings.scrub)
        self._facts = facts
        self._name = PROGRESS + name
        self._every = every
        self._pace = Pace()
        self._recorded: dict[int, Any] = {}
        """Recorded choices to follow, by the number of items done."""
        self._scope = facts.engine.scope("resumable")
        self._child = self._scope
        self._around = around()
        self._done = 0
        self._skip = 0
        self._saved = 0
        self._results: list[Any] = []
        self._running = ""
        self._skipped = ""
        self._began_s = 0.0

    def begin(self) -> Flow[list[Any]]:
        """Find the recorded progress; return its results, in order."""
        engine = self._facts.engine
        newest = engine.ledger.state.checkpoints.get(self._name)
        saves, writes = self._recorded_saves(), not engine.settings.mode.reads_only
        skips = bool(saves) and newest is saves[-1] and writes
        if not skips and self._every != CHOICE:
            return []
        results: list[Any] = []
        data: dict[str, Any] = {}
        for each in saves:
            data = yield from engine.outcomes.fetch(references.unpack(each.data))
            results += values.revive(data.get("results", []))
            if not skips:  # a replay runs every item
                self._recorded[data["done"]] = data.get(CHOICE, FOLLOWED)
        if self._every == CHOICE and writes:
            log, alone = engine.workspace.log, engine.settings.permit.enforced
            read = functools.partial(ended_sessions, log, engine.stream.run, alone=alone)
            self._pace = Pace(*(yield Watch(read)))
        if not skips:
            return []
        self._skip = self._saved = data["done"]
        self._skipped = data["digest"]
        self._scope.go_on(saves[-1].head, saves[-1].after)
        engine.ledger.skip(self._scope, self._name, saves[-1].after)
        self._facts.skip_to(saves[-1])
        return results

    def _recorded_saves(self) -> list[CheckpointSaved]:
        """Return the recorded checkpoints of this loop, oldest first."""
        ledger = self._facts.engine.ledger
        with ledger.lock:
            facts = [noted.fact for noted in ledger.state.facts]
        names = self._name, self._scope.path
        saves = (fact for fact in facts if isinstance(fact, CheckpointSaved))
        return [each for each in saves if (each.name, each.scope) == names]

    def skips(self, item: object) -> Flow[bool]:
        """Return whether an item was done before; if not, enter the item's own scope.

        Raises BadValue if the items differ from those done before.
        """
        yield from ()  # makes this a generator
        self._facts.engine.ledger.demand_open()
        content = canonical(values.plain(item, "item", self._facts.engine.settings.scrub))
        self._running = digest(self._running.encode(), content)
        self._done += 1
        if self._done == self._skip and self._running != self._skipped:
            self._other_items()
        if self._done <= self._skip:
            return True
        self._child = self._scope.item(f"{self._name}.{self._done}")
        enter(self._child)
        self._began_s = time.perf_counter()
        return False

    def _other_items(self) -> NoReturn:
        raise BadValue(
            self._name,
            f"the first {self._skip} items differ from those done before",
            "give the same items in the same order, or another name=",
        )

    def _is_due(self) -> bool:
        """Return whether a checkpoint is due after an item."""
        if isinstance(self._every, int):
            return self._done % self._every == 0
        is_due = self._pace.worked(time.perf_counter() - self._began_s)
        follows = self._done <= max(self._recorded, default=0)
        if follows or self._facts.engine.settings.mode.reads_only:
            return self._done in self._recorded
        return is_due

    def done(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Mark an item as done. `results` are those since the item before."""
        self._scope.join([self._child])
        back(self._around)
        self._results += results
        if self._is_due():
            yield from self._save()

    def leave(self) -> Flow[None]:
        """Leave the loop, for any reason."""
        back(self._around)
        yield from ()  # makes this a generator

    def end(self, results: Sequence[Any] = ()) -> Flow[None]:
        """Complete the loop. Raises BadValue if there were fewer items than before."""
        if self._done < self._skip:
            self._other_items()
        self._results += results
        if self._done > self._saved:
            yield from self._save()

    def _save(self) -> Flow[None]:
        data: dict[str, Any] = {"done": self._done, "digest": self._running}
        if self._results:
            data["results"] = list(self._results)
        if self._every == CHOICE:
            data[CHOICE] = self._recorded.get(self._done, self._pace.choice)
        began_s = time.perf_counter()
        yield from self._facts.checkpoint(self._name, data)
        self._pace.saved(time.perf_counter() - began_s)
        self._saved = self._done
        self._results.clear()
