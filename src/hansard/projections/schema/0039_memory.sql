-- Refill: files that were projected before are made anew from the log.
-- Memory: what became of each file of a space, what was refused, and what asks a person.

CREATE TABLE memory_changes (
    space VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    path VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    op VARCHAR NOT NULL,
    was VARCHAR,
    link BOOLEAN NOT NULL,
    digest_before VARCHAR,
    digest VARCHAR,
    edit JSON,
    because VARCHAR,
    sources JSON,
    author VARCHAR NOT NULL,
    role VARCHAR,
    run VARCHAR,
    step BIGINT,
    label VARCHAR,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    counts_from BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE memory_changes IS 'One row a file that a change of memory created, edited, renamed or deleted.';

CREATE TABLE memory_rejections (
    space VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    path VARCHAR NOT NULL,
    line BIGINT NOT NULL,
    rule VARCHAR NOT NULL,
    stood VARCHAR,
    allowed VARCHAR,
    because VARCHAR,
    author VARCHAR NOT NULL,
    role VARCHAR,
    run VARCHAR,
    step BIGINT,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE memory_rejections IS 'One row a problem for which a change of memory was refused: nothing of it was written.';

CREATE TABLE memory_policies (
    space VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    approval VARCHAR NOT NULL,
    until TIMESTAMP,
    untrusted JSON,
    because VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE memory_policies IS 'One row a word on whether agents'' changes of a space wait for a person''s.';

INSERT INTO event_types VALUES
    ('memory.changed.v1', 'remembered', NULL, '$.files[0].op', ' ', '$.files[0].path', ': ', '$.because'),
    ('memory.rejected.v1', 'refused to remember', NULL, '$.problems[0].path', ': ', '$.problems[0].rule', ': ', '$.problems[0].allowed'),
    ('memory.policy_set.v1', 'set the policy', NULL, '$.approval', ' until ', '$.until', ': ', '$.because');

CREATE VIEW memory_files AS
WITH moves AS (
    SELECT space, version, path, kind, op, digest, link, author, role, run, step, label, event, because, position, happened_at
    FROM memory_changes
    UNION ALL
    SELECT space, version, was, kind, 'moved', NULL, link, author, role, run, step, label, event, because, position, happened_at
    FROM memory_changes
    WHERE was IS NOT NULL
), newest AS (
    SELECT *, row_number() OVER (PARTITION BY space, path ORDER BY version DESC, op = 'moved') AS place,
        count(*) FILTER (op <> 'moved') OVER (PARTITION BY space, path) AS changes
    FROM moves
)
SELECT
    space, path, kind, version, changes, digest, link, author, role, run, step, label, event, because, position,
    happened_at AS changed_at
FROM newest
WHERE place = 1 AND op NOT IN ('deleted', 'moved');
COMMENT ON VIEW memory_files IS 'One row a file of memory that there is, with the change that made it what it is. Its text is read by hansard memory show.';

INSERT INTO finding_kinds VALUES
    ('odd_memory', 'untrusted memory', 'overrides', 'high', 'Does no file of memory rest on untrusted input?');

CREATE VIEW odd_memory AS
SELECT
    'untrusted memory' AS kind, f.run, f.author AS agent, f.step, address_of(f.position, e.event_index) AS address,
    concat(f.space, '/', f.path, ' rests on untrusted input, and was written by ', f.author) AS fact,
    r.experiment, [{'run': f.run, 'address': address_of(f.position, e.event_index)}] AS evidence
FROM memory_files AS f
JOIN events AS e ON e.id = f.event
LEFT JOIN runs AS r ON r.run = f.run
WHERE contains(f.label, 'untrusted');
COMMENT ON VIEW odd_memory IS 'One row a file of memory that rests on untrusted input.';

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
) AS f
LEFT JOIN finding_kinds AS k ON k.view = f.view AND k.kind = f.kind
LEFT JOIN runs AS r ON r.run = f.run;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times, doubts that a person settled, and runs of one experiment on several days, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact, and of its kind (see finding_kinds) topic, severity (high, medium or low) and question; experiment; evidence: a list of runs and addresses. Nothing in a run of which nothing is missing or odd.';
