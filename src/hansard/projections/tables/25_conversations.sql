-- On: conversation.run_joined.v1
INSERT INTO conversations BY NAME
SELECT lasting AS conversation, data->>'run' AS run, version AS number, position
FROM batch
WHERE type = 'conversation.run_joined.v1' AND stream LIKE 'conversation/%';
