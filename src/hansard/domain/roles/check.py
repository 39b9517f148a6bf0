"""The check of a role's rules: broken rules are refused when they are applied, never when used.

Roles as people write them: a TOML file of roles, and a role as such a file. Text in, text out.

    [roles.researcher]
    about = "Finds papers."

    [[roles.researcher.sees]]
    name = "own work"
    roles = ["researcher"]

    [roles.researcher.may]
    tools = ["search_*"]

Reading is strict: an unknown name is an error that lists the known ones.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, assert_never

import msgspec

from hansard.domain import choices, ids, label, values
from hansard.domain.decider import By, Decider, State
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event
from hansard.domain.roles import authorize
from hansard.domain.roles import model as role_patterns
from hansard.domain.roles.authorize import DIGESTS, elsewhere, is_whole, kinds_of, reached
from hansard.domain.roles.model import (
    DOT,
    KIND,
    NONE,
    SLASH,
    Mask,
    Masking,
    May,
    RoleDefined,
    RoleEvent,
    RoleRule,
    RoleWithdrawn,
)

RULES_MAX = 200
"""Most rules, and most masks, of a role."""

PATTERNS_MAX = 200
"""Most patterns of one matcher."""

CHARACTERS_MAX = 10_000
"""Most characters that a mask may leave."""

SEPARATORS = {
    "kinds": DOT,
    "roles": NONE,
    "agents": NONE,
    "keys": SLASH,
    "aggregates": SLASH,
    "paths": SLASH,
}
"""The matchers that are lists of patterns, and the separators of their segments."""

MAY_SEPARATORS = {"tools": DOT, "kinds": DOT, "keys": SLASH, "paths": SLASH, "view": NONE}

_NEAREST_MAX = 6


def check(rules: RoleDefined) -> None:
    """Check rules. Raises BadValue or BadName, with the rule's name and the remedy."""
    values.plain(rules.about, "about")
    label.level(rules.clearance)
    for kind, count in (("rules", len(rules.sees)), ("masks", len(rules.masks))):
        if count > RULES_MAX:
            raise BadValue(kind, f"{count}", f"give at most {RULES_MAX}")
    seen: set[str] = set()
    named: tuple[RoleRule | Mask, ...] = (*rules.sees, *rules.masks)
    for each in named:
        ids.name("rule", each.name)
        if each.name in seen:
            raise BadValue("rules", f"{each.name!r} twice", "give each rule and mask its own name")
        seen.add(each.name)
    for rule in rules.sees:
        _check_rule(rule)
    for mask in rules.masks:
        _check_mask(mask, rules.sees)
    _check_may(rules.may)
    _check_written(rules)


def _check_rule(rule: RoleRule) -> None:
    where = f"rule {rule.name!r}"
    if not _check_matchers(where, rule):
        remedy = (
            'give kinds, roles, agents, keys, aggregates, paths or labels; all is kinds = ["**"]'
        )
        raise BadValue(where, "it has no matcher", remedy)
    if rule.fields is not None:
        _check_fields(f"fields of {where}", rule.fields, kinds_of(rule.kinds))
        _check_shown(where, rule, rule.fields)


def _check_matchers(where: str, rule: RoleRule | Mask) -> int:
    """Check the matchers of a rule or mask, and return their number."""
    count = 0
    for name, separator in SEPARATORS.items():
        patterns = getattr(rule, name)
        if patterns is not None:
            count += 1
            _check_patterns(f"{name} of {where}", patterns, separator)
    if rule.labels is not None:
        count += 1
        _check_labels(f"labels of {where}", rule.labels)
    return count


def _check_patterns(where: str, patterns: tuple[str, ...], separator: str) -> None:
    if not 0 < len(patterns) <= PATTERNS_MAX:
        remedy = f"give 1 to {PATTERNS_MAX} patterns, or leave it out"
        raise BadValue(where, f"{len(patterns)} patterns", remedy)
    for text in patterns:
        role_patterns.read(text, separator, where)
        if where.startswith("kinds") and not kinds_of((text,)):
            _refuse_kind(where, text)


def _refuse_kind(where: str, text: str) -> NoReturn:
    families = sorted({tag.partition(".")[0] for tag in authorize.known()})
    family = text.partition(".")[0]
    near = [tag for tag in sorted(authorize.known()) if tag.partition(".")[0] == family]
    words = ", ".join(near[:_NEAREST_MAX]) or ", ".join(f"{each}.*" for each in families)
    raise BadValue(where, f"{text!r:.80} is no kind of event", f"there are: {words}")


def _check_labels(where: str, labels: dict[str, str]) -> None:
    if not 0 < len(labels) <= PATTERNS_MAX:
        remedy = f"give 1 to {PATTERNS_MAX}, or leave it out"
        raise BadValue(where, f"{len(labels)} labels", remedy)
    for name, text in labels.items():
        ids.name("label", name)
        role_patterns.read(text, NONE, where)


def _check_fields(where: str, paths: tuple[str, ...], kinds: Sequence[str]) -> None:
    if not 0 < len(paths) <= PATTERNS_MAX:
        remedy = f"give 1 to {PATTERNS_MAX} paths, such as result.title; to show all, leave it out"
        raise BadValue(where, f"{len(paths)} paths", remedy)
    for path in paths:
        if role_patterns.read(path, DOT, where).rest:
            raise BadValue(where, f"{path!r:.80} ends in '**'", "a path has all that is under it")
        if not any(reached(tag, path) for tag in kinds):
            has = {field for tag in kinds for field in authorize.known()[tag].__struct_fields__}
            text = ", ".join(sorted(has)) or "none"
            fact = f"{path!r:.80} is no field of {_some(kinds)}"
            raise BadValue(where, fact, f"there are: {text}")


def _some(kinds: Sequence[str]) -> str:
    text = ", ".join(kinds[:_NEAREST_MAX])
    more = len(kinds) - _NEAREST_MAX
    return f"{text} or {more} more kinds" if more > 0 else text


def _check_shown(where: str, rule: RoleRule, paths: tuple[str, ...]) -> None:
    """Refuse fields that are shown only to a role that sees the whole record."""
    for tag in kinds_of(rule.kinds):
        for field in elsewhere(tag) & set(paths):
            fact = f"{field!r} of {tag} reveals other events"
            remedy = 'leave it out: only a role with kinds = ["**"] and no masks sees it'
            raise BadValue(f"fields of {where}", fact, remedy)
        for field, source in DIGESTS.get(tag, {}).items():
            if field in paths and not is_whole(paths, source):
                fact = f"{field!r} of {tag} is a digest of {source!r}, which it does not show"
                remedy = f"leave out {field!r}, or show {source!r}, too"
                raise BadValue(f"fields of {where}", fact, remedy)


def _check_mask(mask: Mask, sees: tuple[RoleRule, ...]) -> None:
    where = f"mask {mask.name!r}"
    _check_matchers(where, mask)
    kinds = kinds_of(mask.kinds)
    _check_fields(f"fields of {where}", mask.fields, kinds)
    cuts = mask.how is Masking.TRUNCATE
    if cuts != (mask.characters is not None):
        fact = f"how is {mask.how.value!r}, characters is {mask.characters}"
        raise BadValue(
            where, fact, f"give characters with {Masking.TRUNCATE.value!r}, and only there"
        )
    if mask.characters is not None and not 0 < mask.characters <= CHARACTERS_MAX:
        remedy = f"give 1 to {CHARACTERS_MAX:,}, or drop it"
        raise BadValue(f"characters of {where}", f"{mask.characters}", remedy)
    for path in mask.fields:
        if cuts and not any(authorize.may_be_text(tag, path) for tag in kinds):
            fact = f"{path!r:.80} is no text, and only a text can be cut"
            raise BadValue(f"fields of {where}", fact, "drop or hash it")
        inside = sees and any(authorize.call_paths(mask.kinds, (path,)))
        if not inside and not any(_may_show(rule, tag, path) for rule in sees for tag in kinds):
            fact = f"no rule shows {path!r:.80} of {_some(kinds)}"
            raise BadValue(
                f"fields of {where}", fact, "leave it out, or correct its fields or kinds"
            )


def _may_show(rule: RoleRule, tag: str, path: str) -> bool:
    """Return whether a rule shows part of the field that a path leads to."""
    if tag not in kinds_of(rule.kinds) or not reached(tag, path):
        return False
    if rule.fields is None:
        return True
    top = role_patterns.read(path, DOT).segments[0]
    for field in authorize.known()[tag].__struct_fields__:
        if role_patterns.segment_matches(top, field) and authorize.touches(rule.fields, field):
            return True
    return False


def uncovered(rules: RoleDefined) -> list[str]:
    """Return the fields that a role is shown, and that may repeat what its masks of calls hide, by
    kind: `step.failed: error`. Empty if it has no such masks.

    They include the arguments and results of other calls, unless a mask hides those as a whole.
    """
    if not any(any(authorize.call_paths(mask.kinds, mask.fields)) for mask in rules.masks):
        return []
    lines: list[str] = []
    for tag in authorize.known():
        paths = [
            field
            for field in authorize.text_fields(tag)
            if any(
                _may_show(rule, tag, field)
                and not any(_hides(mask, rule, tag, field) for mask in rules.masks)
                for rule in rules.sees
            )
        ]
        if paths:
            lines.append(f"{authorize.unversioned(tag)}: {', '.join(paths)}")
    return sorted(lines)


def _hides(mask: Mask, rule: RoleRule, tag: str, field: str) -> bool:
    """Return whether a mask hides all of a field wherever a rule shows it."""
    if not is_whole(mask.fields, field) or any(
        getattr(mask, name) not in (None, getattr(rule, name))
        for name in (*SEPARATORS, "labels")
        if name != "kinds"
    ):
        return False
    return tag in kinds_of(mask.kinds) or authorize.repeats(tag, mask.kinds, mask.fields)


def _check_may(may: May) -> None:
    for name, separator in MAY_SEPARATORS.items():
        patterns = getattr(may, name)
        if patterns:
            _check_patterns(f"{name} of may", patterns, separator)


def _check_written(rules: RoleDefined) -> None:
    """Refuse keys that are writable but certainly not fully visible: results and conflicts of a
    write reveal their content.
    """
    for text in authorize.lacking_keys(rules):
        fact = f"{text!r:.80} names keys that the role does not fully see"
        remedy = (
            'add a rule of sees with these keys and nothing but kinds = ["board.*"], and no mask '
            "that touches them"
        )
        raise BadValue("keys of may", fact, remedy)


_ROLES = "roles"


def parse(text: str, where: str = "roles") -> dict[str, RoleDefined]:
    """Parse a file of roles, checked, by name. Raises BadValue, BadName; errors begin with
    `where`.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        remedy = 'quote names with characters other than A-Z a-z 0-9 _ -, as in [roles."研究员"]'
        raise BadValue(where, f"it is no TOML: {error}", remedy) from error
    for name in tables:
        if name != _ROLES:
            remedy = "it has tables [roles.NAME] alone"
            raise BadValue(where, f"it has a field {name!r:.80}", remedy)
    named = tables.get(_ROLES)
    if not isinstance(named, Mapping) or not named:
        raise BadValue(where, "it has no roles", "begin one with [roles.NAME]")
    return {
        ids.name("role", name): rules(fields, f"role {name!r}") for name, fields in named.items()
    }


def rules(fields: Any, where: str = "the role") -> RoleDefined:
    """Parse a role's rules from plain tables:
    `{"sees": [{"name": ..., "kinds": [...]}], "may": {...}}`.

    Raises BadValue and BadName, which name the rule, the value and the remedy.
    """
    data = _known(fields, RoleDefined, where)
    shaped: dict[str, Any] = dict(data)
    for name, cls in (("sees", RoleRule), ("masks", Mask)):
        parts = data.get(name, [])
        if not isinstance(parts, list | tuple):
            fact = f"it is {parts!r:.80}"
            raise BadValue(f"{name} of {where}", fact, f"give tables [[roles.NAME.{name}]]")
        shaped[name] = [
            _known(part, cls, f"{name} {number} of {where}") for number, part in enumerate(parts, 1)
        ]
    shaped["may"] = _known(data.get("may", {}), May, f"may of {where}")
    try:
        made = msgspec.convert(shaped, RoleDefined)
    except msgspec.ValidationError as error:
        hows = ", ".join(how.value for how in Masking)
        remedy = (
            "matchers, fields and tools are lists of texts, labels a table, "
            f"about and clearance texts; how is {hows}"
        )
        raise BadValue(where, str(error), remedy) from error
    try:
        check(made)
    except BadValue as error:
        raise BadValue(f"{where}: {error.where}", error.fact, error.remedy) from error
    return made


def _known(fields: Any, cls: type[msgspec.Struct], where: str) -> dict[str, Any]:
    known = ", ".join(cls.__struct_fields__)
    if not isinstance(fields, Mapping):
        raise BadValue(where, f"it is {fields!r:.80}", f"give a table with some of: {known}")
    for name in fields:
        if name not in cls.__struct_fields__:
            raise BadValue(where, f"it has no field {name!r:.80}", f"its fields are: {known}")
    return dict(fields)


def write(roles: Mapping[str, RoleDefined]) -> str:
    """Write roles as the text of a file that reads back as the same."""
    return "\n".join(line for name, each in roles.items() for line in _role(name, each))


def _role(name: str, role: RoleDefined) -> Iterator[str]:
    head = f"{_ROLES}.{choices.key(name)}"
    yield f"[{head}]"
    if role.about:
        yield f"about = {choices.text(role.about)}"
    if role.clearance:
        yield f"clearance = {choices.text(role.clearance)}"
    yield ""
    for kind, parts in (("sees", role.sees), ("masks", role.masks)):
        for part in parts:
            yield f"[[{head}.{kind}]]"
            yield from _pairs(part)
    yield f"[{head}.may]"
    yield from _pairs(role.may)


def _pairs(part: RoleRule | Mask | May) -> Iterator[str]:
    for field in part.__struct_fields__:
        value = getattr(part, field)
        if value not in (None, (), False):
            yield f"{field} = {_value(value)}"
    yield ""


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return choices.text(value)
        case dict():
            inside = ", ".join(
                f"{choices.key(name)} = {choices.text(it)}" for name, it in value.items()
            )
            return f"{{{inside}}}"
        case _:
            return f"[{', '.join(choices.text(item) for item in value)}]"


# A role: what its agents may see and do, deny by default. One stream a role, which outlives runs.
#
# Its rules are replaced as a whole, so that one event decides the view of a role at a position. The
# events are in `hansard.domain.roles.model`; rules are checked when they are applied (`check`), so
# that judging (`judge`) and showing (`view`) never fail.


class RoleState(State):
    """A role at a version. `rules` is None before it is defined and after it is withdrawn."""

    noun: ClassVar[str] = "a role"

    rules: RoleDefined | None = None
    withdrawn: RoleWithdrawn | None = None

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        match event:
            case RoleDefined():
                self.rules, self.withdrawn = event, None
            case RoleWithdrawn():
                self.rules, self.withdrawn = None, event
            case _:
                super()._evolve(event, by)


def decide(state: RoleState, event: RoleEvent) -> Sequence[RoleEvent]:
    """Return the events of a statement; none where it changes nothing.

    Raises Refused, and BadValue or BadName for broken rules.
    """
    match event:
        case RoleDefined():
            check(event)
            return () if state.rules == event else (event,)
        case RoleWithdrawn():
            values.plain(event.because, "reason")
            if not state.version:
                message = "it is not defined: see 'hansard roles show'"
                raise Refused(message)
            return () if state.rules is None else (event,)
        case _:
            assert_never(event)


ROLES = Decider(kind=KIND, initial=RoleState, decide=decide)
