-- The statements of an experiment report, by name (hansard.projections.report).

-- name: arms
SELECT arm FROM experiment_arms WHERE experiment = $1 ORDER BY number

-- name: metrics
SELECT DISTINCT o.metric FROM outcomes AS o JOIN runs AS r ON r.run = o.run
WHERE r.experiment = $1 ORDER BY 1

-- name: planned
SELECT metric, better FROM metrics WHERE experiment = $1 AND better IS NOT NULL

-- name: labels
SELECT DISTINCT unnest(json_keys(labels)) AS label FROM assigned_runs
WHERE experiment = $1 ORDER BY 1

-- name: summary
FROM arm_summary($1, at_alpha := $2, against := $3)
ORDER BY slice, number, metric,
    CASE better WHEN 'higher' THEN -mean WHEN 'lower' THEN mean END NULLS LAST,
    arm = $3 DESC, arm

-- name: comparisons
FROM comparisons($1, each := $2)
ORDER BY slice, number, metric, arm, baseline, "default" DESC, counting

-- name: ranking
FROM ranking($1, only_metric := $2, directions := $3, counted_as := $4)
ORDER BY metric, rank_low, rank_high, arm

-- name: curves
FROM pass_curves($1, at_alpha := $2, against := $3) WHERE metric = ANY($4)
ORDER BY slice, metric, arm, k

-- name: pairs
SELECT p.metric, p.arm, p.task, p.base_score, p.arm_score, p.difference, p.base_runs, p.arm_runs
FROM task_pairs($1) AS p
WHERE p.metric = ANY($2) AND p.slice = ''
    AND p.counting = p.missing AND p.difference IS NOT NULL
ORDER BY p.metric, p.arm, p.task

-- name: times
SELECT kind AS odd, fact, run, address FROM odd_times_of($1, true) ORDER BY ALL

-- name: tools
FROM tool_choices WHERE experiment = $1 ORDER BY tool, arm

-- name: sequences
FROM sequences WHERE experiment = $1
QUALIFY row_number() OVER (PARTITION BY arm, role ORDER BY runs DESC, sequence) <= $2
ORDER BY arm, role, runs DESC, sequence

-- name: regressions
SELECT *, count(*) OVER (PARTITION BY metric, arm) AS of
FROM regressions($1) WHERE metric = ANY($2) AND slice = ''
QUALIFY row_number() OVER (PARTITION BY metric, arm ORDER BY worse_by DESC, task) <= $3
ORDER BY list_position($2, metric), arm, worse_by DESC, task

-- name: unmatched
SELECT if(p.arm_trials > 0, p.arm, p.baseline) AS with_it,
    if(p.arm_trials > 0, p.baseline, p.arm) AS without_it,
    count(*) AS tasks, list(p.task ORDER BY p.task)[:$2] AS first
FROM (
    SELECT DISTINCT t.arm, t.baseline, t.task, t.arm_trials
    FROM task_pairs($1) AS t
    WHERE t.slice = '' AND t.counting = t.missing AND NOT t.matched AND NOT t.apart
        AND t.metric = $3
) AS p
GROUP BY ALL ORDER BY 1, 2

-- name: scores
FROM trial_scores($1, only_metric := $2, by_label := $3, directions := $4, counted_as := $5,
    each := $6)

-- name: totals
FROM task_totals($1)

-- name: task_pairs
FROM task_pairs($1, against := $2, all_pairs := $3)

-- name: hiding
CREATE OR REPLACE TEMP MACRO {0}(the_experiment, only_metric := NULL, against := NULL,
    by_label := NULL, directions := NULL, counted_as := NULL, each := NULL, all_pairs := NULL)
AS TABLE FROM temp.kept_{0}
