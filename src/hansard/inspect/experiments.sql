-- name: list
FROM prompts ORDER BY prompt

-- name: log
SELECT
    v.prompt AS name, v.version, coalesce(v.text, '') AS prompt, v.added_at AS timestamp,
    v.parent_version, v.parents, v.feedback_applied, coalesce(v.model, '') AS model,
    v.parameters, v.claimed, coalesce(v.because, '') AS because, v.added_by AS "by",
    coalesce(v.digest, '') AS digest,
    coalesce((SELECT list(a.alias ORDER BY a.alias) FROM prompt_aliases AS a
        WHERE a.prompt = v.prompt AND a.version = v.version), []) AS aliases,
    v.retired_at IS NOT NULL AS is_retired,
    if(v.retired_at IS NULL, NULL, coalesce(v.retired_because, '')) AS retired
FROM prompt_versions AS v
WHERE v.prompt = $1
ORDER BY v.version

-- name: moves
SELECT prompt, alias, version, before, coalesce(because, '') AS because,
    coalesce(experiment, '') AS experiment, moved_at AS at, moved_by AS "by"
FROM prompt_moves WHERE prompt = $1 ORDER BY position, event_index

-- name: report
SELECT prompt, version, runs, metric, n, value, low, high
FROM prompt_report(of_prompt := $1, at_alpha := $2)
ORDER BY prompt, version, metric

-- name: means
SELECT version, runs, metric, value FROM prompt_report(of_prompt := $1)
ORDER BY version, metric

-- name: evidence
SELECT a.experiment, a.arm, b.arm AS baseline
FROM arms AS a
JOIN arms AS b ON b.experiment = a.experiment
JOIN experiments AS e ON e.experiment = a.experiment
WHERE a.prompt = $1 AND b.prompt = $2 AND ($3 IS NULL OR a.experiment = $3)
ORDER BY e.registered_position DESC, a.number, b.number

-- name: verdict
SELECT metric, verdict, difference, low, high, tasks
FROM comparisons($1, against := $2)
WHERE arm = $3 AND "default" AND slice = ''
ORDER BY number NULLS LAST, metric
LIMIT 1

-- name: experiments
SELECT p.experiment, p.standing, p.registered, e.stopped_at IS NOT NULL AS stopped, p.runs,
    (SELECT list(a.arm ORDER BY a.number) FROM experiment_arms AS a
        WHERE a.experiment = p.experiment) AS arms,
    p.primary_metric AS metric, p.question, p.registered_at
FROM experiment_plans AS p
LEFT JOIN experiments AS e ON e.experiment = p.experiment
ORDER BY coalesce(p.registered_position, p.first_position), p.experiment

-- name: plan
SELECT p.experiment, p.question, p.standing, p.registered, p.unit, p.cluster, p.alpha, p.stop,
    p.planned, p.trials, p.missing, e.exploratory, e.salt, p.runs, e.registered_at,
    e.registered_by, e.registered_position, p.first_position, e.stopped_at, e.stopped_because,
    e.replaced, e.because
FROM experiment_plans AS p
LEFT JOIN experiments AS e ON e.experiment = p.experiment
WHERE p.experiment = $1

-- name: arms
WITH counted AS (
    SELECT t.arm, count(*) AS runs, count(DISTINCT t.task) AS tasks,
        count(*) FILTER (t.status = 'completed') AS completed,
        count(*) FILTER (t.status IN ('failed', 'cancelled')) AS failed,
        count(*) FILTER (t.status = 'open') AS open
    FROM trial_runs AS t
    WHERE t.experiment = $1
    GROUP BY t.arm
)
SELECT a.arm, a.number, a.weight / sum(a.weight) OVER () AS share, a.prompt, a.model, a.parameters,
    coalesce(c.runs, 0) AS runs, coalesce(c.tasks, 0) AS tasks,
    coalesce(c.completed, 0) AS completed, coalesce(c.failed, 0) AS failed,
    coalesce(c.open, 0) AS open
FROM experiment_arms AS a
LEFT JOIN counted AS c ON c.arm = a.arm
WHERE a.experiment = $1
ORDER BY a.number

-- name: metrics
WITH judged AS (
    SELECT o.metric, count(DISTINCT o.run) AS runs
    FROM outcomes AS o
    JOIN trial_runs AS t ON t.run = o.run
    WHERE t.experiment = $1
    GROUP BY o.metric
), planned AS (SELECT * FROM metrics WHERE experiment = $1)
SELECT coalesce(m.metric, j.metric) AS metric, m.number, m.better, m.smallest,
    coalesce(j.runs, 0) AS judged_runs
FROM planned AS m
FULL JOIN judged AS j ON j.metric = m.metric
ORDER BY m.number NULLS LAST, metric

-- name: prices
SELECT model, usage, amount, currency, since, source, stated_by
FROM prices
WHERE $1 IS NULL OR model = $1
QUALIFY row_number() OVER (PARTITION BY model, usage, since ORDER BY version DESC) = 1
ORDER BY model, usage, since
