-- On: label.declassified.v1
INSERT INTO declassifications BY NAME
SELECT
    id AS event, run, agent,
    if(agent IS NULL AND lasting IS NULL, substr(stream, 7), NULL) AS key, lasting AS principal,
    data->>'to' AS lowered_to, data->>'before' AS lowered_from, data->>'approver' AS approver,
    data->>'because' AS because, version, position, happened_at
FROM batch
WHERE type = 'label.declassified.v1';
