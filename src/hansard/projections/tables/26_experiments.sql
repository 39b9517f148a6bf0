-- On: experiment.*
CREATE OR REPLACE TEMP TABLE plans AS
SELECT b.lasting AS experiment, b.id AS event, b.position, b.happened_at, i.actor,
    coalesce(e.replaced + 1, 0) + row_number() OVER (PARTITION BY b.lasting ORDER BY b.ordinal) - 1
        AS replaced,
    from_json(b.data, '{"question": "VARCHAR", "unit": "VARCHAR", "cluster": "VARCHAR",
        "alpha": "DOUBLE", "stop": "VARCHAR", "planned": "BIGINT", "trials": "BIGINT",
        "missing": "VARCHAR", "exploratory": "BOOLEAN", "salt": "VARCHAR", "because": "VARCHAR",
        "arms": [{"name": "VARCHAR", "weight": "DOUBLE", "prompt": "VARCHAR", "model": "VARCHAR",
            "parameters": "JSON"}],
        "metrics": [{"name": "VARCHAR", "better": "VARCHAR", "smallest": "DOUBLE"}]}') AS fields
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
LEFT JOIN experiments AS e ON e.experiment = b.lasting
WHERE b.type = 'experiment.registered.v1'
QUALIFY row_number() OVER (PARTITION BY b.lasting ORDER BY b.ordinal DESC) = 1;

-- Only the newest plan is kept; earlier ones are in the events.
DELETE FROM experiments WHERE experiment IN (SELECT p.experiment FROM plans AS p);
DELETE FROM arms WHERE experiment IN (SELECT p.experiment FROM plans AS p);
DELETE FROM metrics WHERE experiment IN (SELECT p.experiment FROM plans AS p);

INSERT INTO experiments BY NAME
SELECT
    experiment, fields.question, coalesce(fields.unit, 'task') AS unit, fields.cluster,
    coalesce(fields.alpha, 0.05) AS alpha, coalesce(fields.stop, 'fixed') AS stop, fields.planned,
    fields.trials, coalesce(fields.missing, 'failure') AS missing,
    coalesce(fields.exploratory, false) AS exploratory, coalesce(fields.salt, '') AS salt,
    happened_at AS registered_at, actor AS registered_by, position AS registered_position, event,
    replaced, fields.because
FROM plans;

INSERT INTO arms BY NAME
SELECT experiment, number, arm.name AS arm, coalesce(arm.weight, 1) AS weight, arm.prompt,
    arm.model, arm.parameters
FROM (
    SELECT experiment, unnest(fields.arms) AS arm, generate_subscripts(fields.arms, 1) AS number
    FROM plans
);

INSERT INTO metrics BY NAME
SELECT experiment, number, metric.name AS metric, nullif(coalesce(metric.better, 'higher'), 'not stated') AS better,
    metric.smallest
FROM (
    SELECT experiment, unnest(fields.metrics) AS metric,
        generate_subscripts(fields.metrics, 1) AS number
    FROM plans
);

UPDATE experiments SET stopped_at = s.fields.at, stopped_because = s.fields.because
FROM (
    SELECT lasting, arg_min({'at': happened_at, 'because': data->>'because'}, ordinal) AS fields
    FROM batch
    WHERE type = 'experiment.stopped.v1'
    GROUP BY lasting
) AS s
WHERE experiments.experiment = s.lasting AND experiments.stopped_at IS NULL;
