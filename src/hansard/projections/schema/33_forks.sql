-- Forks: withheld steps, differences from their parents, and the cost that replays saved.

CREATE VIEW withheld AS
SELECT
    e.run, l.parent, e.agent, e.role, s.step, s.tool, s.kind, s.effects, s.arguments,
    coalesce(e.lifted, e.data)->>'$.how' AS how, coalesce(e.lifted, e.data)->>'$.would' AS would,
    s.status, s.result, s.reused_step, e.version, e.position, e.happened_at
FROM events AS e
JOIN steps AS s
    ON s.run = e.run AND s.agent = e.agent
    AND s.step = try_cast(coalesce(e.lifted, e.data)->>'$.step' AS BIGINT)
LEFT JOIN lineage AS l ON l.run = e.run
WHERE e.known_as = 'step.withheld.v1';
COMMENT ON VIEW withheld IS 'One row per effect that a fork withheld: the tool did not run.';

CREATE MACRO sameness(a, b) AS CASE
    WHEN len(coalesce(a, [])) = 0 OR len(coalesce(b, [])) = 0 THEN 'not on record'
    WHEN list_sort(a) = list_sort(b) THEN 'same' ELSE 'differs' END;
COMMENT ON MACRO sameness IS 'Helper of other macros.';

CREATE VIEW forks AS
WITH cut AS (
    SELECT run, parent, CAST(vector AS MAP(VARCHAR, BIGINT)) AS cuts FROM lineage
), stretches AS (
    -- Events after the cut: all of the fork's own, and those with which its parent continued,
    -- which may be in a parent of the parent.
    SELECT l.run, 'b' AS side, l.run AS member, l.run AS of_run, NULL AS of_stream, NULL AS until, l.cuts
    FROM cut AS l
    UNION ALL
    SELECT l.run, 'a', l.parent, l.parent, NULL, NULL, l.cuts FROM cut AS l
    UNION ALL
    SELECT l.run, 'a', i.parent, l.parent, i.stream, i.version, l.cuts
    FROM cut AS l
    JOIN inherited AS i ON i.run = l.parent
), calls AS (
    SELECT
        x.run, x.side, x.of_run, s.agent, s.tool, s.withheld, s.requested_version,
        concat('agent/', s.role, '/', s.agent) AS stream, x.member,
        if(json_type(s.arguments, '$.model') = 'VARCHAR', s.arguments->>'$.model', NULL) AS model
    FROM stretches AS x
    JOIN steps AS s ON s.run = x.member AND NOT s.inherited
        AND (x.of_stream IS NULL OR (x.of_stream = concat('agent/', s.role, '/', s.agent)
            AND s.requested_version <= x.until))
        AND s.requested_version > coalesce(x.cuts[concat('agent/', s.role, '/', s.agent)], 0)
), messages_after AS (
    SELECT
        x.run, x.side, m.message_role, m.content, m.text,
        if(json_type(m.fields, '$.model') = 'VARCHAR', m.fields->>'$.model', NULL) AS model,
        x.cuts IS NOT NULL
            AND m.version > coalesce(x.cuts[concat('agent/', m.role, '/', m.agent)], 0) AS after
    FROM (
        FROM stretches
        UNION ALL
        SELECT i.run, 'b', i.parent, i.run, i.stream, i.version, NULL FROM inherited AS i
    ) AS x
    JOIN messages AS m ON m.run = x.member
        AND (x.of_stream IS NULL OR (x.of_stream = concat('agent/', m.role, '/', m.agent)
            AND m.version <= x.until))
), declared AS (
    -- A call's tool as then declared: before the call, in its run or in an ancestor of it.
    SELECT
        c.run, c.side, c.tool,
        arg_max({'version': t.declared_version, 'source': coalesce(t.source, ''), 'effects': t.effects}, t.version) AS code
    FROM calls AS c
    JOIN tools AS t ON t.agent = c.agent AND t.tool = c.tool AND t.version <= c.requested_version
    LEFT JOIN inherited AS i ON i.run = c.of_run AND i.parent = t.run AND i.stream = c.stream
    WHERE t.run = c.of_run OR t.version <= i.version
    GROUP BY c.run, c.side, c.tool, c.agent, c.requested_version
), code AS (
    SELECT run, tool, list(DISTINCT code) FILTER (side = 'a') AS a, list(DISTINCT code) FILTER (side = 'b') AS b
    FROM declared
    GROUP BY run, tool
), codes AS (
    SELECT
        run,
        CASE WHEN bool_or(sameness(a, b) = 'differs') THEN 'differs'
            WHEN bool_or(list_contains([c.source FOR c IN a], '')) OR count(*) = 0 THEN 'not on record'
            ELSE 'same' END AS code
    FROM code
    WHERE len(coalesce(a, [])) > 0 AND len(coalesce(b, [])) > 0
    GROUP BY run
), models AS (
    SELECT run, list(DISTINCT model) FILTER (side = 'a') AS a, list(DISTINCT model) FILTER (side = 'b') AS b
    FROM (
        SELECT run, side, model FROM calls WHERE model <> ''
        UNION ALL
        SELECT run, side, model FROM messages_after WHERE model <> '' AND after
    )
    GROUP BY run
), prompts AS (
    SELECT
        run, coalesce(list(DISTINCT coalesce(content::VARCHAR, text)) FILTER (side = 'a'), []) AS a,
        coalesce(list(DISTINCT coalesce(content::VARCHAR, text)) FILTER (side = 'b'), []) AS b
    FROM messages_after
    WHERE message_role IN ('system', 'developer')
    GROUP BY run
), counts AS (
    SELECT
        run, count(*) FILTER (side = 'b' AND withheld = 'outcome') AS withheld_outcome,
        count(*) FILTER (side = 'b' AND withheld = 'shadow') AS withheld_shadow,
        count(*) FILTER (side = 'b' AND withheld = 'refused') AS withheld_refused,
        count(*) FILTER (side = 'b' AND withheld = 'edit') AS withheld_edit,
        count(*) FILTER (withheld IN ('shadow', 'refused')) AS unlike
    FROM calls
    GROUP BY run
), ran AS (
    SELECT x.run, x.side
    FROM stretches AS x
    JOIN events AS e ON e.run = x.member AND e.agent IS NOT NULL
        AND (x.of_stream IS NULL OR (x.of_stream = concat('agent/', e.role, '/', e.agent) AND e.version <= x.until))
        AND e.version > coalesce(x.cuts[concat('agent/', e.role, '/', e.agent)], 0)
), found AS (
    SELECT
        l.run, l.parent, l.effects, l.edits, l.happened_at AS forked_at, l.position,
        l.run IN (SELECT r.run FROM ran AS r GROUP BY r.run HAVING count(DISTINCT r.side) = 2) AS both_ran,
        coalesce(n.withheld_outcome, 0) AS withheld_outcome,
        coalesce(n.withheld_shadow, 0) AS withheld_shadow,
        coalesce(n.withheld_refused, 0) AS withheld_refused,
        coalesce(n.withheld_edit, 0) AS withheld_edit,
        {'code': coalesce(c.code, 'not on record'), 'model': sameness(m.a, m.b),
            'prompt': CASE WHEN p.run IS NULL THEN 'not on record'
                WHEN list_sort(p.a) = list_sort(p.b) THEN 'same' ELSE 'differs' END,
            'effects': if(coalesce(n.unlike, 0) > 0, 'differs', 'same')} AS known
    FROM lineage AS l
    LEFT JOIN codes AS c ON c.run = l.run
    LEFT JOIN models AS m ON m.run = l.run
    LEFT JOIN prompts AS p ON p.run = l.run
    LEFT JOIN counts AS n ON n.run = l.run
), compared AS (
    SELECT *, if(both_ran, known, {'code': 'not on record', 'model': 'not on record',
        'prompt': 'not on record', 'effects': 'not on record'}) AS respects
    FROM found
), named AS (
    SELECT
        *, [{'name': 'code', 'found': respects.code}, {'name': 'model', 'found': respects.model},
            {'name': 'prompt', 'found': respects.prompt},
            {'name': 'effects', 'found': respects.effects}] AS each
    FROM compared
)
SELECT
    run, parent, effects, edits, forked_at, withheld_outcome, withheld_shadow, withheld_refused,
    withheld_edit,
    respects.code AS code, respects.model AS model, respects.prompt AS prompt,
    [x.name FOR x IN each IF x.found = 'differs'] AS differs_in,
    [x.name FOR x IN each IF x.found = 'not on record'] AS not_on_record,
    CASE WHEN NOT both_ran THEN 'nothing ran' WHEN len(differs_in) > 0 THEN 'differs' WHEN len(not_on_record) > 0 THEN 'cannot tell'
        ELSE 'comparable' END AS comparability,
    position
FROM named;
COMMENT ON VIEW forks IS 'One row per fork: what it withheld and whether it is comparable with its parent: comparable (code, models and prompts after the cut are recorded and equal, no effect was shadowed or refused), differs (see differs_in), cannot tell (see not_on_record) or nothing ran (in one of them after the fork point).';

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
        AND e.run NOT IN (SELECT l.run FROM lineage AS l WHERE l.swap IS NOT NULL)
), ends AS (
    SELECT
        s.*, l.happened_at AS left_at, coalesce(l.lifted, l.data)->>'$.outcome' AS outcome,
        try_cast(coalesce(l.lifted, l.data)->'$.answered' AS BIGINT[][]) AS answered
    FROM sessions AS s
    LEFT JOIN events AS l
        ON l.run = s.run AND l.agent = s.agent AND l.epoch = s.epoch
        AND l.known_as = 'agent.left.v1' AND l.position > s.position
), answers AS (
    -- A fork has no rows for its parent's steps before the cut: the nearest ancestor's row counts.
    SELECT x.run, x.agent, x.epoch, x.answered, p.step, arg_min(p, f.depth) AS s
    FROM ends AS x
    JOIN families AS f ON f.run = x.run
    JOIN steps AS p ON p.run = f.member AND p.agent = x.agent
    WHERE len(list_filter(x.answered, lambda r: p.step BETWEEN r[1] AND r[2])) > 0
    GROUP BY x.run, x.agent, x.epoch, x.answered, p.step
), given AS (
    -- An adopted outcome has the usage of the step that ran, in the run or an ancestor.
    SELECT a.run, a.agent, a.epoch, a.answered, a.step, any_value(a.s) AS s, coalesce(arg_min(p, f.depth) FILTER (p.run IS NOT NULL), any_value(a.s)) AS of
    FROM answers AS a
    LEFT JOIN families AS f ON f.run = a.run AND a.s.reused_step IS NOT NULL
    LEFT JOIN steps AS p ON p.run = f.member AND p.agent = a.agent AND p.step = a.s.reused_step
        AND p.reused_step IS NULL AND p.tool = a.s.tool AND p.arguments IS NOT DISTINCT FROM a.s.arguments
    GROUP BY a.run, a.agent, a.epoch, a.answered, a.step
), priced AS (
    SELECT
        g.run, g.agent, g.epoch, g.step,
        any_value(g.of.input_tokens) * arg_max(p.amount, p.since) FILTER (p.usage = 'input_tokens')
            AS cost_in,
        any_value(g.of.output_tokens) * arg_max(p.amount, p.since) FILTER (p.usage = 'output_tokens')
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
    ) AS p ON p.model = m.model AND p.since <= g.of.requested_at
    WHERE g.of.cost IS NULL
    GROUP BY g.run, g.agent, g.epoch, g.step
), summed AS (
    SELECT
        g.run, g.agent, g.epoch, count(*) AS calls,
        count(*) FILTER (g.s.effects IN ('idempotent', 'reconcile', 'once')
            AND g.s.kind NOT IN ('aggregate', 'board', 'memory', 'team')) AS effects,
        count(*) FILTER (coalesce(g.of.input_tokens, g.of.output_tokens) IS NOT NULL) AS calls_with_tokens,
        fsum(g.of.input_tokens) AS input_tokens, fsum(g.of.output_tokens) AS output_tokens,
        count(coalesce(g.of.cost, (p.cost_in + p.cost_out) / 1e6)) AS calls_with_cost,
        fsum(coalesce(g.of.cost, (p.cost_in + p.cost_out) / 1e6)) AS cost,
        count(g.of.duration_ms) AS calls_with_seconds,
        -- The time of a tool's body is part of the enclosing call's.
        fsum(g.of.duration_ms) FILTER (g.s.parent_step IS NULL OR len(list_filter(g.answered,
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
COMMENT ON VIEW savings IS 'One row per session that continued an agent: recorded usage of the calls it did not repeat. Unrecorded usage is not counted as 0: see calls_with_*. calls is NULL for killed, running or old sessions. Writes to board, team, memory or aggregates are calls, not effects. Forks of probes are left out.';
