"""How arguments and results become what is recorded: plain values, large ones by reference.

A value over 64 KiB goes to the blobs. What an argument or a result says that earlier ones of the
same agent said (a growing prompt, in whatever structure) is recorded as references to those, so
that N model calls cost O(N) bytes (`hansard.agents.steps.shared` finds it). Both are undone when a
step is read: `hansard.domain.payload`. Records of older versions hold lists told as an earlier list
and what was appended (`$append`): they are read, and no longer written.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hansard.agents.steps import conversions
from hansard.agents.steps.shared import (
    SHARED_CHARACTERS_MIN,
    SOURCE_CHARACTERS_MIN,
    Found,
    Learned,
    Shared,
)
from hansard.domain import value_types, values
from hansard.domain.agent import AgentState
from hansard.domain.errors import BadValue
from hansard.domain.payload.parts import (
    MARK,
    TAG,
    Copy,
    Key,
    Source,
    Text,
    Texts,
    of_steps,
    whole_arguments,
    whole_value,
)
from hansard.domain.payload.references import (
    APPEND,
    Fetch,
    by_name,
    reference,
    unpack,
    unpack_lists,
)
from hansard.domain.steps import Step
from hansard.domain.values import TOO_LARGE, Plain, Scrub, same

INLINE_BYTES_MAX = 64 * 1024
"""Largest value kept inside an event; a larger one is a blob."""

EVENT_BYTES_MAX = 160 * 1024
"""Largest event data; above it the largest values become blobs although each alone would fit."""

LISTS_KEPT_MAX = 64
"""Newest arguments with lists told by what was appended that a reader keeps."""

SAVED_CHARACTERS_MIN = 256
"""Least that is referred to in a value: less of it is not worth its references. At least a quarter
of the value must be, too: what is new for the most part stands in one piece."""

MOVED_BYTES_MIN = 1_024
"""Texts of a value told by parts that are larger become blobs, where the event is too large."""

VALUE_BYTES_MAX = values.SIZE_MAX
"""Largest single value, in JSON bytes; larger is refused before the call."""

_encoder = msgspec.json.Encoder()


class Packed(msgspec.Struct):
    """A payload ready to record, the blobs that must be stored before it, and the texts that may be
    referred to once it is on record.
    """

    raw: msgspec.Raw
    blobs: list[bytes]
    learned: list[Learned] = []


class _Value(msgspec.Struct):
    """A value on its way into an event: its JSON, what is recorded for it, and its blobs."""

    encoded: bytes
    raw: bytes
    found: Found | None = None
    blobs: list[bytes] = []

    def move(self) -> None:
        """Leave as little of it in the event as can be: the rest goes to blobs."""
        if self.found is not None:
            self.raw, self.blobs = _told(self.found, self.encoded, MOVED_BYTES_MIN)
        else:
            self.raw, self.blobs = _encoder.encode(reference(self.encoded)), [self.encoded]


def pack_arguments(
    arguments: Mapping[str, Plain], tool: str = "", shared: Shared | None = None
) -> Packed:
    """Recorded arguments: each value inline, by parts or as a blob."""
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
    """A value as it is recorded unless that is too large, and its text to refer to."""
    encoded = _encoder.encode(value)
    if shared is None or len(encoded) < SOURCE_CHARACTERS_MIN:
        return _Value(encoded, encoded), []
    text = encoded.decode()
    if len(text) < SHARED_CHARACTERS_MIN:
        return _Value(encoded, encoded), [Learned(kind[1], text, kind, [(0, len(text))])]
    found = shared.find(text, kind)
    learned = [Learned(kind[1], text, kind, found.new)]
    new = sum(end - begin for begin, end in found.new)
    if len(text) - new < SAVED_CHARACTERS_MIN or new * 4 > len(text) * 3:
        return _Value(encoded, encoded), learned
    raw, blobs = _told(found, encoded, INLINE_BYTES_MAX)
    return _Value(encoded, raw, found, blobs), learned


def _told(found: Found, encoded: bytes, largest: int) -> tuple[bytes, list[bytes]]:
    """What stands for a value told by parts; texts that are larger than this go to blobs."""
    blobs: list[bytes] = []
    of: list[Any] = []
    for piece in found.pieces:
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
    """The error for a value over the bound."""
    return BadValue(where, f"{size:,} bytes of JSON", "pass a reference to it instead")


def pack(
    value: Plain, where: str = "value", tool: str = "", shared: Shared | None = None
) -> Packed:
    """A recorded value: inline or as a blob; with `shared`, a result of this tool: or by parts."""
    one, learned = _value(value, (tool, None), shared)
    if len(one.encoded) > VALUE_BYTES_MAX:
        raise too_large(where, len(one.encoded))
    if len(one.raw) > INLINE_BYTES_MAX:
        one.move()
    return Packed(msgspec.Raw(one.raw), one.blobs, learned)


class Result(msgspec.Struct, frozen=True):
    """A result as it is recorded, and why that is not all of it; empty where it is."""

    plain: Plain
    inexact: str = ""


class Approximation(msgspec.Struct, frozen=True):
    """What could be recorded of a result, by whoever ran the call, and why it is not all of it."""

    value: object
    inexact: str


def plain_result(value: object, convert: Any, scrub: Scrub | None) -> Result:
    """A result as plain values, after making sure that replay gives an equal one back. What cannot
    be recorded exactly is recorded as far as it can be: the call has been made, and is not to be
    made again.

    `convert` is the return annotation where it names records.
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
    """A result as plain values that an equal one is made of. Raises BadValue."""
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
    """Raise BadValue where another value is made of the recorded one."""
    try:
        back = conversions.from_plain(plain, convert)
        survives = same(back, value, exactly=exactly)
    except BadValue:
        raise
    except Exception as error:  # of the classes' own code
        fact = f"making it again, or comparing it, raised {type(error).__name__}: {error}"
        raise BadValue("result", fact[:500], "correct the class, or return plain values") from error
    if not survives:
        raise BadValue(
            "result",
            f"a {type(value).__name__} that would come back as {back!r:.80}",
            "return plain values, annotate the return type with the record (dataclass, Struct, "
            "pydantic model), or register its class with hansard.value_type(cls, tag=...)",
        )


class _Texts(Texts):
    """Texts that several threads put together."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._lock = threading.Lock()

    def keep(self, key: Key, text: str) -> None:
        """As for one thread."""
        with self._lock:
            super().keep(key, text)


class Reader:
    """Reads an agent's steps in full. Keeps what it put together last, in bounded memory, so that
    reading N prompts that grow costs what they hold together. From any thread.
    """

    def __init__(self, state: Callable[[], AgentState]) -> None:
        self._state = state
        self.texts = _Texts(of_steps(lambda: state().steps))
        self._lists: dict[int, Any] = {}

    def arguments(self, step: Step) -> Fetch:
        """The plain values of a step's arguments. Raises Corrupt."""
        raw = bytes(step.arguments)
        if MARK in raw:
            raw = yield from whole_arguments(self.texts, step.number, step.version, raw)
        if APPEND not in raw:
            return by_name((yield from unpack(msgspec.Raw(raw))), step)
        found = yield from unpack_lists(step, self._state().steps, self._lists)
        for number in sorted(self._lists)[:-LISTS_KEPT_MAX]:
            self._lists.pop(number, None)
        return found

    def result(self, step: Step) -> Fetch:
        """The plain values of a step's result. Raises Corrupt."""
        raw = bytes(step.result)
        if MARK in raw and step.outcome_version is not None:
            found = Text(step.outcome_version, raw)
            raw = yield from whole_value(self.texts, (step.number, None), found)
        return (yield from unpack(msgspec.Raw(raw)))

    def step(self, step: Step) -> Fetch:
        """A step with its values as they would stand if they were told in full; blobs stay."""
        if MARK not in bytes(step.arguments) and MARK not in bytes(step.result):
            return step
        asked = whole_arguments(self.texts, step.number, step.version, bytes(step.arguments))
        arguments = yield from asked
        result = bytes(step.result)
        if step.outcome_version is not None:
            found = Text(step.outcome_version, result)
            result = yield from whole_value(self.texts, (step.number, None), found)
        return msgspec.structs.replace(
            step, arguments=msgspec.Raw(arguments), result=msgspec.Raw(result)
        )
