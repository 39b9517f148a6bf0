-- Paths: which tools the runs of an experiment chose, in which order, and what that went with.
-- That it went with success does not say that it led to it.

CREATE VIEW trial_paths AS
SELECT
    t.experiment, t.arm, t.task, t.trial, t.run, t.status, t.success, a.agent, a.role,
    coalesce(list(s.tool ORDER BY s.requested_version) FILTER (s.tool IS NOT NULL), []) AS tools
FROM trial_runs AS t
LEFT JOIN agents AS a ON a.run = t.run
LEFT JOIN steps AS s
    ON s.run = a.run AND s.agent = a.agent AND s.kind = 'tool' AND NOT s.inherited
GROUP BY t.experiment, t.arm, t.task, t.trial, t.run, t.status, t.success, a.agent, a.role;
COMMENT ON VIEW trial_paths IS 'One row a trial and agent: the tools that it called. Calls inside a composite tool stand after it; a fork''s path begins where it was forked.';
COMMENT ON COLUMN trial_paths.experiment IS 'The experiment.';
COMMENT ON COLUMN trial_paths.arm IS 'The arm; empty where none is named.';
COMMENT ON COLUMN trial_paths.task IS 'The task; the run''s id where none is named.';
COMMENT ON COLUMN trial_paths.trial IS 'Which trial of the task, as the source counts.';
COMMENT ON COLUMN trial_paths.run IS 'Id of the run.';
COMMENT ON COLUMN trial_paths.status IS 'open, completed, failed or cancelled.';
COMMENT ON COLUMN trial_paths.success IS 'Whether the run succeeded, as trial_runs says: 1, 0, or NULL where that is not known yet.';
COMMENT ON COLUMN trial_paths.agent IS 'The agent; NULL where the run has none.';
COMMENT ON COLUMN trial_paths.role IS 'The agent''s role.';
COMMENT ON COLUMN trial_paths.tools IS 'The tools it called, in the order of their requests in the agent''s stream; empty where it called none.';

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
COMMENT ON VIEW tool_choices IS 'One row a tool and arm, for every tool that any arm of the experiment called.';
COMMENT ON COLUMN tool_choices.experiment IS 'The experiment.';
COMMENT ON COLUMN tool_choices.arm IS 'The arm; empty where none is named.';
COMMENT ON COLUMN tool_choices.tool IS 'The tool.';
COMMENT ON COLUMN tool_choices.calls IS 'How often runs of the arm called it.';
COMMENT ON COLUMN tool_choices.runs IS 'Runs of the arm, with the tool or without it.';
COMMENT ON COLUMN tool_choices.runs_with_it IS 'How many of them called it.';
COMMENT ON COLUMN tool_choices.errors IS 'How many of the calls failed, were blocked, are in doubt or were not done.';
COMMENT ON COLUMN tool_choices.success_with IS 'Share of successes in the runs that called it and whose success is known; NULL where there are none.';
COMMENT ON COLUMN tool_choices.success_without IS 'Share of successes in the runs that did not call it and whose success is known; NULL where there are none.';

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
COMMENT ON VIEW transitions IS 'One row an arm and pair of tools of which an agent called the second right after the first.';
COMMENT ON COLUMN transitions.experiment IS 'The experiment.';
COMMENT ON COLUMN transitions.arm IS 'The arm; empty where none is named.';
COMMENT ON COLUMN transitions.from_tool IS 'The tool that was called before; (start) where none was.';
COMMENT ON COLUMN transitions.to_tool IS 'The tool that was called next; (end) where none was, (open) where the run has not ended.';
COMMENT ON COLUMN transitions."count" IS 'How often.';
COMMENT ON COLUMN transitions.share IS 'Share of what followed on from_tool in this arm.';

CREATE VIEW sequences AS
SELECT
    p.experiment, p.arm, p.role, p.tools AS sequence, len(p.tools) AS calls,
    count(DISTINCT p.run) AS runs, count(DISTINCT p.run) FILTER (p.success = 1) AS successes,
    count(DISTINCT p.run) FILTER (p.success = 1)
        / nullif(count(DISTINCT p.run) FILTER (p.success IS NOT NULL), 0) AS success_rate
FROM trial_paths AS p
GROUP BY p.experiment, p.arm, p.role, p.tools;
COMMENT ON VIEW sequences IS 'One row an arm, role and whole sequence of tools, exactly as agents of the role called them.';
COMMENT ON COLUMN sequences.experiment IS 'The experiment.';
COMMENT ON COLUMN sequences.arm IS 'The arm; empty where none is named.';
COMMENT ON COLUMN sequences.role IS 'The role of the agents.';
COMMENT ON COLUMN sequences.sequence IS 'The tools, in the order of their calls; empty where none was called.';
COMMENT ON COLUMN sequences.calls IS 'How many they are.';
COMMENT ON COLUMN sequences.runs IS 'Runs in which an agent of the role called just these.';
COMMENT ON COLUMN sequences.successes IS 'How many of them succeeded.';
COMMENT ON COLUMN sequences.success_rate IS 'Their share in the runs whose success is known; NULL where there are none.';
