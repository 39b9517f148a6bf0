-- On: step.blocked.v1
-- After 40_told.
INSERT INTO policies BY NAME
SELECT run, agent, step, rule, 'blocked' AS verdict, reason, version, position, happened_at
FROM told
WHERE own AND type = 'step.blocked.v1';
