-- Findings count in words that fit the number: 1 task, 2 tasks.

CREATE MACRO counted(number, one) AS concat(number, ' ', one, if(number = 1, '', 's'));
COMMENT ON MACRO counted IS 'counted(number, one): a number and what it counts, called as where there is one.';

CREATE OR REPLACE VIEW gaps AS
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
COMMENT ON VIEW gaps IS 'One row something that could be missing, or that does not add up. A step without an outcome stands in orphan_intents.';
