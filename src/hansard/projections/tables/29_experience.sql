-- On: experience.*
INSERT INTO experience_versions BY NAME
SELECT
    b.lasting AS experience, fields.version, split_part(b.type, '.', 2) AS kind, fields.digest,
    nullif(fields.parent, 0) AS parent, fields.about.description, fields.about.task, fields.about.level,
    coalesce(fields.about.tools, []) AS tools, coalesce(fields.about.hosts, []) AS hosts,
    coalesce(fields.about.checks, 0) AS checks, fields.about.procedure, coalesce(fields.sources, []) AS sources,
    coalesce(fields.failed, []) AS failed, fields.node, nullif(fields.run, '') AS run,
    nullif(fields.key, '') AS key, nullif(fields.license, '') AS license, fields.because, i.actor AS author,
    b.id AS event, b.position, i.event_index, b.happened_at
FROM (
    SELECT *, from_json(data, '{"version": "BIGINT", "digest": "VARCHAR", "parent": "BIGINT",
        "about": {"description": "VARCHAR", "task": "VARCHAR", "level": "BIGINT", "tools": ["VARCHAR"],
        "hosts": ["VARCHAR"], "checks": "BIGINT", "procedure": "VARCHAR"}, "sources": ["VARCHAR"], "failed": ["VARCHAR"],
        "node": "VARCHAR", "run": "VARCHAR", "key": "VARCHAR", "license": "VARCHAR",
        "because": "VARCHAR"}') AS fields
    FROM batch
    WHERE type IN ('experience.distilled.v1', 'experience.confirmed.v1', 'experience.healed.v1',
        'experience.installed.v1')
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE fields.version IS NOT NULL;

INSERT INTO experience_replays BY NAME
SELECT
    b.lasting AS experience, fields.version, fields.run, fields.agent, fields.step, coalesce(fields.success, false) AS success,
    coalesce(fields.checks, 0) AS checks, coalesce(fields.done, 0) AS done, coalesce(fields.level, 0) AS level,
    nullif(fields.failed_check, '') AS failed_check, nullif(fields.error, '') AS error, i.actor AS author, b.id AS event,
    b.position, i.event_index, b.happened_at
FROM (
    SELECT *, from_json(data, '{"version": "BIGINT", "run": "VARCHAR", "agent": "VARCHAR", "step": "BIGINT",
        "success": "BOOLEAN", "checks": "BIGINT", "done": "BIGINT", "level": "BIGINT", "failed_check": "VARCHAR",
        "error": "VARCHAR"}') AS fields
    FROM batch
    WHERE type = 'experience.replayed.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE fields.version IS NOT NULL;

INSERT INTO experience_retirements BY NAME
SELECT
    b.lasting AS experience, b.data->>'because' AS because, i.actor AS author, b.id AS event, b.position, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'experience.retired.v1';
