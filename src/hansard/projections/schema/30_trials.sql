-- Trials: runs that are assigned to an experiment, what they scored and used, and how each experiment
-- is judged. A metric without a stated plan gets its direction from metric_catalogue or from nobody.

CREATE VIEW assigned_runs AS
SELECT
    r.experiment, coalesce(r.arm, '') AS arm, coalesce(r.task, r.run) AS task, r.trial, r.run,
    r.status, r.labels, r.first_position, r.started_at, r.ended_at
FROM runs AS r
WHERE r.experiment <> ''
    AND (r.parent IS NULL OR r.run IN (SELECT a.run FROM assignments AS a));
COMMENT ON VIEW assigned_runs IS 'One row a trial: a run that is assigned to an experiment. A fork counts only where it was assigned itself.';

CREATE MACRO graders() AS ['success', 'reward', 'resolved', 'passed', 'correct', 'score'];
COMMENT ON MACRO graders IS 'Metrics that say whether a run succeeded; the first that was judged counts.';

CREATE MACRO success_of(grade, status) AS CASE
    WHEN grade IS NOT NULL THEN if(isfinite(grade), (grade >= 1)::DOUBLE, NULL)
    WHEN status = 'completed' THEN 1.0::DOUBLE
    WHEN status IN ('failed', 'cancelled') THEN 0.0::DOUBLE END;
COMMENT ON MACRO success_of IS 'Whether a run of this status, judged with this grade (or NULL), succeeded: 1, 0 or NULL.';

CREATE VIEW usage_by_actor AS
SELECT
    u.run, u.agent, u.of, u.step, u.version, u.metric, u.amount, u.position, u.happened_at,
    CASE WHEN m.message_role = 'user' THEN 'user' ELSE coalesce(a.actor, 'agent') END AS actor
FROM usage AS u
LEFT JOIN messages AS m ON m.run = u.run AND m.agent = u.agent AND m.version = u.version AND u.of = 'message'
LEFT JOIN agents AS g ON g.run = u.run AND g.agent = u.agent
LEFT JOIN actor_roles AS a ON a.role = lower(g.role);
COMMENT ON VIEW usage_by_actor IS 'The table usage, and whose it is: user for what a message of the role user used up (a simulated user, as tau2-bench records it) and for agents of a role in actor_roles, judge for those, else agent.';

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
COMMENT ON VIEW trial_runs IS 'One row a trial, with what it came to and what it used up: cost and tokens are those of the agent under test, user_cost and judge_cost those of a simulated user and of judges (see usage_by_actor).';

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
COMMENT ON VIEW experiment_plans IS 'One row an experiment, registered or met in runs: how it is judged.';

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

CREATE MACRO better_of(metric) AS (
    SELECT any_value(c.better)
    FROM (SELECT m.metric AS listed, m.better FROM metric_catalogue AS m) AS c
    WHERE c.listed = metric);
COMMENT ON MACRO better_of IS 'better_of(metric): which direction of a metric is the good one where no plan says it, higher or lower: by metric_catalogue. NULL where it is not known; it is never guessed.';

CREATE MACRO direction_of(directions, name) AS
    json_extract_string(directions, '/' || replace(replace(name, '~', '~0'), '/', '~1'));
COMMENT ON MACRO direction_of IS 'direction_of(directions, name): what is said of a metric in a JSON object of names and directions; NULL where nothing is.';

CREATE MACRO trial_scores(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL) AS TABLE
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

CREATE MACRO task_totals(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL, each := NULL) AS TABLE
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

CREATE MACRO score_of(counting, total, trials, valued, worst) AS if(counting = 'failure' AND worst IS NOT NULL,
    (total + worst * (trials - valued)) / trials, total / nullif(valued, 0));
COMMENT ON MACRO score_of IS 'The mean over trials, those without a value counted as the worst one (failure) or not at all (excluded).';

CREATE MACRO mean_of(counting, total, trials, valued, worst, ended_total, ended_valued) AS if(counting = 'excluded',
    ended_total / nullif(ended_valued, 0), score_of(counting, total, trials, valued, worst));
COMMENT ON MACRO mean_of IS 'The mean over trials. failure: those without a value count as the worst one, those that have one as it is, however they ended; excluded: neither those without a value count nor those that did not end as completed, though they were scored.';

CREATE MACRO worst_case_of(ended_total, trials, ended_valued, extreme) AS
    if(extreme IS NULL OR trials = ended_valued, ended_total / nullif(ended_valued, 0),
        (ended_total + (trials - ended_valued) * extreme) / nullif(trials, 0));
COMMENT ON MACRO worst_case_of IS 'The mean over trials, where each that has no value, or did not end as completed, counts as extreme; where there is no extreme, such trials are left out.';

CREATE MACRO task_scores(the_experiment, only_metric := NULL, by_label := NULL, directions := NULL, counted_as := NULL) AS TABLE
SELECT
    t.slice, t.metric, t.number, t.better, t.smallest, t.arm, t.task, t.cluster, t.unit, t.missing,
    t.worst, c.counting, t.trials, t.valued, t.successes, t."binary",
    mean_of(c.counting, t.total, t.trials, t.valued, t.worst, t.ended_total, t.ended_valued) AS score, t.first_position, t.runs
FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS t
CROSS JOIN (VALUES ('failure'), ('excluded')) AS c(counting);
COMMENT ON MACRO TABLE task_scores IS 'One row a task of an arm, and way of counting missing values (failure: as the worst one; excluded: not at all). score is the mean over its trials.';
