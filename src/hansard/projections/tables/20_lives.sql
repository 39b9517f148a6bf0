-- On: run.*
-- What this batch tells of the lives of runs.
CREATE OR REPLACE TEMP TABLE lives AS
SELECT run, ordinal, type, data, position, happened_at, true AS own, clock
FROM batch
WHERE stream = 'life';
