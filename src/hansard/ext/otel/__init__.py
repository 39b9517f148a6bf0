"""OpenTelemetry: spans of other programs as observed runs, and runs as `gen_ai` spans.

Writes a stream for each trace and the run that is made of it; reads any run to send it.
Offers the receiver of `hansard up --http`, files of spans, the export, and the views spans, traces.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hansard.bus.slices import Slice
from hansard.domain.events import Event, event
from hansard.domain.steps import NO_ATTRIBUTES

KIND = "trace"
"""Kind of the stream of a trace; its name is the trace's id."""


@event("span.observed.v1")
class SpanObserved(Event, frozen=True, kw_only=True):
    """A span of another program arrived. Times are nanoseconds since 1970, as decimal texts;
    `attributes`, `events` and `resource` are recorded as arguments of a step are.

    Attributes:
        span: Its id.
        name: Its name.
        parent: The parent's id; empty for a root.
        started_ns: Its start.
        ended_ns: Its end.
        failed: Whether its status is an error.
        message: The status's text.
        kind: The number of its kind in OTLP.
        scope: The instrumentation that made it.
    """

    span: str
    name: str
    parent: str = ""
    started_ns: str = "0"
    ended_ns: str = "0"
    failed: bool = False
    message: str = ""
    kind: int = 0
    scope: str = ""
    attributes: msgspec.Raw = NO_ATTRIBUTES
    resource: msgspec.Raw = NO_ATTRIBUTES
    more: msgspec.Raw = NO_ATTRIBUTES


@event("span.log_observed.v1")
class LogObserved(Event, frozen=True, kw_only=True):
    """A log record of a span arrived.

    Attributes:
        span: The span's id.
        name: The record's event name.
        time_ns: Its time, in nanoseconds since 1970.
        digest: Identifies the record among those of the span.
        content: Its attributes and body, recorded as arguments of a step are.
    """

    span: str
    name: str
    time_ns: str
    digest: str
    content: msgspec.Raw = NO_ATTRIBUTES


@event("trace.mapped.v1")
class TraceMapped(Event, frozen=True, kw_only=True):
    """The spans of a trace so far became a run.

    Attributes:
        run: The run's id.
        part: Its number among the runs of the trace, from 1.
        spans: The number of its spans.
        calls: The number of calls of models and tools among them; 0 makes no run.
    """

    run: str
    part: int
    spans: int
    calls: int


SLICE = Slice(
    name="otel",
    streams={KIND: (SpanObserved, LogObserved, TraceMapped)},
    nouns=("hansard.ext.otel.record:Traces",),
    schema=Path(__file__).with_name("spans.sql").read_text("utf-8"),
)
