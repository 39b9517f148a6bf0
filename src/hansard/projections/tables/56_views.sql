-- On: view.served.v1
INSERT INTO views_served BY NAME
SELECT
    b.id AS view, b.run, b.data->>'role' AS role, b.data->>'agent' AS agent, i.actor AS shown_to,
    b.data->>'at' AS upto, b.data->>'rules' AS rules,
    try_cast(b.data->>'events' AS BIGINT) AS events, b.data->>'digest' AS digest,
    coalesce(try_cast(b.data->'seen' AS MAP(VARCHAR, VARCHAR)), MAP {}) AS seen,
    b.version, b.position, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'view.served.v1';
