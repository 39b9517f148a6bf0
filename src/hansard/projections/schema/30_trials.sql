-- Trials: runs that are assigned to an experiment, their scores and usage, and how each experiment is
-- judged. A metric without a stated plan gets its direction from metric_catalogue, or has none.

CREATE VIEW scores AS
SELECT run, metric, value, judged_by, because, details, version, position, happened_at
FROM outcomes;
COMMENT ON VIEW scores IS 'One row per score of a run, as `hansard run score` and `record.experiments.score` record it: the rows of `outcomes`.';

CREATE VIEW assigned_runs AS
SELECT
    r.experiment, coalesce(r.arm, '') AS arm, coalesce(r.task, r.run) AS task, r.trial, r.run,
    r.status, r.labels, r.first_position, r.started_at, r.ended_at
FROM runs AS r
WHERE r.experiment <> ''
    AND (r.parent IS NULL OR r.run IN (SELECT a.run FROM assignments AS a));
COMMENT ON VIEW assigned_runs IS 'One row per trial: a run assigned to an experiment. A fork counts only if it was assigned itself.';

CREATE MACRO graders() AS ['success', 'reward', 'resolved', 'passed', 'correct', 'score'];
COMMENT ON MACRO graders IS 'Helper of other macros.';

CREATE MACRO success_of(grade, status) AS CASE
    WHEN grade IS NOT NULL THEN if(isfinite(grade), (grade >= 1)::DOUBLE, NULL)
    WHEN status = 'completed' THEN 1.0::DOUBLE
    WHEN status IN ('failed', 'cancelled') THEN 0.0::DOUBLE END;
COMMENT ON MACRO success_of IS 'Helper of other macros.';

CREATE VIEW usage_by_actor AS
SELECT
    u.run, u.agent, u.of, u.step, u.version, u.metric, u.amount, u.position, u.happened_at,
    CASE WHEN m.message_role = 'user' THEN 'user' ELSE coalesce(a.actor, 'agent') END AS actor
FROM usage AS u
LEFT JOIN messages AS m ON m.run = u.run AND m.agent = u.agent AND m.version = u.version AND u.of = 'message'
LEFT JOIN agents AS g ON g.run = u.run AND g.agent = u.agent
LEFT JOIN actor_roles AS a ON a.role = lower(g.role);
COMMENT ON VIEW usage_by_actor IS 'The rows of `usage` with the actor: user for messages of the role user and for roles in `actor_roles`, judge for those, else agent.';

CREATE VIEW trial_runs AS
WITH spent AS (
    SELECT
        u.run,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'cost' AND u.actor = 'agent') AS cost,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'input_tokens' AND u.actor = 'agent') AS input_tokens,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'output_tokens' AND u.actor = 'agent') AS output_tokens,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'cost' AND u.actor = 'user') AS user_cost,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'cost' AND u.actor = 'judge') AS judge_cost
    FROM usage_by_actor AS u
    WHERE u.metric IN ('cost', 'input_tokens', 'output_tokens')
    GROUP BY u.run
), called AS (
    SELECT
        run, count(*) AS calls,
        count(*) FILTER (status IN ('failed', 'blocked', 'in_doubt', 'not_done')) AS tool_errors
    FROM steps
    WHERE kind = 'tool' AND NOT inherited
    GROUP BY run
), judged AS (
    SELECT o.run, arg_max(o.value, {'rank': -list_position(graders(), o.metric), 'version': o.version}) AS grade
    FROM outcomes AS o
    WHERE o.metric IN ('success', 'reward', 'resolved', 'passed', 'correct', 'score')
    GROUP BY o.run
), timed AS (
    SELECT e.run, date_diff('microsecond', min(e.happened_at), max(e.happened_at)) / 1000.0 AS ms
    FROM events AS e
    WHERE e.occurred_at IS NOT NULL
    GROUP BY e.run
), any_judged AS (
    SELECT DISTINCT r.experiment FROM assigned_runs AS r SEMI JOIN outcomes AS o ON o.run = r.run
)
SELECT
    r.experiment, r.arm, r.task, r.trial, r.run, r.status, r.labels, r.first_position, r.started_at,
    success_of(j.grade, if(a.experiment IS NULL, r.status, NULL)) AS success,
    s.cost, s.input_tokens, s.output_tokens,
    coalesce(s.input_tokens + s.output_tokens, s.input_tokens, s.output_tokens) AS tokens,
    if(r.labels->>'source' IS NULL, date_diff('microsecond', r.started_at, r.ended_at) / 1000.0, t.ms) AS latency_ms,
    coalesce(c.calls, 0) AS calls, coalesce(c.tool_errors, 0) AS tool_errors,
    success_of(NULL, r.status) AS completion, s.user_cost, s.judge_cost
FROM assigned_runs AS r
LEFT JOIN spent AS s ON s.run = r.run
LEFT JOIN called AS c ON c.run = r.run
LEFT JOIN judged AS j ON j.run = r.run
LEFT JOIN timed AS t ON t.run = r.run
LEFT JOIN any_judged AS a ON a.experiment = r.experiment;
COMMENT ON VIEW trial_runs IS 'One row per trial with its results and usage, by agent under test, simulated user and judges (see `usage_by_actor`).';

CREATE VIEW experiment_plans AS
WITH claimed AS (
    SELECT e.run, min(e.happened_at) AS began_at
    FROM events AS e
    WHERE e.occurred_at IS NOT NULL
    GROUP BY e.run
), trials AS (
    SELECT
        r.experiment, min(r.first_position) AS first_position, count(*) AS runs,
        min(if((r.labels->>'source') IS NULL, r.started_at, c.began_at)) AS started_at,
        count(*) FILTER ((r.labels->>'source') IS NOT NULL AND c.run IS NULL) AS undated
    FROM assigned_runs AS r
    LEFT JOIN claimed AS c ON c.run = r.run
    GROUP BY r.experiment
), scored AS (
    SELECT r.experiment, count(DISTINCT o.metric) AS scored, any_value(o.metric) AS metric
    FROM outcomes AS o
    JOIN assigned_runs AS r ON r.run = o.run
    GROUP BY r.experiment
)
SELECT
    coalesce(e.experiment, t.experiment) AS experiment, e.experiment IS NOT NULL AS registered,
    CASE
        WHEN e.experiment IS NULL THEN 'exploratory: no plan is registered'
        WHEN e.exploratory THEN 'exploratory: as its plan says'
        WHEN t.first_position < e.registered_position THEN 'exploratory: its first run was recorded before its plan'
        WHEN t.started_at < e.registered_at THEN 'exploratory: its first run took place before its plan'
        WHEN t.undated > 0 THEN concat('exploratory: the source of ', t.undated, ' of its runs does not say when they took place')
        ELSE 'registered before the data'
    END AS standing,
    coalesce(e.unit, 'run') AS unit, e.cluster, coalesce(e.alpha, 0.05) AS alpha,
    coalesce(e.stop, 'fixed') AS stop, e.planned, e.trials, coalesce(e.missing, 'failure') AS missing,
    e.question, CASE WHEN e.experiment IS NOT NULL THEN m.metric WHEN p.scored IS NULL THEN 'completion'
        WHEN p.scored = 1 THEN p.metric END AS primary_metric,
    coalesce(t.runs, 0) AS runs, e.registered_position, e.registered_at, t.first_position
FROM experiments AS e
FULL JOIN trials AS t ON t.experiment = e.experiment
LEFT JOIN metrics AS m ON m.experiment = e.experiment AND m.number = 1
LEFT JOIN scored AS p ON p.experiment = t.experiment;
COMMENT ON VIEW experiment_plans IS 'One row per experiment, registered or found in runs.';

CREATE VIEW experiment_arms AS
SELECT
    r.experiment, r.arm,
    coalesce(row_number() OVER (PARTITION BY r.experiment ORDER BY a.number NULLS LAST, r.first_position, r.arm), 1) AS number,
    a.weight, a.prompt, a.model, a.parameters
FROM (
    SELECT b.experiment, b.arm, min(b.first_position) AS first_position
    FROM (
        SELECT t.experiment, t.arm, t.first_position FROM assigned_runs AS t
        UNION ALL
        SELECT p.experiment, p.arm, NULL FROM arms AS p
    ) AS b
    GROUP BY b.experiment, b.arm
) AS r
LEFT JOIN arms AS a ON a.experiment = r.experiment AND a.arm = r.arm;
COMMENT ON VIEW experiment_arms IS 'One row per arm, planned or found in runs.';

CREATE MACRO better_of(metric) AS (
    SELECT any_value(c.better)
    FROM (SELECT m.metric AS listed, m.better FROM metric_catalogue AS m) AS c
    WHERE c.listed = metric);
COMMENT ON MACRO better_of IS 'Better direction of a metric by `metric_catalogue`; NULL if unknown.';

CREATE MACRO direction_of(directions, name) AS
    json_extract_string(directions, '/' || replace(replace(name, '~', '~0'), '/', '~1'));
COMMENT ON MACRO direction_of IS 'Helper of other macros.';

CREATE MACRO odd_times_of(the_experiment, with_claims) AS TABLE
WITH claimed AS MATERIALIZED (
    SELECT
        r.experiment, r.arm, e.run, e.happened_at AS claimed_at, e.logged_at, e.position, e.event_index,
        date_diff('microsecond', lag(e.happened_at) OVER (PARTITION BY e.run ORDER BY e.happened_at), e.happened_at) AS gap
    FROM events AS e
    JOIN assigned_runs AS r ON r.run = e.run AND (the_experiment IS NULL OR r.experiment = the_experiment)
    JOIN (SELECT true AS claims WHERE with_claims) AS w ON w.claims = if(e.occurred_at IS NOT NULL, true, NULL)
), per_run AS (
    SELECT experiment, arm, run, date_diff('microsecond', min(claimed_at), max(claimed_at)) AS took, min(position) AS position,
        arg_min(event_index, position) AS event_index,
        arg_max(claimed_at, {'p': position, 'i': event_index}) < arg_min(claimed_at, {'p': position, 'i': event_index}) AS backward
    FROM claimed
    GROUP BY experiment, arm, run
), per_arm AS (
    SELECT
        experiment, arm, count(*) AS times, count(DISTINCT run) AS runs, count(DISTINCT claimed_at) AS different, min(claimed_at) AS first,
        count(*) FILTER (epoch_us(claimed_at) % 10000000 <> 0) AS odd, count(*) FILTER (claimed_at > logged_at + INTERVAL 14 HOUR) AS future, max(claimed_at) AS last,
        count(*) FILTER (gap > 0) AS gaps, count(DISTINCT gap) FILTER (gap > 0) AS different_gaps, max(gap) AS gap,
        arg_min(run, position) AS run, min(position) AS position, arg_min(event_index, position) AS event_index,
        arg_max(run, claimed_at) AS last_run, arg_max(position, claimed_at) AS last_position, arg_max(event_index, claimed_at) AS last_index
    FROM claimed
    GROUP BY experiment, arm
), found AS (
    SELECT 'all equal' AS kind, *, concat('all ', times, ' times of the ', runs, ' runs of arm ', arm, ' are ', moment_of(first)) AS fact
    FROM per_arm WHERE runs >= 5 AND different = 1
    UNION ALL
    SELECT 'all round', *, concat('all ', times, ' times of arm ', arm, ' are whole tens of seconds')
    FROM per_arm WHERE different >= 20 AND odd = 0
    UNION ALL
    SELECT 'in the future', * REPLACE (last_run AS run, last_position AS position, last_index AS event_index),
        concat(future, ' of the ', times, ' times of arm ', arm, ' are after they were recorded, up to ', moment_of(last))
    FROM per_arm WHERE future > 0
    UNION ALL
    SELECT 'constant steps', *, concat('each of the ', gaps, ' steps in time of arm ', arm, ' is ', gap / 1e6, ' s')
    FROM per_arm WHERE gaps >= 20 AND runs >= 2 AND different_gaps = 1
    UNION ALL
    SELECT 'ends before it starts', a.* REPLACE (b.run AS run, b.position AS position, b.event_index AS event_index),
        concat(b.runs, ' of the ', a.runs, ' runs of arm ', a.arm, ' with times end before they begin')
    FROM per_arm AS a
    JOIN (
        SELECT experiment, arm, count(*) AS runs, arg_min(run, position) AS run, min(position) AS position, arg_min(event_index, position) AS event_index
        FROM per_run
        WHERE backward
        GROUP BY experiment, arm
    ) AS b ON b.experiment = a.experiment AND b.arm = a.arm
    UNION ALL
    SELECT 'constant durations', a.*, concat('each of the ', d.runs, ' runs of arm ', a.arm, ' takes ', d.took / 1e6, ' s')
    FROM per_arm AS a
    JOIN (
        SELECT experiment, arm, max(took) AS took, count(*) AS runs FROM per_run WHERE took > 0 GROUP BY experiment, arm
        HAVING count(*) >= 5 AND count(DISTINCT took) = 1 AND max(took) >= 5000000
    ) AS d ON d.experiment = a.experiment AND d.arm = a.arm
)
SELECT
    f.kind, f.run, NULL::VARCHAR AS agent, NULL::BIGINT AS step, address_of(f.position, f.event_index) AS address, f.fact, f.experiment,
    [{'run': f.run, 'address': address_of(f.position, f.event_index)}] AS evidence
FROM found AS f;
COMMENT ON MACRO TABLE odd_times_of IS 'Helper of `odd_times`.';

CREATE VIEW odd_times AS FROM odd_times_of(NULL, true);
COMMENT ON VIEW odd_times IS 'One row per arm whose claimed times are impossible: do not compare latency.';

CREATE MACRO scale_of(least, greatest, above_one, above_zero) AS CASE
    WHEN least >= 0 AND greatest > 0 AND greatest <= 1 THEN 'share'
    WHEN least >= 0 AND greatest BETWEEN 20 AND 100 AND above_one * 2 >= above_zero THEN 'percentage' END;
COMMENT ON MACRO scale_of IS 'Helper of other macros.';

CREATE MACRO counted_value(counting, value, ended, pending, worst, extreme) AS CASE counting
    WHEN 'failure' THEN coalesce(value, if(pending, NULL, worst))
    WHEN 'worst-case' THEN coalesce(if(ended, value, NULL), extreme)
    ELSE if(ended, value, NULL) END;
COMMENT ON MACRO counted_value IS 'Value of a trial. failure: the score, else worst (left out if NULL or open); excluded: the score of a completed run; worst-case: extreme for runs not completed.';

CREATE MACRO known_metrics(the_experiment) AS TABLE
SELECT m.metric FROM metrics AS m WHERE m.experiment = the_experiment
UNION
SELECT o.metric FROM outcomes AS o JOIN assigned_runs AS r ON r.run = o.run WHERE r.experiment = the_experiment
UNION
SELECT unnest(['completion', 'success', 'cost', 'tokens', 'input_tokens', 'output_tokens', 'latency_ms', 'tool_error_rate']);
COMMENT ON MACRO TABLE known_metrics IS 'Helper of other macros: the metrics that a plan names, that runs have, or that need no score.';

CREATE MACRO known_question(the_experiment, only_metric) AS CASE
    WHEN NOT EXISTS (SELECT 1 FROM assigned_runs AS r WHERE r.experiment = the_experiment UNION ALL SELECT 1 FROM experiments AS e WHERE e.experiment = the_experiment)
        THEN error(concat('there is no experiment ''', the_experiment, ''': known are ', coalesce((
            SELECT string_agg(k.experiment, ', ' ORDER BY k.experiment)
            FROM (SELECT r.experiment FROM assigned_runs AS r UNION SELECT e.experiment FROM experiments AS e) AS k), 'none')))
    WHEN NOT EXISTS (SELECT 1 FROM known_metrics(the_experiment) AS m WHERE m.metric = coalesce(only_metric, m.metric))
        THEN error(concat('there is no metric ''', only_metric, ''': known are ', (
            SELECT string_agg(m.metric, ', ' ORDER BY m.metric) FROM known_metrics(the_experiment) AS m)))
    ELSE true END;
COMMENT ON MACRO known_question IS 'Helper of other macros: true, or an error that names the known experiments or metrics.';

CREATE MACRO trial_scores(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL) AS TABLE
WITH plan AS (
    SELECT e.cluster, coalesce(counted_as, e.missing, 'failure') AS missing,
        coalesce(e.unit, 'run') AS unit, e.experiment IS NOT NULL AS registered,
        known_question(the_experiment, only_metric) AS known
    FROM (SELECT 1) LEFT JOIN experiments AS e ON e.experiment = the_experiment
), mine AS MATERIALIZED (
    SELECT
        r.arm, r.task, r.trial, r.run, r.status, r.labels, r.first_position, r.started_at,
        r.ended_at, p.missing, p.unit,
        if(p.cluster IS NULL, r.task, coalesce(label_of(r.labels, p.cluster), '(none) ' || r.task)) AS cluster
    FROM assigned_runs AS r
    CROSS JOIN plan AS p
    WHERE r.experiment = the_experiment AND p.known
), scored AS MATERIALIZED (
    SELECT DISTINCT o.metric FROM outcomes AS o SEMI JOIN mine AS m ON m.run = o.run
), requested AS MATERIALIZED (
    SELECT m.metric, coalesce(m.better, direction_of(directions, m.metric), k.better) AS better,
        m.smallest, m.number, true AS named,
        CASE WHEN m.better IS NOT NULL THEN 'its plan'
            WHEN direction_of(directions, m.metric) IS NOT NULL THEN 'who asks'
            WHEN k.better IS NOT NULL THEN 'the catalogue' END AS stated_by
    FROM metrics AS m
    LEFT JOIN metric_catalogue AS k ON k.metric = m.metric
    WHERE m.experiment = the_experiment AND only_metric IS NULL AND each IS NULL
    UNION ALL
    -- Without a plan: every scored metric, whatever its name; if there is none, completion of runs.
    SELECT d.metric, coalesce(m.better, direction_of(directions, d.metric), k.better),
        m.smallest, 1, d.alone,
        CASE WHEN m.better IS NOT NULL THEN 'its plan'
            WHEN direction_of(directions, d.metric) IS NOT NULL THEN 'who asks'
            WHEN k.better IS NOT NULL THEN 'the catalogue' END
    FROM (
        SELECT only_metric::VARCHAR AS metric, true AS alone WHERE only_metric IS NOT NULL
        UNION ALL
        SELECT unnest(each::VARCHAR[]), true WHERE only_metric IS NULL AND each IS NOT NULL
        UNION ALL
        SELECT s.metric, (SELECT count(*) FROM scored) = 1
        FROM scored AS s
        CROSS JOIN plan AS p
        WHERE only_metric IS NULL AND each IS NULL AND NOT p.registered
        UNION ALL
        SELECT 'completion', true
        FROM plan AS p
        WHERE only_metric IS NULL AND each IS NULL AND NOT p.registered AND (SELECT count(*) FROM scored) = 0
    ) AS d
    LEFT JOIN metrics AS m ON m.experiment = the_experiment AND m.metric = d.metric
    LEFT JOIN metric_catalogue AS k ON k.metric = d.metric
), judged AS MATERIALIZED (
    SELECT o.run, o.metric, arg_max(o.value, o.version) AS value
    FROM outcomes AS o
    SEMI JOIN requested AS a ON a.metric = o.metric
    SEMI JOIN mine AS m ON m.run = o.run
    GROUP BY o.run, o.metric
), unjudged AS MATERIALIZED (
    SELECT a.metric FROM requested AS a ANTI JOIN judged AS j ON j.metric = a.metric
), found AS MATERIALIZED (
    SELECT j.run, j.metric, if(isfinite(j.value), j.value, NULL) AS value FROM judged AS j
    UNION ALL
    SELECT u.run, w.metric, fsum(u.amount ORDER BY u.amount)
    FROM usage_by_actor AS u
    JOIN (
        SELECT n.metric, v.used
        FROM unjudged AS n
        JOIN (VALUES ('cost', 'cost'), ('input_tokens', 'input_tokens'),
            ('output_tokens', 'output_tokens'), ('tokens', 'input_tokens'),
            ('tokens', 'output_tokens')) AS v(metric, used) ON v.metric = n.metric
    ) AS w ON w.used = u.metric
    SEMI JOIN mine AS m ON m.run = u.run
    WHERE u.actor = 'agent'
    GROUP BY u.run, w.metric
    UNION ALL
    SELECT s.run, n.metric, count(*) FILTER (s.status IN ('failed', 'blocked', 'in_doubt', 'not_done')) / count(*)
    FROM steps AS s
    JOIN unjudged AS n ON n.metric = if(s.kind = 'tool' AND NOT s.inherited, 'tool_error_rate', NULL)
    GROUP BY s.run, n.metric
    UNION ALL
    SELECT m.run, n.metric, if((m.labels->>'source') IS NULL,
        date_diff('microsecond', m.started_at, m.ended_at) / 1000.0, t.ms)
    FROM mine AS m
    JOIN unjudged AS n ON n.metric = 'latency_ms'
    LEFT JOIN (
        SELECT e.run, date_diff('microsecond', min(e.happened_at), max(e.happened_at)) / 1000.0 AS ms
        FROM events AS e
        JOIN unjudged AS n ON n.metric = if(e.occurred_at IS NOT NULL, 'latency_ms', NULL)
        GROUP BY e.run
    ) AS t ON t.run = m.run
    UNION ALL
    SELECT m.run, n.metric, success_of(NULL, m.status)
    FROM mine AS m
    JOIN unjudged AS n ON n.metric = 'completion'
    UNION ALL
    SELECT m.run, n.metric, success_of(g.grade, if((SELECT count(*) FROM scored) = 0, m.status, NULL))
    FROM mine AS m
    JOIN unjudged AS n ON n.metric = 'success'
    LEFT JOIN (
        SELECT o.run, arg_max(o.value, {'rank': -list_position(graders(), o.metric), 'version': o.version}) AS grade
        FROM outcomes AS o
        JOIN unjudged AS n ON n.metric = if(list_contains(graders(), o.metric), 'success', NULL)
        GROUP BY o.run
    ) AS g ON g.run = m.run
), valued AS MATERIALIZED (
    SELECT m.arm, f.metric, f.run, f.value FROM found AS f JOIN mine AS m ON m.run = f.run
), extremes AS MATERIALIZED (
    SELECT v.metric, min(v.value) AS least, max(v.value) AS greatest, bool_and(v.value IN (0, 1)) AS "binary",
        power_of(max(abs(v.value))) AS power
    FROM valued AS v
    GROUP BY v.metric
), scales AS MATERIALIZED (
    SELECT v.arm, v.metric, scale_of(min(v.value), max(v.value), count(*) FILTER (v.value > 1), count(*) FILTER (v.value > 0)) AS scale
    FROM valued AS v
    WHERE v.value IS NOT NULL
    GROUP BY v.arm, v.metric
), impossible AS MATERIALIZED (
    SELECT v.metric, concat(count(*) FILTER (v.value < k.least), ' of ', count(*), ' values are below ', k.least) AS fact
    FROM valued AS v
    JOIN metric_catalogue AS k ON k.metric = v.metric
    GROUP BY v.metric, k.least
    HAVING min(v.value) < k.least
    UNION ALL
    SELECT n.metric, min(o.fact)
    FROM odd_times_of(the_experiment, coalesce(only_metric = 'latency_ms', list_contains(each, 'latency_ms'),
        EXISTS (SELECT 1 FROM metrics AS p WHERE p.experiment = the_experiment AND p.metric = 'latency_ms'))) AS o
    JOIN unjudged AS n ON n.metric = 'latency_ms'
    GROUP BY n.metric
), sliced AS (
    SELECT '' AS slice, m.* FROM mine AS m
    UNION ALL
    SELECT coalesce(nullif(label_of(m.labels, by_label), ''), '(none)'), m.*
    FROM mine AS m
    WHERE by_label IS NOT NULL
)
SELECT
    s.slice, a.metric, a.number, a.better, a.smallest, s.arm, s.task, s.cluster, s.trial, s.run,
    s.status, s.unit, s.first_position, s.missing, a.named, a.stated_by, f.value,
    s.status IS NOT DISTINCT FROM 'completed' OR a.metric = 'completion' AS ended,
    s.status IS NOT DISTINCT FROM 'open' AND f.value IS NULL AS pending,
    if(a.better = 'higher', least(0.0, x.least), NULL) AS worst,
    CASE a.better WHEN 'higher' THEN least(0.0, x.least) WHEN 'lower' THEN if(x."binary", 1.0, x.greatest) END AS worst_case,
    CASE a.better WHEN 'higher' THEN if(x."binary", 1.0, x.greatest) WHEN 'lower' THEN if(x."binary", 0.0, x.least) END AS best_case,
    coalesce(x.power, 1.0) AS power, c.scale, i.fact AS impossible
FROM sliced AS s
CROSS JOIN requested AS a
LEFT JOIN found AS f ON f.run = s.run AND f.metric = a.metric
LEFT JOIN extremes AS x ON x.metric = a.metric
LEFT JOIN scales AS c ON c.metric = a.metric AND c.arm = s.arm
LEFT JOIN (SELECT metric, min(fact) AS fact FROM impossible GROUP BY metric) AS i ON i.metric = a.metric;
COMMENT ON MACRO TABLE trial_scores IS 'One row per trial, metric and slice (empty: all; (none): runs without the label). A metric is what was judged (newest finite value), or completion, success, cost, tokens, input_tokens, output_tokens, latency_ms or tool_error_rate of `trial_runs`. Default: the plan''s metrics, else each scored metric or completion; `each` lists others. named: chosen by a plan, only_metric or being alone. directions: JSON {metric: higher or lower}; better is NULL if nobody states it. pending: open without a value. worst: value of a missing one, 0 or a lower least value; NULL (left out) if less is better or no direction is stated. worst_case, best_case: bounds. power: power of two that scales sums. scale: share or percentage. impossible: why values cannot be.';

CREATE MACRO task_totals(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL) AS TABLE
SELECT
    s.slice, s.metric, s.arm, s.task, any_value(s.number) AS number, any_value(s.better) AS better,
    any_value(s.smallest) AS smallest, min(s.cluster) AS cluster, any_value(s.unit) AS unit,
    any_value(s.missing) AS missing, any_value(s.named) AS named, any_value(s.stated_by) AS stated_by, any_value(s.worst) AS worst,
    any_value(s.worst_case) AS worst_case, any_value(s.best_case) AS best_case, count(*) AS trials, count(*) FILTER (s.pending) AS pending, count(*) FILTER (s.status IS NOT DISTINCT FROM 'open') AS open,
    count(s.value) AS valued, count(s.value) FILTER (s.ended) AS ended_valued,
    count(*) FILTER (NOT s.ended) AS unended, count(*) FILTER (NOT s.ended AND s.value IS NOT NULL) AS unended_valued,
    count(*) FILTER (s.ended AND s.value = 1) AS ended_successes,
    count(*) FILTER (s.value = 1) AS successes,
    bool_and(s.value IS NULL OR s.value IN (0, 1)) AS "binary",
    any_value(s.power) AS power, any_value(s.scale) AS scale, any_value(s.impossible) AS impossible,
    coalesce(fsum(s.value / s.power ORDER BY s.value), 0) AS total,
    coalesce(fsum(s.value / s.power ORDER BY s.value) FILTER (s.ended), 0) AS ended_total,
    min(s.first_position) AS first_position, list(s.run ORDER BY s.trial, s.run) AS runs
FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as, each := each) AS s
GROUP BY s.slice, s.metric, s.arm, s.task;
COMMENT ON MACRO TABLE task_totals IS 'Helper of `task_scores`: one row per task of an arm, with sums of values.';

CREATE MACRO score_of(counting, total, trials, valued, worst) AS if(counting = 'failure' AND worst IS NOT NULL,
    (total + worst * (trials - valued)) / nullif(trials, 0), total / nullif(valued, 0));
COMMENT ON MACRO score_of IS 'Helper of other macros.';

CREATE MACRO mean_of(counting, total, trials, valued, worst, ended_total, ended_valued) AS if(counting = 'excluded',
    ended_total / nullif(ended_valued, 0), score_of(counting, total, trials, valued, worst));
COMMENT ON MACRO mean_of IS 'Helper of other macros.';

CREATE MACRO worst_case_of(ended_total, trials, ended_valued, extreme) AS
    if(extreme IS NULL OR trials = ended_valued, ended_total / nullif(ended_valued, 0),
        (ended_total + (trials - ended_valued) * extreme) / nullif(trials, 0));
COMMENT ON MACRO worst_case_of IS 'Helper of other macros.';

CREATE MACRO task_scores(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
SELECT
    t.slice, t.metric, t.number, t.better, t.smallest, t.arm, t.task, t.cluster, t.unit, t.missing,
    t.worst, c.counting, t.trials, t.valued, t.successes, t."binary",
    t.power * mean_of(c.counting, t.total, t.trials - t.pending, t.valued, t.worst / t.power, t.ended_total, t.ended_valued) AS score, t.first_position, t.runs
FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS t
CROSS JOIN (VALUES ('failure'), ('excluded')) AS c(counting);
COMMENT ON MACRO TABLE task_scores IS 'One row per task of an arm, and counting of missing values; score is the mean over its trials.';
