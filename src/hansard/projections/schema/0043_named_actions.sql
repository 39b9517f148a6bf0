-- Refill: files that were projected before are made anew from the log.
-- Action caches that have a name in the record: their versions, and who looked at them.

CREATE TABLE action_versions (
    cache VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    entry BIGINT,
    before BIGINT,
    again BIGINT,
    after JSON,
    because VARCHAR,
    run VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    event_index BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE action_versions IS 'One row a version of a named action cache: saved whole, healed in one entry, or reverted.';

CREATE TABLE action_looks (
    cache VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    because VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE action_looks IS 'One row a time that somebody looked at an action cache, and let it stand.';

CREATE VIEW action_caches AS
SELECT
    v.cache, max(v.version) AS versions, count(*) FILTER (v.kind = 'healed') AS heals,
    coalesce(any_value(l.version), 0) AS looked_at,
    count(*) FILTER (v.kind = 'healed' AND v.version > coalesce(l.version, 0)) AS not_looked_at,
    min(v.happened_at) AS began_at, max(v.happened_at) AS changed_at
FROM action_versions AS v
LEFT JOIN (SELECT cache, max(version) AS version FROM action_looks GROUP BY cache) AS l ON l.cache = v.cache
GROUP BY v.cache;
COMMENT ON VIEW action_caches IS 'One row a named action cache: how often it was healed, and up to which version somebody looked.';

CREATE VIEW odd_actions AS
SELECT
    'heal not looked at' AS kind, v.run, v.author AS agent, NULL::BIGINT AS step,
    address_of(v.position, v.event_index) AS address,
    concat('version ', v.version, ' of action cache ', v.cache, ' has entry ', v.entry, ' elsewhere, as ', v.author,
        ' found it, and nobody has looked at it', if(coalesce(v.because, '') = '', '', concat(': ', shown(v.because, 80)))) AS fact,
    NULL::VARCHAR AS experiment, [{'run': v.run, 'address': address_of(v.position, v.event_index)}] AS evidence
FROM action_versions AS v
LEFT JOIN (SELECT cache, max(version) AS version FROM action_looks GROUP BY cache) AS l ON l.cache = v.cache
WHERE v.kind = 'healed' AND v.version > coalesce(l.version, 0)
    AND NOT EXISTS (FROM action_versions AS r WHERE r.cache = v.cache AND r.kind <> 'healed' AND r.version > v.version);
COMMENT ON VIEW odd_actions IS 'One row an entry of an action cache that was found elsewhere by a replay, is in use, and that nobody has looked at.';

INSERT INTO finding_kinds VALUES
    ('odd_actions', 'heal not looked at', 'actions', 'medium', 'Has somebody looked at what replays changed in action caches?');

INSERT INTO event_types VALUES
    ('actions.saved.v1', 'saved', 'version ', '$.version', ', of run ', '$.run', ': ', '$.because'),
    ('actions.healed.v1', 'healed', 'version ', '$.version', ', entry ', '$.entry', ': ', '$.because'),
    ('actions.reverted.v1', 'reverted', 'version ', '$.version', ', as version ', '$.to', ': ', '$.because'),
    ('actions.looked_at.v1', 'looked at', 'version ', '$.version', ': ', '$.because', NULL, NULL);

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
    UNION ALL
    SELECT 'odd_actions', * FROM odd_actions
) AS f
LEFT JOIN finding_kinds AS k ON k.view = f.view AND k.kind = f.kind
LEFT JOIN runs AS r ON r.run = f.run;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times, doubts that a person settled, and runs of one experiment on several days, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact, and of its kind (see finding_kinds) topic, severity (high, medium or low) and question; experiment; evidence: a list of runs and addresses. Nothing in a run of which nothing is missing or odd.';
