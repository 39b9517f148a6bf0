-- Refill: files that were projected before are made anew from the log.
-- Answers of earlier runs: what was offered, what was declared stale, and which calls were given one.

ALTER TABLE steps ADD COLUMN reused_from STRUCT(run VARCHAR, agent VARCHAR, step BIGINT, event VARCHAR, "key" VARCHAR);

CREATE TABLE offered_answers (
    key VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    tool_version VARCHAR,
    workflow VARCHAR,
    run VARCHAR,
    role VARCHAR,
    agent VARCHAR,
    step BIGINT,
    digest VARCHAR,
    stale_before BIGINT NOT NULL,
    version BIGINT NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    offered_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE offered_answers IS 'One row an answer that was offered to later runs: the newest of a key is the one that they are given.';

CREATE TABLE invalidated_answers (
    tool VARCHAR,
    run VARCHAR,
    key VARCHAR,
    because VARCHAR,
    author VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    invalidated_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE invalidated_answers IS 'One row a time that answers were declared stale: of a tool, of a run or of a key.';

CREATE VIEW answers AS
SELECT
    o.key, o.tool, o.tool_version, o.workflow, o.run, o.agent, o.step, o.offered_at, o.position,
    o.version AS times, s.invalidated_at AS stale_since, s.because AS stale_because
FROM (SELECT * FROM offered_answers QUALIFY row_number() OVER (PARTITION BY key ORDER BY version DESC) = 1) AS o
LEFT JOIN LATERAL (
    SELECT arg_min(i.invalidated_at, i.version) AS invalidated_at, arg_min(i.because, i.version) AS because
    FROM invalidated_answers AS i
    WHERE i.version > o.stale_before AND (i.tool = o.tool OR i.run = o.run OR i.key = o.key)
) AS s ON true;
COMMENT ON VIEW answers IS 'One row a key: the answer that was offered last, and since when it is stale. How old it may be is said by who asks.';

CREATE VIEW reused_answers AS
SELECT
    s.run, r.workflow, s.agent, s.role, s.step, s.tool, s.kind, s.reused_from.key AS key,
    s.reused_from.run AS from_run, s.reused_from.agent AS from_agent, s.reused_from.step AS from_step,
    s.reused_from.event AS from_event, o.step IS NOT NULL AS source_on_record,
    epoch(s.ended_at - o.ended_at) AS age_s, o.duration_ms / 1e3 AS seconds_saved,
    o.input_tokens, o.output_tokens, o.cost AS cost_saved, s.outcome_position AS position, s.ended_at AS reused_at
FROM steps AS s
JOIN runs AS r ON r.run = s.run
LEFT JOIN steps AS o ON o.run = s.reused_from.run AND o.agent = s.reused_from.agent AND o.step = s.reused_from.step
    AND NOT o.inherited
WHERE s.reused_from IS NOT NULL AND NOT s.inherited;
COMMENT ON VIEW reused_answers IS 'One row a call that was given the answer of an earlier run and did not run: whose, how old, and what that had used. NULL is not known: nothing was recorded of it, or it is not in this record.';

CREATE VIEW odd_reuse AS
SELECT
    'source not on record' AS kind, a.run, a.agent, a.step, address_of(a.position, 0) AS address,
    concat(a.tool, ' was given the answer of step ', a.from_step, ' of ', a.from_agent, ' in run ', a.from_run,
        ', which is not in this record') AS fact,
    NULL::VARCHAR AS experiment, [{'run': a.run, 'address': address_of(a.position, 0)}] AS evidence
FROM reused_answers AS a
WHERE NOT a.source_on_record
UNION ALL
SELECT
    'stale answer in use', a.run, a.agent, a.step, address_of(a.position, 0),
    concat(a.tool, ' was given the answer of run ', a.from_run, ', which was declared stale later',
        if(coalesce(i.because, '') = '', '', concat(': ', shown(i.because, 80)))),
    NULL, [{'run': a.run, 'address': address_of(a.position, 0)}]
FROM reused_answers AS a
JOIN offered_answers AS o ON o.key = a.key AND o.run = a.from_run AND o.agent = a.from_agent AND o.step = a.from_step
JOIN LATERAL (
    SELECT count(*) AS times, arg_min(x.because, x.version) AS because
    FROM invalidated_answers AS x
    WHERE x.version > o.stale_before AND (x.tool = o.tool OR x.run = o.run OR x.key = o.key)
) AS i ON i.times > 0;
COMMENT ON VIEW odd_reuse IS 'One row a call that rests on an answer of an earlier run which is not in this record, or was declared stale after it was given.';

INSERT INTO finding_kinds VALUES
    ('odd_reuse', 'source not on record', 'reuse', 'low', 'Is every answer that was reused on record where it came from?'),
    ('odd_reuse', 'stale answer in use', 'reuse', 'medium', 'Does no run rest on an answer that was declared stale?');

INSERT INTO event_types VALUES
    ('reuse.offered.v1', 'offered', 'answer of ', '$.tool', ' to later runs, key ', '$.key', NULL, NULL),
    ('reuse.invalidated.v1', 'declared stale', NULL, '$.tool', NULL, '$.run', NULL, '$.key');

CREATE OR REPLACE MACRO words_of(told, t) AS shown(if(t IS NULL, told::VARCHAR, concat(
    CASE WHEN t.type = 'step.completed.v1' THEN 'answer of ' || (told->>'$.reused_from.agent') || '#'
        || (told->>'$.reused_from.step') || ' of run ' || (told->>'$.reused_from.run') || ': ' END, t.before,
    told->>t.path_1, t.between_1 || nullif(told->>t.path_2, ''),
    t.between_2 || nullif(told->>t.path_3, ''))), 200);
COMMENT ON MACRO words_of IS 'words_of(told, t): what an event tells (its data), as a row t of event_types says, cut to 200 characters.';

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
    UNION ALL
    SELECT 'odd_memory', * FROM odd_memory
    UNION ALL
    SELECT 'odd_reuse', * FROM odd_reuse
) AS f
LEFT JOIN finding_kinds AS k ON k.view = f.view AND k.kind = f.kind
LEFT JOIN runs AS r ON r.run = f.run;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times, doubts that a person settled, and runs of one experiment on several days, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact, and of its kind (see finding_kinds) topic, severity (high, medium or low) and question; experiment; evidence: a list of runs and addresses. Nothing in a run of which nothing is missing or odd.';
