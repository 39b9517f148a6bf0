"""Slots: values that came from the task stand as `{{name}}`, and a replay is given others."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from hansard.domain.actions.cache import ActionCache, CachedAction, ElementTargets
from hansard.domain.errors import BadValue

UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Han and kana, as in a set of a regular expression: written without spaces between words."""
LETTER = rf"[^\W{UNSPACED}]"
"""A letter or digit of a script that has spaces between words."""

_NAME = re.compile(r"[^\W\d]\w{0,63}")
SLOT = re.compile(rf"\{{\{{({_NAME.pattern})\}}\}}")

_WORD_WITH_SLOT = re.compile(rf"\S*{SLOT.pattern}\S*")


def _checked(params: Mapping[str, Any]) -> dict[str, str]:
    for name, value in params.items():
        if not _NAME.fullmatch(name):
            raise BadValue(
                f"params[{name!r:.70}]", "no name of a slot", "use letters, digits and _"
            )
        if not isinstance(value, str) or not value:
            raise BadValue(f"params[{name!r}]", f"{value!r:.40}", "give a text that is not empty")
    return dict(params)


def replacing(params: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that puts slots in the place of values, the longer first, where these are
    whole words. Raises BadValue for what is no name or no value of a slot.
    """
    ordered = sorted(_checked(params).items(), key=lambda pair: (-len(pair[1]), pair[0]))
    if not ordered:
        return str
    names = {value: name for name, value in reversed(ordered)}
    some = "|".join(re.escape(value) for _, value in ordered)
    pattern = re.compile(rf"(?<!{LETTER})(?:{some})(?!{LETTER})")
    return lambda text: pattern.sub(lambda found: "{{" + names[found.group()] + "}}", text)


def _called(targets: ElementTargets, change: Callable[[str], str]) -> ElementTargets:
    texts = {
        field: change(getattr(targets, field))
        for field in ("name", "label", "placeholder", "text", "row", "key")
        if getattr(targets, field)
    }
    slotted = _WORD_WITH_SLOT.search(texts.get("row", ""))
    if slotted and targets.depth and not targets.key:
        texts["key"] = slotted.group()
    if any(getattr(targets, field) != text for field, text in texts.items()):
        texts["look"] = ""  # it is of the value that was there
    made: ElementTargets = msgspec.structs.replace(targets, **texts)
    return made


def _texts(entry: CachedAction, change: Callable[[str], str]) -> CachedAction:
    """An entry with its arguments and the texts of its targets changed."""
    arguments = [change(each) if isinstance(each, str) else each for each in entry.arguments]
    targets = _called(entry.targets, change) if entry.targets is not None else None
    checks = [msgspec.structs.replace(each, value=change(each.value)) for each in entry.checks]
    made: CachedAction = msgspec.structs.replace(
        entry,
        arguments=arguments,
        targets=targets,
        checks=checks,
        instruction=change(entry.instruction) if entry.instruction else entry.instruction,
        action_params=_within(entry.action_params, change),
    )
    return made


def _within(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_within(each, change) for each in value]
    if isinstance(value, dict):
        return {key: _within(each, change) for key, each in value.items()}
    return value


def with_slots(cache: ActionCache, params: Mapping[str, str]) -> ActionCache:
    """The cache with each value of `params` as a slot of its name, the longer values first.

    Raises BadValue where a text already holds what looks like a slot of that name, and for a value
    that is in nothing that is done.
    """
    replace = replacing(params)

    def change(text: str) -> str:
        for name in SLOT.findall(text):
            if name in params and name not in cache.slots:
                fact = f"it holds the text {{{{{name}}}}} itself"
                raise BadValue(f"slot {name!r}", fact, "give the slot another name")
        return replace(text)

    actions = [_texts(entry, change) for entry in cache.actions]
    slots = [*cache.slots, *(name for name in params if name not in cache.slots)]
    made: ActionCache = msgspec.structs.replace(cache, actions=actions, slots=slots)
    _demand_used(made, ())
    return made


def _demand_used(cache: ActionCache, besides: Collection[str]) -> None:
    """Raise BadValue for a slot whose value would change nothing of what is done, nor to what."""
    used: set[str] = set()
    for each in cache.actions:
        acts = msgspec.structs.replace(each, instruction=None, message="")
        used.update(SLOT.findall(msgspec.json.encode(acts).decode()))
    idle = [name for name in cache.slots if name not in used and name not in besides]
    if idle:
        fact = "its value is in no argument and in nothing that an element is found by"
        remedy = "leave it out, and record one cache for each of its values"
        raise BadValue(f"slot {idle[0]!r}", fact, remedy)


def compared(cache: ActionCache, other: ActionCache) -> ActionCache:
    """The cache with a slot wherever another run of the same actions had another argument.

    Raises BadValue where the two did not do the same, in the same order.
    """
    if [_did(each) for each in cache.actions] != [_did(each) for each in other.actions]:
        fact = f"{len(cache.actions)} actions here and {len(other.actions)} there are not the same"
        raise BadValue("two runs", fact, "compare runs that did the same, or name the values")
    params: dict[str, str] = {}
    for here, there in zip(cache.actions, other.actions, strict=True):
        for mine, theirs in zip(here.arguments, there.arguments, strict=True):
            if isinstance(mine, str) and mine and mine != theirs and mine not in params.values():
                params[f"slot{len(params) + 1}"] = mine
    return with_slots(cache, params)


def _did(entry: CachedAction) -> tuple[object, ...]:
    return entry.action_type, entry.method, entry.frame_index, len(entry.arguments)


def filled(
    cache: ActionCache, params: Mapping[str, str], besides: Collection[str] = ()
) -> list[CachedAction]:
    """The entries with values in the place of slots. Raises BadValue for one without a value, for
    a value without a slot, and for a slot that changes nothing, except those in `besides`.
    """
    told = _checked(params)
    missing = [name for name in cache.slots if name not in told]
    if missing:
        raise BadValue("params", f"no value for {', '.join(missing)}", "give one for each slot")
    unknown = [name for name in told if name not in cache.slots]
    if unknown:
        has = ", ".join(cache.slots) or "no slot"
        raise BadValue("params", f"there is no slot {unknown[0]!r}", f"the file has {has}")
    _demand_used(cache, besides)

    def change(text: str) -> str:
        return SLOT.sub(lambda found: told.get(found.group(1), found.group()), text)

    return [_texts(_by_slots(entry), change) for entry in cache.actions]


def _by_slots(entry: CachedAction) -> CachedAction:
    """An entry whose element is found by what holds a slot alone, where something does: its other
    names are of the recorded value's element, or of every one.
    """
    targets = entry.targets
    slotted = {
        field
        for field in ElementTargets.__struct_fields__
        if isinstance(text := getattr(targets, field, ""), str) and SLOT.search(text)
    }
    if targets is None or not slotted:
        return entry
    alone = targets.alone and "name" in slotted and "row" not in slotted
    names = ("name", "label", "placeholder", "text")
    others = ("test_id", *names) if slotted.intersection(names) else ()
    without = {field: "" for field in others if field not in slotted}
    return msgspec.structs.replace(
        entry, targets=msgspec.structs.replace(targets, alone=alone, **without)
    )


def templated(entry: CachedAction, params: Mapping[str, str]) -> CachedAction:
    """An entry that was found with values, with slots in their place again."""
    return _texts(entry, replacing(params))


def templated_targets(
    every: Iterable[ElementTargets], params: Mapping[str, str]
) -> list[ElementTargets]:
    """What elements are called, with slots in the place of values."""
    replace = replacing(params)
    return [_called(each, replace) for each in every]
