"""What may be written to a key of a board after what was written, and how much.

`decide` says which events a write leads to, by the rules of `hansard.domain.board`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from hansard.domain import merges
from hansard.domain.board import (
    AmountAdded,
    BoardConflict,
    BoardEvent,
    BoardState,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyChecked,
    KeyRemoved,
    Kind,
    ValueMerged,
    ValuePut,
    Write,
    form,
    initial,
    merged,
    short,
)
from hansard.domain.errors import BadValue, Refused
from hansard.domain.values import SAFE_INT

ITEMS_MAX = 10_000
"""Most items of a list, a set or an object: every reader takes all of them."""

INLINE_BYTES_MAX = 4 * 1024 * 1024
"""Largest state of a key, in bytes of JSON; what is a blob counts as its reference."""

LABELS_MAX = 32
LABEL_LENGTH_MAX = 200

TTL_MS_MAX = 10 * 366 * 24 * 3_600_000
"""Longest time to live: ten years."""


def decide(key: str, state: BoardState, wanted: BoardEvent, now: int) -> Sequence[BoardEvent]:
    """The events that a write leads to at a log time in ns; none where it is so already.

    Raises BoardConflict, Refused (another kind of thing stands there), BadValue (too much).
    """
    absent = state.absent(now)
    expired = absent and state.kind is not None
    stands = None if absent else state.kind
    match wanted:
        case ValuePut():
            _expect(key, state, wanted.expected, now, short(msgspec.json.decode(wanted.value)))
            _fits(key, stands, Kind.VALUE)
            check_terms(key, wanted)
            _bound(key, 0, len(bytes(wanted.value)), 0)
            return (wanted,)
        case KeyRemoved():
            _expect(key, state, wanted.expected, now, "nothing")
            return () if absent else (wanted,)
        case KeyChecked():
            _expect(key, state, wanted.expected, now, "what was read")
            return (wanted,)
        case ItemAppended() | AmountAdded() | ItemIncluded() | ItemDiscarded() | ValueMerged():
            told = _formed(msgspec.structs.replace(wanted, anew=expired))
            now_stands = initial() if absent else state
            return (told,) if _commuting(key, stands, now_stands, told) else ()
        case _:
            assert_never(wanted)


def _formed(wanted: Write) -> Write:
    """What is compared by its RFC 8785 form is recorded in it, so that equal values are equal texts
    to whoever reads the record.
    """
    match wanted:
        case ItemIncluded() | ItemDiscarded():
            return msgspec.structs.replace(wanted, item=msgspec.Raw(form(wanted.item).encode()))
        case ValueMerged():
            return msgspec.structs.replace(wanted, value=msgspec.Raw(form(wanted.value).encode()))
        case _:
            return wanted


def _commuting(key: str, stands: Kind | None, state: BoardState, wanted: Write) -> bool:
    """Whether a write that needs no expectation changes anything."""
    match wanted:
        case AmountAdded():
            _fits(key, stands, Kind.COUNTER)
            if abs(wanted.amount) > SAFE_INT:
                raise BadValue(f"key {key!r}", f"{wanted.amount}", "add less than 2**53 at a time")
            return True
        case ItemAppended():
            _fits(key, stands, Kind.LIST)
            _bound(key, state.size, len(bytes(wanted.item)), len(state.items) + 1)
            return True
        case ItemIncluded():
            _fits(key, stands, Kind.SET)
            item = form(wanted.item)
            _bound(key, state.size, len(item.encode()), len(state.members) + 1)
            return item not in state.members
        case ItemDiscarded():
            _fits(key, stands, Kind.SET)
            return form(wanted.item) in state.members
        case ValueMerged():
            return _merges(key, stands, state, wanted)
        case _:
            return False


def _merges(key: str, stands: Kind | None, state: BoardState, wanted: ValueMerged) -> bool:
    merges.check(wanted.merge, msgspec.json.decode(wanted.value))
    _fits(key, stands, Kind(wanted.merge))
    after = merged(state, wanted, first=stands is None)
    count = len(msgspec.json.decode(after)) if wanted.merge == "union" else 0
    _bound(key, 0, len(bytes(after)), count)
    return stands is None or bytes(after) != bytes(state.value)


def _expect(key: str, state: BoardState, expected: int | None, now: int, mine: str) -> None:
    found = state.version_at(now)
    if expected is not None and expected != found:
        raise BoardConflict(key, expected, found, mine, state)


def _fits(key: str, stands: Kind | None, wanted: Kind) -> None:
    if stands is not None and stands is not wanted:
        message = (
            f"key {key!r} holds a {stands}, not a {wanted}: remove it first, or use another key"
        )
        raise Refused(message)


def _bound(key: str, before: int, more: int, items: int) -> None:
    if before + more > INLINE_BYTES_MAX:
        fact = f"{before + more:,} bytes, the limit is {INLINE_BYTES_MAX:,}"
        raise BadValue(f"key {key!r}", fact, "use several keys, or hand values over by reference")
    if items > ITEMS_MAX:
        fact = f"{items:,} items, the limit is {ITEMS_MAX:,}"
        raise BadValue(f"key {key!r}", fact, "use several keys")


def check_terms(key: str, wanted: ValuePut) -> None:
    """Raise BadValue where a put's labels or time to live are none."""
    if len(wanted.labels) > LABELS_MAX or any(
        len(text) > LABEL_LENGTH_MAX for pair in wanted.labels.items() for text in pair
    ):
        fact = f"{len(wanted.labels)} labels: {wanted.labels!r:.80}"
        limit = f"give at most {LABELS_MAX}, of at most {LABEL_LENGTH_MAX} characters each"
        raise BadValue(f"labels of key {key!r}", fact, limit)
    if wanted.ttl_ms is not None and not 1 <= wanted.ttl_ms <= TTL_MS_MAX:
        fact = f"a time to live of {wanted.ttl_ms} ms"
        raise BadValue(f"ttl of key {key!r}", fact, "give 0.001 s to ten years")
