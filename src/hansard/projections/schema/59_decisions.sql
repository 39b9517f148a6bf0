-- Decisions: the inputs of each (all results that its agent had received in its scope before it,
-- followed by `after` from call to call, through tool bodies, joined scopes and into a fork's parent),
-- the agent's knowledge, and the readers of an event.

CREATE MACRO within(inner_scope, outer_scope) AS
    starts_with(coalesce(inner_scope, '') || '/', coalesce(outer_scope, '') || '/');
COMMENT ON MACRO within IS 'Helper of other macros.';

CREATE MACRO key_of(stream) AS if(starts_with(stream, 'board/'), substr(stream, 7), NULL);
COMMENT ON MACRO key_of IS 'Helper of other macros.';

CREATE MACRO body_of(scope) AS split_part(coalesce(scope, ''), '/', 1);
COMMENT ON MACRO body_of IS 'Helper of other macros.';

CREATE MACRO fact(of_part, n, about, body) AS
    {'part': of_part, 'number': n::BIGINT, 'name': about, 'value': body::JSON};
COMMENT ON MACRO fact IS 'Helper of other macros.';

CREATE MACRO named(of_part, body) AS list_transform(json_keys(body),
    lambda k, i: fact(of_part, i, k, json_extract(body, '$."' || k || '"')));
COMMENT ON MACRO named IS 'Helper of other macros.';

CREATE MACRO why(of_decision) AS TABLE
WITH d AS MATERIALIZED (
    SELECT d.*, r.experiment, r.arm, a.prompt, a.model, a.parameters
    FROM decisions AS d
    LEFT JOIN runs AS r ON r.run = d.run
    LEFT JOIN arms AS a ON a.experiment = r.experiment AND a.arm = r.arm
    WHERE d.decision = of_decision
), own AS MATERIALIZED (
    SELECT e.id, e.commit_id, e.type, e.known_as, e.lifted, e.data, e.stream, e.run, e.agent, e.role,
        e.version, e.position, e.event_index, e.happened_at, e.actor, e.on_behalf_of, e.epoch,
        e.causation, e.correlation, e.traceparent, e.origin_log
    FROM events AS e
    JOIN d ON e.run = d.run
    UNION ALL
    SELECT e.id, e.commit_id, e.type, e.known_as, e.lifted, e.data, e.stream, e.run, e.agent, e.role,
        e.version, e.position, e.event_index, e.happened_at, e.actor, e.on_behalf_of, e.epoch,
        e.causation, e.correlation, e.traceparent, e.origin_log
    FROM d
    JOIN inherited AS i ON i.run = d.run
    JOIN events AS e
        ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
        AND e.position < i.position
), texts AS MATERIALIZED (
    SELECT e.*, address_of(e.position, e.event_index) AS address, coalesce(t.what, e.known) AS what,
        step_of(e.known, e.body) AS step, words_of(e.body, t) AS words
    FROM (
        SELECT *, coalesce(known_as, type) AS known, coalesce(lifted, data) AS body
        FROM own
        CROSS JOIN (SELECT agent AS decider, inputs AS input_ids FROM d)
        WHERE type <> 'step.yielded.v1' AND (agent = decider OR stream = 'life'
            OR list_contains(input_ids, id) OR list_contains(input_ids, commit_id)
            OR (len(input_ids) > 0 AND type = 'step.requested.v1'))
    ) AS e
    LEFT JOIN event_types AS t ON t.type = e.known
), span AS MATERIALIZED (
    SELECT
        any_value(d) AS d,
        any_value(coalesce(e.lifted, e.data)->>'$.scope') FILTER (e.id = d.decision) AS scope,
        max(e.version) FILTER (e.known_as = 'decision.made.v1' AND e.agent = d.agent
            AND e.role = d.role AND e.version < d.version) AS before,
        min(e.version) FILTER (e.known_as = 'decision.made.v1' AND e.agent = d.agent
            AND e.role = d.role AND e.version > d.version) AS next,
        list_concat(list(e.id) FILTER (list_contains(d.inputs, e.id)),
            list(e.commit_id) FILTER (list_contains(d.inputs, e.commit_id))) AS here
    FROM own AS e
    CROSS JOIN d
), calls AS MATERIALIZED (
    SELECT
        e.agent, e.step, min(e.version) AS requested, max(e.version) AS ended,
        max(e.version) FILTER (e.version < s.d.version AND (e.known IN ('step.completed.v1',
            'step.failed.v1', 'step.blocked.v1') OR e.body->>'$.verdict' = 'happened')) AS got,
        any_value(if(e.known = 'step.requested.v1', e.body->>'$.tool', NULL)) AS tool,
        any_value(if(e.known = 'step.requested.v1', e.body->'$.arguments', NULL)) AS arguments,
        any_value(if(e.known = 'step.requested.v1' AND e.agent = s.d.agent AND e.version < s.d.version,
            from_json(e.body, '{"call": "VARCHAR", "scope": "VARCHAR",
                "after": ["BIGINT"], "unordered": "BOOLEAN"}'), NULL)) AS link
    FROM texts AS e
    CROSS JOIN span AS s
    WHERE starts_with(e.known, 'step.')
    GROUP BY e.agent, e.step
), chained AS (
    -- One bit per step that the decision depends on. The decision is the first of the steps, with
    -- bit 0. Steps depend only on earlier ones, so one pass from the newest finds all.
    SELECT
        s.*, g.steps, g.most, g.around.requested AS entered, list_reduce(
            list_prepend({'step': 0::INTEGER, 'after': s.d.after, 'scope': ''}, g.steps),
            lambda b, x: if(get_bit(b, x.step) = 1, list_reduce(x.after, lambda b, n:
                if(n BETWEEN 1 AND g.most, set_bit(b, n::INTEGER, 1), b), b), b),
            set_bit(bitstring('0', g.most + 1), 0, 1)) AS bits
    FROM span AS s
    CROSS JOIN (
        SELECT
            coalesce(list({'step': c.step::INTEGER, 'after': coalesce(c.link.after, []),
                'scope': coalesce(c.link.scope, '')} ORDER BY c.step DESC), []) AS steps,
            coalesce(max(c.step), 0)::INTEGER AS most,
            max({'step': c.step, 'requested': c.requested}) FILTER (c.link.call = body_of(n.scope)) AS around
        FROM calls AS c
        CROSS JOIN span AS n
        WHERE c.link IS NOT NULL AND c.step BETWEEN 1 AND 10_000_000
    ) AS g
), passed AS (
    SELECT c.*, list_transform(list_filter(c.steps, lambda x: get_bit(c.bits, x.step) = 1),
        lambda x: x.scope) AS scopes
    FROM chained AS c
), placed AS (
    -- A call that overlapped others of its scope is in no chain. It counts if the chain passes the call
    -- that it followed, in the scope of the decision or an enclosing one, and if its scope was joined;
    -- in the scopes around the body that contains the decision, if it was there before that call.
    SELECT
        e.*, s.d, s.before, s.next, s.here, s.d.version AS v, s.d.inputs AS inputs,
        list_contains(s.d.after, e.step) AS seen,
        e.agent = s.d.agent AND e.role = s.d.role AS mine,
        c.requested, c.ended, c.got, c.tool, c.arguments,
        -- Twelve facts of the decision, five versions, then the acting agents.
        CASE WHEN e.id = of_decision THEN to_json({'question': s.d.question, 'selected': s.d.selected,
            'because': s.d.because, 'score': s.d.score, 'threshold': s.d.threshold,
            'margin': s.d.margin, 'runner_up': s.d.runner_up, 'lead': s.d.score - s.d.runner_up,
            'confidence': s.d.confidence, 'run': s.d.run, 'agent': s.d.agent, 'role': s.d.role,
            'experiment': s.d.experiment, 'arm': s.d.arm, 'prompt': nullif(s.d.prompt, ''),
            'model': nullif(s.d.model, ''), 'parameters': s.d.parameters, 'written by': e.actor,
            'on behalf of': e.on_behalf_of, 'epoch': nullif(e.epoch, 0), 'commit': e.commit_id,
            'caused by': e.causation, 'correlation': e.correlation, 'traceparent': e.traceparent,
            'copied from': e.origin_log}) END AS about,
        CASE WHEN c.link IS NOT NULL AND c.step BETWEEN 1 AND s.most THEN get_bit(s.bits, c.step::INTEGER) = 1
            OR (c.link.unordered AND (within(s.scope, c.link.scope)
                    OR list_contains(s.scopes, coalesce(c.link.scope, '')))
                AND CASE WHEN c.link.after[1] BETWEEN 1 AND s.most
                    THEN get_bit(s.bits, c.link.after[1]::INTEGER) = 1 ELSE true END
                AND (body_of(s.scope) = body_of(c.link.scope) OR c.got < s.entered)) END AS given
    FROM texts AS e
    CROSS JOIN passed AS s
    LEFT JOIN calls AS c ON c.agent = e.agent AND c.step = e.step
), facts AS (
    SELECT unnest(CASE WHEN id = of_decision THEN
        list_transform(json_keys(about), lambda k, i: fact(
            if(i <= 12, 'decision', if(i <= 17, 'version', 'actor')),
            if(i <= 12, i, if(i <= 17, i - 12, i - 17)), k, json_extract(about, '$."' || k || '"')))
        || list_transform(from_json(coalesce(body->'alternatives', '[]'), '[{"id": "VARCHAR",
            "score": "DOUBLE", "reason": "VARCHAR", "rejected_because": "VARCHAR"}]'),
        lambda a, i: fact('alternative', i, a.id, to_json({'score': a.score,
            'margin': a.score - d.threshold, 'selected': a.id = d.selected, 'reason': a.reason,
            'rejected_because': a.rejected_because})))
        || list_transform(inputs, lambda i, n: if(list_contains(coalesce(here, []), i), NULL,
            fact('input', n, 'elsewhere', to_json({'words': 'it is no event of this run: ask inputs()'}))))
    ELSE [
        if(list_contains(inputs, id) OR list_contains(inputs, commit_id),
            fact('input', coalesce(list_position(inputs, id), list_position(inputs, commit_id)),
                what, to_json({'run': run, 'agent': agent, 'by': actor, 'key': key_of(stream),
                'step': step, 'tool': tool, 'words': words})), NULL),
        CASE
            WHEN stream = 'life' AND known IN ('run.completed.v1', 'run.failed.v1',
                'run.cancelled.v1', 'run.scored.v1')
            THEN fact('outcome', version, what, to_json({'words': nullif(words, '{}'),
                'metrics': body->'metrics'}))
            WHEN NOT mine THEN NULL
            WHEN known = 'message.added.v1' AND version < v
            THEN fact('message', version, body->>'role', to_json({'words': words}))
            WHEN known = 'tool.declared.v1' AND version < v
            THEN fact('version', 7, body->>'tool', to_json({'version': nullif(body->>'version', ''),
                'effects': body->>'effects', 'source': body->>'source'}))
            WHEN known = 'agent.handed_off.v1' AND version > v AND coalesce(version < next, true)
            THEN fact('hand-off', version, body->>'to', to_json({'because': body->>'because',
                'payload': shown(body->>'payload', 200)}))
            WHEN version = next THEN fact('next', 1, 'decision', to_json({'words': words}))
            WHEN if(requested < v, version = got AND given, version = ended AND coalesce(requested < next, true))
            THEN fact(if(requested < v, 'after', 'followed'), step, tool, to_json({
                'status': split_part(known, '.', 2), 'arguments': shown(arguments::VARCHAR, 200),
                'words': words, 'last': seen}))
        END,
        CASE
            WHEN NOT mine OR requested <= coalesce(before, 0) AND NOT seen OR requested >= next THEN NULL
            WHEN known = 'step.blocked.v1'
            THEN fact('policy', version, body->>'rule', to_json({'step': step, 'tool': tool,
                'verdict': 'blocked', 'reason': body->>'reason',
                'when': if(version < v, 'before', 'after')}))
            WHEN known = 'step.settled.v1'
            THEN fact('settlement', version, body->>'verdict', to_json({'step': step,
                'tool': tool, 'by': body->>'by', 'because': body->>'because'}))
            WHEN known = 'step.requested.v1' AND requested < v
            THEN fact('version', 6, 'model', body->'$.arguments.model')
        END
    ] END, recursive := false) AS f, id AS event, address, happened_at,
        position, event_index, inputs
    FROM placed
    UNION ALL
    SELECT
        fact('integrity', 1, 'untrusted input', to_json({'sources': t.sources, 'declassified': t.is_declassified,
            'by': t.approver, 'because': t.because})),
        t.decision, address_of(t.position, e.event_index), e.happened_at, t.position, e.event_index, NULL
    FROM tainted_decisions AS t
    JOIN events AS e ON e.id = t.decision
    WHERE t.decision = of_decision
    UNION ALL
    SELECT
        fact('approval', r.step, coalesce(a.operation, 'pending'), to_json({'step': r.step,
            'tool': r.tool, 'rule': r.rule, 'by': a.answered_by, 'because': a.because,
            'asked': moment_of(r.happened_at), 'answered': moment_of(a.happened_at)})),
        e.id, address_of(e.position, e.event_index), e.happened_at, e.position, e.event_index, NULL
    FROM span AS s
    JOIN approval_events AS r
        ON r.run = s.d.run AND r.agent = s.d.agent AND r.operation = 'requested'
    LEFT JOIN approval_events AS a
        ON a.run = r.run AND a.approval = r.approval AND a.operation <> 'requested'
    LEFT JOIN calls AS c ON c.agent = r.agent AND c.step = r.step
    JOIN events AS e ON e.id = coalesce(a.event, r.event)
    WHERE coalesce(c.requested > coalesce(s.before, 0), true) AND coalesce(c.requested < s.next, s.next IS NULL)
)
SELECT f.part, f.number, f.name, f.value, if(away, inputs[f.number], event) AS event,
    if(away, NULL, address) AS address, if(away, NULL, happened_at) AS "at"
FROM (SELECT *, f.name = 'elsewhere' AND f.part = 'input' AS away FROM facts)
WHERE f IS NOT NULL AND coalesce(f.value::VARCHAR, 'null') NOT IN ('null', '[]')
ORDER BY list_position(['decision', 'integrity', 'alternative', 'input', 'after', 'message', 'policy',
    'approval', 'settlement', 'version', 'actor', 'followed', 'hand-off', 'next', 'outcome'], f.part), f.number,
    position, event_index;
COMMENT ON MACRO TABLE why IS 'Everything about one decision (its event''s id), one row per fact. part: decision; integrity (untrusted input); alternative; input; after (results seen before it; value.last marks the latest); message (its context); policy, approval and settlement (of nearby steps); version (prompt, model, tools); actor; followed (steps until the next decision); hand-off; next; outcome (end and scores of the run).';

CREATE MACRO inputs(of_decision) AS TABLE
WITH a AS MATERIALIZED (
    SELECT unnest(inputs) AS input_id, generate_subscripts(inputs, 1) AS number
    FROM decisions WHERE decision = of_decision
), found AS MATERIALIZED (
    SELECT e.*, a.number FROM events AS e JOIN a ON e.id = a.input_id
    UNION ALL
    SELECT e.*, a.number FROM events AS e JOIN a ON e.commit_id = a.input_id
)
SELECT
    'input' AS part, f.number, coalesce(t.what, f.known) AS name, to_json({'run': f.run,
        'agent': f.agent, 'by': f.actor, 'key': key_of(f.stream), 'step': f.step, 'tool': s.tool, 'words': words_of(f.body, t)}) AS value,
    f.id AS event, address_of(f.position, f.event_index) AS address, f.happened_at AS "at"
FROM (
    SELECT *, step_of(known, body) AS step
    FROM (SELECT *, coalesce(known_as, type) AS known, coalesce(lifted, data) AS body FROM found)
) AS f
LEFT JOIN event_types AS t ON t.type = f.known
LEFT JOIN steps AS s ON s.run = f.run AND s.agent = f.agent AND s.step = f.step
UNION ALL
SELECT 'input', number, 'unknown', to_json({'words': 'no event or commit of this id is on record'}),
    input_id, NULL, NULL
FROM a
WHERE number NOT IN (SELECT number FROM found)
ORDER BY number, split_part(address, '.', 1)::BIGINT, split_part(address, '.', 2)::BIGINT;
COMMENT ON MACRO TABLE inputs IS 'Events a decision was based on, of any run; each event of an input commit. Rows as in `why`, part input; unknown if not on record.';

CREATE VIEW compacted AS
SELECT
    run, agent, compaction, version, position, unnest(stands_for) AS event,
    generate_subscripts(stands_for, 1) AS number
FROM compactions;
COMMENT ON VIEW compacted IS 'One row per event replaced by a summary.';

CREATE VIEW context_windows AS
SELECT w.*
FROM (
    SELECT
        m.run, m.agent, m.version, 'message' AS part, m.message_role, m.text, m.content, m.tokens,
        m.position, e.id AS event
    FROM messages AS m
    JOIN events AS e
        ON e.run = m.run AND e.agent = m.agent AND e.version = m.version
        AND e.known_as = 'message.added.v1'
    UNION ALL
    SELECT
        c.run, c.agent, c.version, 'summary', c.message_role, c.text, c.content, c.tokens,
        c.position, c.compaction
    FROM compactions AS c
) AS w
ANTI JOIN compacted AS g ON g.event = w.event AND g.run = w.run AND g.agent = w.agent;
COMMENT ON VIEW context_windows IS 'One row per part of an agent''s current context window in its run.';

CREATE MACRO knew(of_decision) AS TABLE
WITH d AS MATERIALIZED (
    SELECT e.run, e.stream, e.agent, e.role, e.version, e.position
    FROM events AS e WHERE e.id = of_decision
), mine AS (
    SELECT e.id AS event, 'received' AS how, NULL AS view, e.position AS since
    FROM d
    JOIN events AS e ON e.run = d.run AND e.stream = d.stream AND e.version < d.version
    WHERE e.known_as IN ('step.completed.v1', 'step.failed.v1', 'step.settled.v1',
        'step.yielded.v1', 'message.added.v1', 'context.compacted.v1')
    UNION ALL
    SELECT e.id, 'received', NULL, e.position
    FROM d
    JOIN inherited AS i ON i.run = d.run AND i.stream = d.stream
    JOIN events AS e
        ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
        AND e.position < i.position AND e.version < d.version
    WHERE e.known_as IN ('step.completed.v1', 'step.failed.v1', 'step.settled.v1',
        'step.yielded.v1', 'message.added.v1', 'context.compacted.v1')
), served AS (
    SELECT v.view, v.run, v.position, v.seen
    FROM d
    JOIN views_served AS v ON v.run = d.run AND v.agent = d.agent AND v.position < d.position
    UNION ALL
    SELECT v.view, v.run, v.position, v.seen
    FROM d
    JOIN inherited AS i ON i.run = d.run AND i.stream = 'board/view ' || d.role
    JOIN views_served AS v
        ON v.run = i.parent AND v.agent = d.agent AND v.role = d.role AND v.version <= i.version
        AND v.position < i.position
), entries AS (
    SELECT s.view, s.run, s.position, unnest(map_entries(s.seen)) AS entry FROM served AS s
), parts AS (
    SELECT
        e.view, e.run, e.position, e.entry.key AS stream,
        unnest(string_split(e.entry.value, ',')) AS part
    FROM entries AS e
), ranges AS (
    SELECT
        p.run, p.stream, split_part(p.part, '-', 1)::BIGINT AS lowest,
        coalesce(nullif(split_part(p.part, '-', 2), ''), p.part)::BIGINT AS highest,
        min(p.position) AS since, arg_min(p.view, p.position) AS view
    FROM parts AS p
    GROUP BY p.run, p.stream, p.part
), shown_events AS (
    SELECT e.id AS event, r.view, r.since
    FROM ranges AS r
    JOIN events AS e
        ON e.run = r.run AND e.stream = r.stream AND e.version BETWEEN r.lowest AND r.highest
    UNION ALL
    SELECT e.id, r.view, r.since
    FROM ranges AS r
    JOIN inherited AS i ON i.run = r.run AND i.stream = r.stream
    JOIN events AS e
        ON e.run = i.parent AND e.stream = i.stream AND e.version <= i.version
        AND e.position < i.position AND e.version BETWEEN r.lowest AND r.highest
), got AS (
    SELECT s.result->>'$.id' AS aggregate_id, try_cast(s.result->>'$.version' AS BIGINT) AS version,
        min(m.since) AS since
    FROM mine AS m
    JOIN events AS e ON e.id = m.event
    JOIN steps AS s ON s.run = e.run AND s.agent = e.agent AND s.outcome_version = e.version
    WHERE e.known_as = 'step.completed.v1' AND s.tool = 'aggregate.get' AND s.kind = 'aggregate'
    GROUP BY 1, 2
), rebuilt AS (
    SELECT c.event, min(g.since) AS since
    FROM got AS g
    JOIN domain_events AS c ON c.aggregate_id = g.aggregate_id AND c.version <= g.version
    GROUP BY c.event
), known AS (
    SELECT m.event, m.how, m.view, m.since
    FROM mine AS m
    ANTI JOIN (
        SELECT c.event FROM compacted AS c JOIN mine AS n ON n.event = c.compaction
    ) AS gone ON gone.event = m.event
    UNION ALL
    SELECT r.event, 'received', NULL, r.since FROM rebuilt AS r
    UNION ALL
    SELECT s.event, 'shown', arg_min(s.view, s.since), min(s.since)
    FROM shown_events AS s
    GROUP BY s.event
)
SELECT
    k.event, address_of(e.position, e.event_index) AS address, e.type, e.run, e.agent, k.how,
    k.view, k.since
FROM known AS k
JOIN events AS e ON e.id = k.event
ORDER BY e.position, e.event_index, k.how;
COMMENT ON MACRO TABLE knew IS 'Everything an agent had received before a decision (or another event); how: shown (by a view) or received (own outcome, message or summary in its context, or event of an aggregate).';

CREATE MACRO in_ranges(ranges, n) AS len(list_filter(string_split(ranges, ','), lambda p:
    n >= split_part(p, '-', 1)::BIGINT
    AND n <= coalesce(nullif(split_part(p, '-', 2), ''), p)::BIGINT)) > 0;
COMMENT ON MACRO in_ranges IS 'True if ranges such as 1-4,7 contain n.';

CREATE MACRO who_saw(of_event) AS TABLE
WITH targets AS (
    SELECT e.run, e.stream, e.version FROM events AS e WHERE e.id = of_event
), places AS (
    SELECT w.run, w.stream, w.version FROM targets AS w
    UNION
    SELECT i.run, w.stream, w.version
    FROM targets AS w
    JOIN inherited AS i ON i.parent = w.run AND i.stream = w.stream AND w.version <= i.version
), entries AS (
    SELECT v.view, v.run, unnest(map_entries(v.seen)) AS entry
    FROM views_served AS v
    WHERE v.run IN (SELECT p.run FROM places AS p)
)
SELECT v.view, v.run, v.role, v.agent, v.shown_to, v.rules, v.position, v.happened_at
FROM entries AS s
JOIN places AS p ON p.run = s.run AND p.stream = s.entry.key
JOIN views_served AS v ON v.view = s.view
WHERE in_ranges(s.entry.value, p.version)
ORDER BY v.position;
COMMENT ON MACRO TABLE who_saw IS 'Views that showed an event (its id), first first: to whom, in which role, by which rules. SQL under a role is in `queries`.';
