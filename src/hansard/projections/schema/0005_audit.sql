-- Audit: why something was decided, what happened, who touched what, and what could be missing.
-- The views of findings have six columns each; steps and streams are named as everywhere.

CREATE MACRO address_of(p, i) AS p || '.' || i;
COMMENT ON MACRO address_of IS 'address_of(p, i), of a position and an event''s index: an event''s address, as hansard run show --at takes its position.';

CREATE MACRO shown(words, most) AS
    regexp_replace(words, '^(.{' || (most - 1) || '}).{2,}$', '\1…', 's');
COMMENT ON MACRO shown IS 'shown(words, most): a text of at most so many characters, up to 1,000; what is cut ends in …';

CREATE MACRO moment_of(t) AS strftime(t, '%Y-%m-%d %H:%M:%S');
COMMENT ON MACRO moment_of IS 'moment_of(t): a time (UTC) in words, to the second.';

CREATE TABLE event_types (
    type VARCHAR NOT NULL,
    what VARCHAR NOT NULL,
    before VARCHAR,
    path_1 VARCHAR,
    between_1 VARCHAR,
    path_2 VARCHAR,
    between_2 VARCHAR,
    path_3 VARCHAR
);
COMMENT ON TABLE event_types IS 'One row a type of event: how it is told in words (see history).';
INSERT INTO event_types VALUES
    ('run.started.v1', 'run began', NULL, '$.workflow', ', by ', '$.program', ' ', '$.labels'),
    ('run.forked.v1', 'run began', 'as a fork of run ', '$.parent', ', effects ', '$.effects', ' ', '$.labels'),
    ('run.agent_joined.v1', 'joined', NULL, '$.agent', ' as ', '$.role', NULL, NULL),
    ('run.assigned.v1', 'assigned', NULL, '$.experiment', ', arm ', '$.arm', ', task ', '$.task'),
    ('run.scored.v1', 'scored', NULL, '$.metrics', ', says ', '$.by', ': ', '$.because'),
    ('run.resumed.v1', 'resumed', NULL, '$.agent', ', epoch ', '$.epoch', NULL, NULL),
    ('run.completed.v1', 'run completed', NULL, NULL, NULL, NULL, NULL, NULL),
    ('run.failed.v1', 'run failed', NULL, '$.error.type', ': ', '$.error.message', NULL, NULL),
    ('run.cancelled.v1', 'run cancelled', NULL, '$.because', NULL, NULL, NULL, NULL),
    ('agent.session_began.v1', 'began', 'epoch ', '$.epoch', ', ', '$.server_version', NULL, NULL),
    ('agent.left.v1', 'left', NULL, '$.outcome', ', ', '$.error.type', ': ', '$.error.message'),
    ('agent.handed_off.v1', 'handed off', 'to ', '$.to', ': ', '$.because', ' ', '$.payload'),
    ('tool.declared.v1', 'declared', NULL, '$.tool', ', ', '$.effects', ', version ', '$.version'),
    ('step.requested.v1', 'asked', NULL, '$.arguments', NULL, NULL, NULL, NULL),
    ('step.attempted.v1', 'retried', 'after attempt ', '$.attempt', ', ', '$.error.type', ': ', '$.error.message'),
    ('step.yielded.v1', 'got items', NULL, '$.items', NULL, NULL, NULL, NULL),
    ('step.completed.v1', 'got', NULL, '$.result', ', from step ', '$.reused', NULL, NULL),
    ('step.failed.v1', 'failed', NULL, '$.error.type', ': ', '$.error.message', NULL, NULL),
    ('step.blocked.v1', 'blocked', 'by rule ', '$.rule', ': ', '$.reason', NULL, NULL),
    ('step.in_doubt.v1', 'in doubt', NULL, '$.error.type', ': ', '$.error.message', NULL, NULL),
    ('step.settled.v1', 'settled', NULL, '$.verdict', ', says ', '$.by', ': ', '$.because'),
    ('message.added.v1', 'message', NULL, '$.role', ': ', '$.content', NULL, NULL),
    ('decision.made.v1', 'decided', NULL, '$.question', ' ', '$.selected', ': ', '$.because'),
    ('checkpoint.saved.v1', 'checkpoint', NULL, '$.name', ' ', '$.data', NULL, NULL),
    ('resource.accessed.v1', 'touched', NULL, '$.operation', ' ', '$.uri', NULL, NULL),
    ('conversation.run_joined.v1', 'joined', 'run ', '$.run', NULL, NULL, NULL, NULL),
    ('experiment.registered.v1', 'registered', NULL, '$.question', ' ', '$.arms', NULL, NULL),
    ('experiment.stopped.v1', 'stopped', NULL, '$.because', NULL, NULL, NULL, NULL),
    ('price.stated.v1', 'priced', NULL, '$.usage', ' ', '$.amount', ' ', '$.currency');

CREATE MACRO words_of(told, t) AS shown(if(t IS NULL, told::VARCHAR, concat(t.before,
    told->>t.path_1, t.between_1 || nullif(told->>t.path_2, ''),
    t.between_2 || nullif(told->>t.path_3, ''))), 200);
COMMENT ON MACRO words_of IS 'words_of(told, t): what an event tells (its data), as a row t of event_types says, cut to 200 characters.';

CREATE MACRO step_of(known, told) AS
    if(starts_with(known, 'step.') OR known IN ('message.added.v1', 'resource.accessed.v1'),
        try_cast(told->>'$.step' AS BIGINT), NULL);
COMMENT ON MACRO step_of IS 'step_of(known, told), of a type and data: the step that an event is about.';

CREATE VIEW history AS
SELECT
    e.*, address_of(e.position, e.event_index) AS address,
    if(e.actor = e.agent OR e.agent IS NULL, e.actor, e.actor || ' for ' || e.agent) AS who,
    coalesce(t.what, e.known) AS what, step_of(e.known, e.told) AS step,
    words_of(e.told, t) AS words
FROM (
    SELECT
        position, event_index, id, coalesce(known_as, type) AS known, stream, run, agent, role,
        version, happened_at, actor, coalesce(lifted, data) AS told
    FROM events
) AS e
LEFT JOIN event_types AS t ON t.type = e.known;
COMMENT ON VIEW history IS 'The events in words.';

-- ---------------------------------------------------------------- the past

CREATE MACRO as_of(upto) AS TABLE
SELECT * FROM events
WHERE position <= upto
    AND coalesce(tx <> (SELECT any_value(n.tx) FROM events AS n WHERE n.position = upto + 1), true);
COMMENT ON MACRO TABLE as_of IS 'as_of(upto): the events that were on record at a position; a commit over several streams counts from where it ends. Columns as of events.';

CREATE MACRO runs_as_of(upto) AS TABLE
SELECT
    l.run, r.workflow, l.ends.status AS status, r.started_at, l.ends.at AS ended_at,
    l.ends.error_type AS error_type, l.ends.error AS error, l.resumed, r.parent, l.version,
    l.position
FROM (
    SELECT
        run, max(version) AS version, max(position) AS position,
        count(*) FILTER (status = 'open' AND known_as = 'run.resumed.v1') AS resumed,
        arg_max({'status': status, 'at': if(status = 'open', NULL, happened_at),
            'error_type': if(status = 'failed', told->>'$.error.type', NULL),
            'error': if(status = 'failed', told->>'$.error.message', NULL)}, version)
            FILTER (status IS NOT NULL) AS ends
    FROM (
        SELECT
            run, version, position, happened_at, known_as, coalesce(lifted, data) AS told,
            CASE known_as
                WHEN 'run.started.v1' THEN 'open' WHEN 'run.forked.v1' THEN 'open'
                WHEN 'run.resumed.v1' THEN 'open' WHEN 'run.completed.v1' THEN 'completed'
                WHEN 'run.failed.v1' THEN 'failed' WHEN 'run.cancelled.v1' THEN 'cancelled'
            END AS status
        FROM as_of(upto)
        WHERE stream = 'life' AND known_as IS NOT NULL
    )
    GROUP BY run
) AS l
JOIN runs AS r ON r.run = l.run
WHERE l.ends IS NOT NULL;
COMMENT ON MACRO TABLE runs_as_of IS 'runs_as_of(upto): the runs as they stood at a position, folded from their events up to there. Columns: run, workflow, status, started_at, ended_at, error_type, error, resumed, parent, version (of its life), position (of the newest commit of its life).';

-- What forks took over: of which run's which stream, up to which version.
CREATE VIEW inherited AS
WITH RECURSIVE vectors AS (
    SELECT run, parent, position, unnest(map_entries(CAST(vector AS MAP(VARCHAR, BIGINT)))) AS cut
    FROM lineage
), cuts AS (
    SELECT run, parent, cut.key AS stream, cut.value AS version, position, 1 AS depth FROM vectors
    UNION ALL
    SELECT c.run, v.parent, c.stream, least(c.version, v.cut.value), v.position, c.depth + 1
    FROM cuts AS c
    JOIN vectors AS v ON v.run = c.parent AND v.cut.key = c.stream AND v.position < c.position
    WHERE c.depth < 100
)
SELECT run, parent, stream, version, position, depth FROM cuts;
COMMENT ON VIEW inherited IS 'One row a stream that a fork took over from its parent, or from a parent of that.';

CREATE MACRO steps_as_of(upto) AS TABLE
SELECT
    f.run, f.agent, f.step, s.tool, s.kind, s.effects, f.status, f.attempts, f.duration_ms,
    f.failure.type AS error_type, f.failure.message AS error, f.verdict, f.outcome_version, s.requested_at
FROM (
    SELECT
        run, agent, told.step AS step,
        arg_max(status, ordinal) FILTER (status IS NOT NULL) AS status,
        1 + count(*) FILTER (type = 'step.attempted.v1') AS attempts,
        arg_max({'ms': told.duration_ms}, ordinal) FILTER (type IN ('step.completed.v1', 'step.failed.v1', 'step.in_doubt.v1')).ms AS duration_ms,
        arg_max(if(status = 'requested' OR status = 'completed', {'type': NULL, 'message': NULL},
            if(status = 'blocked', {'type': 'Blocked', 'message': told.reason}, told.error)),
            ordinal) FILTER (status <> 'not_done') AS failure,
        arg_max({'verdict': told.verdict}, ordinal) FILTER (type IN ('step.settled.v1', 'step.attempted.v1')).verdict AS verdict,
        max(version) FILTER (status <> 'requested') AS outcome_version,
        bool_or(own) AS own, bool_or(type = 'step.requested.v1') AS asked
    FROM (
        SELECT *, CASE type
            WHEN 'step.requested.v1' THEN 'requested' WHEN 'step.attempted.v1' THEN 'requested'
            WHEN 'step.completed.v1' THEN 'completed' WHEN 'step.failed.v1' THEN 'failed'
            WHEN 'step.blocked.v1' THEN 'blocked' WHEN 'step.in_doubt.v1' THEN 'in_doubt'
            ELSE CASE told.verdict WHEN 'happened' THEN 'completed' WHEN 'did_not_happen' THEN 'not_done' END
        END AS status
        FROM (
            SELECT
                run, agent, type, version, own, position << 16 | event_index AS ordinal,
                from_json(told, '{"step": "BIGINT", "duration_ms": "DOUBLE", "reason": "VARCHAR",
                    "verdict": "VARCHAR", "error": {"type": "VARCHAR", "message": "VARCHAR"}}') AS told
            FROM (
                SELECT run, agent, known_as AS type, version, position, event_index, true AS own,
                    coalesce(lifted, data) AS told
                FROM as_of(upto)
                WHERE starts_with(type, 'step.') AND known_as IS NOT NULL
                UNION ALL
                SELECT i.run, e.agent, e.known_as, e.version, e.position, e.event_index, false,
                    coalesce(e.lifted, e.data)
                FROM inherited AS i
                JOIN events AS e
                    ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
                    AND e.position < i.position
                WHERE i.position <= upto AND starts_with(e.type, 'step.') AND e.known_as IS NOT NULL
            )
        )
        WHERE type <> 'step.yielded.v1'
    )
    GROUP BY run, agent, told.step
) AS f
JOIN steps AS s ON s.run = f.run AND s.agent = f.agent AND s.step = f.step
WHERE f.own AND f.asked;
COMMENT ON MACRO TABLE steps_as_of IS 'steps_as_of(upto): the steps as they stood at a position, folded from their events up to there; of a fork those that something happened to in it by then. Columns: run, agent, step, tool, kind, effects, status, attempts, duration_ms, error_type, error, verdict, outcome_version, requested_at.';

CREATE MACRO trail(of_run) AS TABLE
SELECT
    e.address, e.happened_at AS "at", e.who, e.what, s.tool, e.step, e.words AS detail, e.agent,
    e.version, e.id AS event
FROM history AS e
LEFT JOIN steps AS s ON s.run = of_run AND s.agent = e.agent AND s.step = e.step
WHERE e.run = of_run AND NOT starts_with(e.stream, 'board/')
    AND e.known NOT IN ('step.yielded.v1', 'tool.declared.v1')
ORDER BY e.position, e.event_index;
COMMENT ON MACRO TABLE trail IS 'trail(of_run): what happened in a run, one row an event that matters, in order. Columns: address, at, who (the writer, and for which agent), what, tool and step (of a call), detail (in words, long values cut), agent, version, event. Of a fork, what happened in it.';

CREATE MACRO decided(of_run) AS TABLE
SELECT
    address_of(e.position, e.event_index) AS address, d.happened_at AS "at", d.agent, d.question,
    d.selected, d.score, d.threshold, d.margin, d.because, d.decision
FROM decisions AS d
JOIN events AS e ON e.position = d.position AND e.version = d.version
WHERE d.run = of_run
ORDER BY e.position, e.event_index;
COMMENT ON MACRO TABLE decided IS 'decided(of_run): the decisions of a run, in order. Columns: address, at, agent, question, selected, score, threshold, margin, because, decision (ask why() of it).';

-- ---------------------------------------------------------------- why

CREATE MACRO fact(of_part, n, about, told) AS
    {'part': of_part, 'number': n::BIGINT, 'name': about, 'value': told::JSON};
COMMENT ON MACRO fact IS 'fact(of_part, n, about, told): one row of why().';

CREATE MACRO named(of_part, told) AS list_transform(json_keys(told),
    lambda k, i: fact(of_part, i, k, json_extract(told, '$."' || k || '"')));
COMMENT ON MACRO named IS 'named(of_part, told): the fields of a JSON object as rows of why().';

-- `why` itself, and `inputs`, stand in 0013_given.sql.

-- ---------------------------------------------------------------- findings

CREATE MACRO steps_text(tool, agent, step) AS concat(tool, ' (', agent, '#', step, ')');
COMMENT ON MACRO steps_text IS 'steps_text(tool, agent, step): how a sentence names a step.';

CREATE VIEW orphan_intents AS
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
);
COMMENT ON VIEW orphan_intents IS 'One row an intent without a known outcome: its effect may or may not have happened.';

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
COMMENT ON VIEW policy_overrides IS 'One row a word of the gate, or a doubt, that somebody went over: a blocked call that ran all the same, or what a person settled.';

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
COMMENT ON VIEW retries IS 'One row a step that took more than one attempt, or a call that was repeated in vain.';

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
COMMENT ON MACRO TABLE threshold_flips IS 'threshold_flips(x): what would turn if a decision''s threshold moved by x, up or down: one row an alternative that crosses it. Columns: kind (selected or another, would fail or pass), run, agent, step (NULL), address (of the decision), fact.';

CREATE MACRO touched(resource) AS TABLE
SELECT * FROM (
    SELECT
        r.operation AS kind, r.run, r.agent, r.step,
        address_of(e.position, e.event_index) AS address,
        concat(r.agent, ': ', r.operation, ' ', r.uri, ' at ', moment_of(r.happened_at)) AS fact
    FROM resources AS r
    JOIN events AS e ON e.position = r.position AND e.version = r.version
    WHERE r.uri = resource OR r.uri GLOB resource
    UNION ALL
    SELECT
        'argument', s.run, s.agent, s.step, address_of(e.position, e.event_index),
        concat(steps_text(s.tool, s.agent, s.step), ', ', s.status, ', was given ',
            shown(s.arguments::VARCHAR, 200), ' at ', moment_of(s.requested_at))
    FROM steps AS s
    JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
    WHERE if(regexp_matches(resource, '[*?\[]'), s.arguments::VARCHAR GLOB concat('*', resource, '*'),
        contains(s.arguments::VARCHAR, (to_json(resource)::VARCHAR)[2:-2]))
)
ORDER BY split_part(address, '.', 1)::BIGINT, split_part(address, '.', 2)::BIGINT;
COMMENT ON MACRO TABLE touched IS 'touched(resource): who used a resource, in order: a uri, or a pattern with * and ?. Columns: kind (the operation, or argument where a call''s arguments name it), run, agent, step, address, fact.';

-- Runs as trials of their experiment's plan; a fork is one where it was assigned itself. When a run began is
-- known where it was recorded live, or where its source says so.
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
COMMENT ON VIEW trials IS 'One row a run that is a trial, beside the plan of its experiment. A fork is one where it was assigned itself.';

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
    concat('stream ', h.stream, ' has ', h.events, ' events, and their versions go from ', h.first,
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
JOIN runs AS r ON r.run = o.run AND r.parent IS NULL  -- a fork's costs are its parent's, too
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
    concat('task ', task, ' has ', count(*), ' trials under arm ', arm, ' of ', experiment,
        ', and the plan says ', any_value(trials))
FROM trials
WHERE trials IS NOT NULL
GROUP BY experiment, arm, task
HAVING count(*) > any_value(trials) OR (count(*) < any_value(trials) AND any_value(stopped_at) IS NOT NULL)
UNION ALL
SELECT
    'tasks', arg_max(run, position), NULL, NULL, arg_max(address, position),
    concat('arm ', arm, ' of ', experiment, ' has ', count(DISTINCT task), ' tasks, and the plan says ',
        any_value(planned))
FROM trials
WHERE planned IS NOT NULL AND stopped_at IS NOT NULL
GROUP BY experiment, arm
HAVING count(DISTINCT task) < any_value(planned)
UNION ALL
SELECT
    'spread', arg_max(run, began_at), NULL, NULL, arg_max(address, began_at),
    concat('each task is tried once under arm ', arm, ' of ', experiment, ', and its ', count(*),
        ' runs began from ', moment_of(min(began_at)), ' to ', moment_of(max(began_at)), ', over ',
        round(date_diff('second', min(began_at), max(began_at)) / 86400, 1), ' days')
FROM trials
WHERE began_at IS NOT NULL AND if(registered, trials = 1 AND stop = 'fixed', trial IS NOT NULL AND task IS NOT NULL)
GROUP BY experiment, arm
HAVING max(of_task) = 1 AND max(began_at) - min(began_at) > INTERVAL 1 DAY
UNION ALL
SELECT
    'no outcome', t.run, NULL, NULL, t.address,
    concat('the run is ', t.status, ', and nobody says what came of task ', t.task, ' under arm ',
        t.arm, ' of ', t.experiment, '; other runs of it are scored')
FROM trials AS t
SEMI JOIN (SELECT experiment FROM trials SEMI JOIN outcomes USING (run)) AS s ON s.experiment = t.experiment
ANTI JOIN outcomes AS o ON o.run = t.run
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
    concat(count(*), ' runs of ', experiment, ' began before it was registered at position ',
        any_value(registered_position), ', and its plan does not say that it is exploratory')
FROM trials
WHERE NOT exploratory AND position < registered_position
GROUP BY experiment
UNION ALL
SELECT
    'unknown type', run, any_value(agent), NULL, address_of(min(position), arg_min(event_index, position)),
    concat(count(*), ' events of type ', type, ', which this version does not know, are in no table but events')
FROM (FROM events AS e ANTI JOIN problems AS p ON p.position = e.position AND p.event_index = e.event_index)
WHERE known_as IS NULL
GROUP BY run, type
UNION ALL
SELECT
    'problem', NULL, NULL, NULL, concat_ws('.', position, event_index),
    concat(subject, ' at position ', position, ' is not as Hansard writes it: ', reason)
FROM problems;
COMMENT ON VIEW gaps IS 'One row something that could be missing, or that does not add up. A step without an outcome stands in orphan_intents.';

CREATE MACRO findings(x) AS TABLE
SELECT 'orphan_intents' AS view, * FROM orphan_intents
UNION ALL
SELECT 'policy_overrides', * FROM policy_overrides WHERE kind <> 'settled'
UNION ALL
SELECT 'retries', * FROM retries WHERE kind <> 'retried'
UNION ALL
SELECT 'threshold_flips', * FROM threshold_flips(x)
UNION ALL
SELECT 'gaps', * FROM gaps;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times and doubts that a person settled, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact. Nothing in a run of which nothing is missing or odd.';
