"""Whether a role may have a run placed in an experiment, read prompts, or read action caches or
experiences that the record keeps, decided by its rules alone: purely.

What arm a run gets, and whether it gets any, follows from the experiment's plan, whether it stands,
and what was said of the run: so whoever has a run placed must see all of these, and is refused by
its rules before an experiment is looked at. So there is one answer for an experiment that the role
does not see and for one that there is not.
"""

from __future__ import annotations

from typing import get_args

from hansard.domain import prompt
from hansard.domain.actions import kept
from hansard.domain.experience import kept as kept_experiences
from hansard.domain.experiment import KIND, ExperimentRegistered, ExperimentStopped
from hansard.domain.ids import WorkspaceStream
from hansard.domain.roles.authorize import Permission, unversioned
from hansard.domain.roles.fields import is_whole, touches
from hansard.domain.roles.judge import Facts, judge, unmet_conditions
from hansard.domain.roles.model import RoleDefined

_PLAN = Facts(tag=ExperimentRegistered.tag, stream=WorkspaceStream(KIND, ""))
_STOP = Facts(tag=ExperimentStopped.tag, stream=WorkspaceStream(KIND, ""))
"""All experiments are judged alike: no rule tells one from another."""

_PROMPTS = tuple(
    Facts(tag=each.tag, stream=WorkspaceStream(prompt.KIND, ""))
    for each in (prompt.PromptVersionAdded, prompt.PromptAliased, prompt.PromptRetired)
)
"""So are all prompts."""

_ACTIONS = tuple(
    Facts(tag=each.tag, stream=WorkspaceStream(kept.KIND, ""))
    for each in (
        kept.ActionsSaved,
        kept.ActionsHealed,
        kept.ActionsReverted,
        kept.ActionsLookedAt,
    )
)
"""And all action caches."""

_EXPERIENCES = tuple(
    Facts(tag=each.tag, stream=WorkspaceStream(kept_experiences.KIND, ""))
    for each in get_args(kept_experiences.ExperienceEvent)
)
"""And all experiences."""


def may_be_placed(rules: RoleDefined | None, run: Facts, *, begins: bool) -> Permission:
    """Whether a role may have a run placed, or be told that it has a place. `run` are the facts of
    the run's `run.assigned`, whether or not it has one. begins: an experiment is asked.
    """
    return _demanded(rules, (run, _PLAN, _STOP) if begins else (run,))


def may_use_prompts(rules: RoleDefined | None) -> Permission:
    """Whether a role may read prompts, and what their aliases name: it sees all of them whole."""
    return _demanded(rules, _PROMPTS)


def may_use_actions(rules: RoleDefined | None) -> Permission:
    """Whether a role may read kept action caches: it sees all of them whole."""
    return _demanded(rules, _ACTIONS)


def may_use_experiences(rules: RoleDefined | None) -> Permission:
    """Whether a role may read kept experiences: it sees all of them whole."""
    return _demanded(rules, _EXPERIENCES)


def _demanded(rules: RoleDefined | None, needed: tuple[Facts, ...]) -> Permission:
    lacking = [each.tag for each in needed if not _sees_whole(rules, each)]
    if not lacking:
        return Permission(allowed=True, rule="sees")
    names = [unversioned(tag) for tag in lacking]
    because = f"it does not see all of {', '.join(names)}" if rules else "it has no rules"
    masks = rules.masks if rules is not None else ()
    hiding = next(
        (mask for mask in masks for each in needed if not unmet_conditions(mask, each)), None
    )
    if hiding is not None:
        remedy = f"other kinds in mask {hiding.name!r}"
        return Permission(allowed=False, because=because, ask_for=remedy, where="")
    line = ", ".join(f'"{name}"' for name in names)
    return Permission(allowed=False, because=because, ask_for=f"kinds = [{line}]", where="sees")


def sees_arm(rules: RoleDefined | None, run: Facts) -> bool:
    """Whether a role sees which arm a run has."""
    verdict = judge(rules, run)
    hidden = any(touches(mask.fields, "arm") for mask in verdict.masks)
    return verdict.visible and is_whole(verdict.fields, "arm") and not hidden


def sees_plan(rules: RoleDefined | None) -> bool:
    """Whether a role sees what an arm stands for."""
    return _sees_whole(rules, _PLAN)


def _sees_whole(rules: RoleDefined | None, facts: Facts) -> bool:
    verdict = judge(rules, facts)
    return verdict.visible and verdict.fields is None and not verdict.masks
