"""The action cache: its file, the ways to find an element again, and its versions in the record.

A file is bytes from outside: its content is checked before it is used. Files of HyperAgent
(`steps`, `actionParams`) are read, too.

Long because most of it describes fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, assert_never

import msgspec

from hansard.domain import decider, ids
from hansard.domain.choices import nearest
from hansard.domain.decider import ArtifactKind, ArtifactState, By
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event

T = TypeVar("T")

FORMAT = "hansard.actions.v1"
FILE_BYTES_MAX = 16 * 1024 * 1024
ACTIONS_MAX = 10_000
XPATH_CHARACTERS_MAX = 4_096
"""Longest xpath: a browser needs seconds to evaluate one of a megabyte."""

FUNCTIONS_MAX = 16
"""Most brackets and `//` in an xpath: each multiplies the nodes that the browser examines."""

ACT, GOTO, EXTRACT, TOOL = "actElement", "goToUrl", "extract", "tool"
RELOAD, BACK, FORWARD = "refreshPage", "pageBack", "pageForward"
OF_PAGE = (GOTO, RELOAD, BACK, FORWARD)
TYPES = (ACT, EXTRACT, TOOL, *OF_PAGE)
"""The types of actions that are replayed."""

_NOTHING_TO_REPLAY = ("complete", "thinking", "wait", "extract", "analyzePdf")
"""HyperAgent's types that did nothing to a page. A replay itself waits for the changes of
actions."""

METHODS: dict[str, tuple[int, str]] = {
    "click": (0, "once"),
    "dblclick": (0, "once"),
    "press": (1, "once"),
    "fill": (1, "idempotent"),
    "type": (1, "idempotent"),
    "selectOption": (1, "idempotent"),
    "check": (0, "idempotent"),
    "uncheck": (0, "idempotent"),
    "hover": (0, "idempotent"),
    "scrollToElement": (0, "idempotent"),
}
"""Methods on an element: the number of arguments, and the effects where the entry declares none."""

_ALIASES = {"selectOptionFromDropdown": "selectOption"}

Argument = str | dict[str, str]
"""A text, or `{"$secret": name}`."""


class ElementTargets(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The ways to find an element other than its xpath.

    Attributes:
        role: Its role, as the accessibility tree has it.
        name: Its name there.
        label: The text of its `<label>`.
        placeholder: The placeholder of its field.
        test_id: Its `data-testid`.
        text: Its text, at most 80 characters.
        path: The xpath from the nearest element above (or itself) that has an id.
        css: A path of tags through open shadow roots, for elements that no xpath reaches.
        tag: The element's, in lower case.
        id: The element's own `id`.
        alone: True if no other element had its role and name.
        row: For one of several elements with the same name, or without a name: the text of its row,
            at most 80 characters, without controls and fields.
        depth: Levels from the element up to its row; 0 where unknown.
        key: The text in the row that holds a slot: where it is equal, the rest may differ.
        place: For one of several elements with equal rows: its index among them, with a digest of
            their texts; `none` where all texts are equal, so that it cannot be identified.
        mark: For one of several elements without a name: a digest of its markup, such as an icon's.
        look: A digest of the sources of its role and name; empty where a slot is in them.
    """

    role: str = ""
    name: str = ""
    label: str = ""
    placeholder: str = ""
    test_id: str = ""
    text: str = ""
    path: str = ""
    css: str = ""
    tag: str = ""
    id: str = ""
    alone: bool = False
    row: str = ""
    depth: int = 0
    key: str = ""
    place: str = ""
    mark: str = ""
    look: str = ""

    @property
    def in_row(self) -> str:
        """The text that identifies its row; empty where it needs none, or none is on record."""
        return "" if self.alone else self.row or self.key


class PageMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The place of an action.

    Attributes:
        address: The page's address, as a pattern: digits and values of its query are `*`.
        digest: Digest of the accessibility tree's roles and names, without the content of fields.
        frame: The address of the frame, as a pattern; empty in the page itself.
    """

    address: str = ""
    digest: str = ""
    frame: str = ""


class ActionCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A condition that must hold after an action.

    Attributes:
        kind: `url`, `text` (of the element at `xpath`), `visible` (a text on the page) or
            `filled` (the field holds the value that was entered).
        value: The address as a pattern, or the text; empty for `filled`.
        xpath: For `text`: the element.
    """

    kind: str
    value: str
    xpath: str = ""


class CachedAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An entry: one action that succeeded.

    Attributes:
        step_index: Its index, from 0.
        instruction: The instruction, in words.
        element_id: Frame index and backend node id at that time, `0-12`.
        method: The method on the element; for a tool its name.
        arguments: Texts, or secrets by name.
        frame_index: 0 is the page itself.
        xpath: The element's, normalised.
        action_type: One of `TYPES`.
        success: True if it succeeded.
        message: The result, or the error.
        targets: Other ways to find the element.
        page: The place of the action.
        changed: Its change: `address`, `page` or empty.
        effects: The effects of its step.
        checks: Conditions that must hold afterwards.
        action_params: For a tool: its arguments by name.
        optional: True if it is skipped where its element is absent.
    """

    step_index: int
    instruction: str | None
    element_id: str | None
    method: str | None
    arguments: list[Argument]
    frame_index: int | None
    xpath: str | None
    action_type: str
    success: bool
    message: str
    targets: ElementTargets | None = None
    page: PageMark | None = None
    changed: str = ""
    effects: str = ""
    checks: list[ActionCheck] = []
    action_params: dict[str, Any] = {}
    optional: bool = False


class ActionsEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of the run.

    Attributes:
        success: True if its last action succeeded.
        error: Its error, if any.
        duration: Seconds that the actions took in total.
    """

    success: bool
    duration: float
    error: str | msgspec.UnsetType = msgspec.UNSET


class ActionChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A version: one entry was found elsewhere.

    Attributes:
        version: The file's, from 2.
        at: The time, UTC.
        by: The author: an agent, a model's tool, a person.
        why: The part that did not match any more.
        step_index: The entry.
        before: The entry before.
        after: The entry from then on.
    """

    version: int
    at: str
    by: str
    why: str
    step_index: int
    before: CachedAction
    after: CachedAction


class ActionCache(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A file of actions.

    Attributes:
        actions: In order.
        final_state: The end of the recorded run.
        format: `hansard.actions.v1`.
        run: The run's id.
        slots: Names of the values that a replay fills in: `{{name}}` in arguments and targets.
        version: From 1; each change has the next.
        history: The changes.
        name: Its name in the record that it was read from; empty in a file.
    """

    actions: list[CachedAction]
    final_state: ActionsEnd
    format: str
    run: str = ""
    slots: list[str] = []
    version: int = 1
    history: list[ActionChange] = []
    name: str = ""


def encode(cache: ActionCache) -> bytes:
    """Encode the file: indented, with a final newline, equal for equal caches."""
    return msgspec.json.format(msgspec.json.encode(cache), indent=2) + b"\n"


def decode(raw: bytes, where: str = "the action cache") -> ActionCache:
    """Read a file, checked. Raises BadValue, with the entry and the remedy."""
    remedy = "give the whole file; `hansard actions show` writes it"
    read = loaded(raw, where, FILE_BYTES_MAX, remedy)
    if isinstance(read, dict) and "steps" in read and "actions" not in read:
        read = _of_hyperagent(read, where)
    return checked(formed(read, ActionCache, FORMAT, where), where)


def loaded(raw: bytes, where: str, bytes_max: int, remedy: str) -> Any:
    """Read JSON from outside. Raises BadValue."""
    if len(raw) > bytes_max:
        raise BadValue(where, f"{len(raw):,} bytes, more than {bytes_max:,}", remedy)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(where, f"it is no JSON, or cut: {error}", remedy) from None


def formed(read: Any, kind: type[T], form: str, where: str) -> T:
    """Return the content of a file that names its format. Raises BadValue."""
    name = read.get("format") if isinstance(read, dict) else type(read).__name__
    if name != form:
        fact = f"its format is {name!r:.80}, not {form!r}" if name else f"it is no {form!r}"
        raise BadValue(where, fact, "write it again with this version")
    try:
        return msgspec.convert(read, kind)
    except msgspec.ValidationError as error:
        raise BadValue(where, str(error), "write it again with this version") from None


def checked(cache: ActionCache, where: str = "the action cache") -> ActionCache:
    """Return a cache whose entries can be replayed, without failed ones. Raises BadValue."""
    if len(cache.actions) > ACTIONS_MAX:
        fact = f"{len(cache.actions):,} actions, more than {ACTIONS_MAX:,}"
        raise BadValue(where, fact, "split the run")
    kept = [_entry(each, f"{where}, entry {at}") for at, each in enumerate(cache.actions)]
    indexes = [each.step_index for each in cache.actions]
    if len(set(indexes)) != len(indexes):
        raise BadValue(where, "two entries have one stepIndex", "number them")
    return msgspec.structs.replace(cache, actions=[each for each in kept if each.success])


def _entry(entry: CachedAction, where: str) -> CachedAction:
    if entry.action_type not in TYPES:
        like = nearest(entry.action_type, TYPES)
        fact = f"actionType {entry.action_type!r:.80} is not known"
        raise BadValue(where, fact, f"{like}use one of {', '.join(TYPES)}")
    for xpath in (entry.xpath, entry.targets and entry.targets.path):
        if xpath:
            check_xpath(xpath, where)
    if entry.action_type == GOTO and not entry.arguments:
        raise BadValue(where, "goToUrl without an address", "give it as the first argument")
    if entry.action_type != ACT:
        return entry
    method = _ALIASES.get(entry.method or "", entry.method or "")
    if method not in METHODS:
        fact = f"method {entry.method!r:.80} is not known"
        raise BadValue(where, fact, f"{nearest(method, METHODS)}use one of {', '.join(METHODS)}")
    count, effects = METHODS[method]
    if len(entry.arguments) < count:
        raise BadValue(where, f"{method} without its argument", "give it in `arguments`")
    if not entry.xpath and entry.targets is None:
        raise BadValue(where, "neither xpath nor targets", "say where the element is")
    return msgspec.structs.replace(
        entry, method=method, effects=entry.effects or effects, frame_index=entry.frame_index or 0
    )


def check_xpath(xpath: str, where: str) -> None:
    """Check that a browser can evaluate an xpath quickly. Raises BadValue."""
    if len(xpath) > XPATH_CHARACTERS_MAX:
        fact = f"an xpath of {len(xpath):,} characters, more than {XPATH_CHARACTERS_MAX:,}"
        raise BadValue(where, fact, "name the element by its targets")
    cost = xpath.count("//") + xpath.count("::") + xpath.count("(")
    if cost > FUNCTIONS_MAX:
        fact = f"an xpath with {cost} axes and functions, more than {FUNCTIONS_MAX}"
        raise BadValue(where, fact, "name the element by its targets, or by a plain path")


def _of_hyperagent(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    steps = fields["steps"]
    if not isinstance(steps, list) or not all(isinstance(each, dict) for each in steps):
        raise BadValue(where, "`steps` is no list of entries", "give a file that HyperAgent wrote")
    status = fields.get("status")
    return {
        "format": FORMAT,
        "run": "",
        "actions": [
            _of_hyperagents_step(each)
            for each in steps
            if each.get("actionType") not in _NOTHING_TO_REPLAY
        ],
        "finalState": {"success": status in (None, "completed"), "duration": 0.0},
    }


def _of_hyperagents_step(step: dict[str, Any]) -> dict[str, Any]:
    params = step.get("actionParams")
    params = params if isinstance(params, dict) else {}
    arguments = step.get("arguments") or params.get("arguments") or []
    if step.get("actionType") == GOTO and not arguments and "url" in params:
        arguments = [params["url"]]
    xpath = step.get("xpath")
    if isinstance(xpath, str):
        xpath = xpath.removeprefix("xpath=")
    method = step.get("method") or params.get("method")
    made = {
        "instruction": step.get("instruction") or params.get("instruction"),
        "elementId": step.get("elementId") or params.get("elementId"),
        "frameIndex": step.get("frameIndex"),
        "message": step.get("message") or "",
        "arguments": [str(each) for each in arguments]
        if isinstance(arguments, list)
        else arguments,
    }
    kept = {name: step[name] for name in ("stepIndex", "actionType", "success") if name in step}
    return made | kept | {"xpath": xpath, "method": method}


def healed(cache: ActionCache, after: CachedAction, *, at: str, by: str, why: str) -> ActionCache:
    """Return the next version, with an entry that was found elsewhere. Raises BadValue for an
    unknown entry.
    """
    index = after.step_index
    before = next((each for each in cache.actions if each.step_index == index), None)
    if before is None:
        raise BadValue(f"entry {index}", "there is none of this stepIndex", "give one of the file")
    change = ActionChange(
        version=cache.version + 1,
        at=at,
        by=by,
        why=why,
        step_index=index,
        before=before,
        after=after,
    )
    return msgspec.structs.replace(
        cache,
        actions=[after if each.step_index == index else each for each in cache.actions],
        version=change.version,
        history=[*cache.history, change],
    )


# Slots: `{{name}}` in the place of the task's values; a replay fills in others.

UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Han and kana, as a set in a regular expression: written without spaces between words."""
LETTER = rf"[^\W{UNSPACED}]"
"""A letter or digit of a script that has spaces between words."""

_NAME = re.compile(r"[^\W\d]\w{0,63}")
SLOT = re.compile(rf"\{{\{{({_NAME.pattern})\}}\}}")

_WORD_WITH_SLOT = re.compile(rf"\S*{SLOT.pattern}\S*")


def _checked(params: Mapping[str, object]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in params.items():
        if not _NAME.fullmatch(name):
            raise BadValue(
                f"params[{name!r:.70}]", "no name of a slot", "use letters, digits and _"
            )
        if not isinstance(value, str) or not value:
            raise BadValue(f"params[{name!r}]", f"{value!r:.40}", "give a text that is not empty")
        texts[name] = value
    return texts


def replacing(params: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces values by slots, longer values first, where they are whole
    words.

    Raises BadValue for an invalid name or value of a slot.
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
        texts["look"] = ""  # it is a digest of the recorded value
    return msgspec.structs.replace(targets, **texts)


def _texts(entry: CachedAction, change: Callable[[str], str]) -> CachedAction:
    """Return an entry with its arguments and the texts of its targets changed."""
    arguments = [change(each) if isinstance(each, str) else each for each in entry.arguments]
    targets = _called(entry.targets, change) if entry.targets is not None else None
    checks = [msgspec.structs.replace(each, value=change(each.value)) for each in entry.checks]
    return msgspec.structs.replace(
        entry,
        arguments=arguments,
        targets=targets,
        checks=checks,
        instruction=change(entry.instruction) if entry.instruction else entry.instruction,
        action_params=_within(entry.action_params, change),
    )


def _within(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_within(each, change) for each in value]
    if isinstance(value, dict):
        return {key: _within(each, change) for key, each in value.items()}
    return value


def with_slots(cache: ActionCache, params: Mapping[str, str]) -> ActionCache:
    """Return the cache with each value of `params` as a slot of its name, longer values first.

    Raises BadValue where a text already holds the text of such a slot, and for a value that no
    action uses.
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
    """Check that the value of every slot changes an action or its element. Raises BadValue."""
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
    """Return the cache with a slot for every argument that differs in another run of the same
    actions.

    Raises BadValue where the two runs did not do the same, in the same order.
    """
    if [_did(each) for each in cache.actions] != [_did(each) for each in other.actions]:
        fact = f"{len(cache.actions)} actions here and {len(other.actions)} there are not the same"
        raise BadValue("two runs", fact, "compare runs that did the same, or name the values")
    params: dict[str, str] = {}
    for here, there in zip(cache.actions, other.actions, strict=True):
        named = here.action_type == TOOL
        mine, theirs = (each.action_params if named else each.arguments for each in (here, there))
        for text in _differing(mine, theirs):
            if text not in params.values():
                params[f"slot{len(params) + 1}"] = text
    return with_slots(cache, params)


def _differing(mine: Any, theirs: Any) -> Iterator[str]:
    """Yield the texts that differ between two values. Raises BadValue for another difference."""
    if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() == theirs.keys():
        for key, value in mine.items():
            yield from _differing(value, theirs[key])
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for one, other in zip(mine, theirs, strict=True):
            yield from _differing(one, other)
    elif mine != theirs:
        if not (isinstance(mine, str) and mine and isinstance(theirs, str)):
            fact = f"an argument is {mine!r:.60} in one and {theirs!r:.60} in the other"
            raise BadValue("two runs", fact, "record a cache for each: a slot holds a text")
        yield mine


def _did(entry: CachedAction) -> tuple[object, ...]:
    return entry.action_type, entry.method, entry.frame_index, len(entry.arguments)


def filled(
    cache: ActionCache, params: Mapping[str, object], besides: Collection[str] = ()
) -> list[CachedAction]:
    """Return the entries with their slots filled in.

    Raises BadValue for a slot without a value, for a value without a slot, and for a slot that
    changes nothing, except those in `besides`.
    """
    value = _checked(params)
    missing = [name for name in cache.slots if name not in value]
    if missing:
        raise BadValue("params", f"no value for {', '.join(missing)}", "give one for each slot")
    unknown = [name for name in value if name not in cache.slots]
    if unknown:
        has = ", ".join(cache.slots) or "no slot"
        raise BadValue("params", f"there is no slot {unknown[0]!r}", f"the file has {has}")
    _demand_used(cache, besides)

    def change(text: str) -> str:
        return SLOT.sub(lambda found: value.get(found.group(1), found.group()), text)

    return [_texts(_by_slots(entry), change) for entry in cache.actions]


def _by_slots(entry: CachedAction) -> CachedAction:
    """Return an entry whose element is found by its slotted fields alone, where it has any: its
    other fields describe the recorded value's element, or every element.
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
    """Return an entry that was found with values, with slots in their place again."""
    return _texts(entry, replacing(params))


def templated_targets(
    every: Iterable[ElementTargets], params: Mapping[str, str]
) -> list[ElementTargets]:
    """Return elements' names and texts with slots in the place of values."""
    replace = replacing(params)
    return [_called(each, replace) for each in every]


# The ways to find an element again, in their order.
#
# Each is a selector of playwright's (`xpath=...`), or a role, label ... with a text. Only a single
# match is accepted, and the element must be of the recorded kind: `contradicts` gives the
# difference.

VARIANTS_MAX = 24
"""Most variants of an xpath that are tried: a path of ordinary depth has fewer."""

_STEP = re.compile(r"/{1,2}[^/\[\]]+(?:\[(?:[^\[\]'\"]|'[^']*'|\"[^\"]*\")*\])*")
_INDEX = re.compile(r"\[\d+\]$")
_TEXT_STEP = re.compile(r"/{1,2}text\(\)(\[\d+\])?$")
_TEXT_TEST = re.compile(
    r"\[(?:contains\(\s*)?(?:text\(\)|normalize-space\((?:\.|text\(\))?\)|\.)\s*[=,]"
    r"\s*(?:'[^']*'|\"[^\"]*\")\s*\)?\]"
)


class ElementLocator(msgspec.Struct, frozen=True, kw_only=True):
    """One way to look for an element.

    Attributes:
        strategy: `xpath`, `variant` or the target's: `role`, `label`, `path` ...
        selector: For `xpath`, `variant`, `path` and `css`: the argument of playwright's `locator`.
        value: For the others the text; for `role` the name.
        role: For `role` and `row`; a row without it is of an element that has no name.
        row: For `row`: the text of the element's row.
    """

    strategy: str
    selector: str = ""
    value: str = ""
    role: str = ""
    row: str = ""

    @property
    def description(self) -> str:
        """The locator in words."""
        within = f" in the row {self.row!r}" if self.row else ""
        return f"{self.selector or f'{self.role} {self.value!r}'.strip()}{within}"


def normalized(xpath: str) -> str:
    """Return an xpath as it is recorded.

    It has no prefix and no text node at its end; a plain path has tags in lower case, and an index
    at each step.
    """
    xpath = _TEXT_STEP.sub("", xpath.strip().removeprefix("xpath="))
    steps = _steps(xpath)
    if not steps or not all(re.fullmatch(r"/[A-Za-z][\w-]*(\[\d+\])?", step) for step in steps):
        return xpath
    return "".join(step.lower() if step.endswith("]") else f"{step.lower()}[1]" for step in steps)


def variants(xpath: str, below_id: str = "") -> list[str]:
    """Return other xpaths for the same element, the likelier first.

    They start from the nearest id, leave out tests of texts, then one index, from the last step on,
    then all indices of the later half.
    """
    made: list[str] = []
    plain = _TEXT_TEST.sub("", _TEXT_STEP.sub("", xpath))
    for base in (below_id, plain):
        if base:
            made.append(base)
            made += _relaxed(base)
    seen = dict.fromkeys(each for each in made if each and each != xpath)
    return list(seen)[:VARIANTS_MAX]


def _relaxed(xpath: str) -> Iterator[str]:
    steps = _steps(xpath)
    indexed = [at for at, step in enumerate(steps) if _INDEX.search(step)]
    for at in reversed(indexed):
        yield "".join(_INDEX.sub("", s) if i == at else s for i, s in enumerate(steps))
    for start in reversed(indexed):
        yield "".join(_INDEX.sub("", s) if i >= start else s for i, s in enumerate(steps))
    if len(steps) > 1:
        yield "/" + ("/" if not steps[-1].startswith("//") else "") + steps[-1].lstrip("/")


def _steps(xpath: str) -> list[str]:
    steps = _STEP.findall(xpath)
    return steps if "".join(steps) == xpath else []


def locators(entry: CachedAction) -> Iterator[ElementLocator]:
    """Yield all ways to look for an entry's element, in their order."""
    targets = entry.targets or ElementTargets()
    if entry.xpath:
        yield ElementLocator(strategy="xpath", selector=f"xpath={entry.xpath}")
    if targets.css:
        yield ElementLocator(strategy="css", selector=f"css={targets.css}")
    yield from _by_targets(targets)
    if entry.xpath or targets.path:
        for each in variants(entry.xpath or "", targets.path):
            yield ElementLocator(strategy="variant", selector=f"xpath={each}")


def _by_targets(targets: ElementTargets) -> Iterator[ElementLocator]:
    if targets.test_id:
        yield ElementLocator(strategy="testId", value=targets.test_id)
    if targets.role and targets.name:
        named = ElementLocator(strategy="role", role=targets.role, value=targets.name)
        yield named
        if targets.in_row:
            yield msgspec.structs.replace(named, strategy="row", row=targets.in_row)
    elif targets.in_row and targets.tag:
        yield ElementLocator(strategy="row", selector=f"css={targets.tag}", row=targets.in_row)
    if targets.label:
        yield ElementLocator(strategy="label", value=targets.label)
    if targets.placeholder:
        yield ElementLocator(strategy="placeholder", value=targets.placeholder)
    if targets.text:
        yield ElementLocator(strategy="text", value=targets.text)


def another_row(recorded: ElementTargets, current: ElementTargets) -> str:
    """Return the reason why an element is not in the recorded row; empty where it may be."""
    if recorded.in_row and recorded.in_row != current.row and not _same_id(recorded, current):
        return f"its row says {current.row!r}, not {recorded.in_row!r}"
    return ""


def _another_place(recorded: ElementTargets, current: ElementTargets) -> str:
    """Return the reason why one of several elements with equal rows is not the recorded one."""
    if recorded.alone or _same_id(recorded, current):
        return ""
    if recorded.place == "none":
        return "nothing on record distinguishes it from the others of the same name"
    if recorded.place and recorded.place != current.place:
        return f"its place in the list changed: it is {_placed(current)}, not {_placed(recorded)}"
    anchored = recorded.in_row or recorded.place or recorded.mark
    if not anchored and (current.row or current.place or current.mark):
        return "it is one of several of the same name, and the record does not identify which"
    if recorded.mark and recorded.mark != current.mark:
        return "its markup is another"
    return ""


def _placed(targets: ElementTargets) -> str:
    return f"number {targets.place}" if targets.place else "no longer one of several"


def _same_id(recorded: ElementTargets, current: ElementTargets) -> bool:
    """Return whether both have the same id, without digits, unique in the page."""
    own = recorded.id
    only = f'//*[@id="{own}"]' == current.path
    return bool(own) and own == current.id and only and not any(map(str.isdigit, own))


def contradicts(recorded: ElementTargets | None, current: ElementTargets) -> str:
    """Return the reason why an element is not the recorded one; empty where it may be.

    For one of several elements with the same name, or without a name, the fields that identify it
    must be equal: a list may be in another order, or hold another row there. An equal test id
    decides the rest. Else tag and role must be equal, and at least one of name, label, placeholder
    and text, where the record has any of them.
    """
    if recorded is None:
        return ""
    elsewhere = another_row(recorded, current) or _another_place(recorded, current)
    if elsewhere:
        return elsewhere
    if recorded.test_id and recorded.test_id == current.test_id:
        return ""
    for field in ("tag", "role"):
        before, now = getattr(recorded, field), getattr(current, field)
        if before and now and before != now:
            return f"its {field} is {now!r}, not {before!r}"
    called = [
        field for field in ("name", "label", "placeholder", "text") if getattr(recorded, field)
    ]
    if called and not any(getattr(recorded, f) == getattr(current, f) for f in called):
        field = called[0]
        return (
            f"its {field} is {getattr(current, field)!r:.80}, not {getattr(recorded, field)!r:.80}"
        )
    return ""


# An action cache that is kept in the record by name: its versions and reviews. It outlives runs.
#
# A version is a whole cache, or an entry of the previous one that was found elsewhere (a heal), or
# an earlier version again. None ever changes. A heal is made by a model, and counts as unreviewed
# until a person reviews it.

KIND = "actions"
"""The kind of its stream; its id is the cache's name."""


@event("actions.saved.v1")
class ActionsSaved(Event, frozen=True, kw_only=True):
    """A whole cache is the next version.

    Attributes:
        version: Its number, from 1 in each cache.
        cache: The cache, as its file has it; a large one by reference (`$blob`).
        digest: Digest of the cache in RFC 8785 form.
        because: The reason.
        run: The recorded run; empty where it is unknown.
    """

    version: int
    cache: msgspec.Raw
    digest: str
    because: str = ""
    run: str = ""


@event("actions.healed.v1")
class ActionsHealed(Event, frozen=True, kw_only=True):
    """An entry was found elsewhere, and its action succeeded there: the next version.

    Attributes:
        version: Its number.
        before: The version that was replayed.
        entry: The entry's `stepIndex`.
        after: The entry from now on.
        because: The part that did not match any more.
        run: The run of the replay.
    """

    version: int
    before: int
    entry: int
    after: CachedAction
    because: str = ""
    run: str = ""


@event("actions.reverted.v1")
class ActionsReverted(Event, frozen=True, kw_only=True):
    """The next version is an earlier one again.

    Attributes:
        version: Its number.
        to: The earlier version.
        because: The reason.
    """

    version: int
    to: int
    because: str = ""


@event("actions.looked_at.v1")
class ActionsLookedAt(Event, frozen=True, kw_only=True):
    """A person reviewed all versions up to one, and accepts them.

    Attributes:
        version: The newest reviewed version.
        because: The result of the review.
    """

    version: int
    because: str = ""


ActionsEvent = ActionsSaved | ActionsHealed | ActionsReverted | ActionsLookedAt
ActionsVersion = ActionsSaved | ActionsHealed | ActionsReverted


class ActionsState(ArtifactState[ActionsVersion]):
    """An action cache at a `version` of its stream.

    Attributes:
        looked_at: The newest reviewed version; 0 for none.
    """

    looked_at: int = 0

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        match event:
            case ActionsSaved() | ActionsHealed() | ActionsReverted():
                self.versions[event.version] = event
            case ActionsLookedAt():
                self.looked_at = max(self.looked_at, event.version)
            case _:
                super()._evolve(event, by)


initial = ActionsState
fold = decider.fold


def chain(state: ActionsState, version: int) -> tuple[ActionsSaved, list[ActionsHealed]]:
    """Return the parts of a version: a whole cache, and the heals after it, the oldest first.

    Raises Refused for an unknown version.
    """
    heals: list[ActionsHealed] = []
    at = version
    while True:
        part = state.demand(at)
        match part:
            case ActionsSaved():
                return part, heals[::-1]
            case ActionsHealed(before=earlier):
                heals.append(part)
            case ActionsReverted(to=earlier):
                pass
            case _:
                assert_never(part)
        if earlier >= at:
            message = f"version {at} is made of version {earlier}, which is no earlier one"
            raise Refused(message)
        at = earlier


def decide(state: ActionsState, event: ActionsEvent) -> Sequence[ActionsEvent]:
    """Return the events of a statement; none where it changes nothing. A version gets its number
    here. A heal of an older version is applied to the newest one, where that has the same entry
    still; else it is dropped, since a later change takes precedence.

    Raises Refused.
    """
    match event:
        case ActionsSaved():
            number = state.next_number()
            if state.versions:
                base, heals = chain(state, state.newest)
                if base.digest == event.digest and not heals:
                    return ()
            return (msgspec.structs.replace(event, version=number),)
        case ActionsHealed():
            return _healed(state, event, state.next_number())
        case ActionsReverted():
            number = state.next_number()
            state.demand(event.to)
            if made_of(state, event.to) == made_of(state, state.newest):
                return ()
            return (msgspec.structs.replace(event, version=number),)
        case ActionsLookedAt():
            state.demand(event.version)
            return (event,) if event.version > state.looked_at else ()
        case _:
            assert_never(event)


def _healed(state: ActionsState, event: ActionsHealed, number: int) -> Sequence[ActionsEvent]:
    digest, healed = made_of(state, state.newest)
    replayed_digest, replayed = made_of(state, event.before)
    if digest != replayed_digest or healed.get(event.entry) != replayed.get(event.entry):
        return ()
    if healed.get(event.entry) == event.after:
        return ()
    return (msgspec.structs.replace(event, version=number, before=state.newest),)


def made_of(state: ActionsState, version: int) -> tuple[str, dict[int, CachedAction]]:
    """Return the content of a version: its whole cache's digest, and the entries healed since."""
    base, heals = chain(state, version)
    return base.digest, {heal.entry: heal.after for heal in heals}


def check_name(name: object) -> str:
    """Return a cache's name, checked. Raises BadName."""
    return ids.name("action cache", name)


ACTIONS = ArtifactKind(
    kind=KIND,
    noun="action cache",
    remedy="list them with `hansard actions list`, or `hansard actions import FILE NAME`",
    initial=ActionsState,
    decide=decide,
    check_name=check_name,
)
