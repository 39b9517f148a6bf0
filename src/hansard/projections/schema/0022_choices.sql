-- What an experiment is judged by where nobody has said it: nothing is chosen silently. Steps of
-- before are restated as a whole where a part of them is another.

CREATE TABLE metric_catalogue (
    metric VARCHAR NOT NULL,
    better VARCHAR NOT NULL,
    source VARCHAR NOT NULL
);
COMMENT ON TABLE metric_catalogue IS 'One row a metric whose direction is known where no plan says it: by OpenTelemetry''s or an importer''s own definition, or by what Hansard records itself.';
INSERT INTO metric_catalogue VALUES
    ('completion', 'higher', 'Hansard: the share of runs that ended as completed'),
    ('success', 'higher', 'Hansard: 1 for a run that was judged to have succeeded, else 0'),
    ('solved', 'higher', 'Hansard: 1 for a task that was solved, else 0'),
    ('cost', 'lower', 'Hansard: US dollars'),
    ('tokens', 'lower', 'Hansard: input_tokens and output_tokens'),
    ('input_tokens', 'lower', 'Hansard: gen_ai.usage.input_tokens'),
    ('output_tokens', 'lower', 'Hansard: gen_ai.usage.output_tokens'),
    ('latency_ms', 'lower', 'Hansard: from a run''s beginning to its end'),
    ('tool_error_rate', 'lower', 'Hansard: calls of tools that failed'),
    ('gen_ai.client.token.usage', 'lower', 'OpenTelemetry: GenAI metrics'),
    ('gen_ai.client.operation.duration', 'lower', 'OpenTelemetry: GenAI metrics'),
    ('gen_ai.server.request.duration', 'lower', 'OpenTelemetry: GenAI metrics'),
    ('gen_ai.server.time_to_first_token', 'lower', 'OpenTelemetry: GenAI metrics'),
    ('gen_ai.server.time_per_output_token', 'lower', 'OpenTelemetry: GenAI metrics'),
    ('reward', 'higher', 'tau-bench and tau2-bench: the reward'),
    ('agent_cost', 'lower', 'tau2-bench: US dollars that the agent cost'),
    ('user_cost', 'lower', 'tau2-bench: US dollars that the simulated user cost'),
    ('duration', 'lower', 'tau2-bench: seconds of a simulation'),
    ('resolved', 'higher', 'SWE-bench: the instance is resolved'),
    ('passed', 'higher', 'evaluations: 1 for a case that passed, else 0'),
    ('correct', 'higher', 'evaluations: 1 for an answer that is correct, else 0'),
    ('accuracy', 'higher', 'evaluations: the share of answers that are correct');

CREATE OR REPLACE MACRO better_of(metric) AS (
    SELECT any_value(c.better)
    FROM (SELECT m.metric AS listed, m.better FROM metric_catalogue AS m) AS c
    WHERE c.listed = metric);
COMMENT ON MACRO better_of IS 'better_of(metric): which direction of a metric is the good one where no plan says it, higher or lower: by metric_catalogue. NULL where it is not known; it is never guessed.';

CREATE MACRO direction_of(directions, name) AS
    json_extract_string(directions, '/' || replace(replace(name, '~', '~0'), '/', '~1'));
COMMENT ON MACRO direction_of IS 'direction_of(directions, name): what is said of a metric in a JSON object of names and directions; NULL where nothing is.';

CREATE OR REPLACE VIEW trial_runs AS
WITH spent AS (
    SELECT
        u.run,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'cost') AS cost,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'input_tokens') AS input_tokens,
        fsum(u.amount ORDER BY u.amount) FILTER (u.metric = 'output_tokens') AS output_tokens
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
    success_of(NULL, r.status) AS completion
FROM assigned_runs AS r
LEFT JOIN spent AS s ON s.run = r.run
LEFT JOIN called AS c ON c.run = r.run
LEFT JOIN judged AS j ON j.run = r.run
LEFT JOIN timed AS t ON t.run = r.run
LEFT JOIN any_judged AS a ON a.experiment = r.experiment;
COMMENT ON VIEW trial_runs IS 'One row a trial, with what it came to and what it used up.';

CREATE OR REPLACE VIEW experiment_plans AS
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
COMMENT ON VIEW experiment_plans IS 'One row an experiment, registered or met in runs: how it is judged.';

CREATE OR REPLACE MACRO trial_scores(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
WITH plan AS (
    SELECT e.cluster, coalesce(counted_as, e.missing, 'failure') AS missing,
        coalesce(e.unit, 'run') AS unit, e.experiment IS NOT NULL AS registered
    FROM (SELECT 1) LEFT JOIN experiments AS e ON e.experiment = the_experiment
), mine AS MATERIALIZED (
    SELECT
        r.arm, r.task, r.trial, r.run, r.status, r.labels, r.first_position, r.started_at,
        r.ended_at, p.missing, p.unit,
        if(p.cluster IS NULL, r.task, coalesce(label_of(r.labels, p.cluster), '(none) ' || r.task)) AS cluster
    FROM assigned_runs AS r
    CROSS JOIN plan AS p
    WHERE r.experiment = the_experiment
), scored AS MATERIALIZED (
    SELECT DISTINCT o.metric FROM outcomes AS o SEMI JOIN mine AS m ON m.run = o.run
), asked AS MATERIALIZED (
    SELECT m.metric, m.better, m.smallest, m.number, true AS named, 'its plan' AS stated_by
    FROM metrics AS m
    WHERE m.experiment = the_experiment AND only_metric IS NULL
    UNION ALL
    -- Without a plan: what was scored, whatever its name; where nothing was, whether runs ended.
    SELECT d.metric, coalesce(m.better, direction_of(directions, d.metric), better_of(d.metric)),
        m.smallest, 1, only_metric IS NOT NULL OR d.alone,
        CASE WHEN m.better IS NOT NULL THEN 'its plan'
            WHEN direction_of(directions, d.metric) IS NOT NULL THEN 'who asks'
            WHEN better_of(d.metric) IS NOT NULL THEN 'the catalogue' END
    FROM (
        SELECT only_metric::VARCHAR AS metric, true AS alone WHERE only_metric IS NOT NULL
        UNION ALL
        SELECT s.metric, (SELECT count(*) FROM scored) = 1
        FROM scored AS s
        CROSS JOIN plan AS p
        WHERE only_metric IS NULL AND NOT p.registered
        UNION ALL
        SELECT 'completion', true
        FROM plan AS p
        WHERE only_metric IS NULL AND NOT p.registered AND (SELECT count(*) FROM scored) = 0
    ) AS d
    LEFT JOIN metrics AS m ON m.experiment = the_experiment AND m.metric = d.metric
), judged AS MATERIALIZED (
    SELECT o.run, o.metric, arg_max(o.value, o.version) AS value
    FROM outcomes AS o
    SEMI JOIN asked AS a ON a.metric = o.metric
    SEMI JOIN mine AS m ON m.run = o.run
    GROUP BY o.run, o.metric
), unjudged AS MATERIALIZED (
    SELECT a.metric FROM asked AS a ANTI JOIN judged AS j ON j.metric = a.metric
), found AS (
    SELECT j.run, j.metric, if(isfinite(j.value), j.value, NULL) AS value FROM judged AS j
    UNION ALL
    SELECT u.run, w.metric, fsum(u.amount ORDER BY u.amount)
    FROM usage AS u
    JOIN (
        SELECT n.metric, v.used
        FROM unjudged AS n
        JOIN (VALUES ('cost', 'cost'), ('input_tokens', 'input_tokens'),
            ('output_tokens', 'output_tokens'), ('tokens', 'input_tokens'),
            ('tokens', 'output_tokens')) AS v(metric, used) ON v.metric = n.metric
    ) AS w ON w.used = u.metric
    SEMI JOIN mine AS m ON m.run = u.run
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
    if(a.better = 'higher', least(0.0, min(f.value) OVER (PARTITION BY a.metric)), NULL) AS worst
FROM sliced AS s
CROSS JOIN asked AS a
LEFT JOIN found AS f ON f.run = s.run AND f.metric = a.metric;
COMMENT ON MACRO TABLE trial_scores IS 'A metric is what was judged (newest value; one that is not finite is none), or where no judge uses the name completion, success, cost, tokens, input_tokens, output_tokens, latency_ms or tool_error_rate as in trial_runs. Without a plan and only_metric it is each metric that was scored, or completion (whether the run ended as completed) where none was; named says whether there is a plan, only_metric or one metric alone. directions is a JSON object of metrics and directions (higher, lower) that no plan states; better is NULL where nobody states it, stated_by who does. One row a trial, metric and slice (empty: all of them; (none): runs without the label). worst is what a missing value counts as: 0, or the least value where that is below; NULL of a metric of which less is better, or whose direction nobody states, since a missing cost is no cost: such a trial is left out and counted. Where the plan''s cluster is a label that a run lacks, its task is a cluster of its own.';

CREATE OR REPLACE MACRO task_totals(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
SELECT
    s.slice, s.metric, s.arm, s.task, any_value(s.number) AS number, any_value(s.better) AS better,
    any_value(s.smallest) AS smallest, min(s.cluster) AS cluster, any_value(s.unit) AS unit,
    any_value(s.missing) AS missing, any_value(s.named) AS named, any_value(s.stated_by) AS stated_by, any_value(s.worst) AS worst, count(*) AS trials,
    count(s.value) AS valued, count(s.value) FILTER (s.ended) AS ended_valued,
    count(*) FILTER (NOT s.ended) AS unended, count(*) FILTER (NOT s.ended AND s.value IS NOT NULL) AS unended_valued,
    count(*) FILTER (s.ended AND s.value = 1) AS ended_successes,
    count(*) FILTER (s.value = 1) AS successes,
    bool_and(s.value IS NULL OR s.value IN (0, 1)) AS "binary",
    coalesce(fsum(s.value ORDER BY s.value), 0) AS total,
    coalesce(fsum(s.value ORDER BY s.value) FILTER (s.ended), 0) AS ended_total,
    min(s.first_position) AS first_position, list(s.run ORDER BY s.trial, s.run) AS runs
FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS s
GROUP BY s.slice, s.metric, s.arm, s.task;
COMMENT ON MACRO TABLE task_totals IS 'One row a task of an arm: its trials, and the sum of their values (total) with how many have one (valued).';

CREATE MACRO mean_of(counting, total, trials, valued, worst, ended_total, ended_valued) AS if(counting = 'excluded',
    ended_total / nullif(ended_valued, 0), score_of(counting, total, trials, valued, worst));
COMMENT ON MACRO mean_of IS 'The mean over trials. failure: those without a value count as the worst one, those that have one as it is, however they ended; excluded: neither those without a value count nor those that did not end as completed, though they were scored.';

CREATE OR REPLACE MACRO task_scores(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
SELECT
    t.slice, t.metric, t.number, t.better, t.smallest, t.arm, t.task, t.cluster, t.unit, t.missing,
    t.worst, c.counting, t.trials, t.valued, t.successes, t."binary",
    mean_of(c.counting, t.total, t.trials, t.valued, t.worst, t.ended_total, t.ended_valued) AS score, t.first_position, t.runs
FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS t
CROSS JOIN (VALUES ('failure'), ('excluded')) AS c(counting);
COMMENT ON MACRO TABLE task_scores IS 'One row a task of an arm, and way of counting missing values (failure: as the worst one; excluded: not at all). score is the mean over its trials.';

CREATE OR REPLACE MACRO task_pairs(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
WITH tasks AS MATERIALIZED (
    SELECT t.* FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS t
), based AS MATERIALIZED (
    SELECT a.arm
    FROM experiment_arms AS a
    WHERE a.experiment = the_experiment AND if(against IS NULL, a.number = 1, a.arm = against)
), sides AS (
    SELECT r.arm, b.arm AS baseline
    FROM (SELECT DISTINCT t.arm FROM tasks AS t) AS r
    JOIN based AS b ON b.arm <> r.arm
), met AS (
    SELECT
        coalesce(y.slice, x.slice) AS slice, coalesce(y.metric, x.metric) AS metric,
        coalesce(y.arm, x.arm) AS arm, coalesce(y.baseline, x.baseline) AS baseline,
        coalesce(y.task, x.task) AS task, coalesce(y.number, x.number) AS number,
        coalesce(y.better, x.better) AS better, coalesce(y.smallest, x.smallest) AS smallest,
        least(x.cluster, y.cluster) AS cluster, coalesce(y.unit, x.unit) = 'task' AS apart,
        coalesce(y.missing, x.missing) AS missing, coalesce(y.named, x.named) AS named,
        coalesce(y.stated_by, x.stated_by) AS stated_by, coalesce(x.worst, y.worst) AS worst,
        x.task IS NOT NULL AND y.task IS NOT NULL AS matched,
        coalesce(x.trials, 0) AS base_trials, coalesce(y.trials, 0) AS arm_trials,
        coalesce(x.valued, 0) AS base_valued, coalesce(y.valued, 0) AS arm_valued,
        coalesce(x."binary", true) AND coalesce(y."binary", true) AS "binary",
        least(x.first_position, y.first_position) AS first_position,
        coalesce(x.runs, []) AS base_runs, coalesce(y.runs, []) AS arm_runs,
        x.total AS base_total, y.total AS arm_total,
        x.ended_total AS base_ended_total, y.ended_total AS arm_ended_total,
        x.ended_valued AS base_ended_valued, y.ended_valued AS arm_ended_valued,
        coalesce(x.unended, 0) AS base_unended, coalesce(y.unended, 0) AS arm_unended,
        coalesce(x.unended_valued, 0) AS base_unended_valued, coalesce(y.unended_valued, 0) AS arm_unended_valued
    FROM (
        SELECT s.arm, s.baseline, t.* EXCLUDE (arm) FROM tasks AS t JOIN sides AS s ON s.baseline = t.arm
    ) AS x
    FULL JOIN (
        SELECT s.arm, s.baseline, t.* EXCLUDE (arm) FROM tasks AS t JOIN sides AS s ON s.arm = t.arm
    ) AS y ON y.arm = x.arm AND y.slice = x.slice AND y.metric = x.metric AND y.task = x.task
), fair AS (
    SELECT m.*, if(NOT m.apart AND bool_or(m.base_trials > 0) OVER beside AND bool_or(m.arm_trials > 0) OVER beside,
        m.worst, NULL) AS filler
    FROM met AS m
    WINDOW beside AS (PARTITION BY m.slice, m.metric, m.arm)
), scored AS (
    SELECT
        f.slice, f.metric, c.counting, f.* EXCLUDE (slice, metric, base_total, arm_total, base_ended_total, arm_ended_total, base_ended_valued,
            arm_ended_valued, filler),
        coalesce(mean_of(c.counting, f.base_total, f.base_trials, f.base_valued, f.worst, f.base_ended_total, f.base_ended_valued),
            if(c.counting = 'failure', f.filler, NULL)) AS base_score,
        coalesce(mean_of(c.counting, f.arm_total, f.arm_trials, f.arm_valued, f.worst, f.arm_ended_total, f.arm_ended_valued),
            if(c.counting = 'failure', f.filler, NULL)) AS arm_score
    FROM fair AS f
    CROSS JOIN (VALUES ('failure'), ('excluded')) AS c(counting)
)
SELECT s.*, s.arm_score - s.base_score AS difference
FROM scored AS s;
COMMENT ON MACRO TABLE task_pairs IS 'One row a task of an arm beside the baseline, and way of counting. Counted as failure, a task that one arm does not have has the worst score there, unless that arm has none of the slice at all; apart is true where the unit is the task, so that no task is in two arms. Empty where the baseline is no arm of the experiment.';

CREATE OR REPLACE MACRO comparisons(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, at_alpha := NULL, at_power := 0.8, directions := NULL, counted_as := NULL) AS TABLE
WITH pairs AS MATERIALIZED (
    SELECT p.slice, p.metric, p.counting, p.arm, p.baseline, p.task, p.number, p.better, p.smallest,
        p.cluster, p.apart, p.missing, p.named, p.stated_by, p.matched, p.base_trials, p.arm_trials, p.base_valued,
        p.arm_valued, p.base_unended, p.arm_unended, p.base_unended_valued, p.arm_unended_valued,
        p."binary", p.base_score, p.arm_score, p.difference,
        if(p.apart, p.arm_score IS NOT NULL OR p.base_score IS NOT NULL, p.difference IS NOT NULL) AS used
    FROM task_pairs(the_experiment, only_metric := only_metric, against := against, by_label := by_label, directions := directions, counted_as := counted_as) AS p
), facts AS MATERIALIZED (
    SELECT
        p.slice, p.metric, p.counting, p.arm, any_value(p.baseline) AS baseline,
        any_value(p.number) AS number, any_value(p.better) AS better,
        any_value(p.smallest) AS smallest, bool_or(p.apart) AS apart,
        any_value(p.missing) AS missing, any_value(p.named) AS named,
        any_value(p.stated_by) AS stated_by, bool_and(p."binary") AS "binary",
        sum(p.base_trials)::BIGINT AS base_trials, sum(p.arm_trials)::BIGINT AS arm_trials,
        sum(p.base_trials - p.base_valued)::BIGINT AS base_missing,
        sum(p.arm_trials - p.arm_valued)::BIGINT AS arm_missing,
        sum(p.base_unended)::BIGINT AS base_unended, sum(p.arm_unended)::BIGINT AS arm_unended,
        sum(p.base_unended_valued + p.arm_unended_valued)::BIGINT AS unended_valued,
        count(*) FILTER (NOT p.matched AND NOT p.apart) AS unmatched,
        count(*) FILTER (p.used) AS tasks,
        count(p.arm_score) FILTER (p.used) AS arm_tasks,
        count(p.base_score) FILTER (p.used) AS base_tasks,
        fsum(p.arm_score ORDER BY p.arm_score) FILTER (p.used) / nullif(count(p.arm_score) FILTER (p.used), 0) AS arm_mean,
        fsum(p.base_score ORDER BY p.base_score) FILTER (p.used) / nullif(count(p.base_score) FILTER (p.used), 0) AS base_mean,
        fsum(p.difference ORDER BY p.difference) FILTER (p.used) / nullif(count(p.difference) FILTER (p.used), 0) AS mean_difference,
        max(greatest(abs(p.arm_score), abs(p.base_score))) FILTER (p.used) AS scale,
        count(*) FILTER (p.used AND p.difference > 0) AS above,
        count(*) FILTER (p.used AND p.difference = 0) AS ties,
        count(*) FILTER (p.used AND p.difference < 0) AS below
    FROM pairs AS p
    GROUP BY p.slice, p.metric, p.counting, p.arm
), errors AS (
    SELECT
        c.slice, c.metric, c.counting, c.arm, count(*) AS clusters,
        sqrt(fsum(c.part * c.part ORDER BY c.cluster) * count(*) / nullif(count(*) - 1, 0)) AS se
    FROM (
        SELECT
            p.slice, p.metric, p.counting, p.arm, p.cluster,
            fsum(if(f.apart,
                coalesce((p.arm_score - f.arm_mean) / f.arm_tasks, 0)
                    - coalesce((p.base_score - f.base_mean) / f.base_tasks, 0),
                (p.difference - f.mean_difference) / f.tasks) ORDER BY p.task) AS part
        FROM pairs AS p
        JOIN facts AS f USING (slice, metric, counting, arm)
        WHERE p.used
        GROUP BY p.slice, p.metric, p.counting, p.arm, p.cluster
    ) AS c
    GROUP BY c.slice, c.metric, c.counting, c.arm
), estimated AS MATERIALIZED (
    SELECT
        f.*, e.clusters,
        if(f.apart, f.arm_mean - f.base_mean, f.mean_difference) AS difference,
        if(e.se <= 1e-12 * f.scale, 0, e.se) AS se,
        e.clusters - if(f.apart, 2, 1) AS df,
        if(f.apart, NULL, binomial_p(least(f.above, f.below), f.above + f.below)) AS sign_p,
        coalesce(at_alpha, x.alpha, 0.05) AS alpha, coalesce(x.stop, 'fixed') AS stop,
        always_valid_rho2(coalesce(at_alpha, x.alpha, 0.05), coalesce(x.planned, 100)) AS rho2
    FROM facts AS f
    LEFT JOIN errors AS e USING (slice, metric, counting, arm)
    LEFT JOIN experiments AS x ON x.experiment = the_experiment
), critical AS MATERIALIZED (
    SELECT
        d.df, max(d.quantile) FILTER (d.which = 1) AS t_alpha, max(d.quantile) FILTER (d.which = 2) AS t_power,
        d.tasks, -max(d.quantile) FILTER (d.which = 3) AS t_always,
        max(d.quantile) FILTER (d.which = 4) + max(d.quantile) FILTER (d.which = 5) AS z
    FROM (
        SELECT e.df, e.tasks, w.which, t_quantile(w.p, if(w.which > 3, 1e15, e.df)) AS quantile
        FROM (
            SELECT DISTINCT df, tasks, alpha,
                if(df > 3, normal_cdf(-always_valid_half(1, tasks, alpha, rho2)), NULL) AS beyond
            FROM estimated
            WHERE df > 0
        ) AS e
        CROSS JOIN LATERAL (VALUES (1, 1 - e.alpha / 2), (2, at_power), (3, e.beyond),
            (4, 1 - e.alpha / 2), (5, at_power)) AS w(which, p)
    ) AS d
    GROUP BY d.df, d.tasks
), tested AS (
    SELECT
        e.*, c.t_alpha, c.t_power, c.z,
        if(e.se > 0, c.t_alpha * e.se, NULL) AS half,
        CASE
            WHEN e.df IS NULL OR e.df < 1 OR e.difference IS NULL THEN NULL
            WHEN e.se > 0 THEN t_p(e.difference / e.se, e.df)
            WHEN abs(e.difference) <= 1e-12 * e.scale THEN 1.0
            ELSE e.sign_p
        END AS fixed_p,
        if(e.se > 0, c.t_always * e.se, NULL) AS always_half
    FROM estimated AS e
    LEFT JOIN critical AS c ON c.df = e.df AND c.tasks = e.tasks
), watched AS (
    SELECT
        t.*,
        CASE
            WHEN t.df IS NULL OR t.df < 4 OR t.fixed_p IS NULL THEN NULL
            WHEN t.se > 0 THEN always_valid_p(-normal_quantile(t.fixed_p / 2), 1, t.tasks, t.rho2)
            ELSE 1.0
        END AS always_p
    FROM tested AS t
), ranked AS (
    SELECT
        t.*, if(t.stop = 'sequential', t.always_p, t.fixed_p) AS p,
        row_number() OVER (PARTITION BY t.counting, t.slice = '' ORDER BY if(t.stop = 'sequential', t.always_p, t.fixed_p) NULLS LAST, t.slice, t.number, t.metric, t.arm) AS place,
        count(if(t.stop = 'sequential', t.always_p, t.fixed_p)) OVER (PARTITION BY t.counting, t.slice = '') AS family
    FROM watched AS t
), adjusted AS (
    SELECT
        r.*,
        if(r.p IS NULL, NULL, max(least(1.0, r.p * (r.family - r.place + 1))) OVER (PARTITION BY r.counting, r.slice = '' ORDER BY r.place)) AS holm_p,
        if(r.p IS NULL, NULL, min(least(1.0, r.p * r.family / r.place)) OVER (PARTITION BY r.counting, r.slice = '' ORDER BY r.place DESC)) AS bh_p
    FROM ranked AS r
)
SELECT
    a.slice, a.metric, a.better, a.arm, a.baseline, a.counting, a.counting = a.missing AS "default",
    CASE
        WHEN NOT a.named THEN 'no metric named'
        WHEN a.better IS NULL THEN 'direction not stated'
        WHEN coalesce(a.holm_p, 1) > a.alpha THEN 'cannot tell'
        WHEN (a.difference > 0) = (a.better = 'higher') THEN 'better'
        ELSE 'worse'
    END AS verdict,
    a.base_mean, a.arm_mean, a.difference, a.se, a.df,
    a.difference - a.half AS low, a.difference + a.half AS high,
    a.difference - a.always_half AS always_low, a.difference + a.always_half AS always_high,
    a.fixed_p AS p, a.always_p, a.holm_p, a.bh_p, a.alpha, a.stop, a.family,
    if(a.apart, 'two samples', 'paired by task') AS design, a.tasks, a.clusters, a.base_trials,
    a.arm_trials, a.base_missing, a.arm_missing, a.unmatched,
    CASE a.better WHEN 'higher' THEN a.above WHEN 'lower' THEN a.below END AS wins, a.ties,
    CASE a.better WHEN 'higher' THEN a.below WHEN 'lower' THEN a.above END AS losses, a.sign_p AS mcnemar_p, a."binary",
    if(a.se > 0, (a.t_alpha + a.t_power) * a.se, NULL) AS detectable,
    a.smallest,
    if(a.se > 0 AND a.smallest > 0, TRY_CAST(ceil(pow(a.z * a.se / a.smallest, 2) * a.tasks) AS BIGINT), NULL) AS tasks_required,
    a.smallest IS NULL OR (a.difference - a.half >= a.smallest OR a.difference + a.half <= -a.smallest) AS matters,
    a.number, a.stated_by, a.above, a.below, a.base_unended, a.arm_unended, a.unended_valued,
    a."binary" AND NOT a.apart AND a.base_trials = a.tasks AND a.arm_trials = a.tasks AS single
FROM adjusted AS a;
COMMENT ON MACRO TABLE comparisons IS 'One row an arm beside the baseline, by metric, slice and way of counting missing values; "default" marks the plan''s way. difference is the mean over tasks of arm less baseline; se is clustered (Miller 2024, with G / (G - 1)), the interval low..high is Student''s with clusters - 1 degrees of freedom (two samples: - 2); always_low..always_high may be looked at at any time (the normal mixture''s at the normal score of t; as simulated it holds from five clusters on, and is NULL below: see tests/statistics). Holm''s and Benjamini and Hochberg''s p are over all rows of one way of counting, of the whole and of all slices each for itself; the verdict is by Holm''s at alpha, of the always-valid p where the plan is sequential. mcnemar_p is that of the exact sign test of tasks won and lost, which is McNemar''s where each task was tried once (single). The verdict is better, worse or cannot tell; no metric named where several were scored and neither a plan nor only_metric names one; direction not stated where nobody says which is the good one (above and below count the tasks). A difference without any spread is judged by that test.';

CREATE OR REPLACE MACRO arm_summary(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05, directions := NULL, counted_as := NULL) AS TABLE
WITH scores AS MATERIALIZED (
    SELECT s.* FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS s
), tasks AS MATERIALIZED (
    SELECT
        s.slice, s.metric, s.arm, s.task, min(s.cluster) AS cluster, count(*) AS trials,
        mean_of(any_value(s.missing), coalesce(fsum(s.value ORDER BY s.value), 0), count(*), count(s.value), any_value(s.worst),
            fsum(s.value ORDER BY s.value) FILTER (s.ended), count(s.value) FILTER (s.ended)) AS score
    FROM scores AS s
    GROUP BY s.slice, s.metric, s.arm, s.task
), means AS MATERIALIZED (
    SELECT t.slice, t.metric, t.arm, count(*) AS tasks, max(t.trials) AS trials_max,
        fsum(t.score ORDER BY t.score) / count(*) AS mean
    FROM tasks AS t
    WHERE t.score IS NOT NULL
    GROUP BY t.slice, t.metric, t.arm
), errors AS MATERIALIZED (
    SELECT c.slice, c.metric, c.arm, count(*) AS clusters,
        sqrt(fsum(c.part * c.part ORDER BY c.cluster) * count(*) / nullif(count(*) - 1, 0)) AS se
    FROM (
        SELECT t.slice, t.metric, t.arm, t.cluster, fsum((t.score - m.mean) / m.tasks ORDER BY t.task) AS part
        FROM tasks AS t
        JOIN means AS m USING (slice, metric, arm)
        WHERE t.score IS NOT NULL
        GROUP BY t.slice, t.metric, t.arm, t.cluster
    ) AS c
    GROUP BY c.slice, c.metric, c.arm
), spread AS (
    SELECT
        slice, metric, any_value(number) AS number, any_value(better) AS better,
        any_value(stated_by) AS stated_by, any_value(named) AS named, arm,
        count(*) AS trials, count(*) - count(value) AS missing,
        count(*) FILTER (status = 'failed') AS failed, count(*) FILTER (status = 'open') AS open,
        count(*) FILTER (value = 1 AND (missing = 'failure' OR ended)) AS successes,
        bool_and(value IS NULL OR value IN (0, 1)) AS "binary",
        count(if(missing = 'failure', coalesce(value, worst), if(ended, value, NULL))) AS counted,
        quantile_cont(value, [0.5, 0.95, 0.99]) AS quantiles, fsum(value ORDER BY value) AS total
    FROM scores
    GROUP BY slice, metric, arm
), critical AS MATERIALIZED (
    SELECT d.df, t_quantile(1 - at_alpha / 2, d.df) AS t
    FROM (SELECT DISTINCT clusters - 1 AS df FROM errors WHERE clusters > 1) AS d
), joined AS (
    SELECT s.*, m.tasks, m.mean, e.se, e.clusters, if(e.se > 0, c.t * e.se, NULL) AS half,
        s."binary" AND m.trials_max = 1 AND e.clusters = m.tasks AS simple,
        normal_quantile(1 - at_alpha / 2) AS z
    FROM spread AS s
    LEFT JOIN means AS m USING (slice, metric, arm)
    LEFT JOIN errors AS e USING (slice, metric, arm)
    LEFT JOIN critical AS c ON c.df = e.clusters - 1
)
SELECT
    s.slice, s.metric, s.better, s.arm, coalesce(s.tasks, 0) AS tasks, s.trials, s.missing,
    s.failed, s.open, s.mean, s.se, s.clusters, s.mean - s.half AS low, s.mean + s.half AS high,
    if(s.simple, wilson_end(s.successes, s.counted, s.z, 0), NULL) AS wilson_low,
    if(s.simple, wilson_end(s.successes, s.counted, s.z, 1), NULL) AS wilson_high,
    s.quantiles[1] AS p50, s.quantiles[2] AS p95, s.quantiles[3] AS p99, s.total, s.number, s.stated_by, s.named
FROM joined AS s;
COMMENT ON MACRO TABLE arm_summary IS 'One row an arm, metric and slice: trials, those without a value, the mean over tasks with its clustered standard error and interval, quantiles over trials, and where each task has one trial and its own cluster Wilson''s interval of the share of successes.';

CREATE OR REPLACE MACRO pass_curves(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05, directions := NULL, counted_as := NULL) AS TABLE
WITH tasks AS MATERIALIZED (
    SELECT t.slice, t.metric, t.arm, t.task, t.cluster,
        if(t.missing = 'failure', t.successes, t.ended_successes) AS successes,
        if(t.missing = 'failure', t.trials, t.ended_valued) AS n, t."binary"
    FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS t
), tries AS (
    SELECT slice, metric, arm, least(min(n) FILTER (n > 0), 64) AS k_max
    FROM tasks
    GROUP BY slice, metric, arm
    HAVING bool_and("binary") AND max(n) > 0
), chances AS MATERIALIZED (
    SELECT t.slice, t.metric, t.arm, t.task, t.cluster, k.k,
        pass_at_k(t.successes, t.n, k.k) AS at_k, pass_hat_k(t.successes, t.n, k.k) AS hat_k
    FROM tasks AS t
    JOIN (SELECT slice, metric, arm, unnest(range(1, k_max + 1)) AS k FROM tries) AS k USING (slice, metric, arm)
    WHERE t.n > 0
), means AS MATERIALIZED (
    SELECT c.slice, c.metric, c.arm, c.k, count(*) AS tasks,
        fsum(c.at_k ORDER BY c.at_k) / count(*) AS at_k, fsum(c.hat_k ORDER BY c.hat_k) / count(*) AS hat_k
    FROM chances AS c
    GROUP BY c.slice, c.metric, c.arm, c.k
), errors AS MATERIALIZED (
    SELECT p.slice, p.metric, p.arm, p.k, count(*) AS clusters,
        sqrt(fsum(p.at_part * p.at_part ORDER BY p.cluster) * count(*) / nullif(count(*) - 1, 0)) AS at_se,
        sqrt(fsum(p.hat_part * p.hat_part ORDER BY p.cluster) * count(*) / nullif(count(*) - 1, 0)) AS hat_se
    FROM (
        SELECT c.slice, c.metric, c.arm, c.k, c.cluster,
            fsum((c.at_k - m.at_k) / m.tasks ORDER BY c.task) AS at_part,
            fsum((c.hat_k - m.hat_k) / m.tasks ORDER BY c.task) AS hat_part
        FROM chances AS c
        JOIN means AS m USING (slice, metric, arm, k)
        GROUP BY c.slice, c.metric, c.arm, c.k, c.cluster
    ) AS p
    GROUP BY p.slice, p.metric, p.arm, p.k
), critical AS MATERIALIZED (
    SELECT d.df, t_quantile(1 - at_alpha / 2, d.df) AS t
    FROM (SELECT DISTINCT clusters - 1 AS df FROM errors WHERE clusters > 1) AS d
)
SELECT
    m.slice, m.metric, m.arm, m.k, m.tasks, m.at_k AS pass_at_k, e.at_se AS pass_at_k_se,
    if(c.t IS NULL, NULL, greatest(0, m.at_k - c.t * e.at_se)) AS pass_at_k_low,
    if(c.t IS NULL, NULL, least(1, m.at_k + c.t * e.at_se)) AS pass_at_k_high,
    m.hat_k AS pass_hat_k, e.hat_se AS pass_hat_k_se,
    if(c.t IS NULL, NULL, greatest(0, m.hat_k - c.t * e.hat_se)) AS pass_hat_k_low,
    if(c.t IS NULL, NULL, least(1, m.hat_k + c.t * e.hat_se)) AS pass_hat_k_high
FROM means AS m
JOIN errors AS e USING (slice, metric, arm, k)
LEFT JOIN critical AS c ON c.df = e.clusters - 1;
COMMENT ON MACRO TABLE pass_curves IS 'One row an arm and k, of metrics that are 0 or 1: pass@k (one of k trials succeeds) and pass^k (all do), mean over tasks with clustered intervals. k goes up to the trials that every task has, at most 64.';

CREATE OR REPLACE MACRO regressions(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
SELECT
    p.slice, p.metric, p.arm, p.baseline, p.task, p.base_score, p.arm_score, p.difference,
    if(p.better = 'higher', -p.difference, p.difference) AS worse_by, p.matched,
    p.base_runs, p.arm_runs
FROM task_pairs(the_experiment, only_metric := only_metric, against := against, by_label := by_label, directions := directions, counted_as := counted_as) AS p
WHERE p.counting = p.missing AND p.better IS NOT NULL AND if(p.better = 'higher', p.difference < 0, p.difference > 0);
COMMENT ON MACRO TABLE regressions IS 'One row a task that went worse than under the baseline, with the runs of both. ORDER BY worse_by DESC for the largest.';

CREATE OR REPLACE MACRO accounting(the_experiment) AS TABLE
WITH mine AS (
    SELECT r.*, w.error_type, w.error, o.run IS NOT NULL AS judged,
        r.status = 'failed' AND regexp_matches(concat_ws(' ', w.error_type, w.error), '(?i)time[d]?[ _-]?out|deadline') AS timed_out
    FROM assigned_runs AS r
    JOIN runs AS w ON w.run = r.run
    LEFT JOIN (SELECT DISTINCT run FROM outcomes) AS o ON o.run = r.run
    WHERE r.experiment = the_experiment
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
    count(*) FILTER (NOT m.judged) AS unjudged,
    coalesce(any_value(l.tasks), 0) AS tasks_lacking, coalesce(any_value(w.trials), 0) AS trials_twice,
    min(m.started_at) AS first_started_at, max(m.started_at) AS last_started_at,
    count(*) FILTER (m.judged AND m.status = 'completed') AS judged,
    count(*) FILTER (NOT m.judged AND m.status = 'completed') AS never_judged,
    count(*) FILTER (m.status = 'failed' AND NOT m.timed_out) AS errored,
    count(*) FILTER (m.timed_out) AS timed_out, count(*) FILTER (m.judged AND m.status <> 'completed') AS scored_all_the_same
FROM mine AS m
LEFT JOIN lacking AS l ON l.arm = m.arm
LEFT JOIN twice AS w ON w.arm = m.arm
GROUP BY m.arm;
COMMENT ON MACRO TABLE accounting IS 'One row an arm: what became of its runs, tasks that only other arms have, trial numbers that are there twice. judged, never_judged (of those that completed), errored, timed_out (a failure whose error names a time-out), cancelled and open (crashed, or at work) make up all runs; scored_all_the_same counts those that did not complete and have an outcome.';
