-- On: step.*
-- Steps: a row by their intent, updated by later events. After 40_step_events.
CREATE OR REPLACE TEMP TABLE changes AS
WITH with_status AS (
    SELECT
        t.*, s.step IS NOT NULL AS fresh, s.begins,
        CASE t.type
            WHEN 'step.requested.v1' THEN 'requested'
            WHEN 'step.attempted.v1' THEN 'requested'
            WHEN 'step.completed.v1' THEN 'completed'
            WHEN 'step.failed.v1' THEN 'failed'
            WHEN 'step.blocked.v1' THEN 'blocked'
            WHEN 'step.in_doubt.v1' THEN 'in_doubt'
            ELSE CASE t.verdict
                WHEN 'happened' THEN 'completed'
                WHEN 'did_not_happen' THEN 'not_done'
            END
        END AS status
    FROM step_events AS t
    LEFT JOIN fresh AS s ON s.run = t.run AND s.agent = t.agent AND s.step = t.step
    WHERE if(s.step IS NULL, t.type <> 'step.requested.v1',
        t.ordinal = s.begins OR (t.ordinal > s.begins AND t.type <> 'step.requested.v1'))
)
SELECT
    run, agent, step, any_value(fresh) AS fresh, any_value(role) AS role,
    any_value({'role': role, 'tool': tool, 'kind': coalesce(kind, 'tool'), 'effects': effects,
        'arguments': arguments, 'call_id': call_id, 'key': key, 'parent': parent,
        'scope': coalesce(scope, ''), 'after': coalesce(after, []), 'inherited': NOT own,
        'version': version, 'position': position, 'at': happened_at,
        -- The fingerprint by the run's own chain is the main one, the other is stored beside it.
        'by_result': coalesce(by_result, fingerprint),
        'full': coalesce("full", if(by_result IS NULL, NULL, fingerprint)), 'prompts': prompts})
        FILTER (type = 'step.requested.v1') AS intent,
    count(*) FILTER (type = 'step.attempted.v1') AS attempted,
    arg_max(status, ordinal) FILTER (status IS NOT NULL) AS status,
    arg_max({'version': version, 'position': position, 'at': happened_at}, ordinal)
        FILTER (status <> 'requested') AS outcome,
    arg_max({'result': result}, ordinal) FILTER (status = 'completed') AS done,
    arg_max({'step': reused, 'from': reused_from}, ordinal)
        FILTER (type = 'step.completed.v1') AS reused,
    arg_max(if(status = 'blocked', {'type': 'Blocked', 'message': reason},
        if(status = 'requested', {'type': NULL, 'message': NULL},
            {'type': error.type, 'message': error.message})), ordinal)
        FILTER (status <> 'not_done') AS error,
    arg_max(rule, ordinal) FILTER (type = 'step.blocked.v1') AS rule,
    arg_max({'ms': duration_ms}, ordinal) FILTER (
        type IN ('step.completed.v1', 'step.failed.v1', 'step.in_doubt.v1')) AS took,
    arg_max({'usage': usage}, ordinal)
        FILTER (type IN ('step.completed.v1', 'step.failed.v1')) AS used,
    arg_max({'verdict': if(type = 'step.settled.v1', verdict, NULL)}, ordinal)
        FILTER (type IN ('step.settled.v1', 'step.attempted.v1')) AS verdict,
    arg_max("by", ordinal) FILTER (type = 'step.settled.v1') AS settled_by,
    arg_max({'how': how}, ordinal)
        FILTER (type IN ('step.withheld.v1', 'step.attempted.v1')) AS withheld
FROM with_status
GROUP BY run, agent, step;

INSERT INTO steps BY NAME
SELECT
    run, coalesce(intent.role, role) AS role, agent, step, intent.tool, intent.kind, intent.effects, status,
    1 + attempted AS attempts, took.ms AS duration_ms,
    try_cast(used.usage->>'input_tokens' AS DOUBLE) AS input_tokens,
    try_cast(used.usage->>'output_tokens' AS DOUBLE) AS output_tokens,
    try_cast(used.usage->>'cost' AS DOUBLE) AS cost, used.usage AS usage, intent.arguments,
    done.result, error.type AS error_type, error.message AS error, rule, intent.call_id, intent.key,
    intent.parent AS parent_step, intent.scope, intent.after, reused.step AS reused_step,
    verdict.verdict, settled_by, intent.inherited, intent.at AS requested_at,
    if(status = 'requested', NULL, outcome.at) AS ended_at,
    intent.version AS requested_version, outcome.version AS outcome_version,
    intent.position AS requested_position, outcome.position AS outcome_position,
    intent.by_result AS fingerprint_result, intent."full" AS fingerprint_full,
    withheld.how AS withheld, intent.prompts, reused."from" AS reused_from
FROM changes
WHERE fresh;

UPDATE steps SET
    status = coalesce(c.status, steps.status),
    attempts = steps.attempts + c.attempted,
    duration_ms = CASE WHEN c.took IS NULL THEN steps.duration_ms ELSE c.took.ms END,
    usage = CASE WHEN c.used IS NULL THEN steps.usage ELSE c.used.usage END,
    input_tokens = CASE WHEN c.used IS NULL THEN steps.input_tokens
        ELSE try_cast(c.used.usage->>'input_tokens' AS DOUBLE) END,
    output_tokens = CASE WHEN c.used IS NULL THEN steps.output_tokens
        ELSE try_cast(c.used.usage->>'output_tokens' AS DOUBLE) END,
    cost = CASE WHEN c.used IS NULL THEN steps.cost ELSE try_cast(c.used.usage->>'cost' AS DOUBLE) END,
    result = CASE WHEN c.done IS NULL THEN steps.result ELSE c.done.result END,
    reused_step = CASE WHEN c.reused IS NULL THEN steps.reused_step ELSE c.reused.step END,
    reused_from = CASE WHEN c.reused IS NULL THEN steps.reused_from ELSE c.reused."from" END,
    error_type = CASE WHEN c.error IS NULL THEN steps.error_type ELSE c.error.type END,
    error = CASE WHEN c.error IS NULL THEN steps.error ELSE c.error.message END,
    rule = coalesce(c.rule, steps.rule),
    verdict = CASE WHEN c.verdict IS NULL THEN steps.verdict ELSE c.verdict.verdict END,
    settled_by = coalesce(c.settled_by, steps.settled_by),
    withheld = CASE WHEN c.withheld IS NULL THEN steps.withheld ELSE c.withheld.how END,
    ended_at = CASE WHEN c.status IS NULL THEN steps.ended_at WHEN c.status = 'requested' THEN NULL
        ELSE c.outcome.at END,
    outcome_version = coalesce(c.outcome.version, steps.outcome_version),
    outcome_position = coalesce(c.outcome.position, steps.outcome_position)
FROM changes AS c
WHERE NOT c.fresh AND steps.run = c.run AND steps.agent = c.agent AND steps.step = c.step;

INSERT INTO usage BY NAME
SELECT
    run, agent, 'step' AS of, step, version, unnest(map_keys(amounts)) AS metric,
    unnest(map_values(amounts)) AS amount, position, happened_at
FROM (
    SELECT *, try_cast(usage AS MAP(VARCHAR, DOUBLE)) AS amounts
    FROM step_events
    WHERE own AND usage IS NOT NULL AND type IN ('step.completed.v1', 'step.failed.v1')
);
