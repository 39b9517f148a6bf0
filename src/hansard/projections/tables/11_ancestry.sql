-- On: *
-- Where: forks
-- Streams inherited by the forks of this batch: the run, the stream, and its last inherited version.
CREATE OR REPLACE TEMP TABLE ancestry AS
WITH RECURSIVE vectors AS (
    SELECT run, parent, position, unnest(map_entries(CAST(vector AS MAP(VARCHAR, BIGINT)))) AS cut
    FROM lineage
), cuts AS (
    SELECT run, parent, cut.key AS stream, cut.value AS version, position, 1 AS depth
    FROM vectors
    WHERE run IN (SELECT run FROM batch)
    UNION ALL
    SELECT c.run, v.parent, c.stream, least(c.version, v.cut.value), v.position, c.depth + 1
    FROM cuts AS c
    JOIN vectors AS v ON v.run = c.parent AND v.cut.key = c.stream AND v.position < c.position
    WHERE c.depth < 100
)
SELECT run, parent, stream, version, position FROM cuts;
