-- On: step.*
-- Where: forks
-- Events before the fork of steps that the fork's parent requested.
INSERT INTO step_events
SELECT f.run, e.agent, e.role, e.position << 16 | e.event_index, e.version, e.position,
    e.happened_at, e.known_as, false, unnest(from_json(coalesce(e.lifted, e.data), '{
        "step": "BIGINT",
        "tool": "VARCHAR", "effects": "VARCHAR", "arguments": "JSON", "scope": "VARCHAR",
        "after": ["BIGINT"], "parent": "BIGINT", "key": "VARCHAR", "kind": "VARCHAR",
        "call_id": "VARCHAR", "result": "JSON", "duration_ms": "DOUBLE", "usage": "JSON",
        "reused": "BIGINT", "error": {"type": "VARCHAR", "message": "VARCHAR"}, "rule": "VARCHAR",
        "reason": "VARCHAR", "verdict": "VARCHAR", "by": "VARCHAR", "because": "VARCHAR",
        "attempt": "BIGINT", "retry_in_ms": "DOUBLE", "fingerprint": "VARCHAR", "full": "VARCHAR",
        "by_result": "VARCHAR", "how": "VARCHAR", "reused_from": {"run": "VARCHAR",
            "agent": "VARCHAR", "step": "BIGINT", "event": "VARCHAR", "key": "VARCHAR"},
        "prompts": [{"prompt": "VARCHAR", "version": "BIGINT", "alias": "VARCHAR"}]}'))
FROM fresh AS f
JOIN ancestry AS a ON a.run = f.run
JOIN events AS e
    ON e.run = a.parent AND e.stream = a.stream AND e.version <= a.version
    AND e.position < a.position AND e.agent = f.agent
WHERE f.begins IS NULL
    AND e.known_as IN ('step.requested.v1', 'step.attempted.v1', 'step.completed.v1',
        'step.failed.v1', 'step.blocked.v1', 'step.in_doubt.v1', 'step.settled.v1',
        'step.withheld.v1')
    AND try_cast(coalesce(e.lifted, e.data)->>'step' AS BIGINT) = f.step;

UPDATE fresh SET begins = i.begins
FROM (
    SELECT run AS of_run, agent AS of_agent, step AS of_step, min(ordinal) AS begins
    FROM step_events
    WHERE NOT own AND type = 'step.requested.v1'
    GROUP BY run, agent, step
) AS i
WHERE fresh.begins IS NULL AND fresh.run = i.of_run AND fresh.agent = i.of_agent
    AND fresh.step = i.of_step;
