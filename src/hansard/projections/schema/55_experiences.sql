-- Experiences: versions, replays, confirmations, and the cost that they saved.

CREATE VIEW unfinished_replays AS
SELECT
    s.arguments->>'$.experience' AS experience, try_cast(o.result AS BIGINT) AS version, s.run, s.agent, s.step,
    s.requested_at, s.requested_position AS position
FROM steps AS s
JOIN steps AS o ON o.run = s.run AND o.agent = s.agent AND o.tool = 'experience.opened'
    AND o.step = (SELECT max(p.step) FROM steps AS p WHERE p.run = s.run AND p.agent = s.agent
        AND p.tool = 'experience.opened' AND p.step < s.step)
WHERE s.tool = 'experience.replay' AND s.status = 'requested' AND NOT s.inherited
    AND try_cast(o.result AS BIGINT) > 0 AND o.arguments->>'$.experience' = s.arguments->>'$.experience'
    AND NOT EXISTS (FROM experience_replays AS r WHERE r.run = s.run AND r.agent = s.agent AND r.step = s.step
        AND r.experience = s.arguments->>'$.experience');
COMMENT ON VIEW unfinished_replays IS 'One row per replay of an experience without an outcome: killed and not resumed, or running.';

CREATE VIEW experience_trust AS
SELECT
    v.experience, v.version, b.kind = 'installed' AS untrusted,
    v.kind = 'healed' AND NOT EXISTS (FROM experience_versions AS r
        WHERE r.experience = v.experience AND r.version > v.version AND r.kind <> 'healed') AS heal_in_use
FROM experience_versions AS v
JOIN LATERAL (
    SELECT arg_max(w.kind, w.version) AS kind FROM experience_versions AS w
    WHERE w.experience = v.experience AND w.version <= v.version AND w.kind <> 'healed'
) AS b ON true;
COMMENT ON VIEW experience_trust IS 'One row per version of an experience: whether it is untrusted or an unconfirmed heal.';

CREATE VIEW experiences AS
WITH newest AS (
    SELECT * FROM experience_versions QUALIFY row_number() OVER (PARTITION BY experience ORDER BY version DESC) = 1
), summed AS (
    SELECT
        v.experience, count(*) FILTER (v.kind = 'healed') AS heals, count(*) FILTER (t.heal_in_use) AS heals_unreviewed,
        max(v.position) FILTER (v.kind = 'confirmed') AS confirmed_position,
        max(v.version) FILTER (v.kind = 'confirmed') AS confirmed_version, min(v.happened_at) AS began_at,
        len(list_distinct(flatten(list(v.sources)))) AS source_runs
    FROM experience_versions AS v
    JOIN experience_trust AS t ON t.experience = v.experience AND t.version = v.version
    GROUP BY v.experience
), done AS (
    SELECT
        r.experience, count(*) AS replays, count(*) FILTER (r.success) AS successes,
        max((r.position, r.event_index)) FILTER (r.success AND r.version = n.version) AS last_success
    FROM experience_replays AS r
    JOIN newest AS n ON n.experience = r.experience
    GROUP BY r.experience
), failing AS (
    SELECT r.experience, count(*) AS failures
    FROM experience_replays AS r
    JOIN newest AS n ON n.experience = r.experience AND n.version = r.version
    JOIN done AS d ON d.experience = r.experience
    WHERE NOT r.success AND (d.last_success IS NULL OR (r.position, r.event_index) > d.last_success)
    GROUP BY r.experience
), unfinished AS (
    SELECT experience, count(*) AS replays FROM unfinished_replays GROUP BY experience
), retired AS (
    SELECT experience, max(position) AS position, arg_max(because, position) AS because
    FROM experience_retirements GROUP BY experience
)
SELECT
    n.experience, n.version, n.digest, n.kind, n.description, n.task, n.level, n.tools, n.hosts, n.checks, n.procedure,
    CASE
        WHEN x.position > coalesce(s.confirmed_position, 0) THEN 'retired'
        WHEN coalesce(f.failures, 0) >= 3 THEN 'quarantined'
        WHEN t.untrusted THEN 'untrusted'
        WHEN n.checks > 0 THEN 'confirmed'
        ELSE 'guides'
    END AS standing,
    if(x.position > coalesce(s.confirmed_position, 0), x.because, NULL) AS retired_because,
    coalesce(d.replays, 0) AS replays, coalesce(d.successes, 0) AS successes, coalesce(u.replays, 0) AS unfinished,
    coalesce(f.failures, 0) AS failures_in_row, wilson_low(d.successes, d.replays) AS success_low,
    s.heals, s.heals_unreviewed, s.confirmed_version, s.source_runs, s.began_at, n.happened_at AS changed_at,
    n.position
FROM newest AS n
JOIN summed AS s ON s.experience = n.experience
JOIN experience_trust AS t ON t.experience = n.experience AND t.version = n.version
LEFT JOIN done AS d ON d.experience = n.experience
LEFT JOIN failing AS f ON f.experience = n.experience
LEFT JOIN unfinished AS u ON u.experience = n.experience
LEFT JOIN retired AS x ON x.experience = n.experience;
COMMENT ON VIEW experiences IS 'One row per experience, as its newest version, with the results of its replays.';

CREATE VIEW check_functions_run AS
SELECT
    s.run, s.agent, s.role, s.step, s.parent_step, p.arguments->>'$.experience' AS experience,
    try_cast(p.arguments->>'$.version' AS BIGINT) AS version, s.arguments->>'$.when' AS moment,
    s.arguments->>'$.node' AS node, try_cast(s.arguments->>'$.done' AS BIGINT) AS done,
    try_cast(s.result->'$.kinds' AS VARCHAR[]) AS kinds,
    if(s.status = 'completed', s.result->>'$.failure.check' IS NULL, NULL) AS passed,
    s.result->>'$.failure.check' AS failed_check, s.result->>'$.failure.kind' AS failed_kind,
    s.result->>'$.failure.why' AS why, s.requested_at, s.requested_position AS position
FROM steps AS s
LEFT JOIN steps AS p ON p.run = s.run AND p.agent = s.agent AND p.step = s.parent_step
WHERE s.tool = 'experience.checks';
COMMENT ON VIEW check_functions_run IS 'One row per run of an experience''s check functions.';

CREATE VIEW odd_experiences AS
SELECT
    'heal unreviewed' AS kind, v.run, v.author AS agent, NULL::BIGINT AS step,
    address_of(v.position, v.event_index) AS address,
    concat('version ', v.version, ' of experience ', v.experience, ' has ', v.node, ' elsewhere, as ', v.author,
        ' found it, and nobody has confirmed it', if(coalesce(v.because, '') = '', '', concat(': ', shown(v.because, 80)))) AS fact,
    NULL::VARCHAR AS experiment, [{'run': v.run, 'address': address_of(v.position, v.event_index)}] AS evidence
FROM experience_versions AS v
JOIN experience_trust AS t ON t.experience = v.experience AND t.version = v.version
WHERE t.heal_in_use
UNION ALL
SELECT
    'replay without checks', s.run, s.agent, s.step, address_of(s.requested_position, 0),
    concat('experience ', s.arguments->>'$.experience', ' was done, and no check function was asked'),
    NULL, [{'run': s.run, 'address': address_of(s.requested_position, 0)}]
FROM steps AS s
WHERE s.tool = 'experience.replay' AND NOT s.inherited
    AND EXISTS (FROM steps AS a WHERE a.run = s.run AND a.agent = s.agent AND a.parent_step = s.step
        AND coalesce(a.effects, 'pure') <> 'pure')
    AND NOT EXISTS (FROM steps AS c WHERE c.run = s.run AND c.agent = s.agent AND c.parent_step = s.step
        AND c.tool = 'experience.checks')
UNION ALL
SELECT
    'replay without checks', r.run, r.agent, r.step, address_of(r.position, r.event_index),
    concat('version ', r.version, ' of experience ', r.experience, ' was done without check functions'),
    NULL, [{'run': r.run, 'address': address_of(r.position, r.event_index)}]
FROM experience_replays AS r
WHERE r.checks = 0
UNION ALL
SELECT
    'replay of what nobody confirmed', r.run, r.agent, r.step, address_of(r.position, r.event_index),
    concat('version ', r.version, ' of experience ', r.experience, ' is from a pack, and nobody had confirmed it'),
    NULL, [{'run': r.run, 'address': address_of(r.position, r.event_index)}]
FROM experience_replays AS r
JOIN experience_trust AS t ON t.experience = r.experience AND t.version = r.version
WHERE t.untrusted;
COMMENT ON VIEW odd_experiences IS 'One row per replay of an experience without checks or confirmation, and unreviewed heal in use.';

CREATE MACRO experience_savings(name) AS TABLE
WITH came_of AS (
    SELECT DISTINCT unnest(v.sources) AS run FROM experience_versions AS v WHERE v.experience = name
), replayed AS (
    SELECT r.run, count(r.success) AS replays, count(*) FILTER (r.success) AS successes, count(*) FILTER (r.success IS NULL) AS unfinished
    FROM (
        SELECT run, success FROM experience_replays WHERE experience = name
        UNION ALL
        SELECT run, NULL FROM unfinished_replays WHERE experience = name
    ) AS r
    GROUP BY r.run
), used AS (
    SELECT
        s.run, count(*) FILTER (s.kind = 'model') AS calls,
        count(*) FILTER (s.kind = 'model' AND coalesce(s.input_tokens, s.output_tokens) IS NULL) AS calls_without_tokens,
        count(*) FILTER (s.kind = 'model' AND s.cost IS NULL) AS calls_without_cost,
        fsum(coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0)) FILTER (s.kind = 'model') AS tokens,
        fsum(s.cost) FILTER (s.kind = 'model') AS cost,
        fsum(s.duration_ms) FILTER (s.parent_step IS NULL) / 1e3 AS seconds
    FROM steps AS s
    WHERE NOT s.inherited AND (s.run IN (SELECT run FROM came_of) OR s.run IN (SELECT run FROM replayed))
    GROUP BY s.run
), source AS (
    SELECT
        count(*) AS runs, count(u.run) AS runs_here, fsum(u.calls) / nullif(count(u.run), 0) AS calls,
        if(sum(u.calls_without_tokens) > 0, NULL, coalesce(fsum(u.tokens), 0) / nullif(count(u.run), 0)) AS tokens,
        if(sum(u.calls_without_cost) > 0, NULL, coalesce(fsum(u.cost), 0) / nullif(count(u.run), 0)) AS cost,
        fsum(u.seconds) / nullif(count(u.run), 0) AS seconds
    FROM came_of AS c LEFT JOIN used AS u ON u.run = c.run
), done AS (
    SELECT
        coalesce(sum(r.replays), 0)::BIGINT AS replays, coalesce(sum(r.successes), 0)::BIGINT AS successes,
        coalesce(sum(r.unfinished), 0)::BIGINT AS unfinished,
        coalesce(fsum(u.calls), 0) AS calls,
        if(sum(u.calls_without_tokens) > 0, NULL, coalesce(fsum(u.tokens), 0)) AS tokens,
        if(sum(u.calls_without_cost) > 0, NULL, coalesce(fsum(u.cost), 0)) AS cost, coalesce(fsum(u.seconds), 0) AS seconds
    FROM replayed AS r LEFT JOIN used AS u ON u.run = r.run
)
SELECT
    name AS experience, s.runs AS source_runs, s.runs_here AS source_runs_here, s.calls AS source_calls,
    s.tokens AS source_tokens, s.cost AS source_cost, s.seconds AS source_seconds, d.replays, d.successes,
    d.replays - d.successes AS failures, d.unfinished,
    (SELECT count(*) FROM experience_versions AS v WHERE v.experience = name AND v.kind = 'healed') AS heals,
    d.calls, d.tokens, d.cost, d.seconds, d.successes * s.calls - d.calls AS calls_saved,
    d.successes * s.tokens - d.tokens AS tokens_saved, d.successes * s.cost - d.cost AS cost_saved,
    d.successes * s.seconds - d.seconds AS seconds_saved
FROM source AS s CROSS JOIN done AS d;
COMMENT ON MACRO TABLE experience_savings IS 'What an experience saved: the average use of a source run for each successful replay, minus all use of the runs with replays (failed, unfinished and healing included). source_* are averages of a source run; source_runs_here counts those in this record. Calls are of models; seconds are spent in calls. NULL means unknown.';
