"""Types of values beyond the plain ones, each identified by a stored tag, never by a class.

A value of such a type is recorded as `{"$value": {"tag": ..., "data": ...}}`, its data as plain
values. It is rebuilt only where its type is registered; a reader (a trace, SQL, a page, the
service) gets `Tagged`, which is recorded unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Container, Generator, Mapping
from contextvars import Context, ContextVar
from typing import Any

import msgspec

from hansard.domain.errors import BadValue

TAG = "$value"
TAG_LENGTH_MAX = 200
TAG_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*\.v[0-9]+")
"""Pattern of a type's tag: `acme.order.v1`. The meaning of the data never changes under a tag."""

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
Same = Callable[[Any, Any], bool]


class ValueType(msgspec.Struct, frozen=True):
    """The recording of a class's values.

    `encode` returns a recordable form, `decode` builds an equal value from it; `older` decodes the
    forms of earlier versions, by their tags. `same` compares where `==` does not.

    opaque: its data is packed, so that a secret in it cannot be replaced. plainly: as an argument,
    a value is recorded as the plain value that it is a subclass of.
    """

    cls: type
    tag: str
    encode: Encode
    decode: Decode
    same: Same | None = None
    older: Mapping[str, Decode] = {}
    opaque: bool = False
    plainly: bool = False

    def compares(self, back: Any, value: Any) -> bool:
        """Return whether two values are equal."""
        return bool(self.same(back, value) if self.same is not None else back == value)


class Tagged(msgspec.Struct, frozen=True):
    """A recorded value whose type is not rebuilt here: its tag, its data, and further recorded
    facts by name.
    """

    tag: str
    data: Any
    more: dict[str, Any] = {}

    def __hash__(self) -> int:
        return hash((self.tag, repr(self.data)))


BY_CLASS: dict[type, ValueType] = {}
BY_TAG: dict[str, tuple[ValueType, Decode]] = {}

find_class: list[Callable[[type], ValueType | None]] = []
"""Called for a class that is not registered; finds the types of a loaded package."""

find_tag: list[Callable[[str], ValueType | None]] = []
"""Called for a tag that is not registered. Raises BadValue where its package is not loaded."""

find_fields: list[Callable[[object], dict[str, Any] | None]] = []
"""Called for the fields of a record that is neither a Struct nor a dataclass."""

find_record: list[Callable[[object], Tagged | None]] = []
"""Called for the form of a record with the name of its class; None if the name does not lead to the
class."""

make_record: list[Callable[[Tagged], object]] = []
"""Builds a record from the result of `find_record`. Raises BadValue."""

find_same: list[Callable[[object, object, Same], bool | None]] = []
"""Called to compare two records where `==` is not enough; None for other values."""

RECORD_TAG = "hansard.record.v1"
"""The tag of a record with the name of its class."""

_exact: ContextVar[bool] = ContextVar("exact", default=False)
_reading: ContextVar[bool] = ContextVar("reading", default=False)


def register(made: ValueType) -> None:
    """Register a type under its tags. Raises BadValue for a tag that another class has.

    A class of the same name and module takes the place of the one before: a notebook's cell that
    runs again makes a class again.
    """
    for tag in (made.tag, *made.older):
        if not TAG_PATTERN.fullmatch(tag) or len(tag) > TAG_LENGTH_MAX:
            remedy = "give words with dots and a version, such as 'acme.order.v1'"
            raise BadValue("value_type", f"tag={tag!r:.80}", remedy)
        owner = BY_TAG.get(tag)
        if owner is not None and _name(owner[0].cls) != _name(made.cls):
            fact = f"tag {tag!r} is that of {_name(owner[0].cls)}"
            raise BadValue("value_type", fact, "give another one")
    before = BY_CLASS.get(made.cls)
    if before is not None and before.tag != made.tag and before.tag not in made.older:
        fact = f"{_name(made.cls)} has the tag {before.tag!r}"
        raise BadValue("value_type", fact, f"give older={{{before.tag!r}: decode}}, too")
    BY_CLASS[made.cls] = made
    BY_TAG[made.tag] = made, made.decode
    for tag, decode in made.older.items():
        BY_TAG[tag] = made, decode


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def of_class(cls: type) -> ValueType | None:
    """Return the recording of values of exactly this class; None if it is unknown."""
    known = BY_CLASS.get(cls)
    if known is not None:
        return known
    return next((made for find in find_class if (made := find(cls)) is not None), None)


def recorded_by(cls: type) -> ValueType | None:
    """Return the recording of a value now; None: it is recorded as the plain value it also is."""
    recording = of_class(cls)
    return None if recording is not None and recording.plainly and not _exact.get() else recording


def rebuild(tag: Any, data: Any, more: dict[str, Any]) -> Any:
    """Rebuild the value of a tag, its data and its further recorded facts. Raises BadValue."""
    if type(tag) is not str:
        raise BadValue("recorded value", f"{tag!r:.80} is no tag of a type", "check it")
    if _reading.get():
        return Tagged(tag, data, more)
    if tag == RECORD_TAG:
        for make in make_record:
            return make(Tagged(tag, data, more))
    reader = BY_TAG.get(tag)
    if reader is None:
        made = next((made for find in find_tag if (made := find(tag)) is not None), None)
        reader = (made, made.decode) if made is not None else None
    if reader is None:
        raise BadValue(
            "recorded value",
            f"it is a {tag!r:.80}, a type that is not registered in this process",
            f"call hansard.value_type(cls, tag={tag!r:.80}, ...) before",
        )
    try:
        return reader[1](data)
    except BadValue:
        raise
    except Exception as error:
        fact = f"decode= of {tag!r:.80} raised {type(error).__name__}: {error}"
        raise BadValue("recorded value", fact, "correct it for the recorded data") from error


def fields_of(value: object) -> dict[str, Any] | None:
    """Return the fields of a record of another library; None for other values."""
    return next((record for find in find_fields if (record := find(value)) is not None), None)


def record_of(value: object) -> Tagged | None:
    """Return the form of a record with the name of its class; None for a value that is no
    record.
    """
    return next((record for find in find_record if (record := find(value)) is not None), None)


def attributes_besides(value: object, fields: Container[str]) -> dict[str, Any]:
    """Return the attributes of a record that are not fields, without cached properties."""
    return {
        name: item
        for name, item in getattr(value, "__dict__", {}).items()
        if name not in fields
        and not isinstance(getattr(type(value), name, None), functools.cached_property)
    }


def same_record(back: object, value: object, same: Same) -> bool | None:
    """Return whether two records are the same; None where `==` decides."""
    judged = (find(back, value, same) for find in find_same)
    return next((item for item in judged if item is not None), None)


def is_exact() -> bool:
    """Return whether subclasses of plain types are recorded as themselves."""
    return _exact.get()


@contextlib.contextmanager
def exactly() -> Generator[None]:
    """Record subclasses of plain types as themselves, so that the same type is read back."""
    token = _exact.set(True)
    try:
        yield
    finally:
        _exact.reset(token)


def reading_context() -> Context:
    """Return a new context in which `reading` is active."""
    made = Context()
    made.run(_reading.set, True)  # noqa: FBT003 -- a variable's value
    return made


@contextlib.contextmanager
def reading() -> Generator[None]:
    """Rebuild no value of a registered type: a process that serves or shows records of others runs
    no code for them.
    """
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)
