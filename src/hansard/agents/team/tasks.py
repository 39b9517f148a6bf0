"""`session.team`: the tasks that a run's agents share, and the messages between them.

Each operation is a step of the agent, of kind `team`: what it said of a task stands in one commit
with the step's outcome, so that it is said once, whoever is killed, and a resumed session is told
what it was told. A claim costs two commits (its own first one tells it the log's time), what is
said of a task one, over two streams (some 4 ms on a local disk).

Written once for both clients as flows (see `hansard.agents.flow`); `twins` drives them.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, assert_never

import msgspec

from hansard.agents.flow import Flow, Io, Watch
from hansard.agents.policy.permits import claims, states
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointSteps, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.failures import failure
from hansard.agents.steps.gating import cleared_of, demand_receiver
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import operation
from hansard.agents.team import store as follow
from hansard.agents.team.store import Mailbox, TeamStore
from hansard.bus import waiting
from hansard.bus.commits import record
from hansard.domain import ids, values
from hansard.domain.choices import Brief
from hansard.domain.errors import BadValue
from hansard.domain.ids import KeyStream
from hansard.domain.label import Label
from hansard.domain.steps import Failure, StepStatus
from hansard.domain.team import task_rules, task_sight
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
from hansard.domain.team.task_rules import Claim, Reopen, TaskCommand, Waits, decide, waits
from hansard.domain.team.task_sight import TaskVisibility
from hansard.domain.values import Plain, recordable

# What an agent says of a team's tasks, and what it sends: made with the step's outcome.


class TeamWrite(JointWrite):
    """Says something of the tasks. Decided of what was just read, every time."""

    def __init__(
        self, engine: StepEngine, call: Call, store: TeamStore, request: TaskCommand
    ) -> None:
        super().__init__(engine, call)
        self._engine = engine
        self._store = store
        self._wanted = request

    def _streams(self) -> list[KeyStream]:
        return [self._store.tasks]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
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
        outcome = await self._completed(_operation_record(state, self._wanted, events))
        recorded = [record(event, self._clock.new_id()) for event in events]
        return outcome, [Draft(self._store.tasks, state.version, recorded)]


def _operation_record(state: TeamState, request: TaskCommand, events: Any) -> Plain:
    """What an operation gives, as it is recorded."""
    event: TaskEvent | None = events[0] if events else None
    match request:
        case TaskAdded():
            return {"task": event.task if event is not None else request.task}
        case Claim():
            if not isinstance(event, TaskClaimed):
                return None
            return claim_record(state.tasks[event.task], event.number)
        case Reopen():
            return {"task": request.task, "reopened": isinstance(event, TaskReopened)}
        case TaskExtended() | TaskReleased() | TaskCompleted() | TaskFailed() | TaskHandedOff():
            return {"task": request.task, "number": request.number}
        case _:
            assert_never(request)


def _label(state: TeamState, events: Any) -> Label | None:
    """The label of what whoever claims a task is told."""
    event: TaskEvent | None = events[0] if events else None
    return state.tasks[event.task].label if isinstance(event, TaskClaimed) else None


def claim_record(task: TaskState, number: int) -> dict[str, Plain]:
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
        box = await self._store.mailbox()
        # How many others sent is not for a limited role to know.
        number = 1 + (box.sent if self._is_limited else box.version)
        outcome = await self._completed({"number": number})
        event = record(self._mail, self._clock.new_id())
        return outcome, [Draft(self._store.mail, box.version, [event])]


# `session.team.send` and `inbox`: messages between the agents of a run.
#
# An inbox read is a step that says up to which message it read: each message is given once to each
# agent, whatever became of the session that was given it, for a resumed one is given what is on
# record. A message to a role is given to every agent of it, also to one that joins later.


class Mail(Brief, msgspec.Struct, frozen=True):
    """A message. `number` counts the run's messages from 1 (under a role's rules those for this
    agent, and of `send` those that it sent); `sender` is an agent, `role` its role;
    `to_role` is empty where it was sent to this agent alone.

    Attributes:
        number: From 1, among the run's messages; under a role's rules among those for this agent,
            or that it sent.
        sender: The agent that sent it.
        role: The sender's role.
        to_role: The role that it was sent to; empty where it was for this agent alone.
        content: What it says.
    """

    number: int
    sender: str
    role: str
    to_role: str
    content: Any


SEND = operation("team.send", "content", "role", "agent", kind="team", writes=True)
# An inbox that was read before an earlier step was edited is not read again, but given as it was:
# else its messages would be lost to the agent.
INBOX = operation("team.inbox", kind="team", writes=True)


class MailFlows(JointSteps):
    """A session's messages."""

    def __init__(self, engine: StepEngine, store: TeamStore) -> None:
        super().__init__(engine)
        self._store = store
        self._read = 0
        """Up to which message this session has taken some."""
        self._before: int | None = None
        """The same of inboxes on record before; None while that was not asked."""

    def send(self, content: Any, role: str | None, agent: str | None) -> Flow[int]:
        """Send a message; its number."""
        if bool(role) == bool(agent):
            fact = f"to role {role!r} and agent {agent!r}"
            raise BadValue("message", fact, "give role= or agent=, one of them")
        ids.name("role or agent", role or agent)
        call = self.engine.begin(SEND, (content, role or "", agent or ""), {})
        call.needs = (states(MailSent.tag),)
        if any(call.plain[name] != call.arguments[name] for name in ("role", "agent")):
            raise BadValue("message", "its role or agent holds a secret", "leave the secret out")
        packed = payloads.pack(call.plain["content"], "message")
        sent = MailSent(
            content=packed.raw,
            sender_role=self.engine.stream.role,
            role=role or "",
            agent=agent or "",
        )

        def make(_: Scope) -> MailWrite:
            return MailWrite(self.engine, call, self._store, sent)

        def run(call: Call) -> Flow[Any]:
            yield from self.engine.permitted(call)
            yield from demand_receiver(self.engine, call, sent.role, sent.agent)
            return (yield from self._jointly(call, packed.blobs, make))

        recorded = yield from self.ask(call, run)
        number: int = recorded["number"]
        return number

    def inbox(self) -> Flow[list[Mail]]:
        """The messages for this agent that it was not given yet."""
        call = self.engine.begin(INBOX, (), {})
        call.needs = ()

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, self._new))

        recorded = yield from self.ask(call, run)
        return [Mail(**each) for each in recorded["messages"]]

    def _new(self) -> Flow[Any]:
        box: Mailbox = yield Io(self._store.mailbox)
        version = box.version
        recorded = yield from self._on_record(box)
        with self.engine.ledger.lock:  # two inboxes side by side share no message
            after = max(self._read, recorded)
            to = self._read = max(after, version)
        mine = box.between(after, to)
        cleared = yield from cleared_of(self.engine, {mail.version: mail.label for mail in mine})
        shown = set(cleared)
        is_limited = self.engine.settings.permit.is_limited
        return {
            **({"given": box.given(to)} if is_limited else {"up_to": to}),
            "messages": [
                {
                    "number": box.given(mail.version) if is_limited else mail.version,
                    "sender": mail.sender,
                    "role": mail.sent.sender_role,
                    "to_role": mail.sent.role,
                    "content": msgspec.json.decode(mail.sent.content),
                }
                for mail in mine
                if mail.version in shown
            ],
        }

    def _on_record(self, box: Mailbox) -> Flow[int]:
        """Up to which message inboxes of this agent have read that were on record when this session
        first asked: those that it reads itself it knows. Under a role's rules what is on record
        counts the agent's own messages alone: how many others there are is not for it to know.
        """
        if self._before is None:
            found, outcomes = 0, self.engine.outcomes
            for step in list(self.engine.ledger.state.steps.values()):
                if step.tool == INBOX.name and step.status is StepStatus.COMPLETED:
                    reply = yield from outcomes.fetch(outcomes.reader.result(step))
                    up_to = box.up_to(reply["given"]) if "given" in reply else reply["up_to"]
                    found = max(found, up_to)
            self._before = found
            return found
        return self._before


NAMES = ("task", "role", "agent", "waits_for", "waits_for_roles")
"""Arguments that others go by: a secret in one would be known by another name."""

LEASE_S = 60.0
"""A lease, if not said otherwise, in seconds: so long a task waits for an agent that was killed."""


class Task(Brief, msgspec.Struct):
    """A task that this agent has claimed. `number` is that of its claim. `what` is what was said of
    it when it was added, `given` what whoever handed it off gave, `because` why it was last handed
    off or released. `result` is what `claimed()` completes it with: set it.

    Attributes:
        id: Its id.
        title: What it is called.
        number: Of this claim of it.
        what: What was said of it when it was added.
        given: What whoever handed it off gave.
        because: Why it was last handed off or released.
        result: What `claimed()` completes it with: set it.
    """

    id: str
    title: str
    number: int
    what: Any = None
    given: Any = None
    because: str = ""
    result: Any = None


class TaskEntry(Brief, msgspec.Struct, frozen=True):
    """A task as `tasks()` shows it. `status` is open, waiting, blocked, claimed, expired, done or
    failed; `waits_for` names tasks, and roles as `role NAME`; `blocked_by` tasks that will never be
    done. `lease_left_s` is by the log's time of its newest commit.

    Attributes:
        id: Its id.
        title: What it is called.
        status: open, waiting, blocked, claimed, expired, done or failed.
        role: Whose it is to do; empty for anybody's.
        agent: Who is to do it; empty for anybody.
        holder: Who has claimed it.
        number: Of its last claim.
        by: Who added it.
        waits_for: Tasks, and roles as `role NAME`, that it waits for.
        blocked_by: Tasks that will never be done.
        lease_left_s: Seconds, by the log's time of its newest commit; None where nobody has it.
        what: What was said of it when it was added.
        given: What whoever handed it off gave.
        because: Why it was last handed off or released.
        result: What it was completed with.
        error: What it failed with.
    """

    id: str
    title: str
    status: str
    role: str
    agent: str
    holder: str
    number: int
    by: str
    waits_for: list[str]
    blocked_by: list[str]
    lease_left_s: float | None
    what: Any
    given: Any
    because: str
    result: Any
    error: str


_says = functools.partial(operation, kind="team", writes=True)

# What an operation is given, as it is recorded.
SPECS = {
    "add": _says(
        "team.add", "title", "what", "role", "agent", "waits_for", "waits_for_roles", "task"
    ),
    "claim": _says("team.claim", "role", "lease"),
    "extend": _says("team.extend", "task", "number", "lease"),
    "complete": _says("team.complete", "task", "number", "result"),
    "fail": _says("team.fail", "task", "number", "error"),
    "release": _says("team.release", "task", "number", "because"),
    "hand_off": _says("team.hand_off", "task", "number", "role", "agent", "given", "because"),
    "reopen": _says("team.reopen", "task", "because"),
    "tasks": operation("team.tasks", kind="team"),
    "wait": operation("team.wait", "role", "timeout", kind="team"),
}

STATES = {
    "add": TaskAdded.tag,
    "claim": TaskClaimed.tag,
    "extend": TaskExtended.tag,
    "complete": TaskCompleted.tag,
    "fail": TaskFailed.tag,
    "release": TaskReleased.tag,
    "hand_off": TaskHandedOff.tag,
    "reopen": TaskReopened.tag,
}
"""The kind of event that an operation puts on record."""


class TeamFlows(JointSteps):
    """A session's operations on its run's tasks."""

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self.store = TeamStore(engine.boards.states, engine.stream)
        self.ended: set[tuple[str, int]] = set()
        """Claims of which this session has said how they ended."""
        self.claimed_by: dict[tuple[str, int], int] = {}
        """The steps that made this session's claims."""

    def _begin(self, name: str, *given: Any) -> Call:
        """An operation with its place in the record. Raises BadValue, NoScope, ToolError."""
        call = self.engine.begin(SPECS[name], given, {})
        for field in ("task", "role", "agent", "title", "because"):
            if type(call.plain.get(field, "")) is not str:
                raise BadValue(f"team.{name}({field})", "it is no text, or a secret", "give a text")
        for field in NAMES:
            if call.plain.get(field) != call.arguments.get(field):
                remedy = "leave the secret out of it"
                raise BadValue(f"team.{name}({field})", "it holds a secret", remedy)
        call.needs = (states(STATES[name]),) if name in STATES else ()
        return call

    def _write(self, call: Call, request: TaskCommand, blobs: Sequence[bytes] = ()) -> Flow[Any]:
        """Say something, or give what is on record of it."""

        def make(_: Scope) -> TeamWrite:
            return TeamWrite(self.engine, call, self.store, request)

        def run(call: Call) -> Flow[Any]:
            if isinstance(request, TaskAdded | TaskHandedOff):
                yield from self.engine.permitted(call)
                yield from demand_receiver(self.engine, call, request.role, request.agent)
            timed = isinstance(request, Claim)
            return (yield from self._jointly(call, list(blobs), make, timed=timed))

        return (yield from self.ask(call, run))

    # ------------------------------------------------------------ operations

    def add(
        self,
        title: str,
        what: Any,
        role: str | None,
        agent: str | None,
        waits_for: Iterable[str],
        waits_for_roles: Iterable[str],
        task: str | None,
    ) -> Flow[str]:
        """Add a task; its id."""
        tasks, roles = names("waits_for", waits_for), names("waits_for_roles", waits_for_roles)
        call = self._begin("add", title, what, role or "", agent or "", tasks, roles, task or "")
        plain = call.plain
        packed = payloads.pack(plain["what"], f"task {title!r:.80}")
        command = TaskAdded(
            task=plain["task"],
            title=plain["title"],
            what=packed.raw,
            role=plain["role"],
            agent=plain["agent"],
            waits_for=tuple(tasks),
            waits_for_roles=tuple(roles),
        )
        recorded = yield from self._write(call, command, packed.blobs)
        made: str = recorded["task"]
        return made

    def claim(
        self, role: str | None, lease: float, timeout: float | None
    ) -> Flow[tuple[Task | None, bool]]:
        """Claim a task, and whether that was on record already; None where there is none to claim
        within the time, or none is left that could be this agent's.
        """
        lease_s = _lease(lease)
        timeout_s = follow.seconds("timeout_s", timeout)
        command = Claim(
            agent=self.engine.stream.agent,
            role=role or self.engine.stream.role,
            lease_ms=round(lease_s * 1_000),
        )
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            call = self._begin("claim", command.role, lease_s)
            call.needs = (*(call.needs or ()), claims(command.role))
            known = call.step is not None
            recorded = yield from self._write(call, command)
            if recorded is not None:
                task = Task(**recorded)
                made = call.number or (call.step.number if call.step is not None else 0)
                self.claimed_by[task.id, task.number] = made
                return task, known
            if timeout_s == 0:
                return None, known
            answer = yield from self._wait(command, timeout_s, until)
            if answer != waiting.READY:
                return None, known

    def _wait(self, command: Claim, timeout_s: float | None, until: float) -> Flow[str]:
        call = self._begin("wait", command.role, timeout_s)

        def look() -> Flow[str]:
            claim = functools.partial(self._cleared, command)
            mine: Claim = yield Io(claim)
            left = None if timeout_s is None else max(0.0, until - time.monotonic())
            work = functools.partial(follow.for_claim, self.store, mine, left)
            found: str = yield Watch(functools.partial(self.engine.ledger.watch, work))
            return found

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, look))

        answer: str = yield from self.ask(call, run)
        return answer

    async def _cleared(self, command: Claim) -> Claim:
        return await self.engine.clearances.claim(await self.store.team(), command)

    def extend(self, task: Task, lease: float) -> Flow[None]:
        """Have a task's lease begin again."""
        lease_s = _lease(lease)
        call = self._begin("extend", task.id, task.number, lease_s)
        lease_ms = round(lease_s * 1_000)
        yield from self._write(
            call, TaskExtended(task=task.id, number=task.number, lease_ms=lease_ms)
        )

    def complete(self, task: Task, result: Any) -> Flow[None]:
        """Say that a task is done."""
        call = self._begin("complete", task.id, task.number, result)
        packed = payloads.pack(call.plain["result"], f"result of task {task.id!r}")
        command = TaskCompleted(task=task.id, number=task.number, result=packed.raw)
        yield from self._write(call, command, packed.blobs)
        self.ended.add((task.id, task.number))

    def fail(self, task: Task, error: BaseException | str) -> Flow[None]:
        """Say that a task cannot be done."""
        value = self._failure(error)
        given = {"type": value.type, "message": value.message}
        call = self._begin("fail", task.id, task.number, given)
        yield from self._write(call, TaskFailed(task=task.id, number=task.number, error=value))
        self.ended.add((task.id, task.number))

    def _failure(self, error: BaseException | str) -> Failure:
        scrub = self.engine.settings.scrub
        if isinstance(error, BaseException):
            return failure(error, scrub)
        if type(error) is not str:
            raise BadValue("team.fail(error)", f"{error!r:.80}", "give an exception or a text")
        return Failure("TaskFailed", recordable(error, scrub), module="hansard")

    def release(self, task: Task, because: str) -> Flow[None]:
        """Give a task back."""
        call = self._begin("release", task.id, task.number, because)
        command = TaskReleased(task=task.id, number=task.number, because=call.plain["because"])
        yield from self._write(call, command)
        self.ended.add((task.id, task.number))

    def hand_off(
        self, task: Task, role: str | None, agent: str | None, given: Any, because: str
    ) -> Flow[None]:
        """Hand a task on to another role or agent."""
        call = self._begin(
            "hand_off", task.id, task.number, role or "", agent or "", given, because
        )
        plain = call.plain
        packed = payloads.pack(plain["given"], f"what task {task.id!r} is handed off with")
        command = TaskHandedOff(
            task=task.id,
            number=task.number,
            role=plain["role"],
            agent=plain["agent"],
            given=packed.raw,
            because=plain["because"],
        )
        yield from self._write(call, command, packed.blobs)
        self.ended.add((task.id, task.number))

    def reopen(self, task: str, because: str) -> Flow[bool]:
        """Have a task that failed be done after all."""
        call = self._begin("reopen", task, because)
        command = Reopen(task=task, because=call.plain["because"])
        recorded = yield from self._write(call, command)
        return bool(recorded["reopened"])

    def tasks(self) -> Flow[list[TaskEntry]]:
        """All tasks of the run, in the order they were added."""
        call = self._begin("tasks")

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, functools.partial(self._list, call)))

        recorded = yield from self.ask(call, run)
        return [TaskEntry(**each) for each in recorded]

    def _list(self, call: Call) -> Flow[Any]:
        sight: TaskVisibility | None = yield Io(functools.partial(self.store.sight, self.engine))
        if sight is None:
            now: int = yield Io(self.store.log_time)
        else:  # of its own time: what others wrote last is not for it to know
            now = yield from self._log_time(call)
        state: TeamState = yield Io(self.store.team)
        labels = {task.id: task.label for task in state.tasks.values()}
        cleared = yield from cleared_of(self.engine, labels)
        unseen = sight.hidden(state) if sight is not None else set[str]()
        hidden = (labels.keys() - cleared) | unseen
        return task_records(state, now, hidden)


def task_records(state: TeamState, now: int, hidden: Collection[str] = ()) -> list[dict[str, Any]]:
    """The tasks at a log time, as plain values; what is large in them is a reference. What is
    hidden is not named.
    """
    unmet = waits(state)
    return [
        task_record(task, unmet.get(task.id), now, hidden)
        for task in state.tasks.values()
        if task.id not in hidden
    ]


def task_record(
    task: TaskState, unmet: Waits | None, now: int, hidden: Collection[str] = ()
) -> dict[str, Any]:
    """One task, as `told_tasks` has it; `unmet` is what it waits for, None of one that is over."""
    waiting = unmet or Waits()
    return {
        "id": task.id,
        "title": task.added.title,
        "status": task_rules.shown_status(task, unmet, now),
        "role": task.role,
        "agent": task.agent,
        "holder": task.holder,
        "number": task.number,
        "by": task.by,
        "waits_for": [each for each in waiting.open if each not in hidden],
        "blocked_by": [each for each in waiting.failed if each not in hidden],
        "lease_left_s": round((task.expires - now) / 1e9, 3) if task.held(now) else None,
        "what": msgspec.json.decode(task.added.what),
        "given": msgspec.json.decode(task.given),
        "because": task.because,
        "result": msgspec.json.decode(task.result),
        "error": task.error.text if task.error else "",
    }


def _lease(lease: float) -> float:
    """A lease in seconds. Its bounds are the domain's. Raises BadValue."""
    if type(lease) not in (int, float) or not math.isfinite(lease):
        raise BadValue("lease_s", f"{lease!r:.40}", "give seconds")
    return float(lease)


def names(what: str, given: Iterable[str]) -> list[str]:
    """A list of names. Raises BadValue for a text, which would be taken by letters."""
    found = [] if isinstance(given, str) else list(given)
    if isinstance(given, str) or any(type(each) is not str for each in found):
        raise BadValue(what, f"{given!r:.80}", "give a list of names")
    if values.plain(found, what) != found:
        raise BadValue(what, f"{given!r:.80}", "give a list of names")
    return found
