-- On: run.assigned.v1
INSERT INTO assignments BY NAME
SELECT run, version, position, happened_at, unnest(from_json(data, '{"experiment": "VARCHAR",
    "arm": "VARCHAR", "task": "VARCHAR", "trial": "BIGINT", "unit": "VARCHAR",
    "chosen": "VARCHAR"}'))
FROM batch
WHERE type = 'run.assigned.v1';
