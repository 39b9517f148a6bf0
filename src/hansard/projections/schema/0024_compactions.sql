-- Refill: files that were projected before are made anew from the log.
-- Context windows that were compacted: which summary stands for which messages.

CREATE TABLE compactions (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    compaction VARCHAR NOT NULL,
    message_role VARCHAR,
    text VARCHAR,
    content JSON,
    messages BIGINT,
    stands_for VARCHAR[],
    remaining VARCHAR[],
    tokens BIGINT,
    tokens_before BIGINT,
    tokens_after BIGINT,
    digest VARCHAR,
    step BIGINT,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE compactions IS 'One row a summary that took the place of messages in an agent''s context window. The messages stay in messages; compacted says which they are.';

INSERT INTO event_types VALUES
    ('context.compacted.v1', 'compacted', NULL, '$.role', ': ', '$.summary', NULL, NULL);

CREATE VIEW compacted AS
SELECT
    run, agent, compaction, version, position, unnest(stands_for) AS event,
    generate_subscripts(stands_for, 1) AS number
FROM compactions;
COMMENT ON VIEW compacted IS 'One row an event that a summary stands for: a message, of an earlier run of the conversation, too, or a summary of before.';

CREATE VIEW context_windows AS
SELECT w.*
FROM (
    SELECT
        m.run, m.agent, m.version, 'message' AS part, m.message_role, m.text, m.content, m.tokens,
        m.position, e.id AS event
    FROM messages AS m
    JOIN events AS e
        ON e.run = m.run AND e.agent = m.agent AND e.version = m.version
        AND e.known_as = 'message.added.v1'
    UNION ALL
    SELECT
        c.run, c.agent, c.version, 'summary', c.message_role, c.text, c.content, c.tokens,
        c.position, c.compaction
    FROM compactions AS c
) AS w
ANTI JOIN compacted AS g ON g.event = w.event AND g.run = w.run AND g.agent = w.agent;
COMMENT ON VIEW context_windows IS 'One row a part of an agent''s context window as it is now, of what stands in its run: messages, and summaries without what they stand for.';

CREATE OR REPLACE MACRO knew(of_decision) AS TABLE
WITH d AS MATERIALIZED (
    SELECT e.run, e.stream, e.agent, e.role, e.version, e.position
    FROM events AS e WHERE e.id = of_decision
), mine AS (
    SELECT e.id AS event, 'told' AS how, NULL AS view, e.position AS since
    FROM d
    JOIN events AS e ON e.run = d.run AND e.stream = d.stream AND e.version < d.version
    WHERE e.known_as IN ('step.completed.v1', 'step.failed.v1', 'step.settled.v1',
        'step.yielded.v1', 'message.added.v1', 'context.compacted.v1')
    UNION ALL
    SELECT e.id, 'told', NULL, e.position
    FROM d
    JOIN inherited AS i ON i.run = d.run AND i.stream = d.stream
    JOIN events AS e
        ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
        AND e.position < i.position AND e.version < d.version
    WHERE e.known_as IN ('step.completed.v1', 'step.failed.v1', 'step.settled.v1',
        'step.yielded.v1', 'message.added.v1', 'context.compacted.v1')
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
    SELECT m.event, m.how, m.view, m.since
    FROM mine AS m
    ANTI JOIN (
        SELECT c.event FROM compacted AS c JOIN mine AS n ON n.event = c.compaction
    ) AS gone ON gone.event = m.event
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
COMMENT ON MACRO TABLE knew IS 'knew(of_decision): what the agent had been shown and told before it decided (the id of its decision, or of any other event of it): how is shown (by a view; view is the first that did, since its position) or told (as the outcome of its own step, as a message or a summary in its context, without what a summary stood for by then; or as what an aggregate that it got is rebuilt from). An event may be both.';
