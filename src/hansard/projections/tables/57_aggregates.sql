-- On: aggregate.changed.v1
-- A batch holds whole transactions, so it contains the end of each.
INSERT INTO domain_events BY NAME
SELECT
    b.data->>'aggregate' AS aggregate, b.lasting AS aggregate_id, b.version,
    b.data->>'event' AS tag, b.data->'state' AS state, b.data->>'run' AS run,
    nullif(i.actor, '') AS agent, try_cast(b.data->>'step' AS BIGINT) AS step, b.id AS event,
    i.causation, i.correlation, b.position, coalesce(t.position, b.position) AS counts_from,
    b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
LEFT JOIN (
    SELECT tx, max(position) AS position FROM incoming WHERE tx IS NOT NULL GROUP BY tx
) AS t ON t.tx = i.tx
WHERE b.type = 'aggregate.changed.v1';
