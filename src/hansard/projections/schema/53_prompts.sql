-- Prompts: versions, aliases, feedback, and their use in runs.

CREATE VIEW prompt_aliases AS
SELECT prompt, alias, version, before, because, experiment, moved_at, moved_by, position
FROM prompt_moves
QUALIFY row_number() OVER (PARTITION BY prompt, alias ORDER BY position DESC, event_index DESC) = 1
    AND version IS NOT NULL;
COMMENT ON VIEW prompt_aliases IS 'One row per alias of a prompt, with the version it names now.';

CREATE VIEW prompts AS
SELECT
    v.prompt, count(*) AS versions, max(v.version) AS newest, count(v.retired_at) AS retired,
    (SELECT list({'alias': a.alias, 'version': a.version} ORDER BY a.alias) FROM prompt_aliases AS a WHERE a.prompt = v.prompt) AS aliases,
    min(v.added_at) AS began_at, max(v.added_at) AS changed_at
FROM prompt_versions AS v
GROUP BY v.prompt;
COMMENT ON VIEW prompts IS 'One row per prompt.';

CREATE VIEW prompt_uses AS
SELECT
    s.run, s.agent, s.role, s.step, s.used.prompt AS prompt, s.used.version AS version, s.used.alias AS alias,
    s.requested_at, s.requested_position AS position
FROM (SELECT *, unnest(prompts) AS used FROM steps WHERE prompts IS NOT NULL AND NOT inherited) AS s;
COMMENT ON VIEW prompt_uses IS 'One row per prompt version given to a call.';

CREATE VIEW prompt_runs AS
WITH named AS (
    SELECT experiment, arm, split_part(prompt, '@', 1) AS prompt, split_part(prompt, '@', 2) AS which
    FROM arms
    WHERE regexp_full_match(prompt, '[^@]+@[^@]+')
), chosen AS (
    SELECT n.experiment, n.arm, v.prompt, v.version
    FROM named AS n
    JOIN prompt_versions AS v ON v.prompt = n.prompt AND v.version = try_cast(n.which AS BIGINT)
), by_alias AS (
    SELECT r.run, n.prompt, n.which, r.first_position
    FROM named AS n
    JOIN assigned_runs AS r ON r.experiment = n.experiment AND r.arm = n.arm
    WHERE try_cast(n.which AS BIGINT) IS NULL
)
SELECT DISTINCT u.prompt, u.version, u.run
FROM prompt_uses AS u
JOIN runs AS r ON r.run = u.run
WHERE r.parent IS NULL OR r.run IN (SELECT a.run FROM assignments AS a)
UNION
SELECT c.prompt, c.version, r.run
FROM chosen AS c
JOIN assigned_runs AS r ON r.experiment = c.experiment AND r.arm = c.arm
UNION
SELECT b.prompt, m.version, b.run
FROM by_alias AS b
ASOF JOIN prompt_moves AS m ON m.prompt = b.prompt AND m.alias = b.which AND m.position <= b.first_position
WHERE m.version IS NOT NULL;
COMMENT ON VIEW prompt_runs IS 'One row per run and prompt version used, by its calls or by the arm of its experiment; an alias counts as at the run''s start.';

CREATE MACRO prompt_values(of_prompt := NULL) AS TABLE
WITH used AS (
    SELECT DISTINCT prompt, version, run FROM prompt_runs WHERE of_prompt IS NULL OR prompt = of_prompt
), spent AS (
    SELECT u.run, fsum(u.amount ORDER BY u.amount) AS tokens
    FROM usage_by_actor AS u
    SEMI JOIN used AS w ON w.run = u.run
    WHERE u.metric IN ('input_tokens', 'output_tokens') AND u.actor = 'agent'
    GROUP BY u.run
), judged AS (
    SELECT o.run, o.metric, arg_max(o.value, o.version) AS value
    FROM outcomes AS o
    SEMI JOIN used AS w ON w.run = o.run
    GROUP BY o.run, o.metric
)
SELECT w.prompt, w.version, w.run, 'completion_rate' AS metric, success_of(NULL, r.status) AS value
FROM used AS w JOIN runs AS r ON r.run = w.run
WHERE r.status <> 'open'
UNION ALL
SELECT w.prompt, w.version, w.run, 'avg_tokens', s.tokens FROM used AS w JOIN spent AS s ON s.run = w.run
UNION ALL
SELECT w.prompt, w.version, w.run, if(j.metric = 'success', 'success_rate', j.metric), j.value
FROM used AS w JOIN judged AS j ON j.run = w.run
WHERE isfinite(j.value)
UNION ALL
SELECT f.prompt, f.version, f.run, 'user_satisfaction', f.rating
FROM prompt_feedback AS f
WHERE f.rating IS NOT NULL AND (of_prompt IS NULL OR f.prompt = of_prompt);
COMMENT ON MACRO TABLE prompt_values IS 'The values averaged by `prompt_report`: one row per run (or rating) and measure.';

CREATE MACRO prompt_report(of_prompt := NULL, at_alpha := 0.05) AS TABLE
WITH tallied AS (
    SELECT prompt, version, metric, value, count(*) AS n
    FROM prompt_values(of_prompt := of_prompt)
    GROUP BY ALL
), means AS (
    SELECT
        prompt, version, metric, sum(n)::BIGINT AS n, fsum(value * n ORDER BY value) / sum(n) AS mean,
        bool_and(value IN (0, 1)) AS is_share, coalesce(sum(n) FILTER (value = 1), 0)::BIGINT AS ones
    FROM tallied
    GROUP BY prompt, version, metric
), spread AS (
    SELECT t.prompt, t.version, t.metric, fsum(t.n * (t.value - m.mean) * (t.value - m.mean) ORDER BY t.value) AS squares
    FROM tallied AS t
    JOIN means AS m ON m.prompt = t.prompt AND m.version = t.version AND m.metric = t.metric
    GROUP BY t.prompt, t.version, t.metric
), halves AS (
    SELECT
        m.*, if(m.n > 1, t_quantile(1 - at_alpha / 2, m.n - 1) * sqrt(s.squares / (m.n - 1) / m.n), NULL) AS half
    FROM means AS m
    JOIN spread AS s ON s.prompt = m.prompt AND s.version = m.version AND s.metric = m.metric
), counted AS (
    SELECT prompt, version, count(DISTINCT run) AS runs
    FROM prompt_runs
    WHERE of_prompt IS NULL OR prompt = of_prompt
    GROUP BY prompt, version
)
SELECT
    v.prompt, v.version, coalesce(c.runs, 0) AS runs, h.metric, h.n, h.mean AS value,
    CASE WHEN h.metric = 'user_satisfaction' THEN greatest(0, h.mean - h.half)
        WHEN h.is_share AND h.metric <> 'avg_tokens' THEN wilson_low(h.ones, h.n, at_alpha) ELSE h.mean - h.half END AS low,
    CASE WHEN h.metric = 'user_satisfaction' THEN least(1, h.mean + h.half)
        WHEN h.is_share AND h.metric <> 'avg_tokens' THEN wilson_high(h.ones, h.n, at_alpha) ELSE h.mean + h.half END AS high
FROM prompt_versions AS v
LEFT JOIN counted AS c ON c.prompt = v.prompt AND c.version = v.version
LEFT JOIN halves AS h ON h.prompt = v.prompt AND h.version = v.version
WHERE of_prompt IS NULL OR v.prompt = of_prompt;
COMMENT ON MACRO TABLE prompt_report IS 'One row per prompt version and measure: completion_rate, avg_tokens, judged metrics (success_rate for success), user_satisfaction. n values with mean value; low..high is Wilson''s interval of a share, else Student''s t.';

CREATE VIEW odd_prompts AS
WITH judged AS (
    SELECT u.prompt, u.version, count(DISTINCT u.run) AS runs
    FROM prompt_runs AS u SEMI JOIN outcomes AS o ON o.run = u.run
    GROUP BY u.prompt, u.version
)
SELECT
    'without evidence' AS kind, NULL::VARCHAR AS run, NULL::VARCHAR AS agent, NULL::BIGINT AS step,
    address_of(m.position, m.event_index) AS address,
    concat('alias ', m.alias, ' of prompt ', m.prompt, ' names version ', m.version, ', moved by ', m.moved_by,
        if(coalesce(m.because, '') = '', ' without a reason', concat(' (', shown(m.because, 80), ')')),
        ': no experiment is named, and no run of this version is judged') AS fact,
    NULL::VARCHAR AS experiment, [{'run': NULL::VARCHAR, 'address': address_of(m.position, m.event_index)}] AS evidence
FROM prompt_moves AS m
SEMI JOIN prompt_aliases AS a ON a.prompt = m.prompt AND a.alias = m.alias AND a.position = m.position
LEFT JOIN judged AS j ON j.prompt = m.prompt AND j.version = m.version
WHERE coalesce(m.experiment, '') = '' AND j.runs IS NULL AND m.version IS NOT NULL
UNION ALL
SELECT
    'retired in use', u.run, u.agent, u.step, address_of(u.position, 0),
    concat('it was given version ', u.version, ' of prompt ', u.prompt, ', which was retired before'),
    NULL, [{'run': u.run, 'address': address_of(u.position, 0)}]
FROM prompt_uses AS u
JOIN prompt_versions AS v ON v.prompt = u.prompt AND v.version = u.version AND v.retired_position < u.position;
COMMENT ON VIEW odd_prompts IS 'One row per alias without evidence (no experiment, no judged run), and call that used a retired version.';
