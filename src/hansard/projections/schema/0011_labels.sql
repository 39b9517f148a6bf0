-- Refill: files that were projected before are made anew from the log.
-- Labels: how confidential what was recorded is, and which decisions rest on untrusted input.

CREATE TABLE labels (
    event VARCHAR NOT NULL,
    run VARCHAR,
    agent VARCHAR,
    stream VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    confidentiality VARCHAR NOT NULL,
    untrusted BOOLEAN NOT NULL
);
COMMENT ON TABLE labels IS 'One row an event whose commit has a label: the join of all that its writer had been shown. What has none is public and trusted. Before a fork, the parent''s count (see labels_of).';
COMMENT ON COLUMN labels.event IS 'Id of the event.';
COMMENT ON COLUMN labels.run IS 'Id of the run; NULL for what outlives runs.';
COMMENT ON COLUMN labels.agent IS 'The agent whose stream it is in; NULL elsewhere.';
COMMENT ON COLUMN labels.stream IS 'Name of the stream.';
COMMENT ON COLUMN labels.version IS 'Version in the stream.';
COMMENT ON COLUMN labels.position IS 'Position of the commit.';
COMMENT ON COLUMN labels.confidentiality IS 'public, internal, confidential or secret.';
COMMENT ON COLUMN labels.untrusted IS 'Whether it rests on untrusted input.';

CREATE TABLE declassifications (
    event VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    agent VARCHAR,
    key VARCHAR,
    lowered_to VARCHAR NOT NULL,
    lowered_from VARCHAR NOT NULL,
    approver VARCHAR NOT NULL,
    because VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE declassifications IS 'One row a label that somebody lowered: of an agent, or of a key of shared state. Before a fork, the parent''s count.';
COMMENT ON COLUMN declassifications.event IS 'Id of the event that says so.';
COMMENT ON COLUMN declassifications.run IS 'Id of the run.';
COMMENT ON COLUMN declassifications.agent IS 'The agent; NULL where it is a key.';
COMMENT ON COLUMN declassifications.key IS 'The key; NULL where it is an agent.';
COMMENT ON COLUMN declassifications.lowered_to IS 'The label from then on; empty for public and trusted.';
COMMENT ON COLUMN declassifications.lowered_from IS 'The label before.';
COMMENT ON COLUMN declassifications.approver IS 'Who answers for it.';
COMMENT ON COLUMN declassifications.because IS 'Why.';
COMMENT ON COLUMN declassifications.version IS 'Version in the stream of the agent or key.';
COMMENT ON COLUMN declassifications.position IS 'Position of the commit.';
COMMENT ON COLUMN declassifications.happened_at IS 'When it was lowered, as well as is known (see events).';

ALTER TABLE tools ADD COLUMN gives VARCHAR;
ALTER TABLE tools ADD COLUMN takes VARCHAR;
COMMENT ON COLUMN tools.gives IS 'Label of what it tells; NULL for public and trusted.';
COMMENT ON COLUMN tools.takes IS 'Highest confidentiality that it may be told of; NULL for any.';

INSERT INTO event_types VALUES
    ('label.declassified.v1', 'was declassified', 'to ', '$.to', ', because ', '$.because', NULL, NULL);

CREATE VIEW labels_of AS
SELECT l.run, l.run AS stands_in, l.event, l.agent, l.stream, l.version, l.position, l.confidentiality, l.untrusted
FROM labels AS l
WHERE l.run IS NOT NULL
UNION ALL
SELECT i.run, l.run, l.event, l.agent, l.stream, l.version, l.position, l.confidentiality, l.untrusted
FROM inherited AS i
JOIN labels AS l ON l.run = i.parent AND l.stream = i.stream AND l.version <= i.version AND l.position < i.position;
COMMENT ON VIEW labels_of IS 'One row an event with a label that counts for a run: its own, and of a fork its parents'' up to the cut.';
COMMENT ON COLUMN labels_of.run IS 'Id of the run.';
COMMENT ON COLUMN labels_of.stands_in IS 'The run that the event stands in: this one, or a parent.';
COMMENT ON COLUMN labels_of.event IS 'Id of the event.';
COMMENT ON COLUMN labels_of.agent IS 'The agent whose stream it is in; NULL elsewhere.';
COMMENT ON COLUMN labels_of.stream IS 'Name of the stream.';
COMMENT ON COLUMN labels_of.version IS 'Version in the stream.';
COMMENT ON COLUMN labels_of.position IS 'Position of the commit.';
COMMENT ON COLUMN labels_of.confidentiality IS 'public, internal, confidential or secret.';
COMMENT ON COLUMN labels_of.untrusted IS 'Whether it rests on untrusted input.';

CREATE VIEW distrust AS
WITH lowered AS (
    -- From here on an agent is trusted again, until it is shown something else.
    SELECT d.run, d.agent, d.version
    FROM declassifications AS d
    WHERE d.agent IS NOT NULL AND NOT contains(d.lowered_to, 'untrusted')
    UNION ALL
    SELECT i.run, d.agent, d.version
    FROM declassifications AS d
    JOIN inherited AS i ON i.parent = d.run AND ends_with(i.stream, '/' || d.agent) AND d.version <= i.version
    WHERE d.agent IS NOT NULL AND NOT contains(d.lowered_to, 'untrusted')
), told AS (
    SELECT
        l.run, l.stands_in, l.agent, l.event, l.version, l.position, e.type, e.data,
        try_cast(e.data->>'step' AS BIGINT) AS step,
        coalesce(d.version, 0) AS since
    FROM labels_of AS l
    JOIN events AS e ON e.id = l.event
    ASOF LEFT JOIN lowered AS d ON d.run = l.run AND d.agent = l.agent AND l.version >= d.version
    WHERE l.agent IS NOT NULL AND l.untrusted
), firsts AS (
    SELECT t.*, t.position = min(t.position) OVER (PARTITION BY t.run, t.agent, t.since) AS is_first
    FROM told AS t
)
SELECT
    f.run, f.agent, f.event, f.version, f.position, f.since,
    s.step, s.tool,
    CASE
        WHEN f.type = 'message.added.v1' THEN 'message'
        WHEN s.kind IN ('board', 'team', 'view') THEN 'shared'
        ELSE 'tool'
    END AS how,
    s.arguments, s.result
FROM firsts AS f
LEFT JOIN steps AS s ON s.run = f.stands_in AND s.agent = f.agent AND s.step = f.step AND f.type LIKE 'step.%'
LEFT JOIN tools AS t ON t.run = f.stands_in AND t.agent = f.agent AND t.tool = s.tool AND contains(t.gives, 'untrusted')
WHERE CASE
        WHEN f.type = 'message.added.v1' THEN f.is_first
        WHEN f.type NOT IN ('step.completed.v1', 'step.failed.v1', 'step.settled.v1') THEN false
        WHEN s.kind IN ('board', 'team', 'view') THEN true
        ELSE t.tool IS NOT NULL
    END
QUALIFY row_number() OVER (PARTITION BY f.run, f.event ORDER BY t.position DESC) = 1;
COMMENT ON VIEW distrust IS 'One row a moment at which an agent was, or may have been, told something untrusted: an outcome of a tool that gives it, the first untrusted message, what others had shared.';
COMMENT ON COLUMN distrust.run IS 'Id of the run.';
COMMENT ON COLUMN distrust.agent IS 'The agent.';
COMMENT ON COLUMN distrust.event IS 'Id of the event that told it.';
COMMENT ON COLUMN distrust.version IS 'Its version in the agent''s stream.';
COMMENT ON COLUMN distrust.position IS 'Position of the commit.';
COMMENT ON COLUMN distrust.since IS 'Version of the declassification before it; 0 for none.';
COMMENT ON COLUMN distrust.step IS 'The step that told it; NULL for a message.';
COMMENT ON COLUMN distrust.tool IS 'What was called; NULL for a message.';
COMMENT ON COLUMN distrust.how IS 'tool (a tool that gives what is untrusted), message (in its context), or shared (read of what others wrote).';
COMMENT ON COLUMN distrust.arguments IS 'Arguments of the step.';
COMMENT ON COLUMN distrust.result IS 'Result of the step.';

CREATE VIEW shared_distrust AS
WITH reads AS (
    SELECT d.* FROM distrust AS d WHERE d.how = 'shared'
), wrote AS (
    SELECT l.run, l.event, l.stream, l.version, l.position, e.actor, e.type, e.data
    FROM labels_of AS l
    JOIN events AS e ON e.id = l.event
    WHERE l.untrusted AND (l.stream LIKE 'board/%' OR l.agent IS NOT NULL)
), begun AS (
    -- With a put or a removal a key begins anew.
    SELECT r.run, r.event, max(w.version) AS version
    FROM reads AS r
    JOIN board_history AS w
        ON w.run = r.run AND w.key = r.arguments->>'key' AND w.position < r.position
        AND (w.operation IN ('put', 'remove') OR w.anew)
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
COMMENT ON COLUMN shared_distrust.run IS 'Id of the run.';
COMMENT ON COLUMN shared_distrust.agent IS 'Who read it.';
COMMENT ON COLUMN shared_distrust.event IS 'Id of the event that told it (see distrust).';
COMMENT ON COLUMN shared_distrust.source_agent IS 'Who wrote it.';
COMMENT ON COLUMN shared_distrust.source IS 'Id of the event that wrote it.';
COMMENT ON COLUMN shared_distrust.source_position IS 'Position of its commit: what its writer had been told by then is in it.';

CREATE VIEW untrusted_sources AS
WITH RECURSIVE edges AS MATERIALIZED (
    SELECT s.run, s.agent, s.event, s.source_agent, max(s.source_position) AS source_position
    FROM shared_distrust AS s
    GROUP BY ALL
), moments AS MATERIALIZED (
    SELECT d.* FROM distrust AS d
), asked AS (
    SELECT d.decision, d.run, d.agent, d.version, d.position, coalesce(l.untrusted, false) AS is_untrusted
    FROM decisions AS d
    LEFT JOIN labels AS l ON l.event = d.decision
), reach AS (
    SELECT a.decision, a.run, m.agent, m.event, m.position
    FROM asked AS a
    JOIN moments AS m ON m.run = a.run AND m.agent = a.agent AND m.version < a.version
    WHERE NOT a.is_untrusted OR m.since = (
        SELECT max(o.since) FROM moments AS o WHERE o.run = a.run AND o.agent = a.agent AND o.version < a.version)
    UNION
    SELECT r.decision, r.run, m.agent, m.event, m.position
    FROM reach AS r
    JOIN edges AS e ON e.run = r.run AND e.event = r.event
    JOIN moments AS m ON m.run = e.run AND m.agent = e.source_agent AND m.position <= e.source_position
)
SELECT DISTINCT r.decision, r.run, m.agent, m.event AS source, m.how, m.step, m.tool, m.position
FROM reach AS r
JOIN moments AS m ON m.run = r.run AND m.event = r.event
WHERE m.how <> 'shared';
COMMENT ON VIEW untrusted_sources IS 'One row an untrusted source that a decision rests on: what told its agent, or an agent of whom it had read, and so on. Of a declassified decision those before.';
COMMENT ON COLUMN untrusted_sources.decision IS 'Id of the decision.';
COMMENT ON COLUMN untrusted_sources.run IS 'Id of its run.';
COMMENT ON COLUMN untrusted_sources.agent IS 'The agent that was told.';
COMMENT ON COLUMN untrusted_sources.source IS 'Id of the event that told it.';
COMMENT ON COLUMN untrusted_sources.how IS 'tool (a tool that gives what is untrusted) or message (in its context).';
COMMENT ON COLUMN untrusted_sources.step IS 'The step that told it; NULL for a message.';
COMMENT ON COLUMN untrusted_sources.tool IS 'The tool; NULL for a message.';
COMMENT ON COLUMN untrusted_sources.position IS 'Position of that event''s commit.';

CREATE VIEW tainted_decisions AS
WITH lowered AS (
    SELECT d.run, d.agent, d.version, d.approver, d.because
    FROM declassifications AS d
    WHERE d.agent IS NOT NULL AND NOT contains(d.lowered_to, 'untrusted')
), named AS (
    SELECT
        u.decision,
        list(DISTINCT if(u.how = 'message', 'message to ' || u.agent, concat(u.tool, ' (', u.agent, '#', u.step, ')'))) AS sources,
        min(u.position) AS since
    FROM untrusted_sources AS u
    GROUP BY u.decision
)
SELECT
    d.decision, d.run, d.agent, d.role, d.position, d.question, d.selected,
    coalesce(l.confidentiality, 'public') AS confidentiality,
    coalesce(list_sort(n.sources), []) AS sources, n.since,
    NOT coalesce(l.untrusted, false) AS is_declassified,
    if(coalesce(l.untrusted, false), NULL, w.approver) AS approver,
    if(coalesce(l.untrusted, false), NULL, w.because) AS because
FROM decisions AS d
LEFT JOIN labels AS l ON l.event = d.decision
LEFT JOIN named AS n ON n.decision = d.decision
ASOF LEFT JOIN lowered AS w ON w.run = d.run AND w.agent = d.agent AND d.version >= w.version
WHERE coalesce(l.untrusted, false) OR (n.decision IS NOT NULL AND w.approver IS NOT NULL);
COMMENT ON VIEW tainted_decisions IS 'One row a decision that rests on untrusted input, with what that was; declassified ones among them.';
COMMENT ON COLUMN tainted_decisions.decision IS 'Id of the decision.';
COMMENT ON COLUMN tainted_decisions.run IS 'Id of the run.';
COMMENT ON COLUMN tainted_decisions.agent IS 'Who decided.';
COMMENT ON COLUMN tainted_decisions.role IS 'In which role.';
COMMENT ON COLUMN tainted_decisions.position IS 'Position of the commit.';
COMMENT ON COLUMN tainted_decisions.question IS 'What was asked.';
COMMENT ON COLUMN tainted_decisions.selected IS 'What was chosen.';
COMMENT ON COLUMN tainted_decisions.confidentiality IS 'How confidential the decision is.';
COMMENT ON COLUMN tainted_decisions.sources IS 'What it rests on: tool (agent#step), or message to an agent (see untrusted_sources).';
COMMENT ON COLUMN tainted_decisions.since IS 'Position of the first of them.';
COMMENT ON COLUMN tainted_decisions.is_declassified IS 'Whether its agent had been declassified in between.';
COMMENT ON COLUMN tainted_decisions.approver IS 'Who answers for that; NULL where nobody does.';
COMMENT ON COLUMN tainted_decisions.because IS 'Why; NULL where nobody does.';
