-- On: agent.* step.* message.* decision.* checkpoint.* resource.* tool.*
-- Where: forks
-- An inherited agent continues with its state at the fork.
INSERT INTO sessions
SELECT
    a.run, e.agent, e.role, e.position << 16 | e.event_index, e.known_as AS type, coalesce(e.lifted, e.data) AS data, e.happened_at, false
FROM (
    SELECT a.*
    FROM ancestry AS a
    SEMI JOIN (
        FROM present AS p
        ANTI JOIN agents AS g ON g.run = p.run AND g.agent = p.agent AND g.role = p.role
    ) AS p ON p.run = a.run
    WHERE a.stream LIKE 'agent/%'
) AS a
JOIN events AS e
    ON e.run = a.parent AND e.stream = a.stream AND e.version <= a.version AND e.position < a.position
ANTI JOIN agents AS g ON g.run = a.run AND g.agent = e.agent AND g.role = e.role
WHERE e.known_as IN ('agent.session_began.v1', 'agent.left.v1');
