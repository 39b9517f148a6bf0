-- On: experience.*
INSERT INTO experience_versions BY NAME
SELECT
    b.lasting AS experience, told.version, split_part(b.type, '.', 2) AS kind, told.digest,
    nullif(told.parent, 0) AS parent, told.about.description, told.about.task, told.about.level,
    coalesce(told.about.tools, []) AS tools, coalesce(told.about.hosts, []) AS hosts,
    coalesce(told.about.checks, 0) AS checks, told.about.procedure, coalesce(told.sources, []) AS sources,
    coalesce(told.failed, []) AS failed, told.node, nullif(told.run, '') AS run, told.bundle,
    nullif(told.key, '') AS key, nullif(told.license, '') AS license, told.because, i.actor AS author,
    b.id AS event, b.position, i.event_index, b.happened_at
FROM (
    SELECT *, from_json(data, '{"version": "BIGINT", "digest": "VARCHAR", "parent": "BIGINT",
        "about": {"description": "VARCHAR", "task": "VARCHAR", "level": "BIGINT", "tools": ["VARCHAR"],
        "hosts": ["VARCHAR"], "checks": "BIGINT", "procedure": "VARCHAR"}, "sources": ["VARCHAR"], "failed": ["VARCHAR"],
        "node": "VARCHAR", "run": "VARCHAR", "bundle": "VARCHAR", "key": "VARCHAR", "license": "VARCHAR",
        "because": "VARCHAR"}') AS told
    FROM batch
    WHERE type IN ('experience.distilled.v1', 'experience.confirmed.v1', 'experience.healed.v1',
        'experience.installed.v1')
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE told.version IS NOT NULL;

INSERT INTO experience_replays BY NAME
SELECT
    b.lasting AS experience, told.version, told.run, told.agent, told.step, coalesce(told.success, false) AS success,
    coalesce(told.checks, 0) AS checks, coalesce(told.done, 0) AS done, coalesce(told.level, 0) AS level,
    nullif(told.failed_check, '') AS failed_check, nullif(told.error, '') AS error, i.actor AS author, b.id AS event,
    b.position, i.event_index, b.happened_at
FROM (
    SELECT *, from_json(data, '{"version": "BIGINT", "run": "VARCHAR", "agent": "VARCHAR", "step": "BIGINT",
        "success": "BOOLEAN", "checks": "BIGINT", "done": "BIGINT", "level": "BIGINT", "failed_check": "VARCHAR",
        "error": "VARCHAR"}') AS told
    FROM batch
    WHERE type = 'experience.replayed.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE told.version IS NOT NULL;

INSERT INTO experience_bundles BY NAME
SELECT
    b.lasting AS experience, try_cast(b.data->>'version' AS BIGINT) AS version, b.data->>'bundle' AS bundle,
    nullif(b.data->>'key', '') AS key, nullif(b.data->>'license', '') AS license, b.data->>'because' AS because,
    i.actor AS author, b.id AS event, b.position, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'experience.published.v1' AND try_cast(b.data->>'version' AS BIGINT) IS NOT NULL;

INSERT INTO experience_retirements BY NAME
SELECT
    b.lasting AS experience, b.data->>'because' AS because, i.actor AS author, b.id AS event, b.position, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'experience.retired.v1';
