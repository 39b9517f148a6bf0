"""The decision whether a role may see an event, and by which rule. Pure.

Rules only allow. An event that no rule matches is not seen. Where several match, the fields of all
of them are shown; every mask that matches applies, whichever rule shows the event. Served views
(`view.*`) are matched only by rules whose `kinds` name them explicitly. The role's clearance
precedes all rules: an event with a higher label is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never, get_args

import msgspec

from hansard.domain import prompt
from hansard.domain.actions import kept
from hansard.domain.aggregate_types import KIND
from hansard.domain.errors import BadValue
from hansard.domain.experience import kept as kept_experiences
from hansard.domain.experiment import KIND as EXPERIMENT_KIND
from hansard.domain.experiment import ExperimentRegistered, ExperimentStopped
from hansard.domain.ids import (
    MEMORY,
    AgentStream,
    KeyStream,
    RunStream,
    StreamId,
    WorkspaceStream,
)
from hansard.domain.label import Confidentiality, Label, level
from hansard.domain.roles.authorize import Permission, unversioned
from hansard.domain.roles.check import SEPARATORS
from hansard.domain.roles.fields import (
    DIGESTS,
    SIZES,
    elsewhere,
    is_whole,
    known,
    names_family,
    touches,
)
from hansard.domain.roles.model import (
    NONE,
    REST,
    SLASH,
    Mask,
    RoleDefined,
    RoleRule,
    any_matches,
    behind_space,
    kind_matches,
)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The properties by which an event is judged; an empty one is absent.

    `role` and `agent` are its author's: those of an agent's stream, else those of the agent that
    wrote it, if the run's roster has it (a person's name is no agent's). `aggregate` is the
    declared name and tag of the change of an aggregate, `order/order-placed.v1`; `paths` are the
    files of memory that changed, behind their space. `labels` are the run's, `label` is its
    commit's. `fields` are the keys of its data; they decide nothing, `explain` lists the shown
    ones.
    """

    tag: str
    stream: StreamId
    role: str = ""
    agent: str = ""
    key: str = ""
    aggregate: str = ""
    paths: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    fields: tuple[str, ...] = ()
    label: Label | None = None


def facts(
    tag: str,
    stream: StreamId,
    actor: str,
    roster: Mapping[str, str],
    labels: Mapping[str, str],
    fields: tuple[str, ...] = (),
    label: Label | None = None,
) -> Facts:
    """Return the properties of an event from its stream. `roster` is agent to role; `labels` are
    kept, not copied; `label` is its commit's.
    """
    role, agent, key = "", "", ""
    match stream:
        case AgentStream():
            role, agent = stream.role, stream.agent
        case KeyStream():
            key = stream.key
        case RunStream():
            pass
        case WorkspaceStream():
            return Facts(tag=tag, stream=stream, fields=fields, label=label)
        case _:
            assert_never(stream)
    if not agent and actor in roster:
        role, agent = roster[actor], actor
    return Facts(
        tag=tag,
        stream=stream,
        role=role,
        agent=agent,
        key=key,
        labels=labels,
        fields=fields,
        label=label,
    )


class _Declared(msgspec.Struct):
    """The fields of an aggregate's change that name it."""

    aggregate: str
    event: str


_declared = msgspec.json.Decoder(_Declared)


def aggregate_of(stream: StreamId, data: bytes) -> str:
    """Return the declared name and tag of an aggregate's change, `order/order-placed.v1`; empty for
    other events, and for data without them.
    """
    if type(stream) is not WorkspaceStream or stream.kind != KIND:
        return ""
    try:
        fields = _declared.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return f"{fields.aggregate}/{fields.event}"


class _File(msgspec.Struct):
    path: str
    was: str = ""


class _Changed(msgspec.Struct):
    """The fields of a memory event that name its files."""

    files: list[_File] = []
    problems: list[_File] = []


_changed = msgspec.json.Decoder(_Changed)


def files_of(stream: StreamId, data: bytes) -> tuple[str, ...]:
    """Return the files of memory that an event is about, behind their space, `org/AGENTS.md`; none
    for other events, and for data without them.
    """
    if type(stream) is not WorkspaceStream or stream.kind != MEMORY:
        return ()
    try:
        fields = _changed.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    named = [path for each in (*fields.files, *fields.problems) for path in (each.path, each.was)]
    return tuple(dict.fromkeys(behind_space(stream.id, path) for path in named if path))


class Verdict(msgspec.Struct, frozen=True):
    """The decision whether an event is seen, and its visible parts.

    `rule` is the first that matches, `rules` are all. `fields` are the paths shown, None is all;
    `names` are the fields of the kind that may be shown at all: neither those that reveal other
    events, nor those that this version does not know. `whole` is true if the role sees the whole
    record, as it is.
    """

    visible: bool
    rule: str = ""
    rules: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = ()
    masks: tuple[Mask, ...] = ()
    names: frozenset[str] = frozenset()
    whole: bool = False


UNSEEN = Verdict(visible=False)


def judge(rules: RoleDefined | None, facts: Facts) -> Verdict:
    """Return a role's verdict on an event. A role without rules sees nothing; a kind that this
    version does not know is seen only by a role that sees the whole record.
    """
    if rules is None or not cleared(rules, facts.label):
        return UNSEEN
    matching = [rule for rule in rules.sees if not unmet_conditions(rule, facts)]
    names = tuple(rule.name for rule in matching)
    if matching and sees_all(rules):
        return Verdict(visible=True, rule=names[0], rules=names, fields=None, whole=True)
    if not matching or facts.tag not in known():
        return UNSEEN
    fields: tuple[str, ...] | None = None
    if all(rule.fields is not None for rule in matching):
        fields = tuple(dict.fromkeys(path for rule in matching for path in rule.fields or ()))
    masks = tuple(mask for mask in rules.masks if not unmet_conditions(mask, facts))
    shown = _names(facts.tag, matching, fields, masks)
    return Verdict(True, names[0], names, fields, masks, shown)  # noqa: FBT003 -- that it is visible


def shows_whole(verdict: Verdict, field: str) -> bool:
    """Return whether all of a field is shown, as it is on record."""
    if not verdict.visible or verdict.whole:
        return verdict.visible
    return field in verdict.names and _is_clear(field, verdict.fields, verdict.masks)


def clearance(rules: RoleDefined) -> Confidentiality:
    """Return a role's clearance; public for an invalid level, which no check accepts."""
    try:
        return level(rules.clearance)
    except BadValue:
        return Confidentiality.PUBLIC


def cleared(rules: RoleDefined, label: Label | None) -> bool:
    """Return whether a role's clearance permits a label."""
    return label is None or label.flows_to(clearance(rules))


def sees_all(rules: RoleDefined) -> bool:
    """Return whether a role sees the whole record as it is: by a rule of all kinds alone, no masks,
    and the highest clearance.
    """
    if rules.masks or clearance(rules) is not Confidentiality.SECRET:
        return False
    return any(
        rule.kinds is not None
        and REST in rule.kinds
        and (rule.roles, rule.agents, rule.keys, rule.labels, rule.fields) == (None,) * 5
        and rule.aggregates is None
        and rule.paths is None
        for rule in rules.sees
    )


def _names(
    tag: str, matching: list[RoleRule], fields: tuple[str, ...] | None, masks: tuple[Mask, ...]
) -> frozenset[str]:
    """Return the known fields of a kind without those that reveal other events or hidden fields."""
    hidden = set(elsewhere(tag))
    for field, source in DIGESTS.get(tag, {}).items():
        if not _is_clear(source, fields, masks):
            hidden.add(field)
    for field, source in SIZES.get(tag, {}).items():
        named = any(touches(rule.fields, field) for rule in matching if rule.fields is not None)
        if not named and not _is_clear(source, fields, masks):
            hidden.add(field)
    return frozenset(known()[tag].__struct_encode_fields__) - hidden


def _is_clear(source: str, fields: tuple[str, ...] | None, masks: tuple[Mask, ...]) -> bool:
    return is_whole(fields, source) and not any(touches(mask.fields, source) for mask in masks)


def unmet_conditions(rule: RoleRule | Mask, facts: Facts) -> list[str]:
    """Return the matchers of a rule or mask that an event does not meet, in words; none where it
    matches.
    """
    missing: list[str] = []
    has = {
        "roles": facts.role,
        "agents": facts.agent,
        "keys": facts.key,
        "aggregates": facts.aggregate,
    }
    if rule.kinds is not None and not any(kind_matches(kind, facts.tag) for kind in rule.kinds):
        missing.append(f"kinds: {facts.tag} is none of {_listed(rule.kinds)}")
    elif isinstance(rule, RoleRule) and not names_family(rule.kinds or (), facts.tag):
        missing.append(f"kinds: {facts.tag} is seen only by a rule that names it")
    for name, value in has.items():
        patterns: tuple[str, ...] | None = getattr(rule, name)
        if patterns is None or (value and any_matches(patterns, SEPARATORS[name], value)):
            continue
        text = f"{value!r} is none of {_listed(patterns)}" if value else "it has none"
        missing.append(f"{name}: {text}")
    if rule.paths is not None and not _of_paths(rule, rule.paths, facts.paths):
        text = _listed(facts.paths) if facts.paths else "it has none"
        missing.append(f"paths: {text}, and the rule's are {_listed(rule.paths)}")
    for label, pattern in (rule.labels or {}).items():
        if label not in facts.labels:
            missing.append(f"labels: its run has no {label!r}")
        elif not any_matches((pattern,), NONE, facts.labels[label]):
            missing.append(f"labels: {label} is {facts.labels[label]!r}, not {pattern!r}")
    return missing


def _of_paths(rule: RoleRule | Mask, patterns: tuple[str, ...], paths: tuple[str, ...]) -> bool:
    """Return whether files match a rule: all of them, so that a hidden one leaves no trace; for a
    mask one is enough.
    """
    which = all if isinstance(rule, RoleRule) else any
    return bool(paths) and which(any_matches(patterns, SLASH, path) for path in paths)


def _listed(patterns: tuple[str, ...]) -> str:
    return ", ".join(repr(pattern) for pattern in patterns)


def explain(rules: RoleDefined | None, facts: Facts) -> list[str]:
    """Explain why a role sees an event or not: the deciding rule first, then each other rule in
    order.

    For readers that may see the role's rules and the event's facts; not for the role itself.
    """
    if rules is None:
        return ["not seen: the role has no rules, and only events that a rule allows are seen"]
    verdict = judge(rules, facts)
    lines = [_first(verdict, rules, facts)]
    for rule in rules.sees:
        missing = unmet_conditions(rule, facts)
        if missing:
            lines.append(f"rule {rule.name!r} does not match: {'; '.join(missing)}")
        elif rule.name != verdict.rule:
            lines.append(f"rule {rule.name!r} matches, too")
    if verdict.visible:
        lines += _of_data(verdict, facts)
    return lines


def _first(verdict: Verdict, rules: RoleDefined, facts: Facts) -> str:
    if verdict.visible:
        return f"seen: rule {verdict.rule!r} matches"
    if facts.label is not None and not cleared(rules, facts.label):
        target = facts.label.confidentiality.value
        return (
            f"not seen: it is labelled {str(facts.label)!r}, and the role's clearance is "
            f'{clearance(rules).value!r}; to allow it: clearance = "{target}"'
        )
    if facts.tag not in known() and any(not unmet_conditions(rule, facts) for rule in rules.sees):
        return f"not seen: {facts.tag} was written by a newer version, and its fields are unknown"
    return "not seen: no rule matches, and only events that a rule allows are seen"


def _of_data(verdict: Verdict, facts: Facts) -> list[str]:
    if verdict.whole:
        return ["shown: as it is on record"]
    shown = "all fields" if verdict.fields is None else ", ".join(verdict.fields)
    lines = [f"shown: {shown}"]
    unshown = [field for field in facts.fields if field not in verdict.names]
    if unshown:
        lines.append(f"not shown, since it reveals other events or fields: {', '.join(unshown)}")
    for mask in verdict.masks:
        how = mask.how.value + (f" to {mask.characters}" if mask.characters is not None else "")
        lines.append(f"mask {mask.name!r}: {how} {', '.join(mask.fields)}")
    return lines


# Permissions to have a run placed in an experiment, and to read prompts, action caches or
# experiences that the record keeps, decided by a role's rules alone: pure.
#
# The arm of a run follows from the experiment's plan, its stop, and the run's assignment: so a role
# that has a run placed must see all of these, and is refused by its rules before the experiment is
# read. So a hidden experiment and a missing one give the same answer.

_PLAN = Facts(tag=ExperimentRegistered.tag, stream=WorkspaceStream(EXPERIMENT_KIND, ""))
_STOP = Facts(tag=ExperimentStopped.tag, stream=WorkspaceStream(EXPERIMENT_KIND, ""))
"""All experiments are judged alike: no rule distinguishes them."""

_PROMPTS = tuple(
    Facts(tag=each.tag, stream=WorkspaceStream(prompt.KIND, ""))
    for each in (prompt.PromptVersionAdded, prompt.PromptAliased, prompt.PromptRetired)
)
"""The facts of all prompts, judged alike."""

_ACTIONS = tuple(
    Facts(tag=each.tag, stream=WorkspaceStream(kept.KIND, ""))
    for each in (
        kept.ActionsSaved,
        kept.ActionsHealed,
        kept.ActionsReverted,
        kept.ActionsLookedAt,
    )
)
"""The facts of all action caches, judged alike."""

_EXPERIENCES = tuple(
    Facts(tag=each.tag, stream=WorkspaceStream(kept_experiences.KIND, ""))
    for each in get_args(kept_experiences.ExperienceEvent)
)
"""The facts of all experiences, judged alike."""


def may_be_placed(rules: RoleDefined | None, run: Facts, *, begins: bool) -> Permission:
    """Decide whether a role may have a run placed, or read its place.

    `run` are the facts of the run's `run.assigned`, even if it has none. begins: an experiment
    assigns the run.
    """
    return _requires_whole(rules, (run, _PLAN, _STOP) if begins else (run,))


def may_use_prompts(rules: RoleDefined | None) -> Permission:
    """Decide whether a role may read prompts, and the versions of their aliases: it sees all of
    them whole.
    """
    return _requires_whole(rules, _PROMPTS)


def may_use_actions(rules: RoleDefined | None) -> Permission:
    """Decide whether a role may read kept action caches: it sees all of them whole."""
    return _requires_whole(rules, _ACTIONS)


def may_use_experiences(rules: RoleDefined | None) -> Permission:
    """Decide whether a role may read kept experiences: it sees all of them whole."""
    return _requires_whole(rules, _EXPERIENCES)


def _requires_whole(rules: RoleDefined | None, needed: tuple[Facts, ...]) -> Permission:
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
    """Return whether a role sees the arm of a run."""
    verdict = judge(rules, run)
    hidden = any(touches(mask.fields, "arm") for mask in verdict.masks)
    return verdict.visible and is_whole(verdict.fields, "arm") and not hidden


def sees_plan(rules: RoleDefined | None) -> bool:
    """Return whether a role sees an experiment's plan."""
    return _sees_whole(rules, _PLAN)


def _sees_whole(rules: RoleDefined | None, facts: Facts) -> bool:
    verdict = judge(rules, facts)
    return verdict.visible and verdict.fields is None and not verdict.masks
