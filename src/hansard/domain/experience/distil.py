"""Distilling: from demonstrations of one kind of task to a script with slots and a procedure. Pure.

Actions of two demonstrations are the same node where method and arguments are equal and their
elements have the same name, with slots in the place of the task's values. The name of an element is
chosen from those that demonstrations have in common: a name that each page generates identifies
nothing. Calls of a tool are the same node where they have the same index among the calls of that
tool; differing arguments become slots of their own. The same demonstrations give the same
procedure, in any order within one kind.

Long because a procedure is distilled in one pass over wordings and actions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from hansard.domain import actions as caches
from hansard.domain.actions import (
    LETTER,
    SLOT,
    UNSPACED,
    ActionCache,
    ActionsEnd,
    CachedAction,
    ElementTargets,
    PageMark,
    replacing,
    templated,
    templated_targets,
)
from hansard.domain.errors import BadValue
from hansard.domain.experience.checks import (
    END,
    PROCEDURE_FORMAT,
    START,
    VISITS_MAX,
    Procedure,
    ProcedureEdge,
    ProcedureNode,
    checked_procedure,
    forms_of,
)

# The common and the differing words of one task's texts: the slots of an experience.
#
# The constant words are a longest common subsequence of all texts, word by word; the text between
# them is a slot. A text in quotes is one word. In Chinese and Japanese, which have no spaces
# between words, each character is a word.

TEXT_CHARACTERS_MAX = 4_000
"""Longest text of a task: aligning takes time by the square of its words."""

TEXTS_MAX = 10_000
ALIKE_MIN = 0.5
"""Least share of the shorter text's words that two texts have in common to be of one kind of
task."""

_TOKEN = re.compile(
    rf"{SLOT.pattern.replace('(', '(?:')}|\"[^\"]*\"|“[^”]*”|「[^」]*」|"
    rf"[{UNSPACED}]|{LETTER}+(?:[-'/:.@#]{LETTER}+)*|[^\w\s]"
)
_BETWEEN = re.compile(rf" |(?<=[{UNSPACED}])|(?=[{UNSPACED}])")
_PAIRS = frozenset(('""', "“”", "「」"))
_QUOTES = tuple(pair[0] for pair in _PAIRS)
_FILLING = frozenset(
    ("a", "an", "and", "as", "at", "by", "for", "from", "in", "into", "of", "on", "or", "the", "to")
)


class Wording(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The wording of a task.

    Attributes:
        parts: Constant texts and slots alternately, the first a constant: always an odd number.
    """

    parts: tuple[str, ...]

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots' names, in order; a repeated one is listed once."""
        return tuple(dict.fromkeys(self.parts[1::2]))

    def with_slots(self, names: Collection[str]) -> Wording:
        """Return the wording with each `{{name}}` of these names in its constant texts as a
        slot.
        """
        if not names:
            return self
        pattern = re.compile(r"\{\{(" + "|".join(map(re.escape, names)) + r")\}\}")
        split = [[part] if at % 2 else pattern.split(part) for at, part in enumerate(self.parts)]
        return Wording(parts=tuple(part.strip() for parts in split for part in parts))

    @cached_property
    def _constants(self) -> tuple[re.Pattern[str], ...]:
        """The constant texts in order, the last anchored at the end; words may have a space between
        them.
        """
        made = [r"\s*".join(map(re.escape, _tokens_of(part))) for part in self.parts[::2]]
        made[-1] += r"\Z"
        return tuple(map(re.compile, made))

    def read(self, text: str) -> dict[str, str] | None:
        """Return the slots' values in a text; None where its wording differs.

        Each value is the shortest that lets the rest follow. Adjacent slots are read only where
        each value is one word. Takes time linear in the text for every wording, since a wording may
        be untrusted.
        """
        line = " ".join(text[:TEXT_CHARACTERS_MAX].split())
        first, *rest = self._constants
        match = first.match(line)
        values = list[str]()
        count = 0
        for constant in rest:
            count += 1
            if match is None:
                return None
            if not constant.pattern:  # the next slot is adjacent
                continue
            begin = match.end() + line.startswith(" ", match.end())
            match = constant.search(line, begin + 1) if begin < len(line) else None
            values += _words(line[begin : match.start()].strip(), count) if match else ()
            count = 0
        if match is None or len(values) != len(rest):
            return None
        pairs = list(zip(self.parts[1::2], values, strict=True))
        read = dict(pairs)
        return read if all(read[name] == value for name, value in pairs) else None

    def filled(self, values: Mapping[str, object]) -> str:
        """Return the task's text with values; empty where one is no text."""
        items = [values.get(part) if at % 2 else part for at, part in enumerate(self.parts)]
        texts = [each for each in items if isinstance(each, str)]
        return " ".join(each for each in texts if each) if len(texts) == len(items) else ""

    @property
    def template(self) -> str:
        """The wording with its slots by name, each as `{{name}}`."""
        return " ".join(
            f"{{{{{part}}}}}" if at % 2 else part for at, part in enumerate(self.parts) if part
        )


def tokens(text: str) -> list[str]:
    """Return the words of a text; a text in double quotes is one. Raises BadValue for one too
    long.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        fact = f"{len(text):,} characters, more than {TEXT_CHARACTERS_MAX:,}"
        raise BadValue("the task's text", fact, "give the instruction alone, without its material")
    return [word for each in _TOKEN.findall(text) for word in _unquoted(each)]


def wording(texts: Sequence[str], names: Collection[str] = ()) -> Wording:
    """Return the common wording of texts of one kind of task.

    For a single text, a quoted part is a slot, unless slots are given: `names`, which no other slot
    has.

    Raises BadValue for no text, or too many.
    """
    if not 0 < len(texts) <= TEXTS_MAX:
        raise BadValue("texts of a task", f"{len(texts):,}", f"give 1 to {TEXTS_MAX:,}")
    split = [tokens(each) for each in dict.fromkeys(texts)]
    common = _skeleton(split, keeps_quoted=len(split) > 1 or bool(names))
    gaps = [_gaps(each, common) for each in split]
    parts: list[str] = [""]
    used = list(names)
    for at in range(len(common) + 1):
        values = [each[at] for each in gaps]
        if all(values):
            quotes = {each[0][0] + each[0][-1] if len(each) == 1 else "" for each in values}
            pair = quotes.pop() if len(quotes) == 1 and quotes <= _PAIRS else ""
            name = _name(common[:at], used)
            used.append(name)
            parts[-1] = _joined(parts[-1], pair[0]) if pair else parts[-1]
            parts += [name, pair[1:]]
        if at < len(common):
            parts[-1] = _joined(parts[-1], common[at])
    return Wording(parts=tuple(parts))


def kinds(texts: Iterable[str]) -> list[list[int]]:
    """Group texts by kind of task: the indexes of texts with a similar wording, in order of their
    first.
    """
    groups: list[tuple[list[str], list[int]]] = []
    for index, text in enumerate(texts):
        mine = [each for each in tokens(text) if not each.startswith(_QUOTES)]
        for at, (common, members) in enumerate(groups):
            both = _common(common, mine)
            if len(both) >= ALIKE_MIN * max(1, len(mine)):
                groups[at] = (both, [*members, index])
                break
        else:
            groups.append((mine, [index]))
    return [members for _, members in groups]


def _unquoted(word: str) -> list[str]:
    """Return a word, or the words of a quoted text that holds a slot, each quote as its own."""
    if word.startswith(_QUOTES) and len(word) > 1 and SLOT.search(word):
        return [word[0], *_TOKEN.findall(word[1:-1]), word[-1]]
    return [word]


def _words(text: str, count: int) -> list[str]:
    """Return a text as `count` values, each a word; empty where it has another number of words."""
    if count == 1:
        return [text]
    splits = (text.split(), _TOKEN.findall(text))
    return next((words for words in splits if len(words) == count), [])


def _tokens_of(part: str) -> list[str]:
    return [each for each in _BETWEEN.split(part) if each]


def _joined(before: str, word: str) -> str:
    unspaced = re.fullmatch(f"[{UNSPACED}]{{2}}", before[-1:] + word)
    return before + word if unspaced or not before else f"{before} {word}"


def _skeleton(split: Sequence[Sequence[str]], *, keeps_quoted: bool) -> list[str]:
    common = list(split[0])
    for other in split[1:]:
        common = _common(common, other)
    return [each for each in common if keeps_quoted or not each.startswith(_QUOTES)]


def _common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return a longest common subsequence, the earlier words first."""
    rows = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one) - 1, -1, -1):
        for j in range(len(other) - 1, -1, -1):
            same = one[i] == other[j]
            rows[i][j] = rows[i + 1][j + 1] + 1 if same else max(rows[i + 1][j], rows[i][j + 1])
    i = j = 0
    made = []
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            made.append(one[i])
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return made


def _gaps(words: Sequence[str], common: Sequence[str]) -> list[list[str]]:
    """Return the words before each common word, and after the last."""
    made: list[list[str]] = [[]]
    for word in words:
        if len(made) <= len(common) and word == common[len(made) - 1]:
            made.append([])
        else:
            made[-1].append(word)
    return made


def _name(before: Sequence[str], used: Sequence[str]) -> str:
    """Return a slot's name: the nearest significant word before it."""
    words = (each.lower() for each in reversed(before))
    base = next(
        (w for w in words if re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", w) and w not in _FILLING),
        "slot",
    )
    number = 2
    name = base
    while name in used:
        name, number = f"{base}{number}", number + 1
    return name


class ShownAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action, and the page before it.

    Attributes:
        action: The action.
        present: The elements of the page before it, its own included; empty where unknown.
    """

    action: CachedAction
    present: tuple[ElementTargets, ...] = ()


class Demonstration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One performance of a task.

    Attributes:
        task: The task, in words.
        actions: In order.
        success: True if the task was done.
        source: The run's id, or another name.
        seconds: Its duration.
        params: Values that are slots, by the slot's name; the same names for every demonstration.
    """

    task: str
    actions: tuple[ShownAction, ...]
    success: bool
    source: str
    seconds: float = 0.0
    params: dict[str, str] = {}

    @property
    def slotted(self) -> str:
        """The task's text with `{{name}}` in the place of each value of `params`."""
        return replacing(self.params)(self.task)


DEMONSTRATIONS_MAX = 10_000
SUPPORT_MIN = 0.05
"""Least share of the demonstrations that an action must be in, and at least two; a rarer one is a
mistake."""

_FIELDS = ("test_id", "name", "label", "placeholder", "text", "id", "mark", "path", "css", "tag")
"""The fields that name an element, the better first; a name goes with its role."""

_CHANCE = 0.05
_SLOT_CHARACTERS_MAX = 56

JSON = "$json"
"""The only key of an argument whose slot holds no text: the slot's value is the argument's JSON."""

Key = tuple[str, ...]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A demonstration that a procedure does not include.

    Attributes:
        source: The demonstration.
        why: The action that no other demonstration has.
    """

    source: str
    why: str


class Distilled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of distilling demonstrations of one kind of task, without a model.

    Attributes:
        wording: The wording of the task.
        sources: The demonstrations that succeeded.
        failed: Those that did not: no action is taken from them.
        script: Level 2: the path that was taken most often, with slots; None if there is no
            procedure.
        procedure: Level 3; None where no two demonstrations have a path in common.
        left_out: Demonstrations that the procedure does not include.
    """

    wording: Wording
    sources: tuple[str, ...]
    failed: tuple[str, ...]
    script: ActionCache | None
    procedure: Procedure | None
    left_out: tuple[LeftOut, ...]


def distilled(
    demonstrations: Sequence[Demonstration], *, support_min: float = SUPPORT_MIN
) -> list[Distilled]:
    """Distil demonstrations, one result a kind of task, in the order of their first demonstration.

    Args:
        demonstrations: The demonstrations.
        support_min: Least share of the demonstrations that an action must be in, and at least two;
            0 leaves none out.

    Raises:
        BadValue: There is no demonstration, or too many, or the `params` of one do not fit.
    """
    if not 0 < len(demonstrations) <= DEMONSTRATIONS_MAX:
        fact = f"{len(demonstrations):,} demonstrations"
        raise BadValue("distil", fact, f"give 1 to {DEMONSTRATIONS_MAX:,}")
    _demand_params(demonstrations)
    by_kind = kinds([each.slotted for each in demonstrations])
    kept = [[demonstrations[at] for at in members] for members in by_kind]
    return [_kind(each, support_min) for each in kept]


def _kind(demonstrations: Sequence[Demonstration], support_min: float) -> Distilled:
    names = demonstrations[0].params
    differing = wording([each.slotted for each in demonstrations], names)
    value = differing.with_slots(names)
    _demand_same_slots(demonstrations, value)
    good = [each for each in demonstrations if each.success and each.actions]
    shown = [_Example(each, differing) for each in sorted(good, key=lambda each: each.source)]
    slots = tuple(dict.fromkeys((*value.slots, *names)))
    procedure, left_out, scripted = _procedure(shown, _Names(shown), slots, support_min)
    return Distilled(
        wording=value,
        sources=tuple(each.source for each in good),
        failed=tuple(each.source for each in demonstrations if not each.success),
        script=_script(procedure, scripted) if procedure else None,
        procedure=procedure,
        left_out=left_out,
    )


def _demand_params(demonstrations: Sequence[Demonstration]) -> None:
    """Check that demonstrations have the same slots, and use every value. Raises BadValue."""
    first = demonstrations[0]
    for each in demonstrations:
        where = f"params[{each.source!r:.80}]"
        if set(each.params) != set(first.params):
            has, other = (", ".join(of.params) or "no slot" for of in (each, first))
            fact = f"it has {has:.200}, and that of {first.source!r:.80} has {other:.200}"
            raise BadValue(where, fact, "give each run values for the same slots")
        if not each.params:
            continue
        done = [shown.action for shown in each.actions]
        before = SLOT.findall(each.task + msgspec.json.encode(done).decode())
        done = [templated(action, each.params) for action in done]
        used = SLOT.findall(each.slotted + msgspec.json.encode(done).decode())
        by_value: dict[str, str] = {}
        for name, value in each.params.items():
            if value in by_value:
                fact = f"{value!r:.80} is the value of {by_value[value]} and {name}"
                raise BadValue(where, fact, "leave out this run, or one of the slots in every run")
            by_value[value] = name
        for name, value in each.params.items():
            if name in before:
                fact = f"the run holds the text {{{{{name}}}}} itself"
                raise BadValue(f"{where}[{name!r}]", fact, "give the slot another name")
            if name not in used:
                fact = f"{value!r:.80} is neither in the run's task nor in its actions as a word"
                raise BadValue(f"{where}[{name!r}]", fact, "give the value as it is written there")


def _demand_same_slots(demonstrations: Sequence[Demonstration], common: Wording) -> None:
    """Check that the given slots have the same order in all tasks. Raises BadValue."""
    names = demonstrations[0].params
    shared = [name for name in common.parts[1::2] if name in names]
    orders = [
        [name for name in SLOT.findall(each.slotted) if name in names] for each in demonstrations
    ]
    if any(order != shared for order in orders):
        other = next((at for at, order in enumerate(orders) if order != orders[0]), 0)
        task, source = demonstrations[other].slotted, demonstrations[other].source
        fact = f"its task {task!r:.200} has its slots in another order or number than other tasks"
        raise BadValue(
            f"params[{source!r:.80}]", fact, "give runs whose tasks differ in values alone"
        )


def demand_single_values(demonstrations: Sequence[Demonstration], common: Wording) -> None:
    """Check that no slot of the task holds several values that actions use separately. Raises
    BadValue.

    Comparing sentences cannot tell where one value ends.
    """
    good = [each for each in demonstrations if each.success and each.actions]
    for slot in common.slots:
        values = [(common.read(each.slotted) or {}).get(slot, "") for each in good]
        pairs = list(zip(values, map(_texts_of, good), strict=True))
        if pairs and all(_is_several(value, texts) for value, texts in pairs):
            fact = f"{values[0]!r:.80} of run {good[0].source!r:.80} holds adjacent values"
            remedy = "say which: params={run: {slot: value, ...}}, or --param RUN/SLOT=VALUE"
            raise BadValue(f"slot {slot!r}", fact, remedy)


def _texts_of(of: Demonstration) -> set[str]:
    """Return the arguments of actions, and the texts of their elements."""
    texts: set[Any] = set()
    for action in (each.action for each in of.actions):
        params = (action.action_params or {}).values()
        texts.update(each for each in (*action.arguments, *params) if isinstance(each, str))
        if action.targets is not None:
            texts.update(getattr(action.targets, field) for field in _FIELDS[1:5])
    return texts


def _is_several(value: str, texts: Iterable[str]) -> bool:
    """Return whether a value is a sequence of two or more of these texts, and none of them
    itself.
    """
    words = tokens(value)
    pieces = [tokens(text) for text in texts if len(text) <= len(value)]
    ends = {0}
    for at in range(len(words)):
        after = [at + len(each) for each in pieces if each and words[at:][: len(each)] == each]
        ends.update(after if at in ends else ())
    return len(words) in ends and bool(words) and words not in pieces


class _Example:
    """A demonstration with slots in the place of the task's values: given ones and differing
    ones.
    """

    def __init__(self, of: Demonstration, differing: Wording) -> None:
        read = differing.read(of.slotted) or {}
        params = {name: value for name, value in (read | of.params).items() if value}
        self.forms = {
            slot: text
            for name, value in params.items()
            for slot, text in forms_of(name, value).items()
            if slot not in params
        }
        params |= {slot: text for slot, text in self.forms.items() if text not in params.values()}
        self.source = of.source
        self.actions = [templated(each.action, params) for each in of.actions]
        self.present = [templated_targets(each.present, params) for each in of.actions]
        self.knows = all(each.present for each in of.actions)


def _least(doings: Sequence[Any], support_min: float) -> float:
    return max(2, support_min * len(doings)) if len(doings) > 1 and support_min else 1


class _Names:
    """The names of elements that enough demonstrations share."""

    def __init__(self, shown: Sequence[_Example]) -> None:
        support: Counter[Key] = Counter()
        for each in shown:
            called = {k for a in each.actions if a.targets for k in names_of(a.targets)}
            support.update(called)
        self._least = _least(shown, SUPPORT_MIN)
        self._support = support

    def of(self, targets: ElementTargets | None) -> Key:
        """Return the name of an element; empty where enough demonstrations share none."""
        if targets is None:
            return ()
        enough = [key for key in names_of(targets) if self._support[key] >= self._least]
        slotted = [key for key in enough if "{{" in key[-1]]
        return next(iter((*slotted, *enough)), ())

    def key(self, action: CachedAction) -> Key:
        """Return the key of an action: equal for the same action of two demonstrations."""
        arguments = (
            each if isinstance(each, str) else f"$secret {each.get('$secret')}"
            for each in action.arguments
        )
        if action.action_type != caches.ACT:
            return (action.action_type, *arguments)
        frame = str(action.frame_index or 0)
        return (
            action.action_type,
            action.method or "",
            frame,
            *self.of(action.targets),
            *arguments,
        )

    def keys(self, actions: Sequence[CachedAction]) -> list[Key]:
        """Return the keys of a demonstration's actions; for a tool, with the index of its call."""
        calls: Counter[str] = Counter()
        made: list[Key] = []
        for action in actions:
            if action.action_type == caches.TOOL:
                tool = action.method or ""
                calls[tool] += 1
                made.append((action.action_type, tool, str(calls[tool])))
            else:
                made.append(self.key(action))
        return made

    def on_page(self, present: Iterable[ElementTargets]) -> set[Key]:
        """Return all names of the elements of a page."""
        return {key for each in present for key in names_of(each)}


def names_of(targets: ElementTargets) -> list[Key]:
    """Return all names of an element, the better first."""
    names: list[Key] = []
    for field in _FIELDS:
        value = getattr(targets, field)
        if value:
            role = (targets.role or targets.tag,) if field in ("name", "text") else ()
            names.append((field, *role, value))
    return names


def _procedure(
    shown: Sequence[_Example], names: _Names, task_slots: Sequence[str], support_min: float
) -> tuple[Procedure | None, tuple[LeftOut, ...], list[str]]:
    """Return the graph, the demonstrations it does not include, and the path that was taken most
    often.
    """
    keyed = [(each, names.keys(each.actions)) for each in shown]
    kept, left_out = _common_only(keyed, support_min)
    if not kept:
        return None, left_out, []
    order = list(dict.fromkeys(key for _, keys in kept for key in keys))
    named = {key: f"n{number}" for number, key in enumerate(order, 1)}
    slots = _Slots(task_slots)
    nodes = [_node(named[key], key, kept, slots) for key in order]
    edges = [edge for key in (None, *order) for edge in _edges(key, named, names, kept)]
    slots.add_used({slot for each, _ in kept for slot in each.forms}, nodes)
    always = set.intersection(*(set(keys) for _, keys in kept))
    procedure = Procedure(
        format=PROCEDURE_FORMAT,
        slots=tuple(slots.names),
        nodes=tuple(
            msgspec.structs.replace(node, requires=_requires(key, named, kept))
            for node, key in zip(nodes, order, strict=True)
        ),
        edges=tuple(edges),
        end_requires=tuple(named[key] for key in order if key in always),
    )
    most, _ = Counter(tuple(named[key] for key in keys) for _, keys in kept).most_common(1)[0]
    return checked_procedure(procedure), left_out, list(most)


def _common_only(
    keyed: Sequence[tuple[_Example, list[Key]]], support_min: float
) -> tuple[list[tuple[_Example, list[Key]]], tuple[LeftOut, ...]]:
    """Return the demonstrations whose actions and transitions all are in enough of them."""
    least = _least(keyed, support_min)
    left_out: list[LeftOut] = []
    kept = list(keyed)
    while True:
        support = Counter(key for _, keys in kept for key in set(keys))
        support.update(pair for _, keys in kept for pair in set(_pairs(keys)))
        items = [(each, _rare(*each, support, least)) for each in kept]
        left_out += [LeftOut(source=shown.source, why=why) for (shown, _), why in items if why]
        if not any(why for _, why in items):
            return kept, tuple(left_out)
        kept = [each for each, why in items if not why]


def _pairs(keys: Sequence[Key]) -> list[Key]:
    """Return the transitions, with the start and the end."""
    return [
        ("follows", *before, "then", *after)
        for before, after in zip([(START,), *keys], [*keys, (END,)], strict=True)
    ]


def _rare(shown: _Example, keys: Sequence[Key], support: Counter[Key], least: float) -> str:
    """Return the first action or transition with too little support, in words; empty for none."""
    for action, key in zip(shown.actions, keys, strict=True):
        if support[key] < least:
            return f"{action_words(action)}: in too few demonstrations"
    for at, pair in enumerate(_pairs(keys)):
        if support[pair] < least:
            done = action_words(shown.actions[at]) if at < len(keys) else "the end"
            after = action_words(shown.actions[at - 1]) if at else "the start"
            return f"{done} after {after}: in too few demonstrations"
    return ""


class _Slots:
    """The names of the slots: those of the task's text, then those of tools' arguments."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)

    def add_used(self, forms: Iterable[str], nodes: Sequence[ProcedureNode]) -> None:
        """Add the forms of values that actions use."""
        text = msgspec.json.encode(nodes).decode()
        self.names += [each for each in sorted(forms) if "{{" + each + "}}" in text]

    def made(self, tool: str, argument: str) -> str:
        """Return a new slot, for an argument that differs between demonstrations."""
        base = re.sub(r"\W", "_", f"{tool}_{argument}", flags=re.ASCII)[:_SLOT_CHARACTERS_MAX]
        base = base if re.match(r"[A-Za-z_]", base) else f"_{base}"
        name, number = base, 2
        while name in self.names:
            name, number = f"{base}_{number}", number + 1
        self.names.append(name)
        return name


def _arguments(members: Sequence[CachedAction], slots: _Slots) -> dict[str, Any]:
    """Return the arguments of one call in several demonstrations, each a common value or a slot. A
    value that is no text is written as its JSON.
    """
    every = [each.action_params or {} for each in members]
    made: dict[str, Any] = {}
    for name in dict.fromkeys(name for params in every for name in params):
        values = [params.get(name) for params in every]
        if all(each == values[0] for each in values):
            made[name] = values[0]
            continue
        slot = "{{" + slots.made(members[0].method or "", name) + "}}"
        made[name] = slot if all(isinstance(each, str) for each in values) else {JSON: slot}
    return made


def _node(
    name: str, key: Key, kept: Sequence[tuple[_Example, list[Key]]], slots: _Slots
) -> ProcedureNode:
    members = [
        action
        for each, keys in kept
        for action, at in zip(each.actions, keys, strict=True)
        if at == key
    ]
    return ProcedureNode(
        name=name,
        action=_merged(members, slots),
        visits_max=min(VISITS_MAX, max(keys.count(key) for _, keys in kept)),
        support=sum(key in keys for _, keys in kept),
    )


def _requires(
    key: Key, named: Mapping[Key, str], kept: Sequence[tuple[_Example, list[Key]]]
) -> tuple[str, ...]:
    """Return the nodes that precede an action, in every demonstration that has it."""
    before = [set(keys[: keys.index(key)]) for _, keys in kept if key in keys]
    always = set.intersection(*before)
    return tuple(name for each, name in named.items() if each in always)


def _merged(members: Sequence[CachedAction], slots: _Slots) -> CachedAction:
    """Merge one action of several demonstrations into their common fields."""
    [first, *others] = members
    if first.action_type == caches.TOOL:
        params = _arguments(members, slots)
        first = msgspec.structs.replace(first, arguments=[], action_params=params)
    targets = first.targets
    for other in others:
        if targets is not None:
            targets = _agreed(targets, other.targets or ElementTargets())
    same = {each.xpath for each in members}
    effects = {each.effects for each in members}
    return msgspec.structs.replace(
        first,
        step_index=0,
        element_id=None,
        instruction=first.instruction or action_words(first),
        xpath=first.xpath if len(same) == 1 else None,
        targets=targets,
        page=_place([each.page for each in members]),
        changed=first.changed if len({each.changed for each in members}) == 1 else "",
        effects=first.effects if len(effects) == 1 else "once",
        checks=[check for check in first.checks if all(check in m.checks for m in members)],
        optional=False,
    )


def _place(pages: Sequence[PageMark | None]) -> PageMark | None:
    """Return the place of an action: the page, or the common host and frame of its pages."""
    [first, *others] = pages
    if first is None or all(each == first for each in others):
        return first
    places = {_host(each) for each in pages if each is not None}
    if None in pages or len(places) > 1:
        return None
    return PageMark(address=urlunsplit((*_host(first)[:2], "", "", "")), frame=first.frame)


def _host(page: PageMark) -> tuple[str, str, str]:
    parts = urlsplit(page.address)
    return parts.scheme, parts.netloc, page.frame


def _agreed(one: ElementTargets, other: ElementTargets) -> ElementTargets:
    kept = {
        field: value
        for field in ElementTargets.__struct_fields__
        if field != "alone" and (value := getattr(one, field)) == getattr(other, field)
    }
    return ElementTargets(**kept, alone=one.alone and other.alone)


def _edges(
    key: Key | None,
    named: Mapping[Key, str],
    names: _Names,
    kept: Sequence[tuple[_Example, list[Key]]],
) -> list[ProcedureEdge]:
    """Return the successors of a node, or of the start, in the order in which they are tried.

    One precedes another where it was done though the other could have been, more often than the
    other way round (exact sign test, 5 %): a popup is closed before the page under it is used.
    Where that does not decide, the one that was present less often precedes: the other would never
    leave it a turn.
    """
    counts: Counter[Key] = Counter()
    before: Counter[tuple[Key, Key]] = Counter()
    possible: Counter[Key] = Counter()
    successors = {
        after
        for _, keys in kept
        for at, after in zip([None, *keys], [*keys, (END,)], strict=True)
        if at == key
    }
    called = {each: names.of(_action_of(each, kept).targets) for each in successors - {(END,)}}
    for shown, keys in kept:
        on_page = [names.on_page(each) for each in shown.present] + [None]
        for at, after, seen in zip([None, *keys], [*keys, (END,)], on_page, strict=True):
            if at != key:
                continue
            counts[after] += 1
            possible[after] += 1
            for other in successors - {after}:
                there_too = other == (END,) or (
                    seen is not None and shown.knows and called[other] in seen
                )
                before[after, other] += there_too
                possible[other] += there_too
    net = {
        each: sum(_order_sign(before[each, o], before[o, each]) for o in successors - {each})
        for each in successors
    }
    ordered = sorted(successors, key=lambda each: (-net[each], possible[each], -counts[each], each))
    source = START if key is None else named[key]
    return [
        ProcedureEdge(before=source, after=named.get(each, END), count=counts[each])
        for each in ordered
    ]


def _order_sign(one: int, other: int) -> int:
    """Return 1 or -1 where the counts differ by more than chance, by an exact sign test; else 0."""
    of, least = one + other, min(one, other)
    chance = 2 * sum(math.comb(of, k) for k in range(least + 1)) / 2**of
    return 0 if chance > _CHANCE else (1 if one > other else -1)


def _action_of(key: Key, kept: Sequence[tuple[_Example, list[Key]]]) -> CachedAction:
    return next(
        action
        for each, keys in kept
        for action, at in zip(each.actions, keys, strict=True)
        if at == key
    )


def action_words(action: CachedAction) -> str:
    """Describe an action in words: the method, arguments and target."""
    targets = action.targets or ElementTargets()
    named = next((getattr(targets, f) for f in _FIELDS if getattr(targets, f)), "")
    arguments = " ".join(
        each if isinstance(each, str) else f"secret {each.get('$secret')}"
        for each in action.arguments
    )
    words = (action.method or action.action_type, arguments, named)
    return " ".join(each for each in words if each)[:300]


def _numbered(actions: Iterable[CachedAction]) -> list[CachedAction]:
    return [msgspec.structs.replace(each, step_index=at) for at, each in enumerate(actions)]


def _script(procedure: Procedure, path: Sequence[str]) -> ActionCache:
    return ActionCache(
        format=caches.FORMAT,
        actions=_numbered(procedure.node(name).action for name in path),
        final_state=ActionsEnd(success=True, duration=0.0),
        slots=list(procedure.slots),
    )
