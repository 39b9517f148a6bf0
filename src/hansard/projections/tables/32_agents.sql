-- On: agent.* step.* message.* decision.* checkpoint.* resource.* tool.*
-- Agents. After 30_sessions.
INSERT INTO agents BY NAME
SELECT run, agent, role, 0 AS epoch, version, position
FROM present AS p
ANTI JOIN agents AS a ON a.run = p.run AND a.agent = p.agent AND a.role = p.role;

UPDATE agents SET
    epoch = CASE WHEN c.began IS NULL THEN agents.epoch ELSE c.began.epoch END,
    written_by = CASE WHEN c.began IS NULL THEN agents.written_by ELSE c.began.server_version END,
    began_at = coalesce(agents.began_at, c.began_at),
    outcome = CASE WHEN c.last IS NULL THEN agents.outcome ELSE c.last.outcome END,
    left_at = CASE WHEN c.last IS NULL THEN agents.left_at ELSE c.last.at END,
    error_type = CASE WHEN c.last IS NULL THEN agents.error_type ELSE c.last.error.type END,
    error = CASE WHEN c.last IS NULL THEN agents.error ELSE c.last.error.message END,
    version = c.version,
    position = c.position
FROM (
    SELECT
        p.run AS of_run, p.agent AS of_agent, p.role AS of_role, p.version, p.position,
        s.began, s.began_at, s.last
    FROM present AS p
    LEFT JOIN (
        SELECT
            run, agent, role,
            arg_max(fields, ordinal) FILTER (type = 'agent.session_began.v1') AS began,
            arg_min(happened_at, ordinal) FILTER (own AND type = 'agent.session_began.v1') AS began_at,
            arg_max({'outcome': fields.outcome, 'error': fields.error,
                'at': if(type = 'agent.left.v1', happened_at, NULL)}, ordinal)
                FILTER (type = 'agent.left.v1' OR coalesce(fields.purpose, 'run') = 'run') AS last
        FROM (
            SELECT *, from_json(data, '{"epoch": "BIGINT", "server_version": "VARCHAR",
                "purpose": "VARCHAR", "outcome": "VARCHAR",
                "error": {"type": "VARCHAR", "message": "VARCHAR"}}') AS fields
            FROM sessions
        )
        GROUP BY run, agent, role
    ) AS s ON s.run = p.run AND s.agent = p.agent AND s.role = p.role
) AS c
WHERE agents.run = c.of_run AND agents.agent = c.of_agent AND agents.role = c.of_role;
