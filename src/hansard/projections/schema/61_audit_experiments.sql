-- Audit of experiments: causes of wrong figures (models, scores, selection, copies, times, failures,
-- costs). Each threshold is in the text of the finding or in its question in finding_kinds.

CREATE MACRO model_family(m) AS regexp_replace(regexp_replace(lower(m), '^(.*/)?([a-z]{2}[.])?((anthropic|amazon|meta|mistral|cohere)[.])?', ''),
    '([-@:](latest|[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|v[0-9]+(:[0-9]+)?))+$', '');
COMMENT ON MACRO model_family IS 'Model name without provider and date.';

CREATE MACRO all_true(checks) AS
    if(len(list_filter(checks, lambda c: c IS NOT NULL)) > 0, if(list_contains(checks, 'false'), 0.0, 1.0), NULL);
COMMENT ON MACRO all_true IS 'Helper of other macros.';

CREATE VIEW answering_models AS
WITH named AS (
    SELECT
        m.run, if(m.message_role = 'user', 'user', m.role) AS role, m.position, m.version,
        list_filter(json_extract_string(m.fields, ['$.model', '$.raw_data.model', '$.response_metadata.model_name']), lambda n: n <> '')[1] AS model
    FROM messages AS m
    WHERE m.message_role IN ('assistant', 'user') AND contains(m.fields::VARCHAR, '"model')
    UNION ALL
    SELECT
        s.run, s.role, s.requested_position, s.requested_version,
        list_filter([s.result->>'$.model', s.arguments->>'$.model'], lambda n: n <> '')[1]
    FROM steps AS s
    WHERE s.kind = 'model' AND s.reused_step IS NULL
), counted AS (
    SELECT run, role, model, count(*) AS answers, min(position << 16 | version) AS place, min(position) AS position
    FROM named
    WHERE model IS NOT NULL
    GROUP BY run, role, model
)
SELECT c.run, c.role, c.model, c.answers, c.position, address_of(c.position, e.event_index) AS address
FROM counted AS c
JOIN events AS e ON e.position = c.position AND e.position << 16 | e.version = c.place;
COMMENT ON VIEW answering_models IS 'One row per run, role and model that answered, as messages and model calls name it.';

CREATE VIEW declared_models AS
SELECT r.experiment, r.arm, r.run, d.of_user, d.model, d.said
FROM assigned_runs AS r
LEFT JOIN arms AS a ON a.experiment = r.experiment AND a.arm = r.arm
CROSS JOIN LATERAL (VALUES
    (true, r.labels->>'user_llm', 'its label user_llm'), (false, r.labels->>'agent_llm', 'its label agent_llm'),
    (false, r.labels->>'model', 'its label model'), (false, a.model, 'the plan')) AS d(of_user, model, said)
WHERE d.model <> '';
COMMENT ON VIEW declared_models IS 'One row per model declared by a trial''s labels (agent_llm, model, user_llm) or plan.';

CREATE VIEW odd_models AS
WITH answered AS MATERIALIZED (
    SELECT
        r.experiment, r.arm, a.run, a.role, model_family(a.model) AS model, min(a.model) AS named,
        min(a.position) AS position, arg_min(a.address, a.position) AS address
    FROM answering_models AS a
    JOIN assigned_runs AS r ON r.run = a.run
    GROUP BY r.experiment, r.arm, a.run, a.role, model_family(a.model)
), sets AS (
    SELECT
        experiment, arm, role, run, string_agg(model, ' and ' ORDER BY model) AS models,
        min(position) AS position, arg_min(address, position) AS address
    FROM answered
    GROUP BY experiment, arm, role, run
), counts AS (
    SELECT experiment, arm, role, models, count(*) AS runs, min(position) AS first,
        row_number() OVER (PARTITION BY experiment, arm, role ORDER BY count(*) DESC, min(position)) AS place
    FROM sets
    GROUP BY experiment, arm, role, models
), simulators AS (
    SELECT experiment, arm, run, model_family(model) AS model FROM declared_models WHERE of_user
    UNION
    SELECT experiment, arm, run, model FROM answered WHERE role = 'user'
), findings AS (
    SELECT
        'several models' AS kind, s.experiment, list({'run': s.run, 'address': s.address} ORDER BY s.position) AS found,
        concat('under arm ', any_value(s.arm), ' in the role ', any_value(s.role), ', ', any_value(c.words),
            '; those of the fewer are listed') AS fact
    FROM sets AS s
    JOIN counts AS k ON k.experiment = s.experiment AND k.arm = s.arm AND k.role = s.role AND k.models = s.models AND k.place > 1
    JOIN (
        SELECT experiment, arm, role, string_agg(concat(models, ' answered in ', runs, if(runs = 1, ' run', ' runs')), ', ' ORDER BY place) AS words
        FROM counts GROUP BY experiment, arm, role
    ) AS c ON c.experiment = s.experiment AND c.arm = s.arm AND c.role = s.role
    WHERE s.role <> 'user'
    GROUP BY s.experiment, s.arm, s.role
    UNION ALL
    SELECT
        'undeclared model', a.experiment, list({'run': a.run, 'address': a.address} ORDER BY a.position),
        concat(any_value(a.named), ' answered in ', count(DISTINCT a.run), if(count(DISTINCT a.run) = 1, ' run', ' runs'), ' of arm ', a.arm,
            ' in the role ', a.role, ', and ', any_value(d.said), ' says ', any_value(d.model))
    FROM answered AS a
    JOIN declared_models AS d ON d.run = a.run AND d.of_user = (a.role = 'user') AND model_family(d.model) <> a.model
    GROUP BY a.experiment, a.arm, a.role, a.model
    UNION ALL
    SELECT
        'user simulator', w.experiment, [{'run': any_value(w.run), 'address': address_of(any_value(r.first_position), 0)}],
        concat('the simulated user is not the same: ', any_value(w.words))
    FROM (
        SELECT experiment, arg_max(run, of_run) AS run, string_agg(DISTINCT concat(model, ' under arm ', arm), ', ' ORDER BY concat(model, ' under arm ', arm)) AS words
        FROM (SELECT s.*, r.first_position AS of_run FROM simulators AS s JOIN runs AS r ON r.run = s.run)
        GROUP BY experiment
        HAVING count(DISTINCT model) > 1
    ) AS w
    JOIN runs AS r ON r.run = w.run
    GROUP BY w.experiment
)
SELECT
    t.kind, t.found[1].run AS run, NULL::VARCHAR AS agent, NULL::BIGINT AS step,
    t.found[1].address AS address, t.fact, t.experiment, t.found[:20] AS evidence
FROM findings AS t;
COMMENT ON VIEW odd_models IS 'One row per arm and role with several models, undeclared model, or experiment whose simulated user changed.';

CREATE VIEW checked_scores AS
SELECT
    s.*, CASE
        WHEN s.checks IS NOT NULL AND s.basis IS NULL AND s.checks <> s.value THEN concat('its judge says ', s.checks)
        WHEN s.bad IS NOT NULL AND s.value > 0 THEN concat('its check ', s.bad, ' is 0')
        WHEN s.stored <> s.value THEN concat('its checks (', array_to_string(s.basis, ', '), ') come to ', s.stored)
        WHEN s.broken_down <> s.value THEN concat('the parts that it is made of (', array_to_string(s.basis, ', '), ') come to ', s.broken_down)
    END AS contradiction
FROM (
    SELECT
        j.run, j.metric, j.value, j.judged_by, j.position, j.version, j.basis,
        coalesce(try_cast(j.details->>'$.reward_info.reward' AS DOUBLE), if(j.value IN (0, 1), try_cast(list_filter(json_extract_string(j.details,
            ['$.passed', '$.success', '$.resolved', '$.correct']), lambda n: n IN ('true', 'false'))[1] AS BOOLEAN)::DOUBLE, NULL)) AS checks,
        CASE WHEN try_cast(j.details->>'$.reward_info.info.r_actions' AS DOUBLE) = 0 THEN 'r_actions'
            WHEN try_cast(j.details->>'$.reward_info.info.r_outputs' AS DOUBLE) = 0 THEN 'r_outputs' END AS bad,
        if(len(j.parts) > 0 AND len(list_filter(j.parts, lambda p: p IS NULL)) = 0, list_product(j.parts), NULL) AS stored,
        if(len(j.sums) > 0 AND len(list_filter(j.sums, lambda p: p IS NULL)) = 0, list_product(j.sums), NULL) AS broken_down
    FROM (
        SELECT b.*,
            list_transform(b.basis, lambda p: coalesce(CASE p
                WHEN 'DB' THEN coalesce(try_cast(b.details->>'$.db_check.db_match' AS BOOLEAN)::DOUBLE, try_cast(b.details->>'$.db_check.db_reward' AS DOUBLE))
                WHEN 'ACTION' THEN all_true(json_extract_string(b.details, '$.action_checks[*].action_match'))
                WHEN 'COMMUNICATE' THEN all_true(json_extract_string(b.details, '$.communicate_checks[*].met'))
                WHEN 'NL_ASSERTION' THEN all_true(json_extract_string(b.details, '$.nl_assertions[*].met'))
                WHEN 'ENV_ASSERTION' THEN all_true(json_extract_string(b.details, '$.env_assertions[*].met'))
            END, try_cast(json_extract_string(b.details, '$.reward_breakdown.' || p) AS DOUBLE))) AS parts,
            list_transform(b.basis, lambda p: try_cast(json_extract_string(b.details, '$.reward_breakdown.' || p) AS DOUBLE)) AS sums
        FROM (
            SELECT o.*, try_cast(o.details->'$.reward_basis' AS VARCHAR[]) AS basis
            FROM outcomes AS o
            WHERE o.metric IN ('reward', 'success', 'resolved', 'passed', 'correct', 'score')
                AND json_type(o.details) = 'OBJECT'
            QUALIFY row_number() OVER (PARTITION BY o.run, o.metric ORDER BY o.version DESC) = 1
        ) AS b
    ) AS j
) AS s
WHERE coalesce(s.checks, s.stored, s.broken_down) IS NOT NULL;
COMMENT ON VIEW checked_scores IS 'One row per score stored with checks (tau-bench, tau2-bench, or passed, success, resolved, correct), and any contradiction.';

CREATE MACRO claim_holds(claimed, value) AS abs(try_cast(claimed AS DOUBLE) - value)
    <= if(contains(lower(claimed), 'e'), 0, 0.5 * 0.1 ** greatest(2, length(split_part(claimed, '.', 2)))) + 1e-9;
COMMENT ON MACRO claim_holds IS 'Helper of other macros.';

CREATE VIEW submitted_claims AS
WITH claims AS (
    SELECT i.experiment, i.arm, d.domain, m.metric, label_of(label_of(i.claims, d.domain), m.metric) AS claimed,
        try_cast(regexp_extract(m.metric, '^pass_([1-9])$', 1) AS BIGINT) AS k
    FROM (
        SELECT experiment, coalesce(arm, '') AS arm, claims FROM imports WHERE json_type(claims) = 'OBJECT'
        QUALIFY row_number() OVER (PARTITION BY experiment, coalesce(arm, '') ORDER BY position DESC) = 1
    ) AS i, unnest(json_keys(i.claims)) AS d(domain), unnest(json_keys(label_of(i.claims, d.domain))) AS m(metric)
), outcome AS (
    SELECT run, arg_max(value, version) FILTER (metric = 'reward') AS reward, arg_max(value, version) FILTER (metric = 'agent_cost') AS cost
    FROM outcomes GROUP BY run
), per_task AS (
    SELECT c.experiment, c.arm, c.domain, r.task, count(*) AS runs, count(*) FILTER (o.reward >= 1) AS solved, sum(o.cost) AS cost, count(o.cost) AS costed
    FROM (SELECT DISTINCT experiment, arm, domain FROM claims) AS c
    JOIN runs AS r ON r.experiment = c.experiment AND coalesce(r.arm, '') = c.arm AND r.parent IS NULL AND r.status <> 'open'
        AND (c.domain = '' OR r.labels->>'domain' = c.domain)
    LEFT JOIN outcome AS o ON o.run = r.run
    GROUP BY c.experiment, c.arm, c.domain, r.task
), measured AS (
    SELECT
        c.experiment, c.arm, c.domain, c.metric, c.claimed, sum(t.runs)::BIGINT AS runs,
        CASE WHEN c.metric = 'cost' THEN sum(t.cost) / nullif(sum(t.costed), 0)
            WHEN min(t.runs) >= c.k
            THEN 100 * avg(list_product(list_transform(range(c.k), lambda i: greatest(t.solved - i, 0) / (t.runs - i)))) END AS value
    FROM claims AS c
    LEFT JOIN per_task AS t ON t.experiment = c.experiment AND t.arm = c.arm AND t.domain = c.domain
        AND (c.metric = 'cost' OR c.k IS NOT NULL)
    GROUP BY c.experiment, c.arm, c.domain, c.metric, c.claimed, c.k
)
SELECT
    experiment, arm, domain, metric, claimed, value, runs,
    abs(try_cast(claimed AS DOUBLE) - value)
        <= if(contains(lower(claimed), 'e'), 0, 0.5 * 0.1 ** length(split_part(claimed, '.', 2))) + 1e-9 AS holds
FROM measured;
COMMENT ON VIEW submitted_claims IS 'One row per figure a tau2-bench submission claims of an arm, beside the recorded one: cost (mean agent_cost) or pass_k (pass^k, percent).';

CREATE VIEW claimed_scores AS
WITH claims AS (
    SELECT r.run, r.experiment, r.arm, r.task, l.name, label_of(r.labels, l.name) AS claimed
    FROM (
        SELECT run, experiment, arm, task, labels FROM runs WHERE parent IS NULL AND labels IS NOT NULL
    ) AS r, unnest(json_keys(r.labels)) AS l(name)
    WHERE starts_with(l.name, 'claim: ') OR starts_with(l.name, 'claim of the mean: ')
), newest AS (
    SELECT run, metric, max_by({'value': value, 'by': judged_by, 'position': position, 'version': version}, version) AS latest
    FROM outcomes
    GROUP BY run, metric
), means AS (
    SELECT DISTINCT experiment, arm, claimed, substr(name, length('claim of the mean: ') + 1) AS metric
    FROM claims
    WHERE starts_with(name, 'claim of the mean: ')
), scored AS (
    SELECT
        m.experiment, m.arm, m.metric, m.claimed, r.status, n.latest.value AS value,
        if(coalesce(e.missing, 'failure') = 'excluded', 'excluded', 'failure') AS missing,
        if(coalesce(p.better, k.better) = 'higher', least(0.0, min(n.latest.value) OVER (PARTITION BY m.experiment, m.metric)), NULL) AS worst
    FROM means AS m
    JOIN runs AS r ON r.experiment IS NOT DISTINCT FROM m.experiment AND r.arm IS NOT DISTINCT FROM m.arm AND r.parent IS NULL
    LEFT JOIN newest AS n ON n.run = r.run AND n.metric = m.metric
    LEFT JOIN experiments AS e ON e.experiment = m.experiment
    LEFT JOIN metrics AS p ON p.experiment = m.experiment AND p.metric = m.metric
    LEFT JOIN metric_catalogue AS k ON k.metric = m.metric
), counted AS (
    SELECT
        s.experiment, s.arm, s.metric, s.claimed, count(*) FILTER (s.status <> 'open' OR s.value IS NOT NULL) AS runs,
        count(*) FILTER (s.value IS NULL AND s.status <> 'open') AS missing,
        avg(counted_value(s.missing, s.value, s.status = 'completed', s.status = 'open', s.worst, NULL)) AS value,
        avg(s.value) AS without, avg(coalesce(s.value, if(s.status = 'open', NULL, 0))) AS with_zeros
    FROM scored AS s
    GROUP BY s.experiment, s.arm, s.metric, s.claimed
    HAVING count(s.value) > 0
)
SELECT
    s.run, s.experiment, s.arm, s.task, n.metric, s.claimed, n.latest.value AS value, n.latest.by AS judged_by, 1 AS runs,
    n.latest.position AS position, n.latest.version AS version, try_cast(s.claimed AS DOUBLE) = n.latest.value AS holds, 0 AS missing, NULL::DOUBLE AS otherwise
FROM claims AS s
JOIN newest AS n ON n.run = s.run AND s.name = 'claim: ' || n.metric
UNION ALL
SELECT
    NULL, c.experiment, c.arm, NULL, c.metric, c.claimed, c.value, NULL, c.runs, NULL, NULL, claim_holds(c.claimed, c.value), c.missing,
    CASE WHEN claim_holds(c.claimed, c.value) THEN NULL WHEN claim_holds(c.claimed, c.without) THEN c.without
        WHEN claim_holds(c.claimed, c.with_zeros) THEN c.with_zeros END
FROM counted AS c
UNION ALL
SELECT
    NULL, c.experiment, c.arm, NULL, concat(c.metric, if(c.domain = '', '', ' of '), c.domain), c.claimed, c.value, NULL, c.runs, NULL, NULL, c.holds, 0, NULL
FROM submitted_claims AS c
WHERE c.value IS NOT NULL;
COMMENT ON VIEW claimed_scores IS 'One row per score of a run, or mean of an arm, that a source claims, beside the recorded one. Missing values count as in `arm_summary`.';

CREATE VIEW odd_scores AS
SELECT
    'contradicts its checks' AS kind, s.run, NULL::VARCHAR AS agent, NULL::BIGINT AS step,
    address_of(s.position, e.event_index) AS address,
    concat(s.judged_by, ' says that ', s.metric, ' is ', s.value, if(r.task IS NULL, '', concat(' in task ', r.task)), ', and ', s.contradiction) AS fact,
    r.experiment, [{'run': s.run, 'address': address_of(s.position, e.event_index)}] AS evidence
FROM checked_scores AS s
JOIN runs AS r ON r.run = s.run AND r.parent IS NULL
JOIN events AS e ON e.position = s.position AND e.version = s.version
WHERE s.contradiction IS NOT NULL
UNION ALL
SELECT
    'claimed score', c.run, NULL, NULL, address_of(c.position, e.event_index),
    concat('claimed is ', c.metric, ' ', c.claimed, if(c.task IS NULL, '', concat(' in task ', c.task)), ', and ', c.judged_by, ' says ', c.value),
    c.experiment, [{'run': c.run, 'address': address_of(c.position, e.event_index)}]
FROM claimed_scores AS c
JOIN events AS e ON e.position = c.position AND e.version = c.version
WHERE c.run IS NOT NULL AND NOT c.holds
UNION ALL
SELECT
    if(c.otherwise IS NULL, 'claimed mean', 'claimed mean counts otherwise'), NULL, NULL, NULL, NULL,
    concat('claimed is a mean ', c.metric, ' of ', c.claimed, ' under arm ', c.arm, ', and that of its ', c.runs, if(c.missing > 0, ' runs is ', ' scored runs is '), round(c.value, 6),
        if(c.missing > 0, concat(' (', c.missing, ' without a value)'), ''),
        if(c.otherwise IS NULL, '', concat('; it is ', round(c.otherwise, 6), ' with missing values or crashes counted otherwise'))),
    c.experiment, []
FROM claimed_scores AS c
WHERE c.run IS NULL AND NOT c.holds;
COMMENT ON VIEW odd_scores IS 'One row per score that contradicts its stored checks or its source''s claim, and arm whose mean is not the claimed one, or only under another rule for missing values or crashes.';

-- Trials of finished experiments: no run is open, a plan is stopped, and arms were not assigned at
-- random, which leaves tasks and trials uneven.
CREATE VIEW settled_trials AS
SELECT t.*, o.value
FROM trials AS t
LEFT JOIN (
    SELECT run, max(value) AS value FROM outcomes
    WHERE metric IN ('success', 'reward', 'resolved', 'passed', 'correct') GROUP BY run
) AS o ON o.run = t.run
ANTI JOIN (
    SELECT experiment FROM trials WHERE status = 'open' OR (registered AND stopped_at IS NULL)
    UNION
    SELECT experiment FROM experiments WHERE unit = 'task'
    UNION
    SELECT experiment FROM assignments WHERE chosen = 'hash'
) AS x ON x.experiment = t.experiment
WHERE t.task IS NOT NULL AND t.arm IS NOT NULL;
COMMENT ON VIEW settled_trials IS 'One row per trial of experiments that can be compared task by task: no run is open, a plan is stopped, arms were not drawn at random.';

CREATE VIEW odd_selection AS
WITH mine AS MATERIALIZED (
    FROM settled_trials
), common AS (
    SELECT n.experiment, n.arm, min(n.trial) AS low, max(n.trial) AS high
    FROM (SELECT experiment, arm, trial, count(DISTINCT task) AS tasks FROM mine WHERE trial IS NOT NULL GROUP BY experiment, arm, trial) AS n
    JOIN (SELECT experiment, arm, count(DISTINCT task) AS tasks FROM mine GROUP BY experiment, arm) AS a ON a.experiment = n.experiment AND a.arm = n.arm
    WHERE 2 * n.tasks >= a.tasks
    GROUP BY n.experiment, n.arm
), per_task AS (
    SELECT
        m.experiment, m.arm, m.task, count(*) AS trials, min(m.position) AS position, arg_min(m.run, m.position) AS run,
        arg_min(m.address, m.position) AS address, avg(m.value) AS value,
        coalesce(least(max(m.trial), max(c.high)) - max(c.low) + 1 > count(DISTINCT m.trial) FILTER (m.trial BETWEEN c.low AND c.high), false) AS skips
    FROM mine AS m
    LEFT JOIN common AS c ON c.experiment = m.experiment AND c.arm = m.arm
    GROUP BY m.experiment, m.arm, m.task
), per_arm AS (
    SELECT
        experiment, arm, count(*) AS tasks, max(trials) AS most, min(position) AS position,
        arg_min(run, position) AS run, arg_min(address, position) AS address, avg(value) AS value
    FROM per_task
    GROUP BY experiment, arm
), lacking AS (
    SELECT
        a.experiment, a.arm, t.task, t.value, t.run, t.address, t.position
    FROM per_arm AS a
    JOIN (
        SELECT experiment, task, avg(value) AS value, arg_min(run, position) AS run,
            arg_min(address, position) AS address, min(position) AS position
        FROM per_task GROUP BY experiment, task
    ) AS t ON t.experiment = a.experiment
    ANTI JOIN per_task AS p ON p.experiment = a.experiment AND p.arm = a.arm AND p.task = t.task
), shared AS (
    SELECT a.experiment, a.arm, avg(o.value) AS value
    FROM per_task AS a
    JOIN per_task AS o ON o.experiment = a.experiment AND o.task = a.task AND o.arm <> a.arm
    GROUP BY a.experiment, a.arm
), numbered AS (
    SELECT experiment, arm, count(DISTINCT n) AS there, max(n) - min(n) + 1 AS span, list(DISTINCT n) AS ns, min(n) AS low, max(n) AS high
    FROM (SELECT experiment, arm, try_cast(task AS BIGINT) AS n FROM per_task)
    GROUP BY experiment, arm
    HAVING count(*) = count(n) AND count(*) >= 10 AND count(DISTINCT n) < max(n) - min(n) + 1 AND count(DISTINCT n) >= 0.6 * (max(n) - min(n) + 1)
), clocked AS (
    SELECT
        *, date_diff('minute', lag(began_at) OVER w, began_at) AS since,
        row_number() OVER (PARTITION BY experiment, arm ORDER BY trial, try_cast(regexp_extract(task, '[0-9]+') AS BIGINT), task) AS place,
        row_number() OVER w AS began_as, count(*) OVER (PARTITION BY experiment, arm) AS of_arm
    FROM trials
    WHERE began_at IS NOT NULL AND task IS NOT NULL
    WINDOW w AS (PARTITION BY experiment, arm ORDER BY began_at, position)
), clusters AS (
    SELECT *, count(*) FILTER (since >= 120) OVER (PARTITION BY experiment, arm ORDER BY began_at, position) AS cluster
    FROM clocked
), bulk AS (
    -- If runs begin in the order of tasks, more of them may be out of order by chance than otherwise.
    SELECT
        experiment, arm, cluster, min(began_at) AS first_at, quantile_disc(place, 0.1) AS low,
        if(corr(place, began_as) >= 0.5, 0.25, 0.1) * any_value(of_arm) AS most
    FROM clusters
    GROUP BY experiment, arm, cluster
    HAVING any_value(of_arm) >= 5
    QUALIFY row_number() OVER (PARTITION BY experiment, arm ORDER BY count(*) DESC, cluster) = 1
), early AS (
    SELECT c.*, b.first_at
    FROM clusters AS c
    JOIN bulk AS b ON b.experiment = c.experiment AND b.arm = c.arm
    WHERE c.cluster < b.cluster AND c.place > b.low
    QUALIFY count(*) OVER (PARTITION BY c.experiment, c.arm) <= b.most
), late AS (
    SELECT c.*, b.most, h.last_at
    FROM clusters AS c
    JOIN bulk AS b ON b.experiment = c.experiment AND b.arm = c.arm
    JOIN (
        SELECT
            experiment, arm, cluster, max(max(place)) OVER before AS highest, max(max(began_at)) OVER before AS last_at
        FROM clusters
        ANTI JOIN early USING (run)
        GROUP BY experiment, arm, cluster
        WINDOW before AS (PARTITION BY experiment, arm ORDER BY cluster ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ) AS h ON h.experiment = c.experiment AND h.arm = c.arm AND h.cluster = c.cluster
    WHERE c.cluster > 0 AND c.place < h.highest
), found AS (
    SELECT
        'tasks lacking' AS kind, l.experiment, list({'run': l.run, 'address': l.address} ORDER BY l.position) AS evidence,
        concat('arm ', l.arm, ' lacks ', count(*), ' of the ', any_value(a.tasks) + count(*), ' tasks: ',
            array_to_string(list(l.task ORDER BY try_cast(l.task AS BIGINT), l.task)[:8], ', '), if(count(*) > 8, ' ...', ''),
            if(avg(l.value) IS NULL, '', concat('; the others come to ', round(avg(l.value), 3), ' in those, and to ',
                round(any_value(s.value), 3), ' in those that it has')),
            if(any_value(a.value) IS NULL, '', concat('; its mean is ', round(any_value(a.value), 3), ', and ',
                round(any_value(a.value) * any_value(a.tasks) / (any_value(a.tasks) + count(*)), 3),
                ' with those that it lacks as failures'))) AS fact
    FROM lacking AS l
    JOIN per_arm AS a ON a.experiment = l.experiment AND a.arm = l.arm
    JOIN shared AS s ON s.experiment = l.experiment AND s.arm = l.arm
    GROUP BY l.experiment, l.arm
    UNION ALL
    SELECT
        'task numbers skip', n.experiment, [{'run': a.run, 'address': a.address}],
        concat('arm ', n.arm, ' has ', n.there, ' of the ', n.span, ' tasks numbered ', n.low, ' to ', n.high, ', and no arm has ',
            array_to_string(m.missing[:8], ', '), if(len(m.missing) > 8, ' ...', ''),
            if(a.value IS NULL, '', concat('; those that it has come to ', round(a.value, 3))))
    FROM numbered AS n
    JOIN per_arm AS a ON a.experiment = n.experiment AND a.arm = n.arm
    CROSS JOIN LATERAL (
        SELECT list(g.n ORDER BY g.n) AS missing
        FROM (SELECT unnest(range(n.low, n.high + 1)) AS n) AS g
        WHERE NOT list_contains(n.ns, g.n)
    ) AS m
    ANTI JOIN lacking AS l ON l.experiment = n.experiment AND l.arm = n.arm
    UNION ALL
    SELECT
        if(skips, 'trial numbers skip', 'fewer trials'), p.experiment, list({'run': p.run, 'address': p.address} ORDER BY p.position),
        concat(if(skips, 'trial numbers skip in ', ''), count(*), ' of the ', any_value(a.tasks), ' tasks of arm ', p.arm,
            if(skips, ': ', concat(' have fewer trials than the ', any_value(a.most), ' of the others: ')),
            array_to_string(list(p.task ORDER BY try_cast(p.task AS BIGINT), p.task)[:8], ', '), if(count(*) > 8, ' ...', ''))
    FROM per_task AS p
    JOIN per_arm AS a ON a.experiment = p.experiment AND a.arm = p.arm
    WHERE p.skips OR p.trials < a.most
    GROUP BY p.experiment, p.arm, p.skips
    UNION ALL
    SELECT
        'trials differ', experiment, list({'run': run, 'address': address} ORDER BY position),
        concat('arms have different numbers of trials a task: ', string_agg(concat(arm, ' up to ', most), ', ' ORDER BY most DESC, arm))
    FROM per_arm
    GROUP BY experiment
    HAVING count(DISTINCT most) > 1
    UNION ALL
    SELECT
        'late starts', l.experiment, list({'run': l.run, 'address': l.address} ORDER BY l.began_at),
        concat(count(*), ' of the ', any_value(l.of_arm), ' runs of arm ', l.arm, ' began up to ',
            round(max(date_diff('minute', l.last_at, l.began_at)) / 60, 1), ' hours after those before them had begun, out of order: ',
            if(count(*) = 1, 'task ', 'tasks '), array_to_string(list(l.task ORDER BY l.began_at)[:8], ', '), if(count(*) > 8, ' ...', ''),
            '; were they tried again?')
    FROM late AS l
    GROUP BY l.experiment, l.arm
    HAVING count(*) <= any_value(l.most)
    UNION ALL
    SELECT
        'early starts', l.experiment, list({'run': l.run, 'address': l.address} ORDER BY l.began_at),
        concat(count(*), ' of the ', any_value(l.of_arm), ' runs of arm ', l.arm, ' began up to ',
            round(max(date_diff('minute', l.began_at, l.first_at)) / 60, 1), ' hours before most of the others, out of order: ',
            if(count(*) = 1, 'task ', 'tasks '), array_to_string(list(l.task ORDER BY l.began_at)[:8], ', '), if(count(*) > 8, ' ...', ''),
            '; were they taken from an earlier attempt?')
    FROM early AS l
    GROUP BY l.experiment, l.arm
)
SELECT
    f.kind, f.evidence[1].run AS run, NULL::VARCHAR AS agent, NULL::BIGINT AS step, f.evidence[1].address AS address,
    f.fact, f.experiment, f.evidence[:20] AS evidence
FROM found AS f;
COMMENT ON VIEW odd_selection IS 'One row per arm with other tasks or trials than the others, or whose runs began late and out of order.';

CREATE VIEW said_answers AS
SELECT m.run, hash(m.text) AS digest, min(length(m.text)) AS characters
FROM messages AS m
WHERE m.message_role = 'assistant' AND length(m.text) >= 40
GROUP BY m.run, hash(m.text);
COMMENT ON VIEW said_answers IS 'One row per answer of at least 40 characters in a run, by hash of its text.';

CREATE VIEW odd_copies AS
WITH answers_of AS MATERIALIZED (
    SELECT r.experiment, r.arm, r.task, r.first_position AS position, s.*
    FROM said_answers AS s
    JOIN assigned_runs AS r ON r.run = s.run
), sizes AS (
    SELECT run, count(*) AS answers, sum(characters) AS characters FROM answers_of GROUP BY run HAVING count(*) >= 2
), rare AS (
    SELECT s.*
    FROM answers_of AS s
    SEMI JOIN (
        SELECT experiment, digest FROM answers_of GROUP BY experiment, digest HAVING count(*) BETWEEN 2 AND 64
    ) AS d ON d.experiment = s.experiment AND d.digest = s.digest
), pairs AS (
    SELECT
        a.run, b.run AS other, any_value(a.experiment) AS experiment, any_value(a.task) AS task, any_value(b.task) AS other_task,
        any_value(a.arm) AS arm, any_value(b.arm) AS other_arm, any_value(a.position) AS position,
        any_value(b.position) AS other_position, count(*) AS common
    FROM rare AS a
    JOIN rare AS b ON b.experiment = a.experiment AND b.digest = a.digest AND a.position < b.position
        AND (a.task <> b.task OR a.arm <> b.arm)
    GROUP BY a.run, b.run
), whole AS (
    -- All messages and calls, in order, of any length: four messages or more, with two different answers.
    SELECT
        r.experiment, r.arm, r.task, r.run, r.first_position AS position,
        hash(list(hash(m.message_role, m.text, json_extract_string(m.fields, '$.tool_calls[*].function')) ORDER BY m.position, m.version)) AS digest
    FROM messages AS m
    JOIN assigned_runs AS r ON r.run = m.run
    WHERE m.message_role <> 'system'
    GROUP BY ALL
    HAVING count(*) >= 4
        AND count(DISTINCT (m.text, m.fields->'$.tool_calls')) FILTER (m.message_role = 'assistant') >= 2
), alike AS (
    SELECT a.run, b.run AS other, a.experiment, a.task, b.task AS other_task, a.arm, b.arm AS other_arm, a.position, b.position AS other_position,
        NULL AS common, 1.0 AS share
    FROM whole AS b
    JOIN (
        SELECT experiment, digest, arg_min(run, position) AS run, arg_min(task, position) AS task, arg_min(arm, position) AS arm,
            min(position) AS position
        FROM whole GROUP BY experiment, digest HAVING count(DISTINCT task) >= 2
    ) AS a ON a.experiment = b.experiment AND a.digest = b.digest AND a.task <> b.task
    UNION ALL
    SELECT p.*, p.common / greatest(x.answers, y.answers) AS share
    FROM pairs AS p
    JOIN sizes AS x ON x.run = p.run
    JOIN sizes AS y ON y.run = p.other
    WHERE p.common >= if(least(x.answers, y.answers) >= 4, 0.8, 1.0) * greatest(x.answers, y.answers)
        AND x.characters >= 300
), first AS (
    SELECT *, row_number() OVER (PARTITION BY other ORDER BY position, share DESC) AS place FROM alike
)
SELECT
    if(f.task <> f.other_task, 'over tasks', 'over arms') AS kind, f.run, NULL::VARCHAR AS agent, NULL::BIGINT AS step,
    address_of(f.position, 0) AS address,
    concat('the conversation of task ', any_value(f.task), ' under arm ', any_value(f.arm), ' stands in ', count(*) + 1, ' runs: also as ',
        array_to_string(list(concat('task ', f.other_task, ' under arm ', f.other_arm) ORDER BY f.other_position)[:8], ', '),
        if(count(*) > 8, ' ...', ''), '; ', round(100 * min(f.share))::BIGINT, if(min(f.share) < max(f.share), concat(' to ', round(100 * max(f.share))::BIGINT), ''),
        ' % of the answers are the same') AS fact,
    f.experiment, list_concat([{'run': f.run, 'address': address_of(f.position, 0)}],
        list({'run': f.other, 'address': address_of(f.other_position, 0)} ORDER BY f.other_position)[:19]) AS evidence
FROM first AS f
WHERE f.place = 1
GROUP BY f.experiment, f.run, f.position, f.task <> f.other_task;
COMMENT ON VIEW odd_copies IS 'One row per conversation that is equal or nearly equal in several runs of an experiment, of other tasks or arms.';

CREATE VIEW odd_failures AS
WITH per_arm AS (
    SELECT
        r.experiment, r.arm, count(*) AS runs,
        count(*) FILTER (r.status <> 'completed' OR (s.experiment IS NOT NULL AND o.run IS NULL)) AS failed,
        list({'run': r.run, 'address': address_of(r.first_position, 0)} ORDER BY r.first_position)
            FILTER (r.status <> 'completed' OR (s.experiment IS NOT NULL AND o.run IS NULL)) AS evidence
    FROM assigned_runs AS r
    LEFT JOIN (SELECT DISTINCT run FROM outcomes) AS o ON o.run = r.run
    LEFT JOIN (SELECT DISTINCT a.experiment FROM assigned_runs AS a SEMI JOIN outcomes AS w ON w.run = a.run) AS s ON s.experiment = r.experiment
    WHERE r.status <> 'open'
    GROUP BY r.experiment, r.arm
), held AS (
    SELECT
        *, sum(runs) OVER w - runs AS other_runs, sum(failed) OVER w - failed AS other_failed,
        sum(failed) OVER w / sum(runs) OVER w AS pooled
    FROM per_arm
    WINDOW w AS (PARTITION BY experiment)
), rated AS (
    SELECT *, failed / runs - other_failed / other_runs AS difference, sqrt(pooled * (1 - pooled) * (1 / runs + 1 / other_runs)) AS error
    FROM held
    WHERE runs >= 10 AND other_runs >= 10 AND failed > 0
)
SELECT
    'uneven' AS kind, evidence[1].run AS run, NULL::VARCHAR AS agent, NULL::BIGINT AS step, evidence[1].address AS address,
    concat(failed, ' of the ', runs, ' runs of arm ', arm, ' failed or were not judged, and ', other_failed, ' of the ', other_runs,
        ' of all other arms: ', round(100 * difference, 1), ' points more, ', round(difference / error, 1), ' standard errors') AS fact,
    experiment, evidence[:20] AS evidence
FROM rated
WHERE error > 0 AND difference >= 0.05 AND difference > 3.3 * error;
COMMENT ON VIEW odd_failures IS 'One row per arm in which more runs failed, or were not judged, than in all others: by at least 5 percentage points and 3.3 standard errors.';

CREATE VIEW odd_costs AS
WITH priced AS (
    SELECT
        m.run, m.agent, m.position, m.version, m.cost, a.model,
        (m.input_tokens * arg_max(p.amount, p.since) FILTER (p.usage = 'input_tokens')
            + m.output_tokens * arg_max(p.amount, p.since) FILTER (p.usage = 'output_tokens')) / 1e6 AS priced
    FROM messages AS m
    JOIN (
        SELECT run, role, any_value(model) AS model FROM answering_models GROUP BY run, role HAVING count(DISTINCT model) = 1
    ) AS a ON a.run = m.run AND a.role = if(m.message_role = 'user', 'user', m.role)
    JOIN prices AS p ON p.model = a.model AND p.since <= m.happened_at AND p.currency = 'USD'
    WHERE m.cost IS NOT NULL AND m.input_tokens > 0 AND m.message_role IN ('assistant', 'user')
        AND list_has_all(['input_tokens', 'output_tokens', 'total_tokens', 'cost'], json_keys(m.usage))
    GROUP BY m.run, m.agent, m.position, m.version, m.cost, a.model, m.input_tokens, m.output_tokens
), found AS (
    SELECT
        'price' AS kind, run, any_value(agent) AS agent, min(position) AS position, arg_min(version, position) AS version,
        concat(count(*), if(count(*) = 1, ' message of ', ' messages of '), any_value(model), ' cost ', round(sum(cost), 10), ' as recorded; their tokens at the stated prices are ',
            round(sum(priced), 10)) AS fact
    FROM priced
    WHERE abs(cost - priced) > 0.01 * greatest(cost, priced)
    GROUP BY run
    UNION ALL
    SELECT 'negative', run, any_value(agent), min(position), arg_min(version, position), concat(count(*), ' amounts of ', metric, ' are below 0, down to ', min(amount))
    FROM usage WHERE amount < 0 AND (metric = 'cost' OR metric LIKE '%tokens') GROUP BY run, metric
    UNION ALL
    SELECT
        'constant', arg_min(m.run, m.position), NULL, min(m.position), arg_min(m.version, m.position),
        concat('each of the ', count(*), ' answers with a cost under arm ', r.arm, ' costs ', min(m.cost), ', and they are of ',
            count(DISTINCT m.input_tokens + coalesce(m.output_tokens, 0)), ' different sizes')
    FROM messages AS m
    JOIN assigned_runs AS r ON r.run = m.run
    WHERE m.cost > 0 AND m.message_role = 'assistant'
    GROUP BY r.experiment, r.arm
    HAVING count(*) >= 20 AND count(DISTINCT m.cost) = 1 AND count(DISTINCT m.input_tokens + coalesce(m.output_tokens, 0)) >= 10
)
SELECT
    f.kind, f.run, f.agent, NULL::BIGINT AS step, address_of(f.position, e.event_index) AS address, f.fact, r.experiment,
    [{'run': f.run, 'address': address_of(f.position, e.event_index)}] AS evidence
FROM found AS f
JOIN runs AS r ON r.run = f.run AND r.parent IS NULL
JOIN events AS e ON e.position = f.position AND e.version = f.version;
COMMENT ON VIEW odd_costs IS 'One row per run whose cost differs from its tokens at stated prices, negative amount, or arm with constant cost.';
