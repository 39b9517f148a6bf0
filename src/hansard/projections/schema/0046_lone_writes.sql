-- Writes of one key that are commits of their own, and name the step's intent as their cause.

CREATE VIEW lone_writes AS
SELECT
    w.id AS event, w.run, c.agent, try_cast(c.data->>'step' AS BIGINT) AS step, c.id AS cause, w.position
FROM events AS w
JOIN events AS c ON c.id = w.causation AND c.known_as = 'step.requested.v1'
WHERE starts_with(w.stream, 'board/');
COMMENT ON VIEW lone_writes IS 'One row an event of shared state that stands in a commit of its own: the step that wrote it, by its cause. Of one that stands in one transaction with its step, see events.tx.';

CREATE OR REPLACE VIEW orphan_intents AS
SELECT
    kind, run, agent, step, address_of(position, event_index) AS address,
    concat(steps_text(tool, agent, step), ', ', effects, ', was requested at ',
        moment_of(requested_at), CASE kind
            WHEN 'in doubt' THEN concat(' and ended without telling whether it happened (',
                concat_ws(': ', error_type, nullif(shown(error, 100), '')), '); nobody has settled it')
            WHEN 'ended' THEN concat(' and has no outcome, though ', if(run_status <> 'open',
                concat('the run is ', run_status), concat('the agent left (', left_as, ')')))
            WHEN 'passed over' THEN concat(' in epoch ', asked_epoch, ' and has no outcome, though the agent went on in epoch ', epoch)
            ELSE concat(' and has no outcome: it is under way, or its process is dead; the newest event on record is ',
                date_diff('second', requested_at, newest_at), ' s younger')
        END) AS fact
FROM (
    SELECT
        s.* EXCLUDE (kind), r.status AS run_status, a.outcome AS left_as, a.epoch,
        e.epoch AS asked_epoch, e.position, e.event_index, p.logged_at AS newest_at,
        CASE
            WHEN s.status = 'in_doubt' THEN 'in doubt'
            WHEN r.status <> 'open' OR a.outcome IS NOT NULL THEN 'ended'
            WHEN a.epoch > e.epoch THEN 'passed over'
            ELSE 'waiting'
        END AS kind
    FROM steps AS s
    LEFT JOIN runs AS r ON r.run = s.run
    LEFT JOIN agents AS a ON a.run = s.run AND a.agent = s.agent AND a.role = s.role
    JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
    CROSS JOIN progress AS p
    WHERE s.status IN ('requested', 'in_doubt')
        AND NOT EXISTS (FROM lone_writes AS w WHERE w.cause = e.id)
);
COMMENT ON VIEW orphan_intents IS 'One row an intent without a known outcome: its effect may or may not have happened.';

CREATE OR REPLACE VIEW shared_distrust AS
WITH reads AS (
    SELECT d.* FROM distrust AS d WHERE d.how = 'shared'
), wrote AS (
    SELECT l.run, l.event, l.stream, l.version, l.position, e.actor, e.type, e.data
    FROM labels_of AS l
    JOIN events AS e ON e.id = l.event
    WHERE l.untrusted AND (l.stream LIKE 'board/%' OR l.agent IS NOT NULL)
), begun AS (
    -- With a put or a removal a key begins anew; not with the step's own, which follows on what it read.
    SELECT r.run, r.event, max(w.version) AS version
    FROM reads AS r
    JOIN board_history AS w
        ON w.run = r.run AND w.key = r.arguments->>'key' AND w.position < r.position
        AND (w.operation IN ('put', 'remove') OR w.anew)
    LEFT JOIN lone_writes AS o ON o.event = w.event AND o.agent = r.agent AND o.step = r.step
    WHERE o.event IS NULL
    GROUP BY r.run, r.event
)
SELECT r.run, r.agent, r.event, w.actor AS source_agent, w.event AS source, w.position AS source_position
FROM reads AS r
LEFT JOIN begun AS b ON b.run = r.run AND b.event = r.event
JOIN wrote AS w
    ON w.run = r.run AND w.position < r.position AND w.actor <> r.agent
    AND CASE
        WHEN r.tool = 'board.keys' THEN starts_with(w.stream, 'board/') AND w.type LIKE 'board.%'
        WHEN r.tool = 'board.commit' THEN
            w.type LIKE 'board.%'
            AND contains(coalesce(r.arguments::VARCHAR, ''), '"' || substr(w.stream, 7) || '"')
        WHEN starts_with(r.tool, 'board.') THEN
            w.stream = 'board/' || (r.arguments->>'key') AND w.version >= coalesce(b.version, 0)
        WHEN r.tool = 'team.inbox' THEN
            w.type = 'mail.sent.v1'
            AND list_contains(from_json(r.result->'messages', '[{"number": "BIGINT"}]').list_transform(lambda m: m.number), w.version)
        WHEN r.tool = 'team.claim' THEN w.type LIKE 'task.%' AND w.data->>'task' = r.result->>'id'
        WHEN starts_with(r.tool, 'team.') THEN w.type LIKE 'task.%'
        ELSE w.stream LIKE 'agent/%' OR w.type LIKE 'board.%' OR w.type LIKE 'task.%' OR w.type LIKE 'mail.%'
    END;
COMMENT ON VIEW shared_distrust IS 'One row an untrusted thing that an agent read and another one had written.';
