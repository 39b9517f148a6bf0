-- name: reads
SELECT path, count(*) FROM (
    SELECT result ->> '$.path' AS path FROM steps
    WHERE tool = 'memory.view' AND status = 'completed' AND result ->> '$.space' = $1
    UNION ALL
    SELECT substr(file, length($1) + 2) FROM (
        SELECT unnest(json_keys(result, '$.files')) AS file FROM steps
        WHERE tool = 'memory.prompt' AND status = 'completed'
    ) WHERE starts_with(file, $1 || '/') AND ends_with(file, $2)
) WHERE path IS NOT NULL GROUP BY 1
