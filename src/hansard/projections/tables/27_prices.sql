-- On: price.stated.v1
INSERT INTO prices BY NAME
SELECT
    b.lasting AS model, fields.usage, fields.amount, coalesce(fields.currency, 'USD') AS currency,
    (try_cast(fields.since AS TIMESTAMPTZ) AT TIME ZONE 'UTC') AS since, fields.source, i.actor AS stated_by,
    b.version, b.position
FROM (
    SELECT *, from_json(data, '{"usage": "VARCHAR", "amount": "DOUBLE", "currency": "VARCHAR",
        "since": "VARCHAR", "source": "VARCHAR"}') AS fields
    FROM batch
    WHERE type = 'price.stated.v1'
) AS b
JOIN incoming AS i ON i.ordinal = b.ordinal;
