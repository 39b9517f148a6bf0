-- On: query.answered.v1
INSERT INTO queries BY NAME
SELECT
    b.lasting AS role, i.actor AS asked_by, nullif(b.data->>'at', '') AS upto,
    nullif(b.data->>'rules', '') AS rules, b.data->>'statement' AS statement,
    try_cast(b.data->>'position' AS BIGINT) AS role_position,
    try_cast(b.data->>'rows' AS BIGINT) AS rows,
    coalesce(try_cast(b.data->>'cut' AS BOOLEAN), false) AS cut,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'query.answered.v1';
