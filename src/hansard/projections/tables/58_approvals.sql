-- On: approval.*
INSERT INTO approval_events BY NAME
SELECT
    b.run, b.data->>'approval' AS approval, split_part(b.type, '.', 2) AS operation,
    i.actor AS author, b.data->>'agent' AS agent, b.data->>'role' AS role,
    try_cast(b.data->>'step' AS BIGINT) AS step, b.data->>'tool' AS tool,
    b.data->'arguments' AS arguments, b.data->>'rule' AS rule, b.data->>'call' AS call,
    b.data->>'fingerprint' AS fingerprint,
    i.logged_at + to_milliseconds(try_cast(b.data->>'timeout_ms' AS BIGINT)) AS until,
    b.data->>'by' AS answered_by, b.data->>'because' AS because,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE starts_with(b.type, 'approval.');
