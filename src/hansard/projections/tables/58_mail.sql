-- On: mail.sent.v1
INSERT INTO mail BY NAME
SELECT
    b.run, i.actor AS sender, b.data->>'sender_role' AS sender_role, b.data->>'agent' AS to_agent,
    b.data->>'role' AS to_role, b.data->'content' AS content,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'mail.sent.v1';
