"""How arguments and results become what is recorded: plain values, large ones by reference.

A value over 64 KiB goes to the blobs. A list argument that extends what the same parameter of the
same tool was last given (a growing prompt) is recorded as that step plus what was appended, so
that N model calls cost O(N) bytes. Both are undone when a step's arguments are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from hansard.domain import values
from hansard.domain.agent import AgentState
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.steps import Step
from hansard.domain.values import Plain, Scrub

INLINE_BYTES_MAX = 64 * 1024
"""Largest value kept inside an event; a larger one is a blob."""

EVENT_BYTES_MAX = 160 * 1024
"""Largest event data; above it the largest values become blobs although each alone would fit."""

APPEND_BYTES_MIN = 512
"""A list argument shorter than this is recorded whole: a reference would not be smaller."""

VALUE_BYTES_MAX = 256 * 1024 * 1024
"""Largest single value, in JSON bytes; larger is refused before the call."""

_encoder = msgspec.json.Encoder()


class Packed(msgspec.Struct):
    """A payload ready to record, and the blobs that must be stored before it."""

    raw: msgspec.Raw
    blobs: list[bytes]


class _Told(msgspec.Struct):
    """The list that a tool's parameter was last given: by which step, and its items' digests."""

    step: int
    digests: list[str]


class Prompts:
    """What each list parameter was last given, so that only what is new is recorded."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], _Told] = {}
        self._tools: set[str] = set()
        self._digested: list[tuple[list[Plain], list[str]]] = []
        """The lists of the call that was shortened last: `learn` comes after it."""

    def _digests(self, items: list[Plain]) -> list[str]:
        for known, digests in self._digested:
            if known is items:
                return digests
        digests = [digest(canonical(item)) for item in items]
        self._digested.append((items, digests))
        return digests

    def knows(self, tool: str) -> bool:
        """Whether `learn` was ever told of a tool."""
        return tool in self._tools

    def shorten(self, tool: str, arguments: dict[str, Plain]) -> dict[str, Plain]:
        """Arguments with growing lists told as what was appended to one earlier step's."""
        out = arguments
        base: int | None = None
        self._digested.clear()
        for name, value in arguments.items():
            before = self._told.get((tool, name))
            if before is None or type(value) is not list or base not in (None, before.step):
                continue
            count = len(before.digests)
            if len(value) < count or len(_encoder.encode(value[:count])) < APPEND_BYTES_MIN:
                continue
            digests = self._digests(value)
            if digests[:count] != before.digests:
                continue
            base = before.step
            if out is arguments:
                out = dict(arguments)
            out[name] = {
                "$append": {
                    "to": before.step,
                    "count": count,
                    "digest": rolling(digests),
                    "items": value[count:],
                }
            }
        return out

    def learn(self, tool: str, step: int, arguments: dict[str, Plain]) -> None:
        """Take over what a step was given, once it is told to the record."""
        for name, value in arguments.items():
            if type(value) is list and value:
                self._told[tool, name] = _Told(step, self._digests(value))
                self._tools.add(tool)


def rolling(digests: list[str]) -> str:
    """The digest of a list from its items': each item folded into the digest so far."""
    running = ""
    for item in digests:
        running = digest(running.encode(), item.encode())
    return running


def pack_arguments(arguments: Mapping[str, Plain]) -> Packed:
    """Recorded arguments: each value inline or as a blob."""
    encoded = {name: _encoder.encode(value) for name, value in arguments.items()}
    blobs: list[bytes] = []
    total = sum(map(len, encoded.values()))
    for name in sorted(encoded, key=lambda key: -len(encoded[key])):
        size = len(encoded[name])
        if size <= INLINE_BYTES_MAX and total <= EVENT_BYTES_MAX:
            break
        blob, encoded[name] = _moved(arguments[name], encoded[name])
        blobs.append(blob)
        total += len(encoded[name]) - size
    raws = {name: msgspec.Raw(value) for name, value in encoded.items()}
    return Packed(values.dump(raws), blobs)


def _moved(value: Plain, encoded: bytes) -> tuple[bytes, bytes]:
    """A value's blob and what stays in the event: of a list that grew, what it grew from."""
    if type(value) is dict and len(value) == 1 and "$append" in value:
        blob = _encoder.encode(value["$append"]["items"])
        told = {**value["$append"], "items": _reference(blob)}
        return blob, _encoder.encode({"$append": told})
    return encoded, _encoder.encode(_reference(encoded))


def too_large(where: str, size: int) -> BadValue:
    """The error for a value over the bound."""
    return BadValue(where, f"{size:,} bytes of JSON", "pass a reference to it instead")


def pack(value: Plain, where: str = "value") -> Packed:
    """A recorded value: inline or as a blob."""
    encoded = _encoder.encode(value)
    if len(encoded) > VALUE_BYTES_MAX:
        raise too_large(where, len(encoded))
    if len(encoded) <= INLINE_BYTES_MAX:
        return Packed(msgspec.Raw(encoded), [])
    return Packed(values.dump(_reference(encoded)), [encoded])


def _reference(encoded: bytes) -> Plain:
    return {"$blob": {"sha256": hashlib.sha256(encoded).hexdigest(), "size": len(encoded)}}


def plain_result(value: object, convert: Any, scrub: Scrub | None) -> Plain:
    """A result as plain values, after making sure that replay gives an equal one back.

    `convert` is the return annotation where it names records. Raises BadValue.
    """
    plain = values.plain(value, "result", None)
    back = values.revive(plain)
    if convert is not None:
        try:
            back = msgspec.convert(back, convert)
        except msgspec.ValidationError as error:
            raise BadValue("result", str(error), "return what the annotation says") from error
    if not _same(back, value):
        raise BadValue(
            "result",
            f"a {type(value).__name__} that would come back as {back!r:.80}",
            "return plain values, or annotate the return type with the dataclass or Struct",
        )
    return values.plain(value, "result", scrub) if scrub is not None else plain


def _same(back: Any, value: Any) -> bool:
    """Equal, and of equal types all the way down; NaN equals itself."""
    if type(back) is not type(value):
        return isinstance(back, PurePath) and isinstance(value, PurePath) and back == value
    if type(value) is dict:
        return len(back) == len(value) and all(
            key in back and _same(back[key], item) for key, item in value.items()
        )
    if type(value) in (list, tuple):
        return len(back) == len(value) and all(map(_same, back, value))
    return bool(back == value) or (value != value and back != back)  # noqa: PLR0124 -- only NaN is unequal to itself


Fetch = Generator[tuple[str, int], bytes, Any]
"""A generator that asks for blobs (sha256, size) and is sent their bytes."""


class _Blob(msgspec.Struct):
    """What stands for a large value."""

    sha256: str
    size: int


class _Appended(msgspec.Struct):
    """What stands for a list that extends an earlier step's."""

    to: int
    count: int
    items: Any


def resolve(plain: Plain) -> Fetch:
    """Plain values with every blob reference replaced by what it stands for. Raises Corrupt."""
    if type(plain) is dict:
        if len(plain) == 1 and "$blob" in plain:
            try:
                found = msgspec.convert(plain["$blob"], _Blob)
                data = yield found.sha256, found.size
                return msgspec.json.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Corrupt(
                    "a large payload", f"it is not as Hansard writes it ({error})"
                ) from error
        out = {}
        for key, item in plain.items():
            out[key] = yield from resolve(item)
        return out
    if type(plain) is list:
        out_items: list[Plain] = []
        for item in plain:
            resolved = yield from resolve(item)
            out_items.append(resolved)
        return out_items
    return plain


def unpack(raw: msgspec.Raw) -> Fetch:
    """The plain values behind a recorded payload."""
    data = bytes(raw)
    plain = msgspec.json.decode(data)
    if b'"$blob"' in data:
        plain = yield from resolve(plain)
    return plain


def unpack_arguments(step: Step, state: AgentState, known: dict[int, Any]) -> Fetch:
    """A step's arguments in full: blobs fetched, growing lists put together again.

    `known` keeps what was unpacked, by step, so that a chain of N prompts costs O(N).
    """
    chain = [step]
    while True:
        found = _appended_to(chain[-1], state)
        if found is None or found.number in known:
            break
        chain.append(found)
    for link in reversed(chain):
        arguments = _by_name((yield from unpack(link.arguments)), link)
        for name, value in arguments.items():
            if type(value) is dict and len(value) == 1 and "$append" in value:
                arguments[name] = _grown(value["$append"], name, known, link)
        known[link.number] = arguments
    return known[step.number]


def _by_name(arguments: Any, step: Step) -> dict[str, Any]:
    if type(arguments) is not dict:
        raise Corrupt(f"step {step.number}", "its arguments are not given by name")
    return arguments


def _appended_to(step: Step, state: AgentState) -> Step | None:
    if b'"$append"' not in bytes(step.arguments):
        return None
    for value in _by_name(msgspec.json.decode(step.arguments), step).values():
        if type(value) is dict and len(value) == 1 and "$append" in value:
            return state.steps.get(_appended(value["$append"], step).to)
    return None


def _appended(told: Any, step: Step) -> _Appended:
    try:
        found = msgspec.convert(told, _Appended)
    except msgspec.ValidationError as error:
        fact = f"a list of its arguments is not as Hansard writes it ({error})"
        raise Corrupt(f"step {step.number}", fact) from error
    if found.to >= step.number:  # a chain that went back to itself would have no end
        fact = f"a list of its arguments extends one of step {found.to}, which is not before it"
        raise Corrupt(f"step {step.number}", fact)
    return found


def _grown(told: Any, name: str, known: dict[int, Any], step: Step) -> list[Any]:
    appended = _appended(told, step)
    before = known.get(appended.to, {}).get(name)
    fits = type(before) is list and type(appended.items) is list
    if not fits or not 0 <= appended.count <= len(before):
        raise Corrupt(f"step {step.number}", f"argument {name!r} extends a list that is not there")
    whole: list[Any] = before[: appended.count] + appended.items
    return whole


def run_fetch(fetch: Fetch, get: Callable[[str, int], bytes]) -> Any:
    """Drive a fetch with a plain function that has the blobs at hand."""
    try:
        request = next(fetch)
        while True:
            request = fetch.send(get(*request))
    except StopIteration as stop:
        return stop.value
