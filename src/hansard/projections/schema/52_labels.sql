-- Labels: the confidentiality of recorded values, and decisions that rest on untrusted input.

CREATE VIEW labels_of AS
SELECT l.run, l.run AS stands_in, l.event, l.agent, l.stream, l.version, l.position, l.confidentiality, l.untrusted
FROM labels AS l
WHERE l.run IS NOT NULL
UNION ALL
SELECT i.run, l.run, l.event, l.agent, l.stream, l.version, l.position, l.confidentiality, l.untrusted
FROM inherited AS i
JOIN labels AS l ON l.run = i.parent AND l.stream = i.stream AND l.version <= i.version AND l.position < i.position;
COMMENT ON VIEW labels_of IS 'One row per labelled event in effect for a run; a fork includes its parents'' up to the cut.';

CREATE VIEW distrust AS
WITH lowered AS (
    -- Start of a period in which an agent is trusted again, until it sees another untrusted value.
    SELECT d.run, d.agent, d.version
    FROM declassifications AS d
    WHERE d.agent IS NOT NULL AND NOT contains(d.lowered_to, 'untrusted')
    UNION ALL
    SELECT i.run, d.agent, d.version
    FROM declassifications AS d
    JOIN inherited AS i ON i.parent = d.run AND ends_with(i.stream, '/' || d.agent) AND d.version <= i.version
    WHERE d.agent IS NOT NULL AND NOT contains(d.lowered_to, 'untrusted')
), shown_labels AS (
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
    FROM shown_labels AS t
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
COMMENT ON VIEW distrust IS 'One row per time an agent received, or may have received, untrusted input.';

CREATE VIEW shared_distrust AS
WITH reads AS (
    SELECT d.* FROM distrust AS d WHERE d.how = 'shared'
), wrote AS (
    SELECT l.run, l.event, l.stream, l.version, l.position, e.actor, e.type, e.data
    FROM labels_of AS l
    JOIN events AS e ON e.id = l.event
    WHERE l.untrusted AND (l.stream LIKE 'board/%' OR l.agent IS NOT NULL)
), begun AS (
    -- A put or a removal restarts a key, except the step's own, which follows what it read.
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
COMMENT ON VIEW shared_distrust IS 'One row per untrusted item that an agent read from another.';

CREATE VIEW untrusted_sources AS
WITH RECURSIVE edges AS MATERIALIZED (
    SELECT s.run, s.agent, s.event, s.source_agent, max(s.source_position) AS source_position
    FROM shared_distrust AS s
    GROUP BY ALL
), moments AS MATERIALIZED (
    SELECT d.* FROM distrust AS d
), targets AS (
    SELECT d.decision, d.run, d.agent, d.version, d.position, coalesce(l.untrusted, false) AS is_untrusted
    FROM decisions AS d
    LEFT JOIN labels AS l ON l.event = d.decision
), reach AS (
    SELECT a.decision, a.run, m.agent, m.event, m.position
    FROM targets AS a
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
COMMENT ON VIEW untrusted_sources IS 'One row per untrusted source of a decision, received by its agent or by agents it read from. Of a declassified decision the sources before that.';

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
COMMENT ON VIEW tainted_decisions IS 'One row per decision that rests on untrusted input, declassified ones included.';

CREATE VIEW carried AS
WITH shown_labels AS (
    SELECT s.principal, s.label, s.version, s.position, s.logged_at FROM principals_shown AS s
    UNION ALL
    SELECT d.principal, coalesce(nullif(d.lowered_to, ''), 'public'), d.version, d.position, d.happened_at
    FROM declassifications AS d
    WHERE d.principal IS NOT NULL
)
SELECT t.principal, t.label, t.position, t.logged_at AS since
FROM shown_labels AS t
QUALIFY row_number() OVER (PARTITION BY t.principal ORDER BY t.version DESC) = 1;
COMMENT ON VIEW carried IS 'One row per principal that was shown labelled data, with its current label.';

CREATE VIEW model_inputs AS
WITH labelled AS (
    SELECT l.position, l.agent, l.run, max_by(l.confidentiality, e.rank) AS confidentiality, bool_or(l.untrusted) AS untrusted
    FROM labels AS l
    JOIN (VALUES ('public', 0), ('internal', 1), ('confidential', 2), ('secret', 3)) AS e(name, rank) ON e.name = l.confidentiality
    WHERE l.agent IS NOT NULL
    GROUP BY l.position, l.agent, l.run
), declared AS (
    SELECT run, agent, tool, max_by(takes, version) AS takes FROM tools GROUP BY run, agent, tool
), replaced AS (
    SELECT run, agent, step, max(amount) FILTER (metric = 'replaced') AS replaced,
        to_json(map_from_entries(list({'k': metric[10:], 'v': amount::BIGINT} ORDER BY metric) FILTER (starts_with(metric, 'replaced_')))) AS kinds
    FROM usage
    WHERE step IS NOT NULL AND starts_with(metric, 'replaced')
    GROUP BY run, agent, step
)
SELECT
    s.run, s.agent, s.role, s.step, s.tool, s.parent_step, p.tool AS chosen_by, s.status, d.takes,
    coalesce(l.confidentiality, 'public') AS confidentiality, coalesce(l.untrusted, false) AS untrusted,
    r.replaced::BIGINT AS replaced, r.kinds AS replaced_kinds,
    (SELECT list(m.step ORDER BY m.step) FROM steps AS m
        WHERE m.run = s.run AND m.agent = s.agent AND m.kind = 'memory' AND m.step < s.step) AS memory_steps,
    s.arguments, s.requested_at, coalesce(s.requested_position, s.outcome_position) AS position
FROM steps AS s
LEFT JOIN steps AS p ON p.run = s.run AND p.agent = s.agent AND p.step = s.parent_step
LEFT JOIN declared AS d ON d.run = s.run AND d.agent = s.agent AND d.tool = s.tool
LEFT JOIN labelled AS l ON l.run = s.run AND l.agent = s.agent AND l.position = coalesce(s.outcome_position, s.requested_position)
LEFT JOIN replaced AS r ON r.run = s.run AND r.agent = s.agent AND r.step = s.step
WHERE s.kind = 'model' AND s.status <> 'blocked';
COMMENT ON VIEW model_inputs IS 'One row per model call: its input, the agent''s label then, and placeholders.';
