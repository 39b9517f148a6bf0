-- On: prompt.*
INSERT INTO prompt_versions BY NAME
SELECT
    b.lasting AS prompt, fields.version, fields.text, fields.digest, fields.model, fields.parameters,
    fields.parents[1] AS parent_version, coalesce(fields.parents, []) AS parents,
    coalesce(fields.feedback_applied, []) AS feedback_applied, fields.because, fields.metrics AS claimed,
    b.happened_at AS added_at, i.actor AS added_by, b.id AS event, b.position
FROM (
    SELECT *, from_json(data, '{"version": "BIGINT", "text": "VARCHAR", "digest": "VARCHAR", "model": "VARCHAR",
        "parameters": "JSON", "parents": ["BIGINT"], "feedback_applied": ["VARCHAR"], "because": "VARCHAR",
        "metrics": "MAP(VARCHAR, DOUBLE)"}') AS fields
    FROM batch
    WHERE type = 'prompt.version_added.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE fields.version IS NOT NULL;

INSERT INTO prompt_moves BY NAME
SELECT
    b.lasting AS prompt, fields.alias, fields.version, fields.before, fields.because, fields.experiment,
    b.happened_at AS moved_at, i.actor AS moved_by, b.id AS event, b.position, i.event_index
FROM (
    SELECT *, from_json(data, '{"alias": "VARCHAR", "version": "BIGINT", "before": "BIGINT", "because": "VARCHAR",
        "experiment": "VARCHAR"}') AS fields
    FROM batch
    WHERE type = 'prompt.aliased.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE fields.alias IS NOT NULL;

INSERT INTO prompt_feedback BY NAME
SELECT
    b.lasting AS prompt, fields.version, fields.text, fields.rating, fields.run, b.happened_at AS given_at,
    i.actor AS given_by, b.id AS event, b.position
FROM (
    SELECT *, from_json(data, '{"version": "BIGINT", "text": "VARCHAR", "rating": "DOUBLE", "run": "VARCHAR"}') AS fields
    FROM batch
    WHERE type = 'prompt.feedback_given.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE fields.version IS NOT NULL;

UPDATE prompt_versions SET retired_at = r.fields.at, retired_because = r.fields.because, retired_position = r.fields.position
FROM (
    SELECT lasting, try_cast(data->>'version' AS BIGINT) AS version,
        arg_min({'at': happened_at, 'because': data->>'because', 'position': position}, ordinal) AS fields
    FROM batch
    WHERE type = 'prompt.retired.v1'
    GROUP BY ALL
) AS r
WHERE prompt_versions.prompt = r.lasting AND prompt_versions.version = r.version AND prompt_versions.retired_at IS NULL;
