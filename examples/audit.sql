-- A tour of the audit views: what an auditor asks, and what each answer tells.
--
-- Ask with `hansard sql "..."`. The run `trade-1` is the one that examples/trading makes: killed
-- while it placed its order, looked into by a person, settled, and run again. Addresses are
-- position.index: `hansard run show RUN --at POSITION` shows the run as it stood there. Every
-- statement here runs in tests/audit/test_tour.py.

-- Up to where do the answers hold? Everything below is true as of this position of the log; what
-- was recorded later is not in it.
SELECT position, behind, delay_ms FROM lag;

-- What did the agents of a run decide? One row a decision: what was asked, what was chosen, and by
-- how much it passed its threshold. A margin near 0 is a decision that nearly went the other way.
SELECT address, agent, question, selected, margin, because FROM decided('trade-1');

-- Why was that chosen? One row a fact: the alternatives with their scores, the steps whose results
-- it was made from, the versions of prompt, model and tools, who acted, and what came of it. An
-- input without an event on record is told as unknown.
SELECT part, number, name, value, address
FROM why((SELECT decision FROM decisions WHERE run = 'trade-1' AND agent = 'recommendation'));

-- What else could have been chosen, anywhere? The best of the others beside what was: where the
-- lead is small or negative, ask the agent's reason.
SELECT d.run, d.agent, d.question, d.selected, d.score, d.runner_up, d.score - d.runner_up AS lead
FROM decisions AS d
WHERE d.runner_up IS NOT NULL
ORDER BY lead;

-- What happened in a run, in order and in words? Who did it stands beside: a person who settled a
-- doubt is named as the writer for the agent.
SELECT address, who, what, tool, step, detail FROM trail('trade-1');

-- What did a person do in an agent's place? Events in an agent's stream that another than the agent
-- wrote: settlements by people, and imports.
SELECT run, who, what, words, address
FROM history
WHERE agent IS NOT NULL AND actor <> agent AND what = 'settled';

-- What was known when it was decided? The steps as they stood at the position of the decision, from
-- the events up to there alone: what became known later cannot have been a reason.
SELECT agent, step, tool, status, attempts
FROM steps_as_of((SELECT min(position) FROM decisions WHERE run = 'trade-1'))
WHERE run = 'trade-1'
ORDER BY agent, step;

-- How far was each run then? The same for runs: which had begun, which had ended, and how.
SELECT run, workflow, status, resumed
FROM runs_as_of((SELECT min(position) FROM decisions WHERE run = 'trade-1'));

-- Which effects may or may not have happened? Intents without an outcome: `waiting` is under way or
-- its process is dead; each of the others needs somebody to look into the world and settle it.
SELECT kind, run, agent, step, fact, address FROM orphan_intents;

-- Where did somebody go over the gate, or decide what is true? A refused call that ran all the same,
-- a doubt that a person settled and why; `run again` is an effect that may have happened twice.
SELECT kind, run, agent, step, fact, address FROM policy_overrides;

-- What was tried more than once? `retried` is ordinary; a `storm`, or a call `repeated` in vain,
-- cost time and perhaps money, and hides a fault.
SELECT kind, run, agent, step, fact FROM retries;

-- Which decisions would turn if their threshold moved by 0.01? These hang on how the threshold was
-- chosen more than on what the agent found.
SELECT kind, run, agent, fact, address FROM threshold_flips(0.01);

-- Who used a resource? By its uri, or a pattern; calls whose arguments name it stand here too, since
-- a tool may use what it never declares.
SELECT kind, run, agent, step, fact FROM touched('https://example.org/*');

-- What could be missing, or does not add up? Unanswered calls, holes in versions, claimed costs
-- against recorded ones, trials that do not fit their experiment's plan. Nothing here is proof of a
-- fault, and each is a question that somebody can answer.
SELECT kind, run, agent, step, fact, address FROM gaps;

-- Is there anything at all? Each kind of finding with its count; no row where nothing is missing or
-- odd. `hansard audit` exits with 1 where this has rows.
SELECT view, kind, count(*) AS found FROM findings(0.01) GROUP BY ALL ORDER BY ALL;

-- Under which versions did agents work? A tool whose source changes within a run is declared twice:
-- what was decided before and after was not made by the same tool.
SELECT run, agent, tool, count(DISTINCT source) AS sources, max(declared_version) AS version
FROM tools
GROUP BY run, agent, tool
ORDER BY sources DESC, run, agent, tool;

-- What did it cost, as recorded? Costs are sums of what providers reported, never counted again;
-- `fsum` gives the same last digit whoever asks.
SELECT run, metric, fsum(amount) AS total
FROM usage
GROUP BY run, metric
ORDER BY run, metric;

-- Who held a task, from when to when, and how did that end? A claim whose lease ran out was taken
-- over by another agent: what the first one did until then may have been done twice.
SELECT run, task, number, agent, role, since, until, ended FROM task_holds ORDER BY run, position;

-- Who waited for whom? Each task with what had to be done before it, how that stands, and how long
-- the task itself then lay before somebody claimed it.
SELECT w.run, w.task, w.kind, w.on_what, w.its_status, t.first_claimed_at - w.ended_at AS lay
FROM task_waits AS w
JOIN tasks AS t ON t.run = w.run AND t.task = w.task
ORDER BY w.run, w.task, w.on_what;

-- What was an agent not allowed? Calls and statements that its role refused, and access that nobody
-- was given; none of it was done. Ask its keeper of roles whether it should be, or why it tried.
SELECT kind, run, agent, role, what, name, rule, because FROM refusals ORDER BY position;

-- What did people approve, and what did they deny? Each question with who answered and why; one that
-- expired found nobody in time, and the call was not made.
SELECT run, agent, tool, standing, answered_by, because, waited_ms FROM approvals ORDER BY position;

-- What in the log is by somebody else than it says, or no commit at all? Nothing of that counts in
-- any state or table; here is where it stands and why it does not fit.
SELECT position, subject, reason FROM problems ORDER BY position;
