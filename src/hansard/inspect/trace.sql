-- name: calls
SELECT
    agent, step, coalesce(tool, '') AS tool, coalesce(kind, '') AS kind,
    coalesce(effects, '') AS effects, status, arguments,
    if(starts_with(tool, 'browser.'), result, NULL) AS result
FROM steps
WHERE run = $1 AND NOT inherited AND tool IS NOT NULL
    AND reused_step IS NULL AND reused_from IS NULL AND withheld IS NULL
ORDER BY requested_position, agent, step
