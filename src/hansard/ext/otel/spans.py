"""Spans and log records in the forms in which programs send and store them, read as one form.

OTLP in JSON and protobuf; the JSON of the Python and JavaScript SDKs; exports of Langfuse. A part
that cannot be read is counted with the reason, and the rest is read.
"""

from __future__ import annotations

import base64
import importlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from hansard.domain.errors import import_extra
from hansard.domain.values import SAFE_INT

DEPTH_MAX = 64
"""Deepest nesting of an attribute's value; deeper ones are replaced by a text."""

_TRACE, _SPAN = re.compile(r"(?!0{32})[0-9a-f]{32}"), re.compile(r"(?!0{16})[0-9a-f]{16}")


class Unreadable(ValueError):
    """Error: a span, a log record or a whole request is malformed; the text is the reason."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of a span, or a log record that belongs to one; `time_ns` is a decimal text."""

    name: str
    time_ns: str = "0"
    attributes: dict[str, Any] = {}
    body: Any = None


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A span.

    Attributes:
        trace: Its trace's id, 32 hexadecimal digits.
        id: Its id, 16 hexadecimal digits.
        name: Its name.
        parent: The parent's id; empty for a root.
        started_ns: Its start, in nanoseconds since 1970, as a decimal text.
        ended_ns: Its end, in the same form.
        failed: Whether its status is an error.
        message: The status's text.
        kind: The number of its kind in OTLP; 0 is unspecified.
        attributes: Its attributes as plain values.
        events: Its events.
        resource: The attributes of the resource that made it.
        scope: The instrumentation that made it.
        links: Ids of linked traces and spans.
    """

    trace: str
    id: str
    name: str
    parent: str = ""
    started_ns: str = "0"
    ended_ns: str = "0"
    failed: bool = False
    message: str = ""
    kind: int = 0
    attributes: dict[str, Any] = {}
    events: list[Mark] = []
    resource: dict[str, Any] = {}
    scope: str = ""
    links: list[list[str]] = []


class Log(msgspec.Struct, frozen=True):
    """A log record of a span: the ids of the two, and the record."""

    trace: str
    span: str
    mark: Mark


Part = Span | Log | str
"""A span, a log record, or the reason why a part of a request or a file is neither."""


class Read(msgspec.Struct):
    """What was read of a request or a file; `refused` has a reason for each part that was not."""

    spans: list[Span] = []
    logs: list[Log] = []
    refused: list[str] = []

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Read:
        """Return parts by their type."""
        read = cls()
        lists: dict[type, list[Any]] = {Span: read.spans, Log: read.logs, str: read.refused}
        for part in parts:
            lists[type(part)].append(part)
        return read


BROKEN = (RecursionError, ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""Errors of decoding; `Unreadable` is one of them."""

_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_ERROR = (2, "STATUS_CODE_ERROR", "ERROR")

T = TypeVar("T")


def _first(raw: Any, *names: str) -> Any:
    """Return the first of the named fields that an object has; None if it has none of them."""
    if not isinstance(raw, dict):
        raise Unreadable(f"{raw!r:.80} is no object with {names[0]}")
    return next((raw[name] for name in names if raw.get(name) is not None), None)


def _get(raw: Any, kind: type[T], *names: str) -> T:
    """Return the same, checked; an empty value of its type for None. Raises Unreadable."""
    value = _first(raw, *names)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise Unreadable(f"{names[0]} {value!r:.80} is no {kind.__name__}")
    return value


def pieces(items: Iterable[T], bytes_max: int, count_max: int) -> Iterator[list[T]]:
    """Yield items in lists of at most so many, and so many bytes of JSON unless one has more."""
    piece: list[T] = []
    size = 0
    for item in items:
        length = len(msgspec.json.encode(item))
        if piece and (len(piece) >= count_max or size + length > bytes_max):
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += length
    if piece:
        yield piece


# ------------------------------------------------------------ OTLP


def from_json(data: bytes) -> Read:
    """Read an OTLP request in JSON. Raises Unreadable if it is none."""
    try:
        return from_request(msgspec.json.decode(data))
    except BROKEN as error:
        raise Unreadable(f"it is no OTLP request in JSON ({error!s:.200})") from error


def from_protobuf(data: bytes, *, logs: bool) -> Read:
    """Read an OTLP request in protobuf. Raises Unreadable, ExtraMissing."""
    message = proto("ServiceRequest", logs=logs)
    json_format = importlib.import_module("google.protobuf.json_format")
    try:
        return from_request(json_format.MessageToDict(message.FromString(data)), base64_ids=True)
    except Exception as error:
        name = message.DESCRIPTOR.name
        raise Unreadable(f"it is no {name} in protobuf ({error!s:.200})") from error


def proto(which: str, *, logs: bool) -> Any:
    """Return the class of a message of OTLP's services. Raises ExtraMissing."""
    kind = "logs" if logs else "trace"
    module = f"opentelemetry.proto.collector.{kind}.v1.{kind}_service_pb2"
    built = import_extra(module, "OTLP in protobuf", "opentelemetry-proto", "otel")
    return getattr(built, f"Export{kind.title()}{which}")


def from_request(request: Any, *, base64_ids: bool = False) -> Read:
    """Read a decoded OTLP request. Raises Unreadable if its outline is that of none."""
    return Read.of(_parts(request, base64_ids=base64_ids))


def _parts(request: Any, *, base64_ids: bool) -> Iterator[Part]:
    groups = [*_get(request, list, "resourceSpans"), *_get(request, list, "resourceLogs")]
    for group in groups:
        resource = _attributes(_get(group, dict, "resource"))
        for each in (*_get(group, list, "scopeSpans"), *_get(group, list, "scopeLogs")):
            scope = _get(_get(each, dict, "scope"), str, "name")
            convert = partial(_span, resource=resource, scope=scope)
            for of, names in ((convert, "spans"), (_log, "logRecords")):
                for raw in _get(each, list, names):
                    yield _tried(of, _hexadecimal(raw) if base64_ids else raw)


def _hexadecimal(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a part of protobuf with its ids, which are base64 there, as they are in JSON."""
    names = ("traceId", "spanId", "parentSpanId")
    ids = {name: base64.b64decode(raw[name]).hex() for name in names if name in raw}
    return {**raw, **ids, "links": [_hexadecimal(each) for each in raw.get("links", ())]}


def _tried(convert: Callable[[Any], Span | Log], raw: Any) -> Part:
    try:
        return convert(raw)
    except BROKEN as error:
        return str(error) if isinstance(error, Unreadable) else f"it is no span ({error!r:.120})"


def _span(raw: Any, resource: dict[str, Any] | None = None, scope: str = "") -> Span:
    """Read a span of OTLP, or of an SDK: with `context` (Python) or `spanContext` (JavaScript)."""
    trace, own = _ids(raw)
    parent = _get(raw, str, "parentSpanId", "parent_id")
    parent = parent or _get(_get(raw, dict, "parentSpanContext"), str, "spanId")
    status = _get(raw, dict, "status")
    links = [list(_ids(each)) for each in _get(raw, list, "links")]
    return Span(
        trace=_id(_TRACE, "traceId", trace),
        id=_id(_SPAN, "spanId", own),
        name=_get(raw, str, "name"),
        parent=_id(_SPAN, "parentSpanId", parent) if parent.strip("0x") else "",
        started_ns=_time(raw, "startTimeUnixNano", "start_time", "startTime"),
        ended_ns=_time(raw, "endTimeUnixNano", "end_time", "endTime"),
        failed=_first(status, "code", "status_code") in _ERROR,
        message=_get(status, str, "message", "description"),
        kind=0 if "spanContext" in raw else _kind(raw.get("kind")),  # JavaScript's are others
        attributes=_attributes(raw),
        events=[
            Mark(
                _get(each, str, "name"),
                _time(each, "timeUnixNano", "timestamp", "time"),
                _attributes(each),
            )
            for each in _get(raw, list, "events")
        ],
        resource=_attributes(_get(raw, dict, "resource")) if resource is None else resource,
        scope=scope or _get(_get(raw, dict, "instrumentationScope"), str, "name"),
        links=links,
    )


def _ids(raw: Any) -> tuple[str, str]:
    context = _get(raw, dict, "context", "spanContext") or raw
    return _get(context, str, "traceId", "trace_id"), _get(context, str, "spanId", "span_id")


def _log(raw: Any) -> Log:
    trace, span = _ids(raw)
    if not trace or not span:
        raise Unreadable("a log record without traceId and spanId belongs to no trace")
    attributes = _attributes(raw)
    name = _get(raw, str, "eventName") or str(attributes.get("event.name", ""))
    time_ns = _time(raw, "timeUnixNano")
    time_ns = _time(raw, "observedTimeUnixNano") if time_ns == "0" else time_ns
    mark = Mark(name, time_ns, attributes, _plain(raw.get("body")))
    return Log(_id(_TRACE, "traceId", trace), _id(_SPAN, "spanId", span), mark)


def _id(form: re.Pattern[str], field: str, text: str) -> str:
    built = text.lower().removeprefix("0x")
    if not form.fullmatch(built):
        raise Unreadable(f"{field} {text!r:.80} is not hexadecimal, of the right length, and not 0")
    return built


def _time(raw: Any, *names: str) -> str:
    """Return a time as nanoseconds since 1970: of OTLP, or an SDK's (ISO 8601, JavaScript's pair).

    Raises Unreadable, and ValueError for an ISO time that is none.
    """
    value = _first(raw, *names)
    text = "0" if value is None else str(value)
    if isinstance(value, list) and len(value) == 2:  # noqa: PLR2004 -- seconds and nanoseconds
        text = str(int(value[0]) * 1_000_000_000 + int(value[1]))
    elif isinstance(value, str) and not value.isdigit():
        text = str(iso_ns(value))
    if not (text.isascii() and text.isdigit() and int(text[:21]) < 1 << 63):
        raise Unreadable(f"{text!r:.40} is no time in nanoseconds since 1970")
    return str(int(text))


def iso_ns(text: str) -> int:
    """Return a time in ISO 8601, UTC unless it states a zone, as nanoseconds since 1970."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (
        int(moment.replace(microsecond=0).timestamp()) * 1_000_000_000 + moment.microsecond * 1_000
    )


def _kind(value: Any) -> int:
    name = str(value).removeprefix("SPAN_KIND_").removeprefix("SpanKind.")
    if name in _KINDS:
        return _KINDS.index(name)
    return value if isinstance(value, int) and 0 <= value < len(_KINDS) else 0


def _attributes(raw: Any) -> dict[str, Any]:
    """Return the attributes of an object: pairs of OTLP, or an SDK's object."""
    stated = _first(raw, "attributes")
    return dict(stated) if isinstance(stated, dict) else _pairs(raw, "attributes")


def _pairs(raw: Any, name: str, depth: int = 0) -> dict[str, Any]:
    pairs = _get(raw, list, name)
    return {_get(each, str, "key"): _plain(_first(each, "value"), depth) for each in pairs}


def _plain(value: Any, depth: int = 0) -> Any:
    """Return an attribute's value as plain JSON; a number that JSON cannot hold becomes a text."""
    if value is None:
        return None
    if depth > DEPTH_MAX:
        return f"(nested deeper than {DEPTH_MAX})"
    if _first(value, "intValue", "doubleValue") is not None:
        convert = float if "doubleValue" in value else int
        return safe(convert(str(_first(value, "intValue", "doubleValue"))))
    if "arrayValue" in value:
        listed = _get(_get(value, dict, "arrayValue"), list, "values")
        return [_plain(each, depth + 1) for each in listed]
    if "kvlistValue" in value:
        return _pairs(_get(value, dict, "kvlistValue"), "values", depth + 1)
    simple = _first(value, "stringValue", "boolValue", "bytesValue")
    if not isinstance(simple, str | bool | None):
        raise Unreadable(f"{simple!r:.80} is no text")
    return simple


def safe(value: float) -> int | float | str:
    """Return a number that is recorded exactly, another one as its text."""
    if type(value) is int:
        return value if abs(value) <= SAFE_INT else str(value)
    return value if math.isfinite(value) else str(value)


# ------------------------------------------------------------ files


def from_document(value: Any) -> Iterator[Part]:
    """Yield the spans of a decoded JSON document, or the reason why a part is none.

    It is a list of spans, one span, or an object with the spans of a trace of Langfuse.
    """
    if isinstance(value, dict) and isinstance(value.get("observations"), list):
        trace = value.get("trace")
        shared = trace if isinstance(trace, dict) else value
        convert = partial(_langfuse, trace=shared)
        yield from (_tried(convert, each) for each in value["observations"])
    else:
        yield from (_tried(_span, each) for each in (value if isinstance(value, list) else [value]))


def _langfuse(raw: Any, trace: Mapping[str, Any]) -> Span:
    """Read an observation of Langfuse: its own fields become attributes of the table."""
    metadata = decoded_as(dict, raw.get("metadata"))
    attributes = dict(decoded_as(dict, metadata.get("attributes")))
    for side in ("input", "output"):
        if raw.get(side) is not None:
            attributes[f"langfuse.observation.{side}"] = raw[side]
    kind = str(raw.get("type", "")).lower()
    kinds = ("generation", "tool", "agent", "embedding", "retriever")
    if kind in kinds and "ai.operationId" not in attributes:
        attributes.setdefault("openinference.span.kind", kind.upper())
    if raw.get("model"):
        attributes.setdefault("gen_ai.request.model", raw["model"])
    usage = raw.get("usageDetails") or {}
    for name in ("input", "output"):
        if isinstance(usage.get(name), int) and kind == "generation":
            attributes.setdefault(f"gen_ai.usage.{name}_tokens", usage[name])
    if trace.get("sessionId"):
        attributes.setdefault("langfuse.session.id", trace["sessionId"])
    tools = decoded(metadata.get("tools"))
    if isinstance(tools, list):
        attributes.setdefault("ai.prompt.tools", tools)
    parent = raw.get("parentObservationId")
    return Span(
        trace=_langfuse_id(_TRACE, str(raw.get("traceId") or trace["id"])),
        id=_langfuse_id(_SPAN, str(raw["id"])),
        name=str(raw.get("name") or kind),
        parent=_langfuse_id(_SPAN, str(parent)) if parent else "",
        started_ns=_time(raw, "startTime"),
        ended_ns=_time(raw, "endTime", "startTime"),
        failed=raw.get("level") == "ERROR",
        message=str(raw.get("statusMessage") or ""),
        attributes=attributes,
        resource=decoded_as(dict, metadata.get("resourceAttributes")),
        scope="langfuse",
    )


def _langfuse_id(form: re.Pattern[str], text: str) -> str:
    """Return an id of a span; ids of Langfuse's own SDKs, such as UUIDs, are shortened to one."""
    built = text.replace("-", "").lower()
    size = 32 if form is _TRACE else 16
    try:
        return _id(form, "id", (bytes.fromhex(built).hex() + "0" * size)[:size])
    except ValueError:
        return _id(form, "id", text.encode().hex().ljust(size, "1")[-size:])


def decoded(value: Any) -> Any:
    """Return the value of a text that holds JSON, also twice encoded; any other unchanged."""
    for _ in range(3):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            break
    return value


def decoded_as(kind: type[T], value: Any) -> T:
    """Return the same if it is of a type, else an empty value of this type."""
    value = decoded(value)
    return value if isinstance(value, kind) else kind()
