"""What a role's rules must be: what is broken is refused when it is applied, never when used."""

from __future__ import annotations

from typing import NoReturn

from hansard.domain import ids, label, values
from hansard.domain.errors import BadValue
from hansard.domain.roles import authorize
from hansard.domain.roles import fields as role_fields
from hansard.domain.roles import patterns as role_patterns
from hansard.domain.roles.fields import DIGESTS, elsewhere, is_whole, kinds_of, reached
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule
from hansard.domain.roles.patterns import DOT, NONE, SLASH

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
"""The matchers that are lists of patterns, and what separates segments in them."""

MAY_SEPARATORS = {"tools": DOT, "kinds": DOT, "keys": SLASH, "paths": SLASH, "view": NONE}

_NEAREST_MAX = 6


def check(rules: RoleDefined) -> None:
    """Raise BadValue or BadName for rules that are broken, with the rule's name and the remedy."""
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
    """How many matchers are given, all of which are in order."""
    given = 0
    for name, separator in SEPARATORS.items():
        patterns = getattr(rule, name)
        if patterns is not None:
            given += 1
            _check_patterns(f"{name} of {where}", patterns, separator)
    if rule.labels is not None:
        given += 1
        _check_labels(f"labels of {where}", rule.labels)
    return given


def _check_patterns(where: str, patterns: tuple[str, ...], separator: str) -> None:
    if not 0 < len(patterns) <= PATTERNS_MAX:
        remedy = f"give 1 to {PATTERNS_MAX} patterns, or leave it out"
        raise BadValue(where, f"{len(patterns)} patterns", remedy)
    for text in patterns:
        role_patterns.read(text, separator, where)
        if where.startswith("kinds") and not kinds_of((text,)):
            _refuse_kind(where, text)


def _refuse_kind(where: str, text: str) -> NoReturn:
    families = sorted({tag.partition(".")[0] for tag in role_fields.known()})
    family = text.partition(".")[0]
    near = [tag for tag in sorted(role_fields.known()) if tag.partition(".")[0] == family]
    told = ", ".join(near[:_NEAREST_MAX]) or ", ".join(f"{each}.*" for each in families)
    raise BadValue(where, f"{text!r:.80} is no kind of event", f"there are: {told}")


def _check_labels(where: str, labels: dict[str, str]) -> None:
    if not 0 < len(labels) <= PATTERNS_MAX:
        remedy = f"give 1 to {PATTERNS_MAX}, or leave it out"
        raise BadValue(where, f"{len(labels)} labels", remedy)
    for name, text in labels.items():
        ids.name("label", name)
        role_patterns.read(text, NONE, where)


def _check_fields(where: str, paths: tuple[str, ...], kinds: list[str]) -> None:
    if not 0 < len(paths) <= PATTERNS_MAX:
        remedy = f"give 1 to {PATTERNS_MAX} paths, such as result.title; to show all, leave it out"
        raise BadValue(where, f"{len(paths)} paths", remedy)
    for path in paths:
        if role_patterns.read(path, DOT, where).rest:
            raise BadValue(where, f"{path!r:.80} ends in '**'", "a path has all that is under it")
        if not any(reached(tag, path) for tag in kinds):
            has = {field for tag in kinds for field in role_fields.known()[tag].__struct_fields__}
            told = ", ".join(sorted(has)) or "none"
            fact = f"{path!r:.80} is no field of {_some(kinds)}"
            raise BadValue(where, fact, f"there are: {told}")


def _some(kinds: list[str]) -> str:
    told = ", ".join(kinds[:_NEAREST_MAX])
    more = len(kinds) - _NEAREST_MAX
    return f"{told} or {more} more kinds" if more > 0 else told


def _check_shown(where: str, rule: RoleRule, paths: tuple[str, ...]) -> None:
    """Refuse fields that no role but one of the whole record is ever shown."""
    for tag in kinds_of(rule.kinds):
        for field in elsewhere(tag) & set(paths):
            fact = f"{field!r} of {tag} tells of other events"
            remedy = 'leave it out: it is shown to who sees all of kinds = ["**"], without masks'
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
        if cuts and not any(role_fields.may_be_text(tag, path) for tag in kinds):
            fact = f"{path!r:.80} is no text, and only a text can be cut"
            raise BadValue(f"fields of {where}", fact, "drop or hash it")
        if not any(_may_show(rule, tag, path) for rule in sees for tag in kinds):
            fact = f"no rule shows {path!r:.80} of {_some(kinds)}"
            raise BadValue(
                f"fields of {where}", fact, "leave it out, or mend what it was meant for"
            )


def _may_show(rule: RoleRule, tag: str, path: str) -> bool:
    """Whether a rule shows something of the field that a path leads to."""
    if tag not in kinds_of(rule.kinds) or not reached(tag, path):
        return False
    if rule.fields is None:
        return True
    top = role_patterns.read(path, DOT).segments[0]
    for field in role_fields.known()[tag].__struct_fields__:
        if role_patterns.segment_matches(top, field) and role_fields.touches(rule.fields, field):
            return True
    return False


def _check_may(may: May) -> None:
    for name, separator in MAY_SEPARATORS.items():
        patterns = getattr(may, name)
        if patterns:
            _check_patterns(f"{name} of may", patterns, separator)


def _check_written(rules: RoleDefined) -> None:
    """Refuse keys that are written but surely not seen whole: results and conflicts of a write tell
    what stands there.
    """
    for text in authorize.lacking_keys(rules):
        fact = f"{text!r:.80} is of keys that are not seen whole"
        remedy = (
            'add a rule of sees with these keys and nothing but kinds = ["board.*"], and no mask '
            "that touches them"
        )
        raise BadValue("keys of may", fact, remedy)
