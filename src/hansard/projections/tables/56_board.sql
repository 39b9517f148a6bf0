-- On: board.*
-- A batch holds whole transactions, so it contains the end of each.
INSERT INTO board_writes BY NAME
SELECT
    b.run, substr(b.stream, 7) AS key, b.version,
    CASE b.type
        WHEN 'board.put.v1' THEN 'put'
        WHEN 'board.appended.v1' THEN 'append'
        WHEN 'board.added.v1' THEN 'add'
        WHEN 'board.included.v1' THEN 'include'
        WHEN 'board.discarded.v1' THEN 'discard'
        WHEN 'board.merged.v1' THEN b.data->>'merge'
        WHEN 'board.removed.v1' THEN 'remove'
        ELSE 'check'
    END AS operation,
    coalesce(b.data->'value', b.data->'item', b.data->'amount') AS value,
    i.actor AS author, b.data->>'role' AS role, try_cast(b.data->>'expected' AS BIGINT) AS expected,
    b.data->'labels' AS labels,
    i.logged_at + to_milliseconds(try_cast(b.data->>'ttl_ms' AS BIGINT)) AS expires_at,
    coalesce(try_cast(b.data->>'anew' AS BOOLEAN), false) AS anew, b.id AS event, b.position,
    coalesce(t.position, b.position) AS counts_from, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
LEFT JOIN (
    SELECT tx, max(position) AS position FROM incoming WHERE tx IS NOT NULL GROUP BY tx
) AS t ON t.tx = i.tx
WHERE b.type IN ('board.put.v1', 'board.appended.v1', 'board.added.v1', 'board.included.v1',
    'board.discarded.v1', 'board.merged.v1', 'board.removed.v1', 'board.checked.v1');
