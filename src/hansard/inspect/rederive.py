"""Re-derive an agent's calls: every call key, fingerprint and digest, from what is recorded.

No tool runs: the calls' arguments and results are fetched and digested as
`hansard.agents.steps.engine` does when it places a call. A scope's head before a call is not
recorded; `hansard.inspect.chain_verifier` has it from the results and the joins before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.steps.failures import failure_digest
from hansard.bus.codec import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain import agent as agents
from hansard.domain.agent import CheckpointSaved
from hansard.domain.errors import Corrupt
from hansard.domain.fingerprint import (
    UNORDERED,
    call_base,
    call_key,
    canonical,
    digest,
    fingerprint,
)
from hansard.domain.payload import references
from hansard.domain.payload.references import Fetch
from hansard.domain.steps import (
    Join,
    Step,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepRequested,
    StepSettled,
    StepStatus,
    ToolDeclared,
    Verdict,
)
from hansard.inspect.chain_verifier import Derived, Heads

OCCURRENCE_SLACK = 64
"""Equal calls of a scope that left no record (a pure call that was interrupted) and yet counted."""

Fetched = Callable[[Fetch], Awaitable[Any]]


class Checked(msgspec.Struct):
    """A call and what came of re-deriving it: `differs` says what does, `unproven` what could not
    be derived because the record does not hold all that went into it.
    """

    step: Step
    arguments: Any = None
    result: Any = None
    differs: list[str] = []
    unproven: list[str] = []


class Rederiver:
    """Takes one agent's commits in order."""

    def __init__(self, agent: str, fetch: Fetched, *, full: bool = False) -> None:
        """full: whether the run's chain is the full one (`hansard.domain.run.Chain`)."""
        self._agent = agent
        self._fetch = fetch
        self._state = agents.initial()
        self._reader = payloads.Reader(lambda: self._state)
        self._versions: dict[str, list[str]] = {}
        self._equals: dict[str, int] = {}
        self._heads = Heads(full=full)
        self._digests: dict[int, set[str]] = {}
        self.checked: dict[int, Checked] = {}

    async def take(self, commits: Sequence[Stored]) -> None:
        """Re-derive what some commits hold."""
        for stored in commits:
            for recorded in stored.commit.events:
                event: Any = revive(recorded)
                agents.evolve(self._state, event)
                await self._event(event)
        for number, checked in self.checked.items():
            checked.step = self._state.steps[number]

    async def _event(self, event: agents.AgentEvent) -> None:
        match event:
            case CheckpointSaved():
                self._heads.checkpoint(event.head, event.joins)
            case ToolDeclared():
                self._versions.setdefault(event.tool, []).append(event.version)
            case StepRequested():
                checked = self.checked[event.step] = Checked(self._state.steps[event.step])
                try:
                    await self._request(checked, event.joins)
                except (NotFound, Corrupt, msgspec.DecodeError) as error:
                    checked.differs.append(f"its arguments cannot be read: {error}")
            case StepCompleted() | StepFailed() | StepBlocked() | StepSettled():
                checked = self.checked[event.step]
                checked.step = self._state.steps[event.step]
                try:
                    await self._outcome(checked, event)
                except (NotFound, Corrupt, msgspec.DecodeError) as error:
                    checked.differs.append(f"its result cannot be read: {error}")
                self._advance(checked.step)
            case _:
                pass

    # ------------------------------------------------------------ the call

    async def _request(self, checked: Checked, joins: Sequence[Join]) -> None:
        step = checked.step
        fetch = self._reader.arguments(step)
        checked.arguments = await self._fetch(fetch)
        self._lists(checked)
        self._call(checked)
        if step.unordered:
            if fingerprint(step.call, UNORDERED) != step.fingerprint:
                checked.differs.append("its fingerprint is not that of an unordered call")
            return
        after = ", ".join(map(str, step.after)) or "the begin"
        match self._heads.derive(step, self._state.steps, joins):
            case Derived.NO:
                fact = f"its fingerprint does not follow from the results of {after}"
                checked.differs.append(fact)
            case Derived.UNKNOWN:
                fact = f"it follows a join after {after} that left too little on record"
                checked.unproven.append(fact)
            case Derived.YES:
                pass

    def _lists(self, checked: Checked) -> None:
        """The digests of growing lists, which the record states beside what was appended."""
        recorded = msgspec.json.decode(checked.step.arguments)
        for name, value in recorded.items():
            if isinstance(value, dict) and value.keys() == {"$append"}:
                items = [digest(canonical(item)) for item in checked.arguments[name]]
                if references.rolling(items) != value["$append"]["digest"]:
                    checked.differs.append(f"the digest of its argument {name!r}")

    def _call(self, checked: Checked) -> None:
        step = checked.step
        declared = self._versions.get(step.tool, [])
        named = checked.arguments.items()
        form = canonical({name: each for name, each in named if name not in step.defaults})
        for version in dict.fromkeys((*reversed(declared), "")):
            base = call_base(step.tool, version, self._agent, step.scope, form)
            equals = self._equals.get(base, 0)
            for occurrence in _outward(equals, equals + OCCURRENCE_SLACK):
                if call_key(base, occurrence) == step.call:
                    self._equals[base] = max(equals, occurrence + 1)
                    return
        if declared:
            checked.differs.append("its call key does not follow from its arguments")
        else:
            checked.unproven.append(f"the version of {step.tool} was never declared")

    # ------------------------------------------------------------ the outcome

    async def _outcome(
        self, checked: Checked, event: StepCompleted | StepFailed | StepBlocked | StepSettled
    ) -> None:
        step = checked.step
        match event:
            case StepFailed():
                if failure_digest(event.error) != event.digest:
                    checked.differs.append("the digest of its error")
            case StepCompleted():
                found = await self._result(checked)
                if found != event.digest:
                    self._reused(checked, event)
            case StepSettled() if event.verdict is Verdict.HAPPENED:
                if await self._result(checked) != event.digest:
                    checked.differs.append("the digest of its settled result")
            case _:
                pass
        self._digests.setdefault(step.number, set()).add(step.digest)

    async def _result(self, checked: Checked) -> str:
        """The digest of a step's result as it is recorded."""
        step = checked.step
        if not step.streamed or step.verdict is Verdict.HAPPENED:
            checked.result = await self._fetch(self._reader.result(step))
            return digest(canonical(checked.result))
        checked.result = [await self._fetch(references.unpack(item)) for item in step.items]
        return references.rolling([digest(canonical(item)) for item in checked.result])

    def _reused(self, checked: Checked, event: StepCompleted) -> None:
        if event.reused is None:
            checked.differs.append("the digest of its result")
        elif event.reused not in self._digests:
            checked.unproven.append(f"its outcome is that of step {event.reused} of another run")
        elif event.digest not in self._digests[event.reused]:
            checked.differs.append(f"the digest of step {event.reused}, whose outcome it has")

    def _advance(self, step: Step) -> None:
        if step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.BLOCKED):
            self._heads.outcome(step)


def _outward(begin: int, end: int) -> list[int]:
    """The likely occurrence first, then the later ones, then the earlier ones."""
    return [*range(begin, end), *range(begin - 1, -1, -1)]
