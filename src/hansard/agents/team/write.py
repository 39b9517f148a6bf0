"""What an agent says of a team's tasks, and what it sends: made with the step's outcome."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from hansard.agents.steps.atomic import Draft, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.recorder import Call
from hansard.agents.team.store import TeamStore
from hansard.bus.codec import record
from hansard.domain.ids import KeyStream
from hansard.domain.label import Label
from hansard.domain.team import task_sight
from hansard.domain.team.mail import MailSent
from hansard.domain.team.task import (
    TaskAdded,
    TaskClaimed,
    TaskCompleted,
    TaskEvent,
    TaskExtended,
    TaskFailed,
    TaskHandedOff,
    TaskReleased,
    TaskReopened,
    TaskState,
    TeamState,
)
from hansard.domain.team.task_rules import Claim, Reopen, Wanted, decide
from hansard.domain.values import Plain


class TeamWrite(JointWrite):
    """Says something of the tasks. Decided of what was just read, every time."""

    def __init__(self, engine: StepEngine, call: Call, store: TeamStore, wanted: Wanted) -> None:
        super().__init__(engine, call)
        self._engine = engine
        self._store = store
        self._wanted = wanted

    def _streams(self) -> list[KeyStream]:
        return [self._store.tasks]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        try:
            state = await self._store.team()
            if isinstance(self._wanted, Claim):
                self._wanted = await self._clearances.claim(state, self._wanted)
            if self._lost and isinstance(self._wanted, Claim):
                self.now = max(self.now, await self._store.log_time())
            sight = await self._store.sight(self._engine)
            if sight is None:
                events = decide(state, self._wanted, self.now)
            else:
                events = task_sight.decide(sight, state, self._wanted, self.now)
            self.shown = _label(state, events)
            outcome = await self._completed(_told(state, self._wanted, events))
        except Exception as error:  # noqa: BLE001 -- told as the step's outcome, and raised there
            return self._failed(error), []
        recorded = [record(event, self._clock.new_id()) for event in events]
        return outcome, [Draft(self._store.tasks, state.version, recorded)]


def _told(state: TeamState, wanted: Wanted, events: Any) -> Plain:
    """What an operation gives, as it is recorded."""
    event: TaskEvent | None = events[0] if events else None
    match wanted:
        case TaskAdded():
            return {"task": event.task if event is not None else wanted.task}
        case Claim():
            if not isinstance(event, TaskClaimed):
                return None
            return told_claim(state.tasks[event.task], event.number)
        case Reopen():
            return {"task": wanted.task, "reopened": isinstance(event, TaskReopened)}
        case TaskExtended() | TaskReleased() | TaskCompleted() | TaskFailed() | TaskHandedOff():
            return {"task": wanted.task, "number": wanted.number}
        case _:
            assert_never(wanted)


def _label(state: TeamState, events: Any) -> Label | None:
    """The label of what whoever claims a task is told."""
    event: TaskEvent | None = events[0] if events else None
    return state.tasks[event.task].label if isinstance(event, TaskClaimed) else None


def told_claim(task: TaskState, number: int) -> dict[str, Plain]:
    """A task as whoever claims it is told."""
    return {
        "id": task.id,
        "title": task.added.title,
        "number": number,
        "what": msgspec.json.decode(task.added.what),
        "given": msgspec.json.decode(task.given),
        "because": task.because,
    }


class MailWrite(JointWrite):
    """Sends a message."""

    def __init__(self, engine: StepEngine, call: Call, store: TeamStore, sent: MailSent) -> None:
        super().__init__(engine, call)
        self._store = store
        self._mail = sent
        self._is_limited = engine.settings.permit.is_limited

    def _streams(self) -> list[KeyStream]:
        return [self._store.mail]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        try:
            box = await self._store.mailbox()
            version = box.version
            number = version + 1
            if self._is_limited:  # how many others sent is not for it to know
                number = 1 + box.sent
            outcome = await self._completed({"number": number})
        except Exception as error:  # noqa: BLE001 -- told as the step's outcome, and raised there
            return self._failed(error), []
        return outcome, [
            Draft(self._store.mail, version, [record(self._mail, self._clock.new_id())])
        ]
