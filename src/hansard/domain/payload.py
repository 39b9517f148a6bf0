"""References in recorded values: blobs, ranges of earlier values, extended lists.

The content of blobs is requested from the caller (`Fetch`). `PartsLine` resolves an agent's events
in order, for readers that show events or make rows of them: the value that is judged by a role's
rules, masked, searched and queried in SQL is the agent's whole value, as if it were stored in its
event; no reference lets a reader see the content of another event.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from hansard.domain.errors import Corrupt
from hansard.domain.fingerprint import digest
from hansard.domain.steps import NULL, Step, StepCompleted, StepRequested, StepSettled
from hansard.domain.values import Plain

# References inside recorded values, and their resolution.
#
# `{"$blob": {"sha256": "...", "size": 70000}}` refers to the JSON value in a blob. In older
# records, `{"$append": {"to": 7, "count": 12, "items": [...], "digest": "..."}}` refers to the
# first 12 items of the argument of that name of step 7, followed by the items. For values that
# repeat parts of earlier ones see `Parts`.

BLOB = b'"$blob"'
APPEND = b'"$append"'
"""Bytes that are in every such reference."""

Fetch = Generator[tuple[str, int], bytes, Any]
"""A generator that yields requests for blobs (sha256, size) and is sent their bytes."""

_BLOB = re.compile(
    rb'\{\s*"\$blob"\s*:\s*'
    rb'\{\s*"sha256"\s*:\s*"([0-9a-f]{64})"\s*,\s*"size"\s*:\s*([0-9]{1,12})\s*\}\s*\}'
)
"""A reference to a blob. A match in JSON is always one: inside a text its quotes would be
escaped."""


class Blob(msgspec.Struct, frozen=True):
    """The reference for a value, or a text, in a blob."""

    sha256: str
    size: int


class Appended(msgspec.Struct, frozen=True):
    """The reference for a list that extends an earlier step's; a large rest is itself a blob."""

    to: int
    count: int
    items: list[Any] | dict[str, Any]

    @property
    def length(self) -> int | None:
        """Length of the whole list; None where the rest is a blob."""
        return self.count + len(self.items) if isinstance(self.items, list) else None


_arguments = msgspec.json.Decoder(dict[str, Any])


def reference(encoded: bytes) -> Plain:
    """Return the reference for a value whose JSON is in a blob."""
    return {"$blob": {"sha256": hashlib.sha256(encoded).hexdigest(), "size": len(encoded)}}


def blobs_named(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield the hash and size of each blob that recorded data names; it may be no JSON."""
    if BLOB in data:
        for sha256, size in _BLOB.findall(data):
            yield sha256.decode(), int(size)


def blobs_in(raw: msgspec.Raw) -> Iterator[Blob]:
    """Yield as `blobs_named`, with each checked. Raises DecodeError, RecursionError."""
    if BLOB in bytes(raw):
        yield from _blobs(msgspec.json.decode(raw))


def _blobs(value: Any) -> Iterator[Blob]:
    if isinstance(value, dict):
        if value.keys() == {"$blob"}:
            yield msgspec.convert(value["$blob"], Blob)
            return
        for item in value.values():
            yield from _blobs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _blobs(item)


def resolve(plain: Plain) -> Fetch:
    """Return plain values with every blob reference replaced by its value. Raises Corrupt."""
    if type(plain) is dict:
        if len(plain) == 1 and "$blob" in plain:
            try:
                blob = msgspec.convert(plain["$blob"], Blob)
                data = yield blob.sha256, blob.size
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
    """Return the plain values of a recorded payload."""
    data = bytes(raw)
    plain = msgspec.json.decode(data)
    if BLOB in data:
        plain = yield from resolve(plain)
    return plain


# ---------------------------------------------------------------- extended lists


def arguments_in(raw: msgspec.Raw) -> dict[str, Any]:
    """Return a step's recorded arguments by name. Raises DecodeError."""
    return _arguments.decode(raw)


def appended(value: Any) -> Appended | None:
    """Return the reference to an extended list; None for another value. Raises ValidationError."""
    if type(value) is dict and len(value) == 1 and "$append" in value:
        return msgspec.convert(value["$append"], Appended)
    return None


def rolling(digests: list[str]) -> str:
    """Return the digest of a list from its items': each item folded into the digest so far."""
    running = ""
    for item in digests:
        running = digest(running.encode(), item.encode())
    return running


def unpack_lists(step: Step, steps: Mapping[int, Step], known: dict[int, Any]) -> Fetch:
    """Return a step's arguments with lists resolved that extend those of an earlier step.

    `known` keeps the resolved arguments, by step, so that a chain of N prompts costs O(N).
    """
    chain = [step]
    while True:
        earlier = _appended_to(chain[-1], steps)
        if earlier is None or earlier.number in known:
            break
        chain.append(earlier)
    for link in reversed(chain):
        arguments = by_name((yield from unpack(link.arguments)), link)
        for name, value in arguments.items():
            found_list = _appended(value, link)
            if found_list is not None:
                arguments[name] = _grown(found_list, name, known, link)
        known[link.number] = arguments
    return known[step.number]


def by_name(arguments: Any, step: Step) -> dict[str, Any]:
    """Return a step's arguments, checked to be given by name. Raises Corrupt."""
    if type(arguments) is not dict:
        raise Corrupt(f"step {step.number}", "its arguments are not given by name")
    return arguments


def _appended_to(step: Step, steps: Mapping[int, Step]) -> Step | None:
    if APPEND not in bytes(step.arguments):
        return None
    for value in by_name(msgspec.json.decode(step.arguments), step).values():
        extension = _appended(value, step)
        if extension is not None:
            return steps.get(extension.to)
    return None


def _appended(value: Any, step: Step) -> Appended | None:
    try:
        extension = appended(value)
    except msgspec.ValidationError as error:
        fact = f"a list of its arguments is not as Hansard writes it ({error})"
        raise Corrupt(f"step {step.number}", fact) from error
    if extension is not None and extension.to >= step.number:  # else a chain might have no end
        fact = f"a list of its arguments extends one of step {extension.to}, which is not before it"
        raise Corrupt(f"step {step.number}", fact)
    return extension


def _grown(more: Appended, name: str, known: dict[int, Any], step: Step) -> list[Any]:
    before: Any = known.get(more.to, {}).get(name)
    if (
        not isinstance(before, list)
        or not isinstance(more.items, list)
        or not 0 <= more.count <= len(before)
    ):
        raise Corrupt(f"step {step.number}", f"argument {name!r} extends a list that is not there")
    whole: list[Any] = [*before[: more.count], *more.items]
    return whole


def run_fetch(fetch: Fetch, get: Callable[[str, int], bytes]) -> Any:
    """Run a fetch with a function that returns the blobs."""
    try:
        request = next(fetch)
        while True:
            request = fetch.send(get(*request))
    except StopIteration as stop:
        return stop.value


# Recorded values stored as ranges of earlier ones, with the rest in full.
#
# The reference for such a value, an argument or a result of a step, is
#
#     `{"$parts": {"sha256": "...", "size": 48213, "of": ["text", [7, 0, 471, "messages"], "]"]}}`
#
# whose pieces, one after the other, are the value's JSON text: `size` its bytes in UTF-8, `sha256`
# their SHA-256. A piece is a text, a text in a blob (as a JSON string), or a range of an argument
# or result of an earlier step of the same agent: `[step, begin, end, argument]` of its argument,
# `[step, begin, end]` of its result. A range counts characters (code points) of that value's whole
# text, so that it is valid for any stored form of that value. A range refers to an earlier version
# of the stream: there is no circle. A fork refers to its parent's steps up to the cut, which are
# its own.
#
# This is the storage format. It is read here, and written by `hansard.agents.steps.payloads`.

TAG = "$parts"
MARK = b'"$parts"'
"""Bytes that are in every value stored as parts."""

PARTS_BYTES_MIN = 100
"""Shortest value stored as parts: their SHA-256 alone takes 64 bytes."""

SIZE_MAX = 256 * 1024 * 1024
"""Largest text that is assembled, in bytes: no larger value is ever recorded."""

RANGES_MAX = 1_000_000
"""Most ranges that one text is assembled from: about two seconds of work and 200 MB."""

KEPT_CHARACTERS_MAX = 4 * 1024 * 1024
"""Characters of the latest assembled texts that a reader keeps: the next ones refer to them."""

SHOWN_BYTES_MAX = 64 * 1024
"""Largest text that is assembled where events are shown or become rows: the largest value ever kept
inside an event. A larger value stays a reference there, as one in a blob does."""

Key = tuple[int, str | None]
"""A step's argument by its name; None: its result."""


class Text(msgspec.Struct, frozen=True):
    """A value on record: the version of its event, and its JSON as stored there."""

    version: int
    raw: bytes


Source = Callable[[Key], Text | None]
"""Finds an agent's recorded value; None where there is no such value."""


class Copy(msgspec.Struct, frozen=True):
    """A range of another value's text."""

    key: Key
    begin: int
    end: int


Piece = str | Blob | Copy


class Parts(msgspec.Struct, frozen=True):
    """The reference for a value that repeats parts of earlier ones."""

    sha256: str
    size: int
    of: list[Any]


_values = msgspec.json.Decoder(dict[str, msgspec.Raw])
_plain = msgspec.json.Decoder()


# ---------------------------------------------------------------- one form


def parts_of(raw: bytes, where: str) -> Parts | None:
    """Return the parts of a recorded value; None where it is stored in full. Raises Corrupt."""
    if MARK not in raw[:64]:
        return None
    try:
        plain = _plain.decode(raw)
        if type(plain) is not dict or plain.keys() != {TAG}:
            return None
        parts = msgspec.convert(plain[TAG], Parts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_ours(where, str(error)) from error
    if not 0 <= parts.size <= SIZE_MAX:
        raise Corrupt(where, f"its size is {parts.size:,} bytes; the limit is {SIZE_MAX:,}")
    return parts


def pieces_of(parts: Parts, where: str) -> list[Piece]:
    """Return the pieces of a value, checked. Raises Corrupt."""
    return [_piece(item, where) for item in parts.of]


def _piece(plain: Any, where: str) -> Piece:
    match plain:
        case str():
            return plain
        case [int() as step, int() as begin, int() as end] if 0 <= begin < end:
            return Copy((step, None), begin, end)
        case [int() as step, int() as begin, int() as end, str() as name] if 0 <= begin < end:
            return Copy((step, name), begin, end)
        case {"$blob": {"sha256": str() as sha256, "size": int() as size}} if len(plain) == 1:
            return Blob(sha256, size)
        case _:
            raise _not_ours(where, f"a part is {plain!r:.80}")


def _not_ours(where: str, why: str) -> Corrupt:
    return Corrupt(where, f"its parts are not as Hansard writes them ({why})")


def arguments_of(raw: bytes | msgspec.Raw, where: str) -> dict[str, msgspec.Raw]:
    """Return a step's arguments by name, each as it is recorded. Raises Corrupt."""
    try:
        return _values.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(where, f"its arguments are not given by name ({error})") from error


def named(key: Key) -> str:
    """Return the name of a value for messages."""
    step, argument = key
    return f"the result of step {step}" if argument is None else f"{argument!r} of step {step}"


# ---------------------------------------------------------------- sources


def of_steps(steps: Callable[[], Mapping[int, Step]]) -> Source:
    """Return a source of an agent's values, from its current steps."""

    def find(key: Key) -> Text | None:
        step = steps().get(key[0])
        if step is None:
            return None
        if key[1] is None:
            if step.outcome_version is None or step.streamed:
                return None
            return Text(step.outcome_version, bytes(step.result))
        raw = arguments_of(step.arguments, f"step {step.number}").get(key[1])
        return None if raw is None else Text(step.version, bytes(raw))

    return find


# ---------------------------------------------------------------- assembly


class Texts:
    """Assembles an agent's texts, and keeps the latest.

    The cost of one text is in proportion to its length and to the number of events that hold a part
    of it: they are read from the newest to the oldest, each once.
    """

    def __init__(self, source: Source, kept_max: int = KEPT_CHARACTERS_MAX) -> None:
        self._source = source
        self._kept_max = kept_max
        self._kept: OrderedDict[Key, str] = OrderedDict()
        self._characters = 0

    def text(self, key: Key, recorded: Text, most: int = SIZE_MAX) -> Fetch:
        """Return the whole JSON text of the value at a key; None where it is stored as parts and
        has more bytes than `most`. Raises Corrupt.
        """
        where = named(key)
        parts = parts_of(recorded.raw, where)
        if parts is None:
            return (yield from _in_full(recorded.raw, where))
        if parts.size > most:
            return None
        kept = self._kept.get(key)
        if kept is None:
            kept = yield from self._assembled(key, recorded, parts)
            self.keep(key, kept)
        return kept

    def keep(self, key: Key, text: str) -> None:
        """Keep a text for later texts that refer to it."""
        if key in self._kept:
            return
        self._kept[key] = text
        self._characters += len(text)
        while self._characters > self._kept_max and len(self._kept) > 1:
            self._characters -= len(self._kept.popitem(last=False)[1])

    def _assembled(self, key: Key, recorded: Text, parts: Parts) -> Fetch:
        walk = _Walk(self._source, key, recorded, parts)
        while (step := walk.next()) is not None:
            at, text, value = step
            kept = self._kept.get(at)
            if kept is not None and at != key:
                walk.take(at, kept)
            elif value is None:
                walk.take(at, (yield from _in_full(text.raw, named(at))))
            else:
                pieces: list[str | Copy] = []
                for piece in pieces_of(value, named(at)):
                    if isinstance(piece, Blob):
                        pieces.append((yield from _of_blob(piece, named(at))))
                    else:
                        pieces.append(piece)
                walk.split(at, text, pieces)
        return walk.end(parts)


def _in_full(raw: bytes, where: str) -> Fetch:
    """Return the text of a value that is stored in full, or as one blob."""
    if raw.startswith(b'{"$blob"'):
        try:
            plain = _plain.decode(raw)
            blob = msgspec.convert(plain["$blob"], Blob) if len(plain) == 1 else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _not_ours(where, str(error)) from error
        if blob is not None:
            raw = yield blob.sha256, blob.size
    elif raw.startswith(b'{"$append"'):
        raise Corrupt(where, "it is referred to as a text, and it is an extended list")
    return _text(raw, where)


def _text(raw: bytes, where: str) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise _not_ours(where, str(error)) from error


def _of_blob(blob: Blob, where: str) -> Fetch:
    data = yield blob.sha256, blob.size
    try:
        return msgspec.json.decode(data, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_ours(where, f"blob {blob.sha256} is no text: {error}") from error


class _Walk:
    """The assembly of one text: the ranges of values that are still needed."""

    def __init__(self, source: Source, key: Key, recorded: Text, parts: Parts) -> None:
        self._source = source
        self._where = named(key)
        self._needed: dict[Key, list[tuple[int, int, int]]] = {key: []}
        self._found: dict[Key, tuple[Text, Parts | None]] = {key: (recorded, parts)}
        self._next: list[tuple[int, int, Key]] = [(-recorded.version, 0, key)]
        self._copied: list[tuple[int, str]] = []
        self._ranges = 0
        self._root: Key | None = key
        self._size = parts.size

    def next(self) -> tuple[Key, Text, Parts | None] | None:
        """Return the newest value of which a range is needed."""
        if not self._next:
            return None
        _, _, key = heapq.heappop(self._next)
        return (key, *self._found[key])

    def take(self, key: Key, text: str) -> None:
        """Copy the needed ranges of a known text."""
        for begin, end, at in self._needed.pop(key):
            if end > len(text):
                raise self._beyond(key, end, len(text))
            self._copied.append((at, text[begin:end]))

    def split(self, key: Key, recorded: Text, pieces: list[str | Copy]) -> None:
        """Translate the needed ranges of this value into ranges of others."""
        lengths = [
            len(piece) if isinstance(piece, str) else piece.end - piece.begin for piece in pieces
        ]
        total = sum(lengths)
        ends = list(itertools.accumulate(lengths))
        if self._root is not None:
            if total > self._size:
                fact = f"its parts have {total:,} characters, its text {self._size:,} bytes"
                raise Corrupt(self._where, fact)
            self._root, ranges = None, [(0, total, 0)]
        else:
            ranges = self._needed.pop(key)
        for begin, end, at in ranges:
            if end > total:
                raise self._beyond(key, end, total)
            here = begin
            for index in range(bisect_right(ends, begin), len(pieces)):
                if here >= end:
                    break
                piece, offset = pieces[index], here - (ends[index] - lengths[index])
                count = min(end - here, lengths[index] - offset)
                place = at + here - begin
                if isinstance(piece, str):
                    self._copied.append((place, piece[offset : offset + count]))
                else:
                    start = piece.begin + offset
                    self._need(piece.key, recorded.version, (start, start + count, place))
                here += count

    def _need(self, key: Key, before: int, target: tuple[int, int, int]) -> None:
        self._ranges += 1
        if self._ranges > RANGES_MAX:
            raise Corrupt(self._where, f"its parts lead to more than {RANGES_MAX:,} others")
        known = self._found.get(key)
        if known is None:
            recorded = self._source(key)
            if recorded is None:
                raise Corrupt(self._where, f"it refers to {named(key)}, which is not on record")
            known = self._found[key] = recorded, parts_of(recorded.raw, named(key))
            heapq.heappush(self._next, (-recorded.version, len(self._found), key))
        if known[0].version >= before:
            raise Corrupt(self._where, f"it refers to {named(key)}, which is not before it")
        self._needed.setdefault(key, []).append(target)

    def _beyond(self, key: Key, end: int, length: int) -> Corrupt:
        fact = f"it refers to {named(key)} up to character {end:,}; that has {length:,}"
        return Corrupt(self._where, fact)

    def end(self, parts: Parts) -> str:
        """Return the text, after checking its size and digest."""
        self._copied.sort()
        text = "".join(part for _, part in self._copied)
        data = text.encode("utf-8", "surrogatepass")
        actual = hashlib.sha256(data).hexdigest()
        if len(data) != parts.size or actual != parts.sha256:
            fact = (
                f"its parts add up to {len(data):,} bytes with SHA-256 {actual}, "
                f"not to the {parts.size:,} with {parts.sha256} that were recorded"
            )
            raise Corrupt(self._where, fact)
        return text


# ---------------------------------------------------------------- a step's values in full


def whole_value(texts: Texts, key: Key, recorded: Text, most: int = SIZE_MAX) -> Fetch:
    """Return a recorded value's JSON with its parts assembled; unchanged where it has none, or more
    bytes than `most`. Blobs are requested only where they are parts. Raises Corrupt.
    """
    if MARK not in recorded.raw[:64] or parts_of(recorded.raw, named(key)) is None:
        return recorded.raw
    text = yield from texts.text(key, recorded, most)
    return recorded.raw if text is None else text.encode("utf-8", "surrogatepass")


def whole_arguments(
    texts: Texts, step: int, version: int, raw: bytes, most: int = SIZE_MAX
) -> Fetch:
    """Return a step's arguments as JSON, each as by `whole_value`. Raises Corrupt."""
    if MARK not in raw:
        return raw
    arguments = arguments_of(raw, f"step {step}")
    for name, value in arguments.items():
        recorded = Text(version, bytes(value))
        arguments[name] = msgspec.Raw((yield from whole_value(texts, (step, name), recorded, most)))
    return msgspec.json.encode(arguments)


class BlobsNeeded(Exception):
    """A part is in a blob, and no blobs are available."""


def without_blobs(fetch: Fetch) -> Any:
    """Return the result of a fetch that needs no blob. Raises BlobsNeeded, Corrupt."""
    try:
        next(fetch)
    except StopIteration as stop:
        return stop.value
    fetch.close()
    raise BlobsNeeded


def whole_step(step: Step, texts: Texts, most: int = SHOWN_BYTES_MAX) -> Step:
    """Return a step with its values assembled where they need no blob and are not larger; a
    reference to a damaged or larger value stays.
    """
    arguments, result = bytes(step.arguments), bytes(step.result)
    if MARK in arguments:
        request = whole_arguments(texts, step.number, step.version, arguments, most)
        step = msgspec.structs.replace(step, arguments=_assembled_or_raw(request, arguments))
    if MARK in result and step.outcome_version is not None:
        request = whole_value(texts, (step.number, None), Text(step.outcome_version, result), most)
        step = msgspec.structs.replace(step, result=_assembled_or_raw(request, result))
    return step


def values_by_parts(steps: Iterable[Step]) -> list[Step]:
    """Return the steps with values that refer to other texts."""
    return [
        step
        for step in steps
        if (len(step.arguments) > PARTS_BYTES_MIN and MARK in bytes(step.arguments))
        or (len(step.result) > PARTS_BYTES_MIN and MARK in bytes(step.result))
    ]


def in_full(steps: dict[int, Step], of: Iterable[int] | None = None) -> None:
    """Replace each step by its `whole_step`, for readers of an agent's steps. `of` limits the
    search to some numbers, where those are known.
    """
    among = steps.values() if of is None else [steps[each] for each in of if each in steps]
    value = values_by_parts(among)
    if not value:
        return
    texts = Texts(of_steps(lambda: steps))
    for step in sorted(value, key=lambda step: step.version):
        steps[step.number] = whole_step(step, texts)


class WholeSteps(Mapping[int, Step]):
    """An agent's steps, each resolved by `whole_step` on access."""

    def __init__(self, steps: Mapping[int, Step]) -> None:
        self._steps = steps
        self._texts = Texts(of_steps(lambda: steps))

    def __getitem__(self, number: int) -> Step:
        """Return a step with its values assembled."""
        return whole_step(self._steps[number], self._texts)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the steps' numbers."""
        return iter(self._steps)

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._steps)


def as_blob(value: Any) -> Any:
    """Return the blob reference for the text of a value stored as parts; other values unchanged.

    For readers that compare values, or keep them beside the blobs.
    """
    match value:
        case {"$parts": {"sha256": str() as sha256, "size": int() as size}} if len(value) == 1:
            return {"$blob": {"sha256": sha256, "size": size}}
        case _:
            return value


def _assembled_or_raw(fetch: Fetch, raw: bytes) -> msgspec.Raw:
    try:
        return msgspec.Raw(without_blobs(fetch))
    except (BlobsNeeded, Corrupt):
        return msgspec.Raw(raw)


LINE_CHARACTERS_MAX = 256 * 1024
"""Characters of the latest texts that are kept for one agent: four of the largest."""


class _StepPayload(msgspec.Struct):
    """The values of a step's event: its arguments or its result."""

    step: int
    arguments: dict[str, msgspec.Raw] | None = None
    result: msgspec.Raw = NULL
    items: int | None = None
    verdict: str = "happened"


_payload_decoder = msgspec.json.Decoder(_StepPayload)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TAGS = frozenset({StepRequested.tag, StepCompleted.tag, StepSettled.tag})


class PartsLine:
    """One agent's values by step, as far as its events were read."""

    def __init__(self) -> None:
        self._found: dict[Key, Text] = {}
        self._texts = Texts(self._found.get, LINE_CHARACTERS_MAX)
        self.bytes = 0
        """Bytes of the kept values."""

    def note(self, tag: str, version: int, data: bytes) -> None:
        """Add an event, in order; one whose data does not match its tag is skipped."""
        if tag not in _TAGS:
            return
        try:
            fields = _payload_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if tag == StepRequested.tag:
            for name, value in (fields.arguments or {}).items():
                self._keep((fields.step, name), version, value)
        elif fields.items is None and fields.verdict == "happened":
            self._keep((fields.step, None), version, fields.result)

    def _keep(self, key: Key, version: int, value: msgspec.Raw) -> None:
        raw = bytes(value)
        self.bytes += len(raw)
        self._found[key] = Text(version, raw)

    def by_parts(self, tag: str, version: int, data: bytes) -> list[tuple[Parts, Fetch]]:
        """Return the values of an event that are stored as parts, each with a fetch of its whole
        text.

        The event was passed to `note` before. Raises Corrupt.
        """
        if MARK not in data or tag not in _TAGS:
            return []
        try:
            fields = _payload_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return []
        values: dict[Key, msgspec.Raw] = {
            (fields.step, name): raw for name, raw in (fields.arguments or {}).items()
        }
        values[fields.step, None] = fields.result
        values_by_parts: list[tuple[Parts, Fetch]] = []
        for key, raw in values.items():
            parts = parts_of(bytes(raw), named(key))
            if parts is not None:
                values_by_parts.append((parts, self._texts.text(key, Text(version, bytes(raw)))))
        return values_by_parts

    def whole(self, tag: str, version: int, data: bytes) -> bytes:
        """Return an event's data with its values resolved, up to 64 KiB each; unchanged where a
        value is larger, or needs a blob. The event was passed to `note` before. Raises Corrupt.
        """
        if MARK not in data or tag not in _TAGS:
            return data
        try:
            fields = _fields.decode(data)
            step = msgspec.json.decode(fields["step"], type=int)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
            raise Corrupt("a step's event", f"it is not as Hansard writes it ({error})") from error
        if "arguments" in fields:
            raws = arguments_of(fields["arguments"], f"step {step}")
            values = {name: self._value((step, name), version, raw) for name, raw in raws.items()}
            fields["arguments"] = msgspec.Raw(msgspec.json.encode(values))
        if "result" in fields:
            fields["result"] = self._value((step, None), version, fields["result"])
        return msgspec.json.encode(fields)

    def _value(self, key: Key, version: int, raw: msgspec.Raw) -> msgspec.Raw:
        """Return a resolved value; unchanged where that needs a blob or is too large."""
        text = Text(version, bytes(raw))
        try:
            return msgspec.Raw(without_blobs(whole_value(self._texts, key, text, SHOWN_BYTES_MAX)))
        except BlobsNeeded:
            return raw
