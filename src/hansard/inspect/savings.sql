-- Parameters of `savings`: run, workflow, month (NULL for any), and the grouping.

-- name: savings
SELECT
    CASE $4 WHEN 'run' THEN run WHEN 'workflow' THEN workflow
        ELSE strftime(began_at, '%Y-%m') END AS of,
    count(*) AS sessions, count(*) - count(calls) AS sessions_unknown,
    sum(calls)::BIGINT AS calls, sum(effects)::BIGINT AS effects,
    fsum(input_tokens) AS input_tokens, fsum(output_tokens) AS output_tokens,
    coalesce(sum(calls_with_tokens), 0)::BIGINT AS calls_with_tokens,
    fsum(cost) AS cost, coalesce(sum(calls_with_cost), 0)::BIGINT AS calls_with_cost,
    fsum(seconds) AS seconds, coalesce(sum(calls_with_seconds), 0)::BIGINT AS calls_with_seconds
FROM savings
WHERE ($1 IS NULL OR run = $1) AND ($2 IS NULL OR workflow = $2)
    AND ($3 IS NULL OR strftime(began_at, '%Y-%m') = $3)
GROUP BY ALL
ORDER BY min(began_at)

-- name: offered
SELECT key, tool, workflow, run, agent, step, offered_at, times, stale_since, stale_because
FROM answers
WHERE ($1 IS NULL OR tool = $1) AND ($2 IS NULL OR run = $2)
ORDER BY position DESC

-- name: reused
SELECT run, agent, step, tool, key, from_run, from_agent, from_step, source_on_record,
    age_s, seconds_saved, cost_saved, reused_at
FROM reused_answers
WHERE ($1 IS NULL OR tool = $1) AND ($2 IS NULL OR run = $2)
ORDER BY position DESC, step
