"""The common and the differing words of one task's texts: the slots of an experience.

The constant words are a longest common subsequence of all texts, word by word; the text between
them is a slot. A text in quotes is one word. In Chinese and Japanese, which have no spaces between
words, each character is a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from hansard.domain.actions.cache import LETTER, SLOT, UNSPACED
from hansard.domain.errors import BadValue

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
