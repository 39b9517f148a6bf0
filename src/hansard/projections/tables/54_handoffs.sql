-- On: agent.handed_off.v1
INSERT INTO handoffs BY NAME
SELECT
    run, agent, data->>'to' AS receiver, data->>'because' AS because, data->'payload' AS payload,
    version, position, happened_at
FROM batch
WHERE type = 'agent.handed_off.v1';
