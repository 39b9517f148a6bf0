-- On: checkpoint.saved.v1
INSERT INTO checkpoints BY NAME
SELECT run, agent, data->>'name' AS name, data->'data' AS data, version, position, happened_at
FROM batch
WHERE type = 'checkpoint.saved.v1';
