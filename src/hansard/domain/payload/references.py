"""References inside recorded values, and their resolution.

`{"$blob": {"sha256": "...", "size": 70000}}` refers to the JSON value in a blob. In older records,
`{"$append": {"to": 7, "count": 12, "items": [...], "digest": "..."}}` refers to the first 12 items
of the argument of that name of step 7, followed by the items. For values that repeat parts of
earlier ones see `hansard.domain.payload.parts`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import msgspec

from hansard.domain.errors import Corrupt
from hansard.domain.fingerprint import digest
from hansard.domain.steps import Step
from hansard.domain.values import Plain

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
