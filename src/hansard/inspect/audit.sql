-- name: decisions
SELECT decision FROM decisions WHERE starts_with(decision, $1) ORDER BY decision = $1 DESC,
position LIMIT $2

-- name: runs
SELECT run FROM runs WHERE starts_with(run, $1) ORDER BY run = $1 DESC, run LIMIT $2

-- name: newest
SELECT run FROM runs ORDER BY first_position DESC LIMIT 1

-- name: findings
SELECT * FROM findings($1)
WHERE run = $2 OR ($2 IS NULL
    AND (run IS NULL OR run NOT IN (SELECT r.run FROM runs AS r WHERE r.probe IS NOT NULL)))
ORDER BY list_position(['high', 'medium', 'low'], severity), topic, kind,
    experiment NULLS LAST, run, try_cast(split_part(address, '.', 1) AS BIGINT), step, fact

-- name: waiting
SELECT o.run, o.agent, a.role, coalesce(epoch_ns(max(e.logged_at)), 0) AS joined
FROM (SELECT DISTINCT run, agent FROM orphan_intents WHERE kind = 'waiting') AS o
JOIN agents AS a ON a.run = o.run AND a.agent = o.agent
LEFT JOIN events AS e
    ON e.run = o.run AND e.known_as IN ('agent.joined.v1', 'run.resumed.v1')
    AND coalesce(e.lifted, e.data)->>'agent' = o.agent
WHERE $1 IS NULL OR o.run = $1
GROUP BY ALL

-- name: resumable
SELECT run, agent, step, command FROM resumable_intents WHERE $1 IS NULL OR run = $1

-- name: open
SELECT count(*) AS runs FROM runs
WHERE status = 'open' AND (run = $1 OR ($1 IS NULL AND probe IS NULL))

-- name: kinds
SELECT view, kind, topic, severity, question, command FROM finding_kinds ORDER BY ALL

-- name: experiments
SELECT DISTINCT experiment FROM assigned_runs ORDER BY experiment

-- name: checked
SELECT topic, experiment, looked, what, why_not FROM checked_topics($1)
ORDER BY topic, experiment NULLS FIRST, what
