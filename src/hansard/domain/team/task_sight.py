"""What an agent of a restricted role may know of a team's tasks, and what it is told in errors.

It sees the tasks that are meant for it, its role or anybody, those that it added or has claimed,
and those of which its role's rules show all that is said. Of others nothing is told: not that they
are there, whose they are, or how they stand. What a task that it sees waits for decides when it can
be claimed, seen or not.
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
    """Whose sight it is: an agent, its role and that role's rules; `roster` is agent to role."""

    agent: str
    role: str
    rules: RoleDefined | None
    roster: Mapping[str, str]

    def sees(self, task: TaskState) -> bool:
        """Whether the agent may know of a task."""
        own = self.agent in (task.agent, task.by, task.holder)
        if own or (not task.agent and task.role in ("", self.role)):
            return True
        roles = {self.roster.get(task.by, ""), task.holder_role or task.role}
        if task.agent:
            roles.add(self.roster.get(task.agent, ""))
        tags = kinds_of(TASK_KINDS)
        return all(sees_kinds(self.rules, tags, KEY, each) for each in roles)

    def hidden(self, state: TeamState) -> set[str]:
        """The tasks that it may not know of, by id."""
        return {task.id for task in state.tasks.values() if not self.sees(task)}


def decide(
    sight: TaskVisibility, state: TeamState, request: TaskCommand, now: int
) -> Sequence[TaskEvent]:
    """As `task_rules.decide`, but whatever is told follows from what the agent may know. A task
    that is added without an id is called after the agent and how many it has added.
    """
    hidden = sight.hidden(state)
    match request:
        case TaskAdded():
            request = _added(sight, state, request, hidden)
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
    sight: TaskVisibility, state: TeamState, command: TaskAdded, hidden: set[str]
) -> TaskAdded:
    if not command.task:
        number = 1 + sum(task.by == sight.agent for task in state.tasks.values())
        while f"{sight.agent}-{number}" in state.tasks:
            number += 1
        command = msgspec.structs.replace(command, task=f"{sight.agent}-{number}")
    elif command.task in hidden:
        message = f"task {command.task!r} cannot be added under this id: give another"
        raise Refused(message)
    for task in command.waits_for:
        if task in hidden:
            raise no_task(task)
    return command
