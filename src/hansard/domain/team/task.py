"""The tasks of a team: their assignees, dependencies and claims. One aggregate a run.

Names, events, state, evolve; `decide` is in `hansard.domain.team.task_rules`. The events are the
storage format: a tag never changes its meaning, a field is only added with a default. The writer of
an event is its commit's actor. Payloads (`what`, `given`, `result`) are plain JSON in the form of
`hansard.domain.values`, large ones a blob reference.

All tasks of a run are one stream, so that a task is claimed by one agent alone and no two tasks can
be added or handed on into a circle.

A claim has a number: 1, 2, 3 ... for each task. Later events of its agent about the task (extended,
released, completed, failed, handed off) carry that number, and are valid only while no other claim
has followed. A lease granted at log time T for L is over at every point whose log time is T + L or
later: then another agent may claim the task. The log's time is that of the newest commit that the
claimant had seen; no process's own clock is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

import msgspec

from hansard.domain.board import By
from hansard.domain.choices import Brief
from hansard.domain.errors import HansardError, Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label, join
from hansard.domain.quarantined import Quarantined
from hansard.domain.steps import NULL, Failure

KEY = "team tasks"
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


class TeamState(Brief, msgspec.Struct, kw_only=True):
    """The tasks of a run by id, in the order they were added.

    Attributes:
        version: The version of the tasks' stream.
        tasks: By id.
    """

    version: int = 0
    tasks: dict[str, TaskState] = msgspec.field(default_factory=dict)

    def copy(self) -> TeamState:
        """Return a copy that can be folded on without changing this one; O(tasks), shallow."""
        return TeamState(version=self.version, tasks=dict(self.tasks))


class ClaimLost(HansardError):
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

    def __str__(self) -> str:
        return str(self.args[0])

    # From the arguments: an error that is raised again from the record has nothing else.
    task = property(lambda self: self.args[1])
    number = property(lambda self: self.args[2])
    found = property(lambda self: self.args[3])
    holder = property(lambda self: self.args[4])
    status = property(lambda self: self.args[5])


def initial() -> TeamState:
    """Return the state before the first event."""
    return TeamState()


def fold(state: TeamState, events: Iterable[Event], by: By = By()) -> TeamState:  # noqa: B008 -- By is frozen
    """Return the state after more events of one commit; the given state is not changed."""
    state = state.copy()
    for each in events:
        evolve(state, each, by)
    return state


def evolve(state: TeamState, event: Event, by: By) -> None:
    """Fold one event into a state that the caller owns. Raises Refused."""
    state.version += 1
    change = msgspec.structs.replace
    match event:
        case TaskAdded():
            state.tasks[event.task] = TaskState(
                added=event,
                by=by.author,
                role=event.role,
                agent=event.agent,
                changed=state.version,
                label=by.label,
            )
        case TaskClaimed():
            state.tasks[event.task] = change(
                found(state, event.task),
                status=TaskStatus.CLAIMED,
                number=event.number,
                holder=event.agent,
                holder_role=event.role,
                expires=by.stamp + event.lease_ms * 1_000_000,
                changed=state.version,
            )
        case (
            TaskExtended()
            | TaskReleased()
            | TaskCompleted()
            | TaskFailed()
            | TaskHandedOff()
            | TaskReopened()
        ):
            before = found(state, event.task)
            label = join(before.label, by.label).stored
            if isinstance(event, TaskExtended):  # an extension has no visible content
                label = before.label
            task = change(before, changed=state.version, label=label)
            state.tasks[event.task] = _after(task, event, by)
        case Quarantined():
            return
        case _:
            message = f"{event.tag} is not an event of a team's tasks"
            raise Refused(message)


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


def found(state: TeamState, task: str) -> TaskState:
    """Return a task by id. Raises Refused."""
    try:
        return state.tasks[task]
    except KeyError:
        raise no_task(task) from None


def no_task(task: str) -> Refused:
    """Return the error for an unknown task."""
    return Refused(f"there is no task {task!r} in this run: add it first, or see team.tasks()")
