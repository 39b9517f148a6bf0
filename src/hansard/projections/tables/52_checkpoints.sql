-- On: checkpoint.saved.v1
INSERT INTO checkpoints BY NAME
SELECT
    run, agent, data->>'name' AS name, data->'data' AS data,
    if(starts_with(data->>'name', 'progress:'), data->'data'->'auto', NULL) AS choice,
    version, position, happened_at
FROM batch
WHERE type = 'checkpoint.saved.v1';
