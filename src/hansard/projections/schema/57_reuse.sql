-- Answers of earlier runs that were offered, declared stale or reused.

CREATE VIEW answers AS
SELECT
    o.key, o.tool, o.tool_version, o.workflow, o.run, o.agent, o.step, o.offered_at, o.position,
    o.version AS times, s.invalidated_at AS stale_since, s.because AS stale_because
FROM (SELECT * FROM offered_answers QUALIFY row_number() OVER (PARTITION BY key ORDER BY version DESC) = 1) AS o
LEFT JOIN LATERAL (
    SELECT arg_min(i.invalidated_at, i.version) AS invalidated_at, arg_min(i.because, i.version) AS because
    FROM invalidated_answers AS i
    WHERE i.version > o.stale_before AND (i.tool = o.tool OR i.run = o.run OR i.key = o.key)
) AS s ON true;
COMMENT ON VIEW answers IS 'One row per key: the newest answer offered, and since when it is stale. The caller limits its age.';

CREATE VIEW reused_answers AS
SELECT
    s.run, r.workflow, s.agent, s.role, s.step, s.tool, s.kind, s.reused_from.key AS key,
    s.reused_from.run AS from_run, s.reused_from.agent AS from_agent, s.reused_from.step AS from_step,
    s.reused_from.event AS from_event, o.step IS NOT NULL AS source_on_record,
    epoch(s.ended_at - o.ended_at) AS age_s, o.duration_ms / 1e3 AS seconds_saved,
    o.input_tokens, o.output_tokens, o.cost AS cost_saved, s.outcome_position AS position, s.ended_at AS reused_at
FROM steps AS s
JOIN runs AS r ON r.run = s.run
LEFT JOIN steps AS o ON o.run = s.reused_from.run AND o.agent = s.reused_from.agent AND o.step = s.reused_from.step
    AND NOT o.inherited
WHERE s.reused_from IS NOT NULL AND NOT s.inherited;
COMMENT ON VIEW reused_answers IS 'One row per call that reused an answer of an earlier run instead of running. NULL means unknown.';

CREATE VIEW odd_reuse AS
SELECT
    'source not on record' AS kind, a.run, a.agent, a.step, address_of(a.position, 0) AS address,
    concat(a.tool, ' was given the answer of step ', a.from_step, ' of ', a.from_agent, ' in run ', a.from_run,
        ', which is not in this record') AS fact,
    NULL::VARCHAR AS experiment, [{'run': a.run, 'address': address_of(a.position, 0)}] AS evidence
FROM reused_answers AS a
WHERE NOT a.source_on_record
UNION ALL
SELECT
    'stale answer in use', a.run, a.agent, a.step, address_of(a.position, 0),
    concat(a.tool, ' was given the answer of run ', a.from_run, ', which was declared stale later',
        if(coalesce(i.because, '') = '', '', concat(': ', shown(i.because, 80)))),
    NULL, [{'run': a.run, 'address': address_of(a.position, 0)}]
FROM reused_answers AS a
JOIN offered_answers AS o ON o.key = a.key AND o.run = a.from_run AND o.agent = a.from_agent AND o.step = a.from_step
JOIN LATERAL (
    SELECT count(*) AS times, arg_min(x.because, x.version) AS because
    FROM invalidated_answers AS x
    WHERE x.version > o.stale_before AND (x.tool = o.tool OR x.run = o.run OR x.key = o.key)
) AS i ON i.times > 0;
COMMENT ON VIEW odd_reuse IS 'One row per call that reused an answer which is not in this record or was invalidated later.';
