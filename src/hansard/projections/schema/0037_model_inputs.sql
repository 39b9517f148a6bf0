-- What went to which model: under which label, and how many values had placeholders.

CREATE VIEW model_inputs AS
WITH said AS (
    SELECT l.position, l.agent, l.run, max_by(l.confidentiality, e.rank) AS confidentiality, bool_or(l.untrusted) AS untrusted
    FROM labels AS l
    JOIN (VALUES ('public', 0), ('internal', 1), ('confidential', 2), ('secret', 3)) AS e(name, rank) ON e.name = l.confidentiality
    WHERE l.agent IS NOT NULL
    GROUP BY l.position, l.agent, l.run
), declared AS (
    SELECT run, agent, tool, max_by(takes, version) AS takes FROM tools GROUP BY run, agent, tool
), replaced AS (
    SELECT run, agent, step, max(amount) FILTER (metric = 'replaced') AS replaced,
        to_json(map_from_entries(list({'k': metric[10:], 'v': amount::BIGINT} ORDER BY metric) FILTER (starts_with(metric, 'replaced_')))) AS kinds
    FROM usage
    WHERE step IS NOT NULL AND starts_with(metric, 'replaced')
    GROUP BY run, agent, step
)
SELECT
    s.run, s.agent, s.role, s.step, s.tool, s.parent_step, p.tool AS chosen_by, s.status, d.takes,
    coalesce(l.confidentiality, 'public') AS confidentiality, coalesce(l.untrusted, false) AS untrusted,
    r.replaced::BIGINT AS replaced, r.kinds AS replaced_kinds,
    (SELECT list(m.step ORDER BY m.step) FROM steps AS m
        WHERE m.run = s.run AND m.agent = s.agent AND m.kind = 'memory' AND m.step < s.step) AS memory_steps,
    s.arguments, s.requested_at, coalesce(s.requested_position, s.outcome_position) AS position
FROM steps AS s
LEFT JOIN steps AS p ON p.run = s.run AND p.agent = s.agent AND p.step = s.parent_step
LEFT JOIN declared AS d ON d.run = s.run AND d.agent = s.agent AND d.tool = s.tool
LEFT JOIN said AS l ON l.run = s.run AND l.agent = s.agent AND l.position = coalesce(s.outcome_position, s.requested_position)
LEFT JOIN replaced AS r ON r.run = s.run AND r.agent = s.agent AND r.step = s.step
WHERE s.kind = 'model' AND s.status <> 'blocked';
COMMENT ON VIEW model_inputs IS 'One row a call of a model that was made: what it was given, under which label its agent was by then, and how many values stood there as placeholders.';
