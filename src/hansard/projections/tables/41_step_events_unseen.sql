-- On: step.*
-- Where: partial
-- A step whose intent is not visible begins with its first event that gives a status.
UPDATE fresh SET begins = u.begins
FROM (
    SELECT run AS of_run, agent AS of_agent, step AS of_step, min(ordinal) AS begins
    FROM step_events
    WHERE type <> 'step.settled.v1' OR verdict IN ('happened', 'did_not_happen')
    GROUP BY run, agent, step
) AS u
WHERE fresh.begins IS NULL AND fresh.run = u.of_run AND fresh.agent = u.of_agent
    AND fresh.step = u.of_step;
