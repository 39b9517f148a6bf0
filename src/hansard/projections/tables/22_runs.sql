-- On: run.*
-- Runs. After 20_lives.
INSERT INTO runs BY NAME
SELECT
    l.run, 'unknown' AS status, 0 AS resumed, false AS observed, any_value(f.parent) AS parent,
    any_value(f.effects) AS effects, any_value(f.swap->>'$.probe') AS probe, min(l.position) AS first_position,
    min(l.position) AS last_position, arg_min(l.clock, l.ordinal) AS clock,
    arg_min({'at': if(l.clock = 'import', NULL, l.happened_at)}, l.ordinal).at AS started_at
FROM lives AS l
ANTI JOIN runs AS r ON r.run = l.run
LEFT JOIN lineage AS f ON f.run = l.run
WHERE l.own
GROUP BY l.run;

UPDATE runs SET
    workflow = CASE WHEN c.started IS NULL THEN runs.workflow ELSE c.started.workflow END,
    conversation = CASE WHEN c.started IS NULL THEN runs.conversation ELSE c.started.conversation_id END,
    program = CASE WHEN c.started IS NULL THEN runs.program ELSE c.started.program END,
    labels = CASE WHEN c.labels IS NULL THEN runs.labels
        ELSE list_reduce(c.labels, lambda a, b: json_merge_patch(a, b), coalesce(runs.labels, '{}'))
    END,
    observed = CASE WHEN c.started IS NULL THEN runs.observed
        ELSE coalesce(c.started.labels->>'observed' = 'true', false) END,
    experiment = CASE WHEN c.assigned IS NULL THEN runs.experiment ELSE c.assigned.experiment END,
    arm = CASE WHEN c.assigned IS NULL THEN runs.arm ELSE c.assigned.arm END,
    task = CASE WHEN c.assigned IS NULL THEN runs.task ELSE c.assigned.task END,
    trial = CASE WHEN c.assigned IS NULL THEN runs.trial ELSE c.assigned.trial END,
    status = CASE WHEN c.ends IS NULL THEN runs.status ELSE c.ends.status END,
    ended_at = CASE WHEN c.ends IS NULL THEN runs.ended_at ELSE c.ends.at END,
    error_type = CASE WHEN c.ends IS NULL THEN runs.error_type ELSE c.ends.error.type END,
    error = CASE WHEN c.ends IS NULL THEN runs.error ELSE c.ends.error.message END,
    resumed = runs.resumed + c.resumed,
    last_position = c.last_position
FROM (
    SELECT
        run AS of_run,
        max(position) FILTER (own) AS last_position,
        count(*) FILTER (own AND type = 'run.resumed.v1') AS resumed,
        arg_max({'status': status, 'at': if(status = 'open' OR clock = 'import', NULL, happened_at),
            'error': if(status = 'failed', fields.error, NULL)}, ordinal)
            FILTER (status IS NOT NULL) AS ends,
        list(fields.labels ORDER BY ordinal)
            FILTER (fields.labels IS NOT NULL AND type IN ('run.started.v1', 'run.forked.v1')) AS labels,
        arg_max(fields, ordinal) FILTER (type = 'run.started.v1') AS started,
        arg_max(fields, ordinal) FILTER (type = 'run.assigned.v1') AS assigned
    FROM (
        SELECT
            run, ordinal, position, happened_at, clock, type, own,
            CASE type
                WHEN 'run.started.v1' THEN 'open' WHEN 'run.forked.v1' THEN 'open'
                WHEN 'run.resumed.v1' THEN 'open' WHEN 'run.completed.v1' THEN 'completed'
                WHEN 'run.failed.v1' THEN 'failed' WHEN 'run.cancelled.v1' THEN 'cancelled'
            END AS status,
            from_json(data, '{"workflow": "VARCHAR", "conversation_id": "VARCHAR",
                "program": "VARCHAR", "labels": "JSON", "experiment": "VARCHAR", "arm": "VARCHAR",
                "task": "VARCHAR", "trial": "BIGINT",
                "error": {"type": "VARCHAR", "message": "VARCHAR"}}') AS fields
        FROM lives
    )
    GROUP BY run
) AS c
WHERE runs.run = c.of_run;
