-- Shared state: the writes to each key of a run, and its value at any position.

CREATE VIEW board_history AS
WITH RECURSIVE cuts AS (
    SELECT l.run, l.parent, l.position, unnest(map_entries(CAST(l.vector AS MAP(VARCHAR, BIGINT)))) AS cut
    FROM lineage AS l
), taken AS (
    SELECT c.run, c.parent, c.cut.key AS stream, c.cut.value AS version, c.position, c.position AS counts_from, 1 AS depth
    FROM cuts AS c
    WHERE starts_with(c.cut.key, 'board/')
    UNION ALL
    SELECT t.run, c.parent, t.stream, least(t.version, c.cut.value), c.position, t.counts_from, t.depth + 1
    FROM taken AS t
    JOIN cuts AS c ON c.run = t.parent AND c.cut.key = t.stream AND c.position < t.position
    WHERE t.depth < 100
)
SELECT
    w.run, w.key, w.version, w.operation, w.value, w.author, w.role, w.labels, w.expires_at, w.anew,
    w.event, w.position, w.counts_from, false AS inherited
FROM board_writes AS w
UNION ALL
SELECT
    t.run, w.key, w.version, w.operation, w.value, w.author, w.role, w.labels, w.expires_at, w.anew,
    w.event, w.position, t.counts_from, true
FROM taken AS t
JOIN board_writes AS w
    ON w.run = t.parent AND 'board/' || w.key = t.stream AND w.version <= t.version
    AND w.position < t.position;
COMMENT ON VIEW board_history IS 'One row per write in effect for a run''s shared state; a fork includes its parents'' writes up to the cut.';

CREATE MACRO boards_at(last_position) AS TABLE
WITH numbered AS (
    SELECT
        h.*,
        -- A put or a removal restarts a key, and so does an operation decided after it had expired.
        count(*) FILTER (h.operation IN ('put', 'remove') OR h.anew)
            OVER (PARTITION BY h.run, h.key ORDER BY h.version) AS life
    FROM board_history AS h
    WHERE h.counts_from <= last_position
), latest AS (
    SELECT t.*
    FROM numbered AS t
    QUALIFY t.life = max(t.life) OVER (PARTITION BY t.run, t.key)
), members AS (
    SELECT m.run, m.key, list(m.item ORDER BY m.item) AS items
    FROM (
        SELECT s.run, s.key, s.value::VARCHAR AS item
        FROM latest AS s
        WHERE s.operation IN ('include', 'discard')
        GROUP BY s.run, s.key, s.value::VARCHAR
        HAVING arg_max(s.operation, s.version) = 'include'
    ) AS m
    GROUP BY m.run, m.key
), found AS (
    SELECT
        s.run, s.key,
        max(s.version) AS version,
        arg_max(s.operation, s.version) AS operation,
        arg_max(s.author, s.version) AS author,
        arg_max(s.role, s.version) AS role,
        arg_max(s.event, s.version) AS event,
        arg_max(s.position, s.version) AS position,
        any_value(s.labels) FILTER (s.operation = 'put') AS labels,
        any_value(s.expires_at) FILTER (s.operation = 'put') AS expires_at,
        any_value(s.value) FILTER (s.operation = 'put') AS put,
        sum(try_cast(s.value AS HUGEINT)) FILTER (s.operation = 'add') AS total,
        list(s.value::VARCHAR ORDER BY s.version) FILTER (s.operation = 'append') AS items,
        arg_max(s.value, try_cast(s.value AS DOUBLE)) FILTER (s.operation = 'max' AND json_type(s.value) <> 'VARCHAR') AS most,
        arg_min(s.value, try_cast(s.value AS DOUBLE)) FILTER (s.operation = 'min' AND json_type(s.value) <> 'VARCHAR') AS least,
        arg_max(s.value, s.value->>'$') FILTER (s.operation = 'max' AND json_type(s.value) = 'VARCHAR') AS last_text,
        arg_min(s.value, s.value->>'$') FILTER (s.operation = 'min' AND json_type(s.value) = 'VARCHAR') AS first_text
    FROM latest AS s
    WHERE s.operation <> 'check'
    GROUP BY s.run, s.key
), clock AS (
    SELECT arg_max(e.logged_at, e.position) AS now FROM events AS e WHERE e.position <= last_position
)
SELECT
    f.run, f.key,
    CASE f.operation
        WHEN 'put' THEN 'value' WHEN 'append' THEN 'list' WHEN 'add' THEN 'counter'
        WHEN 'include' THEN 'set' WHEN 'discard' THEN 'set' ELSE f.operation
    END AS kind,
    f.version, f.author, f.role,
    CASE f.operation
        WHEN 'put' THEN f.put
        WHEN 'append' THEN CAST('[' || array_to_string(f.items, ',') || ']' AS JSON)
        WHEN 'add' THEN CAST(
            CASE
                WHEN abs(f.total) < 9007199254740992 THEN f.total::VARCHAR
                ELSE '{"$int":"' || f.total::VARCHAR || '"}'
            END AS JSON
        )
        WHEN 'max' THEN coalesce(f.most, f.last_text)
        WHEN 'min' THEN coalesce(f.least, f.first_text)
        WHEN 'union' THEN NULL
        ELSE CAST('{"$set":[' || array_to_string(coalesce(m.items, []), ',') || ']}' AS JSON)
    END AS value,
    coalesce(f.labels, '{}'::JSON) AS labels, f.expires_at, f.event, f.position
FROM found AS f
CROSS JOIN clock AS c
LEFT JOIN members AS m ON m.run = f.run AND m.key = f.key
WHERE f.operation <> 'remove' AND (f.expires_at IS NULL OR f.expires_at > c.now);
COMMENT ON MACRO TABLE boards_at IS 'Shared state of all runs at a position: one row per key. A union''s value is NULL (use `hansard board RUN KEY`). Expiry goes by log time, in µs.';

CREATE MACRO board_at(of_run, last_position) AS TABLE
SELECT b.key, b.kind, b.version, b.author, b.role, b.value, b.labels, b.expires_at, b.event, b.position
FROM boards_at(last_position) AS b
WHERE b.run = of_run;
COMMENT ON MACRO TABLE board_at IS 'Shared state of a run at a position: one row per key (see `boards_at`).';

CREATE VIEW board AS
SELECT b.run, b.key, b.kind, b.version, b.author, b.role, b.value, b.labels, b.expires_at, b.event, b.position
FROM boards_at((SELECT p.position FROM progress AS p)) AS b;
COMMENT ON VIEW board IS 'One row per existing key of a run''s shared state, with its current value.';
