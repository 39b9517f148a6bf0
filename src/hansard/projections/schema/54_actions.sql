-- Actions on pages: recorded actions, how replays located the elements, and action caches.

CREATE VIEW actions AS
SELECT
    s.run, s.agent, s.role, s.step, s.tool, s.status, s.effects,
    s.arguments->>'$.instruction' AS instruction,
    coalesce(s.arguments->>'$.method', s.arguments->>'$.action', s.arguments->>'$.url') AS method,
    s.result->>'$.elementId' AS element_id,
    try_cast(s.result->>'$.frameIndex' AS BIGINT) AS frame_index,
    s.result->>'$.xpath' AS xpath,
    s.result->>'$.page.address' AS address,
    s.result->>'$.changed' AS changed,
    coalesce(try_cast(s.result->>'$.success' AS BOOLEAN), s.status = 'completed') AS success,
    coalesce(s.result->>'$.message', s.error) AS message,
    s.duration_ms, coalesce(p.tool = 'browser.replay', false) AS replayed, s.parent_step,
    s.requested_at, s.requested_position AS position
FROM steps AS s
LEFT JOIN steps AS p ON p.run = s.run AND p.agent = s.agent AND p.step = s.parent_step
WHERE s.tool IN ('browser.act', 'browser.act_once', 'browser.goto', 'browser.turn', 'browser.extract');
COMMENT ON VIEW actions IS 'One row per action of an agent on a page.';

CREATE VIEW action_attempts AS
SELECT
    s.run, s.agent, s.role, s.step, try_cast(s.arguments->>'$.entry' AS BIGINT) AS entry, t.n AS attempt,
    a.body->>'$.strategy' AS strategy, a.body->>'$.selector' AS selector,
    try_cast(a.body->>'$.matches' AS BIGINT) AS matches, a.body->>'$.refused' AS refused,
    t.n = json_array_length(s.result, '$.attempts') AND s.result->>'$.selector' != '' AS found,
    s.parent_step, s.requested_position AS position
FROM steps AS s
CROSS JOIN LATERAL unnest(range(1, 1 + coalesce(json_array_length(s.result, '$.attempts'), 0)::BIGINT)) AS t(n)
CROSS JOIN LATERAL (SELECT (s.result->'$.attempts[*]')[t.n] AS body) AS a
WHERE s.tool IN ('browser.find', 'browser.choose') AND s.status = 'completed';
COMMENT ON VIEW action_attempts IS 'One row per search for an element; it succeeds only with exactly one match.';

CREATE VIEW action_runs AS
WITH models AS (
    SELECT run, agent, sum(cost) AS cost, sum(duration_ms) / 1e3 AS seconds, count(*) AS calls
    FROM steps WHERE kind = 'model' GROUP BY run, agent
), recorded AS (
    SELECT run, sum(cost) AS cost, sum(seconds) AS seconds, sum(calls)::BIGINT AS calls FROM models GROUP BY run
), body_calls AS (
    SELECT run, agent, parent_step, sum(cost) AS cost, sum(duration_ms) / 1e3 AS seconds, count(*) AS calls
    FROM steps WHERE kind = 'model' AND parent_step IS NOT NULL GROUP BY run, agent, parent_step
)
SELECT
    s.run, s.agent, s.role, s.step,
    s.arguments->>'$.run' AS cached_run, try_cast(s.result->>'$.version' AS BIGINT) AS cache_version,
    try_cast(s.arguments->>'$.actions' AS BIGINT) AS actions, try_cast(s.result->>'$.done' AS BIGINT) AS done,
    coalesce(try_cast(s.result->>'$.success' AS BOOLEAN), false) AS success,
    coalesce(nullif(s.result->>'$.error', ''), s.error) AS error,
    try_cast(s.result->>'$.by_xpath' AS BIGINT) AS by_xpath,
    try_cast(s.result->>'$.by_other' AS BIGINT) AS by_other,
    try_cast(s.result->>'$.by_model' AS BIGINT) AS by_model,
    try_cast(s.result->>'$.healed' AS BIGINT) AS healed,
    coalesce(a.calls, 0)::BIGINT AS model_calls, s.duration_ms / 1e3 AS seconds,
    r.calls AS recorded_model_calls,
    if(coalesce(try_cast(s.result->>'$.success' AS BOOLEAN), false), r.cost, 0) - coalesce(a.cost, if(a.calls > 0, NULL, 0))
        AS cost_saved,
    if(coalesce(try_cast(s.result->>'$.success' AS BOOLEAN), false), r.seconds, 0) - coalesce(a.seconds, 0)
        AS model_seconds_saved,
    s.requested_at, s.requested_position AS position
FROM steps AS s
LEFT JOIN recorded AS r ON r.run = s.arguments->>'$.run'
LEFT JOIN body_calls AS a ON a.run = s.run AND a.agent = s.agent AND a.parent_step = s.step
WHERE s.tool = 'browser.replay';
COMMENT ON VIEW action_runs IS 'One row per replay of an action cache: how elements were found and what it saved, heals and failures included.';

CREATE VIEW action_caches AS
SELECT
    v.cache, max(v.version) AS versions, count(*) FILTER (v.kind = 'healed') AS heals,
    coalesce(any_value(l.version), 0) AS reviewed_version,
    count(*) FILTER (v.kind = 'healed' AND v.version > coalesce(l.version, 0)) AS heals_unreviewed,
    min(v.happened_at) AS began_at, max(v.happened_at) AS changed_at
FROM action_versions AS v
LEFT JOIN (SELECT cache, max(version) AS version FROM action_looks GROUP BY cache) AS l ON l.cache = v.cache
GROUP BY v.cache;
COMMENT ON VIEW action_caches IS 'One row per named action cache, with its heals and reviews.';

CREATE VIEW odd_actions AS
SELECT
    'heal unreviewed' AS kind, v.run, v.author AS agent, NULL::BIGINT AS step,
    address_of(v.position, v.event_index) AS address,
    concat('version ', v.version, ' of action cache ', v.cache, ' has entry ', v.entry, ' elsewhere, as ', v.author,
        ' found it, and nobody has looked at it', if(coalesce(v.because, '') = '', '', concat(': ', shown(v.because, 80)))) AS fact,
    NULL::VARCHAR AS experiment, [{'run': v.run, 'address': address_of(v.position, v.event_index)}] AS evidence
FROM action_versions AS v
LEFT JOIN (SELECT cache, max(version) AS version FROM action_looks GROUP BY cache) AS l ON l.cache = v.cache
WHERE v.kind = 'healed' AND v.version > coalesce(l.version, 0)
    AND NOT EXISTS (FROM action_versions AS r WHERE r.cache = v.cache AND r.kind <> 'healed' AND r.version > v.version);
COMMENT ON VIEW odd_actions IS 'One row per unreviewed cache entry in use that a replay found elsewhere.';
