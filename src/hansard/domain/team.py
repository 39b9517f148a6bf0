"""The cooperation of a run's agents: tasks, and messages between them. One aggregate a run each.

The events are the storage format: a tag never changes its meaning, a field is only added with a
default. The writer of an event is its commit's actor. Payloads (`what`, `given`, `result`,
`content`) are plain JSON in the form of `hansard.domain.values`, large ones a blob reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import ClassVar, assert_never

import msgspec

from hansard.domain.choices import Brief
from hansard.domain.decider import By, State
from hansard.domain.errors import BadValue, HansardError, Refused, WithFacts, fact_at
from hansard.domain.events import Event, event
from hansard.domain.ids import name as checked_name
from hansard.domain.label import Confidentiality, Label, join
from hansard.domain.steps import NULL, Failure

# The tasks of a team: their assignees, dependencies and claims. One aggregate a run.
#
# All tasks of a run are one stream, so that a task is claimed by one agent alone and no two tasks
# can be added or handed on into a circle.
#
# A claim has a number: 1, 2, 3 ... for each task. Later events of its agent about the task
# (extended, released, completed, failed, handed off) carry that number, and are valid only while no
# other claim has followed. A lease granted at log time T for L is over at every point whose log
# time is T + L or later: then another agent may claim the task. The log's time is that of the
# newest commit that the claimant had seen; no process's own clock is used.

TASKS_KEY = "team tasks"
"""The key of the run's board that tasks are kept under; no agent may write it as a key."""


class TaskStatus(StrEnum):
    """The stored status of a task. Waiting, blocked and expired are derived
    (`task_rules.shown_status`).
    """

    OPEN = "open"
    CLAIMED = "claimed"
    DONE = "done"
    FAILED = "failed"


@event("task.added.v1")
class TaskAdded(Event, frozen=True, kw_only=True):
    """A task was added for an agent, for any agent of a role, or (neither given) for any agent; it
    waits for the tasks `waits_for`, and for all tasks of the roles `waits_for_roles`.

    Attributes:
        task: Its id.
        title: Its title.
        what: The claimant's input, as JSON in the form of `hansard.domain.values`.
        role: The role it is for; empty for any.
        agent: The agent it is for; empty for any agent of the role.
    """

    task: str
    title: str
    what: msgspec.Raw = NULL
    role: str = ""
    agent: str = ""
    waits_for: tuple[str, ...] = ()
    waits_for_roles: tuple[str, ...] = ()


@event("task.claimed.v1")
class TaskClaimed(Event, frozen=True, kw_only=True):
    """An agent works on the task from now on; `number` counts the task's claims from 1. `role` is
    the one whose work it takes on, by default its own.
    """

    task: str
    number: int
    agent: str
    role: str
    lease_ms: int


@event("task.extended.v1")
class TaskExtended(Event, frozen=True, kw_only=True):
    """The agent is still at work: the lease begins again."""

    task: str
    number: int
    lease_ms: int


@event("task.released.v1")
class TaskReleased(Event, frozen=True, kw_only=True):
    """The agent gave the task up: another may claim it."""

    task: str
    number: int
    because: str = ""


@event("task.completed.v1")
class TaskCompleted(Event, frozen=True, kw_only=True):
    """The task is done."""

    task: str
    number: int
    result: msgspec.Raw = NULL


@event("task.failed.v1")
class TaskFailed(Event, frozen=True, kw_only=True):
    """The task could not be done; tasks that wait for it are blocked."""

    task: str
    number: int
    error: Failure


@event("task.handed_off.v1")
class TaskHandedOff(Event, frozen=True, kw_only=True):
    """The task belongs to another role or agent from now on; `given` is the receiver's input."""

    task: str
    number: int
    role: str = ""
    agent: str = ""
    given: msgspec.Raw = NULL
    because: str = ""


@event("task.reopened.v1")
class TaskReopened(Event, frozen=True, kw_only=True):
    """A failed task is to be done after all: it may be claimed again, and tasks that wait for it
    are no longer blocked. `number` is that of the claim that it failed under. Its author may be no
    agent of the run.
    """

    task: str
    number: int
    because: str = ""


ClaimCommand = TaskExtended | TaskReleased | TaskCompleted | TaskFailed | TaskHandedOff
"""Events that only the agent that has claimed a task may write."""

TaskEvent = TaskAdded | TaskClaimed | ClaimCommand | TaskReopened


class TaskState(Brief, msgspec.Struct, frozen=True, kw_only=True):
    """A task as folded so far.

    `added` is its first event, `by` its author; `role` and `agent` are its current assignee.
    `holder` has claimed it (or, once it is over, had): `number` counts the claims. `expires` is a
    log time in ns; `given` is of the last hand-off, `because` of that, the last release or
    reopening. `changed` is the stream's version of its last event. `label` is the join of the
    labels of the commits that its content follows from; None is public and trusted.

    Attributes:
        status: Its status.
        holder_role: The holder's role.
        result: Its result, as JSON in the form of `hansard.domain.values`.
        error: The error of a failed task.
    """

    added: TaskAdded
    by: str
    role: str
    agent: str
    changed: int
    status: TaskStatus = TaskStatus.OPEN
    number: int = 0
    holder: str = ""
    holder_role: str = ""
    expires: int = 0
    given: msgspec.Raw = NULL
    because: str = ""
    result: msgspec.Raw = NULL
    error: Failure | None = None
    label: Label | None = None

    @property
    def id(self) -> str:
        """The task's id in its run."""
        return self.added.task

    @property
    def is_over(self) -> bool:
        """True if it is done or failed."""
        return self.status in (TaskStatus.DONE, TaskStatus.FAILED)

    def held(self, now: int) -> bool:
        """Return whether an agent holds it at a log time in ns, under a lease that is not over."""
        return self.status is TaskStatus.CLAIMED and now < self.expires


class TeamState(Brief, State, kw_only=True):
    """The tasks of a run by id, in the order they were added.

    Attributes:
        version: The version of the tasks' stream.
        tasks: By id.
    """

    noun: ClassVar[str] = "a team's tasks"

    tasks: dict[str, TaskState] = msgspec.field(default_factory=dict)

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place. Raises Refused for an unknown task."""
        change = msgspec.structs.replace
        match event:
            case TaskAdded():
                self.tasks[event.task] = TaskState(
                    added=event,
                    by=by.author,
                    role=event.role,
                    agent=event.agent,
                    changed=self.version,
                    label=by.label,
                )
            case TaskClaimed():
                self.tasks[event.task] = change(
                    task_of(self, event.task),
                    status=TaskStatus.CLAIMED,
                    number=event.number,
                    holder=event.agent,
                    holder_role=event.role,
                    expires=by.stamp + event.lease_ms * 1_000_000,
                    changed=self.version,
                )
            case (
                TaskExtended()
                | TaskReleased()
                | TaskCompleted()
                | TaskFailed()
                | TaskHandedOff()
                | TaskReopened()
            ):
                before = task_of(self, event.task)
                label = join(before.label, by.label).stored
                if isinstance(event, TaskExtended):  # an extension has no visible content
                    label = before.label
                task = change(before, changed=self.version, label=label)
                self.tasks[event.task] = _after(task, event, by)
            case _:
                super()._evolve(event, by)


class ClaimLost(WithFacts, HansardError):
    """An agent reported on a task that it does not hold.

    State: nothing was written.
    Remedy: stop working on the task: another agent may have done it.

    `number` is the number of the agent's claim, `found` that of the newest claim, `holder` its
    agent, and `status` the state of the task.
    """

    def __init__(self, task: str, number: int, found: int, holder: str, status: str) -> None:
        current = f"is {status}"
        if holder:
            current = f"is {status} by {holder!r} (claim {found})"
        text = (
            f"task {task!r} {current}, so claim {number} of it is no longer valid: "
            "stop working on it, and claim another"
        )
        super().__init__(text, task, number, found, holder, status)

    task, number, found, holder, status = map(fact_at, range(1, 6))


def _after(task: TaskState, event: ClaimCommand | TaskReopened, by: By) -> TaskState:
    change = msgspec.structs.replace
    match event:
        case TaskExtended():
            return change(task, expires=by.stamp + event.lease_ms * 1_000_000)
        case TaskReleased():
            return change(
                task, status=TaskStatus.OPEN, holder="", holder_role="", because=event.because
            )
        case TaskReopened():
            return change(
                task,
                status=TaskStatus.OPEN,
                holder="",
                holder_role="",
                error=None,
                because=event.because,
            )
        case TaskCompleted():
            return change(task, status=TaskStatus.DONE, result=event.result)
        case TaskFailed():
            return change(task, status=TaskStatus.FAILED, error=event.error)
        case TaskHandedOff():
            return change(
                task,
                status=TaskStatus.OPEN,
                holder="",
                holder_role="",
                role=event.role,
                agent=event.agent,
                given=event.given,
                because=event.because,
            )
        case _:
            assert_never(event)


def task_of(state: TeamState, task: str) -> TaskState:
    """Return a task by id. Raises Refused."""
    try:
        return state.tasks[task]
    except KeyError:
        raise no_task(task) from None


def no_task(task: str) -> Refused:
    """Return the error for an unknown task."""
    return Refused(f"there is no task {task!r} in this run: add it first, or see team.tasks()")


# The unmet dependencies of a team's tasks: computed for all at once, or updated as they change.

Node = tuple[str, str]
"""A dependency of a task: a task or a role, by name."""


class Waits(msgspec.Struct, frozen=True):
    """The unmet dependencies of a task: tasks by id, roles as `role NAME`. Those in `failed` will
    never be done, since they failed or are blocked themselves: the task is blocked.
    """

    open: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def waits(state: TeamState) -> dict[str, Waits]:
    """Return the unmet dependencies of each task that is not over. O(tasks + dependencies)."""
    unmet = Unmet(state)
    return {task.id: unmet.of(task) for task in state.tasks.values() if not task.is_over}


class Unmet:
    """The dependencies of a state's tasks. A caller that folds the state further reports it to
    `moved`.

    A role that has no task yet is waited for: its first may be about to be added, since agents
    begin in no order.
    """

    def __init__(self, state: TeamState) -> None:
        self._tasks = state.tasks
        self._place: dict[str, int] = {}
        self._waiting: dict[Node, list[str]] = {}
        """Tasks that wait for a task or a role, including those that are over."""
        self._of_role: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()
        """The number of tasks of a role that are not over."""
        self._dead: set[str] = set()
        """The failed tasks, and those that wait for one that will never be done."""
        self._dead_by_role: dict[str, set[str]] = {}
        """The dead tasks by their roles."""
        for task in self._tasks.values():
            self._index(task)
            self._count(task, 1)
        self._find_dead()

    def of(self, task: TaskState) -> Waits:
        """Return the unmet dependencies of a task that is not over."""
        added = task.added
        open_ = [name for name in added.waits_for if not self._tasks[name].is_over]
        failed = [name for name in added.waits_for if name in self._dead]
        for role in added.waits_for_roles:
            failed.extend(sorted(self._dead_by_role.get(role, ()), key=self._place.__getitem__))
            if self._is_open(role):
                open_.append(f"role {role}")
        return Waits(tuple(dict.fromkeys(open_)), tuple(dict.fromkeys(failed)))

    def moved(self, before: TaskState | None, task: TaskState) -> set[str]:
        """Update a changed task (`before`: its earlier state; None for an added one), and return
        the tasks whose status may have changed, itself among them.

        Costs O(those tasks); O(tasks) where a task that had failed or was blocked changed.
        """
        affected = {task.id}
        if before is None:
            self._index(task)
        roles = {task.role, before.role if before is not None else task.role}
        before_open = {role: self._is_open(role) for role in roles}
        if before is not None:
            self._count(before, -1)
        self._count(task, 1)
        if before is None or before.is_over != task.is_over:
            affected.update(self._waiting.get(("task", task.id), ()))
        for role in roles:
            if len(roles) > 1 or self._is_open(role) != before_open[role]:
                affected.update(self._waiting.get(("role", role), ()))
        for dead in self._dead_changes(before, task):
            affected.add(dead)
            affected.update(self._waiting.get(("task", dead), ()))
            affected.update(self._waiting.get(("role", self._tasks[dead].role), ()))
        return affected

    def _index(self, task: TaskState) -> None:
        self._place[task.id] = len(self._place)
        for name in task.added.waits_for:
            self._waiting.setdefault(("task", name), []).append(task.id)
        for role in task.added.waits_for_roles:
            self._waiting.setdefault(("role", role), []).append(task.id)

    def _count(self, task: TaskState, by: int) -> None:
        if task.role:
            self._of_role[task.role] += by
            self._busy[task.role] += 0 if task.is_over else by

    def _is_open(self, role: str) -> bool:
        return self._busy[role] > 0 or not self._of_role[role]

    def _dead_changes(self, before: TaskState | None, task: TaskState) -> set[str]:
        """Return the tasks that became dead, or are dead no more."""
        if task.id in self._dead:
            if before is None or (before.status is task.status and before.role == task.role):
                return set()
            earlier = self._dead
            self._find_dead()
            return earlier ^ self._dead
        if task.status is TaskStatus.FAILED or (before is None and self.of(task).failed):
            return self._spread([task.id])
        return set()

    def _find_dead(self) -> None:
        """Find all dead tasks again."""
        self._dead, self._dead_by_role = set(), {}
        self._spread([t.id for t in self._tasks.values() if t.status is TaskStatus.FAILED])

    def _spread(self, begin: Iterable[str]) -> set[str]:
        """Mark tasks dead, and return them with all tasks that are dead because of them."""
        dead: set[str] = set()
        spread = list(begin)
        while spread:
            name = spread.pop()
            if name in self._dead:
                continue
            role = self._tasks[name].role
            self._dead.add(name)
            dead.add(name)
            if role:
                self._dead_by_role.setdefault(role, set()).add(name)
            for node in (("task", name), ("role", role)):
                waiting = self._waiting.get(node, ())
                spread += [each for each in waiting if not self._tasks[each].is_over]
        return dead


TASKS_MAX = 10_000
"""Most tasks of a run: every reader reads all of them."""

WAITS_MAX = 1_000
"""Most tasks and roles that one task waits for."""

TITLE_LENGTH_MAX = 1_000

LEASE_MS_MIN = 100
"""Shortest lease: far more than a commit takes on a local disk."""

LEASE_MS_MAX = 7 * 24 * 3_600_000
"""Longest lease: a week; an agent that is silent for longer is taken for dead."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a task: of the agent's own, or of a role that it works for, and labelled no
    higher than its clearance.
    """

    agent: str
    role: str
    lease_ms: int
    cleared: Confidentiality = Confidentiality.SECRET


class Reopen(msgspec.Struct, frozen=True, kw_only=True):
    """Request to do a failed task after all."""

    task: str
    because: str = ""


TaskCommand = TaskAdded | Claim | Reopen | ClaimCommand


class Circle(Refused):
    """A task would wait for itself.

    State: nothing was written.
    Remedy: leave out one of the dependencies.

    `way` is the path around the circle, in words.
    """

    def __init__(self, task: str, way: Sequence[str]) -> None:
        super().__init__(
            f"task {task!r} would wait for itself: {' -> '.join(way)}; "
            "leave out one of these dependencies, or give the task to another role"
        )
        self.task = task
        self.way = tuple(way)


def decide(state: TeamState, request: TaskCommand, now: int) -> Sequence[TaskEvent]:
    """Return the events of a command at a log time in ns; none where it changes nothing, or where
    there is nothing to claim. A task that is added without an id gets the next free number.

    Raises ClaimLost, Refused (a circle, an unknown task, another task of that id), BadValue.
    """
    match request:
        case TaskAdded():
            return _added(state, request)
        case Claim():
            _check_lease(request.lease_ms)
            task = claimable(state, request, now)
            return () if task is None else (_claimed(task, request),)
        case Reopen():
            return _reopened(state, request)
        case TaskExtended() | TaskReleased() | TaskCompleted() | TaskFailed():
            _mine(state, request)
            if isinstance(request, TaskExtended):
                _check_lease(request.lease_ms)
            return (request,)
        case TaskHandedOff():
            _mine(state, request)
            where = f"hand-off of task {request.task!r}"
            _check_whose(request.role, request.agent, where)
            if not request.role and not request.agent:
                raise BadValue(where, "it has no receiver", "give role= or agent=")
            added = task_of(state, request.task).added
            _check_circle(state, request.task, request.role, added)
            return (request,)
        case _:
            assert_never(request)


def _claimed(task: TaskState, command: Claim) -> TaskClaimed:
    return TaskClaimed(
        task=task.id,
        number=task.number + 1,
        agent=command.agent,
        role=command.role,
        lease_ms=command.lease_ms,
    )


def _reopened(state: TeamState, command: Reopen) -> Sequence[TaskEvent]:
    """Return the event of reopening a task. Raises Refused for a task that is done, and where tasks
    would now wait for each other.
    """
    task = task_of(state, command.task)
    if not task.is_over:
        return ()
    if task.status is not TaskStatus.FAILED:
        message = (
            f"task {task.id!r} is {task.status.value}: only one that has failed can be reopened; "
            "add another"
        )
        raise Refused(message)
    _check_circle(state, task.id, task.role, task.added)
    return (TaskReopened(task=task.id, number=task.number, because=command.because),)


def _mine(state: TeamState, command: ClaimCommand) -> None:
    """Check that a claim is the current one. Raises ClaimLost."""
    task = task_of(state, command.task)
    if task.status is not TaskStatus.CLAIMED or task.number != command.number:
        status = task.status.value
        raise ClaimLost(task.id, command.number, task.number, task.holder, status)


def _check_lease(lease_ms: int) -> None:
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        remedy = f"give {LEASE_MS_MIN / 1_000:g} s to {LEASE_MS_MAX / 1_000:,.0f} s"
        raise BadValue("lease", f"{lease_ms / 1_000:g} s", remedy)


def _check_whose(role: str, agent: str, where: str) -> None:
    if role and agent:
        fact = f"to role {role!r} and to agent {agent!r}"
        raise BadValue(where, fact, "give role= or agent=, not both")
    for kind, value in (("role", role), ("agent", agent)):
        if value:
            checked_name(kind, value)


# ------------------------------------------------------------ adding


def _added(state: TeamState, command: TaskAdded) -> Sequence[TaskEvent]:
    if not command.task:
        command = msgspec.structs.replace(command, task=_next_id(state))
    checked_name("task", command.task)
    current = state.tasks.get(command.task)
    if current is not None:
        if msgspec.json.encode(current.added) == msgspec.json.encode(command):
            return ()
        message = (
            f"task {command.task!r} ({current.added.title!r:.80}) is there already, added by "
            f"{current.by!r} with other words: give another id"
        )
        raise Refused(message)
    _check_added(state, command)
    for task in command.waits_for:
        if task != command.task:
            task_of(state, task)
    _check_circle(state, command.task, command.role, command)
    return (command,)


def _next_id(state: TeamState) -> str:
    number = len(state.tasks) + 1
    while f"t{number}" in state.tasks:
        number += 1
    return f"t{number}"


def _check_added(state: TeamState, command: TaskAdded) -> None:
    where = f"task {command.task!r}"
    if len(state.tasks) >= TASKS_MAX:
        raise BadValue(where, f"the run has {TASKS_MAX:,} tasks", "begin another run")
    if not command.title or len(command.title) > TITLE_LENGTH_MAX:
        fact = f"a title of {len(command.title):,} characters"
        raise BadValue(where, fact, f"give 1 to {TITLE_LENGTH_MAX:,}; the rest belongs into what=")
    _check_whose(command.role, command.agent, where)
    waits = len(command.waits_for) + len(command.waits_for_roles)
    if waits > WAITS_MAX:
        raise BadValue(where, f"it waits for {waits:,}", f"give at most {WAITS_MAX:,}")
    for role in command.waits_for_roles:
        checked_name("role", role)


def _check_circle(state: TeamState, task: str, role: str, added: TaskAdded) -> None:
    """Check that a task of a role, with its dependencies, would not wait for itself. Raises
    Refused.
    """
    circle = _circle(state, task, role, added)
    if circle:
        raise Circle(task, circle)


def _circle(state: TeamState, task: str, role: str, added: TaskAdded) -> list[str]:
    """Return the way from a task back to itself, as words; empty for none. O(tasks + dependencies).

    A task waits for tasks and roles; a role for its tasks that are not over.
    """
    of_role: dict[str, list[str]] = {}
    for each in state.tasks.values():
        if each.role and not each.is_over and each.id != task:
            of_role.setdefault(each.role, []).append(each.id)
    if role:
        of_role.setdefault(role, []).append(task)
    begin: tuple[str, str] = ("task", task)
    changed: dict[tuple[str, str], tuple[str, str]] = {}
    waiting: list[tuple[str, str]] = [begin]
    while waiting:
        node = waiting.pop()
        for following in _following(state, node, of_role, begin, added):
            if following == begin:
                return _way(changed, begin, node)
            if following not in changed:
                changed[following] = node
                waiting.append(following)
    return []


def _following(
    state: TeamState,
    node: tuple[str, str],
    of_role: dict[str, list[str]],
    begin: tuple[str, str],
    added: TaskAdded,
) -> Iterable[tuple[str, str]]:
    kind, name = node
    if kind == "role":
        return [("task", each) for each in of_role.get(name, ())]
    waits = added if node == begin else state.tasks[name].added
    if node != begin and state.tasks[name].is_over:
        return []
    return [
        *(("task", each) for each in waits.waits_for),
        *(("role", each) for each in waits.waits_for_roles),
    ]


def _way(
    changed: dict[tuple[str, str], tuple[str, str]], begin: tuple[str, str], last: tuple[str, str]
) -> list[str]:
    nodes: list[tuple[str, str]] = [begin]
    while last != begin:
        nodes.append(last)
        last = changed[last]
    nodes.append(begin)
    return [name if kind == "task" else f"role {name}" for kind, name in reversed(nodes)]


# ------------------------------------------------------------ claiming


def meant_for(task: TaskState, command: Claim) -> bool:
    """Return whether a task is the claimant's, its role's, or any agent's, and within its
    clearance.
    """
    if task.label is not None and not task.label.flows_to(command.cleared):
        return False
    if task.agent:
        return task.agent == command.agent
    return task.role in ("", command.role)


def claimable(state: TeamState, command: Claim, now: int) -> TaskState | None:
    """Return the first task that an agent can claim at a log time in ns."""
    unmet = waits(state)
    for task in state.tasks.values():
        free = not task.is_over and not task.held(now) and unmet[task.id] == Waits()
        if free and meant_for(task, command):
            return task
    return None


def may_become_claimable(state: TeamState, command: Claim) -> bool:
    """Return whether a task may become claimable: it is not over, and not blocked."""
    unmet = waits(state)
    return any(
        meant_for(task, command) and not unmet[task.id].failed
        for task in state.tasks.values()
        if not task.is_over
    )


def shown_status(task: TaskState, unmet: Waits | None, now: int) -> str:
    """Return the status of a task in one word: open, waiting, blocked, claimed, expired, done,
    failed.
    """
    if task.is_over or unmet is None:
        return task.status.value
    if task.status is TaskStatus.CLAIMED:
        return "claimed" if task.held(now) else "expired"
    if unmet.failed:
        return "blocked"
    return "waiting" if unmet.open else "open"


MAIL_KEY = "team mail"
"""The key of the run's board that messages are kept under; no agent may write it as a key."""


@event("mail.sent.v1")
class MailSent(Event, frozen=True, kw_only=True):
    """A message to an agent, or to every agent of a role. `content` is plain JSON in the form of
    `hansard.domain.values`, a large one a blob reference; `sender_role` is the sender's role.
    """

    content: msgspec.Raw
    sender_role: str
    role: str = ""
    agent: str = ""


def is_for(mail: MailSent, agent: str, role: str) -> bool:
    """Return whether a message is for an agent of a role."""
    return mail.agent == agent or (bool(mail.role) and mail.role == role)
