-- On: step.settled.v1
-- After 40_step_events.
INSERT INTO settlements BY NAME
SELECT run, agent, step, verdict, "by" AS settled_by, because, version, position, happened_at
FROM step_events
WHERE own AND type = 'step.settled.v1';
