"""Recorded form of arguments and results: plain values, large ones by reference.

A value over 64 KiB goes to the blobs. Text of an argument or result that repeats earlier texts of
the same agent (a growing prompt, in any structure) is recorded as references to them, so that N
model calls cost O(N) bytes. Both are resolved when a step is read: `hansard.domain.payload`.
Records of older versions hold lists as an earlier list and what was appended (`$append`): they are
read, but no longer written.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from hansard.agents.steps import conversions
from hansard.bus.log import Blobs
from hansard.domain import value_types, values
from hansard.domain.agent import AgentState
from hansard.domain.errors import BadValue
from hansard.domain.payload import (
    APPEND,
    MARK,
    TAG,
    Copy,
    Fetch,
    Key,
    Source,
    Text,
    Texts,
    by_name,
    of_steps,
    reference,
    unpack,
    unpack_lists,
    whole_arguments,
    whole_value,
)
from hansard.domain.steps import Step
from hansard.domain.values import TOO_LARGE, Plain, Scrub, same

# ---------------------------------------- references to earlier texts
#
# A prompt that grows, slides or is filled into a template is mostly text that is already recorded.
# The recorded form is `hansard.domain.payload`. Texts are shared only within the stream of
# one agent: a reader who may see a step of an agent may see all that it contains.
#
# The beginning and the end are compared with the last text. In between, anchors are looked up: the
# 32 characters after places that depend on the text there alone (content-defined chunking, as in
# the successors of rsync and Git), so a text is found wherever it has moved to.

SOURCE_CHARACTERS_MIN = 128
"""Shortest text that is referred to, in characters."""

SHARED_CHARACTERS_MIN = 512
"""Shortest text recorded by references, in characters: for shorter ones they save little."""

COPY_CHARACTERS_MIN = 48
"""Shortest range that is recorded as a reference, in characters: a reference takes about 30."""

PIECES_MAX = 256
"""Largest number of pieces of one value; the rest is recorded in full."""

TEXTS_CHARACTERS_MAX = 4 * 1024 * 1024
"""Characters of texts that a session keeps for comparison; the newest is always kept."""

TEXTS_MAX = 64
"""Largest number of texts kept."""

ANCHORS_MAX = 32_768
"""Anchors that a session keeps, about 5 MB: those of about a million characters."""

BEGINS_MAX = 8
"""Number of newest texts whose beginnings are compared; that many prompts may alternate."""

ANCHOR_CHARACTERS = 32

LOOKED_THROUGH_MAX = 32 * 1024 * 1024
"""Characters that are searched for one value's anchors: about 20 ms."""

OCCURRENCES_MAX = 4
"""Number of occurrences of an anchor in one text that are compared; the longest run wins."""

ANCHORS_APART = 24
"""Smallest distance of two kept anchors, in characters; a new text looks up all of its anchors."""


def _every(step: int, first: int) -> str:
    """Return a character class: code points in steps of `step`, from `first`."""
    return "[" + "".join(re.escape(chr(code)) for code in range(first, 0xD800, step)) + "]"


@functools.cache
def _place() -> re.Pattern[str]:
    """Return the pattern before an anchor. It matches at about every tenth character of English,
    every thirtieth of base64 or hex, and where a JSON text starts. It has two pairs of classes,
    since few vocabularies lack both. Compiled at first use, which takes about 50 ms.
    """
    pairs = f"{_every(4, 0x23)}{_every(8, 0x20)}|{_every(4, 0x21)}{_every(8, 0x26)}"
    return re.compile(f'{pairs}|:"')


class _Known(msgspec.Struct):
    """A recorded text; `kind` identifies the texts that are likely to extend it."""

    text: str
    kind: tuple[str, str | None]


class Split(msgspec.Struct):
    """Pieces of a text, and the ranges that no earlier text contains."""

    pieces: list[str | Copy]
    new: list[tuple[int, int]]


class Learned(msgspec.Struct):
    """A text to refer to once its event is recorded: an argument by its name, or a result."""

    argument: str | None
    text: str
    kind: tuple[str, str | None]
    new: list[tuple[int, int]]


class Shared:
    """Texts of one session's agent that can be referred to. Every method is thread-safe."""

    def __init__(self) -> None:
        self._texts: OrderedDict[Key, _Known] = OrderedDict()
        self._characters = 0
        self._newest: dict[tuple[str, str | None], Key] = {}
        self._anchors: OrderedDict[int, Key] = OrderedDict()
        self.anchored = self._anchors.get
        """Returns the text that last contained an anchor; bound once, as it is called often."""
        self._lock = threading.Lock()

    def find(self, text: str, kind: tuple[str, str | None]) -> Split:
        """Split a text into new pieces and references. An argument may refer to arguments and
        results, a result only to results: so a tool's output never depends on references to its
        input.
        """
        with self._lock:
            return _Search(self, text, kind).split()

    def learn(self, step: int, learned: list[Learned]) -> None:
        """Add texts of a step that is now recorded, to refer to them."""
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
            oldest, known = self._texts.popitem(last=False)
            self._characters -= len(known.text)
            if self._newest.get(known.kind) == oldest:
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
        """Return a kept text, or None."""
        return self._texts.get(key)

    def newest(self) -> Iterator[tuple[Key, _Known]]:
        """Return the newest kept texts, newest first."""
        newest = itertools.islice(reversed(self._texts), BEGINS_MAX)
        return ((key, self._texts[key]) for key in newest)

    def likely(self, kind: tuple[str, str | None]) -> Key | None:
        """Return the newest text of a kind."""
        return self._newest.get(kind)


def _places(text: str, begin: int, end: int) -> Iterator[int]:
    """Yield anchor positions: the start of a range, and positions determined by the text."""
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
    """Search for one text among the known ones."""

    def __init__(self, shared: Shared, text: str, kind: tuple[str, str | None]) -> None:
        self._shared = shared
        self._text = text
        self._kind = kind
        self._budget = LOOKED_THROUGH_MAX
        self._made = Split([], [])
        self._covered = 0
        """End of the range covered by the pieces."""

    def split(self) -> Split:
        """Return the pieces. The time is proportional to the text and its new parts."""
        text = self._text
        base, length = self._by_begin()
        known = self._shared.known(base) if base is not None else None
        if base is None or known is None:
            self._middle(len(text), None)
            self._full(len(text))
            return self._made
        if length >= COPY_CHARACTERS_MIN:
            self._copy(base, 0, 0, length)
        most = min(len(text) - self._covered, len(known.text))
        tail = _common_back(text, len(text), known.text, len(known.text), most)
        if tail < COPY_CHARACTERS_MIN:
            tail = 0
        self._middle(len(text) - tail, base)
        if tail:
            self._copy(base, len(known.text) - tail, len(text) - tail, tail)
        self._full(len(text))
        return self._made

    def _by_begin(self) -> tuple[Key | None, int]:
        """Return the text with the longest common beginning, and its length; if there is none, the
        last text of the same kind.
        """
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
        """Search all known texts for the parts between the common beginning and end."""
        text, anchored = self._text, self._shared.anchored
        at = self._covered
        last = end - ANCHOR_CHARACTERS
        while at <= last and self._budget > 0 and len(self._made.pieces) < PIECES_MAX:
            key = anchored(hash(text[at : at + ANCHOR_CHARACTERS]))
            went = self._go_on(at, end, base, key) if key is not None else 0
            for match in _place().finditer(text, max(at, went), end):
                at = match.end()
                if anchored(hash(text[at : at + ANCHOR_CHARACTERS])) is not None or at > last:
                    break
            else:
                return

    def _go_on(self, at: int, end: int, base: Key | None, anchored: Key) -> int:
        """Copy the longest run around an anchor; return its end, or 0 if it is too short."""
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
        back = _common_back(self._text, at, known.text, place, min(at - self._covered, place))
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
            self._budget -= (place if place >= 0 else len(text)) - begin
            if place < 0:
                return
            yield place

    def _copy(self, key: Key, begin: int, at: int, length: int) -> None:
        self._full(at)
        self._made.pieces.append(Copy(key, begin, begin + length))
        self._covered = at + length

    def _full(self, until: int) -> None:
        """Add the text up to here in full."""
        if until > self._covered:
            self._made.pieces.append(self._text[self._covered : until])
            self._made.new.append((self._covered, until))
            self._covered = until


def _common(a: str, i: int, b: str, j: int, most: int) -> int:
    """Count equal characters after two positions, up to `most`."""
    return _longest(lambda at, to: a[i + at : i + to] == b[j + at : j + to], most)


def _common_back(a: str, i: int, b: str, j: int, most: int) -> int:
    """Count equal characters before two positions, up to `most`."""
    return _longest(lambda at, to: a[i - to : i - at] == b[j - to : j - at], most)


def _longest(equal: Callable[[int, int], bool], most: int) -> int:
    """Return the length up to which `equal` holds, compared in parts, up to `most`."""
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


INLINE_BYTES_MAX = 64 * 1024
"""Largest value kept inside an event, in bytes; a larger one is a blob."""

EVENT_BYTES_MAX = 160 * 1024
"""Largest event data, in bytes; above it the largest values become blobs."""

LISTS_KEPT_MAX = 64
"""Number of newest `$append` lists of arguments that a reader keeps."""

SAVED_CHARACTERS_MIN = 256
"""Smallest total of references in a value, in characters: fewer are not worth it. At least a
quarter of the value must be references as well, so that mostly new values stay in one piece."""

MOVED_BYTES_MIN = 1_024
"""Smallest text inside a value, in bytes, that becomes a blob if the event is too large."""

VALUE_BYTES_MAX = values.SIZE_MAX
"""Largest single value, in JSON bytes; a larger one is rejected before the call."""

_encoder = msgspec.json.Encoder()


class Packed(msgspec.Struct):
    """A payload ready to record, the blobs that must be stored before it, and the texts that may be
    referred to once it is recorded.
    """

    raw: msgspec.Raw
    blobs: list[bytes]
    learned: list[Learned] = []


class _Value(msgspec.Struct):
    """A value on its way into an event: its JSON, its recorded form, and its blobs."""

    encoded: bytes
    raw: bytes
    split: Split | None = None
    blobs: list[bytes] = []

    def move(self) -> None:
        """Move as much of the value as possible to blobs."""
        if self.split is not None:
            self.raw, self.blobs = _by_parts(self.split, self.encoded, MOVED_BYTES_MIN)
        else:
            self.raw, self.blobs = _encoder.encode(reference(self.encoded)), [self.encoded]


def pack_arguments(
    arguments: Mapping[str, Plain], tool: str = "", shared: Shared | None = None
) -> Packed:
    """Pack arguments: each value inline, by references or as a blob."""
    made: dict[str, _Value] = {}
    learned: list[Learned] = []
    for name, value in arguments.items():
        made[name], text = _value(value, (tool, name), shared)
        learned += text
    total = sum(len(one.raw) for one in made.values())
    for one in sorted(made.values(), key=lambda one: -len(one.raw)):
        size = len(one.raw)
        if size <= INLINE_BYTES_MAX and total <= EVENT_BYTES_MAX:
            break
        one.move()
        total += len(one.raw) - size
    raws = {name: msgspec.Raw(one.raw) for name, one in made.items()}
    return Packed(values.dump(raws), [blob for one in made.values() for blob in one.blobs], learned)


def _value(
    value: Plain, kind: tuple[str, str | None], shared: Shared | None
) -> tuple[_Value, list[Learned]]:
    """Return a value in its recorded form, unless it is too large, and its text to refer to."""
    encoded = _encoder.encode(value)
    if shared is None or len(encoded) < SOURCE_CHARACTERS_MIN:
        return _Value(encoded, encoded), []
    text = encoded.decode()
    if len(text) < SHARED_CHARACTERS_MIN:
        return _Value(encoded, encoded), [Learned(kind[1], text, kind, [(0, len(text))])]
    split = shared.find(text, kind)
    learned = [Learned(kind[1], text, kind, split.new)]
    new = sum(end - begin for begin, end in split.new)
    if len(text) - new < SAVED_CHARACTERS_MIN or new * 4 > len(text) * 3:
        return _Value(encoded, encoded), learned
    raw, blobs = _by_parts(split, encoded, INLINE_BYTES_MAX)
    return _Value(encoded, raw, split, blobs), learned


def _by_parts(split: Split, encoded: bytes, largest: int) -> tuple[bytes, list[bytes]]:
    """Return a value recorded by references; texts larger than `largest` go to blobs."""
    blobs: list[bytes] = []
    of: list[Any] = []
    for piece in split.pieces:
        if isinstance(piece, Copy):
            step, argument = piece.key
            named = () if argument is None else (argument,)
            of.append([step, piece.begin, piece.end, *named])
            continue
        text = _encoder.encode(piece)
        if len(text) > largest:
            blobs.append(text)
            of.append(reference(text))
        else:
            of.append(msgspec.Raw(text))
    sha256 = hashlib.sha256(encoded).hexdigest()
    return _encoder.encode({TAG: {"sha256": sha256, "size": len(encoded), "of": of}}), blobs


def too_large(where: str, size: int) -> BadValue:
    """Return the error for a value over the limit."""
    return BadValue(where, f"{size:,} bytes of JSON", "pass a reference to it instead")


def pack(
    value: Plain, where: str = "value", tool: str = "", shared: Shared | None = None
) -> Packed:
    """Pack a value inline or as a blob; with `shared`, as a result of this tool, also by
    references.
    """
    one, learned = _value(value, (tool, None), shared)
    if len(one.encoded) > VALUE_BYTES_MAX:
        raise too_large(where, len(one.encoded))
    if len(one.raw) > INLINE_BYTES_MAX:
        one.move()
    return Packed(msgspec.Raw(one.raw), one.blobs, learned)


async def stored(blobs: Blobs, value: Plain, where: str) -> msgspec.Raw:
    """Return a value as an event holds it, after its blobs are stored."""
    packed = pack(value, where)
    for blob in packed.blobs:
        await blobs.put(blob)
    return packed.raw


class Result(msgspec.Struct, frozen=True):
    """A result as it is recorded, and the reason that it is inexact; empty if it is exact."""

    plain: Plain
    inexact: str = ""


def too_large_result(tool: str, error: BadValue) -> Result:
    """Return what is recorded in place of a result over the limit."""
    return Result(f"<{tool}: {error.fact}>", str(error))


class Approximation(msgspec.Struct, frozen=True):
    """An approximation of a result, made by the process that ran the call, and the reason for
    it.
    """

    value: object
    inexact: str


def plain_result(value: object, convert: Any, scrub: Scrub | None) -> Result:
    """Return a result as plain values, after checking that replay restores an equal one. A result
    that cannot be recorded exactly is approximated: the call has been made, and must not be
    repeated.

    `convert` is the return annotation if it names records.
    """
    if isinstance(value, Approximation):
        return Result(values.plain(value.value, "result", scrub), value.inexact)
    with value_types.exactly():
        try:
            return Result(_checked(value, convert, scrub))
        except BadValue as error:
            if error.fact.endswith(TOO_LARGE):
                return Result(f"<{type(value).__name__}>", str(error))
            plain, losses = values.approximate(value, "result", scrub)
            return Result(plain, values.recordable(str(losses[0] if losses else error), scrub))


def _checked(value: object, convert: Any, scrub: Scrub | None) -> Plain:
    """Return a result as plain values that restore an equal one. Raises BadValue."""
    by_class = False
    try:
        plain, is_as_it_was = values.recorded(value, "result")
        if convert is not None or not is_as_it_was:
            _check_survives(value, plain, convert)
    except BadValue as error:
        if error.fact.endswith(TOO_LARGE):
            raise
        by_class = True
        try:
            plain = values.plain(value, "result", by_class=True)
            _check_survives(value, plain, convert)
        except BadValue:
            by_class = False
            plain = values.plain(value, "result")
            try:
                _check_survives(value, plain, convert, exactly=False)
            except BadValue:
                raise error from None
    return values.plain(value, "result", scrub, by_class=by_class) if scrub is not None else plain


def _check_survives(value: object, plain: Plain, convert: Any, *, exactly: bool = True) -> None:
    """Raise BadValue if the recorded value restores a different one."""
    try:
        back = conversions.from_plain(plain, convert)
        survives = same(back, value, exactly=exactly)
    except BadValue:
        raise
    except Exception as error:  # raised by the classes' own code
        fact = f"restoring or comparing it raised {type(error).__name__}: {error}"
        raise BadValue("result", fact[:500], "correct the class, or return plain values") from error
    if not survives:
        raise BadValue(
            "result",
            f"a {type(value).__name__} that would be restored as {back!r:.80}",
            "return plain values, annotate the return type with the record (dataclass, Struct, "
            "pydantic model), or register its class with hansard.value_type(cls, tag=...)",
        )


class _Texts(Texts):
    """A cache of assembled texts that is shared by threads."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._lock = threading.Lock()

    def keep(self, key: Key, text: str) -> None:
        """Keep a text, under the lock."""
        with self._lock:
            super().keep(key, text)


class Reader:
    """Reads an agent's steps in full. Keeps recently assembled texts, in bounded memory, so that
    reading N growing prompts costs their combined size. Thread-safe.
    """

    def __init__(self, state: Callable[[], AgentState]) -> None:
        self._state = state
        self.texts = _Texts(of_steps(lambda: state().steps))
        self._lists: dict[int, Any] = {}

    def arguments(self, step: Step) -> Fetch:
        """Return the plain values of a step's arguments. Raises Corrupt."""
        raw = bytes(step.arguments)
        if MARK in raw:
            raw = yield from whole_arguments(self.texts, step.number, step.version, raw)
        if APPEND not in raw:
            return by_name((yield from unpack(msgspec.Raw(raw))), step)
        payload = yield from unpack_lists(step, self._state().steps, self._lists)
        for number in sorted(self._lists)[:-LISTS_KEPT_MAX]:
            self._lists.pop(number, None)
        return payload

    def result(self, step: Step) -> Fetch:
        """Return the plain values of a step's result. Raises Corrupt."""
        raw = bytes(step.result)
        if MARK in raw and step.outcome_version is not None:
            text = Text(step.outcome_version, raw)
            raw = yield from whole_value(self.texts, (step.number, None), text)
        return (yield from unpack(msgspec.Raw(raw)))

    def step(self, step: Step) -> Fetch:
        """Return a step with its values resolved; blobs stay references."""
        if MARK not in bytes(step.arguments) and MARK not in bytes(step.result):
            return step
        request = whole_arguments(self.texts, step.number, step.version, bytes(step.arguments))
        arguments = yield from request
        result = bytes(step.result)
        if step.outcome_version is not None:
            text = Text(step.outcome_version, result)
            result = yield from whole_value(self.texts, (step.number, None), text)
        return msgspec.structs.replace(
            step, arguments=msgspec.Raw(arguments), result=msgspec.Raw(result)
        )
