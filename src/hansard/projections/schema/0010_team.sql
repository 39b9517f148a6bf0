-- Refill: files that were projected before are made anew from the log.
-- The team: tasks and who held them, messages, approvals, what was refused, who may log in, and what
-- was answered in SQL as a role.

CREATE TABLE task_events (
    run VARCHAR NOT NULL,
    task VARCHAR,
    operation VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    number BIGINT,
    agent VARCHAR,
    role VARCHAR,
    title VARCHAR,
    what JSON,
    waits_for VARCHAR[],
    waits_for_roles VARCHAR[],
    lease_until TIMESTAMP,
    result JSON,
    error_type VARCHAR,
    error VARCHAR,
    because VARCHAR,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE task_events IS 'One row an event of a run''s tasks. Before a fork, the parent''s count (see task_history).';
COMMENT ON COLUMN task_events.run IS 'Id of the run.';
COMMENT ON COLUMN task_events.task IS 'The task.';
COMMENT ON COLUMN task_events.operation IS 'added, claimed, extended, released, completed, failed or handed_off.';
COMMENT ON COLUMN task_events.author IS 'The agent that wrote it.';
COMMENT ON COLUMN task_events.number IS 'Of which claim of the task it is, from 1; NULL for added.';
COMMENT ON COLUMN task_events.agent IS 'Of claimed: who claimed it. Of added and handed_off: the one agent it is for, where it is for one.';
COMMENT ON COLUMN task_events.role IS 'Of claimed: that agent''s role. Of added and handed_off: the role it is for, where it is for one.';
COMMENT ON COLUMN task_events.title IS 'Of added: what is to be done, in words.';
COMMENT ON COLUMN task_events.what IS 'Of added: what it is about. Of handed_off: what the receiver was given.';
COMMENT ON COLUMN task_events.waits_for IS 'Of added: the tasks that must be done before.';
COMMENT ON COLUMN task_events.waits_for_roles IS 'Of added: the roles all of whose tasks must be done before.';
COMMENT ON COLUMN task_events.lease_until IS 'Of claimed and extended: the log''s time when the lease is over.';
COMMENT ON COLUMN task_events.result IS 'Of completed: what came of it.';
COMMENT ON COLUMN task_events.error_type IS 'Of failed: the error''s type.';
COMMENT ON COLUMN task_events.error IS 'Of failed: what it says.';
COMMENT ON COLUMN task_events.because IS 'Of released and handed_off: why.';
COMMENT ON COLUMN task_events.event IS 'Id of the event.';
COMMENT ON COLUMN task_events.version IS 'Version in its stream.';
COMMENT ON COLUMN task_events.position IS 'Position of the commit.';
COMMENT ON COLUMN task_events.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN task_events.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE mail (
    run VARCHAR NOT NULL,
    sender VARCHAR NOT NULL,
    sender_role VARCHAR,
    to_agent VARCHAR,
    to_role VARCHAR,
    content JSON,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE mail IS 'One row a message between agents of a run.';
COMMENT ON COLUMN mail.run IS 'Id of the run.';
COMMENT ON COLUMN mail.sender IS 'The agent that sent it.';
COMMENT ON COLUMN mail.sender_role IS 'That agent''s role.';
COMMENT ON COLUMN mail.to_agent IS 'The agent it is for; NULL where it is for a role.';
COMMENT ON COLUMN mail.to_role IS 'The role it is for; NULL where it is for an agent.';
COMMENT ON COLUMN mail.content IS 'What it says, as recorded: large parts by reference.';
COMMENT ON COLUMN mail.event IS 'Id of the event.';
COMMENT ON COLUMN mail.version IS 'Version in its stream.';
COMMENT ON COLUMN mail.position IS 'Position of the commit.';
COMMENT ON COLUMN mail.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN mail.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE approval_events (
    run VARCHAR NOT NULL,
    approval VARCHAR,
    operation VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    agent VARCHAR,
    role VARCHAR,
    step BIGINT,
    tool VARCHAR,
    arguments JSON,
    rule VARCHAR,
    call VARCHAR,
    fingerprint VARCHAR,
    until TIMESTAMP,
    answered_by VARCHAR,
    because VARCHAR,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE approval_events IS 'One row an event of a run''s approvals (see approvals).';
COMMENT ON COLUMN approval_events.run IS 'Id of the run.';
COMMENT ON COLUMN approval_events.approval IS 'Id of the question.';
COMMENT ON COLUMN approval_events.operation IS 'requested, granted, denied or expired.';
COMMENT ON COLUMN approval_events.author IS 'Who wrote it.';
COMMENT ON COLUMN approval_events.agent IS 'Of requested: the agent that asks.';
COMMENT ON COLUMN approval_events.role IS 'Of requested: its role.';
COMMENT ON COLUMN approval_events.step IS 'Of requested: the step.';
COMMENT ON COLUMN approval_events.tool IS 'Of requested: the tool.';
COMMENT ON COLUMN approval_events.arguments IS 'Of requested: the call''s arguments, as recorded.';
COMMENT ON COLUMN approval_events.rule IS 'Of requested: the gate''s rule that wants it asked.';
COMMENT ON COLUMN approval_events.call IS 'Of requested: the call''s key.';
COMMENT ON COLUMN approval_events.fingerprint IS 'Of requested: the call''s fingerprint.';
COMMENT ON COLUMN approval_events.until IS 'Of requested: the log''s time from which on no answer counts.';
COMMENT ON COLUMN approval_events.answered_by IS 'Of granted and denied: who answers for it.';
COMMENT ON COLUMN approval_events.because IS 'Of granted and denied: why.';
COMMENT ON COLUMN approval_events.event IS 'Id of the event.';
COMMENT ON COLUMN approval_events.version IS 'Version in its stream.';
COMMENT ON COLUMN approval_events.position IS 'Position of the commit.';
COMMENT ON COLUMN approval_events.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN approval_events.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE refusals (
    kind VARCHAR NOT NULL,
    run VARCHAR,
    agent VARCHAR,
    role VARCHAR,
    principal VARCHAR,
    what VARCHAR,
    name VARCHAR,
    step BIGINT,
    rule VARCHAR,
    because VARCHAR,
    count BIGINT NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE refusals IS 'One row a thing that was refused to an agent or to somebody who logged in, by a role, a label or a login. Nothing of it was done. Calls that other rules of a gate refused are in policies.';
COMMENT ON COLUMN refusals.kind IS 'call (of a tool), statement (anything else an agent does) or access (to the service).';
COMMENT ON COLUMN refusals.run IS 'Id of the run; NULL for access.';
COMMENT ON COLUMN refusals.agent IS 'The agent; NULL for access.';
COMMENT ON COLUMN refusals.role IS 'The agent''s role; for access the role that was claimed.';
COMMENT ON COLUMN refusals.principal IS 'For access: who it was claimed to be.';
COMMENT ON COLUMN refusals.what IS 'What kind of thing: call, kind, key, read, task, settle, approve, query ...; for access the operation.';
COMMENT ON COLUMN refusals.name IS 'Which one.';
COMMENT ON COLUMN refusals.step IS 'For a call: its step.';
COMMENT ON COLUMN refusals.rule IS 'What refused it.';
COMMENT ON COLUMN refusals.because IS 'Why.';
COMMENT ON COLUMN refusals.count IS 'How often: attempts to log in are counted together.';
COMMENT ON COLUMN refusals.event IS 'Id of the event.';
COMMENT ON COLUMN refusals.version IS 'Version in its stream.';
COMMENT ON COLUMN refusals.position IS 'Position of the commit.';
COMMENT ON COLUMN refusals.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN refusals.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE principals (
    principal VARCHAR NOT NULL,
    kind VARCHAR,
    about VARCHAR,
    registered_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE principals IS 'One row a principal: an agent, a person or a service that may log in.';
COMMENT ON COLUMN principals.principal IS 'Its name.';
COMMENT ON COLUMN principals.kind IS 'agent, person or service.';
COMMENT ON COLUMN principals.about IS 'What was said of it.';
COMMENT ON COLUMN principals.registered_by IS 'Who registered it.';
COMMENT ON COLUMN principals.event IS 'Id of the event.';
COMMENT ON COLUMN principals.version IS 'Version in its stream.';
COMMENT ON COLUMN principals.position IS 'Position of the commit.';
COMMENT ON COLUMN principals.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN principals.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE tokens_issued (
    token VARCHAR,
    principal VARCHAR NOT NULL,
    role VARCHAR,
    expires TIMESTAMP,
    nkey VARCHAR,
    issued_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE tokens_issued IS 'One row a token that was issued (see tokens).';
COMMENT ON COLUMN tokens_issued.token IS 'Its public id.';
COMMENT ON COLUMN tokens_issued.principal IS 'Whose it is.';
COMMENT ON COLUMN tokens_issued.role IS 'The role it acts in.';
COMMENT ON COLUMN tokens_issued.expires IS 'When it expires, in UTC; NULL: it does not.';
COMMENT ON COLUMN tokens_issued.nkey IS 'The public key by which the broker knows its holder; NULL where it does not.';
COMMENT ON COLUMN tokens_issued.issued_by IS 'Who issued it.';
COMMENT ON COLUMN tokens_issued.event IS 'Id of the event.';
COMMENT ON COLUMN tokens_issued.version IS 'Version in its stream.';
COMMENT ON COLUMN tokens_issued.position IS 'Position of the commit.';
COMMENT ON COLUMN tokens_issued.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN tokens_issued.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE tokens_revoked (
    token VARCHAR,
    principal VARCHAR NOT NULL,
    because VARCHAR,
    revoked_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE tokens_revoked IS 'One row a token that was revoked (see tokens).';
COMMENT ON COLUMN tokens_revoked.token IS 'Its public id.';
COMMENT ON COLUMN tokens_revoked.principal IS 'Whose it was.';
COMMENT ON COLUMN tokens_revoked.because IS 'Why.';
COMMENT ON COLUMN tokens_revoked.revoked_by IS 'Who revoked it.';
COMMENT ON COLUMN tokens_revoked.event IS 'Id of the event.';
COMMENT ON COLUMN tokens_revoked.version IS 'Version in its stream.';
COMMENT ON COLUMN tokens_revoked.position IS 'Position of the commit.';
COMMENT ON COLUMN tokens_revoked.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN tokens_revoked.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE queries (
    role VARCHAR NOT NULL,
    asked_by VARCHAR NOT NULL,
    upto VARCHAR,
    rules VARCHAR,
    statement VARCHAR,
    role_position BIGINT,
    rows BIGINT,
    cut BOOLEAN,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE queries IS 'One row a question that was answered in SQL as a role. Which events an answer drew on is not known: it had the tables of the role by these rules, up to this point.';
COMMENT ON COLUMN queries.role IS 'The role.';
COMMENT ON COLUMN queries.asked_by IS 'Who asked.';
COMMENT ON COLUMN queries.upto IS 'Id of the log''s newest commit then; NULL where it had none.';
COMMENT ON COLUMN queries.rules IS 'Id of the event that gave the role its rules.';
COMMENT ON COLUMN queries.statement IS 'SHA-256 of the SQL, in hex.';
COMMENT ON COLUMN queries.role_position IS 'The role''s own position that the answer told.';
COMMENT ON COLUMN queries.rows IS 'How many rows it gave.';
COMMENT ON COLUMN queries.cut IS 'Whether there were more.';
COMMENT ON COLUMN queries.event IS 'Id of the event.';
COMMENT ON COLUMN queries.version IS 'Version in its stream.';
COMMENT ON COLUMN queries.position IS 'Position of the commit.';
COMMENT ON COLUMN queries.logged_at IS 'The log''s own time of the commit: what leases and time-outs go by.';
COMMENT ON COLUMN queries.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON VIEW task_history IS 'One row an event that counts for a run''s tasks: its own, and of a fork its parents'' up to the cut.';
COMMENT ON COLUMN task_history.task IS 'As in task_events.';
COMMENT ON COLUMN task_history.operation IS 'As in task_events.';
COMMENT ON COLUMN task_history.author IS 'As in task_events.';
COMMENT ON COLUMN task_history.number IS 'As in task_events.';
COMMENT ON COLUMN task_history.agent IS 'As in task_events.';
COMMENT ON COLUMN task_history.role IS 'As in task_events.';
COMMENT ON COLUMN task_history.title IS 'As in task_events.';
COMMENT ON COLUMN task_history.what IS 'As in task_events.';
COMMENT ON COLUMN task_history.waits_for IS 'As in task_events.';
COMMENT ON COLUMN task_history.waits_for_roles IS 'As in task_events.';
COMMENT ON COLUMN task_history.lease_until IS 'As in task_events.';
COMMENT ON COLUMN task_history.result IS 'As in task_events.';
COMMENT ON COLUMN task_history.error_type IS 'As in task_events.';
COMMENT ON COLUMN task_history.error IS 'As in task_events.';
COMMENT ON COLUMN task_history.because IS 'As in task_events.';
COMMENT ON COLUMN task_history.event IS 'As in task_events.';
COMMENT ON COLUMN task_history.version IS 'As in task_events.';
COMMENT ON COLUMN task_history.position IS 'As in task_events.';
COMMENT ON COLUMN task_history.logged_at IS 'As in task_events.';
COMMENT ON COLUMN task_history.happened_at IS 'As in task_events.';
COMMENT ON COLUMN task_history.run IS 'Id of the run.';
COMMENT ON COLUMN task_history.inherited IS 'Whether it was written in a parent of the run.';

CREATE VIEW tasks AS
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
    any_value(h.error_type) FILTER (h.operation = 'failed') AS error_type,
    any_value(h.error) FILTER (h.operation = 'failed') AS error,
    any_value(h.author) FILTER (h.operation = 'added') AS added_by,
    min(h.happened_at) AS added_at,
    min(h.happened_at) FILTER (h.operation = 'claimed') AS first_claimed_at,
    max(h.happened_at) FILTER (h.operation IN ('completed', 'failed')) AS ended_at,
    max(h.version) AS version, max(h.position) AS position
FROM task_history AS h
GROUP BY h.run, h.task;
COMMENT ON VIEW tasks IS 'One row a task of a run, as it stands. A lease that is over is told by lease_until and the log''s time: its task may be claimed by another.';
COMMENT ON COLUMN tasks.run IS 'Id of the run.';
COMMENT ON COLUMN tasks.task IS 'The task.';
COMMENT ON COLUMN tasks.title IS 'What is to be done, in words.';
COMMENT ON COLUMN tasks.what IS 'What it is about.';
COMMENT ON COLUMN tasks.status IS 'open, claimed, done or failed.';
COMMENT ON COLUMN tasks.role IS 'The role it is for now, where it is for one.';
COMMENT ON COLUMN tasks.agent IS 'The agent it is for now, where it is for one.';
COMMENT ON COLUMN tasks.last_holder IS 'The agent that claimed it last.';
COMMENT ON COLUMN tasks.claims IS 'How often it was claimed: more than 1 where it was taken over, given back or handed on.';
COMMENT ON COLUMN tasks.lease_until IS 'The log''s time when the last lease is over.';
COMMENT ON COLUMN tasks.waits_for IS 'The tasks that must be done before.';
COMMENT ON COLUMN tasks.waits_for_roles IS 'The roles all of whose tasks must be done before.';
COMMENT ON COLUMN tasks.result IS 'What came of it.';
COMMENT ON COLUMN tasks.error_type IS 'The error''s type, where it failed.';
COMMENT ON COLUMN tasks.error IS 'What it says.';
COMMENT ON COLUMN tasks.added_by IS 'The agent that added it.';
COMMENT ON COLUMN tasks.added_at IS 'When.';
COMMENT ON COLUMN tasks.first_claimed_at IS 'When it was first claimed; NULL where it never was.';
COMMENT ON COLUMN tasks.ended_at IS 'When it was completed or failed.';
COMMENT ON COLUMN tasks.version IS 'Version of its last event in the stream of the run''s tasks.';
COMMENT ON COLUMN tasks.position IS 'Position of its last event.';

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
COMMENT ON VIEW task_holds IS 'One row a claim of a task: who held it, from when to when, and how that ended.';
COMMENT ON COLUMN task_holds.run IS 'Id of the run.';
COMMENT ON COLUMN task_holds.task IS 'The task.';
COMMENT ON COLUMN task_holds.number IS 'The claim''s number, from 1.';
COMMENT ON COLUMN task_holds.agent IS 'The agent that held it.';
COMMENT ON COLUMN task_holds.role IS 'Its role.';
COMMENT ON COLUMN task_holds.since IS 'When it claimed it.';
COMMENT ON COLUMN task_holds.until IS 'When that ended; of a lease that ran out, when that was over. NULL where it holds it still.';
COMMENT ON COLUMN task_holds.ended IS 'completed, failed, released, handed_off, lease ran out (another one claimed it), or holds it.';
COMMENT ON COLUMN task_holds.lease_until IS 'The log''s time when its lease was over.';
COMMENT ON COLUMN task_holds.next_agent IS 'Of a claim that was lost: who claimed it next. Of a hand-off: the agent it went to.';
COMMENT ON COLUMN task_holds.next_role IS 'The role of that.';
COMMENT ON COLUMN task_holds.event IS 'Id of the claim''s event.';
COMMENT ON COLUMN task_holds.position IS 'Position of the claim.';

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
COMMENT ON VIEW task_waits IS 'One row a thing that a task waits for or waited for.';
COMMENT ON COLUMN task_waits.run IS 'Id of the run.';
COMMENT ON COLUMN task_waits.task IS 'The task that waits.';
COMMENT ON COLUMN task_waits.kind IS 'task or role.';
COMMENT ON COLUMN task_waits.on_what IS 'The task, or the role all of whose tasks must be done.';
COMMENT ON COLUMN task_waits.its_status IS 'How that stands: open, claimed, done or failed; no task where the role has none; NULL where there is no such task.';
COMMENT ON COLUMN task_waits.ended_at IS 'When what it waits for was over.';

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
COMMENT ON VIEW approvals IS 'One row a question whether a call may run, as it stands at the log''s time. An answer counts only while the question stands, and the first one alone.';
COMMENT ON COLUMN approvals.run IS 'Id of the run.';
COMMENT ON COLUMN approvals.approval IS 'Id of the question.';
COMMENT ON COLUMN approvals.agent IS 'The agent that asks.';
COMMENT ON COLUMN approvals.role IS 'Its role.';
COMMENT ON COLUMN approvals.step IS 'The step.';
COMMENT ON COLUMN approvals.tool IS 'The tool.';
COMMENT ON COLUMN approvals.arguments IS 'The call''s arguments, as recorded.';
COMMENT ON COLUMN approvals.rule IS 'The gate''s rule that wants it asked.';
COMMENT ON COLUMN approvals.standing IS 'pending, granted, denied or expired.';
COMMENT ON COLUMN approvals.answered_by IS 'Who answered.';
COMMENT ON COLUMN approvals.because IS 'Why.';
COMMENT ON COLUMN approvals.asked_at IS 'The log''s time of the question.';
COMMENT ON COLUMN approvals.answered_at IS 'The log''s time of the answer that counts.';
COMMENT ON COLUMN approvals.expires_at IS 'The log''s time from which on no answer counts.';
COMMENT ON COLUMN approvals.waited_ms IS 'How long the agent waited for the answer, in ms.';
COMMENT ON COLUMN approvals.uses IS 'How many attempts of the call name the grant; NULL for none.';
COMMENT ON COLUMN approvals.event IS 'Id of the question''s event.';
COMMENT ON COLUMN approvals.position IS 'Position of the question.';

CREATE VIEW tokens AS
SELECT
    i.token, i.principal, i.role, i.expires, i.issued_by, i.logged_at AS issued_at,
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
COMMENT ON VIEW tokens IS 'One row a token, as it stands at the log''s time.';
COMMENT ON COLUMN tokens.token IS 'Its public id.';
COMMENT ON COLUMN tokens.principal IS 'Whose it is.';
COMMENT ON COLUMN tokens.role IS 'The role it acts in.';
COMMENT ON COLUMN tokens.expires IS 'When it expires, in UTC; NULL: it does not.';
COMMENT ON COLUMN tokens.issued_by IS 'Who issued it.';
COMMENT ON COLUMN tokens.issued_at IS 'The log''s time when it was issued.';
COMMENT ON COLUMN tokens.revoked_at IS 'The log''s time when it was revoked.';
COMMENT ON COLUMN tokens.revoked_by IS 'Who revoked it.';
COMMENT ON COLUMN tokens.because IS 'Why.';
COMMENT ON COLUMN tokens.standing IS 'valid, expired or revoked.';
COMMENT ON COLUMN tokens.position IS 'Position of its event.';

COMMENT ON MACRO TABLE who_saw IS 'who_saw(of_event): the views that showed an event (its id), the first first: to whom, in which role, by which rules. Masked or whole alike; what an agent wrote itself it knows without a view. What SQL as a role drew on is not known event by event: queries has who asked, and when.';

INSERT INTO event_types VALUES
    ('task.added.v1', 'task added', NULL, '$.title', ', for ', '$.role', ' ', '$.agent'),
    ('task.claimed.v1', 'task claimed', NULL, '$.task', ', claim ', '$.number', NULL, NULL),
    ('task.extended.v1', 'task held on', NULL, '$.task', ', claim ', '$.number', NULL, NULL),
    ('task.released.v1', 'task released', NULL, '$.task', ': ', '$.because', NULL, NULL),
    ('task.completed.v1', 'task completed', NULL, '$.task', ' ', '$.result', NULL, NULL),
    ('task.failed.v1', 'task failed', NULL, '$.task', ': ', '$.error.message', NULL, NULL),
    ('task.handed_off.v1', 'task handed on', NULL, '$.task', ': ', '$.because', ' ', '$.given'),
    ('mail.sent.v1', 'wrote', 'to ', '$.agent', ' ', '$.role', ': ', '$.content'),
    ('approval.requested.v1', 'asked for approval', 'of ', '$.tool', ' ', '$.arguments', ', rule ', '$.rule'),
    ('approval.granted.v1', 'approved', NULL, '$.approval', ', says ', '$.by', ': ', '$.because'),
    ('approval.denied.v1', 'denied', NULL, '$.approval', ', says ', '$.by', ': ', '$.because'),
    ('approval.expired.v1', 'approval expired', NULL, '$.approval', NULL, NULL, NULL, NULL),
    ('agent.refused.v1', 'refused', NULL, '$.what', ' ', '$.name', ': ', '$.because'),
    ('access.refused.v1', 'access refused', 'to ', '$.principal', ', ', '$.operation', ': ', '$.because'),
    ('principal.registered.v1', 'registered', NULL, '$.kind', ': ', '$.about', NULL, NULL),
    ('principal.token_issued.v1', 'token issued', NULL, '$.token', ', as ', '$.role', ', expires ', '$.expires'),
    ('principal.token_revoked.v1', 'token revoked', NULL, '$.token', ': ', '$.because', NULL, NULL),
    ('query.answered.v1', 'was answered', 'as ', '$.role', ', rows: ', '$.rows', NULL, NULL);
