"""Finds what a value says that an earlier one said, so that only the rest is recorded.

A prompt that grows, slides or is filled into a template, in whatever structure, is a JSON text of
which most was said before: at its begin, at its end, or somewhere in the middle. The form that it
is recorded in is `hansard.domain.payload.parts`; what is shared is what one agent was given and
gave, in its own stream, and nothing across agents: who may see an agent's step may see all that it
says.

Begin and end are compared with what was said last. In between, anchors are looked up: the 32
characters after places that depend on the text there alone (content-defined, as in rsync's and
Git's successors), so that a text is known again wherever it has moved to.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from hansard.domain.payload.parts import Copy, Key

SOURCE_CHARACTERS_MIN = 128
"""A text shorter than this is not referred to."""

SHARED_CHARACTERS_MIN = 512
"""A text shorter than this is recorded in full: references would not be much smaller."""

COPY_CHARACTERS_MIN = 48
"""A range shorter than this is said again: a reference to it takes some 30 characters."""

PIECES_MAX = 256
"""Most pieces of one value; what is left then is recorded in full."""

TEXTS_CHARACTERS_MAX = 4 * 1024 * 1024
"""Characters of the texts that a session keeps to compare with; the newest is kept whatever its
size."""

TEXTS_MAX = 64
"""Most of them."""

ANCHORS_MAX = 32_768
"""Most anchors that a session keeps, some 5 MB: those of about a million characters."""

BEGINS_MAX = 8
"""Newest texts whose begins are compared with: as many prompts may take turns."""

ANCHOR_CHARACTERS = 32

LOOKED_THROUGH_MAX = 32 * 1024 * 1024
"""Characters that are looked through for one value's anchors: some 20 ms."""

OCCURRENCES_MAX = 4
"""Places of an anchor in one text that are compared: the longest run counts."""

ANCHORS_APART = 24
"""Least characters from one anchor that is kept to the next; all of a new text's are looked up."""


def _every(step: int, first: int) -> str:
    """A class of characters: those whose code points are so far apart."""
    return "[" + "".join(re.escape(chr(code)) for code in range(first, 0xD800, step)) + "]"


@functools.cache
def _place() -> re.Pattern[str]:
    """An anchor begins after one of these: at about every tenth character of English, at every
    thirtieth of base64 or hex, and where a JSON text begins. Two pairs of classes, so that hardly a
    vocabulary has neither. Compiled when a text is first looked through: it takes some 50 ms.
    """
    pairs = f"{_every(4, 0x23)}{_every(8, 0x20)}|{_every(4, 0x21)}{_every(8, 0x26)}"
    return re.compile(f'{pairs}|:"')


class _Known(msgspec.Struct):
    """A text that is on record; `kind` says what else is likely to go on from it."""

    text: str
    kind: tuple[str, str | None]


class Found(msgspec.Struct):
    """What a text consists of, and where in it stands what no earlier one said."""

    pieces: list[str | Copy]
    new: list[tuple[int, int]]


class Learned(msgspec.Struct):
    """A text to refer to, once its event is on record: an argument by its name, or a result."""

    argument: str | None
    text: str
    kind: tuple[str, str | None]
    new: list[tuple[int, int]]


class Shared:
    """What one session knows of its agent's texts. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._texts: OrderedDict[Key, _Known] = OrderedDict()
        self._characters = 0
        self._newest: dict[tuple[str, str | None], Key] = {}
        self._anchors: OrderedDict[int, Key] = OrderedDict()
        self.anchored = self._anchors.get
        """The text that an anchor was last found in: asked for each of a text's."""
        self._lock = threading.Lock()

    def find(self, text: str, kind: tuple[str, str | None]) -> Found:
        """What a text consists of. An argument may be made of arguments and results, a result of
        results: so what a tool gives is never told by what it was given.
        """
        with self._lock:
            return _Search(self, text, kind).found()

    def learn(self, step: int, learned: list[Learned]) -> None:
        """Take in texts of a step that is on record now, to refer to them."""
        with self._lock:
            for one in learned:
                self._learn((step, one.argument), one)

    def _learn(self, key: Key, one: Learned) -> None:
        if key in self._texts:
            return
        self._texts[key] = _Known(one.text, one.kind)
        self._newest[one.kind] = key
        self._characters += len(one.text)
        while len(self._texts) > 1 and (
            self._characters > TEXTS_CHARACTERS_MAX or len(self._texts) > TEXTS_MAX
        ):
            gone, known = self._texts.popitem(last=False)
            self._characters -= len(known.text)
            if self._newest.get(known.kind) == gone:
                del self._newest[known.kind]
        anchors, text = self._anchors, one.text
        for begin, end in one.new:
            for at in _places(text, begin, end):
                mark = hash(text[at : at + ANCHOR_CHARACTERS])
                anchors[mark] = key
                anchors.move_to_end(mark)
        while len(self._anchors) > ANCHORS_MAX:
            self._anchors.popitem(last=False)

    # ------------------------------------------------------------ for a search

    def known(self, key: Key) -> _Known | None:
        """A text that is kept."""
        return self._texts.get(key)

    def newest(self) -> Iterator[tuple[Key, _Known]]:
        """The newest texts that are kept, the newest first."""
        newest = itertools.islice(reversed(self._texts), BEGINS_MAX)
        return ((key, self._texts[key]) for key in newest)

    def likely(self, kind: tuple[str, str | None]) -> Key | None:
        """The newest text of a kind."""
        return self._newest.get(kind)


def _places(text: str, begin: int, end: int) -> Iterator[int]:
    """Where anchors begin: at the begin of a range, and at places that depend on the text there."""
    last = len(text) - ANCHOR_CHARACTERS
    least = begin
    if begin <= last:
        yield begin
    for match in _place().finditer(text, begin, end):
        if match.end() > last:
            return
        if match.end() >= least:
            yield match.end()
            least = match.end() + ANCHORS_APART


class _Search:
    """One text being looked for in those that are known."""

    def __init__(self, shared: Shared, text: str, kind: tuple[str, str | None]) -> None:
        self._shared = shared
        self._text = text
        self._kind = kind
        self._left = LOOKED_THROUGH_MAX
        self._made = Found([], [])
        self._said = 0
        """Up to here the pieces go."""

    def found(self) -> Found:
        """The pieces. Costs time in proportion to the text and to what is new in it."""
        text = self._text
        base, length = self._by_begin()
        known = self._shared.known(base) if base is not None else None
        if base is None or known is None:
            self._middle(len(text), None)
            self._full(len(text))
            return self._made
        if length >= COPY_CHARACTERS_MIN:
            self._copy(base, 0, 0, length)
        most = min(len(text) - self._said, len(known.text))
        tail = _common_back(text, len(text), known.text, len(known.text), most)
        if tail < COPY_CHARACTERS_MIN:
            tail = 0
        self._middle(len(text) - tail, base)
        if tail:
            self._copy(base, len(known.text) - tail, len(text) - tail, tail)
        self._full(len(text))
        return self._made

    def _by_begin(self) -> tuple[Key | None, int]:
        """The text that begins most like this one, and how far; the last of its kind, if none."""
        best, longest = None, 0
        for key, known in self._shared.newest():
            if not self._may_have(key):
                continue
            length = _common(self._text, 0, known.text, 0, min(len(self._text), len(known.text)))
            if length > longest:
                best, longest = key, length
            if longest * 4 >= 3 * min(len(self._text), len(known.text)):
                break
        if longest < COPY_CHARACTERS_MIN:
            likely = self._shared.likely(self._kind)
            known_likely = self._shared.known(likely) if likely is not None else None
            if likely is not None and known_likely is not None:
                most = min(len(self._text), len(known_likely.text))
                return likely, _common(self._text, 0, known_likely.text, 0, most)
        return best, longest

    def _may_have(self, key: Key) -> bool:
        return self._kind[1] is not None or key[1] is None

    def _middle(self, end: int, base: Key | None) -> None:
        """Look for what stands between begin and end anywhere in what is known."""
        text, anchored = self._text, self._shared.anchored
        at = self._said
        last = end - ANCHOR_CHARACTERS
        while at <= last and self._left > 0 and len(self._made.pieces) < PIECES_MAX:
            key = anchored(hash(text[at : at + ANCHOR_CHARACTERS]))
            went = self._go_on(at, end, base, key) if key is not None else 0
            for match in _place().finditer(text, max(at, went), end):
                at = match.end()
                if anchored(hash(text[at : at + ANCHOR_CHARACTERS])) is not None or at > last:
                    break
            else:
                return

    def _go_on(self, at: int, end: int, base: Key | None, anchored: Key) -> int:
        """Take over the longest run around an anchor; where it ends, 0 where it is too short."""
        best: tuple[int, int, int, Key] | None = None
        for key in dict.fromkeys((base, anchored)):
            known = self._shared.known(key) if key is not None else None
            if key is None or known is None or not self._may_have(key):
                continue
            for place in self._occurrences(known.text, at):
                fore = _common(
                    self._text, at, known.text, place, min(end - at, len(known.text) - place)
                )
                if best is None or fore > best[0]:
                    best = fore, at, place, key
            if best is not None:
                break
        if best is None:
            return 0
        fore, _, place, key = best
        known = self._shared.known(key)
        if known is None:
            return 0
        back = _common_back(self._text, at, known.text, place, min(at - self._said, place))
        if back + fore < COPY_CHARACTERS_MIN:
            return 0
        self._copy(key, place - back, at - back, back + fore)
        return at + fore

    def _occurrences(self, text: str, at: int) -> Iterator[int]:
        needle = self._text[at : at + ANCHOR_CHARACTERS]
        place = -1
        for _ in range(OCCURRENCES_MAX):
            begin = place + 1
            place = text.find(needle, begin)
            self._left -= (place if place >= 0 else len(text)) - begin
            if place < 0:
                return
            yield place

    def _copy(self, key: Key, begin: int, at: int, length: int) -> None:
        self._full(at)
        self._made.pieces.append(Copy(key, begin, begin + length))
        self._said = at + length

    def _full(self, until: int) -> None:
        """Say in full what stands up to here."""
        if until > self._said:
            self._made.pieces.append(self._text[self._said : until])
            self._made.new.append((self._said, until))
            self._said = until


def _common(a: str, i: int, b: str, j: int, most: int) -> int:
    """How many characters are equal from two places on, at most so many."""
    return _longest(lambda at, to: a[i + at : i + to] == b[j + at : j + to], most)


def _common_back(a: str, i: int, b: str, j: int, most: int) -> int:
    """As `_common`, before two places."""
    return _longest(lambda at, to: a[i - to : i - at] == b[j - to : j - at], most)


def _longest(equal: Callable[[int, int], bool], most: int) -> int:
    """How far what is compared part by part is equal, at most so far."""
    count, step, growing = 0, 64, True
    while count < most:
        size = min(step, most - count)
        if equal(count, count + size):
            count += size
            step = min(size * 4, 65_536) if growing else max(size // 2, 1)
        elif size == 1:
            break
        else:
            growing, step = False, size // 2
    return count
