-- Findings of the audit have a topic, an experiment, a severity and their evidence.

CREATE TABLE finding_kinds (
    view VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    topic VARCHAR NOT NULL,
    severity VARCHAR NOT NULL,
    question VARCHAR NOT NULL
);
COMMENT ON TABLE finding_kinds IS 'One row a kind of finding: what it is about, how bad it is, and which question it answers.';
INSERT INTO finding_kinds VALUES
    ('orphan_intents', 'in doubt', 'intents', 'high', 'Is it known of each call whether its effect happened?'),
    ('orphan_intents', 'ended', 'intents', 'high', 'Has each call of a run that ended an outcome?'),
    ('orphan_intents', 'passed over', 'intents', 'high', 'Has each call that an agent went on from an outcome?'),
    ('orphan_intents', 'waiting', 'intents', 'medium', 'Is each call answered, or surely at work?'),
    ('late_outcomes', 'completed', 'intents', 'medium', 'Had each call ended when its agent left?'),
    ('late_outcomes', 'failed', 'intents', 'medium', 'Had each call ended when its agent left?'),
    ('late_outcomes', 'in_doubt', 'intents', 'medium', 'Had each call ended when its agent left?'),
    ('policy_overrides', 'ran later', 'overrides', 'high', 'Did what the gate refused stay undone?'),
    ('policy_overrides', 'ran by another', 'overrides', 'high', 'Did what the gate refused one agent stay undone by the others?'),
    ('policy_overrides', 'run again', 'overrides', 'medium', 'Was a call in doubt run a second time?'),
    ('retries', 'storm', 'retries', 'medium', 'Did each call succeed within four attempts?'),
    ('retries', 'repeated', 'retries', 'medium', 'Was a call given up, or changed, before it had failed five times in a row?'),
    ('threshold_flips', 'selected would fail', 'thresholds', 'low', 'Would each decision stand if its threshold moved a little?'),
    ('threshold_flips', 'selected would pass', 'thresholds', 'medium', 'Does what was selected pass its threshold?'),
    ('threshold_flips', 'another would fail', 'thresholds', 'low', 'Would each decision stand if its threshold moved a little?'),
    ('threshold_flips', 'another would pass', 'thresholds', 'low', 'Would each decision stand if its threshold moved a little?'),
    ('gaps', 'unanswered call', 'gaps', 'medium', 'Is an answer on record for each call that a message asks for?'),
    ('gaps', 'version hole', 'gaps', 'high', 'Is each stream on record without a hole?'),
    ('gaps', 'unknown type', 'gaps', 'medium', 'Does this version know each event?'),
    ('gaps', 'problem', 'gaps', 'high', 'Is each commit as Hansard writes it?'),
    ('gaps', 'cost', 'costs', 'high', 'Do claimed costs add up from the recorded ones?'),
    ('gaps', 'price', 'costs', 'high', 'Do costs follow from tokens and the stated prices?'),
    ('gaps', 'no outcome', 'scores', 'medium', 'Was each run of a scored experiment scored?'),
    ('gaps', 'same trial', 'selection', 'high', 'Is each trial on record once?'),
    ('gaps', 'trials', 'selection', 'medium', 'Has each task the planned trials?'),
    ('gaps', 'tasks', 'selection', 'medium', 'Has each arm the planned tasks?'),
    ('gaps', 'not in the plan', 'selection', 'medium', 'Is each arm in the plan?'),
    ('gaps', 'before the plan', 'selection', 'high', 'Was the plan registered before the first run?'),
    ('gaps', 'spread', 'selection', 'low', 'Did all runs begin within a day?');

CREATE OR REPLACE MACRO findings(x) AS TABLE
SELECT
    f.view, f.kind, f.run, f.agent, f.step, f.address, f.fact, coalesce(k.topic, f.view) AS topic,
    coalesce(k.severity, 'medium') AS severity, r.experiment,
    coalesce(k.question, 'Is all of it as it should be?') AS question,
    if(f.run IS NULL AND f.address IS NULL, [], [{'run': f.run, 'address': f.address}]) AS evidence
FROM (
    SELECT 'orphan_intents' AS view, * FROM orphan_intents
    UNION ALL
    SELECT 'late_outcomes', * FROM late_outcomes
    UNION ALL
    SELECT 'policy_overrides', * FROM policy_overrides WHERE kind <> 'settled'
    UNION ALL
    SELECT 'retries', * FROM retries WHERE kind <> 'retried'
    UNION ALL
    SELECT 'threshold_flips', * FROM threshold_flips(x)
    UNION ALL
    SELECT 'gaps', * FROM gaps
) AS f
LEFT JOIN finding_kinds AS k ON k.view = f.view AND k.kind = f.kind
LEFT JOIN runs AS r ON r.run = f.run;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times and doubts that a person settled, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact, and of its kind (see finding_kinds) topic, severity (high, medium or low) and question; experiment (of its run); evidence: a list of runs and addresses. Nothing in a run of which nothing is missing or odd.';

CREATE VIEW looked_at AS
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
    SELECT 'gaps', max(position), 'commits' FROM events
) AS t;
COMMENT ON VIEW looked_at IS 'One row a topic of the audit, and for what is about experiments one each: how much there was to look at, and where nothing could be, why not. What stands here and has no finding was looked at and is silent.';
