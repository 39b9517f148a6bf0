-- On: price.stated.v1
INSERT INTO prices BY NAME
SELECT
    b.lasting AS model, told.usage, told.amount, coalesce(told.currency, 'USD') AS currency,
    (try_cast(told.since AS TIMESTAMPTZ) AT TIME ZONE 'UTC') AS since, told.source, i.actor AS stated_by,
    b.version, b.position
FROM (
    SELECT *, from_json(data, '{"usage": "VARCHAR", "amount": "DOUBLE", "currency": "VARCHAR",
        "since": "VARCHAR", "source": "VARCHAR"}') AS told
    FROM batch
    WHERE type = 'price.stated.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal;
