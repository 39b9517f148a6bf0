-- What replays saved: the calls that sessions were answered from the record, and what those had used.

CREATE VIEW savings AS
WITH RECURSIVE families AS (
    SELECT r.run, r.run AS member, 0 AS depth FROM runs AS r
    UNION ALL
    SELECT f.run, l.parent, f.depth + 1
    FROM families AS f
    JOIN lineage AS l ON l.run = f.member
    WHERE f.depth < 100
), sessions AS (
    SELECT
        e.run, e.agent, e.role, try_cast(coalesce(e.lifted, e.data)->>'$.epoch' AS BIGINT) AS epoch,
        e.happened_at AS began_at, e.position
    FROM events AS e
    WHERE e.known_as = 'agent.session_began.v1' AND coalesce(coalesce(e.lifted, e.data)->>'$.purpose', 'run') = 'run'
        AND try_cast(coalesce(e.lifted, e.data)->>'$.epoch' AS BIGINT) > 1
), ends AS (
    SELECT
        s.*, l.happened_at AS left_at, coalesce(l.lifted, l.data)->>'$.outcome' AS outcome,
        try_cast(coalesce(l.lifted, l.data)->'$.answered' AS BIGINT[][]) AS answered
    FROM sessions AS s
    LEFT JOIN events AS l
        ON l.run = s.run AND l.agent = s.agent AND l.epoch = s.epoch
        AND l.known_as = 'agent.left.v1' AND l.position > s.position
), given AS (
    -- A fork has no rows for what its parent did before the cut: the nearest row counts.
    SELECT x.run, x.agent, x.epoch, x.answered, p.step, arg_min(p, f.depth) AS s
    FROM ends AS x
    JOIN families AS f ON f.run = x.run
    JOIN steps AS p ON p.run = f.member AND p.agent = x.agent
    WHERE len(list_filter(x.answered, lambda r: p.step BETWEEN r[1] AND r[2])) > 0
    GROUP BY x.run, x.agent, x.epoch, x.answered, p.step
), priced AS (
    SELECT
        g.run, g.agent, g.epoch, g.step,
        any_value(g.s.input_tokens) * arg_max(p.amount, p.since) FILTER (p.usage = 'input_tokens')
            AS cost_in,
        any_value(g.s.output_tokens) * arg_max(p.amount, p.since) FILTER (p.usage = 'output_tokens')
            AS cost_out
    FROM given AS g
    JOIN runs AS r ON r.run = g.run
    LEFT JOIN arms AS a ON a.experiment = r.experiment AND a.arm = r.arm
    CROSS JOIN LATERAL (SELECT coalesce(g.s.arguments->>'$.model',
        if(g.s.kind = 'model', nullif(a.model, ''), NULL)) AS model) AS m
    JOIN (
        SELECT model, usage, since, arg_max(amount, version) AS amount FROM prices
        WHERE currency = 'USD' AND usage IN ('input_tokens', 'output_tokens')
        GROUP BY model, usage, since
    ) AS p ON p.model = m.model AND p.since <= g.s.requested_at
    WHERE g.s.cost IS NULL
    GROUP BY g.run, g.agent, g.epoch, g.step
), summed AS (
    SELECT
        g.run, g.agent, g.epoch, count(*) AS calls,
        count(*) FILTER (g.s.effects IN ('idempotent', 'reconcile', 'once')) AS effects,
        count(*) FILTER (coalesce(g.s.input_tokens, g.s.output_tokens) IS NOT NULL) AS calls_with_tokens,
        fsum(g.s.input_tokens) AS input_tokens, fsum(g.s.output_tokens) AS output_tokens,
        count(coalesce(g.s.cost, (p.cost_in + p.cost_out) / 1e6)) AS calls_with_cost,
        fsum(coalesce(g.s.cost, (p.cost_in + p.cost_out) / 1e6)) AS cost,
        count(g.s.duration_ms) AS calls_with_seconds,
        -- A body's time is in that of the call around it.
        fsum(g.s.duration_ms) FILTER (g.s.parent_step IS NULL OR len(list_filter(g.answered,
            lambda r: g.s.parent_step BETWEEN r[1] AND r[2])) = 0) / 1e3 AS seconds
    FROM given AS g
    LEFT JOIN priced AS p USING (run, agent, epoch, step)
    GROUP BY g.run, g.agent, g.epoch
)
SELECT
    x.run, r.workflow, x.agent, x.role, x.epoch, x.began_at, x.left_at, x.outcome,
    if(x.answered IS NULL, NULL, coalesce(t.calls, 0)) AS calls,
    if(x.answered IS NULL, NULL, coalesce(t.effects, 0)) AS effects,
    t.input_tokens, t.output_tokens, t.calls_with_tokens, t.cost, t.calls_with_cost, t.seconds,
    t.calls_with_seconds, x.position
FROM ends AS x
JOIN runs AS r ON r.run = x.run
LEFT JOIN summed AS t ON t.run = x.run AND t.agent = x.agent AND t.epoch = x.epoch;
COMMENT ON VIEW savings IS 'One row a session that went on with an agent: what it was answered from the record, as the recorded calls had used it. What was not recorded of them is not counted as 0: see the columns calls_with_... A session that was killed, is at work, or is of an earlier version has not told: calls is NULL.';
