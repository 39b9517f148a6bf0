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
