"""Spans on record: a stream for each trace, and the run that is made of it once it has ended.

A span is recorded when it arrives, and counts once however often its exporter sends it. When the
trace is quiet its spans become a run (`observed`), in one piece. What arrives later becomes another
run of the trace, its next part, so that no span is lost and none counts twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive_all
from hansard.bus.errors import Conflict
from hansard.bus.log import Stored
from hansard.domain import values
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.events import Event
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import RunStream, WorkspaceStream
from hansard.domain.payload import reference
from hansard.domain.redaction import Redaction
from hansard.domain.steps import NO_ATTRIBUTES
from hansard.ext.otel import KIND, LogObserved, SpanObserved, TraceMapped, observed
from hansard.ext.otel.spans import Log, Mark, Span, pieces
from hansard.extending import C_co, Noun, operation, states
from hansard.inspect.trace import Payloads

BY = "otel"
"""Author of what is recorded of traces."""

SPANS_MAX = 20_000
"""Most spans and log records of one trace; further ones are refused."""

SPAN_BYTES_MAX = 8 * 1024 * 1024
"""Largest span, in bytes of JSON."""

COMMIT_BYTES_MAX = 160 * 1024
"""Bytes of spans in one commit."""


class Recorded(msgspec.Struct):
    """Result of recording spans: new ones, and those that were not recorded, with the reasons."""

    new: int = 0
    again: int = 0
    refused: list[str] = []


async def record_spans(
    workspace: Workspace, spans: Iterable[Span], logs: Iterable[Log] = ()
) -> Recorded:
    """Record spans and log records that are not on record yet. Raises the log's errors."""
    result = Recorded()
    parts: list[Span | Log] = [*spans, *logs]
    by_trace, blobs, result.refused = await asyncio.to_thread(_packed, parts, workspace.redaction)
    for blob in blobs:
        await workspace.blobs.put(blob)
    for trace, events in by_trace.items():
        for some in pieces(events, COMMIT_BYTES_MAX, SPANS_MAX):
            await _append(workspace, trace, some, result)
    return result


async def _append(workspace: Workspace, trace: str, some: list[Event], result: Recorded) -> None:
    new: list[Event] = []
    above = 0

    def decide(stored: Sequence[Stored]) -> list[Event]:
        nonlocal new, above
        known = {_key(each): each for each in revive_all(each.commit for each in stored)}
        count = len(known)
        for each in some:
            known.setdefault(_key(each), each)
        new = [*known.values()][count:]
        above = min(len(new), max(0, len(known) - SPANS_MAX))
        return new[: len(new) - above]

    await workspace.repository.record(WorkspaceStream(KIND, trace), BY, decide)
    result.new += len(new) - above
    result.again += len(some) - len(new)
    result.refused += [f"trace {trace} has {SPANS_MAX:,} spans already"] * above


def _key(built: Event) -> str:
    """Return what identifies a span or a log record in its trace."""
    match built:
        case SpanObserved():
            return built.span
        case LogObserved():
            return f"{built.span} {built.digest}"
        case TraceMapped():
            return f"part {built.part}"
        case _:
            return built.tag


Packed = tuple[dict[str, list[Event]], list[bytes], list[str]]
"""Events by trace; blobs to store before them; reasons of refused parts."""


def _packed(parts: list[Span | Log], redaction: Redaction | None) -> Packed:
    """Return the events of spans and log records."""
    by_trace: dict[str, list[Event]] = {}
    blobs: list[bytes] = []
    refused: list[str] = []
    for each in parts:
        try:
            built, own = _event(each)
            if redaction is not None and any(map(redaction.holds, own)):
                fact = "has a secret in a text that is too large to replace it there"
                raise BadValue(f"span of {each.trace}", fact, "leave the text out")
        except CallerError as error:
            refused.append(str(error))
            continue
        blobs += own
        by_trace.setdefault(each.trace, []).append(built)
    return by_trace, blobs, refused


def _event(each: Span | Log) -> tuple[Event, list[bytes]]:
    """Return the event of a span or a log record, and its blobs. Raises CallerError."""
    if isinstance(each, Log):
        value = {"attributes": each.mark.attributes, "body": each.mark.body}
        [content], blobs = _fields(value)
        mark = values.plain([each.mark.name, each.mark.time_ns, value], "log record")
        digest = hashlib.sha256(canonical(mark)).hexdigest()[:32]
        built = LogObserved(
            span=each.span,
            name=each.mark.name[:NAME_MAX],
            time_ns=each.mark.time_ns,
            digest=digest,
            content=content,
        )
        return built, blobs
    size = len(msgspec.json.encode(each))
    if size > SPAN_BYTES_MAX:
        remedy = f"send at most {SPAN_BYTES_MAX:,}"
        raise BadValue(f"span {each.id} of {each.trace}", f"it has {size:,} bytes", remedy)
    more: dict[str, Any] = {}
    if each.events:
        more["events"] = msgspec.to_builtins(each.events)
    if each.links:
        more["links"] = each.links
    (attributes, resource, more_raw), blobs = _fields(each.attributes, each.resource, more)
    span = SpanObserved(
        span=each.id,
        name=each.name[:NAME_MAX],
        message=values.recordable(each.message, None),
        scope=each.scope[:NAME_MAX],
        **{name: getattr(each, name) for name in SAME},
        attributes=attributes,
        resource=resource,
        more=more_raw,
    )
    return span, blobs


SAME = ("parent", "started_ns", "ended_ns", "failed", "kind")
"""Fields of a span that are recorded unchanged."""

NAME_MAX = 1_000
"""Longest name of a span on record, in characters; a longer one is cut."""


def _fields(*some: dict[str, Any]) -> tuple[list[msgspec.Raw], list[bytes]]:
    """Return fields as they are recorded together in one event, and their blobs."""
    plains = [values.plain(fields, "span") for fields in some]
    packed = [payloads.pack_arguments(each) for each in plains if isinstance(each, dict)]
    raws = [each.raw for each in packed]
    if sum(len(bytes(raw)) for raw in raws) <= COMMIT_BYTES_MAX:
        return raws, [blob for each in packed for blob in each.blobs]
    encoded = [msgspec.json.encode(each) for each in plains]
    return [values.dump(reference(each)) for each in encoded], encoded


# ------------------------------------------------------------ runs


class Trace(msgspec.Struct):
    """A trace on record: its spans by part, and its runs."""

    spans: list[Span] = []
    logs: list[Log] = []
    parts: list[TraceMapped] = []


async def read_trace(workspace: Workspace, trace: str, part: int | None = None) -> Trace:
    """Return the spans of a part of a trace; without `part` those that are no run yet."""
    built = Trace()
    for stored in await workspace.log.read(WorkspaceStream(KIND, trace)):
        for each in revive_all([stored.commit]):
            if isinstance(each, TraceMapped):
                built.parts.append(each)
                if part == each.part:
                    return built
                built.spans, built.logs = [], []
            elif isinstance(each, SpanObserved):
                built.spans.append(await _span(workspace, trace, each))
            elif isinstance(each, LogObserved):
                content = await _fetched(workspace, each.content)
                attributes = content.get("attributes") or {}
                mark = Mark(each.name, each.time_ns, attributes, content.get("body"))
                built.logs.append(Log(trace, each.span, mark))
    return built


async def _span(workspace: Workspace, trace: str, built: SpanObserved) -> Span:
    more = await _fetched(workspace, built.more)
    return Span(
        trace=trace,
        id=built.span,
        **{name: getattr(built, name) for name in ("name", "message", "scope", *SAME)},
        attributes=await _fetched(workspace, built.attributes),
        resource=await _fetched(workspace, built.resource),
        events=msgspec.convert(more.get("events", []), list[Mark]),
        links=more.get("links", []),
    )


async def _fetched(workspace: Workspace, raw: msgspec.Raw) -> dict[str, Any]:
    if raw == NO_ATTRIBUTES:
        return {}
    value = values.revive(await Payloads(workspace).value(raw))
    return value if isinstance(value, dict) else {}


class _Grown(Exception):
    """Raised if spans of a trace arrived while a run was made of it."""


GROWN_MAX = 10
"""Most consecutive attempts to make a run of a trace that grows meanwhile."""


async def make_run(workspace: Workspace, trace: str) -> observed.Mapped | None:
    """Make a run of the spans of a trace that are none yet.

    Returns it; None if there is none, or spans keep arriving. The decision is recorded first: after
    a kill, the same spans become the same run. Raises CallerError if a span cannot be mapped, and
    the log's errors.
    """
    for _ in range(GROWN_MAX):
        try:
            last = await _decided(workspace, trace)
        except _Grown:
            continue
        if last is None or not last.calls:
            return None
        return await write_run(workspace, trace, last.part)
    return None


async def _decided(workspace: Workspace, trace: str) -> TraceMapped | None:
    """Record that the spans which are no run yet become one; return the newest such event."""
    content = await read_trace(workspace, trace)
    calls = await asyncio.to_thread(observed.observations, content.spans, content.logs)
    last: TraceMapped | None = None

    def decide(stored: Sequence[Stored]) -> list[Event]:
        nonlocal last
        last, spans = None, 0
        for each in revive_all(commit.commit for commit in stored):
            if isinstance(each, TraceMapped):
                last, spans = each, 0
            elif isinstance(each, SpanObserved):
                spans += 1
        if not spans:
            return []
        if spans != len(content.spans):
            raise _Grown
        part = last.part + 1 if last is not None else 1
        run = observed.run_of_trace(trace, part)
        last = TraceMapped(run=run, part=part, spans=spans, calls=len(calls))
        return [last]

    await workspace.repository.record(WorkspaceStream(KIND, trace), BY, decide)
    return last


async def write_run(workspace: Workspace, trace: str, part: int) -> observed.Mapped:
    """Write the run of a part of a trace, unless it is written."""
    content = await read_trace(workspace, trace, part)
    now = workspace.clock.now()
    built = await asyncio.to_thread(
        observed.mapped, trace, part, content.spans, content.logs, now
    )  # a large trace would stop the loop, and each request that it answers
    for blob in built.blobs:
        await workspace.blobs.put(blob)
    try:
        built.new = await workspace.log.append_bulk(built.appends)
    except Conflict:  # it was written to since, by a person who scored or settled it
        if not await workspace.log.read(RunStream(built.run)):
            raise
    return built


# ------------------------------------------------------------ operations

WAITING = "SELECT trace FROM traces WHERE waiting > 0 ORDER BY started_at, trace"


class Traces(Noun[C_co], noun="otel"):
    """Traces of other programs."""

    @operation(needs=states(TraceMapped))
    async def settle(self) -> list[str]:
        """Make runs of all traces that wait, also of those that are not quiet; return their ids."""
        answer = await self.query(WAITING)
        built = [await make_run(self._workspace, trace) for (trace,) in answer.rows]
        return [run.run for run in built if run is not None]
