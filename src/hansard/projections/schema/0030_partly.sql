-- What could be looked at of an experiment in part is said so: how many of its runs could not.

CREATE OR REPLACE VIEW looked_at AS
WITH per_experiment AS (
    SELECT
        r.experiment, count(*) AS runs, count(DISTINCT r.arm) AS arms, count(m.run) AS modelled, count(d.run) AS declared,
        count(c.run) AS checked, count(s.run) AS said, count(w.run) AS timed, count(u.run) AS costed
    FROM assigned_runs AS r
    LEFT JOIN (SELECT DISTINCT run FROM answering_models WHERE role <> 'user') AS m ON m.run = r.run
    LEFT JOIN (SELECT DISTINCT a.run FROM answering_models AS a SEMI JOIN declared_models AS x ON x.run = a.run AND x.of_user = (a.role = 'user')) AS d ON d.run = r.run
    LEFT JOIN (SELECT DISTINCT run FROM checked_scores) AS c ON c.run = r.run
    LEFT JOIN (SELECT run FROM said_answers GROUP BY run HAVING count(*) >= 2) AS s ON s.run = r.run
    LEFT JOIN (SELECT DISTINCT run FROM events WHERE occurred_at IS NOT NULL) AS w ON w.run = r.run
    LEFT JOIN (
        SELECT DISTINCT a.run FROM answering_models AS a SEMI JOIN prices AS p ON p.model = a.model
    ) AS u ON u.run = r.run
    GROUP BY r.experiment
)
SELECT t.topic, NULL::VARCHAR AS experiment, t.looked, t.what, if(t.looked = 0, 'no ' || t.what || ' are recorded', NULL) AS why_not
FROM (
    SELECT 'intents' AS topic, count(*) AS looked, 'calls' AS what FROM steps
    UNION ALL
    SELECT 'overrides', count(*), 'words of the gate' FROM policies
    UNION ALL
    SELECT 'retries', count(*), 'calls' FROM steps
    UNION ALL
    SELECT 'thresholds', count(*) FILTER (threshold IS NOT NULL), 'decisions by a threshold' FROM decisions
    UNION ALL
    SELECT 'gaps', coalesce(max(position), 0), 'commits' FROM events
) AS t
UNION ALL
SELECT v.topic, t.experiment, v.looked, v.what, if(v.looked > 0, NULL, v.why_not)
FROM per_experiment AS t
CROSS JOIN LATERAL (VALUES
    ('models', t.modelled, 'runs whose model is recorded', 'no model is recorded'),
    ('models', t.declared, 'runs whose model is recorded and declared', 'no model is both recorded and declared'),
    ('scores', t.checked, 'scores with stored checks', 'no checks are stored beside its scores'),
    ('selection', t.runs, 'trials', NULL),
    ('copies', t.said, 'runs with two answers or more', 'no run has two answers of 40 characters'),
    ('times', t.timed, 'runs with times of their source', 'no times of a source are recorded'),
    ('failures', if(t.arms > 1, t.runs, 0), 'trials', 'it has one arm'),
    ('costs', t.costed, 'runs whose model has a stated price', 'no price is stated of a model that answered')
) AS v(topic, looked, what, why_not)
WHERE v.what <> 'runs whose model is recorded and declared' OR t.modelled > 0
UNION ALL
SELECT v.topic, t.experiment, 0, 'runs', concat(v.why_not, ' in ', t.runs - v.looked, ' of ', t.runs, ' runs')
FROM per_experiment AS t
CROSS JOIN LATERAL (VALUES
    ('models', t.modelled, 'no model is recorded'),
    ('models', if(t.declared < t.modelled, t.declared, 0), 'no model is both recorded and declared'),
    ('scores', t.checked, 'no checks are stored beside the score'),
    ('copies', t.said, 'there are no two answers of 40 characters'),
    ('times', t.timed, 'no times of the source are recorded')
) AS v(topic, looked, why_not)
WHERE v.looked BETWEEN 1 AND t.runs - 1;
COMMENT ON VIEW looked_at IS 'One row a topic of the audit, and for what is about experiments one each: how much there was to look at, and where nothing, or not all, could be, why not. What stands here without why_not and has no finding was looked at and is silent.';
