-- Refill: files that were projected before are made anew from the log.
-- How runs end, and tasks that are done after all.

INSERT INTO event_types VALUES
    ('run.agent_left.v1', 'left the run', NULL, '$.agent', ', ', '$.outcome', ': ', '$.error.message'),
    ('task.reopened.v1', 'task reopened', NULL, '$.task', ': ', '$.because', NULL, NULL);
UPDATE event_types SET path_1 = '$.because' WHERE type = 'run.completed.v1';

COMMENT ON COLUMN runs.status IS 'open, completed, failed or cancelled. A run is open until the last of its agents has left, or somebody says that it has ended: one whose process was killed never leaves (see at_work).';
COMMENT ON COLUMN runs.ended_at IS 'When it completed, failed or was cancelled last; NULL while it is open.';
COMMENT ON COLUMN runs.error_type IS 'Of a failed run: the type of its error; AgentFailed where another agent than the one that failed left last (see agents).';
COMMENT ON COLUMN runs.resumed IS 'How often an agent of it was resumed, or joined it when it had ended.';

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
COMMENT ON COLUMN at_work.run IS 'Id of the run.';
COMMENT ON COLUMN at_work.agent IS 'The agent.';
COMMENT ON COLUMN at_work.role IS 'Its role in the run.';
COMMENT ON COLUMN at_work.since IS 'When it joined or was resumed last.';
COMMENT ON COLUMN at_work.position IS 'Position of its newest commit.';
COMMENT ON COLUMN at_work.joined_position IS 'Position of the commit by which it took part last.';

COMMENT ON COLUMN task_events.operation IS 'added, claimed, extended, released, completed, failed, handed_off or reopened.';
COMMENT ON COLUMN task_events.author IS 'Who wrote it: an agent of the run; of reopened also somebody else.';
COMMENT ON COLUMN task_events.number IS 'Of which claim of the task it is, from 1; NULL for added. Of reopened: the claim that failed.';
COMMENT ON COLUMN task_events.because IS 'Of released, handed_off and reopened: why.';

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
COMMENT ON COLUMN task_events.waits_for IS 'Of added: the tasks that must be done before.';
COMMENT ON COLUMN task_events.waits_for_roles IS 'Of added: the roles all of whose tasks must be done before.';
COMMENT ON VIEW task_history IS 'One row an event that counts for a run''s tasks: its own, and of a fork its parents'' up to the cut.';
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
COMMENT ON COLUMN tasks.ended_at IS 'When it was completed or failed; NULL while it is not over.';
COMMENT ON COLUMN tasks.version IS 'Version of its last event in the stream of the run''s tasks.';
COMMENT ON COLUMN tasks.position IS 'Position of its last event.';
COMMENT ON COLUMN task_waits.on_what IS 'The task, or the role all of whose tasks must be done.';
COMMENT ON COLUMN tasks.reopened IS 'How often it was reopened after it had failed.';

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
COMMENT ON COLUMN late_outcomes.kind IS 'completed, failed or in_doubt.';
COMMENT ON COLUMN late_outcomes.run IS 'Id of the run.';
COMMENT ON COLUMN late_outcomes.agent IS 'The agent.';
COMMENT ON COLUMN late_outcomes.step IS 'The step.';
COMMENT ON COLUMN late_outcomes.address IS 'Where the outcome stands: position.event_index.';
COMMENT ON COLUMN late_outcomes.fact IS 'What was found, in a sentence.';

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
