-- A plan may leave a direction unstated, and may be replaced before its first run.

ALTER TABLE metrics ALTER COLUMN better DROP NOT NULL;
ALTER TABLE experiments ADD COLUMN replaced BIGINT DEFAULT 0;
ALTER TABLE experiments ADD COLUMN because VARCHAR;

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
    SELECT m.metric, coalesce(m.better, direction_of(directions, m.metric), k.better) AS better,
        m.smallest, m.number, true AS named,
        CASE WHEN m.better IS NOT NULL THEN 'its plan'
            WHEN direction_of(directions, m.metric) IS NOT NULL THEN 'who asks'
            WHEN k.better IS NOT NULL THEN 'the catalogue' END AS stated_by
    FROM metrics AS m
    LEFT JOIN metric_catalogue AS k ON k.metric = m.metric
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
