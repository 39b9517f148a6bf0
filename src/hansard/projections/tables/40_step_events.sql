-- On: step.*
-- Events of steps in this batch.
CREATE OR REPLACE TEMP TABLE step_events AS
SELECT run, agent, role, ordinal, version, position, happened_at, type, true AS own,
    unnest(from_json(data, '{"step": "BIGINT",
        "tool": "VARCHAR", "effects": "VARCHAR", "arguments": "JSON", "scope": "VARCHAR",
        "after": ["BIGINT"], "parent": "BIGINT", "key": "VARCHAR", "kind": "VARCHAR",
        "call_id": "VARCHAR", "result": "JSON", "duration_ms": "DOUBLE", "usage": "JSON",
        "reused": "BIGINT", "error": {"type": "VARCHAR", "message": "VARCHAR"}, "rule": "VARCHAR",
        "reason": "VARCHAR", "verdict": "VARCHAR", "by": "VARCHAR", "because": "VARCHAR",
        "attempt": "BIGINT", "retry_in_ms": "DOUBLE", "fingerprint": "VARCHAR", "full": "VARCHAR",
        "by_result": "VARCHAR", "how": "VARCHAR", "reused_from": {"run": "VARCHAR",
            "agent": "VARCHAR", "step": "BIGINT", "event": "VARCHAR", "key": "VARCHAR"},
        "prompts": [{"prompt": "VARCHAR", "version": "BIGINT", "alias": "VARCHAR"}]}'))
FROM batch
WHERE type IN ('step.requested.v1', 'step.attempted.v1', 'step.completed.v1', 'step.failed.v1',
    'step.blocked.v1', 'step.in_doubt.v1', 'step.settled.v1',
    'step.withheld.v1');

-- Steps without a row, and their first events.
CREATE OR REPLACE TEMP TABLE fresh AS
SELECT t.run, t.agent, t.step, min(t.ordinal) FILTER (t.type = 'step.requested.v1') AS begins
FROM step_events AS t
ANTI JOIN steps AS s ON s.run = t.run AND s.agent = t.agent AND s.step = t.step
GROUP BY t.run, t.agent, t.step;
