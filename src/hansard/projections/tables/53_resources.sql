-- On: resource.accessed.v1
INSERT INTO resources BY NAME
SELECT
    run, agent, data->>'uri' AS uri, data->>'operation' AS operation,
    try_cast(data->>'step' AS BIGINT) AS step, version, position, happened_at
FROM batch
WHERE type = 'resource.accessed.v1';
