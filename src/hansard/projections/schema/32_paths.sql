-- Paths: the tools that the runs of an experiment chose, their order, and correlations with success.
-- A correlation with success does not show that the path caused it.

CREATE VIEW trial_paths AS
SELECT
    t.experiment, t.arm, t.task, t.trial, t.run, t.status, t.success, a.agent, a.role,
    coalesce(list(s.tool ORDER BY s.requested_version) FILTER (s.tool IS NOT NULL), []) AS tools
FROM trial_runs AS t
LEFT JOIN agents AS a ON a.run = t.run
LEFT JOIN steps AS s
    ON s.run = a.run AND s.agent = a.agent AND s.kind = 'tool' AND NOT s.inherited
GROUP BY t.experiment, t.arm, t.task, t.trial, t.run, t.status, t.success, a.agent, a.role;
COMMENT ON VIEW trial_paths IS 'One row per trial and agent: the tools it called. Calls inside a composite tool follow it; a fork starts at the cut.';

CREATE VIEW tool_choices AS
WITH called AS (
    SELECT
        t.experiment, t.arm, s.tool, t.run, any_value(t.success) AS success, count(*) AS calls,
        count(*) FILTER (s.status IN ('failed', 'blocked', 'in_doubt', 'not_done')) AS errors
    FROM trial_runs AS t
    JOIN steps AS s ON s.run = t.run AND s.kind = 'tool' AND NOT s.inherited
    WHERE s.tool IS NOT NULL
    GROUP BY t.experiment, t.arm, s.tool, t.run
), sizes AS (
    SELECT
        experiment, arm, count(*) AS runs, count(success) AS known,
        count(*) FILTER (success = 1) AS successes
    FROM trial_runs
    GROUP BY experiment, arm
), offered AS (
    SELECT z.experiment, z.arm, z.runs, z.known, z.successes, c.tool
    FROM sizes AS z
    JOIN (SELECT DISTINCT experiment, tool FROM called) AS c ON c.experiment = z.experiment
), chosen AS (
    SELECT
        experiment, arm, tool, count(*) AS runs, count(success) AS known,
        count(*) FILTER (success = 1) AS successes,
        sum(calls)::BIGINT AS calls, sum(errors)::BIGINT AS errors
    FROM called
    GROUP BY experiment, arm, tool
)
SELECT
    o.experiment, o.arm, o.tool, coalesce(c.calls, 0) AS calls, o.runs,
    coalesce(c.runs, 0) AS runs_with_it, coalesce(c.errors, 0) AS errors,
    c.successes / nullif(c.known, 0) AS success_with,
    (o.successes - coalesce(c.successes, 0)) / nullif(o.known - coalesce(c.known, 0), 0) AS success_without
FROM offered AS o
LEFT JOIN chosen AS c ON c.experiment = o.experiment AND c.arm = o.arm AND c.tool = o.tool;
COMMENT ON VIEW tool_choices IS 'One row per tool and arm, for each tool called in the experiment.';

CREATE VIEW transitions AS
WITH moves AS (
    SELECT
        p.experiment, p.arm, unnest(list_prepend('(start)', p.tools)) AS from_tool,
        unnest(list_append(p.tools, if(p.status = 'open', '(open)', '(end)'))) AS to_tool
    FROM trial_paths AS p
)
SELECT
    experiment, arm, from_tool, to_tool, count(*) AS "count",
    count(*) / sum(count(*)) OVER (PARTITION BY experiment, arm, from_tool) AS share
FROM moves
GROUP BY experiment, arm, from_tool, to_tool;
COMMENT ON VIEW transitions IS 'One row per arm and pair of tools called one directly after the other.';

CREATE VIEW sequences AS
SELECT
    p.experiment, p.arm, p.role, p.tools AS sequence, len(p.tools) AS calls,
    count(DISTINCT p.run) AS runs, count(DISTINCT p.run) FILTER (p.success = 1) AS successes,
    count(DISTINCT p.run) FILTER (p.success = 1)
        / nullif(count(DISTINCT p.run) FILTER (p.success IS NOT NULL), 0) AS success_rate
FROM trial_paths AS p
GROUP BY p.experiment, p.arm, p.role, p.tools;
COMMENT ON VIEW sequences IS 'One row per arm, role and exact sequence of tools called by an agent.';
