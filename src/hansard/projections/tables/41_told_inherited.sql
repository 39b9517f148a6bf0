-- On: step.*
-- Where: forks
-- Of those that a fork's parent had requested: what was told of them until the fork.
INSERT INTO told
SELECT f.run, e.agent, e.role, e.position << 16 | e.event_index, e.version, e.position,
    e.happened_at, e.known_as, false, unnest(step_told(coalesce(e.lifted, e.data)))
FROM fresh AS f
JOIN ancestry AS a ON a.run = f.run
JOIN events AS e
    ON e.run = a.parent AND e.stream = a.stream AND e.version <= a.version
    AND e.position < a.position AND e.agent = f.agent
WHERE f.begins IS NULL
    AND list_contains(step_events(), e.known_as)
    AND try_cast(coalesce(e.lifted, e.data)->>'step' AS BIGINT) = f.step;
