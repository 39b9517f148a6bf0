"""Spans and log records in the forms in which programs send and store them, read as one form.

OTLP in JSON and protobuf; the JSON of the Python and JavaScript SDKs; exports of Langfuse. A part
that cannot be read is counted with the reason, and the rest is read.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from hansard.agents.memory.search import import_extra
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


class Read(msgspec.Struct):
    """What was read of a request or a file; `refused` has a reason for each part that was not."""

    spans: list[Span] = []
    logs: list[Log] = []
    refused: list[str] = []


# ------------------------------------------------------------ OTLP in JSON


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: _Array | None = None
    kvlist_value: _Pairs | None = None
    bytes_value: str | None = None


class _Pair(msgspec.Struct):
    key: str
    value: _Value | None = None


class _Array(msgspec.Struct):
    values: list[_Value] = []


class _Pairs(msgspec.Struct):
    values: list[_Pair] = []


class _Event(msgspec.Struct, rename="camel"):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[_Pair] = []


class _Link(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""


class _Status(msgspec.Struct):
    code: int | str = 0
    message: str = ""


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    name: str = ""
    parent_span_id: str = ""
    kind: int | str = 0
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_Pair] = []
    events: list[_Event] = []
    links: list[_Link] = []
    status: _Status | None = None


class _Log(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    event_name: str = ""
    body: _Value | None = None
    attributes: list[_Pair] = []


class _Resource(msgspec.Struct):
    attributes: list[_Pair] = []


class _Scope(msgspec.Struct):
    name: str = ""
    version: str = ""


class _OfScope(msgspec.Struct, rename="camel"):
    scope: _Scope | None = None
    spans: list[msgspec.Raw] = []
    log_records: list[msgspec.Raw] = []


class _OfResource(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: list[_OfScope] = []
    scope_logs: list[_OfScope] = []


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_OfResource] = []
    resource_logs: list[_OfResource] = []


_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_ERROR = (2, "STATUS_CODE_ERROR", "ERROR")

_request = msgspec.json.Decoder(_Request)
_span = msgspec.json.Decoder(_Span)
_log = msgspec.json.Decoder(_Log)

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError)
"""Errors of decoding; `Unreadable` is one of them."""


def from_json(data: bytes) -> Read:
    """Read an OTLP request in JSON. Raises Unreadable if it is none."""
    try:
        request = _request.decode(data)
    except BROKEN as error:
        raise Unreadable(f"it is no OTLP request in JSON ({error!s:.200})") from error
    read = Read()
    for group in (*request.resource_spans, *request.resource_logs):
        resource = _pairs(group.resource.attributes if group.resource is not None else [])
        for part in (*group.scope_spans, *group.scope_logs):
            scope = part.scope.name if part.scope is not None else ""
            for raw in part.spans:
                _each(read, partial(_decoded_span, raw, resource, scope))
            for raw in part.log_records:
                _each(read, partial(_decoded_log, raw))
    return read


def _each(read: Read, convert: Callable[[], Span | Log]) -> None:
    try:
        built = convert()
    except BROKEN as error:
        read.refused.append(f"{error!s:.200}")
        return
    if isinstance(built, Span):
        read.spans.append(built)
    else:
        read.logs.append(built)


def _decoded_span(raw: msgspec.Raw, resource: dict[str, Any], scope: str) -> Span:
    return _span_of(_span.decode(raw), resource, scope)


def _decoded_log(raw: msgspec.Raw) -> Log:
    return _log_of(_log.decode(raw))


def _span_of(raw: _Span, resource: dict[str, Any], scope: str) -> Span:
    status = raw.status or _Status()
    return Span(
        trace=_id(_TRACE, "traceId", raw.trace_id),
        id=_id(_SPAN, "spanId", raw.span_id),
        name=raw.name,
        parent=_parent(raw.parent_span_id),
        started_ns=_time(raw.start_time_unix_nano),
        ended_ns=_time(raw.end_time_unix_nano),
        failed=status.code in _ERROR,
        message=status.message,
        kind=_kind(raw.kind),
        attributes=_pairs(raw.attributes),
        events=[
            Mark(each.name, _time(each.time_unix_nano), _pairs(each.attributes))
            for each in raw.events
        ],
        resource=resource,
        scope=scope,
        links=[[each.trace_id, each.span_id] for each in raw.links],
    )


def _log_of(raw: _Log) -> Log:
    if not raw.trace_id or not raw.span_id:
        raise Unreadable("a log record without traceId and spanId belongs to no trace")
    attributes = _pairs(raw.attributes)
    name = raw.event_name or str(attributes.get("event.name", ""))
    mark = Mark(
        name,
        _time(raw.time_unix_nano or raw.observed_time_unix_nano),
        attributes,
        _plain(raw.body) if raw.body is not None else None,
    )
    trace, span = _id(_TRACE, "traceId", raw.trace_id), _id(_SPAN, "spanId", raw.span_id)
    return Log(trace, span, mark)


def _id(form: re.Pattern[str], field: str, text: str) -> str:
    built = text.lower().removeprefix("0x")
    if not form.fullmatch(built):
        raise Unreadable(f"{field} {text!r:.80} is not hexadecimal, of the right length, and not 0")
    return built


def _parent(text: str | None) -> str:
    built = (text or "").lower().removeprefix("0x")
    return "" if not built.strip("0") else _id(_SPAN, "parentSpanId", built)


def _time(value: int | str) -> str:
    text = str(value)
    if not (text.isascii() and text.isdigit() and int(text[:21]) < 1 << 63):
        raise Unreadable(f"{text!r:.40} is no time in nanoseconds since 1970")
    return str(int(text))


def _kind(value: int | str) -> int:
    if isinstance(value, str):
        name = value.removeprefix("SPAN_KIND_").removeprefix("SpanKind.")
        return _KINDS.index(name) if name in _KINDS else 0
    return value if 0 <= value < len(_KINDS) else 0


def _pairs(pairs: list[_Pair]) -> dict[str, Any]:
    return {each.key: _plain(each.value) for each in pairs}


def _plain(value: _Value | None, depth: int = 0) -> Any:
    """Return an attribute's value as plain JSON; a number that JSON cannot hold becomes a text."""
    if value is None:
        return None
    if depth > DEPTH_MAX:
        return f"(nested deeper than {DEPTH_MAX})"
    for simple in (value.string_value, value.bool_value, value.bytes_value):
        if simple is not None:
            return simple
    if value.int_value is not None:
        return safe(int(value.int_value))
    if value.double_value is not None:
        return safe(float(value.double_value))
    if value.array_value is not None:
        return [_plain(each, depth + 1) for each in value.array_value.values]
    if value.kvlist_value is not None:
        return {each.key: _plain(each.value, depth + 1) for each in value.kvlist_value.values}
    return None


def safe(value: float) -> int | float | str:
    """Return a number that is recorded exactly, another one as its text."""
    if type(value) is int:
        return value if abs(value) <= SAFE_INT else str(value)
    return value if math.isfinite(value) else str(value)


# ------------------------------------------------------------ OTLP in protobuf


def from_protobuf(data: bytes, *, logs: bool) -> Read:
    """Read an OTLP request in protobuf. Raises Unreadable, ExtraMissing."""
    kind = "logs" if logs else "trace"
    module = f"opentelemetry.proto.collector.{kind}.v1.{kind}_service_pb2"
    built = import_extra(module, "OTLP in protobuf", "opentelemetry-proto", "otel")
    name = f"Export{kind.title()}ServiceRequest"
    try:
        request = getattr(built, name).FromString(data)
    except Exception as error:
        raise Unreadable(f"it is no {name} in protobuf ({error!s:.200})") from error
    read = Read()
    for group in request.resource_logs if logs else request.resource_spans:
        resource = _of_proto(group.resource.attributes)
        for part in group.scope_logs if logs else group.scope_spans:
            for each in part.log_records if logs else part.spans:
                convert: Any = _log_of_proto if logs else _span_of_proto
                scope = part.scope.name
                _each(read, partial(convert, each, resource, scope))
    return read


def _span_of_proto(raw: Any, resource: dict[str, Any], scope: str) -> Span:
    return Span(
        trace=_id(_TRACE, "trace_id", raw.trace_id.hex()),
        id=_id(_SPAN, "span_id", raw.span_id.hex()),
        name=raw.name,
        parent=_parent(raw.parent_span_id.hex()),
        started_ns=_time(raw.start_time_unix_nano),
        ended_ns=_time(raw.end_time_unix_nano),
        failed=raw.status.code == _ERROR[0],
        message=raw.status.message,
        kind=_kind(raw.kind),
        attributes=_of_proto(raw.attributes),
        events=[
            Mark(each.name, _time(each.time_unix_nano), _of_proto(each.attributes))
            for each in raw.events
        ],
        resource=resource,
        scope=scope,
        links=[[each.trace_id.hex(), each.span_id.hex()] for each in raw.links],
    )


def _log_of_proto(raw: Any, _: dict[str, Any], __: str) -> Log:
    if not raw.trace_id or not raw.span_id:
        raise Unreadable("a log record without trace_id and span_id belongs to no trace")
    attributes = _of_proto(raw.attributes)
    time_ns = _time(raw.time_unix_nano or raw.observed_time_unix_nano)
    name = raw.event_name or str(attributes.get("event.name", ""))
    mark = Mark(name, time_ns, attributes, _proto_value(raw.body))
    return Log(
        _id(_TRACE, "trace_id", raw.trace_id.hex()), _id(_SPAN, "span_id", raw.span_id.hex()), mark
    )


def _of_proto(pairs: Any) -> dict[str, Any]:
    return {each.key: _proto_value(each.value) for each in pairs}


def _proto_value(value: Any, depth: int = 0) -> Any:
    kind = value.WhichOneof("value")
    if depth > DEPTH_MAX:
        return f"(nested deeper than {DEPTH_MAX})"
    match kind:
        case None:
            return None
        case "array_value":
            return [_proto_value(each, depth + 1) for each in value.array_value.values]
        case "kvlist_value":
            pairs = value.kvlist_value.values
            return {each.key: _proto_value(each.value, depth + 1) for each in pairs}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "int_value" | "double_value":
            return safe(getattr(value, kind))
        case _:
            return getattr(value, kind)


# ------------------------------------------------------------ files


def from_document(value: Any) -> Iterator[Span | str]:
    """Yield the spans of a decoded JSON document, or the reason why a part is none.

    It is a list of spans, one span, or an object with the spans of a trace of Langfuse.
    """
    if isinstance(value, dict) and isinstance(value.get("observations"), list):
        trace = value.get("trace")
        shared = trace if isinstance(trace, dict) else value
        for each in value["observations"]:
            yield _tried(_langfuse, each, shared)
        return
    for each in value if isinstance(value, list) else [value]:
        yield _tried(_sdk, each, {})


def _tried(convert: Any, raw: Any, shared: Mapping[str, Any]) -> Span | str:
    try:
        built: Span = convert(raw, shared)
    except (*BROKEN, KeyError, AttributeError, OverflowError) as error:
        return str(error) if isinstance(error, Unreadable) else f"it is no span ({error!r:.120})"
    return built


def _sdk(raw: Any, _: Mapping[str, Any]) -> Span:
    """Read a span in the JSON of an SDK: `context` (Python) or `spanContext` (JavaScript)."""
    context = raw.get("context") or raw["spanContext"]
    trace = context.get("trace_id") or context["traceId"]
    parent = raw.get("parent_id") or raw.get("parentSpanId")
    if parent is None and isinstance(raw.get("parentSpanContext"), dict):
        parent = raw["parentSpanContext"].get("spanId")
    status = raw.get("status") or {}
    code = status.get("status_code") or status.get("code") or 0
    resource = (raw.get("resource") or {}).get("attributes") or {}
    return Span(
        trace=_id(_TRACE, "trace id", trace),
        id=_id(_SPAN, "span id", context.get("span_id") or context["spanId"]),
        name=str(raw["name"]),
        parent=_parent(parent),
        started_ns=nanoseconds(raw.get("start_time") or raw["startTime"]),
        ended_ns=nanoseconds(raw.get("end_time") or raw["endTime"]),
        failed=code in _ERROR,
        message=str(status.get("description") or status.get("message") or ""),
        kind=_kind(raw.get("kind") or 0) if isinstance(raw.get("kind"), str) else 0,
        attributes=dict(raw.get("attributes") or {}),
        events=[
            Mark(
                str(each.get("name", "")),
                nanoseconds(each.get("timestamp") or each.get("time") or 0),
                dict(each.get("attributes") or {}),
            )
            for each in raw.get("events") or ()
        ],
        resource=dict(resource),
        scope=str((raw.get("instrumentationScope") or {}).get("name", "")),
    )


def _langfuse(raw: Any, trace: Mapping[str, Any]) -> Span:
    """Read an observation of Langfuse: its own fields become attributes of the table."""
    metadata = decoded(raw.get("metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    attributes = decoded(metadata.get("attributes"))
    attributes = dict(attributes) if isinstance(attributes, dict) else {}
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
    resource = decoded(metadata.get("resourceAttributes"))
    return Span(
        trace=_langfuse_id(_TRACE, str(raw.get("traceId") or trace["id"])),
        id=_langfuse_id(_SPAN, str(raw["id"])),
        name=str(raw.get("name") or kind),
        parent=_langfuse_id(_SPAN, str(raw["parentObservationId"]))
        if raw.get("parentObservationId")
        else "",
        started_ns=nanoseconds(raw["startTime"]),
        ended_ns=nanoseconds(raw.get("endTime") or raw["startTime"]),
        failed=raw.get("level") == "ERROR",
        message=str(raw.get("statusMessage") or ""),
        attributes=attributes,
        resource=dict(resource) if isinstance(resource, dict) else {},
        scope="langfuse",
    )


def _langfuse_id(form: re.Pattern[str], text: str) -> str:
    """Return an id of a span; ids of Langfuse's own SDKs, such as UUIDs, are shortened to one."""
    built = text.replace("-", "").lower()
    size = 32 if form is _TRACE else 16
    try:
        return _id(form, "id", (bytes.fromhex(built).hex() + "0" * size)[:size])
    except (ValueError, binascii.Error):
        return _id(form, "id", text.encode().hex().ljust(size, "1")[-size:])


def nanoseconds(value: Any) -> str:
    """Return a time of an SDK as nanoseconds since 1970: ISO 8601, or seconds and nanoseconds."""
    if isinstance(value, list | tuple) and len(value) == 2:  # noqa: PLR2004 -- JavaScript's hrtime
        return _time(int(value[0]) * 1_000_000_000 + int(value[1]))
    if isinstance(value, str) and not value.isdigit():
        moment = datetime.fromisoformat(value)
        whole = int(moment.replace(microsecond=0).timestamp())
        return _time(whole * 1_000_000_000 + moment.microsecond * 1_000)
    return _time(value)


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
