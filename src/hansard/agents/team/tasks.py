"""`session.team`: tasks shared by a run's agents, and messages between them.

Each operation is a step of the agent, of kind `team`. Its event and the step's outcome are one
commit, so that it is made exactly once even if the process is killed, and a resumed session gets
the same result. A claim costs two commits (its own first one reads the log's time), any other
operation on a task one, over two streams (some 4 ms on a local disk).

Written once for both clients as flows (see `hansard.agents.flow`); `twins` drives them.
Long because tasks and messages are read and written by the same rules.
"""

from __future__ import annotations

import bisect
import functools
import math
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from hansard.agents.flow import Flow, Io, Watch
from hansard.agents.policy.permits import claims, states
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointSteps, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.failures import failure
from hansard.agents.steps.gating import cleared_of, demand_receiver
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.tools import operation
from hansard.bus import log
from hansard.bus.commits import record
from hansard.bus.log import OVER, READY, TIMEOUT, Stored, until
from hansard.domain import ids, team, values
from hansard.domain.choices import Brief
from hansard.domain.errors import BadValue
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.label import Label
from hansard.domain.roles import authorize
from hansard.domain.roles.authorize import TaskVisibility
from hansard.domain.steps import Failure, StepStatus
from hansard.domain.team import (
    Claim,
    MailSent,
    Reopen,
    TaskAdded,
    TaskClaimed,
    TaskCommand,
    TaskCompleted,
    TaskEvent,
    TaskExtended,
    TaskFailed,
    TaskHandedOff,
    TaskReleased,
    TaskReopened,
    TaskState,
    TeamState,
    Waits,
    claimable,
    decide,
    is_for,
    may_become_claimable,
    meant_for,
    waits,
)
from hansard.domain.values import Plain, recordable
from hansard.state.replay import Mail as replay_Mail
from hansard.state.replay import States, mail_of, mails, tasks_of
from hansard.state.repository import followed

if TYPE_CHECKING:
    from hansard.agents.steps.engine import StepEngine

# Tasks and messages of a run as a session knows them, read incrementally.
#
# Everything here runs on the bus's loop.


class Mailbox:
    """Messages of a run for one agent. Each is visited once, and none is copied: a mailbox only
    grows. `version`: that of the run's newest message; `sent`: number of messages that the agent
    sent.
    """

    def __init__(self, agent: str, role: str) -> None:
        self.version = 0
        self.sent = 0
        self._agent = agent
        self._role = role
        self._mine: list[replay_Mail] = []

    def take(self, commits: Sequence[Stored]) -> None:
        """Add commits of the run's stream of messages; those already present are skipped."""
        for stored in commits:
            if stored.commit.version <= self.version:
                continue  # of a concurrent read
            for mail in mails([stored]):
                self.sent += mail.sender == self._agent
                if is_for(mail.sent, self._agent, self._role):
                    self._mine.append(mail)
            self.version = stored.commit.last_version

    def between(self, after: int, to: int) -> list[replay_Mail]:
        """Return the messages for the agent with versions in (after, to], in order."""
        return self._mine[self.count_to(after) : self.count_to(to)]

    def count_to(self, to: int) -> int:
        """Return the number of messages for the agent up to a version."""
        return bisect.bisect_right(self._mine, to, key=lambda mail: mail.version)

    def up_to(self, count: int) -> int:
        """Return the version of the last of `count` messages for the agent; 0 for none."""
        return self._mine[count - 1].version if count else 0


class TeamStore:
    """Reads a run's tasks and messages; each read requests the new commits."""

    def __init__(self, states: States, stream: AgentStream) -> None:
        """Create it; `stream` is that of the agent."""
        self.states = states
        self.tasks = tasks_of(stream.run)
        self.mail = mail_of(stream.run)
        self._team: TeamState | None = None
        self._mailbox = Mailbox(stream.agent, stream.role)

    async def team(self) -> TeamState:
        """Return the current tasks; must not be modified. Raises Corrupt, UnknownEvent,
        Unreachable.
        """
        known = self._team
        if known is None:
            state = followed(TeamState(), await self.states.commits(self.tasks))
        else:
            commits = await self.states.log.read(self.tasks, after=known.version)
            state = followed(known, commits)
        if self._team is None or self._team.version <= state.version:
            self._team = state
        return state

    async def sight(self, engine: StepEngine) -> TaskVisibility | None:
        """Return the filter of tasks for a session's agent; None if it may see all."""
        permit, stream = engine.settings.permit, engine.stream
        if not permit.is_limited:
            return None
        roster = (await self.states.life(stream.run)).roster
        return TaskVisibility(stream.agent, stream.role, permit.rules, roster)

    async def mailbox(self) -> Mailbox:
        """Return the run's messages for this agent, as of now; the mailbox only grows."""
        box = self._mailbox
        if box.version:
            commits = await self.states.log.read(self.mail, after=box.version)
        else:
            commits = await self.states.commits(self.mail)
        box.take(commits)
        return box

    async def log_time(self) -> int:
        """Return the log's current time: that of its newest commit, in ns since 1970."""
        log = self.states.log
        return (await log.at(await log.head())).stamp


LOOK_S_MIN = 0.25
"""Shortest wait for a lease to expire, in seconds: the estimate uses this process's clock, which
may be ahead of the log's, by which it is decided.
"""

WAIT_S_MAX = 365 * 24 * 3_600.0


async def for_claim(store: TeamStore, command: Claim, timeout_s: float | None) -> str:
    """Wait until the agent may have a task to claim. Without a timeout, return OVER once no
    remaining task could become the agent's.
    """
    log = store.states.log

    async def look() -> str | None:
        state = await store.team()
        if claimable(state, command, await store.log_time()) is not None:
            return READY
        over = timeout_s is None and not may_become_claimable(state, command)
        return OVER if over else None

    lease_s = await _next_lease(store, command)
    bounds = [each for each in (lease_s, timeout_s) if each is not None]
    text = await until(log, look, lambda _: True, min(bounds) if bounds else None, of=store.tasks)
    looked_at_lease = lease_s is not None and (timeout_s is None or lease_s < timeout_s)
    return READY if text == TIMEOUT and looked_at_lease else text


async def _next_lease(store: TeamStore, command: Claim) -> float | None:
    """Return the estimated seconds until the first lease of a task for an agent expires; None if
    there is none.

    The log's time advances only with its commits: the claim's own commit decides at that moment.
    """
    state = await store.team()
    ends = [
        task.expires
        for task in state.tasks.values()
        if task.holder and not task.is_over and meant_for(task, command)
    ]
    if not ends:
        return None
    return max(LOOK_S_MIN, (min(ends) - time.time_ns()) / 1e9)


def seconds(what: str, value: float | None) -> float | None:
    """Return a checked number of seconds; None for no limit. Raises BadValue."""
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= WAIT_S_MAX:
        raise BadValue(what, f"{value!r:.40}", "give seconds, 0 or more, or None for no end")
    return float(value)


# Writes to a team's tasks and messages, committed with the step's outcome.


class TeamWrite(JointWrite):
    """Writes an event of a task, always decided on state just read."""

    def __init__(
        self, engine: StepEngine, call: Call, store: TeamStore, request: TaskCommand
    ) -> None:
        super().__init__(engine, call)
        self._engine = engine
        self._store = store
        self._request = request

    def _streams(self) -> list[KeyStream]:
        return [self._store.tasks]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        state = await self._store.team()
        if isinstance(self._request, Claim):
            self._request = await self._clearances.claim(state, self._request)
        if self._lost and isinstance(self._request, Claim):
            self.now = max(self.now, await self._store.log_time())
        sight = await self._store.sight(self._engine)
        if sight is None:
            events = decide(state, self._request, self.now)
        else:
            events = authorize.decide_task(sight, state, self._request, self.now)
        self.shown = _label(state, events)
        outcome = await self._completed(_operation_record(state, self._request, events))
        recorded = [record(event, self._clock.new_id()) for event in events]
        return outcome, [Draft(self._store.tasks, state.version, recorded)]


def _operation_record(state: TeamState, request: TaskCommand, events: Any) -> Plain:
    """Return the result of an operation, as it is recorded."""
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
    """Return the label of what the claimant of a task gets."""
    event: TaskEvent | None = events[0] if events else None
    return state.tasks[event.task].label if isinstance(event, TaskClaimed) else None


def claim_record(task: TaskState, number: int) -> dict[str, Plain]:
    """Return a task as its claimant gets it."""
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
        # Hides from a limited role how many messages others sent.
        number = 1 + (box.sent if self._is_limited else box.version)
        outcome = await self._completed({"number": number})
        event = record(self._mail, self._clock.new_id())
        return outcome, [Draft(self._store.mail, box.version, [event])]


# `session.team.send` and `inbox`: messages between the agents of a run.
#
# An inbox read is a step that records the last message it read: each agent gets each message once,
# even if its session is killed, since a resumed one gets the recorded messages. A message to a role
# goes to every agent of that role, including one that joins later.


class Mail(Brief, msgspec.Struct, frozen=True):
    """A message.

    Attributes:
        number: Number from 1 among the run's messages; under a role's rules among those for this
            agent, or among those that it sent.
        sender: Agent that sent it.
        role: Role of the sender.
        to_role: Role that it was sent to; empty if it was sent to this agent alone.
        content: Content.
    """

    number: int
    sender: str
    role: str
    to_role: str
    content: Any


SEND = operation("team.send", "content", "role", "agent", kind="team", writes=True)
# After an edit of an earlier step, an inbox step keeps its recorded result: otherwise the agent
# would lose its messages.
INBOX = operation("team.inbox", kind="team", writes=True)


class MailFlows(JointSteps):
    """A session's messages."""

    def __init__(self, engine: StepEngine, store: TeamStore) -> None:
        super().__init__(engine)
        self._store = store
        self._read = 0
        """Version of the last message that this session has read."""
        self._before: int | None = None
        """The same for inbox reads recorded earlier; None until computed."""

    def send(self, content: Any, role: str | None, agent: str | None) -> Flow[int]:
        """Send a message; return its number."""
        if bool(role) == bool(agent):
            fact = f"to role {role!r} and agent {agent!r}"
            raise BadValue("message", fact, "give role= or agent=, one of them")
        ids.name("role or agent", role or agent)
        call = self.engine.begin(SEND, (content, role or "", agent or ""), {})
        call.needs = (states(MailSent.tag),)
        if any(call.plain[name] != call.arguments[name] for name in ("role", "agent")):
            raise BadValue("message", "its role or agent holds a secret", "leave the secret out")
        plain = yield from self.content(call, "content")
        packed = payloads.pack(plain["content"], "message")
        sent = MailSent(
            content=packed.raw,
            sender_role=self.engine.stream.role,
            role=role or "",
            agent=agent or "",
        )

        def run(call: Call) -> Flow[Any]:
            yield from self.engine.permitted(call)
            yield from demand_receiver(self.engine, call, sent.role, sent.agent)
            write = MailWrite(self.engine, call, self._store, sent)
            return (yield from self._jointly(call, packed.blobs, write))

        recorded = yield from self.ask(call, run)
        number: int = recorded["number"]
        return number

    def inbox(self) -> Flow[list[Mail]]:
        """Return the messages for this agent that it has not received yet."""
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
        with self.engine.ledger.lock:  # concurrent inbox reads get different messages
            after = max(self._read, recorded)
            to = self._read = max(after, version)
        mine = box.between(after, to)
        cleared = yield from cleared_of(self.engine, {mail.version: mail.label for mail in mine})
        shown = set(cleared)
        is_limited = self.engine.settings.permit.is_limited
        return {
            **({"given": box.count_to(to)} if is_limited else {"up_to": to}),
            "messages": [
                {
                    "number": box.count_to(mail.version) if is_limited else mail.version,
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
        """Return the version of the last message read by earlier inbox steps of this agent, as
        recorded when this session first needs it; its own reads it knows. Under a role's rules the
        record counts only the agent's own messages, to hide how many others there are.
        """
        if self._before is None:
            version, outcomes = 0, self.engine.outcomes
            for step in list(self.engine.ledger.state.steps.values()):
                if step.tool == INBOX.name and step.status is StepStatus.COMPLETED:
                    reply = yield from outcomes.fetch(outcomes.reader.result(step))
                    up_to = box.up_to(reply["given"]) if "given" in reply else reply["up_to"]
                    version = max(version, up_to)
            self._before = version
            return version
        return self._before


NAMES = ("task", "role", "agent", "waits_for", "waits_for_roles")
"""Arguments that others refer to: a secret in one would be known by another name."""

LEASE_S = 60.0
"""Default lease in seconds: how long a task waits for an agent that was killed."""


class Task(Brief, msgspec.Struct):
    """A task that this agent has claimed.

    Attributes:
        id: Id.
        title: Title.
        number: Number of this claim.
        what: Input, set when it was added.
        given: Input from the agent that handed it off.
        because: Reason of the last hand-off or release.
        result: Result with which `claimed()` completes it; set it in the block.
    """

    id: str
    title: str
    number: int
    what: Any = None
    given: Any = None
    because: str = ""
    result: Any = None


class TaskEntry(Brief, msgspec.Struct, frozen=True):
    """A task as listed by `tasks()`.

    Attributes:
        id: Id.
        title: Title.
        status: open, waiting, blocked, claimed, expired, done or failed.
        role: Role that it is for; empty for any.
        agent: Agent that it is for; empty for any.
        holder: Agent that has claimed it.
        number: Number of its last claim.
        by: Agent that added it.
        waits_for: Tasks, and roles as `role NAME`, that it waits for.
        blocked_by: Tasks that will never be done.
        lease_left_s: Seconds left of the lease at the log time of the newest commit; None if it is
            not claimed.
        what: Input, set when it was added.
        given: Input from the agent that handed it off.
        because: Reason of the last hand-off or release.
        result: Result of the completed task.
        error: Error of the failed task.
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

# Recorded arguments of each operation.
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
"""Kind of event that each operation records."""


class TeamFlows(JointSteps):
    """A session's operations on its run's tasks."""

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self.store = TeamStore(engine.boards.states, engine.stream)
        self.ended: set[tuple[str, int]] = set()
        """Claims that this session has ended."""
        self.claimed_by: dict[tuple[str, int], int] = {}
        """Steps that made this session's claims."""

    def _begin(self, name: str, *arguments: Any) -> Call:
        """Build the call of an operation, with its place in the record. Raises BadValue, NoScope,
        ToolError.
        """
        call = self.engine.begin(SPECS[name], arguments, {})
        for field in ("task", "role", "agent", "title", "because"):
            if type(call.plain.get(field, "")) is not str:
                parameter = "reason" if field == "because" else field
                raise BadValue(
                    f"team.{name}({parameter})",
                    "it is not a text, or holds a secret",
                    "give a text",
                )
        for field in NAMES:
            if call.plain.get(field) != call.arguments.get(field):
                remedy = "leave the secret out of it"
                raise BadValue(f"team.{name}({field})", "it holds a secret", remedy)
        call.needs = (states(STATES[name]),) if name in STATES else ()
        return call

    def _write(self, call: Call, request: TaskCommand, blobs: Sequence[bytes] = ()) -> Flow[Any]:
        """Write an event of a task, or return the recorded result."""

        def run(call: Call) -> Flow[Any]:
            if isinstance(request, TaskAdded | TaskHandedOff):
                yield from self.engine.permitted(call)
                yield from demand_receiver(self.engine, call, request.role, request.agent)
            timed = isinstance(request, Claim)
            write = TeamWrite(self.engine, call, self.store, request)
            return (yield from self._jointly(call, list(blobs), write, timed=timed))

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
        """Add a task; return its id."""
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
        """Claim a task; return it and whether the claim was already recorded. None if there is none
        to claim within the timeout, or if no remaining task could become this agent's.
        """
        lease_s = _lease(lease)
        timeout_s = seconds("timeout_s", timeout)
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
            if answer != log.READY:
                return None, known

    def _wait(self, command: Claim, timeout_s: float | None, until: float) -> Flow[str]:
        call = self._begin("wait", command.role, timeout_s)

        def look() -> Flow[str]:
            claim = functools.partial(self._cleared, command)
            mine: Claim = yield Io(claim)
            left = None if timeout_s is None else max(0.0, until - time.monotonic())
            work = functools.partial(for_claim, self.store, mine, left)
            outcome: str = yield Watch(functools.partial(self.engine.ledger.watch, work))
            return outcome

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, look))

        answer: str = yield from self.ask(call, run)
        return answer

    async def _cleared(self, command: Claim) -> Claim:
        return await self.engine.clearances.claim(await self.store.team(), command)

    def extend(self, task: Task, lease: float) -> Flow[None]:
        """Restart a task's lease."""
        lease_s = _lease(lease)
        call = self._begin("extend", task.id, task.number, lease_s)
        lease_ms = round(lease_s * 1_000)
        yield from self._write(
            call, TaskExtended(task=task.id, number=task.number, lease_ms=lease_ms)
        )

    def complete(self, task: Task, result: Any) -> Flow[None]:
        """Mark a task as done."""
        call = self._begin("complete", task.id, task.number, result)
        packed = payloads.pack(call.plain["result"], f"result of task {task.id!r}")
        command = TaskCompleted(task=task.id, number=task.number, result=packed.raw)
        yield from self._write(call, command, packed.blobs)
        self.ended.add((task.id, task.number))

    def fail(self, task: Task, error: BaseException | str) -> Flow[None]:
        """Mark a task as failed."""
        value = self._failure(error)
        failure = {"type": value.type, "message": value.message}
        call = self._begin("fail", task.id, task.number, failure)
        yield from self._write(call, TaskFailed(task=task.id, number=task.number, error=value))
        self.ended.add((task.id, task.number))

    def _failure(self, error: BaseException | str) -> Failure:
        scrub = self.engine.settings.scrub
        if isinstance(error, BaseException):
            return failure(error, scrub)
        if type(error) is not str:
            raise BadValue("team.fail(error)", f"{error!r:.80}", "give an exception or a text")
        return Failure("TaskFailed", recordable(error, scrub), module="hansard")

    def release(self, task: Task, reason: str) -> Flow[None]:
        """Release a task."""
        call = self._begin("release", task.id, task.number, reason)
        command = TaskReleased(task=task.id, number=task.number, because=call.plain["because"])
        yield from self._write(call, command)
        self.ended.add((task.id, task.number))

    def hand_off(
        self, task: Task, role: str | None, agent: str | None, given: Any, reason: str
    ) -> Flow[None]:
        """Hand a task over to another role or agent."""
        call = self._begin("hand_off", task.id, task.number, role or "", agent or "", given, reason)
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

    def reopen(self, task: str, reason: str) -> Flow[bool]:
        """Reopen a failed task."""
        call = self._begin("reopen", task, reason)
        command = Reopen(task=task, because=call.plain["because"])
        recorded = yield from self._write(call, command)
        return bool(recorded["reopened"])

    def tasks(self) -> Flow[list[TaskEntry]]:
        """Return all tasks of the run, in the order they were added."""
        call = self._begin("tasks")

        def run(call: Call) -> Flow[Any]:
            return (yield from self._recorded(call, functools.partial(self._list, call)))

        recorded = yield from self.ask(call, run)
        return [TaskEntry(**each) for each in recorded]

    def _list(self, call: Call) -> Flow[Any]:
        sight: TaskVisibility | None = yield Io(functools.partial(self.store.sight, self.engine))
        if sight is None:
            now: int = yield Io(self.store.log_time)
        else:  # at its own time, which hides when others wrote
            now = yield from self._log_time(call)
        state: TeamState = yield Io(self.store.team)
        labels = {task.id: task.label for task in state.tasks.values()}
        cleared = yield from cleared_of(self.engine, labels)
        unseen = sight.hidden(state) if sight is not None else set[str]()
        hidden = (labels.keys() - cleared) | unseen
        return task_records(state, now, hidden)


def task_records(state: TeamState, now: int, hidden: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the tasks at a log time, as plain values; large parts are references. Hidden tasks are
    not named.
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
    """Return one task as in `task_records`; `unmet`: the tasks it waits for, None for one that has
    ended.
    """
    waiting = unmet or Waits()
    return {
        "id": task.id,
        "title": task.added.title,
        "status": team.shown_status(task, unmet, now),
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
    """Return a lease in seconds. The domain checks its bounds. Raises BadValue."""
    if type(lease) not in (int, float) or not math.isfinite(lease):
        raise BadValue("lease_s", f"{lease!r:.40}", "give seconds")
    return float(lease)


def names(what: str, items: Iterable[str]) -> list[str]:
    """Return a list of names. Raises BadValue for a text, which would be split into letters."""
    listed = [] if isinstance(items, str) else list(items)
    if isinstance(items, str) or any(type(each) is not str for each in listed):
        raise BadValue(what, f"{items!r:.80}", "give a list of names")
    if values.plain(listed, what) != listed:
        raise BadValue(what, f"{items!r:.80}", "give a list of names")
    return listed
