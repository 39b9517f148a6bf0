-- name: list
SELECT experience, version, coalesce(digest, '') AS digest,
    coalesce(description, '') AS description, coalesce(task, '') AS task, standing,
    tools, hosts, checks, coalesce(procedure, '') AS procedure,
    replays, successes, unfinished, success_low, heals, heals_unreviewed,
    changed_at
FROM experiences ORDER BY experience

-- name: log
SELECT experience, version, kind AS change, digest, parent, checks, node, run, NULL AS success,
    key, author, because, happened_at AS at, position, event_index
FROM experience_versions WHERE experience = $1
UNION ALL BY NAME
SELECT experience, version, 'replayed' AS change, checks, run, success, author,
    error AS because, happened_at AS at, position, event_index
FROM experience_replays WHERE experience = $1
UNION ALL BY NAME
SELECT experience, 'retired' AS change, author, because, happened_at AS at, position,
    0 AS event_index
FROM experience_retirements WHERE experience = $1
ORDER BY position, event_index

-- name: costs
WITH runs AS (
    SELECT DISTINCT experience, run FROM experience_replays WHERE list_contains($1, experience)
), used AS (
    SELECT
        r.experience, r.run, count(*) FILTER (s.kind = 'model' AND s.cost IS NULL) AS unknown,
        fsum(s.cost) FILTER (s.kind = 'model') AS cost,
        fsum(s.duration_ms) FILTER (s.parent_step IS NULL) / 1e3 AS seconds
    FROM runs AS r JOIN steps AS s ON s.run = r.run AND NOT s.inherited
    GROUP BY r.experience, r.run
)
SELECT
    experience,
    if(sum(unknown) > 0, NULL, coalesce(fsum(cost), 0) / count(*)) AS cost,
    fsum(seconds) / count(*) AS seconds
FROM used GROUP BY experience
