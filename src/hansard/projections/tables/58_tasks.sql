-- On: task.*
INSERT INTO task_events BY NAME
SELECT
    b.run, b.data->>'task' AS task, split_part(b.type, '.', 2) AS operation, i.actor AS author,
    try_cast(b.data->>'number' AS BIGINT) AS number, b.data->>'agent' AS agent,
    b.data->>'role' AS role, b.data->>'title' AS title,
    coalesce(b.data->'what', b.data->'given') AS what,
    CASE WHEN b.type = 'task.added.v1'
        THEN coalesce(try_cast(b.data->'waits_for' AS VARCHAR[]), []) END AS waits_for,
    CASE WHEN b.type = 'task.added.v1'
        THEN coalesce(try_cast(b.data->'waits_for_roles' AS VARCHAR[]), []) END AS waits_for_roles,
    i.logged_at + to_milliseconds(try_cast(b.data->>'lease_ms' AS BIGINT)) AS lease_until,
    b.data->'result' AS result, b.data->>'$.error.type' AS error_type,
    b.data->>'$.error.message' AS error, b.data->>'because' AS because,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.stream = 'board/team tasks' AND starts_with(b.type, 'task.');
