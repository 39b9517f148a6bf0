"""Python values as plain JSON values and back, without a silent loss.

JSON has no tuple, set, bytes, Decimal, NaN or integer keys; msgspec would turn each into something
else without a word. Here each has a tag, an object with one key that starts with `$`:

    $tuple $set $frozenset $map $bytes $bytearray $decimal $int $float $datetime $date $time
    $timedelta $uuid $path   what the value was
    $value             a value of a registered type, by its tag (`hansard.domain.value_types`)
    $secret            a value that is never recorded, by its name
    $blob $parts       a large value, and one that says in part what earlier ones said
                       (`hansard.domain.payload.parts`)
    $append            in older records, a list told as an earlier list and what was added
                       (made by `hansard.agents`, never by `plain`)

A dict with other than str keys, or with a key that starts with `$`, becomes `$map`, so that no
recorded value can be mistaken for a tag.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Awaitable, Callable, Iterable
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
    made_again,
    of_class,
    recorded_by,
)

DEPTH_MAX = 100
"""Deepest nesting of a value; deeper is refused before anything is written."""

SAFE_INT = 2**53 - 1
"""Largest integer that JSON keeps exact (RFC 8785, section 3.2.2.3)."""

RECORDED_LENGTH_MAX = 8_000
"""Most characters of a text from outside (an error's, a reason) that are recorded; the rest is cut
and said so.
"""

Plain = Any
"""What JSON can say: None, bool, int, float, str, list, dict with str keys."""

Scrub = Callable[[str], "str | Secret"]
"""Replaces secrets in a text before it is recorded."""


class Secret(msgspec.Struct, frozen=True):
    """Stands for a value that is never recorded. A live call gets the value of that `name` from a
    provider.
    """

    name: str


class SaidText(str):
    """A text that knows where it comes from: it is recorded, and read back, as what it says."""

    __slots__ = ()


def recordable(text: str, scrub: Scrub | None = None) -> str:
    """A text from outside as it may be recorded: short enough, in UTF-8, secrets taken out."""
    scrubbed = scrub(text) if scrub is not None else text  # before a cut may leave half a secret
    text = scrubbed if isinstance(scrubbed, str) else f"(secret {scrubbed.name})"
    text = text.encode(errors="backslashreplace").decode()
    if len(text) > RECORDED_LENGTH_MAX:
        text = text[:RECORDED_LENGTH_MAX] + f"... ({len(text):,} characters)"
    return text


def plain(value: object, where: str = "value", scrub: Scrub | None = None) -> Plain:
    """A value as plain JSON values with tags. Raises BadValue, naming the place inside it."""
    return recorded(value, where)[0] if scrub is None else _plain(value, where, scrub, 0)


def recorded(value: object, where: str = "value") -> tuple[Plain, bool]:
    """A value as by `plain`, and whether nothing in it took a tag: made again, that is the
    same. Most are so, and this takes half of what it takes to know the place of all that is in
    them. Raises BadValue.
    """
    try:
        return _copied(value, 0), True
    except _TakesTag:
        return _plain(value, where, None, 0), False


class _TakesTag(Exception):
    """Something in a value takes a tag, or cannot be recorded."""


def _copied(value: Any, depth: int) -> Plain:
    """A copy of a value that takes no tag. Raises _TakesTag."""
    kind = type(value)
    if kind is str and (value.isascii() or _is_unicode(value)):
        return value
    if kind is int and -SAFE_INT <= value <= SAFE_INT:
        return value
    if value is None or kind is bool or (kind is float and math.isfinite(value)):
        return value
    if depth >= DEPTH_MAX:
        raise _TakesTag
    if kind is dict:
        made: dict[str, Plain] = {}
        for key, item in value.items():
            if type(key) is not str or key[:1] == "$" or not key.isascii():
                raise _TakesTag
            made[key] = _copied(item, depth + 1)
        return made
    if kind is list:
        return [_copied(item, depth + 1) for item in value]
    raise _TakesTag


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _plain(value: Any, where: str, scrub: Scrub | None, depth: int) -> Plain:
    kind = type(value)
    if kind is str:
        return _text(value, where, scrub)
    if kind is int:
        return value if -SAFE_INT <= value <= SAFE_INT else {"$int": _digits(value, where)}
    if value is None or kind is bool:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth >= DEPTH_MAX:
        raise BadValue(where[:200], f"nested deeper than {DEPTH_MAX}", "flatten it")
    if kind is dict:
        return _mapping(value, where, scrub, depth)
    if kind is list:
        return [_plain(item, f"{where}[{i}]", scrub, depth + 1) for i, item in enumerate(value)]
    return _tagged(value, where, scrub, depth)


def _digits(value: int, where: str) -> str:
    try:
        return str(value)
    except ValueError as error:
        raise BadValue(where, "an integer of over 4,300 digits", "pass it as text") from error


def _text(value: str, where: str, scrub: Scrub | None) -> Plain:
    if scrub is not None:
        scrubbed = scrub(value)
        if isinstance(scrubbed, Secret):
            return {"$secret": scrubbed.name}
        value = scrubbed
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadValue(where, f"a lone surrogate in {value[:40]!r}", "pass bytes") from error
    return value


def _mapping(value: dict[Any, Any], where: str, scrub: Scrub | None, depth: int) -> Plain:
    out: dict[str, Plain] = {}
    for key, item in value.items():
        if type(key) is not str or key[:1] == "$":
            break
        if not key.isascii() or scrub is not None:
            checked = _text(key, f"key {key[:40]!r} of {where}", scrub)
            if type(checked) is not str:
                raise BadValue(where, f"a secret as a key ({key[:1]}...)", "pass it as a value")
            key = checked  # noqa: PLW2901 -- a scrubbed key replaces the key
        out[key] = _plain(item, f"{where}[{key!r}]", scrub, depth + 1)
    else:
        if len(out) != len(value):
            raise BadValue(where, "two keys are the same once secrets are taken out", "rename one")
        return out
    pairs = [
        [
            _plain(key, f"key {key!r:.40} of {where}", scrub, depth + 1),
            _plain(item, f"{where}[{key!r:.40}]", scrub, depth + 1),
        ]
        for key, item in value.items()
    ]
    return {"$map": pairs}


def _items(values: Iterable[Any], where: str, scrub: Scrub | None, depth: int) -> list[Plain]:
    return [_plain(item, f"{where}[{i}]", scrub, depth + 1) for i, item in enumerate(values)]


def _tagged(value: Any, where: str, scrub: Scrub | None, depth: int) -> Plain:
    """Everything that JSON has no word for; the order is from the often met to the rare."""
    if type(value) not in _OWN:
        found = recorded_by(type(value))
        if found is not None:
            return _typed(found, value, where, scrub, depth)
    match value:
        case Secret():
            return {"$secret": value.name}
        case Tagged():
            data = _plain(value.data, where, scrub, depth + 1)
            return {"$value": {"tag": value.tag, "data": data}}
        case tuple() if type(value) is tuple:
            return {"$tuple": _items(value, where, scrub, depth)}
        case set() | frozenset():
            items = sorted(_items(value, where, scrub, depth), key=canonical)
            return {"$set" if isinstance(value, set) else "$frozenset": items}
        case bytes() | bytearray():
            return _bytes(value, scrub)
        case Decimal():
            return {"$decimal": str(value)}
        case datetime():
            return {"$datetime": value.isoformat()}
        case date():
            return {"$date": value.isoformat()}
        case time():
            return {"$time": value.isoformat()}
        case timedelta():
            return {"$timedelta": [value.days, value.seconds, value.microseconds]}
        case UUID():
            return {"$uuid": str(value)}
        case PurePath():
            text = str(value)
            if isinstance(value, PureWindowsPath):
                text = value.as_posix()
            checked = _text(text, where, scrub)
            return {"$path": checked} if type(checked) is str else checked
        case _:
            return _like(value, where, scrub, depth)


def _typed(found: ValueType, value: Any, where: str, scrub: Scrub | None, depth: int) -> Plain:
    """A value of a registered type, after making sure that an equal one comes back."""
    try:
        with exactly():
            encoded = found.encode(value)
            data = _plain(encoded, where, None, depth + 1)
            back = found.decode(revive(data))
        survives = type(back) is type(value) and found.compares(back, value)
    except BadValue:
        raise
    except Exception as error:
        fact = f"recording it as {found.tag!r} raised {type(error).__name__}: {error}"
        raise BadValue(where, fact[:500], "give it in another form") from error
    if not survives:
        fact = f"a {_name(value)} that would come back as {back!r:.80}"
        raise BadValue(where, fact, f"give it in another form, or mend what encodes {found.tag!r}")
    if scrub is not None:
        clean = data
        with exactly():
            data = _plain(encoded, where, scrub, depth + 1)
        if found.opaque and data != clean:
            fact = f"a {_name(value)} holds a secret, which cannot be replaced in it"
            raise BadValue(where, fact, "take it out of the value")
    return {"$value": {"tag": found.tag, "data": data}}


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _bytes(value: bytes | bytearray, scrub: Scrub | None) -> Plain:
    if scrub is not None:
        text = value.decode(errors="surrogateescape")
        scrubbed = scrub(text)
        if isinstance(scrubbed, Secret):
            return {"$secret": scrubbed.name}
        if scrubbed != text:
            value = type(value)(scrubbed.encode(errors="surrogateescape"))
    tag = "$bytearray" if isinstance(value, bytearray) else "$bytes"
    return {tag: base64.b64encode(value).decode()}


def _like(value: Any, where: str, scrub: Scrub | None, depth: int) -> Plain:
    """Records and subclasses of plain types: recorded as the plain value they hold."""
    if isinstance(value, int | float | str | list | dict) and not hasattr(value, "__dict__"):
        return _plain(_held(value), where, scrub, depth)
    try:
        fields = fields_of_record(value)
        if fields is not None:
            return _mapping(fields, where, scrub, depth)
        # Sets would otherwise come in an order of this process alone.
        order: Any = None if isinstance(value, dict) else "deterministic"
        inner = msgspec.to_builtins(value, builtin_types=_KEPT, order=order)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        _refuse(value, where, error)
    if type(inner) is type(value):
        _refuse(value, where, None)
    return _plain(inner, where, scrub, depth)


def _held(value: Any) -> Any:
    """The plain value that a value of a subclass is, past what the subclass overrides."""
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
    """A record's fields by their recorded names; None for what is no record of names."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        if config.array_like:
            return None
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {told: getattr(value, name) for told, name in names}
        given = {told: item for told, item in fields.items() if item is not msgspec.UNSET}
        return given if config.tag_field is None else {config.tag_field: config.tag, **given}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return fields_of(value)


def same(back: Any, value: Any) -> bool:
    """Equal, and of equal types all the way down; NaN equals itself."""
    if type(back) is not type(value):
        if isinstance(value, SaidText):
            return type(back) is str and back == value
        return isinstance(back, PurePath) and isinstance(value, PurePath) and back == value
    found = of_class(type(value))
    if found is not None:
        return found.compares(back, value)
    if type(value) is dict:
        return len(back) == len(value) and all(
            key in back and same(back[key], item) for key, item in value.items()
        )
    if type(value) in (list, tuple):
        return len(back) == len(value) and all(map(same, back, value))
    return _equal(back, value)


def _equal(back: Any, value: Any) -> bool:
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
        raise BadValue(where, fact, "await it, and give what it comes to") from error
    raise BadValue(
        where,
        f"a {_name(value)} cannot be recorded",
        "pass plain values (dict, list, str, numbers, bytes, dates), a dataclass, Struct or "
        "pydantic model, or register its class: "
        "hansard.value_type(cls, tag=..., encode=..., decode=...)",
    ) from error


def revive(value: Plain, secret: Callable[[str], object] = Secret) -> Any:
    """The value behind `plain` ones. `secret` gives what stands for a secret, by its name.

    Raises BadValue for a tag that is not one: nothing else is ever made from recorded data.
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
                return made_again(inner["tag"], revive(inner["data"], secret))
            case "$secret":
                return secret(inner)
            case "$timedelta":
                return timedelta(*inner)
            case _:
                return _SCALARS[tag](inner)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadValue("recorded value", f"{tag!r} is not a tag of ours", "check it") from error


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
    "$path": Path,
}

_decode = msgspec.json.Decoder().decode


def load(raw: bytes | msgspec.Raw, secret: Callable[[str], object] = Secret) -> Any:
    """The value behind recorded JSON bytes."""
    raw = bytes(raw)
    value = _decode(raw)
    return revive(value, secret) if b'"$' in raw else value


def dump(value: Plain) -> msgspec.Raw:
    """Plain values as recorded JSON bytes."""
    return msgspec.Raw(msgspec.json.encode(value))
