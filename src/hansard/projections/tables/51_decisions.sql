-- On: decision.made.v1
CREATE OR REPLACE TEMP TABLE decided AS
SELECT
    * EXCLUDE (data),
    unnest(from_json(data, '{"question": "VARCHAR", "selected": "VARCHAR",
        "alternatives": [{"id": "VARCHAR", "score": "DOUBLE", "reason": "VARCHAR",
            "rejected_because": "VARCHAR"}], "inputs": ["VARCHAR"], "threshold": "DOUBLE",
        "confidence": "DOUBLE", "because": "VARCHAR", "after": ["BIGINT"]}'))
FROM batch
WHERE type = 'decision.made.v1';

INSERT INTO decisions BY NAME
SELECT
    id AS decision, run, agent, role, version, position, happened_at, question, selected,
    threshold, confidence, because, coalesce(len(alternatives), 0) AS alternatives,
    coalesce(inputs, []) AS inputs, coalesce("after", []) AS after,
    list_filter(alternatives, lambda a: a.id = selected)[1].score AS score,
    list_max([a.score FOR a IN alternatives IF a.id <> selected]) AS runner_up,
    list_filter(alternatives, lambda a: a.id = selected)[1].score - threshold AS margin
FROM decided;

INSERT INTO alternatives BY NAME
SELECT
    decision, run, number, a.id, a.score, a.reason, a.rejected_because, a.id = selected AS selected
FROM (
    SELECT
        id AS decision, run, selected, unnest(alternatives) AS a,
        generate_subscripts(alternatives, 1) AS number
    FROM decided
);
