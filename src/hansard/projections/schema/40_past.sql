-- The past: runs and steps as of a position, trails, and causes of events.

CREATE MACRO runs_as_of(upto) AS TABLE
SELECT
    l.run, r.workflow, l.ends.status AS status, r.started_at, l.ends.at AS ended_at,
    l.ends.error_type AS error_type, l.ends.error AS error, l.resumed, r.parent, l.version,
    l.position
FROM (
    SELECT
        run, max(version) AS version, max(position) AS position,
        count(*) FILTER (status = 'open' AND known_as = 'run.resumed.v1') AS resumed,
        arg_max({'status': status, 'at': if(status = 'open' OR clock = 'import', NULL, happened_at),
            'error_type': if(status = 'failed', body->>'$.error.type', NULL),
            'error': if(status = 'failed', body->>'$.error.message', NULL)}, version)
            FILTER (status IS NOT NULL) AS ends
    FROM (
        SELECT
            run, version, position, happened_at, known_as, coalesce(lifted, data) AS body,
            clock_of(occurred_at, actor, on_behalf_of, origin_log) AS clock,
            CASE known_as
                WHEN 'run.started.v1' THEN 'open' WHEN 'run.forked.v1' THEN 'open'
                WHEN 'run.resumed.v1' THEN 'open' WHEN 'run.completed.v1' THEN 'completed'
                WHEN 'run.failed.v1' THEN 'failed' WHEN 'run.cancelled.v1' THEN 'cancelled'
            END AS status
        FROM as_of(upto)
        WHERE stream = 'life' AND known_as IS NOT NULL
    )
    GROUP BY run
) AS l
JOIN runs AS r ON r.run = l.run
WHERE l.ends IS NOT NULL;
COMMENT ON MACRO TABLE runs_as_of IS 'Runs at a position, from their events up to it.';

CREATE MACRO steps_as_of(upto) AS TABLE
SELECT
    f.run, f.agent, f.step, s.tool, s.kind, s.effects, f.status, f.attempts, f.duration_ms,
    f.failure.type AS error_type, f.failure.message AS error, f.verdict, f.outcome_version, s.requested_at
FROM (
    SELECT
        run, agent, body.step AS step,
        arg_max(status, ordinal) FILTER (status IS NOT NULL) AS status,
        1 + count(*) FILTER (type = 'step.attempted.v1') AS attempts,
        arg_max({'ms': body.duration_ms}, ordinal) FILTER (type IN ('step.completed.v1', 'step.failed.v1', 'step.in_doubt.v1')).ms AS duration_ms,
        arg_max(if(status = 'requested' OR status = 'completed', {'type': NULL, 'message': NULL},
            if(status = 'blocked', {'type': 'Blocked', 'message': body.reason}, body.error)),
            ordinal) FILTER (status <> 'not_done') AS failure,
        arg_max({'verdict': body.verdict}, ordinal) FILTER (type IN ('step.settled.v1', 'step.attempted.v1')).verdict AS verdict,
        max(version) FILTER (status <> 'requested') AS outcome_version,
        bool_or(own) AS own, bool_or(type = 'step.requested.v1') AS asked
    FROM (
        SELECT *, CASE type
            WHEN 'step.requested.v1' THEN 'requested' WHEN 'step.attempted.v1' THEN 'requested'
            WHEN 'step.completed.v1' THEN 'completed' WHEN 'step.failed.v1' THEN 'failed'
            WHEN 'step.blocked.v1' THEN 'blocked' WHEN 'step.in_doubt.v1' THEN 'in_doubt'
            ELSE CASE body.verdict WHEN 'happened' THEN 'completed' WHEN 'did_not_happen' THEN 'not_done' END
        END AS status
        FROM (
            SELECT
                run, agent, type, version, own, position << 16 | event_index AS ordinal,
                from_json(body, '{"step": "BIGINT", "duration_ms": "DOUBLE", "reason": "VARCHAR",
                    "verdict": "VARCHAR", "error": {"type": "VARCHAR", "message": "VARCHAR"}}') AS body
            FROM (
                SELECT run, agent, known_as AS type, version, position, event_index, true AS own,
                    coalesce(lifted, data) AS body
                FROM as_of(upto)
                WHERE starts_with(type, 'step.') AND known_as IS NOT NULL
                UNION ALL
                SELECT i.run, e.agent, e.known_as, e.version, e.position, e.event_index, false,
                    coalesce(e.lifted, e.data)
                FROM inherited AS i
                JOIN events AS e
                    ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
                    AND e.position < i.position
                WHERE i.position <= upto AND starts_with(e.type, 'step.') AND e.known_as IS NOT NULL
            )
        )
        WHERE type <> 'step.yielded.v1'
    )
    GROUP BY run, agent, body.step
) AS f
JOIN steps AS s ON s.run = f.run AND s.agent = f.agent AND s.step = f.step
WHERE f.own AND f.asked;
COMMENT ON MACRO TABLE steps_as_of IS 'Steps at a position, from their events up to it.';

CREATE MACRO trail(of_run) AS TABLE
SELECT * FROM (
    SELECT
        e.address, e.happened_at AS "at", e.who, e.what, s.tool, e.step, e.words AS detail, e.agent,
        e.version, e.id AS event
    FROM history AS e
    LEFT JOIN steps AS s ON s.run = of_run AND s.agent = e.agent AND s.step = e.step
    WHERE e.run = of_run AND NOT starts_with(e.stream, 'board/')
        AND e.known NOT IN ('step.yielded.v1', 'tool.declared.v1')
    UNION ALL
    SELECT
        e.address, e.happened_at, e.who, e.what, r.tool, r.step, e.words, r.agent, e.version, e.id
    FROM approval_events AS a
    JOIN history AS e ON e.id = a.event
    JOIN approval_events AS r
        ON r.run = a.run AND r.approval = a.approval AND r.operation = 'requested'
    WHERE a.run = of_run
    UNION ALL
    SELECT
        e.address, e.happened_at, e.who, e.what, s.tool, c.step, e.words, c.agent, e.version, e.id
    FROM domain_events AS c
    JOIN history AS e ON e.id = c.event
    LEFT JOIN steps AS s ON s.run = c.run AND s.agent = c.agent AND s.step = c.step
    WHERE c.run = of_run
)
ORDER BY split_part(address, '.', 1)::BIGINT, split_part(address, '.', 2)::BIGINT;
COMMENT ON MACRO TABLE trail IS 'Events of a run that matter, in order and in words.';

CREATE MACRO decided(of_run) AS TABLE
SELECT
    address_of(e.position, e.event_index) AS address, d.happened_at AS "at", d.agent, d.question,
    d.selected, d.score, d.threshold, d.margin, d.because, d.decision
FROM decisions AS d
JOIN events AS e ON e.position = d.position AND e.version = d.version
WHERE d.run = of_run
ORDER BY e.position, e.event_index;
COMMENT ON MACRO TABLE decided IS 'Decisions of a run, in order; ask `why()` about one.';

CREATE MACRO touched(resource) AS TABLE
SELECT * FROM (
    SELECT
        r.operation AS kind, r.run, r.agent, r.step,
        address_of(e.position, e.event_index) AS address,
        concat(r.agent, ': ', r.operation, ' ', r.uri, ' at ', moment_of(r.happened_at)) AS fact
    FROM resources AS r
    JOIN events AS e ON e.position = r.position AND e.version = r.version
    WHERE r.uri = resource OR r.uri GLOB resource
    UNION ALL
    SELECT
        'argument', s.run, s.agent, s.step, address_of(e.position, e.event_index),
        concat(steps_text(s.tool, s.agent, s.step), ', ', s.status, ', was given ',
            shown(s.arguments::VARCHAR, 200), ' at ', moment_of(s.requested_at))
    FROM steps AS s
    JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
    WHERE if(regexp_matches(resource, '[*?\[]'), s.arguments::VARCHAR GLOB concat('*', resource, '*'),
        contains(s.arguments::VARCHAR, (to_json(resource)::VARCHAR)[2:-2]))
)
ORDER BY split_part(address, '.', 1)::BIGINT, split_part(address, '.', 2)::BIGINT;
COMMENT ON MACRO TABLE touched IS 'Uses of a resource (URI, or pattern with * and ?), in order. kind is the operation, or argument.';

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
COMMENT ON VIEW causes IS 'One row per link from an event to one that caused it.';

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
COMMENT ON MACRO TABLE caused_by IS 'All causes of an event (its id), nearest first by depth, at most 1,000 links.';

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
COMMENT ON MACRO TABLE led_to IS 'All consequences of an event (its id), nearest first by depth, at most 1,000 links.';
