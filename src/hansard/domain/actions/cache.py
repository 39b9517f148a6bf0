"""The action cache's form: its entries, how a file of it is read, and its versions.

A file is bytes from outside: what it says is checked before anything is done with it. Files of
HyperAgent (`steps`, `actionParams`) are read, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue

T = TypeVar("T")

FORMAT = "hansard.actions.v1"
FILE_BYTES_MAX = 16 * 1024 * 1024
ACTIONS_MAX = 10_000
XPATH_CHARACTERS_MAX = 4_096
"""Of an xpath: a browser needs seconds for one of a megabyte."""

FUNCTIONS_MAX = 16
"""Of brackets and `//` in an xpath: each multiplies what the browser has to look at."""

ACT, GOTO, EXTRACT, TOOL = "actElement", "goToUrl", "extract", "tool"
RELOAD, BACK, FORWARD = "refreshPage", "pageBack", "pageForward"
OF_PAGE = (GOTO, RELOAD, BACK, FORWARD)
TYPES = (ACT, EXTRACT, TOOL, *OF_PAGE)
"""The types of actions that are replayed."""

_NOTHING_TO_REPLAY = ("complete", "thinking", "wait", "extract", "analyzePdf")
"""HyperAgent's types that did nothing to a page. A replay waits for what actions changed."""

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
"""What is done to an element: how many arguments it takes, and its effects where nobody says."""

_ALIASES = {"selectOptionFromDropdown": "selectOption"}

Argument = str | dict[str, str]
"""A text, or `{"$secret": name}`."""


class ElementTargets(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """By what else than its xpath an element is found.

    Attributes:
        role: Its role, as the accessibility tree has it.
        name: Its name there.
        label: The text of its `<label>`.
        placeholder: That of its field.
        test_id: Its `data-testid`.
        text: What it says, of at most 80 characters.
        path: The xpath from the nearest element above (or itself) that has an id.
        css: A path of tags through open shadow roots, for what no xpath reaches.
        tag: The element's, in lower case.
        id: The element's own `id`.
        alone: Whether no other element had its role and name.
        row: Of one of several that are called the same, or have no name: what its row says, of at
            most 80 characters, without what can be pressed or filled in there.
        depth: How many levels above the element its row is; 0 where not known.
        key: The text in the row that holds a slot: where it is equal, the rest may differ.
        place: Where no row tells it from the others: its place among them, with a digest of what
            they say; `none` where all say the same, so that nothing tells them apart.
        mark: Of one of several without a name: a digest of its markup, an icon's say.
        look: A digest of all that its role and name come of; empty where a slot is in them.
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
        """By what its row is known; empty where it needs none, or none is on record."""
        return "" if self.alone else self.row or self.key


class PageMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where an action was done.

    Attributes:
        address: The page's, as a pattern: digits and values of its query are `*`.
        digest: Of roles and names of the accessibility tree, without what fields hold.
        frame: The address of the frame, as a pattern; empty in the page itself.
    """

    address: str = ""
    digest: str = ""
    frame: str = ""


class ActionCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What must hold after an action.

    Attributes:
        kind: `url`, `text` (of the element at `xpath`), `visible` (a text on the page) or
            `filled` (the field holds what it was given).
        value: The address as a pattern, or the text; of `filled` empty.
        xpath: Of `text`: the element.
    """

    kind: str
    value: str
    xpath: str = ""


class CachedAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An entry: one action that succeeded.

    Attributes:
        step_index: Its place, from 0.
        instruction: What was to be done, in words.
        element_id: Frame index and backend node id, `0-12`, as they were then.
        method: What was done to the element; of a tool its name.
        arguments: Texts, or secrets by name.
        frame_index: 0 is the page itself.
        xpath: The element's, normalised.
        action_type: One of `TYPES`.
        success: Whether it was done.
        message: What came of it, or why not.
        targets: By what else the element is found.
        page: Where it was done.
        changed: What it changed: `address`, `page` or nothing.
        effects: As of its step.
        checks: What must hold afterwards.
        action_params: Of a tool: its arguments by name.
        optional: Whether nothing is to be done where its element is not there.
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
    """How the run ended.

    Attributes:
        success: Whether its last action succeeded.
        error: What went wrong, if anything.
        duration: Seconds that the actions took in all.
    """

    success: bool
    duration: float
    error: str | msgspec.UnsetType = msgspec.UNSET


class ActionChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A version: one entry was found again elsewhere.

    Attributes:
        version: The file's, from 2.
        at: When, UTC.
        by: Who: an agent, a model's tool, a person.
        why: What did not match any more.
        step_index: Which entry.
        before: It as it was.
        after: It as it is from then on.
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
        final_state: How the run ended that they are of.
        format: `hansard.actions.v1`.
        run: The run's id.
        slots: Names of the values that a replay is given: `{{name}}` in arguments and targets.
        version: From 1; each change has the next.
        history: The changes.
        name: What it is kept by in the record that it was read from; empty in a file.
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
    """The file: indented, a line at the end, equal for equal caches."""
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
    """Return what a file holds, which names its format. Raises BadValue."""
    found = read.get("format") if isinstance(read, dict) else type(read).__name__
    if found != form:
        fact = f"its format is {found!r:.80}, not {form!r}"
        raise BadValue(where, fact, "write it again with this version")
    try:
        return msgspec.convert(read, kind)
    except msgspec.ValidationError as error:
        raise BadValue(where, str(error), "write it again with this version") from None


def checked(cache: ActionCache, where: str = "the action cache") -> ActionCache:
    """A cache whose entries can be replayed, failures left out. Raises BadValue."""
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
    made: CachedAction = msgspec.structs.replace(
        entry, method=method, effects=entry.effects or effects, frame_index=entry.frame_index or 0
    )
    return made


def check_xpath(xpath: str, where: str) -> None:
    """Raise BadValue for one that a browser would take long over."""
    if len(xpath) > XPATH_CHARACTERS_MAX:
        fact = f"an xpath of {len(xpath):,} characters, more than {XPATH_CHARACTERS_MAX:,}"
        raise BadValue(where, fact, "name the element by its targets")
    cost = xpath.count("//") + xpath.count("::") + xpath.count("(")
    if cost > FUNCTIONS_MAX:
        fact = f"an xpath with {cost} axes and functions, more than {FUNCTIONS_MAX}"
        raise BadValue(where, fact, "name the element by its targets, or by a plain path")


def _of_hyperagent(told: Mapping[str, Any], where: str) -> dict[str, Any]:
    steps = told["steps"]
    if not isinstance(steps, list) or not all(isinstance(each, dict) for each in steps):
        raise BadValue(where, "`steps` is no list of entries", "give a file that HyperAgent wrote")
    status = told.get("status")
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
    """The next version: an entry is found elsewhere now. Raises BadValue for no entry of it."""
    before = _entry_of(cache, after.step_index)
    version = cache.version + 1
    change = ActionChange(
        version=version,
        at=at,
        by=by,
        why=why,
        step_index=after.step_index,
        before=before,
        after=after,
    )
    return _with(cache, after, version, [*cache.history, change])


def reverted(cache: ActionCache, to: int, *, at: str, by: str, why: str) -> ActionCache:
    """What an earlier version said, as the next version. Raises BadValue for no such version."""
    if not 1 <= to < cache.version:
        fact = f"version {to} of a file at version {cache.version}"
        raise BadValue("revert", fact, f"give 1 to {cache.version - 1}")
    undone = [each for each in cache.history if each.version > to]
    for change in reversed(undone):
        cache = healed(cache, change.before, at=at, by=by, why=why)
    return cache


def _entry_of(cache: ActionCache, index: int) -> CachedAction:
    for each in cache.actions:
        if each.step_index == index:
            return each
    raise BadValue(f"entry {index}", "there is none of this stepIndex", "give one of the file")


def _with(
    cache: ActionCache, entry: CachedAction, version: int, history: list[ActionChange]
) -> ActionCache:
    actions = [entry if each.step_index == entry.step_index else each for each in cache.actions]
    made: ActionCache = msgspec.structs.replace(
        cache, actions=actions, version=version, history=history
    )
    return made
