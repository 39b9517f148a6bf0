"""What may be said of a team's tasks after what was said.

`decide` says which events a command leads to, by the rules of `hansard.domain.team.task`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from hansard.domain.errors import BadValue, Refused
from hansard.domain.ids import name as checked_name
from hansard.domain.label import Confidentiality
from hansard.domain.team.task import (
    ClaimCommand,
    ClaimLost,
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
    TaskStatus,
    TeamState,
    found,
)

# What each of a team's tasks still waits for: of all at once, or kept as they change.

Node = tuple[str, str]
"""What a task waits for: a task or a role, by name."""


class Waits(msgspec.Struct, frozen=True):
    """What a task still waits for: tasks by id, roles as `role NAME`. Those in `failed` will never
    be done, since they failed or are blocked themselves: the task is blocked.
    """

    open: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def waits(state: TeamState) -> dict[str, Waits]:
    """What each task that is not over waits for. O(tasks + what they wait for)."""
    unmet = Unmet(state)
    return {task.id: unmet.of(task) for task in state.tasks.values() if not task.is_over}


class Unmet:
    """What the tasks of a state wait for. Whoever folds the state on says so with `moved`.

    A role that has no task yet is waited for: its first may be on its way, and agents begin in no
    order.
    """

    def __init__(self, state: TeamState) -> None:
        self._tasks = state.tasks
        self._place: dict[str, int] = {}
        self._waiting: dict[Node, list[str]] = {}
        """Who waits for a task or a role, those included that are over."""
        self._of_role: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()
        """How many tasks of a role are not over."""
        self._dead: set[str] = set()
        """The tasks that failed, and those that wait for one that will never be done."""
        self._dying: dict[str, set[str]] = {}
        """The dead by their roles."""
        for task in self._tasks.values():
            self._enter(task)
            self._count(task, 1)
        self._bury()

    def of(self, task: TaskState) -> Waits:
        """What a task that is not over waits for."""
        added = task.added
        open_ = [name for name in added.waits_for if not self._tasks[name].is_over]
        failed = [name for name in added.waits_for if name in self._dead]
        for role in added.waits_for_roles:
            failed.extend(sorted(self._dying.get(role, ()), key=self._place.__getitem__))
            if self._is_open(role):
                open_.append(f"role {role}")
        return Waits(tuple(dict.fromkeys(open_)), tuple(dict.fromkeys(failed)))

    def moved(self, before: TaskState | None, task: TaskState) -> set[str]:
        """Take in how a task stands now (`before`: how it stood; None of one that was added). The
        tasks of which something may be said otherwise now, itself among them.

        Costs what those are; O(tasks) where a task that had failed or was blocked moved.
        """
        found = {task.id}
        if before is None:
            self._enter(task)
        roles = {task.role, before.role if before is not None else task.role}
        stood = {role: self._is_open(role) for role in roles}
        if before is not None:
            self._count(before, -1)
        self._count(task, 1)
        if before is None or before.is_over != task.is_over:
            found.update(self._waiting.get(("task", task.id), ()))
        for role in roles:
            if len(roles) > 1 or self._is_open(role) != stood[role]:
                found.update(self._waiting.get(("role", role), ()))
        for dead in self._turned(before, task):
            found.add(dead)
            found.update(self._waiting.get(("task", dead), ()))
            found.update(self._waiting.get(("role", self._tasks[dead].role), ()))
        return found

    def _enter(self, task: TaskState) -> None:
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

    def _turned(self, before: TaskState | None, task: TaskState) -> set[str]:
        """The tasks that are dead now and were not, or the other way about."""
        if task.id in self._dead:
            if before is None or (before.status is task.status and before.role == task.role):
                return set()
            stood = self._dead
            self._bury()
            return stood ^ self._dead
        if task.status is TaskStatus.FAILED or (before is None and self.of(task).failed):
            return self._spread([task.id])
        return set()

    def _bury(self) -> None:
        """Find all the dead again."""
        self._dead, self._dying = set(), {}
        self._spread([t.id for t in self._tasks.values() if t.status is TaskStatus.FAILED])

    def _spread(self, begin: Iterable[str]) -> set[str]:
        """Those that died with some, which are among them."""
        found: set[str] = set()
        spread = list(begin)
        while spread:
            name = spread.pop()
            if name in self._dead:
                continue
            role = self._tasks[name].role
            self._dead.add(name)
            found.add(name)
            if role:
                self._dying.setdefault(role, set()).add(name)
            for node in (("task", name), ("role", role)):
                waiting = self._waiting.get(node, ())
                spread += [each for each in waiting if not self._tasks[each].is_over]
        return found


TASKS_MAX = 10_000
"""Most tasks of a run: every reader takes all of them."""

WAITS_MAX = 1_000
"""Most tasks and roles that one task waits for."""

TITLE_LENGTH_MAX = 1_000

LEASE_MS_MIN = 100
"""Shortest lease: far more than a commit takes on a local disk."""

LEASE_MS_MAX = 7 * 24 * 3_600_000
"""Longest lease: a week, after which what nobody heard of is surely dead."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An agent wants a task: of its own, or of a role that it works for, and labelled no higher
    than it is cleared for.
    """

    agent: str
    role: str
    lease_ms: int
    cleared: Confidentiality = Confidentiality.SECRET


class Reopen(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants a task that has failed to be done after all."""

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
    """The events that a command leads to at a log time in ns; none where it is so already, or where
    there is nothing to claim. A task that is added without an id is given the next free number.

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
                raise BadValue(where, "it is to nobody", "give role= or agent=")
            added = found(state, request.task).added
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
    """Raise Refused for a task that is done, and where tasks would now wait for each other."""
    task = found(state, command.task)
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
    """Raise ClaimLost where the claim that somebody goes by is not the one that stands."""
    task = found(state, command.task)
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
            found(state, task)
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
    """Raise Refused where a task of a role, waiting as it does, would wait for itself."""
    circle = _circle(state, task, role, added)
    if circle:
        raise Circle(task, circle)


def _circle(state: TeamState, task: str, role: str, added: TaskAdded) -> list[str]:
    """The way from a task back to itself, as words; none where there is none. O(tasks + waits).

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
    """Whether a task is the claimant's, its role's, or anybody's, and it may be told of it."""
    if task.label is not None and not task.label.flows_to(command.cleared):
        return False
    if task.agent:
        return task.agent == command.agent
    return task.role in ("", command.role)


def claimable(state: TeamState, command: Claim, now: int) -> TaskState | None:
    """The first task that an agent can claim at a log time in ns."""
    unmet = waits(state)
    for task in state.tasks.values():
        free = not task.is_over and not task.held(now) and unmet[task.id] == Waits()
        if free and meant_for(task, command):
            return task
    return None


def still_to_come(state: TeamState, command: Claim) -> bool:
    """Whether some task may still be the claimant's: it is not over, nor blocked for good."""
    unmet = waits(state)
    return any(
        meant_for(task, command) and not unmet[task.id].failed
        for task in state.tasks.values()
        if not task.is_over
    )


def shown_status(task: TaskState, unmet: Waits | None, now: int) -> str:
    """Where a task stands in one word: open, waiting, blocked, claimed, expired, done, failed."""
    if task.is_over or unmet is None:
        return task.status.value
    if task.status is TaskStatus.CLAIMED:
        return "claimed" if task.held(now) else "expired"
    if unmet.failed:
        return "blocked"
    return "waiting" if unmet.open else "open"
