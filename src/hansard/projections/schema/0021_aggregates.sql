-- Refill: files that were projected before are made anew from the log.
-- Aggregates of the program's own: what happened to each, by the tags that the program declared.

CREATE TABLE domain_events (
    aggregate VARCHAR,
    aggregate_id VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    tag VARCHAR,
    state JSON,
    run VARCHAR,
    agent VARCHAR,
    step BIGINT,
    event VARCHAR NOT NULL,
    causation VARCHAR,
    correlation VARCHAR,
    position BIGINT NOT NULL,
    counts_from BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE domain_events IS 'One row an event of an aggregate of the program''s own (an account, an order), by the name and tag that the program declared.';

INSERT INTO event_types VALUES
    ('aggregate.changed.v1', 'changed', NULL, '$.aggregate', ': ', '$.event', ' ', '$.state');

CREATE VIEW aggregates AS
SELECT
    aggregate_id, arg_max(aggregate, version) AS aggregate, max(version) AS version,
    arg_max(tag, version) AS last_tag, arg_max(run, version) AS last_run,
    arg_max(agent, version) AS last_agent, min(happened_at) AS began_at,
    max(happened_at) AS changed_at, max(position) AS position
FROM domain_events
GROUP BY aggregate_id;
COMMENT ON VIEW aggregates IS 'One row an aggregate of the program''s own: at which version it is, and what happened to it last. What it holds only the program''s classes tell (session.get).';

CREATE OR REPLACE MACRO trail(of_run) AS TABLE
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
        e.address, e.happened_at, e.who, e.what, s.tool, c.step, e.words, c.agent, e.version, e.id
    FROM domain_events AS c
    JOIN history AS e ON e.id = c.event
    LEFT JOIN steps AS s ON s.run = c.run AND s.agent = c.agent AND s.step = c.step
    WHERE c.run = of_run
)
ORDER BY split_part(address, '.', 1)::BIGINT, split_part(address, '.', 2)::BIGINT;
COMMENT ON MACRO TABLE trail IS 'trail(of_run): what happened in a run, one row an event that matters, in order; what its steps did to aggregates, too. Columns: address, at, who (the writer, and for which agent), what, tool and step (of a call), detail (in words, long values cut), agent, version, event. Of a fork, what happened in it.';

CREATE OR REPLACE MACRO knew(of_decision) AS TABLE
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
), got AS (
    SELECT s.result->>'$.id' AS aggregate_id, try_cast(s.result->>'$.version' AS BIGINT) AS version,
        min(m.since) AS since
    FROM mine AS m
    JOIN events AS e ON e.id = m.event
    JOIN steps AS s ON s.run = e.run AND s.agent = e.agent AND s.outcome_version = e.version
    WHERE e.known_as = 'step.completed.v1' AND s.tool = 'aggregate.get' AND s.kind = 'aggregate'
    GROUP BY 1, 2
), rebuilt AS (
    SELECT c.event, min(g.since) AS since
    FROM got AS g
    JOIN domain_events AS c ON c.aggregate_id = g.aggregate_id AND c.version <= g.version
    GROUP BY c.event
), known AS (
    SELECT m.event, m.how, m.view, m.since FROM mine AS m
    UNION ALL
    SELECT r.event, 'told', NULL, r.since FROM rebuilt AS r
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
COMMENT ON MACRO TABLE knew IS 'knew(of_decision): what the agent had been shown and told before it decided (the id of its decision, or of any other event of it): how is shown (by a view; view is the first that did, since its position) or told (as the outcome of its own step, as a message in its context, or as what an aggregate that it got is rebuilt from). An event may be both.';
