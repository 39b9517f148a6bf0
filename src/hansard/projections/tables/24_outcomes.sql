-- On: run.scored.v1
INSERT INTO outcomes BY NAME
SELECT
    run, unnest(map_keys(fields.metrics)) AS metric, unnest(map_values(fields.metrics)) AS value,
    fields.by AS judged_by, fields.because, fields.details, version, position, happened_at
FROM (
    SELECT *, from_json(data, '{"metrics": "MAP(VARCHAR, DOUBLE)", "by": "VARCHAR",
        "because": "VARCHAR", "details": "JSON"}') AS fields
    FROM batch
    WHERE type = 'run.scored.v1'
);
