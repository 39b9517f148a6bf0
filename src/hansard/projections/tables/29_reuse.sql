-- On: reuse.*
INSERT INTO offered_answers BY NAME
SELECT
    fields.key, fields.tool, fields.version AS tool_version, nullif(fields.workflow, '') AS workflow, fields.run, fields.role,
    fields.agent, fields.step, fields.digest, coalesce(fields.stale, 0) AS stale_before, b.version, b.id AS event, b.position,
    b.happened_at AS offered_at
FROM (
    SELECT *, from_json(data, '{"key": "VARCHAR", "tool": "VARCHAR", "version": "VARCHAR", "workflow": "VARCHAR",
        "run": "VARCHAR", "role": "VARCHAR", "agent": "VARCHAR", "step": "BIGINT", "digest": "VARCHAR",
        "stale": "BIGINT"}') AS fields
    FROM batch
    WHERE type = 'reuse.offered.v1'
) AS b
WHERE fields.key IS NOT NULL AND fields.tool IS NOT NULL;

INSERT INTO invalidated_answers BY NAME
SELECT
    b.data->>'tool' AS tool, b.data->>'run' AS run, b.data->>'key' AS key, b.data->>'because' AS because,
    i.actor AS author, b.version, b.id AS event, b.position, b.happened_at AS invalidated_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'reuse.invalidated.v1';
