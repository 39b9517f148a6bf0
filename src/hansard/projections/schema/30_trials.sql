-- Trials: runs that are assigned to an experiment, what they scored and used, and how each experiment
-- is judged. A metric without a stated plan gets its direction from metric_catalogue or from nobody.

CREATE VIEW scores AS
SELECT run, metric, value, judged_by, because, details, version, position, happened_at
FROM outcomes;
COMMENT ON VIEW scores IS 'One row a score of a run, as ''hansard run score'' and record.score record it: the rows of outcomes under the name of the command.';

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

CREATE MACRO odd_times_of(the_experiment, wanted) AS TABLE
WITH claimed AS MATERIALIZED (
    SELECT
        r.experiment, r.arm, e.run, e.happened_at AS claimed_at, e.logged_at, e.position, e.event_index,
        date_diff('microsecond', lag(e.happened_at) OVER (PARTITION BY e.run ORDER BY e.happened_at), e.happened_at) AS gap
    FROM events AS e
    JOIN assigned_runs AS r ON r.run = e.run AND (the_experiment IS NULL OR r.experiment = the_experiment)
    JOIN (SELECT true AS claims WHERE wanted) AS w ON w.claims = if(e.occurred_at IS NOT NULL, true, NULL)
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
COMMENT ON MACRO TABLE odd_times_of IS 'The rows of the view odd_times, of one experiment (NULL: of each); none, and no event is read, unless they are wanted.';

CREATE VIEW odd_times AS FROM odd_times_of(NULL, true);
COMMENT ON VIEW odd_times IS 'One row an arm whose claimed times cannot be: latency is not to be compared then.';

CREATE MACRO scale_of(least, greatest, above_one, above_zero) AS CASE
    WHEN least >= 0 AND greatest > 0 AND greatest <= 1 THEN 'share'
    WHEN least >= 0 AND greatest BETWEEN 20 AND 100 AND above_one * 2 >= above_zero THEN 'percentage' END;
COMMENT ON MACRO scale_of IS 'Whether values look like shares (all from 0 to 1) or like percentages (all from 0 to 100, one from 20 on, most of those above 0 also above 1), by the least, the greatest, and how many are above 1 and above 0; else NULL.';

CREATE MACRO counted_value(counting, value, ended, pending, worst, extreme) AS CASE counting
    WHEN 'failure' THEN coalesce(value, if(pending, NULL, worst))
    WHEN 'worst-case' THEN coalesce(if(ended, value, NULL), extreme)
    ELSE if(ended, value, NULL) END;
COMMENT ON MACRO counted_value IS 'The one rule for a trial''s value. failure: what was scored, and where there is nothing the worst value (left out where there is no worst, or while the run is open); excluded: what was scored of a run that completed; worst-case: of one that did not, the extreme.';

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
CROSS JOIN asked AS a
LEFT JOIN found AS f ON f.run = s.run AND f.metric = a.metric
LEFT JOIN extremes AS x ON x.metric = a.metric
LEFT JOIN scales AS c ON c.metric = a.metric AND c.arm = s.arm
LEFT JOIN (SELECT metric, min(fact) AS fact FROM impossible GROUP BY metric) AS i ON i.metric = a.metric;
COMMENT ON MACRO TABLE trial_scores IS 'One row a trial, metric and slice (empty: all of them; (none): runs without the label). A metric is what was judged (newest value; one that is not finite is none), or where no judge uses the name completion, success, cost, tokens, input_tokens, output_tokens, latency_ms or tool_error_rate as in trial_runs. Without a plan and only_metric it is each metric that was scored, or completion (whether the run ended as completed) where none was; each, a list, asks for several metrics, each for itself as only_metric asks for one. named says whether there is a plan, only_metric or one metric alone. directions is a JSON object of metrics and directions (higher, lower) that no plan states; better is NULL where nobody states it, stated_by who does. pending is true of an open run without a value: it has not finished, and counts as no failure. worst is what a missing value counts as: 0, or the least value where that is below; NULL of a metric of which less is better, or whose direction nobody states, since a missing cost is no cost: such a trial is left out of every mean and rate, and counted. worst_case and best_case are what is assumed of a trial without an outcome where missing is worst-case: 0 and 1 of a metric that is 0 or 1, else the least value (at most 0) and the greatest one of any arm, the other way round where less is better (the least value as it is); NULL where no direction is stated. power is the power of two by which sums of the values are divided. scale says whether the arm''s values look like a share or a percentage (see scale_of), impossible why the metric''s values cannot be: below the least one of metric_catalogue, or of latency_ms an arm in odd_times. Where the plan''s cluster is a label that a run lacks, its task is a cluster of its own.';

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
COMMENT ON MACRO TABLE task_totals IS 'One row a task of an arm: its trials, how many have a value (valued), how many have not finished (open; pending: without a value), and the sum of the values divided by power (total).';

CREATE MACRO score_of(counting, total, trials, valued, worst) AS if(counting = 'failure' AND worst IS NOT NULL,
    (total + worst * (trials - valued)) / nullif(trials, 0), total / nullif(valued, 0));
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
    t.power * mean_of(c.counting, t.total, t.trials - t.pending, t.valued, t.worst / t.power, t.ended_total, t.ended_valued) AS score, t.first_position, t.runs
FROM task_totals(the_experiment, only_metric := only_metric, by_label := by_label, directions := directions, counted_as := counted_as) AS t
CROSS JOIN (VALUES ('failure'), ('excluded')) AS c(counting);
COMMENT ON MACRO TABLE task_scores IS 'One row a task of an arm, and way of counting missing values (failure: as the worst one; excluded: not at all). score is the mean over its trials.';
