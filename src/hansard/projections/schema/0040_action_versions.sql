-- The version of an action cache stands in what came of its replay, heals counted in.

CREATE OR REPLACE VIEW action_runs AS
WITH models AS (
    SELECT run, agent, sum(cost) AS cost, sum(duration_ms) / 1e3 AS seconds, count(*) AS calls
    FROM steps WHERE kind = 'model' GROUP BY run, agent
), recorded AS (
    SELECT run, sum(cost) AS cost, sum(seconds) AS seconds, sum(calls)::BIGINT AS calls FROM models GROUP BY run
), asked AS (
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
LEFT JOIN asked AS a ON a.run = s.run AND a.agent = s.agent AND a.parent_step = s.step
WHERE s.tool = 'browser.replay';
COMMENT ON VIEW action_runs IS 'One row a replay of an action cache: how its elements were found, and what of the recorded model calls it saved, heals and failures counted in.';
