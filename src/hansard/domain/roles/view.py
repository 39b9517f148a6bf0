"""The view of a role: the events that it may see, and no trace of the others.

A hidden event leaves no gap in the numbers, no position, version or count. An agent's steps are
numbered in the order in which the role sees them, and references to hidden events are left out.

A hashed value becomes `{"$hash": "..."}`, HMAC-SHA-256 (RFC 2104) with the caller's key over its
RFC 8785 form, its first 18 bytes in base64url; a cut text `{"$cut": "..."}`, even if it was short
enough; a dropped one is absent.

Long because the verdict on an event and its visible form follow from the same rules.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, assert_never, get_args

import msgspec

from hansard.domain import actions as action_caches
from hansard.domain import prompt
from hansard.domain.aggregate_types import KIND
from hansard.domain.board import BoardState, KeyRemoved, ValuePut
from hansard.domain.choices import Brief
from hansard.domain.decider import By, evolve
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.events import REGISTRY
from hansard.domain.experience import experience as kept_experiences
from hansard.domain.experiment import KIND as EXPERIMENT_KIND
from hansard.domain.experiment import ExperimentRegistered, ExperimentStopped
from hansard.domain.fingerprint import DIGEST_BYTES, canonical, digest
from hansard.domain.ids import MEMORY, AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.label import Confidentiality, Label, level
from hansard.domain.roles.authorize import (
    DIGESTS,
    SIZES,
    Permission,
    call_paths,
    elsewhere,
    holds_values,
    is_whole,
    known,
    names_family,
    repeats,
    text_fields,
    touches,
    unversioned,
)
from hansard.domain.roles.check import SEPARATORS
from hansard.domain.roles.masking import (
    MISSING,
    CallMasker,
    CallMasks,
    Masked,
    Masks,
    Remaining,
    may_hold_calls,
    walk,
)
from hansard.domain.roles.model import (
    DOT,
    NONE,
    REST,
    SLASH,
    Mask,
    Masking,
    RoleDefined,
    RoleRule,
    any_matches,
    behind_space,
    kind_matches,
    read,
    segment_matches,
)

# The decision whether a role may see an event, and by which rule. Pure.
#
# Rules only allow. An event that no rule matches is not seen. Where several match, the fields of
# all of them are shown; every mask that matches applies, whichever rule shows the event. Served
# views (`view.*`) are matched only by rules whose `kinds` name them explicitly. The role's
# clearance precedes all rules: an event with a higher label is not seen. A mask of a call's fields
# applies to every event about a call that repeats them, and wherever an event has a call that a
# model requests, or a result that it was sent.


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
    record, as it is. `calls` are the masks of calls that apply inside its values.
    """

    visible: bool
    rule: str = ""
    rules: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = ()
    masks: tuple[Mask, ...] = ()
    names: frozenset[str] = frozenset()
    whole: bool = False
    calls: tuple[Mask, ...] = ()


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
    calls = tuple(
        mask
        for mask in rules.masks
        if any(call_paths(mask.kinds, mask.fields))
        and not unmet_conditions(msgspec.structs.replace(mask, kinds=(REST,)), facts)
    )
    shown = _names(facts.tag, matching, fields, masks, calls)
    return Verdict(
        visible=True,
        rule=names[0],
        rules=names,
        fields=fields,
        masks=masks,
        names=shown,
        calls=calls,
    )


def shows_whole(verdict: Verdict, field: str) -> bool:
    """Return whether all of a field is shown, as it is on record."""
    if not verdict.visible or verdict.whole:
        return verdict.visible
    is_clear = not verdict.calls and _is_clear(field, verdict.fields, verdict.masks)
    return field in verdict.names and is_clear


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
    tag: str,
    matching: list[RoleRule],
    fields: tuple[str, ...] | None,
    masks: tuple[Mask, ...],
    calls: tuple[Mask, ...],
) -> frozenset[str]:
    """Return the known fields of a kind without those that reveal other events or hidden fields."""
    hidden = set(elsewhere(tag))
    for field, source in DIGESTS.get(tag, {}).items():
        if (calls and holds_values(tag, source)) or not _is_clear(source, fields, masks):
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
    of_kind = rule.kinds is None or any(kind_matches(kind, facts.tag) for kind in rule.kinds)
    if not of_kind and not (isinstance(rule, Mask) and repeats(facts.tag, rule.kinds, rule.fields)):
        missing.append(f"kinds: {facts.tag} is none of {_listed(rule.kinds or ())}")
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
    for mask in dict.fromkeys((*verdict.masks, *verdict.calls)):
        how = mask.how.value + (f" to {mask.characters}" if mask.characters is not None else "")
        where = "" if mask in verdict.masks else ", in the calls that it repeats"
        lines.append(f"mask {mask.name!r}: {how} {', '.join(mask.fields)}{where}")
    texts = [
        field
        for field in text_fields(facts.tag)
        if verdict.calls
        and field in facts.fields
        and (verdict.fields is None or touches(verdict.fields, field))
        and not any(is_whole(mask.fields, field) for mask in verdict.masks)
    ]
    if texts:
        lines.append(f"not masked as a whole, and may repeat a masked value: {', '.join(texts)}")
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

_KEPT: Mapping[str, tuple[Facts, ...]] = {
    kind: tuple(Facts(tag=each.tag, stream=WorkspaceStream(kind, "")) for each in events)
    for kind, events in (
        (prompt.KIND, (prompt.PromptVersionAdded, prompt.PromptAliased, prompt.PromptRetired)),
        (action_caches.KIND, get_args(action_caches.ActionsEvent)),
        (kept_experiences.KIND, get_args(kept_experiences.ExperienceEvent)),
    )
}
"""The facts of all prompts, action caches and experiences, by kind of stream: judged alike."""


def may_be_placed(rules: RoleDefined | None, run: Facts, *, begins: bool) -> Permission:
    """Decide whether a role may have a run placed, or read its place.

    `run` are the facts of the run's `run.assigned`, even if it has none. begins: an experiment
    assigns the run.
    """
    return _requires_whole(rules, (run, _PLAN, _STOP) if begins else (run,))


def may_use(rules: RoleDefined | None, kind: str) -> Permission:
    """Decide whether a role may read prompts, action caches or experiences: it sees all of them
    whole.
    """
    return _requires_whole(rules, _KEPT[kind])


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


REFERENCES = ("step", "parent", "reused", "after", "inputs")
"""The fields of agents' events that name steps and other events."""

_value = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def renumber(
    fields: dict[str, msgspec.Raw], steps: dict[int, int], seen: Container[str]
) -> dict[str, msgspec.Raw]:
    """Return the fields of a visible agent's event, with the role's own numbers.

    `steps` maps the agent's numbers to the role's and is extended by a newly visible step; `seen`
    holds the ids of the events and commits that were visible so far, this one's own among them.
    """
    out = dict(fields)
    for name in REFERENCES:
        if name in out:
            value = _own(name, _plain(out[name]), steps, seen)
            if value is None:
                del out[name]
            else:
                out[name] = msgspec.Raw(_encoder.encode(value))
    return out


def _own(name: str, value: Any, steps: dict[int, int], seen: Container[str]) -> Any:
    match name, value:
        case "step", int():
            return steps.setdefault(value, len(steps) + 1)
        case (("parent" | "reused"), int()):
            return steps.get(value)
        # An empty list is left out, so that it looks like a field that was never set.
        case "after", list():
            return [steps[each] for each in value if type(each) is int and each in steps] or None
        case "inputs", list():
            return [each for each in value if type(each) is str and each in seen] or None
        case _:
            return None


def _plain(raw: msgspec.Raw) -> Any:
    try:
        return _value.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


KEY_BYTES_MIN = 32
"""Shortest key of hashed values."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UnjudgedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it is judged.

    `run` is the run that is read (a fork's events of its parent are its own), empty for events that
    outlive runs; `commit` the id of its commit; `sealed` is true if its data is encrypted.
    """

    facts: Facts
    id: str
    commit: str
    at: datetime
    data: msgspec.Raw
    run: str = ""
    occurred_at: str | None = None
    sealed: bool = False


class ShownEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as a role sees it. `at` is its writer's clock.

    Attributes:
        type: Its tag.
        id: Its id.
        run: The run; empty for an event that outlives runs.
        role: Its author's role.
        agent: Its author.
        key: The key of shared state that it changes; empty for none.
        data: The visible data, as JSON.
        occurred_at: The time of the event, as an import claims.
    """

    type: str
    id: str
    at: datetime
    run: str = ""
    role: str = ""
    agent: str = ""
    key: str = ""
    data: msgspec.Raw
    occurred_at: str | None = None


class Served(msgspec.Struct, frozen=True):
    """A served view: the number of its events, and the digest of its lines."""

    events: int
    digest: str


def view(
    rules: RoleDefined | None, events: Iterable[UnjudgedEvent], key: bytes | None = None
) -> Iterator[tuple[int, ShownEvent]]:
    """Yield the events that a role sees, in their order, with its own numbers: 1, 2, 3 ...

    key: of hashed values, 32 bytes or more; the same key gives equal values equal hashes. Raises
    BadValue at once where a mask hashes and no such key is given.
    """
    return (line for line in each_judged(rules, events, key) if line is not None)


def each_judged(
    rules: RoleDefined | None, events: Iterable[UnjudgedEvent], key: bytes | None = None
) -> Iterator[tuple[int, ShownEvent] | None]:
    """Yield as `view`, with None for each hidden event."""
    check_key(rules, key)
    return _view(rules, events, key)


def hashes(rules: RoleDefined | None) -> bool:
    """Return whether a mask of a role hashes, which needs a key."""
    return rules is not None and any(mask.how is Masking.HASH for mask in rules.masks)


def check_key(rules: RoleDefined | None, key: bytes | None) -> None:
    """Check that a key is given where a mask hashes. Raises BadValue."""
    if not hashes(rules):
        return
    if key is None or len(key) < KEY_BYTES_MIN:
        fact = "none is given" if key is None else f"it has {len(key)} bytes"
        remedy = f"give {KEY_BYTES_MIN} secret bytes or more, or drop what is hashed"
        raise BadValue("key of hashed values", fact, remedy)


def _view(
    rules: RoleDefined | None, events: Iterable[UnjudgedEvent], key: bytes | None
) -> Iterator[tuple[int, ShownEvent] | None]:
    numbers = _Numbers()
    known: dict[tuple[object, ...], tuple[Verdict, FieldPlan]] = {}
    count = 0
    for event in events:
        facts = event.facts
        who = (facts.tag, facts.role, facts.agent, facts.key, facts.paths)
        mark = (*who, facts.label, *facts.labels.items())
        if mark not in known:  # most events have equal deciding facts
            made = judge(rules, facts)
            known[mark] = made, ways(made)
        verdict, so = known[mark]
        if not verdict.visible or (event.sealed and not verdict.whole):
            yield None
            continue
        count += 1
        data = bytes(event.data)
        if not verdict.whole:
            data = shown_by_plan(so, numbers.renumbered(event), key)
        yield (
            count,
            ShownEvent(
                type=event.facts.tag,
                id=event.id,
                at=event.at,
                run=event.run,
                role=event.facts.role,
                agent=event.facts.agent,
                key=event.facts.key,
                data=msgspec.Raw(data),
                occurred_at=event.occurred_at,
            ),
        )


class Serving:
    """The count and the digest of a view's lines, updated line by line."""

    def __init__(self) -> None:
        self.served = Served(0, "")

    def add(self, number: int, line: ShownEvent) -> None:
        """Add the next line."""
        running = self.served.digest.encode()
        self.served = Served(number, digest(running, b"%d" % number, _encoder.encode(line)))


def served(lines: Iterable[tuple[int, ShownEvent]]) -> Served:
    """Return the count and the digest of a view's lines; O(1) memory."""
    serving = Serving()
    for number, line in lines:
        serving.add(number, line)
    return serving.served


def shown(verdict: Verdict, data: bytes, key: bytes | None = None) -> bytes:
    """Return an event's data as a verdict shows it: JSON in, JSON out, fields in their order.

    Data that is shown whole keeps its exact bytes. Data that is no JSON object is shown as `{}`.
    Raises BadValue where a mask hashes and no key is given, for any data.
    """
    if not verdict.visible:
        return b"{}"
    if verdict.whole:
        return data
    return shown_fields(verdict, data_fields(data), key)


def shown_fields(
    verdict: Verdict, fields: Mapping[str, msgspec.Raw], key: bytes | None = None
) -> bytes:
    """Return as `shown`, from the fields of an event that is not shown whole."""
    if key is None and any(mask.how is Masking.HASH for mask in verdict.masks):
        raise BadValue("key of hashed values", "none is given", "give one")
    return shown_by_plan(ways(verdict), fields, key)


class FieldWay(msgspec.Struct, frozen=True):
    """How a field is shown: the paths into it that are shown, those that are masked, and the masks
    of calls in it.
    """

    shows: list[Remaining] = msgspec.field(default_factory=lambda: [()])
    masks: Masks = []
    calls: CallMasks | None = None


FieldPlan = dict[str, FieldWay]
"""The visible fields by name."""


def ways(verdict: Verdict) -> FieldPlan:
    """Return the plan by which a verdict shows each field: for many events with one verdict."""
    plan: FieldPlan = {}
    calls: CallMasks | None = None
    if verdict.calls:
        calls = CallMasks([], [])
        for mask in verdict.calls:
            for paths, found in zip(
                (calls.arguments, calls.results), call_paths(mask.kinds, mask.fields), strict=True
            ):
                paths += [(rest, mask) for rest in found]
    for name in verdict.names:
        shows: list[Remaining] = [()]
        if verdict.fields is not None:
            shows = _under(verdict.fields, name)
        masks = [(rest, mask) for mask in verdict.masks for rest in _under(mask.fields, name)]
        if calls is not None and name == "items":  # those of a stream, in parts
            masks += calls.results
        is_dropped = any(not rest and mask.how is Masking.DROP for rest, mask in masks)
        if shows and not is_dropped:
            plan[name] = FieldWay(shows, masks, calls)
    return plan


def shown_by_plan(plan: FieldPlan, fields: Mapping[str, msgspec.Raw], key: bytes | None) -> bytes:
    """Return as `shown_fields`, by a prepared plan and a checked key."""
    out: dict[str, Any] = {}
    is_result = "role" in fields and _plain(fields["role"]) in ("tool", "function")
    for name, raw in fields.items():
        way = plan.get(name)
        if way is None:
            continue
        value = _field(way, raw, key, is_result=is_result and name == "content")
        if value is not MISSING:
            out[name] = value
    return _encoder.encode(out)


def data_fields(data: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of an event's data; none where it is no JSON object."""
    try:
        return _fields.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _field(way: FieldWay, raw: msgspec.Raw, key: bytes | None, *, is_result: bool) -> Any:
    """Return one field's visible value, or MISSING. is_result: it is a result sent to a model."""
    data = bytes(raw)
    refers = b"$append" in data or b"$parts" in data or b"\\u" in data  # or escaped
    calls = way.calls if is_result or may_hold_calls(data) else None
    is_plain = () in way.shows and not way.masks and not refers
    if is_plain and calls is None:
        return raw
    try:
        value = _value.decode(raw)
        if calls is not None:
            masker = CallMasker(calls, lambda it: _masked(it, key))
            value = masker.result(value) if is_result else masker.value(value)
            if value is MISSING:
                return MISSING
        if is_plain:
            return value
        return walk(value, way.shows, way.masks, lambda it: _masked(it, key))
    except (msgspec.DecodeError, RecursionError):
        return MISSING


def _under(paths: tuple[str, ...], name: str) -> list[Remaining]:
    """Return the rest of each path that begins with a field."""
    patterns = (read(path, DOT).segments for path in paths)
    return [segments[1:] for segments in patterns if segment_matches(segments[0], name)]


def _masked(it: Masked, key: bytes | None) -> Any:
    """Return the form of a masked value, by the strictest of its masks."""
    kinds = {mask.how for mask in it.masks}
    if Masking.DROP in kinds:
        return MISSING
    if Masking.HASH in kinds:
        made = hmac.digest(key or b"", canonical(it.value), "sha256")[:DIGEST_BYTES]
        return {"$hash": base64.urlsafe_b64encode(made).decode()}
    if not isinstance(it.value, str):
        return MISSING
    return {"$cut": it.value[: min(mask.characters or 0 for mask in it.masks)]}


class _Numbers:
    """A role's own numbers of steps, and the ids it has seen."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str], dict[int, int]] = {}
        self._seen: set[str] = set()

    def renumbered(self, event: UnjudgedEvent) -> dict[str, msgspec.Raw]:
        """Return the data of a visible event, with references to earlier visible events only."""
        self._seen.update((event.id, event.commit))
        value = data_fields(bytes(event.data))
        if not isinstance(event.facts.stream, AgentStream):
            return value
        steps = self._steps.setdefault((event.run, event.facts.agent), {})
        return renumber(value, steps, self._seen)


# The state and context as a role sees them: they follow from a view's lines alone.
#
# Hidden events have no influence: a key is the result of its visible events, which may differ from
# its current value.

Line = tuple[int, ShownEvent]
"""An event as a role sees it, with the role's own number."""


class ShownKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of shared state, from the events that a role sees. `is_whole` is False where an event
    of it could not be folded, because part of it is hidden. `ttl_ms` counts from the put: only the
    log knows whether it has expired.

    Attributes:
        kind: The kind of the key: `value`, `list` ...
        value: Its content.
        agent: The agent that changed it last.
        role: That agent's role.
    """

    kind: str
    value: Any
    agent: str = ""
    role: str = ""
    ttl_ms: int | None = None
    is_whole: bool = True


class ShownAgent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An agent, from the events that a role sees: counts of its events and steps, and its outcome.

    Attributes:
        role: The agent's role.
        events: The number of its visible events.
        steps: The number of its visible steps.
        decisions: The number of its visible decisions.
        messages: The number of its visible messages.
        outcome: How it left; None while it is at work.
    """

    role: str
    events: int = 0
    steps: int = 0
    decisions: int = 0
    messages: int = 0
    outcome: str | None = None


class ShownState(Brief, msgspec.Struct, kw_only=True):
    """The state that follows from a view's lines: of the run, its agents and keys by name, and the
    messages of each agent in the provider's form (large contents by reference).

    Attributes:
        run: Its status and the other visible facts of its life.
        agents: By name.
        board: Keys of shared state, by key.
        context: Each agent's messages, by its name.
    """

    run: dict[str, Any] = msgspec.field(default_factory=dict)
    agents: dict[str, ShownAgent] = msgspec.field(default_factory=dict)
    board: dict[str, ShownKey] = msgspec.field(default_factory=dict)
    context: dict[str, list[dict[str, Any]]] = msgspec.field(default_factory=dict)


_RUN_STATUS = {
    "run.started": "open",
    "run.forked": "open",
    "run.resumed": "open",
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}


def state(lines: Iterable[Line]) -> ShownState:
    """Return the state that follows from a view's lines alone."""
    folding = Folding()
    for _, line in lines:
        folding.add(line)
    return folding.state()


class Folding:
    """The state that follows from a view's lines, updated line by line."""

    def __init__(self) -> None:
        self._state = ShownState()
        self._keys: dict[str, BoardState] = {}
        self._broken: set[str] = set()

    def add(self, line: ShownEvent) -> None:
        """Add the next line."""
        facts = self._state
        data = msgspec.json.decode(line.data)
        data = data if isinstance(data, dict) else {}
        kind = line.type.rpartition(".")[0]
        if kind in _RUN_STATUS:
            labels, own = facts.run.get("labels"), data.get("labels")
            facts.run["status"] = _RUN_STATUS[kind]
            facts.run |= {name: data[name] for name in ("workflow", "labels") if name in data}
            if kind == "run.forked" and isinstance(labels, dict) and isinstance(own, dict):
                facts.run["labels"] = labels | own  # a fork keeps its parent's
        if kind == "run.agent_joined" and isinstance(data.get("agent"), str):
            facts.agents.setdefault(data["agent"], ShownAgent(role=str(data.get("role", ""))))
        if kind.startswith("board."):
            _fold(line, self._keys, self._broken)
        elif not kind.startswith("run.") and line.agent:
            _of_agent(facts, line, kind, data)

    def state(self) -> ShownState:
        """Return the state after all lines."""
        facts = self._state
        for key, key_state in self._keys.items():
            if key_state.kind is not None:
                facts.board[key] = ShownKey(
                    kind=key_state.kind.value,
                    value=key_state.plain,
                    agent=key_state.author,
                    role=key_state.role,
                    ttl_ms=None if key_state.expires is None else key_state.expires // 1_000_000,
                    is_whole=key not in self._broken,
                )
        return facts


def _of_agent(facts: ShownState, line: ShownEvent, kind: str, data: dict[str, Any]) -> None:
    agent = facts.agents.setdefault(line.agent, ShownAgent(role=line.role))
    agent.events += 1
    step = data.get("step")
    if kind.startswith("step.") and type(step) is int:
        agent.steps = max(agent.steps, step)  # numbered for the role alone, from 1
    agent.decisions += kind == "decision.made"
    if kind == "agent.session_began":
        agent.outcome = None
    if kind == "agent.left":
        agent.outcome = data.get("outcome")
    if kind == "message.added":
        fields = data.get("fields")
        message: dict[str, Any] = {name: data[name] for name in ("role", "content") if name in data}
        message |= fields if isinstance(fields, dict) else {}
        facts.context.setdefault(line.agent, []).append(message)
        agent.messages += 1


def _fold(line: ShownEvent, keys: dict[str, BoardState], broken: set[str]) -> None:
    """Fold an event of a key. A failure means that part of it, or an earlier event, is hidden from
    the role: the log accepted the event.
    """
    state = keys.setdefault(line.key, BoardState())
    try:
        happened = msgspec.json.decode(line.data, type=REGISTRY[line.type])
        evolve(state, happened, By(line.agent, 0, line.id))
        if isinstance(happened, ValuePut | KeyRemoved):  # earlier events have no effect any more
            broken.discard(line.key)
    except (msgspec.MsgspecError, HansardError, KeyError, TypeError, ValueError):
        broken.add(line.key)
