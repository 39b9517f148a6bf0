-- Probes: runs forked with another value in place of a recorded one, and their decisions. Every number
-- of a probe's report is computed here.

CREATE VIEW probe_forks AS
SELECT
    l.swap->>'$.probe' AS probe, l.run, l.parent, r.workflow, l.swap->>'$.path' AS path,
    l.swap->>'$.agent' AS agent, try_cast(l.swap->>'$.step' AS BIGINT) AS step,
    l.swap->>'$.tool' AS tool, coalesce(l.swap->>'$.before', 'null') AS before,
    coalesce(l.swap->>'$.after', 'null') AS after,
    coalesce(l.swap->'$.before', 'null') = coalesce(l.swap->'$.after', 'null') AS control,
    coalesce(l.swap->>'$.live', 'false') = 'true' AS live, r.status, r.error_type, r.error,
    r.last_position > r.first_position AS took_part, coalesce(n.refused, []) AS refused,
    e.actor AS begun_by, l.position, l.happened_at AS forked_at, l.vector
FROM lineage AS l
JOIN runs AS r ON r.run = l.run
LEFT JOIN (
    SELECT run, list(DISTINCT tool ORDER BY tool) AS refused
    FROM steps WHERE error_type = 'NotAnswered' GROUP BY run
) AS n ON n.run = l.run
LEFT JOIN events AS e ON e.position = l.position AND e.run = l.run AND e.type = 'run.forked.v1'
WHERE l.swap IS NOT NULL
    AND l.parent NOT IN (SELECT p.run FROM lineage AS p WHERE p.swap IS NOT NULL);
COMMENT ON VIEW probe_forks IS 'One row per fork of a probe: the replaced value and the result.';

CREATE VIEW probes AS
SELECT
    probe, any_value(path) AS path, list(DISTINCT after ORDER BY after) AS values,
    arg_min(after, position) AS base, count(DISTINCT parent) AS runs, count(*) AS forks,
    count(*) FILTER (status = 'completed') AS completed, bool_or(live) AS live,
    min(forked_at) AS began_at, max(forked_at) AS last_at, min(position) AS position
FROM probe_forks
GROUP BY probe;
COMMENT ON VIEW probes IS 'One row per probe.';

CREATE MACRO probe_decisions(the_probe, of_runs := NULL, of_question := NULL) AS TABLE
WITH f AS MATERIALIZED (
    SELECT *, CAST(vector AS MAP(VARCHAR, BIGINT)) AS cuts
    FROM probe_forks
    WHERE probe = the_probe AND (of_runs IS NULL OR list_contains(of_runs, parent))
), decided AS (
    SELECT f.parent, f.run, f.after AS value, false AS recorded, d.* EXCLUDE (run)
    FROM f
    JOIN decisions AS d ON d.run = f.run
    UNION ALL
    SELECT p.parent, p.parent, p.before, true, d.* EXCLUDE (run)
    FROM (SELECT parent, any_value(before) AS before, any_value(cuts) AS cuts FROM f GROUP BY parent) AS p
    JOIN decisions AS d ON d.run = p.parent
        AND d.version > coalesce(p.cuts[concat('agent/', d.role, '/', d.agent)], 0)
)
SELECT
    s.parent, s.run, s.value, s.recorded, s.agent, coalesce(of_question, s.question) AS question,
    row_number() OVER (PARTITION BY s.run, s.agent, coalesce(of_question, s.question) ORDER BY s.version) AS occurrence,
    s.decision, s.selected, s.score, s.version, s.position
FROM decided AS s
WHERE of_question IS NULL OR starts_with(s.question, of_question);
COMMENT ON MACRO TABLE probe_decisions IS 'One row per decision of a probe''s forks, and of their parents after the cut (recorded). of_question matches questions by prefix.';

CREATE MACRO probe_pairs(the_probe, of_runs := NULL, of_question := NULL) AS TABLE
WITH f AS MATERIALIZED (
    SELECT * FROM probe_forks
    WHERE probe = the_probe AND (of_runs IS NULL OR list_contains(of_runs, parent))
), d AS MATERIALIZED (
    SELECT * FROM probe_decisions(the_probe, of_runs := of_runs, of_question := of_question)
), made AS MATERIALIZED (
    SELECT run, agent, question, count(*) AS decisions, list(selected ORDER BY occurrence) AS selected,
        max(version) AS version
    FROM d
    GROUP BY run, agent, question
), questions AS (
    SELECT DISTINCT parent, agent, question FROM d
    UNION ALL
    SELECT DISTINCT f.parent, '', coalesce(of_question, '') FROM f ANTI JOIN d ON d.parent = f.parent
), arms AS (
    SELECT DISTINCT f.after AS value, b.base
    FROM f
    JOIN (SELECT base FROM probes WHERE probe = the_probe) AS b ON b.base <> f.after
), withheld AS (
    SELECT run, agent, min(requested_version) AS version, arg_min(tool, requested_version) AS tool
    FROM steps WHERE withheld = 'refused' AND NOT inherited
    GROUP BY run, agent
), sides AS (
    SELECT
        a.parent, a.agent, a.question, r.base, r.value, w.before AS cohort, x.run AS base_run,
        y.run AS run, coalesce(m.decisions, 0) AS base_decisions, coalesce(n.decisions, 0) AS decisions,
        m.selected AS base_selected, n.selected AS selected,
        coalesce(x.took_part, false) AND coalesce(y.took_part, false) AS took_part,
        list_concat(coalesce(x.refused, []), coalesce(y.refused, [])) AS refused,
        coalesce(if(m.decisions IS NULL, x.error_type, NULL), if(n.decisions IS NULL, y.error_type, NULL)) AS failed,
        coalesce(if(v.version < coalesce(m.version, 1e18), v.tool, NULL), if(u.version < coalesce(n.version, 1e18), u.tool, NULL)) AS effect
    FROM questions AS a
    CROSS JOIN arms AS r
    JOIN (SELECT parent, any_value(before) AS before FROM f GROUP BY parent) AS w ON w.parent = a.parent
    LEFT JOIN f AS x ON x.parent = a.parent AND x.after = r.base
    LEFT JOIN f AS y ON y.parent = a.parent AND y.after = r.value
    LEFT JOIN made AS m ON m.run = x.run AND m.agent = a.agent AND m.question = a.question
    LEFT JOIN made AS n ON n.run = y.run AND n.agent = a.agent AND n.question = a.question
    LEFT JOIN withheld AS v ON v.run = x.run AND v.agent = a.agent
    LEFT JOIN withheld AS u ON u.run = y.run AND u.agent = a.agent
)
SELECT
    s.parent, s.cohort, s.agent, s.question, s.base, s.value, s.base_run, s.run, s.base_selected,
    s.selected, s.base_selected <> s.selected AS changed,
    CASE
        WHEN s.base_run IS NULL OR s.run IS NULL THEN 'one of its forks is missing'
        WHEN NOT s.took_part THEN 'the program did not take part in a fork'
        WHEN len(s.refused) > 0 THEN concat('a call of ', s.refused[1], ' is not on record')
        WHEN s.effect IS NOT NULL THEN concat('an effect was withheld before the decision: ', s.effect)
        WHEN s.failed IS NOT NULL THEN concat('the program failed before it decided: ', s.failed)
        WHEN s.base_decisions = 0 OR s.decisions = 0 THEN 'a fork did not decide it'
        WHEN s.base_decisions <> s.decisions THEN 'one fork decided it more often than the other'
    END AS unanswered
FROM sides AS s;
COMMENT ON MACRO TABLE probe_pairs IS 'One row per run, decision and value beside the base: what both forks selected, and why the pair does not count (unanswered).';

CREATE MACRO probe_summary(the_probe, of_runs := NULL, of_question := NULL, at_alpha := 0.05) AS TABLE
SELECT
    p.agent, p.question, p.base, p.value, count(*) AS pairs, count(*) FILTER (p.unanswered IS NULL) AS answered,
    count(*) FILTER (p.unanswered IS NOT NULL) AS unanswered,
    count(*) FILTER (p.unanswered IS NULL AND p.changed) AS changed,
    exact_low(count(*) FILTER (p.unanswered IS NULL AND p.changed), count(*) FILTER (p.unanswered IS NULL), at_alpha / 2) AS low,
    exact_high(count(*) FILTER (p.unanswered IS NULL AND p.changed), count(*) FILTER (p.unanswered IS NULL), at_alpha / 2) AS high
FROM probe_pairs(the_probe, of_runs := of_runs, of_question := of_question) AS p
GROUP BY p.agent, p.question, p.base, p.value;
COMMENT ON MACRO TABLE probe_summary IS 'One row per decision and value: answered pairs and how many changed, with the exact interval of that share.';

CREATE MACRO probe_noise(the_probe, of_runs := NULL, of_question := NULL, at_alpha := 0.05) AS TABLE
WITH d AS MATERIALIZED (
    SELECT * FROM probe_decisions(the_probe, of_runs := of_runs, of_question := of_question)
), seen AS (
    SELECT f.parent, f.run, len(f.refused) = 0 AND f.took_part AS answered
    FROM probe_forks AS f
    WHERE f.probe = the_probe AND f.control AND (of_runs IS NULL OR list_contains(of_runs, f.parent))
), lists AS (
    SELECT s.parent, s.run, s.answered,
        list([d.agent, d.question, d.occurrence::VARCHAR, d.selected, coalesce(d.score::VARCHAR, '')]
            ORDER BY d.agent, d.question, d.occurrence) FILTER (d.run = s.run) AS again,
        list([d.agent, d.question, d.occurrence::VARCHAR, d.selected, coalesce(d.score::VARCHAR, '')]
            ORDER BY d.agent, d.question, d.occurrence) FILTER (d.recorded) AS before
    FROM seen AS s
    LEFT JOIN d ON d.parent = s.parent AND (d.recorded OR d.run = s.run)
    GROUP BY s.parent, s.run, s.answered
), judged AS (
    SELECT parent, run, answered AND len(coalesce(again, [])) > 0 AS compared,
        again IS DISTINCT FROM before AS differs
    FROM lists
)
SELECT
    count(*) AS controls, count(*) FILTER (compared) AS compared,
    count(*) FILTER (compared AND differs) AS differ,
    coalesce(list(run ORDER BY run) FILTER (compared AND differs), []) AS runs,
    exact_low(count(*) FILTER (compared AND differs), count(*) FILTER (compared), at_alpha / 2) AS low,
    exact_high(count(*) FILTER (compared AND differs), count(*) FILTER (compared), at_alpha / 2) AS high
FROM judged;
COMMENT ON MACRO TABLE probe_noise IS 'How many control forks (recorded value) decided or scored other than their run: any means the program is not deterministic.';

CREATE MACRO probe_measures(the_probe, of_runs := NULL, of_question := NULL) AS TABLE
WITH p AS MATERIALIZED (
    SELECT * FROM probe_pairs(the_probe, of_runs := of_runs, of_question := of_question)
    WHERE unanswered IS NULL
), d AS MATERIALIZED (
    SELECT d.* FROM probe_decisions(the_probe, of_runs := of_runs, of_question := of_question) AS d
    WHERE NOT d.recorded
), chosen AS MATERIALIZED (
    SELECT d.run, d.agent, d.question, d.occurrence, d.decision, d.selected
    FROM d
    SEMI JOIN (
        SELECT base_run AS run, agent, question FROM p UNION SELECT run, agent, question FROM p
    ) AS u ON u.run = d.run AND u.agent = d.agent AND u.question = d.question
), options AS (
    SELECT agent, question, 'selected' AS measure, option,
        row_number() OVER (PARTITION BY agent, question ORDER BY option) AS place,
        count(*) OVER (PARTITION BY agent, question) AS options
    FROM (SELECT DISTINCT agent, question, selected AS option FROM chosen)
    UNION ALL
    SELECT agent, question, 'score', option,
        row_number() OVER (PARTITION BY agent, question ORDER BY option),
        count(*) OVER (PARTITION BY agent, question)
    FROM (
        SELECT DISTINCT c.agent, c.question, a.id AS option
        FROM chosen AS c
        JOIN alternatives AS a ON a.decision = c.decision AND a.run = c.run
        WHERE a.score IS NOT NULL
    )
), valued AS MATERIALIZED (
    -- With two options one rate determines the other.
    SELECT c.run, c.agent, c.question, o.measure, o.option, c.occurrence,
        if(o.measure = 'selected', (c.selected = o.option)::BIGINT::DOUBLE, a.score) AS value
    FROM chosen AS c
    JOIN options AS o ON o.agent = c.agent AND o.question = c.question AND (o.options > 2 OR o.place = 1)
    LEFT JOIN alternatives AS a ON o.measure = 'score' AND a.decision = c.decision AND a.run = c.run AND a.id = o.option
)
SELECT
    p.parent, p.cohort, p.agent, p.question, x.measure, x.option, p.base, p.value,
    fsum(x.value ORDER BY x.occurrence) / count(*) AS base_score,
    fsum(y.value ORDER BY x.occurrence) / count(*) AS score,
    fsum(y.value - x.value ORDER BY x.occurrence) / count(*) AS difference,
    count(*) FILTER (x.value IS NULL OR y.value IS NULL) AS lacking
FROM p
JOIN valued AS x ON x.run = p.base_run AND x.agent = p.agent AND x.question = p.question
JOIN valued AS y ON y.run = p.run AND y.agent = p.agent AND y.question = p.question
    AND y.measure = x.measure AND y.option = x.option AND y.occurrence = x.occurrence
GROUP BY p.parent, p.cohort, p.agent, p.question, x.measure, x.option, p.base, p.value;
COMMENT ON MACRO TABLE probe_measures IS 'One row per answered pair and measure: selected (1 or 0 for an option) or score (of an alternative). Several decisions of a run are averaged; lacking counts those without a score.';

CREATE MACRO probe_comparisons(the_probe, of_runs := NULL, of_question := NULL, at_alpha := 0.05, at_power := 0.8, decision_margin := NULL, score_margin := NULL) AS TABLE
WITH m AS MATERIALIZED (
    SELECT * FROM probe_measures(the_probe, of_runs := of_runs, of_question := of_question)
), sliced AS MATERIALIZED (
    SELECT '' AS slice, m.* FROM m
    UNION ALL
    SELECT m.cohort, m.* FROM m
    WHERE (SELECT count(DISTINCT cohort) FROM m) > 1
), facts AS MATERIALIZED (
    SELECT
        slice, agent, question, measure, option, base, value,
        count(*) FILTER (lacking = 0) AS pairs, count(*) FILTER (lacking > 0) AS unscored,
        fsum(base_score ORDER BY base_score) FILTER (lacking = 0) / nullif(count(*) FILTER (lacking = 0), 0) AS base_mean,
        fsum(score ORDER BY score) FILTER (lacking = 0) / nullif(count(*) FILTER (lacking = 0), 0) AS mean,
        fsum(difference ORDER BY difference) FILTER (lacking = 0) / nullif(count(*) FILTER (lacking = 0), 0) AS difference,
        max(greatest(abs(base_score), abs(score))) FILTER (lacking = 0) AS scale,
        count(*) FILTER (lacking = 0 AND difference > 0) AS above,
        count(*) FILTER (lacking = 0 AND difference = 0) AS ties,
        count(*) FILTER (lacking = 0 AND difference < 0) AS below,
        measure = 'selected' AND bool_and(difference IN (-1, 0, 1)) AS exact
    FROM sliced
    GROUP BY slice, agent, question, measure, option, base, value
), spread AS (
    SELECT s.slice, s.agent, s.question, s.measure, s.option, s.value,
        sqrt(fsum((s.difference - f.difference) * (s.difference - f.difference) ORDER BY s.difference)
            / nullif(count(*) - 1, 0) / count(*)) AS se
    FROM sliced AS s
    JOIN facts AS f USING (slice, agent, question, measure, option, value)
    WHERE s.lacking = 0
    GROUP BY s.slice, s.agent, s.question, s.measure, s.option, s.value
), estimated AS MATERIALIZED (
    SELECT f.*, if(s.se <= 1e-12 * f.scale, 0, s.se) AS se, f.pairs - 1 AS df, f.above + f.below AS discordant,
        binomial_p(least(f.above, f.below), f.above + f.below) AS sign_p
    FROM facts AS f
    LEFT JOIN spread AS s USING (slice, agent, question, measure, option, value)
), tested AS MATERIALIZED (
    SELECT e.*,
        CASE WHEN e.pairs < 1 THEN NULL WHEN e.exact THEN e.sign_p WHEN e.df < 1 THEN NULL
            WHEN e.se > 0 THEN t_p(e.difference / e.se, e.df)
            WHEN abs(e.difference) <= 1e-12 * e.scale OR e.scale = 0 THEN 1.0 ELSE e.sign_p END AS p
    FROM estimated AS e
), ranked AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.slice <> '' ORDER BY t.p NULLS LAST, t.slice, t.agent, t.question, t.measure, t.option, t.value) AS place,
        count(t.p) OVER (PARTITION BY t.slice <> '') AS family
    FROM tested AS t
), adjusted AS MATERIALIZED (
    SELECT r.*,
        if(r.p IS NULL, NULL, max(least(1.0, r.p * (r.family - r.place + 1))) OVER (PARTITION BY r.slice <> '' ORDER BY r.place)) AS holm_p,
        at_alpha / greatest(r.family, 1) AS strict_alpha
    FROM ranked AS r
), bounded AS (
    SELECT a.*,
        CASE WHEN a.pairs < 1 THEN NULL WHEN a.exact THEN net_low(a.above, a.below, a.pairs, at_alpha)
            WHEN a.se > 0 THEN a.difference - t_quantile(1 - at_alpha / 2, a.df) * a.se END AS low,
        CASE WHEN a.pairs < 1 THEN NULL WHEN a.exact THEN net_high(a.above, a.below, a.pairs, at_alpha)
            WHEN a.se > 0 THEN a.difference + t_quantile(1 - at_alpha / 2, a.df) * a.se END AS high,
        CASE WHEN a.se > 0 AND NOT a.exact THEN smallest_detectable(a.se, a.df, alpha := a.strict_alpha, power := at_power)
            ELSE binomial_share(ceil(1 - log2(a.strict_alpha)), a.pairs, at_power) END AS detectable,
        if(a.measure = 'selected', decision_margin, score_margin)::DOUBLE AS margin
    FROM adjusted AS a
)
SELECT
    b.slice, b.agent, b.question, b.measure, b.option, b.base, b.value,
    CASE WHEN coalesce(b.holm_p, 1) <= at_alpha THEN 'differs'
        WHEN coalesce(b.low > -b.margin AND b.high < b.margin, false) THEN 'within the margin'
        ELSE 'cannot tell' END AS verdict,
    b.pairs, b.unscored, b.base_mean, b.mean, b.difference, b.low, b.high, b.above, b.ties, b.below,
    b.p, b.holm_p, b.family, at_alpha::DOUBLE AS alpha,
    if(b.exact, 'exact McNemar', if(b.se > 0, 'paired t', 'exact sign test')) AS test,
    b.se, b.detectable, b.margin
FROM bounded AS b;
COMMENT ON MACRO TABLE probe_comparisons IS 'One row per measure and value beside the probe''s first value (base), over all runs (empty slice) and per recorded value. difference: mean over runs of value minus base. One decision per run: exact McNemar and exact interval of the net share (see `net_low`). Else Student''s t over runs; without spread the exact sign test and no interval. holm_p is over all runs'' rows, and separately all slices''. detectable: smallest difference found with at_power (a mean, or a share of runs). "within the margin": the interval is inside a given margin.';
