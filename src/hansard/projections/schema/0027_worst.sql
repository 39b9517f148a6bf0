-- The worst case of what is missing, percentiles only where there are any, and many arms: every pair
-- of them in one family, and the ranks that follow from it.

CREATE MACRO worst_case_of(ended_total, trials, ended_valued, extreme) AS
    if(extreme IS NULL OR trials = ended_valued, ended_total / nullif(ended_valued, 0),
        (ended_total + (trials - ended_valued) * extreme) / nullif(trials, 0));
COMMENT ON MACRO worst_case_of IS 'The mean over trials, where each that has no value, or did not end as completed, counts as extreme; where there is no extreme, such trials are left out.';

CREATE OR REPLACE MACRO trial_scores(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL) AS TABLE
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
    WHERE m.experiment = the_experiment AND only_metric IS NULL AND each IS NULL
    UNION ALL
    -- Without a plan: what was scored, whatever its name; where nothing was, whether runs ended.
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
    if(a.better = 'higher', least(0.0, min(f.value) OVER (PARTITION BY a.metric)), NULL) AS worst,
    CASE a.better WHEN 'higher' THEN least(0.0, min(f.value) OVER (PARTITION BY a.metric))
        WHEN 'lower' THEN if(bool_and(f.value IN (0, 1)) OVER (PARTITION BY a.metric), 1.0, max(f.value) OVER (PARTITION BY a.metric)) END AS worst_case,
    CASE a.better WHEN 'higher' THEN if(bool_and(f.value IN (0, 1)) OVER (PARTITION BY a.metric), 1.0, max(f.value) OVER (PARTITION BY a.metric))
        WHEN 'lower' THEN if(bool_and(f.value IN (0, 1)) OVER (PARTITION BY a.metric), 0.0, min(f.value) OVER (PARTITION BY a.metric)) END AS best_case
FROM sliced AS s
CROSS JOIN asked AS a
LEFT JOIN found AS f ON f.run = s.run AND f.metric = a.metric;
COMMENT ON MACRO TABLE trial_scores IS 'each, a list, asks for several metrics, each for itself as only_metric asks for one. A metric is what was judged (newest value; one that is not finite is none), or where no judge uses the name completion, success, cost, tokens, input_tokens, output_tokens, latency_ms or tool_error_rate as in trial_runs. Without a plan and only_metric it is each metric that was scored, or completion (whether the run ended as completed) where none was; named says whether there is a plan, only_metric or one metric alone. directions is a JSON object of metrics and directions (higher, lower) that no plan states; better is NULL where nobody states it, stated_by who does. One row a trial, metric and slice (empty: all of them; (none): runs without the label). worst is what a missing value counts as: 0, or the least value where that is below; NULL of a metric of which less is better, or whose direction nobody states, since a missing cost is no cost: such a trial is left out and counted. worst_case and best_case are what is assumed of a trial without an outcome where missing is worst-case: 0 and 1 of a metric that is 0 or 1, else the least value (at most 0) and the greatest one of any arm, the other way round where less is better (the least value as it is); NULL where no direction is stated. Where the plan''s cluster is a label that a run lacks, its task is a cluster of its own.';

CREATE OR REPLACE MACRO task_totals(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL) AS TABLE
SELECT
    s.slice, s.metric, s.arm, s.task, any_value(s.number) AS number, any_value(s.better) AS better,
    any_value(s.smallest) AS smallest, min(s.cluster) AS cluster, any_value(s.unit) AS unit,
    any_value(s.missing) AS missing, any_value(s.named) AS named, any_value(s.stated_by) AS stated_by, any_value(s.worst) AS worst,
    any_value(s.worst_case) AS worst_case, any_value(s.best_case) AS best_case, count(*) AS trials,
    count(s.value) AS valued, count(s.value) FILTER (s.ended) AS ended_valued,
    count(*) FILTER (NOT s.ended) AS unended, count(*) FILTER (NOT s.ended AND s.value IS NOT NULL) AS unended_valued,
    count(*) FILTER (s.ended AND s.value = 1) AS ended_successes,
    count(*) FILTER (s.value = 1) AS successes,
    bool_and(s.value IS NULL OR s.value IN (0, 1)) AS "binary",
    coalesce(fsum(s.value ORDER BY s.value), 0) AS total,
    coalesce(fsum(s.value ORDER BY s.value) FILTER (s.ended), 0) AS ended_total,
    min(s.first_position) AS first_position, list(s.run ORDER BY s.trial, s.run) AS runs
FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as, each := each) AS s
GROUP BY s.slice, s.metric, s.arm, s.task;
COMMENT ON MACRO TABLE task_totals IS 'One row a task of an arm: its trials, and the sum of their values (total) with how many have one (valued).';

CREATE OR REPLACE MACRO task_pairs(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL, all_pairs := false) AS TABLE
WITH tasks AS MATERIALIZED (
    SELECT t.* FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as, each := each) AS t
), based AS MATERIALIZED (
    SELECT a.arm, a.number
    FROM experiment_arms AS a
    WHERE a.experiment = the_experiment AND (all_pairs OR if(against IS NULL, a.number = 1, a.arm = against))
), sides AS (
    SELECT r.arm, b.arm AS baseline
    FROM (SELECT DISTINCT t.arm FROM tasks AS t) AS r
    JOIN experiment_arms AS a ON a.experiment = the_experiment AND a.arm = r.arm
    JOIN based AS b ON if(all_pairs, b.number < a.number, b.arm <> r.arm)
), met AS (
    SELECT
        coalesce(y.slice, x.slice) AS slice, coalesce(y.metric, x.metric) AS metric,
        coalesce(y.arm, x.arm) AS arm, coalesce(y.baseline, x.baseline) AS baseline,
        coalesce(y.task, x.task) AS task, coalesce(y.number, x.number) AS number,
        coalesce(y.better, x.better) AS better, coalesce(y.smallest, x.smallest) AS smallest,
        least(x.cluster, y.cluster) AS cluster, coalesce(y.unit, x.unit) = 'task' AS apart,
        coalesce(y.missing, x.missing) AS missing, coalesce(y.named, x.named) AS named,
        coalesce(y.stated_by, x.stated_by) AS stated_by, coalesce(x.worst, y.worst) AS worst,
        coalesce(x.worst_case, y.worst_case) AS worst_case, coalesce(x.best_case, y.best_case) AS best_case,
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
    ) AS y ON y.arm = x.arm AND y.baseline = x.baseline AND y.slice = x.slice AND y.metric = x.metric AND y.task = x.task
), fair AS (
    SELECT m.*, NOT m.apart AND bool_or(m.base_trials > 0) OVER beside AND bool_or(m.arm_trials > 0) OVER beside AS filled
    FROM met AS m
    WINDOW beside AS (PARTITION BY m.slice, m.metric, m.arm, m.baseline)
), scored AS (
    SELECT
        f.slice, f.metric, c.counting, f.* EXCLUDE (slice, metric, base_total, arm_total, base_ended_total, arm_ended_total, base_ended_valued,
            arm_ended_valued, worst_case, best_case, filled),
        if(c.counting = 'worst-case',
            coalesce(worst_case_of(f.base_ended_total, f.base_trials, f.base_ended_valued, f.best_case), if(f.filled, f.best_case, NULL)),
            coalesce(mean_of(c.counting, f.base_total, f.base_trials, f.base_valued, f.worst, f.base_ended_total, f.base_ended_valued),
                if(c.counting = 'failure' AND f.filled, f.worst, NULL))) AS base_score,
        if(c.counting = 'worst-case',
            coalesce(worst_case_of(f.arm_ended_total, f.arm_trials, f.arm_ended_valued, f.worst_case), if(f.filled, f.worst_case, NULL)),
            coalesce(mean_of(c.counting, f.arm_total, f.arm_trials, f.arm_valued, f.worst, f.arm_ended_total, f.arm_ended_valued),
                if(c.counting = 'failure' AND f.filled, f.worst, NULL))) AS arm_score
    FROM fair AS f
    JOIN (VALUES ('failure'), ('excluded'), ('worst-case')) AS c(counting) ON c.counting <> 'worst-case' OR f.missing = 'worst-case'
)
SELECT s.*, s.arm_score - s.base_score AS difference
FROM scored AS s;
COMMENT ON MACRO TABLE task_pairs IS 'One row a task of an arm beside the baseline, and way of counting. Counted as failure, a task that one arm does not have has the worst score there, unless that arm has none of the slice at all; apart is true where the unit is the task, so that no task is in two arms. Where the plan or counted_as says worst-case, there is a third way, by it: a trial without a value, one that did not end as completed (though it was scored) and a task that one arm does not have count as the worst case under the arm and as the best case under the baseline, which is the worst that could have been hidden from the arm (Hollis and Campbell 1999; the worst-best case of trials). With all_pairs, each arm stands beside each one that the plan names before it. Empty where the baseline is no arm of the experiment.';

CREATE OR REPLACE MACRO comparisons(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, at_alpha := NULL, at_power := 0.8, directions := NULL, counted_as := NULL, each := NULL, all_pairs := false) AS TABLE
WITH pairs AS MATERIALIZED (
    SELECT p.slice, p.metric, p.counting, p.arm, p.baseline, p.task, p.number, p.better, p.smallest,
        p.cluster, p.apart, p.missing, p.named, p.stated_by, p.matched, p.base_trials, p.arm_trials, p.base_valued,
        p.arm_valued, p.base_unended, p.arm_unended, p.base_unended_valued, p.arm_unended_valued,
        p."binary", p.base_score, p.arm_score, p.difference,
        if(p.apart, p.arm_score IS NOT NULL OR p.base_score IS NOT NULL, p.difference IS NOT NULL) AS used
    FROM task_pairs(the_experiment, only_metric := only_metric, against := against, by_label := by_label, directions := directions, counted_as := counted_as, each := each, all_pairs := all_pairs) AS p
), facts AS MATERIALIZED (
    SELECT
        p.slice, p.metric, p.counting, p.arm, p.baseline,
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
    GROUP BY p.slice, p.metric, p.counting, p.arm, p.baseline
), errors AS (
    SELECT
        c.slice, c.metric, c.counting, c.arm, c.baseline, count(*) AS clusters,
        sqrt(fsum(c.part * c.part ORDER BY c.cluster) * count(*) / nullif(count(*) - 1, 0)) AS se
    FROM (
        SELECT
            p.slice, p.metric, p.counting, p.arm, p.baseline, p.cluster,
            fsum(if(f.apart,
                coalesce((p.arm_score - f.arm_mean) / f.arm_tasks, 0)
                    - coalesce((p.base_score - f.base_mean) / f.base_tasks, 0),
                (p.difference - f.mean_difference) / f.tasks) ORDER BY p.task) AS part
        FROM pairs AS p
        JOIN facts AS f USING (slice, metric, counting, arm, baseline)
        WHERE p.used
        GROUP BY p.slice, p.metric, p.counting, p.arm, p.baseline, p.cluster
    ) AS c
    GROUP BY c.slice, c.metric, c.counting, c.arm, c.baseline
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
    LEFT JOIN errors AS e USING (slice, metric, counting, arm, baseline)
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
        row_number() OVER (PARTITION BY t.counting, t.slice = '', if(each IS NULL, NULL, t.metric) ORDER BY if(t.stop = 'sequential', t.always_p, t.fixed_p) NULLS LAST, t.slice, t.number, t.metric, t.arm, t.baseline) AS place,
        count(if(t.stop = 'sequential', t.always_p, t.fixed_p)) OVER (PARTITION BY t.counting, t.slice = '', if(each IS NULL, NULL, t.metric)) AS family
    FROM watched AS t
), adjusted AS (
    SELECT
        r.*,
        if(r.p IS NULL, NULL, max(least(1.0, r.p * (r.family - r.place + 1))) OVER (PARTITION BY r.counting, r.slice = '', if(each IS NULL, NULL, r.metric) ORDER BY r.place)) AS holm_p,
        if(r.p IS NULL, NULL, min(least(1.0, r.p * r.family / r.place)) OVER (PARTITION BY r.counting, r.slice = '', if(each IS NULL, NULL, r.metric) ORDER BY r.place DESC)) AS bh_p
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
COMMENT ON MACRO TABLE comparisons IS 'With each, every metric is a family of its own. With all_pairs, each arm stands beside each one that the plan names before it, all in one family. One row an arm beside the baseline, by metric, slice and way of counting missing values; "default" marks the plan''s way. difference is the mean over tasks of arm less baseline; se is clustered (Miller 2024, with G / (G - 1)), the interval low..high is Student''s with clusters - 1 degrees of freedom (two samples: - 2); always_low..always_high may be looked at at any time (the normal mixture''s at the normal score of t; as simulated it holds from five clusters on, and is NULL below: see tests/statistics). Holm''s and Benjamini and Hochberg''s p are over all rows of one way of counting, of the whole and of all slices each for itself; the verdict is by Holm''s at alpha, of the always-valid p where the plan is sequential. mcnemar_p is that of the exact sign test of tasks won and lost, which is McNemar''s where each task was tried once (single). The verdict is better, worse or cannot tell; no metric named where several were scored and neither a plan nor only_metric names one; direction not stated where nobody says which is the good one (above and below count the tasks). A difference without any spread is judged by that test.';

CREATE OR REPLACE MACRO arm_summary(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05, directions := NULL, counted_as := NULL, each := NULL, against := NULL) AS TABLE
WITH based AS (
    SELECT a.arm
    FROM experiment_arms AS a
    WHERE a.experiment = the_experiment AND if(against IS NULL, a.number = 1, a.arm = against)
), scores AS MATERIALIZED (
    SELECT s.*, coalesce(if(s.ended, s.value, NULL), if(b.arm IS NULL, s.worst_case, s.best_case)) AS assumed
    FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as, each := each) AS s
    LEFT JOIN based AS b ON b.arm = s.arm
), tasks AS MATERIALIZED (
    SELECT
        s.slice, s.metric, s.arm, s.task, min(s.cluster) AS cluster, count(*) AS trials,
        if(any_value(s.missing) = 'worst-case', fsum(s.assumed ORDER BY s.assumed) / nullif(count(s.assumed), 0),
            mean_of(any_value(s.missing), coalesce(fsum(s.value ORDER BY s.value), 0), count(*), count(s.value), any_value(s.worst),
            fsum(s.value ORDER BY s.value) FILTER (s.ended), count(s.value) FILTER (s.ended))) AS score
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
        count(*) FILTER (if(missing = 'worst-case', assumed, if(missing = 'failure' OR ended, value, NULL)) = 1) AS successes,
        bool_and(value IS NULL OR value IN (0, 1)) AS "binary",
        count(CASE missing WHEN 'failure' THEN coalesce(value, worst) WHEN 'worst-case' THEN assumed ELSE if(ended, value, NULL) END) AS counted,
        min(value) AS value_min, max(value) AS value_max,
        quantile_cont(value, [0.5, 0.95, 0.99]) AS quantiles, fsum(value ORDER BY value) AS total
    FROM scores
    GROUP BY slice, metric, arm
), critical AS MATERIALIZED (
    SELECT d.df, t_quantile(1 - at_alpha / 2, d.df) AS t
    FROM (SELECT DISTINCT clusters - 1 AS df FROM errors WHERE clusters > 1) AS d
), joined AS (
    SELECT s.*, bool_and(s."binary") OVER (PARTITION BY s.metric) OR min(s.value_min) OVER (PARTITION BY s.metric) = max(s.value_max) OVER (PARTITION BY s.metric) AS flat,
        m.tasks, m.mean, e.se, e.clusters, if(e.se > 0, c.t * e.se, NULL) AS half,
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
    if(s.flat, NULL, s.quantiles[1]) AS p50, if(s.flat, NULL, s.quantiles[2]) AS p95, if(s.flat, NULL, s.quantiles[3]) AS p99, s.total, s.number, s.stated_by, s.named
FROM joined AS s;
COMMENT ON MACRO TABLE arm_summary IS 'One row an arm, metric and slice: trials, those without a value, the mean over tasks with its clustered standard error and interval, quantiles over trials (none of a metric that is 0 or 1, or everywhere the same), and where each task has one trial and its own cluster Wilson''s interval of the share of successes. against names the baseline, which counts as the best case where missing is worst-case.';

CREATE OR REPLACE MACRO pass_curves(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05, directions := NULL, counted_as := NULL, against := NULL) AS TABLE
WITH based AS (
    SELECT a.arm
    FROM experiment_arms AS a
    WHERE a.experiment = the_experiment AND if(against IS NULL, a.number = 1, a.arm = against)
), tasks AS MATERIALIZED (
    SELECT t.slice, t.metric, t.arm, t.task, t.cluster,
        CASE t.missing WHEN 'failure' THEN t.successes WHEN 'worst-case' THEN
            (t.ended_successes + coalesce((t.trials - t.ended_valued) * if(b.arm IS NULL, t.worst_case, t.best_case), 0))::BIGINT
            ELSE t.ended_successes END AS successes,
        if(t.missing = 'failure' OR (t.missing = 'worst-case' AND t.worst_case IS NOT NULL), t.trials, t.ended_valued) AS n, t."binary"
    FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS t
    LEFT JOIN based AS b ON b.arm = t.arm
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

CREATE MACRO ranking(the_experiment, only_metric := NULL, at_alpha := NULL, directions := NULL, counted_as := NULL) AS TABLE
WITH pairs AS MATERIALIZED (
    SELECT c.metric, c.number, c.arm, c.baseline, c.verdict, c.family, c.alpha
    FROM comparisons(the_experiment, only_metric := only_metric, at_alpha := at_alpha, directions := directions, counted_as := counted_as, all_pairs := true) AS c
    WHERE c."default" AND c.verdict IN ('better', 'worse', 'cannot tell')
), sides AS (
    SELECT p.metric, p.arm, p.baseline AS other, p.verdict, p.family, p.alpha FROM pairs AS p
    UNION ALL
    SELECT p.metric, p.baseline, p.arm, CASE p.verdict WHEN 'better' THEN 'worse' WHEN 'worse' THEN 'better' ELSE p.verdict END,
        p.family, p.alpha
    FROM pairs AS p
)
SELECT
    s.metric, s.arm, 1 + count(*) FILTER (s.verdict = 'worse') AS rank_low,
    1 + count(*) - count(*) FILTER (s.verdict = 'better') AS rank_high,
    coalesce(list(s.other ORDER BY s.other) FILTER (s.verdict = 'cannot tell'), []) AS alike,
    any_value(s.family) AS family, any_value(s.alpha) AS alpha
FROM sides AS s
GROUP BY s.metric, s.arm;
COMMENT ON MACRO TABLE ranking IS 'One row an arm, of metrics that have a verdict: the ranks it can have (1 is the best), and the arms that it cannot be told apart from (alike). rank_low is one more than the arms that are better by Holm''s correction over all pairs (family), rank_high the number of arms less those that are worse: by it all ranks hold together with probability 1 - alpha (Mogstad, Romano, Shaikh and Wilhelm 2024, Inference for ranks).';
