-- Refill: files that were projected before are made anew from the log.
-- How runs end, and tasks that are done after all.

INSERT INTO event_types VALUES
    ('run.agent_left.v1', 'left the run', NULL, '$.agent', ', ', '$.outcome', ': ', '$.error.message'),
    ('task.reopened.v1', 'task reopened', NULL, '$.task', ': ', '$.because', NULL, NULL);
UPDATE event_types SET path_1 = '$.because' WHERE type = 'run.completed.v1';


CREATE VIEW at_work AS
SELECT
    p.run, p.agent, a.role, p.since, a.position, p.ordinal >> 16 AS joined_position
FROM (
    SELECT
        e.run, e.data->>'agent' AS agent,
        arg_max(e.known_as, e.position << 16 | e.event_index) AS last,
        arg_max(e.happened_at, e.position << 16 | e.event_index) AS since,
        max(e.position << 16 | e.event_index) AS ordinal
    FROM events AS e
    WHERE e.stream = 'life'
        AND e.known_as IN ('run.agent_joined.v1', 'run.resumed.v1', 'run.agent_left.v1')
    GROUP BY e.run, e.data->>'agent'
) AS p
JOIN runs AS r ON r.run = p.run AND r.status = 'open'
LEFT JOIN agents AS a ON a.run = p.run AND a.agent = p.agent
LEFT JOIN (
    SELECT e.run, max(e.position << 16 | e.event_index) AS ordinal
    FROM events AS e
    WHERE e.stream = 'life'
        AND e.known_as IN ('run.completed.v1', 'run.failed.v1', 'run.cancelled.v1')
    GROUP BY e.run
) AS d ON d.run = p.run
WHERE p.last <> 'run.agent_left.v1' AND p.ordinal > coalesce(d.ordinal, 0);
COMMENT ON VIEW at_work IS 'One row an agent that an open run waits for: it took part and has not left. It is at work, or was killed: no record tells the two apart.';


CREATE OR REPLACE VIEW tasks AS
SELECT
    s.run, s.task, s.title, s.what, s.status, s.role, s.agent, s.last_holder, s.claims,
    s.lease_until, s.waits_for, s.waits_for_roles, s.result,
    if(s.status = 'failed', s.failure.type, NULL) AS error_type,
    if(s.status = 'failed', s.failure.text, NULL) AS error,
    s.added_by, s.added_at, s.first_claimed_at,
    if(s.status IN ('done', 'failed'), s.ended_at, NULL) AS ended_at,
    s.reopened, s.version, s.position
FROM (
    SELECT
        h.run, h.task,
        any_value(h.title) FILTER (h.operation = 'added') AS title,
        any_value(h.what) FILTER (h.operation = 'added') AS what,
        CASE arg_max(h.operation, h.version) FILTER (h.operation <> 'extended')
            WHEN 'claimed' THEN 'claimed' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'failed'
            ELSE 'open'
        END AS status,
        arg_max(struct_pack(v := h.role), h.version) FILTER (h.operation IN ('added', 'handed_off'))['v'] AS role,
        arg_max(struct_pack(v := h.agent), h.version) FILTER (h.operation IN ('added', 'handed_off'))['v'] AS agent,
        arg_max(h.agent, h.version) FILTER (h.operation = 'claimed') AS last_holder,
        coalesce(max(h.number), 0) AS claims,
        arg_max(h.lease_until, h.version) FILTER (h.lease_until IS NOT NULL) AS lease_until,
        any_value(h.waits_for) FILTER (h.operation = 'added') AS waits_for,
        any_value(h.waits_for_roles) FILTER (h.operation = 'added') AS waits_for_roles,
        any_value(h.result) FILTER (h.operation = 'completed') AS result,
        arg_max(struct_pack(type := h.error_type, text := h.error), h.version) FILTER (h.operation = 'failed') AS failure,
        any_value(h.author) FILTER (h.operation = 'added') AS added_by,
        min(h.happened_at) AS added_at,
        min(h.happened_at) FILTER (h.operation = 'claimed') AS first_claimed_at,
        max(h.happened_at) FILTER (h.operation IN ('completed', 'failed')) AS ended_at,
        count(*) FILTER (h.operation = 'reopened') AS reopened,
        max(h.version) AS version, max(h.position) AS position
    FROM task_history AS h
    GROUP BY h.run, h.task
) AS s;
COMMENT ON TABLE task_events IS 'One row an event of a run''s tasks. Before a fork, the parent''s count (see task_history).';
COMMENT ON VIEW task_history IS 'One row an event that counts for a run''s tasks: its own, and of a fork its parents'' up to the cut.';
COMMENT ON VIEW tasks IS 'One row a task of a run, as it stands. A lease that is over is told by lease_until and the log''s time: its task may be claimed by another.';

-- ---------------------------------------------------------------- what came late

CREATE VIEW late_outcomes AS
SELECT
    split_part(o.type, '.', 2) AS kind, o.run, o.agent, o.step, o.address,
    concat(steps_text(coalesce(s.tool, 'a call'), o.agent, o.step), ' was still running when ', o.agent,
        ' left at ', moment_of(l.happened_at), '; what came of it was recorded ',
        greatest(0, date_diff('millisecond', l.happened_at, o.happened_at)), ' ms later') AS fact
FROM (
    SELECT
        e.run, e.stream, e.agent, e.role, e.version, e.happened_at, e.known_as AS type,
        address_of(e.position, e.event_index) AS address,
        try_cast(coalesce(e.lifted, e.data)->>'step' AS BIGINT) AS step
    FROM events AS e
    WHERE e.known_as IN ('step.completed.v1', 'step.failed.v1', 'step.in_doubt.v1')
) AS o
ASOF JOIN (
    SELECT e.run, e.stream, e.version, e.known_as AS type, e.happened_at
    FROM events AS e
    WHERE e.known_as = 'agent.left.v1' OR (e.known_as = 'agent.session_began.v1'
        AND coalesce(coalesce(e.lifted, e.data)->>'purpose', 'run') = 'run')
) AS l ON l.run = o.run AND l.stream = o.stream AND o.version > l.version
LEFT JOIN steps AS s ON s.run = o.run AND s.agent = o.agent AND s.step = o.step
WHERE l.type = 'agent.left.v1';
COMMENT ON VIEW late_outcomes IS 'One row an outcome that came when its agent had left: the call ran on behind its session, so nothing of what that did next is on record.';

CREATE OR REPLACE MACRO findings(x) AS TABLE
SELECT 'orphan_intents' AS view, * FROM orphan_intents
UNION ALL
SELECT 'late_outcomes', * FROM late_outcomes
UNION ALL
SELECT 'policy_overrides', * FROM policy_overrides WHERE kind <> 'settled'
UNION ALL
SELECT 'retries', * FROM retries WHERE kind <> 'retried'
UNION ALL
SELECT 'threshold_flips', * FROM threshold_flips(x)
UNION ALL
SELECT 'gaps', * FROM gaps;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times and doubts that a person settled, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact. Nothing in a run of which nothing is missing or odd.';
