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
