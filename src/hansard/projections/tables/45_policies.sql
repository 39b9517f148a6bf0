-- On: step.blocked.v1
-- After 40_step_events.
INSERT INTO policies BY NAME
SELECT run, agent, step, rule, 'blocked' AS verdict, reason, version, position, happened_at
FROM step_events
WHERE own AND type = 'step.blocked.v1';
