-- On: run.*
-- Where: forks
-- A fork's inherited events count as its own.
INSERT INTO lives
SELECT
    a.run, e.position << 16 | e.event_index, e.known_as AS type, coalesce(e.lifted, e.data) AS data, e.position, e.happened_at, false,
    clock_of(e.occurred_at, e.actor, e.on_behalf_of, e.origin_log)
FROM ancestry AS a
JOIN events AS e
    ON e.run = a.parent AND e.stream = a.stream AND e.version <= a.version AND e.position < a.position
WHERE e.known_as IS NOT NULL AND a.stream = 'life' AND a.run NOT IN (SELECT run FROM runs);
