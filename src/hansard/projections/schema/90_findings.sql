-- Findings: what the audit looks at, and everything it found, in one list. Last, since it uses all.

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
    ('repeated_effects', 'same tool', 'effects', 'high', 'Did no resume make an effect again that was on record?'),
    ('repeated_effects', 'another tool', 'effects', 'high', 'Did no resume make an effect again that was on record?'),
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
    ('gaps', 'spread', 'selection', 'low', 'Did all runs begin within a day?'),
    ('odd_models', 'several models', 'models', 'high', 'Did one model answer in each arm and role (or the same set in each run)?'),
    ('odd_models', 'undeclared model', 'models', 'high', 'Did the model that is declared answer?'),
    ('odd_models', 'user simulator', 'models', 'high', 'Is the simulated user the same in all arms?'),
    ('odd_scores', 'contradicts its checks', 'scores', 'high', 'Does each score follow from the checks that its judge stored?'),
    ('odd_selection', 'tasks lacking', 'selection', 'medium', 'Has each arm all tasks that another has?'),
    ('odd_selection', 'task numbers skip', 'selection', 'low', 'Are numbered tasks there without a hole (of which at least 60 % are there)?'),
    ('odd_selection', 'trial numbers skip', 'selection', 'medium', 'Are the trials of each task there without a hole, of the numbers that half of the tasks have?'),
    ('odd_selection', 'fewer trials', 'selection', 'medium', 'Has each task as many trials as the others of its arm?'),
    ('odd_selection', 'trials differ', 'selection', 'low', 'Have all arms as many trials a task?'),
    ('odd_selection', 'late starts', 'selection', 'medium', 'Did runs begin in one go, or go on in order? A start is late where it is two hours or more after all before it, is of an earlier task than those, and such starts are at most a quarter of the arm.'),
    ('odd_copies', 'over tasks', 'copies', 'high', 'Is each task''s conversation its own? Held against each other are the answers of 40 characters and more: 80 % of four or more in common, or all of two or three.'),
    ('odd_copies', 'over arms', 'copies', 'high', 'Is each arm''s conversation its own? Held against each other are the answers of 40 characters and more: 80 % of four or more in common, or all of two or three.'),
    ('odd_times', 'all equal', 'times', 'medium', 'Do five runs or more of an arm have more than one time?'),
    ('odd_times', 'all round', 'times', 'medium', 'Are 20 times or more of an arm other than whole tens of seconds?'),
    ('odd_times', 'in the future', 'times', 'high', 'Is each claimed time before it was recorded, give or take 14 hours of time zones?'),
    ('odd_times', 'ends before it starts', 'times', 'high', 'Does no run end before it begins, by the times that its source claims?'),
    ('odd_times', 'constant durations', 'times', 'medium', 'Do five runs or more of an arm, of five seconds or more, take different times?'),
    ('odd_times', 'constant steps', 'times', 'medium', 'Do 20 messages or more of an arm follow after different times?'),
    ('odd_failures', 'uneven', 'failures', 'medium', 'Do runs fail, or stay unjudged, as often in each arm (10 runs and more, within 5 points or 3.3 standard errors)?'),
    ('odd_costs', 'price', 'costs', 'high', 'Does what messages cost follow from tokens and the stated prices, within 1 %?'),
    ('odd_costs', 'constant', 'costs', 'medium', 'Do 20 answers of 10 or more different sizes cost different amounts?'),
    ('odd_costs', 'negative', 'costs', 'high', 'Is no amount below 0?'),
    ('odd_scores', 'claimed score', 'scores', 'high', 'Is each score what its source claims?'),
    ('odd_scores', 'claimed mean', 'scores', 'high', 'Is the mean of each arm what its source claims, to the digits that it gives, two at least?'),
    ('odd_scores', 'claimed mean counts otherwise', 'scores', 'low', 'Does the claimed mean count missing values and crashes as a comparison does?'),
    ('odd_prompts', 'without evidence', 'prompts', 'medium', 'Does each version that an alias names rest on evidence?'),
    ('odd_prompts', 'retired in use', 'prompts', 'medium', 'Was no version used after it was retired?'),
    ('odd_memory', 'untrusted memory', 'overrides', 'high', 'Does no file of memory rest on untrusted input?'),
    ('odd_reuse', 'source not on record', 'reuse', 'low', 'Is every answer that was reused on record where it came from?'),
    ('odd_reuse', 'stale answer in use', 'reuse', 'medium', 'Does no run rest on an answer that was declared stale?'),
    ('odd_actions', 'heal not looked at', 'actions', 'medium', 'Has somebody looked at what replays changed in action caches?'),
    ('odd_experiences', 'heal not looked at', 'experience', 'medium', 'Has somebody looked at what replays changed in experiences?'),
    ('odd_experiences', 'replay without checks', 'experience', 'high', 'Was every experience done under check functions?'),
    ('odd_experiences', 'replay of what nobody confirmed', 'experience', 'high', 'Was nothing from a bundle done before a person confirmed it?');

CREATE VIEW looked_at AS
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
    SELECT 'effects', count(*) FILTER (effects IN ('idempotent', 'reconcile', 'once')), 'calls with effects' FROM steps
    UNION ALL
    SELECT 'retries', count(*), 'calls' FROM steps
    UNION ALL
    SELECT 'thresholds', count(*) FILTER (threshold IS NOT NULL), 'decisions by a threshold' FROM decisions
    UNION ALL
    SELECT 'gaps', coalesce(max(position), 0), 'commits' FROM events
    UNION ALL
    SELECT 'prompts', count(*), 'aliases of prompts' FROM prompt_aliases
    UNION ALL
    SELECT 'experience', count(*), 'replays and heals of experiences' FROM (
        SELECT position FROM experience_replays UNION ALL SELECT position FROM unfinished_replays
        UNION ALL SELECT position FROM experience_versions WHERE kind = 'healed'
    ) HAVING count(*) > 0
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

CREATE MACRO findings(x) AS TABLE
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
    SELECT 'repeated_effects', *, NULL, NULL FROM repeated_effects
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
    UNION ALL
    SELECT 'odd_experiences', * FROM odd_experiences
) AS f
LEFT JOIN finding_kinds AS k ON k.view = f.view AND k.kind = f.kind
LEFT JOIN runs AS r ON r.run = f.run;
COMMENT ON MACRO TABLE findings IS 'findings(x): what all of these found, less what was retried two to four times, doubts that a person settled, and runs of one experiment on several days, which is in order; thresholds moved by x. Columns: view, kind, run, agent, step, address, fact, and of its kind (see finding_kinds) topic, severity (high, medium or low) and question; experiment; evidence: a list of runs and addresses. Nothing in a run of which nothing is missing or odd.';
