-- On: agent.* step.* message.* decision.* checkpoint.* resource.* tool.*
-- The agents of this batch, and their sessions that began and ended.
CREATE OR REPLACE TEMP TABLE present AS
SELECT run, agent, role, max(version) AS version, max(position) AS position
FROM batch
WHERE agent IS NOT NULL
GROUP BY run, agent, role;

CREATE OR REPLACE TEMP TABLE sessions AS
SELECT run, agent, role, ordinal, type, data, happened_at, true AS own
FROM batch
WHERE type IN ('agent.session_began.v1', 'agent.left.v1');
