-- On: run.scored.v1
INSERT INTO outcomes BY NAME
SELECT
    run, unnest(map_keys(told.metrics)) AS metric, unnest(map_values(told.metrics)) AS value,
    told.by AS judged_by, told.because, told.details, version, position, happened_at
FROM (
    SELECT *, from_json(data, '{"metrics": "MAP(VARCHAR, DOUBLE)", "by": "VARCHAR",
        "because": "VARCHAR", "details": "JSON"}') AS told
    FROM batch
    WHERE type = 'run.scored.v1'
);
