"""The permissions of a role, decided by its rules alone: pure, and deny by default.

The reading of keys is decided here, too: a key must be fully visible, whatever it holds. So no
refusal reveals the record. A written key must be fully visible as well: its versions, conflicts and
results reveal other writes.

Every role may begin, leave, declare tools, and record the steps of its permitted actions; extend
and release a task that it may claim; read the messages that are sent to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec import inspect

from hansard.domain import choices, label, team
from hansard.domain import integrity as _all_types  # noqa: F401 # pyright: ignore[reportUnusedImport] -- registers all
from hansard.domain.errors import Refused
from hansard.domain.events import REGISTRY
from hansard.domain.roles import model as role_patterns
from hansard.domain.roles.model import (
    DOT,
    NONE,
    SLASH,
    Mask,
    Pattern,
    RoleDefined,
    RoleRule,
    any_matches,
    is_version,
    kind_matches,
    read,
    segment_matches,
    tool_matches,
)
from hansard.domain.steps import Failure
from hansard.domain.team import (
    TASKS_KEY,
    Circle,
    Claim,
    ClaimLost,
    Reopen,
    TaskAdded,
    TaskCommand,
    TaskEvent,
    TaskState,
    TeamState,
    no_task,
)

# Fields of events: those that a path of a rule reaches, and those that reveal other data.
#
# Paths are patterns of segments (`result.items.price`, `usage.*`); lists are passed through, so
# that a path reaches into every item. A path shows or masks everything under it.

ELSEWHERE = frozenset(
    {
        "anew",
        "by_result",
        "call",
        "expected",
        "fingerprint",
        "full",
        "head",
        "joins",
        "scope",
        "turns_before",
    }
)
"""Fields of any kind that reveal other events: digests derived from earlier results, versions and
counts of earlier events. They are shown only to a role that sees the whole record."""

_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "actions.healed.v1": frozenset({"run"}),
    "actions.saved.v1": frozenset({"run"}),
    "agent.left.v1": frozenset({"answered"}),
    "aggregate.changed.v1": frozenset({"run", "step"}),
    "aggregate.followed.v1": frozenset({"notification"}),
    "approval.requested.v1": frozenset({"step"}),
    "context.compacted.v1": frozenset(
        {
            "digest",
            "kept",
            "role",
            "stands_for",
            "step",
            "summary",
            "tokens",
            "tokens_after",
            "tokens_before",
            "versions",
        }
    ),
    "experience.distilled.v1": frozenset({"failed", "sources"}),
    "experience.healed.v1": frozenset({"run"}),
    "experience.replayed.v1": frozenset({"agent", "run", "step"}),
    "memory.changed.v1": frozenset({"run", "sources", "step"}),
    "memory.reflected.v1": frozenset({"reflection", "runs", "sources"}),
    "memory.rejected.v1": frozenset({"run", "step"}),
    "query.answered.v1": frozenset({"at", "cut", "position", "rows"}),
    "run.forked.v1": frozenset({"at", "edits", "swap"}),
    "reuse.offered.v1": frozenset({"digest", "key", "outcome", "run", "stale", "step"}),
    "step.completed.v1": frozenset({"reused_from"}),
    "step.requested.v1": frozenset({"key"}),
    "view.served.v1": frozenset({"at", "digest", "events", "seen"}),
}
"""Further such fields, where only one kind has a field of that name with this meaning."""

DIGESTS: Mapping[str, Mapping[str, str]] = {
    "actions.saved.v1": {"digest": "cache"},
    "experience.confirmed.v1": {"digest": "content"},
    "experience.distilled.v1": {"digest": "content"},
    "experience.healed.v1": {"digest": "content"},
    "experience.installed.v1": {"digest": "content"},
    "prompt.version_added.v1": {"digest": "text"},
    "step.completed.v1": {"digest": "result"},
    "step.failed.v1": {"digest": "error"},
    "step.settled.v1": {"digest": "result"},
}
"""Bare digests, and the field they are derived from: shown only together with all of it."""

SIZES: Mapping[str, Mapping[str, str]] = {
    "step.completed.v1": {"usage": "result", "items": "result"},
    "step.failed.v1": {"usage": "error"},
    "message.added.v1": {"tokens": "content", "usage": "content"},
}
"""Fields that reveal the size of another field: hidden with it, unless a rule names them."""


APART = frozenset({"access", "aggregate", "memory", "principal", "query", "reuse", "view"})
"""Families of kinds that only a rule which names them shows, never a wider pattern.

Records of served views and answers are not part of what is served, so that reading does not feed
itself; logins and refusals are for their administrators alone. The content of a program's own
aggregates belongs to the program, and memory to its agent or user: access must be granted
explicitly. A reuse offer reveals its source runs."""


def known() -> Mapping[str, type[msgspec.Struct]]:
    """Return every event type by tag."""
    return REGISTRY


def names_family(kinds: tuple[str, ...], tag: str) -> bool:
    """Return whether kinds name the family of a tag explicitly, where that is required."""
    family = tag.partition(".")[0]
    return family not in APART or any(
        role_patterns.kind_matches(kind, tag) and kind.partition(".")[0] == family for kind in kinds
    )


def elsewhere(tag: str) -> frozenset[str]:
    """Return the fields of a kind that reveal other events."""
    return ELSEWHERE | _ELSEWHERE.get(tag, frozenset())


def top_matches(path: Pattern, field: str) -> bool:
    """Return whether a path begins with a field of the data."""
    return segment_matches(path.segments[0], field)


def is_whole(paths: tuple[str, ...] | None, field: str) -> bool:
    """Return whether paths show all of a field."""
    if paths is None:
        return True
    patterns = (read(path, DOT) for path in paths)
    return any(len(path.segments) == 1 and top_matches(path, field) for path in patterns)


def touches(paths: tuple[str, ...], field: str) -> bool:
    """Return whether one of some paths leads to a field or into it."""
    return any(top_matches(read(path, DOT), field) for path in paths)


@lru_cache(maxsize=4_096)
def reached(tag: str, path: str) -> tuple[inspect.Type, ...]:
    """Return the types that a path reaches in events of a known kind; () where there is no such
    field.

    Every path into a recorded payload (any JSON value) reaches it.
    """
    return tuple(_reached(inspect.type_info(known()[tag]), read(path, DOT).segments))


def _reached(kind: inspect.Type, segments: tuple[tuple[str, ...], ...]) -> Iterator[inspect.Type]:
    match kind:
        case inspect.UnionType():
            for each in kind.types:
                yield from _reached(each, segments)
        case inspect.RawType() | inspect.AnyType():
            yield kind
        case _ if not segments:
            yield kind
        case inspect.StructType():
            for field in kind.fields:
                if segment_matches(segments[0], field.encode_name):
                    yield from _reached(field.type, segments[1:])
        case inspect.DictType():
            yield from _reached(kind.value_type, segments[1:])
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            yield from _reached(kind.item_type, segments)
        case _:
            return


CALLS = ("step.*", "approval.requested")
"""The kinds about a call. Several repeat its fields under the same names and types."""


@lru_cache(maxsize=4_096)
def repeats(tag: str, kinds: tuple[str, ...], paths: tuple[str, ...]) -> bool:
    """Return whether events of a known kind about a call repeat fields of other such kinds.

    Types are compared as text, since that of an error leads back to itself: equality never ends.
    """
    about_calls = kinds_of(CALLS)
    return tag in about_calls and any(
        not {*map(repr, reached(tag, path))}.isdisjoint(map(repr, reached(other, path)))
        for other in kinds_of(kinds)
        if other in about_calls
        for path in paths
    )


def text_fields(tag: str) -> tuple[str, ...]:
    """Return the fields of a known kind that hold values of a program, or an error."""
    if tag.partition(".")[0] in APART:
        return ()
    return tuple(
        field
        for field in known()[tag].__struct_encode_fields__
        if field not in elsewhere(tag) and holds_values(tag, field)
    )


def holds_values(tag: str, field: str) -> bool:
    """Return whether a field of a known kind holds any values of a program, or an error."""
    return any(
        isinstance(kind, inspect.RawType | inspect.AnyType)
        or (isinstance(kind, inspect.StructType) and kind.cls is Failure)
        or (isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.RawType))
        for kind in reached(tag, field)
    )


Paths = tuple[tuple[tuple[str, ...], ...], ...]
"""Paths of segments."""


@lru_cache(maxsize=4_096)
def call_paths(kinds: tuple[str, ...], paths: tuple[str, ...]) -> tuple[Paths, Paths]:
    """Return the paths into the arguments and into the results of calls, for a mask's kinds and
    paths. The items of a stream are a result, too.
    """
    tags = {tag for tag in kinds_of(kinds) if tag in kinds_of(CALLS)}
    inside: dict[str, Paths] = {"arguments": (), "result": (), "items": ()}
    for field in inside:
        named = {tag for tag in tags if holds_values(tag, field)}
        parsed = [read(path, DOT).segments for path in paths if named]
        inside[field] = tuple(each[1:] for each in parsed if segment_matches(each[0], field))
    results = dict.fromkeys((*inside["result"], *inside["items"]))
    return inside["arguments"], tuple(results)


_TEXTS = (
    inspect.StrType,
    inspect.EnumType,
    inspect.LiteralType,
    inspect.DateTimeType,
    inspect.RawType,
    inspect.AnyType,
)


def may_be_text(tag: str, path: str) -> bool:
    """Return whether a path can reach a text, which is the only value that can be cut."""
    return any(isinstance(reachable, _TEXTS) for reachable in reached(tag, path))


def kinds_of(patterns: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the known kinds that match some patterns; None matches all."""
    return _kinds_of(patterns, len(known()))


@lru_cache(maxsize=1_024)
def _kinds_of(patterns: tuple[str, ...] | None, _number: int) -> tuple[str, ...]:
    """Cache for `kinds_of`, since each file of memory asks; kinds are only ever added."""
    return tuple(tag for tag in sorted(known()) if _takes_in(patterns, tag))


_FREE = frozenset({"agent", "step", "tool", "view"})
"""Families of kinds that need no permission of their own."""

_STATED = frozenset({"agent.handed_off.v1"})
"""Kinds of such a family that an agent states on its own."""

_WITH_CLAIM = frozenset({"task.extended.v1", "task.released.v1"})
"""Statements that an agent may make about any task that it may claim."""

_CLAIM = "task.claimed.v1"


class Trust(StrEnum):
    """A permission that is granted by name."""

    APPROVE = "approve"
    SETTLE = "settle"
    QUERY = "query"


class Permission(msgspec.Struct, frozen=True):
    """The decision on an action.

    `rule` is the pattern that allows it; where none does, `because` is the missing permission and
    `ask_for` the remedy: a line of the table `where` of the role in a file of roles (`may`, or a
    rule of its own in `sees`), else a sentence.
    """

    allowed: bool
    rule: str = ""
    because: str = ""
    ask_for: str = ""
    where: str = "may"


def may_call(rules: RoleDefined | None, tool: str) -> Permission:
    """Decide whether a role may call a tool of any kind (also a model, a resource)."""
    tools = rules.may.tools if rules is not None else ()
    rule = next((text for text in tools if tool and tool_matches(text, tool)), None)
    return _grant(rules, rule, f"none of its tools is {tool!r}", f"tools = [{choices.text(tool)}]")


def may_state(rules: RoleDefined | None, tag: str) -> Permission:
    """Decide whether a role may record an event of a kind."""
    if rules is not None and tag.partition(".")[0] in _FREE and tag not in _STATED:
        return Permission(allowed=True, rule="every role")
    kinds = rules.may.kinds if rules is not None else ()
    target = (tag, _CLAIM) if tag in _WITH_CLAIM else (tag,)
    rule = next((each for each in kinds for kind in target if kind_matches(each, kind)), None)
    name = unversioned(tag)
    return _grant(rules, rule, f"none of its kinds is {name!r}", f"kinds = [{choices.text(name)}]")


def unversioned(tag: str) -> str:
    """Return a kind as people write it in rules: without its version."""
    head, _, last = tag.rpartition(".")
    return head if is_version(last) else tag


def may_write(rules: RoleDefined | None, key: str) -> Permission:
    """Decide whether a role may write a key of shared state: one of its keys, and fully visible."""
    rule = _matching(rules.may.keys if rules is not None else (), SLASH, key)
    line = f"keys = [{choices.text(_exactly(key))}]"
    named = _grant(rules, rule, f"none of its keys is {key!r:.200}", line)
    return named if not named.allowed else sees_whole_key(rules, key)


def may_count(rules: RoleDefined | None, key: str) -> Permission:
    """Decide whether a role may have calls counted on the budget under a key.

    An admitted call reveals the use of all other agents, so the role must see all of that.
    """
    return _may_state_all(rules, BUDGETS, key)


def sees_whole_key(rules: RoleDefined | None, key: str) -> Permission:
    """Decide whether a role sees all writes to a key, so that it may read it."""
    return _sees_whole(rules, KEYS, key)


def may_save(rules: RoleDefined | None, name: str) -> Permission:
    """Decide whether a role may save aggregates of a name.

    It must be allowed to record their changes, and see all of them, since a lost race reveals the
    changes of others.
    """
    return _may_state_all(rules, AGGREGATES, name)


def sees_whole_aggregate(rules: RoleDefined | None, name: str) -> Permission:
    """Decide whether a role sees all changes of aggregates of a name, so that it may get them."""
    return _sees_whole(rules, AGGREGATES, name)


def may_change(rules: RoleDefined | None, file: str) -> Permission:
    """Decide whether a role may change a file of memory, named behind its space.

    The file must match one of its paths, and be fully visible, since a lost race reveals the writes
    of others.
    """
    rule = _matching(rules.may.paths if rules is not None else (), SLASH, file)
    line = f"paths = [{choices.text(_exactly(file))}]"
    named = _grant(rules, rule, f"none of its paths is {file!r:.200}", line)
    return named if not named.allowed else sees_whole_file(rules, file)


def sees_whole_file(rules: RoleDefined | None, file: str) -> Permission:
    """Decide whether a role sees all changes of a file of memory, so that it may view it."""
    return _sees_whole(rules, FILES, file)


def sees_some(rules: RoleDefined, content: _Content) -> bool:
    """Return whether a role may see all changes of a content under some name."""
    return any(_shows_whole(rule, content, None) for rule in rules.sees)


def _may_state_all(rules: RoleDefined | None, content: _Content, name: str) -> Permission:
    """Decide whether a role may record all kinds of changes of a content, and sees them all."""
    kinds, kind = rules.may.kinds if rules is not None else (), content.kind
    states = all(any(kind_matches(each, tag) for each in kinds) for tag in kinds_of((kind,)))
    line = f"kinds = [{choices.text(kind)}]"
    named = _grant(rules, kind if states else None, f"none of its kinds is {kind!r}", line)
    return named if not named.allowed else _sees_whole(rules, content, name)


def _sees_whole(rules: RoleDefined | None, content: _Content, name: str) -> Permission:
    """Decide whether a role sees all changes of one content, by one of its rules and no mask."""
    sees, masks = (rules.sees, rules.masks) if rules is not None else ((), ())
    hiding = next((mask.name for mask in masks if _may_hide(mask, content, name)), None)
    if hiding is not None:
        fact = f"mask {hiding!r} may hide some of {content.noun} {name!r:.200}"
        ask_for = f"{content.matcher} in mask {hiding!r} that leave it out, or other kinds"
        return _grant(rules, None, fact, ask_for)
    showing = next((rule.name for rule in sees if _shows_whole(rule, content, name)), None)
    fact = f"no rule of what it sees shows all of {content.noun} {name!r:.200}"
    pattern = choices.text(_exactly(name) + content.suffix)
    lines = f"kinds = [{choices.text(content.kind)}], {content.matcher} = [{pattern}]"
    return _grant(rules, showing, fact, lines, "sees")


def may_be_trusted(rules: RoleDefined | None, trust: Trust) -> Permission:
    """Decide whether a role may answer approval requests, settle doubts, or query in SQL."""
    allowed = rules is not None and bool(getattr(rules.may, trust.value))
    name = trust.value
    return _grant(rules, name if allowed else None, f"it has no {name}", f"{name} = true")


def may_view(rules: RoleDefined | None, role: str) -> Permission:
    """Decide whether a role may be shown another role's view."""
    rule = _matching(rules.may.view if rules is not None else (), NONE, role)
    line = f"view = [{choices.text(_exactly(role))}]"
    return _grant(rules, rule, f"it views no role {role!r:.80}", line)


def is_cleared_for(rules: RoleDefined | None, clearance: str) -> bool:
    """Return whether a role has at least another clearance: else that role's view may show more
    than it is ever shown.
    """
    return rules is not None and label.level(clearance) <= label.level(rules.clearance)


def sees_kinds(rules: RoleDefined | None, tags: Sequence[str], key: str, role: str) -> bool:
    """Return whether a role sees events of all given kinds that agents of a role write to a key, by
    rules that match on nothing but kinds, keys and roles.
    """
    rule_of = rules.sees if rules is not None else ()
    plain = [
        rule
        for rule in rule_of
        if (rule.agents, rule.labels, rule.fields, rule.aggregates, rule.paths) == (None,) * 5
    ]
    return all(
        any(
            _takes_in(rule.kinds, tag)
            and (rule.keys is None or any_matches(rule.keys, SLASH, key))
            and (rule.roles is None or (bool(role) and any_matches(rule.roles, "", role)))
            for rule in plain
        )
        for tag in tags
    )


def lacking_keys(rules: RoleDefined) -> list[str]:
    """Return the writable keys of a role that are certainly not fully visible: a literal key, or
    every pattern where no rule shows any key whole.
    """
    if not rules.may.keys:
        return []
    shows = sees_some(rules, KEYS)
    return [
        text
        for text in rules.may.keys
        if not shows or (_is_literal(text) and not sees_whole_key(rules, _literal(text)).allowed)
    ]


def may_claim(rules: RoleDefined | None, role: str, target: str) -> Permission:
    """Decide whether a role's agent may claim tasks of a role: its own only."""
    rule = role if role == target else None
    fact = f"it claims tasks of its own role, not of {target!r}"
    return _grant(rules, rule, fact, f"an agent of role {target!r}", "")


def _grant(
    rules: RoleDefined | None, rule: str | None, reason: str, ask_for: str, where: str = "may"
) -> Permission:
    if rules is not None and rule is not None:
        return Permission(allowed=True, rule=rule)
    reason = reason if rules is not None else "it has no rules"
    return Permission(allowed=False, because=reason, ask_for=ask_for, where=where)


def _matching(patterns: tuple[str, ...], separator: str, name: str) -> str | None:
    return next((text for text in patterns if name and any_matches((text,), separator, name)), None)


def _takes_in(kinds: tuple[str, ...] | None, tag: str) -> bool:
    return kinds is None or any(kind_matches(kind, tag) for kind in kinds)


def _shows_whole(rule: RoleRule, content: _Content, name: str | None) -> bool:
    """Return whether a rule shows all of a content; with None, whether it may for any name."""
    others = [each for each in _MATCHERS if each != content.matcher]
    if any(getattr(rule, each) is not None for each in others):
        return False
    kinds = rule.kinds or ()
    for tag in kinds_of((content.kind,)):
        if not _takes_in(rule.kinds, tag) or not names_family(kinds, tag):
            return False
    patterns = getattr(rule, content.matcher)
    return patterns is None or name is None or content.all_of(patterns, name)


def _may_hide(mask: Mask, content: _Content, name: str) -> bool:
    """Return whether a mask may hide some of a content; matchers that depend on the data count as a
    match.
    """
    if not any(_takes_in(mask.kinds, tag) for tag in kinds_of((content.kind,))):
        return False
    if mask.keys is not None and content.matcher != "keys":
        return False  # it has none
    patterns = getattr(mask, content.matcher)
    return patterns is None or content.some_of(patterns, name)


_MATCHERS = ("roles", "agents", "labels", "fields", "keys", "aggregates", "paths")


def _named(patterns: tuple[str, ...], name: str) -> bool:
    return any_matches(patterns, SLASH, name)


def _all_events_of(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether one of some patterns matches every event of aggregates of a name."""
    return any(_is_all_of(each, name) for each in patterns)


def _some_event_of(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether one of some patterns may match an event of aggregates of a name."""
    parsed = [read(each, SLASH) for each in patterns]
    return any(each.rest or segment_matches(each.segments[0], name) for each in parsed)


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """A sort of content that a role sees whole or not: the kind of its changes, its matcher and
    noun, and the tests whether patterns match all or some of its changes under a name.
    """

    kind: str
    matcher: str = "keys"
    noun: str = "key"
    suffix: str = ""
    all_of: Callable[[tuple[str, ...], str], bool] = _named
    some_of: Callable[[tuple[str, ...], str], bool] = _named


KEYS = _Content(kind="board.*")
BUDGETS = _Content(kind="budget.*")
FILES = _Content(kind="memory.changed", matcher="paths", noun="file")
AGGREGATES = _Content(
    kind="aggregate.changed",
    matcher="aggregates",
    noun="aggregates",
    suffix="/*",
    all_of=_all_events_of,
    some_of=_some_event_of,
)


def _is_all_of(pattern: str, name: str) -> bool:
    """Return whether a pattern matches every event of aggregates of a name."""
    parsed = read(pattern, SLASH)
    anything = ("", "")
    if parsed.rest:
        return not parsed.segments or (
            len(parsed.segments) == 1 and segment_matches(parsed.segments[0], name)
        )
    first, *rest = parsed.segments
    return segment_matches(first, name) and rest == [anything]


def _is_literal(text: str) -> bool:
    parsed = read(text, SLASH)
    return not parsed.rest and all(len(parts) == 1 for parts in parsed.segments)


def _literal(text: str) -> str:
    return SLASH.join(parts[0] for parts in read(text, SLASH).segments)


def _exactly(key: str) -> str:
    """Return a key as a pattern that matches it alone."""
    return key.replace("\\", "\\\\").replace("*", "\\*")


# The tasks that an agent of a restricted role may see, and its errors.
#
# It sees the tasks that are for it, its role or any agent, those that it added or has claimed, and
# those whose events its role's rules show completely. Nothing is revealed of the others: neither
# their existence nor their owner or status. The dependencies of a visible task decide when it can
# be claimed, whether they are visible or not.

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
        return all(sees_kinds(self.rules, tags, TASKS_KEY, each) for each in roles)

    def hidden(self, state: TeamState) -> set[str]:
        """Return the hidden tasks, by id."""
        return {task.id for task in state.tasks.values() if not self.sees(task)}


def decide_task(
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
        return team.decide(state, request, now)
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
