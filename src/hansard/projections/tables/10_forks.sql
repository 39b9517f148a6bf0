-- On: run.forked.v1
-- Forks: the streams that they continue, and from where.
INSERT INTO lineage BY NAME
SELECT
    run, data->>'parent' AS parent, coalesce(data->>'effects', 'shadow') AS effects,
    coalesce(data->'at', '{}'::JSON) AS vector, data->'swap' AS swap, data->'edits' AS edits,
    version, position, happened_at
FROM (
    SELECT b.*
    FROM batch AS b
    ANTI JOIN runs AS r ON r.run = b.run
    WHERE b.stream = 'life'
    QUALIFY row_number() OVER (PARTITION BY b.run ORDER BY b.ordinal) = 1
)
WHERE type = 'run.forked.v1' AND version > 1;
