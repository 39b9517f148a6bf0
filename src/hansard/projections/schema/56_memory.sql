-- Memory: files of each space, refused changes, proposals, and the results of each prompt version.

CREATE VIEW memory_files AS
WITH moves AS (
    SELECT space, version, path, kind, op, digest, link, is_binary, is_executable, author, role, run, step, label, event, because, position, happened_at
    FROM memory_changes
    UNION ALL
    SELECT space, version, was, kind, 'moved', NULL, link, is_binary, is_executable, author, role, run, step, label, event, because, position, happened_at
    FROM memory_changes
    WHERE was IS NOT NULL
), newest AS (
    SELECT *, row_number() OVER (PARTITION BY space, path ORDER BY version DESC, op = 'moved') AS place,
        count(*) FILTER (op <> 'moved') OVER (PARTITION BY space, path) AS changes
    FROM moves
)
SELECT
    space, path, kind, version, changes, digest, link, is_binary, is_executable, author, role, run, step, label, event, because, position,
    happened_at AS changed_at
FROM newest
WHERE place = 1 AND op NOT IN ('deleted', 'moved');
COMMENT ON VIEW memory_files IS 'One row per existing file of memory, with its last change. `hansard memory show` prints the text.';

CREATE VIEW odd_memory AS
SELECT
    'untrusted memory' AS kind, f.run, f.author AS agent, f.step, address_of(f.position, e.event_index) AS address,
    concat(f.space, '/', f.path, ' rests on untrusted input, and was written by ', f.author) AS fact,
    r.experiment, [{'run': f.run, 'address': address_of(f.position, e.event_index)}] AS evidence
FROM memory_files AS f
JOIN events AS e ON e.id = f.event
LEFT JOIN runs AS r ON r.run = f.run
WHERE contains(f.label, 'untrusted');
COMMENT ON VIEW odd_memory IS 'One row per file of memory that rests on untrusted input.';

CREATE VIEW memory_proposals AS
WITH reflections AS (
    SELECT
        e.id AS event, url_decode(substr(e.stream, length('memory/') + 1)) AS space, nullif(e.data->>'reflection', '') AS run,
        e.position, e.happened_at, e.actor AS author,
        from_json(e.data->'proposals', '[{"path": "VARCHAR", "text": "VARCHAR", "because": "VARCHAR",
            "sources": "JSON", "whole": "BOOLEAN", "gone": "BOOLEAN"}]') AS proposals
    FROM events AS e
    WHERE e.type = 'memory.reflected.v1'
), proposed AS (
    SELECT
        r.* EXCLUDE (proposals), unnest(r.proposals, max_depth := 2), generate_subscripts(r.proposals, 1) AS number
    FROM reflections AS r
), since AS (
    SELECT p.event, p.number, arg_min(c, c.version) AS change
    FROM proposed AS p
    JOIN memory_changes AS c ON c.space = p.space AND (c.path = p.path OR c.was = p.path) AND c.position > p.position
    GROUP BY p.event, p.number
)
SELECT
    p.space, p.event, p.number, p.path, p.text, coalesce(p.whole, false) AS whole, coalesce(p.gone, false) AS gone,
    p.because, p.sources, p.run, p.author,
    CASE WHEN s.change IS NULL THEN 'open'
        WHEN list_contains(from_json(s.change.sources, '["VARCHAR"]'), p.event) THEN 'made'
        ELSE 'changed' END AS standing,
    if(standing = 'made', s.change.author, NULL) AS made_by, p.position, p.happened_at
FROM proposed AS p
LEFT JOIN since AS s ON s.event = p.event AND s.number = p.number;
COMMENT ON VIEW memory_proposals IS 'One row per change proposed by a reflection or compaction, and its state.';

CREATE MACRO remembering(of_prompt := 'memory-remember') AS TABLE
WITH used AS (
    SELECT DISTINCT prompt, version, run FROM prompt_runs WHERE prompt = of_prompt
), proposed AS (
    SELECT u.version, count(p.event) AS proposals, count(*) FILTER (p.standing = 'made') AS made
    FROM used AS u
    JOIN memory_proposals AS p ON p.run = u.run
    GROUP BY u.version
), judged AS (
    SELECT u.version, o.run, o.metric, arg_max(o.value, o.version) AS value
    FROM used AS u
    JOIN outcomes AS o ON o.run = u.run
    WHERE starts_with(o.metric, 'remember_')
    GROUP BY u.version, o.run, o.metric
), summed AS (
    SELECT
        version, count(DISTINCT run) AS judged,
        sum(value) FILTER (metric = 'remember_wanted') AS wanted, sum(value) FILTER (metric = 'remember_right') AS correct,
        sum(value) FILTER (metric = 'remember_missed') AS missed, sum(value) FILTER (metric = 'remember_spurious') AS spurious,
        sum(value) FILTER (metric = 'remember_misplaced') AS misplaced,
        sum(value) FILTER (metric = 'remember_too_specific') AS too_specific
    FROM judged
    GROUP BY version
)
SELECT
    v.prompt, v.version, (SELECT count(*) FROM used AS u WHERE u.version = v.version) AS runs,
    coalesce(t.proposals, 0) AS proposals, coalesce(t.made, 0) AS made, coalesce(s.judged, 0) AS judged,
    s.wanted::BIGINT AS wanted, s.correct::BIGINT AS correct, s.missed::BIGINT AS missed, s.spurious::BIGINT AS spurious,
    s.misplaced::BIGINT AS misplaced, s.too_specific::BIGINT AS too_specific
FROM prompt_versions AS v
LEFT JOIN proposed AS t ON t.version = v.version
LEFT JOIN summed AS s ON s.version = v.version
WHERE v.prompt = of_prompt;
COMMENT ON MACRO TABLE remembering IS 'One row per version of a reflection prompt: runs, proposals, accepted proposals (made), reflections with a known answer (judged), and of these the expected (`wanted`), correct, missed, spurious, misplaced (wrong file) and too_specific; NULL without any.';
