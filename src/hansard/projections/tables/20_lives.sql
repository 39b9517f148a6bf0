-- On: run.*
-- Events of the lives of runs in this batch.
CREATE OR REPLACE TEMP TABLE lives AS
SELECT run, ordinal, type, data, position, happened_at, true AS own, clock
FROM batch
WHERE stream = 'life';
