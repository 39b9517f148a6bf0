"""What was shown: one doing of a task, by a run or by a person.

The actions are those of an action cache; beside each stands what else was on the page before it,
where that is known, so that a procedure can tell why another action was not taken.
"""

from __future__ import annotations

import msgspec

from hansard.domain.actions.cache import CachedAction, ElementTargets


class ShownAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action, and the page before it.

    Attributes:
        action: What was done.
        present: Elements that were there before it, its own included; empty where not known.
    """

    action: CachedAction
    present: tuple[ElementTargets, ...] = ()


class Demonstration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One doing of a task.

    Attributes:
        task: What was asked for, in words.
        actions: In order.
        success: Whether the task was done.
        source: The run's id, or what else names it.
        seconds: What it took.
        end: Elements that were there after the last action; empty where not known.
    """

    task: str
    actions: tuple[ShownAction, ...]
    success: bool
    source: str
    seconds: float = 0.0
    end: tuple[ElementTargets, ...] = ()
