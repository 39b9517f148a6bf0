"""OpenTelemetry: spans of other programs as observed runs, and runs as `gen_ai` spans.

Writes a stream for each trace and the run that is made of it; reads any run to send it.
Offers the receiver of `hansard up --http`, files of spans, the export, and the views spans, traces.
"""

from __future__ import annotations

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


SCHEMA = """
CREATE VIEW spans AS
WITH mapped AS (
    SELECT stream, position, data->>'run' AS run, CAST(data->>'part' AS BIGINT) AS part,
        CAST(data->>'calls' AS BIGINT) AS calls
    FROM events WHERE type = 'trace.mapped.v1'
)
SELECT
    url_decode(split_part(e.stream, '/', 2)) AS trace, e.data->>'span' AS span,
    nullif(coalesce(e.data->>'parent', ''), '') AS parent, e.data->>'name' AS name,
    make_timestamp(coalesce(CAST(e.data->>'started_ns' AS BIGINT), 0) // 1000) AS started_at,
    make_timestamp(coalesce(CAST(e.data->>'ended_ns' AS BIGINT), 0) // 1000) AS ended_at,
    (coalesce(CAST(e.data->>'ended_ns' AS BIGINT), 0) - coalesce(CAST(e.data->>'started_ns' AS BIGINT), 0)) / 1e6
        AS duration_ms,
    coalesce(CAST(e.data->>'failed' AS BOOLEAN), false) AS failed,
    nullif(coalesce(e.data->>'message', ''), '') AS message,
    coalesce(e.data->>'scope', '') AS scope,
    coalesce(e.data->'attributes', '{}') AS attributes,
    coalesce(e.data->'resource', '{}') AS resource,
    r.run, coalesce(m.part, 0) AS part,
    m.part IS NULL OR (m.calls > 0 AND r.run IS NULL) AS waiting, e.logged_at AS arrived_at, e.position
FROM events AS e
ASOF LEFT JOIN mapped AS m ON m.stream = e.stream AND m.position >= e.position
LEFT JOIN runs AS r ON r.run = m.run
WHERE e.type = 'span.observed.v1';
COMMENT ON VIEW spans IS 'One row per span of a trace that arrived over OTLP or was imported. run: the observed run made of its trace; NULL before, and for a trace without calls. part: number of that run among those of the trace, 0 before. waiting: no run was made of it yet. Large attributes are references to blobs.';

CREATE VIEW traces AS
SELECT
    trace, min(started_at) AS started_at, max(ended_at) AS ended_at, count(*) AS spans,
    count(*) FILTER (failed) AS failed, arg_min(name, started_at) FILTER (parent IS NULL) AS name,
    count(*) FILTER (waiting) AS waiting, max(part) AS parts,
    list_sort(list_distinct(list(run) FILTER (run IS NOT NULL))) AS runs
FROM spans GROUP BY trace;
COMMENT ON VIEW traces IS 'One row per trace. name: that of its first root span. waiting: spans that are no run yet. parts: runs made of it; more than 1 if spans arrived after the trace had ended.';
"""  # noqa: E501 -- the comment of a view is one text

SLICE = Slice(
    name="otel",
    streams={KIND: (SpanObserved, LogObserved, TraceMapped)},
    nouns=("hansard.ext.otel.record:Traces",),
    schema=SCHEMA,
)
