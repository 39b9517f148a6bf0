-- Refill: files that were projected before are made anew from the log.
-- Views: what was served to which role, who saw an event, and what an agent knew when it decided.

CREATE TABLE views_served (
    view VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    agent VARCHAR,
    shown_to VARCHAR NOT NULL,
    upto VARCHAR NOT NULL,
    rules VARCHAR,
    events BIGINT NOT NULL,
    digest VARCHAR NOT NULL,
    seen MAP(VARCHAR, VARCHAR) NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE views_served IS 'One row a view that was served: what a role was shown of a run. Before a fork, the parent''s count (see lineage).';

INSERT INTO event_types VALUES
    ('view.served.v1', 'was shown', 'as ', '$.role', ', events: ', '$.events', NULL, NULL);

CREATE MACRO in_ranges(ranges, n) AS len(list_filter(string_split(ranges, ','), lambda p:
    n >= split_part(p, '-', 1)::BIGINT
    AND n <= coalesce(nullif(split_part(p, '-', 2), ''), p)::BIGINT)) > 0;
COMMENT ON MACRO in_ranges IS 'in_ranges(ranges, n): whether ranges such as 1-4,7 have a number.';

CREATE MACRO who_saw(of_event) AS TABLE
WITH wanted AS (
    SELECT e.run, e.stream, e.version FROM events AS e WHERE e.id = of_event
), places AS (
    SELECT w.run, w.stream, w.version FROM wanted AS w
    UNION
    SELECT i.run, w.stream, w.version
    FROM wanted AS w
    JOIN inherited AS i ON i.parent = w.run AND i.stream = w.stream AND w.version <= i.version
), entries AS (
    SELECT v.view, v.run, unnest(map_entries(v.seen)) AS entry
    FROM views_served AS v
    WHERE v.run IN (SELECT p.run FROM places AS p)
)
SELECT v.view, v.run, v.role, v.agent, v.shown_to, v.rules, v.position, v.happened_at
FROM entries AS s
JOIN places AS p ON p.run = s.run AND p.stream = s.entry.key
JOIN views_served AS v ON v.view = s.view
WHERE in_ranges(s.entry.value, p.version)
ORDER BY v.position;
COMMENT ON MACRO TABLE who_saw IS 'who_saw(of_event): the views that showed an event (its id), the first first: to whom, in which role, by which rules. Masked or whole alike; what an agent wrote itself it knows without a view.';

CREATE MACRO knew(of_decision) AS TABLE
WITH d AS MATERIALIZED (
    SELECT e.run, e.stream, e.agent, e.role, e.version, e.position
    FROM events AS e WHERE e.id = of_decision
), mine AS (
    SELECT e.id AS event, 'told' AS how, NULL AS view, e.position AS since
    FROM d
    JOIN events AS e ON e.run = d.run AND e.stream = d.stream AND e.version < d.version
    WHERE e.known_as IN ('step.completed.v1', 'step.failed.v1', 'step.settled.v1',
        'step.yielded.v1', 'message.added.v1')
    UNION ALL
    SELECT e.id, 'told', NULL, e.position
    FROM d
    JOIN inherited AS i ON i.run = d.run AND i.stream = d.stream
    JOIN events AS e
        ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
        AND e.position < i.position AND e.version < d.version
    WHERE e.known_as IN ('step.completed.v1', 'step.failed.v1', 'step.settled.v1',
        'step.yielded.v1', 'message.added.v1')
), served AS (
    SELECT v.view, v.run, v.position, v.seen
    FROM d
    JOIN views_served AS v ON v.run = d.run AND v.agent = d.agent AND v.position < d.position
    UNION ALL
    SELECT v.view, v.run, v.position, v.seen
    FROM d
    JOIN inherited AS i ON i.run = d.run AND i.stream = 'board/view ' || d.role
    JOIN views_served AS v
        ON v.run = i.parent AND v.agent = d.agent AND v.role = d.role AND v.version <= i.version
        AND v.position < i.position
), entries AS (
    SELECT s.view, s.run, s.position, unnest(map_entries(s.seen)) AS entry FROM served AS s
), parts AS (
    SELECT
        e.view, e.run, e.position, e.entry.key AS stream,
        unnest(string_split(e.entry.value, ',')) AS part
    FROM entries AS e
), ranges AS (
    SELECT
        p.run, p.stream, split_part(p.part, '-', 1)::BIGINT AS lowest,
        coalesce(nullif(split_part(p.part, '-', 2), ''), p.part)::BIGINT AS highest,
        min(p.position) AS since, arg_min(p.view, p.position) AS view
    FROM parts AS p
    GROUP BY p.run, p.stream, p.part
), shown_events AS (
    SELECT e.id AS event, r.view, r.since
    FROM ranges AS r
    JOIN events AS e
        ON e.run = r.run AND e.stream = r.stream AND e.version BETWEEN r.lowest AND r.highest
    UNION ALL
    SELECT e.id, r.view, r.since
    FROM ranges AS r
    JOIN inherited AS i ON i.run = r.run AND i.stream = r.stream
    JOIN events AS e
        ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
        AND e.position < i.position AND e.version BETWEEN r.lowest AND r.highest
), known AS (
    SELECT m.event, m.how, m.view, m.since FROM mine AS m
    UNION ALL
    SELECT s.event, 'shown', arg_min(s.view, s.since), min(s.since)
    FROM shown_events AS s
    GROUP BY s.event
)
SELECT
    k.event, address_of(e.position, e.event_index) AS address, e.type, e.run, e.agent, k.how,
    k.view, k.since
FROM known AS k
JOIN events AS e ON e.id = k.event
ORDER BY e.position, e.event_index, k.how;
COMMENT ON MACRO TABLE knew IS 'knew(of_decision): what the agent had been shown and told before it decided (the id of its decision, or of any other event of it): how is shown (by a view; view is the first that did, since its position) or told (as the outcome of its own step, or as a message in its context). An event may be both.';
