"""The tasks that an agent of a restricted role may see, and its errors.

It sees the tasks that are for it, its role or any agent, those that it added or has claimed, and
those whose events its role's rules show completely. Nothing is revealed of the others: neither
their existence nor their owner or status. The dependencies of a visible task decide when it can be
claimed, whether they are visible or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hansard.domain.errors import Refused
from hansard.domain.roles.authorize import sees_kinds
from hansard.domain.roles.fields import kinds_of
from hansard.domain.roles.model import RoleDefined
from hansard.domain.team import task_rules
from hansard.domain.team.task import (
    KEY,
    ClaimLost,
    TaskAdded,
    TaskEvent,
    TaskState,
    TeamState,
    no_task,
)
from hansard.domain.team.task_rules import Circle, Claim, Reopen, TaskCommand

TASK_KINDS = ("task.*",)


class TaskVisibility(msgspec.Struct, frozen=True):
    """The reader: an agent, its role and that role's rules; `roster` is agent to role."""

    agent: str
    role: str
    rules: RoleDefined | None
    roster: Mapping[str, str]

    def sees(self, task: TaskState) -> bool:
        """Return whether the agent may see a task."""
        own = self.agent in (task.agent, task.by, task.holder)
        if own or (not task.agent and task.role in ("", self.role)):
            return True
        roles = {self.roster.get(task.by, ""), task.holder_role or task.role}
        if task.agent:
            roles.add(self.roster.get(task.agent, ""))
        tags = kinds_of(TASK_KINDS)
        return all(sees_kinds(self.rules, tags, KEY, each) for each in roles)

    def hidden(self, state: TeamState) -> set[str]:
        """Return the hidden tasks, by id."""
        return {task.id for task in state.tasks.values() if not self.sees(task)}


def decide(
    reader: TaskVisibility, state: TeamState, request: TaskCommand, now: int
) -> Sequence[TaskEvent]:
    """Decide as `task_rules.decide`, with answers that follow from the visible tasks alone.

    A task that is added without an id is named after the agent and the number of tasks it added.
    """
    hidden = reader.hidden(state)
    match request:
        case TaskAdded():
            request = _added(reader, state, request, hidden)
        case Claim():
            pass
        case Reopen() if request.task in hidden:
            raise no_task(request.task)
        case Reopen():
            pass
        case _ if request.task not in state.tasks or request.task in hidden:
            raise ClaimLost(request.task, request.number, request.number, "", "not yours")
        case _:
            pass
    try:
        return task_rules.decide(state, request, now)
    except Circle as circle:
        names = [each for each in circle.way if each not in hidden]
        raise Circle(circle.task, names) from None


def _added(
    reader: TaskVisibility, state: TeamState, command: TaskAdded, hidden: set[str]
) -> TaskAdded:
    if not command.task:
        number = 1 + sum(task.by == reader.agent for task in state.tasks.values())
        while f"{reader.agent}-{number}" in state.tasks:
            number += 1
        command = msgspec.structs.replace(command, task=f"{reader.agent}-{number}")
    elif command.task in hidden:
        message = f"task {command.task!r} cannot be added under this id: give another"
        raise Refused(message)
    for task in command.waits_for:
        if task in hidden:
            raise no_task(task)
    return command
