r"""Python values as plain JSON values and back, without a silent loss.

JSON has no tuple, set, bytes, Decimal, NaN or integer keys; msgspec would silently turn each into
something else. Here each has a tag, an object with one key that starts with `$`:

    $tuple $set $frozenset $map $bytes $bytearray $decimal $int $float $datetime $date $time
    $timedelta $uuid $path   the type of the value
    $fold              a datetime or time in the second of two equal hours (PEP 495), in it
    $text              a text with lone surrogates, which UTF-8 does not have: each as `\ud83d`,
                       a backslash as `\\`
    $value             a value of a registered type, by its tag (`hansard.domain.value_types`), or
                       a record by the name of its class
    $secret            a value that is never recorded, by its name
    $blob $parts       a large value, and one that repeats parts of earlier ones
                       (`hansard.domain.payload`)
    $append            in older records, an earlier list and the items added to it
                       (made by `hansard.agents`, never by `plain`)

A dict with other than str keys, or with a key that starts with `$` or has a lone surrogate, becomes
`$map`, so that no recorded value can be mistaken for a tag.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical
from hansard.domain.value_types import (
    Tagged,
    ValueType,
    exactly,
    fields_of,
    is_exact,
    of_class,
    rebuild,
    record_of,
    recorded_by,
    same_record,
)

DEPTH_MAX = 100
"""Deepest nesting of a value; deeper is refused before anything is written."""

SAFE_INT = 2**53 - 1
"""Largest integer that JSON keeps exact (RFC 8785, section 3.2.2.3)."""

SIZE_MAX = 256 * 1024 * 1024
"""Largest single value, in JSON bytes; a larger one is refused before it is written out."""

CONTAINER_SIZE, ENTRY_SIZE, ITEM_SIZE = 32, 16, 8
"""Least bytes that a list or dict, an entry of a dict and an item of a list count against
`SIZE_MAX`: many small values take about ten times as much memory once written out."""

RECORDED_LENGTH_MAX = 8_000
"""Most characters of a text from outside (an error's, a reason) that are recorded; the rest is cut,
and the cut is marked."""

Plain = Any
"""A value that JSON can hold: None, bool, int, float, str, list, dict with str keys."""

Scrub = Callable[[str], "str | Secret"]
"""Replaces secrets in a text before it is recorded."""


class Secret(msgspec.Struct, frozen=True):
    """A placeholder for a value that is never recorded. A live call gets the value of that `name`
    from a provider.
    """

    name: str


class RecordedText(str):
    """A text that knows its source: it is recorded, and read back, as plain text."""

    __slots__ = ()


def recordable(text: str, scrub: Scrub | None = None) -> str:
    """Return a text from outside as it may be recorded: short enough, in UTF-8, without secrets."""
    scrubbed = scrub(text) if scrub is not None else text  # first: a cut could leave half a secret
    text = scrubbed if isinstance(scrubbed, str) else f"(secret {scrubbed.name})"
    text = text.encode(errors="backslashreplace").decode()
    if len(text) > RECORDED_LENGTH_MAX:
        text = text[:RECORDED_LENGTH_MAX] + f"... ({len(text):,} characters)"
    return text


TOO_LARGE = "bytes once it is written out"
"""End of an error's fact if a value is larger than `SIZE_MAX`."""


class _Walk(msgspec.Struct):
    """The options for writing out one value, and the rest of `SIZE_MAX`.

    Attributes:
        scrub: Replaces secrets in texts.
        by_class: True if a record is recorded with the name of its class.
        losses: Errors of the parts that could not be recorded; None if such a part is an error.
    """

    scrub: Scrub | None = None
    by_class: bool = False
    losses: list[BadValue] | None = None
    left: list[int] = msgspec.field(default_factory=lambda: [SIZE_MAX])

    def take(self, size: int) -> None:
        """Count a part of the value. Raises BadValue."""
        self.left[0] -= size
        if self.left[0] < 0:
            raise _too_large()


def plain(
    value: object, where: str = "value", scrub: Scrub | None = None, *, by_class: bool = False
) -> Plain:
    """Return a value as plain JSON values with tags; `by_class`: records carry their class names.

    Raises BadValue, naming the place inside the value.
    """
    if scrub is None and not by_class:
        return recorded(value, where)[0]
    return _plain(value, where, _Walk(scrub, by_class), 0)


def demand_text(text: str, where: str) -> None:
    """Check that a field of an event can hold a text. Raises BadValue for one with lone surrogates,
    which UTF-8 does not have, or one that is too large.
    """
    if not isinstance(plain(text, where), str):
        raise BadValue(where, f"{text!r:.80}", "give a text without lone surrogates")


def recorded(value: object, where: str = "value") -> tuple[Plain, bool]:
    """Return a value as by `plain`, and whether it took no tag, so that reading it back is the
    identity.

    Most values take no tag, and this takes half the time of a walk that keeps the place of every
    part. Raises BadValue.
    """
    try:
        return _copied(value, 0, [SIZE_MAX]), True
    except _TakesTag:
        return _plain(value, where, _Walk(), 0), False


def approximate(
    value: object, where: str = "value", scrub: Scrub | None = None
) -> tuple[Plain, list[BadValue]]:
    """Return as much of a value as can be recorded, and an error for each part that cannot.

    Such a part is recorded as its description.
    """
    walk = _Walk(scrub, by_class=True, losses=[])
    try:
        return _plain(value, where, walk, 0), walk.losses or []
    except BadValue as error:  # it is too large
        return f"<{_name(value)}: {error.fact}>", [error]


class _TakesTag(Exception):
    """A part of a value takes a tag, or cannot be recorded."""


def _copied(value: Any, depth: int, left: list[int]) -> Plain:
    """Copy a value that takes no tag; `left` holds the rest of `SIZE_MAX`. Raises _TakesTag,
    BadValue.
    """
    kind = type(value)
    if kind is str and (value.isascii() or _is_unicode(value)):
        if len(value) > CONTAINER_SIZE:
            left[0] -= len(value)
            if left[0] < 0:
                raise _too_large()
        return value
    if kind is int and -SAFE_INT <= value <= SAFE_INT:
        return value
    if value is None or kind is bool or (kind is float and math.isfinite(value)):
        return value
    if depth >= DEPTH_MAX:
        raise _TakesTag
    if kind is dict:
        left[0] -= CONTAINER_SIZE + ENTRY_SIZE * len(value)
        if left[0] < 0:
            raise _too_large()
        made: dict[str, Plain] = {}
        for key, item in value.items():
            if type(key) is not str or key[:1] == "$" or not key.isascii():
                raise _TakesTag
            made[key] = _copied(item, depth + 1, left)
        return made
    if kind is list:
        left[0] -= CONTAINER_SIZE + ITEM_SIZE * len(value)
        if left[0] < 0:
            raise _too_large()
        return [_copied(item, depth + 1, left) for item in value]
    raise _TakesTag


def _too_large() -> BadValue:
    fact = f"over {SIZE_MAX:,} {TOO_LARGE}"
    remedy = "pass a reference to it; a part that is used twice is written out twice"
    return BadValue("value", fact, remedy)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _plain(value: Any, where: str, walk: _Walk, depth: int) -> Plain:
    if walk.losses is None:
        return _exact(value, where, walk, depth)
    try:
        return _exact(value, where, walk, depth)
    except BadValue as error:
        if error.fact.endswith(TOO_LARGE):
            raise
        walk.losses.append(error)
        text = f"<{_name(value)}>" if depth else described(value, walk.scrub)
        walk.take(len(text))
        return recordable(text, None)


ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
DESCRIPTION_LENGTH_MAX = 500


def described(value: object, scrub: Scrub | None) -> str:
    """Return a value's repr without its address in memory and without secrets."""
    try:
        text = ADDRESS.sub("", repr(value))
    except Exception as error:  # noqa: BLE001 -- its __repr__ is the program's: it may raise anything
        text = f"<{_name(value)}, whose repr raises {type(error).__name__}>"
    scrubbed = scrub(text) if scrub is not None else text  # first: a cut could leave half a secret
    text = scrubbed if isinstance(scrubbed, str) else f"<secret:{scrubbed.name}>"
    return text.encode(errors="backslashreplace").decode()[:DESCRIPTION_LENGTH_MAX]


def _exact(value: Any, where: str, walk: _Walk, depth: int) -> Plain:
    kind = type(value)
    if kind is str:
        return _text(value, walk)
    if kind is int:
        return value if -SAFE_INT <= value <= SAFE_INT else {"$int": _digits(value, where)}
    if value is None or kind is bool:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth >= DEPTH_MAX:
        raise BadValue(where[:200], f"nested deeper than {DEPTH_MAX}", "flatten it")
    if kind is dict:
        return _mapping(value, where, walk, depth)
    if kind is list:
        return _items(value, where, walk, depth)
    return _tagged(value, where, walk, depth)


def _digits(value: int, where: str) -> str:
    try:
        return str(value)
    except ValueError as error:
        raise BadValue(where, "an integer of over 4,300 digits", "pass it as text") from error


SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|u(d[89a-f][0-9a-f]{2}))")


def _text(value: str, walk: _Walk) -> Plain:
    if walk.scrub is not None:
        scrubbed = walk.scrub(value)
        if isinstance(scrubbed, Secret):
            return {"$secret": scrubbed.name}
        value = scrubbed
    walk.take(len(value))
    if value.isascii() or _is_unicode(value):
        return value
    escaped = value.replace("\\", "\\\\")
    return {"$text": SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped)}


def _unescaped(escaped: str) -> str:
    """Return the text of a `$text`. Raises ValueError for an invalid escape."""
    if _ESCAPED.sub("", escaped).find("\\") >= 0:
        message = "a backslash that escapes nothing"
        raise ValueError(message)
    return _ESCAPED.sub(
        lambda found: chr(int(found[2], 16)) if found[2] is not None else "\\", escaped
    )


def _mapping(value: dict[Any, Any], where: str, walk: _Walk, depth: int) -> Plain:
    walk.take(CONTAINER_SIZE + ENTRY_SIZE * len(value))
    out: dict[str, Plain] = {}
    for key, item in value.items():
        if type(key) is not str or key[:1] == "$":
            break
        if not key.isascii() or walk.scrub is not None:
            checked = _text(key, walk)
            if type(checked) is dict and "$text" in checked:
                break
            if type(checked) is not str:
                raise BadValue(where, f"a secret as a key ({key[:1]}...)", "pass it as a value")
            key = checked  # noqa: PLW2901 -- a scrubbed key replaces the key
        out[key] = _plain(item, f"{where}[{key!r}]", walk, depth + 1)
    else:
        if len(out) != len(value):
            raise BadValue(where, "two keys are the same once secrets are taken out", "rename one")
        return out
    pairs = [
        [
            _plain(key, f"key {key!r:.40} of {where}", walk, depth + 1),
            _plain(item, f"{where}[{key!r:.40}]", walk, depth + 1),
        ]
        for key, item in value.items()
    ]
    return {"$map": pairs}


def _items(values: Iterable[Any], where: str, walk: _Walk, depth: int) -> list[Plain]:
    walk.take(CONTAINER_SIZE)
    return [_plain(item, f"{where}[{i}]", walk, depth + 1) for i, item in enumerate(values)]


def _tagged(value: Any, where: str, walk: _Walk, depth: int) -> Plain:
    """Write a value that JSON cannot hold; the cases are ordered from frequent to rare."""
    if type(value) not in _OWN:
        recording = recorded_by(type(value))
        if recording is not None:
            return _typed(recording, value, where, walk, depth)
    match value:
        case Secret():
            return {"$secret": value.name}
        case Tagged():
            data = _plain(value.data, where, walk, depth + 1)
            return {"$value": {"tag": value.tag, "data": data, **value.more}}
        case tuple() if type(value) is tuple:
            return {"$tuple": _items(value, where, walk, depth)}
        case set() | frozenset():
            items = sorted(_items(value, where, walk, depth), key=canonical)
            return {"$set" if isinstance(value, set) else "$frozenset": items}
        case bytes() | bytearray():
            return _bytes(value, walk)
        case Decimal():
            return {"$decimal": str(value)}
        case datetime():
            fields = {"$datetime": value.isoformat()}
            return {"$fold": fields} if value.fold and _is_ambiguous(value) else fields
        case date():
            return {"$date": value.isoformat()}
        case time():
            fields = {"$time": value.isoformat()}
            return {"$fold": fields} if value.fold and _is_ambiguous(value) else fields
        case timedelta():
            return {"$timedelta": [value.days, value.seconds, value.microseconds]}
        case UUID():
            return {"$uuid": str(value)}
        case PurePath():
            text = str(value)
            if isinstance(value, PureWindowsPath):
                text = value.as_posix()
            checked = _text(text, walk)
            is_secret = type(checked) is dict and "$secret" in checked
            return checked if is_secret else {"$path": checked}
        case _:
            return _record_like(value, where, walk, depth)


def _typed(recording: ValueType, value: Any, where: str, walk: _Walk, depth: int) -> Plain:
    """Write a value of a registered type, after checking that an equal one can be read back."""
    try:
        with exactly():
            encoded = recording.encode(value)
            data = _plain(encoded, where, _Walk(left=walk.left), depth + 1)
            back = recording.decode(revive(data))
        survives = type(back) is type(value) and recording.compares(back, value)
    except BadValue:
        raise
    except Exception as error:
        fact = f"recording it as {recording.tag!r} raised {type(error).__name__}: {error}"
        raise BadValue(where, fact[:500], "give it in another form") from error
    if not survives:
        fact = f"a {_name(value)} that would come back as {back!r:.80}"
        raise BadValue(
            where, fact, f"give it in another form, or correct the encoder of {recording.tag!r}"
        )
    if walk.scrub is not None:
        clean = data
        with exactly():
            data = _plain(encoded, where, _Walk(walk.scrub, left=walk.left), depth + 1)
        if recording.opaque and data != clean:
            fact = f"a {_name(value)} holds a secret, which cannot be replaced in it"
            raise BadValue(where, fact, "take it out of the value")
    return {"$value": {"tag": recording.tag, "data": data}}


def _is_ambiguous(value: datetime | time) -> bool:
    """Return whether a time's fold is recorded.

    The offset of a time with a zone implies it. So it is kept where the same value has to be read
    back, and is no part of a call's identity.
    """
    return value.utcoffset() is None or is_exact()


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _bytes(value: bytes | bytearray, walk: _Walk) -> Plain:
    walk.take(2 * len(value))
    if walk.scrub is not None:
        text = value.decode(errors="surrogateescape")
        scrubbed = walk.scrub(text)
        if isinstance(scrubbed, Secret):
            return {"$secret": scrubbed.name}
        if scrubbed != text:
            value = type(value)(scrubbed.encode(errors="surrogateescape"))
    tag = "$bytearray" if isinstance(value, bytearray) else "$bytes"
    return {tag: base64.b64encode(value).decode()}


def _record_like(value: Any, where: str, walk: _Walk, depth: int) -> Plain:
    """Write records, and subclasses of plain types as the plain value they hold."""
    if isinstance(value, int | float | str | list | dict) and not hasattr(value, "__dict__"):
        return _plain(_plain_value(value), where, walk, depth)
    try:
        if walk.by_class and (record := record_of(value)) is not None:
            data = _plain(record.data, where, walk, depth + 1)
            return {"$value": {"tag": record.tag, "data": data, **record.more}}
        fields = fields_of_record(value)
        if fields is not None:
            return _mapping(fields, where, walk, depth)
        # Sets would otherwise have an order of this process alone.
        order: Any = None if isinstance(value, dict) else "deterministic"
        inner = msgspec.to_builtins(value, builtin_types=_KEPT, order=order)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        _refuse(value, where, error)
    if type(inner) is type(value):
        _refuse(value, where, None)
    return _plain(inner, where, walk, depth)


def _plain_value(value: Any) -> Any:
    """Return the plain value of an instance of a subclass, without the subclass's overrides."""
    match value:
        case int():
            return int.__index__(value)
        case float():
            return float.__float__(value)
        case str():
            return str.__str__(value)
        case list():
            return list(value)
        case _:
            return dict(value)


def fields_of_record(value: Any) -> dict[str, Any] | None:
    """Return a record's fields by their recorded names; None for a value without named fields."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        if config.array_like:
            return None
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {entry: getattr(value, name) for entry, name in names}
        known = {entry: item for entry, item in fields.items() if item is not msgspec.UNSET}
        return known if config.tag_field is None else {config.tag_field: config.tag, **known}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return fields_of(value)


def same(back: Any, value: Any, *, exactly: bool = True) -> bool:
    """Return whether two values are equal, and of equal types at every depth; NaN equals itself.

    `exactly`: of pydantic models, the same fields were set.
    """
    if type(back) is not type(value):
        if isinstance(value, RecordedText):
            return type(back) is str and back == value
        return isinstance(back, PurePath) and isinstance(value, PurePath) and back == value
    recording = of_class(type(value))
    if recording is not None:
        return recording.compares(back, value)
    if isinstance(value, datetime | time):  # two zones' times in a repeated hour are never equal
        return _same_time(back, value)
    if type(value) is dict:
        return len(back) == len(value) and all(
            key in back and same(back[key], item, exactly=exactly) for key, item in value.items()
        )
    if type(value) in (list, tuple):
        return len(back) == len(value) and all(
            same(one, other, exactly=exactly) for one, other in zip(back, value, strict=True)
        )
    return _equal(back, value, exactly=exactly)


def _same_time(back: Any, value: Any) -> bool:
    return bool(
        back.replace(tzinfo=None) == value.replace(tzinfo=None)
        and back.utcoffset() == value.utcoffset()
        and back.fold == value.fold
    )


def _equal(back: Any, value: Any, *, exactly: bool) -> bool:
    judged = same_record(back, value, same) if exactly else None
    if judged is not None:
        return judged
    try:
        if bool(back == value) or bool(value != value and back != back):  # noqa: PLR0124 -- only NaN is unequal to itself
            return True
    except (TypeError, ValueError):  # a field that compares item by item, as an array does
        pass
    fields = fields_of_record(value)
    return fields is not None and same(fields_of_record(back), fields)


_OWN = frozenset(
    {
        *(tuple, set, frozenset, bytes, bytearray, Decimal, UUID, Secret),
        *(datetime, date, time, timedelta),
    }
)
_KEPT = (bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)


def _refuse(value: object, where: str, error: Exception | None) -> NoReturn:
    if isinstance(value, Awaitable):
        fact = f"a {type(value).__qualname__} that was not awaited cannot be recorded"
        raise BadValue(where, fact, "await it, and pass its result") from error
    raise BadValue(
        where,
        f"a {_name(value)} cannot be recorded",
        "pass plain values (dict, list, str, numbers, bytes, dates), a dataclass, Struct or "
        "pydantic model, or register its class: "
        "hansard.value_type(cls, tag=..., encode=..., decode=...)",
    ) from error


def revive(value: Plain, secret: Callable[[str], object] = Secret) -> Any:
    """Return the value behind plain ones. `secret` returns the replacement for a secret, by its
    name.

    Raises BadValue for an unknown tag: nothing else is ever built from recorded data.
    """
    kind = type(value)
    if kind is dict:
        if len(value) == 1:
            [(tag, inner)] = value.items()
            if tag[:1] == "$":
                return _untag(tag, inner, secret)
        return {key: revive(item, secret) for key, item in value.items()}
    if kind is list:
        return [revive(item, secret) for item in value]
    return value


def _untag(tag: str, inner: Plain, secret: Callable[[str], object]) -> Any:
    try:
        match tag:
            case "$tuple":
                return tuple(revive(item, secret) for item in inner)
            case "$set":
                return {revive(item, secret) for item in inner}
            case "$frozenset":
                return frozenset(revive(item, secret) for item in inner)
            case "$map":
                return {revive(key, secret): revive(item, secret) for key, item in inner}
            case "$value":
                more = {name: each for name, each in inner.items() if name not in ("tag", "data")}
                return rebuild(inner["tag"], revive(inner["data"], secret), more)
            case "$fold":
                return revive(inner).replace(fold=1)
            case "$path":
                return Path(revive(inner))
            case "$secret":
                return secret(inner)
            case "$timedelta":
                return timedelta(*inner)
            case _:
                return _SCALARS[tag](inner)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadValue("recorded value", f"{tag!r} is no known tag", "check it") from error


_SCALARS: dict[str, Callable[[Any], object]] = {
    "$int": int,
    "$float": float,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
    "$decimal": Decimal,
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$uuid": UUID,
    "$text": _unescaped,
}

decode: Callable[[bytes], Plain] = msgspec.json.Decoder().decode
"""Decodes recorded JSON bytes to plain values."""


def load(raw: bytes | msgspec.Raw, secret: Callable[[str], object] = Secret) -> Any:
    """Return the value behind recorded JSON bytes."""
    raw = bytes(raw)
    value = decode(raw)
    return revive(value, secret) if b'"$' in raw else value


def dump(value: Plain) -> msgspec.Raw:
    """Encode plain values as recorded JSON bytes."""
    return msgspec.Raw(msgspec.json.encode(value))


# Paths into recorded values: keys of objects and indices of lists, from the outside in.

DOT = "."


def leaves(plain: Plain, within: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Plain]]:
    """Yield every value inside a value that is neither an object nor a list, with its path."""
    if type(plain) is dict:
        for key, each in plain.items():
            yield from leaves(each, (*within, key))
    elif type(plain) is list:
        for index, each in enumerate(plain):
            yield from leaves(each, (*within, str(index)))
    else:
        yield within, plain


def replaced(plain: Plain, within: Sequence[str], value: Plain) -> Plain:
    """Return a value with the value at a path replaced. Raises KeyError where the path does not
    exist.
    """
    if not within:
        return value
    first, rest = within[0], within[1:]
    if type(plain) is dict and first in plain:
        return {**plain, first: replaced(plain[first], rest, value)}
    if type(plain) is list and first.isascii() and first.isdigit() and int(first) < len(plain):
        items = list(plain)
        items[int(first)] = replaced(plain[int(first)], rest, value)
        return items
    raise KeyError(first)
