-- A tour for analysts: which arm is better, and can that be told at all?
-- It asks about the experiment of examples/prompts. Each statement runs by itself:
--   hansard sql "FROM experiment_plans"

-- Which experiments are there, and was the plan there before the data? What is exploratory found
-- an idea; it proved nothing.
SELECT experiment, standing, question, unit, cluster, alpha, planned, runs FROM experiment_plans;

-- What is compared: the arms with the prompts, models and parameters behind their names.
SELECT arm, number, weight, prompt, model, parameters
FROM experiment_arms WHERE experiment = 'search' ORDER BY number;

-- Does every arm have the runs it should? A p below 0.001 says that units get lost on the way, and
-- then no difference below means anything.
SELECT arm, units, expected, p FROM sample_ratio('search');

-- What became of the runs? Those that failed or were not judged count as failures below
-- (or as the plan says), so they must not surprise you.
SELECT arm, runs, tasks, completed, failed, open, unjudged, tasks_lacking FROM accounting('search');

-- How does each arm do by itself? The interval says where its mean could be: a mean alone says
-- little.
SELECT metric, arm, tasks, missing, mean, low, high FROM arm_summary('search') ORDER BY ALL;

-- The answer. better or worse only where Holm's p is at most alpha, over all that is judged; else it
-- cannot be told from these data. counting says how missing values were counted: both ways stand
-- here, and if they disagree, what is missing decides and not the arms.
SELECT metric, arm, baseline, counting, verdict, difference, low, high, holm_p
FROM comparisons('search') ORDER BY number, counting;

-- May it be looked at before it is done? These intervals hold at every look; they are wider.
SELECT metric, difference, always_low, always_high, always_p
FROM comparisons('search') WHERE "default";

-- Could the experiment have found what matters? detectable is the difference that it would have
-- found in four cases of five, tasks_required what the plan's smallest one takes.
SELECT metric, tasks, smallest, detectable, tasks_required
FROM comparisons('search') WHERE "default";

-- Task by task: how many were won and lost, and how likely so few losses are by chance alone
-- (exact McNemar).
SELECT wins, ties, losses, mcnemar_p FROM comparisons('search', only_metric := 'reward') WHERE "default";

-- Where is it worse all the same? The runs to look at, side by side: hansard run diff RUN RUN.
SELECT task, base_score, arm_score, base_runs[1] AS base_run, arm_runs[1] AS arm_run
FROM regressions('search', only_metric := 'rank') ORDER BY worse_by DESC LIMIT 5;

-- Is it better everywhere, or only in one package? Every slice is one more chance of a false alarm,
-- and Holm's p pays for it.
SELECT slice, tasks, difference, holm_p, verdict
FROM comparisons('search', only_metric := 'reward', by_label := 'package')
WHERE "default" ORDER BY slice;

-- What does it cost? The same comparison of another metric; of these, less is better.
SELECT metric, difference, low, high
FROM comparisons('search', only_metric := 'latency_ms') WHERE "default";

-- If a task is tried k times: how often does at least one trial succeed, how often do all? With one
-- trial a task, only k = 1 is known.
SELECT arm, k, pass_at_k, pass_hat_k FROM pass_curves('search', only_metric := 'reward') ORDER BY ALL;

-- Your own statistics: the macros take any numbers. Here, Wilson's interval of 52 of 60.
SELECT wilson_low(52, 60) AS low, wilson_high(52, 60) AS high;

-- What did the arms do otherwise? Every row of the record can be joined: the choices, by margin over
-- the next best one.
SELECT r.arm, count(*) AS decisions, median(d.score - d.runner_up) AS margin
FROM decisions AS d JOIN runs AS r ON r.run = d.run
WHERE r.experiment = 'search' GROUP BY r.arm ORDER BY r.arm;

-- As of which position was all of this? An answer without it cannot be checked.
SELECT position, logged_at, behind FROM lag;
