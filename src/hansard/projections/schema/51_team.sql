-- The team: tasks and their holders, approvals, tokens and delegations.

CREATE VIEW task_history AS
SELECT e.run, e.task, e.operation, e.author, e.number, e.agent, e.role, e.title, e.what,
    e.waits_for, e.waits_for_roles, e.lease_until, e.result, e.error_type, e.error, e.because,
    e.event, e.version, e.position, e.logged_at, e.happened_at, false AS inherited
FROM task_events AS e
UNION ALL
SELECT i.run, e.task, e.operation, e.author, e.number, e.agent, e.role, e.title, e.what,
    e.waits_for, e.waits_for_roles, e.lease_until, e.result, e.error_type, e.error, e.because,
    e.event, e.version, e.position, e.logged_at, e.happened_at, true
FROM inherited AS i
JOIN task_events AS e ON e.run = i.parent AND e.version <= i.version AND e.position < i.position
WHERE i.stream = 'board/team tasks';
COMMENT ON VIEW task_history IS 'One row per task event in effect for a run; a fork includes its parents'' up to the cut.';

CREATE VIEW tasks AS
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
COMMENT ON VIEW tasks IS 'One row per task of a run. After lease_until, another agent may claim it.';

CREATE VIEW task_holds AS
SELECT
    c.run, c.task, c.number, c.agent, c.role, c.happened_at AS since,
    CASE WHEN e.operation = 'claimed' THEN l.lease_until ELSE e.happened_at END AS until,
    CASE
        WHEN e.operation = 'claimed' THEN 'lease ran out'
        WHEN e.operation IS NULL THEN 'holds it'
        ELSE e.operation
    END AS ended,
    l.lease_until, e.agent AS next_agent, e.role AS next_role, c.event, c.position
FROM task_history AS c
ASOF LEFT JOIN (
    SELECT h.run, h.task, h.version, h.operation, h.happened_at, h.agent, h.role
    FROM task_history AS h
    WHERE h.operation IN ('claimed', 'released', 'completed', 'failed', 'handed_off')
) AS e ON e.run = c.run AND e.task = c.task AND e.version > c.version
LEFT JOIN (
    SELECT h.run, h.task, h.number, max(h.lease_until) AS lease_until
    FROM task_history AS h
    WHERE h.operation IN ('claimed', 'extended')
    GROUP BY h.run, h.task, h.number
) AS l ON l.run = c.run AND l.task = c.task AND l.number = c.number
WHERE c.operation = 'claimed';
COMMENT ON VIEW task_holds IS 'One row per claim of a task.';

CREATE VIEW task_waits AS
SELECT t.run, t.task, 'task' AS kind, w.waits_for AS on_what, o.status AS its_status, o.ended_at
FROM (SELECT s.run, s.task, unnest(s.waits_for) AS waits_for FROM tasks AS s) AS w
JOIN tasks AS t ON t.run = w.run AND t.task = w.task
LEFT JOIN tasks AS o ON o.run = w.run AND o.task = w.waits_for
UNION ALL
SELECT t.run, t.task, 'role', w.waits_for,
    CASE
        WHEN count(o.task) = 0 THEN 'no task'
        WHEN count(*) FILTER (o.status = 'failed') > 0 THEN 'failed'
        WHEN count(*) FILTER (o.status <> 'done') > 0 THEN 'open'
        ELSE 'done'
    END,
    max(o.ended_at)
FROM (SELECT s.run, s.task, unnest(s.waits_for_roles) AS waits_for FROM tasks AS s) AS w
JOIN tasks AS t ON t.run = w.run AND t.task = w.task
LEFT JOIN tasks AS o ON o.run = w.run AND o.role = w.waits_for AND o.task <> w.task
GROUP BY t.run, t.task, w.waits_for;
COMMENT ON VIEW task_waits IS 'One row per dependency of a task.';

CREATE VIEW approvals AS
WITH clock AS (
    SELECT p.logged_at AS now FROM progress AS p
), answered AS (
    SELECT a.run, a.approval, arg_min(a, a.version) AS answer
    FROM approval_events AS a
    JOIN approval_events AS r
        ON r.run = a.run AND r.approval = a.approval AND r.operation = 'requested'
    WHERE a.operation IN ('granted', 'denied') AND a.version > r.version AND a.logged_at < r.until
    GROUP BY a.run, a.approval
)
SELECT
    r.run, r.approval, r.agent, r.role, r.step, r.tool, r.arguments, r.rule,
    CASE
        WHEN w.answer IS NOT NULL THEN w.answer.operation
        WHEN r.until <= c.now THEN 'expired'
        ELSE 'pending'
    END AS standing,
    w.answer.answered_by AS answered_by, w.answer.because AS because, r.logged_at AS asked_at,
    w.answer.logged_at AS answered_at, r.until AS expires_at,
    date_diff('millisecond', r.logged_at, w.answer.logged_at) AS waited_ms,
    u.uses, r.event, r.position
FROM approval_events AS r
CROSS JOIN clock AS c
LEFT JOIN answered AS w ON w.run = r.run AND w.approval = r.approval
LEFT JOIN (
    SELECT e.run, e.data->>'approval' AS approval, count(*) AS uses
    FROM events AS e
    WHERE e.known_as IN ('step.requested.v1', 'step.attempted.v1')
        AND e.data->>'approval' IS NOT NULL
    GROUP BY e.run, e.data->>'approval'
) AS u ON u.run = r.run AND u.approval = r.approval
WHERE r.operation = 'requested';
COMMENT ON VIEW approvals IS 'One row per approval request. Only the first answer before expiry counts; at the log''s time, so that a pending one may have expired since (expires_at).';

CREATE VIEW tokens AS
SELECT
    i.token, i.principal, i.role, i.on_behalf_of, i.expires, i.issued_by, i.logged_at AS issued_at,
    r.logged_at AS revoked_at, r.revoked_by, r.because,
    CASE
        WHEN r.token IS NOT NULL THEN 'revoked'
        WHEN i.expires <= p.logged_at THEN 'expired'
        ELSE 'valid'
    END AS standing,
    i.position
FROM tokens_issued AS i
CROSS JOIN progress AS p
LEFT JOIN (
    SELECT v.principal, v.token, min(v.logged_at) AS logged_at,
        arg_min(v.revoked_by, v.version) AS revoked_by, arg_min(v.because, v.version) AS because
    FROM tokens_revoked AS v
    GROUP BY v.principal, v.token
) AS r ON r.principal = i.principal AND r.token = i.token;
COMMENT ON VIEW tokens IS 'One row per token, at the log''s time.';

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
COMMENT ON VIEW at_work IS 'One row per agent that has joined an open run and not left it. It is running or was killed: the record cannot tell.';
