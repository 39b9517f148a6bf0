-- What led to what, event by event.

CREATE VIEW causes AS
WITH RECURSIVE families AS (
    SELECT r.run, r.run AS member, 0 AS depth FROM runs AS r
    UNION ALL
    SELECT f.run, l.parent, f.depth + 1
    FROM families AS f
    JOIN lineage AS l ON l.run = f.member
    WHERE f.depth < 100
), seen AS (
    SELECT d.decision AS event, d.run, d.agent, unnest(d.after) AS step FROM decisions AS d
    UNION ALL
    SELECT e.id, s.run, s.agent, unnest(s.after)
    FROM steps AS s
    JOIN events AS e ON e.position = s.requested_position AND e.agent = s.agent AND e.version = s.requested_version
    WHERE NOT s.inherited AND len(s.after) > 0
), answered AS (
    SELECT n.event, arg_min({'position': p.outcome_position, 'version': p.outcome_version}, f.depth) AS at_outcome, n.agent
    FROM seen AS n
    JOIN families AS f ON f.run = n.run
    JOIN steps AS p ON p.run = f.member AND p.agent = n.agent AND p.step = n.step
    GROUP BY n.event, n.agent, n.step
)
SELECT e.id AS event, e.causation AS cause, 'causation' AS how
FROM events AS e
WHERE e.causation IS NOT NULL
UNION ALL
SELECT i.decision, coalesce(e.id, c.id, i.input), 'input'
FROM (SELECT d.decision, unnest(d.inputs) AS input FROM decisions AS d) AS i
LEFT JOIN events AS e ON e.id = i.input
LEFT JOIN events AS c ON c.commit_id = i.input AND c.event_index = 0
UNION ALL
SELECT a.event, e.id, 'after'
FROM answered AS a
JOIN events AS e ON e.position = a.at_outcome.position AND e.agent = a.agent AND e.version = a.at_outcome.version
UNION ALL
SELECT o.id, r.id, 'request'
FROM steps AS s
JOIN events AS r ON r.position = s.requested_position AND r.agent = s.agent AND r.version = s.requested_version
JOIN events AS o ON o.position = s.outcome_position AND o.agent = s.agent AND o.version = s.outcome_version
WHERE NOT s.inherited;
COMMENT ON VIEW causes IS 'One row a link from an event to one that led to it.';

CREATE MACRO caused_by(of_event) AS TABLE
WITH RECURSIVE links AS MATERIALIZED (
    SELECT k.event, k.cause, k.how FROM causes AS k
), back AS (
    SELECT c.event, c.cause, c.how, 1 AS depth
    FROM links AS c
    WHERE c.event = of_event
    UNION
    SELECT c.event, c.cause, c.how, b.depth + 1
    FROM back AS b
    JOIN links AS c ON c.event = b.cause
    WHERE b.depth < 1000
)
SELECT b.cause, min(b.depth) AS depth, any_value(b.how ORDER BY b.depth, b.how) AS how,
    any_value(e.type) AS type, any_value(e.run) AS run, any_value(e.agent) AS agent,
    any_value(e.position || '.' || e.event_index) AS address
FROM back AS b
LEFT JOIN events AS e ON e.id = b.cause
GROUP BY b.cause;
COMMENT ON MACRO TABLE caused_by IS 'Everything that led to an event (its id), nearest first by depth, up to 1,000 links back.';

CREATE MACRO led_to(of_event) AS TABLE
WITH RECURSIVE links AS MATERIALIZED (
    SELECT k.event, k.cause, k.how FROM causes AS k
), ahead AS (
    SELECT c.event, c.cause, c.how, 1 AS depth
    FROM links AS c
    WHERE c.cause = of_event
    UNION
    SELECT c.event, c.cause, c.how, a.depth + 1
    FROM ahead AS a
    JOIN links AS c ON c.cause = a.event
    WHERE a.depth < 1000
)
SELECT a.event, min(a.depth) AS depth, any_value(a.how ORDER BY a.depth, a.how) AS how,
    any_value(e.type) AS type, any_value(e.run) AS run, any_value(e.agent) AS agent,
    any_value(e.position || '.' || e.event_index) AS address
FROM ahead AS a
JOIN events AS e ON e.id = a.event
GROUP BY a.event;
COMMENT ON MACRO TABLE led_to IS 'Everything that an event (its id) led to, nearest first by depth, up to 1,000 links on.';
