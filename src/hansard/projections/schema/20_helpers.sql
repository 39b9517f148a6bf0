-- Helpers that the views of several subjects use. Macros and views bind when they are created, so a
-- file may use only what an earlier file, or an earlier line of it, creates.

CREATE MACRO address_of(p, i) AS p || '.' || i;
COMMENT ON MACRO address_of IS 'Address of an event, as `hansard run show --at` takes it.';

CREATE MACRO shown(words, most) AS
    regexp_replace(words, '^(.{' || (most - 1) || '}).{2,}$', '\1…', 's');
COMMENT ON MACRO shown IS 'Text cut to most characters, at most 1,000, ending in …';

CREATE MACRO moment_of(t) AS strftime(t, '%Y-%m-%d %H:%M:%S');
COMMENT ON MACRO moment_of IS 'Time (UTC) in words, to the second.';

CREATE MACRO clock_of(occurred_at, actor, on_behalf_of, origin_log) AS CASE
    WHEN occurred_at IS NOT NULL THEN 'occurred_at'
    WHEN actor = 'import' AND on_behalf_of IS NOT NULL THEN 'import'
    WHEN origin_log IS NOT NULL THEN 'origin' ELSE 'log' END;
COMMENT ON MACRO clock_of IS 'Helper of other macros.';

CREATE MACRO counted(number, one) AS concat(number, ' ', one, if(number = 1, '', 's'));
COMMENT ON MACRO counted IS 'Helper of other macros.';

CREATE MACRO steps_text(tool, agent, step) AS concat(tool, ' (', agent, '#', step, ')');
COMMENT ON MACRO steps_text IS 'Helper of other macros.';

CREATE MACRO label_of(labels, name) AS
    json_extract_string(labels, '/' || replace(replace(name, '~', '~0'), '/', '~1'));
COMMENT ON MACRO label_of IS 'Run label by its name (JSON pointer, RFC 6901).';

CREATE MACRO words_of(body, t) AS shown(if(t IS NULL, body::VARCHAR, concat(
    CASE WHEN t.type = 'step.completed.v1' THEN 'answer of ' || (body->>'$.reused_from.agent') || '#'
        || (body->>'$.reused_from.step') || ' of run ' || (body->>'$.reused_from.run') || ': ' END, t.before,
    body->>t.path_1, t.between_1 || nullif(body->>t.path_2, ''),
    t.between_2 || nullif(body->>t.path_3, ''))), 200);
COMMENT ON MACRO words_of IS 'Helper of other macros.';

CREATE MACRO step_of(known, body) AS
    if(starts_with(known, 'step.') OR known IN ('resource.accessed.v1', 'approval.requested.v1'),
        try_cast(body->>'$.step' AS BIGINT), NULL);
COMMENT ON MACRO step_of IS 'Helper of other macros.';

-- Inherited streams of forks: the parent run, the stream, and the version up to which it is inherited.
CREATE VIEW inherited AS
WITH RECURSIVE vectors AS (
    SELECT run, parent, position, unnest(map_entries(CAST(vector AS MAP(VARCHAR, BIGINT)))) AS cut
    FROM lineage
), cuts AS (
    SELECT run, parent, cut.key AS stream, cut.value AS version, position, 1 AS depth FROM vectors
    UNION ALL
    SELECT c.run, v.parent, c.stream, least(c.version, v.cut.value), v.position, c.depth + 1
    FROM cuts AS c
    JOIN vectors AS v ON v.run = c.parent AND v.cut.key = c.stream AND v.position < c.position
    WHERE c.depth < 100
)
SELECT run, parent, stream, version, position, depth FROM cuts;
COMMENT ON VIEW inherited IS 'One row per stream that a fork inherited from a parent.';

CREATE VIEW lone_writes AS
SELECT
    w.id AS event, w.run, c.agent, try_cast(c.data->>'step' AS BIGINT) AS step, c.id AS cause, w.position
FROM events AS w
JOIN events AS c ON c.id = w.causation AND c.known_as = 'step.requested.v1'
WHERE starts_with(w.stream, 'board/');
COMMENT ON VIEW lone_writes IS 'One row per event of shared state committed apart from its step, with that step. Of the others see events.tx.';

CREATE VIEW history AS
SELECT
    e.*, address_of(e.position, e.event_index) AS address,
    if(e.actor = e.agent OR e.agent IS NULL, e.actor, e.actor || ' for ' || e.agent) AS who,
    coalesce(t.what, e.known) AS what, step_of(e.known, e.told) AS step,
    words_of(e.told, t) AS words
FROM (
    SELECT
        position, event_index, id, coalesce(known_as, type) AS known, stream, run, agent, role,
        version, happened_at, actor, coalesce(lifted, data) AS told
    FROM events
) AS e
LEFT JOIN event_types AS t ON t.type = e.known;
COMMENT ON VIEW history IS 'One row per event, in words.';

CREATE MACRO as_of(upto) AS TABLE
SELECT * FROM events
WHERE position <= upto
    AND coalesce(tx <> (SELECT any_value(n.tx) FROM events AS n WHERE n.position = upto + 1), true);
COMMENT ON MACRO TABLE as_of IS 'Events on record at a position. A transaction over several streams counts from its last commit.';
