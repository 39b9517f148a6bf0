-- On: reuse.*
INSERT INTO offered_answers BY NAME
SELECT
    told.key, told.tool, told.version AS tool_version, nullif(told.workflow, '') AS workflow, told.run, told.role,
    told.agent, told.step, told.digest, coalesce(told.stale, 0) AS stale_before, b.version, b.id AS event, b.position,
    b.happened_at AS offered_at
FROM (
    SELECT *, from_json(data, '{"key": "VARCHAR", "tool": "VARCHAR", "version": "VARCHAR", "workflow": "VARCHAR",
        "run": "VARCHAR", "role": "VARCHAR", "agent": "VARCHAR", "step": "BIGINT", "digest": "VARCHAR",
        "stale": "BIGINT"}') AS told
    FROM batch
    WHERE type = 'reuse.offered.v1'
) AS b
WHERE told.key IS NOT NULL AND told.tool IS NOT NULL;

INSERT INTO invalidated_answers BY NAME
SELECT
    b.data->>'tool' AS tool, b.data->>'run' AS run, b.data->>'key' AS key, b.data->>'because' AS because,
    i.actor AS author, b.version, b.id AS event, b.position, b.happened_at AS invalidated_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'reuse.invalidated.v1';
