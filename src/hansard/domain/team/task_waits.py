"""What each of a team's tasks still waits for: of all at once, or kept as they change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from hansard.domain.team.task import TaskState, TaskStatus, TeamState

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
