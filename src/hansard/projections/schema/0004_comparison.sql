-- Arms of an experiment, compared by task. Every number of a report is made here.

CREATE VIEW assigned_runs AS
SELECT
    r.experiment, coalesce(r.arm, '') AS arm, coalesce(r.task, r.run) AS task, r.trial, r.run,
    r.status, r.labels, r.first_position, r.started_at, r.ended_at
FROM runs AS r
WHERE r.experiment <> ''
    AND (r.parent IS NULL OR r.run IN (SELECT a.run FROM assignments AS a));
COMMENT ON VIEW assigned_runs IS 'One row a trial: a run that is assigned to an experiment. A fork counts only where it was assigned itself.';
COMMENT ON COLUMN assigned_runs.experiment IS 'The experiment.';
COMMENT ON COLUMN assigned_runs.arm IS 'The arm; empty where none is named.';
COMMENT ON COLUMN assigned_runs.task IS 'The task; the run''s id where none is named.';
COMMENT ON COLUMN assigned_runs.trial IS 'Which trial of the task, as the source counts.';
COMMENT ON COLUMN assigned_runs.run IS 'Id of the run.';
COMMENT ON COLUMN assigned_runs.status IS 'open, completed, failed or cancelled.';
COMMENT ON COLUMN assigned_runs.labels IS 'Labels of the run.';
COMMENT ON COLUMN assigned_runs.first_position IS 'Position of its first commit.';
COMMENT ON COLUMN assigned_runs.started_at IS 'When its first event happened.';
COMMENT ON COLUMN assigned_runs.ended_at IS 'When it ended last; NULL while it is open.';

CREATE VIEW trial_runs AS
WITH spent AS (
    SELECT
        u.run,
        fsum(u.amount ORDER BY u.position, u.version) FILTER (u.metric = 'cost') AS cost,
        fsum(u.amount ORDER BY u.position, u.version) FILTER (u.metric = 'input_tokens') AS input_tokens,
        fsum(u.amount ORDER BY u.position, u.version) FILTER (u.metric = 'output_tokens') AS output_tokens
    FROM usage AS u
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
    SELECT
        o.run,
        arg_max(o.value, o.version) FILTER (o.metric = 'success') AS success,
        arg_max(o.value, o.version) FILTER (o.metric = 'reward') AS reward,
        arg_max(o.value, o.version) FILTER (o.metric = 'resolved') AS resolved,
        arg_max(o.value, o.version) FILTER (o.metric = 'passed') AS passed,
        arg_max(o.value, o.version) FILTER (o.metric = 'correct') AS correct,
        arg_max(o.value, o.version) FILTER (o.metric = 'score') AS score
    FROM outcomes AS o
    WHERE o.metric IN ('success', 'reward', 'resolved', 'passed', 'correct', 'score')
    GROUP BY o.run
), timed AS (
    SELECT e.run, date_diff('microsecond', min(e.happened_at), max(e.happened_at)) / 1000.0 AS ms
    FROM events AS e
    WHERE e.occurred_at IS NOT NULL
    GROUP BY e.run
)
SELECT
    r.experiment, r.arm, r.task, r.trial, r.run, r.status, r.labels, r.first_position, r.started_at,
    CASE
        WHEN coalesce(j.success, j.reward, j.resolved, j.passed, j.correct, j.score) IS NOT NULL
            THEN if(coalesce(j.success, j.reward, j.resolved, j.passed, j.correct, j.score) >= 1, 1.0, 0.0)
        WHEN r.status = 'completed' THEN 1.0
        WHEN r.status IN ('failed', 'cancelled') THEN 0.0
    END AS success,
    s.cost, s.input_tokens, s.output_tokens,
    coalesce(s.input_tokens + s.output_tokens, s.input_tokens, s.output_tokens) AS tokens,
    if(r.labels->>'source' IS NULL, date_diff('microsecond', r.started_at, r.ended_at) / 1000.0, t.ms) AS latency_ms,
    coalesce(c.calls, 0) AS calls, coalesce(c.tool_errors, 0) AS tool_errors
FROM assigned_runs AS r
LEFT JOIN spent AS s ON s.run = r.run
LEFT JOIN called AS c ON c.run = r.run
LEFT JOIN judged AS j ON j.run = r.run
LEFT JOIN timed AS t ON t.run = r.run;
COMMENT ON VIEW trial_runs IS 'One row a trial, with what it came to and what it used up.';
COMMENT ON COLUMN trial_runs.experiment IS 'The experiment.';
COMMENT ON COLUMN trial_runs.arm IS 'The arm; empty where none is named.';
COMMENT ON COLUMN trial_runs.task IS 'The task; the run''s id where none is named.';
COMMENT ON COLUMN trial_runs.trial IS 'Which trial of the task, as the source counts.';
COMMENT ON COLUMN trial_runs.run IS 'Id of the run.';
COMMENT ON COLUMN trial_runs.status IS 'open, completed, failed or cancelled.';
COMMENT ON COLUMN trial_runs.labels IS 'Labels of the run.';
COMMENT ON COLUMN trial_runs.first_position IS 'Position of its first commit.';
COMMENT ON COLUMN trial_runs.started_at IS 'When its first event happened.';
COMMENT ON COLUMN trial_runs.success IS '1 where the newest value of the first metric judged of success, reward, resolved, passed, correct, score is at least 1, else 0; without any, 1 of a completed run, 0 of a failed or cancelled one, NULL of an open one.';
COMMENT ON COLUMN trial_runs.cost IS 'Sum of its recorded cost, in US dollars.';
COMMENT ON COLUMN trial_runs.input_tokens IS 'Sum of its input tokens as recorded.';
COMMENT ON COLUMN trial_runs.output_tokens IS 'Sum of its output tokens as recorded.';
COMMENT ON COLUMN trial_runs.tokens IS 'Both.';
COMMENT ON COLUMN trial_runs.latency_ms IS 'From its begin to its end, in ms; of an imported run, from the first event to the last of which its source says when it was.';
COMMENT ON COLUMN trial_runs.calls IS 'How many calls of tools it made.';
COMMENT ON COLUMN trial_runs.tool_errors IS 'How many of those failed, were blocked or are in doubt.';

CREATE VIEW experiment_plans AS
WITH trials AS (
    SELECT r.experiment, min(r.first_position) AS first_position, min(r.started_at) AS started_at, count(*) AS runs
    FROM assigned_runs AS r
    GROUP BY r.experiment
), primaries AS (
    SELECT r.experiment, arg_min(o.metric, list_position(
        ['reward', 'success', 'resolved', 'passed', 'correct', 'score'], o.metric)) AS metric
    FROM outcomes AS o
    JOIN runs AS r ON r.run = o.run
    WHERE o.metric IN ('reward', 'success', 'resolved', 'passed', 'correct', 'score')
    GROUP BY r.experiment
)
SELECT
    coalesce(e.experiment, t.experiment) AS experiment, e.experiment IS NOT NULL AS registered,
    CASE
        WHEN e.experiment IS NULL THEN 'exploratory: no plan is registered'
        WHEN e.exploratory THEN 'exploratory: as its plan says'
        WHEN t.first_position < e.registered_position THEN 'exploratory: its first run was recorded before its plan'
        WHEN t.started_at < e.registered_at THEN 'exploratory: its first run took place before its plan'
        ELSE 'registered before the data'
    END AS standing,
    coalesce(e.unit, 'run') AS unit, e.cluster, coalesce(e.alpha, 0.05) AS alpha,
    coalesce(e.stop, 'fixed') AS stop, e.planned, e.trials, coalesce(e.missing, 'failure') AS missing,
    e.question, coalesce(m.metric, p.metric, 'success') AS primary_metric,
    coalesce(t.runs, 0) AS runs, e.registered_position, e.registered_at, t.first_position
FROM experiments AS e
FULL JOIN trials AS t ON t.experiment = e.experiment
LEFT JOIN metrics AS m ON m.experiment = e.experiment AND m.number = 1
LEFT JOIN primaries AS p ON p.experiment = t.experiment;
COMMENT ON VIEW experiment_plans IS 'One row an experiment, registered or met in runs: how it is judged.';
COMMENT ON COLUMN experiment_plans.experiment IS 'The experiment.';
COMMENT ON COLUMN experiment_plans.registered IS 'Whether a plan is registered.';
COMMENT ON COLUMN experiment_plans.standing IS 'registered before the data, or exploratory and why.';
COMMENT ON COLUMN experiment_plans.unit IS 'What one arm is given to: where it is the task, no task is in two arms and arms are not paired.';
COMMENT ON COLUMN experiment_plans.cluster IS 'The label of runs by which tasks hang together.';
COMMENT ON COLUMN experiment_plans.alpha IS 'The accepted chance of a false alarm; 0.05 without a plan.';
COMMENT ON COLUMN experiment_plans.stop IS 'fixed or sequential.';
COMMENT ON COLUMN experiment_plans.planned IS 'How many tasks are to be had.';
COMMENT ON COLUMN experiment_plans.trials IS 'How often each task is tried under each arm.';
COMMENT ON COLUMN experiment_plans.missing IS 'What a trial without a value counts as: failure or excluded.';
COMMENT ON COLUMN experiment_plans.question IS 'What it is to find out.';
COMMENT ON COLUMN experiment_plans.primary_metric IS 'What decides: the plan''s first metric, else the first judged of reward, success, resolved, passed, correct, score.';
COMMENT ON COLUMN experiment_plans.runs IS 'How many trials there are.';
COMMENT ON COLUMN experiment_plans.registered_position IS 'Position of the registration.';
COMMENT ON COLUMN experiment_plans.registered_at IS 'When it was registered.';
COMMENT ON COLUMN experiment_plans.first_position IS 'Position of the first trial''s first commit.';

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
COMMENT ON VIEW experiment_arms IS 'One row an arm, planned or met in runs.';
COMMENT ON COLUMN experiment_arms.experiment IS 'The experiment.';
COMMENT ON COLUMN experiment_arms.arm IS 'The arm.';
COMMENT ON COLUMN experiment_arms.number IS 'Place: as planned, then as first met. The first is the baseline.';
COMMENT ON COLUMN experiment_arms.weight IS 'Its planned share of units.';
COMMENT ON COLUMN experiment_arms.prompt IS 'The version of the prompt.';
COMMENT ON COLUMN experiment_arms.model IS 'The model.';
COMMENT ON COLUMN experiment_arms.parameters IS 'Parameters, as stated.';

CREATE MACRO better_of(metric) AS if(regexp_matches(metric,
    '(^|_)(cost|tokens|latency|duration|errors?|ms|seconds|steps|turns|regret|loss)(_|$)'), 'lower', 'higher');
COMMENT ON MACRO better_of IS 'Which direction of a metric is the good one where no plan says: lower for names of cost, tokens, latency, duration, errors, steps, turns, loss; else higher.';

CREATE MACRO trial_scores(the_experiment, only_metric := NULL, by_label := NULL) AS TABLE
WITH plan AS (
    SELECT p.* FROM experiment_plans AS p WHERE p.experiment = the_experiment
), asked AS (
    SELECT m.metric, m.better, m.smallest, m.number
    FROM metrics AS m
    WHERE m.experiment = the_experiment AND only_metric IS NULL
    UNION ALL
    SELECT
        coalesce(only_metric, p.primary_metric),
        coalesce(m.better, better_of(coalesce(only_metric, p.primary_metric))), m.smallest, 1
    FROM plan AS p
    LEFT JOIN metrics AS m ON m.experiment = p.experiment AND m.metric = only_metric
    WHERE only_metric IS NOT NULL OR NOT p.registered
), mine AS (
    SELECT
        r.*,
        if(p.cluster IS NULL, r.task, coalesce(json_extract_string(r.labels, '$."' || p.cluster || '"'), r.task)) AS cluster,
        p.missing, p.unit
    FROM trial_runs AS r
    JOIN plan AS p ON p.experiment = r.experiment
), sliced AS (
    SELECT '' AS slice, m.* FROM mine AS m
    UNION ALL
    SELECT coalesce(json_extract_string(m.labels, '$."' || by_label || '"'), '(none)'), m.*
    FROM mine AS m
    WHERE by_label IS NOT NULL
), judged AS (
    SELECT o.run, o.metric, arg_max(o.value, o.version) AS value
    FROM outcomes AS o
    SEMI JOIN asked AS a ON a.metric = o.metric
    SEMI JOIN mine AS m ON m.run = o.run
    GROUP BY o.run, o.metric
), by_judges AS (
    SELECT DISTINCT j.metric FROM judged AS j
), valued AS (
    SELECT
        s.slice, s.arm, s.task, s.trial, s.run, s.status, s.cluster, s.unit, s.first_position,
        s.missing, a.metric, a.better, a.smallest, a.number,
        CASE
            WHEN b.metric IS NOT NULL THEN j.value
            WHEN a.metric = 'success' THEN s.success
            WHEN a.metric = 'cost' THEN s.cost
            WHEN a.metric = 'tokens' THEN s.tokens
            WHEN a.metric = 'input_tokens' THEN s.input_tokens
            WHEN a.metric = 'output_tokens' THEN s.output_tokens
            WHEN a.metric = 'latency_ms' THEN s.latency_ms
            WHEN a.metric = 'tool_error_rate' THEN s.tool_errors::DOUBLE / nullif(s.calls, 0)
        END AS value
    FROM sliced AS s
    CROSS JOIN asked AS a
    LEFT JOIN by_judges AS b ON b.metric = a.metric
    LEFT JOIN judged AS j ON j.run = s.run AND j.metric = a.metric
)
SELECT
    v.slice, v.metric, v.number, v.better, v.smallest, v.arm, v.task, v.cluster, v.trial, v.run,
    v.status, v.unit, v.first_position, v.missing, v.value,
    if(v.better = 'higher', least(0.0, min(v.value) OVER (PARTITION BY v.metric)), NULL) AS worst
FROM valued AS v;
COMMENT ON MACRO TABLE trial_scores IS 'A metric is what was judged (newest value), or where no judge uses the name success, cost, tokens, input_tokens, output_tokens, latency_ms or tool_error_rate of trial_runs. One row a trial, metric and slice (empty: all of them). worst is what a missing value counts as: 0, or the least value where that is below; NULL of a metric of which less is better, since a missing cost is no cost: such a trial is left out and counted.';

CREATE MACRO task_scores(the_experiment, only_metric := NULL, by_label := NULL) AS TABLE
SELECT
    s.slice, s.metric, any_value(s.number) AS number, any_value(s.better) AS better,
    any_value(s.smallest) AS smallest, s.arm, s.task, min(s.cluster) AS cluster,
    any_value(s.unit) AS unit, any_value(s.missing) AS missing, any_value(s.worst) AS worst,
    c.counting, count(*) AS trials, count(s.value) AS valued,
    count(*) FILTER (s.value = 1) AS successes,
    bool_and(s.value IS NULL OR s.value IN (0, 1)) AS "binary",
    if(c.counting = 'failure',
        fsum(coalesce(s.value, s.worst) ORDER BY s.run) / count(coalesce(s.value, s.worst)),
        fsum(s.value ORDER BY s.run) / count(s.value)) AS score,
    min(s.first_position) AS first_position, list(s.run ORDER BY s.trial, s.run) AS runs
FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label) AS s
CROSS JOIN (VALUES ('failure'), ('excluded')) AS c(counting)
GROUP BY s.slice, s.metric, s.arm, s.task, c.counting;
COMMENT ON MACRO TABLE task_scores IS 'One row a task of an arm, and way of counting missing values (failure: as the worst one; excluded: not at all). score is the mean over its trials.';

CREATE MACRO task_pairs(the_experiment, only_metric := NULL, against := NULL, by_label := NULL) AS TABLE
WITH based AS (
    SELECT coalesce(against, a.arm) AS base
    FROM experiment_arms AS a
    WHERE a.experiment = the_experiment AND a.number = 1
), tasks AS (
    SELECT t.*, b.base
    FROM task_scores(the_experiment, only_metric := only_metric, by_label := by_label) AS t
    CROSS JOIN based AS b
), arms_met AS (
    SELECT DISTINCT slice, metric, counting, arm FROM tasks WHERE arm <> base
), wanted AS (
    SELECT DISTINCT m.slice, m.metric, m.counting, m.arm, t.task
    FROM arms_met AS m
    JOIN tasks AS t ON t.slice = m.slice AND t.metric = m.metric AND t.counting = m.counting
        AND t.arm IN (m.arm, t.base)
), met AS (
    SELECT
        w.slice, w.metric, w.counting, w.arm, coalesce(x.base, y.base) AS baseline, w.task,
        coalesce(y.number, x.number) AS number, coalesce(y.better, x.better) AS better,
        coalesce(y.smallest, x.smallest) AS smallest,
        coalesce(x.cluster, y.cluster) AS cluster, coalesce(y.unit, x.unit) = 'task' AS apart,
        coalesce(y.missing, x.missing) AS missing,
        x.score AS base_score, y.score AS arm_score, coalesce(x.worst, y.worst) AS worst,
        x.task IS NOT NULL AND y.task IS NOT NULL AS matched,
        coalesce(x.trials, 0) AS base_trials, coalesce(y.trials, 0) AS arm_trials,
        coalesce(x.valued, 0) AS base_valued, coalesce(y.valued, 0) AS arm_valued,
        coalesce(x."binary", true) AND coalesce(y."binary", true) AS "binary",
        least(coalesce(x.first_position, y.first_position), coalesce(y.first_position, x.first_position)) AS first_position,
        coalesce(x.runs, []) AS base_runs, coalesce(y.runs, []) AS arm_runs
    FROM wanted AS w
    LEFT JOIN tasks AS x ON x.slice = w.slice AND x.metric = w.metric AND x.counting = w.counting
        AND x.task = w.task AND x.arm = x.base
    LEFT JOIN tasks AS y ON y.slice = w.slice AND y.metric = w.metric AND y.counting = w.counting
        AND y.task = w.task AND y.arm = w.arm
), filled AS (
    SELECT
        m.* EXCLUDE (base_score, arm_score),
        if(m.counting = 'failure' AND NOT m.apart, coalesce(m.base_score, m.worst), m.base_score) AS base_score,
        if(m.counting = 'failure' AND NOT m.apart, coalesce(m.arm_score, m.worst), m.arm_score) AS arm_score
    FROM met AS m
)
SELECT f.*, f.arm_score - f.base_score AS difference
FROM filled AS f;
COMMENT ON MACRO TABLE task_pairs IS 'One row a task of an arm beside the baseline, and way of counting. Counted as failure, a task that one arm does not have has the worst score there; apart is true where the unit is the task, so that no task is in two arms.';

CREATE MACRO comparisons(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, at_alpha := NULL, at_power := 0.8) AS TABLE
WITH every AS (
    SELECT p.*
    FROM task_pairs(the_experiment, only_metric := only_metric, against := against, by_label := by_label) AS p
), pairs AS (
    SELECT p.*
    FROM every AS p
    WHERE if(p.apart, p.arm_score IS NOT NULL OR p.base_score IS NOT NULL, p.difference IS NOT NULL)
), means AS (
    SELECT
        slice, metric, counting, arm, any_value(baseline) AS baseline,
        count(arm_score) AS arm_tasks, count(base_score) AS base_tasks, count(*) AS tasks,
        fsum(arm_score ORDER BY task) / count(arm_score) AS arm_mean,
        fsum(base_score ORDER BY task) / count(base_score) AS base_mean,
        count(*) FILTER (difference > 0) AS above, count(*) FILTER (difference = 0) AS ties,
        count(*) FILTER (difference < 0) AS below
    FROM pairs
    GROUP BY slice, metric, counting, arm
), parts AS (
    SELECT
        p.slice, p.metric, p.counting, p.arm, p.cluster,
        fsum(coalesce((p.arm_score - m.arm_mean) / m.arm_tasks, 0)
            - coalesce((p.base_score - m.base_mean) / m.base_tasks, 0) ORDER BY p.task) AS part
    FROM pairs AS p
    JOIN means AS m USING (slice, metric, counting, arm)
    GROUP BY p.slice, p.metric, p.counting, p.arm, p.cluster
), errors AS (
    SELECT
        slice, metric, counting, arm, count(*) AS clusters,
        sqrt(fsum(part * part ORDER BY cluster) * count(*) / nullif(count(*) - 1, 0)) AS se
    FROM parts
    GROUP BY slice, metric, counting, arm
), facts AS (
    SELECT
        slice, metric, counting, arm, any_value(number) AS number, any_value(better) AS better,
        any_value(smallest) AS smallest, bool_or(apart) AS apart, bool_and("binary") AS "binary",
        any_value(missing) AS missing,
        fsum(base_trials ORDER BY task)::BIGINT AS base_trials,
        fsum(arm_trials ORDER BY task)::BIGINT AS arm_trials,
        fsum(base_trials - base_valued ORDER BY task)::BIGINT AS base_missing,
        fsum(arm_trials - arm_valued ORDER BY task)::BIGINT AS arm_missing,
        count(*) FILTER (NOT matched AND NOT apart) AS unmatched
    FROM every
    GROUP BY slice, metric, counting, arm
), settings AS (
    SELECT coalesce(at_alpha, p.alpha) AS alpha, p.stop, coalesce(p.planned, 100) AS planned
    FROM experiment_plans AS p
    WHERE p.experiment = the_experiment
), estimated AS (
    SELECT
        f.slice, f.metric, f.number, f.better, f.smallest, f.counting, f.missing, f.arm, m.baseline,
        if(f.apart, 'two samples', 'paired by task') AS design, f."binary",
        m.tasks, e.clusters, f.base_trials, f.arm_trials, f.base_missing, f.arm_missing, f.unmatched,
        m.base_mean, m.arm_mean, m.arm_mean - m.base_mean AS difference,
        if(abs(m.arm_mean - m.base_mean) > 0 AND e.se < 1e-12, NULL, e.se) AS se,
        e.clusters - if(f.apart, 2, 1) AS df,
        m.above, m.ties, m.below,
        if(f.apart, NULL, binomial_p(least(m.above, m.below), m.above + m.below)) AS sign_p,
        s.alpha, s.stop, always_valid_rho2(s.alpha, s.planned) AS rho2
    FROM facts AS f
    CROSS JOIN settings AS s
    LEFT JOIN means AS m USING (slice, metric, counting, arm)
    LEFT JOIN errors AS e USING (slice, metric, counting, arm)
), critical AS MATERIALIZED (
    SELECT d.df, d.alpha, t_quantile(1 - d.alpha / 2, d.df) AS t_alpha,
        t_quantile(at_power, d.df) AS t_power,
        t_quantile(0.975, d.df) / 1.959963984540054 AS widening,
        normal_quantile(1 - d.alpha / 2) + normal_quantile(at_power) AS z
    FROM (SELECT DISTINCT e.df, e.alpha FROM estimated AS e WHERE e.df > 0) AS d
), tested AS (
    SELECT
        e.*, c.t_alpha, c.t_power, c.z,
        CASE WHEN e.se > 0 THEN c.t_alpha * e.se END AS half,
        CASE
            WHEN e.df IS NULL OR e.df < 1 THEN NULL
            WHEN e.difference = 0 AND coalesce(e.se, 0) = 0 THEN 1.0
            WHEN e.se IS NULL THEN e.sign_p
            ELSE t_p(e.difference / e.se, e.df)
        END AS fixed_p,
        CASE WHEN e.se > 0 THEN always_valid_half(e.se * c.widening, e.tasks, e.alpha, e.rho2) END AS always_half,
        CASE
            WHEN e.df IS NULL OR e.df < 1 THEN NULL
            WHEN coalesce(e.se, 0) = 0 THEN 1.0
            ELSE always_valid_p(e.difference, e.se * c.widening, e.tasks, e.rho2)
        END AS always_p
    FROM estimated AS e
    LEFT JOIN critical AS c ON c.df = e.df AND c.alpha = e.alpha
), ranked AS (
    SELECT
        t.*, if(t.stop = 'sequential', t.always_p, t.fixed_p) AS p,
        row_number() OVER (PARTITION BY t.counting ORDER BY if(t.stop = 'sequential', t.always_p, t.fixed_p) NULLS LAST, t.slice, t.number, t.metric, t.arm) AS place,
        count(if(t.stop = 'sequential', t.always_p, t.fixed_p)) OVER (PARTITION BY t.counting) AS family
    FROM tested AS t
), adjusted AS (
    SELECT
        r.*,
        if(r.p IS NULL, NULL, max(least(1.0, r.p * (r.family - r.place + 1))) OVER (PARTITION BY r.counting ORDER BY r.place)) AS holm_p,
        if(r.p IS NULL, NULL, min(least(1.0, r.p * r.family / r.place)) OVER (PARTITION BY r.counting ORDER BY r.place DESC)) AS bh_p
    FROM ranked AS r
)
SELECT
    a.slice, a.metric, a.better, a.arm, a.baseline, a.counting, a.counting = a.missing AS "default",
    CASE
        WHEN coalesce(a.holm_p, 1) > a.alpha THEN 'cannot tell'
        WHEN (a.difference > 0) = (a.better = 'higher') THEN 'better'
        ELSE 'worse'
    END AS verdict,
    a.base_mean, a.arm_mean, a.difference, a.se, a.df,
    a.difference - a.half AS low, a.difference + a.half AS high,
    a.difference - a.always_half AS always_low, a.difference + a.always_half AS always_high,
    a.fixed_p AS p, a.always_p, a.holm_p, a.bh_p, a.alpha, a.stop, a.family,
    a.design, a.tasks, a.clusters, a.base_trials, a.arm_trials, a.base_missing, a.arm_missing,
    a.unmatched,
    if(a.better = 'higher', a.above, a.below) AS wins, a.ties,
    if(a.better = 'higher', a.below, a.above) AS losses, a.sign_p AS mcnemar_p, a."binary",
    if(a.se > 0, (a.t_alpha + a.t_power) * a.se, NULL) AS detectable,
    a.smallest,
    if(a.se > 0 AND a.smallest > 0, ceil(pow(a.z * a.se / a.smallest, 2) * a.tasks)::BIGINT, NULL) AS tasks_required,
    a.smallest IS NULL OR (a.difference - a.half >= a.smallest OR a.difference + a.half <= -a.smallest) AS matters,
    a.number
FROM adjusted AS a;
COMMENT ON MACRO TABLE comparisons IS 'One row an arm beside the baseline, by metric, slice and way of counting missing values; "default" marks the plan''s way. difference is the mean over tasks of arm less baseline; se is clustered (Miller 2024, with G / (G - 1)), the interval low..high is Student''s with clusters - 1 degrees of freedom (two samples: - 2); always_low..always_high may be looked at at any time. Holm''s and Benjamini and Hochberg''s p are over all rows of one way of counting; the verdict is by Holm''s at alpha, of the always-valid p where the plan is sequential. mcnemar_p is exact, of tasks won and lost. A difference without any spread is judged by that test.';

CREATE MACRO arm_summary(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05) AS TABLE
WITH scores AS (
    SELECT s.* FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label) AS s
), tasks AS (
    SELECT t.* FROM task_scores(the_experiment, only_metric := only_metric, by_label := by_label) AS t
    WHERE t.counting = t.missing AND t.score IS NOT NULL
), means AS (
    SELECT slice, metric, arm, count(*) AS tasks, max(trials) AS trials_max,
        fsum(score ORDER BY task) / count(*) AS mean
    FROM tasks
    GROUP BY slice, metric, arm
), parts AS (
    SELECT t.slice, t.metric, t.arm, t.cluster, fsum((t.score - m.mean) / m.tasks ORDER BY t.task) AS part
    FROM tasks AS t
    JOIN means AS m USING (slice, metric, arm)
    GROUP BY t.slice, t.metric, t.arm, t.cluster
), errors AS (
    SELECT slice, metric, arm, count(*) AS clusters,
        sqrt(fsum(part * part ORDER BY cluster) * count(*) / nullif(count(*) - 1, 0)) AS se
    FROM parts
    GROUP BY slice, metric, arm
), spread AS (
    SELECT
        slice, metric, any_value(number) AS number, any_value(better) AS better, arm,
        count(*) AS trials, count(*) - count(value) AS missing,
        count(*) FILTER (status = 'failed') AS failed, count(*) FILTER (status = 'open') AS open,
        count(*) FILTER (value = 1) AS successes,
        bool_and(value IS NULL OR value IN (0, 1)) AS "binary",
        count(coalesce(value, if(missing = 'failure', worst, NULL))) AS counted,
        quantile_cont(value, 0.5) AS p50, quantile_cont(value, 0.95) AS p95,
        quantile_cont(value, 0.99) AS p99, fsum(value ORDER BY run) AS total
    FROM scores
    GROUP BY slice, metric, arm
)
SELECT
    s.slice, s.metric, s.better, s.arm, coalesce(m.tasks, 0) AS tasks, s.trials, s.missing,
    s.failed, s.open, m.mean, e.se, e.clusters,
    if(e.se > 0, m.mean - t_quantile(1 - at_alpha / 2, e.clusters - 1) * e.se, NULL) AS low,
    if(e.se > 0, m.mean + t_quantile(1 - at_alpha / 2, e.clusters - 1) * e.se, NULL) AS high,
    if(s."binary" AND m.trials_max = 1 AND e.clusters = m.tasks, wilson_low(s.successes, s.counted, alpha := at_alpha), NULL) AS wilson_low,
    if(s."binary" AND m.trials_max = 1 AND e.clusters = m.tasks, wilson_high(s.successes, s.counted, alpha := at_alpha), NULL) AS wilson_high,
    s.p50, s.p95, s.p99, s.total, s.number
FROM spread AS s
LEFT JOIN means AS m USING (slice, metric, arm)
LEFT JOIN errors AS e USING (slice, metric, arm);
COMMENT ON MACRO TABLE arm_summary IS 'One row an arm, metric and slice: trials, those without a value, the mean over tasks with its clustered standard error and interval, quantiles over trials, and where each task has one trial and its own cluster Wilson''s interval of the share of successes.';

CREATE MACRO pass_curves(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05) AS TABLE
WITH tasks AS (
    SELECT t.slice, t.metric, t.arm, t.task, t.cluster, t.successes,
        if(t.missing = 'failure', t.trials, t.valued) AS n
    FROM task_scores(the_experiment, only_metric := only_metric, by_label := by_label) AS t
    WHERE t.counting = t.missing AND t."binary"
), tries AS (
    SELECT slice, metric, arm, least(min(n), 64) AS k_max FROM tasks WHERE n > 0 GROUP BY slice, metric, arm
), chances AS (
    SELECT t.*, k.k, pass_at_k(t.successes, t.n, k.k) AS at_k, pass_hat_k(t.successes, t.n, k.k) AS hat_k
    FROM tasks AS t
    JOIN (SELECT slice, metric, arm, unnest(range(1, k_max + 1)) AS k FROM tries) AS k USING (slice, metric, arm)
    WHERE t.n > 0
), means AS (
    SELECT slice, metric, arm, k, count(*) AS tasks,
        fsum(at_k ORDER BY task) / count(*) AS at_k, fsum(hat_k ORDER BY task) / count(*) AS hat_k
    FROM chances
    GROUP BY slice, metric, arm, k
), parts AS (
    SELECT c.slice, c.metric, c.arm, c.k, c.cluster,
        fsum((c.at_k - m.at_k) / m.tasks ORDER BY c.task) AS at_part,
        fsum((c.hat_k - m.hat_k) / m.tasks ORDER BY c.task) AS hat_part
    FROM chances AS c
    JOIN means AS m USING (slice, metric, arm, k)
    GROUP BY c.slice, c.metric, c.arm, c.k, c.cluster
), errors AS (
    SELECT slice, metric, arm, k, count(*) AS clusters,
        sqrt(fsum(at_part * at_part ORDER BY cluster) * count(*) / nullif(count(*) - 1, 0)) AS at_se,
        sqrt(fsum(hat_part * hat_part ORDER BY cluster) * count(*) / nullif(count(*) - 1, 0)) AS hat_se
    FROM parts
    GROUP BY slice, metric, arm, k
)
SELECT
    m.slice, m.metric, m.arm, m.k, m.tasks, m.at_k AS pass_at_k, e.at_se AS pass_at_k_se,
    if(e.clusters > 1, greatest(0, m.at_k - t_quantile(1 - at_alpha / 2, e.clusters - 1) * e.at_se), NULL) AS pass_at_k_low,
    if(e.clusters > 1, least(1, m.at_k + t_quantile(1 - at_alpha / 2, e.clusters - 1) * e.at_se), NULL) AS pass_at_k_high,
    m.hat_k AS pass_hat_k, e.hat_se AS pass_hat_k_se,
    if(e.clusters > 1, greatest(0, m.hat_k - t_quantile(1 - at_alpha / 2, e.clusters - 1) * e.hat_se), NULL) AS pass_hat_k_low,
    if(e.clusters > 1, least(1, m.hat_k + t_quantile(1 - at_alpha / 2, e.clusters - 1) * e.hat_se), NULL) AS pass_hat_k_high
FROM means AS m
JOIN errors AS e USING (slice, metric, arm, k);
COMMENT ON MACRO TABLE pass_curves IS 'One row an arm and k, of metrics that are 0 or 1: pass@k (one of k trials succeeds) and pass^k (all do), mean over tasks with clustered intervals. k goes up to the trials that every task has.';

CREATE MACRO sample_ratio(the_experiment) AS TABLE
WITH held AS (
    SELECT r.arm, count(DISTINCT coalesce(a.unit, r.run)) AS units, bool_and(a.chosen IS NOT DISTINCT FROM 'hash') AS hashed
    FROM assigned_runs AS r
    LEFT JOIN (
        SELECT n.run, arg_max(n.unit, n.version) AS unit, arg_max(n.chosen, n.version) AS chosen
        FROM assignments AS n GROUP BY n.run
    ) AS a ON a.run = r.run
    WHERE r.experiment = the_experiment
    GROUP BY r.arm
), shares AS (
    SELECT x.arm, x.number, coalesce(g.units, 0) AS units, coalesce(x.weight, 1) AS weight,
        bool_and(coalesce(g.hashed, true)) OVER () AS randomised
    FROM experiment_arms AS x
    LEFT JOIN held AS g ON g.arm = x.arm
    WHERE x.experiment = the_experiment
), expected AS (
    SELECT s.*, sum(s.units) OVER () * s.weight / fsum(s.weight) OVER () AS expected, count(*) FILTER (s.weight > 0) OVER () AS arms
    FROM shares AS s
)
SELECT
    e.arm, e.units, e.expected, e.randomised,
    if(e.arms > 1, chi_square_p(sum(if(e.expected > 0, pow(e.units - e.expected, 2) / e.expected, 0)) OVER (), e.arms - 1), NULL) AS p,
    e.number
FROM expected AS e;
COMMENT ON MACRO TABLE sample_ratio IS 'One row an arm: units it was given (runs, where no unit is on record) and expected by the arms'' weights (equal ones without a plan); p is of the chi-square test that they agree: below 0.001, look for what loses units before reading any difference. randomised says whether all were assigned by hash.';

CREATE MACRO regressions(the_experiment, only_metric := NULL, against := NULL, by_label := NULL) AS TABLE
SELECT
    p.slice, p.metric, p.arm, p.baseline, p.task, p.base_score, p.arm_score, p.difference,
    if(p.better = 'higher', -p.difference, p.difference) AS worse_by, p.matched,
    p.base_runs, p.arm_runs
FROM task_pairs(the_experiment, only_metric := only_metric, against := against, by_label := by_label) AS p
WHERE p.counting = p.missing AND if(p.better = 'higher', p.difference < 0, p.difference > 0);
COMMENT ON MACRO TABLE regressions IS 'One row a task that went worse than under the baseline, with the runs of both. ORDER BY worse_by DESC for the largest.';

CREATE MACRO accounting(the_experiment) AS TABLE
WITH mine AS (
    SELECT r.* FROM assigned_runs AS r WHERE r.experiment = the_experiment
), all_tasks AS (
    SELECT DISTINCT task FROM mine
), lacking AS (
    SELECT a.arm, count(*) AS tasks
    FROM (SELECT DISTINCT arm FROM mine) AS a
    CROSS JOIN all_tasks AS t
    ANTI JOIN mine AS m ON m.arm = a.arm AND m.task = t.task
    GROUP BY a.arm
), twice AS (
    SELECT arm, count(*) AS trials
    FROM (SELECT arm, task, trial FROM mine WHERE trial IS NOT NULL GROUP BY arm, task, trial HAVING count(*) > 1)
    GROUP BY arm
)
SELECT
    m.arm, count(*) AS runs, count(DISTINCT m.task) AS tasks,
    count(*) FILTER (m.status = 'completed') AS completed, count(*) FILTER (m.status = 'failed') AS failed,
    count(*) FILTER (m.status = 'cancelled') AS cancelled, count(*) FILTER (m.status = 'open') AS open,
    count(*) FILTER (m.run NOT IN (SELECT o.run FROM outcomes AS o)) AS unjudged,
    coalesce(any_value(l.tasks), 0) AS tasks_lacking, coalesce(any_value(w.trials), 0) AS trials_twice,
    min(m.started_at) AS first_started_at, max(m.started_at) AS last_started_at
FROM mine AS m
LEFT JOIN lacking AS l ON l.arm = m.arm
LEFT JOIN twice AS w ON w.arm = m.arm
GROUP BY m.arm;
COMMENT ON MACRO TABLE accounting IS 'One row an arm: what became of its runs, tasks that only other arms have, trial numbers that are there twice.';
