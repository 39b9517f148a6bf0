-- Audit of runs: open intents, overridden policies, retries, thresholds and gaps. A view of findings
-- has six columns: kind, run, agent, step, address, fact.

-- Runs as trials of their experiment's plan; a fork is one if it was assigned itself. A run's start is
-- known if it was recorded live, or if its source states it.
CREATE VIEW trials AS
SELECT
    r.experiment, r.arm, r.task, r.trial, r.run, r.status,
    if((r.labels->>'source') IS NULL, r.started_at, c.began_at) AS began_at,
    address_of(e.position, e.event_index) AS address, r.first_position AS position,
    x.experiment IS NOT NULL AS registered, x.trials, x.planned, x.stop, x.exploratory,
    x.registered_position, x.stopped_at,
    count(*) OVER (PARTITION BY r.experiment, r.arm, r.task) AS of_task
FROM runs AS r
JOIN events AS e ON e.position = r.first_position AND e.event_index = 0
LEFT JOIN (
    SELECT run, arg_min(happened_at, position << 16 | event_index) AS began_at
    FROM events WHERE occurred_at IS NOT NULL GROUP BY run
) AS c ON c.run = r.run
LEFT JOIN experiments AS x ON x.experiment = r.experiment
WHERE r.experiment <> ''
    AND (r.parent IS NULL OR r.run IN (SELECT a.run FROM assignments AS a));
COMMENT ON VIEW trials IS 'One row per trial with its experiment''s plan.';

-- In doubt as in `AgentState.in_doubt`: an open call, and a failed one whose error does not exclude its effect,
-- is neither a remote tool's answer nor imported, and was not followed by other steps of the agent.
CREATE VIEW orphan_intents AS
WITH failed AS (
    SELECT s.*, o.run AS owner, o.stream, l.vector
    FROM steps AS s
    JOIN events AS o ON o.position = s.outcome_position AND o.version = s.outcome_version
    LEFT JOIN lineage AS l ON l.run = s.run AND s.inherited
    WHERE s.status = 'failed' AND s.effects IN ('once', 'reconcile') AND s.withheld IS NULL
        AND coalesce(coalesce(o.lifted, o.data)->>'safe', 'false') = 'false'
        AND NOT (s.error_type IN ('ToolErrorResult', 'ErrorAnswer', 'NotCalled')
            AND starts_with(coalesce(coalesce(o.lifted, o.data)->>'$.error.module', ''), 'hansard.'))
        AND coalesce(coalesce(o.lifted, o.data)->>'$.error.module', '') <> 'import'
), doubtful AS (
    SELECT f.* EXCLUDE (owner, stream, vector)
    FROM failed AS f
    WHERE NOT EXISTS (
            FROM steps AS n WHERE n.run = f.run AND n.agent = f.agent AND list_contains(n.after, f.step))
        AND NOT EXISTS (
            FROM events AS e
            WHERE e.agent = f.agent AND (e.run = f.run OR (e.run = f.owner AND e.stream = f.stream
                    AND e.version <= (f.vector->>f.stream)::BIGINT))
                AND e.known_as NOT LIKE 'step.%' AND e.position >= f.outcome_position
                AND (list_contains(from_json(coalesce(e.lifted, e.data)->'after', '["BIGINT"]'), f.step)
                    OR (e.known_as = 'message.added.v1'
                        AND (coalesce(e.lifted, e.data)->>'step')::BIGINT = f.step)))
)
SELECT
    kind, run, agent, step, address_of(position, event_index) AS address,
    concat(steps_text(tool, agent, step), ', ', effects, ', was requested at ',
        moment_of(requested_at), CASE kind
            WHEN 'in doubt' THEN concat(if(status = 'failed', ' and failed, which leaves open whether it happened (',
                ' and ended without telling whether it happened ('), concat_ws(': ', error_type, nullif(shown(error, 100), '')), '); nobody has settled it')
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
            WHEN s.status <> 'requested' THEN 'in doubt'
            WHEN r.status <> 'open' OR a.outcome IS NOT NULL THEN 'ended'
            WHEN a.epoch > e.epoch THEN 'passed over'
            ELSE 'waiting'
        END AS kind
    FROM (
        FROM steps WHERE status IN ('requested', 'in_doubt') UNION ALL FROM doubtful
    ) AS s
    LEFT JOIN runs AS r ON r.run = s.run
    LEFT JOIN agents AS a ON a.run = s.run AND a.agent = s.agent AND a.role = s.role
    JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
    CROSS JOIN progress AS p
    WHERE NOT EXISTS (FROM lone_writes AS w WHERE w.cause = e.id)
);
COMMENT ON VIEW orphan_intents IS 'One row per intent without a known outcome: its effect may have happened.';

CREATE VIEW resumable_intents AS
SELECT
    s.run, s.agent, s.step,
    concat('hansard ', if(json_exists(r.labels, '$.models_agent')
        OR s.run IN (SELECT a.run FROM agents AS a WHERE a.agent = 'models'),
        'record --run', 'run resume'), ' {run} -- COMMAND') AS command
FROM steps AS s JOIN runs AS r ON r.run = s.run
WHERE s.status IN ('requested', 'in_doubt') AND r.status <> 'completed'
    AND s.effects IN ('pure', 'idempotent', 'composite');
COMMENT ON VIEW resumable_intents IS 'One row per call without an outcome that a resume makes again, since its effects allow to repeat it: `findings` rates it as low.';

CREATE VIEW policy_overrides AS
SELECT
    if(s.agent = b.agent, 'ran later', 'ran by another') AS kind,
    s.run, s.agent, s.step, address_of(e.position, e.event_index) AS address,
    concat(steps_text(s.tool, s.agent, s.step), ' is ', s.status, ', though rule ', p.rule,
        ' blocked the same call of ', b.agent, '#', b.step, ' at ', moment_of(p.happened_at),
        ' (', p.reason, ')') AS fact
FROM policies AS p
JOIN steps AS b ON b.run = p.run AND b.agent = p.agent AND b.step = p.step
JOIN steps AS s
    ON s.run = b.run AND s.tool = b.tool AND s.arguments = b.arguments AND s.status <> 'blocked'
    AND s.reused_step IS NULL AND (s.requested_position > p.position
        OR (s.agent = b.agent AND s.step = b.step AND s.outcome_position > p.position))
JOIN events AS e
    ON e.position = coalesce(s.outcome_position, s.requested_position)
    AND e.version = coalesce(s.outcome_version, s.requested_version)
UNION ALL
SELECT
    if(t.verdict = 'run_again', 'run again', 'settled'), t.run, t.agent, t.step,
    address_of(e.position, e.event_index),
    concat(steps_text(coalesce(s.tool, 'a call'), t.agent, t.step), ' was settled as ', t.verdict,
        ' by ', t.settled_by, ' at ', moment_of(t.happened_at), ': ',
        coalesce(nullif(t.because, ''), 'no reason is given'))
FROM settlements AS t
LEFT JOIN steps AS s ON s.run = t.run AND s.agent = t.agent AND s.step = t.step
JOIN events AS e ON e.position = t.position AND e.version = t.version
WHERE t.verdict = 'run_again' OR NOT regexp_matches(t.settled_by, '^(policy|reconcile):');
COMMENT ON VIEW policy_overrides IS 'One row per refusal or doubt that was overridden: a blocked call that ran later, or was settled by a person.';

-- Only for sessions that recorded which steps were answered. The n-th new effect of a tool in a scope is
-- compared with the n-th recorded one that was not answered. Settled steps are left out (policy_overrides).
CREATE VIEW repeated_effects AS
WITH sessions AS (
    SELECT
        run, agent, epoch,
        try_cast(coalesce(lifted, data)->'$.answered' AS BIGINT[][]) AS answered
    FROM events
    WHERE known_as = 'agent.left.v1' AND epoch > 1
), effects AS (
    SELECT s.*, e.epoch, e.event_index, coalesce(e.lifted, e.data)->>'$.instead_of' AS instead_of
    FROM steps AS s
    JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
    WHERE s.effects IN ('idempotent', 'reconcile', 'once')
        AND s.kind NOT IN ('aggregate', 'board', 'memory', 'team')
        AND s.reused_step IS NULL AND s.reused_from IS NULL AND s.withheld IS NULL
), made AS (
    SELECT
        *, row_number() OVER (PARTITION BY run, agent, epoch, scope, tool ORDER BY step) AS place,
        min(epoch) OVER (PARTITION BY run, agent, tool) AS first_epoch
    FROM effects
    WHERE status IN ('completed', 'in_doubt', 'requested') AND instead_of IS NULL
), passed_over AS (
    SELECT
        o.*, x.epoch AS later_epoch,
        row_number() OVER (PARTITION BY o.run, o.agent, x.epoch, o.scope, o.tool ORDER BY o.step) AS place
    FROM sessions AS x
    JOIN effects AS o ON o.run = x.run AND o.agent = x.agent AND o.epoch < x.epoch
    WHERE x.answered IS NOT NULL AND o.status = 'completed' AND o.verdict IS DISTINCT FROM 'run_again'
        AND len(list_filter(x.answered, lambda r: o.step BETWEEN r[1] AND r[2])) = 0
        AND NOT EXISTS (  -- it was called again in that session, and its outcome is of then
            FROM events AS d
            WHERE d.position = o.outcome_position AND d.version = o.outcome_version AND d.epoch >= x.epoch
        )
        AND NOT EXISTS (
            FROM steps AS t
            WHERE t.run = o.run AND t.agent = o.agent AND (t.reused_step = o.step
                OR (t.step <> o.step AND t.requested_position > o.requested_position AND t.key = o.key))
        )
        AND NOT EXISTS (
            FROM effects AS n
            WHERE n.run = o.run AND n.agent = o.agent AND n.instead_of::BIGINT = o.step
        )
)
SELECT
    if(n.tool = o.tool, 'same tool', 'another tool') AS kind, n.run, n.agent, n.step,
    address_of(n.requested_position, n.event_index) AS address,
    concat(steps_text(n.tool, n.agent, n.step), ' ', shown(n.arguments::VARCHAR, 100), ' was called in epoch ',
        n.epoch, ' and is ', n.status, ', though the effect of ', steps_text(o.tool, o.agent, o.step), ' ',
        shown(o.arguments::VARCHAR, 100), ' was on record and not replayed') AS fact
FROM made AS n
JOIN passed_over AS o
    ON o.run = n.run AND o.agent = n.agent AND o.later_epoch = n.epoch AND o.scope = n.scope
    AND ((n.tool = o.tool AND n.place = o.place)
        OR (n.tool <> o.tool AND n.arguments = o.arguments AND n.first_epoch = n.epoch
            AND NOT EXISTS (
                FROM made AS m
                WHERE m.run = o.run AND m.agent = o.agent AND m.tool = o.tool AND m.epoch = n.epoch
            )));
COMMENT ON VIEW repeated_effects IS 'One row per effect that a resume made although a recorded one was not replayed. It may have happened twice.';

CREATE VIEW odd_decisions AS
SELECT
    if(t.is_declassified, 'declassified input', 'untrusted input') AS kind, t.run, t.agent, NULL::BIGINT AS step,
    address_of(t.position, e.event_index) AS address,
    concat(shown(t.question, 80), ' selected ', shown(t.selected, 80), ' and rests on untrusted input',
        if(len(t.sources) = 0, '', concat(': ', array_to_string(t.sources[:8], ', '), if(len(t.sources) > 8, ' ...', ''))),
        if(t.is_declassified, concat('; declassified by ', t.approver, ': ', coalesce(nullif(t.because, ''), 'no reason is given')), '')) AS fact,
    r.experiment, [{'run': t.run, 'address': address_of(t.position, e.event_index)}] AS evidence
FROM tainted_decisions AS t
JOIN events AS e ON e.id = t.decision
LEFT JOIN runs AS r ON r.run = t.run;
COMMENT ON VIEW odd_decisions IS 'One row per decision that rests on untrusted input; declassified ones are a kind of their own.';

CREATE VIEW retries AS
SELECT
    if(s.attempts >= 5, 'storm', 'retried') AS kind, s.run, s.agent, s.step,
    address_of(e.position, e.event_index) AS address,
    concat(steps_text(s.tool, s.agent, s.step), ' took ', s.attempts, ' attempts and is ', s.status,
        coalesce(concat('; the last error before: ', f.error), '')) AS fact
FROM steps AS s
LEFT JOIN (
    SELECT run, agent, step,
        arg_max(concat_ws(': ', error_type, nullif(shown(error, 100), '')), attempt) AS error
    FROM attempts GROUP BY run, agent, step
) AS f ON f.run = s.run AND f.agent = s.agent AND f.step = s.step
JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
WHERE s.attempts > 1
UNION ALL
SELECT
    'repeated', g.run, g.agent, g.first, address_of(e.position, e.event_index),
    concat(steps_text(g.tool, g.agent, g.first), ' was called ', g.calls,
        ' times in a row with the same arguments and never succeeded, up to ', g.agent, '#', g.last,
        ': ', g.error)
FROM (
    SELECT run, agent, tool, min(step) AS first, max(step) AS last, count(*) AS calls,
        arg_min(requested_position, step) AS position, arg_min(requested_version, step) AS version,
        arg_max(concat_ws(': ', error_type, nullif(shown(error, 100), '')), step) AS error
    FROM (
        SELECT *, count(*) FILTER (status = 'completed') OVER (PARTITION BY run, agent, tool, arguments ORDER BY step) AS island
        FROM (
            SELECT s.*
            FROM steps AS s
            SEMI JOIN (
                SELECT run, agent, tool FROM steps WHERE status = 'failed'
                GROUP BY run, agent, tool HAVING count(*) >= 5
            ) AS f ON f.run = s.run AND f.agent = s.agent AND f.tool = s.tool
        )
    )
    WHERE status = 'failed'
    GROUP BY run, agent, tool, arguments, island
    HAVING count(*) >= 5
) AS g
JOIN events AS e ON e.position = g.position AND e.version = g.version;
COMMENT ON VIEW retries IS 'One row per step with several attempts, or call repeated in vain.';

CREATE MACRO threshold_flips(x) AS TABLE
SELECT
    if(a.selected, if(a.score >= d.threshold, 'selected would fail', 'selected would pass'),
        if(a.score >= d.threshold, 'another would fail', 'another would pass')) AS kind,
    d.run, d.agent, NULL::BIGINT AS step, address_of(e.position, e.event_index) AS address,
    concat(shown(d.question, 80), ' selected ', d.selected, '; ', if(a.selected, 'its', a.id || '''s'),
        ' score ', a.score, if(a.score >= d.threshold, concat(' passes the threshold ', d.threshold,
        ', and would not at ', round(d.threshold + x, 10)), concat(' is below the threshold ', d.threshold,
        ', and would not be at ', round(d.threshold - x, 10)))) AS fact
FROM decisions AS d
JOIN alternatives AS a ON a.decision = d.decision
JOIN events AS e ON e.position = d.position AND e.version = d.version
WHERE (a.score >= d.threshold AND a.score < round(d.threshold + x, 10))
    OR (a.score < d.threshold AND a.score >= d.threshold - x);
COMMENT ON MACRO TABLE threshold_flips IS 'One row per alternative that would cross if a decision''s threshold moved by x. kind: selected or another, would fail or pass.';

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
WHERE l.type = 'agent.left.v1'
UNION ALL
SELECT
    'after the end', s.run, s.agent, s.step, address_of(e.position, e.event_index),
    concat(steps_text(s.tool, s.agent, s.step), ' is ', s.status, ' and was called after the run was recorded as ',
        split_part(l.type, '.', 2), ' at ', moment_of(l.happened_at))
FROM steps AS s
JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
ASOF JOIN (
    SELECT run, position, known_as AS type, happened_at FROM events
    WHERE known_as IN ('run.started.v1', 'run.resumed.v1', 'run.agent_joined.v1', 'run.completed.v1', 'run.failed.v1', 'run.cancelled.v1')
) AS l ON l.run = s.run AND s.requested_position > l.position
WHERE l.type IN ('run.completed.v1', 'run.failed.v1', 'run.cancelled.v1') AND e.happened_at > l.happened_at
    AND s.effects IN ('idempotent', 'reconcile', 'once') AND s.status <> 'blocked'
    AND s.kind NOT IN ('aggregate', 'board', 'memory', 'team')
    AND s.reused_step IS NULL AND s.reused_from IS NULL AND s.withheld IS NULL;
COMMENT ON VIEW late_outcomes IS 'One row per outcome that arrived after its agent had left (what the call did after that is not recorded), or call with effects that began after the end of its run.';

CREATE VIEW gaps AS
SELECT
    'unanswered call' AS kind, m.run, m.agent, s.step, address_of(e.position, e.event_index) AS address,
    concat(m.agent, ' asked for ', coalesce(s.tool, 'a call'), ' (', m.call, ') at ',
        moment_of(m.happened_at), ', and no answer is on record') AS fact
FROM (
    SELECT
        run, agent, role, version, position, happened_at,
        unnest(json_extract_string(fields, '$.tool_calls[*].id')) AS call
    FROM messages
    WHERE tool_calls > 0 AND message_role = 'assistant'
) AS m
LEFT JOIN runs AS r ON r.run = m.run
LEFT JOIN (
    SELECT run, agent, max(version) AS version FROM messages
    WHERE message_role IN ('assistant', 'user') GROUP BY run, agent
) AS l ON l.run = m.run AND l.agent = m.agent
LEFT JOIN steps AS s ON s.run = m.run AND s.call_id = m.call AND s.status IN ('requested', 'in_doubt')
JOIN events AS e ON e.position = m.position AND e.version = m.version
ANTI JOIN messages AS t ON t.run = m.run AND t.tool_call_id = m.call
ANTI JOIN steps AS d ON d.run = m.run AND d.call_id = m.call AND d.status NOT IN ('requested', 'in_doubt')
WHERE m.call IS NOT NULL AND (r.status <> 'open' OR l.version > m.version)
UNION ALL
SELECT
    'version hole', h.run, h.agent, NULL, address_of(h.position, h.event_index),
    concat('stream ', h.stream, ' has ', counted(h.events, 'event'), ', and ', if(h.events = 1, 'its version goes', 'their versions go'), ' from ', h.first,
        ' to ', h.last, if(h.first <> coalesce(i.version, 0) + 1,
            concat('; they were to begin with ', coalesce(i.version, 0) + 1), ''))
FROM (
    SELECT
        run, stream, any_value(agent) AS agent, count(*) AS events, min(version) AS first,
        max(version) AS last, max(position) AS position, arg_max(event_index, version) AS event_index
    FROM events
    GROUP BY run, stream
) AS h
LEFT JOIN inherited AS i ON i.run = h.run AND i.stream = h.stream AND i.depth = 1
WHERE h.last - h.first + 1 <> h.events OR h.first <> coalesce(i.version, 0) + 1
UNION ALL
SELECT
    'cost', o.run, NULL, NULL, address_of(e.position, e.event_index),
    concat(o.judged_by, ' says that ', o.metric, ' is ', o.value, ', and the recorded costs add up to ',
        round(u.cost, 10), ': ', round(abs(o.value - u.cost), 10), if(o.value < u.cost, ' more', ' less'))
FROM (
    SELECT * FROM outcomes
    WHERE metric IN ('cost', 'total_cost', 'agent_cost', 'user_cost')
    QUALIFY row_number() OVER (PARTITION BY run, metric ORDER BY version DESC) = 1
) AS o
JOIN runs AS r ON r.run = o.run AND r.parent IS NULL  -- a fork includes its parent's costs
JOIN events AS e ON e.position = o.position AND e.version = o.version
JOIN (
    SELECT run, of_user, metric, cost, total
    FROM (
        SELECT
            run, fsum(cost) FILTER (of_user) AS of_user, fsum(cost) FILTER (NOT of_user) AS agents,
            fsum(cost) AS total
        FROM (
            SELECT run, message_role = 'user' AS of_user, cost FROM messages WHERE cost IS NOT NULL
            UNION ALL
            SELECT run, false, amount FROM usage WHERE of = 'step' AND metric = 'cost'
        )
        GROUP BY run
    )
    CROSS JOIN LATERAL (VALUES ('cost', total), ('total_cost', total), ('agent_cost', agents),
        ('user_cost', of_user)) AS v(metric, cost)
    WHERE cost IS NOT NULL
) AS u ON u.run = o.run AND u.metric = o.metric
WHERE abs(o.value - u.cost) > if(o.value = round(o.value, 4), 0.00005, 1e-6 * abs(o.value))
UNION ALL
SELECT
    'price', c.run, c.agent, c.step, address_of(e.position, e.event_index),
    concat(steps_text(c.tool, c.agent, c.step), ' cost ', c.cost, ' as recorded; ', c.input_tokens,
        ' input and ', c.output_tokens, ' output tokens of ', c.model, ' at the stated prices are ',
        round(priced, 10))
FROM (
    SELECT
        s.run, s.agent, s.step, s.tool, s.cost, s.input_tokens, s.output_tokens, m.model,
        s.outcome_position, s.outcome_version,
        arg_max(p.amount, p.since) FILTER (p.usage = 'input_tokens') AS price_in,
        arg_max(p.amount, p.since) FILTER (p.usage = 'output_tokens') AS price_out
    FROM steps AS s
    JOIN runs AS r ON r.run = s.run
    LEFT JOIN arms AS a ON a.experiment = r.experiment AND a.arm = r.arm
    CROSS JOIN LATERAL (SELECT coalesce(s.arguments->>'$.model', if(s.kind = 'model', nullif(a.model, ''), NULL)) AS model) AS m
    JOIN (
        SELECT model, usage, since, arg_max(amount, version) AS amount FROM prices
        WHERE currency = 'USD' AND usage IN ('input_tokens', 'output_tokens')
        GROUP BY model, usage, since
    ) AS p ON p.model = m.model AND p.since <= s.requested_at
    WHERE s.cost IS NOT NULL AND s.reused_step IS NULL
        AND list_has_all(['input_tokens', 'output_tokens', 'total_tokens', 'cost'], json_keys(s.usage))
    GROUP BY ALL
) AS c
CROSS JOIN LATERAL (SELECT (c.input_tokens * price_in + c.output_tokens * price_out) / 1e6 AS priced)
JOIN events AS e ON e.position = c.outcome_position AND e.version = c.outcome_version
WHERE abs(c.cost - priced) > 0.01 * greatest(c.cost, priced)
UNION ALL
SELECT
    'same trial', arg_max(run, position), NULL, NULL, arg_max(address, position),
    concat('trial ', trial, ' of task ', task, ' under arm ', arm, ' of ', experiment, ' is on record ',
        count(*), ' times: ', list_aggregate(list(run ORDER BY position), 'string_agg', ', '))
FROM trials
WHERE trial IS NOT NULL AND task IS NOT NULL
GROUP BY experiment, arm, task, trial
HAVING count(*) > 1
UNION ALL
SELECT
    'trials', arg_max(run, position), NULL, NULL, arg_max(address, position),
    concat('task ', task, ' has ', counted(count(*), 'trial'), ' under arm ', arm, ' of ', experiment,
        ', and the plan says ', any_value(trials))
FROM trials
WHERE trials IS NOT NULL
GROUP BY experiment, arm, task
HAVING count(*) > any_value(trials) OR (count(*) < any_value(trials) AND any_value(stopped_at) IS NOT NULL)
UNION ALL
SELECT
    'tasks', arg_max(run, position), NULL, NULL, arg_max(address, position),
    concat('arm ', arm, ' of ', experiment, ' has ', counted(count(DISTINCT task), 'task'), ', and the plan says ',
        any_value(planned))
FROM trials
WHERE planned IS NOT NULL AND stopped_at IS NOT NULL
GROUP BY experiment, arm
HAVING count(DISTINCT task) < any_value(planned)
UNION ALL
SELECT
    'spread', arg_max(run, began_at), NULL, NULL, arg_max(address, began_at),
    concat('each task is tried once under arm ', arm, ' of ', experiment, ', and its ', counted(count(*), 'run'),
        ' began from ', moment_of(min(began_at)), ' to ', moment_of(max(began_at)), ', over ',
        round(date_diff('second', min(began_at), max(began_at)) / 86400, 1), ' days')
FROM trials
WHERE began_at IS NOT NULL AND if(registered, trials = 1 AND stop = 'fixed', trial IS NOT NULL AND task IS NOT NULL)
GROUP BY experiment, arm
HAVING max(of_task) = 1 AND max(began_at) - min(began_at) > INTERVAL 1 DAY
UNION ALL
SELECT
    'no outcome', t.run, NULL, NULL, t.address,
    concat('the run is ', t.status, ', and has no score', ' of ' || s.metric, ' in task ', t.task, ' under arm ',
        t.arm, ' of ', t.experiment, '; other runs of it have one')
FROM trials AS t
JOIN (
    -- The deciding metric of the plan, if any run has it.
    SELECT r.experiment, any_value(m.metric) AS metric
    FROM trials AS r
    JOIN outcomes AS n ON n.run = r.run
    LEFT JOIN metrics AS m ON m.experiment = r.experiment AND m.number = 1 AND m.metric = n.metric
    GROUP BY r.experiment
) AS s ON s.experiment = t.experiment
ANTI JOIN outcomes AS o ON o.run = t.run AND o.metric = coalesce(s.metric, o.metric)
WHERE t.status <> 'open'
UNION ALL
SELECT
    'not in the plan', t.run, NULL, NULL, t.address,
    concat('the run is assigned to arm ', coalesce(t.arm, '(none)'), ' of ', t.experiment,
        ', and the plan has no such arm')
FROM trials AS t
ANTI JOIN arms AS a ON a.experiment = t.experiment AND a.arm = t.arm
WHERE t.registered
UNION ALL
SELECT
    'before the plan', arg_min(run, position), NULL, NULL, arg_min(address, position),
    concat(counted(count(*), 'run'), ' of ', experiment, ' began before it was registered at position ',
        any_value(registered_position), ', and its plan does not say that it is exploratory')
FROM trials
WHERE NOT exploratory AND position < registered_position
GROUP BY experiment
UNION ALL
SELECT
    'unknown type', run, any_value(agent), NULL, address_of(min(position), arg_min(event_index, position)),
    concat(counted(count(*), 'event'), ' of type ', type, ', which this version does not know, ',
        if(count(*) = 1, 'is', 'are'), ' in no table but events')
FROM (FROM events AS e ANTI JOIN problems AS p ON p.position = e.position AND p.event_index = e.event_index)
WHERE known_as IS NULL
GROUP BY run, type
UNION ALL
SELECT
    'problem', NULL, NULL, NULL, concat_ws('.', position, event_index),
    concat(subject, ' at position ', position, ' is not as Hansard writes it: ', reason)
FROM problems;
COMMENT ON VIEW gaps IS 'One row per missing or inconsistent item. Steps without an outcome are in `orphan_intents`.';
