-- On: actions.*
INSERT INTO action_versions BY NAME
SELECT
    b.lasting AS cache, fields.version, split_part(b.type, '.', 2) AS kind, fields.entry, fields.before, fields."to" AS again,
    fields.after, fields.because, nullif(fields.run, '') AS run, i.actor AS author, b.id AS event, b.position, i.event_index,
    b.happened_at
FROM (
    SELECT *, from_json(data, '{"version": "BIGINT", "entry": "BIGINT", "before": "BIGINT", "to": "BIGINT",
        "after": "JSON", "because": "VARCHAR", "run": "VARCHAR"}') AS fields
    FROM batch
    WHERE type IN ('actions.saved.v1', 'actions.healed.v1', 'actions.reverted.v1')
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE fields.version IS NOT NULL;

INSERT INTO action_looks BY NAME
SELECT
    b.lasting AS cache, try_cast(b.data->>'version' AS BIGINT) AS version, b.data->>'because' AS because,
    i.actor AS author, b.id AS event, b.position, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'actions.looked_at.v1' AND try_cast(b.data->>'version' AS BIGINT) IS NOT NULL;
