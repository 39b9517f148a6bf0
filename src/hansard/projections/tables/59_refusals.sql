-- On: agent.refused.v1 step.blocked.v1 access.refused.v1
-- Calls refused by other rules of a gate are only in policies.
INSERT INTO refusals BY NAME
SELECT
    'statement' AS kind, b.run, b.agent, b.role, b.data->>'what' AS what, b.data->>'name' AS name,
    b.data->>'rule' AS rule, b.data->>'because' AS because, 1 AS count,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'agent.refused.v1'
UNION ALL BY NAME
SELECT
    'call' AS kind, b.run, b.agent, b.role, 'call' AS what, s.tool AS name,
    try_cast(b.data->>'step' AS BIGINT) AS step, b.data->>'rule' AS rule,
    b.data->>'reason' AS because, 1 AS count,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
LEFT JOIN steps AS s
    ON s.run = b.run AND s.agent = b.agent AND s.step = try_cast(b.data->>'step' AS BIGINT)
WHERE b.type = 'step.blocked.v1'
    AND (b.data->>'rule' = 'label' OR starts_with(b.data->>'rule', 'role '))
UNION ALL BY NAME
SELECT
    'access' AS kind, b.data->>'principal' AS principal, b.data->>'role' AS role,
    b.data->>'operation' AS what, b.data->>'because' AS because,
    coalesce(try_cast(b.data->>'count' AS BIGINT), 1) AS count,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'access.refused.v1';
