-- On: memory.changed.v1 memory.rejected.v1 memory.policy_set.v1
-- A batch holds whole transactions, so it contains the end of each. Expressions beside an unnest are
-- evaluated per row of its result, so a commit's fields are read below it: per commit, not per file.
INSERT INTO memory_changes BY NAME
SELECT
    b.space, b.version, b.file.path,
    CASE
        WHEN starts_with(b.file.path, 'runs/') THEN 'episodic'
        WHEN regexp_matches(b.file.path, '(^|/)(AGENTS\.md|tools\.json)$|(^|/)subagents/') THEN 'procedural'
        ELSE 'semantic'
    END AS kind,
    b.file.op, b.file.was, coalesce(b.file.link, false) AS link,
    coalesce(b.file."binary", false) AS is_binary, coalesce(b.file.executable, false) AS is_executable, b.file.before AS digest_before,
    b.file.after AS digest, b.file.edit, b.because, b.sources, b.author, b.role, b.run, b.step, b.label, b.event,
    b.position, b.counts_from, b.happened_at
FROM (
    SELECT c.* EXCLUDE (files), unnest(c.files) AS file
    FROM (
        SELECT
            b.lasting AS space, b.version, b.data->>'because' AS because, b.data->'sources' AS sources,
            if(i.occurred_at IS NULL, i.actor, coalesce(i.on_behalf_of[1], i.actor)) AS author,
            b.data->>'role' AS role, b.data->>'run' AS run,
            try_cast(b.data->>'step' AS BIGINT) AS step, i.label, b.id AS event, b.position,
            coalesce(t.position, b.position) AS counts_from, b.happened_at,
            from_json(b.data->'files', '[{"path": "VARCHAR", "op": "VARCHAR", "before": "VARCHAR",
                "after": "VARCHAR", "edit": "JSON", "was": "VARCHAR", "link": "BOOLEAN",
                "binary": "BOOLEAN", "executable": "BOOLEAN"}]') AS files
        FROM batch AS b
        JOIN incoming AS i ON i.ordinal = b.ordinal
        LEFT JOIN (
            SELECT tx, max(position) AS position FROM incoming WHERE tx IS NOT NULL GROUP BY tx
        ) AS t ON t.tx = i.tx
        WHERE b.type = 'memory.changed.v1'
    ) AS c
) AS b
WHERE b.file.path IS NOT NULL AND b.file.op IS NOT NULL;

INSERT INTO memory_rejections BY NAME
SELECT
    b.space, b.version, b.problem.path, b.problem.line, b.problem.rule, b.problem.stood,
    b.problem.allowed, b.because, b.author, b.role, b.run, b.step, b.event, b.position, b.happened_at
FROM (
    SELECT c.* EXCLUDE (problems), unnest(c.problems) AS problem
    FROM (
        SELECT
            b.lasting AS space, b.version, b.data->>'because' AS because, i.actor AS author,
            b.data->>'role' AS role, b.data->>'run' AS run, try_cast(b.data->>'step' AS BIGINT) AS step,
            b.id AS event, b.position, b.happened_at,
            from_json(b.data->'problems', '[{"path": "VARCHAR", "line": "BIGINT", "rule": "VARCHAR",
                "stood": "VARCHAR", "allowed": "VARCHAR"}]') AS problems
        FROM batch AS b
        JOIN incoming AS i ON i.ordinal = b.ordinal
        WHERE b.type = 'memory.rejected.v1'
    ) AS c
) AS b
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
