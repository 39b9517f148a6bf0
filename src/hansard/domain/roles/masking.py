"""The visible part of a recorded value: its shown paths, and what masks leave of it.

A mask of a call's arguments or result also holds where a model asks for the call or is sent its
result. These places are known by their form, in the dialects of providers and frameworks: a call
has `arguments`, `args` or `input`, its result is the `content`, `output`, `result` or `response`
of a message or block that names a tool. JSON in a text, or on a line of it, is read. Other text of
a call or a result may hold the masked value, and so may the bytes of an answer as transferred:
these are masked whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hansard.domain.roles.model import Mask, Masking, segment_matches

Remaining = tuple[tuple[str, ...], ...]
"""The segments of a path that remain; () is its end."""

MISSING: Any = object()
"""Replaces a value that is not shown."""

_LISTS = frozenset({"$tuple", "$set", "$frozenset"})


class Masked(msgspec.Struct, frozen=True):
    """A value that masks apply to."""

    value: Any
    masks: tuple[Mask, ...]


Masks = list[tuple[Remaining, Mask]]
Apply = Callable[[Masked], Any]
"""Returns the form of a masked value; it may be MISSING."""


def walk(value: Any, shows: list[Remaining], masks: Masks, apply: Apply) -> Any:
    """Return the visible part of a plain value. Masks of inner values apply before those of outer
    ones.
    """
    here = tuple(mask for rest, mask in masks if not rest)
    deeper = [(rest, mask) for rest, mask in masks if rest]
    if () in shows:
        shows = [()]
    match value:
        case {"$append": dict() as tail} if len(value) == 1:
            # The extended step, the count and the digest reveal another event.
            items = walk(tail.get("items"), shows, deeper, apply)
            out = items if items is MISSING else {"$append": {"items": items}}
        case {"$value": {"tag": str(), "data": data} as tail} if len(value) == 1:
            into, whole = _through(data, deeper)
            kept = walk(data, shows, into, apply)
            out = kept if kept is MISSING else {"$value": {**tail, "data": kept}}
            if whole and out is not MISSING:
                out = apply(Masked(out, whole))
        case {"$parts": dict() as tail} if len(value) == 1:
            # Too large to assemble, damaged, or in a blob: no path leads into it, and its ranges
            # belong to other events.
            of = tail.get("of")
            own = [it for it in of if isinstance(it, str | dict)] if isinstance(of, list) else []
            shown = {"$parts": {"size": tail.get("size"), "of": own}}
            out = _leaf(shown, shows, deeper, apply)
        case {"$map": list() as pairs} if len(value) == 1:
            pairs_shown = [_pair(pair, shows, deeper, apply) for pair in pairs]
            out = _or_missing({"$map": _there(pairs_shown)}, shows, empty=not _there(pairs_shown))
        case dict() if len(value) == 1 and next(iter(value))[:1] == "$":
            [(tag, inner)] = value.items()
            if tag in _LISTS and isinstance(inner, list):
                kept = _there([walk(item, shows, deeper, apply) for item in inner])
                out = _or_missing({tag: kept}, shows, empty=not kept)
            else:
                out = _leaf(value, shows, deeper, apply)
        case dict():
            entries = {name: _entry(name, it, shows, deeper, apply) for name, it in value.items()}
            shown = {name: it for name, it in entries.items() if it is not MISSING}
            out = _or_missing(shown, shows, empty=not shown)
        case list():
            kept = _there([walk(item, shows, deeper, apply) for item in value])
            out = _or_missing(kept, shows, empty=not kept)
        case _:
            out = _leaf(value, shows, deeper, apply)
    if out is MISSING or not here:
        return out
    return apply(Masked(out, here))


def _through(data: Any, masks: Masks) -> tuple[Masks, tuple[Mask, ...]]:
    """Return the masks that apply inside a registered type's data, and those that mask the whole
    value.

    A path of the latter has no name in the data, and its value may be anywhere in it (a frame's
    column in its bytes).
    """
    names = list(data) if isinstance(data, dict) else []
    into: Masks = []
    whole: list[Mask] = []
    for rest, mask in masks:
        if any(segment_matches(rest[0], name) for name in names):
            into.append((rest, mask))
        else:
            whole.append(mask)
    return into, tuple(whole)


def _there(items: list[Any]) -> list[Any]:
    return [item for item in items if item is not MISSING]


def _or_missing(value: Any, shows: list[Remaining], *, empty: bool) -> Any:
    """Return a container; MISSING where only parts of it are shown and none of them exist."""
    return MISSING if empty and shows != [()] else value


def _leaf(value: Any, shows: list[Remaining], deeper: Masks, apply: Apply) -> Any:
    if shows != [()]:
        return MISSING
    if not deeper or value is None or isinstance(value, bool | int | float):
        return value
    masks = tuple(mask for _, mask in deeper)
    if any(mask.how is Masking.TRUNCATE for mask in masks) and isinstance(value, str):
        return MISSING  # the mask names a text inside; a cut would be of another text
    return apply(Masked(value, masks))


def _entry(name: str, value: Any, shows: list[Remaining], masks: Masks, apply: Apply) -> Any:
    below = shows if shows == [()] else [s[1:] for s in shows if segment_matches(s[0], name)]
    if not below:
        return MISSING
    inside = [(rest[1:], mask) for rest, mask in masks if segment_matches(rest[0], name)]
    return walk(value, below, inside, apply)


def _pair(pair: Any, shows: list[Remaining], masks: Masks, apply: Apply) -> Any:
    """Return a map's visible key and value. A key that is no text or integer may match any mask."""
    match pair:
        case [str() | int() as key, value] if not isinstance(key, bool):
            kept = _entry(str(key), value, shows, masks, apply)
        case [_, value] if shows == [()] and all(it.how is not Masking.TRUNCATE for _, it in masks):
            kept = walk(value, shows, [((), mask) for _, mask in masks], apply)
        case _:
            return MISSING
    return MISSING if kept is MISSING else [pair[0], kept]


class CallMasks(msgspec.Struct, frozen=True):
    """The masks of calls: the paths into their arguments, and into their results."""

    arguments: Masks
    results: Masks

    @property
    def opaque(self) -> Masks:
        """All masks, of a value that cannot be read but may hold the masked ones."""
        return _inside([*self.arguments, *self.results])


def _inside(masks: Masks) -> Masks:
    """Return masks as those of a value inside of another one, under any name."""
    return [((("", ""), *rest), mask) for rest, mask in masks]


_ABOUT_TOOLS = re.compile("tool|function|mcp_call|input_json", re.IGNORECASE)

_KINDS = ("type", "kind", "part_kind", "part_delta_kind", "event", "event_kind", "role")
"""Fields that name the kind of a message or block."""

_IDS = re.compile(r"tool|tool_?(call_?|use_?)?(id|name)(_\d+)?|call_?id", re.IGNORECASE)

_ARGUMENTS = re.compile("argument|partial_?(args|json)|tool_?(args|input)", re.IGNORECASE)
_CALL_ARGUMENTS = re.compile("action|args|delta|input|parameters|snapshot", re.IGNORECASE)
_NAMED_ARGUMENTS = frozenset({"args", "delta", "input", "parameters"})
_RESULTS = re.compile(
    "artifact|content|items|observation|output|parts|response|result|return|text", re.IGNORECASE
)
_BLOCKS = re.compile(f"{_RESULTS.pattern}|data|json|value|^[$]", re.IGNORECASE)
"""Fields of a result, as it is sent to a model, in which a text may be all or part of it."""

_HINTS = re.compile(rb"(?i)arg|call|chunk|function|input|param|partial|tool|\$|\\u")
"""A value without any of these holds no call."""

_json = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def may_hold_calls(raw: bytes) -> bool:
    """Return False for JSON in which no call can be; True may be wrong."""
    return _HINTS.search(raw) is not None


class CallMasker:
    """Masks the calls in a value: requests of a model, and results that it was sent."""

    def __init__(self, masks: CallMasks, apply: Apply) -> None:
        self._masks, self._apply = masks, apply

    def value(self, value: Any, parent: str = "") -> Any:
        """Return a value with the calls in it masked. `parent` is the name of its field."""
        match value:
            case str():
                return self._text(value, parent)
            case list():
                return _there([self.value(each, parent) for each in value])
            case {"$parts": _} | {"$blob": _} if len(value) == 1:
                return walk(value, [()], self._masks.opaque, self._apply)
            case {"$map": list() as pairs} if len(value) == 1:
                return {"$map": _there([self._pair(pair, pairs, parent) for pair in pairs])}
            case {"$value": {"tag": str() as tag, "data": data} as tail} if len(value) == 1:
                made = self.value(data, f"{parent} {tag}")
                return made if made is MISSING else {"$value": {**tail, "data": made}}
            case {"chunk": {"ms": _, **rest} as chunk} if len(value) == 1 and rest:
                return {"chunk": self._opaque(chunk, ("base64", "data"))}
            case dict() if len(value) == 1 and next(iter(value))[:1] == "$":
                [(tag, inner)] = value.items()
                made = self.value(inner, parent)
                return made if made is MISSING else {tag: made}
            case dict():
                of_call = _is_of_call(value, parent)
                entries = {
                    name: self._entry(name, it, value, of_call=of_call)
                    for name, it in value.items()
                }
                return {name: it for name, it in entries.items() if it is not MISSING}
            case _:
                return value

    def _text(self, text: str, parent: str) -> Any:
        """Return a text with the calls in it masked, if it is JSON or lines of it have JSON."""
        parsed = _parsed(text)
        if parsed is not None:
            made = self.value(parsed, parent)
            return text if made == parsed else _as_text(made)
        return "".join(self._line(line, parent) for line in text.splitlines(keepends=True))

    def _line(self, line: str, parent: str) -> str:
        for first, last in ("{}", "[]"):
            begin, end = line.find(first), line.rfind(last) + 1
            parsed = _parsed(line[begin:end]) if 0 <= begin < end else None
            made = self.value(parsed, parent)
            if made != parsed:
                text = "" if made is MISSING else _as_text(made)
                line = line[:begin] + text + line[end:]
        return line

    def _opaque(self, value: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        made = {
            name: walk(it, [()], self._masks.opaque, self._apply) if name in names else it
            for name, it in value.items()
        }
        return {name: it for name, it in made.items() if it is not MISSING}

    def _pair(self, pair: Any, pairs: list[Any], parent: str) -> Any:
        named = {it[0]: it[1] for it in pairs if isinstance(it, list) and type(it[0]) is str}
        match pair:
            case [str() as name, it]:
                made = self._entry(name, it, named, of_call=_is_of_call(named, parent))
                return MISSING if made is MISSING else [name, made]
            case _:
                return self.value(pair, parent)

    def _entry(self, name: str, value: Any, beside: Mapping[str, Any], *, of_call: bool) -> Any:
        """Return a field of an object, masked by its name and by what is beside it."""
        if of_call and name in _KINDS:
            return value
        is_named = name in _NAMED_ARGUMENTS and isinstance(beside.get("name"), str)
        is_readable = isinstance(value, dict) or _parsed(value) is not None
        if (of_call and (_ARGUMENTS.search(name) or _CALL_ARGUMENTS.search(name))) or (
            (_ARGUMENTS.search(name) or is_named) and (is_readable or name == "partial_json")
        ):
            return self._arguments(value, is_whole="partial" not in name.lower())
        if of_call and _RESULTS.search(name) and not _IDS.fullmatch(name):
            return self.result(value)
        inherits = of_call and isinstance(value, dict)
        return self.value(value, "tool" if inherits else name)

    def _arguments(self, value: Any, *, is_whole: bool = True) -> Any:
        """Return arguments masked. is_whole: False for a part of them, whose fields may be others
        than those of the arguments.
        """
        parsed = _parsed(value)
        if parsed is not None:
            return _as_text(self._arguments(parsed, is_whole=is_whole))
        if isinstance(value, str) or not is_whole:  # or no JSON: a cut would be of another text
            return walk(value, [()], _inside(self._masks.arguments), self._apply)
        return walk(self.value(value), [()], self._masks.arguments, self._apply)

    def result(self, value: Any) -> Any:
        """Return a result that was sent to a model, masked."""
        parsed = _parsed(value)
        whole = [(rest, mask) for rest, mask in self._masks.results if not rest]
        inner = self._result(value if parsed is None else parsed, is_read=parsed is not None)
        masked = inner if inner is MISSING else walk(inner, [()], whole, self._apply)
        return masked if parsed is None else _as_text(masked)

    def _result(self, value: Any, *, is_read: bool) -> Any:
        """Return a result with its inner values masked, at any depth. is_read: it was read from a
        text, so that its fields are those of the tool's result.
        """
        deeper = [(rest, mask) for rest, mask in self._masks.results if rest]
        match value:
            case list():
                return _there([self._result(each, is_read=is_read) for each in value])
            case dict():
                calls = self.value(value)
                if not isinstance(calls, dict):
                    return calls
                inner = {name: self._part(name, it, is_read=is_read) for name, it in calls.items()}
                there = {name: it for name, it in inner.items() if it is not MISSING}
                return walk(there, [()], deeper, self._apply)
            case _:
                parsed = _parsed(value)
                if parsed is not None:
                    return _as_text(self._result(parsed, is_read=True))
                return walk(value, [()], deeper, self._apply)

    def _part(self, name: str, value: Any, *, is_read: bool) -> Any:
        """Return a field of a result; in a message's block, a text may be the result."""
        is_text = isinstance(value, str) and _parsed(value) is None
        if is_text and (is_read or name in _KINDS or not _BLOCKS.search(name)):
            return value
        if isinstance(value, list) and not _BLOCKS.search(name):  # its texts are those of the field
            return [
                it if isinstance(it, str) else self._result(it, is_read=is_read) for it in value
            ]
        return self._result(value, is_read=is_read)


def _is_of_call(value: Mapping[str, Any], parent: str) -> bool:
    """Return whether an object is a call of a tool or its result, by its kind or ids."""
    if any(_IDS.fullmatch(name) for name in value):
        return True
    words = (parent, *(value.get(name) for name in _KINDS))
    return any(isinstance(each, str) and _ABOUT_TOOLS.search(each) for each in words)


def _parsed(text: Any) -> Any:
    """Return the object or list that a text is as JSON, or as JSON in a text; None for another
    value.
    """
    if not isinstance(text, str):
        return None
    try:
        value = _json.decode(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict | list) else _parsed(value)


def _as_text(value: Any) -> Any:
    return value if value is MISSING else _encoder.encode(value).decode()
