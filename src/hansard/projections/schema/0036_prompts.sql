-- Refill: files that were projected before are made anew from the log.
-- Prompts: their versions, what their aliases named, what was said of them, and which runs used which.

ALTER TABLE steps ADD COLUMN prompts STRUCT(prompt VARCHAR, version BIGINT, alias VARCHAR)[];

CREATE TABLE prompt_versions (
    prompt VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    text VARCHAR,
    digest VARCHAR,
    model VARCHAR,
    parameters JSON,
    parent_version BIGINT,
    parents BIGINT[] NOT NULL,
    feedback_applied VARCHAR[] NOT NULL,
    because VARCHAR,
    claimed MAP(VARCHAR, DOUBLE),
    added_at TIMESTAMP NOT NULL,
    added_by VARCHAR NOT NULL,
    retired_at TIMESTAMP,
    retired_because VARCHAR,
    retired_position BIGINT,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE prompt_versions IS 'One row a version of a prompt: its text, what it was made of, and why.';

CREATE TABLE prompt_moves (
    prompt VARCHAR NOT NULL,
    alias VARCHAR NOT NULL,
    version BIGINT,
    before BIGINT,
    because VARCHAR,
    experiment VARCHAR,
    moved_at TIMESTAMP NOT NULL,
    moved_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    event_index BIGINT NOT NULL
);
COMMENT ON TABLE prompt_moves IS 'One row a time that an alias of a prompt was moved: its history.';

CREATE TABLE prompt_feedback (
    prompt VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    text VARCHAR,
    rating DOUBLE,
    run VARCHAR,
    given_at TIMESTAMP NOT NULL,
    given_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE prompt_feedback IS 'One row a time that somebody said something of a version of a prompt.';

CREATE VIEW prompt_aliases AS
SELECT prompt, alias, version, before, because, experiment, moved_at, moved_by, position
FROM prompt_moves
QUALIFY row_number() OVER (PARTITION BY prompt, alias ORDER BY position DESC, event_index DESC) = 1
    AND version IS NOT NULL;
COMMENT ON VIEW prompt_aliases IS 'One row an alias of a prompt as it stands: the version that it names.';

CREATE VIEW prompts AS
SELECT
    v.prompt, count(*) AS versions, max(v.version) AS newest, count(v.retired_at) AS retired,
    (SELECT list({'alias': a.alias, 'version': a.version} ORDER BY a.alias) FROM prompt_aliases AS a WHERE a.prompt = v.prompt) AS aliases,
    min(v.added_at) AS began_at, max(v.added_at) AS changed_at
FROM prompt_versions AS v
GROUP BY v.prompt;
COMMENT ON VIEW prompts IS 'One row a prompt: how many versions it has, and what its aliases name.';

CREATE VIEW prompt_uses AS
SELECT
    s.run, s.agent, s.role, s.step, s.used.prompt AS prompt, s.used.version AS version, s.used.alias AS alias,
    s.requested_at, s.requested_position AS position
FROM (SELECT *, unnest(prompts) AS used FROM steps WHERE prompts IS NOT NULL AND NOT inherited) AS s;
COMMENT ON VIEW prompt_uses IS 'One row a version of a prompt that a call was given.';

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
SELECT DISTINCT prompt, version, run FROM prompt_uses
UNION
SELECT c.prompt, c.version, r.run
FROM chosen AS c
JOIN assigned_runs AS r ON r.experiment = c.experiment AND r.arm = c.arm
UNION
SELECT b.prompt, m.version, b.run
FROM by_alias AS b
ASOF JOIN prompt_moves AS m ON m.prompt = b.prompt AND m.alias = b.which AND m.position <= b.first_position
WHERE m.version IS NOT NULL;
COMMENT ON VIEW prompt_runs IS 'One row a run and a version of a prompt that it used: as its calls say, or as the arm of its experiment names it; an alias as it stood when the run began.';

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
COMMENT ON MACRO TABLE prompt_values IS 'prompt_values(of_prompt := NULL): what is averaged in prompt_report: one row a run (or a rating) and measure. Columns: prompt, version, run, metric, value.';

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
COMMENT ON MACRO TABLE prompt_report IS 'prompt_report(of_prompt := NULL, at_alpha := 0.05): one row a version of a prompt and measure: completion_rate (of runs that ended), avg_tokens, each judged metric (success_rate where it is called success), user_satisfaction (of ratings). Columns: prompt, version, runs, metric (NULL where nothing is known), n (runs or ratings with a value), value (the mean), low and high: the Wilson score interval of a share, else Student''s t of the mean (of ratings, from 0 to 1 at the most).';

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
COMMENT ON VIEW odd_prompts IS 'One row a version that an alias names without evidence (no experiment moved it there and none of its runs is judged), and one a call that was given a version that was retired before.';

INSERT INTO finding_kinds VALUES
    ('odd_prompts', 'without evidence', 'prompts', 'medium', 'Does each version that an alias names rest on evidence?'),
    ('odd_prompts', 'retired in use', 'prompts', 'medium', 'Was no version used after it was retired?');

INSERT INTO event_types VALUES
    ('prompt.version_added.v1', 'added', 'version ', '$.version', ': ', '$.because', ' ', '$.text'),
    ('prompt.aliased.v1', 'aliased', NULL, '$.alias', ' to version ', '$.version', ': ', '$.because'),
    ('prompt.feedback_given.v1', 'said', 'of version ', '$.version', ': ', '$.text', ', rating ', '$.rating'),
    ('prompt.retired.v1', 'retired', 'version ', '$.version', ': ', '$.because', NULL, NULL);

CREATE OR REPLACE MACRO findings(x) AS TABLE
SELECT
    f.view, f.kind, f.run, f.agent, f.step, f.address, f.fact, coalesce(k.topic, f.view) AS topic,
    coalesce(k.severity, 'medium') AS severity, coalesce(f.experiment, r.experiment) AS experiment,
    coalesce(k.question, 'Is all of it as it should be?') AS question,
    CASE WHEN f.evidence IS NOT NULL THEN f.evidence WHEN f.run IS NULL AND f.address IS NULL THEN []
        ELSE [{'run': f.run, 'address': f.address}] END AS evidence
FROM (
    SELECT 'orphan_intents' AS view, *, NULL AS experiment, NULL AS evidence FROM orphan_intents
    UNION ALL
    SELECT 'late_outcomes', *, NULL, NULL FROM late_outcomes
    UNION ALL
    SELECT 'policy_overrides', *, NULL, NULL FROM policy_overrides WHERE kind <> 'settled'
    UNION ALL
    SELECT 'retries', *, NULL, NULL FROM retries WHERE kind <> 'retried'
    UNION ALL
    SELECT 'threshold_flips', *, NULL, NULL FROM threshold_flips(x)
    UNION ALL
    SELECT 'gaps', *, NULL, NULL FROM gaps WHERE kind <> 'spread'
    UNION ALL
    SELECT 'odd_models', * FROM odd_models
    UNION ALL
    SELECT 'odd_scores', * FROM odd_scores
    UNION ALL
    SELECT 'odd_selection', * FROM odd_selection
    UNION ALL
    SELECT 'odd_copies', * FROM odd_copies
    UNION ALL
    SELECT 'odd_times', * FROM odd_times
    UNION ALL
    SELECT 'odd_failures', * FROM odd_failures
    UNION ALL
    SELECT 'odd_costs', * FROM odd_costs
    UNION ALL
    SELECT 'odd_prompts', * FROM odd_prompts
) AS f
LEFT JOIN finding_kinds AS k ON k.view = f.view AND k.kind = f.kind
LEFT JOIN runs AS r ON r.run = f.run;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times, doubts that a person settled, and runs of one experiment on several days, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact, and of its kind (see finding_kinds) topic, severity (high, medium or low) and question; experiment; evidence: a list of runs and addresses. Nothing in a run of which nothing is missing or odd.';

CREATE OR REPLACE VIEW looked_at AS
WITH per_experiment AS (
    SELECT
        r.experiment, count(*) AS runs, count(DISTINCT r.arm) AS arms, count(m.run) AS modelled, count(d.run) AS declared,
        count(c.run) AS checked, count(s.run) AS said, count(w.run) AS timed, count(u.run) AS costed
    FROM assigned_runs AS r
    LEFT JOIN (SELECT DISTINCT run FROM answering_models WHERE role <> 'user') AS m ON m.run = r.run
    LEFT JOIN (SELECT DISTINCT a.run FROM answering_models AS a SEMI JOIN declared_models AS x ON x.run = a.run AND x.of_user = (a.role = 'user')) AS d ON d.run = r.run
    LEFT JOIN (SELECT DISTINCT run FROM checked_scores) AS c ON c.run = r.run
    LEFT JOIN (SELECT run FROM said_answers GROUP BY run HAVING count(*) >= 2) AS s ON s.run = r.run
    LEFT JOIN (SELECT DISTINCT run FROM events WHERE occurred_at IS NOT NULL) AS w ON w.run = r.run
    LEFT JOIN (
        SELECT DISTINCT a.run FROM answering_models AS a SEMI JOIN prices AS p ON p.model = a.model
    ) AS u ON u.run = r.run
    GROUP BY r.experiment
)
SELECT t.topic, NULL::VARCHAR AS experiment, t.looked, t.what, if(t.looked = 0, 'no ' || t.what || ' are recorded', NULL) AS why_not
FROM (
    SELECT 'intents' AS topic, count(*) AS looked, 'calls' AS what FROM steps
    UNION ALL
    SELECT 'overrides', count(*), 'words of the gate' FROM policies
    UNION ALL
    SELECT 'retries', count(*), 'calls' FROM steps
    UNION ALL
    SELECT 'thresholds', count(*) FILTER (threshold IS NOT NULL), 'decisions by a threshold' FROM decisions
    UNION ALL
    SELECT 'gaps', coalesce(max(position), 0), 'commits' FROM events
    UNION ALL
    SELECT 'prompts', count(*), 'aliases of prompts' FROM prompt_aliases
) AS t
UNION ALL
SELECT v.topic, t.experiment, v.looked, v.what, if(v.looked > 0, NULL, v.why_not)
FROM per_experiment AS t
CROSS JOIN LATERAL (VALUES
    ('models', t.modelled, 'runs whose model is recorded', 'no model is recorded'),
    ('models', t.declared, 'runs whose model is recorded and declared', 'no model is both recorded and declared'),
    ('scores', t.checked, 'scores with stored checks', 'no checks are stored beside its scores'),
    ('selection', t.runs, 'trials', NULL),
    ('copies', t.said, 'runs with two answers or more', 'no run has two answers of 40 characters'),
    ('times', t.timed, 'runs with times of their source', 'no times of a source are recorded'),
    ('failures', if(t.arms > 1, t.runs, 0), 'trials', 'it has one arm'),
    ('costs', t.costed, 'runs whose model has a stated price', 'no price is stated of a model that answered')
) AS v(topic, looked, what, why_not)
WHERE v.what <> 'runs whose model is recorded and declared' OR t.modelled > 0
UNION ALL
SELECT v.topic, t.experiment, 0, 'runs', concat(v.why_not, ' in ', t.runs - v.looked, ' of ', t.runs, ' runs')
FROM per_experiment AS t
CROSS JOIN LATERAL (VALUES
    ('models', t.modelled, 'no model is recorded'),
    ('models', if(t.declared < t.modelled, t.declared, 0), 'no model is both recorded and declared'),
    ('scores', t.checked, 'no checks are stored beside the score'),
    ('copies', t.said, 'there are no two answers of 40 characters'),
    ('times', t.timed, 'no times of the source are recorded')
) AS v(topic, looked, why_not)
WHERE v.looked BETWEEN 1 AND t.runs - 1;
COMMENT ON VIEW looked_at IS 'One row a topic of the audit, and for what is about experiments one each: how much there was to look at, and where nothing, or not all, could be, why not. What stands here without why_not and has no finding was looked at and is silent.';
