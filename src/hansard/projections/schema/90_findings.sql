-- Findings: the checks of the audit, and all their findings in one list. Last, since it uses all views.

CREATE TABLE finding_kinds (
    view VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    topic VARCHAR NOT NULL,
    severity VARCHAR NOT NULL,
    question VARCHAR NOT NULL,
    command VARCHAR NOT NULL
);
COMMENT ON TABLE finding_kinds IS 'One row per kind of audit finding: topic, severity, question and next command.';
INSERT INTO finding_kinds VALUES
    ('orphan_intents', 'in doubt', 'intents', 'high', 'Is it known of each call whether its effect happened?', 'hansard run settle {run} {agent}#{step} (--happened RESULT or --did-not-happen)'),
    ('orphan_intents', 'ended', 'intents', 'high', 'Has each call of a run that ended an outcome?', 'hansard run settle {run} {agent}#{step} (--happened RESULT or --did-not-happen)'),
    ('orphan_intents', 'passed over', 'intents', 'high', 'Has each call that an agent went on from an outcome?', 'hansard run settle {run} {agent}#{step} (--happened RESULT or --did-not-happen)'),
    ('orphan_intents', 'waiting', 'intents', 'medium', 'Is each call answered, or surely at work?', 'hansard run trace {run}'),
    ('orphan_intents', 'under way', 'intents', 'low', 'Is each call answered, or surely at work?', 'hansard run trace {run}'),
    ('late_outcomes', 'completed', 'intents', 'medium', 'Had each call ended when its agent left?', 'hansard run trace {run}'),
    ('late_outcomes', 'failed', 'intents', 'medium', 'Had each call ended when its agent left?', 'hansard run trace {run}'),
    ('late_outcomes', 'in_doubt', 'intents', 'medium', 'Had each call ended when its agent left?', 'hansard run trace {run}'),
    ('late_outcomes', 'after the end', 'effects', 'high', 'Was no effect made after its run had ended?', 'hansard run trace {run}'),
    ('policy_overrides', 'ran later', 'overrides', 'high', 'Did what the gate refused stay undone?', 'hansard run trace {run}'),
    ('policy_overrides', 'ran by another', 'overrides', 'high', 'Did what the gate refused one agent stay undone by the others?', 'hansard run trace {run}'),
    ('policy_overrides', 'run again', 'overrides', 'medium', 'Was a call that was in doubt, or had diverged, run again?', 'hansard run trace {run}'),
    ('repeated_effects', 'same tool', 'effects', 'high', 'Did no resume make an effect again that was on record?', 'hansard run trace {run}'),
    ('repeated_effects', 'another tool', 'effects', 'high', 'Did no resume make an effect again that was on record?', 'hansard run trace {run}'),
    ('retries', 'storm', 'retries', 'medium', 'Did each call succeed within four attempts?', 'hansard run trace {run}'),
    ('retries', 'repeated', 'retries', 'medium', 'Was a call given up, or changed, before it had failed five times in a row?', 'hansard run trace {run}'),
    ('threshold_flips', 'selected would fail', 'thresholds', 'low', 'Would each decision stand if its threshold moved a little?', 'hansard why {address}'),
    ('threshold_flips', 'selected would pass', 'thresholds', 'medium', 'Does what was selected pass its threshold?', 'hansard why {address}'),
    ('threshold_flips', 'another would fail', 'thresholds', 'low', 'Would each decision stand if its threshold moved a little?', 'hansard why {address}'),
    ('threshold_flips', 'another would pass', 'thresholds', 'low', 'Would each decision stand if its threshold moved a little?', 'hansard why {address}'),
    ('gaps', 'unanswered call', 'gaps', 'medium', 'Is an answer on record for each call that a message asks for?', 'hansard run context {run}'),
    ('gaps', 'version hole', 'gaps', 'high', 'Is each stream on record without a hole?', 'hansard check'),
    ('gaps', 'unknown type', 'gaps', 'medium', 'Does this version know each event?', 'hansard check'),
    ('gaps', 'problem', 'gaps', 'high', 'Is each commit as Hansard writes it?', 'hansard check'),
    ('gaps', 'cost', 'costs', 'high', 'Do claimed costs add up from the recorded ones?', 'hansard run trace {run}'),
    ('gaps', 'price', 'costs', 'high', 'Do costs follow from tokens and the stated prices?', 'hansard price list'),
    ('gaps', 'no outcome', 'scores', 'medium', 'Was each run of a scored experiment scored?', 'hansard run score {run} METRIC=NUMBER'),
    ('gaps', 'same trial', 'selection', 'high', 'Is each trial on record once?', 'hansard compare {experiment} --show tasks'),
    ('gaps', 'trials', 'selection', 'medium', 'Has each task the planned trials?', 'hansard compare {experiment} --show tasks'),
    ('gaps', 'tasks', 'selection', 'high', 'Has each arm the planned tasks?', 'hansard compare {experiment} --show tasks'),
    ('gaps', 'not in the plan', 'selection', 'medium', 'Is each arm in the plan?', 'hansard compare {experiment} --show plan'),
    ('gaps', 'before the plan', 'selection', 'high', 'Was the plan registered before the first run?', 'hansard compare {experiment} --show plan'),
    ('gaps', 'spread', 'selection', 'low', 'Did all runs begin within a day?', 'hansard compare {experiment} --show tasks'),
    ('odd_models', 'several models', 'models', 'high', 'Did one model answer in each arm and role (or the same set in each run)?', 'hansard compare {experiment} --show runs'),
    ('odd_models', 'undeclared model', 'models', 'high', 'Did the model that is declared answer?', 'hansard compare {experiment} --show runs'),
    ('odd_models', 'user simulator', 'models', 'high', 'Is the simulated user the same in all arms?', 'hansard compare {experiment} --show runs'),
    ('odd_scores', 'contradicts its checks', 'scores', 'high', 'Does each score follow from the checks that its judge stored?', 'hansard run show {run}'),
    ('odd_selection', 'tasks lacking', 'selection', 'high', 'Has each arm all tasks that another has?', 'hansard compare {experiment} --show tasks'),
    ('odd_selection', 'task numbers skip', 'selection', 'medium', 'Are numbered tasks there without a hole (of which at least 60 % are there)?', 'hansard compare {experiment} --show tasks'),
    ('odd_selection', 'trial numbers skip', 'selection', 'medium', 'Are the trials of each task there without a hole, of the numbers that half of the tasks have?', 'hansard compare {experiment} --show tasks'),
    ('odd_selection', 'fewer trials', 'selection', 'medium', 'Has each task as many trials as the others of its arm?', 'hansard compare {experiment} --show tasks'),
    ('odd_selection', 'trials differ', 'selection', 'low', 'Have all arms as many trials a task?', 'hansard compare {experiment} --show tasks'),
    ('odd_selection', 'late starts', 'selection', 'medium', 'Did runs begin in one go, or go on in order? A start is late where it is two hours or more after all before it, is of an earlier task than those, and such starts are at most a quarter of the arm.', 'hansard compare {experiment} --show runs'),
    ('odd_selection', 'early starts', 'selection', 'medium', 'Did no runs begin two hours or more before most of their arm, out of the order of tasks?', 'hansard compare {experiment} --show runs'),
    ('odd_copies', 'over tasks', 'copies', 'high', 'Is each task''s conversation its own? Held against each other are the answers of 40 characters and more: 80 % of four or more in common, or all of two or three.', 'hansard run diff {run} {other}'),
    ('odd_copies', 'over arms', 'copies', 'high', 'Is each arm''s conversation its own? Held against each other are the answers of 40 characters and more: 80 % of four or more in common, or all of two or three.', 'hansard run diff {run} {other}'),
    ('odd_times', 'all equal', 'times', 'medium', 'Do five runs or more of an arm have more than one time?', 'hansard run trace {run}'),
    ('odd_times', 'all round', 'times', 'medium', 'Are 20 times or more of an arm other than whole tens of seconds?', 'hansard run trace {run}'),
    ('odd_times', 'in the future', 'times', 'high', 'Is each claimed time before it was recorded, give or take 14 hours of time zones?', 'hansard run trace {run}'),
    ('odd_times', 'ends before it starts', 'times', 'high', 'Does no run end before it begins, by the times that its source claims?', 'hansard run show {run}'),
    ('odd_times', 'constant durations', 'times', 'medium', 'Do five runs or more of an arm, of five seconds or more, take different times?', 'hansard run trace {run}'),
    ('odd_times', 'constant steps', 'times', 'medium', 'Do 20 messages or more of an arm follow after different times?', 'hansard run trace {run}'),
    ('odd_failures', 'uneven', 'failures', 'medium', 'Do runs fail, or stay unjudged, as often in each arm (10 runs and more, within 5 points or 3.3 standard errors)?', 'hansard compare {experiment} --show runs'),
    ('odd_costs', 'price', 'costs', 'high', 'Does what messages cost follow from tokens and the stated prices, within 1 %?', 'hansard price list'),
    ('odd_costs', 'constant', 'costs', 'medium', 'Do 20 answers of 10 or more different sizes cost different amounts?', 'hansard compare {experiment} --show arms'),
    ('odd_costs', 'negative', 'costs', 'high', 'Is no amount below 0?', 'hansard run trace {run}'),
    ('odd_scores', 'claimed score', 'scores', 'high', 'Is each score what its source claims?', 'hansard run show {run}'),
    ('odd_scores', 'claimed mean', 'scores', 'high', 'Is the mean of each arm what its source claims, to the digits that it gives, two at least?', 'hansard compare {experiment} --show arms'),
    ('odd_scores', 'claimed mean counts otherwise', 'scores', 'low', 'Does the claimed mean count missing values and crashes as a comparison does?', 'hansard compare {experiment} --show arms'),
    ('odd_prompts', 'without evidence', 'prompts', 'medium', 'Does each version that an alias names rest on evidence?', 'hansard prompt log NAME'),
    ('odd_prompts', 'retired in use', 'prompts', 'medium', 'Was no version used after it was retired?', 'hansard prompt list'),
    ('odd_memory', 'untrusted memory', 'memory', 'high', 'Does no file of memory rest on untrusted input?', 'hansard memory ls'),
    ('odd_reuse', 'source not on record', 'reuse', 'low', 'Is every answer that was reused on record where it came from?', 'hansard reuse used'),
    ('odd_reuse', 'stale answer in use', 'reuse', 'medium', 'Does no run rest on an answer that was declared stale?', 'hansard reuse used'),
    ('odd_actions', 'heal unreviewed', 'actions', 'medium', 'Have all changes by replays been reviewed in action caches?', 'hansard actions list'),
    ('odd_experiences', 'heal unreviewed', 'experience', 'medium', 'Have all changes by replays been reviewed in experiences?', 'hansard experience list'),
    ('odd_experiences', 'replay without checks', 'experience', 'high', 'Was every experience done under check functions?', 'hansard experience list'),
    ('odd_experiences', 'replay of what nobody confirmed', 'experience', 'high', 'Was nothing from a pack done before a person confirmed it?', 'hansard experience list'),
    ('odd_decisions', 'untrusted input', 'labels', 'high', 'Does no decision rest on untrusted input?', 'hansard why {address}'),
    ('odd_decisions', 'declassified input', 'labels', 'low', 'Does no decision rest on untrusted input that somebody declassified?', 'hansard why {address}');

CREATE MACRO checked_topics(of_run) AS TABLE
WITH placed AS (
    SELECT r.experiment, r.arm, r.run FROM assigned_runs AS r WHERE of_run IS NULL
    UNION ALL
    SELECT NULL, '', r.run FROM runs AS r
    WHERE if(of_run IS NULL, r.parent IS NULL AND coalesce(r.experiment, '') = '', r.run = of_run)
), per_experiment AS (
    SELECT
        r.experiment, count(*) AS runs, count(DISTINCT r.arm) AS arms, count(m.run) AS modelled, count(d.run) AS declared,
        count(c.run) AS scored, count(s.run) AS answered, count(w.run) AS timed, count(u.run) AS costed,
        if(sum(n.calls) > 0, concat(counted(sum(n.calls), 'model call'), ' without a field model in its arguments or result'),
            'no model is recorded') AS unnamed
    FROM placed AS r
    LEFT JOIN (SELECT DISTINCT run FROM answering_models WHERE role <> 'user') AS m ON m.run = r.run
    LEFT JOIN (
        SELECT run, count(*) AS calls FROM steps
        WHERE kind = 'model' AND reused_step IS NULL AND coalesce(nullif(result->>'$.model', ''), arguments->>'$.model', '') = ''
        GROUP BY run
    ) AS n ON n.run = r.run
    LEFT JOIN (SELECT DISTINCT a.run FROM answering_models AS a SEMI JOIN declared_models AS x ON x.run = a.run AND x.of_user = (a.role = 'user')) AS d ON d.run = r.run
    LEFT JOIN (SELECT run FROM checked_scores UNION SELECT run FROM claimed_scores WHERE run IS NOT NULL) AS c ON c.run = r.run
    LEFT JOIN (SELECT run FROM messages WHERE message_role = 'assistant' GROUP BY run HAVING count(*) >= 2) AS s ON s.run = r.run
    LEFT JOIN (SELECT DISTINCT run FROM events WHERE occurred_at IS NOT NULL) AS w ON w.run = r.run
    LEFT JOIN (
        SELECT DISTINCT a.run FROM answering_models AS a SEMI JOIN prices AS p ON p.model = a.model
        UNION
        SELECT s.run FROM steps AS s SEMI JOIN prices AS p ON p.model = s.arguments->>'$.model'
    ) AS u ON u.run = r.run
    GROUP BY r.experiment
)
SELECT t.topic, NULL::VARCHAR AS experiment, t.looked, t.what, if(t.looked = 0, 'no ' || t.what || ' are recorded', NULL) AS why_not
FROM (
    SELECT 'intents' AS topic, count(*) AS looked, 'calls' AS what FROM steps WHERE run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'overrides', count(*), 'refusals and settlements' FROM (
        SELECT run FROM policies UNION ALL SELECT run FROM settlements
    ) WHERE run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'effects', count(*) FILTER (effects IN ('idempotent', 'reconcile', 'once')), 'calls with effects'
    FROM steps WHERE run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'retries', count(*), 'calls' FROM steps WHERE run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'thresholds', count(*) FILTER (threshold IS NOT NULL), 'decisions by a threshold'
    FROM decisions WHERE run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'labels', count(DISTINCT d.decision), 'decisions in runs with labels'
    FROM decisions AS d SEMI JOIN labels AS l ON l.run = d.run WHERE d.run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'gaps', count(DISTINCT position), 'commits' FROM events WHERE run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'prompts', count(*), 'aliases of prompts' FROM prompt_aliases WHERE of_run IS NULL
    UNION ALL
    SELECT 'memory', count(*), 'files of memory' FROM memory_files WHERE run = of_run OR of_run IS NULL
    UNION ALL
    SELECT 'reuse', count(*), 'reused answers' FROM steps WHERE reused_from IS NOT NULL AND (run = of_run OR of_run IS NULL)
    UNION ALL
    SELECT 'actions', count(*), 'changes of action caches' FROM events
    WHERE known_as = 'actions.healed.v1' AND (run = of_run OR of_run IS NULL)
    UNION ALL
    SELECT 'experience', count(*), 'replays and heals of experiences' FROM (
        SELECT position FROM experience_replays UNION ALL SELECT position FROM unfinished_replays
        UNION ALL SELECT position FROM experience_versions WHERE kind = 'healed'
    ) WHERE of_run IS NULL
) AS t
WHERE of_run IS NULL OR t.topic NOT IN ('prompts', 'experience')
UNION ALL
SELECT v.topic, t.experiment, v.looked, v.what, if(v.looked > 0, NULL, v.why_not)
FROM per_experiment AS t
CROSS JOIN LATERAL (VALUES
    ('models', t.modelled, 'runs whose model is recorded', t.unnamed, true),
    ('models', t.declared, 'runs whose model is recorded and declared', 'no model is both recorded and declared', true),
    ('scores', t.scored, 'scores with stored checks or claims', 'only whether runs have scores is checked: no checks are stored beside them, and nothing is claimed of them', false),
    ('selection', t.runs, 'trials', NULL, true),
    ('copies', t.answered, 'runs with two answers or more', 'no run has two answers', true),
    ('times', t.timed, 'runs with times of their source', 'no times of a source are recorded', true),
    ('failures', if(t.arms > 1, t.runs, 0), 'trials', 'it has one arm', true),
    ('costs', t.costed, 'runs whose model has a stated price',
        if(t.modelled = 0, t.unnamed, 'no price is stated of a model that answered'), false)
) AS v(topic, looked, what, why_not, of_arms)
WHERE (v.what <> 'runs whose model is recorded and declared' OR t.modelled > 0) AND (t.experiment IS NOT NULL OR NOT v.of_arms)
UNION ALL
SELECT v.topic, t.experiment, 0, 'runs', concat(v.why_not, ' in ', t.runs - v.looked, ' of ', t.runs, ' runs')
FROM per_experiment AS t
CROSS JOIN LATERAL (VALUES
    ('models', t.modelled, t.unnamed),
    ('models', if(t.declared < t.modelled, t.declared, 0), 'no model is both recorded and declared'),
    ('scores', t.scored, 'no checks are stored beside the score, and nothing is claimed of it'),
    ('copies', t.answered, 'there are no two answers'),
    ('times', t.timed, 'no times of the source are recorded')
) AS v(topic, looked, why_not)
WHERE v.looked BETWEEN 1 AND t.runs - 1 AND t.experiment IS NOT NULL
UNION ALL
-- The conditions of settled_trials.
SELECT 'selection', experiment, 0, 'tasks that an arm lacks', concat(concat_ws(', ',
    CASE count(*) FILTER (status = 'open') WHEN 0 THEN NULL WHEN 1 THEN '1 run is open'
        ELSE concat(count(*) FILTER (status = 'open'), ' runs are open') END,
    if(bool_or(registered AND stopped_at IS NULL), 'its plan is not stopped', NULL)),
    ': tasks that an arm lacks are looked for once it is over')
FROM trials WHERE of_run IS NULL
GROUP BY experiment HAVING bool_or(status = 'open' OR (registered AND stopped_at IS NULL))
UNION ALL
SELECT 'scores', experiment, count(*), 'claimed means', NULL
FROM claimed_scores WHERE run IS NULL AND of_run IS NULL GROUP BY experiment
UNION ALL
SELECT
    'scores', experiment, 0, 'claimed means', concat(counted(count(*), 'claimed figure'), ' of arm ', arm, ', ',
        array_to_string(list(concat(metric, if(domain = '', '', ' of '), domain) ORDER BY domain, metric)[:8], ', '), if(count(*) > 8, ' ...', ''),
        if(count(*) = 1, ', has', ', have'), ' no runs, or too few trials, on record')
FROM submitted_claims WHERE value IS NULL AND of_run IS NULL GROUP BY experiment, arm
UNION ALL
SELECT v.topic, NULL, 0, 'runs', CASE
    WHEN of_run IS NOT NULL THEN 'only runs of an experiment are compared with each other: leave out the run'
    WHEN t.runs IS NULL THEN 'no experiment is recorded'
    ELSE concat(if(t.runs = 1, '1 run is', t.runs || ' runs are'), ' of no experiment',
        if(t.imported > 0, concat(', ', t.imported, ' of them imported: import with --experiment'), ''),
        if(t.forks > 0, '; forks are not counted', '')) END
FROM (VALUES ('models', true), ('scores', false), ('selection', true), ('copies', true), ('times', true), ('failures', true), ('costs', false)) AS v(topic, of_arms)
CROSS JOIN (
    SELECT nullif(count(*), 0) AS runs, count(*) FILTER (r.labels->>'source' IS NOT NULL) AS imported,
        (SELECT count(*) FROM runs WHERE parent IS NOT NULL) AS forks
    FROM placed AS p JOIN runs AS r ON r.run = p.run WHERE p.experiment IS NULL
) AS t
WHERE (v.of_arms AND t.runs IS NOT NULL) OR NOT EXISTS (FROM placed);
COMMENT ON MACRO TABLE checked_topics IS 'One row per topic and experiment checked by the audit of a run (NULL: all): how much of what was looked at, and why_not.';

CREATE MACRO findings(x) AS TABLE
SELECT
    f.view, f.kind, f.run, f.agent, f.step, f.address,
    if(i.run IS NULL, f.fact, f.fact || '; its effects allow to repeat it: a resume does') AS fact,
    coalesce(k.topic, f.view) AS topic, if(i.run IS NULL, coalesce(k.severity, 'medium'), 'low') AS severity,
    coalesce(f.experiment, r.experiment) AS experiment, coalesce(k.question, 'Is all of it as it should be?') AS question,
    coalesce(i.command, k.command, 'hansard check') AS command,
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
    SELECT 'odd_decisions', * FROM odd_decisions
    UNION ALL
    SELECT 'odd_reuse', * FROM odd_reuse
    UNION ALL
    SELECT 'odd_actions', * FROM odd_actions
    UNION ALL
    SELECT 'odd_experiences', * FROM odd_experiences
) AS f
LEFT JOIN finding_kinds AS k ON k.view = f.view AND k.kind = f.kind
LEFT JOIN runs AS r ON r.run = f.run
LEFT JOIN resumable_intents AS i
    ON f.view = 'orphan_intents' AND f.kind <> 'waiting' AND i.run = f.run AND i.agent = f.agent AND i.step = f.step;
COMMENT ON MACRO TABLE findings IS 'All audit findings except calls retried 2 to 4 times, doubts settled by a person and experiments over several days; thresholds moved by x. Adds topic, severity, question and command of `finding_kinds`.';
