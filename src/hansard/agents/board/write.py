"""A write to shared state: the keys' commits, made together with the step's outcome.

That of one key may be a commit of its own, between the step's intent and its outcome. It names the
intent by its cause, and `hansard.agents.board.write` finds it by that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.access.carried import CarriedLog
from hansard.agents.callables import is_coroutine_function, name_of
from hansard.agents.errors import Blocked
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointWrite, Outcome, SharedStream
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope, enter
from hansard.bus.atomic_sender import Ticket
from hansard.bus.codec import record
from hansard.bus.commits import drive_fetch
from hansard.bus.writer import MERGE_BYTES_MAX
from hansard.domain import board, values
from hansard.domain.board import (
    BoardConflict,
    BoardEvent,
    BoardState,
    By,
    KeyKind,
    ValuePut,
    decide,
    fold,
)
from hansard.domain.errors import BadValue
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.label import Label, join
from hansard.domain.payload import references
from hansard.domain.steps import Step, StepCompleted, StepStatus
from hansard.domain.values import Plain
from hansard.state.replay import States, evolve_board

SEVERAL = "board.commit"
"""The operation that may write several keys, and so is always one commit with its step."""

UNTOLD = (StepStatus.REQUESTED, StepStatus.IN_DOUBT, StepStatus.NOT_DONE)
"""What a step without an outcome is. Whoever settled it as not done may have looked just before it
wrote.
"""


class Written(msgspec.Struct, frozen=True):
    """What a step wrote to a key: how many events in one commit, and the key's state after it."""

    key: str
    changed: int
    state: BoardState


async def written(states: States, stream: AgentStream, step: Step) -> Written | None:
    """What an intent without an outcome wrote by a commit of its own, by what the log has now.

    None where it wrote nothing; it never will if the agent's stream has gone on after it, as it has
    for every session but the one that has the intent. Costs a read of the key's history.
    """
    writes = step.kind == "board" and step.is_of_world and step.tool != SEVERAL
    if not writes or step.status not in UNTOLD:
        return None
    position = await states.position_of(stream, step.version)
    if position is None:
        return None
    intent = (await states.log.at(position)).commit
    cause = intent.events[step.version - intent.version].id
    key = msgspec.json.decode(step.arguments)["key"]
    state = BoardState()
    for stored in await states.commits(KeyStream(stream.run, key)):
        evolve_board(state, stored)
        if stored.commit.causation == cause:
            return Written(key, len(stored.commit.events), state)
    return None


RESOLVES_MAX = 1_000
"""Most times one write is settled by its resolver; each time somebody else wrote meanwhile. With 50
processes at one key a write loses 50 races of a thousand times one in five: 20 would not do.
"""

WRITE_BYTES_MAX = 6 * 1024 * 1024
"""Most event data of one write over all of its keys, in bytes: the log takes 8 MiB at once."""


class Resolution(StrEnum):
    """How a lost put is settled."""

    LAST_WRITER = "last writer"
    """What is put replaces what stands."""

    MERGE = "merge"
    """The union of two objects is put."""


Resolve = Resolution | str | Callable[[Any, Any], Any]
"""How a lost put is settled: a `Resolution`, or a function of what was to be put and what stands
that gives the value to put. The function runs in a thread of its own and may call nothing of the
session.
"""


class Ask(msgspec.Struct):
    """One write to one key, as it is wanted."""

    key: str
    wanted: BoardEvent


class _Draft(msgspec.Struct):
    """What a key's asks come to: the events with their ids, and the state after them."""

    state: BoardState
    events: list[tuple[BoardEvent, Recorded]] = []


class BoardWrite(JointWrite):
    """Writes to keys, settled by a resolver where a put lost its race."""

    def __init__(
        self,
        engine: StepEngine,
        asks: Sequence[Ask],
        call: Call,
        scope: Scope,
        resolve: Resolve | None,
    ) -> None:
        super().__init__(engine, call)
        self._wanted = tuple(asks)
        self._asks = list(asks)
        self._scope = scope
        self._resolve = resolve
        self._resolved = 0
        self._settled_by: list[Ticket] = []
        self._drafted: dict[str, _Draft] = {}
        self._after: list[Ticket] = []

    def _streams(self) -> list[KeyStream]:
        return [self._stream(ask.key) for ask in self._asks]

    def _stream(self, key: str) -> KeyStream:
        return KeyStream(self._agent.run, key)

    def _follows(self) -> list[Ticket]:
        return [*self._after, *self._settled_by]

    def _expect(self, ticket: Ticket) -> bool:
        """Who writes one of the keys next goes on from this, but for a key that expires: when it
        does follows from the log's time of the commit.
        """
        if any(draft.state.expires is not None for draft in self._drafted.values()):
            return False
        for key, draft in self._drafted.items():
            self._boards.expect(self._stream(key), draft.state, ticket)
        return True

    def _goes_alone(self, stream: SharedStream) -> bool:
        """One key's, where nobody of this process could share its batch. What is written for a
        principal is conditional on what that carries, and a commit has one condition.
        """
        boards = self._boards
        if self._call.spec.name == SEVERAL or isinstance(boards.states.log, CarriedLog):
            return False
        return boards.is_alone(stream)

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        """What the write comes to now, and what it writes. Never from stale knowledge alone: a
        refusal, or that there is nothing to do, is told only of what was just read. After a lost
        race a resolver is asked again: what it went by may never have been stored, under a version
        that is now another's.
        """
        self._asks, self._settled_by = list(self._wanted), []
        fresh = False
        while True:
            try:
                drafts = await self._drafts(fresh=fresh)
                if fresh or all(draft.events for draft in drafts.values()):
                    outcome = await self._completed_by(drafts)
                    self._drafted = drafts
                    return outcome, [self._draft(key, each) for key, each in drafts.items()]
            except Exception as error:  # noqa: BLE001 -- told as the step's outcome, and raised there
                if fresh or self._settles(error):
                    unsettled = await self._unsettled(error)
                    if unsettled is None:
                        fresh = False  # if that is known no more, the log says so
                        continue
                    if fresh:
                        self._drafted = {}
                        if not isinstance(unsettled, Blocked):
                            self.shown = await self._labels()
                        return self._failed(unsettled), []
            fresh = True

    def _draft(self, key: str, draft: _Draft) -> Draft:
        recorded = [each for _, each in draft.events]
        return Draft(self._stream(key), draft.state.version - len(recorded), recorded)

    def _sent(self) -> None:
        for key, draft in self._drafted.items():
            if draft.state.expires is None:
                self._boards.keep(self._stream(key), draft.state)
            else:  # when it expires follows from the log's time of the commit
                self._boards.outdate(self._stream(key))

    async def _drafts(self, *, fresh: bool) -> dict[str, _Draft]:
        drafts: dict[str, _Draft] = {}
        self._after = []
        for ask in self._asks:
            draft = drafts.get(ask.key)
            if draft is None:
                state, ticket = await self._boards.upcoming(self._stream(ask.key), fresh=fresh)
                self._after += [ticket] if ticket is not None else []
                draft = drafts[ask.key] = _Draft(state, [])
                what = f"key {ask.key!r:.200}"
                await self._clearances.demand(state.label, what, self._call.spec.name)
                if (fresh or self._lost) and state.expires is not None:
                    self.now = max(self.now, await self._boards.log_time())
            for event in decide(ask.key, draft.state, ask.wanted, self.now):
                recorded = record(event, self._clock.new_id())
                draft.events.append((event, recorded))
                by = By(self._agent.agent, self.now, recorded.id, self.label)
                draft.state = fold(draft.state, [event], by)
        _check_sizes(drafts)
        return drafts

    async def _completed_by(self, drafts: dict[str, _Draft]) -> StepCompleted:
        told = [told_write(key, len(draft.events), draft.state) for key, draft in drafts.items()]
        self.shown = join(*(told_label(draft.state) for draft in drafts.values()))
        single = self._call.spec.name != SEVERAL
        result: dict[str, Plain] = told[0] if single else {"keys": told}
        if self._resolved:
            result["resolved"] = self._resolved
        return await self._completed(result)

    async def _labels(self) -> Label:
        """The label of what stands under all keys: what an error may tell of."""
        states = [await self._boards.state(each, fresh=False) for each in self._streams()]
        return join(*(state.label for state in states))

    # ------------------------------------------------------------ resolvers

    def _settles(self, failed: Exception) -> bool:
        """Whether a resolver is to be asked."""
        conflict = isinstance(failed, BoardConflict)
        return conflict and self._resolve is not None and self._resolved < RESOLVES_MAX

    async def _unsettled(self, failed: Exception) -> Exception | None:
        """None where the resolver has said what is to be put instead; else what the write fails
        with, which may be the resolver's own error.
        """
        put = self._wanted[0].wanted if self._wanted else None  # asked again, it is given the same
        if not self._settles(failed) or not isinstance(put, ValuePut):
            return failed
        self._resolved += 1
        try:
            await self._settle(put)
        except Exception as error:  # noqa: BLE001 -- whatever a resolver raises is the outcome
            return error
        return None

    async def _settle(self, put: ValuePut) -> None:
        key = self._asks[0].key
        state, ticket = await self._boards.upcoming(self._stream(key))
        self._settled_by = [ticket] if ticket is not None else []
        put = msgspec.structs.replace(put, expected=state.version_at(self.now))
        self.used = join(self.used, state.label)
        if self._resolve != Resolution.LAST_WRITER:
            value = await self._chosen(put, state)
            packed = payloads.pack(value, f"key {key!r}")
            for blob in packed.blobs:
                await self._blobs.put(blob)
            put = msgspec.structs.replace(put, value=packed.raw)
        self._asks = [Ask(key, put)]

    async def _chosen(self, put: ValuePut, state: BoardState) -> Plain:
        mine = await self._fetched(msgspec.json.decode(put.value))
        stands = None if state.absent(self.now) else state.plain
        theirs = await self._fetched(stands)
        if self._resolve == Resolution.MERGE:
            if stands is None:
                return mine
            board.check_merge("union", theirs)
            board.check_merge("union", mine)
            return board.joined("union", theirs, mine)
        return await asyncio.to_thread(self._asked, values.revive(mine), values.revive(theirs))

    def _asked(self, mine: Any, theirs: Any) -> Plain:
        enter(self._scope)  # a scope in which no call may stand
        resolve: Any = self._resolve
        return values.plain(resolve(mine, theirs), "resolved value", self._scrub)

    async def _fetched(self, plain: Plain) -> Plain:
        found: Plain = await drive_fetch(references.resolve(plain), self._blobs.get)
        return found


def _check_sizes(drafts: Mapping[str, _Draft]) -> None:
    """Raise BadValue where a commit or all of them are more than the log takes at once."""
    total = 0
    for key, draft in drafts.items():
        size = sum(len(bytes(recorded.data)) + 120 for _, recorded in draft.events)
        if size > MERGE_BYTES_MAX:
            fact = f"{size:,} bytes in one commit, the limit is {MERGE_BYTES_MAX:,}"
            raise BadValue(f"key {key!r}", fact, "write it in several")
        total += size
    if total > WRITE_BYTES_MAX:
        fact = f"{total:,} bytes in one transaction, the limit is {WRITE_BYTES_MAX:,}"
        raise BadValue("transaction", fact, "use several transactions")


def told_write(key: str, changed: int, state: BoardState) -> dict[str, Plain]:
    """What a write's outcome says of a key that now stands so: that many events were written."""
    return {"key": key, "changed": changed, **told_state(state)}


def told_state(state: BoardState) -> dict[str, Plain]:
    """What a write's outcome says of its key: the version, and what is short of what it holds."""
    told: dict[str, Plain] = {"version": state.changed if state.kind is not None else 0}
    match state.kind:
        case KeyKind.COUNTER | KeyKind.MAX | KeyKind.MIN:
            told["value"] = state.plain
        case KeyKind.LIST:
            told["count"] = len(state.items)
        case KeyKind.SET:
            told["count"] = len(state.members)
        case _:
            pass
    return told


def told_label(state: BoardState) -> Label | None:
    """The label of what a write's outcome says of its key: none where that is its version alone."""
    return state.label if state.kind not in (None, KeyKind.VALUE, KeyKind.UNION) else None


def labels_given(key: object, labels: object) -> dict[str, Any]:
    """A put's labels as a dict; their texts are checked as they are recorded. Raises BadValue."""
    if isinstance(labels, Mapping):
        return dict(labels)
    raise BadValue(f"labels of key {key!r:.80}", f"{labels!r:.80}", "give texts by name, as a dict")


def check_resolve(resolve: object) -> str | None:
    """A resolver's name as it is recorded. Raises BadValue."""
    if resolve is None:
        return None
    if isinstance(resolve, str) and resolve in tuple(Resolution):
        return Resolution(resolve).value
    if callable(resolve) and not is_coroutine_function(resolve):
        return f"function {name_of(resolve)}"
    remedy = "give 'last writer', 'merge', or a plain function of (mine, theirs)"
    raise BadValue("resolve", f"{resolve!r:.80}", remedy)
