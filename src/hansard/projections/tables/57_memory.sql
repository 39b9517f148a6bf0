-- On: memory.changed.v1 memory.rejected.v1 memory.policy_set.v1
-- A batch holds whole transactions: the end of each is in it.
INSERT INTO memory_changes BY NAME
SELECT
    b.space, b.version, b.file.path,
    CASE
        WHEN starts_with(b.file.path, 'runs/') THEN 'episodic'
        WHEN regexp_matches(b.file.path, '(^|/)(AGENTS\.md|tools\.json)$|(^|/)subagents/') THEN 'procedural'
        ELSE 'semantic'
    END AS kind,
    b.file.op, b.file.was, coalesce(b.file.link, false) AS link, b.file.before AS digest_before,
    b.file.after AS digest, b.file.edit, b.data->>'because' AS because, b.data->'sources' AS sources,
    i.actor AS author, b.data->>'role' AS role, b.data->>'run' AS run,
    try_cast(b.data->>'step' AS BIGINT) AS step, i.label, b.id AS event, b.position,
    coalesce(t.position, b.position) AS counts_from, b.happened_at
FROM (
    SELECT *, lasting AS space, unnest(from_json(data->'files', '[{"path": "VARCHAR", "op": "VARCHAR",
        "before": "VARCHAR", "after": "VARCHAR", "edit": "JSON", "was": "VARCHAR", "link": "BOOLEAN"}]')) AS file
    FROM batch
    WHERE type = 'memory.changed.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
LEFT JOIN (
    SELECT tx, max(position) AS position FROM incoming WHERE tx IS NOT NULL GROUP BY tx
) AS t ON t.tx = i.tx
WHERE b.file.path IS NOT NULL AND b.file.op IS NOT NULL;

INSERT INTO memory_rejections BY NAME
SELECT
    b.space, b.version, b.problem.path, b.problem.line, b.problem.rule, b.problem.stood,
    b.problem.allowed, b.data->>'because' AS because, i.actor AS author, b.data->>'role' AS role,
    b.data->>'run' AS run, try_cast(b.data->>'step' AS BIGINT) AS step, b.id AS event, b.position,
    b.happened_at
FROM (
    SELECT *, lasting AS space, unnest(from_json(data->'problems', '[{"path": "VARCHAR",
        "line": "BIGINT", "rule": "VARCHAR", "stood": "VARCHAR", "allowed": "VARCHAR"}]')) AS problem
    FROM batch
    WHERE type = 'memory.rejected.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.problem.path IS NOT NULL AND b.problem.rule IS NOT NULL AND b.problem.line IS NOT NULL;

INSERT INTO memory_policies BY NAME
SELECT
    b.lasting AS space, b.version, b.data->>'approval' AS approval,
    (try_cast(b.data->>'until' AS TIMESTAMPTZ) AT TIME ZONE 'UTC') AS until,
    b.data->'untrusted' AS untrusted, b.data->>'because' AS because, i.actor AS author,
    b.id AS event, b.position, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'memory.policy_set.v1' AND b.data->>'approval' IS NOT NULL;
