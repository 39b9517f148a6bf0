-- A claimed mean of 0.5 may have been 0.50: JSON keeps no last zero, so two digits are taken at least.

UPDATE finding_kinds SET question = 'Is the mean of each arm what its source claims, to the digits that it gives, two at least?'
WHERE kind = 'claimed mean';

CREATE OR REPLACE VIEW claimed_scores AS
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
        <= if(contains(lower(m.claimed), 'e'), 0, 0.5 * 0.1 ** greatest(2, length(split_part(m.claimed, '.', 2)))) + 1e-9
FROM (
    SELECT DISTINCT experiment, arm, claimed, substr(name, length('claim of the mean: ') + 1) AS metric
    FROM said
    WHERE starts_with(name, 'claim of the mean: ')
) AS m
JOIN runs AS r ON r.experiment IS NOT DISTINCT FROM m.experiment AND r.arm IS NOT DISTINCT FROM m.arm AND r.parent IS NULL
JOIN newest AS n ON n.run = r.run AND n.metric = m.metric
GROUP BY m.experiment, m.arm, m.metric, m.claimed;
COMMENT ON VIEW claimed_scores IS 'One row a score that a source claims of a run and that is on record, too, and one a mean that it claims of an arm: what is claimed, and what is on record.';
