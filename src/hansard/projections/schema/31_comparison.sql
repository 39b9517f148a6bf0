-- Arms of an experiment, compared by task. Every number of a report is computed here. Floats are summed
-- in the order of the values, so that sums do not depend on row order or threads.

CREATE MACRO task_pairs(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL, all_pairs := false) AS TABLE
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
        least(x.cluster, y.cluster) AS cluster, coalesce(y.unit, x.unit) AS unit,
        coalesce(y.missing, x.missing) AS missing, coalesce(y.named, x.named) AS named,
        coalesce(y.stated_by, x.stated_by) AS stated_by, coalesce(x.worst, y.worst) AS worst,
        coalesce(x.worst_case, y.worst_case) AS worst_case, coalesce(x.best_case, y.best_case) AS best_case,
        x.task IS NOT NULL AND y.task IS NOT NULL AS matched,
        coalesce(x.trials, 0) AS base_trials, coalesce(y.trials, 0) AS arm_trials,
        coalesce(x.pending, 0) AS base_pending, coalesce(y.pending, 0) AS arm_pending,
        coalesce(x.open, 0) AS base_open, coalesce(y.open, 0) AS arm_open,
        coalesce(x.power, y.power) AS power, x.scale AS base_scale, y.scale AS arm_scale,
        coalesce(x.impossible, y.impossible) AS impossible,
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
), hashed AS (
    -- The hash assigned all runs of such a task to one arm: it is no failure of the other arm.
    SELECT r.arm, r.task
    FROM assigned_runs AS r
    LEFT JOIN (
        SELECT n.run, arg_max(n.chosen, n.version) AS chosen FROM assignments AS n GROUP BY n.run
    ) AS a ON a.run = r.run
    WHERE r.experiment = the_experiment
    GROUP BY r.arm, r.task
    HAVING bool_and(a.chosen IS NOT DISTINCT FROM 'hash')
), stated AS (
    -- Only a plan states the number of tasks; if there are more, it does not state which.
    SELECT e.planned >= count(DISTINCT r.task) AS planned
    FROM experiments AS e
    JOIN assigned_runs AS r ON r.experiment = e.experiment
    WHERE e.experiment = the_experiment
    GROUP BY e.planned
), placed AS (
    SELECT m.*, h.task IS NOT NULL AS by_hash,
        bool_or(m.base_trials > 0) OVER beside AND bool_or(m.arm_trials > 0) OVER beside AS both_there,
        count(*) FILTER (m.matched) OVER beside AS shared,
        count(*) FILTER (NOT m.matched AND h.task IS NOT NULL) OVER beside AS parted
    FROM met AS m
    LEFT JOIN hashed AS h ON h.task = m.task AND h.arm = if(m.arm_trials > 0, m.arm, m.baseline)
    WINDOW beside AS (PARTITION BY m.slice, m.metric, m.arm, m.baseline)
), fair AS (
    SELECT q.*, NOT q.matched AND NOT q.apart AND q.both_there AND NOT q.by_hash AND q.metric <> 'completion' AS fillable
    FROM (
        SELECT p.*, p.both_there AND (p.metric = 'completion' OR p.shared = 0 OR (p.unit = 'task' AND p.parted > p.shared)) AS apart
        FROM placed AS p
    ) AS q
), counted AS (
    SELECT f.* EXCLUDE (fillable, by_hash, both_there, shared, parted, unit), c.counting,
        f.fillable AND (c.counting = 'worst-case' OR (c.counting = 'failure' AND f.worst IS NOT NULL AND coalesce((SELECT planned FROM stated), false))) AS filled
    FROM fair AS f
    JOIN (VALUES ('failure'), ('excluded'), ('worst-case')) AS c(counting) ON c.counting <> 'worst-case' OR f.missing = 'worst-case'
), scored AS (
    SELECT
        f.* EXCLUDE (base_total, arm_total, base_ended_total, arm_ended_total, base_ended_valued, arm_ended_valued, worst_case, best_case),
        coalesce(f.power * if(f.counting = 'worst-case',
            worst_case_of(f.base_ended_total, f.base_trials, f.base_ended_valued, f.best_case / f.power),
            mean_of(f.counting, f.base_total, f.base_trials - f.base_pending, f.base_valued, f.worst / f.power, f.base_ended_total, f.base_ended_valued)),
            if(f.filled, if(f.counting = 'worst-case', f.best_case, f.worst), NULL)) AS base_score,
        coalesce(f.power * if(f.counting = 'worst-case',
            worst_case_of(f.arm_ended_total, f.arm_trials, f.arm_ended_valued, f.worst_case / f.power),
            mean_of(f.counting, f.arm_total, f.arm_trials - f.arm_pending, f.arm_valued, f.worst / f.power, f.arm_ended_total, f.arm_ended_valued)),
            if(f.filled, if(f.counting = 'worst-case', f.worst_case, f.worst), NULL)) AS arm_score
    FROM counted AS f
)
SELECT s.*, s.arm_score - s.base_score AS difference
FROM scored AS s;
COMMENT ON MACRO TABLE task_pairs IS 'Helper of `comparisons`: one row per task of an arm beside the baseline, and counting. A task in one arm only is unmatched; with a planned number of tasks it counts as a failure under the other arm, except for slices that arm lacks, tasks the hash gave away, and completion. apart marks two samples: no shared task, or the hash gave more tasks to one arm than both share. worst-case: unended or missing trials count as worst under the arm and best under the baseline (Hollis and Campbell 1999).';

CREATE MACRO comparisons(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, at_alpha := NULL, at_power := 0.8, directions := NULL, counted_as := NULL, each := NULL, all_pairs := false) AS TABLE
WITH pairs AS MATERIALIZED (
    SELECT p.* EXCLUDE (base_score, arm_score, difference),
        p.base_score / p.power AS base_score, p.arm_score / p.power AS arm_score,
        if(p.apart, NULL, p.arm_score / p.power - p.base_score / p.power) AS difference,
        -- Completion is a share of runs; in all other metrics each task has the same weight.
        if(p.metric = 'completion', p.base_valued, 1) AS base_weight, if(p.metric = 'completion', p.arm_valued, 1) AS arm_weight,
        if(p.apart, p.arm_score IS NOT NULL OR p.base_score IS NOT NULL, p.arm_score IS NOT NULL AND p.base_score IS NOT NULL) AS used
    FROM task_pairs(the_experiment, only_metric := only_metric, against := against, by_label := by_label, directions := directions, counted_as := counted_as, each := each, all_pairs := all_pairs) AS p
), levels AS MATERIALIZED (
    -- Subtracted before the means of two samples are computed, to avoid cancellation.
    SELECT p.slice, p.metric, p.counting, p.arm, p.baseline, coalesce(least(min(p.arm_score), min(p.base_score)), 0) AS level
    FROM pairs AS p
    GROUP BY p.slice, p.metric, p.counting, p.arm, p.baseline
), facts AS MATERIALIZED (
    SELECT
        p.slice, p.metric, p.counting, p.arm, p.baseline,
        any_value(p.number) AS number, any_value(p.better) AS better,
        any_value(p.smallest) AS smallest, bool_or(p.apart) AS apart,
        any_value(p.missing) AS missing, any_value(p.named) AS named,
        any_value(p.stated_by) AS stated_by, bool_and(p."binary") AS "binary",
        any_value(p.power) AS power, any_value(p.impossible) AS impossible,
        any_value(p.base_scale) AS base_scale, any_value(p.arm_scale) AS arm_scale,
        sum(p.base_trials)::BIGINT AS base_trials, sum(p.arm_trials)::BIGINT AS arm_trials,
        sum(p.base_trials - p.base_pending - p.base_valued)::BIGINT AS base_missing,
        sum(p.arm_trials - p.arm_pending - p.arm_valued)::BIGINT AS arm_missing,
        sum(p.base_open)::BIGINT AS base_open, sum(p.arm_open)::BIGINT AS arm_open,
        sum(p.base_unended)::BIGINT AS base_unended, sum(p.arm_unended)::BIGINT AS arm_unended,
        sum(p.base_unended_valued + p.arm_unended_valued)::BIGINT AS unended_valued,
        sum(p.base_unended_valued + p.arm_unended_valued) FILTER (p.matched OR p.apart OR p.filled) AS crashes,
        sum(p.base_trials + p.arm_trials - p.base_pending - p.arm_pending - p.base_valued - p.arm_valued) FILTER (p.matched OR p.apart OR p.filled) AS lacking,
        bool_and(p.base_trials = 1 AND p.arm_trials = 1) FILTER (p.used) AS single,
        count(*) FILTER (NOT p.matched AND NOT p.apart) AS unmatched, count(*) FILTER (p.matched AND NOT p.used) AS valueless, count(*) FILTER (p.filled) AS filled,
        count(*) FILTER (p.used) AS tasks,
        fsum(p.arm_weight) FILTER (p.used AND p.arm_score IS NOT NULL) AS arm_weight,
        fsum(p.base_weight) FILTER (p.used AND p.base_score IS NOT NULL) AS base_weight,
        fsum(p.arm_weight * p.arm_score ORDER BY p.arm_score) FILTER (p.used) / nullif(fsum(p.arm_weight) FILTER (p.used AND p.arm_score IS NOT NULL), 0) AS arm_mean,
        fsum(p.base_weight * p.base_score ORDER BY p.base_score) FILTER (p.used) / nullif(fsum(p.base_weight) FILTER (p.used AND p.base_score IS NOT NULL), 0) AS base_mean,
        fsum(p.arm_weight * (p.arm_score - l.level) ORDER BY p.arm_score) FILTER (p.used) / nullif(fsum(p.arm_weight) FILTER (p.used AND p.arm_score IS NOT NULL), 0) AS arm_above,
        fsum(p.base_weight * (p.base_score - l.level) ORDER BY p.base_score) FILTER (p.used) / nullif(fsum(p.base_weight) FILTER (p.used AND p.base_score IS NOT NULL), 0) AS base_above,
        fsum(p.difference ORDER BY p.difference) FILTER (p.used) / nullif(count(p.difference) FILTER (p.used), 0) AS mean_difference,
        any_value(l.level) AS level,
        -- Whole numbers are exact; others have an error of some units of their last digit.
        if(bool_and(coalesce(p.arm_score * p.power = round(p.arm_score * p.power) AND p.base_score * p.power = round(p.base_score * p.power), false)) FILTER (p.used)
            AND max(greatest(abs(p.arm_score), abs(p.base_score)) * p.power) FILTER (p.used) < 9e15,
            0, 1.4e-15 * max(greatest(abs(p.arm_score), abs(p.base_score))) FILTER (p.used)) AS blur,
        max(p.difference) FILTER (p.used) - min(p.difference) FILTER (p.used) AS span,
        max(p.arm_score) FILTER (p.used) - min(p.arm_score) FILTER (p.used) AS arm_span,
        max(p.base_score) FILTER (p.used) - min(p.base_score) FILTER (p.used) AS base_span,
        count(*) FILTER (p.used AND p.difference > 0) AS above,
        count(*) FILTER (p.used AND p.difference = 0) AS ties,
        count(*) FILTER (p.used AND p.difference < 0) AS below
    FROM pairs AS p
    JOIN levels AS l USING (slice, metric, counting, arm, baseline)
    GROUP BY p.slice, p.metric, p.counting, p.arm, p.baseline
), parts AS (
    SELECT
        p.slice, p.metric, p.counting, p.arm, p.baseline, p.cluster,
        NOT f.apart OR count(p.arm_score) > 0 AS of_arm, f.apart AND count(p.base_score) > 0 AS of_base,
        fsum(if(f.apart, coalesce((p.arm_score - f.level - f.arm_above) * p.arm_weight / f.arm_weight, 0),
            (p.difference - f.mean_difference) / f.tasks) ORDER BY p.task) AS arm_part,
        fsum(coalesce((p.base_score - f.level - f.base_above) * p.base_weight / f.base_weight, 0) ORDER BY p.task) AS base_part
    FROM pairs AS p
    JOIN facts AS f USING (slice, metric, counting, arm, baseline)
    WHERE p.used
    GROUP BY p.slice, p.metric, p.counting, p.arm, p.baseline, f.apart, p.cluster
), squares AS (
    SELECT
        c.slice, c.metric, c.counting, c.arm, c.baseline, count(*) AS clusters,
        any_value(c.arm_clusters) AS arm_clusters, any_value(c.base_clusters) AS base_clusters,
        count(*) FILTER (c.of_arm AND c.of_base) AS shared,
        coalesce(fsum(c.arm_part * c.arm_part ORDER BY c.cluster) FILTER (NOT c.of_base), 0)
            * any_value(c.arm_clusters) / nullif(any_value(c.arm_clusters) - 1, 0) AS arm_square,
        coalesce(fsum(c.base_part * c.base_part ORDER BY c.cluster) FILTER (NOT c.of_arm), 0)
            * any_value(c.base_clusters) / nullif(any_value(c.base_clusters) - 1, 0) AS base_square,
        coalesce(fsum(pow(c.arm_part * sqrt(c.arm_clusters / nullif(c.arm_clusters - 1, 0))
            - c.base_part * sqrt(c.base_clusters / nullif(c.base_clusters - 1, 0)), 2) ORDER BY c.cluster)
            FILTER (c.of_arm AND c.of_base), 0) AS both_square
    FROM (
        SELECT g.*, count(*) FILTER (g.of_arm) OVER beside AS arm_clusters, count(*) FILTER (g.of_base) OVER beside AS base_clusters
        FROM parts AS g
        WINDOW beside AS (PARTITION BY g.slice, g.metric, g.counting, g.arm, g.baseline)
    ) AS c
    GROUP BY c.slice, c.metric, c.counting, c.arm, c.baseline
), known AS (
    -- Flat: no spread beyond the last digits. Blurred: some, of which these digits are a tenth or more.
    SELECT s.*, f.apart,
        if(f.apart, f.arm_span, f.span) <= f.blur AND s.arm_clusters > 1 AS arm_still,
        NOT f.apart OR (f.base_span <= f.blur AND s.base_clusters > 1) AS base_still,
        CASE WHEN f.apart THEN greatest(f.arm_span, f.base_span) > f.blur AND greatest(f.arm_span, f.base_span) <= 10 * f.blur
            ELSE f.span > f.blur AND f.span <= 10 * f.blur END AS blurred
    FROM squares AS s
    JOIN facts AS f USING (slice, metric, counting, arm, baseline)
), lent AS (
    -- A few zeros do not prove that an arm has no spread: the other arm's is used then.
    SELECT
        q.* REPLACE (
            if(q.arm_flat, q.base_square * q.base_clusters / q.arm_clusters, q.arm_square) AS arm_square,
            if(q.base_flat, q.arm_square * q.arm_clusters / q.base_clusters, q.base_square) AS base_square)
    FROM (
        SELECT k.*, k.apart AND k.shared = 0 AND k.arm_still AND NOT k.base_still AS arm_flat,
            k.apart AND k.shared = 0 AND k.base_still AND NOT k.arm_still AS base_flat
        FROM known AS k
    ) AS q
), errors AS (
    SELECT
        l.* EXCLUDE (arm_still, base_still),
        if(l.apart, least(l.arm_clusters, l.base_clusters), l.clusters) AS fewest,
        if(l.arm_still AND l.base_still, 0, sqrt(if(l.apart, l.arm_square + l.base_square + l.both_square, l.arm_square))) AS se
    FROM lent AS l
), freed AS (
    -- Welch (1947), Satterthwaite (1946): over the clusters of one arm, of the other and of both.
    SELECT
        e.* EXCLUDE (apart),
        CASE
            WHEN NOT e.apart THEN e.clusters - 1
            WHEN e.fewest < 3 OR NOT e.se > 0 THEN e.fewest - 1
            WHEN e.arm_flat THEN e.base_clusters - 1
            WHEN e.base_flat THEN e.arm_clusters - 1
            ELSE greatest(1, 1 / (coalesce(pow(e.arm_square / pow(e.se, 2), 2) / nullif((e.arm_clusters - e.shared) * (1 - 1 / e.arm_clusters), 0), 0)
                + coalesce(pow(e.base_square / pow(e.se, 2), 2) / nullif((e.base_clusters - e.shared) * (1 - 1 / e.base_clusters), 0), 0)
                + coalesce(pow(e.both_square / pow(e.se, 2), 2) / nullif(e.shared * (1 - 1 / e.fewest), 0), 0)))
        END::DOUBLE AS df
    FROM errors AS e
), estimated AS MATERIALIZED (
    SELECT
        f.*, e.clusters, e.fewest, e.df, e.shared, coalesce(e.blurred, false) OR NOT isfinite(
            if(f.apart, f.arm_above - f.base_above, f.mean_difference) * f.power) AS beyond,
        if(f.apart, f.arm_above - f.base_above, f.mean_difference) AS difference,
        if(e.blurred, NULL, e.se) AS se,
        -- For a difference without spread: a fair coin per cluster, or all assignments of clusters to arms.
        CASE
            WHEN NOT f.apart OR e.shared = e.clusters THEN binomial_p(0, e.clusters)
            WHEN e.shared = 0 THEN least(1, 2 * exp(lgamma(e.arm_clusters + 1) + lgamma(e.base_clusters + 1) - lgamma(e.clusters + 1)))
        END AS spreadless_p,
        if(f.apart OR e.clusters < f.tasks, NULL, binomial_p(least(f.above, f.below), f.above + f.below)) AS sign_p,
        coalesce(at_alpha, x.alpha, 0.05) AS alpha, coalesce(x.stop, 'fixed') AS stop,
        always_valid_rho2(coalesce(at_alpha, x.alpha, 0.05), coalesce(x.planned, 100)) AS rho2
    FROM facts AS f
    LEFT JOIN freed AS e USING (slice, metric, counting, arm, baseline)
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
            WHEN e.df IS NULL OR e.df < 1 OR e.difference IS NULL OR e.beyond THEN NULL
            WHEN e.se > 0 THEN t_p(e.difference / e.se, e.df)
            WHEN abs(e.difference) <= e.blur THEN 1.0
            ELSE e.spreadless_p
        END AS fixed_p,
        if(e.se > 0 AND e.fewest > 4, c.t_always * e.se, NULL) AS always_half
    FROM estimated AS e
    LEFT JOIN critical AS c ON c.df = e.df AND c.tasks = e.tasks
), watched AS (
    SELECT
        t.*,
        CASE
            WHEN t.fewest IS NULL OR t.fewest < 5 OR t.df <= 3 OR t.fixed_p IS NULL THEN NULL
            WHEN t.se > 0 THEN always_valid_p(-normal_quantile(t.fixed_p / 2), 1, t.tasks, t.rho2)
            ELSE 1.0
        END AS always_p
    FROM tested AS t
), ranked AS (
    SELECT
        t.*, if(t.stop = 'sequential', t.always_p, t.fixed_p) AS p,
        row_number() OVER (PARTITION BY t.counting, t.slice = '', if(each IS NULL, NULL, t.metric) ORDER BY if(t.stop = 'sequential', t.always_p, t.fixed_p) NULLS LAST, t.slice, t.number, t.metric, t.arm, t.baseline) AS place,
        -- The exact tests in place of the t tests, in the same family.
        coalesce(t.sign_p, t.fixed_p) AS exact_p,
        row_number() OVER (PARTITION BY t.counting, t.slice = '', if(each IS NULL, NULL, t.metric) ORDER BY coalesce(t.sign_p, t.fixed_p) NULLS LAST, t.slice, t.number, t.metric, t.arm, t.baseline) AS exact_place,
        count(coalesce(t.sign_p, t.fixed_p)) OVER (PARTITION BY t.counting, t.slice = '', if(each IS NULL, NULL, t.metric)) AS exact_family,
        count(if(t.stop = 'sequential', t.always_p, t.fixed_p)) OVER (PARTITION BY t.counting, t.slice = '', if(each IS NULL, NULL, t.metric)) AS family
    FROM watched AS t
), adjusted AS (
    SELECT
        r.*,
        if(r.p IS NULL, NULL, max(least(1.0, r.p * (r.family - r.place + 1))) OVER (PARTITION BY r.counting, r.slice = '', if(each IS NULL, NULL, r.metric) ORDER BY r.place)) AS holm_p,
        if(r.sign_p IS NULL, NULL, max(least(1.0, r.exact_p * (r.exact_family - r.exact_place + 1))) OVER (PARTITION BY r.counting, r.slice = '', if(each IS NULL, NULL, r.metric) ORDER BY r.exact_place)) AS exact_holm_p,
        if(r.p IS NULL, NULL, min(least(1.0, r.p * r.family / r.place)) OVER (PARTITION BY r.counting, r.slice = '', if(each IS NULL, NULL, r.metric) ORDER BY r.place DESC)) AS bh_p
    FROM ranked AS r
), judged AS (
    SELECT
        a.*, a.arm_scale <> a.base_scale AS mixed,
        CASE
            WHEN NOT a.named OR a.better IS NULL THEN NULL
            WHEN coalesce(a.holm_p, 1) > a.alpha THEN 'cannot tell'
            WHEN (a.difference > 0) = (a.better = 'higher') THEN 'better'
            ELSE 'worse'
        END AS counted_verdict
    FROM adjusted AS a
), settled AS (
    SELECT
        j.*, min(j.counted_verdict) OVER ways <> max(j.counted_verdict) OVER ways AS turns,
        max(j.filled) OVER ways AS ever_filled, bool_or(j.beyond) OVER ways AS ever_beyond
    FROM judged AS j
    WINDOW ways AS (PARTITION BY j.slice, j.metric, j.arm, j.baseline)
)
SELECT
    a.slice, a.metric, a.better, a.arm, a.baseline, a.counting, a.counting = a.missing AS "default",
    CASE
        WHEN NOT a.named THEN 'no metric named'
        WHEN a.impossible IS NOT NULL THEN 'impossible values'
        WHEN a.mixed THEN 'different scales'
        WHEN a.better IS NULL THEN 'direction not stated'
        WHEN a.beyond THEN 'cannot be computed'
        WHEN a.base_open + a.arm_open > 0 THEN 'not finished'
        WHEN a.turns THEN concat('depends on ', coalesce(nullif(array_to_string(list_filter([
            if(a.crashes > 0, 'crashes', NULL), if(a.lacking > 0, 'missing values', NULL),
            if(a.ever_filled > 0, 'missing tasks', NULL)], lambda w: w IS NOT NULL), ' and '), ''), 'missing values'))
        ELSE a.counted_verdict
    END AS verdict,
    finite(a.base_mean * a.power) AS base_mean, finite(a.arm_mean * a.power) AS arm_mean,
    finite(a.difference * a.power) AS difference, finite(a.se * a.power) AS se, a.df,
    finite((a.difference - a.half) * a.power) AS low, finite((a.difference + a.half) * a.power) AS high,
    finite((a.difference - a.always_half) * a.power) AS always_low, finite((a.difference + a.always_half) * a.power) AS always_high,
    a.fixed_p AS p, a.always_p, a.holm_p, a.bh_p, a.alpha, a.stop, a.family,
    CASE WHEN NOT a.apart THEN 'paired by task' WHEN a.metric = 'completion' THEN 'shares of runs' ELSE 'two samples' END AS design,
    a.tasks, a.clusters, a.base_trials,
    a.arm_trials, a.base_missing, a.arm_missing, a.unmatched, a.valueless,
    CASE a.better WHEN 'higher' THEN a.above WHEN 'lower' THEN a.below END AS wins, a.ties,
    CASE a.better WHEN 'higher' THEN a.below WHEN 'lower' THEN a.above END AS losses, a.sign_p AS mcnemar_p, a."binary",
    if(a.se > 0, finite((a.t_alpha + a.t_power) * a.se * a.power), NULL) AS detectable,
    a.smallest,
    if(a.se > 0 AND a.smallest > 0, TRY_CAST(ceil(pow(a.z * a.se / (a.smallest / a.power), 2) * a.tasks) AS BIGINT), NULL) AS tasks_required,
    a.smallest IS NULL OR ((a.difference - a.half) * a.power >= a.smallest OR (a.difference + a.half) * a.power <= -a.smallest) AS matters,
    a.number, a.stated_by, a.above, a.below, a.base_unended, a.arm_unended, a.unended_valued,
    coalesce(a."binary" AND NOT a.apart AND a.single, false) AS single,
    a.counted_verdict,
    CASE
        WHEN a.p IS NULL THEN NULL
        WHEN a.stop = 'sequential' THEN 'always-valid normal mixture'
        WHEN a.se > 0 AND NOT a.apart THEN if(a.clusters < a.tasks, 'paired t test, clustered', 'paired t test')
        WHEN a.se > 0 THEN if(a.shared > 0 OR a.clusters < a.tasks, 'Welch''s t test, clustered', 'Welch''s t test')
        WHEN abs(a.difference) <= a.blur THEN 'none: no task differs'
        WHEN NOT a.apart OR a.shared = a.clusters THEN if(a.clusters < a.tasks, 'exact sign test of clusters', 'exact sign test')
        ELSE 'exact permutation test'
    END AS test,
    a.stop <> 'sequential' AND (a.holm_p <= a.alpha) <> (a.exact_holm_p <= a.alpha) AS tests_disagree,
    a.exact_holm_p AS mcnemar_holm_p,
    a.base_open, a.arm_open, a.filled,
    CASE WHEN a.impossible IS NOT NULL THEN a.impossible
        WHEN a.mixed THEN concat(if(a.arm_scale = 'share', a.arm, a.baseline), ' is a share, from 0 to 1, ',
            if(a.arm_scale = 'share', a.baseline, a.arm), ' a percentage, from 0 to 100')
        WHEN a.beyond THEN 'its values are too large, or too close to each other, for double precision' END AS problem
FROM settled AS a;
COMMENT ON MACRO TABLE comparisons IS 'One row per arm beside the baseline, by metric, slice and counting of missing values; "default" marks the plan''s counting. `each`: every metric is its own family; `all_pairs`: each arm beside each planned before it, one family. difference is the mean over tasks of arm minus baseline; se is clustered (Miller 2024); low..high is Student''s interval with clusters - 1 degrees of freedom. Two samples: se from both arms'' clusters, df by Welch and Satterthwaite (1946) or the smaller arm''s clusters - 1 if fewer than 3; no se under two clusters. Completion: shares of runs, as two samples with tasks as clusters. always_low..always_high holds at any time (normal mixture; NULL under five clusters). holm_p and bh_p (Benjamini-Hochberg) are over all rows of one counting, the whole and all slices separately. counted_verdict: better, worse or cannot tell, by holm_p at alpha (sequential plans: always_p). verdict is the same unless, in order: no metric named; impossible values; different scales (share, percentage); direction not stated; cannot be computed; not finished (open runs); depends on crashes, missing values or missing tasks (countings disagree). mcnemar_p is the exact sign test of tasks won and lost (NULL for two samples or clustered tasks); mcnemar_holm_p: after Holm''s correction; tests_disagree: it and holm_p are on two sides of alpha (fixed plans). unmatched: tasks only one arm has; valueless: tasks of both left out, without a value under one; filled: those counted as missing. Without spread, p is of the exact sign test of clusters, or permutation test of two samples.';

CREATE MACRO arm_summary(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05, directions := NULL, counted_as := NULL, each := NULL, against := NULL) AS TABLE
WITH based AS (
    SELECT a.arm
    FROM experiment_arms AS a
    WHERE a.experiment = the_experiment AND if(against IS NULL, a.number = 1, a.arm = against)
), scores AS MATERIALIZED (
    SELECT s.*, counted_value(s.missing, s.value, s.ended, s.pending, s.worst, if(b.arm IS NULL, s.worst_case, s.best_case)) AS counted
    FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as, each := each) AS s
    LEFT JOIN based AS b ON b.arm = s.arm
), tasks AS MATERIALIZED (
    -- Completion is a share of runs; in all other metrics each task has the same weight.
    SELECT
        s.slice, s.metric, s.arm, s.task, min(s.cluster) AS cluster, count(*) AS trials,
        fsum(s.counted / s.power ORDER BY s.counted) / count(s.counted) AS score, if(s.metric = 'completion', count(s.counted), 1) AS weight
    FROM scores AS s
    GROUP BY s.slice, s.metric, s.arm, s.task
    HAVING count(s.counted) > 0
), means AS MATERIALIZED (
    SELECT t.slice, t.metric, t.arm, count(*) AS tasks, max(t.trials) AS trials_max, sum(t.weight) AS weight,
        fsum(t.weight * t.score ORDER BY t.score) / sum(t.weight) AS mean, min(t.score) AS level,
        fsum(t.weight * (t.score - any_level) ORDER BY t.score) / sum(t.weight) AS above
    FROM (SELECT k.*, min(k.score) OVER (PARTITION BY k.slice, k.metric, k.arm) AS any_level FROM tasks AS k) AS t
    GROUP BY t.slice, t.metric, t.arm
), errors AS MATERIALIZED (
    SELECT c.slice, c.metric, c.arm, count(*) AS clusters,
        sqrt(fsum(c.part * c.part ORDER BY c.cluster) * count(*) / nullif(count(*) - 1, 0)) AS se
    FROM (
        SELECT t.slice, t.metric, t.arm, t.cluster, fsum((t.score - m.level - m.above) * t.weight / m.weight ORDER BY t.task) AS part
        FROM tasks AS t
        JOIN means AS m USING (slice, metric, arm)
        GROUP BY t.slice, t.metric, t.arm, t.cluster
    ) AS c
    GROUP BY c.slice, c.metric, c.arm
), spread AS (
    SELECT
        slice, metric, any_value(number) AS number, any_value(better) AS better,
        any_value(stated_by) AS stated_by, any_value(named) AS named, arm,
        count(*) AS trials, count(*) FILTER (value IS NULL AND NOT pending) AS missing,
        count(*) FILTER (status = 'failed') AS failed, count(*) FILTER (status = 'open') AS open,
        count(*) FILTER (counted = 1) AS successes,
        bool_and(value IS NULL OR value IN (0, 1)) AS "binary", count(counted) AS counted,
        min(value) AS value_min, max(value) AS value_max, any_value(power) AS power, any_value(impossible) AS impossible,
        quantile_cont(value / power, [0.5, 0.95, 0.99]) AS quantiles, fsum(value / power ORDER BY value) AS total
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
    s.failed, s.open, finite(s.mean * s.power) AS mean, finite(s.se * s.power) AS se, s.clusters,
    finite((s.mean - s.half) * s.power) AS low, finite((s.mean + s.half) * s.power) AS high,
    if(s.simple, wilson_end(s.successes, s.counted, s.z, 0), NULL) AS wilson_low,
    if(s.simple, wilson_end(s.successes, s.counted, s.z, 1), NULL) AS wilson_high,
    if(s.flat, NULL, s.quantiles[1] * s.power) AS p50, if(s.flat, NULL, s.quantiles[2] * s.power) AS p95,
    if(s.flat, NULL, s.quantiles[3] * s.power) AS p99, finite(s.total * s.power) AS total, s.number, s.stated_by, s.named, s.impossible
FROM joined AS s;
COMMENT ON MACRO TABLE arm_summary IS 'One row per arm, metric and slice: trials, ended trials without a value (missing), open trials, the mean over tasks (of completion: over runs) with clustered standard error and interval, quantiles over trials (not of 0/1 or constant metrics), and the Wilson interval where each task has one trial and its own cluster. Missing values count as in `counted_value`. NULL beyond double precision.';

CREATE MACRO pass_curves(the_experiment, only_metric := NULL, by_label := NULL, at_alpha := 0.05, directions := NULL, counted_as := NULL, against := NULL) AS TABLE
WITH based AS (
    SELECT a.arm
    FROM experiment_arms AS a
    WHERE a.experiment = the_experiment AND if(against IS NULL, a.number = 1, a.arm = against)
), tasks AS MATERIALIZED (
    SELECT c.slice, c.metric, c.arm, c.task, min(c.cluster) AS cluster, count(*) FILTER (c.counted = 1) AS successes,
        count(c.counted) AS n, bool_and(c.value IS NULL OR c.value IN (0, 1)) AS "binary"
    FROM (
        SELECT s.*, counted_value(s.missing, s.value, s.ended, s.pending, s.worst, if(b.arm IS NULL, s.worst_case, s.best_case)) AS counted
        FROM trial_scores(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS s
        LEFT JOIN based AS b ON b.arm = s.arm
    ) AS c
    GROUP BY c.slice, c.metric, c.arm, c.task
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
COMMENT ON MACRO TABLE pass_curves IS 'One row per arm and k, of 0/1 metrics: pass@k (one of k trials succeeds) and pass^k (all do), mean over tasks with clustered intervals. Missing values as in `counted_value`. k is at most the trials every task has, and 64.';

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
    SELECT x.arm, x.number, coalesce(g.units, 0) AS units, coalesce(x.weight,
            if(bool_or(x.weight IS NOT NULL) OVER (), 0, 1)) AS weight,
        bool_and(coalesce(g.hashed, true)) OVER () AS randomised
    FROM experiment_arms AS x
    LEFT JOIN held AS g ON g.arm = x.arm
    WHERE x.experiment = the_experiment
), expected AS (
    -- The expected shares are stated: by the hash with the plan's weights, unequal weights, or a planned size.
    SELECT s.*, EXISTS (SELECT 1 FROM experiments AS x WHERE x.experiment = the_experiment AND x.planned IS NOT NULL)
            OR (EXISTS (SELECT 1 FROM experiments AS x WHERE x.experiment = the_experiment) AND (bool_and(s.randomised) OVER () OR min(s.weight) OVER () < max(s.weight) OVER ())) AS stated, sum(s.units) OVER () * s.weight / nullif(fsum(s.weight ORDER BY s.number) OVER (), 0) AS expected,
        count(*) FILTER (s.weight > 0 OR s.units > 0) OVER () AS arms
    FROM shares AS s
)
SELECT
    e.arm, e.units, e.expected, e.randomised,
    if(e.arms > 1 AND e.stated, chi_square_p(sum(CASE WHEN e.expected > 0 THEN pow(e.units - e.expected, 2) / e.expected
        WHEN e.units > 0 THEN 'inf'::DOUBLE ELSE 0 END) OVER (), e.arms - 1), NULL) AS p,
    e.number, e.stated
FROM expected AS e;
COMMENT ON MACRO TABLE sample_ratio IS 'One row per arm: units received and expected by weights. stated if a plan gives the size, weights or hash assignment; only then p of the chi-square test: below 0.001, find what loses units before reading differences. randomised if all were assigned by hash.';

CREATE MACRO regressions(the_experiment, only_metric := NULL, against := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
SELECT
    p.slice, p.metric, p.arm, p.baseline, p.task, p.base_score, p.arm_score, p.difference,
    if(p.better = 'higher', -p.difference, p.difference) AS worse_by, p.matched,
    p.base_runs, p.arm_runs
FROM task_pairs(the_experiment, only_metric := only_metric, against := against, by_label := by_label, directions := directions, counted_as := counted_as) AS p
WHERE p.counting = p.missing AND p.better IS NOT NULL AND if(p.better = 'higher', p.difference < 0, p.difference > 0);
COMMENT ON MACRO TABLE regressions IS 'One row per task that is worse than under the baseline, with the runs of both. ORDER BY worse_by DESC for the largest.';

CREATE MACRO accounting(the_experiment, only_metric := NULL) AS TABLE
WITH mine AS (
    SELECT r.*, w.error_type, w.error, o.run IS NOT NULL AS judged,
        r.status = 'failed' AND regexp_matches(concat_ws(' ', w.error_type, w.error), '(?i)time[d]?[ _-]?out|deadline') AS timed_out
    FROM assigned_runs AS r
    JOIN runs AS w ON w.run = r.run
    LEFT JOIN (
        SELECT n.run FROM outcomes AS n WHERE n.metric = coalesce(only_metric, n.metric)
        GROUP BY n.run HAVING only_metric IS NULL OR isfinite(arg_max(n.value, n.version))
    ) AS o ON o.run = r.run
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
COMMENT ON MACRO TABLE accounting IS 'One row per arm: what happened to its runs, tasks only other arms have (tasks_lacking), duplicate trial numbers. judged, never_judged (completed), errored, timed_out, cancelled and open sum to all runs; scored_all_the_same: not completed but scored. only_metric: only its scores count.';

CREATE MACRO ranking(the_experiment, only_metric := NULL, at_alpha := NULL, directions := NULL, counted_as := NULL) AS TABLE
WITH pairs AS MATERIALIZED (
    SELECT c.metric, c.number, c.arm, c.baseline, if(c.verdict IN ('better', 'worse'), c.verdict, 'cannot tell') AS verdict, c.family, c.alpha
    FROM comparisons(the_experiment, only_metric := only_metric, at_alpha := at_alpha, directions := directions, counted_as := counted_as, all_pairs := true) AS c
    WHERE c."default" AND c.counted_verdict IS NOT NULL
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
COMMENT ON MACRO TABLE ranking IS 'One row per arm and metric with a verdict: possible ranks (1 is best) and arms not distinguishable (alike), by Holm over all pairs: all ranks hold with probability 1 - alpha (Mogstad, Romano, Shaikh and Wilhelm 2024).';
