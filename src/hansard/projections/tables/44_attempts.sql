-- On: step.attempted.v1
-- After 40_step_events.
INSERT INTO attempts BY NAME
SELECT run, agent, step, attempt, error.type AS error_type, error.message AS error, retry_in_ms,
    duration_ms, version, position, happened_at
FROM step_events
WHERE own AND type = 'step.attempted.v1';
