-- What a source claims of its runs' scores, and of their means, is held against what is on record.

INSERT INTO finding_kinds VALUES
    ('odd_scores', 'claimed score', 'scores', 'high', 'Is each score what its source claims?'),
    ('odd_scores', 'claimed mean', 'scores', 'high', 'Is the mean of each arm what its source claims, to the digits that it gives?');

CREATE VIEW claimed_scores AS
WITH said AS (
    SELECT r.run, r.experiment, r.arm, r.task, l.name, label_of(r.labels, l.name) AS claimed
    FROM (
        SELECT run, experiment, arm, task, labels FROM runs WHERE parent IS NULL AND labels IS NOT NULL
    ) AS r, unnest(json_keys(r.labels)) AS l(name)
    WHERE starts_with(l.name, 'claim: ') OR starts_with(l.name, 'claim of the mean: ')
), newest AS (
    SELECT run, metric, max_by({'value': value, 'by': judged_by, 'position': position, 'version': version}, version) AS told
    FROM outcomes
    GROUP BY run, metric
)
SELECT
    s.run, s.experiment, s.arm, s.task, n.metric, s.claimed, n.told.value AS value, n.told.by AS judged_by, 1 AS runs,
    n.told.position AS position, n.told.version AS version, try_cast(s.claimed AS DOUBLE) = n.told.value AS holds
FROM said AS s
JOIN newest AS n ON n.run = s.run AND s.name = 'claim: ' || n.metric
UNION ALL
SELECT
    NULL, m.experiment, m.arm, NULL, m.metric, m.claimed, avg(n.told.value), NULL, count(n.run), NULL, NULL,
    abs(try_cast(m.claimed AS DOUBLE) - avg(n.told.value))
        <= if(contains(lower(m.claimed), 'e'), 0, 0.5 * 0.1 ** length(split_part(m.claimed, '.', 2))) + 1e-9
FROM (
    SELECT DISTINCT experiment, arm, claimed, substr(name, length('claim of the mean: ') + 1) AS metric
    FROM said
    WHERE starts_with(name, 'claim of the mean: ')
) AS m
JOIN runs AS r ON r.experiment IS NOT DISTINCT FROM m.experiment AND r.arm IS NOT DISTINCT FROM m.arm AND r.parent IS NULL
JOIN newest AS n ON n.run = r.run AND n.metric = m.metric
GROUP BY m.experiment, m.arm, m.metric, m.claimed;
COMMENT ON VIEW claimed_scores IS 'One row a score that a source claims of a run and that is on record, too, and one a mean that it claims of an arm: what is claimed, as it is written, and what is on record.';

CREATE OR REPLACE VIEW odd_scores AS
SELECT
    'contradicts its checks' AS kind, s.run, NULL::VARCHAR AS agent, NULL::BIGINT AS step,
    address_of(s.position, e.event_index) AS address,
    concat(s.judged_by, ' says that ', s.metric, ' is ', s.value, if(r.task IS NULL, '', concat(' in task ', r.task)), ', and ', s.contradiction) AS fact,
    r.experiment, [{'run': s.run, 'address': address_of(s.position, e.event_index)}] AS evidence
FROM checked_scores AS s
JOIN runs AS r ON r.run = s.run AND r.parent IS NULL
JOIN events AS e ON e.position = s.position AND e.version = s.version
WHERE s.contradiction IS NOT NULL
UNION ALL
SELECT
    'claimed score', c.run, NULL, NULL, address_of(c.position, e.event_index),
    concat('claimed is ', c.metric, ' ', c.claimed, if(c.task IS NULL, '', concat(' in task ', c.task)), ', and ', c.judged_by, ' says ', c.value),
    c.experiment, [{'run': c.run, 'address': address_of(c.position, e.event_index)}]
FROM claimed_scores AS c
JOIN events AS e ON e.position = c.position AND e.version = c.version
WHERE c.run IS NOT NULL AND NOT c.holds
UNION ALL
SELECT
    'claimed mean', NULL, NULL, NULL, NULL,
    concat('claimed is a mean ', c.metric, ' of ', c.claimed, ' under arm ', c.arm, ', and that of its ', c.runs, ' scored runs is ', round(c.value, 6)),
    c.experiment, []
FROM claimed_scores AS c
WHERE c.run IS NULL AND NOT c.holds;
COMMENT ON VIEW odd_scores IS 'One row a score that contradicts the checks which its judge stored beside it, or what its source claims of it; and one an arm whose mean is not the claimed one.';
